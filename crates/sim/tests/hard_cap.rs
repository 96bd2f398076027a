//! The hard cap in virtual time: critical work included, and nothing changes below it.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, TraceEvent};

fn capped(ppm: u32, on_overload: OnOverload) -> impl Fn(&mut Processor) {
    move |processor| processor.hard_cap = HardCap { ppm, on_overload }
}

fn overload(on_overload: OnOverload) -> Build {
    Build::new("RMS", 1)
        .processors(capped(940_000, on_overload))
        .periodic("fast", 0, 10.0, 8.0)
        .critical()
        .with(|operation| operation.importance = 1)
        .periodic("slow", 0, 40.0, 28.0)
        .critical()
}

fn decisions(build: &Build, millis: f64) -> Vec<(f64, DispatchDecision)> {
    let of = |(_, at, event): (ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(decision) => Some((at.as_nanos() as f64 / 1e6, decision)),
        _ => None,
    };
    build.run(millis).into_iter().filter_map(of).collect()
}

#[test]
fn critical_overload_pauses_the_lanes_six_milliseconds_of_each_hundred() {
    let decisions = decisions(&overload(OnOverload::Report), 5_000.0);
    let pauses: Vec<(f64, bool)> = decisions
        .iter()
        .filter_map(|(at, decision)| match decision {
            DispatchDecision::Pause { on } => Some((*at, *on)),
            _ => None,
        })
        .collect();
    assert!(pauses[0].1 && (93.9..=94.0).contains(&pauses[0].0), "{:?}", pauses[0]);
    assert!((45..=52).contains(&(pauses.len() / 2)), "{} pauses", pauses.len() / 2);
    let started = |from: f64, to: f64| {
        let runs = |(at, decision): &&(f64, DispatchDecision)| {
            matches!(decision, DispatchDecision::Run { resumed: false, .. }) && (from..to).contains(at)
        };
        decisions.iter().filter(runs).count()
    };
    for pair in pauses.chunks_exact(2) {
        let [(from, true), (to, false)] = pair else { panic!("{pair:?}") };
        assert!((5.9..=6.7).contains(&(to - from)), "{pair:?}");
        assert_eq!(started(from + 0.000_001, *to), 0);
    }
    assert_eq!(decisions.iter().filter(|(_, decision)| *decision == DispatchDecision::Overload).count(), 4);
}

#[test]
fn non_critical_work_is_gated_in_any_hundred_milliseconds_and_critical_work_is_not_paused_for_it() {
    // Short jobs that always need the CPU, and critical work that is least urgent.
    let build = Build::new("RMS", 1)
        .processors(capped(940_000, OnOverload::Report))
        .periodic("hog", 0, 1.0, 1.0)
        .periodic("slow", 0, 100.0, 20.0)
        .critical();
    let decisions = decisions(&build, 3_000.0);
    assert!(decisions.iter().all(|(_, decision)| !matches!(decision, DispatchDecision::Pause { .. })));
    // A started job continues below ordinary threads, which do not use the CPU here.
    let starts = decisions.iter().filter_map(|(at, decision)| match decision {
        DispatchDecision::Run { job, .. } if job.operation == OperationId(0) => Some(*at),
        _ => None,
    });
    let starts: Vec<f64> = starts.collect();
    for at in &starts {
        let within = starts.iter().filter(|other| (at - 100.0..*at).contains(*other)).count();
        assert!(within <= 94, "{within} jobs of 1 ms until {at}");
    }
    assert!(decisions.iter().any(|(_, decision)| matches!(decision, DispatchDecision::Gate { lane: 0 })));
}

#[test]
fn systems_that_stay_below_it_are_as_if_there_were_none() {
    let build = |ppm| {
        Build::new("RMS", 1)
            .processors(capped(ppm, OnOverload::Report))
            .processors(|processor| processor.cap_ppm = 940_000)
            .periodic("fast", 0, 10.0, 6.3)
            .critical()
            .periodic("slow", 0, 100.0, 30.0)
            .critical()
    };
    // It accounts more often, and decides the same.
    assert_eq!(decisions(&build(940_000), 2_000.0), decisions(&build(1_000_000), 2_000.0));
}

#[test]
fn lasting_overload_demotes_the_least_important_critical_operation_and_the_others_recover() {
    let build = overload(OnOverload::Demote);
    let decisions = decisions(&build, 6_000.0);
    let relegated: Vec<f64> = decisions
        .iter()
        .filter(|(_, decision)| *decision == DispatchDecision::Relegate { operation: OperationId(1) })
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(relegated.len(), 1, "{relegated:?}");
    let last = decisions.iter().rev().find(|(_, decision)| matches!(decision, DispatchDecision::Pause { on: true }));
    assert!(last.unwrap().0 < relegated[0] + 2_000.0, "{last:?}");
    // A job of it that was critical may still be pending.
    let late = |(at, decision): &&(f64, DispatchDecision)| match decision {
        DispatchDecision::End(end) => {
            *at > relegated[0] + 2_500.0 && end.job.operation == OperationId(0) && end.end > end.deadline
        }
        _ => false,
    };
    assert_eq!(decisions.iter().filter(late).count(), 0);
}

#[test]
fn a_job_that_holds_a_resource_continues_until_it_releases_it() {
    let build = |held: f64| {
        let mut build = Build::new("RMS", 1).processors(capped(940_000, OnOverload::Report));
        build.0.resources.push(Resource { name: "map".into() });
        build.periodic("a", 0, 400.0, 300.0).critical().with(|operation| {
            operation.uses = vec![(ResourceId(0), ms(held))];
        })
    };
    let pause = |build: &Build| {
        decisions(build, 390.0)
            .into_iter()
            .find(|(_, decision)| matches!(decision, DispatchDecision::Pause { on: true }))
    };
    assert!((93.9..=94.0).contains(&pause(&build(1.0)).unwrap().0));
    // It holds the resource from its start: the pause begins, and it is lowered only after it releases the resource.
    let holding = build(96.0);
    assert!((93.9..=94.0).contains(&pause(&holding).unwrap().0));
    let opens =
        decisions(&holding, 390.0).into_iter().find(|(_, decision)| *decision == DispatchDecision::Pause { on: false });
    assert!(opens.unwrap().0 >= 102.4, "what it used beyond the budget is not forgotten: {opens:?}");
}

#[test]
fn what_the_hard_cap_decided_replays_identically() {
    for on_overload in [OnOverload::Report, OnOverload::Demote, OnOverload::Stop] {
        let build = overload(on_overload);
        let events = build.run(3_000.0);
        let system = build.system();
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let recorded = events.iter().map(|(_, at, event)| (*at, *event));
        let replayed = replay(&system, &plan.processors[0], recorded).unwrap_or_else(|parted| panic!("{parted}"));
        assert!(replayed.decisions > 100);
    }
}
