//! Systems and job ends for tests and benchmarks.

use std::sync::Arc;

use hyoshi_model::*;
use hyoshi_trace::{JobEnd, JobOutcome};

pub fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

pub fn at(millis: u64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

pub fn setting(period: Span, wcet: Span) -> Setting {
    Setting {
        enabled: true,
        period,
        slowest: period,
        phase: Span::ZERO,
        offset: Span::ZERO,
        jitter: Span::ZERO,
        wcet,
        bcet: wcet,
        execution_time: ExecutionTime::Fixed(wcet),
        deadline: Deadline::Own(period),
        legs: 1,
        critical_legs: 1,
    }
}

pub fn operation(id: u32, trigger: Trigger, critical: bool) -> Operation {
    Operation {
        name: format!("op.{}", id + 1),
        on: ProcessorId(0),
        trigger,
        min_interval: None,
        clients: None,
        levels: vec![],
        standby: false,
        calls_any: false,
        reads: Vec::new(),
        critical,
        importance: 0,
        roots: vec![OperationId(id)],
        phase_given: true,
        uses: Vec::new(),
        queue: QueueLimit { limit: 16, when_full: WhenFull::DropNewest },
        on_overrun: OnOverrun::Report,
        on_busy: OnBusy::Queue,
        on_miss: OnMiss::Continue,
        guard: Guard::Off,
        timeout: None,
        lifespan: None,
        payload: 0,
        replication: None,
        home: None,
    }
}

/// Periodic operations on one processor, every other one critical.
pub fn periodic(operations: usize) -> System {
    let critical = |id: usize| id.is_multiple_of(2);
    let settings = (0..operations).map(|id| Setting {
        critical_legs: u16::from(critical(id)),
        ..setting(millis(10 + id as u64 % 90), millis(1))
    });
    let processor = Processor {
        name: "cpu".into(),
        host: HostId(0),
        cpu: None,
        strategy: "EDF".into(),
        preemption: Preemption::Levels,
        cancel: false,
        cap_ppm: 1_000_000,
        cap_window: millis(100),
        hard_cap: hyoshi_model::HardCap::OFF,
        pool: 1,
        overload: None,
        costs: hyoshi_model::Costs::NONE,
    };
    System::new(Contents {
        name: "by hand".into(),
        seed: 1,
        duration: Span::from_secs(10),
        hosts: vec![Host::named("local")],
        processors: vec![processor],
        operations: (0..operations).map(|id| operation(id as u32, Trigger::Periodic, critical(id))).collect(),
        resources: Vec::new(),
        chains: Vec::new(),
        links: Vec::new(),
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
            settings: settings.collect::<Vec<_>>().into(),
            environment: Default::default(),
            admissions: Default::default(),
        }],
    })
}

/// The same settings for every operation.
pub fn uniform(system: &mut Contents, setting: Setting) {
    system.epochs[0].settings = Arc::from(vec![setting; system.operations.len()]);
}

/// One operation with levels of 1 and 4 ms, and another without.
pub fn with_levels() -> System {
    let level = |wcet| ServiceLevel { name: format!("{wcet}"), wcet: millis(wcet), value: 1 };
    periodic(2).with(|system| {
        uniform(system, setting(millis(10), millis(4)));
        system.operations[0].levels = vec![level(1), level(4)];
    })
}

/// A job that was released at the beginning of its period, started at once, ran for 1 ms and finished at `end`.
pub fn job(operation: u32, number: u64, release: Instant, end: Instant) -> JobEnd {
    let deadline = release + millis(10);
    JobEnd {
        job: JobId { operation: OperationId(operation), number, leg: 0 },
        outcome: if end <= deadline { JobOutcome::Made } else { JobOutcome::Missed },
        critical: operation.is_multiple_of(2),
        overran: false,
        service: Default::default(),
        epoch: 0,
        origin: release,
        release,
        ready: release,
        start: end.saturating_sub(millis(1)),
        end,
        deadline,
        consumed: millis(1),
    }
}
