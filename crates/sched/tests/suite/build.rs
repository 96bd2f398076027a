//! Small systems for tests, in nanoseconds.

use hyoshi_model::*;
use hyoshi_sched::{Plan, Report, Strategies, analyse};

fn ns(nanos: u64) -> Span {
    Span::from_nanos(nanos)
}

/// One operation in a test: periodic on processor 0, deadline at its period.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub name: String,
    pub on: u32,
    pub after: Vec<u32>,
    /// After any of them, rather than all.
    pub any: bool,
    pub guard: Guard,
    pub period: u64,
    pub wcet: u64,
    pub deadline: u64,
    pub from_origin: bool,
    pub phase: u64,
    pub offset: u64,
    pub jitter: u64,
    pub critical: bool,
    pub importance: u32,
    pub legs: u16,
    pub critical_legs: u16,
    pub uses: Vec<(u32, u64)>,
    pub on_busy: OnBusy,
    pub on_miss: OnMiss,
    pub queue: u32,
    pub calls_any: bool,
}

pub fn op(name: &str, period: u64, wcet: u64) -> Op {
    Op {
        name: name.into(),
        on: 0,
        after: vec![],
        any: false,
        guard: Guard::Off,
        period,
        wcet,
        deadline: period,
        from_origin: true,
        phase: 0,
        offset: 0,
        jitter: 0,
        critical: true,
        importance: 0,
        legs: 1,
        critical_legs: 0,
        uses: vec![],
        on_busy: OnBusy::Queue,
        on_miss: OnMiss::Continue,
        queue: 16,
        calls_any: false,
    }
}

/// Several processors, each with a strategy, and their operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    pub processors: Vec<(&'static str, Preemption)>,
    pub ops: Vec<Op>,
    pub cancel: bool,
    pub cap: (u32, u64),
    pub chains: Vec<Chain>,
    /// Delay between any two processors.
    pub delay: (u64, u64),
    pub resources: u32,
    pub costs: Costs,
    /// The strategy in overload, on every processor.
    pub overload: Option<&'static str>,
}

pub fn on(strategy: &'static str, preemption: Preemption, ops: impl Into<Vec<Op>>) -> Build {
    Build {
        processors: vec![(strategy, preemption)],
        ops: ops.into(),
        cancel: false,
        cap: (1_000_000, 1),
        chains: vec![],
        delay: (0, 0),
        resources: 2,
        costs: Costs::NONE,
        overload: None,
    }
}

impl Build {
    pub fn system(&self) -> System {
        let hosts: u32 = self.processors.len() as u32;
        let processor = |(index, (strategy, preemption)): (usize, &(&str, Preemption))| Processor {
            name: format!("cpu{index}"),
            host: HostId(index as u32),
            cpu: None,
            strategy: (*strategy).into(),
            preemption: *preemption,
            cancel: self.cancel,
            cap_ppm: self.cap.0,
            cap_window: ns(self.cap.1),
            hard_cap: hyoshi_model::HardCap::OFF,
            pool: 1,
            overload: self.overload.map(|strategy| Overload { strategy: strategy.into(), margin: ns(0), calm: ns(1) }),
            costs: self.costs,
        };
        let links = (0..hosts)
            .flat_map(|one| (0..one).map(move |other| (one, other)))
            .map(|(one, other)| Link::new((HostId(one), HostId(other)), (ns(self.delay.0), ns(self.delay.1))));
        System::new(Contents {
            name: "test".into(),
            seed: 1,
            duration: Span::from_secs(1),
            hosts: (0..hosts).map(|host| Host::named(format!("host{host}"))).collect(),
            processors: self.processors.iter().enumerate().map(processor).collect(),
            operations: (0..self.ops.len()).map(|index| self.operation(index)).collect(),
            resources: (0..self.resources).map(|index| Resource { name: format!("resource{index}") }).collect(),
            chains: self.chains.clone(),
            links: links.collect(),
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
                settings: self.settings(),
                environment: Default::default(),
                admissions: Default::default(),
            }],
        })
    }

    /// The settings of all operations, to make further epochs of.
    pub fn settings(&self) -> std::sync::Arc<[Setting]> {
        self.ops.iter().map(setting).collect()
    }

    pub fn plan(&self) -> Plan {
        Plan::new(&self.system(), &Strategies::built_in()).unwrap()
    }

    pub fn report(&self) -> Report {
        analyse(&self.system(), &self.plan())
    }

    fn operation(&self, index: usize) -> Operation {
        let op = &self.ops[index];
        let after = op.after.iter().copied().map(OperationId).collect::<Vec<_>>();
        Operation {
            name: op.name.clone(),
            on: ProcessorId(op.on),
            min_interval: None,
            clients: None,
            levels: vec![],
            standby: false,
            calls_any: op.calls_any,
            trigger: match after.is_empty() {
                true => Trigger::Periodic,
                false if op.any => Trigger::Any(after),
                false => Trigger::All(after),
            },
            reads: vec![],
            critical: op.critical,
            importance: op.importance,
            roots: self.roots(index),
            phase_given: op.phase > 0,
            uses: op.uses.iter().map(|(resource, held)| (ResourceId(*resource), ns(*held))).collect(),
            queue: QueueLimit { limit: op.queue, when_full: WhenFull::DropNewest },
            on_overrun: OnOverrun::Report,
            on_busy: op.on_busy,
            on_miss: op.on_miss,
            guard: op.guard,
            timeout: None,
            lifespan: None,
            payload: 0,
            replication: None,
            home: None,
        }
    }

    fn roots(&self, index: usize) -> Vec<OperationId> {
        if self.ops[index].after.is_empty() {
            return vec![OperationId(index as u32)];
        }
        let mut roots: Vec<_> = self.ops[index].after.iter().flat_map(|from| self.roots(*from as usize)).collect();
        roots.sort();
        roots.dedup();
        roots
    }
}

fn setting(op: &Op) -> Setting {
    let deadline = ns(op.deadline);
    Setting {
        enabled: true,
        period: ns(op.period),
        slowest: ns(op.period),
        phase: ns(op.phase),
        offset: ns(op.offset),
        jitter: ns(op.jitter),
        wcet: ns(op.wcet),
        bcet: ns(0),
        execution_time: ExecutionTime::Fixed(ns(op.wcet)),
        deadline: if op.from_origin && !op.after.is_empty() {
            Deadline::Origin(deadline)
        } else {
            Deadline::Own(deadline)
        },
        legs: op.legs,
        critical_legs: if op.critical { op.legs } else { op.critical_legs },
    }
}

pub fn chain(path: &[u32], deadline: u64) -> Chain {
    Chain {
        name: "chain".into(),
        path: path.iter().copied().map(OperationId).collect(),
        deadline: Some(ns(deadline)),
        max_age: None,
        max_reaction: None,
        carried_by: Default::default(),
    }
}
