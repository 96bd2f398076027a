//! Groups of processors on linear models: the range of gains in which EUCON and DEUCON settle.

use std::fmt::Write;

use hyoshi_control::feedback::GroupModel;
use hyoshi_model::{System, read};
use proptest::prelude::*;

/// Chains over these processors, each with its stages' processors and execution times in milliseconds.
fn system(algorithm: &str, processors: usize, chains: &[Vec<(usize, u64)>]) -> System {
    let mut text = String::from("name = 'model'\n");
    for at in 0..processors {
        let _ = write!(
            text,
            "[processor.p{at}]\n[feedback.p{at}]\nalgorithm = '{algorithm}'\nutilisation = '70%'\nperiod = '10s'\n\
             [operation.own{at}]\non = 'p{at}'\nrate = ['1Hz', '40Hz']\nwcet = '1ms'\n"
        );
    }
    for (place, stages) in chains.iter().enumerate() {
        for (stage, (at, time)) in stages.iter().enumerate() {
            let release = match stage {
                0 => "rate = ['1Hz', '40Hz']".to_owned(),
                _ => format!("after = {{ all = ['t{place}-{}'] }}", stage - 1),
            };
            let _ = write!(text, "[operation.t{place}-{stage}]\non = 'p{at}'\nwcet = '{time}ms'\n{release}\n");
        }
    }
    read(&text, "model.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

fn model(system: &System) -> GroupModel {
    GroupModel::new(system, &system.control_groups()[0]).expect("a small group")
}

/// EUCON's law for one rate on one processor, with horizons of four and two periods: the least squares in closed form,
/// and at once to the set point if that is lower.
fn settles(gain: f64, mut error: f64) -> bool {
    let (decay, smoothing) = (0.778_800_783f64, 0.1);
    // The errors that the reference trajectory corrects in the first period, and in the other three.
    let first = 1.0 - decay;
    let other: f64 = (2..=4).map(|ahead| 1.0 - decay.powi(ahead)).sum();
    let (mut last, begun) = (0.0, error.abs());
    for _ in 0..300 {
        // x (1 + 3 + 2 R) + y (3 - R) = -first e - other e + R last;  x (3 - R) + y (3 + R) = -other e
        let (a, b, c) = (4.0 + 2.0 * smoothing, 3.0 - smoothing, 3.0 + smoothing);
        let (p, q) = (-(first + other) * error + smoothing * last, -other * error);
        let free = (p * c - b * q) / (a * c - b * b);
        last = free.min(-error);
        error += gain * last;
        if error.abs() > 100.0 * begun {
            return false;
        }
    }
    error.abs() < 0.01 * begun
}

#[test]
fn the_range_of_one_processor_is_that_of_its_law() {
    let text = "name = 'one'\n[processor.p]\n[feedback.p]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
        [operation.a]\nrate = ['1Hz', '40Hz']\nwcet = '1ms'\n";
    let system = read(text, "one.toml", None).unwrap().system;
    let found = model(&system).stable_below().unwrap();
    assert!(settles(found * 0.97, 1.0) && settles(found * 0.97, -1.0), "{found}");
    assert!(!settles(found * 1.05, 1.0) || !settles(found * 1.05, -1.0), "{found}");
    // The linear law alone would have a wider range: its corrections are slower than those of the constraint.
    assert!((2.0..8.0).contains(&found), "{found}");
}

fn chains() -> impl Strategy<Value = (usize, Vec<Vec<(usize, u64)>>)> {
    (1usize..3).prop_flat_map(|processors| {
        let stages = prop::collection::vec((0..processors, 1u64..10), 1..4);
        (Just(processors), prop::collection::vec(stages, 0..3))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// From directions other than those that were tried.
    #[test]
    fn groups_settle_within_the_range_and_not_beyond_it(
        deucon: bool, (processors, chains) in chains(), part in 0.2..0.9f64,
        excess in prop::collection::vec(-1.0..1.0f64, 8),
    ) {
        let system = system(if deucon { "DEUCON" } else { "EUCON" }, processors, &chains);
        let model = model(&system);
        let stable = model.stable_below();
        prop_assert!(stable.is_some(), "it does not settle");
        let stable = stable.unwrap();
        let settled = model.settling(stable * part, &excess[..model.rates().min(8)]);
        prop_assert!(settled.is_some(), "{} of {}", part, stable);
        prop_assert!(model.longest_settling(1.0).is_some());
        if stable < GroupModel::LARGEST_GAIN {
            prop_assert_eq!(model.longest_settling(stable * 1.1), None);
        }
    }
}
