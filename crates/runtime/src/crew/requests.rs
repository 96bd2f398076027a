//! Requests: their conversion to jobs, and the choice of the reading thread.
//!
//! ```text
//!               no thread of the lane is busy or reads              something was read, or posted
//!   (no reader) ─────────────────────────────────────► reads ──────────────────────────────────► attends its lane
//! ```

use std::sync::Arc;

use hyoshi_dispatch::levels_of;
use hyoshi_model::Instant;
use hyoshi_os::{Scheduled, ThreadPolicy};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Input, JobRequest, Signal, Ticket};

use super::{Crew, Returned};
use crate::payload::Payload;
use crate::remote::Rejected;
use crate::requests::ArrivedRequest;
use crate::wakeups::PendingWakeups;

impl<S: Scheduled> Crew<S> {
    /// Starts reading requests, by threads of the most urgent lane with a called operation. Returns that lane; `None`
    /// if no operation is called.
    pub fn serve_requests(&mut self, plan: &ProcessorPlan) -> Option<u8> {
        let serves = |lane: &usize| {
            let levels = &self.dispatcher.lanes()[*lane].levels;
            let served = |local: usize| levels_of(plan, local).iter().any(|level| levels.contains(&level));
            let mut operations = self.operations.iter().enumerate();
            operations.any(|(local, operation)| {
                (self.dispatcher.can_invoke(operation.id) || self.common.served[operation.id.index()]) && served(local)
            })
        };
        let lane = (0..self.lanes.len()).find(serves)? as u8;
        self.reads = Some(lane);
        Some(lane)
    }

    /// True if thread `me` now reads requests, because no other thread does. A thread below its lane does not read: if
    /// preempted, it would block other readers.
    pub fn may_read(&mut self, me: u16) -> bool {
        let member = &self.members[usize::from(me)];
        let at_its_lane =
            !member.fifo || member.policy == ThreadPolicy::Fifo(self.lanes[usize::from(member.lane)].priority);
        let reads = !self.closed && !self.has_reader && at_its_lane && self.reads == Some(member.lane);
        self.has_reader |= reads;
        reads
    }

    /// The same after a body has returned: the time for reading is not its job's.
    pub fn may_read_after(&mut self, me: u16, returned: &Returned) -> bool {
        let reads = self.may_read(me);
        if reads {
            self.started[returned.slot.0 as usize].ended = Some(returned.cpu);
        }
        reads
    }

    /// The thread stops reading.
    pub fn stop_reading(&mut self) {
        self.has_reader = false;
    }

    /// Accepts requests that thread `me` has read. It stops reading; if it was idle, it serves its lane.
    pub fn accept_requests(
        &mut self,
        me: u16,
        now: Instant,
        arrived: &mut Vec<ArrivedRequest>,
        wakeups: &mut PendingWakeups,
    ) {
        self.has_reader = false;
        let lane = self.members[usize::from(me)].lane;
        if self.members[usize::from(me)].idle {
            self.members[usize::from(me)].idle = false;
            self.lanes[usize::from(lane)].idle.retain(|thread| *thread != me);
            self.attended.insert(lane);
        }
        for request in arrived.drain(..) {
            let call = request.call;
            let ticket = if self.closed { None } else { self.payloads.insert_call(call) };
            let Some(ticket) = ticket else {
                wakeups.refuse(call);
                continue;
            };
            match request.completion {
                Some(completion) => {
                    let signal = Signal { due: now, ticket: Some(ticket), ..completion };
                    self.handle(now, Input::Signal(signal));
                }
                None => self.invoke(now, request, Some(ticket)),
            }
            self.release_payloads(wakeups);
        }
        if !self.closed {
            self.handle(now, Input::Tick);
        }
        self.settle(now, wakeups);
    }

    /// A publication from outside releases a job of its supplier.
    pub fn publish(
        &mut self,
        now: Instant,
        request: ArrivedRequest,
        payload: Option<Arc<Payload>>,
        wakeups: &mut PendingWakeups,
    ) -> Result<(), Rejected> {
        if self.closed {
            return Err(Rejected::Idle);
        }
        let has_payload = payload.is_some();
        let ticket = self.payloads.insert(payload);
        if has_payload && ticket.is_none() {
            return Err(Rejected::Full);
        }
        self.invoke(now, request, ticket);
        let lost = self.effects.lost;
        self.release_payloads(wakeups);
        self.handle(now, Input::Tick);
        self.settle(now, wakeups);
        if lost { Err(Rejected::Full) } else { Ok(()) }
    }

    fn invoke(&mut self, now: Instant, arrived: ArrivedRequest, ticket: Option<Ticket>) {
        let declared = self.common.system.operation(arrived.operation);
        let setting = self.common.system.setting(self.dispatcher.region(), arrived.operation);
        let earliest = arrived.counts_from(now).saturating_add(setting.deadline.span());
        let request = JobRequest {
            operation: arrived.operation,
            // Not in the future, whatever the other clock says.
            origin: arrived.origin.map_or(now, |origin| origin.min(now)),
            sent: arrived.sent.map_or(now, |sent| sent.min(now)),
            // A caller cannot be more urgent than the file says: the proof of the other jobs relies on that.
            deadline: arrived.deadline.map_or(earliest, |deadline| deadline.max(earliest)),
            importance: arrived.importance.map_or(declared.importance, |asked| asked.min(declared.importance)),
            critical: arrived.critical.unwrap_or(declared.critical),
            ticket,
        };
        self.handle(now, Input::Invoke(request));
    }

    /// If the reading lane is idle and no thread reads, wakes a thread for it.
    #[cold]
    pub(super) fn find_reader(&mut self, lane: u8, wakeups: &mut PendingWakeups) {
        if let Some(thread) = self.lanes[usize::from(lane)].idle.last() {
            wakeups.wake_thread(*thread, lane);
        }
    }
}
