//! Compares the crate `cel` with the expressions of contracts: time and allocations of one evaluation.
//!
//!     cargo run --release --manifest-path comparisons/cel/Cargo.toml

use std::hint::black_box;
use std::time::Instant;

use cel::{Context, Program, Value};
use hyoshi_model::predicate::{ConditionReading, Predicate};

const TEXT: &str = "late > 0.02 && asked > 1.0 || !(load < 0.5)";
const ROUNDS: u32 = 200_000;
const SAMPLES: usize = 15;

/// The median time of one evaluation in ns, and its allocations.
fn measure(evaluate: impl Fn() -> bool) -> (f64, u64) {
    let sample = |_| {
        let from = Instant::now();
        for _ in 0..ROUNDS {
            black_box(evaluate());
        }
        from.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    let mut times: Vec<f64> = (0..SAMPLES).map(sample).collect();
    times.sort_by(f64::total_cmp);
    (times[SAMPLES / 2], allocation_counter::measure(|| _ = evaluate()).count_total)
}

fn main() {
    let values = [("late", 0.01), ("asked", 1.2), ("load", 0.7)];
    let own = Predicate::read(TEXT, &values.map(|(name, _)| name)).expect("the expression is valid");
    let readings = values.map(|(_, value)| ConditionReading::Fresh(value));
    let program = Program::compile(TEXT).expect("the expression is valid");
    let mut context = Context::default();
    for (name, value) in values {
        context.add_variable_from_value(name, value);
    }
    let cel = || matches!(program.execute(&context), Ok(Value::Bool(true)));
    assert!(own.holds(&readings) && cel(), "both are true");
    for (name, (time, allocations)) in
        [("Predicate", measure(|| own.holds(black_box(&readings)))), ("cel", measure(cel))]
    {
        println!("{name:<10} {time:>8.1} ns  {allocations:>3} allocations");
    }
}
