//! A recording as the source of a simulation: the incident again, perhaps under another policy.
//! Jobs take what they took and come when they came; the rest is as the system's file says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use hyoshi_model::{Instant, JobId, ProcessorId, Span, System, Trigger, takes};
use hyoshi_replay::{Figures, Observer};
use hyoshi_report::Level;
use hyoshi_report::figures::time;
use hyoshi_sched::Strategies;
use hyoshi_sim::Carried;
use hyoshi_trace::agreement::{Agreement, TOLERANCE};
use hyoshi_trace::stats::Counts;
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome};
use serde_json::{Value, json};

use super::costs::CostsFrom;
use super::journeys::RecordedJourneys;
use super::load::{Changes, Ready};
use super::notes::note;
use super::output::Again;
use super::recorded::{Left, Recorded};
use super::{Failure, compare};

/// The source of delays and losses of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Links {
    /// From the file's links
    #[default]
    Declared,
    /// From the recording; signals missing from it use the file's links
    Recorded,
}

/// What a simulation takes from a recording.
pub(super) struct Incident {
    file: String,
    verb: String,
    times: RefCell<Times>,
    /// Recorded delays and losses of signals, if requested.
    pub journeys: Option<RecordedJourneys>,
    /// Recorded requests and late starts of hosts.
    pub inputs: Vec<(Instant, ProcessorId, Input)>,
    /// Releases that came otherwise than declared.
    pub late: Arc<BTreeMap<JobId, Span>>,
    drawn: Cell<u64>,
    known: Cell<u64>,
    /// What the recording says.
    before: Observer<'static>,
    /// The same settings are simulated: then both must agree.
    compares: bool,
    until: Instant,
}

/// What jobs took, by operation, number and leg.
#[derive(Debug)]
struct Times(Vec<Vec<Took>>);

#[derive(Clone, Copy, Debug)]
struct Took {
    number: u64,
    leg: u16,
    /// It was stopped: it would have taken more.
    stopped: bool,
    used: bool,
    consumed: Span,
}

impl Times {
    /// What a job took; of jobs with one number, each once, in the order in which they ended.
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
    ) -> Result<(Incident, Ready), Failure> {
        let recorded = Recorded::open(path, strategies)?;
        let system = &recorded.system;
        let same = changes.arguments().iter().all(|word| word.starts_with("--duration")) && costs.costs.is_none();
        let mut times = Times(vec![Vec::new(); system.operations.len()]);
        let mut late = BTreeMap::new();
        let mut journeys = RecordedJourneys::new(system, &recorded.header);
        let mut before = Observer::new(system).keeping_ends(same);
        let mut last = Instant::ZERO;
        let Left { lost, torn, cut, part, .. } = recorded.events(|processor, at, event| {
            // What the kernel tells of afterwards is no part of it.
            if !matches!(event, Event::Seen(_)) {
                last = last.max(at);
            }
            before.event(processor, at, &event);
            journeys.event(processor, at, &event);
            let Event::Decision(Decision::End(end)) = event else { return ControlFlow::Continue(()) };
            if let Some(times) = times.0.get_mut(end.job.operation.index()) {
                // The end of a run tells nothing of what is unfinished.
                let told = end.outcome.finished() && (end.outcome == Outcome::Made || !end.consumed.is_zero());
                let stopped = end.outcome == Outcome::Stopped;
                if told || stopped {
                    let JobId { number, leg, .. } = end.job;
                    times.push(Took { number, leg, stopped, used: false, consumed: end.consumed });
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
            let text = format!("{lost} events were lost while recording: of some jobs it does not know what they took");
            notes.push(note(Level::Degraded, "recording", text));
            journeys.doubt();
        }
        notes.extend(part.map(|part| note(Level::Info, "recording", part)));
        let asked = changes.duration.unwrap_or(system.duration);
        let last = cut.unwrap_or(last);
        let until = (Instant::ZERO + asked).min(last);
        if let Some(torn) = torn {
            notes.push(note(Level::Degraded, "recording", torn));
        }
        if until < Instant::ZERO + asked {
            let text = format!(
                "the recording ends at {} of {}: simulated until there",
                time(last.since(Instant::ZERO)),
                time(asked)
            );
            notes.push(note(Level::Info, "recording", text));
        }
        let ready = recorded.ready(changes, costs, notes, strategies)?;
        let incident = Incident {
            file: path.display().to_string(),
            verb: recorded.header.verb.clone(),
            times: RefCell::new(times),
            inputs: journeys.inputs(),
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

    /// Until when the recording goes.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// What a job takes.
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

    /// What became of the incident.
    pub fn outcome(mut self, system: &System, after: &Figures<'_>, carried: &[Carried]) -> Again {
        let before = self.before.figures(self.until);
        let classes = [("critical", true), ("non-critical", false)];
        let classes = classes.map(|(name, critical)| {
            let of = |figures: &Figures<'_>| figures.stats.counts(None, |row| row.critical() == critical);
            (name, of(&before), of(after))
        });
        let agreements = self.compares.then(|| compare::agreements(system, after, &before, self.until));
        let both = Both {
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
        Again { text: both.text(system), json: both.json(system) }
    }
}

/// How late a periodic release came, if that is not as the file declares it, by more than a run's
/// usual overhead.
fn unlike_declared(system: &System, end: &JobEnd) -> Option<Span> {
    let periodic = system.operation(end.job.operation).trigger == Trigger::Periodic;
    if !periodic || end.job.leg > 0 {
        return None;
    }
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let setting = system.setting(epoch, end.job.operation);
    let drawn = takes::lateness(system.seed, end.job, setting.jitter, setting.period);
    let late = end.ready.min(end.end).since(end.release);
    (late.saturating_sub(drawn).max(drawn.saturating_sub(late)) > TOLERANCE).then_some(late)
}

/// An incident and its simulation, side by side.
struct Both<'a> {
    file: String,
    verb: String,
    known: u64,
    drawn: u64,
    late: u64,
    /// The numbers of signals with recorded and with declared delays, if requested.
    signals: Option<(u64, u64)>,
    classes: [(&'static str, Counts, Counts); 2],
    agreements: Option<Vec<(&'a str, Agreement)>>,
}

impl Both<'_> {
    fn text(&self, system: &System) -> String {
        let Both { file, verb, known, drawn, late, .. } = self;
        let mut text = format!("\nagain from {file} (a {verb}): {known} jobs take what they took");
        // Writing to a String cannot fail.
        if *drawn > 0 {
            let _ = write!(text, ", {drawn} what the system's file says (of them it tells nothing)");
        }
        if *late > 0 {
            let _ = write!(text, "; {late} releases come as late as they came");
        }
        if let Some((recorded, declared)) = self.signals {
            let _ = write!(text, "; {recorded} signals arrive or are lost as recorded");
            if declared > 0 {
                let _ = write!(text, ", {declared} as declared (missing from the recording)");
            }
        }
        let _ = write!(text, "\n\n{:<14}", "then → now");
        for (name, ..) in columns(&Counts::default()) {
            let _ = write!(text, "{name:>20}");
        }
        for (class, before, after) in &self.classes {
            let _ = write!(text, "\n{class:<14}");
            for ((_, then), (_, now)) in columns(before).into_iter().zip(columns(after)) {
                let _ = write!(text, "{:>20}", format!("{then} → {now}"));
            }
        }
        text.push('\n');
        for (name, agreement) in self.agreements.iter().flatten() {
            text.push('\n');
            text.push_str(&compare::text(system, name, agreement));
        }
        text
    }

    fn json(&self, system: &System) -> Value {
        let counts = |counts: &Counts| columns(counts).into_iter().map(|(name, count)| (name.to_owned(), json!(count)));
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

fn columns(counts: &Counts) -> [(&'static str, u64); 5] {
    [
        ("made", counts.made()),
        ("missed", counts.missed()),
        ("cancelled", counts.cancelled()),
        ("stopped", counts.stopped()),
        ("dropped", counts.dropped()),
    ]
}
