//! Systems over several hosts: clocks that differ, delays by region; and requests from outside.

use hyoshi_model::*;
use hyoshi_sched::analysis::{Missing, SceneReport};
use hyoshi_sched::{Plan, Report, Strategies, Verdict, analyse};
use proptest::prelude::*;

use crate::build::{Build, chain, on, op};
use crate::soundness::builds;

fn analysed(system: &System) -> Report {
    analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap())
}

fn with_error(build: &Build, error: u64) -> System {
    let error = Some(Span::from_nanos(error));
    build.system().with(|system| system.hosts.iter_mut().for_each(|host| host.clock_error = error))
}

fn verdicts(report: &Report) -> Vec<Verdict> {
    let operations = |scene: &SceneReport| -> Vec<Verdict> {
        let operations = scene.processors.iter().flat_map(|one| &one.operations).map(|one| one.verdict.clone());
        operations.chain(scene.chains.iter().map(|chain| chain.verdict.clone())).collect()
    };
    report.scenes.iter().flat_map(operations).collect()
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Proved => 2,
        Verdict::Unknown { .. } => 1,
        Verdict::Fails { .. } => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_larger_clock_error_improves_no_verdict(build in builds(), error in 0u64..6, more in 1u64..12) {
        let smaller = verdicts(&analysed(&with_error(&build, error)));
        let larger = verdicts(&analysed(&with_error(&build, error + more)));
        prop_assert_eq!(smaller.len(), larger.len());
        for (smaller, larger) in smaller.iter().zip(&larger) {
            prop_assert!(rank(larger) <= rank(smaller), "{smaller:?} became {larger:?}");
        }
    }

    #[test]
    fn a_region_is_as_bad_as_a_system_with_such_links_throughout(build in builds(), delay in (0u64..5, 0u64..9)) {
        let delay = (Span::from_nanos(delay.0), Span::from_nanos(delay.0 + delay.1));
        let always = build.system().with(|system| system.links.iter_mut().for_each(|link| link.delay = delay));
        let region = build.system().with(|system| {
            let setting = LinkSetting { delay, loss_ppm: 0 };
            let differing = system.links.iter().zip(0..).filter(|(link, _)| link.setting() != setting);
            let links = differing.map(|(_, position)| (position, setting)).collect();
            system.epochs[0].environment = Environment { links, ..Environment::default() }.into();
        });
        prop_assert_eq!(verdicts(&analysed(&region)), verdicts(&analysed(&always)));
    }
}

/// Two operations in a chain, each alone on its processor: 1 + 2 + 3 ns at the most.
fn across() -> Build {
    let mut build = on("RMS", Preemption::Levels, [op("a", 20, 1), op("b", 20, 3)]);
    build.processors.push(("RMS", Preemption::Levels));
    (build.ops[1].on, build.ops[1].after) = (1, vec![0]);
    build.ops[1].deadline = 8;
    build.delay = (2, 2);
    build.chains.push(chain(&[0, 1], 8));
    build
}

#[test]
fn both_clocks_count_in_what_spans_two_hosts_and_are_named_where_they_matter() {
    let chain = |error| analysed(&with_error(&across(), error)).scenes[0].chains[0].clone();
    assert_eq!((chain(0).bound_ns, chain(0).verdict), (Some(6), Verdict::Proved));
    assert_eq!((chain(1).bound_ns, chain(1).verdict), (Some(8), Verdict::Proved));
    assert_eq!(chain(2).bound_ns, Some(10));
    assert_eq!(chain(2).verdict, Verdict::Unknown { missing: Missing::ClockErrors });
    let report = analysed(&with_error(&across(), 2));
    assert_eq!(report.scenes[0].processors[1].operations[0].verdict.word(), "unknown");
    let assumptions: Vec<String> =
        report.scenes[0].processors[1].assumptions.iter().map(|one| one.to_string()).collect();
    assert!(assumptions.iter().any(|one| one.contains("clock_error")), "{assumptions:?}");
    // Exact clocks would not help.
    let mut late = across();
    late.chains[0].deadline = Some(Span::from_nanos(5));
    let verdict = analysed(&with_error(&late, 2)).scenes[0].chains[0].verdict.clone();
    assert!(!matches!(verdict, Verdict::Unknown { missing: Missing::ClockErrors } | Verdict::Proved), "{verdict:?}");
}

/// The second operation is released by requests.
fn requested(min_interval: Option<u64>) -> System {
    let ops = [op("often", 10, 2), op("serve", 20, 4), op("seldom", 50, 5)];
    on("RMS", Preemption::Levels, ops).system().with(|system| {
        system.operations[1].trigger = Trigger::Any(vec![]);
        system.operations[1].min_interval = min_interval.map(Span::from_nanos);
    })
}

#[test]
fn requests_count_as_periodic_ones_at_their_least_interval() {
    let bounds = |report: Report| -> Vec<_> {
        report.scenes[0].processors[0].operations.iter().map(|one| (one.bound_ns, one.verdict.clone())).collect()
    };
    let periodic = on("RMS", Preemption::Levels, [op("often", 10, 2), op("serve", 20, 4), op("seldom", 50, 5)]);
    assert_eq!(bounds(analysed(&requested(Some(20)))), bounds(periodic.report()));
}

#[test]
fn without_a_least_interval_nothing_is_proved_at_their_level_and_below() {
    let report = analysed(&requested(None));
    let verdicts = verdicts(&report);
    assert_eq!(verdicts[0], Verdict::Proved);
    for verdict in &verdicts[1..] {
        assert_eq!(*verdict, Verdict::Unknown { missing: Missing::Requests { name: "serve".into() } });
    }
}
