//! Admissions of operations on standby by contracts: requested once, when a region begins.

use alloc::vec::Vec;

use hyoshi_model::{ContractAction, ContractRegion, Instant, OperationId};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, Probe};

use super::ProcessorContracts;
use crate::dispatcher::Dispatcher;
use crate::effects::Effects;

/// A request of a region, with its results so far.
#[derive(Clone, Copy, Debug)]
pub struct ContractAdmission {
    /// The contract and its region, by their positions.
    pub region: (u16, u16),
    /// The operation.
    pub operation: OperationId,
    /// False: it is withdrawn.
    pub admit: bool,
    /// How often it was done; it counts as done if nothing was to do.
    pub done: u64,
    /// How often it was refused.
    pub refused: u64,
    /// Why the last one was refused.
    pub refusal: Option<AdmissionRefusal>,
}

impl ContractAdmission {
    /// The requests of a region for operations here.
    pub(super) fn of_region(region: (u16, u16), declared: &ContractRegion, local_of: &[u32]) -> Vec<ContractAdmission> {
        let requests = declared.actions.iter().filter_map(|action| match action {
            ContractAction::Admission { operation, admit } if local_of[operation.index()] != u32::MAX => {
                let (operation, admit) = (*operation, *admit);
                Some(ContractAdmission { region, operation, admit, done: 0, refused: 0, refusal: None })
            }
            _ => None,
        });
        requests.collect()
    }

    fn count(&mut self, outcome: AdmissionOutcome) {
        self.refusal = match (outcome, self.admit) {
            (AdmissionOutcome::Refused(AdmissionRefusal::Admitted), true)
            | (AdmissionOutcome::Refused(AdmissionRefusal::Withdrawn), false) => None,
            (AdmissionOutcome::Refused(refusal), _) => Some(refusal),
            (AdmissionOutcome::Admitted { .. } | AdmissionOutcome::Withdrawn, _) => None,
        };
        let count = if self.refusal.is_some() { &mut self.refused } else { &mut self.done };
        *count = count.saturating_add(1);
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The admissions that contracts request here.
    pub fn contract_admissions(&self) -> impl Iterator<Item = &ContractAdmission> {
        let contracts = self.contracts.iter().flat_map(|contracts| &contracts.all);
        contracts.flat_map(|one| one.admissions.iter().flatten())
    }

    /// Requests the admissions of the regions that have begun.
    pub(super) fn request_admissions(
        &mut self,
        now: Instant,
        contracts: &mut ProcessorContracts,
        effects: &mut Effects,
    ) {
        let mut admits = false;
        for (place, region) in contracts.begun.drain(..) {
            for request in &mut contracts.all[usize::from(place)].admissions[usize::from(region)] {
                let outcome = match request.admit {
                    true => self.decide_admission(now, (request.operation, now)),
                    false => self.withdraw_operation(now, request.operation),
                };
                admits |= request.admit;
                outcome.into_iter().for_each(|outcome| request.count(outcome));
            }
        }
        // Once for all of them.
        if admits {
            self.set_rates_of_admitted(now, effects);
        }
    }
}
