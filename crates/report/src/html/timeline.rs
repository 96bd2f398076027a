//! The timeline: the whole run in cells with the worst state of the jobs that ended in each, and single jobs in some
//! windows. A script zooms; without it the whole run is a fixed picture.

use std::fmt::Write;

use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_replay::timeline::{JobLine, OtherUse, TimelineWindow, WindowReason};
use hyoshi_trace::JobOutcome;
use hyoshi_trace::stats::OverTime;
use hyoshi_trace::stats::over_time::Ends;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::parts::{State, chosen, parts};
use crate::blamed::{self, name_of};
use crate::figures::{count, nanos, printable};
use crate::input::ReportInput;
use crate::summary::Summary;
use crate::terminal::seconds;

const SCRIPT: &str = include_str!("timeline.js");

/// Rows with an operation or template of their own.
const MOST_ROWS: usize = 48;

/// Processors with a row for what was no job.
const MOST_STRANGERS: usize = 8;

/// Sizes of the fixed picture; the script has the same.
const ROW: usize = 22;
const TOP: usize = 24;
const LEFT: usize = 150;
const WIDTH: usize = 1140;

/// A row of the picture.
struct TimelineRow {
    label: String,
    /// `None`: of several.
    processor: Option<ProcessorId>,
    /// `critical`, `processor` for the title of a processor's rows, or nothing.
    kind: &'static str,
    /// What happened to its jobs; `None` in other rows.
    cells: Option<OverTime>,
}

/// The rows, and which one an operation or a processor's other work has.
struct Rows {
    rows: Vec<TimelineRow>,
    of: Vec<usize>,
    strangers: Vec<Option<usize>>,
    all: OverTime,
}

impl Rows {
    fn new(account: &ReportInput<'_>, history: &[OverTime]) -> Option<Rows> {
        let system = account.system;
        let mut all = history.first()?.emptied();
        history.iter().for_each(|one| all.merge(one));
        let cells = |operations: &mut dyn Iterator<Item = usize>| {
            let mut sum = all.emptied();
            operations.filter_map(|one| history.get(one)).for_each(|one| sum.merge(one));
            sum
        };
        let (chosen, more) = chosen(parts(account), MOST_ROWS, |_| false);
        let (mut rows, mut of) = (Vec::new(), vec![usize::MAX; system.operations.len()]);
        let mut strangers = vec![None; system.processors.len()];
        let strange = |processor: ProcessorId| {
            let mut others = account.windows().iter().flat_map(|window| &window.others);
            others.any(|other| other.processor == processor)
        };
        for processor in system.processor_ids() {
            let title = |label: String, kind| TimelineRow { label, processor: Some(processor), kind, cells: None };
            if system.processors.len() > 1 && chosen.iter().any(|part| part.processor == processor) {
                rows.push(title(printable(&system.processor(processor).name), "processor"));
            }
            for part in chosen.iter().filter(|part| part.processor == processor) {
                part.operations.iter().for_each(|id| of[id.index()] = rows.len());
                let cells = Some(cells(&mut part.operations.iter().map(|id| id.index())));
                let kind = if part.critical { "critical" } else { "" };
                rows.push(TimelineRow { label: printable(&part.label), processor: Some(processor), kind, cells });
            }
            if processor.index() < MOST_STRANGERS && strange(processor) {
                strangers[processor.index()] = Some(rows.len());
                rows.push(title("scheduling, other threads".into(), ""));
            }
        }
        if more > 0 {
            let rest = of.iter().enumerate().filter(|(_, row)| **row == usize::MAX).map(|(index, _)| index);
            let cells = Some(cells(&mut rest.collect::<Vec<_>>().into_iter()));
            of.iter_mut().filter(|row| **row == usize::MAX).for_each(|row| *row = rows.len());
            rows.push(TimelineRow { label: format!("{} more", count(more as u64)), processor: None, kind: "", cells });
        }
        Some(Rows { rows, of, strangers, all })
    }

    fn of(&self, line: &JobLine) -> usize {
        self.of.get(line.job.operation.index()).copied().unwrap_or(0)
    }

    /// The first row of a processor and the one after its last.
    fn range(&self, processor: ProcessorId) -> Option<(usize, usize)> {
        let here = |row: &TimelineRow| row.processor == Some(processor);
        Some((self.rows.iter().position(here)?, 1 + self.rows.iter().rposition(here)?))
    }
}

/// The section; nothing if no job end was kept.
pub(super) fn timeline(account: &ReportInput<'_>, summary: &Summary) -> Markup {
    let history = account.figures.causes.map_or(&[][..], |seen| &seen.history);
    let Some(rows) = Rows::new(account, history).filter(|_| summary.duration_ns > 0) else { return html! {} };
    let bands = bands(account, summary, &rows);
    html! {
        section {
            h2 { "Timeline" }
            p {
                "The whole run. A cell is " (nanos(rows.all.width().as_nanos())) " wide and shows the worst of the jobs that ended in it. "
                span class="scripted" {
                    "Single jobs appear when you zoom into a window that was kept: around the latest job of each class, the start, and "
                    "changes of region (diamonds below the top strip). Elsewhere a zoom shows only the worst misses as jobs."
                }
            }
            p class="scripted" {
                "Zoom: " kbd { "Ctrl" } " and the wheel, pinch, " kbd { "+" } " " kbd { "−" } ". Move: drag, " kbd { "←" } " " kbd { "→" }
                ". Whole run: " kbd { "0" } ". Next and previous job: " kbd { "j" } " " kbd { "k" } "."
            }
            ul class="legend" {
                @for (state, words) in State::SHOWN { li { i class={ "cell " (state.class()) } {} (words) } }
                @if !bands.is_empty() { li { i class="c-second" {} (second(account, summary)) } }
            }
            ul class="legend scripted" {
                li { i class="c-critical" {} "runs, critical" }
                li { i class="c-non-critical low" {} "runs, not critical" }
                li { i class="c-waited thin" {} "waits" }
                li { i class="c-held thin" {} "preempted or blocked" }
                li { i class="c-missed thin" {} "after its deadline" }
                li { i class="tick" {} "release" }
                li { i class="tick flag" {} "deadline" }
                li { i class="c-machine" {} "scheduling, other threads" }
            }
            div id="timeline" { div class="wide" tabindex="0" { (picture(summary, &rows, &bands)) } }
            script id="timeline-data" type="application/json" { (PreEscaped(data(account, summary, &rows, &bands))) }
            script { (PreEscaped(SCRIPT)) }
        }
    }
}

/// The second strategies that were in force, with their processors.
fn second(account: &ReportInput<'_>, summary: &Summary) -> String {
    let all = summary.processors.iter().zip(&account.system.processors);
    let names = all.filter_map(|(one, processor)| {
        let overload = one.overload.as_ref().filter(|overload| overload.ruled_ns > 0)?;
        Some(format!("{} in force on {}", overload.strategy, processor.name))
    });
    names.take(4).collect::<Vec<_>>().join("; ")
}

fn title(system: &System, window: &TimelineWindow) -> (String, String) {
    let span = nanos(window.until.since(window.from).as_nanos());
    let from = seconds(window.from.as_nanos());
    match window.reason {
        WindowReason::Latest { critical, job: id, lateness } => {
            let class = if critical { "critical" } else { "non-critical" };
            let late = lateness.as_nanos() > 0;
            let title = if late { format!("Latest {class} job") } else { format!("Closest {class} job") };
            let what = if late { "after its deadline" } else { "before its deadline" };
            let lateness = nanos(lateness.as_nanos().unsigned_abs());
            (title, format!("{}: {lateness} {what}; {span} from {from}", name_of(system, id)))
        }
        WindowReason::Start => ("Start".into(), format!("the first {span}")),
        WindowReason::Region(index) => {
            let name = system.epochs.get(index).map_or("?", |epoch| &epoch.name);
            (format!("Into {}", printable(name)), format!("{span} from {from}"))
        }
    }
}

/// Everything that the script draws. Instants are nanoseconds since the start of the run.
fn data(account: &ReportInput<'_>, summary: &Summary, rows: &Rows, bands: &[Band]) -> String {
    let system = account.system;
    let windows = account.windows();
    let window = |window: &TimelineWindow| {
        let others = window.others.iter().filter_map(|other| {
            let row = rows.strangers.get(other.processor.index()).copied().flatten()?;
            Some(json!([row, stranger(other.who), other.from.as_nanos(), other.to.as_nanos()]))
        });
        let second = window.second_strategy.iter().filter_map(|(processor, from, to)| {
            let (first, after) = rows.range(*processor)?;
            Some(json!([first, after, from.as_nanos(), to.as_nanos()]))
        });
        let (title, detail) = title(system, window);
        let chosen = match window.reason {
            WindowReason::Latest { job, .. } => window.jobs.iter().position(|line| line.job == job),
            _ => None,
        };
        json!({
            "title": title, "detail": detail, "from": window.from.as_nanos(), "until": window.until.as_nanos(),
            "jobs": window.jobs.iter().map(|line| job(account, rows, line)).collect::<Vec<_>>(),
            "others": others.collect::<Vec<_>>(), "bands": second.collect::<Vec<_>>(), "chosen": chosen,
        })
    };
    let late = summary.misses.iter().filter_map(|miss| {
        let index = system.operations.iter().position(|operation| operation.name == miss.operation)?;
        Some(json!([
            rows.of[index],
            printable(&miss.job),
            "missed",
            u8::from(miss.critical),
            miss.release_at_ns,
            miss.ready_at_ns,
            miss.deadline_at_ns,
            miss.end_at_ns,
            miss.start_at_ns,
            miss.causes.executed_ns + miss.causes.overran_ns,
            miss.explanation,
        ]))
    });
    let regions = system.epochs.iter().skip(1).filter(|epoch| epoch.at.as_nanos() < summary.duration_ns);
    let all = json!({
        "until": summary.duration_ns, "width": rows.all.width().as_nanos(), "all": cells(&rows.all),
        "rows": rows.rows.iter().map(|row| json!([
            row.label, row.processor.map_or_else(String::new, |id| printable(&system.processor(id).name)),
            row.kind, row.cells.as_ref().map(cells),
        ])).collect::<Vec<_>>(),
        "windows": windows.iter().map(window).collect::<Vec<_>>(), "late": late.collect::<Vec<_>>(),
        "regions": regions.map(|epoch| json!([epoch.at.as_nanos(), printable(&epoch.name)])).collect::<Vec<_>>(),
        "bands": bands.iter().map(|one| json!([one.first, one.after, one.from, one.until])).collect::<Vec<_>>(),
    });
    // Nothing in it may end the script's element.
    all.to_string().replace('<', "\\u003c").replace('&', "\\u0026")
}

fn job(account: &ReportInput<'_>, rows: &Rows, line: &JobLine) -> Value {
    let system = account.system;
    let at = |instant: Instant| if instant == Instant::NEVER { Value::Null } else { instant.as_nanos().into() };
    let ran: Vec<u64> = line.ran.iter().flat_map(|(from, to)| [from.as_nanos(), to.as_nanos()]).collect();
    let why = line
        .chief
        .map(|(kind, span)| format!("{} {}", nanos(span.as_nanos()), blamed::words(system, kind, account.threads)));
    json!([
        rows.of(line),
        printable(&name_of(system, line.job)),
        state(line),
        u8::from(line.critical),
        at(line.release),
        at(line.ready),
        at(line.deadline),
        at(line.end.map_or(Instant::NEVER, |(_, end)| end)),
        ran,
        line.consumed.as_nanos(),
        why,
    ])
}

/// Jobs in time, not finished and late, of one stretch after the other.
fn cells(row: &OverTime) -> Vec<u64> {
    row.stretches().flat_map(|(_, ends)| figures(ends)).collect()
}

fn figures(ends: &[Ends; 2]) -> [u64; 3] {
    let sum = |of: fn(&Ends) -> u64| ends.iter().map(of).sum::<u64>();
    [sum(|ends| ends.made), sum(|ends| ends.cancelled + ends.lost), sum(|ends| ends.missed)]
}

fn state(line: &JobLine) -> &'static str {
    match line.end {
        None => "unfinished",
        Some((JobOutcome::Made, _)) => "made",
        Some((JobOutcome::Missed, _)) => "missed",
        Some((JobOutcome::Cancelled, _)) => "cancelled",
        Some((JobOutcome::Stopped, _)) => "stopped",
        Some((JobOutcome::DroppedBusy | JobOutcome::DroppedFull | JobOutcome::Expired | JobOutcome::Skipped, _)) => {
            "dropped"
        }
    }
}

fn stranger(who: Option<OtherUse>) -> &'static str {
    match who {
        Some(OtherUse::Overhead(_)) => "scheduling",
        Some(OtherUse::Dispatch) => "a lane on its way to a job",
        Some(OtherUse::Other(_)) => "another thread of the machine",
        None => "not known",
    }
}

/// A stretch in which a second strategy was in force at some time, over the rows of its processor.
struct Band {
    first: usize,
    after: usize,
    from: u64,
    until: u64,
}

fn bands(account: &ReportInput<'_>, summary: &Summary, rows: &Rows) -> Vec<Band> {
    let mut bands = Vec::new();
    for (id, one) in account.system.processor_ids().zip(&summary.processors) {
        let (Some((first, after)), Some(overload)) = (rows.range(id), &one.overload) else { continue };
        let ruled = overload.over_time.iter().filter(|stretch| stretch.ruled_ns > 0);
        bands.extend(ruled.map(|stretch| Band { first, after, from: stretch.at_ns, until: stretch.until_ns }));
    }
    bands
}

/// The whole run as a fixed picture.
fn picture(summary: &Summary, rows: &Rows, bands: &[Band]) -> Markup {
    let height = TOP + rows.rows.len() * ROW + 6;
    let whole = summary.duration_ns as f64;
    let x = |at: u64| LEFT as f64 + (at as f64 / whole).min(1.0) * (WIDTH - LEFT) as f64;
    let cell = |row: &OverTime, y: usize, shown: State| {
        let mut path = String::new();
        for (at, ends) in row.stretches() {
            let [made, lost, missed] = figures(ends);
            if State::of(made, lost, missed) == shown {
                let high = match shown {
                    State::Missed => 16,
                    State::Lost => 10,
                    _ => 5,
                };
                let (left, right) = (x(at.as_nanos()), x(at.as_nanos() + row.width().as_nanos()));
                // Writing to a string does not fail.
                let _ = write!(path, "M{left:.1} {}V{}H{:.1}V{0}Z", y + 19, y + 19 - high, right.max(left + 1.0));
            }
        }
        path
    };
    html! {
        svg class="timeline" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label="jobs over the whole run" {
            @for band in bands {
                rect class="second" x=(x(band.from)) width=(x(band.until) - x(band.from)) y=(TOP + band.first * ROW) height=((band.after - band.first) * ROW) {}
            }
            @for step in 0..=4 {
                @let at = summary.duration_ns / 4 * step;
                line class="grid" x1=(x(at)) x2=(x(at)) y1=(TOP) y2=(height) {}
                text class="at" x=(x(at)) y="15" text-anchor=(if step == 4 { "end" } else { "start" }) { (nanos(at)) }
            }
            @for (index, row) in rows.rows.iter().enumerate() {
                @let y = TOP + index * ROW;
                line class="grid" x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                text class=(row.kind) x="4" y=(y + 15) { (row.label.chars().take(20).collect::<String>()) }
                @if let Some(cells) = &row.cells {
                    @for (state, _) in State::SHOWN { path class={ "cell " (state.class()) } d=(cell(cells, y, state)) {} }
                }
            }
        }
    }
}
