//! The work of the release thread: completions from other processors, releases, overruns.

use std::sync::atomic::Ordering;
use std::time::Instant as WallClock;

use hyoshi_dispatch::{CompletionTransport, JobState, OverrunAction};
use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{Crew, NOBODY};
use crate::common::BodyOrder;
use crate::link::LINK;
use crate::wakeups::PendingWakeups;

/// The shortest time between two observations of a job close to its worst case.
const LOOK_AGAIN: Span = Span::from_micros(20);

impl<S: Scheduled> Crew<S> {
    /// Handles everything due until `now`, and sets the end of the release thread's sleep. True if the run has ended.
    pub fn on_time(&mut self, now: Instant, wakeups: &mut PendingWakeups) -> bool {
        if self.closed {
            return true;
        }
        let (until, began) = (now.min(self.common.until), WallClock::now());
        let received = self.receive(until, now, wakeups);
        let retimed = self.take_rates(now) | self.take_contract_updates(now);
        let arrived = self.take_arrivals(now);
        if received.is_some() || retimed || arrived || self.effects.timer <= until {
            self.handle(now, Input::Tick);
            let enqueued = received.unwrap_or(0) + self.effects.work.enqueued;
            self.queueing.enqueued(enqueued, Span::from_nanos(began.elapsed().as_nanos() as u64));
            self.observe(now);
        }
        if now >= self.common.until {
            self.close(now, wakeups);
        }
        // `settle` sets it to the next time at which this processor must act.
        self.armed = Instant::NEVER;
        self.settle(now, wakeups);
        wakeups.omit_release(self.processor);
        self.armed = self.armed.min(self.common.until);
        self.closed
    }

    /// Handles completions that arrived from another host. The calling thread runs above the lanes.
    pub fn on_arrival(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        let began = WallClock::now();
        if self.closed || now >= self.common.until {
            return;
        }
        if let Some(received) = self.receive(now, now, wakeups) {
            self.handle(now, Input::Tick);
            let enqueued = received + self.effects.work.enqueued;
            self.queueing.enqueued(enqueued, Span::from_nanos(began.elapsed().as_nanos() as u64));
        }
        self.settle(now, wakeups);
    }

    /// The period of the feedback loop here.
    pub fn sampling_period(&self) -> Option<Span> {
        self.dispatcher.sampling_period()
    }

    /// The present periods that feedback loops have set here, by root.
    pub fn adapted_periods(&self) -> Vec<(OperationId, Span)> {
        self.dispatcher.adapted_periods().collect()
    }

    /// Takes the rates that other processors or a coordinator have set here. True if there were some.
    fn take_rates(&mut self, now: Instant) -> bool {
        // Shared with `handle`, which needs the crew.
        let common = std::sync::Arc::clone(&self.common);
        common.rates.take(self.processor, |operation, period| self.handle(now, Input::Adapt { operation, period }))
    }

    /// Takes the values of contracts that other processors have sent. True if there were some.
    fn take_contract_updates(&mut self, now: Instant) -> bool {
        let common = std::sync::Arc::clone(&self.common);
        common.contract_updates.take(self.processor, |route, value| {
            if self.dispatcher.needs_contract_update(route, value) {
                self.handle(now, Input::ContractUpdate { route, value });
            }
        })
    }

    /// Suspends or resumes a triggered operation.
    pub fn suspend_triggers(&mut self, now: Instant, operation: OperationId, on: bool, wakeups: &mut PendingWakeups) {
        if self.closed || now >= self.common.until {
            return;
        }
        self.handle(now, Input::SuspendTriggers { operation, on });
        self.release_payloads(wakeups);
        self.handle(now, Input::Tick);
        self.settle(now, wakeups);
    }

    /// Receives completions of other processors that arrived until `until`. Returns the number of enqueued jobs if
    /// there were any.
    fn receive(&mut self, until: Instant, now: Instant, wakeups: &mut PendingWakeups) -> Option<u32> {
        let mut enqueued = None;
        // A section is short, whatever the rate: the timer is due at once for the rest.
        for _ in 0..LINK {
            let Some((mut signal, payload)) = self.links.receive(until) else { break };
            if self.drops_hop(signal.to, signal.number, now) {
                self.handle(now, Input::DropHop(signal));
                continue;
            }
            signal.ticket = self.payloads.insert(payload);
            self.handle(now, Input::Signal(signal));
            if self.effects.lost {
                self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
            }
            self.release_payloads(wakeups);
            enqueued = Some(enqueued.unwrap_or(0) + self.effects.work.enqueued);
        }
        enqueued
    }

    /// Observes jobs that may have used their worst case, or reached the deadline at which they are stopped.
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

    /// The CPU time of a job for the dispatcher. A job that does not run cannot be demoted now and is observed again
    /// after its worst case. A job just short of it is observed again soon, and so is built-in work that uses exactly
    /// its worst case: it is about to end.
    fn seen(&self, slot: Slot) -> Span {
        let job = self.dispatcher.job(slot);
        if job.state != JobState::Running {
            return Span::ZERO;
        }
        let consumed = self.consumed(slot);
        let built_in = !self.operations[job.local as usize].has_body;
        let takes = || self.common.system.execution_time(job.epoch.into(), job.id, job.service_level);
        let within = built_in && takes() <= job.wcet;
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
            self.members[usize::from(thread)].control.order(BodyOrder::Demote);
        }
    }

    /// Built-in work ends at the order. A user's body should return, below the lanes; its lane continues if it has
    /// another thread. A job that is preempted or blocks ends when it continues.
    #[cold]
    fn stop(&mut self, slot: Slot, now: Instant) {
        let thread = self.started[slot.0 as usize].thread;
        if thread == NOBODY {
            return;
        }
        self.members[usize::from(thread)].control.order(BodyOrder::Stop);
        let lane = self.members[usize::from(thread)].lane;
        let another = self.has_another(lane, thread);
        let runs = self.dispatcher.job(slot).state == JobState::Running;
        if self.operation_of(slot).has_body && another && runs {
            self.members[usize::from(thread)].demoted = true;
            self.handle(now, Input::Suspend { slot });
            self.apply(thread);
        }
    }
}
