//! Inputs from outside while a system runs: requests, adapted rates, regions out of turn, cancellation.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, JobRequest, TraceEvent};

const P: ProcessorId = ProcessorId(0);

fn at(millis: f64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn ranges(mut build: Build, slowest: f64) -> Build {
    for epoch in &mut build.0.epochs {
        let mut settings = epoch.settings.to_vec();
        settings.iter_mut().for_each(|one| one.slowest = ms(slowest));
        epoch.settings = settings.into();
    }
    build
}

/// The events of the one processor, which must replay exactly.
fn play(system: &System, millis: f64, inputs: &[(f64, Input)]) -> Vec<(Instant, TraceEvent)> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(millis, input)| (at(*millis), P, *input)).collect();
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &inputs,
        requests: true,
        samples: true,
        links: None,
        hops: None,
    };
    let simulated = simulate_known(system, &plan, at(millis), Some(given), None, |_| Vec::new(), |_| true);
    let events = simulated.processors.into_iter().next().unwrap().probe;
    replay(system, &plan.processors[0], events.iter().copied()).unwrap_or_else(|divergence| panic!("{divergence}"));
    events
}

fn of(events: &[(Instant, TraceEvent)], operation: u32) -> impl Iterator<Item = hyoshi_trace::JobEnd> + '_ {
    events.iter().filter_map(move |(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == OperationId(operation) => Some(*end),
        _ => None,
    })
}

fn millis(instants: impl Iterator<Item = Instant>) -> Vec<f64> {
    instants.map(|instant| instant.as_nanos() as f64 / 1e6).collect()
}

#[test]
fn an_adapted_rate_counts_after_the_armed_timer_and_ranks_the_levels_again() {
    let build = Build::new("RMS", 1).periodic("fast", 0, 10.0, 4.0).periodic("slow", 0, 20.0, 7.0);
    let build = ranges(build, 50.0);
    let retime = Input::Retime { operation: OperationId(0), period: ms(40.0) };
    let events = play(&build.system(), 120.0, &[(25.0, retime)]);
    // Armed for 30 ms; 40 ms apart from then on, with deadlines of 40 ms.
    let fast: Vec<_> = of(&events, 0).collect();
    assert_eq!(millis(fast.iter().map(|end| end.release)), [0.0, 10.0, 20.0, 30.0, 70.0, 110.0]);
    assert_eq!(fast[3].deadline, at(70.0));
    assert_eq!(fast[2].deadline, at(30.0));
    // Before, it preempted `slow`; from 25 ms on that runs first.
    assert_eq!(millis(of(&events, 1).map(|end| end.end)), [15.0, 31.0, 47.0, 67.0, 87.0, 107.0]);
    assert_eq!(millis(fast.iter().map(|end| end.end)), [4.0, 14.0, 24.0, 35.0, 74.0, 114.0]);
}

#[test]
fn a_rate_is_adapted_within_its_range_only() {
    let build = ranges(Build::new("EDF", 1).periodic("one", 0, 10.0, 1.0), 30.0);
    for (asked, period) in [(5.0, 10.0), (12.0, 12.0), (500.0, 30.0)] {
        let retime = Input::Retime { operation: OperationId(0), period: ms(asked) };
        let events = play(&build.system(), 61.0, &[(0.0, retime)]);
        let releases = millis(of(&events, 0).map(|end| end.release));
        assert_eq!(releases[1], 10.0 * f64::from(period == 10.0) + period * f64::from(period != 10.0));
    }
}

#[test]
fn a_processor_that_starts_late_leaves_out_what_was_due_before() {
    let build = Build::new("RMS", 1).periodic("fast", 0, 10.0, 4.0).periodic("slow", 0, 20.0, 7.0);
    let events = play(&build.system(), 50.0, &[(20.0, Input::Begin)]);
    assert_eq!(events[1], (at(20.0), TraceEvent::Input(Input::Begin)));
    // Releases due at its start occur, with the usual numbers.
    assert_eq!(of(&events, 0).map(|end| end.job.number).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(millis(of(&events, 1).map(|end| end.end)), [35.0]);
    let events = play(&build.system(), 50.0, &[(20.1, Input::Begin)]);
    assert_eq!(of(&events, 0).map(|end| end.job.number).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(of(&events, 1).count(), 0);
}

#[test]
fn a_region_entered_out_of_turn_holds_until_another_one_begins() {
    let mut build = Build::new("EDF", 1).periodic("a", 0, 10.0, 1.0).periodic("b", 0, 10.0, 1.0);
    let mut off = build.0.epochs[0].settings.to_vec();
    off[1].enabled = false;
    build.0.epochs.push(Epoch {
        name: "off".into(),
        at: at(70.0),
        settings: off.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    let enter = |index| Input::Enter { index };
    let events =
        play(&build.system(), 100.0, &[(15.0, enter(1)), (40.0, enter(1)), (45.0, enter(0)), (75.0, enter(0))]);
    // In force at 20, 30 and 40 ms, and from 70 to 75 ms by its own time.
    assert_eq!(millis(of(&events, 1).map(|end| end.release)), [0.0, 10.0, 50.0, 60.0, 80.0, 90.0]);
    assert_eq!(of(&events, 0).count(), 10);
}

fn requested(strategy: &str) -> Build {
    let build = Build::new(strategy, 1).periodic("work", 0, 100.0, 10.0).periodic("serve", 0, 100.0, 5.0);
    build.with(|operation| {
        (operation.trigger, operation.critical) = (Trigger::Any(vec![]), true);
        operation.queue.limit = 2;
    })
}

fn request(due: f64, critical: bool) -> Input {
    let (operation, origin, deadline) = (OperationId(1), at(1.0), at(due));
    Input::Invoke(JobRequest { operation, origin, sent: origin, deadline, importance: 0, critical, ticket: None })
}

#[test]
fn the_most_urgent_request_runs_first_and_one_too_many_is_refused() {
    let build = requested("EDF");
    let inputs = [(2.0, request(90.0, false)), (3.0, request(60.0, false)), (4.0, request(20.0, false))];
    let events = play(&build.system(), 99.0, &inputs);
    let served: Vec<_> = of(&events, 1).map(|end| (end.job.number, end.outcome)).collect();
    assert_eq!(served, [(2, JobOutcome::DroppedFull), (1, JobOutcome::Made), (0, JobOutcome::Made)]);
    assert!(of(&events, 1).all(|end| end.origin == at(1.0)));
}

#[test]
fn muf_serves_a_critical_request_first() {
    let build = requested("MUF");
    let events = play(&build.system(), 99.0, &[(2.0, request(30.0, false)), (3.0, request(95.0, true))]);
    let served = millis(of(&events, 1).map(|end| end.start));
    // The critical one at once. The other one waits for `work`, which has started.
    assert_eq!(served, [3.0, 15.0]);
    assert_eq!(of(&events, 1).map(|end| end.critical).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_cancelled_job_ends_and_triggers_nothing() {
    let build = Build::new("EDF", 1).periodic("first", 0, 50.0, 10.0).after("second", 0, &[0], 10.0);
    let cancel = |number, chain| Input::Cancel { job: JobId { operation: OperationId(0), number, leg: 0 }, chain };
    let events =
        play(&build.system(), 199.0, &[(4.0, cancel(0, false)), (65.0, cancel(1, true)), (115.0, cancel(2, false))]);
    let outcomes = |operation| of(&events, operation).map(|end| (end.job.number, end.outcome, end.consumed)).collect();
    let first: Vec<_> = outcomes(0);
    let made = |number| (number, JobOutcome::Made, ms(10.0));
    assert_eq!(first, [(0, JobOutcome::Cancelled, ms(4.0)), made(1), made(2), made(3)]);
    // Job 1 of `second` had started. Job 2 stays: without `chain`, only `first` is cancelled.
    let second: Vec<_> = outcomes(1);
    assert_eq!(second, [(1, JobOutcome::Cancelled, ms(5.0)), made(2), made(3)]);
}

#[test]
fn a_rate_adapted_while_the_region_has_one_rate_counts_in_the_next() {
    let mut build = Build::new("RMS", 1).periodic("a", 0, 10.0, 4.0).periodic("b", 0, 20.0, 4.0);
    let mut ranges = build.0.epochs[0].settings.to_vec();
    ranges[0].slowest = ms(40.0);
    build.0.epochs.push(Epoch {
        name: "free".into(),
        at: at(35.0),
        settings: ranges.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    let retime = Input::Retime { operation: OperationId(0), period: ms(30.0) };
    let events = play(&build.system(), 120.0, &[(5.0, retime)]);
    let released = millis(of(&events, 0).map(|end| end.release));
    assert_eq!(released, [0.0, 10.0, 20.0, 30.0, 40.0, 70.0, 100.0]);
    // At 40 and 100 ms both are released, and `b` runs first.
    assert_eq!(millis(of(&events, 1).map(|end| end.start)), [4.0, 24.0, 40.0, 60.0, 80.0, 100.0]);
}

#[test]
fn a_cancelled_job_that_waits_for_a_resource_gets_it_no_more() {
    let mut build = Build::new("EDF", 2).periodic("holds", 0, 100.0, 20.0).periodic("waits", 1, 100.0, 10.0);
    build.0.resources.push(Resource { name: "r".into() });
    build = build.periodic("after", 1, 100.0, 5.0).set(|setting| setting.phase = ms(12.0));
    for (operation, held) in build.0.operations.iter_mut().zip([20.0, 5.0, 5.0]) {
        operation.uses = vec![(ResourceId(0), ms(held))];
    }
    let system = build.set(|setting| setting.phase = ms(12.0)).system();
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let job = JobId { operation: OperationId(1), number: 0, leg: 0 };
    let inputs = [(at(8.0), ProcessorId(1), Input::Cancel { job, chain: false })];
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &inputs,
        requests: true,
        samples: true,
        links: None,
        hops: None,
    };
    let simulated = simulate_known(&system, &plan, at(99.0), Some(given), None, |_| Vec::new(), |_| true);
    let events = &simulated.processors[1].probe;
    assert_eq!(millis(of(events, 1).map(|end| end.end)), [8.0]);
    // It has the resource as soon as `holds` releases it.
    assert_eq!(millis(of(events, 2).map(|end| end.end)), [25.0]);
    replay(&system, &plan.processors[1], events.iter().copied()).unwrap();
}
