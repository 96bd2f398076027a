//! Windows of a run, to be drawn: who had the CPU, who waited, what ended when; around its start,
//! the changes of region, and the latest job of each class.
//!
//! What happens goes through a short memory for each processor. When the end of a window has come,
//! what is in the memory of it is kept. The window of the latest job is known only once that job
//! has ended, and is given up for that of a later one; so no more is ever kept than a few windows
//! of a few hundred pieces.

use std::collections::VecDeque;

use hyoshi_dispatch::lanes_of;
use hyoshi_model::{Instant, JobId, Lateness, ProcessorId, Span, System};
use hyoshi_sched::Plan;

use crate::blame::{Holder, Kind, Mark};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Who};

/// Pieces of all windows together.
const MOST_PIECES: usize = 5_000;

/// Changes of region that have a window.
const MOST_CHANGES: usize = 14;

/// What is remembered of one processor, and of all together.
const MEMORY: (usize, usize) = (4_096, 65_536);

/// Why there is a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The latest job of a class, by lateness: the one that came nearest to its deadline if all were in time.
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
    /// A region begins; its index.
    Region(usize),
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Why it was kept.
    pub why: Why,
    /// From then.
    pub from: Instant,
    /// Until then.
    pub until: Instant,
    /// Jobs that were there, in the order in which they ended; those that had not ended yet come last.
    pub jobs: Vec<JobLine>,
    /// What else had a CPU, in the order of time.
    pub others: Vec<Other>,
    /// When the second strategy of a processor was in force.
    pub reigns: Vec<(ProcessorId, Instant, Instant)>,
}

/// A job in a window. Instants may lie outside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// Where it ran.
    pub processor: ProcessorId,
    /// Its lane there.
    pub lane: u8,
    /// The job.
    pub job: JobId,
    /// Its class.
    pub critical: bool,
    /// Nominal release.
    pub release: Instant,
    /// When it entered its lane's queue; `NEVER` if it did not.
    pub ready: Instant,
    /// Its absolute deadline.
    pub deadline: Instant,
    /// How it ended, and when; `None` if it had not when the window was kept.
    pub end: Option<(Outcome, Instant)>,
    /// CPU time that it used, once it has ended.
    pub consumed: Span,
    /// When it had the CPU, within the window.
    pub ran: Vec<(Instant, Instant)>,
    /// What took most of its time, if it did not make its deadline.
    pub chief: Option<(Kind, Span)>,
}

/// Something that had a CPU and was no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Whose CPU.
    pub processor: ProcessorId,
    /// From then.
    pub from: Instant,
    /// Until then.
    pub to: Instant,
    /// Who had it; `None` if that is not known.
    pub who: Option<Stranger>,
}

/// Who had a CPU and was no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// The middleware's own work.
    Overhead(Who),
    /// A lane's thread on its way to its next job.
    Dispatch,
    /// A thread that is none of the processor's, by the number of its name.
    Other(u32),
}

/// One thing to remember.
#[derive(Clone, Debug)]
enum Entry {
    Ran {
        job: JobId,
        lane: u8,
        from: Instant,
        to: Instant,
    },
    Other {
        who: Option<Stranger>,
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
        /// Where it would have gone, if it entered no queue.
        lane: u8,
        chief: Option<(Kind, Span)>,
    },
    /// The second strategy was in force.
    Reign {
        from: Instant,
        to: Instant,
    },
}

impl Entry {
    fn extent(&self) -> (Instant, Instant) {
        match self {
            Entry::Ran { from, to, .. } | Entry::Other { from, to, .. } | Entry::Reign { from, to } => (*from, *to),
            Entry::Ready { at, .. } | Entry::Moved { at, .. } => (*at, *at),
            Entry::End { end, .. } => (end.end, end.end),
        }
    }
}

/// A window that is to be kept once it is over.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    why: Why,
    /// What it is about.
    anchor: Instant,
    from: Instant,
    until: Instant,
}

/// What keeps windows. See the [module](self).
#[derive(Debug)]
pub struct Timeline<'a> {
    system: &'a System,
    plan: &'a Plan,
    memories: Vec<VecDeque<Entry>>,
    /// The last entry of each processor about who has the CPU: it may go on.
    open: Vec<Option<Entry>>,
    /// Since when the second strategy of each processor is in force.
    reigning: Vec<Option<Instant>>,
    room: usize,
    /// Processors tell of the same time up to so much apart.
    apart: Span,
    wanted: Vec<Wanted>,
    /// When the first of them is over, and all its events were read.
    due: Instant,
    kept: Vec<Window>,
    latest: [Option<Lateness>; 2],
    budget: usize,
}

impl<'a> Timeline<'a> {
    /// Before the start. `apart` is how far their events may
    /// come behind each other's: not at all in a simulation.
    pub fn new(system: &'a System, plan: &'a Plan, apart: Span) -> Self {
        let many = system.processors.len().max(1);
        let changes = system.epochs.len() - 1;
        let windows = 3 + changes.min(MOST_CHANGES);
        let mut timeline = Timeline {
            memories: vec![VecDeque::new(); many],
            open: vec![None; many],
            reigning: vec![None; many],
            room: (MEMORY.1 / many).clamp(256, MEMORY.0),
            apart,
            wanted: Vec::new(),
            due: Instant::NEVER,
            kept: Vec::new(),
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
        timeline.want(Why::Start, Instant::ZERO, Instant::ZERO, (Instant::ZERO + long(0)).min(end));
        for step in 0..changes.min(MOST_CHANGES) {
            // Of more changes than there is room for some, as far apart as can be.
            let epoch = 1 + step * changes / changes.min(MOST_CHANGES);
            let (at, long) = (system.epochs[epoch].at, long(epoch));
            let before = Span::from_nanos(long.as_nanos() / 4);
            let after = long.saturating_sub(before);
            if at < end {
                let until = at.saturating_add(after).min(end);
                timeline.want(Why::Region(epoch), at, at.saturating_sub(before), until);
            }
        }
        timeline
    }

    fn want(&mut self, why: Why, anchor: Instant, from: Instant, until: Instant) {
        self.wanted.push(Wanted { why, anchor, from, until });
        self.due = self.due.min(until.saturating_add(self.apart));
    }

    /// Who had the CPU of a processor, as the law of blame saw it.
    #[inline]
    pub fn mark(&mut self, processor: ProcessorId, mark: &Mark) {
        let Mark::Slice { from, to, holder } = mark else { return };
        let (from, to) = (*from, *to);
        let entry = match holder {
            Holder::Job(runner) => Some(Entry::Ran { job: runner.job, lane: runner.lane, from, to }),
            Holder::Idle => None,
            Holder::Dispatch => Some(Entry::Other { who: Some(Stranger::Dispatch), from, to }),
            Holder::Overhead(who) => Some(Entry::Other { who: Some(Stranger::Overhead(*who)), from, to }),
            Holder::Other(name) => Some(Entry::Other { who: Some(Stranger::Other(*name)), from, to }),
            Holder::Unknown => Some(Entry::Other { who: None, from, to }),
        };
        let place = processor.index();
        let Some(open) = self.open.get_mut(place) else { return };
        match (open.as_mut(), &entry) {
            (Some(Entry::Ran { job, lane, to: end, .. }), Some(Entry::Ran { job: goes_on, lane: same, .. }))
                if (*job, *lane, *end) == (*goes_on, *same, from) =>
            {
                *end = to;
                return;
            }
            (Some(Entry::Other { who, to: end, .. }), Some(Entry::Other { who: goes_on, .. }))
                if (*who, *end) == (*goes_on, from) =>
            {
                *end = to;
                return;
            }
            _ => {}
        }
        if let Some(done) = std::mem::replace(open, entry) {
            self.remember(place, done);
        }
    }

    /// What a dispatcher decided; `chief` is what took most of the time of a job that has ended.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event, chief: Option<(Kind, Span)>) {
        match event {
            Event::Decision(Decision::Ready { job, release, deadline, lane }) => {
                let (release, deadline, lane) = (*release, *deadline, *lane);
                self.remember(processor.index(), Entry::Ready { job: *job, lane, at: now, release, deadline });
            }
            Event::Decision(Decision::Move { job, lane }) => {
                self.remember(processor.index(), Entry::Moved { job: *job, lane: *lane, at: now });
            }
            Event::Decision(Decision::End(end)) => {
                let lane = self.lane(processor, end);
                self.remember(processor.index(), Entry::End { end: *end, lane, chief });
                if end.outcome.finished() {
                    self.ended(end);
                }
            }
            Event::Decision(Decision::Switch { second }) => {
                let Some(reigning) = self.reigning.get_mut(processor.index()) else { return };
                let since = if *second { None } else { reigning.take() };
                if *second {
                    reigning.get_or_insert(now);
                }
                if let Some(from) = since {
                    self.remember(processor.index(), Entry::Reign { from, to: now });
                }
            }
            _ => {}
        }
        if now >= self.due {
            self.keep(now);
        }
    }

    /// The run is over.
    pub fn finish(mut self, now: Instant) -> Vec<Window> {
        self.keep(now.saturating_add(self.apart));
        for wanted in std::mem::take(&mut self.wanted) {
            if wanted.from < now {
                self.keep_one(Wanted { until: wanted.until.min(now), ..wanted });
            }
        }
        let order = |window: &Window| match window.why {
            Why::Latest { critical, lateness, .. } => (lateness <= Lateness::from_nanos(0), !critical, 0),
            Why::Start => (true, true, 1),
            Why::Region(index) => (true, true, 1 + index),
        };
        self.kept.sort_by_key(order);
        self.kept.retain(|window| !window.jobs.is_empty());
        self.kept
    }

    fn remember(&mut self, place: usize, entry: Entry) {
        let Some(memory) = self.memories.get_mut(place) else { return };
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
        self.wanted.retain(|wanted| !wanted.why.latest_of(end.critical));
        let why = Why::Latest { critical: end.critical, job: end.job, lateness };
        let until = end.end.max(end.deadline.min(end.end.saturating_add(response))).saturating_add(part(4));
        self.want(why, end.end, end.release.saturating_sub(part(2)), until);
    }

    #[cold]
    fn keep(&mut self, now: Instant) {
        let apart = self.apart;
        let over = |wanted: &Wanted| wanted.until.saturating_add(apart) <= now;
        let (over, wanted): (Vec<_>, Vec<_>) = self.wanted.iter().copied().partition(over);
        self.wanted = wanted;
        self.due = self.wanted.iter().map(|wanted| wanted.until.saturating_add(apart)).min().unwrap_or(Instant::NEVER);
        over.into_iter().for_each(|wanted| self.keep_one(wanted));
    }

    fn keep_one(&mut self, wanted: Wanted) {
        let (from, until) = self.narrowed(&wanted);
        let mut window =
            Window { why: wanted.why, from, until, jobs: Vec::new(), others: Vec::new(), reigns: Vec::new() };
        for (place, memory) in self.memories.iter().enumerate() {
            let processor = ProcessorId(place as u32);
            let reign = self.reigning[place].map(|from| Entry::Reign { from, to: until });
            let entries = memory.iter().chain(self.open[place].as_ref()).chain(reign.as_ref());
            self.gather(processor, entries, &mut window);
        }
        if let Why::Latest { critical, .. } = wanted.why {
            self.kept.retain(|window| !window.why.latest_of(critical));
        }
        self.kept.push(window);
    }

    /// The part of a window that is remembered, and of that what is nearest to its anchor if it is too much.
    fn narrowed(&self, wanted: &Wanted) -> (Instant, Instant) {
        let Wanted { anchor, from, until, .. } = *wanted;
        // What was forgotten of one processor is not shown of the others.
        let full = self.memories.iter().filter(|memory| memory.len() >= self.room);
        let known = full.filter_map(|memory| memory.front().map(|entry| entry.extent().1)).max();
        let from = from.max(known.unwrap_or(Instant::ZERO)).min(until);
        let inside = |(begin, end): &(Instant, Instant)| *end >= from && *begin <= until;
        let all = self.memories.iter().flatten().map(Entry::extent).filter(inside);
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

    fn gather<'e>(&self, processor: ProcessorId, entries: impl Iterator<Item = &'e Entry>, window: &mut Window) {
        let (from, until) = (window.from, window.until);
        let first = window.jobs.len();
        let mut place: std::collections::HashMap<JobId, usize> = std::collections::HashMap::new();
        let mut jobs: Vec<JobLine> = Vec::new();
        for entry in entries {
            let (job, lane, release) = match entry {
                Entry::Other { who, from: begin, to } => {
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        window.others.push(Other { processor, from: begin, to, who: *who });
                    }
                    continue;
                }
                Entry::Reign { from: begin, to } => {
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        window.reigns.push((processor, begin, to));
                    }
                    continue;
                }
                Entry::Ran { job, lane, from, .. } => (*job, *lane, *from),
                Entry::Ready { job, lane, release, .. } => (*job, *lane, *release),
                Entry::Moved { job, lane, at } => (*job, *lane, *at),
                Entry::End { end, lane, .. } => (end.job, *lane, end.release),
            };
            let index = *place.entry(job).or_insert_with(|| {
                jobs.push(self.line(processor, job, lane, release));
                jobs.len() - 1
            });
            let line = &mut jobs[index];
            match entry {
                Entry::Ran { lane, from: begin, to, .. } => {
                    line.lane = *lane;
                    let (begin, to) = ((*begin).max(from), (*to).min(until));
                    if begin < to {
                        line.ran.push((begin, to));
                    }
                }
                Entry::Ready { at, release, deadline, lane, .. } => {
                    (line.ready, line.release, line.deadline, line.lane) = (*at, *release, *deadline, *lane);
                }
                Entry::Moved { lane, .. } => line.lane = *lane,
                Entry::End { end, chief, .. } => {
                    (line.ready, line.release, line.deadline) = (end.ready, end.release, end.deadline);
                    (line.critical, line.consumed, line.chief) = (end.critical, end.consumed, *chief);
                    line.end = Some((end.outcome, end.end));
                }
                Entry::Other { .. } | Entry::Reign { .. } => {}
            }
        }
        // In the window if it lived there: from its release, or from its queue if that came first (a late
        // window knows no release), to its end.
        let lived = |line: &JobLine| {
            let begun = line.release.min(line.ready);
            begun <= until && line.end.is_none_or(|(_, end)| end >= from)
        };
        window.jobs.extend(jobs.into_iter().filter(lived));
        window.jobs[first..].sort_by_key(|line| (line.end.map_or(Instant::NEVER, |(_, end)| end), line.job));
    }

    /// The lane of a job that has ended, under the strategy that rules now.
    fn lane(&self, processor: ProcessorId, end: &JobEnd) -> u8 {
        let Some(first) = self.plan.processors.get(processor.index()) else { return 0 };
        let second = self.reigning.get(processor.index()).is_some_and(Option::is_some);
        let plan = if second { first.overload.as_deref().unwrap_or(first) } else { first };
        let epoch = usize::from(end.epoch).min(plan.placements.len() - 1);
        let place = plan.placement(epoch, end.job.operation).map_or(u8::MAX, |placement| {
            if self.is_critical(epoch, end.job) { placement.critical.level } else { placement.other.level }
        });
        let lanes = lanes_of(first).len() as u8;
        if lanes == 1 { 0 } else { place.min(lanes - 1) }
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

impl Why {
    fn latest_of(self, class: bool) -> bool {
        matches!(self, Why::Latest { critical, .. } if critical == class)
    }
}
