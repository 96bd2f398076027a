//! How often `check` leaves an unschedulable set undecided: single processors, compared with separate exact tests,
//! which are independent of the analysis.
//!
//! A part of it runs with every `cargo test`; all of it is
//! `cargo test --release -p hyoshi-sim --test suite undecided:: -- --ignored --nocapture`.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::{FailureReason, counterexamples};
use hyoshi_sched::{Outcome as Holds, Plan, Report, Strategies, analyse};
use hyoshi_sim::refute;

/// Times are in units of 100 us; priorities are by deadline, ties by the file's order.
#[derive(Clone, Copy, Debug)]
struct Task {
    period: u64,
    wcet: u64,
    deadline: u64,
    jitter: u64,
}

const CLASSES: [(&str, &str, Preemption); 5] = [
    ("fixed priority", "DM", Preemption::Levels),
    (JITTER, "DM", Preemption::Levels),
    ("fixed priority, no preemption", "DM", Preemption::None),
    ("EDF", "EDF", Preemption::Full),
    ("EDF, no preemption", "EDF", Preemption::None),
];

const JITTER: &str = "fixed priority, jitter";

#[test]
fn the_search_in_a_large_system_is_bounded_by_its_size() {
    // With given phases there is no alignment to try: building behaviours is useless.
    let mut build = Build::new("RMS", 1).processors(|one| one.cap_ppm = 500_000);
    for index in 0..5_000 {
        build = build.periodic(&format!("o{index}"), 0, 10_000.0, 1.9);
    }
    build.0.operations.iter_mut().for_each(|operation| operation.phase_given = true);
    let (system, strategies) = (System::new(build.0), Strategies::built_in());
    let plan = Plan::new(&system, &strategies).unwrap();
    let mut report = analyse(&system, &plan);
    let mut tried = 0;
    refute(&system, &plan, &strategies, &mut report, || {
        tried += 1;
        true
    });
    assert!(tried > 0 && tried <= 1_000_000 / 5_000, "{tried} behaviours");
}

fn tasks(choose: &mut random::Choices, jitter: bool) -> Vec<Task> {
    let load = 550 + choose.below(430);
    let weights: Vec<u64> = (0..3 + choose.below(6)).map(|_| 1 + choose.below(20)).collect();
    let all: u64 = weights.iter().sum();
    let task = |weight: &u64| {
        let period = choose.of(&[50, 60, 80, 100, 120, 150, 200, 240, 300, 400, 500, 1000]);
        let wcet = (period * load * weight / all / 1000).clamp(1, period);
        let deadline = if choose.one_in(2) { period } else { wcet + choose.below(period - wcet + 1) };
        let jitter = if jitter { choose.below(period / 3 + 1) } else { 0 };
        Task { period, wcet, deadline, jitter }
    };
    weights.iter().map(task).collect()
}

fn system(tasks: &[Task], strategy: &str, preemption: Preemption, seed: u64) -> System {
    let ms = |units: u64| units as f64 / 10.0;
    let mut build = Build::new(strategy, 1).processors(|one| one.preemption = preemption);
    for (index, task) in tasks.iter().enumerate() {
        build = build.periodic(&format!("o{index}"), 0, ms(task.period), ms(task.wcet)).critical().set(|setting| {
            setting.deadline = Deadline::Own(common::ms(ms(task.deadline)));
            setting.critical_legs = 1;
            setting.jitter = common::ms(ms(task.jitter));
        });
    }
    build.0.seed = seed;
    System::new(build.0)
}

/// In nanoseconds, so that blocking is a job less its first nanosecond.
const UNIT: u64 = 100_000;

/// Whether some alignment of strictly periodic releases misses: exact for sets without given phases.
fn unschedulable(tasks: &[Task], by_deadline: bool, preemptive: bool) -> bool {
    let tasks: Vec<Task> = tasks
        .iter()
        .map(|one| Task {
            period: one.period * UNIT,
            wcet: one.wcet * UNIT,
            deadline: one.deadline * UNIT,
            jitter: one.jitter * UNIT,
        })
        .collect();
    let over = tasks.iter().map(|one| one.wcet as f64 / one.period as f64).sum::<f64>() > 1.0 + 1e-9;
    over || if by_deadline { edf_misses(&tasks, preemptive) } else { fixed_misses(&tasks, preemptive) }
}

/// Baruah, Mok and Rosier 1990; George, Rivierre and Spuri 1996.
fn edf_misses(tasks: &[Task], preemptive: bool) -> bool {
    let longest = tasks.iter().map(|one| one.wcet).max().unwrap();
    let mut busy = longest;
    loop {
        let next = longest + tasks.iter().map(|one| busy.div_ceil(one.period) * one.wcet).sum::<u64>();
        if next == busy || next > 100_000 * UNIT {
            break;
        }
        busy = next;
    }
    let mut points: Vec<u64> = Vec::new();
    for one in tasks {
        points.extend((0..).map(|job| one.deadline + job * one.period).take_while(|point| *point <= busy));
    }
    points.into_iter().any(|point| {
        let due = |one: &Task| if point < one.deadline { 0 } else { (point - one.deadline) / one.period + 1 };
        let demand: u64 = tasks.iter().map(|one| due(one) * one.wcet).sum();
        let later = tasks.iter().filter(|one| one.deadline > point).map(|one| one.wcet - 1);
        demand + if preemptive { 0 } else { later.max().unwrap_or(0) } > point
    })
}

/// Joseph and Pandya 1986; Audsley et al. 1993 with jitter; Davis, Burns, Bril and Lukkien 2007, without the arbitration of a bus.
fn fixed_misses(tasks: &[Task], preemptive: bool) -> bool {
    // A level is one deadline: within it jobs run in the order of their arrivals.
    tasks.iter().any(|own| {
        let before = |other: &&Task| other.deadline < own.deadline;
        let above: Vec<Task> = tasks.iter().filter(before).copied().collect();
        let beside: Vec<Task> = tasks.iter().filter(|other| other.deadline == own.deadline).copied().collect();
        let below = tasks.iter().filter(|other| other.deadline > own.deadline).map(|other| other.wcet - 1);
        let blocking = if preemptive { 0 } else { below.max().unwrap_or(0) };
        // Deadlines are within periods: of its level there is one job of each before it, itself last.
        let ahead: u64 = beside.iter().map(|one| one.wcet).sum();
        if preemptive {
            // Deadlines are within periods, so a job that is not late has ended before the next is due.
            let mut end = ahead;
            loop {
                let next =
                    ahead + above.iter().map(|one| (end + one.jitter).div_ceil(one.period) * one.wcet).sum::<u64>();
                if next + own.jitter > own.deadline {
                    return true;
                }
                if next == end {
                    return false;
                }
                end = next;
            }
        }
        let mut busy = blocking + ahead;
        loop {
            let with = above.iter().chain(&beside).map(|one| busy.div_ceil(one.period) * one.wcet).sum::<u64>();
            let next = blocking + with;
            if next == busy || next > 100_000 * UNIT {
                break;
            }
            busy = next;
        }
        let jobs = busy.div_ceil(own.period).min(1_000);
        (0..jobs).any(|job| {
            let at = job * own.period;
            let own_level: u64 = beside.iter().map(|one| (at / one.period + 1) * one.wcet).sum();
            let fixed = blocking + own_level - own.wcet;
            let mut start = fixed;
            loop {
                let next = fixed + above.iter().map(|one| (start / one.period + 1) * one.wcet).sum::<u64>();
                if next + own.wcet > at + own.deadline {
                    return true;
                }
                if next == start {
                    return false;
                }
                start = next;
            }
        })
    })
}

/// Without preemption `urgent` misses if `long` has just begun, and never if both begin at 0.
fn file(of_urgent: &str, of_long: &str, cancel: bool) -> System {
    let text = format!(
        "name = \"two\"\nduration = \"1s\"\n[processor.cpu]\nstrategy = \"DM\"\ncap = \"100%\"\npreemption = \"none\"\n\
         cancel = {cancel}\n[operation.urgent]\nevery = \"10ms\"\nwcet = \"1ms\"\ndeadline = \"3ms\"\n{of_urgent}\n\
         [operation.long]\nevery = \"20ms\"\nwcet = \"4ms\"\n{of_long}\n"
    );
    hyoshi_model::read(&text, "two.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

#[test]
fn an_operation_without_a_phase_is_seen_to_miss_at_another_one_and_the_example_misses() {
    let system = file("", "", false);
    let report = checked(&system);
    assert_eq!(report.outcome, Holds::DoesNotHold);
    let example = counterexamples(&system, &report).next().unwrap();
    assert!(matches!(example.why, FailureReason::Seen { late: Some(late), .. } if late == Span::from_nanos(1_999_999)));
    let written = hyoshi_model::write(&example.system);
    let again = hyoshi_model::read(&written, "again.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let missed = |end: &&hyoshi_trace::JobEnd| end.outcome == hyoshi_trace::JobOutcome::Missed;
    assert_eq!(ends(&events(&again, Instant::ZERO + again.duration)).filter(missed).count(), 1, "{written}");
}

#[test]
fn phases_in_the_file_stay() {
    for (urgent, long) in [("phase = \"0s\"", "phase = \"0s\""), ("phase = \"5ms\"", "phase = \"0s\"")] {
        assert_eq!(checked(&file(urgent, long, false)).outcome, Holds::Unknown);
    }
    // One without a phase may begin just before the other.
    for (urgent, long) in [("", "phase = \"0s\""), ("phase = \"5ms\"", "")] {
        assert_eq!(checked(&file(urgent, long, false)).outcome, Holds::DoesNotHold, "{urgent} {long}");
    }
}

#[test]
fn what_may_be_cancelled_never_fails() {
    assert_eq!(checked(&file("", "", true)).outcome, Holds::Unknown);
    assert_eq!(checked(&file("critical = true", "", true)).outcome, Holds::DoesNotHold);
}

fn checked(system: &System) -> Report {
    let strategies = Strategies::built_in();
    let plan = Plan::new(system, &strategies).unwrap();
    let mut report = analyse(system, &plan);
    refute(system, &plan, &strategies, &mut report, || true);
    report
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unschedulable: u64,
    unknown_before: u64,
    unknown: u64,
}

fn measure(sets: u64) -> [Counts; 5] {
    let mut counts = [Counts::default(); 5];
    for seed in 0..sets {
        for (class, (name, strategy, preemption)) in CLASSES.iter().enumerate() {
            let mut choose = random::Choices::new(seed * 5 + class as u64 + 0x0dd);
            let tasks = tasks(&mut choose, *name == JITTER);
            let system = system(&tasks, strategy, *preemption, seed);
            let misses = unschedulable(&tasks, *strategy == "EDF", *preemption != Preemption::None);
            let report = checked(&system);
            if !misses {
                assert!(
                    report.outcome != Holds::DoesNotHold,
                    "{name}, seed {seed}: fails, and the exact test passes {tasks:?}"
                );
                continue;
            }
            assert!(report.outcome != Holds::Holds, "{name}, seed {seed}: holds, and the exact test fails {tasks:?}");
            let before = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
            counts[class].unschedulable += 1;
            counts[class].unknown_before += u64::from(before.outcome == Holds::Unknown);
            counts[class].unknown += u64::from(report.outcome == Holds::Unknown);
        }
    }
    for ((name, ..), one) in CLASSES.iter().zip(&counts) {
        let share = |of: u64| of * 100 / one.unschedulable.max(1);
        println!(
            "{name:<32} {:>5} unschedulable, unknown by analysis {:>5} ({} %), after simulation {:>5} ({} %)",
            one.unschedulable,
            one.unknown_before,
            share(one.unknown_before),
            one.unknown,
            share(one.unknown)
        );
    }
    counts
}

#[test]
fn few_sets_that_cannot_be_scheduled_stay_unknown() {
    for counts in measure(150) {
        assert!(counts.unschedulable > 20 && counts.unknown * 5 <= counts.unschedulable, "{counts:?}");
    }
}

#[test]
#[ignore = "a minute in release: the figures of docs/benchmarks.md"]
fn few_of_ten_thousand_sets_that_cannot_be_scheduled_stay_unknown() {
    for counts in measure(2_500) {
        assert!(counts.unknown * 5 <= counts.unschedulable, "{counts:?}");
    }
}

/// The search with contracts: an operation on standby runs, and conditions have the values of the file.
#[test]
fn a_simulated_miss_is_one_that_the_contracts_of_the_file_permit() {
    let refuted = |text: &str| {
        let system = read(text, "contract.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let mut report = analyse(&system, &plan);
        refute(&system, &plan, &Strategies::built_in(), &mut report, || true);
        report.outcome == Holds::DoesNotHold
    };
    let admitted = "name = 'a'\n[processor.main]\nstrategy = 'RMS'\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
        [operation.a]\nrate = ['2Hz', '20Hz']\nwcet = '10ms'\n[operation.b]\nevery = '50ms'\nwcet = '20ms'\ncritical = true\n\
        [operation.spare]\nrate = ['2Hz', '10Hz']\nwcet = '30ms'\nstandby = true\n[condition.x]\n[contract.c]\n\
        watch = { x = { of = 'condition.x' } }\n[[contract.c.region]]\nname = 'r'\nenter = 'x > 0.5'\n\
        do = [{ admit = 'spare' }]\n[[contract.c.region]]\nname = 'n'\ndo = [{ withdraw = 'spare' }]\n";
    refuted(admitted);
    let ordered = |value: u32| {
        format!(
            "name = 'o'\nduration = '2s'\n[processor.main]\nstrategy = 'MUF'\ncap = '100%'\nhard_cap = '100%'\n\
             [operation.a]\nrate = '10Hz'\nphase = '0ms'\nwcet = '40ms'\ndeadline = '60ms'\nimportance = 9\n\
             [operation.b]\nrate = '10Hz'\nphase = '0ms'\nwcet = '20ms'\ndeadline = '40ms'\nimportance = 1\n\
             [condition.x]\nvalue = {value}\n[contract.c]\nperiod = '10ms'\nwatch = {{ x = {{ of = 'condition.x' }} }}\n\
             [[contract.c.region]]\nname = 'r'\nenter = 'x > 0.5'\n\
             do = [{{ set = 'operation.b.importance', to = 20 }}]\n[[contract.c.region]]\nname = 'n'\n"
        )
    };
    // Only without the importance of the region, `b` waits for `a`.
    assert!(refuted(&ordered(0)) && !refuted(&ordered(1)));
}
