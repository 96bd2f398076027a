//! Breaks down the response time of each job into its causes. The parts sum to it exactly.
//!
//! [`Phases`](hyoshi_trace::stats::Phases) divide a job's time into the phases of its life, from its end alone; the
//! parts here sum to those phases.
//!
//! The input is the events of one processor, in order. A simulation records everything, so no part is unexplained. In
//! a run, time that neither the recording nor the model of the kernel explains is unexplained.
//!
//! ```text
//! nominal release      arrival         ready               start                        end
//!   │ upstream │ link │ offset, guard, │ waited: which job? │ executed │ preempted: which?  │ ...
//!   │          │      │ timer late     │ the cap, a lock    │ overran  │ suspended, stolen   │
//! ```
//!
//! Memory is bounded: the log of CPU changes is short. When it is full, it is added to the open breakdowns and cleared.

mod arrival;
mod breakdown;
mod cpu;
mod cpu_changes;
mod culprits;
mod overruns;
mod recent_cpu;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyoshi_model::{HostId, Instant, JobId, OperationId, ProcessorId, ResourceId, Span, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{CpuEvent, DispatchDecision, Input, JobEnd, JobOutcome, TraceEvent, Wait};

pub use arrival::{Crossing, counted_from};
pub use breakdown::MOST_STRETCHES;
pub use cpu::CpuTracker;
pub use cpu_changes::{CpuChange, CpuOccupant, JobTransition, RunningJob};
pub use culprits::{Culprits, Delay, Delays};
pub use overruns::Overrun;

use breakdown::OpenBreakdown;
use cpu_changes::{UntimedUse, sum};
use overruns::Overruns;

/// CPU changes that the log holds before they are added to the open breakdowns.
const LOG: usize = 1 << 13;

/// A part of a job's response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResponsePart {
    /// Earlier jobs of its chain, back to the root's release.
    Upstream,
    /// Earlier legs of the job.
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
    /// The delay by its release guard or its offset.
    Guard,
    /// Its operation moved between processors when it was due.
    Moved {
        /// The processor that the operation left.
        from: ProcessorId,
        /// Its new processor: the same one if it stayed or came back.
        to: ProcessorId,
    },
    /// A late release: the timer or the release thread.
    TimerLate,
    /// Before its start, while another job ran.
    Waited {
        /// The other job.
        who: Culprit,
        /// The other job's urgency.
        rank: Rank,
    },
    /// After its start, while another job ran.
    Preempted {
        /// The other job.
        who: Culprit,
        /// The other job's urgency.
        rank: Rank,
    },
    /// Blocked by a resource that it waits for, or by the ceiling of a resource that another job holds.
    Resource {
        /// The resource.
        resource: ResourceId,
        /// The job that holds it, or that waits for it ahead of this job; `None` if that is on another processor.
        by: Option<Culprit>,
    },
    /// The cap kept its lane off the CPU.
    Cap {
        /// The job that ran instead; `None` if none ran.
        behind: Option<Culprit>,
    },
    /// Demoted below the lanes after its worst case, while another job ran.
    Demoted {
        /// The other job.
        behind: Option<Culprit>,
    },
    /// Voluntarily blocked.
    Suspended,
    /// Its body slept, or waited for something that the file does not declare; with the reason, if the kernel reported
    /// it.
    Asleep(Option<Wait>),
    /// Execution within its declared worst case.
    Executed,
    /// Execution beyond its declared worst case.
    Overran,
    /// Scheduling.
    Overhead,
    /// A thread outside this processor, by the number of its name in the recording.
    Other(u32),
    /// The hypervisor.
    Stolen,
    /// Unknown.
    Unexplained,
}

/// A job that delayed another, or all jobs of an operation.
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

/// The urgency of a job relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// More urgent.
    MoreUrgent,
    /// Of the same level: earlier in the queue, or started.
    Same,
    /// Less urgent, but started.
    LessUrgent,
}

impl ResponsePart {
    /// The same part, without the number of the other job.
    pub fn by_operation(self) -> ResponsePart {
        self.blamed_on(Culprit::any)
    }

    /// The same part, without the other job.
    pub fn of_anybody(self) -> ResponsePart {
        self.blamed_on(|_| Culprit { operation: OperationId(0), job: None })
    }

    fn blamed_on(self, other: impl Fn(Culprit) -> Culprit) -> ResponsePart {
        match self {
            ResponsePart::Waited { who, rank } => ResponsePart::Waited { who: other(who), rank },
            ResponsePart::Preempted { who, rank } => ResponsePart::Preempted { who: other(who), rank },
            ResponsePart::Resource { resource, by } => ResponsePart::Resource { resource, by: by.map(other) },
            ResponsePart::Cap { behind } => ResponsePart::Cap { behind: behind.map(other) },
            ResponsePart::Demoted { behind } => ResponsePart::Demoted { behind: behind.map(other) },
            same => same,
        }
    }

    /// The job that caused it, if any.
    pub fn culprit(self) -> Option<Culprit> {
        match self {
            ResponsePart::Waited { who, .. } | ResponsePart::Preempted { who, .. } => Some(who),
            ResponsePart::Resource { by: who, .. }
            | ResponsePart::Cap { behind: who }
            | ResponsePart::Demoted { behind: who } => who,
            _ => None,
        }
    }

    /// True for time that the job itself needs.
    pub fn is_own(self) -> bool {
        matches!(self, ResponsePart::Executed | ResponsePart::Offset)
    }
}

/// An interval of a job's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// The part of the response.
    pub kind: ResponsePart,
}

/// The response time of a job, divided into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseBreakdown {
    /// The job's end.
    pub end: JobEnd,
    /// The start of its response: its nominal release, or its root's if the deadline counts from there.
    pub from: Instant,
    /// The parts, longest first. They sum to `end.end - from`.
    pub parts: Vec<(ResponsePart, Span)>,
    /// The parts in the order of time. They are complete only for jobs requested by name. Time that was lost at an
    /// unknown instant is not included.
    pub timeline: Vec<Stretch>,
    /// The job that triggered it, if known.
    pub by: Option<JobId>,
    /// The timeout of its operation released it, because no trigger had.
    pub timed_out: bool,
    /// The way of its trigger from another host, if that was recorded.
    pub crossing: Option<Crossing>,
    /// How far the clock of [`Blame::by_clock_of`] was ahead of the processor's when it ended, in ns.
    pub ahead: i64,
    /// Time that its guard held it before its response.
    pub held_before: Span,
    /// Its declared worst case, at its service level.
    pub wcet: Span,
    /// Overruns of the job itself and of the jobs that delayed it.
    pub overruns: Vec<Overrun>,
    /// The source of the information about the CPU.
    pub basis: BreakdownBasis,
}

/// The source of a breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakdownBasis {
    /// A simulation: every instant is known.
    Exact,
    /// The kernel's own switches.
    Switches,
    /// Inferred from a model of the kernel and the CPU time of jobs.
    Inferred,
}

impl ResponseBreakdown {
    /// The response time, which is the sum of the parts.
    pub fn response(&self) -> Span {
        self.end.end.since(self.from)
    }

    /// The longest part that the job itself did not need; `None` if it only executed as declared.
    pub fn chief(&self) -> Option<(ResponsePart, Span)> {
        self.parts.iter().copied().find(|(kind, _)| !kind.is_own())
    }

    /// The overrun that caused a part, if any; the greatest of several.
    pub fn overrun(&self, kind: ResponsePart) -> Option<Overrun> {
        let who = match kind {
            ResponsePart::Overran => Culprit::of(self.end.job),
            _ => kind.culprit()?,
        };
        let is =
            |job: JobId| who.operation == job.operation && who.job.is_none_or(|known| known == (job.number, job.leg));
        self.overruns.iter().filter(|overrun| is(overrun.job)).fold(None, |most, one| Overrun::greater(most, *one))
    }

    /// Time of all parts that `wanted` selects.
    pub fn total(&self, wanted: impl Fn(ResponsePart) -> bool) -> Span {
        self.parts.iter().filter(|(kind, _)| wanted(*kind)).map(|(_, span)| *span).sum()
    }
}

/// The jobs with requested breakdowns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// All jobs.
    All,
    /// Jobs that did not meet their deadline.
    NotMade,
    /// These jobs, with their timelines.
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
            Interest::NotMade => end.outcome != JobOutcome::Made,
            Interest::All | Interest::Jobs(_) => self.may_want(end.job),
        }
    }
}

/// Breaks down the response times on one processor. See the [module](self).
#[derive(Debug)]
pub struct Blame<'a> {
    system: &'a System,
    cpu: CpuTracker<'a>,
    exact: bool,
    interest: Interest,
    log: Vec<CpuChange>,
    untimed: UntimedUse,
    overruns: Overruns,
    switches: bool,
    /// Number and maximum of open breakdowns.
    open: (usize, usize),
    /// The host of the reference clock, and its lead over the processor's clock, in ns.
    clock: Option<(HostId, i64)>,
}

impl<'a> Blame<'a> {
    /// Starts at the beginning of a recording; `exact` for a simulation.
    pub fn new(system: &'a System, plan: &ProcessorPlan, exact: bool, interest: Interest) -> Self {
        Blame {
            cpu: CpuTracker::new(system, plan, exact),
            system,
            exact,
            interest,
            log: Vec::new(),
            untimed: UntimedUse::default(),
            overruns: Overruns::default(),
            switches: false,
            open: (0, usize::MAX),
            clock: None,
        }
    }

    /// Breakdowns report how far this host's clock was ahead of the processor's.
    pub fn by_clock_of(mut self, host: HostId) -> Self {
        self.clock = Some((host, 0));
        self
    }

    /// Sets late releases before the first event: see [`Replay::release_late`](crate::Replay::release_late).
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.cpu.replay().into_iter().for_each(|replay| replay.release_late(late));
    }

    /// Limits the number of open breakdowns, and so the cost of an event. In overload, jobs beyond the limit have none.
    pub fn at_most(mut self, breakdowns: usize) -> Self {
        self.open.1 = breakdowns;
        self
    }

    /// Before the event of a signal that arrived over a network: its path. `None` if its sending was not recorded.
    pub fn crosses(&mut self, crossing: Option<Crossing>) {
        self.cpu.arrivals.crosses(crossing);
    }

    /// The next event of the processor. Returns the breakdown of the job that ends with it, if requested.
    pub fn event(&mut self, now: Instant, event: &TraceEvent) -> Option<ResponseBreakdown> {
        self.event_watched(now, event, |_| ())
    }

    /// The same. `watch` receives the resulting changes of the CPU.
    pub fn event_watched(
        &mut self,
        now: Instant,
        event: &TraceEvent,
        mut watch: impl FnMut(&CpuChange),
    ) -> Option<ResponseBreakdown> {
        self.untimed.event(event);
        self.switches |= matches!(event, TraceEvent::Cpu(CpuEvent::Switch { .. }));
        if let (TraceEvent::Cpu(CpuEvent::Clock { host, offset, .. }), Some((reference, ahead))) =
            (event, &mut self.clock)
            && host == reference
        {
            *ahead = *offset;
        }
        if self.log.len() >= LOG {
            self.book();
        }
        let Blame { cpu, log, interest, exact, untimed, open, .. } = self;
        let timeline = matches!(interest, Interest::Jobs(_));
        cpu.event(now, event, |cpu, change| {
            watch(&change);
            log.push(change);
            if let CpuChange::Job { job, lane, transition: JobTransition::Ready, .. } = change
                && let TraceEvent::Decision(DispatchDecision::Ready { release, deadline, .. }) = event
                && interest.may_want(job)
                && open.0 < open.1
            {
                let of = (job, lane, *deadline);
                let mut breakdown = OpenBreakdown::new(cpu, of, *exact, log.len(), *untimed, timeline).map(Box::new);
                if let (false, Some(breakdown)) = (*exact, &mut breakdown) {
                    breakdown.late = cpu.recent.late(*release, now);
                    breakdown.untimed.stolen = cpu.recent.stolen_before(*release).min(untimed.stolen);
                }
                if let Some(live) = cpu.live(job) {
                    open.0 = open.0 + usize::from(breakdown.is_some()) - usize::from(live.breakdown.is_some());
                    live.breakdown = breakdown;
                }
            }
        });
        let end = match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => end,
            TraceEvent::Input(Input::Observe { slot, consumed }) => {
                if let Some(job) = self.cpu.job(*slot) {
                    let (job, declared) = (job.id, job.wcet);
                    self.overruns.used(Overrun { job, declared, used: *consumed, ended: false });
                }
                return None;
            }
            _ => return None,
        };
        let known = end.job.operation.index() < self.system.operations.len();
        if known {
            let declared = end.wcet(self.system);
            self.overruns.used(Overrun { job: end.job, declared, used: end.consumed, ended: true });
        }
        let live = self.cpu.forget(end);
        let opened = live.as_ref().is_some_and(|live| live.breakdown.is_some());
        self.open.0 -= usize::from(opened);
        let left_out = !opened && end.ready != Instant::NEVER && self.open.1 < usize::MAX;
        if !known {
            return None;
        }
        // A rejected job has no earlier event.
        let arrival = match &live {
            Some(live) => live.arrival,
            None => self.cpu.arrivals.of(self.system, now, end.job),
        };
        if end.start != Instant::NEVER {
            self.cpu.arrivals.ended(end.job);
        }
        (self.interest.wants(end) && !left_out).then(|| self.breakdown(end, &arrival, live))
    }

    /// The job that triggered a live job, if known.
    pub fn led_to(&mut self, job: JobId) -> Option<JobId> {
        self.cpu.live(job)?.arrival.by
    }

    /// The number of waiting jobs; `None` after lost events.
    pub fn waiting(&self) -> Option<usize> {
        self.cpu.waiting()
    }

    /// Adds the log to the open breakdowns and clears it.
    fn book(&mut self) {
        for live in self.cpu.jobs.values_mut() {
            if let Some(breakdown) = &mut live.breakdown {
                self.log[breakdown.next.min(self.log.len())..].iter().for_each(|change| breakdown.apply(change));
                breakdown.next = 0;
            }
        }
        self.log.clear();
    }

    fn breakdown(&self, end: &JobEnd, arrival: &arrival::Arrival, live: Option<cpu::LiveJob>) -> ResponseBreakdown {
        let mut parts = arrival::before(self.system, arrival, end, self.exact);
        if let Some(breakdown) = live.as_ref().and_then(|live| live.breakdown.as_ref()) {
            parts = parts.into_iter().flat_map(|part| explained(part, &breakdown.late)).collect();
        }
        let mut timeline: Vec<Stretch> =
            parts.iter().map(|(kind, from, to)| Stretch { from: *from, to: *to, kind: *kind }).collect();
        let mut spans: Vec<(ResponsePart, Span)> =
            parts.drain(..).map(|(kind, from, to)| (kind, to.since(from))).collect();
        let wcet = end.wcet(self.system);
        let mut stolen_before = Span::ZERO;
        if let Some(mut breakdown) = live.and_then(|live| live.breakdown) {
            self.log[breakdown.next.min(self.log.len())..].iter().for_each(|change| breakdown.apply(change));
            // The CPU time of jobs unfinished at the end of the run is unknown.
            let known = matches!(end.outcome, JobOutcome::Made | JobOutcome::Stopped) || !end.consumed.is_zero();
            let consumed = known.then_some(end.consumed);
            let (after, stretches, mut stolen) = breakdown.finish(consumed, wcet, self.untimed, self.switches);
            // The cause of a late timer is unknown.
            for (kind, span) in &mut spans {
                if *kind == ResponsePart::TimerLate {
                    let taken = stolen.min(*span);
                    (stolen, *span) = (stolen - taken, *span - taken);
                    stolen_before = sum(stolen_before, taken);
                }
            }
            spans.extend(after);
            timeline.extend(stretches);
        }
        spans.push((ResponsePart::Stolen, stolen_before));
        let mut spans = together(spans);
        let from = counted_from(self.system, end);
        let booked: Span = spans.iter().map(|(_, span)| *span).fold(Span::ZERO, sum);
        // Events were lost: the rest is unexplained.
        let rest = end.end.since(from).saturating_sub(booked);
        if !rest.is_zero() {
            match spans.iter_mut().find(|(kind, _)| *kind == ResponsePart::Unexplained) {
                Some((_, span)) => *span = sum(*span, rest),
                None => spans.push((ResponsePart::Unexplained, rest)),
            }
        }
        spans.sort_by_key(|(kind, span)| (core::cmp::Reverse(*span), *kind));
        let basis = match (self.exact, self.switches) {
            (true, _) => BreakdownBasis::Exact,
            (false, true) => BreakdownBasis::Switches,
            (false, false) => BreakdownBasis::Inferred,
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
        ResponseBreakdown {
            end: *end,
            from,
            parts: spans,
            timeline,
            by: arrival.by,
            timed_out: arrival.timed_out,
            held_before,
            wcet,
            overruns,
            basis,
            crossing: arrival.crossing,
            ahead,
        }
    }
}

/// Splits a late release by its causes; other parts are unchanged.
fn explained(
    (kind, from, to): (ResponsePart, Instant, Instant),
    late: &[(ResponsePart, Instant, Instant)],
) -> Vec<(ResponsePart, Instant, Instant)> {
    if kind != ResponsePart::TimerLate || late.is_empty() {
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

/// Merges equal parts.
fn together(spans: Vec<(ResponsePart, Span)>) -> Vec<(ResponsePart, Span)> {
    let mut all = std::collections::BTreeMap::new();
    for (kind, span) in spans.into_iter().filter(|(_, span)| !span.is_zero()) {
        let part: &mut Span = all.entry(kind).or_default();
        *part = sum(*part, span);
    }
    all.into_iter().collect()
}
