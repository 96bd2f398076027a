//! The cost of one sample of a feedback loop in its dispatcher: law, new rates, and new ranks of lanes.
//! `cargo bench -p hyoshi-dispatch --bench feedback`

use std::fmt::Write;

use divan::{Bencher, black_box};
use hyoshi_dispatch::Dispatcher;
use hyoshi_model::{Instant, Span, System, read};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{Input, NoProbe};

const OPERATIONS: [u32; 3] = [12, 100, 1_000];

/// Operations that together use half of a CPU at their highest rates, each with another period.
fn system(strategy: &str, operations: u32) -> System {
    let mut text = format!(
        "name = \"loop\"\n[processor.main]\nstrategy = \"{strategy}\"\n[feedback.main]\nalgorithm = \"FC-U\"\n\
         utilisation = \"70%\"\nperiod = \"100ms\"\n"
    );
    for one in 0..operations {
        let highest = 10.0 + f64::from(one) / 100.0;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[operation.task{one}]\nrate = [\"1Hz\", \"{highest}Hz\"]\nwcet = \"{}ns\"\n",
            40_000_000 / operations
        );
    }
    read(&text, "loop.toml", None).map(|loaded| loaded.system).unwrap_or_else(|errors| panic!("{errors}"))
}

fn sample(bencher: Bencher, strategy: &str, operations: u32) {
    let system = system(strategy, operations);
    let plan = Plan::new(&system, &Strategies::built_in()).expect("a built-in strategy");
    let mut dispatcher = Dispatcher::new(&system, &plan.processors[0], NoProbe);
    let mut effects = dispatcher.effects();
    // Above and below the set point by turns: all rates change.
    let (mut now, mut above) = (Instant::ZERO, false);
    bencher.bench_local(|| {
        (now, above) = (now + Span::from_nanos(1), !above);
        let utilisation = Some(if above { 720_000 } else { 680_000 });
        dispatcher.handle(black_box(now), Input::Sample { utilisation }, &mut effects);
        effects.retimed.clear();
    });
}

#[divan::bench(args = OPERATIONS)]
fn rate_monotonic(bencher: Bencher, operations: u32) {
    sample(bencher, "RMS", operations);
}

#[divan::bench(args = OPERATIONS)]
fn earliest_deadline_first(bencher: Bencher, operations: u32) {
    sample(bencher, "EDF", operations);
}

fn main() {
    divan::main();
}
