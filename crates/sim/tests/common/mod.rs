//! Small systems for tests, in Rust.
#![allow(dead_code)]

pub mod drawn;
pub mod limited;
pub mod random;
pub mod sound;

use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, TraceEvent};

/// A system of periodic operations on processors `p0`, `p1`, ...; builder methods change the last operation.
pub struct Build(pub Contents);

pub fn processor(strategy: &str) -> Processor {
    Processor {
        name: "p".into(),
        host: HostId(0),
        cpu: None,
        strategy: strategy.into(),
        preemption: Preemption::Levels,
        cancel: false,
        cap_ppm: 1_000_000,
        cap_window: Span::from_millis(100),
        hard_cap: hyoshi_model::HardCap::OFF,
        pool: 1,
        overload: None,
        costs: hyoshi_model::Costs::NONE,
    }
}

pub fn ms(millis: f64) -> Span {
    Span::from_nanos((millis * 1e6).round() as u64)
}

impl Build {
    pub fn new(strategy: &str, processors: usize) -> Build {
        let processors = (0..processors).map(|index| Processor { name: format!("p{index}"), ..processor(strategy) });
        Build(Contents {
            name: "test".into(),
            seed: 1,
            duration: Span::from_secs(1),
            hosts: vec![Host::named("local")],
            processors: processors.collect(),
            operations: vec![],
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
                settings: [].into(),
                environment: Default::default(),
                admissions: Default::default(),
            }],
        })
    }

    pub fn periodic(mut self, name: &str, on: u32, period: f64, wcet: f64) -> Self {
        let id = OperationId(self.0.operations.len() as u32);
        self.0.operations.push(Operation {
            name: name.into(),
            on: ProcessorId(on),
            trigger: Trigger::Periodic,
            min_interval: None,
            clients: None,
            levels: vec![],
            standby: false,
            calls_any: false,
            reads: vec![],
            critical: false,
            importance: 0,
            roots: vec![id],
            phase_given: false,
            uses: vec![],
            queue: QueueLimit { limit: 8, when_full: WhenFull::DropNewest },
            on_overrun: OnOverrun::Report,
            on_busy: OnBusy::Queue,
            on_miss: OnMiss::Continue,
            guard: Guard::Off,
            timeout: None,
            lifespan: None,
            payload: 0,
            replication: None,
            home: None,
        });
        let setting = Setting {
            enabled: true,
            period: ms(period),
            slowest: ms(period),
            phase: Span::ZERO,
            offset: Span::ZERO,
            jitter: Span::ZERO,
            wcet: ms(wcet),
            bcet: ms(wcet),
            execution_time: ExecutionTime::Fixed(ms(wcet)),
            deadline: Deadline::Own(ms(period)),
            legs: 1,
            critical_legs: 0,
        };
        let settings: Vec<Setting> = self.0.epochs[0].settings.iter().cloned().chain([setting]).collect();
        self.0.epochs[0].settings = settings.into();
        self
    }

    pub fn after(self, name: &str, on: u32, predecessors: &[u32], wcet: f64) -> Self {
        let first = predecessors[0] as usize;
        let period = self.0.epochs[0].settings[first].period;
        let deadline = self.0.epochs[0].settings[first].deadline.span();
        let mut roots: Vec<OperationId> =
            predecessors.iter().flat_map(|p| self.0.operations[*p as usize].roots.clone()).collect();
        roots.sort();
        roots.dedup();
        let mut build = self.periodic(name, on, 1.0, wcet);
        build.last().trigger = Trigger::All(predecessors.iter().map(|p| OperationId(*p)).collect());
        build.last().roots = roots;
        build.set(|setting| {
            setting.period = period;
            setting.slowest = period;
            setting.deadline = Deadline::Origin(deadline);
        })
    }

    pub fn last(&mut self) -> &mut Operation {
        self.0.operations.last_mut().unwrap()
    }

    pub fn with(mut self, change: impl FnOnce(&mut Operation)) -> Self {
        change(self.last());
        self
    }

    pub fn critical(self) -> Self {
        self.with(|operation| operation.critical = true)
    }

    pub fn set(mut self, change: impl FnOnce(&mut Setting)) -> Self {
        let mut settings: Vec<Setting> = self.0.epochs[0].settings.to_vec();
        change(settings.last_mut().unwrap());
        self.0.epochs[0].settings = settings.into();
        self
    }

    pub fn processors(mut self, change: impl Fn(&mut Processor)) -> Self {
        self.0.processors.iter_mut().for_each(change);
        self
    }

    pub fn system(&self) -> System {
        System::new(self.0.clone())
    }

    pub fn run(&self, millis: f64) -> Vec<(ProcessorId, Instant, TraceEvent)> {
        events(&self.system(), Instant::ZERO + ms(millis))
    }

    /// `(start, end)` in milliseconds of each job of one operation.
    pub fn schedule(&self, name: &str, millis: f64) -> Vec<(f64, f64)> {
        let id = self.0.operations.iter().position(|operation| operation.name == name).unwrap();
        let at = |instant: Instant| instant.as_nanos() as f64 / 1e6;
        ends(&self.run(millis))
            .filter(|end| end.job.operation.index() == id && end.outcome.finished() && !end.consumed.is_zero())
            .map(|end| (at(end.start), at(end.end)))
            .collect()
    }

    pub fn count(&self, name: &str, millis: f64, outcome: JobOutcome) -> usize {
        let id = self.0.operations.iter().position(|operation| operation.name == name).unwrap();
        ends(&self.run(millis)).filter(|end| end.job.operation.index() == id && end.outcome == outcome).count()
    }
}

pub fn events(system: &System, until: Instant) -> Vec<(ProcessorId, Instant, TraceEvent)> {
    events_beside(system, until, false)
}

/// The same; if it is `crowded`, ordinary threads use all time that lanes leave.
pub fn events_beside(system: &System, until: Instant, crowded: bool) -> Vec<(ProcessorId, Instant, TraceEvent)> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded,
        inputs: &[],
        requests: true,
        samples: true,
        links: None,
        hops: None,
    };
    let simulated = simulate_known(system, &plan, until, Some(given), None, |_| Vec::new(), |_| true);
    let mut all: Vec<(ProcessorId, Instant, TraceEvent)> = Vec::new();
    for (index, processor) in simulated.processors.into_iter().enumerate() {
        all.extend(processor.probe.into_iter().map(|(now, event)| (ProcessorId(index as u32), now, event)));
    }
    all.sort_by_key(|(processor, now, _)| (*now, *processor));
    all
}

pub fn ends(events: &[(ProcessorId, Instant, TraceEvent)]) -> impl Iterator<Item = &JobEnd> {
    events.iter().filter_map(|(.., event)| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) => Some(end),
        _ => None,
    })
}

/// The size of a test, from the environment if it is set there.
pub fn of_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}
