//! Verdicts under contracts, which limit rates and legs and disable operations in their regions.

use hyoshi_sched::analysis::{AnalysisMethod, Missing, OperationReport};
use hyoshi_sched::{Outcome, Plan, Report, Strategies, Verdict, analyse};

/// `fast` and `after` are limited by `actions`, the actions of the region `thin`.
fn report(strategy: &str, operations: &str, actions: &str) -> Report {
    let text = format!(
        "name = 'contract'\n[condition.load]\n[processor.main]\nstrategy = '{strategy}'\ncap = '100%'\nhard_cap = '100%'\n\
         [processor.side]\nstrategy = '{strategy}'\ncap = '100%'\nhard_cap = '100%'\n{operations}\n\
         [contract.k]\nwatch = {{ load = {{ of = 'condition.load' }} }}\n\
         [[contract.k.region]]\nname = 'thin'\nenter = 'load > 1'\ndo = [{actions}]\n\
         [[contract.k.region]]\nname = 'normal'\n"
    );
    let system = hyoshi_model::read(&text, "contract.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap())
}

fn of<'a>(report: &'a Report, name: &str) -> &'a OperationReport {
    report.operations().find(|(.., one)| one.name == name).unwrap().2
}

fn unproved(report: &Report) -> Vec<(&str, Missing)> {
    let missing = |one: &Verdict| match one {
        Verdict::Proved => None,
        Verdict::Unknown { missing } => Some(missing.clone()),
        Verdict::Fails { why } => panic!("{why}"),
    };
    let all = report.operations().map(|(.., one)| (&*one.name, missing(&one.verdict)));
    all.filter_map(|(name, missing)| Some((name, missing?))).collect()
}

const SLOWER: &str = "{ set = 'operation.fast.rate', most = '20Hz' }";

#[test]
fn a_limited_operation_and_what_follows_it_are_proved_at_the_highest_rate() {
    let operations = "[operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '2ms'\ndeadline = '9ms'\n\
        [operation.after]\non = 'main'\nafter = { all = ['fast'] }\nwcet = '2ms'\n\
        [operation.below]\non = 'main'\nevery = '40ms'\nwcet = '10ms'\n";
    let fixed = report("DM", operations, "{ report = 'high' }");
    for actions in [SLOWER, "{ set = 'operation.fast.enabled', to = false }"] {
        let limited = report("DM", operations, actions);
        assert_eq!((unproved(&limited), limited.outcome), (vec![], Outcome::Holds), "{actions}");
        for name in ["fast", "after", "below"] {
            assert_eq!(of(&limited, name).bound_ns, of(&fixed, name).bound_ns, "{actions}");
        }
    }
}

#[test]
fn a_deadline_that_follows_a_limited_rate_has_a_verdict_and_no_bound() {
    let operations = "[operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '5ms'\n\
        [operation.other]\non = 'main'\nevery = '20ms'\nwcet = '4ms'\n";
    let limited = report("EDF", operations, SLOWER);
    assert_eq!(unproved(&limited), []);
    // At the low rate it may take as long as its deadline of then.
    assert!(of(&limited, "fast").bound_ns.is_none() && of(&limited, "other").bound_ns.is_some());
}

#[test]
fn what_fails_only_at_the_highest_rate_is_unknown() {
    let operations = "[operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '6ms'\ndeadline = '9ms'\n\
        [operation.other]\non = 'main'\nevery = '20ms'\nwcet = '9ms'\n";
    assert_eq!(unproved(&report("DM", operations, SLOWER)), [("other", Missing::HighestRates)]);
}

#[test]
fn a_changed_order_of_rates_counts_in_each_order() {
    let operations = |deadline: &str| {
        format!(
            "[operation.above]\non = 'main'\nevery = '5ms'\nwcet = '1ms'\n\
             [operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '1ms'\n{deadline}\n\
             [operation.between]\non = 'main'\nevery = '20ms'\nwcet = '3ms'\n\
             [operation.below]\non = 'main'\nevery = '200ms'\nwcet = '20ms'\n"
        )
    };
    let limited = report("RMS", &operations(""), SLOWER);
    assert_eq!(unproved(&limited), []);
    let methods = ["above", "fast", "between", "below"].map(|name| of(&limited, name).method);
    assert_eq!(methods[0], AnalysisMethod::FixedPriority);
    assert!(methods[1..].iter().all(|method| *method == AnalysisMethod::AnyOrder), "{methods:?}");
    // At its low rate it waits for `between`.
    let short = report("RMS", &operations("deadline = '4ms'"), SLOWER);
    assert_eq!(unproved(&short), [("fast", Missing::BoundExceedsDeadline)]);
    let fixed = report("RMS", &operations("deadline = '4ms'"), "{ report = 'high' }");
    assert_eq!(unproved(&fixed), []);
    // Epochs with other times have the same order, those with other rates do not.
    let epochs = |change: &str| {
        let operations = format!("{}[[epoch]]\nat = '10s'\nset = {{ {change} }}\n", operations(""));
        report("RMS", &operations, SLOWER)
    };
    assert_eq!(unproved(&epochs("'operation.below.wcet' = '10ms'")), []);
    let other = epochs("'operation.below.every' = '100ms'");
    let why = |missing: &Missing| matches!(missing, Missing::ChangedOrder { name, .. } if name == "fast");
    let names: Vec<_> = unproved(&other).into_iter().map(|(name, missing)| (name, why(&missing))).collect();
    let all = [("above", true), ("fast", true), ("between", true), ("below", true)];
    assert_eq!(names, [all, all, all].concat());
}

#[test]
fn an_operation_that_ends_early_with_fewer_legs_releases_the_next_one_earlier() {
    let operations = "[operation.chain]\non = 'main'\nevery = '20ms'\nwcet = '4ms'\nbcet = '4ms'\nrepeat = { legs = 4 }\n\
        [operation.next]\non = 'side'\nafter = { all = ['chain'] }\nguard = 'off'\nwcet = '7ms'\ndeadline = '12ms'\n\
        [operation.least]\non = 'side'\nevery = '200ms'\nwcet = '4ms'\ndeadline = '15ms'\n";
    let fixed = report("DM", operations, "{ report = 'high' }");
    let limited = report("DM", operations, "{ set = 'operation.chain.repeat.legs', most = 1 }");
    assert_eq!((unproved(&fixed), unproved(&limited)), (vec![], vec![("least", Missing::BoundExceedsDeadline)]));
}

#[test]
fn chains_that_a_contract_interrupts_are_not_proved() {
    let operations = "[operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '1ms'\ndeadline = '10ms'\n\
        [operation.after]\non = 'main'\nafter = { all = ['fast'] }\nwcet = '1ms'\n\
        [operation.reader]\non = 'main'\nevery = '50ms'\nwcet = '1ms'\nreads = ['after']\n\
        [chain.whole]\npath = ['fast', 'after']\ndeadline = '10ms'\n\
        [chain.sampled]\npath = ['fast', 'after', 'reader']\nmax_age = '1s'\n";
    let verdicts = |actions: &str| {
        let report = report("DM", operations, actions);
        report.scenes[0].chains.iter().map(|chain| chain.verdict.clone()).collect::<Vec<_>>()
    };
    let unknown = |missing| Verdict::Unknown { missing };
    let sampled = || unknown(Missing::LimitedSamples { name: "fast".into() });
    assert_eq!(verdicts(SLOWER), [Verdict::Proved, sampled()]);
    assert_eq!(verdicts("{ set = 'operation.fast.enabled', to = false }"), [Verdict::Proved, sampled()]);
    let stopped = unknown(Missing::Disabled { name: "after".into() });
    let sampled = unknown(Missing::LimitedSamples { name: "after".into() });
    assert_eq!(verdicts("{ set = 'operation.after.enabled', to = false }"), [stopped, sampled]);
}

#[test]
fn a_join_of_several_roots_behind_a_limited_one_is_unknown() {
    let operations = "[operation.fast]\non = 'main'\nrate = ['10Hz', '100Hz']\nwcet = '1ms'\ndeadline = '10ms'\n\
        [operation.slow]\non = 'main'\nevery = '200ms'\nwcet = '1ms'\n\
        [operation.both]\non = 'main'\nafter = { all = ['fast', 'slow'] }\nwcet = '1ms'\ndeadline = '150ms'\n";
    let fixed = report("DM", operations, "{ report = 'high' }");
    assert_eq!(unproved(&fixed), []);
    let limited = report("DM", operations, SLOWER);
    assert!(
        matches!(&unproved(&limited)[..], [("slow", _), ("both", Missing::Join { .. })]),
        "{:?}",
        unproved(&limited)
    );
}
