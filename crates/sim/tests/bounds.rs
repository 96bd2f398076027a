//! Soundness: on random systems whose jobs take at most what is declared, no simulated response
//! exceeds its proved bound, and what is proved misses nothing.

mod common;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies, analyse};

const SYSTEMS: u64 = 6_000;

/// Mostly schedulable: shorter executions, and never longer than declared.
fn system(seed: u64) -> System {
    let mut system = random::system(seed);
    let shrink = 1 + seed % 6;
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        for setting in &mut settings {
            setting.wcet = Span::from_nanos((setting.wcet.as_nanos() / shrink).max(1_000));
            setting.bcet = setting.bcet.min(setting.wcet);
            setting.takes = match setting.takes {
                Takes::Uniform(least, _) => Takes::Uniform(least.min(setting.wcet), setting.wcet),
                _ => Takes::Fixed(setting.wcet),
            };
        }
        epoch.settings = settings.into();
    }
    for operation in &mut system.operations {
        for (_, span) in &mut operation.uses {
            *span = Span::from_nanos(span.as_nanos() / shrink / 8 + 1);
        }
    }
    system
}

#[test]
fn no_simulated_response_exceeds_its_proved_bound() {
    let (mut proved, mut met, mut jobs, mut systems) = (0u64, 0u64, 0u64, 0u64);
    for seed in 0..SYSTEMS {
        let system = system(seed);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let report = analyse(&system, &plan);
        let all = events(&system, Instant::from_nanos(600_000_000));
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
                    end.outcome != hyoshi_trace::Outcome::Missed,
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
        systems += u64::from(any);
    }
    println!("{systems} systems, {proved} bounds, {met} met exactly, {jobs} jobs");
    assert!(proved > 5_000, "only {proved} bounds were proved: the test shows little");
}
