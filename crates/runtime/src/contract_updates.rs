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
