//! The ways of a request and the priority that it carries, by the Real-time CORBA policies of its reference and its
//! client (Real-time CORBA 1.2, sections 5.7, 5.13 and 5.14).

use std::ops::Deref;
use std::sync::Arc;

use hyoshi_wire::SystemException;
use hyoshi_wire::ior::{Component, Ior, IorEndpoint, PriorityModelPolicy};

use super::route::{Route, routes};
use crate::client::ConnectionSettings;
use crate::minor;
use crate::rt::{ClientPolicies, EffectivePolicies, PolicyKind, Priority, PriorityBands, PriorityModel, conflict};
use crate::shared::Shared;

/// Bindings that a reference keeps: one for each priority and set of policies of its calls.
pub(super) const KEPT: usize = 64;

/// The ways of a request.
#[derive(Debug)]
pub(crate) struct PriorityBinding {
    pub(super) routes: Vec<Route>,
    /// The priority that the request carries.
    pub(super) propagated: Option<Priority>,
}

/// A binding of a reference.
pub(crate) enum BoundRoutes<'a> {
    /// The only one.
    Only(&'a PriorityBinding),
    /// One of several.
    Chosen(Arc<PriorityBinding>),
}

impl Deref for BoundRoutes<'_> {
    type Target = PriorityBinding;

    #[inline]
    fn deref(&self) -> &PriorityBinding {
        match self {
            BoundRoutes::Only(binding) => binding,
            BoundRoutes::Chosen(binding) => binding,
        }
    }
}

/// A binding, with the policies and the thread's priority for which it holds.
#[derive(Clone, Debug)]
pub(super) struct KeptBinding {
    pub(super) policies: Arc<ClientPolicies>,
    pub(super) priority: Option<Priority>,
    pub(super) binding: Arc<PriorityBinding>,
}

impl KeptBinding {
    pub(super) fn is_for(&self, policies: &Arc<ClientPolicies>, priority: Option<Priority>) -> bool {
        self.priority == priority && (Arc::ptr_eq(&self.policies, policies) || self.policies == *policies)
    }
}

/// The policies of a reference.
#[derive(Debug)]
pub(super) struct ReferencePolicies {
    pub(super) model: Option<PriorityModel>,
    bands: Option<PriorityBands>,
    /// Priorities of endpoints.
    lanes: Vec<i16>,
    /// All endpoints, also those without a priority.
    endpoints: usize,
}

impl ReferencePolicies {
    /// Damaged policies are ignored, as unknown ones are.
    pub(super) fn of(ior: &Ior) -> ReferencePolicies {
        let (mut model, mut bands) = (None, None);
        let (mut lanes, mut endpoints) = (Vec::new(), 0);
        for profile in ior.iiop().flatten() {
            for component in profile.components.clone() {
                let Ok(Component::Policies(policies)) = Component::decode(component) else { continue };
                for policy in policies {
                    model = model.or_else(|| PriorityModelPolicy::read(policy).ok().flatten().and_then(read_model));
                    bands =
                        bands.or_else(|| PriorityModelPolicy::read_bands(policy).ok().flatten().and_then(read_bands));
                }
            }
            let all = profile.endpoints();
            endpoints += all.len();
            lanes.extend(all.iter().filter_map(|endpoint| match endpoint {
                IorEndpoint::Tcp { priority, .. } => *priority,
                _ => None,
            }));
        }
        ReferencePolicies { model, bands, lanes, endpoints }
    }

    /// Whether the ways depend on the priority of the client's thread.
    pub(super) fn has_client_priority(&self) -> bool {
        matches!(self.model, Some(PriorityModel::ClientPropagated { .. }))
    }

    /// What applies to requests with these policies of the client. `refused` is the minor code with which they are
    /// refused, if so.
    pub(super) fn effective(&self, client: &ClientPolicies, refused: Option<u32>) -> EffectivePolicies {
        let bands = self.model.and_then(|_| client.bands.as_ref().or(self.bands.as_ref())).cloned();
        let conflicts = match refused {
            Some(minor::RT_TWO_BANDS | minor::RT_NO_BAND) => vec![PolicyKind::PriorityBands],
            Some(minor::RT_NO_LANE) if bands.is_some() => vec![PolicyKind::PriorityModel, PolicyKind::PriorityBands],
            Some(minor::RT_NO_LANE) => vec![PolicyKind::PriorityModel],
            Some(minor::RT_NO_PROTOCOL) => vec![PolicyKind::Protocols],
            _ => Vec::new(),
        };
        EffectivePolicies { model: self.model, client: ClientPolicies { bands, ..client.clone() }, conflicts }
    }

    /// The ways of requests of a thread with this priority. `private` is a number of the object's own.
    pub(super) fn bind(
        &self,
        orb: &Shared,
        ior: &Ior,
        policies: &ClientPolicies,
        own: Option<Priority>,
        private: impl FnOnce() -> u64,
    ) -> Result<PriorityBinding, SystemException> {
        let mut settings = ConnectionSettings {
            tcp: policies.tcp,
            dscp: policies.dscp,
            private: policies.private_connection.then(private),
            ..ConnectionSettings::default()
        };
        let (priority, declared) = match self.model {
            Some(PriorityModel::ClientPropagated { default }) => (own.unwrap_or(default), false),
            Some(PriorityModel::ServerDeclared { priority }) => (priority, true),
            None => {
                let routes = routes(orb, ior, &settings, None, &policies.protocols)?;
                return Ok(PriorityBinding { routes, propagated: None });
            }
        };
        let bands = match (&policies.bands, &self.bands) {
            (Some(_), Some(_)) => return Err(conflict(minor::RT_TWO_BANDS)),
            (own, others) => own.as_ref().or(others.as_ref()),
        };
        let in_bands = |bands: &PriorityBands| bands.index_of(priority).map(|at| bands.ranges()[at]);
        settings.band = bands.map(|bands| in_bands(bands).ok_or_else(|| conflict(minor::RT_NO_BAND))).transpose()?;
        // A connection has one class.
        let mapped = || orb.rt.dscp(settings.band.map_or(priority, |(_, highest)| highest));
        settings.dscp = policies.dscp.or_else(mapped);
        let (low, high) = match settings.band {
            Some(band) if !(declared && self.lanes.contains(&priority.number())) => band,
            _ => (priority, priority),
        };
        let within = |lane: i16| (low.number()..=high.number()).contains(&lane);
        let wanted: Option<&dyn Fn(i16) -> bool> = match self.lanes.iter().any(|lane| within(*lane)) {
            true => Some(&within),
            false if self.lanes.is_empty() => None,
            // A thread without a priority is a client without Real-time CORBA: it uses the first endpoint.
            false if settings.band.is_none() && (self.endpoints == 1 || (own.is_none() && !declared)) => None,
            false if self.lanes.len() < self.endpoints => Some(&within),
            false => return Err(conflict(minor::RT_NO_LANE)),
        };
        let routes = routes(orb, ior, &settings, wanted, &policies.protocols)?;
        Ok(PriorityBinding { routes, propagated: (!declared).then_some(priority) })
    }
}

fn read_model(policy: PriorityModelPolicy) -> Option<PriorityModel> {
    let priority = Priority::new(policy.priority)?;
    Some(match policy.client_propagated {
        true => PriorityModel::ClientPropagated { default: priority },
        false => PriorityModel::ServerDeclared { priority },
    })
}

fn read_bands(bands: Vec<[i16; 2]>) -> Option<PriorityBands> {
    let pair = |[low, high]: [i16; 2]| Some((Priority::new(low)?, Priority::new(high)?));
    PriorityBands::new(&bands.into_iter().map(pair).collect::<Option<Vec<_>>>()?).ok()
}
