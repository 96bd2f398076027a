//! Simulates a recording, unchanged or with another policy. Jobs have recorded execution times and releases; the rest
//! is as in the system's file.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use hyoshi_model::{Instant, JobId, ProcessorId, Span, System, Trigger, execution_time};
use hyoshi_replay::{Figures, Observer};
use hyoshi_report::figures::{count, printable, time};
use hyoshi_report::terminal::grid::{CellValue, Column, column, grid};
use hyoshi_report::{NoteLevel, TerminalStyle};
use hyoshi_sched::Strategies;
use hyoshi_sim::LinkCounts;
use hyoshi_trace::agreement::{RunComparison, TOLERANCE};
use hyoshi_trace::stats::Counts;
use hyoshi_trace::{DispatchDecision, Input, JobEnd, JobOutcome, TraceEvent};
use serde_json::{Value, json};

use super::costs::CostsFrom;
use super::load::{Changes, LoadedSystem};
use super::notes::note;
use super::output::Resimulation;
use super::recorded::{ReadingEnd, Recorded};
use super::recorded_signals::RecordedSignals;
use super::{CliError, compare};

/// The source of delays and losses of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Links {
    /// From the file's links
    #[default]
    Declared,
    /// From the recording; signals missing from it use the file's links
    Recorded,
}

/// The input of a simulation from a recording.
pub(super) struct Incident {
    file: String,
    verb: String,
    times: RefCell<RecordedTimes>,
    /// Recorded delays and losses of signals, if requested.
    pub journeys: Option<RecordedSignals>,
    /// The hops that completions chose.
    pub hops: HashMap<JobId, u64>,
    /// Recorded requests and late starts of hosts.
    pub inputs: Vec<(Instant, ProcessorId, Input)>,
    /// Releases that were later than declared.
    pub late: Arc<BTreeMap<JobId, Span>>,
    drawn: Cell<u64>,
    known: Cell<u64>,
    /// The recorded figures.
    before: Observer<'static>,
    /// The simulation has the same settings, so both must agree.
    compares: bool,
    until: Instant,
}

/// Recorded execution times, by operation, number and leg.
#[derive(Debug)]
struct RecordedTimes(Vec<Vec<RecordedTime>>);

#[derive(Clone, Copy, Debug)]
struct RecordedTime {
    number: u64,
    leg: u16,
    /// The job was stopped: it would have executed longer.
    stopped: bool,
    used: bool,
    consumed: Span,
}

impl RecordedTimes {
    /// The execution time of a job. Jobs with one number are used once each, in the order of their ends.
    fn take(&mut self, job: JobId, drawn: Span) -> Option<Span> {
        let times = self.0.get_mut(job.operation.index())?;
        let key = (job.number, job.leg);
        let first = times.partition_point(|took| (took.number, took.leg) < key);
        let mut same = times[first..].iter_mut().take_while(|took| (took.number, took.leg) == key);
        let took = same.find(|took| !took.used)?;
        took.used = true;
        let least = Span::from_nanos(took.consumed.as_nanos().saturating_add(1));
        Some(if took.stopped { drawn.max(least) } else { took.consumed })
    }
}

impl Incident {
    /// Reads a recording for a simulation of its system with these changes.
    pub fn read(
        path: &Path,
        links: Links,
        changes: &Changes,
        costs: &CostsFrom,
        strategies: &Strategies,
    ) -> Result<(Incident, LoadedSystem), CliError> {
        let recorded = Recorded::open(path, strategies)?;
        let system = &recorded.system;
        let same = changes.arguments().iter().all(|word| word.starts_with("--duration")) && costs.costs.is_none();
        let mut times = RecordedTimes(vec![Vec::new(); system.operations.len()]);
        let mut late = BTreeMap::new();
        let mut journeys = RecordedSignals::new(system, &recorded.header);
        let mut before = Observer::new(system).keeping_ends(same);
        let mut last = Instant::ZERO;
        let ReadingEnd { lost, torn, cut, part, .. } = recorded.events(|processor, at, event| {
            // Later reports of the kernel are not part of the incident.
            if !matches!(event, TraceEvent::Cpu(_)) {
                last = last.max(at);
            }
            before.event(processor, at, &event);
            journeys.event(processor, at, &event);
            let TraceEvent::Decision(DispatchDecision::End(end)) = event else { return ControlFlow::Continue(()) };
            if let Some(times) = times.0.get_mut(end.job.operation.index()) {
                // At the end of a run the demand of unfinished jobs is unknown.
                let known = end.outcome.finished() && (end.outcome == JobOutcome::Made || !end.consumed.is_zero());
                let stopped = end.outcome == JobOutcome::Stopped;
                if known || stopped {
                    let JobId { number, leg, .. } = end.job;
                    times.push(RecordedTime { number, leg, stopped, used: false, consumed: end.consumed });
                }
                if let Some(by) = unlike_declared(system, &end) {
                    late.insert(end.job, by);
                }
            }
            ControlFlow::Continue(())
        })?;
        times.0.iter_mut().for_each(|times| times.sort_by_key(|took| (took.number, took.leg)));
        let mut notes = Vec::new();
        if lost > 0 {
            let text = format!("{} events were lost while recording: some execution times are unknown", count(lost));
            notes.push(note(NoteLevel::Degraded, "recording", text));
            journeys.doubt();
        }
        notes.extend(part.map(|part| note(NoteLevel::Info, "recording", part)));
        let asked = changes.duration.unwrap_or(system.duration);
        let last = cut.unwrap_or(last);
        let until = (Instant::ZERO + asked).min(last);
        if let Some(torn) = torn {
            notes.push(note(NoteLevel::Degraded, "recording", torn));
        }
        if until < Instant::ZERO + asked {
            let text = format!(
                "the recording ends at {} of {}: simulated until there",
                time(last.since(Instant::ZERO)),
                time(asked)
            );
            notes.push(note(NoteLevel::Info, "recording", text));
        }
        let ready = recorded.ready(changes, costs, notes, strategies)?;
        let incident = Incident {
            file: path.display().to_string(),
            verb: recorded.header.verb.clone(),
            times: RefCell::new(times),
            // If the system differs from the recorded one, its feedback loops measure the simulation.
            inputs: journeys.inputs().into_iter().filter(|(.., input)| same || !input.is_of_loop()).collect(),
            hops: journeys.hops(),
            journeys: Some(journeys).filter(|_| links == Links::Recorded),
            late: Arc::new(late),
            drawn: Cell::new(0),
            known: Cell::new(0),
            before,
            compares: same,
            until,
        };
        Ok((incident, ready))
    }

    /// The end of the recording.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The execution time of a job: recorded, else as drawn.
    pub fn takes(&self, job: JobId, drawn: Span) -> Span {
        let known = self.times.borrow_mut().take(job, drawn);
        let count = if known.is_some() { &self.known } else { &self.drawn };
        count.set(count.get() + 1);
        known.unwrap_or(drawn)
    }

    /// Whether job ends must be kept, to be compared with the recording's.
    pub fn compares(&self) -> bool {
        self.compares
    }

    /// Compares the simulation with the recording.
    pub fn outcome(mut self, system: &System, after: &Figures<'_>, carried: &[LinkCounts]) -> Resimulation {
        let before = self.before.figures(self.until);
        let classes = [("critical", true), ("non-critical", false)];
        let classes = classes.map(|(name, critical)| {
            let of = |figures: &Figures<'_>| figures.stats.counts(None, |row| row.critical() == critical);
            (name, of(&before), of(after))
        });
        let agreements = self.compares.then(|| compare::agreements(system, after, &before, self.until));
        let both = IncidentComparison {
            file: self.file.clone(),
            verb: self.verb.clone(),
            known: self.known.get(),
            drawn: self.drawn.get(),
            late: self.late.len() as u64,
            signals: self.journeys.is_some().then(|| {
                let (sent, recorded) =
                    carried.iter().fold((0, 0), |(sent, recorded), link| (sent + link.sent, recorded + link.recorded));
                (recorded, sent - recorded)
            }),
            classes,
            agreements,
        };
        Resimulation { text: both.text(system), json: both.json(system) }
    }
}

/// The lateness of a periodic release, if it differs from the declared one by more than a run's
/// usual overhead.
fn unlike_declared(system: &System, end: &JobEnd) -> Option<Span> {
    let periodic = system.operation(end.job.operation).trigger == Trigger::Periodic;
    if !periodic || end.job.leg > 0 {
        return None;
    }
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let setting = system.setting(epoch, end.job.operation);
    let drawn = execution_time::lateness(system.seed, end.job, setting.jitter, setting.period);
    let late = end.ready.min(end.end).since(end.release);
    (late.saturating_sub(drawn).max(drawn.saturating_sub(late)) > TOLERANCE).then_some(late)
}

/// An incident and its simulation, side by side.
struct IncidentComparison<'a> {
    file: String,
    verb: String,
    known: u64,
    drawn: u64,
    late: u64,
    /// The numbers of signals with recorded and with declared delays, if requested.
    signals: Option<(u64, u64)>,
    classes: [(&'static str, Counts, Counts); 2],
    agreements: Option<Vec<(&'a str, RunComparison)>>,
}

impl IncidentComparison<'_> {
    fn text(&self, system: &System) -> String {
        let IncidentComparison { file, verb, known, drawn, late, .. } = self;
        let mut prose = format!("simulated from {file} (a {verb}): {} jobs use recorded times", count(*known));
        if *drawn > 0 {
            let plural = if *drawn == 1 { "job uses" } else { "jobs use" };
            prose += &format!(", {} unrecorded {plural} the file's", count(*drawn));
        }
        if *late > 0 {
            prose += &format!("; {} releases are late as recorded", count(*late));
        }
        if let Some((recorded, declared)) = self.signals {
            prose += &format!("; {} signals arrive or are lost as recorded", count(recorded));
            if declared > 0 {
                prose += &format!(", {} as declared (missing from the recording)", count(declared));
            }
        }
        let rows = self.classes.iter().map(|(class, before, after)| {
            let pairs = outcomes(before).into_iter().zip(outcomes(after));
            let cells = pairs.enumerate().map(|(place, ((_, then), (_, now)))| {
                let all = self.classes.iter().flat_map(|(_, before, after)| [outcomes(before), outcomes(after)]);
                let any = all.into_iter().any(|outcomes| outcomes[place].1 > 0);
                CellValue::figure(if any || !OPTIONAL.contains(&place) {
                    format!("{} → {}", count(then), count(now))
                } else {
                    String::new()
                })
            });
            [CellValue::words(*class)].into_iter().chain(cells).collect()
        });
        let look = TerminalStyle::of_stdout();
        let mut text = format!("\n{}\n", look.wrap(&format!("{}\n", printable(&prose))));
        text += &grid(look, &COLUMNS, &rows.collect::<Vec<_>>(), usize::MAX);
        for (name, agreement) in self.agreements.iter().flatten() {
            text.push('\n');
            text.push_str(&look.wrap(&compare::text(system, name, agreement)));
        }
        text
    }

    fn json(&self, system: &System) -> Value {
        let counts =
            |counts: &Counts| outcomes(counts).into_iter().map(|(name, count)| (name.to_owned(), json!(count)));
        let object = |counts_of: &Counts| Value::Object(counts(counts_of).collect());
        let classes = self
            .classes
            .iter()
            .map(|(class, before, after)| json!({ "class": class, "then": object(before), "now": object(after) }));
        let agreements = self.agreements.as_ref().map(|agreements| {
            let each = agreements.iter().map(|(name, agreement)| compare::object(system, name, agreement));
            each.collect::<Vec<_>>()
        });
        json!({
            "recording": self.file, "verb": self.verb, "jobs_as_recorded": self.known, "jobs_drawn": self.drawn,
            "releases_late_as_recorded": self.late,
            "signals_as_recorded": self.signals.map(|(recorded, _)| recorded),
            "signals_as_declared": self.signals.map(|(_, declared)| declared), "classes": classes.collect::<Vec<_>>(), "agreement": agreements,
        })
    }
}

/// The outcomes without a column if there are none.
const OPTIONAL: std::ops::Range<usize> = 3..5;
const COLUMNS: [Column; 6] = [
    column("then → now"),
    column("made"),
    column("missed"),
    column("cancelled"),
    column("stopped").if_any(),
    column("dropped").if_any(),
];

fn outcomes(counts: &Counts) -> [(&'static str, u64); 5] {
    [
        ("made", counts.made()),
        ("missed", counts.missed()),
        ("cancelled", counts.cancelled()),
        ("stopped", counts.stopped()),
        ("dropped", counts.dropped()),
    ]
}
