//! Queries of a dispatcher's state: they change no decision.

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, ResourceId, Span};
use hyoshi_trace::{Probe, Slot, Ticket};

use super::Dispatcher;
use crate::cap::{CapEnforcer, OPEN};
use crate::hard_cap::HardCapEnforcer;
use crate::job::Job;
use crate::lane::{LaneMask, LaneState};
use crate::operation::Successor;

impl<P: Probe> Dispatcher<P> {
    /// Index of the present region.
    pub fn region(&self) -> usize {
        self.epoch
    }

    /// True while the region switches the processor's host off.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// The number of jobs that were lost when the host was switched off.
    pub fn lost_jobs(&self) -> u64 {
        self.lost_jobs
    }

    /// When the next `Tick` is due, or an `Observe` of what is overdue.
    #[inline]
    pub(super) fn next_timer(&self) -> Instant {
        let timers = self.arrivals.next().min(self.guards.next()).min(self.timeouts.next());
        let first = timers.min(self.next_epoch).min(self.watch_next);
        let first = self.contracts.as_ref().map_or(first, |contracts| first.min(contracts.next()));
        let first = self.cap.as_ref().map_or(first, |cap| first.min(cap.timer()));
        self.hard_cap.as_ref().map_or(first, |cap| first.min(cap.timer()))
    }

    /// Lanes with a queued job that neither cap keeps from starting.
    #[inline]
    pub(super) fn may_start(&self) -> LaneMask {
        if self.hard_paused() {
            return LaneMask::EMPTY;
        }
        self.waiting.0 | (self.waiting.1 & LaneMask::before(self.gate()))
    }

    /// Lanes that a cap moves below ordinary threads: gated ones without critical work, and those that the hard
    /// cap pauses.
    #[inline]
    pub(super) fn paused(&self) -> LaneMask {
        self.fully_paused() | !LaneMask::before(self.gate()) & !self.critical_lanes
    }

    /// Lanes that the hard cap pauses, ceilings included: all except those with a job that held a resource at its
    /// start.
    #[inline]
    pub(super) fn fully_paused(&self) -> LaneMask {
        if self.hard_paused() { !self.spared } else { LaneMask::EMPTY }
    }

    #[inline]
    pub(super) fn hard_paused(&self) -> bool {
        self.hard_cap.as_ref().is_some_and(HardCapEnforcer::paused)
    }

    /// True if an operation here uses a declared resource.
    #[inline]
    pub fn has_resources(&self) -> bool {
        // It has room for every resource that live jobs can hold.
        self.held.capacity() > 0
    }

    /// True if a job holds a resource.
    pub fn holds(&self, slot: Slot, resource: ResourceId) -> bool {
        self.held.contains(&(slot, resource))
    }

    /// How often the hard cap has paused the lanes, and for how long in total.
    pub fn hard_pauses(&self, now: Instant) -> (u64, Span) {
        self.hard_cap.as_ref().map_or((0, Span::ZERO), |cap| cap.pauses(now))
    }

    /// Operations that are no longer critical because overload has lasted.
    pub fn relegated(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.operations.iter().filter(|operation| operation.relegated).map(|operation| operation.id)
    }

    /// The job in a slot.
    #[inline]
    pub fn job(&self, slot: Slot) -> &Job {
        self.jobs.get(slot)
    }

    /// The tickets of the completions that triggered a job, by position of the predecessor; empty if no predecessor has
    /// a payload.
    pub fn tickets(&self, slot: Slot) -> &[Option<Ticket>] {
        let job = self.jobs.get(slot);
        self.operations[job.local as usize].tickets.as_ref().map_or(&[], |tickets| tickets.of(job.tickets))
    }

    /// The job in a slot, if there is one.
    pub fn live_job(&self, slot: Slot) -> Option<&Job> {
        self.jobs.is_live(slot).then(|| self.jobs.get(slot))
    }

    /// Live jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (Slot, &Job)> {
        self.jobs.iter()
    }

    /// A job that waits in its lane's queue, usually that of `lane`.
    pub fn waiting_job(&self, id: JobId, lane: u8) -> Option<&Job> {
        let first = self.lanes.get(usize::from(lane)).into_iter();
        let waiting = first.chain(&self.lanes).flat_map(LaneState::waiting);
        waiting.map(|(_, slot)| self.jobs.get(slot)).find(|job| job.id == id)
    }

    /// How many jobs wait in queues.
    pub fn waiting(&self) -> usize {
        self.lanes.iter().flat_map(LaneState::waiting).count()
    }

    /// The lanes, most urgent first.
    pub fn lanes(&self) -> &[LaneState] {
        &self.lanes
    }

    /// The best waiting job of a lane; resource ceilings and a hard pause may keep it from running.
    #[inline]
    pub fn best(&self, lane: u8) -> Option<Slot> {
        self.lanes[usize::from(lane)].best(lane >= self.gate()).map(|(_, slot)| slot)
    }

    /// The first lane that the cap gates; [`OPEN`] if none. Lanes from there on without critical work must not compete
    /// with ordinary threads.
    #[inline]
    pub(super) fn gate(&self) -> u8 {
        match &self.hard_cap {
            Some(hard_cap) if hard_cap.gated() => 0,
            _ => self.cap.as_ref().map_or(OPEN, CapEnforcer::gate),
        }
    }

    /// How many jobs of this processor the completion of a job triggers. If legs remain, it is the next leg. Otherwise it
    /// is one job of each successor here that is chosen or needs no choice, even if it must wait.
    pub fn triggers(&self, slot: Slot) -> u32 {
        let job = self.jobs.get(slot);
        if job.id.leg + 1 < job.legs {
            return 1;
        }
        let successors = self.operations[job.local as usize].successors.iter();
        let here = |one: &&Successor| matches!(one, Successor::Here { .. }) && one.applies(job.hops);
        successors.filter(here).count() as u32
    }

    /// The number of the next job of an operation with releases of its own; `None` if it is on another processor.
    pub fn next_number(&self, id: OperationId) -> Option<u64> {
        self.local(id).map(|local| self.operations[local as usize].next_number)
    }

    /// The strategy in force: 0 for the first, 1 for the second.
    #[inline]
    pub fn strategy_in_force(&self) -> usize {
        self.switching.as_ref().map_or(0, |switching| usize::from(switching.second()))
    }

    /// The processor.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// The level at which a job runs: its own, or the highest ceiling of its resources.
    pub fn effective_level(&self, slot: Slot) -> u8 {
        let held = self.held.iter().filter(|(holder, _)| *holder == slot);
        let ceilings = held.filter_map(|(_, resource)| self.ceilings[resource.index()]);
        ceilings.fold(self.jobs.get(slot).level, u8::min)
    }

    /// The resource with the most urgent ceiling among those that a job holds.
    pub fn highest_held(&self, slot: Slot) -> Option<ResourceId> {
        let held = self.held.iter().filter(|(holder, _)| *holder == slot);
        held.map(|(_, resource)| *resource).min_by_key(|resource| self.ceilings[resource.index()])
    }

    /// The probe, at the end of the dispatcher's life.
    pub fn into_probe(self) -> P {
        self.probe
    }

    /// The probe.
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The probe.
    pub fn probe_mut(&mut self) -> &mut P {
        &mut self.probe
    }
}
