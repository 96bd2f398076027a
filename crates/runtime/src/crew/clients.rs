//! Clients of objects that join and leave the feedback loop here, and the rates that the loop sets.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::ChangedRegion;
use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{AdmissionOutcome, Input, RatedClient};
use rtrb::Producer;

use super::Crew;
use crate::client_rates::JoinLoopError;
use crate::wakeups::PendingWakeups;

impl<S: Scheduled> Crew<S> {
    /// A client joins the loop, if it accepts this claim. Then the client `leaving` leaves before.
    pub fn join_client(
        &mut self,
        now: Instant,
        (claim, leaving): (&RatedClient, Option<u16>),
        wakeups: &mut PendingWakeups,
    ) -> Result<(u16, RatedClient), JoinLoopError> {
        if self.closed || now >= self.common.until {
            return Err(JoinLoopError::Idle);
        }
        let (client, task) = self.dispatcher.place_client(claim, leaving)?;
        leaving.into_iter().for_each(|leaving| self.leave_client(now, leaving, wakeups));
        self.handle(now, Input::Join { client, task });
        self.set_rates(now, wakeups);
        Ok((client, task))
    }

    /// A client leaves the loop.
    pub fn leave_client(&mut self, now: Instant, client: u16, wakeups: &mut PendingWakeups) {
        let input = Input::Leave { client };
        let system = self.common.system.clone();
        if self.closed || now >= self.common.until || !self.dispatcher.accepts(&system, now, &input) {
            return;
        }
        self.handle(now, input);
        self.common.client_periods[self.processor.index()].set(client, Span::ZERO);
        self.set_rates(now, wakeups);
    }

    /// A sampling period has ended. Returns the utilisation for the coordinator of the processor's group.
    pub fn on_sample(&mut self, now: Instant, utilisation: Option<u32>, wakeups: &mut PendingWakeups) -> Option<u32> {
        if self.closed || now >= self.common.until {
            return None;
        }
        self.handle(now, Input::Sample { utilisation });
        let sampled = self.effects.sampled;
        self.set_rates(now, wakeups);
        self.move_operations(now, wakeups);
        sampled
    }

    /// An operation on standby is admitted or withdrawn, if the loop accepts this input. `None` after the run.
    pub fn request_admission(
        &mut self,
        now: Instant,
        input: Input,
        wakeups: &mut PendingWakeups,
    ) -> Option<AdmissionOutcome> {
        if self.closed || now >= self.common.until || !self.dispatcher.accepts(&self.common.system, now, &input) {
            return None;
        }
        self.handle(now, input);
        let outcome = self.effects.admission;
        self.set_rates(now, wakeups);
        outcome
    }

    /// A command sets a condition or a region of contracts. False after the run.
    pub fn change_contracts(&mut self, now: Instant, input: Input, wakeups: &mut PendingWakeups) -> bool {
        if self.closed || now >= self.common.until || !self.dispatcher.accepts(&self.common.system, now, &input) {
            return false;
        }
        self.handle(now, input);
        self.set_rates(now, wakeups);
        true
    }

    /// Changes of regions go to this ring, for the thread that executes their actions.
    pub fn report_regions(&mut self, ring: Producer<ChangedRegion>) {
        self.regions = Some(ring);
    }

    /// Passes on changes of regions.
    #[cold]
    pub fn pass_regions(&mut self, wakeups: &mut PendingWakeups) {
        let changed = self.effects.regions.drain(..);
        let Some(ring) = &mut self.regions else { return };
        // Those of other contracts come from their own processors, unless another process runs these.
        let evaluated_on =
            |change: &ChangedRegion| self.common.system.contracts[usize::from(change.contract)].processor;
        let passed = |on: ProcessorId| on == self.processor || !self.common.runs(on);
        for change in changed.filter(|change| passed(evaluated_on(change))) {
            if ring.push(change).is_err() {
                self.common.lost_regions.fetch_add(1, Ordering::Relaxed);
            }
        }
        wakeups.wake_actions();
    }

    /// Ranks the operations, and passes on the loop's new rates.
    fn set_rates(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        self.handle(now, Input::Tick);
        self.settle(now, wakeups);
    }

    /// Passes on new rates that belong to clients or to other processors.
    #[cold]
    pub fn pass_rates(&mut self, wakeups: &mut PendingWakeups) {
        for (to, operation, period) in self.effects.retimed.drain(..) {
            if self.common.rates.set(to, operation, period) {
                wakeups.wake_release(to);
            }
        }
        let periods = &self.common.client_periods[self.processor.index()];
        for (client, period) in self.effects.paced.drain(..) {
            periods.set(client, period.max(Span::from_nanos(1)));
            wakeups.wake_pacer(self.processor);
        }
    }
}
