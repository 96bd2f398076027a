//! `hyoshi trace compare`: does a run agree with the simulation of its system?

use std::fmt::Write;
use std::ops::ControlFlow;

use hyoshi_model::{Instant, JobId, System};
use hyoshi_sim::simulate;
use hyoshi_trace::agreement::{self, Agreement, Difference, TOLERANCE};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Probe};
use serde_json::{Value, json};

use super::trace::Recorded;
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

fn text(system: &System, name: &str, agreement: &Agreement) -> String {
    let Agreement { agreeing, jobs, near_ties, disturbed, disagreements } = agreement;
    let (ties, disturbances, differences) = (near_ties.len(), disturbed.len(), disagreements.len());
    let mut text = format!(
        "{name}: {agreeing} busy periods ({jobs} jobs) agree; \
         near-ties {ties}, disturbed {disturbances}, disagreements {differences}\n"
    );
    // Writing to a String cannot fail.
    for tie in near_ties.iter().take(MOST_TOLD) {
        let difference = told(system, &tie.difference);
        let _ = writeln!(text, "  near-tie: completion at {}, timed {}; {difference}", tie.completion, tie.timed);
    }
    for disturbed in disturbed.iter().take(MOST_TOLD) {
        let difference = told(system, &disturbed.difference);
        let _ = writeln!(text, "  disturbed: {} went to something else; {difference}", disturbed.lost);
    }
    for difference in disagreements.iter().take(MOST_TOLD) {
        let _ = writeln!(text, "  disagreement {}", told(system, difference));
    }
    text
}

fn object(system: &System, name: &str, agreement: &Agreement) -> Value {
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
            format!("{}#{} {outcome:?}", system.operation(job.operation).name, job.number)
        }
        None => "nothing".to_owned(),
    };
    format!("at {}: simulated {}, run {}", difference.at, job(&difference.simulated), job(&difference.run))
}

/// Job ends by processor, and the last instant that the recording tells of.
fn ends(recorded: &Recorded) -> Result<(Vec<Vec<JobEnd>>, Instant), Failure> {
    let mut ends = vec![Vec::new(); recorded.system.processors.len()];
    let mut last = Instant::ZERO;
    let (lost, _) = recorded.events(|processor, at, event| {
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
    Ok((ends, last))
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
