//! What the dispatcher keeps of each operation on its processor.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use hyoshi_model::{
    Deadline, Instant, JobId, OnBusy, OnOverrun, OperationId, ProcessorId, QueueLimit, Setting, Span, System, Trigger,
    takes::{self, Stream},
};
use hyoshi_sched::{Placement, ProcessorPlan};
use hyoshi_trace::Slot;

use crate::guard::ReleaseGuard;
use crate::join::{Join, Token};
use crate::tickets::Tickets;

/// An operation of this processor: its setting in the present epoch, and its state.
#[derive(Debug)]
pub(crate) struct Operation {
    pub id: OperationId,
    pub critical: bool,
    pub importance: u32,
    /// It was critical until an overload lasted.
    pub relegated: bool,
    pub enabled: bool,
    pub period: Span,
    pub offset: Span,
    pub jitter: Span,
    pub wcet: Span,
    pub deadline: Deadline,
    pub legs: u16,
    pub critical_legs: u16,
    pub placement: Placement,
    /// Its place under the strategy that does not rule; the same where there is one strategy.
    pub other_placement: Placement,
    pub queue: QueueLimit,
    pub on_overrun: OnOverrun,
    pub on_busy: OnBusy,
    pub has_guard: bool,
    pub guard: ReleaseGuard,
    pub intake: Intake,
    /// How many operations trigger it.
    pub predecessors: u16,
    /// Takes the trigger's number over; else it counts for itself.
    pub inherits_number: bool,
    pub next_number: u64,
    /// Begin of the next period (periodic operations).
    pub nominal: Instant,
    /// Jobs held by the guard, in the order of arrival.
    pub held: VecDeque<Slot>,
    /// What the timer of the first held job is set to; a timer that fires at another time is an old one.
    pub armed: Instant,
    /// Jobs that wait, held ones included.
    pub waiting: u32,
    /// Jobs that have not ended.
    pub unfinished: u32,
    pub successors: Vec<Successor>,
    /// The tickets of its jobs, where predecessors hand on payloads.
    pub tickets: Option<Tickets>,
}

/// How completions of predecessors become releases.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Time releases it.
    Timer,
    /// Each completion releases it: `any`, or `all` of one.
    Each,
    /// All of several.
    Join(Join),
}

/// Where a completion goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Successor {
    /// To an operation of this processor, as its predecessor at `position`.
    Here { local: u32, position: u16 },
    /// To another processor.
    There { to: OperationId, processor: ProcessorId, position: u16 },
}

impl Operation {
    /// `downstream` names what `id` triggers, and as which of its predecessors.
    pub fn new(
        system: &System,
        plan: &ProcessorPlan,
        id: OperationId,
        downstream: &[(OperationId, u16)],
        local_of: impl Fn(OperationId) -> u32,
    ) -> Self {
        let operation = system.operation(id);
        let by_number = system.numbered_by_root(id);
        let intake = match &operation.trigger {
            Trigger::Periodic => Intake::Timer,
            Trigger::All(all) if all.len() > 1 => {
                Intake::Join(Join::new(all.len(), by_number, operation.queue.limit as usize))
            }
            Trigger::All(_) | Trigger::Any(_) => Intake::Each,
        };
        let inherits_number = match &operation.trigger {
            Trigger::Periodic => false,
            Trigger::All(all) => all.len() == 1 || by_number,
            Trigger::Any(any) => any.len() == 1,
        };
        let successors = downstream.iter().map(|&(to, position)| {
            let other = system.operation(to);
            match other.on == operation.on {
                true => Successor::Here { local: local_of(to), position },
                false => Successor::There { to, processor: other.on, position },
            }
        });
        let predecessors = operation.trigger.predecessors();
        let payloads = predecessors.iter().any(|from| system.operation(*from).payload > 0);
        let place = |plan: &ProcessorPlan| {
            plan.placement(0, id).unwrap_or(Placement { critical: Default::default(), other: Default::default() })
        };
        let mut new = Operation {
            id,
            critical: operation.critical,
            importance: operation.importance,
            relegated: false,
            enabled: true,
            period: Span::ZERO,
            offset: Span::ZERO,
            jitter: Span::ZERO,
            wcet: Span::ZERO,
            deadline: Deadline::Own(Span::ZERO),
            legs: 1,
            critical_legs: 0,
            placement: place(plan),
            other_placement: place(plan.overload.as_deref().unwrap_or(plan)),
            queue: operation.queue,
            on_overrun: operation.on_overrun,
            on_busy: operation.on_busy,
            has_guard: operation.guard != hyoshi_model::Guard::Off,
            guard: ReleaseGuard::new(operation.guard),
            intake,
            predecessors: u16::try_from(predecessors.len()).expect("the file's reader takes no more"),
            inherits_number,
            next_number: 0,
            nominal: Instant::ZERO + system.setting(0, id).phase,
            held: VecDeque::with_capacity(operation.queue.limit as usize + 1),
            armed: Instant::NEVER,
            waiting: 0,
            unfinished: 0,
            successors: successors.collect(),
            tickets: payloads.then(|| Tickets::new(operation.queue.most_jobs(), predecessors.len())),
        };
        new.enter(system.setting(0, id));
        new
    }

    /// Takes over the setting of an epoch. An armed timer keeps its expiry; the new interval
    /// counts after it.
    pub fn enter(&mut self, setting: &Setting) {
        self.enabled = setting.enabled;
        self.period = setting.period;
        self.offset = setting.offset;
        self.jitter = setting.jitter;
        self.wcet = setting.wcet;
        self.deadline = setting.deadline;
        self.legs = setting.legs;
        self.critical_legs = if self.relegated { 0 } else { setting.critical_legs };
    }

    /// Its later jobs are not critical.
    pub fn relegate(&mut self) {
        (self.relegated, self.critical, self.critical_legs) = (true, false, 0);
    }

    /// When the timer of the next release is due: its nominal release, late by the jitter drawn for
    /// it, unless it is known how late.
    pub fn next_due(&self, seed: u64, late: &BTreeMap<JobId, Span>) -> Instant {
        let release = self.nominal + self.offset;
        if self.jitter.is_zero() && late.is_empty() {
            return release;
        }
        let job = JobId { operation: self.id, number: self.next_number, leg: 0 };
        if let Some(late) = late.get(&job) {
            return release.saturating_add(*late);
        }
        release + takes::uniform(takes::bits(seed, job, Stream::Jitter), Span::ZERO, self.jitter)
    }

    /// How many tickets its jobs and its join can hold.
    pub fn most_tickets(&self) -> usize {
        let join = if let Intake::Join(join) = &self.intake { join.capacity() } else { 0 };
        self.tickets.as_ref().map_or(0, |tickets| tickets.capacity() + join)
    }

    /// The token of a periodic release.
    pub fn own_token(&self, release: Instant) -> Token {
        Token { number: self.next_number, origin: release, period: self.period, ticket: None }
    }
}
