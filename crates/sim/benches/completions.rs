//! Job completions a second: 100 and 1,000 operations on one processor at 80 % load, probes off.
//! `cargo bench -p hyoshi-sim`

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use divan::counter::ItemsCount;
use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::{DispatchDecision, NoProbe, Probe, TraceEvent};

struct Count(u64);

impl Probe for Count {
    #[inline]
    fn event(&mut self, _: Instant, event: TraceEvent) {
        self.0 += u64::from(matches!(event, TraceEvent::Decision(DispatchDecision::End(_))));
    }
}

/// Periods from 10 to 200 ms that share few factors, utilisation 80 %.
fn hundred(strategy: &str, preemption: Preemption) -> System {
    several(100, strategy, preemption)
}

fn several(count: u32, strategy: &str, preemption: Preemption) -> System {
    let mut build = Build::new(strategy, 1).processors(|processor| processor.preemption = preemption);
    for index in 0..count {
        let period = 10.0 + f64::from(index * 7919 % 191);
        build = build.periodic(&format!("o{index}"), 0, period, period * 0.8 / f64::from(count));
    }
    System::new(build.0)
}

/// Caps that never act, with the files' defaults.
#[divan::bench]
fn rms_with_caps(bencher: divan::Bencher) {
    let mut system = hundred("RMS", Preemption::Levels).into_contents();
    for processor in &mut system.processors {
        (processor.cap_ppm, processor.cap_window) = (940_000, Span::from_millis(100));
        processor.hard_cap = HardCap { ppm: 940_000, ..HardCap::OFF };
    }
    bench_system(bencher, System::new(system));
}

#[divan::bench]
fn edf_by_levels_of_a_thousand(bencher: divan::Bencher) {
    bench_system(bencher, several(1_000, "EDF", Preemption::Levels));
}

#[divan::bench]
fn rms_of_a_thousand(bencher: divan::Bencher) {
    bench_system(bencher, several(1_000, "RMS", Preemption::Levels));
}

fn bench(bencher: divan::Bencher, strategy: &str, preemption: Preemption) {
    bench_system(bencher, hundred(strategy, preemption));
}

fn bench_system(bencher: divan::Bencher, system: System) {
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let until = Instant::ZERO + Span::from_secs(60);
    let jobs = simulate(&system, &plan, until, |_| Count(0), |_| true).processors[0].probe.0;
    bencher
        .counter(ItemsCount::new(jobs))
        .bench(|| simulate(&system, &plan, until, |_| NoProbe, |_| true).processors[0].busy);
}

#[divan::bench]
fn edf_by_levels(bencher: divan::Bencher) {
    bench(bencher, "EDF", Preemption::Levels);
}

#[divan::bench]
fn edf_fully_preemptive(bencher: divan::Bencher) {
    bench(bencher, "EDF", Preemption::Full);
}

#[divan::bench]
fn rms(bencher: divan::Bencher) {
    bench(bencher, "RMS", Preemption::Levels);
}

/// Every fifth operation is critical; the trigger of the second strategy is tested at every release and completion, or
/// there is none.
fn critical_fifth(second: Option<&str>) -> System {
    let mut system = hundred("RMS", Preemption::Levels).into_contents();
    system.operations.iter_mut().step_by(5).for_each(|operation| operation.critical = true);
    let overload = |strategy: &str| Overload { strategy: strategy.into(), margin: ms(0.0), calm: ms(100.0) };
    system.processors[0].overload = second.map(overload);
    System::new(system)
}

#[divan::bench]
fn rms_with_critical_work(bencher: divan::Bencher) {
    bench_system(bencher, critical_fifth(None));
}

#[divan::bench]
fn rms_that_may_switch(bencher: divan::Bencher) {
    bench_system(bencher, critical_fifth(Some("RMS+MLF")));
}

#[divan::bench]
fn rms_with_costs(bencher: divan::Bencher) {
    let mut system = hundred("RMS", Preemption::Levels).into_contents();
    let us = Span::from_micros;
    system.processors[0].costs =
        Costs { timer: us(5), enqueue: us(1), dequeue: us(1), cancel: us(1), switch: us(2), watchdog: us(10) };
    bench_system(bencher, System::new(system));
}

fn main() {
    divan::main();
}
