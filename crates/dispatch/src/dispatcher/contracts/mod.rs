//! The contracts of a processor: it measures their conditions, evaluates their regions each period, and applies the
//! limits of active regions.
//!
//! ```text
//! jobs that end, samples ─► ConditionMonitors ─► RegionMachine ─► limits of periods, enabled operations
//!                                        └──────►─┘    └──────►─┘
//!                                   to or from another processor (ContractRoute)
//! ```
//!
//! One processor evaluates a contract. Processors that measure its conditions send them to it, and it sends the active
//! regions to processors with settings: each period, so a lost update matters for one period.
//!
//! Limits are recomputed after each change: a region that ends needs no undo. While limits of an ended region relax, they
//! are recomputed at each evaluation, too, on each processor with settings by its own clock.

mod admissions;
mod conditions;
mod routes;
mod settings;

use alloc::collections::BTreeMap;
use alloc::{boxed::Box, vec, vec::Vec};

use hyoshi_contract::{RegionChange, SettingLimits};
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Contract, ContractAction, Instant, OperationId, ProcessorId, Span, System};
use hyoshi_trace::{DispatchDecision, JobOutcome, Probe};

use super::Dispatcher;
use crate::effects::{ChangedRegion, Effects};
use crate::job::Job;
use crate::operation::OperationState;
pub use admissions::ContractAdmission;
use conditions::{ConditionMeasure, ConditionMonitors};
use routes::{ContractRole, ProcessorRoutes};
use settings::ProcessorSettings;

/// The contracts of one processor, from the highest precedence to the lowest.
#[derive(Debug)]
pub(super) struct ProcessorContracts {
    all: Vec<LocalContract>,
    conditions: ConditionMonitors,
    /// When the next one is due.
    next: Instant,
    /// The changes of a step.
    changes: Vec<RegionChange>,
    /// Regions that have begun, whose admissions are to be requested: positions in `all`, and regions.
    begun: Vec<(u16, u16)>,
    /// The operations that a region limits, in their order, with the combined limits of the active regions.
    limited: Vec<(u32, OperationLimits)>,
    /// The settings with one value that a region sets.
    settings: ProcessorSettings,
    /// By epoch: conditions that it sets, with the values in millionths.
    by_epoch: Vec<Vec<(u16, i64)>>,
    routes: ProcessorRoutes,
}

#[derive(Debug)]
struct LocalContract {
    /// Its position in the system.
    place: u16,
    period: Span,
    due: Instant,
    /// The position of its first condition among those of all contracts.
    first: usize,
    readings: Vec<ConditionReading>,
    role: ContractRole,
    /// By region: positions in `limited`, with its limits.
    actions: Vec<Vec<(u32, OperationLimits)>>,
    /// By region: positions in `settings`, with the values.
    settings: Vec<Vec<(u32, u32)>>,
    /// By region: the admissions that it requests here.
    admissions: Vec<Vec<ContractAdmission>>,
    ramps: Vec<RegionRamp>,
}

/// A region whose limits relax after its end.
#[derive(Debug)]
struct RegionRamp {
    region: u16,
    lasts: Span,
    /// While they relax.
    ended: Option<Instant>,
}

impl LocalContract {
    /// A region has ended, another one has begun.
    fn ramp(&mut self, now: Instant, from: Option<u16>, to: Option<u16>) {
        for ramp in &mut self.ramps {
            if from == Some(ramp.region) {
                ramp.ended = Some(now);
            }
            if to == Some(ramp.region) {
                ramp.ended = None;
            }
        }
    }
}

/// What the active regions permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OperationLimits {
    /// Of its period in nanoseconds.
    pub period: SettingLimits,
    /// The most legs of a load chain.
    pub legs: u16,
    /// The place of the greatest service level.
    pub level: u8,
    /// `None`: no region enables or disables it.
    pub enabled: Option<bool>,
}

impl OperationLimits {
    /// Whether nothing releases the operation.
    pub fn is_disabled(&self) -> bool {
        self.enabled == Some(false)
    }
}

impl OperationLimits {
    pub const NONE: OperationLimits =
        OperationLimits { period: SettingLimits::NONE, legs: u16::MAX, level: u8::MAX, enabled: None };

    /// These, restricted by those of a higher precedence, or of an outer region. Its `enabled` stays.
    fn within(self, higher: OperationLimits) -> OperationLimits {
        OperationLimits {
            period: self.period.within(higher.period),
            legs: self.legs.min(higher.legs),
            level: self.level.min(higher.level),
            enabled: higher.enabled,
        }
    }

    /// What remains of the limits of a period, since the end of their region.
    fn relaxed(&self, (fastest, slowest): (Span, Span), since: Span, ramp: Span) -> OperationLimits {
        if self.period == SettingLimits::NONE {
            return OperationLimits::NONE;
        }
        let declared = SettingLimits { least: fastest.as_nanos() as f64, most: slowest.max(fastest).as_nanos() as f64 };
        OperationLimits { period: self.period.relaxed(declared, since, ramp), ..OperationLimits::NONE }
    }

    /// The part of a range of periods that the limits leave.
    pub fn restrict(&self, (fastest, slowest): (Span, Span)) -> (Span, Span) {
        if self.period == SettingLimits::NONE {
            return (fastest, slowest);
        }
        let declared = SettingLimits { least: fastest.as_nanos() as f64, most: slowest.max(fastest).as_nanos() as f64 };
        let left = self.period.within(declared);
        // Rounding must not leave the declared range.
        let span = |nanos: f64| Span::from_nanos(nanos as u64).clamp(fastest, slowest.max(fastest));
        (span(left.least), span(left.most))
    }
}

/// The operations of this processor that an action concerns, and its limits.
fn limits_of(
    action: &ContractAction,
    local_of: &[u32],
    followers: &BTreeMap<OperationId, Vec<u32>>,
) -> (Vec<u32>, OperationLimits) {
    // `u32::MAX`: on another processor.
    let local = |id: &OperationId| local_of.get(id.index()).copied().filter(|local| *local != u32::MAX);
    let one = |id: &OperationId| local(id).into_iter().collect();
    match action {
        ContractAction::LimitPeriod { operation, shortest, longest } => {
            let period = SettingLimits { least: shortest.as_nanos() as f64, most: longest.as_nanos() as f64 };
            let concerned = followers.get(operation).cloned().unwrap_or_default();
            (concerned, OperationLimits { period, ..OperationLimits::NONE })
        }
        ContractAction::LimitLegs { operation, most } => {
            (one(operation), OperationLimits { legs: *most, ..OperationLimits::NONE })
        }
        ContractAction::LimitLevel { operation, most } => {
            (one(operation), OperationLimits { level: *most, ..OperationLimits::NONE })
        }
        ContractAction::Disable { operation } => {
            (one(operation), OperationLimits { enabled: Some(false), ..OperationLimits::NONE })
        }
        ContractAction::Enable { operation } => {
            (one(operation), OperationLimits { enabled: Some(true), ..OperationLimits::NONE })
        }
        ContractAction::Set { .. }
        | ContractAction::Admission { .. }
        | ContractAction::Report { .. }
        | ContractAction::External(_) => (Vec::new(), OperationLimits::NONE),
    }
}

/// The conditions that an epoch sets, as far as they differ from those of the epoch before.
fn changed_conditions(system: &System, epoch: usize) -> Vec<(u16, i64)> {
    let value = |epoch: usize, place| system.epochs[epoch].environment.condition(place);
    let before = |place| epoch.checked_sub(1).and_then(|before| value(before, place));
    let all = (0..system.conditions.len()).filter_map(|place| Some((place as u16, value(epoch, place)?)));
    all.filter(|(place, value)| before((*place).into()) != Some(*value)).collect()
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
        let contracts: Vec<&Contract> = places.iter().map(|place| &system.contracts[usize::from(*place)]).collect();
        let routes = ProcessorRoutes::new(system, processor);
        let most_changes = contracts.iter().map(|one| one.regions.len()).max()?;
        let mut followers: BTreeMap<OperationId, Vec<u32>> = BTreeMap::new();
        for (local, operation) in (0..).zip(operations) {
            operation.adapted_by.into_iter().for_each(|root| followers.entry(root).or_default().push(local));
        }
        let conditions = contracts.iter().flat_map(|one| one.conditions.iter().map(|condition| (*one, condition)));
        let conditions = ConditionMonitors::new(system, processor, conditions, local_of, operations.len());
        let settings = ProcessorSettings::new(system, processor, &contracts);
        let mut limited = BTreeMap::new();
        let (mut first, mut all) = (0, Vec::new());
        for (place, contract) in places.iter().zip(&contracts) {
            let actions = contract.regions.iter().map(|region| {
                let found = region.actions.iter().flat_map(|action| {
                    let (locals, limits) = limits_of(action, local_of, &followers);
                    locals.into_iter().map(move |local| (local, limits))
                });
                let found: Vec<_> = found.collect();
                limited.extend(found.iter().map(|(local, _)| (*local, OperationLimits::NONE)));
                found
            });
            let ramps = (0..).zip(&contract.regions).filter(|(_, region)| !region.ramp.is_zero());
            all.push(LocalContract {
                ramps: ramps.map(|(place, one)| RegionRamp { region: place, lasts: one.ramp, ended: None }).collect(),
                place: *place,
                period: contract.period,
                due: Instant::ZERO,
                first,
                readings: vec![ConditionReading::Stale; contract.conditions.len()],
                actions: actions.collect(),
                settings: contract.regions.iter().map(|region| settings.of_region(region)).collect(),
                admissions: (0..)
                    .zip(&contract.regions)
                    .map(|(region, declared)| ContractAdmission::of_region((*place, region), declared, local_of))
                    .collect(),
                role: ContractRole::new(contract, processor),
            });
            first += contract.conditions.len();
        }
        let limited: Vec<(u32, OperationLimits)> = limited.into_iter().collect();
        for (local, _) in all.iter_mut().flat_map(|one| &mut one.actions).flatten() {
            *local = limited.partition_point(|(one, _)| *one < *local) as u32;
        }
        let by_epoch = (0..system.epochs.len()).map(|epoch| changed_conditions(system, epoch)).collect();
        let changes = Vec::with_capacity(most_changes);
        let begun = Vec::with_capacity(2 * contracts.iter().map(|one| one.regions.len()).sum::<usize>());
        let next = Instant::ZERO;
        Some(Box::new(ProcessorContracts {
            all,
            conditions,
            next,
            changes,
            begun,
            limited,
            settings,
            by_epoch,
            routes,
        }))
    }

    /// The most changes of regions at once: each may end, and begin.
    pub fn most_changes(&self) -> usize {
        // A section may receive each condition from elsewhere once, and evaluate after each.
        let steps = |one: &LocalContract| one.readings.len() + 2;
        self.all.iter().map(|one| 2 * one.actions.len() * steps(one)).sum()
    }

    /// When the next evaluation is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// A release: its job, with all its legs, is expected to use an execution time.
    #[inline]
    pub fn expect(&mut self, now: Instant, job: &mut Job) {
        self.conditions.expect(now, job);
    }

    /// A job has ended, or was dropped.
    #[inline]
    pub fn count(&mut self, now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) {
        self.conditions.count(now, job, outcome, consumed);
    }

    /// A release or a completion: whether a critical job is endangered.
    #[inline]
    pub fn count_endangered(&mut self, now: Instant, endangered: bool) {
        self.conditions.count_endangered(now, endangered);
    }

    /// The processor's loop has measured a utilisation, in parts per million.
    pub fn count_utilisation(&mut self, now: Instant, ppm: u32) {
        self.conditions.add(now, ConditionMeasure::Utilisation, f64::from(ppm) / 1e6);
    }

    /// A condition has this value from now on, in millionths.
    fn set(&mut self, now: Instant, condition: u16, value: i64) {
        self.conditions.add(now, ConditionMeasure::Set(condition), value as f64 / 1e6);
    }

    /// An epoch begins: conditions have its values.
    pub fn begin_epoch(&mut self, now: Instant, epoch: usize) {
        for place in 0..self.by_epoch[epoch].len() {
            let (condition, value) = self.by_epoch[epoch][place];
            self.set(now, condition, value);
        }
    }

    /// Combines the limits of all active regions, and those that relax. `range` has the declared periods of an operation.
    fn combine(&mut self, now: Instant, range: impl Fn(u32) -> (Span, Span)) {
        self.limited.iter_mut().for_each(|(_, limits)| *limits = OperationLimits::NONE);
        for one in &self.all {
            for (place, limits) in one.role.active().flat_map(|region| &one.actions[usize::from(region)]) {
                let combined = &mut self.limited[*place as usize].1;
                *combined = limits.within(*combined);
            }
            for RegionRamp { region, lasts, ended } in &one.ramps {
                let Some(ended) = *ended else { continue };
                for (place, limits) in &one.actions[usize::from(*region)] {
                    let (local, combined) = &mut self.limited[*place as usize];
                    *combined = limits.relaxed(range(*local), now.since(ended), *lasts).within(*combined);
                }
            }
        }
        self.settings.clear();
        // The last one applies: the highest precedence, and within it the inner region.
        for one in self.all.iter().rev() {
            for (place, to) in one.role.active().flat_map(|region| &one.settings[usize::from(region)]) {
                self.settings.set(*place, *to);
            }
            for (place, limits) in one.role.active().flat_map(|region| &one.actions[usize::from(region)]) {
                let combined = &mut self.limited[*place as usize].1;
                combined.enabled = limits.enabled.or(combined.enabled);
            }
        }
    }

    /// Forgets ramps that have ended by now. True if there was one, or one is left.
    fn advance_ramps(&mut self, now: Instant) -> bool {
        let mut any = false;
        for ramp in self.all.iter_mut().flat_map(|one| &mut one.ramps) {
            any |= ramp.ended.is_some();
            ramp.ended = ramp.ended.filter(|ended| now.since(*ended) < ramp.lasts);
        }
        any
    }
}

/// A contract of this processor at its last evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluatedContract<'a> {
    /// Its position in the system.
    pub contract: u16,
    /// By condition.
    pub readings: &'a [ConditionReading],
    role: &'a ContractRole,
}

impl<'a> EvaluatedContract<'a> {
    /// Its active regions, outer regions first.
    pub fn active(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.role.active()
    }

    /// The innermost region that a command has set, and until when.
    pub fn forced(&self) -> Option<(u16, Instant)> {
        let machine = self.role.machine()?;
        Some((machine.forced()?, machine.forced_until()))
    }

    /// False if another processor evaluates it, and this one applies its regions.
    pub fn is_evaluated(&self) -> bool {
        self.role.machine().is_some()
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The contracts here, with their state at their last evaluation.
    pub fn contracts(&self) -> impl Iterator<Item = EvaluatedContract<'_>> {
        let contracts = self.contracts.iter().flat_map(|contracts| &contracts.all);
        contracts.map(|one| EvaluatedContract { contract: one.place, readings: &one.readings, role: &one.role })
    }

    pub(super) fn set_condition(&mut self, now: Instant, condition: u16, value: i64, effects: &mut Effects) {
        self.advance_before(now, effects);
        if let Some(contracts) = &mut self.contracts {
            contracts.set(now, condition, value);
        }
    }

    /// From its next evaluation on, a contract has this region, until this time. Without a region, conditions decide
    /// again.
    pub(super) fn force_region(
        &mut self,
        now: Instant,
        (contract, region, until): (u16, Option<u16>, Instant),
        effects: &mut Effects,
    ) {
        self.advance_before(now, effects);
        let contracts = self.contracts.iter_mut().flat_map(|contracts| &mut contracts.all);
        for machine in contracts.filter(|one| one.place == contract).filter_map(|one| one.role.machine_mut()) {
            match region {
                Some(region) => machine.force(region, until),
                None => machine.release(),
            }
        }
    }

    /// Evaluates the contracts that are due, and applies the limits of their regions.
    pub(super) fn evaluate_contracts(&mut self, now: Instant, effects: &mut Effects) {
        let Some(mut contracts) = self.contracts.take() else { return };
        let observes = !self.off && !self.absent;
        if observes {
            contracts.conditions.find_overdue(now, &self.jobs);
            let second = self.switching.as_ref().is_some_and(|switching| switching.second());
            contracts.conditions.sample(now, &self.operations, second);
        }
        let mut changed = false;
        for place in 0..contracts.all.len() {
            let one = &mut contracts.all[place];
            if one.due > now {
                continue;
            }
            // A processor that was late evaluates once.
            let passed = now.since(one.due).as_nanos() / one.period.as_nanos();
            one.due = one.due.saturating_add(Span::from_nanos((passed + 1).saturating_mul(one.period.as_nanos())));
            if observes {
                changed |= self.evaluate(now, &mut contracts, place, effects);
                contracts.send(place, effects);
            }
        }
        contracts.next = contracts.all.iter().map(|one| one.due).min().unwrap_or(Instant::NEVER);
        if contracts.advance_ramps(now) || changed {
            self.apply(now, &mut contracts, effects);
        }
        self.contracts = Some(contracts);
    }

    /// Reads the conditions of a contract, and decides its regions if this processor evaluates it. True if they have
    /// changed.
    fn evaluate(
        &mut self,
        now: Instant,
        contracts: &mut ProcessorContracts,
        place: usize,
        effects: &mut Effects,
    ) -> bool {
        let ProcessorContracts { all, conditions, changes, begun, .. } = contracts;
        let one = &mut all[place];
        for (place, reading) in (one.first..).zip(&mut one.readings) {
            *reading = conditions.reading(now, place);
        }
        let Some(machine) = one.role.machine_mut() else { return false };
        changes.clear();
        machine.step(now, &one.readings, |change| changes.push(change));
        begun.extend(changes.iter().filter_map(|change| Some((place as u16, change.to?))));
        if changes.is_empty() {
            return false;
        }
        changes.iter().for_each(|change| one.ramp(now, change.from, change.to));
        for (condition, reading) in (0..).zip(&one.readings) {
            let value = match reading {
                ConditionReading::Fresh(value) => Some(routes::millionths(*value)),
                ConditionReading::Stale => None,
            };
            self.decision(now, DispatchDecision::Condition { contract: one.place, condition, value });
        }
        for change in changes.iter().copied() {
            self.region_changed(now, one.place, change, effects);
        }
        true
    }

    /// The host is off: all regions end, and measured conditions are stale.
    pub(super) fn end_regions(&mut self, now: Instant, effects: &mut Effects) {
        let Some(mut contracts) = self.contracts.take() else { return };
        contracts.conditions.clear();
        for one in &mut contracts.all {
            let place = one.place;
            let is_evaluated = one.role.machine().is_some();
            one.role.end(|change| match is_evaluated {
                true => self.region_changed(now, place, change, effects),
                false => {
                    effects.add_region(ChangedRegion { at: now, contract: place, from: change.from, to: change.to })
                }
            });
            one.ramps.iter_mut().for_each(|ramp| ramp.ended = None);
        }
        self.apply(now, &mut contracts, effects);
        self.contracts = Some(contracts);
    }

    fn region_changed(&mut self, at: Instant, contract: u16, change: RegionChange, effects: &mut Effects) {
        let RegionChange { from, to, .. } = change;
        self.decision(at, DispatchDecision::Region { contract, from, to });
        effects.add_region(ChangedRegion { at, contract, from, to });
    }

    /// The active regions have changed, or limits relax: applies their settings.
    fn apply(&mut self, now: Instant, contracts: &mut ProcessorContracts, effects: &mut Effects) {
        let (settings, epoch) = (alloc::sync::Arc::clone(&self.settings), self.epoch);
        contracts.combine(now, |local| {
            let declared = settings.of(epoch, local as usize);
            (declared.period, declared.slowest)
        });
        self.apply_settings(now, &mut contracts.settings, effects);
        self.apply_limits(now, contracts, effects);
        self.request_admissions(now, contracts, effects);
    }

    fn apply_limits(&mut self, now: Instant, contracts: &ProcessorContracts, effects: &mut Effects) {
        let settings = alloc::sync::Arc::clone(&self.settings);
        let mut retimed = false;
        for (local, limits) in &contracts.limited {
            let operation = &mut self.operations[*local as usize];
            if core::mem::replace(&mut operation.limits, *limits) == *limits {
                continue;
            }
            let before = operation.period;
            operation.enter(settings.of(self.epoch, *local as usize));
            let (id, period, is_root) = (operation.id, operation.period, operation.adapted_by == Some(operation.id));
            let level = operation.service_level.min(limits.level);
            let lowered = core::mem::replace(&mut operation.service_level, level) != level;
            if lowered {
                self.decision(now, DispatchDecision::Level { operation: id, level });
            }
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
