//! Values of contracts between processors, in this process and to other hosts.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use hyoshi_model::{ContractRoute, HostId, ProcessorId, System};

use crate::common::CommonState;
use crate::remote::{Rejected, running};

/// The latest value of each [`ContractRoute`]. A newer one replaces an older one, so nothing waits and nothing grows.
#[derive(Debug)]
pub(crate) struct ContractUpdates {
    routes: Vec<ContractRoute>,
    /// By route: the latest value, and whether it is new.
    values: Vec<(AtomicI64, AtomicBool)>,
    /// By processor: some values for it are new.
    changed: Vec<AtomicBool>,
}

impl ContractUpdates {
    pub fn new(system: &System) -> Self {
        let routes = system.contract_routes();
        let values = routes.iter().map(|_| (AtomicI64::new(0), AtomicBool::new(false))).collect();
        let changed = system.processors.iter().map(|_| AtomicBool::new(false)).collect();
        ContractUpdates { routes, values, changed }
    }

    /// Sets a value. Returns the processor that needs it; wake its release thread.
    pub fn set(&self, route: u16, value: i64) -> ProcessorId {
        let (latest, is_new) = &self.values[usize::from(route)];
        let to = self.routes[usize::from(route)].to;
        latest.store(value, Ordering::Relaxed);
        is_new.store(true, Ordering::Release);
        self.changed[to.index()].store(true, Ordering::Release);
        to
    }

    /// Passes the new values for a processor to `each`. True if there were some.
    pub fn take(&self, to: ProcessorId, mut each: impl FnMut(u16, i64)) -> bool {
        let changed = &self.changed[to.index()];
        if !changed.load(Ordering::Relaxed) || !changed.swap(false, Ordering::Acquire) {
            return false;
        }
        for (route, (latest, is_new)) in (0..).zip(&self.values) {
            if self.routes[usize::from(route)].to == to && is_new.swap(false, Ordering::Acquire) {
                each(route, latest.load(Ordering::Relaxed));
            }
        }
        true
    }
}

/// The values of contracts that leave for one other host.
#[derive(Debug)]
pub(crate) struct DepartingContractUpdates {
    /// The processors there.
    to: Vec<ProcessorId>,
    /// The new values, each route once.
    latest: Vec<(u16, i64)>,
}

impl DepartingContractUpdates {
    /// `None` if that host needs none.
    pub fn new(common: &CommonState, to: HostId) -> Option<Self> {
        let here = common.here()?;
        let routes = common.system.contract_routes_between(here, to);
        let latest = Vec::with_capacity(routes.len());
        let mut to: Vec<_> = routes.into_iter().map(|(_, route)| route.to).collect();
        to.sort_unstable();
        to.dedup();
        (!to.is_empty()).then_some(DepartingContractUpdates { to, latest })
    }

    /// The values since the last call.
    pub fn take(&mut self, common: &CommonState) -> &[(u16, i64)] {
        self.latest.clear();
        for to in &self.to {
            common.contract_updates.take(*to, |route, value| self.latest.push((route, value)));
        }
        &self.latest
    }
}

/// The values of contracts that arrive from one other host.
#[derive(Debug)]
pub(crate) struct ArrivingContractUpdates {
    routes: Vec<(u16, ContractRoute)>,
}

impl ArrivingContractUpdates {
    pub fn new(common: &CommonState, from: HostId) -> Self {
        let routes = common.here().map(|here| common.system.contract_routes_between(from, here));
        ArrivingContractUpdates { routes: routes.unwrap_or_default() }
    }

    /// True if that host sends none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Accepts values, and wakes the release threads of their processors. If one is wrong, it accepts the other ones. It
    /// rejects all if there are too many.
    pub fn set(&self, common: &CommonState, updates: &[(u16, i64)]) -> Result<(), Rejected> {
        if updates.len() > self.routes.len() {
            return Err(Rejected::Foreign);
        }
        // Before the run and after it, no processor needs them.
        if running(common).is_err() {
            return Ok(());
        }
        let mut result = Ok(());
        for (route, value) in updates {
            match self.routes.iter().find(|(known, _)| known == route) {
                None => result = Err(Rejected::Foreign),
                Some((_, found)) if !found.carries(&common.system, *value) => result = Err(Rejected::Implausible),
                Some(_) => common.release_of(common.contract_updates.set(*route, *value)).post(),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyoshi_dispatch::Dispatcher;
    use hyoshi_model::Instant;
    use hyoshi_os::MonotonicClock;
    use hyoshi_sched::{Plan, Strategies};
    use hyoshi_trace::{Input, NoProbe};
    use proptest::prelude::*;

    use super::*;

    const HOSTS: &str = "name = 'hosts'\n[host.near]\n[host.far]\n\
        [processor.near]\nhost = 'near'\n[processor.far]\nhost = 'far'\n\
        [operation.poll]\non = 'near'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
        [operation.serve]\non = 'far'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
        [contract.load]\non = 'near'\nwatch = { late = { of = 'operation.serve.miss_ratio' } }\n\
        [[contract.load.region]]\nname = 'slow'\nenter = 'late > 0.1'\n\
        do = [{ set = 'operation.serve.rate', most = '2Hz' }]\n\
        [[contract.load.region]]\nname = 'fast'\n";
    const NEAR: HostId = HostId(0);
    const FAR: HostId = HostId(1);

    fn running_on(host: HostId) -> CommonState {
        let system = Arc::new(hyoshi_model::read(HOSTS, "hosts.toml", None).unwrap().system);
        let common = CommonState::new(system, Some(host), Instant::NEVER);
        common.begin(MonotonicClock::from_origin(0));
        common
    }

    #[test]
    fn a_host_sets_only_its_own_values_and_known_regions() {
        let common = running_on(FAR);
        let arriving = ArrivingContractUpdates::new(&common, NEAR);
        let taken = || {
            let mut all = Vec::new();
            common.contract_updates.take(ProcessorId(1), |route, value| all.push((route, value)));
            all
        };
        // Route 0 is the condition, which leaves from here; route 1 is the regions.
        assert_eq!(arriving.set(&common, &[(1, 1)]), Ok(()));
        assert_eq!(taken(), [(1, 1)]);
        assert_eq!(taken(), []);
        for (updates, expected) in [
            (vec![(0, 1)], Rejected::Foreign),
            (vec![(2, 1)], Rejected::Foreign),
            (vec![(1, 3)], Rejected::Implausible),
            (vec![(1, -1)], Rejected::Implausible),
            (vec![(1, 1), (1, 2)], Rejected::Foreign),
        ] {
            assert_eq!(arriving.set(&common, &updates), Err(expected), "{updates:?}");
        }
        assert_eq!(taken(), []);
    }

    proptest! {
        /// Whatever a host sends, only values of its own routes arrive, with regions that the contract has; and a
        /// dispatcher accepts each of them.
        #[test]
        fn updates_of_a_hostile_host_are_rejected_or_possible(
            updates in prop::collection::vec((0u16..4, prop_oneof![-2i64..6, any::<i64>(), Just(i64::MIN)]), 0..4)
        ) {
            for (here, from, own) in [(FAR, NEAR, 1), (NEAR, FAR, 0)] {
                let common = running_on(here);
                let system = &common.system;
                let result = ArrivingContractUpdates::new(&common, from).set(&common, &updates);
                let plan = Plan::new(system, &Strategies::built_in()).unwrap();
                let dispatcher = Dispatcher::new(system, &plan.processors[here.index()], NoProbe);
                let mut taken = Vec::new();
                common.contract_updates.take(ProcessorId(here.0), |route, value| taken.push((route, value)));
                for (route, value) in &taken {
                    prop_assert_eq!(*route, own);
                    prop_assert!(updates.contains(&(*route, *value)));
                    let input = Input::ContractUpdate { route: *route, value: *value };
                    prop_assert!(dispatcher.accepts(system, Instant::ZERO, &input));
                }
                prop_assert_eq!(result.is_ok(), taken.len() == updates.len(), "{:?}", result);
            }
        }
    }

    #[test]
    fn the_latest_value_leaves_once_for_the_host_that_needs_it() {
        let common = running_on(FAR);
        let mut departing = DepartingContractUpdates::new(&common, NEAR).unwrap();
        assert_eq!(common.contract_updates.set(0, 5), ProcessorId(0));
        assert_eq!(common.contract_updates.set(0, 7), ProcessorId(0));
        assert_eq!(departing.take(&common), [(0, 7)]);
        assert_eq!(departing.take(&common), []);
    }
}
