//! The duration of an analysis: 1,000 operations on 16 processors.

use divan::{Bencher, black_box};
use hyoshi_model::*;
use hyoshi_sched::analysis::sensitivity;
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
        execution_time: ExecutionTime::Fixed(Span::ZERO),
        deadline: Deadline::Own(period(index)),
        legs: 1,
        critical_legs: u16::from(index.is_multiple_of(4)),
    };
    let operation = |index: u32| Operation {
        name: format!("op{index}"),
        on: ProcessorId(index % PROCESSORS),
        trigger: Trigger::Periodic,
        min_interval: None,
        clients: None,
        levels: vec![],
        standby: false,
        calls_any: false,
        reads: vec![],
        critical: (index / PROCESSORS).is_multiple_of(4),
        importance: 0,
        roots: vec![OperationId(index)],
        phase_given: true,
        uses: vec![],
        queue: QueueLimit { limit: 4, when_full: WhenFull::DropNewest },
        on_overrun: OnOverrun::Report,
        on_busy: OnBusy::Queue,
        on_miss: OnMiss::Continue,
        guard: Guard::Off,
        timeout: None,
        lifespan: None,
        payload: 0,
        replication: None,
        home: None,
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
        hard_cap: hyoshi_model::HardCap::OFF,
        pool: 1,
        overload: None,
        costs: hyoshi_model::Costs::NONE,
    };
    System::new(Contents {
        name: "bench".into(),
        seed: 1,
        duration: Span::from_secs(1),
        hosts: vec![Host::named("local")],
        processors: (0..PROCESSORS).map(processor).collect(),
        operations: (0..OPERATIONS).map(operation).collect(),
        resources: vec![],
        chains: vec![],
        links: vec![],
        feedback: Vec::new(),
        conditions: Vec::new(),
        contracts: Vec::new(),
        brokered: Default::default(),
        objects: Vec::new(),
        delegates: Vec::new(),
        events: Vec::new(),
        idle_states: Default::default(),
        epochs: vec![Epoch {
            name: "0".into(),
            at: Instant::ZERO,
            settings: (0..OPERATIONS).map(setting).collect(),
            environment: Default::default(),
            admissions: Default::default(),
        }],
    })
}

fn analyses(bencher: Bencher<'_, '_>, strategy: &str, preemption: Preemption, percent: u64) {
    analyse_all(bencher, &system(strategy, preemption, percent));
}

/// The same with the costs of scheduling: 15 % of the CPU at these rates.
fn with_costs(bencher: Bencher<'_, '_>, strategy: &str, preemption: Preemption, percent: u64) {
    let mut system = system(strategy, preemption, percent).into_contents();
    let ns = Span::from_nanos;
    for processor in &mut system.processors {
        processor.costs = Costs {
            timer: ns(8_000),
            enqueue: ns(300),
            dequeue: ns(300),
            cancel: ns(100),
            switch: ns(1_500),
            watchdog: ns(5_000),
        };
    }
    analyse_all(bencher, &System::new(system));
}

fn analyse_all(bencher: Bencher<'_, '_>, system: &System) {
    let plan = Plan::new(system, &Strategies::built_in()).expect("a built-in strategy");
    bencher.bench(|| analyse(black_box(system), black_box(&plan)));
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

#[divan::bench(args = LOADS)]
fn rms_with_costs(bencher: Bencher<'_, '_>, percent: u64) {
    with_costs(bencher, "RMS", Preemption::Levels, percent);
}

#[divan::bench(args = LOADS)]
fn edf_with_costs(bencher: Bencher<'_, '_>, percent: u64) {
    with_costs(bencher, "EDF", Preemption::Full, percent);
}

#[divan::bench(args = LOADS)]
fn mlf_non_preemptive_with_costs(bencher: Bencher<'_, '_>, percent: u64) {
    with_costs(bencher, "MLF", Preemption::Levels, percent);
}

#[divan::bench(args = LOADS)]
fn rms_and_mlf_with_costs(bencher: Bencher<'_, '_>, percent: u64) {
    with_costs(bencher, "RMS+MLF", Preemption::Levels, percent);
}

/// RMS with RMS+MLF in overload: each alone, and across switches.
#[divan::bench(args = LOADS)]
fn two_strategies(bencher: Bencher<'_, '_>, percent: u64) {
    let mut system = system("RMS", Preemption::Levels, percent).into_contents();
    for processor in &mut system.processors {
        let (margin, calm) = (Span::ZERO, Span::from_secs(1));
        processor.overload = Some(Overload { strategy: "RMS+MLF".into(), margin, calm });
    }
    analyse_all(bencher, &System::new(system));
}

#[divan::bench]
fn plan() {
    let system = system("RMS+MLF", Preemption::Levels, 70);
    let _ = black_box(Plan::new(black_box(&system), &Strategies::built_in()));
}

/// The margin of each operation: one sample takes seconds.
#[divan::bench(args = ["RMS", "EDF", "RMS+MLF"], sample_count = 3, sample_size = 1)]
fn sensitivity_at_70(bencher: Bencher<'_, '_>, strategy: &str) {
    let preemption = if strategy == "EDF" { Preemption::Full } else { Preemption::Levels };
    let system = system(strategy, preemption, 70);
    let strategies = Strategies::built_in();
    let plan = Plan::new(&system, &strategies).expect("a built-in strategy");
    let report = analyse(&system, &plan);
    bencher.bench(|| sensitivity(black_box(&system), &strategies, &report, &|_, _| true));
}
