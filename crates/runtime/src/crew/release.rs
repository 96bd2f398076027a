//! What the release thread does when it is awake: completions from elsewhere, releases, overruns.

use std::sync::atomic::Ordering;
use std::time::Instant as WallClock;

use hyoshi_dispatch::{CompletionTransport, JobState, OverrunAction};
use hyoshi_model::{Instant, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{Crew, NOBODY};
use crate::common::Order;
use crate::link::LINK;
use crate::posts::Posts;

/// A job that has almost used its worst case, and is kept from the CPU, is not looked at more often.
const LOOK_AGAIN: Span = Span::from_micros(20);

impl<S: Scheduled> Crew<S> {
    /// Time has come to `now`. Sets until when the release thread sleeps; true if the run ends.
    pub fn on_time(&mut self, now: Instant, posts: &mut Posts) -> bool {
        if self.closed {
            return true;
        }
        let (until, began) = (now.min(self.common.until), WallClock::now());
        let received = self.receive(until, now, posts);
        if received.is_some() || self.effects.timer <= until {
            self.handle(now, Input::Tick);
            let enqueued = received.unwrap_or(0) + self.effects.work.enqueued;
            self.queueing.enqueued(enqueued, Span::from_nanos(began.elapsed().as_nanos() as u64));
            self.observe(now);
        }
        if now >= self.common.until {
            self.close(now, posts);
        }
        // Set by `settle` to what this processor needs next.
        self.armed = Instant::NEVER;
        self.settle(now, posts);
        posts.not(self.processor);
        self.armed = self.armed.min(self.common.until);
        self.closed
    }

    /// Completions have arrived from another host; the receiving thread runs above the lanes.
    pub fn on_arrival(&mut self, now: Instant, posts: &mut Posts) {
        let began = WallClock::now();
        if self.closed || now >= self.common.until {
            return;
        }
        if let Some(received) = self.receive(now, now, posts) {
            self.handle(now, Input::Tick);
            let enqueued = received + self.effects.work.enqueued;
            self.queueing.enqueued(enqueued, Span::from_nanos(began.elapsed().as_nanos() as u64));
        }
        self.settle(now, posts);
    }

    /// Completions that have arrived from other processors by `until`. If there are any, how many jobs entered queues.
    fn receive(&mut self, until: Instant, now: Instant, posts: &mut Posts) -> Option<u32> {
        let mut enqueued = None;
        // A section is short, however fast they come: the timer is due at once for the rest.
        for _ in 0..LINK {
            let Some((mut signal, payload)) = self.links.receive(until) else { break };
            signal.ticket = self.payloads.insert(payload);
            self.handle(now, Input::Signal(signal));
            if self.effects.lost {
                self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
            }
            self.release_payloads(posts);
            enqueued = Some(enqueued.unwrap_or(0) + self.effects.work.enqueued);
        }
        enqueued
    }

    /// Jobs that may have used their worst case.
    fn observe(&mut self, now: Instant) {
        while let Some(slot) = self.dispatcher.overdue(now) {
            let seen = self.seen(slot);
            self.handle(now, Input::Observe { slot, consumed: seen });
            match self.effects.overrun {
                OverrunAction::Within => {}
                OverrunAction::Demote => self.demote(slot),
                OverrunAction::Stop => self.stop(slot, now),
            }
        }
    }

    /// What a job has used, as the dispatcher is told. One that does not run cannot be demoted now
    /// and is looked at again after its worst case; one just short of it, after a while. So is
    /// built-in work that takes its worst case and no more: it ends in this very moment.
    fn seen(&self, slot: Slot) -> Span {
        let job = self.dispatcher.job(slot);
        if job.state != JobState::Running {
            return Span::ZERO;
        }
        let consumed = self.consumed(slot);
        let built_in = !self.operations[job.local as usize].has_body;
        let within = built_in && {
            let system = &self.common.system;
            let takes = &system.setting(usize::from(job.epoch), job.id.operation).execution_time;
            takes.draw(system.seed, job.id) <= job.wcet
        };
        if within || consumed < job.wcet { consumed.min(job.wcet.saturating_sub(LOOK_AGAIN)) } else { consumed }
    }

    #[cold]
    fn demote(&mut self, slot: Slot) {
        let thread = self.started[slot.0 as usize].thread;
        if thread == NOBODY {
            return;
        }
        if self.operation_of(slot).has_body {
            self.members[usize::from(thread)].demoted = true;
            self.apply(thread);
        } else {
            self.members[usize::from(thread)].signs.order(Order::Demote);
        }
    }

    /// Built-in work ends when it sees the order. A user's body is asked to return, below the
    /// lanes; its lane goes on if it has another thread.
    #[cold]
    fn stop(&mut self, slot: Slot, now: Instant) {
        let thread = self.started[slot.0 as usize].thread;
        if thread == NOBODY {
            return;
        }
        self.members[usize::from(thread)].signs.order(Order::Stop);
        let lane = self.members[usize::from(thread)].lane;
        let another = !self.lanes[usize::from(lane)].idle.is_empty() || self.attended.contains(lane);
        if self.operation_of(slot).has_body && another {
            self.members[usize::from(thread)].demoted = true;
            self.handle(now, Input::Suspend { slot });
            self.apply(thread);
        }
    }
}
