//! Recordings of one processor, created step by step with its dispatcher, for tests of breakdowns.

use hyoshi_dispatch::{Dispatcher, Effects, Job};
use hyoshi_model::*;
use hyoshi_replay::blame::{Blame, Culprit, Interest, ResponseBreakdown};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{CpuEvent, CpuUser, Input, Slot, TraceEvent, Wait};

pub fn at(micros: u64) -> Instant {
    Instant::ZERO + us(micros)
}

pub fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

pub fn job(operation: u32) -> JobId {
    JobId { operation: OperationId(operation), number: 0, leg: 0 }
}

pub fn culprit(operation: u32) -> Culprit {
    Culprit { operation: OperationId(operation), job: Some((0, 0)) }
}

pub type Events = Vec<(Instant, TraceEvent)>;

/// A recording, instant by instant.
pub struct Script {
    pub system: System,
    plan: Plan,
    dispatcher: Dispatcher<Events>,
    effects: Effects,
}

impl Script {
    pub fn new(text: &str) -> Script {
        let system = read(text, "script.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let dispatcher = Dispatcher::new(&system, &plan.processors[0], Events::new());
        let effects = dispatcher.effects();
        Script { system, plan, dispatcher, effects }
    }

    fn handle(mut self, micros: u64, input: Input) -> Self {
        self.dispatcher.handle(at(micros), input, &mut self.effects);
        self
    }

    /// Handles due releases.
    pub fn tick(self, micros: u64) -> Self {
        self.handle(micros, Input::Tick)
    }

    fn job(&self, operation: u32) -> (Slot, Job) {
        let mut jobs = self.dispatcher.jobs();
        let (slot, job) = jobs.find(|(_, one)| one.id.operation.0 == operation).expect("a live job of the operation");
        (slot, *job)
    }

    /// The thread of the operation's live job.
    pub fn lane(&self, operation: u32) -> CpuUser {
        CpuUser::Lane(self.job(operation).1.lane)
    }

    /// The lane of the operation's job runs it.
    pub fn runs(self, micros: u64, operation: u32) -> Self {
        let lane = self.job(operation).1.lane;
        let script = self.handle(micros, Input::LaneRuns { lane, executed: Span::ZERO });
        let run = script.effects.run.expect("the lane has a job");
        assert_eq!(run.job.operation.0, operation);
        script
    }

    /// The same, and its thread gets the CPU.
    pub fn begins(self, micros: u64, operation: u32) -> Self {
        let lane = self.lane(operation);
        self.runs(micros, operation).to(micros + 1, lane)
    }

    /// The operation's job ends with this CPU time.
    pub fn ends(self, micros: u64, operation: u32, consumed: u64) -> Self {
        let slot = self.job(operation).0;
        self.handle(micros, Input::Complete { slot, consumed: us(consumed), ticket: None })
    }

    pub fn acquires(self, micros: u64, operation: u32) -> Self {
        let slot = self.job(operation).0;
        self.handle(micros, Input::Acquire { slot, resource: ResourceId(0) })
    }

    pub fn releases(self, micros: u64, operation: u32) -> Self {
        let slot = self.job(operation).0;
        self.handle(micros, Input::Release { slot, resource: ResourceId(0) })
    }

    pub fn seen(mut self, micros: u64, seen: CpuEvent) -> Self {
        self.dispatcher.probe_mut().push((at(micros), TraceEvent::Cpu(seen)));
        self
    }

    /// The CPU switches to `to`; the previous thread blocked.
    pub fn to(self, micros: u64, to: CpuUser) -> Self {
        self.seen(micros, CpuEvent::Switch { to, preempted: false })
    }

    /// The same; the previous thread blocked for this reason.
    pub fn waits(self, micros: u64, wait: Wait, who: CpuUser) -> Self {
        self.seen(micros, CpuEvent::Waits(wait)).to(micros, who)
    }

    /// The CPU switches to `to`; the previous thread was preempted.
    pub fn preempted_by(self, micros: u64, to: CpuUser) -> Self {
        self.seen(micros, CpuEvent::Switch { to, preempted: true })
    }

    /// The CPU switches back to the thread of an operation's live job; the previous thread was preempted or blocked.
    pub fn back_to(self, micros: u64, operation: u32, preempted: bool) -> Self {
        let to = self.lane(operation);
        self.seen(micros, CpuEvent::Switch { to, preempted })
    }

    pub fn stolen(self, micros: u64, span: u64) -> Self {
        self.seen(micros, CpuEvent::Stolen { span: us(span) })
    }

    pub fn law(&self, exact: bool) -> Blame<'_> {
        Blame::new(&self.system, &self.plan.processors[0], exact, Interest::All)
    }

    pub fn events(&self) -> &Events {
        self.dispatcher.probe()
    }

    /// The breakdowns of all jobs that end in a recording of this system. Checks that their parts sum to their
    /// responses.
    pub fn accounts_of(&self, events: &[(Instant, TraceEvent)]) -> Vec<ResponseBreakdown> {
        let mut law = self.law(false);
        let breakdowns: Vec<ResponseBreakdown> =
            events.iter().filter_map(|(now, event)| law.event(*now, event)).collect();
        for breakdown in &breakdowns {
            assert_eq!(
                breakdown.parts.iter().map(|(_, span)| *span).sum::<Span>(),
                breakdown.response(),
                "{breakdown:?}"
            );
        }
        breakdowns
    }

    pub fn breakdowns(&self) -> Vec<ResponseBreakdown> {
        self.accounts_of(self.events())
    }

    /// The breakdown of an operation's first job.
    pub fn breakdown(&self, operation: u32) -> ResponseBreakdown {
        self.breakdowns().into_iter().find(|breakdown| breakdown.end.job == job(operation)).unwrap()
    }
}
