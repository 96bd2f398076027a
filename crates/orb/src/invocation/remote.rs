//! A remote object: its reference, its routes, and the forwarded reference.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{SystemException, SystemKind};

use super::binding::{BoundRoutes, KEPT, KeptBinding, PriorityBinding, ReferencePolicies};
use super::invoke::{CallerPriority, Invocation};
use crate::minor;
use crate::rt::{self, ClientPolicies, EffectivePolicies};
use crate::shared::Shared;

/// State shared by all references to an object.
#[derive(Debug)]
pub(crate) struct RemoteObject {
    orb: Weak<Shared>,
    ior: Ior,
    ways: OnceLock<Ways>,
    /// Those by priority and policies.
    bindings: ArcSwap<Vec<KeptBinding>>,
    /// Of its private connections.
    number: OnceLock<u64>,
    /// Where requests were sent on to.
    sent_on: ArcSwapOption<RemoteObject>,
    /// Set after that, cleared before it: seen without a lock or a count.
    is_sent_on: AtomicBool,
}

/// The ways to an object.
#[derive(Debug)]
struct Ways {
    /// The ways of all requests, if neither the reference nor the ORB has policies.
    only: Option<PriorityBinding>,
    policies: ReferencePolicies,
}

impl Ways {
    fn of(orb: &Shared, ior: &Ior) -> Ways {
        let policies = ReferencePolicies::of(ior);
        let plain = policies.model.is_none() && *orb.rt.client == ClientPolicies::default();
        // Without policies there is nothing that could conflict.
        let only = || policies.bind(orb, ior, &orb.rt.client, None, || 0).ok();
        Ways { only: plain.then(only).flatten(), policies }
    }
}

impl RemoteObject {
    pub(crate) fn new(orb: Weak<Shared>, ior: Ior) -> Arc<RemoteObject> {
        Arc::new(RemoteObject {
            orb,
            ior,
            ways: OnceLock::new(),
            bindings: ArcSwap::default(),
            number: OnceLock::new(),
            sent_on: ArcSwapOption::empty(),
            is_sent_on: AtomicBool::new(false),
        })
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<Shared>> {
        self.orb.upgrade()
    }

    pub(crate) fn orb(&self) -> Result<Arc<Shared>, SystemException> {
        let orb = self.upgrade().ok_or_else(|| SystemKind::BadInvOrder.not_done(minor::NO_ORB))?;
        if orb.is_stopped() { Err(SystemKind::BadInvOrder.not_done(minor::SHUT_DOWN)) } else { Ok(orb) }
    }

    pub(crate) fn ior(&self) -> &Ior {
        &self.ior
    }

    /// The ways of a request.
    ///
    /// # Errors
    ///
    /// INV_POLICY if the reference and the client's policies contradict each other, or no lane has the priority.
    #[inline]
    pub(super) fn bind(&self, orb: &Shared, request: &Invocation<'_>) -> Result<BoundRoutes<'_>, SystemException> {
        let ways = self.ways.get_or_init(|| Ways::of(orb, &self.ior));
        match &ways.only {
            Some(binding) if request.policies.is_none() => Ok(BoundRoutes::Only(binding)),
            _ => self.bind_by_policies(ways, orb, request),
        }
    }

    fn bind_by_policies(
        &self,
        ways: &Ways,
        orb: &Shared,
        request: &Invocation<'_>,
    ) -> Result<BoundRoutes<'_>, SystemException> {
        let policies = request.policies(orb);
        let priority = match request.caller {
            _ if !ways.policies.has_client_priority() => None,
            CallerPriority::OfThread => rt::outgoing(&orb.rt)?,
            CallerPriority::Known(priority) => priority,
        };
        let kept = self.bindings.load();
        if let Some(kept) = kept.iter().find(|kept| kept.is_for(policies, priority)) {
            return Ok(BoundRoutes::Chosen(kept.binding.clone()));
        }
        let binding = Arc::new(ways.policies.bind(orb, &self.ior, policies, priority, || self.number())?);
        let add = |all: &Arc<Vec<KeptBinding>>| {
            let all = if all.len() < KEPT { &all[..] } else { &[] };
            let new = KeptBinding { policies: policies.clone(), priority, binding: binding.clone() };
            all.iter().cloned().chain([new]).collect::<Vec<_>>()
        };
        self.bindings.rcu(add);
        Ok(BoundRoutes::Chosen(binding))
    }

    /// The policies of a request.
    ///
    /// # Errors
    ///
    /// If the program's transform refuses the thread's priority.
    pub(crate) fn effective(
        &self,
        orb: &Shared,
        request: &Invocation<'_>,
    ) -> Result<EffectivePolicies, SystemException> {
        let refused = match self.bind(orb, request) {
            Ok(_) => None,
            Err(exception) if exception.kind == SystemKind::InvPolicy => Some(exception.minor),
            Err(exception) => return Err(exception),
        };
        let ways = self.ways.get_or_init(|| Ways::of(orb, &self.ior));
        Ok(ways.policies.effective(request.policies(orb), refused))
    }

    fn number(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        *self.number.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The present target of requests.
    #[inline]
    pub(crate) fn target(self: &Arc<Self>) -> Cow<'_, Arc<RemoteObject>> {
        match self.is_sent_on.load(Ordering::Acquire).then(|| self.sent_on.load_full()).flatten() {
            Some(target) => Cow::Owned(target),
            None => Cow::Borrowed(self),
        }
    }

    /// Requests go there from now on.
    pub(crate) fn send_on(&self, ior: Ior) -> Arc<RemoteObject> {
        let target = RemoteObject::new(self.orb.clone(), ior);
        self.sent_on.store(Some(target.clone()));
        self.is_sent_on.store(true, Ordering::Release);
        target
    }

    /// Requests go to the reference's addresses again.
    pub(crate) fn forget_target(&self) {
        self.is_sent_on.store(false, Ordering::Release);
        self.sent_on.store(None);
    }
}
