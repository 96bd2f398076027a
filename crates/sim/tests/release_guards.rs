//! Paper 4, section 3.4: the example in which greedy releases miss and guarded ones do not. One millisecond here is a
//! second there.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_trace::stats::StagePart;
use hyoshi_trace::{JobOutcome, Probe, Stats};

fn example(guard: Guard) -> Build {
    let mut build = Build::new("EDF", 2)
        .periodic("T1", 0, 4.0, 2.0)
        .periodic("T2.1", 0, 6.0, 2.0)
        .after("T2.2", 1, &[1], 2.0)
        .with(|operation| operation.guard = guard)
        .periodic("T3", 1, 3.0, 1.8)
        .set(|setting| setting.phase = ms(5.1));
    for operation in &mut build.0.operations {
        operation.on_busy = OnBusy::Skip;
    }
    build
}

#[test]
fn the_first_processor_runs_as_in_the_paper_under_both_protocols() {
    for guard in [Guard::Off, Guard::On] {
        let build = example(guard);
        assert_eq!(build.schedule("T1", 24.0), [(0., 2.), (4., 6.), (8., 10.), (12., 14.), (16., 18.), (20., 22.)]);
        assert_eq!(build.schedule("T2.1", 24.0), [(2., 4.), (6., 8.), (14., 16.), (18., 20.)]);
    }
}

#[test]
fn greedy_releases_make_the_third_task_miss_and_lose_its_next_job() {
    let build = example(Guard::Off);
    assert_eq!(build.schedule("T2.2", 20.5), [(4., 6.), (8., 10.), (16., 18.)]);
    assert_eq!(build.schedule("T3", 16.0), [(6., 7.8), (10., 11.8), (14.1, 15.9)]);
    assert_eq!(build.count("T3", 12.0, JobOutcome::Missed), 1);
    assert_eq!(build.count("T3", 12.0, JobOutcome::DroppedBusy), 1);
}

#[test]
fn guarded_releases_miss_nothing_and_the_second_task_always_responds_in_six() {
    let build = example(Guard::On);
    assert_eq!(build.schedule("T2.2", 18.5), [(4., 6.), (10., 12.), (16., 18.)]);
    let third = build.schedule("T3", 16.0);
    assert_eq!(third, [(6., 7.8), (8.1, 9.9), (12., 13.8), (14.1, 15.9)]);
    let events = build.run(2_000.0);
    assert!(ends(&events).all(|end| end.outcome == JobOutcome::Made), "no misses at all");
    let responses = ends(&events).filter(|end| end.job.operation == OperationId(2));
    assert!(responses.map(|end| end.end.since(end.origin)).all(|response| response == ms(6.0)));
}

/// The chain of the second task: mean and greatest time of each part of its stages, in milliseconds.
fn stages(guard: Guard) -> (u64, Vec<[f64; 10]>) {
    let mut build = example(guard);
    let path = vec![OperationId(1), OperationId(2)];
    build.0.chains.push(Chain {
        name: "T2".into(),
        path,
        deadline: Some(ms(6.0)),
        max_age: None,
        max_reaction: None,
        carried_by: Default::default(),
    });
    let mut stats = Stats::new(&build.system());
    build.run(15.0).into_iter().for_each(|(_, now, event)| stats.event(now, event));
    let chain = &stats.chains()[0];
    let millis = |span: Option<Span>| span.map_or(0.0, |span| span.as_nanos() as f64 / 1e6);
    let stage = |stage: &hyoshi_trace::stats::StageStats| {
        let mut times = [0.0; 10];
        for (two, part) in times.chunks_mut(2).zip(StagePart::ALL) {
            let extent = stage.part(part).map(|times| times.extent());
            two[0] = millis(extent.and_then(|extent| extent.mean()));
            two[1] = millis(extent.and_then(|extent| extent.most()));
        }
        times
    };
    (chain.latency.extent().count(), chain.stages.iter().map(stage).collect())
}

/// Of the first two instances, the first waits for 2 ms behind T1 and the second does not wait. The second then arrives
/// 2 ms before the guard opens.
#[test]
fn the_stages_of_the_second_task_are_those_of_the_paper() {
    //            network  release    guard     queue   execution
    let first = [0., 0., 0., 0., 0., 0., 1., 2., 2., 2.];
    let (count, greedy) = stages(Guard::Off);
    assert_eq!((count, greedy), (2, vec![first, [0., 0., 0., 0., 0., 0., 0., 0., 2., 2.]]));
    let (count, guarded) = stages(Guard::On);
    assert_eq!((count, guarded), (2, vec![first, [0., 0., 0., 0., 1., 2., 0., 0., 2., 2.]]));
}

#[test]
fn rule_three_restores_the_greedy_schedule() {
    let (greedy, idle) = (example(Guard::Off), example(Guard::Idle));
    assert_eq!(greedy.schedule("T2.2", 200.0), idle.schedule("T2.2", 200.0));
    assert_eq!(greedy.schedule("T3", 200.0), idle.schedule("T3", 200.0));
}

/// Without a bound on its predecessors, a guard that idle points open may use up the hard cap.
#[test]
fn a_guard_that_idle_points_open_counts_for_the_hard_cap() {
    let file = |guard: &str| {
        format!(
            "name = 'p'\n[host.here]\n[host.there]\n[processor.p0]\nhost = 'here'\nstrategy = 'MUF'\n[processor.p2]\nhost = 'there'\n\
             strategy = 'DM'\nhard_cap = '59%'\n[operation.o0]\non = 'p0'\nevery = '9ms'\nwcet = '3.3ms'\n[operation.o1]\non = 'p0'\n\
             every = '9ms'\nwcet = '3.92ms'\n[operation.o2]\non = 'p0'\nafter = {{ any = ['o0', 'o1'] }}\nwcet = '0.1ms'\nguard = 'on'\n\
             queue = {{ limit = 8 }}\n[operation.o4]\non = 'p2'\nafter = {{ all = ['o2'] }}\nwcet = '3.81ms'\ndeadline = '9ms'\n\
             queue = {{ limit = 8 }}\nguard = '{guard}'\n"
        )
    };
    let bound = |guard: &str| {
        let system = read(&file(guard), "p.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let report = analyse(&system, &plan);
        report.operations().find(|(_, _, one)| one.name == "o4").unwrap().2.bound_ns
    };
    assert_eq!(bound("on"), Some(3_810_000));
    assert_eq!(bound("idle"), None);
}
