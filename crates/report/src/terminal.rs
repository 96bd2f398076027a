//! The final report in a terminal: the verdict, notes, and tables, from classes of jobs to single late jobs.

pub mod grid;
mod programs;
mod stages;
mod time;

use std::io::IsTerminal;
use std::sync::OnceLock;

use crossterm::style::{Attribute, Color, Stylize, force_color_output};

use crate::ReportNote;
use crate::figures::{count, nanos, percent, printable, share};
use crate::input::NoteLevel;
use crate::names::label;
use crate::summary::{BoundSummary, ChainSummary, CountsSummary, OperationSummary, Summary, TimesSummary};
use grid::{CellValue, Tone, column, grid};
pub(crate) use stages::END;

/// Rows that a table of the final report shows at most.
pub(crate) const MOST_ROWS: usize = 40;

/// Late jobs that the terminal shows.
const MOST_MISSES: usize = 8;

/// The maximum number of lines for notes, unless all are wanted.
const MOST_NOTE_LINES: usize = 5;

/// When to print in colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On a terminal that supports it: not if `NO_COLOR` is set, or if `TERM` is `dumb`.
    #[default]
    Auto,
    /// In files and pipes, too.
    Always,
    /// Nowhere.
    Never,
}

/// The choice of this process.
static CHOICE: OnceLock<ColourChoice> = OnceLock::new();

impl ColourChoice {
    /// Makes it the choice of the process. Only the first call counts.
    pub fn apply(self) {
        if CHOICE.set(self).is_ok() && self == ColourChoice::Always {
            // Else crossterm would still follow `NO_COLOR`.
            force_color_output(true);
        }
    }

    /// Whether output to `stream` is coloured.
    pub fn colours(stream: &impl IsTerminal) -> bool {
        match CHOICE.get().copied().unwrap_or_default() {
            ColourChoice::Auto => {
                can_redraw(stream) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
            ColourChoice::Always => true,
            ColourChoice::Never => false,
        }
    }
}

/// Whether `stream` is a terminal that understands escape sequences.
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The width of a terminal; elsewhere that of `COLUMNS`, if it is set.
pub fn width_of(stream: &impl IsTerminal) -> Option<u16> {
    let of_terminal = || crossterm::terminal::window_size().ok().map(|size| size.columns);
    let width = if stream.is_terminal() { of_terminal() } else { None };
    // Some terminals do not know their width and report 0.
    let known = width.filter(|width| *width > 0);
    known.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0))
}

/// How many notes a text shows; the other forms have all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// The most important ones, in five lines at most.
    #[default]
    Brief,
    /// All.
    Verbose,
}

/// How wide the terminal is, and whether it may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Whether to colour.
    pub colour: bool,
    /// Columns to fit into; `None` lets lines be as long as they are.
    pub width: Option<u16>,
}

impl TerminalStyle {
    /// Without colour and of any width: for files, pipes and comparison.
    pub const PLAIN: TerminalStyle = TerminalStyle { colour: false, width: None };

    /// Of standard output.
    pub fn of_stdout() -> TerminalStyle {
        TerminalStyle::of(&std::io::stdout())
    }

    /// Of standard error.
    pub fn of_stderr() -> TerminalStyle {
        TerminalStyle::of(&std::io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> TerminalStyle {
        TerminalStyle { colour: ColourChoice::colours(stream), width: width_of(stream) }
    }

    /// Lines wrapped at the width: the rest of a line is indented below its last column, or a little further in.
    ///
    /// Columns of a line are two spaces apart. Escape sequences have no width.
    pub fn wrap(self, text: &str) -> String {
        let Some(width) = self.width.map(usize::from) else { return text.into() };
        text.split_inclusive('\n').map(|line| wrapped(line, width)).collect()
    }

    /// Emphasised.
    pub fn bold(self, text: &str) -> String {
        if self.colour { text.attribute(Attribute::Bold).to_string() } else { text.into() }
    }

    /// In grey.
    pub fn quiet(self, text: &str) -> String {
        if self.colour { text.with(Color::DarkGrey).to_string() } else { text.into() }
    }

    /// In the colour of a tone.
    pub fn in_tone(self, text: &str, tone: Tone) -> String {
        match tone {
            Tone::Plain => self.bold(text),
            Tone::Good => self.toned(text, Color::Green),
            Tone::Worry => self.toned(text, Color::Yellow),
            Tone::Bad => self.toned(text, Color::Red),
        }
    }

    pub(crate) fn toned(self, text: &str, colour: Color) -> String {
        if self.colour { text.with(colour).attribute(Attribute::Bold).to_string() } else { text.into() }
    }
}

/// A text of at most `width` characters; `…` marks what was cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let start: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { start } else { start + "…" }
}

/// One line as several of at most `width` characters, if its words allow it.
fn wrapped(line: &str, width: usize) -> String {
    let (mut at, mut escape) = (0, false);
    // The place of each character on the terminal; of escape sequences that of the next character.
    let places = line.char_indices().map(|(byte, one)| {
        let place = (byte, one, at, escape || one == '\x1b');
        at += usize::from(!place.3 && one != '\n');
        escape = place.3 && !one.is_ascii_alphabetic();
        place
    });
    let places: Vec<_> = places.collect();
    if at <= width {
        return line.into();
    }
    let indent = places.iter().take_while(|(_, one, ..)| *one == ' ').count();
    let columns = places.windows(3).filter(|three| three[0].1 == ' ' && three[1].1 == ' ' && three[2].1 != ' ');
    let last = columns.map(|three| three[2].2).filter(|column| *column > indent && *column <= width / 2).max();
    let hanging = last.unwrap_or(indent + 2).min(width / 2);
    let (mut text, mut begun, mut space, mut left) = (String::new(), 0, None, width);
    let (mut first, mut floor) = (0, indent);
    for (byte, one, place, hidden) in places {
        if one == ' ' && !hidden && place > floor {
            space = Some((byte, place));
        }
        if !hidden
            && one != '\n'
            && place >= first + left
            && let Some((end, column)) = space.take()
        {
            text.push_str(line[begun..end].trim_end_matches(' '));
            text.push_str(&format!("\n{:hanging$}", ""));
            (begun, first, left, floor) = (end + 1, column + 1, width - hanging, column + 1);
        }
    }
    text + &line[begun..]
}

/// Notes, the most important first. If they are not all shown, the last line has the number of the others.
pub(crate) fn notes(notes: &[ReportNote], look: TerminalStyle, detail: Detail) -> String {
    let all: Vec<Vec<String>> = ReportNote::sorted(notes).into_iter().map(|note| lines_of(note, look)).collect();
    let lines: usize = all.iter().map(Vec::len).sum();
    if detail == Detail::Verbose || lines <= MOST_NOTE_LINES {
        return all.concat().concat();
    }
    let (mut text, mut room, mut shown, mut is_cut) = (String::new(), MOST_NOTE_LINES - 1, 0, false);
    for lines in &all {
        if room == 0 {
            break;
        }
        text.extend(lines.iter().take(room).map(String::as_str));
        is_cut = lines.len() > room;
        (room, shown) = (room.saturating_sub(lines.len()), shown + 1);
    }
    if is_cut {
        text.truncate(text.trim_end().len());
        text.push_str(" …\n");
    }
    let more = match (all.len() - shown, is_cut) {
        (0, _) => "the rest of this note".to_owned(),
        (more, true) => format!("the rest of this note, and {more} more"),
        (1, false) => "1 more note".to_owned(),
        (more, false) => format!("{more} more notes"),
    };
    text + &format!("  {}\n", look.quiet(&format!("… {more}: --verbose")))
}

/// The lines of a note.
fn lines_of(note: &ReportNote, look: TerminalStyle) -> Vec<String> {
    let word = match note.level {
        NoteLevel::Info => look.quiet("note"),
        NoteLevel::Degraded => look.toned("degraded", Color::Yellow),
        NoteLevel::Refused => look.toned("refused", Color::Yellow),
        NoteLevel::Failed => look.toned("failed", Color::Red),
    };
    let remedy = note.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
    let text = printable(&format!("{}: {}{remedy}", note.topic, note.text));
    look.wrap(&format!("  {word}: {text}\n")).split_inclusive('\n').map(str::to_owned).collect()
}

impl Summary {
    /// The report for a terminal.
    pub fn terminal(&self, look: TerminalStyle, detail: Detail) -> String {
        let mut text = self.heading(look, detail);
        let mut section = |title: &str, body: Option<String>| {
            if let Some(body) = body {
                text.push_str(&format!("\n{}\n{body}", look.bold(title)));
            }
        };
        section("Deadlines", Some(self.class_table(look)));
        section("Operations", Some(self.operation_table(look)));
        section("Regions", (self.epochs.len() > 1).then(|| self.epoch_table(look)));
        let machine = self.machine_utilisation_ppm.map_or(String::new(), |ppm| {
            format!("  all CPUs of the machine, with other programs: {}\n", percent(ppm.into()))
        });
        section("Processors", Some(self.processor_table(look) + &machine));
        section("Feedback control", self.feedback_table(look));
        section("Adapted rates", self.rate_table(look));
        section("Contracts", self.contract_table(look));
        section("Changes of regions", self.region_change_table(look));
        section("CPU time by use", self.time_table(look, MOST_ROWS));
        section("Chains", (!self.chains.is_empty()).then(|| self.chain_table(look)));
        section("Chains by stage", self.stage_table(look));
        section("Programs under the CPU broker", (!self.programs.is_empty()).then(|| self.program_table(look)));
        section("Worst misses", (!self.misses.is_empty()).then(|| self.miss_table(look)));
        text
    }

    fn heading(&self, look: TerminalStyle, detail: Detail) -> String {
        let Summary { hyoshi, system, verdict, .. } = self;
        let (ran, asked) = (nanos(self.duration_ns), nanos(self.asked_ns));
        let ran = if self.duration_ns < self.asked_ns { format!("{ran} of {asked}") } else { ran };
        let took = if hyoshi.verb == "sim" && self.took_ns > 0 {
            format!(" simulated in {}", nanos(self.took_ns))
        } else {
            String::new()
        };
        let about = format!("{}: {ran}{took}, seed {}", printable(&hyoshi.verb), system.seed);
        let mut text = String::new();
        let colour = if verdict.holds { Color::Green } else { Color::Red };
        text.push_str(&format!("  {}\n", look.toned(&printable(&verdict.sentence), colour)));
        text.push_str(&format!("  {}\n", look.quiet(&printable(&self.analysis.words(self.verdict.holds)))));
        let title = format!("{}  {}\n", look.bold(&printable(&system.name)), look.quiet(&about));
        format!("{}\n{}{}", look.wrap(&title), look.wrap(&text), notes(&self.notes, look, detail))
    }

    fn class_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("class"),
            column("jobs"),
            column("made"),
            column("missed"),
            column("cancelled").if_any(),
            column("legs shed").if_any().spare(10),
            column("stopped").if_any(),
            column("dropped").if_any(),
            column("overran").if_any().spare(9),
            column("in time").spare(6),
            column("response p50").spare(7),
            column("p99").spare(5),
            column("max").spare(4),
            column("worst lateness").spare(1),
        ];
        let rows = self.classes.iter().map(|class| {
            let mut row = vec![CellValue::words(class.class), CellValue::Count(class.counts.released, Tone::Plain)];
            row.extend(outcomes(&class.counts, class.critical));
            row.push(CellValue::figure(share(class.counts.made, class.counts.released)));
            row.extend(response(class.response.as_ref()));
            row.push(worst(class.lateness.as_ref(), class.critical));
            row
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn operation_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("operation"),
            column("processor").if_any().spare(15),
            column("class"),
            column("period").spare(10),
            column("jobs").spare(7),
            column("made"),
            column("missed"),
            column("cancelled").if_any(),
            column("legs shed").if_any().spare(14),
            column("stopped").if_any(),
            column("dropped").if_any(),
            column("overran").if_any().spare(13),
            column("declared time").spare(8),
            column("mean time").spare(8),
            column("response p50").spare(11),
            column("p99").spare(9),
            column("max").spare(4),
            column("bound").if_any().spare(5),
            column("deadline").spare(6),
            column("worst lateness").spare(1),
        ];
        let mut groups: Vec<&OperationSummary> = self.groups.iter().collect();
        if groups.len() > MOST_ROWS {
            // If not all fit, those with misses first.
            let not_made = |group: &OperationSummary| group.counts.released - group.counts.made;
            groups.sort_by_key(|group| (!group.critical, std::cmp::Reverse(not_made(group))));
        }
        let several = self.processors.len() > 1;
        let rows = groups.into_iter().map(|group| {
            let class = if group.critical { "critical" } else { "" };
            let mut row = vec![
                CellValue::words(label(&group.name, group.instances)),
                CellValue::words(if several { group.processor.as_str() } else { "" }),
                CellValue::words(class),
                CellValue::times(group.period_ns, group.period_max_ns),
                CellValue::Count(group.counts.released, Tone::Plain),
            ];
            row.extend(outcomes(&group.counts, group.critical));
            row.push(CellValue::time(group.wcet_ns));
            row.push(CellValue::time_if_known(group.execution.map(|execution| signless(execution.mean_ns))));
            row.extend(response(group.response.as_ref()));
            row.push(bound(&group.bound));
            row.push(CellValue::times(group.deadline_ns, group.deadline_max_ns));
            row.push(worst(group.lateness.as_ref(), group.critical));
            row
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn epoch_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("region"),
            column("from").spare(5),
            column("load"),
            column("used").spare(4),
            column("critical made"),
            column("missed"),
            column("cancelled").if_any(),
            column("stopped").if_any(),
            column("dropped").if_any(),
            column("other made"),
            column("missed"),
            column("cancelled").if_any(),
            column("stopped").if_any(),
            column("dropped").if_any(),
        ];
        let rows = self.epochs.iter().map(|epoch| {
            // The processor with the highest load represents the region.
            let most = |of: fn(&crate::summary::LoadSummary) -> u64| epoch.processors.iter().map(of).max().unwrap_or(0);
            let (declared, used) = (most(|load| load.declared_ppm), most(|load| load.used_ppm));
            let (critical, other) = (&epoch.critical, &epoch.non_critical);
            let reached = epoch.until_ns > epoch.at_ns;
            // A region that was not reached has empty cells, not zeros.
            let count = |count, tone| if reached { CellValue::Count(count, tone) } else { CellValue::figure("") };
            let counts = |counts: &CountsSummary, bad| {
                [
                    count(counts.missed, bad),
                    count(counts.cancelled, bad),
                    count(counts.stopped, bad),
                    count(counts.dropped(), bad),
                ]
            };
            let mut row = vec![
                CellValue::words(&epoch.name),
                CellValue::time(epoch.at_ns),
                CellValue::Figure(percent(declared), if declared > 1_000_000 { Tone::Worry } else { Tone::Plain }),
                CellValue::figure(if reached { percent(used) } else { String::new() }),
                if reached { count(critical.made, Tone::Plain) } else { CellValue::figure("not reached") },
            ];
            row.extend(counts(critical, Tone::Bad));
            row.push(count(other.made, Tone::Plain));
            row.extend(counts(other, Tone::Worry));
            row
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn processor_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("processor"),
            column("host").spare(5),
            column("cpu").if_any(),
            column("strategy"),
            column("levels"),
            column("preemption").spare(4),
            column("utilisation"),
            column("enqueue p50").if_any().spare(3),
            column("enqueue max").if_any().spare(5),
            column("dequeue p50").if_any().spare(3),
            column("dequeue max").if_any().spare(5),
        ];
        let rows = self.processors.iter().map(|processor| {
            let cost = |times: &Option<TimesSummary>, of: fn(&TimesSummary) -> i64| {
                CellValue::time_if_known(times.as_ref().map(|times| signless(of(times))))
            };
            vec![
                CellValue::words(&processor.name),
                CellValue::words(&processor.host),
                CellValue::figure(processor.cpu.map_or(String::new(), |cpu| cpu.to_string())),
                CellValue::words(processor.strategies()),
                CellValue::Count(processor.levels.len() as u64, Tone::Plain),
                CellValue::words(processor.preemption),
                CellValue::figure(percent(processor.utilisation_ppm)),
                cost(&processor.enqueue, |times| times.p50_ns),
                cost(&processor.enqueue, |times| times.max_ns),
                cost(&processor.dequeue, |times| times.p50_ns),
                cost(&processor.dequeue, |times| times.max_ns),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn chain_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("chain"),
            column("outputs"),
            column("in time"),
            column("late"),
            column("never ended").if_any(),
            column("too old").if_any(),
            column("too slow").if_any(),
            column("unknown").if_any().spare(9),
            column("latency p50").spare(8),
            column("p99").spare(7),
            column("max"),
            column("bound").if_any().spare(5),
            column("reaction max").if_any().spare(6),
            column("reaction bound").if_any().spare(7),
            column("demanded").if_any().spare(4),
            column("remark").if_any(),
        ];
        let rows = self.chains.iter().map(|chain| {
            let mut row = vec![
                CellValue::words(&chain.name),
                CellValue::Count(chain.latency.map_or(0, |latency| latency.count), Tone::Plain),
                CellValue::Count(chain.made, Tone::Plain),
                CellValue::Count(chain.missed, Tone::Bad),
                CellValue::Count(chain.lost, if chain.deadline_ns.is_some() { Tone::Bad } else { Tone::Worry }),
                CellValue::Count(chain.too_old, Tone::Bad),
                CellValue::Count(chain.too_slow, Tone::Bad),
                CellValue::Count(chain.unmatched, Tone::Worry),
            ];
            row.extend(response(chain.latency.as_ref()));
            row.push(bound(&chain.latency_bound));
            row.push(CellValue::time_if_known(chain.reaction.map(|reaction| signless(reaction.max_ns))));
            let demanded_of_it = chain.max_reaction_ns.is_some();
            row.push(if demanded_of_it { bound(&chain.reaction_bound) } else { CellValue::figure("") });
            row.push(CellValue::words(demanded(chain)));
            row.push(CellValue::words(chain.unmeasured.map_or(String::new(), |why| format!("not measured: {why}"))));
            row
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn miss_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("job"),
            column("class"),
            column("late by"),
            column("region").if_any().spare(3),
            column("released at").spare(1),
            column("why"),
        ];
        let regions = self.epochs.len() > 1;
        let rows = self.misses.iter().map(|miss| {
            vec![
                CellValue::words(&miss.job),
                CellValue::words(if miss.critical { "critical" } else { "" }),
                CellValue::signed_time(miss.lateness_ns).in_tone(if miss.critical { Tone::Bad } else { Tone::Worry }),
                CellValue::words(if regions { miss.epoch.as_str() } else { "" }),
                CellValue::figure(seconds(miss.release_at_ns)),
                CellValue::words(&miss.explanation),
            ]
        });
        let rows: Vec<_> = rows.take(MOST_MISSES).collect();
        grid(look, &columns, &rows, MOST_MISSES)
    }
}

/// The requirements of a chain.
pub(crate) fn demanded(chain: &ChainSummary) -> String {
    let demands = [("deadline", chain.deadline_ns), ("age", chain.max_age_ns), ("reaction", chain.max_reaction_ns)];
    let demands = demands.into_iter().filter_map(|(what, limit)| Some(format!("{what} {}", nanos(limit?))));
    demands.collect::<Vec<_>>().join(", ")
}

/// An instant to the microsecond, as in a log.
pub(crate) fn seconds(at_ns: u64) -> String {
    format!("{}.{:06}s", count(at_ns / 1_000_000_000), at_ns % 1_000_000_000 / 1_000)
}

fn outcomes(counts: &CountsSummary, critical: bool) -> Vec<CellValue> {
    let bad = if critical { Tone::Bad } else { Tone::Worry };
    vec![
        CellValue::Count(counts.made, Tone::Good),
        CellValue::Count(counts.missed, bad),
        CellValue::Count(counts.cancelled, bad),
        CellValue::Count(counts.shed_legs, bad),
        CellValue::Count(counts.stopped, bad),
        CellValue::Count(counts.dropped(), bad),
        CellValue::Count(counts.overran, Tone::Worry),
    ]
}

fn response(times: Option<&TimesSummary>) -> [CellValue; 3] {
    let figure = |of: fn(&TimesSummary) -> i64| CellValue::time_if_known(times.map(|times| signless(of(times))));
    [figure(|times| times.p50_ns), figure(|times| times.p99_ns), figure(|times| times.max_ns)]
}

/// What is proved: everywhere it ran, in some regions, or nowhere; with a mark if a longer time was observed.
fn bound(bound: &BoundSummary) -> CellValue {
    let value = match bound.bound_ns {
        Some(known) if bound.of > 0 => CellValue::time(known).followed_by(&bound_regions(bound)),
        _ => CellValue::figure(bound_words(bound)),
    };
    if bound.exceeded { value.followed_by(" !").in_tone(Tone::Bad) } else { value }
}

/// In how many of the regions a bound is known, if not in all.
fn bound_regions(bound: &BoundSummary) -> String {
    if bound.known == bound.of { String::new() } else { format!(" ({}/{})", bound.known, bound.of) }
}

/// A bound in a few letters.
pub(crate) fn bound_words(bound: &BoundSummary) -> String {
    match bound.bound_ns {
        _ if bound.of == 0 => String::new(),
        None => "unknown".into(),
        Some(known) => nanos(known) + &bound_regions(bound),
    }
}

/// One time, or a range.
pub(crate) fn range(least: u64, most: u64) -> String {
    if least == most { nanos(least) } else { format!("{}–{}", nanos(least), nanos(most)) }
}

fn worst(lateness: Option<&TimesSummary>, critical: bool) -> CellValue {
    let Some(lateness) = lateness else { return CellValue::figure("") };
    let tone = match (lateness.max_ns > 0, critical) {
        (false, _) => Tone::Plain,
        (true, true) => Tone::Bad,
        (true, false) => Tone::Worry,
    };
    CellValue::signed_time(lateness.max_ns).in_tone(tone)
}

fn signless(value: i64) -> u64 {
    value.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: TerminalStyle = TerminalStyle { colour: true, width: Some(40) };

    #[test]
    fn prose_wraps_at_spaces_and_hangs_below_its_first_word_or_column() {
        let note = "  note: a sentence that is longer than forty columns, and then some\n";
        assert_eq!(NARROW.wrap(note), "  note: a sentence that is longer than\n    forty columns, and then some\n");
        let row = "     1.2ms  4 %  waited for nav#8, which is more urgent than it\n";
        assert_eq!(
            NARROW.wrap(row),
            "     1.2ms  4 %  waited for nav#8, which\n                 is more urgent than it\n"
        );
        assert_eq!(NARROW.wrap("short\n\nlines\n"), "short\n\nlines\n");
        assert_eq!(TerminalStyle::PLAIN.wrap(note), note);
    }

    #[test]
    fn notes_have_five_lines_unless_all_are_wanted() {
        let note = |level, text: &str| ReportNote { level, topic: "topic".into(), text: text.into(), remedy: None };
        let mut all: Vec<ReportNote> = (0..6).map(|number| note(NoteLevel::Info, &number.to_string())).collect();
        all.push(note(NoteLevel::Refused, "first"));
        let brief = notes(&all, TerminalStyle::PLAIN, Detail::Brief);
        assert!(brief.starts_with("  refused: topic: first\n  note: topic: 0\n"), "{brief}");
        assert!(brief.ends_with("  note: topic: 2\n  … 3 more notes: --verbose\n"), "{brief}");
        assert_eq!(brief.lines().count(), MOST_NOTE_LINES);
        assert_eq!(notes(&all, TerminalStyle::PLAIN, Detail::Verbose).lines().count(), 7);
        assert_eq!(notes(&all[..5], TerminalStyle::PLAIN, Detail::Brief).lines().count(), 5);
        // Wrapped lines count, and a long note is not left out.
        let narrow = TerminalStyle { colour: false, width: Some(40) };
        for words in [10, 40, 80] {
            let text = notes(
                &[note(NoteLevel::Failed, "words ".repeat(words).trim_end()), all[0].clone()],
                narrow,
                Detail::Brief,
            );
            assert!(text.lines().count() <= MOST_NOTE_LINES && text.contains("failed"), "{text}");
            assert!(words < 40 || text.contains('…'), "{text}");
        }
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!([cut("names", 5), cut("names", 4), cut("names", 1), cut("names", 0)], ["names", "nam…", "…", ""]);
    }

    #[test]
    fn colours_take_no_room_and_long_words_stay_whole() {
        let coloured = NARROW.toned("Holds: all 75 jobs met their deadlines.", Color::Green);
        assert_eq!(NARROW.wrap(&coloured), coloured);
        let long = "x".repeat(60);
        assert_eq!(NARROW.wrap(&format!("  see {long} there\n")), format!("  see\n    {long}\n    there\n"));
    }

    proptest::proptest! {
        #[test]
        fn wrapping_keeps_all_words_and_breaks_only_lines_that_are_too_long(
            words in proptest::collection::vec("[a-z]{1,12}", 1..40),
            indent in 0usize..12,
            width in 30u16..100,
        ) {
            let line = format!("{:indent$}{}\n", "", words.join(" "));
            let wrapped = TerminalStyle { colour: false, width: Some(width) }.wrap(&line);
            proptest::prop_assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), words);
            proptest::prop_assert!(wrapped.lines().all(|line| line.chars().count() <= width.into()));
        }
    }
}
