//! `hyoshi trace compare`: does a run agree with the simulation of its system?

use std::cell::RefCell;
use std::fmt::Write;
use std::ops::ControlFlow;

use hyoshi_model::{Instant, JobId, System};
use hyoshi_replay::{Feed, Figures, Observer};
use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{counted, time};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::agreement::{self, Difference, ProcessorEnds, RunComparison, TOLERANCE};
use hyoshi_trace::{JobOutcome, Signal};
use serde_json::{Value, json};

use super::recorded::{ReadingEnd, Recorded};
use super::recorded_signals::RecordedSignals;
use super::{CliError, Format, VerbOutcome, head, streams};

/// The most near-ties that are printed; the same for disturbed periods and disagreements.
const MOST_PRINTED: usize = 10;

pub(super) fn compare(recorded: &Recorded, format: Format) -> Result<VerbOutcome, CliError> {
    let system = &recorded.system;
    let mut run = Observer::new(system).keeping_ends(true);
    let mut journeys = RecordedSignals::new(system, &recorded.header);
    let ReadingEnd { lost, last, part, .. } = recorded.events(|processor, at, event| {
        journeys.event(processor, at, &event);
        run.event(processor, at, &event);
        ControlFlow::Continue(())
    })?;
    if lost > 0 {
        let message = format!("{lost} events were lost while recording: jobs are missing from the comparison");
        return Err(CliError::new(message).help("record again with less load on the machine"));
    }
    // On a busy machine the end of the run is detected a little late: do not simulate that time.
    let last = last.min(Instant::ZERO + system.duration);
    let simulated = RefCell::new(Observer::new(system).keeping_ends(true));
    let inputs = journeys.inputs();
    let hops = journeys.hops();
    let (journey, chosen) = (|signal: &Signal| journeys.of(signal), |job: JobId| hops.get(&job).copied());
    // Between hosts the network decides when signals arrive: the comparison does not cover it.
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &inputs,
        requests: false,
        samples: false,
        links: Some(&journey),
        hops: Some(&chosen),
    };
    let feed = |processor| Feed::new(processor, &simulated);
    simulate_known(system, &recorded.plan, last, Some(given), None, feed, |_| true);
    let mut all = agreements(system, &simulated.borrow_mut().figures(last), &run.figures(last), last);
    let mut processors = system.processor_ids();
    all.retain(|_| processors.next().is_some_and(|processor| recorded.header.contains(processor)));
    let holds = all.iter().all(|(_, agreement)| agreement.disagreements.is_empty());
    match format {
        Format::Text => {
            let texts: String = all.iter().map(|(name, agreement)| text(system, name, agreement)).collect();
            let part = part.map_or(String::new(), |part| format!("the recording is partial: {part}\n"));
            streams::out(TerminalStyle::of_stdout().wrap(&(texts + &part)))?;
        }
        Format::Json => {
            let all: Vec<_> = all.iter().map(|(name, agreement)| object(system, name, agreement)).collect();
            let object = json!({ "hyoshi": head("trace compare"), "holds": holds, "processors": all, "part": part });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(VerbOutcome::of(holds))
}

/// How far a simulation and a run agree until `end`, processor by processor.
pub(super) fn agreements<'a>(
    system: &'a System,
    simulated: &Figures<'_>,
    run: &Figures<'_>,
    end: Instant,
) -> Vec<(&'a str, RunComparison)> {
    let ends = simulated.ends.iter().zip(run.ends).map(|(simulated, run)| ProcessorEnds { simulated, run });
    let compared = agreement::compare(system, &ends.collect::<Vec<_>>(), end, TOLERANCE);
    system.processors.iter().map(|processor| processor.name.as_str()).zip(compared).collect()
}

pub(super) fn text(system: &System, name: &str, agreement: &RunComparison) -> String {
    let RunComparison { agreeing, jobs, near_ties, disturbed, disagreements } = agreement;
    let (ties, disturbances, differences) = (near_ties.len(), disturbed.len(), disagreements.len());
    let mut text = format!(
        "{name}: {} ({}) agree; near-ties {ties}, disturbed {disturbances}, disagreements {differences}\n",
        counted(*agreeing, "busy period", "busy periods"),
        counted(*jobs, "job", "jobs")
    );
    // Writing to a String cannot fail.
    for tie in near_ties.iter().take(MOST_PRINTED) {
        let distance = time(tie.completion.since(tie.timed).max(tie.timed.since(tie.completion)));
        let carried = carried_by(system, tie.through, tie.completion);
        let difference = described(system, &tie.difference);
        let _ = writeln!(text, "  near-tie: a completion and a timed instant {distance} apart{carried}; {difference}");
    }
    for disturbed in disturbed.iter().take(MOST_PRINTED) {
        let lost = time(disturbed.lost);
        let carried = disturbed.through.map_or_else(String::new, |job| format!(" before {}", job_name(system, job)));
        let difference = described(system, &disturbed.difference);
        let _ = writeln!(text, "  disturbed: {lost} used by other threads or the kernel{carried}; {difference}");
    }
    for difference in disagreements.iter().take(MOST_PRINTED) {
        let _ = writeln!(text, "  disagreement {}", described(system, difference));
    }
    text
}

pub(super) fn object(system: &System, name: &str, agreement: &RunComparison) -> Value {
    let ties = agreement.near_ties.iter().map(|tie| {
        json!({
            "completion_ns": tie.completion.as_nanos(), "timed_ns": tie.timed.as_nanos(),
            "carried_by": tie.through.map(|job| job_name(system, job)),
            "difference": described(system, &tie.difference),
        })
    });
    let disturbed = agreement.disturbed.iter().map(|disturbed| {
        json!({
            "lost_ns": disturbed.lost.as_nanos(),
            "carried_by": disturbed.through.map(|job| job_name(system, job)),
            "difference": described(system, &disturbed.difference),
        })
    });
    let disagreements = agreement.disagreements.iter().map(|difference| described(system, difference));
    json!({
        "name": name, "agreeing": agreement.agreeing, "jobs": agreement.jobs,
        "near_ties": ties.collect::<Vec<_>>(), "disturbed": disturbed.collect::<Vec<_>>(),
        "disagreements": disagreements.collect::<Vec<_>>(),
    })
}

/// When a near-tie was, and the job that carried the shift from there, if it was in another busy period.
fn carried_by(system: &System, job: Option<JobId>, completion: Instant) -> String {
    job.map_or_else(String::new, |job| format!(" at {}, carried by {}", at(completion), job_name(system, job)))
}

fn job_name(system: &System, job: JobId) -> String {
    format!("{}#{}", system.operation(job.operation).name, job.number)
}

fn described(system: &System, difference: &Difference) -> String {
    let job = |ended: &Option<(JobId, JobOutcome)>| match ended {
        Some((job, outcome)) => format!("{} {}", job_name(system, *job), word(*outcome)),
        None => "nothing".to_owned(),
    };
    format!("at {}: simulated {}, run {}", at(difference.at), job(&difference.simulated), job(&difference.run))
}

/// An instant as reports write times.
fn at(instant: Instant) -> String {
    time(instant.since(Instant::ZERO))
}

fn word(outcome: JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Made => "made",
        JobOutcome::Missed => "missed",
        JobOutcome::Cancelled => "cancelled",
        JobOutcome::Stopped => "stopped",
        JobOutcome::DroppedBusy => "dropped, busy",
        JobOutcome::DroppedFull => "dropped, full",
        JobOutcome::Expired => "dropped, expired",
        JobOutcome::Skipped => "dropped, skipped",
    }
}
