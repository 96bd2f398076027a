//! The utilisation up to which no job is late, at all rates and execution times.

use hyoshi_model::{System, read};
use hyoshi_sched::analysis::{Inapplicable, NoSetPoint, analyse, set_points};
use hyoshi_sched::{Plan, Strategies};

fn system(text: &str) -> System {
    read(text, "loop.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

/// The bounds of all loops. The report must have the same.
fn bounds(text: &str) -> Vec<Result<u64, NoSetPoint>> {
    let system = system(text);
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let (found, report) = (set_points(&system, &plan), analyse(&system, &plan));
    let reported = system.feedback.iter().map(|one| report.miss_free_ppm(one.processor));
    assert_eq!(found, reported.collect::<Vec<_>>());
    found
}

fn bound(text: &str) -> Result<u64, Inapplicable> {
    bounds(text).swap_remove(0).map_err(|none| none.why)
}

fn near(text: &str, expected: u64) {
    let found = bound(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    assert!(found <= expected && expected - found <= 2, "{found}, not {expected}\n{text}");
}

/// A processor with a loop, strategy `strategy` and these further keys, and two operations.
fn two(strategy: &str, keys: &str) -> String {
    format!(
        "name = 'two'\n[processor.main]\nstrategy = '{strategy}'\n{keys}\n\
         [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '90%'\n\
         [operation.a]\nevery = ['50ms', '1s']\nwcet = '1ms'\n\
         [operation.b]\nevery = ['100ms', '1s']\nwcet = '1ms'\n"
    )
}

const OFF: &str = "cap = '100%'\nhard_cap = '100%'";

#[test]
fn without_caps_it_is_the_bound_of_liu_and_layland_or_the_whole_cpu() {
    near(&two("RMS", OFF), 828_427);
    near(&two("EDF", &format!("{OFF}\npreemption = 'full'")), 1_000_000);
    // Deadlines follow the rates, so DM is RMS.
    near(&two("DM", OFF), 828_427);
}

#[test]
fn operations_that_follow_without_a_gap_are_part_of_a_task() {
    let follower = "[operation.c]\nafter = { all = ['a'] }\nwcet = '1ms'\n[operation.d]\nafter = { all = ['a'] }\n\
        wcet = '1ms'\n[operation.e]\nafter = { all = ['c', 'd'] }\nwcet = '1ms'\n";
    near(&format!("{}{follower}", two("RMS", OFF)), 828_427);
    near(&format!("{}{follower}", two("EDF", &format!("{OFF}\npreemption = 'full'"))), 1_000_000);
    // With a deadline from its own release it could be more urgent than the operation before it.
    let own = follower.replacen("wcet = '1ms'", "wcet = '1ms'\ndeadline = '2s'", 1);
    near(&format!("{}{own}", two("RMS", OFF)), 828_427);
    let edf = format!("{}{own}", two("EDF", &format!("{OFF}\npreemption = 'full'")));
    assert_eq!(bound(&edf), Err(Inapplicable::ConstrainedDeadline));
}

#[test]
fn pauses_by_the_caps_lower_the_bound() {
    // Each pause is at most 6.7 ms, and 20 us for each operation. Windows of 50 ms have one, longer ones two.
    near(&two("RMS", ""), 828_427 - 134_800);
    near(&two("RMS", "cap = '100%'"), 828_427 - 134_800);
    near(&two("EDF", "preemption = 'full'"), 1_000_000 - 134_800);
    // The rest of the cap's window is longer than a pause by the hard cap.
    near(&two("EDF", "preemption = 'full'\ncap = '90%'"), 1_000_000 - 2 * 100_400);
    // Windows of different length: both may act.
    let both = two("EDF", "preemption = 'full'\ncap = '90%'\ncap_window = '50ms'");
    near(&both, 1_000_000 - 134_800 - 2 * 100_800);
    // A pause may be as long as the shortest period.
    let short = two("RMS", "").replace("'50ms'", "'6ms'");
    assert_eq!(bound(&short), Err(Inapplicable::Pauses));
    assert!(bound(&short.replace("strategy", "hard_cap = '100%'\ncap = '100%'\nstrategy")).is_ok());
}

#[test]
fn critical_work_that_may_run_while_other_work_is_gated_counts() {
    let critical = |at: &str, keys: &str| {
        two("RMS", keys).replacen(&format!("[operation.{at}]\n"), &format!("[operation.{at}]\ncritical = true\n"), 1)
    };
    // The debt of critical work to the cap has no bound.
    assert_eq!(bound(&critical("a", "")), Err(Inapplicable::Cap));
    // `a` may be slower than `b`, and its execution times are not known.
    assert_eq!(bound(&critical("a", "cap = '100%'")), Err(Inapplicable::Cap));
    let above = |slowest: &str| critical("a", "cap = '100%'").replace("'50ms', '1s'", &format!("'50ms', '{slowest}'"));
    near(&above("99ms"), 828_427 - 134_800);
    assert_eq!(bound(&above("100ms")), Err(Inapplicable::Cap));
    // A fixed rate below: of its jobs of 1 ms, up to three may run in little more than 2 s. The pauses are 21 there.
    let below = critical("b", "cap = '100%'").replace("'100ms', '1s'", "'2s', '2s'");
    let below = below.replace("every = ['2s', '2s']", "every = '2s'");
    near(&below, 828_427 - 70_770 - 1_500);
    assert_eq!(bound(&critical("a", "cap = '100%'\non_hard_cap = 'demote'")), Err(Inapplicable::Cap));
}

#[test]
fn stages_behind_release_guards_are_tasks_with_deadlines_of_several_periods() {
    let text = |deadline: &str| {
        format!(
            "name = 'chain'\n[processor.one]\nstrategy = 'RMS'\n{OFF}\n[processor.two]\nstrategy = 'RMS'\n{OFF}\n\
             [feedback.one]\nalgorithm = 'EUCON'\nutilisation = '60%'\n\
             [feedback.two]\nalgorithm = 'EUCON'\nutilisation = '60%'\n\
             [operation.first]\non = 'one'\nevery = ['20ms', '100ms']\nwcet = '1ms'\n\
             [operation.second]\non = 'two'\nafter = {{ all = ['first'] }}\nwcet = '1ms'\n{deadline}\n\
             [operation.alone]\non = 'two'\nevery = ['30ms', '100ms']\nwcet = '1ms'\n"
        )
    };
    let at = |deadline: &str| bounds(&text(deadline)).swap_remove(1).map_err(|none| none.why);
    assert!(at("deadline = '100ms'").is_ok_and(|found| found.abs_diff(828_427) <= 2));
    assert_eq!(at("deadline = '99ms'"), Err(Inapplicable::ConstrainedDeadline));
    // By default the deadline is one period after the release of the first stage.
    assert_eq!(at(""), Err(Inapplicable::ConstrainedDeadline));
    assert_eq!(at("deadline = '100ms'\nguard = 'off'"), Err(Inapplicable::NotPeriodic));
    assert!(bounds(&text(""))[0].as_ref().is_ok_and(|found| *found == 1_000_000));
}

#[test]
fn the_least_bound_of_all_regions_counts() {
    let text = two("RMS", OFF).replace("name = 'two'", "name = 'two'\nduration = '10s'");
    let third = "[operation.c]\nevery = ['30ms', '1s']\nwcet = '1ms'\nenabled = false\n\
        [[epoch]]\nat = '1s'\nname = 'more'\nset = { 'operation.c.enabled' = true }\n";
    near(&format!("{text}{third}"), 779_763);
    let late = "[[epoch]]\nat = '1s'\nname = 'late'\nset = { 'operation.b.jitter' = '1ms' }\n";
    let none = NoSetPoint { epoch: "late".into(), why: Inapplicable::NotPeriodic };
    assert_eq!(bounds(&format!("{text}{late}")), [Err(none)]);
}

#[test]
fn costs_of_scheduling_lower_the_bound() {
    let costs = |cost: &str| format!("{}[costs]\n{cost}\n", two("RMS", OFF));
    // Two switches for each job, at most 20 and 10 times a second; one blocks.
    let switch = 828_427 - 20 * 2 * 100 - 10 * 2 * 100 - 1_000;
    near(&costs("switch = '100us'"), switch);
    // In little more than 100 ms, three releases of `a` and two of `b`.
    near(&costs("timer = '100us'"), 828_427 - 5_000);
}

#[test]
fn the_reason_is_named_if_there_is_no_bound() {
    use Inapplicable::*;
    let edf = two("EDF", &format!("{OFF}\npreemption = 'full'"));
    for (from, to, why) in [
        ("'EDF'", "'MUF'", NotRateMonotonic),
        ("'full'", "'levels'", NonPreemptive),
        ("'full'", "'none'", NonPreemptive),
        ("preemption = 'full'", "preemption = 'full'\ncancel = true", Cancellation),
        ("every = ['100ms', '1s']", "every = ['100ms', '1s']\njitter = '1ms'", NotPeriodic),
        ("every = ['100ms', '1s']", "every = ['100ms', '1s']\ndeadline = '999ms'", ConstrainedDeadline),
        ("every = ['100ms', '1s']", "every = ['100ms', '1s']\non_overrun = 'demote'", Overruns),
        ("[operation.a]", "[resource.r]\n[operation.a]\nuses = { r = '1us' }", Resources),
    ] {
        let changed = edf.replacen(from, to, 1);
        assert_ne!(changed, edf);
        assert_eq!(bound(&changed), Err(why), "{to}");
        assert!(!why.remedy().is_empty());
    }
    near(&edf.replace("every = ['100ms', '1s']", "every = ['100ms', '1s']\ndeadline = '1s'"), 1_000_000);
    let mixed = edf.replace("strategy = 'EDF'", "strategy = ['RMS', 'EDF']");
    assert_eq!(bound(&mixed), Err(NotRateMonotonic));
}
