//! Who was in the way: for each job that has ended, where the time from its nominal release to its
//! end went. The parts add up to it exactly.
//!
//! [`Phases`](hyoshi_trace::stats::Phases) answers the lesser question of how long a job was in each phase
//! of its life, from its end alone; the parts here add up to them.
//!
//! The law is fed with one processor's events in their order. A simulation records everything, so
//! nothing of its jobs' time is unexplained; of a run, what neither the recording nor the model of
//! the kernel explains is called so.
//!
//! ```text
//! nominal release      arrival         ready               start                        end
//!   │ upstream │ link │ offset, guard, │ waited: for whom?  │ executed │ preempted: by whom? │ ...
//!   │          │      │ timer late     │ the cap, a lock    │ overran  │ suspended, stolen   │
//! ```
//!
//! Memory is bounded: the log of what the CPU did is short, and jobs that outlive it have it
//! booked before it begins anew.

mod arrival;
mod cpu;
mod culprits;
mod fold;
mod marks;
mod overruns;
mod past;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyoshi_model::{HostId, Instant, JobId, OperationId, ResourceId, Span, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome, Seen, Wait};

pub use arrival::{Crossing, counted_from};
pub use cpu::Cpu;
pub use culprits::{Culprits, Delay, Delays};
pub use fold::MOST_STRETCHES;
pub use marks::{Holder, Mark, Runner, Turn};
pub use overruns::Overrun;

use fold::File;
use marks::{Pools, sum};
use overruns::Overruns;

/// Marks that are kept before they are booked on those who live.
const LOG: usize = 1 << 13;

/// What a part of a job's response was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The jobs that led to it, back to the root's release.
    Upstream,
    /// The legs before it.
    Legs,
    /// The link from its predecessor's processor.
    Link,
    /// Between its sending on another host and its arrival.
    Network {
        /// False if the error of the clocks exceeds this time: it may have been spent before the sending.
        known: bool,
    },
    /// The declared offset after its trigger.
    Offset,
    /// Declared jitter of its release.
    Jitter,
    /// Held by its release guard, or for its offset.
    Guard,
    /// The release itself came late: a timer, the release thread.
    TimerLate,
    /// It waited, not yet begun, while another job ran.
    Waited {
        /// The other.
        who: Culprit,
        /// How urgent that is.
        rank: Rank,
    },
    /// It had begun, and another job ran.
    Preempted {
        /// The other.
        who: Culprit,
        /// How urgent that is.
        rank: Rank,
    },
    /// A resource kept it: one that it waits for, or whose ceiling keeps its holder before it.
    Resource {
        /// The resource.
        resource: ResourceId,
        /// Who holds it, or waits for it in front of this job; `None` if that is on another processor.
        by: Option<Culprit>,
    },
    /// The cap kept its lane from the CPU.
    Cap {
        /// Who ran instead; `None` if nobody did.
        behind: Option<Culprit>,
    },
    /// Below the lanes since it exceeded its worst case, while another ran.
    Demoted {
        /// The other.
        behind: Option<Culprit>,
    },
    /// It blocked by its own will.
    Suspended,
    /// Its body slept, or waited for something that the file does not declare: for this, if the kernel said so.
    Asleep(Option<Wait>),
    /// It ran, within its declared worst case.
    Executed,
    /// It ran, beyond its declared worst case.
    Overran,
    /// Scheduling itself.
    Overhead,
    /// A thread that is not of this processor; the recording has its name under this number.
    Other(u32),
    /// A hypervisor had the CPU.
    Stolen,
    /// Nothing says what it was.
    Unexplained,
}

/// Who was in the way: a job, or jobs of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Culprit {
    /// The operation.
    pub operation: OperationId,
    /// Release number and leg; `None` for several jobs together.
    pub job: Option<(u64, u16)>,
}

impl Culprit {
    fn of(job: JobId) -> Culprit {
        Culprit { operation: job.operation, job: Some((job.number, job.leg)) }
    }

    fn any(self) -> Culprit {
        Culprit { job: None, ..self }
    }
}

/// How urgent one job is to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// More urgent.
    MoreUrgent,
    /// Of the same level: first in line, or begun.
    Same,
    /// Less urgent, but it had begun.
    LessUrgent,
}

impl Kind {
    /// The same, with jobs of one operation together.
    pub fn by_operation(self) -> Kind {
        self.blamed_on(Culprit::any)
    }

    /// The same, for any culprit.
    pub fn of_anybody(self) -> Kind {
        self.blamed_on(|_| Culprit { operation: OperationId(0), job: None })
    }

    fn blamed_on(self, other: impl Fn(Culprit) -> Culprit) -> Kind {
        match self {
            Kind::Waited { who, rank } => Kind::Waited { who: other(who), rank },
            Kind::Preempted { who, rank } => Kind::Preempted { who: other(who), rank },
            Kind::Resource { resource, by } => Kind::Resource { resource, by: by.map(other) },
            Kind::Cap { behind } => Kind::Cap { behind: behind.map(other) },
            Kind::Demoted { behind } => Kind::Demoted { behind: behind.map(other) },
            same => same,
        }
    }

    /// Who it is blamed on, if on somebody.
    pub fn culprit(self) -> Option<Culprit> {
        match self {
            Kind::Waited { who, .. } | Kind::Preempted { who, .. } => Some(who),
            Kind::Resource { by: who, .. } | Kind::Cap { behind: who } | Kind::Demoted { behind: who } => who,
            _ => None,
        }
    }

    /// True for what a job needs of its own, and cannot be blamed on others.
    pub fn is_own(self) -> bool {
        matches!(self, Kind::Executed | Kind::Offset)
    }
}

/// A stretch of a job's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// From then.
    pub from: Instant,
    /// Until then.
    pub to: Instant,
    /// What it was.
    pub kind: Kind,
}

/// Where the time of one job went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The job and how it ended.
    pub end: JobEnd,
    /// From when its response counts: its nominal release, or its root's if the deadline does.
    pub from: Instant,
    /// The parts, longest first. They add up to `end.end - from`.
    pub parts: Vec<(Kind, Span)>,
    /// The parts in the order of time; complete only for jobs that were asked for by name, and
    /// without what is known to have been lost but not when.
    pub timeline: Vec<Stretch>,
    /// The job that triggered it, if that is known.
    pub by: Option<JobId>,
    /// The way of its trigger from another host, if that was recorded.
    pub crossing: Option<Crossing>,
    /// How far the clock of [`Blame::by_clock_of`] was ahead of the processor's when it ended, in ns.
    pub ahead: i64,
    /// How long its guard held it before its response began to count.
    pub held_before: Span,
    /// Its declared worst case.
    pub wcet: Span,
    /// Of the jobs that were in its way, those that are known to have used more than they declare,
    /// and itself, if it did.
    pub overruns: Vec<Overrun>,
    /// What says who had the CPU.
    pub basis: Basis,
}

/// What an account rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A simulation: every instant is known.
    Exact,
    /// The kernel's own switches.
    Switches,
    /// A model of the kernel and the CPU time of jobs: who ran when is inferred.
    Inferred,
}

impl Account {
    /// The response that the parts add up to.
    pub fn response(&self) -> Span {
        self.end.end.since(self.from)
    }

    /// The longest part that the job itself did not need; `None` if it only executed as declared.
    pub fn chief(&self) -> Option<(Kind, Span)> {
        self.parts.iter().copied().find(|(kind, _)| !kind.is_own())
    }

    /// The overrun that is behind a part, if there is one: of several jobs the greatest.
    pub fn overrun(&self, kind: Kind) -> Option<Overrun> {
        let who = match kind {
            Kind::Overran => Culprit::of(self.end.job),
            _ => kind.culprit()?,
        };
        let is =
            |job: JobId| who.operation == job.operation && who.job.is_none_or(|known| known == (job.number, job.leg));
        self.overruns.iter().filter(|overrun| is(overrun.job)).fold(None, |most, one| Overrun::greater(most, *one))
    }

    /// The time of all parts for which `wanted` holds.
    pub fn total(&self, wanted: impl Fn(Kind) -> bool) -> Span {
        self.parts.iter().filter(|(kind, _)| wanted(*kind)).map(|(_, span)| *span).sum()
    }
}

/// Of which jobs an account is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Of all.
    All,
    /// Of those that did not make their deadline.
    NotMade,
    /// Of these, with their timelines.
    Jobs(BTreeSet<JobId>),
}

impl Interest {
    fn may_want(&self, job: JobId) -> bool {
        match self {
            Interest::All | Interest::NotMade => true,
            Interest::Jobs(jobs) => jobs.contains(&job),
        }
    }

    fn wants(&self, end: &JobEnd) -> bool {
        match self {
            Interest::NotMade => end.outcome != Outcome::Made,
            Interest::All | Interest::Jobs(_) => self.may_want(end.job),
        }
    }
}

/// The law for one processor. See the [module](self).
#[derive(Debug)]
pub struct Blame<'a> {
    system: &'a System,
    cpu: Cpu<'a>,
    exact: bool,
    interest: Interest,
    log: Vec<Mark>,
    pools: Pools,
    overruns: Overruns,
    switches: bool,
    /// Jobs whose accounts are open, and how many may be.
    open: (usize, usize),
    /// The host whose clock is the reference, and its lead over the processor's clock, in ns.
    clock: Option<(HostId, i64)>,
}

impl<'a> Blame<'a> {
    /// The law at the start of a recording; `exact` if it is of a simulation.
    pub fn new(system: &'a System, plan: &ProcessorPlan, exact: bool, interest: Interest) -> Self {
        Blame {
            cpu: Cpu::new(system, plan, exact),
            system,
            exact,
            interest,
            log: Vec::new(),
            pools: Pools::default(),
            overruns: Overruns::default(),
            switches: false,
            open: (0, usize::MAX),
            clock: None,
        }
    }

    /// Accounts say how far this host's clock was ahead of the processor's.
    pub fn by_clock_of(mut self, host: HostId) -> Self {
        self.clock = Some((host, 0));
        self
    }

    /// Before the first event: what [`Replay::release_late`](crate::Replay::release_late) takes.
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.cpu.replay().into_iter().for_each(|replay| replay.release_late(late));
    }

    /// Keeps at most so many accounts open at once: of other jobs, as they come under overload by the
    /// thousand, there is none. What an event costs is bounded by it.
    pub fn at_most(mut self, accounts: usize) -> Self {
        self.open.1 = accounts;
        self
    }

    /// Before the event of a signal that came over a network: its way. `None` if its sending was not recorded.
    pub fn crosses(&mut self, crossing: Option<Crossing>) {
        self.cpu.arrivals.crosses(crossing);
    }

    /// The next event of the processor; the account of the job that ends with it, if it is wanted.
    pub fn event(&mut self, now: Instant, event: &Event) -> Option<Account> {
        self.event_watched(now, event, |_| ())
    }

    /// The same; `watch` sees what follows from the event for the CPU.
    pub fn event_watched(&mut self, now: Instant, event: &Event, mut watch: impl FnMut(&Mark)) -> Option<Account> {
        self.pools.event(event);
        self.switches |= matches!(event, Event::Seen(Seen::Switch { .. }));
        if let (Event::Seen(Seen::Clock { host, offset, .. }), Some((reference, ahead))) = (event, &mut self.clock)
            && host == reference
        {
            *ahead = *offset;
        }
        if self.log.len() >= LOG {
            self.book();
        }
        let Blame { cpu, log, interest, exact, pools, open, .. } = self;
        let timeline = matches!(interest, Interest::Jobs(_));
        cpu.event(now, event, |cpu, mark| {
            watch(&mark);
            log.push(mark);
            if let Mark::Turn { job, lane, turn: Turn::Ready, .. } = mark
                && let Event::Decision(Decision::Ready { release, deadline, .. }) = event
                && interest.may_want(job)
                && open.0 < open.1
            {
                let of = (job, lane, *deadline);
                let mut file = File::new(cpu, of, *exact, log.len(), *pools, timeline).map(Box::new);
                if let (false, Some(file)) = (*exact, &mut file) {
                    file.late = cpu.past.late(*release, now);
                    file.pools.stolen = cpu.past.stolen_before(*release).min(pools.stolen);
                }
                if let Some(live) = cpu.live(job) {
                    open.0 = open.0 + usize::from(file.is_some()) - usize::from(live.file.is_some());
                    live.file = file;
                }
            }
        });
        let end = match event {
            Event::Decision(Decision::End(end)) => end,
            Event::Input(Input::Observe { slot, consumed }) => {
                if let Some((job, epoch)) = self.cpu.at(*slot) {
                    self.used(job, epoch, *consumed, false);
                }
                return None;
            }
            _ => return None,
        };
        self.used(end.job, usize::from(end.epoch), end.consumed, true);
        let live = self.cpu.forget(end);
        let opened = live.as_ref().is_some_and(|live| live.file.is_some());
        self.open.0 -= usize::from(opened);
        let left_out = !opened && end.ready != Instant::NEVER && self.open.1 < usize::MAX;
        if end.job.operation.index() >= self.system.operations.len() {
            return None;
        }
        // One that was not admitted has no earlier event.
        let arrival = match &live {
            Some(live) => live.arrival,
            None => self.cpu.arrivals.of(self.system, now, end.job),
        };
        if end.start != Instant::NEVER {
            self.cpu.arrivals.ended(end.job);
        }
        (self.interest.wants(end) && !left_out).then(|| self.account(end, &arrival, live))
    }

    /// The job that triggered a live one, if that is known.
    pub fn led_to(&mut self, job: JobId) -> Option<JobId> {
        self.cpu.live(job)?.arrival.by
    }

    /// Jobs that wait in queues now; `None` beyond lost events.
    pub fn waiting(&self) -> Option<usize> {
        self.cpu.waiting()
    }

    /// A job is known to have used so much.
    fn used(&mut self, job: JobId, epoch: usize, used: Span, ended: bool) {
        if job.operation.index() < self.system.operations.len() {
            let epoch = epoch.min(self.system.epochs.len() - 1);
            let declared = self.system.setting(epoch, job.operation).wcet;
            self.overruns.used(Overrun { job, declared, used, ended });
        }
    }

    /// Books the log on those who live, so that it can begin anew.
    fn book(&mut self) {
        for live in self.cpu.jobs.values_mut() {
            if let Some(file) = &mut live.file {
                self.log[file.next.min(self.log.len())..].iter().for_each(|mark| file.mark(mark));
                file.next = 0;
            }
        }
        self.log.clear();
    }

    fn account(&self, end: &JobEnd, arrival: &arrival::Arrival, live: Option<cpu::Live>) -> Account {
        let mut parts = arrival::before(self.system, arrival, end, self.exact);
        if let Some(file) = live.as_ref().and_then(|live| live.file.as_ref()) {
            parts = parts.into_iter().flat_map(|part| explained(part, &file.late)).collect();
        }
        let mut timeline: Vec<Stretch> =
            parts.iter().map(|(kind, from, to)| Stretch { from: *from, to: *to, kind: *kind }).collect();
        let mut spans: Vec<(Kind, Span)> = parts.drain(..).map(|(kind, from, to)| (kind, to.since(from))).collect();
        let epoch = usize::from(end.epoch).min(self.system.epochs.len() - 1);
        let wcet = self.system.setting(epoch, end.job.operation).wcet;
        let mut stolen_before = Span::ZERO;
        if let Some(mut file) = live.and_then(|live| live.file) {
            self.log[file.next.min(self.log.len())..].iter().for_each(|mark| file.mark(mark));
            // At the end of the run the CPU time of unfinished jobs is not known.
            let known = matches!(end.outcome, Outcome::Made | Outcome::Stopped) || !end.consumed.is_zero();
            let consumed = known.then_some(end.consumed);
            let (after, stretches, mut stolen) = file.finish(consumed, wcet, self.pools, self.switches);
            // No cause of a late timer is known.
            for (kind, span) in &mut spans {
                if *kind == Kind::TimerLate {
                    let taken = stolen.min(*span);
                    (stolen, *span) = (stolen - taken, *span - taken);
                    stolen_before = sum(stolen_before, taken);
                }
            }
            spans.extend(after);
            timeline.extend(stretches);
        }
        spans.push((Kind::Stolen, stolen_before));
        let mut spans = together(spans);
        let from = counted_from(self.system, end);
        let booked: Span = spans.iter().map(|(_, span)| *span).fold(Span::ZERO, sum);
        // Events were lost: of the rest nothing is known.
        let rest = end.end.since(from).saturating_sub(booked);
        if !rest.is_zero() {
            match spans.iter_mut().find(|(kind, _)| *kind == Kind::Unexplained) {
                Some((_, span)) => *span = sum(*span, rest),
                None => spans.push((Kind::Unexplained, rest)),
            }
        }
        spans.sort_by_key(|(kind, span)| (core::cmp::Reverse(*span), *kind));
        let basis = match (self.exact, self.switches) {
            (true, _) => Basis::Exact,
            (false, true) => Basis::Switches,
            (false, false) => Basis::Inferred,
        };
        let held_before = arrival::held_before(arrival, end);
        let ahead = self.clock.map_or(0, |(_, ahead)| ahead);
        let culprits = spans.iter().filter_map(|(kind, _)| kind.culprit()).filter_map(|who| {
            let (number, leg) = who.job?;
            Some(JobId { operation: who.operation, number, leg })
        });
        let overruns = if self.overruns.is_empty() {
            Vec::new()
        } else {
            let involved: BTreeSet<JobId> = culprits.chain([end.job]).collect();
            involved.into_iter().filter_map(|job| self.overruns.of(job)).collect()
        };
        Account {
            end: *end,
            from,
            parts: spans,
            timeline,
            by: arrival.by,
            held_before,
            wcet,
            overruns,
            basis,
            crossing: arrival.crossing,
            ahead,
        }
    }
}

/// A late release, split by what it is due to; any other part as it is.
fn explained(
    (kind, from, to): (Kind, Instant, Instant),
    late: &[(Kind, Instant, Instant)],
) -> Vec<(Kind, Instant, Instant)> {
    if kind != Kind::TimerLate || late.is_empty() {
        return vec![(kind, from, to)];
    }
    let mut parts = Vec::new();
    let mut at = from;
    for (why, begun, ended) in late.iter().map(|(why, begun, ended)| (*why, (*begun).max(from), (*ended).min(to))) {
        if begun > at && begun <= to {
            parts.push((kind, at, begun));
        }
        if ended > begun.max(at) {
            parts.push((why, begun.max(at), ended));
            at = ended;
        }
    }
    if to > at {
        parts.push((kind, at, to));
    }
    parts
}

/// One part of each kind.
fn together(spans: Vec<(Kind, Span)>) -> Vec<(Kind, Span)> {
    let mut all = std::collections::BTreeMap::new();
    for (kind, span) in spans.into_iter().filter(|(_, span)| !span.is_zero()) {
        let part: &mut Span = all.entry(kind).or_default();
        *part = sum(*part, span);
    }
    all.into_iter().collect()
}
