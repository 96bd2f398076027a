//! The Real-time CORBA settings of an ORB, and the thread pools that its references name.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hyoshi_os::priority::LANES;
use hyoshi_os::{Dscp, PiMutex};
use hyoshi_wire::ior::IorEndpoint;
use hyoshi_wire::{SystemException, SystemKind};

use super::{
    AboveCeiling, ClientPolicies, LinearMapping, NetworkPriorityMapping, Priority, PriorityCeilings, PriorityMapping,
    PriorityTransform,
};
use crate::current::pool_lane;
use crate::minor;
use crate::shared::is_among;

/// See the module.
#[derive(Debug)]
pub(crate) struct RtSettings {
    pub(crate) mapping: Arc<dyn PriorityMapping>,
    transform: Option<Arc<dyn PriorityTransform>>,
    network: Option<Arc<dyn NetworkPriorityMapping>>,
    /// Of requests through references without policies of their own.
    pub(crate) client: Arc<ClientPolicies>,
    pub(crate) ceilings: Option<PriorityCeilings>,
    /// Requests above their client's ceiling.
    pub(crate) exceeded: Arc<AtomicU64>,
    /// Oneways that were dropped for lack of room.
    pub(crate) dropped: Arc<AtomicU64>,
    /// The lowest priority that the mapping has.
    lowest: Priority,
    pub(crate) pools: ArcSwap<Vec<Arc<PoolPlaces>>>,
    /// Held while an adapter that uses a pool is built, and while a pool is destroyed.
    pub(crate) users: PiMutex<()>,
}

/// A thread pool, by its number in the ORB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadpoolId(pub(crate) u32);

impl fmt::Display for ThreadpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The places of a thread pool's lanes, for references.
#[derive(Debug)]
pub(crate) struct PoolPlaces {
    pub(crate) id: ThreadpoolId,
    /// Created with lanes: clients choose one by their priority.
    pub(crate) has_lanes: bool,
    /// Its requests wait in its own buffer: no order of the program applies to them.
    pub(crate) buffers: bool,
    /// The lowest priority first; at least one.
    pub(crate) lanes: Vec<LanePlace>,
}

/// A lane of a pool, for references.
#[derive(Debug)]
pub(crate) struct LanePlace {
    pub(crate) priority: Priority,
    pub(crate) endpoints: Vec<IorEndpoint>,
    /// The bound addresses, independent of their names in references.
    pub(crate) bound: Vec<SocketAddr>,
}

/// The lane of a pool that serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLane {
    pub(crate) pool: ThreadpoolId,
    pub(crate) priority: Priority,
}

impl RtSettings {
    pub(crate) fn new(
        mapping: Option<Arc<dyn PriorityMapping>>,
        transform: Option<Arc<dyn PriorityTransform>>,
        network: Option<Arc<dyn NetworkPriorityMapping>>,
        client: ClientPolicies,
        ceilings: Option<PriorityCeilings>,
    ) -> Self {
        let mapping = mapping.unwrap_or_else(|| Arc::new(LinearMapping::default()));
        let lowest = LANES.clone().find_map(|native| mapping.to_corba(native)).unwrap_or_default();
        let (client, exceeded, dropped) = (Arc::new(client), Arc::default(), Arc::default());
        let pools = ArcSwap::default();
        let users = PiMutex::new(());
        RtSettings { mapping, transform, network, client, ceilings, exceeded, dropped, lowest, pools, users }
    }

    /// The SCHED_FIFO priority of a CORBA priority.
    pub(crate) fn native(&self, priority: Priority) -> Result<u8, SystemException> {
        let native = self.mapping.to_native(priority).filter(|native| LANES.contains(native));
        native.ok_or(SystemKind::DataConversion.not_done(minor::RT_UNMAPPED))
    }

    /// The class of packets of this priority, if the program maps priorities to classes.
    pub(crate) fn dscp(&self, priority: Priority) -> Option<Dscp> {
        self.network.as_ref().map(|mapping| mapping.to_dscp(priority))
    }

    /// Whether the program changes priorities.
    pub(crate) fn transforms(&self) -> bool {
        self.transform.is_some()
    }

    /// The priority at which a request runs.
    pub(crate) fn inbound(&self, priority: Priority, object_id: &[u8]) -> Result<Priority, SystemException> {
        let changed = self.transform.as_ref().map_or(Some(priority), |by| by.inbound(priority, object_id));
        changed.ok_or(SystemKind::DataConversion.not_done(minor::RT_UNMAPPED))
    }

    /// The priority that a servant's request carries.
    pub(crate) fn outbound(&self, priority: Priority, object_id: &[u8]) -> Result<Priority, SystemException> {
        let changed = self.transform.as_ref().map_or(Some(priority), |by| by.outbound(priority, object_id));
        changed.ok_or(SystemKind::DataConversion.not_done(minor::RT_UNMAPPED))
    }

    /// The priority of a client's request, within the client's ceiling. A client may always send the default, and use its
    /// lane.
    pub(crate) fn within_ceiling(
        &self,
        priority: Priority,
        default: Priority,
        ceiling: Option<Priority>,
        pool: Option<&PoolPlaces>,
    ) -> Result<Priority, SystemException> {
        let Some(ceilings) = &self.ceilings else { return Ok(priority) };
        let lowest = || pool.map_or(self.lowest, |pool| pool.lanes[0].priority);
        let ceiling = ceiling.unwrap_or_else(lowest);
        let refuses = ceilings.above == AboveCeiling::Refuse;
        let is_above = |lane: PoolLane| lane.priority > ceiling.max(default);
        let takes_lane = refuses && pool.is_some_and(|pool| pool.has_lanes) && pool_lane().is_some_and(is_above);
        if priority <= ceiling && !takes_lane {
            return Ok(priority);
        }
        if priority != default || takes_lane {
            self.exceeded.fetch_add(1, Ordering::Relaxed);
            if refuses {
                return Err(SystemKind::NoPermission.not_done(minor::RT_CEILING));
            }
        }
        Ok(ceiling)
    }

    pub(crate) fn pool(&self, id: ThreadpoolId) -> Option<Arc<PoolPlaces>> {
        self.pools.load().iter().find(|pool| pool.id == id).cloned()
    }

    /// Whether a lane of a pool has this endpoint.
    pub(crate) fn has_endpoint(&self, endpoint: &IorEndpoint) -> bool {
        let has = |lane: &LanePlace| is_among(endpoint, &lane.endpoints, &lane.bound);
        self.pools.load().iter().any(|pool| pool.lanes.iter().any(has))
    }
}

impl PoolPlaces {
    /// The lane for a priority: the one of that priority, or the only one of a pool without lanes.
    pub(crate) fn lane(&self, priority: Priority) -> Option<&LanePlace> {
        self.lanes.iter().find(|lane| !self.has_lanes || lane.priority == priority)
    }
}
