//! Operations with several processors: they release jobs on one of them, and move when their processor is saturated
//! (see [`hyoshi_control::feedback::reallocation`]).
//!
//! ```text
//!            Depart                  last job has ended                Arrive, on the other processor
//!   Here ──────────────► Departing ─────────────────────► Away ──────────────────────────────────────► Here
//! ```
//!
//! Numbers and release times of jobs continue. Releases that were due on the way happen on arrival, so no job is lost.

use hyoshi_control::feedback::ProcessorLoad;
use hyoshi_model::{Instant, OperationId, at_level};
use hyoshi_trace::Probe;

use super::Dispatcher;
use crate::effects::{Departure, Effects};
use crate::operation::OperationState;

/// Whether an operation releases jobs on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    /// Earlier jobs have not ended.
    Departing,
    Away,
}

impl<P: Probe> Dispatcher<P> {
    /// Whether an operation can leave this processor.
    pub(super) fn may_depart(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| {
            let one = &self.operations[local as usize];
            one.moves && one.presence == Presence::Here
        })
    }

    /// Whether an operation can arrive at this processor.
    pub(super) fn may_arrive(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| self.operations[local as usize].presence == Presence::Away)
    }

    pub(super) fn depart(&mut self, now: Instant, id: OperationId, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id).filter(|_| self.may_depart(id)) else { return };
        self.operations[local as usize].presence = Presence::Departing;
        self.departing += 1;
    }

    /// Operations whose last job here has ended are away.
    #[cold]
    pub(super) fn finish_departures(&mut self, effects: &mut Effects) {
        let ended = |one: &&mut OperationState| one.presence == Presence::Departing && one.unfinished == 0;
        for one in self.operations.iter_mut().filter(ended) {
            one.presence = Presence::Away;
            self.departing -= 1;
            effects.departed.push(Departure { operation: one.id, nominal: one.nominal, number: one.next_number });
        }
    }

    pub(super) fn arrive(
        &mut self,
        now: Instant,
        (id, nominal, number): (OperationId, Instant, u64),
        effects: &mut Effects,
    ) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id).filter(|_| self.may_arrive(id)) else { return };
        let one = &mut self.operations[local as usize];
        (one.presence, one.nominal, one.next_number) = (Presence::Here, nominal, number);
        // It begins at its lowest level; its rate was the lowest.
        one.service_level = 0;
        one.owes_skip = None;
        if !core::mem::replace(&mut one.timer_is_set, true) {
            let due = one.next_due(self.seed, &self.late);
            self.arrivals.set(due, local);
        }
    }

    /// Corrects the first timer, of an operation that moves. False if it releases nothing now.
    pub(super) fn is_due(&mut self, due: Instant, local: u32) -> bool {
        let one = &mut self.operations[local as usize];
        if one.presence != Presence::Here {
            one.timer_is_set = false;
            self.arrivals.remove_first();
            return false;
        }
        // The timer of an earlier stay.
        let exact = one.next_due(self.seed, &self.late);
        if due < exact {
            self.arrivals.replace_first(exact);
        }
        due >= exact
    }

    /// The utilisation of an operation here at its lowest rate and level, as a part of the CPU, by the measured
    /// execution times of its jobs. `None` if too few have ended.
    pub fn expected_utilisation(&self, id: OperationId) -> Option<f64> {
        let local = self.local(id)?;
        let ratio = self.feedback.as_ref()?.times[local as usize].ratio()?;
        Some(ratio * self.operations[local as usize].declared_utilisation(true))
    }

    /// The load of this processor in the sampling period that has just ended. `None` if it was not measured, or if the
    /// processor has no loop with a law of its own.
    pub fn load(&self) -> Option<ProcessorLoad> {
        let feedback = self.feedback.as_ref()?;
        let (law, measured) = (feedback.law.as_ref()?, feedback.measured?);
        let (cap, set_point) = (feedback.cap, law.law().settings().utilisation.as_millionths());
        let of_loop = |local: usize| feedback.adapted.iter().any(|one| one.here.contains(&(local as u32)));
        let others = self
            .operations
            .iter()
            .enumerate()
            .filter(|(local, one)| one.is_active() && !of_loop(*local) && !feedback.clients.serve(one.id));
        let others: f64 = others.map(|(_, one)| one.declared_utilisation(false)).sum();
        Some(ProcessorLoad {
            utilisation: f64::from(measured) / 1e6 * cap,
            set_point: set_point as f64 / 1e6 * cap,
            declared: others + feedback.before,
            least: others + law.range()[0],
        })
    }
}

impl OperationState {
    /// Whether it releases jobs here, in the present epoch.
    pub fn is_active(&self) -> bool {
        self.enabled && self.presence == Presence::Here
    }

    /// The declared utilisation at the present rate and level, or at the lowest ones.
    fn declared_utilisation(&self, at_lowest: bool) -> f64 {
        let (level, period) =
            if at_lowest { (0, self.range.1.max(self.period)) } else { (self.service_level, self.period) };
        let wcet = at_level(&self.levels, level.into(), self.wcet);
        let work = wcet.as_nanos() as f64 * f64::from(self.legs);
        work / period.as_nanos().max(1) as f64
    }
}
