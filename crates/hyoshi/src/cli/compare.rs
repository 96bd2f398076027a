//! `hyoshi trace compare`: does a run agree with the simulation of its system?

use std::fmt::Write;
use std::ops::ControlFlow;

use hyoshi_model::{Instant, JobId, System};
use hyoshi_report::figures::time;
use hyoshi_sim::simulate;
use hyoshi_trace::agreement::{self, Agreement, Difference, TOLERANCE};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Probe};
use serde_json::{Value, json};

use super::recorded::{Left, Recorded};
use super::{Failure, Format, Held, head, streams};

/// Near-ties and their like that a person is told of, each.
const MOST_TOLD: usize = 10;

pub(super) fn compare(recorded: &Recorded, format: Format) -> Result<Held, Failure> {
    let (run, last) = ends(recorded)?;
    let system = &recorded.system;
    let simulated = simulate(system, &recorded.plan, last, |_| Ends::default(), |_| true);
    let both = simulated.processors.iter().zip(&run).zip(&system.processors);
    let all: Vec<(&str, Agreement)> = both
        .map(|((simulated, run), processor)| {
            (processor.name.as_str(), agreement::compare(&simulated.probe.0, run, last, TOLERANCE))
        })
        .collect();
    let holds = all.iter().all(|(_, agreement)| agreement.disagreements.is_empty());
    match format {
        Format::Text => {
            let texts: String = all.iter().map(|(name, agreement)| text(system, name, agreement)).collect();
            streams::out(texts)?;
        }
        Format::Json => {
            let all: Vec<_> = all.iter().map(|(name, agreement)| object(system, name, agreement)).collect();
            let object = json!({ "hyoshi": head("trace compare"), "holds": holds, "processors": all });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(Held::when(holds))
}

pub(super) fn text(system: &System, name: &str, agreement: &Agreement) -> String {
    let Agreement { agreeing, jobs, near_ties, disturbed, disagreements } = agreement;
    let (ties, disturbances, differences) = (near_ties.len(), disturbed.len(), disagreements.len());
    let mut text = format!(
        "{name}: {agreeing} busy periods ({jobs} jobs) agree; \
         near-ties {ties}, disturbed {disturbances}, disagreements {differences}\n"
    );
    // Writing to a String cannot fail.
    for tie in near_ties.iter().take(MOST_TOLD) {
        let difference = told(system, &tie.difference);
        let _ =
            writeln!(text, "  near-tie: completion at {}, timed {}; {difference}", at(tie.completion), at(tie.timed));
    }
    for disturbed in disturbed.iter().take(MOST_TOLD) {
        let difference = told(system, &disturbed.difference);
        let _ = writeln!(text, "  disturbed: {} went to something else; {difference}", time(disturbed.lost));
    }
    for difference in disagreements.iter().take(MOST_TOLD) {
        let _ = writeln!(text, "  disagreement {}", told(system, difference));
    }
    text
}

pub(super) fn object(system: &System, name: &str, agreement: &Agreement) -> Value {
    let ties = agreement.near_ties.iter().map(|tie| {
        json!({
            "completion_ns": tie.completion.as_nanos(), "timed_ns": tie.timed.as_nanos(),
            "difference": told(system, &tie.difference),
        })
    });
    let disturbed = agreement.disturbed.iter().map(
        |disturbed| json!({ "lost_ns": disturbed.lost.as_nanos(), "difference": told(system, &disturbed.difference) }),
    );
    let disagreements = agreement.disagreements.iter().map(|difference| told(system, difference));
    json!({
        "name": name, "agreeing": agreement.agreeing, "jobs": agreement.jobs,
        "near_ties": ties.collect::<Vec<_>>(), "disturbed": disturbed.collect::<Vec<_>>(),
        "disagreements": disagreements.collect::<Vec<_>>(),
    })
}

fn told(system: &System, difference: &Difference) -> String {
    let job = |told: &Option<(JobId, Outcome)>| match told {
        Some((job, outcome)) => {
            format!("{}#{} {}", system.operation(job.operation).name, job.number, word(*outcome))
        }
        None => "nothing".to_owned(),
    };
    format!("at {}: simulated {}, run {}", at(difference.at), job(&difference.simulated), job(&difference.run))
}

/// An instant as reports write times.
fn at(instant: Instant) -> String {
    time(instant.since(Instant::ZERO))
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Made => "made",
        Outcome::Missed => "missed",
        Outcome::Cancelled => "cancelled",
        Outcome::Stopped => "stopped",
        Outcome::DroppedBusy => "dropped, busy",
        Outcome::DroppedFull => "dropped, full",
    }
}

/// Job ends by processor, and the last instant that the recording tells of.
fn ends(recorded: &Recorded) -> Result<(Vec<Vec<JobEnd>>, Instant), Failure> {
    let mut ends = vec![Vec::new(); recorded.system.processors.len()];
    let mut last = Instant::ZERO;
    let Left { lost, cut, .. } = recorded.events(|processor, at, event| {
        if let Event::Decision(Decision::End(end)) = event {
            ends[processor.index()].push(end);
        }
        last = last.max(at);
        ControlFlow::Continue(())
    })?;
    if lost > 0 {
        let message = format!("{lost} events were lost while recording: jobs are missing from the comparison");
        return Err(Failure::new(message).help("record again with less load on the machine"));
    }
    // A busy machine tells its threads of the end a little late: a simulation would go on until then.
    Ok((ends, cut.unwrap_or(last).min(Instant::ZERO + recorded.system.duration)))
}

/// Keeps job ends only.
#[derive(Default)]
struct Ends(Vec<JobEnd>);

impl Probe for Ends {
    fn event(&mut self, _: Instant, event: Event) {
        if let Event::Decision(Decision::End(end)) = event {
            self.0.push(end);
        }
    }
}
