//! How long a verdict takes: 1,000 operations on 16 processors.

use divan::{Bencher, black_box};
use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies, analyse};

fn main() {
    divan::main();
}

/// Utilisations in percent at which the whole set is analysed.
const LOADS: [u64; 3] = [50, 70, 95];

/// Periods from 1 to 200 ms, utilisation spread evenly, every fourth operation critical under mixed strategies.
fn system(strategy: &str, preemption: Preemption, percent: u64) -> System {
    const OPERATIONS: u32 = 1_000;
    const PROCESSORS: u32 = 16;
    let period = |index: u32| {
        Span::from_micros(
            [1_000, 2_000, 5_000, 10_000, 20_000, 25_000, 50_000, 100_000, 200_000][index as usize / 16 % 9]
                + u64::from(index),
        )
    };
    let here = u64::from(OPERATIONS.div_ceil(PROCESSORS));
    let setting = |index: u32| Setting {
        enabled: true,
        period: period(index),
        slowest: period(index),
        phase: Span::from_micros(u64::from(index) * 7),
        offset: Span::ZERO,
        jitter: Span::from_micros(20),
        wcet: Span::from_nanos(period(index).as_nanos() * percent / 100 / here),
        bcet: Span::ZERO,
        takes: Takes::Fixed(Span::ZERO),
        deadline: Deadline::Own(period(index)),
        legs: 1,
        critical_legs: u16::from(index.is_multiple_of(4)),
    };
    let operation = |index: u32| Operation {
        name: format!("op{index}"),
        on: ProcessorId(index % PROCESSORS),
        trigger: Trigger::Periodic,
        reads: vec![],
        critical: (index / PROCESSORS).is_multiple_of(4),
        importance: 0,
        roots: vec![OperationId(index)],
        uses: vec![],
        queue: QueueLimit { limit: 4, when_full: WhenFull::DropNewest },
        on_overrun: OnOverrun::Report,
        on_busy: OnBusy::Queue,
        guard: Guard::Off,
        payload: 0,
    };
    let processor = |index: u32| Processor {
        name: format!("cpu{index}"),
        host: HostId(0),
        cpu: None,
        strategy: strategy.into(),
        preemption,
        cancel: false,
        cap_ppm: 1_000_000,
        cap_window: Span::from_millis(100),
        pool: 1,
    };
    System {
        name: "bench".into(),
        seed: 1,
        duration: Span::from_secs(1),
        hosts: vec![Host { name: "local".into() }],
        processors: (0..PROCESSORS).map(processor).collect(),
        operations: (0..OPERATIONS).map(operation).collect(),
        resources: vec![],
        chains: vec![],
        links: vec![],
        epochs: vec![Epoch { name: "0".into(), at: Instant::ZERO, settings: (0..OPERATIONS).map(setting).collect() }],
    }
}

fn analyses(bencher: Bencher<'_, '_>, strategy: &str, preemption: Preemption, percent: u64) {
    let system = system(strategy, preemption, percent);
    let plan = Plan::new(&system, &Strategies::built_in()).expect("a built-in strategy");
    bencher.bench(|| analyse(black_box(&system), black_box(&plan)));
}

#[divan::bench(args = LOADS)]
fn rms(bencher: Bencher<'_, '_>, percent: u64) {
    analyses(bencher, "RMS", Preemption::Levels, percent);
}

#[divan::bench(args = LOADS)]
fn edf(bencher: Bencher<'_, '_>, percent: u64) {
    analyses(bencher, "EDF", Preemption::Full, percent);
}

#[divan::bench(args = LOADS)]
fn mlf_non_preemptive(bencher: Bencher<'_, '_>, percent: u64) {
    analyses(bencher, "MLF", Preemption::Levels, percent);
}

#[divan::bench(args = LOADS)]
fn rms_and_mlf(bencher: Bencher<'_, '_>, percent: u64) {
    analyses(bencher, "RMS+MLF", Preemption::Levels, percent);
}

#[divan::bench]
fn plan() {
    let system = system("RMS+MLF", Preemption::Levels, 70);
    let _ = black_box(Plan::new(black_box(&system), &Strategies::built_in()));
}
