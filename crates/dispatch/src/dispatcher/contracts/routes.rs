//! Values of contracts that go to other processors, or come from them.

use alloc::vec::Vec;

use hyoshi_contract::{ChangeCause, RegionChange, RegionMachine};
use hyoshi_model::contract::{regions_of, value_of_regions};
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Contract, ContractRoute, Instant, ProcessorId, RouteContent, System};
use hyoshi_trace::Probe;

use super::{LocalContract, ProcessorContracts};
use crate::dispatcher::Dispatcher;
use crate::effects::{ChangedRegion, Effects};

/// What this processor does with a contract.
#[derive(Debug)]
pub(super) enum ContractRole {
    /// It decides the regions.
    Evaluates(RegionMachine),
    /// It applies the regions that another processor has sent last, outer ones first. The last ones stay while that
    /// processor sends none.
    Follows([Option<u16>; 2]),
}

impl ContractRole {
    pub fn new(contract: &Contract, processor: ProcessorId) -> ContractRole {
        if contract.processor == processor {
            let rules = contract.regions.iter().map(|region| region.rules.clone());
            ContractRole::Evaluates(RegionMachine::new(rules.collect()))
        } else {
            ContractRole::Follows([None; 2])
        }
    }

    pub fn machine(&self) -> Option<&RegionMachine> {
        match self {
            ContractRole::Evaluates(machine) => Some(machine),
            ContractRole::Follows(_) => None,
        }
    }

    pub fn machine_mut(&mut self) -> Option<&mut RegionMachine> {
        match self {
            ContractRole::Evaluates(machine) => Some(machine),
            ContractRole::Follows(_) => None,
        }
    }

    /// The active regions, outer regions first.
    pub fn active(&self) -> impl Iterator<Item = u16> + '_ {
        let followed = match self {
            ContractRole::Evaluates(_) => [None; 2],
            ContractRole::Follows(regions) => *regions,
        };
        self.machine().into_iter().flat_map(RegionMachine::active).chain(followed.into_iter().flatten())
    }

    /// All regions end.
    pub fn end(&mut self, each: impl FnMut(RegionChange)) {
        match self {
            ContractRole::Evaluates(machine) => machine.end(each),
            ContractRole::Follows(regions) => {
                let ended = core::mem::take(regions).into_iter().rev().flatten();
                ended.map(|from| RegionChange { from: Some(from), to: None, cause: ChangeCause::Outer }).for_each(each);
            }
        }
    }
}

/// The routes of a system, with those that begin here.
#[derive(Debug)]
pub(super) struct ProcessorRoutes {
    all: Vec<ContractRoute>,
    /// By contract here, in order of the routes.
    from_here: Vec<(u16, RouteContent, u16)>,
}

impl ProcessorRoutes {
    pub fn new(system: &System, processor: ProcessorId) -> ProcessorRoutes {
        let all = system.contract_routes();
        let here = (0..).zip(&all).filter(|(_, route)| route.from == processor);
        let from_here = here.map(|(number, route)| (route.contract, route.content, number)).collect();
        ProcessorRoutes { all, from_here }
    }
}

/// The value of a stale condition.
const STALE: i64 = i64::MIN;

/// Rounded: a threshold means the same on each processor.
pub(super) fn millionths(value: f64) -> i64 {
    let scaled = value * 1e6;
    (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i64
}

fn value_of(reading: ConditionReading) -> i64 {
    match reading {
        ConditionReading::Fresh(value) => millionths(value).max(STALE + 1),
        ConditionReading::Stale => STALE,
    }
}

impl ProcessorContracts {
    /// Room for the updates of one input.
    pub fn most_updates(&self) -> usize {
        self.routes.from_here.len()
    }

    /// Sends the values of a contract that other processors need. A newer value replaces an older one.
    pub fn send(&self, place: usize, effects: &mut Effects) {
        let one = &self.all[place];
        for (_, content, route) in self.routes.from_here.iter().filter(|(contract, ..)| *contract == one.place) {
            let value = match content {
                RouteContent::Condition(condition) => value_of(one.readings[usize::from(*condition)]),
                RouteContent::Regions => value_of_regions(one.role.active()),
            };
            match effects.contract_updates.iter_mut().find(|(known, _)| known == route) {
                Some((_, known)) => *known = value,
                None => effects.contract_updates.push((*route, value)),
            }
        }
    }

    /// Whether a route of the system can carry a value.
    pub fn accepts(&self, system: &System, route: u16, value: i64) -> bool {
        self.routes.all.get(usize::from(route)).is_some_and(|route| route.carries(system, value))
    }

    fn place_of(&self, route: u16, here: ProcessorId) -> Option<(usize, RouteContent)> {
        let route = self.routes.all.get(usize::from(route)).filter(|route| route.to == here)?;
        let place = self.all.iter().position(|one| one.place == route.contract)?;
        Some((place, route.content))
    }
}

impl LocalContract {
    fn follows(&self, value: i64) -> bool {
        matches!(self.role, ContractRole::Follows(_)) && value_of_regions(self.role.active()) == value
    }
}

impl<P: Probe> Dispatcher<P> {
    /// Whether an update changes something here: conditions always do, as their age counts.
    pub fn needs_contract_update(&self, route: u16, value: i64) -> bool {
        let contracts = self.contracts.as_ref().filter(|_| !self.off && !self.absent);
        let found = contracts.and_then(|contracts| Some((contracts, contracts.place_of(route, self.processor())?)));
        found.is_some_and(|(contracts, (place, content))| match content {
            RouteContent::Condition(_) => true,
            RouteContent::Regions => !contracts.all[place].follows(value),
        })
    }

    /// A value of a contract has arrived from another processor. A condition is evaluated at once.
    pub(in crate::dispatcher) fn update_contract(
        &mut self,
        now: Instant,
        route: u16,
        value: i64,
        effects: &mut Effects,
    ) {
        self.advance_before(now, effects);
        let Some(mut contracts) = self.contracts.take() else { return };
        let found = contracts.place_of(route, self.processor()).filter(|_| !self.off && !self.absent);
        let changed = match found {
            Some((place, RouteContent::Condition(condition))) => {
                let at = contracts.all[place].first + usize::from(condition);
                contracts.conditions.receive(now, at, (value != STALE).then_some(value as f64 / 1e6));
                contracts.conditions.find_overdue(now, &self.jobs);
                let changed = self.evaluate(now, &mut contracts, place, effects);
                if changed {
                    contracts.send(place, effects);
                }
                changed
            }
            Some((place, RouteContent::Regions)) => {
                let (one, begun) = (&mut contracts.all[place], &mut contracts.begun);
                match (regions_of(value, one.actions.len()), &mut one.role) {
                    (Some(regions), ContractRole::Follows(followed)) => {
                        let before = core::mem::replace(followed, regions);
                        for (from, to) in before.into_iter().zip(regions).filter(|(from, to)| from != to) {
                            one.ramp(now, from, to);
                            effects.add_region(ChangedRegion { at: now, contract: one.place, from, to });
                            begun.extend(to.map(|to| (place as u16, to)));
                        }
                        before != regions
                    }
                    _ => false,
                }
            }
            None => false,
        };
        if changed {
            self.apply(now, &mut contracts, effects);
        }
        self.contracts = Some(contracts);
    }
}
