//! Counterexamples: a system file whose simulation shows a miss.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, OperationId, Span, System, write};
use hyoshi_report::CounterexampleSummary;
use hyoshi_sched::analysis::{Counterexample, Subject, counterexamples};
use hyoshi_sched::{Report, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::{DispatchDecision, JobEnd, Probe, Stats, TraceEvent};

use super::CliError;
use super::load::{LoadedSystem, plan};
use super::output::{cannot_write, try_out};

/// Limit for all simulations of one counterexample.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first requirement that counts and fails.
pub(super) fn first(ready: &LoadedSystem, report: &Report) -> Option<Counterexample> {
    counterexamples(&ready.system, report).next().filter(|one| one.counts)
}

/// Simulates the counterexample until it misses, and writes it to a file.
pub(super) fn save(
    mut example: Counterexample,
    path: &Path,
    ready: &LoadedSystem,
    strategies: &Strategies,
) -> Result<CounterexampleSummary, CliError> {
    try_out("the counterexample", path, &ready.file)?;
    let started = WallClock::now();
    let miss = loop {
        match miss(&example, strategies, started)? {
            Some(miss) => break miss,
            None if started.elapsed() < PATIENCE && example.lengthen() => {}
            None => {
                return Err(CliError::new(format!(
                    "no counterexample: {} fails ({}), but misses nothing within {} of simulated time",
                    example.subject.name(),
                    example.why,
                    example.system.duration
                ))
                .help("rely on the analysis; it fails by so little that worst cases must add up for longer"));
            }
        }
    };
    // The file ends at the next whole millisecond after the miss.
    let end = miss.end.since(Instant::ZERO).as_nanos().div_ceil(1_000_000).saturating_mul(1_000_000);
    let shorter = example.system.duration.min(Span::from_nanos(end.max(1_000_000)));
    example.system = example.system.with(|system| system.duration = shorter);
    let job = format!("{}#{}", example.system.operation(miss.job.operation).name, miss.job.number);
    let text = format!(
        "# A behaviour that {} allows, in which {} misses: {}.\n# {job} misses at {}: hyoshi sim {}\n\n{}",
        ready.file.replace(char::is_control, " "),
        example.subject.name(),
        example.why,
        miss.end,
        path.display().to_string().replace(char::is_control, " "),
        write(&example.system)
    );
    fs::write(path, text).map_err(|error| cannot_write("the counterexample", path, &error))?;
    Ok(CounterexampleSummary {
        file: Some(path.display().to_string()),
        job: Some(job),
        at_ns: Some(miss.end.as_nanos()),
        ..seen(&example)
    })
}

/// A counterexample before its simulation.
pub(super) fn seen(example: &Counterexample) -> CounterexampleSummary {
    CounterexampleSummary {
        of: example.subject.name().into(),
        kind: example.subject.kind(),
        region: example.region.clone(),
        reason: example.why.to_string(),
        duration_ns: example.system.duration.as_nanos(),
        file: None,
        job: None,
        at_ns: None,
    }
}

/// The first job that misses; `None` if the simulation runs out of time.
fn miss(example: &Counterexample, strategies: &Strategies, started: WallClock) -> Result<Option<JobEnd>, CliError> {
    let (system, watch) = (&example.system, RefCell::new(MissFinder::new(example)));
    let plan = plan(system, strategies)?;
    let go_on = |_| watch.borrow().missed.is_none() && started.elapsed() < PATIENCE;
    simulate(system, &plan, Instant::ZERO + system.duration, |_| MissProbe(&watch), go_on);
    Ok(watch.into_inner().missed)
}

/// Finds the first miss of the subject.
struct MissFinder<'a> {
    subject: &'a Subject,
    system: &'a System,
    stats: Stats,
    missed: Option<JobEnd>,
}

impl<'a> MissFinder<'a> {
    fn new(example: &'a Counterexample) -> Self {
        let system = &example.system;
        MissFinder { subject: &example.subject, system, stats: Stats::new(system), missed: None }
    }

    fn end(&mut self, end: &JobEnd) {
        let (late, by) =
            (!end.outcome.finished() || end.outcome == hyoshi_trace::JobOutcome::Missed, end.job.operation);
        let misses = match self.subject {
            Subject::Operation { operation, critical, .. } => late && by == *operation && end.critical == *critical,
            Subject::Processor { critical, operations, .. } => {
                late && operations.contains(&by) && (end.critical || !critical)
            }
            Subject::Chain { chain, .. } => {
                self.stats.record(end);
                let path: &[OperationId] = &self.system.chains[*chain].path;
                path.contains(&by) && self.stats.chains()[*chain].violated()
            }
        };
        if misses && self.missed.is_none_or(|missed| end.end < missed.end) {
            self.missed = Some(*end);
        }
    }
}

struct MissProbe<'w, 'a>(&'w RefCell<MissFinder<'a>>);

impl Probe for MissProbe<'_, '_> {
    fn event(&mut self, _: Instant, event: TraceEvent) {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = &event {
            self.0.borrow_mut().end(end);
        }
    }
}
