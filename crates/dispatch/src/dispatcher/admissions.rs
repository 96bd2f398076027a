//! Operations on standby: the feedback loop here admits them while the system runs, by the rule for clients of objects.
//!
//! ```text
//!         admitted                withdrawn                 the last job has ended
//!   Away ──────────► Here ──────────────────► Departing ────────────────────────────► Away
//!                      ▲       admitted           │
//!                      └──────────────────────────┘
//! ```
//!
//! An admission keeps the total of the loop, so the rates of other tasks fall at once. They regain the total at the first
//! sample after the last job. Numbers of jobs continue.

use hyoshi_model::{Instant, OperationId};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, DispatchDecision, ExcessLoad, Probe};

use super::Dispatcher;
use super::feedback::{AdaptedHere, RateLoop};
use super::moves::Presence;
use crate::effects::Effects;
use crate::operation::{OperationState, Residence};

impl RateLoop {
    /// The task of a root here.
    fn place_of(&self, root: OperationId) -> Option<usize> {
        self.adapted.iter().position(|one| one.root == root)
    }

    /// Ends the tasks of withdrawn operations that have no jobs any more. True if there were some.
    pub fn end_withdrawn(&mut self, operations: &[OperationState]) -> bool {
        let Some(law) = &mut self.law else { return false };
        let mut any = false;
        for (place, one) in self.adapted.iter_mut().enumerate().filter(|(_, one)| one.is_admitted) {
            if operations[one.here[0] as usize].presence == Presence::Away {
                let idle = one.task(operations);
                (one.is_admitted, any) = (false, true);
                law.end(place, idle);
            }
        }
        any
    }
}

impl AdaptedHere {
    /// The declared utilisation at the lowest rate, in parts per million of the CPU.
    fn least_ppm(&self, operations: &[OperationState]) -> u64 {
        let here = self.here.iter().map(|local| operations[*local as usize].declared_utilisation(true));
        here.map(|part| (part * 1e6) as u64).fold(0, u64::saturating_add)
    }
}

impl<P: Probe> Dispatcher<P> {
    /// Whether an operation is on standby here.
    pub(super) fn is_on_standby(&self, id: OperationId) -> bool {
        let on_standby = |local| self.operations[local as usize].residence == Residence::Standby { root: local };
        self.local(id).is_some_and(on_standby)
    }

    pub(super) fn admit_now(&mut self, now: Instant, id: OperationId, effects: &mut Effects) {
        self.advance_before(now, effects);
        effects.admission = self.admit_operation(now, (id, now), effects);
    }

    pub(super) fn withdraw_now(&mut self, now: Instant, id: OperationId, effects: &mut Effects) {
        self.advance_before(now, effects);
        effects.admission = self.withdraw_operation(now, id);
    }

    /// The requests of an epoch, which begins at `at`.
    pub(super) fn begin_admissions(&mut self, now: Instant, (index, at): (usize, Instant), effects: &mut Effects) {
        let settings = alloc::sync::Arc::clone(&self.settings);
        for id in &settings.admissions[index].withdraw {
            self.withdraw_operation(now, *id);
        }
        for id in &settings.admissions[index].admit {
            self.admit_operation(now, (*id, at), effects);
        }
    }

    /// Whether the loop here can admit an operation. It can if the declared load at the lowest rates of all tasks, with a
    /// client in each place, is at most the set point.
    fn admission(&self, local: u32, feedback: &RateLoop, one: &AdaptedHere) -> Result<(), AdmissionRefusal> {
        let operation = &self.operations[local as usize];
        if operation.presence == Presence::Here {
            return Err(AdmissionRefusal::Admitted);
        }
        if self.is_off() || !operation.enabled {
            return Err(AdmissionRefusal::Disabled);
        }
        let (others, most_ppm) = feedback.clients.least_and_most_load(self.region(), &self.operations);
        let least_ppm = others.saturating_add(one.least_ppm(&self.operations));
        match least_ppm > most_ppm {
            true => Err(AdmissionRefusal::Load(ExcessLoad { least_ppm, most_ppm })),
            false => Ok(()),
        }
    }

    /// Admits an operation if the loop can. Its first period begins at `at`, or when its last one has ended.
    pub(super) fn admit_operation(
        &mut self,
        now: Instant,
        (id, at): (OperationId, Instant),
        effects: &mut Effects,
    ) -> Option<AdmissionOutcome> {
        let outcome = self.decide_admission(now, (id, at))?;
        self.set_rates_of_admitted(now, effects);
        Some(outcome)
    }

    /// The rates of all tasks after admissions.
    pub(super) fn set_rates_of_admitted(&mut self, now: Instant, effects: &mut Effects) {
        if let Some(feedback) = self.feedback.take() {
            self.set_rates(now, feedback, effects);
            self.reserve();
        }
    }

    /// As [`admit_operation`](Self::admit_operation), but the rates of all tasks remain to be set.
    pub(super) fn decide_admission(
        &mut self,
        now: Instant,
        (id, at): (OperationId, Instant),
    ) -> Option<AdmissionOutcome> {
        let local = self.local(id).filter(|_| self.is_on_standby(id))?;
        let place = self.feedback.as_ref()?.place_of(id)?;
        let mut feedback = self.feedback.take()?;
        feedback.end_withdrawn(&self.operations);
        let outcome = match self.admission(local, &feedback, &feedback.adapted[place]) {
            Ok(()) => self.begin_task(&mut feedback, place, (local, at)),
            Err(refusal) => Some(AdmissionOutcome::Refused(refusal)),
        };
        if let Some(outcome) = outcome {
            self.decision(now, DispatchDecision::Admission { operation: id, outcome });
        }
        self.feedback = Some(feedback);
        outcome
    }

    /// The task at `place` of the loop begins, with the root at `local`.
    fn begin_task(
        &mut self,
        feedback: &mut RateLoop,
        place: usize,
        (local, at): (u32, Instant),
    ) -> Option<AdmissionOutcome> {
        let RateLoop { law, adapted, .. } = feedback;
        let (law, one) = (law.as_mut()?, &mut adapted[place]);
        let task = one.task_here(&self.operations);
        // If it is departing, the law still counts it.
        if !one.is_admitted {
            law.begin(place, task, law.fair_period(&task).unwrap_or(task.longest())).ok()?;
            one.is_admitted = true;
        }
        self.departing -= u32::from(self.operations[local as usize].presence == Presence::Departing);
        one.here.iter().for_each(|part| self.operations[*part as usize].presence = Presence::Here);
        let root = &mut self.operations[local as usize];
        root.nominal = root.nominal.max(at);
        self.is_here(local);
        let period = law.periods()[place];
        Some(AdmissionOutcome::Admitted { period, highest: period == task.shortest() })
    }

    /// An admitted operation releases no more jobs.
    pub(super) fn withdraw_operation(&mut self, now: Instant, id: OperationId) -> Option<AdmissionOutcome> {
        let local = self.local(id).filter(|_| self.is_on_standby(id))?;
        let outcome = match self.operations[local as usize].presence {
            Presence::Here => {
                let parts = self.operations.iter_mut();
                parts.filter(|part| part.residence == Residence::Standby { root: local }).for_each(|part| {
                    part.presence = Presence::Departing;
                });
                self.departing += 1;
                AdmissionOutcome::Withdrawn
            }
            Presence::Departing | Presence::Away => AdmissionOutcome::Refused(AdmissionRefusal::Withdrawn),
        };
        self.decision(now, DispatchDecision::Admission { operation: id, outcome });
        Some(outcome)
    }

    /// If the jobs of all parts of a withdrawn operation have ended, it is away.
    pub(super) fn finish_withdrawal(&mut self, root: u32) {
        let is_part = |part: &OperationState| part.residence == Residence::Standby { root };
        if self.operations.iter().filter(|part| is_part(part)).all(|part| part.unfinished == 0) {
            self.operations.iter_mut().filter(|part| is_part(part)).for_each(|part| part.presence = Presence::Away);
            self.departing -= 1;
        }
    }
}
