//! Moves of operations between processors, on executed jobs.

use std::collections::BTreeMap;

use crate::common;

use common::*;
use hyoshi_control::feedback::ProposedMove;
use hyoshi_model::*;
use hyoshi_replay::blame::{Blame, Interest, ResponsePart};
use hyoshi_replay::{Observer, replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate_known;
use hyoshi_trace::{DispatchDecision, FeedbackHistory, Input, JobOutcome, TraceEvent};

const EXAMPLE: &str = include_str!("../../../examples/reallocation.toml");

fn example(change: impl FnOnce(String) -> String) -> System {
    let text = change(EXAMPLE.into());
    read(&text, "reallocation.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

type Events = Vec<(ProcessorId, Instant, TraceEvent)>;

fn run(system: &System) -> (Vec<FeedbackHistory>, Events) {
    let until = Instant::ZERO + system.duration;
    let all = events(system, until);
    let mut observer = Observer::new(system);
    all.iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    (observer.figures(until).feedback.to_vec(), all)
}

fn id(system: &System, name: &str) -> OperationId {
    system.operation_ids().find(|id| system.operation(*id).name == name).unwrap()
}

/// The mean utilisation of a processor after an instant, in seconds.
fn mean(history: &FeedbackHistory, from: u64) -> f64 {
    history.steady(Instant::ZERO + Span::from_secs(from)).unwrap().utilisation.unwrap().0
}

fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

#[test]
fn an_operation_of_a_saturated_processor_moves_and_no_job_is_lost() {
    let system = example(|text| text);
    let (track, moved) = (id(&system, "track"), id(&system, "track@rear"));
    let (histories, all) = run(&system);
    let departs: Vec<_> = all
        .iter()
        .filter(|(.., event)| matches!(event, TraceEvent::Input(Input::Depart { operation }) if *operation == track))
        .collect();
    let [(_, departed, _)] = departs[..] else { panic!("{departs:?}") };
    assert!((44.0..60.0).contains(&seconds(*departed)), "{departed}");
    // The numbers of both are those of one operation, each once, and its releases have no gap.
    let mut releases = BTreeMap::new();
    for (_, at, event) in &all {
        let TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) = event else { continue };
        if job.operation == track || job.operation == moved {
            assert_eq!(job.operation == moved, at > departed, "{job:?} at {at}");
            assert_eq!(releases.insert(job.number, *release), None);
        }
    }
    assert!(releases.keys().copied().eq(0..releases.len() as u64));
    let times: Vec<_> = releases.values().collect();
    assert!(times.windows(2).all(|pair| pair[1].since(*pair[0]) <= Span::from_millis(100)));
    assert!(seconds(*times[times.len() - 1]) > 119.8);
    // Both loops hold their set points again.
    for (processor, history) in histories.iter().enumerate() {
        let utilisation = mean(history, 80);
        assert!((utilisation - 0.6).abs() < 0.03, "{processor}: {utilisation}");
    }
    let one = |processor: usize| {
        all.iter().filter(move |(of, ..)| of.index() == processor).map(|(_, at, event)| (*at, *event))
    };
    for plan in &Plan::new(&system, &Strategies::built_in()).unwrap().processors {
        replay(&system, plan, one(plan.processor.index())).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
}

#[test]
fn an_operation_with_jobs_in_its_queue_moves_after_the_last_of_them() {
    // Long jobs of `detect`: many jobs of `track` wait.
    let system = example(|text| {
        let text = text.replace("[\"40ms\", \"55ms\"]", "[\"90ms\", \"99ms\"]");
        text.replace("# at first on `front`", "\nqueue = { limit = 32 }")
    });
    let (track, moved) = (id(&system, "track"), id(&system, "track@rear"));
    let (_, all) = run(&system);
    let of = |id: OperationId| {
        all.iter().filter_map(move |(_, at, event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == id => Some((*at, *end)),
            _ => None,
        })
    };
    let arrived = all.iter().find(|(.., event)| matches!(event, TraceEvent::Input(Input::Arrive { .. })));
    let (_, arrived, _) = arrived.expect("it moved");
    assert!(of(track).all(|(at, _)| at <= *arrived), "a job of both places at a time");
    assert!(of(moved).all(|(_, end)| end.ready >= *arrived));
    let late: Vec<_> = of(moved).filter(|(_, end)| end.release < *arrived).collect();
    assert!(!late.is_empty(), "releases on the way happen on arrival");
    let lost = |outcome| outcome != JobOutcome::Made && outcome != JobOutcome::Missed;
    assert_eq!(of(moved).filter(|(_, end)| lost(end.outcome)).count(), 0);
    // The move explains the whole delay of their releases, and only theirs.
    let explained = moves(&system, &all, 1);
    let expected = late.iter().map(|(_, end)| (end.job, ProcessorId(0), arrived.since(end.release)));
    assert_eq!(explained, expected.collect::<Vec<_>>());
    assert_eq!(moves(&system, &all, 0), []);
}

/// The jobs of a processor that were due during a move, with the processor that their operation left, and the delay by
/// the move. The parts of each job sum to its response.
fn moves(system: &System, all: &Events, processor: usize) -> Vec<(JobId, ProcessorId, Span)> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let mut blame = Blame::new(system, &plan.processors[processor], true, Interest::All);
    let mut found = Vec::new();
    for (_, at, event) in all.iter().filter(|(of, ..)| of.index() == processor) {
        let Some(breakdown) = blame.event(*at, event) else { continue };
        assert_eq!(breakdown.parts.iter().map(|(_, span)| *span).sum::<Span>(), breakdown.response());
        assert!(breakdown.total(|kind| kind == ResponsePart::TimerLate).is_zero(), "{breakdown:?}");
        for (kind, span) in &breakdown.parts {
            let ResponsePart::Moved { from, to } = kind else { continue };
            assert_eq!(to.index(), processor);
            found.push((breakdown.end.job, *from, *span));
        }
    }
    found
}

fn proposals(system: &System) -> Vec<ProposedMove> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let until = Instant::ZERO + system.duration;
    simulate_known(system, &plan, until, None, None, |_| hyoshi_trace::NoProbe, |_| true).proposals
}

#[test]
fn without_a_second_processor_the_move_is_proposed() {
    let system = example(|text| text.replace("[\"front\", \"rear\"]", "\"front\""));
    let [proposed] = proposals(&system)[..] else { panic!() };
    assert_eq!((proposed.operation, proposed.to), (id(&system, "track"), ProcessorId(1)));
    assert!((0.15..0.2).contains(&proposed.utilisation), "{proposed:?}");
    assert_eq!(proposals(&example(|text| text)), []);
}

#[test]
fn nothing_moves_to_a_processor_without_room() {
    let full = |text: String| text.replace("rate  = [\"5Hz\", \"25Hz\"]", "rate  = [\"28Hz\", \"29Hz\"]");
    let system = example(|text| {
        let text = full(text);
        assert_ne!(text, EXAMPLE);
        text.replace("[\"front\", \"rear\"]", "\"front\"")
    });
    assert_eq!(proposals(&system), []);
}

/// The longer jobs of a higher priority use the whole CPU, so no job of `track` ends.
#[test]
fn an_operation_that_is_starved_stays() {
    let system = example(|text| {
        let text = text.replace("[\"40ms\", \"55ms\"]", "[\"110ms\", \"120ms\"]");
        text.replace("[\"10Hz\", \"40Hz\"]", "[\"12Hz\", \"40Hz\"]")
    });
    let (track, moved) = (id(&system, "track"), id(&system, "track@rear"));
    let (_, all) = run(&system);
    let inputs = all.iter().filter_map(|(_, _, event)| match event {
        TraceEvent::Input(input @ (Input::Depart { .. } | Input::Stay { .. } | Input::Arrive { .. })) => Some(*input),
        _ => None,
    });
    let inputs: Vec<_> = inputs.collect();
    assert!(inputs.len() > 2, "{inputs:?}");
    for pair in inputs.chunks(2) {
        assert_eq!(pair[0], Input::Depart { operation: track });
        assert!(pair.len() < 2 || pair[1] == Input::Stay { operation: track }, "{inputs:?}");
    }
    let own: Vec<_> = all.iter().filter(|(of, ..)| of.index() == 0).map(|(_, at, event)| (*at, *event)).collect();
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    replay(&system, &plan.processors[0], own).unwrap_or_else(|divergence| panic!("{divergence}"));
    let ready = |id| {
        all.iter().filter(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Ready { job, .. }) if job.operation == id)).count()
    };
    assert!(ready(track) > 100 && ready(moved) == 0);
    // Jobs that were due meanwhile have the move as a cause, although it stayed.
    let delayed = moves(&system, &all, 0);
    assert!(!delayed.is_empty() && delayed.iter().all(|(job, from, _)| (job.operation, from.index()) == (track, 0)));
}

/// Its latest jobs count: with the mean of all jobs, it would seem to fit anywhere.
#[test]
fn an_operation_that_needs_more_itself_moves_once() {
    let system = example(|text| {
        let text = text.replace(
            "operation.detect.takes\" = { uniform = [\"40ms\", \"55ms\"]",
            "operation.track.takes\" = { uniform = [\"44ms\", \"46ms\"]",
        );
        text.replace("rate     = [\"10Hz\", \"40Hz\"]", "rate     = [\"20Hz\", \"40Hz\"]")
    });
    let (_, all) = run(&system);
    let departs = all.iter().filter(|(.., event)| matches!(event, TraceEvent::Input(Input::Depart { .. })));
    assert_eq!(departs.count(), 1);
    // Another one has no room for 45 %.
    let system = example(|text| {
        let text = text.replace(
            "operation.detect.takes\" = { uniform = [\"40ms\", \"55ms\"]",
            "operation.track.takes\" = { uniform = [\"44ms\", \"46ms\"]",
        );
        let text = text.replace("rate     = [\"10Hz\", \"40Hz\"]", "rate     = [\"20Hz\", \"40Hz\"]");
        text.replace("rate  = [\"5Hz\", \"25Hz\"]", "rate  = [\"12Hz\", \"25Hz\"]")
    });
    let (_, all) = run(&system);
    assert!(!all.iter().any(|(.., event)| matches!(event, TraceEvent::Input(Input::Depart { .. }))));
}
