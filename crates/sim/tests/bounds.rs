//! Soundness: on random systems with jobs of at most the declared times, no simulated response exceeds its proved
//! bound, and no proved operation misses.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::{OperationReport, ProcessorReport, SceneReport};
use hyoshi_sched::{Plan, Report, Strategies, analyse};

const SYSTEMS: u64 = 6_000;

/// Mostly schedulable: shorter executions, and never longer than declared.
fn system(seed: u64) -> System {
    let mut system = random::system(seed).into_contents();
    let shrink = 1 + seed % 6;
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        for setting in &mut settings {
            setting.wcet = Span::from_nanos((setting.wcet.as_nanos() / shrink).max(1_000));
            setting.bcet = setting.bcet.min(setting.wcet);
            setting.execution_time = match setting.execution_time {
                ExecutionTime::Uniform(least, _) => ExecutionTime::Uniform(least.min(setting.wcet), setting.wcet),
                _ => ExecutionTime::Fixed(setting.wcet),
            };
        }
        epoch.settings = settings.into();
    }
    let mut choose = random::Choices::new(seed ^ 0xb0d5);
    if choose.one_in(2) {
        // Costs of scheduling, now and then as long as short operations.
        let most = choose.of(&[5, 30, 300]);
        for processor in &mut system.processors {
            let mut cost = || Span::from_nanos(choose.below(1_000 * most + 1));
            let (timer, enqueue, dequeue) = (cost(), cost(), cost());
            processor.costs = Costs { timer, enqueue, dequeue, cancel: cost(), switch: cost(), watchdog: cost() };
        }
    }
    common::drawn::hard_caps(&mut system, seed);
    for processor in &mut system.processors {
        if choose.one_in(4) {
            let strategy = choose.of(&["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]).into();
            let (margin, calm) = (Span::from_micros(choose.below(5_000)), Span::from_millis(1 + choose.below(50)));
            processor.overload = Some(Overload { strategy, margin, calm });
        }
    }
    if let [_, second] = &mut system.epochs[..] {
        // The region changes rates, and with them levels: of operations that trigger no other.
        let mut settings = second.settings.to_vec();
        for (index, operation) in system.operations.iter().enumerate() {
            let triggers = |other: &Operation| other.trigger.predecessors().iter().any(|from| from.index() == index);
            if operation.trigger == Trigger::Periodic && !system.operations.iter().any(triggers) && choose.one_in(2) {
                let setting = &mut settings[index];
                setting.period = Span::from_nanos(setting.period.as_nanos() * choose.of(&[1, 3, 4]) / 2);
                setting.slowest = setting.period;
                if choose.one_in(2) {
                    setting.deadline = Deadline::Own(setting.period);
                }
            }
        }
        second.settings = settings.into();
    }
    for operation in &mut system.operations {
        for (_, span) in &mut operation.uses {
            *span = Span::from_nanos(span.as_nanos() / shrink / 8 + 1);
        }
    }
    System::new(system)
}

#[test]
fn no_simulated_response_exceeds_its_proved_bound() {
    let proved = bounds_hold(0..SYSTEMS, false);
    assert!(proved > 5_000, "only {proved} bounds were proved: the test shows little");
}

#[test]
fn no_response_exceeds_its_proved_bound_where_ordinary_threads_use_every_pause() {
    let proved = bounds_hold(SYSTEMS..SYSTEMS * 3 / 2, true);
    assert!(proved > 2_000, "only {proved} bounds were proved: the test shows little");
}

fn bounds_hold(seeds: core::ops::Range<u64>, crowded: bool) -> u64 {
    let (mut proved, mut met, mut jobs, mut systems) = (0u64, 0u64, 0u64, 0u64);
    for seed in seeds {
        let system = system(seed);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let report = analyse(&system, &plan);
        let all = events_beside(&system, Instant::from_nanos(600_000_000), crowded);
        let mut any = false;
        for (scene, _, operation) in report.operations().filter(|(scene, ..)| !scene.change) {
            if !operation.verdict.is_proved() {
                continue;
            }
            any = true;
            proved += 1;
            let setting = system.setting(scene.epoch, operation.operation);
            let concerned = |end: &&hyoshi_trace::JobEnd| {
                end.job.operation == operation.operation
                    && usize::from(end.epoch) == scene.epoch
                    && end.critical == operation.critical
            };
            let mut worst = Span::ZERO;
            for end in ends(&all).filter(concerned) {
                // Across a change of epoch other bounds hold.
                if system.epochs.len() > 1 {
                    break;
                }
                assert!(
                    end.outcome != hyoshi_trace::JobOutcome::Missed,
                    "seed {seed}: {} {end:?} {operation:#?}",
                    operation.name
                );
                if !end.outcome.finished() {
                    continue;
                }
                let from = match setting.deadline {
                    Deadline::Own(_) => end.release,
                    Deadline::Origin(_) => end.origin,
                };
                worst = worst.max(end.end.since(from));
                jobs += 1;
            }
            if let Some(bound) = operation.bound_ns {
                assert!(
                    worst.as_nanos() <= bound,
                    "seed {seed}: {} took {worst}, bound {bound} ns {operation:#?}\n{system:#?}",
                    operation.name
                );
                met += u64::from(worst.as_nanos() == bound);
            }
        }
        across_regions(seed, &system, &report, &all);
        systems += u64::from(any);
    }
    println!("{systems} systems, {proved} bounds, {met} met exactly, {jobs} jobs");
    proved
}

/// Whichever region a job was released in, one of the scenes bounds it.
fn across_regions(
    seed: u64,
    system: &System,
    report: &Report,
    all: &[(ProcessorId, Instant, hyoshi_trace::TraceEvent)],
) {
    for (index, operation) in system.operations.iter().enumerate() {
        for critical in [false, true] {
            let same = |one: &OperationReport| one.operation.index() == index && one.critical == critical;
            let mut found = report.operations().map(|found| found.2).filter(|one| same(one)).peekable();
            if system.epochs.len() == 1 || found.peek().is_none() {
                continue;
            }
            let (mut proved, mut longest) = (true, Some(0));
            for one in found {
                proved &= one.verdict.is_proved();
                longest = longest.zip(one.bound_ns).map(|(one, other): (u64, u64)| one.max(other));
            }
            for end in ends(all).filter(|end| end.job.operation.index() == index && end.critical == critical) {
                let missed = end.outcome == hyoshi_trace::JobOutcome::Missed;
                assert!(!(proved && missed), "seed {seed}: {} {end:?}", operation.name);
                let from = match system.setting(usize::from(end.epoch), end.job.operation).deadline {
                    Deadline::Own(_) => end.release,
                    Deadline::Origin(_) => end.origin,
                };
                let took = end.end.since(from).as_nanos();
                assert!(
                    !end.outcome.finished() || longest.is_none_or(|bound| took <= bound),
                    "seed {seed}: {} took {took}, bound {longest:?} {end:?}",
                    operation.name
                );
            }
        }
    }
}

/// A simulation that spends a cost refutes an analysis without it.
#[test]
fn an_analysis_that_forgets_a_cost_is_caught() {
    type Forget = (&'static str, fn(&mut Costs));
    let forgets: [Forget; 6] = [
        ("timer", |costs| costs.timer = Span::ZERO),
        ("enqueue", |costs| costs.enqueue = Span::ZERO),
        ("dequeue", |costs| costs.dequeue = Span::ZERO),
        ("cancel", |costs| costs.cancel = Span::ZERO),
        ("switch", |costs| costs.switch = Span::ZERO),
        ("watchdog", |costs| costs.watchdog = Span::ZERO),
    ];
    let mut caught = [0; 6];
    for seed in 0..SYSTEMS {
        let system = system(seed).with(|system| system.epochs.truncate(1));
        if system.processors.iter().all(|processor| processor.costs.is_none()) {
            continue;
        }
        let all = events(&system, Instant::from_nanos(600_000_000));
        for ((_, forget), caught) in forgets.iter().zip(&mut caught).filter(|(_, caught)| **caught == 0) {
            let costs = |system: &mut Contents| system.processors.iter_mut().for_each(|one| forget(&mut one.costs));
            let lesser = system.clone().with(costs);
            let plan = Plan::new(&lesser, &Strategies::built_in()).unwrap();
            let exceeds = |(_, _, one): (&SceneReport, &ProcessorReport, &OperationReport)| {
                let same = |end: &&hyoshi_trace::JobEnd| {
                    end.job.operation == one.operation && end.critical == one.critical && end.outcome.finished()
                };
                let from = |end: &hyoshi_trace::JobEnd| match system.setting(0, one.operation).deadline {
                    Deadline::Own(_) => end.release,
                    Deadline::Origin(_) => end.origin,
                };
                let late = |end: &hyoshi_trace::JobEnd| end.end.since(from(end)).as_nanos();
                one.bound_ns.is_some_and(|bound| ends(&all).filter(same).any(|end| late(end) > bound))
            };
            *caught += usize::from(analyse(&lesser, &plan).operations().any(exceeds));
        }
    }
    let missed: Vec<&str> =
        forgets.iter().zip(caught).filter(|(_, caught)| *caught == 0).map(|(one, _)| one.0).collect();
    assert!(missed.is_empty(), "forgotten and not noticed: {missed:?}");
}
