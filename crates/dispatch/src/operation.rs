//! The dispatcher's state of each operation on its processor.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use hyoshi_model::{
    Correlation, Deadline, Instant, JobId, OnBusy, OnMiss, OnOverrun, OperationId, ProcessorId, QueueLimit,
    ServiceLevel, Setting, Span, System, Trigger,
    execution_time::{self, Stream},
};
use hyoshi_sched::{Placement, ProcessorPlan, Ranking, Traits};
use hyoshi_trace::{Slot, Ticket};

use crate::dispatcher::{OperationLimits, Presence};
use crate::first::FirstCopies;
use crate::guard::ReleaseGuard;
use crate::job::Job;
use crate::join::{CompletionToken, JoinState};
use crate::tickets::Tickets;

/// An operation of this processor: its setting in the present epoch, and its state.
#[derive(Debug)]
pub(crate) struct OperationState {
    pub id: OperationId,
    pub critical: bool,
    /// The importance in the file, and that of its later jobs, which contracts may set.
    pub declared_importance: u32,
    pub importance: u32,
    /// It was critical until an overload lasted.
    pub relegated: bool,
    pub enabled: bool,
    pub residence: Residence,
    pub presence: Presence,
    /// It was away at first.
    pub was_away: bool,
    /// The timer of its next release is set, if it is periodic.
    pub timer_is_set: bool,
    pub period: Span,
    /// The root that sets its rate, if that rate is a range.
    pub adapted_by: Option<OperationId>,
    /// The adapted period.
    pub adapted: Option<Span>,
    /// The shortest period in the file.
    pub fastest: Span,
    /// What the active regions of contracts permit.
    pub limits: OperationLimits,
    /// The shortest and the longest period that it may be adapted to.
    pub range: (Span, Span),
    /// Its deadline is the present period of its root.
    pub deadline_adapts: bool,
    pub offset: Span,
    pub jitter: Span,
    pub wcet: Span,
    /// Its service levels, and the place of the one for its next jobs.
    pub levels: Vec<ServiceLevel>,
    pub service_level: u8,
    pub deadline: Deadline,
    pub legs: u16,
    pub critical_legs: u16,
    /// As declared in the file, independent of overload: levels are ranked by these.
    pub declared_critical: (bool, u16),
    pub placement: Placement,
    /// Its position under the strategy that is not in force; the same if there is one strategy.
    pub other_placement: Placement,
    /// Its position under the first strategy when none of its started jobs is left.
    pub next_placement: Option<Placement>,
    pub queue: QueueLimit,
    pub on_overrun: OnOverrun,
    pub on_busy: OnBusy,
    pub on_miss: OnMiss,
    /// Under [`OnMiss::SkipNext`]: its jobs that have not ended.
    pub live: Vec<Slot>,
    /// A job ended late, and no release has been skipped since its deadline: whether one of these was critical.
    pub owes_skip: Option<bool>,
    /// When it skipped a release last.
    pub skipped: Option<Instant>,
    pub has_guard: bool,
    pub guard: ReleaseGuard,
    pub intake: Intake,
    /// Jobs with an older origin are dropped at their first dispatch.
    pub lifespan: Option<Span>,
    /// The longest time without a trigger, and the instant when it ends.
    pub timeout: Option<Span>,
    pub times_out: Instant,
    /// True while its triggers are dropped.
    pub suspended: bool,
    /// How many operations trigger it.
    pub predecessors: u16,
    /// The operation that numbers its jobs: itself or one before it.
    pub numbered_by: OperationId,
    pub next_number: u64,
    /// Begin of the next period (periodic operations).
    pub nominal: Instant,
    /// Jobs held by the guard, in the order of arrival.
    pub held: VecDeque<Slot>,
    /// When its guard's timer fires. Later ones are ignored.
    pub armed: Instant,
    /// Jobs that wait, held ones included.
    pub waiting: u32,
    /// Jobs that have not ended.
    pub unfinished: u32,
    pub successors: Vec<Successor>,
    /// The tickets of its jobs, if predecessors have payloads.
    pub tickets: Option<Tickets>,
}

/// Whether an operation is always on its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    Permanent,
    /// It has several processors.
    Movable,
    /// It waits for the admission of its root, which may be itself.
    Standby {
        root: u32,
    },
}

/// How completions of predecessors become releases.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Time releases it.
    Timer,
    /// Each completion releases it: `any`, `chosen`, or `all` of one.
    Each,
    /// The first of several copies of each release.
    First(FirstCopies),
    /// One completion of each of several groups.
    Join(JoinState),
}

/// The target of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Successor {
    /// An operation of this processor, as its predecessor at `position`.
    Here { local: u32, position: u16, choice: Option<u8> },
    /// Another processor.
    There { to: OperationId, processor: ProcessorId, position: u16, choice: Option<u8> },
}

impl Successor {
    /// Whether a completion that chooses `hops` triggers it: always, unless its `choice` is a bit of the hops.
    #[inline]
    pub fn applies(&self, hops: u64) -> bool {
        let (Successor::Here { choice, .. } | Successor::There { choice, .. }) = self;
        choice.is_none_or(|bit| hops >> bit & 1 == 1)
    }
}

impl OperationState {
    /// `downstream` names the operations that `id` triggers, and its position among their predecessors; `numbered_by`
    /// is from [`numbered_by`].
    pub fn new(
        system: &System,
        plan: &ProcessorPlan,
        id: OperationId,
        downstream: &[(OperationId, u16)],
        numbered_by: OperationId,
        local_of: impl Fn(OperationId) -> u32,
    ) -> Self {
        let operation = system.operation(id);
        let by_number = system.numbered_by_root(id);
        let periodic = operation.trigger == Trigger::Periodic;
        let intake = match &operation.trigger {
            Trigger::Periodic => Intake::Timer,
            Trigger::All(all) if all.len() > 1 => {
                let groups = (0..all.len() as u16).collect();
                Intake::Join(JoinState::new(groups, by_number, None, operation.queue.limit as usize))
            }
            Trigger::Correlated(Correlation { groups, within, .. }) => {
                Intake::Join(JoinState::new(groups.clone(), by_number, *within, operation.queue.limit as usize))
            }
            Trigger::First(_) => Intake::First(FirstCopies::default()),
            Trigger::All(_) | Trigger::Any(_) | Trigger::Chosen(_) => Intake::Each,
        };
        let mut choices = 0;
        let successors = downstream.iter().map(|&(to, position)| {
            let other = system.operation(to);
            // In the order of `System::choices`.
            let choice = matches!(other.trigger, Trigger::Chosen(_)).then_some(choices);
            choices += u8::from(choice.is_some());
            match other.on == operation.on {
                true => Successor::Here { local: local_of(to), position, choice },
                false => Successor::There { to, processor: other.on, position, choice },
            }
        });
        let predecessors = operation.trigger.predecessors();
        let payloads = predecessors.iter().any(|from| system.operation(*from).payload > 0);
        // A request to an object may release a method's instance, and its reply the caller's rest.
        let is_instance = |id: OperationId| system.operation(id).name.contains('@') && !system.moves(id);
        let answers = !system.objects.is_empty() && predecessors.iter().copied().chain([id]).any(is_instance);
        let place = |plan: &ProcessorPlan| {
            plan.placement(0, id).unwrap_or(Placement { critical: Default::default(), other: Default::default() })
        };
        let residence = match system.standby_root(id) {
            Some(root) => Residence::Standby { root: local_of(root) },
            None if system.moves(id) => Residence::Movable,
            None => Residence::Permanent,
        };
        let is_away = operation.home.is_some() || matches!(residence, Residence::Standby { .. });
        let mut new = OperationState {
            id,
            critical: operation.critical,
            declared_importance: operation.importance,
            importance: operation.importance,
            relegated: false,
            enabled: true,
            residence,
            presence: if is_away { Presence::Away } else { Presence::Here },
            was_away: is_away,
            timer_is_set: !is_away,
            period: Span::ZERO,
            adapted_by: system.adapted_by(id),
            adapted: None,
            fastest: Span::ZERO,
            limits: OperationLimits::NONE,
            range: (Span::ZERO, Span::ZERO),
            deadline_adapts: false,
            offset: Span::ZERO,
            jitter: Span::ZERO,
            wcet: Span::ZERO,
            levels: operation.levels.clone(),
            service_level: {
                let of_loop = system.feedback.iter().find(|one| one.processor == operation.on);
                of_loop.map_or(operation.levels.len().saturating_sub(1), |one| one.start_level(&operation.levels)) as u8
            },
            deadline: Deadline::Own(Span::ZERO),
            legs: 1,
            critical_legs: 0,
            declared_critical: (operation.critical, 0),
            placement: place(plan),
            other_placement: place(plan.overload.as_deref().unwrap_or(plan)),
            next_placement: None,
            queue: operation.queue,
            on_overrun: operation.on_overrun,
            on_busy: operation.on_busy,
            on_miss: operation.on_miss,
            live: Vec::with_capacity(match operation.on_miss {
                OnMiss::SkipNext => operation.queue.most_jobs(),
                OnMiss::Continue | OnMiss::Stop => 0,
            }),
            owes_skip: None,
            skipped: None,
            has_guard: operation.guard != hyoshi_model::Guard::Off,
            guard: ReleaseGuard::new(operation.guard),
            intake,
            lifespan: operation.lifespan,
            timeout: operation.timeout,
            times_out: operation.timeout.map_or(Instant::NEVER, |timeout| Instant::ZERO + timeout),
            suspended: false,
            predecessors: u16::try_from(predecessors.len()).expect("a checked system has no more"),
            numbered_by,
            next_number: 0,
            nominal: Instant::ZERO + system.setting(0, id).phase,
            held: VecDeque::with_capacity(operation.queue.limit as usize + 1),
            armed: Instant::NEVER,
            waiting: 0,
            unfinished: 0,
            successors: successors.collect(),
            // A request has one.
            tickets: (payloads || answers || predecessors.is_empty() && !periodic)
                .then(|| Tickets::new(operation.queue.most_jobs(), predecessors.len().max(1))),
        };
        new.enter(system.setting(0, id));
        new
    }

    /// Applies the setting of an epoch. An armed timer keeps its expiry; the new interval counts after it.
    pub fn enter(&mut self, setting: &Setting) {
        self.enabled = setting.enabled && !self.limits.is_disabled();
        self.fastest = setting.period;
        self.range = self.limits.restrict((setting.period, setting.slowest));
        self.deadline_adapts = self.adapted_by.is_some() && setting.deadline_adapts();
        self.offset = setting.offset;
        self.jitter = setting.jitter;
        self.wcet = setting.wcet;
        self.deadline = setting.deadline;
        self.legs = setting.legs;
        self.declared_critical.1 = setting.critical_legs;
        self.critical_legs = if self.relegated { 0 } else { setting.critical_legs };
        self.set_period();
    }

    /// The service levels that contracts permit.
    pub fn permitted_levels(&self) -> &[ServiceLevel] {
        let count = self.levels.len().min(usize::from(self.limits.level).saturating_add(1));
        &self.levels[..count]
    }

    /// Its rate is adapted, as far as its range allows. A timer that is armed keeps its expiry.
    pub fn retime(&mut self, period: Span) {
        self.adapted = Some(period);
        self.set_period();
    }

    /// A share of the CPU that is declared for the highest rate, at the present rate.
    pub fn at_present_rate(&self, share: u64) -> u64 {
        let (fastest, present) = (self.fastest.as_nanos(), self.period.as_nanos());
        if present <= fastest {
            return share;
        }
        // No more than before.
        (u128::from(share) * u128::from(fastest) / u128::from(present)) as u64
    }

    /// True if its rate has been adapted.
    pub fn is_adapted(&self) -> bool {
        self.adapted.is_some()
    }

    fn set_period(&mut self) {
        let (fastest, slowest) = self.range;
        self.period = self.adapted.map_or(fastest, |adapted| adapted.clamp(fastest, slowest.max(fastest)));
        if self.deadline_adapts {
            self.deadline = self.deadline_for(self.period);
        }
    }

    /// Its deadline, if its root's releases are `period` apart.
    pub fn deadline_for(&self, period: Span) -> Deadline {
        match self.deadline {
            Deadline::Own(_) if self.deadline_adapts => Deadline::Own(period),
            Deadline::Origin(_) if self.deadline_adapts => Deadline::Origin(period),
            as_given => as_given,
        }
    }

    /// Its host was switched off: drops all state of earlier jobs, except the numbers.
    pub fn forget(&mut self, returned: &mut Vec<Ticket>) {
        self.guard = self.guard.fresh();
        self.owes_skip = None;
        if let Intake::Join(join) = &mut self.intake {
            join.clear(returned);
        }
    }

    /// Makes its later jobs non-critical.
    pub fn relegate(&mut self) {
        (self.relegated, self.critical, self.critical_legs) = (true, false, 0);
    }

    /// When the timer of the next release is due: its nominal release, late by the jitter drawn for it, unless its
    /// lateness is known.
    pub fn next_due(&self, seed: u64, late: &BTreeMap<JobId, Span>) -> Instant {
        let release = self.nominal + self.offset;
        if self.jitter.is_zero() && late.is_empty() {
            return release;
        }
        let job = JobId { operation: self.id, number: self.next_number, leg: 0 };
        if let Some(late) = late.get(&job) {
            return release.saturating_add(*late);
        }
        release + execution_time::uniform(execution_time::bits(seed, job, Stream::Jitter), Span::ZERO, self.jitter)
    }

    /// True if only requests release its jobs.
    pub fn is_requested(&self) -> bool {
        self.predecessors == 0 && !matches!(self.intake, Intake::Timer)
    }

    /// The strategy's input for its critical and its other jobs, if it has such. Its level does not depend on an
    /// importance that a contract sets.
    pub fn kinds(&self) -> [Option<Traits>; 2] {
        let traits = |critical| Traits {
            operation: self.id,
            critical,
            period: self.period,
            deadline: self.deadline.span(),
            wcet: self.wcet,
            importance: self.declared_importance,
        };
        let (critical, critical_legs) = self.declared_critical;
        let all_critical = (critical || critical_legs >= self.legs) && !self.is_requested();
        let some_critical = critical || critical_legs > 0;
        [some_critical.then(|| traits(true)), (!all_critical).then(|| traits(false))]
    }

    /// Its position among operations with these rankings: its level, and the order of its importance within it.
    pub fn place(&self, ranking: &Ranking) -> Placement {
        let [critical, other] = self.kinds().map(|kind| Some(ranking.place_with(&kind?, self.importance)));
        Placement { critical: critical.or(other).unwrap_or_default(), other: other.or(critical).unwrap_or_default() }
    }

    /// Later jobs have the order of the present importance within their levels.
    pub fn reorder(&mut self, rankings: &[Ranking], strategy_in_force: usize) {
        let at = |strategy: usize| self.place(&rankings[strategy % rankings.len()]);
        let (present, other, first) = (at(strategy_in_force), at(strategy_in_force + 1), at(0));
        let places = [Some((&mut self.placement, present)), Some((&mut self.other_placement, other))];
        for (place, now) in
            places.into_iter().chain([self.next_placement.as_mut().map(|place| (place, first))]).flatten()
        {
            (place.critical.tie, place.other.tie) = (now.critical.tie, now.other.tie);
        }
    }

    /// True if its started jobs are watched: for their worst case, or for their deadline.
    pub fn watches(&self) -> bool {
        self.on_overrun != OnOverrun::Report || self.on_miss == OnMiss::Stop
    }

    /// When a job that may reach its worst case at `overruns` must be observed.
    pub fn watched_at(&self, overruns: Instant, job: &Job) -> Instant {
        let overruns = if self.on_overrun == OnOverrun::Report || job.demoted { Instant::NEVER } else { overruns };
        if self.on_miss == OnMiss::Stop { overruns.min(job.deadline) } else { overruns }
    }

    /// True if it has a new position and no started job.
    pub fn can_move(&self) -> bool {
        self.next_placement.is_some() && self.unfinished == self.waiting
    }

    /// How many tickets its jobs and its join can hold.
    pub fn most_tickets(&self) -> usize {
        let join = if let Intake::Join(join) = &self.intake { join.capacity() } else { 0 };
        self.tickets.as_ref().map_or(0, |tickets| tickets.capacity() + join)
    }

    /// The token of a periodic release.
    pub fn own_token(&self, release: Instant) -> CompletionToken {
        CompletionToken { number: self.next_number, origin: release, period: self.period, ticket: None }
    }
}

/// For each of these operations, the operation that numbers its jobs.
pub(crate) fn numbered_by(system: &System, operations: &[OperationId]) -> Vec<OperationId> {
    let mut known: Vec<Option<OperationId>> = alloc::vec![None; system.operations.len()];
    let mut path = Vec::new();
    let head = |id: &OperationId| {
        let mut at = *id;
        let head = loop {
            if let Some(head) = known[at.index()] {
                break head;
            }
            path.push(at);
            at = match &system.operation(at).trigger {
                _ if system.operation(at).timeout.is_some() => break at,
                Trigger::Any(one) if one.len() == 1 => one[0],
                Trigger::All(all) if all.len() == 1 || system.numbered_by_root(at) => match all.first() {
                    Some(first) => *first,
                    None => break at,
                },
                Trigger::Correlated(correlation) if system.numbered_by_root(at) => correlation.predecessors[0],
                Trigger::First(copies) => copies[0],
                Trigger::Chosen(chosen) if chosen.predecessors.len() == 1 => chosen.predecessors[0],
                Trigger::Any(_) | Trigger::All(_) | Trigger::Correlated(_) | Trigger::Chosen(_) | Trigger::Periodic => {
                    break at;
                }
            };
        };
        path.drain(..).for_each(|one| known[one.index()] = Some(head));
        head
    };
    operations.iter().map(head).collect()
}
