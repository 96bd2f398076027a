//! Segments of distributable threads on this processor: lists and cancels them, and drops hops of cancelled threads.

use std::collections::VecDeque;

use hyoshi_dispatch::{Job, JobState};
use hyoshi_model::{HostId, Instant, JobId, OperationId, Span};
use hyoshi_os::Scheduled;
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Input, Slot};

use super::{Crew, NOBODY};
use crate::chain_threads::{
    CancelOutcome, ChainThread, MOST_ENDED, MOST_REMEMBERED, REMEMBERED, SegmentState, ThreadSegment,
};
use crate::wakeups::PendingWakeups;

/// The threads' state besides the jobs.
#[derive(Debug)]
pub(super) struct CrewThreads {
    /// By operation of the plan: the first operation of its thread.
    roots: Vec<Option<OperationId>>,
    /// By operation of the plan: its latest ended segments.
    ended: Vec<VecDeque<EndedSegment>>,
    /// The oldest first.
    cancelled: VecDeque<CancelledThread>,
}

#[derive(Clone, Copy, Debug)]
struct EndedSegment {
    number: u64,
    release: Instant,
    deadline: Instant,
    used: Span,
}

/// A thread whose hops are dropped until a time.
#[derive(Clone, Copy, Debug)]
struct CancelledThread {
    thread: ChainThread,
    /// The other host that cancelled it last.
    by: Option<HostId>,
    until: Instant,
    /// A hop to this operation was dropped.
    dropped: Option<OperationId>,
}

impl CrewThreads {
    /// `roots` by operation of the system.
    pub fn new(plan: &ProcessorPlan, roots: &[Option<OperationId>]) -> Self {
        let roots: Vec<_> = plan.operations.iter().map(|id| roots[id.index()]).collect();
        let ring = |root: &Option<OperationId>| VecDeque::with_capacity(if root.is_some() { MOST_ENDED } else { 0 });
        let most = if roots.iter().any(Option::is_some) { MOST_REMEMBERED } else { 0 };
        CrewThreads { ended: roots.iter().map(ring).collect(), roots, cancelled: VecDeque::with_capacity(most) }
    }

    fn thread_of(&self, job: &Job) -> Option<ChainThread> {
        self.roots[job.local as usize].map(|root| ChainThread { root, number: job.id.number })
    }

    /// A job has ended after so much CPU time.
    #[inline]
    pub fn ended(&mut self, job: &Job, used: Span) {
        if self.roots[job.local as usize].is_none() {
            return;
        }
        let (ring, number) = (&mut self.ended[job.local as usize], job.id.number);
        if let Some(last) = ring.back_mut().filter(|last| last.number == number) {
            // Another leg.
            last.used += used;
            return;
        }
        if ring.len() == MOST_ENDED {
            ring.pop_front();
        }
        ring.push_back(EndedSegment { number, release: job.release, deadline: job.deadline, used });
    }

    /// Remembers a thread. `None` if too many are remembered, or `by` has its share of them: a peer may cancel numbers
    /// that were never released, so it must leave room for other hosts and for operators.
    fn remember(&mut self, thread: ChainThread, by: Option<HostId>, now: Instant) -> Option<&mut CancelledThread> {
        while self.cancelled.front().is_some_and(|first| first.until <= now) {
            self.cancelled.pop_front();
        }
        let until = now.saturating_add(REMEMBERED);
        let known = self.cancelled.iter().position(|known| known.thread == thread);
        if known.is_none_or(|at| self.cancelled[at].by != by) {
            let own = self.cancelled.iter().filter(|known| known.by == by).count();
            let free = MOST_REMEMBERED - self.cancelled.len();
            let most = if by.is_some() { (own + free).div_ceil(2) } else { MOST_REMEMBERED };
            if own >= most || (known.is_none() && free == 0) {
                return None;
            }
        }
        let known = known.and_then(|at| self.cancelled.remove(at));
        let known = known.unwrap_or(CancelledThread { thread, by, until, dropped: None });
        // In the order of time: the oldest is first.
        self.cancelled.push_back(CancelledThread { until, by, ..known });
        self.cancelled.back_mut()
    }
}

impl<S: Scheduled> Crew<S> {
    /// True if the completion moves a cancelled thread here.
    #[inline]
    pub(super) fn drops_hop(&mut self, to: OperationId, number: u64, now: Instant) -> bool {
        if self.threads.cancelled.is_empty() {
            return false;
        }
        self.is_cancelled_hop(to, number, now)
    }

    #[cold]
    fn is_cancelled_hop(&mut self, to: OperationId, number: u64, now: Instant) -> bool {
        let local = self.operations.iter().position(|operation| operation.id == to);
        let root = local.and_then(|local| self.threads.roots[local]);
        let mut known = self.threads.cancelled.iter_mut().filter(|known| known.until > now);
        let known = known.find(|known| Some(known.thread.root) == root && known.thread.number == number);
        known.map(|known| known.dropped = Some(to)).is_some()
    }

    /// Adds the live segments of all threads, as far as there is room. Returns their number.
    pub fn live_segments(&self, segments: &mut Vec<ThreadSegment>) -> usize {
        let of = |(slot, job)| Some((slot, job, self.threads.thread_of(job)?));
        let live = self.dispatcher.jobs().filter_map(of);
        live.map(|(slot, job, thread)| {
            if segments.len() < segments.capacity() {
                segments.push(self.segment(slot, job, thread));
            }
        })
        .count()
    }

    /// Adds the segments of a thread, as far as there is room.
    pub fn segments_of(&self, thread: ChainThread, segments: &mut Vec<ThreadSegment>) {
        let before = segments.len();
        let of_thread = |(_, job): &(Slot, &Job)| self.threads.thread_of(job) == Some(thread);
        for (slot, job) in self.dispatcher.jobs().filter(of_thread) {
            if segments.len() < segments.capacity() {
                segments.push(self.segment(slot, job, thread));
            }
        }
        for (local, ring) in self.threads.ended.iter().enumerate() {
            let operation = self.operations[local].id;
            let ended = ring.iter().find(|ended| ended.number == thread.number);
            let Some(ended) = ended.filter(|_| self.threads.roots[local] == Some(thread.root)) else { continue };
            if let Some(live) = segments[before..].iter_mut().find(|live| live.operation == operation) {
                // Earlier legs.
                live.used += ended.used;
            } else if segments.len() < segments.capacity() {
                let EndedSegment { release, deadline, used, .. } = *ended;
                let state = SegmentState::Ended;
                segments.push(ThreadSegment { thread, operation, state, is_cancelled: false, release, deadline, used });
            }
        }
    }

    fn segment(&self, slot: Slot, job: &Job, thread: ChainThread) -> ThreadSegment {
        let started = self.started[slot.0 as usize].thread != NOBODY;
        ThreadSegment {
            thread,
            operation: job.id.operation,
            state: match job.state {
                JobState::Held => SegmentState::Held,
                JobState::Running => SegmentState::Running,
                // A body that is preempted within its lane.
                JobState::Ready => SegmentState::Waiting,
                JobState::Suspended => SegmentState::Blocked,
                JobState::Demoted => SegmentState::Demoted,
            },
            is_cancelled: job.cancelled,
            release: job.release,
            deadline: job.deadline,
            used: if started { self.consumed(slot) } else { Span::ZERO },
        }
    }

    /// Cancels a thread's segments, and remembers the thread.
    pub fn cancel_thread(
        &mut self,
        now: Instant,
        thread: ChainThread,
        by: Option<HostId>,
        wakeups: &mut PendingWakeups,
    ) -> CancelOutcome {
        if self.closed || now >= self.common.until {
            return CancelOutcome::Absent;
        }
        if self.dispatcher.next_number(thread.root).is_some_and(|next| thread.number >= next) {
            return CancelOutcome::NotBegun;
        }
        let Some(known) = self.threads.remember(thread, by, now) else { return CancelOutcome::Busy };
        // Reported once: then the thread has ended.
        let dropped = known.dropped.take();
        let is_segment = |crew: &Self, job: &Job| crew.threads.thread_of(job) == Some(thread);
        let first = self.dispatcher.jobs().find(|(_, job)| is_segment(self, job));
        let Some(found) = first.map(|(_, job)| job.id.operation) else {
            return dropped.map_or(CancelOutcome::Absent, CancelOutcome::Dropped);
        };
        // Where paths part, several segments may be here.
        let next = |crew: &Self| {
            let live = crew.dispatcher.jobs().find(|(_, job)| is_segment(crew, job) && !job.cancelled);
            live.map(|(_, job)| job.id.operation)
        };
        while let Some(operation) = next(self) {
            let job = JobId { operation, number: thread.number, leg: 0 };
            self.handle(now, Input::Cancel { job, chain: false });
        }
        self.release_payloads(wakeups);
        self.handle(now, Input::Tick);
        self.settle(now, wakeups);
        CancelOutcome::Cancelled(found)
    }
}
