//! Windows of a run's timeline: the use of the CPU, waiting jobs and job ends, around the start, around changes of
//! region, and around the latest job of each class.
//!
//! A short memory for each processor holds the latest events. At the end of a window, its part of the memory is kept.
//! The window of the latest job begins before that job ends, and a later job replaces it. So memory is bounded by a few
//! windows of a few hundred entries.

use std::collections::VecDeque;

use hyoshi_dispatch::lanes_of;
use hyoshi_model::{Instant, JobId, Lateness, ProcessorId, Span, System};
use hyoshi_sched::Plan;

use crate::blame::{CpuChange, CpuOccupant, ResponsePart};
use hyoshi_trace::{CpuUser, DispatchDecision, JobEnd, JobOutcome, TraceEvent};

/// The most entries of all windows.
const MOST_PIECES: usize = 5_000;

/// The most changes of region with a window.
const MOST_CHANGES: usize = 14;

/// The most entries in the memory of one processor, and of all.
const MEMORY: (usize, usize) = (4_096, 65_536);

/// The reason for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowReason {
    /// The latest job of a class. If all met their deadlines: the one that ended closest to its deadline.
    Latest {
        /// The class.
        critical: bool,
        /// The job.
        job: JobId,
        /// End minus deadline.
        lateness: Lateness,
    },
    /// The run begins.
    Start,
    /// A region begins, with this index.
    Region(usize),
}

/// A window of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineWindow {
    /// Its reason.
    pub reason: WindowReason,
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub until: Instant,
    /// Its jobs in the order of their ends; unfinished jobs are last.
    pub jobs: Vec<JobLine>,
    /// Other uses of the CPUs, in the order of time.
    pub others: Vec<OtherInterval>,
    /// Intervals in which a processor's second strategy was in force.
    pub second_strategy: Vec<(ProcessorId, Instant, Instant)>,
}

/// A job in a window. Instants may be outside the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// Its processor.
    pub processor: ProcessorId,
    /// Its lane.
    pub lane: u8,
    /// The job.
    pub job: JobId,
    /// Its class: true if critical.
    pub critical: bool,
    /// Nominal release.
    pub release: Instant,
    /// When it entered its lane's queue; `NEVER` if it did not.
    pub ready: Instant,
    /// Its absolute deadline.
    pub deadline: Instant,
    /// Its outcome and end; `None` if it had not ended when the window was kept.
    pub end: Option<(JobOutcome, Instant)>,
    /// Its CPU time, after its end.
    pub consumed: Span,
    /// Its execution within the window.
    pub ran: Vec<(Instant, Instant)>,
    /// The largest part of its response, if it did not meet its deadline.
    pub chief: Option<(ResponsePart, Span)>,
}

/// An interval in which a CPU did not execute a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherInterval {
    /// The processor.
    pub processor: ProcessorId,
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// The use of the CPU; `None` if unknown.
    pub who: Option<OtherUse>,
}

/// A use of a CPU other than a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherUse {
    /// Scheduling.
    Overhead(CpuUser),
    /// A lane's thread before its next job.
    Dispatch,
    /// A thread outside the processor, by the number of its name.
    Other(u32),
}

/// An entry of the memory.
#[derive(Clone, Debug)]
enum TimelineEntry {
    Ran {
        job: JobId,
        lane: u8,
        from: Instant,
        to: Instant,
    },
    Other {
        who: Option<OtherUse>,
        from: Instant,
        to: Instant,
    },
    Ready {
        job: JobId,
        lane: u8,
        at: Instant,
        release: Instant,
        deadline: Instant,
    },
    /// A waiting job changed its lane with the strategy.
    Moved {
        job: JobId,
        lane: u8,
        at: Instant,
    },
    End {
        end: JobEnd,
        /// The lane that it would have had, if it entered no queue.
        lane: u8,
        chief: Option<(ResponsePart, Span)>,
    },
    /// The second strategy was in force.
    SecondStrategy {
        from: Instant,
        to: Instant,
    },
}

impl TimelineEntry {
    fn extent(&self) -> (Instant, Instant) {
        match self {
            TimelineEntry::Ran { from, to, .. }
            | TimelineEntry::Other { from, to, .. }
            | TimelineEntry::SecondStrategy { from, to } => (*from, *to),
            TimelineEntry::Ready { at, .. } | TimelineEntry::Moved { at, .. } => (*at, *at),
            TimelineEntry::End { end, .. } => (end.end, end.end),
        }
    }
}

/// A window that will be kept at its end.
#[derive(Clone, Copy, Debug)]
struct PlannedWindow {
    reason: WindowReason,
    /// The instant in its centre of interest.
    anchor: Instant,
    from: Instant,
    until: Instant,
}

/// Collects the windows. See the [module](self).
#[derive(Debug)]
pub struct Timeline<'a> {
    system: &'a System,
    plan: &'a Plan,
    memories: Vec<VecDeque<TimelineEntry>>,
    /// The last entry of each processor about the use of its CPU: it may continue.
    open: Vec<Option<TimelineEntry>>,
    /// The time since which the second strategy of each processor is in force.
    second_since: Vec<Option<Instant>>,
    room: usize,
    /// The largest lag between the events of different processors.
    lag: Span,
    wanted: Vec<PlannedWindow>,
    /// The earliest end of a planned window, plus the lag.
    due: Instant,
    windows: Vec<TimelineWindow>,
    latest: [Option<Lateness>; 2],
    budget: usize,
}

impl<'a> Timeline<'a> {
    /// Starts before the first event. `lag` is the largest lag between the events of different processors; zero in a
    /// simulation.
    pub fn new(system: &'a System, plan: &'a Plan, lag: Span) -> Self {
        let count = system.processors.len().max(1);
        let changes = system.epochs.len() - 1;
        let windows = 3 + changes.min(MOST_CHANGES);
        let mut timeline = Timeline {
            memories: vec![VecDeque::new(); count],
            open: vec![None; count],
            second_since: vec![None; count],
            room: (MEMORY.1 / count).clamp(256, MEMORY.0),
            lag,
            wanted: Vec::new(),
            due: Instant::NEVER,
            windows: Vec::new(),
            latest: [None; 2],
            budget: MOST_PIECES / windows,
            system,
            plan,
        };
        let end = Instant::ZERO + system.duration;
        let long = |epoch: usize| {
            let on = system.epochs[epoch].settings.iter().filter(|setting| setting.enabled);
            on.map(|setting| setting.period).max().unwrap_or(Span::from_millis(100))
        };
        timeline.want(WindowReason::Start, Instant::ZERO, Instant::ZERO, (Instant::ZERO + long(0)).min(end));
        for step in 0..changes.min(MOST_CHANGES) {
            // If there are too many changes, choose some at equal distances.
            let epoch = 1 + step * changes / changes.min(MOST_CHANGES);
            let (at, long) = (system.epochs[epoch].at, long(epoch));
            let before = Span::from_nanos(long.as_nanos() / 4);
            let after = long.saturating_sub(before);
            if at < end {
                let until = at.saturating_add(after).min(end);
                timeline.want(WindowReason::Region(epoch), at, at.saturating_sub(before), until);
            }
        }
        timeline
    }

    fn want(&mut self, reason: WindowReason, anchor: Instant, from: Instant, until: Instant) {
        self.wanted.push(PlannedWindow { reason, anchor, from, until });
        self.due = self.due.min(until.saturating_add(self.lag));
    }

    /// A change of a processor's CPU.
    #[inline]
    pub fn change(&mut self, processor: ProcessorId, change: &CpuChange) {
        let CpuChange::Slice { from, to, occupant } = change else { return };
        let (from, to) = (*from, *to);
        let entry = match occupant {
            CpuOccupant::Job(runner) => Some(TimelineEntry::Ran { job: runner.job, lane: runner.lane, from, to }),
            CpuOccupant::Idle => None,
            CpuOccupant::Dispatch => Some(TimelineEntry::Other { who: Some(OtherUse::Dispatch), from, to }),
            CpuOccupant::Overhead(who) => Some(TimelineEntry::Other { who: Some(OtherUse::Overhead(*who)), from, to }),
            CpuOccupant::Other(name) => Some(TimelineEntry::Other { who: Some(OtherUse::Other(*name)), from, to }),
            CpuOccupant::Unknown => Some(TimelineEntry::Other { who: None, from, to }),
        };
        let index = processor.index();
        let Some(open) = self.open.get_mut(index) else { return };
        match (open.as_mut(), &entry) {
            (
                Some(TimelineEntry::Ran { job, lane, to: end, .. }),
                Some(TimelineEntry::Ran { job: goes_on, lane: same, .. }),
            ) if (*job, *lane, *end) == (*goes_on, *same, from) => {
                *end = to;
                return;
            }
            (Some(TimelineEntry::Other { who, to: end, .. }), Some(TimelineEntry::Other { who: goes_on, .. }))
                if (*who, *end) == (*goes_on, from) =>
            {
                *end = to;
                return;
            }
            _ => {}
        }
        if let Some(done) = std::mem::replace(open, entry) {
            self.remember(index, done);
        }
    }

    /// A decision of a dispatcher. For an ended job, `chief` is the largest part of its response.
    #[inline]
    pub fn event(
        &mut self,
        processor: ProcessorId,
        now: Instant,
        event: &TraceEvent,
        chief: Option<(ResponsePart, Span)>,
    ) {
        match event {
            TraceEvent::Decision(DispatchDecision::Ready { job, release, deadline, lane }) => {
                let (release, deadline, lane) = (*release, *deadline, *lane);
                self.remember(processor.index(), TimelineEntry::Ready { job: *job, lane, at: now, release, deadline });
            }
            TraceEvent::Decision(DispatchDecision::Move { job, lane }) => {
                self.remember(processor.index(), TimelineEntry::Moved { job: *job, lane: *lane, at: now });
            }
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                let lane = self.lane(processor, end);
                self.remember(processor.index(), TimelineEntry::End { end: *end, lane, chief });
                if end.outcome.finished() {
                    self.ended(end);
                }
            }
            TraceEvent::Decision(DispatchDecision::Switch { second }) => {
                let Some(second_since) = self.second_since.get_mut(processor.index()) else { return };
                let since = if *second { None } else { second_since.take() };
                if *second {
                    second_since.get_or_insert(now);
                }
                if let Some(from) = since {
                    self.remember(processor.index(), TimelineEntry::SecondStrategy { from, to: now });
                }
            }
            _ => {}
        }
        if now >= self.due {
            self.keep(now);
        }
    }

    /// Ends the run.
    pub fn finish(mut self, now: Instant) -> Vec<TimelineWindow> {
        self.keep(now.saturating_add(self.lag));
        for wanted in std::mem::take(&mut self.wanted) {
            if wanted.from < now {
                self.keep_one(PlannedWindow { until: wanted.until.min(now), ..wanted });
            }
        }
        let order = |window: &TimelineWindow| match window.reason {
            WindowReason::Latest { critical, lateness, .. } => (lateness <= Lateness::from_nanos(0), !critical, 0),
            WindowReason::Start => (true, true, 1),
            WindowReason::Region(index) => (true, true, 1 + index),
        };
        self.windows.sort_by_key(order);
        self.windows.retain(|window| !window.jobs.is_empty());
        self.windows
    }

    fn remember(&mut self, index: usize, entry: TimelineEntry) {
        let Some(memory) = self.memories.get_mut(index) else { return };
        if memory.len() >= self.room {
            memory.pop_front();
        }
        memory.push_back(entry);
    }

    #[inline]
    fn ended(&mut self, end: &JobEnd) {
        let lateness = end.end.lateness(end.deadline);
        let latest = &mut self.latest[usize::from(end.critical)];
        if latest.is_some_and(|latest| lateness <= latest) {
            return;
        }
        *latest = Some(lateness);
        let response = end.end.since(end.release);
        let part = |of: u64| Span::from_nanos(response.as_nanos() / of);
        self.wanted.retain(|wanted| !wanted.reason.latest_of(end.critical));
        let reason = WindowReason::Latest { critical: end.critical, job: end.job, lateness };
        let until = end.end.max(end.deadline.min(end.end.saturating_add(response))).saturating_add(part(4));
        self.want(reason, end.end, end.release.saturating_sub(part(2)), until);
    }

    #[cold]
    fn keep(&mut self, now: Instant) {
        let lag = self.lag;
        let over = |wanted: &PlannedWindow| wanted.until.saturating_add(lag) <= now;
        let (over, wanted): (Vec<_>, Vec<_>) = self.wanted.iter().copied().partition(over);
        self.wanted = wanted;
        self.due = self.wanted.iter().map(|wanted| wanted.until.saturating_add(lag)).min().unwrap_or(Instant::NEVER);
        over.into_iter().for_each(|wanted| self.keep_one(wanted));
    }

    fn keep_one(&mut self, wanted: PlannedWindow) {
        let (from, until) = self.narrowed(&wanted);
        let mut window = TimelineWindow {
            reason: wanted.reason,
            from,
            until,
            jobs: Vec::new(),
            others: Vec::new(),
            second_strategy: Vec::new(),
        };
        for (index, memory) in self.memories.iter().enumerate() {
            let processor = ProcessorId(index as u32);
            let second = self.second_since[index].map(|from| TimelineEntry::SecondStrategy { from, to: until });
            let entries = memory.iter().chain(self.open[index].as_ref()).chain(second.as_ref());
            self.gather(processor, entries, &mut window);
        }
        if let WindowReason::Latest { critical, .. } = wanted.reason {
            self.windows.retain(|window| !window.reason.latest_of(critical));
        }
        self.windows.push(window);
    }

    /// The part of a window that the memory still holds, limited to the entries closest to its anchor.
    fn narrowed(&self, wanted: &PlannedWindow) -> (Instant, Instant) {
        let PlannedWindow { anchor, from, until, .. } = *wanted;
        // Data that is dropped for one processor is omitted for all.
        let full = self.memories.iter().filter(|memory| memory.len() >= self.room);
        let known = full.filter_map(|memory| memory.front().map(|entry| entry.extent().1)).max();
        let from = from.max(known.unwrap_or(Instant::ZERO)).min(until);
        let inside = |(begin, end): &(Instant, Instant)| *end >= from && *begin <= until;
        let all = self.memories.iter().flatten().map(TimelineEntry::extent).filter(inside);
        let far = |(begin, end): (Instant, Instant)| match () {
            () if end < anchor => anchor.since(end),
            () if begin > anchor => begin.since(anchor),
            () => Span::ZERO,
        };
        let mut distances: Vec<Span> = all.map(far).collect();
        if distances.len() <= self.budget {
            return (from, until);
        }
        let (_, most, _) = distances.select_nth_unstable(self.budget);
        (from.max(anchor.saturating_sub(*most)), until.min(anchor.saturating_add(*most)))
    }

    fn gather<'e>(
        &self,
        processor: ProcessorId,
        entries: impl Iterator<Item = &'e TimelineEntry>,
        window: &mut TimelineWindow,
    ) {
        let (from, until) = (window.from, window.until);
        let first = window.jobs.len();
        let mut index: std::collections::HashMap<JobId, usize> = std::collections::HashMap::new();
        let mut jobs: Vec<JobLine> = Vec::new();
        for entry in entries {
            let (job, lane, release) = match entry {
                TimelineEntry::Other { who, from: begin, to } => {
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        window.others.push(OtherInterval { processor, from: begin, to, who: *who });
                    }
                    continue;
                }
                TimelineEntry::SecondStrategy { from: begin, to } => {
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        window.second_strategy.push((processor, begin, to));
                    }
                    continue;
                }
                TimelineEntry::Ran { job, lane, from, .. } => (*job, *lane, *from),
                TimelineEntry::Ready { job, lane, release, .. } => (*job, *lane, *release),
                TimelineEntry::Moved { job, lane, at } => (*job, *lane, *at),
                TimelineEntry::End { end, lane, .. } => (end.job, *lane, end.release),
            };
            let index = *index.entry(job).or_insert_with(|| {
                jobs.push(self.line(processor, job, lane, release));
                jobs.len() - 1
            });
            let line = &mut jobs[index];
            match entry {
                TimelineEntry::Ran { lane, from: begin, to, .. } => {
                    line.lane = *lane;
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        line.ran.push((begin, to));
                    }
                }
                TimelineEntry::Ready { at, release, deadline, lane, .. } => {
                    (line.ready, line.release, line.deadline, line.lane) = (*at, *release, *deadline, *lane);
                }
                TimelineEntry::Moved { lane, .. } => line.lane = *lane,
                TimelineEntry::End { end, chief, .. } => {
                    (line.ready, line.release, line.deadline) = (end.ready, end.release, end.deadline);
                    (line.critical, line.consumed, line.chief) = (end.critical, end.consumed, *chief);
                    line.end = Some((end.outcome, end.end));
                }
                TimelineEntry::Other { .. } | TimelineEntry::SecondStrategy { .. } => {}
            }
        }
        // In the window if its life overlaps it: from its release, or from its queue if that is earlier (a late window
        // has no release), to its end.
        let lived = |line: &JobLine| {
            let begun = line.release.min(line.ready);
            begun <= until && line.end.is_none_or(|(_, end)| end >= from)
        };
        window.jobs.extend(jobs.into_iter().filter(lived));
        window.jobs[first..].sort_by_key(|line| (line.end.map_or(Instant::NEVER, |(_, end)| end), line.job));
    }

    /// The lane of an ended job under the current strategy.
    fn lane(&self, processor: ProcessorId, end: &JobEnd) -> u8 {
        let Some(first) = self.plan.processors.get(processor.index()) else { return 0 };
        let second = self.second_since.get(processor.index()).is_some_and(Option::is_some);
        let plan = if second { first.overload.as_deref().unwrap_or(first) } else { first };
        let epoch = usize::from(end.epoch).min(plan.placements.len() - 1);
        let index = plan.placement(epoch, end.job.operation).map_or(u8::MAX, |placement| {
            if self.is_critical(epoch, end.job) { placement.critical.level } else { placement.other.level }
        });
        let lanes = lanes_of(first).len() as u8;
        if lanes == 1 { 0 } else { index.min(lanes - 1) }
    }

    fn is_critical(&self, epoch: usize, job: JobId) -> bool {
        let operation = self.system.operations.get(job.operation.index());
        operation.is_some_and(|one| one.critical || job.leg < self.system.setting(epoch, job.operation).critical_legs)
    }

    fn line(&self, processor: ProcessorId, job: JobId, lane: u8, release: Instant) -> JobLine {
        JobLine {
            processor,
            lane,
            job,
            critical: self.is_critical(self.system.epoch_at(release), job),
            release,
            ready: Instant::NEVER,
            deadline: Instant::NEVER,
            end: None,
            consumed: Span::ZERO,
            ran: Vec::new(),
            chief: None,
        }
    }
}

impl WindowReason {
    fn latest_of(self, class: bool) -> bool {
        matches!(self, WindowReason::Latest { critical, .. } if critical == class)
    }
}
