//! What the release thread does when it is awake: completions from elsewhere, releases, overruns.

use std::sync::atomic::Ordering;
use std::time::Instant as WallClock;

use hyoshi_dispatch::{Overrun, State};
use hyoshi_model::{Instant, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{Crew, NOBODY};
use crate::common::Order;
use crate::link::Message;
use crate::posts::Posts;

/// A job that has almost used its worst case, and is kept from the CPU, is not looked at more often.
const LOOK_AGAIN: Span = Span::from_micros(20);

impl<S: Scheduled> Crew<S> {
    /// Time has come to `now`. Sets until when the release thread sleeps; true if the run ends.
    pub fn on_time(&mut self, now: Instant, posts: &mut Posts) -> bool {
        if self.closed {
            return true;
        }
        self.receive(now);
        let timer = self.effects.timer;
        if timer <= now && timer <= self.common.until && !self.closed {
            self.arrive_from_elsewhere(now);
            let began = WallClock::now();
            self.handle(now, Input::Tick);
            self.queueing.enqueued(self.effects.work.enqueued, Span::from_nanos(began.elapsed().as_nanos() as u64));
            self.observe(now);
        }
        if now >= self.common.until {
            self.close(now);
        }
        // Set by `settle` to what this processor needs next.
        self.armed = Instant::NEVER;
        self.settle(now, posts);
        posts.not(self.processor);
        self.armed = self.armed.min(self.common.until);
        self.closed
    }

    fn receive(&mut self, now: Instant) {
        let mut incoming = std::mem::take(&mut self.links.incoming);
        for link in &mut incoming {
            while let Ok(message) = link.pop() {
                let target = self.local_of[message.signal.to.index()] as usize;
                let carries = self.operations.get(target).is_some_and(|operation| operation.inbox.is_some());
                let room = !carries || self.in_flight.has_room();
                if room {
                    self.dispatcher.handle(now, Input::Signal(message.signal), &mut self.effects);
                }
                if room && !self.effects.lost {
                    if carries {
                        self.in_flight.push(message);
                    }
                } else {
                    self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.links.incoming = incoming;
    }

    /// The payloads of the completions that the coming tick delivers.
    fn arrive_from_elsewhere(&mut self, now: Instant) {
        while let Some(Message { signal, payload }) = self.in_flight.pop(now) {
            let local = self.local_of[signal.to.index()] as usize;
            // The tick begins epochs before it delivers what is due at the same instant.
            let epoch = self.common.system.epoch_at(signal.due).max(self.dispatcher.epoch());
            let enabled = self.common.system.setting(epoch, signal.to).enabled;
            if let Some(inbox) = self.operations.get_mut(local).and_then(|operation| operation.inbox.as_mut()) {
                inbox.arrive(usize::from(signal.position), signal.number, payload, enabled);
            }
        }
    }

    /// Jobs that may have used their worst case.
    fn observe(&mut self, now: Instant) {
        while let Some(slot) = self.dispatcher.overdue(now) {
            let seen = self.seen(slot);
            self.handle(now, Input::Observe { slot, consumed: seen });
            match self.effects.overrun {
                Overrun::Within => {}
                Overrun::Demote => self.demote(slot),
                Overrun::Stop => self.stop(slot, now),
            }
        }
    }

    /// What a job has used, as the dispatcher is told. One that does not run cannot be demoted now
    /// and is looked at again after its worst case; one just short of it, after a while. So is
    /// built-in work that takes its worst case and no more: it ends in this very moment.
    fn seen(&self, slot: Slot) -> Span {
        let job = self.dispatcher.job(slot);
        if job.state != State::Running {
            return Span::ZERO;
        }
        let consumed = self.consumed(slot);
        let built_in = !self.operations[self.local_of[job.id.operation.index()] as usize].has_body;
        let within = built_in && {
            let system = &self.common.system;
            let takes = &system.setting(usize::from(job.epoch), job.id.operation).takes;
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
        let job = self.dispatcher.job(slot).id;
        if self.operation_of(job).has_body {
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
        let (job, lane) = (self.dispatcher.job(slot).id, self.members[usize::from(thread)].lane);
        let another = !self.lanes[usize::from(lane)].idle.is_empty() || self.attended.contains(lane);
        if self.operation_of(job).has_body && another {
            self.members[usize::from(thread)].demoted = true;
            self.handle(now, Input::Suspend { slot });
            self.apply(thread);
        }
    }
}
