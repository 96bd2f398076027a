//! The Real-time CORBA policies of an adapter: its priority model, bands and thread pool (Real-time CORBA 1.2, sections
//! 5.7, 5.13 and 5.14).

use std::fmt;
use std::sync::Arc;

use hyoshi_wire::EncodeError;
use hyoshi_wire::ior::{IorEndpoint, POLICY_PRIORITY_BANDS, POLICY_PRIORITY_MODEL, PriorityModelPolicy};
use hyoshi_wire::tagged::{Tagged, tagged_list};

use super::{LanePlace, PoolLane, PoolPlaces, Priority, PriorityBands, RtSettings, ThreadpoolId, current};
use crate::objects::ByOctets;

/// Which side sets the priority of requests (`RTCORBA::PriorityModelPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityModel {
    /// The client, with each request.
    ClientPropagated {
        /// The priority of requests that carry none.
        default: Priority,
    },
    /// The server, for each object.
    ServerDeclared {
        /// The priority of objects without one of their own.
        priority: Priority,
    },
}

/// Policies of an adapter that do not fit together, or not to a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RtPolicyError {
    /// The ORB has no such thread pool (`RTCORBA::RTORB::InvalidThreadpool`).
    InvalidThreadpool(ThreadpoolId),
    /// Bands need a priority model.
    BandsWithoutModel,
    /// Only objects of an adapter with server-declared priorities have one of their own.
    NotServerDeclared,
    /// The priority mapping has no native priority for it.
    NotMapped(Priority),
    /// No lane of the adapter's pool has the priority of the object.
    NoLane(Priority),
    /// The priority is in none of the adapter's bands.
    OutsideBands(Priority),
    /// No lane of the adapter's pool is in this band.
    EmptyBand(Priority, Priority),
    /// The object has another priority already.
    OtherPriority(Priority),
}

impl fmt::Display for RtPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RtPolicyError::InvalidThreadpool(id) => {
                write!(f, "the ORB has no thread pool {id}: RtOrb::create_threadpool creates one")
            }
            RtPolicyError::BandsWithoutModel => {
                write!(f, "priority bands need a priority model: AdapterBuilder::priority_model")
            }
            RtPolicyError::NotServerDeclared => {
                write!(f, "only objects of an adapter with PriorityModel::ServerDeclared have a priority of their own")
            }
            RtPolicyError::NotMapped(priority) => {
                write!(f, "CORBA priority {priority}: the priority mapping has no native priority for it")
            }
            RtPolicyError::NoLane(priority) => {
                write!(f, "no lane of the thread pool has priority {priority}: add one, or use a lane's priority")
            }
            RtPolicyError::OutsideBands(priority) => write!(f, "priority {priority} is in no band: extend the bands"),
            RtPolicyError::EmptyBand(low, high) => {
                write!(f, "no lane of the thread pool is in the band {low} to {high}: add one, or omit the band")
            }
            RtPolicyError::OtherPriority(priority) => {
                write!(f, "the object already has priority {priority}: deactivate it first")
            }
        }
    }
}

impl std::error::Error for RtPolicyError {}

/// The policies, and the priorities of single objects.
pub(crate) struct AdapterRt {
    pub(crate) model: Option<PriorityModel>,
    bands: Option<PriorityBands>,
    pub(crate) pool: Option<Arc<PoolPlaces>>,
    declared: ByOctets<Priority>,
}

impl AdapterRt {
    pub(crate) fn new(
        settings: &RtSettings,
        model: Option<PriorityModel>,
        bands: Option<PriorityBands>,
        pool: Option<ThreadpoolId>,
    ) -> Result<AdapterRt, RtPolicyError> {
        let find = |id| settings.pool(id).ok_or(RtPolicyError::InvalidThreadpool(id));
        let policies = AdapterRt { model, bands, pool: pool.map(find).transpose()?, declared: ByOctets::default() };
        policies.check(settings)?;
        Ok(policies)
    }

    fn check(&self, settings: &RtSettings) -> Result<(), RtPolicyError> {
        if let Some(bands) = &self.bands {
            if self.model.is_none() {
                return Err(RtPolicyError::BandsWithoutModel);
            }
            // Otherwise a client in that band would find no endpoint.
            let lanes = self.pool.iter().filter(|pool| pool.has_lanes).flat_map(|pool| &pool.lanes);
            let lanes: Vec<_> = lanes.filter_map(|lane| bands.index_of(lane.priority)).collect();
            let without = bands.ranges().iter().enumerate().find(|(at, _)| !lanes.contains(at));
            if let (true, Some((_, (low, high)))) = (self.pool.as_ref().is_some_and(|pool| pool.has_lanes), without) {
                return Err(RtPolicyError::EmptyBand(*low, *high));
            }
        }
        match self.model {
            Some(PriorityModel::ServerDeclared { priority }) => self.fits(settings, priority),
            Some(PriorityModel::ClientPropagated { default }) => mapped(settings, default),
            None => Ok(()),
        }
    }

    /// Whether an object may have this priority.
    fn fits(&self, settings: &RtSettings, priority: Priority) -> Result<(), RtPolicyError> {
        mapped(settings, priority)?;
        if self.pool.as_ref().is_some_and(|pool| pool.lane(priority).is_none()) {
            return Err(RtPolicyError::NoLane(priority));
        }
        match &self.bands {
            Some(bands) if bands.index_of(priority).is_none() => Err(RtPolicyError::OutsideBands(priority)),
            _ => Ok(()),
        }
    }

    /// Sets the priority of an object, once; or also again, with `anew`. False if it had the priority already.
    pub(crate) fn declare(
        &self,
        settings: &RtSettings,
        id: &[u8],
        priority: Priority,
        anew: bool,
    ) -> Result<bool, RtPolicyError> {
        if !matches!(self.model, Some(PriorityModel::ServerDeclared { .. })) {
            return Err(RtPolicyError::NotServerDeclared);
        }
        self.fits(settings, priority)?;
        let declared = self.declared.pin();
        if anew {
            return Ok(declared.insert(id.into(), priority) != Some(&priority));
        }
        match declared.try_insert(id.into(), priority) {
            Ok(_) => Ok(true),
            Err(other) if *other.current == priority => Ok(false),
            Err(other) => Err(RtPolicyError::OtherPriority(*other.current)),
        }
    }

    /// The object with this id has no priority of its own any more.
    pub(crate) fn forget(&self, id: &[u8]) {
        self.declared.pin().remove(id);
    }

    /// The priority of an object, if the server sets it.
    pub(crate) fn declared(&self, id: &[u8]) -> Option<Priority> {
        let Some(PriorityModel::ServerDeclared { priority }) = self.model else { return None };
        let declared = self.declared.pin();
        Some(declared.get(id).copied().unwrap_or(priority))
    }

    /// Whether a call within the process may run on the calling thread, which serves `here`.
    pub(crate) fn runs_at(&self, id: &[u8], here: Option<PoolLane>) -> bool {
        let Some(pool) = &self.pool else { return true };
        let Some(here) = here.filter(|here| here.pool == pool.id) else { return false };
        let own = current::priority();
        let wanted = match self.model {
            None => return true,
            Some(PriorityModel::ServerDeclared { .. }) => self.declared(id),
            Some(PriorityModel::ClientPropagated { default }) => Some(own.unwrap_or(default)),
        };
        wanted == own && (!pool.has_lanes || wanted == Some(here.priority))
    }

    /// The endpoints in references to an object; `None` if those of the ORB.
    pub(crate) fn endpoints(&self, id: &[u8]) -> Option<Vec<IorEndpoint>> {
        let pool = self.pool.as_ref()?;
        let declared = self.declared(id);
        let first = declared.or(match self.model {
            Some(PriorityModel::ClientPropagated { default }) => Some(default),
            _ => None,
        });
        let shown = |lane: &&LanePlace| match (&self.bands, declared) {
            _ if !pool.has_lanes => true,
            (Some(bands), _) => bands.index_of(lane.priority).is_some(),
            (None, Some(declared)) => lane.priority == declared,
            (None, None) => true,
        };
        let mut lanes: Vec<_> = pool.lanes.iter().filter(shown).collect();
        // Clients without Real-time CORBA use the first.
        lanes.sort_by_key(|lane| Some(lane.priority) != first);
        Some(lanes.into_iter().flat_map(|lane| lane.endpoints.clone()).collect())
    }

    /// The data of TAG_POLICIES; `None` without a priority model. TAO's decoder stops at an unknown policy, so the thread
    /// pool is not among them.
    pub(crate) fn policies(&self, id: &[u8]) -> Option<Vec<u8>> {
        let (client_propagated, priority) = match self.model? {
            PriorityModel::ClientPropagated { default } => (true, default),
            PriorityModel::ServerDeclared { priority } => (false, self.declared(id).unwrap_or(priority)),
        };
        let model = PriorityModelPolicy { client_propagated, priority: priority.number() };
        let bands = self.bands.as_ref().filter(|_| !client_propagated);
        let write = || -> Result<Vec<u8>, EncodeError> {
            let model = model.data()?;
            let numbers = |bands: &PriorityBands| -> Vec<[i16; 2]> {
                bands.ranges().iter().map(|(low, high)| [low.number(), high.number()]).collect()
            };
            let bands = bands.map(|bands| PriorityModelPolicy::bands_data(&numbers(bands))).transpose()?;
            let model = Tagged { tag: POLICY_PRIORITY_MODEL, data: &model };
            let bands = bands.as_ref().map(|data| Tagged { tag: POLICY_PRIORITY_BANDS, data });
            tagged_list(&Vec::from_iter([model].into_iter().chain(bands)))
        };
        // Cannot fail: it is short.
        write().ok()
    }
}

fn mapped(settings: &RtSettings, priority: Priority) -> Result<(), RtPolicyError> {
    settings.native(priority).map(drop).map_err(|_| RtPolicyError::NotMapped(priority))
}

impl fmt::Debug for AdapterRt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdapterRt").field("model", &self.model).field("pool", &self.pool).finish_non_exhaustive()
    }
}
