//! A remote object: its reference, its routes, and the forwarded reference.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{SystemException, SystemKind};

use super::route::{Route, routes};
use crate::minor;
use crate::shared::Shared;

/// State shared by all references to an object.
#[derive(Debug)]
pub(crate) struct RemoteObject {
    orb: Weak<Shared>,
    ior: Ior,
    routes: OnceLock<Vec<Route>>,
    /// Where requests were sent on to.
    sent_on: ArcSwapOption<RemoteObject>,
    /// Set after that, cleared before it: seen without a lock or a count.
    is_sent_on: AtomicBool,
}

impl RemoteObject {
    pub(crate) fn new(orb: Weak<Shared>, ior: Ior) -> Arc<RemoteObject> {
        Arc::new(RemoteObject {
            orb,
            ior,
            routes: OnceLock::new(),
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

    pub(crate) fn routes(&self, orb: &Shared) -> &[Route] {
        self.routes.get_or_init(|| routes(orb, &self.ior))
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
