//! Progress of a run: a table that redraws itself in a terminal, a line per second elsewhere.

use std::io::{self, Write};

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::style::{Color, Stylize};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use hyoshi_model::{Instant, Span, System};
use hyoshi_trace::{Counts, FeedbackHistory, Stats};

use crate::feedback::latest_samples;
use crate::figures::{count, counted, nanos, percent, printable, share};
use crate::terminal::{TerminalStyle, can_redraw, cut};

/// A terminal is drawn anew this often, at most.
pub const REDRAW: Span = Span::from_millis(200);

/// Other output gets a line this often.
pub const LINE: Span = Span::from_secs(1);

/// The statistics, the samples of the loop of each processor, and the utilisation of the machine in parts per million.
pub type Progress<'a> = ((&'a Stats, &'a [FeedbackHistory]), Option<u32>);

/// The row of the whole machine.
const ALL_CPUS: &str = "all CPUs";

/// Shows the progress of a run.
#[derive(Debug)]
pub struct LiveTable<W> {
    to: W,
    look: TerminalStyle,
    redraws: bool,
    asked: Span,
    shown: Option<Instant>,
    /// Lines on the screen that the next table replaces.
    lines: u16,
    /// CPU time of each processor when it was last shown, for the utilisation since then.
    consumed: Vec<Span>,
    used_ppm: Vec<u64>,
}

impl LiveTable<io::Stderr> {
    /// On standard error: a table that redraws itself if the terminal can, else lines.
    pub fn of_stderr(system: &System, asked: Span) -> Self {
        LiveTable::new(io::stderr(), TerminalStyle::of_stderr(), can_redraw(&io::stderr()), system, asked)
    }
}

impl<W: Write> LiveTable<W> {
    /// On `to`, redrawing in place if it is a terminal.
    pub fn new(to: W, look: TerminalStyle, redraws: bool, system: &System, asked: Span) -> Self {
        let processors = system.processors.len();
        LiveTable {
            to,
            look,
            redraws,
            asked,
            shown: None,
            lines: 0,
            consumed: vec![Span::ZERO; processors],
            used_ppm: vec![0; processors],
        }
    }

    /// True if it is time to show something; cheap enough to ask often.
    pub fn is_due(&self, now: Instant) -> bool {
        let every = if self.redraws { REDRAW } else { LINE };
        self.shown.is_none_or(|shown| now.since(shown) >= every)
    }

    /// Shows the state at `now`. The caller ignores errors: a run continues without its display.
    pub fn show(&mut self, now: Instant, system: &System, progress: Progress<'_>, lost_events: u64) -> io::Result<()> {
        self.measure(now, system, progress.0.0);
        self.shown = Some(now);
        let text = match self.redraws {
            true => self.table(now, system, progress, lost_events),
            false => self.line(now, system, progress, lost_events),
        };
        if self.redraws {
            queue!(self.to, BeginSynchronizedUpdate)?;
            self.clear()?;
            self.lines = text.lines().count() as u16;
        }
        self.to.write_all(text.as_bytes())?;
        if self.redraws {
            queue!(self.to, EndSynchronizedUpdate)?;
        }
        self.to.flush()
    }

    /// Removes the table from the screen, for the final report.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.redraws {
            self.clear()?;
        }
        self.to.flush()
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.lines > 0 {
            queue!(self.to, MoveToPreviousLine(self.lines), Clear(ClearType::FromCursorDown))?;
            self.lines = 0;
        }
        Ok(())
    }

    /// Utilisation since the last time.
    fn measure(&mut self, now: Instant, system: &System, stats: &Stats) {
        let since = now.since(self.shown.unwrap_or(Instant::ZERO));
        if since.is_zero() {
            return;
        }
        for id in system.processor_ids() {
            let consumed = stats.counts(None, |row| row.processor() == id).consumed;
            let used = consumed.saturating_sub(self.consumed[id.index()]);
            self.consumed[id.index()] = consumed;
            let ppm = u128::from(used.as_nanos()) * 1_000_000 / u128::from(since.as_nanos());
            self.used_ppm[id.index()] = ppm.min(u128::from(u64::MAX)) as u64;
        }
    }

    fn region<'a>(&self, now: Instant, system: &'a System) -> &'a str {
        if system.epochs.len() > 1 { &system.epochs[system.epoch_at(now)].name } else { "" }
    }

    /// `12s/48s  region 3  critical made 1,234 missed 0  non-critical made 5 missed 0 cancelled 2`, for logs and pipes.
    fn line(
        &self,
        now: Instant,
        system: &System,
        ((stats, feedback), machine): Progress<'_>,
        lost_events: u64,
    ) -> String {
        let mut line = format!("{}/{}", nanos(now.as_nanos()), nanos(self.asked.as_nanos()));
        let region = self.region(now, system);
        if !region.is_empty() {
            line.push_str(&format!("  {region}"));
        }
        for (class, counts) in classes(stats) {
            line.push_str(&format!("  {class} made {} missed {}", count(counts.made()), count(counts.missed())));
            if counts.cancelled() > 0 {
                line.push_str(&format!(" cancelled {}", count(counts.cancelled())));
            }
        }
        for one in latest_samples(system, (stats, feedback), false) {
            line.push_str(&format!("  {one}"));
        }
        if let Some(machine) = machine {
            line.push_str(&format!("  {ALL_CPUS} {}", percent(machine.into())));
        }
        if lost_events > 0 {
            line.push_str(&format!("  {}", counted(lost_events, "event lost", "events lost")));
        }
        self.look.wrap(&(printable(&line) + "\n"))
    }

    fn table(
        &self,
        now: Instant,
        system: &System,
        ((stats, feedback), machine): Progress<'_>,
        lost_events: u64,
    ) -> String {
        let width = usize::from(self.look.width.unwrap_or(80)).clamp(20, 100);
        let mut lines: Vec<(String, Option<Color>)> = Vec::new();
        let done = u128::from(now.as_nanos()) * 1_000_000 / u128::from(self.asked.as_nanos().max(1));
        let region = self.region(now, system);
        let time = format!("{:>5} of {}  {region}", nanos(now.as_nanos()), nanos(self.asked.as_nanos()));
        let name = cut(&system.name, 24);
        let room = width.saturating_sub(name.chars().count() + time.chars().count() + 4).clamp(4, 40);
        lines.push((format!("{name}  {}  {time}", bar(done.min(1_000_000) as u64, room)), None));
        lines.push((String::new(), None));
        lines.push((
            format!("  {:<13}{:>12}{:>10}{:>11}{:>10}", "class", "made", "missed", "cancelled", "in time"),
            None,
        ));
        for (class, counts) in classes(stats) {
            let in_time = share(counts.made(), counts.released());
            let (made, missed, cancelled) = (count(counts.made()), count(counts.missed()), count(counts.cancelled()));
            let colour = (class == "critical" && counts.not_made() > 0).then_some(Color::Red);
            lines.push((format!("  {class:<13}{made:>12}{missed:>10}{cancelled:>11}{in_time:>10}"), colour));
        }
        lines.push((String::new(), None));
        let longest =
            system.processors.iter().map(|processor| processor.name.chars().count()).max().unwrap_or(0).min(24);
        let longest = if machine.is_some() { longest.max(ALL_CPUS.len()) } else { longest };
        for id in system.processor_ids().take(MOST_PROCESSORS) {
            let (name, used) = (cut(&system.processor(id).name, 24), self.used_ppm[id.index()]);
            lines.push((format!("  {name:<longest$}  {}  {:>8}", bar(used, 24), percent(used)), None));
        }
        if let Some(more @ 1..) = system.processors.len().checked_sub(MOST_PROCESSORS) {
            lines.push((format!("  … and {more} more processors"), None));
        }
        if let Some(machine) = machine.map(u64::from) {
            lines.push((format!("  {:<longest$}  {}  {:>8}", ALL_CPUS, bar(machine, 24), percent(machine)), None));
        }
        let samples = latest_samples(system, (stats, feedback), true);
        if !samples.is_empty() {
            lines.push((String::new(), None));
            lines.extend(samples.into_iter().map(|one| (format!("  {one}"), None)));
        }
        if lost_events > 0 {
            lines.push((
                format!("  {}, because a ring was full", counted(lost_events, "event lost", "events lost")),
                Some(Color::Yellow),
            ));
        }
        lines.into_iter().map(|(line, colour)| self.fitted(&line, width, colour)).collect()
    }

    /// A line that fits the width: a wrapped line would shift the next table.
    fn fitted(&self, line: &str, width: usize, colour: Option<Color>) -> String {
        let line = cut(&printable(line), width);
        match colour.filter(|_| self.look.colour) {
            Some(colour) => format!("{}\n", line.with(colour)),
            None => format!("{line}\n"),
        }
    }
}

fn bar(ppm: u64, width: usize) -> String {
    let full = (ppm.min(1_000_000) as usize * width + 500_000) / 1_000_000;
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// Processors that the live table shows; it must fit on a screen.
const MOST_PROCESSORS: usize = 12;

fn classes(stats: &Stats) -> impl Iterator<Item = (&'static str, Counts)> + '_ {
    [(true, "critical"), (false, "non-critical")].into_iter().filter_map(|(critical, class)| {
        let of = |row: &hyoshi_trace::stats::Row| row.critical() == critical;
        stats.rows().iter().any(of).then(|| (class, stats.counts(None, of)))
    })
}
