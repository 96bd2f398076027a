//! The contracts of a processor: it measures their conditions, evaluates their regions at the end of each period, and
//! applies the limits of active regions.
//!
//! ```text
//! jobs that end, samples ─► ConditionWindow ─► RegionMachine ─► limits of periods, enabled operations
//! ```
//!
//! SettingLimits are recomputed after each change: a region that ends needs no undo.

use alloc::{boxed::Box, vec, vec::Vec};

use hyoshi_contract::{ConditionWindow, RegionChange, RegionMachine, SettingLimits, WindowSample};
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{
    Condition, ConditionSource, Contract, ContractAction, Instant, LatencyScope, OperationId, ProcessorId, Span, System,
};
use hyoshi_trace::{DispatchDecision, JobOutcome, Probe};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{Job, JobState};
use crate::operation::OperationState;

/// The contracts of one processor, from the highest precedence to the lowest.
#[derive(Debug)]
pub(super) struct ProcessorContracts {
    all: Vec<ContractState>,
    /// When the next one is due.
    next: Instant,
    /// The changes of a step.
    changes: Vec<RegionChange>,
    /// By operation here: the combined limits.
    limits: Vec<OperationLimits>,
    /// By epoch: conditions that it sets, with the values in millionths.
    by_epoch: Vec<Vec<(u16, i64)>>,
}

/// The conditions that an epoch sets.
fn changed_conditions(system: &System, epoch: usize) -> Vec<(u16, i64)> {
    let value = |epoch: usize, place| system.epochs[epoch].environment.condition(place);
    let before = |place| epoch.checked_sub(1).and_then(|before| value(before, place));
    let all = (0..system.conditions.len()).filter_map(|place| Some((place as u16, value(epoch, place)?)));
    all.filter(|(place, value)| before((*place).into()) != Some(*value)).collect()
}

#[derive(Debug)]
struct ContractState {
    /// Its position in the system.
    place: u16,
    period: Span,
    due: Instant,
    conditions: Vec<ConditionMonitor>,
    readings: Vec<ConditionReading>,
    machine: RegionMachine,
    /// By region.
    actions: Vec<Vec<LocalAction>>,
}

/// What a region does with an operation here.
#[derive(Clone, Copy, Debug)]
struct LocalAction {
    local: u32,
    limits: OperationLimits,
}

/// What the active regions permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OperationLimits {
    /// Of its period in nanoseconds.
    pub period: SettingLimits,
    pub disabled: bool,
}

impl OperationLimits {
    pub const NONE: OperationLimits = OperationLimits { period: SettingLimits::NONE, disabled: false };

    /// With the limits of a region that these restrict.
    fn with_lower(self, lower: OperationLimits) -> OperationLimits {
        OperationLimits { period: self.period.with_lower(lower.period), disabled: self.disabled || lower.disabled }
    }

    /// The part of a range of periods that the limits leave.
    pub fn restrict(&self, (fastest, slowest): (Span, Span)) -> (Span, Span) {
        if self.period == SettingLimits::NONE {
            return (fastest, slowest);
        }
        let declared = SettingLimits { least: fastest.as_nanos() as f64, most: slowest.max(fastest).as_nanos() as f64 };
        let left = declared.with_lower(self.period);
        // Rounding must not leave the declared range.
        let span = |nanos: f64| Span::from_nanos(nanos as u64).clamp(fastest, slowest.max(fastest));
        (span(left.least), span(left.most))
    }
}

#[derive(Debug)]
struct ConditionMonitor {
    watch: ConditionWindow,
    measure: ConditionMeasure,
    /// By operation here: whether its jobs count.
    counts: Vec<bool>,
    from_root: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ConditionMeasure {
    /// With the deadline of a chain; `None`: each job's own.
    MissRatio(Option<Span>),
    Latency,
    Utilisation,
    /// By its position in the system.
    Set(u16),
}

impl ConditionMonitor {
    fn new(system: &System, condition: &Condition, local_of: &[u32], operations: usize) -> Self {
        let mut counts = vec![false; operations];
        let mut from_root = false;
        let mut count = |scope: &LatencyScope| {
            let (ids, deadline): (&[OperationId], _) = match scope {
                LatencyScope::Operations(ids) => (ids, None),
                LatencyScope::Chain(place) => {
                    let chain = &system.chains[*place as usize];
                    from_root = true;
                    (chain.path.last().map_or(&[], core::slice::from_ref), chain.deadline)
                }
            };
            ids.iter().for_each(|id| counts[local_of[id.index()] as usize] = true);
            deadline
        };
        let measure = match &condition.of {
            ConditionSource::MissRatio(scope) => ConditionMeasure::MissRatio(count(scope)),
            ConditionSource::Latency(scope) => {
                count(scope);
                ConditionMeasure::Latency
            }
            ConditionSource::Utilisation(_) => ConditionMeasure::Utilisation,
            ConditionSource::Set(condition) => ConditionMeasure::Set(*condition),
        };
        let watch = ConditionWindow::new(condition.summary, condition.over, condition.max_age);
        ConditionMonitor { watch, measure, counts, from_root }
    }

    /// The value of a job that ends now, or has not ended by now; `None` if it does not count.
    #[inline]
    fn value(&self, now: Instant, job: &Job, outcome: Option<JobOutcome>) -> Option<f64> {
        if !self.counts[job.local as usize] {
            return None;
        }
        let made = match outcome {
            Some(JobOutcome::Skipped) => return None,
            // The last leg of a load chain ends the response.
            Some(JobOutcome::Made | JobOutcome::Missed) if job.id.leg + 1 < job.legs => return None,
            Some(JobOutcome::Made | JobOutcome::Missed) => true,
            Some(_) | None => false,
        };
        let age = now.since(if self.from_root { job.origin } else { job.release });
        Some(match self.measure {
            ConditionMeasure::Latency => age.as_secs_f64(),
            ConditionMeasure::MissRatio(Some(deadline)) => f64::from(!made || age > deadline),
            ConditionMeasure::MissRatio(None) => f64::from(outcome != Some(JobOutcome::Made)),
            ConditionMeasure::Utilisation | ConditionMeasure::Set(_) => return None,
        })
    }

    /// The present value. Jobs that are overdue have not ended, but count as if they ended now.
    fn reading<'j>(&mut self, now: Instant, overdue: impl Iterator<Item = &'j Job>) -> ConditionReading {
        let unfinished = ConditionWindow::sum_up(overdue.filter_map(|job| self.value(now, job, None)));
        self.watch.reading_with(now, unfinished)
    }
}

impl ContractState {
    fn new(system: &System, place: u16, local_of: &[u32], operations: &[OperationState]) -> Self {
        let contract: &Contract = &system.contracts[usize::from(place)];
        let conditions = contract.conditions.iter();
        let conditions = conditions.map(|one| ConditionMonitor::new(system, one, local_of, operations.len()));
        let actions = contract.regions.iter().map(|region| {
            let local = |action: &ContractAction| LocalAction::of(action, operations);
            region.actions.iter().flat_map(local).collect()
        });
        ContractState {
            place,
            period: contract.period,
            due: Instant::ZERO + contract.period,
            conditions: conditions.collect(),
            readings: vec![ConditionReading::Stale; contract.conditions.len()],
            machine: RegionMachine::new(contract.regions.iter().map(|region| region.rules.clone()).collect()),
            actions: actions.collect(),
        }
    }

    /// The limits of its active regions.
    fn active(&self) -> impl Iterator<Item = &LocalAction> {
        self.machine.active().flat_map(|region| &self.actions[usize::from(region)])
    }
}

impl LocalAction {
    /// The operations of this processor that an action concerns.
    fn of(action: &ContractAction, operations: &[OperationState]) -> Vec<LocalAction> {
        let concerned = |concerns: &dyn Fn(&OperationState) -> bool, limits: OperationLimits| {
            let all = (0..).zip(operations).filter(|(_, one)| concerns(one));
            all.map(|(local, _)| LocalAction { local, limits }).collect()
        };
        match action {
            ContractAction::LimitPeriod { operation, shortest, longest } => {
                let period = SettingLimits { least: shortest.as_nanos() as f64, most: longest.as_nanos() as f64 };
                let limits = OperationLimits { period, disabled: false };
                concerned(&|one| one.adapted_by == Some(*operation), limits)
            }
            ContractAction::Disable { operation } => {
                let limits = OperationLimits { disabled: true, ..OperationLimits::NONE };
                concerned(&|one| one.id == *operation, limits)
            }
            ContractAction::Report { .. } => Vec::new(),
        }
    }
}

impl ProcessorContracts {
    /// `None` if the processor has no contract.
    pub fn new(
        system: &System,
        processor: ProcessorId,
        local_of: &[u32],
        operations: &[OperationState],
    ) -> Option<Box<ProcessorContracts>> {
        let places = system.contracts_on(processor);
        let all: Vec<_> =
            places.into_iter().map(|place| ContractState::new(system, place, local_of, operations)).collect();
        let most_changes = all.iter().map(|one| one.actions.len()).max()?;
        let next = all.iter().map(|one| one.due).min()?;
        let (changes, limits) = (Vec::with_capacity(most_changes), vec![OperationLimits::NONE; operations.len()]);
        let by_epoch = (0..system.epochs.len()).map(|epoch| changed_conditions(system, epoch)).collect();
        Some(Box::new(ProcessorContracts { all, next, changes, limits, by_epoch }))
    }

    /// When the next evaluation is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// A job has ended, or was dropped.
    #[inline]
    pub fn count(&mut self, now: Instant, job: &Job, outcome: JobOutcome) {
        for condition in self.all.iter_mut().flat_map(|one| &mut one.conditions) {
            if let Some(value) = condition.value(now, job, Some(outcome)) {
                condition.watch.add(WindowSample { at: now, value, weight: 1.0 });
            }
        }
    }

    /// The processor's loop has measured a utilisation, in parts per million.
    pub fn count_utilisation(&mut self, now: Instant, ppm: u32) {
        self.add(now, ConditionMeasure::Utilisation, f64::from(ppm) / 1e6);
    }

    /// A condition has this value from now on, in millionths.
    fn set(&mut self, now: Instant, condition: u16, value: i64) {
        self.add(now, ConditionMeasure::Set(condition), value as f64 / 1e6);
    }

    fn add(&mut self, now: Instant, measure: ConditionMeasure, value: f64) {
        let conditions = self.all.iter_mut().flat_map(|one| &mut one.conditions);
        for condition in conditions.filter(|one| one.measure == measure) {
            condition.watch.add(WindowSample { at: now, value, weight: 1.0 });
        }
    }

    /// An epoch begins: conditions have its values, as far as they differ from those of the epoch before.
    pub fn begin_epoch(&mut self, now: Instant, epoch: usize) {
        for place in 0..self.by_epoch[epoch].len() {
            let (condition, value) = self.by_epoch[epoch][place];
            self.set(now, condition, value);
        }
    }

    /// The combined limits of all active regions, by operation here.
    fn combine(&mut self) {
        self.limits.fill(OperationLimits::NONE);
        for action in self.all.iter().flat_map(ContractState::active) {
            let limits = &mut self.limits[action.local as usize];
            *limits = limits.with_lower(action.limits);
        }
    }
}

/// A contract at its last evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluatedContract<'a> {
    /// Its position in the system.
    pub contract: u16,
    /// By condition.
    pub readings: &'a [ConditionReading],
    machine: &'a RegionMachine,
}

impl<'a> EvaluatedContract<'a> {
    /// Its active regions, outer regions first.
    pub fn active(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.machine.active()
    }

    /// The innermost region that a command has set.
    pub fn forced(&self) -> Option<u16> {
        self.machine.forced()
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The contracts here, with their state at their last evaluation.
    pub fn contracts(&self) -> impl Iterator<Item = EvaluatedContract<'_>> {
        let contracts = self.contracts.iter().flat_map(|contracts| &contracts.all);
        contracts.map(|one| EvaluatedContract { contract: one.place, readings: &one.readings, machine: &one.machine })
    }

    pub(super) fn set_condition(&mut self, now: Instant, condition: u16, value: i64, effects: &mut Effects) {
        self.advance_before(now, effects);
        if let Some(contracts) = &mut self.contracts {
            contracts.set(now, condition, value);
        }
    }

    /// From its next evaluation on, a contract has this region; without one, conditions decide again.
    pub(super) fn force_region(&mut self, now: Instant, contract: u16, region: Option<u16>, effects: &mut Effects) {
        self.advance_before(now, effects);
        let contracts = self.contracts.iter_mut().flat_map(|contracts| &mut contracts.all);
        for one in contracts.filter(|one| one.place == contract) {
            match region {
                Some(region) => one.machine.force(region),
                None => one.machine.release(),
            }
        }
    }

    /// Evaluates the contracts that are due, and applies the limits of their regions.
    pub(super) fn evaluate_contracts(&mut self, now: Instant, effects: &mut Effects) {
        let Some(mut contracts) = self.contracts.take() else { return };
        let ProcessorContracts { all, next, changes, .. } = &mut *contracts;
        let mut changed = false;
        for one in all.iter_mut().filter(|one| one.due <= now) {
            // A processor that was late evaluates once.
            let passed = now.since(one.due).as_nanos() / one.period.as_nanos();
            one.due = one.due.saturating_add(Span::from_nanos((passed + 1) * one.period.as_nanos()));
            if self.off || self.absent {
                continue;
            }
            for (condition, reading) in one.conditions.iter_mut().zip(&mut one.readings) {
                let overdue = self.jobs.iter().map(|(_, job)| job);
                *reading = condition.reading(now, overdue.filter(|job| is_overdue(now, job)));
            }
            changes.clear();
            one.machine.step(now, &one.readings, |change| changes.push(change));
            if changes.is_empty() {
                continue;
            }
            changed = true;
            for (condition, reading) in (0..).zip(&one.readings) {
                let value = match reading {
                    ConditionReading::Fresh(value) => {
                        Some((value * 1e6).clamp(i64::MIN as f64, i64::MAX as f64) as i64)
                    }
                    ConditionReading::Stale => None,
                };
                self.decision(now, DispatchDecision::Condition { contract: one.place, condition, value });
            }
            for RegionChange { from, to, .. } in changes.iter().copied() {
                self.decision(now, DispatchDecision::Region { contract: one.place, from, to });
            }
        }
        *next = all.iter().map(|one| one.due).min().unwrap_or(Instant::NEVER);
        if changed {
            contracts.combine();
            self.apply_limits(now, &contracts, effects);
        }
        self.contracts = Some(contracts);
    }

    fn apply_limits(&mut self, now: Instant, contracts: &ProcessorContracts, effects: &mut Effects) {
        let settings = alloc::sync::Arc::clone(&self.settings);
        let mut retimed = false;
        for (local, limits) in contracts.limits.iter().enumerate() {
            let operation = &mut self.operations[local];
            if core::mem::replace(&mut operation.limits, *limits) == *limits {
                continue;
            }
            let before = operation.period;
            operation.enter(settings.of(self.epoch, local));
            let (id, period, is_root) = (operation.id, operation.period, operation.adapted_by == Some(operation.id));
            if period != before {
                retimed = true;
                if is_root {
                    self.decision(now, DispatchDecision::Retime { operation: id, period });
                }
            }
        }
        if retimed {
            self.rates_changed(now, effects);
        } else {
            self.reserve();
        }
    }
}

/// Its deadline has passed. Held jobs have not been released.
fn is_overdue(now: Instant, job: &Job) -> bool {
    job.state != JobState::Held && now > job.deadline
}
