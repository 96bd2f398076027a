//! Object adapters: they activate and deactivate objects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_wire::ior::Ior;

use crate::interface::{Interface, Reference};
use crate::key::ObjectKey;
use crate::objects::{Activator, AdapterError, Core, Locator, Passage, Servant};
use crate::shared::Shared;

/// The settings of an adapter ([`Orb::adapter`](crate::Orb::adapter)).
#[derive(Debug)]
#[must_use]
pub struct AdapterBuilder {
    orb: Arc<Shared>,
    core: Core,
}

/// A set of objects. Clones share it.
#[derive(Clone, Debug)]
pub struct Adapter {
    orb: Weak<Shared>,
    core: Arc<Core>,
}

impl AdapterBuilder {
    pub(crate) fn new(orb: Arc<Shared>, name: &str) -> Self {
        let core = Core::new(name, orb.adapters.incarnation);
        AdapterBuilder { orb, core }
    }

    /// References remain valid after a restart of the server at the same address, for objects that are activated again
    /// under the same id. Otherwise they are valid in this run only; later they raise OBJECT_NOT_EXIST.
    pub fn persistent(mut self) -> Self {
        self.core.incarnation = None;
        // Generated ids must not be those of an earlier run.
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        self.core.next = AtomicU64::new(since);
        self
    }

    /// The servant for requests to objects that are not active.
    pub fn default_servant<T: Interface + ?Sized>(mut self, servant: Arc<T>) -> Self {
        self.core.default = Some(Servant::new(servant));
        self
    }

    /// Makes servants for objects at their first request.
    pub fn activator(mut self, activator: impl Activator + 'static) -> Self {
        self.core.activator = Some(Arc::new(activator));
        self
    }

    /// Finds a servant for each request to an object that is not active.
    pub fn locator(mut self, locator: impl Locator + 'static) -> Self {
        self.core.locator = Some(Arc::new(locator));
        self
    }

    /// Requests that wait while the adapter holds them, or while its activator makes or ends their objects; default 16 each.
    /// Each blocks a thread of its lane, but never the last one: a lane of one thread holds none. Others get TRANSIENT.
    pub fn hold_at_most(mut self, requests: usize) -> Self {
        // No object shares it before the adapter is built.
        Arc::get_mut(&mut self.core.gate).into_iter().for_each(|gate| gate.most = requests);
        self.core.turns.most = requests;
        self
    }

    /// The time limit for a request that waits while the activator makes or ends its object; default 10 s. Then it gets
    /// TRANSIENT, which resolves deadlocks between activators.
    pub fn made_within(mut self, span: Span) -> Self {
        self.core.turns.patience = span;
        self
    }

    /// Holds requests from the start, until [`Adapter::pass`].
    pub fn holding(self) -> Self {
        self.core.gate.set(Passage::Holding);
        self
    }

    /// The adapter, which accepts requests from now on. Fails if the name is taken or too long.
    pub fn build(self) -> Result<Adapter, AdapterError> {
        let core = self.orb.adapters.add(self.core)?;
        Ok(Adapter { orb: Arc::downgrade(&self.orb), core })
    }
}

impl Adapter {
    /// Its name.
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Activates an object under a new id, and returns its stub. Fails if the adapter was destroyed.
    pub fn activate<T: Interface + ?Sized>(&self, servant: Arc<T>) -> Result<T::Stub, AdapterError> {
        let id = self.core.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        self.activate_as(id, servant)
    }

    /// Activates an object under this id.
    ///
    /// # Errors
    ///
    /// If one with that id is active, or the activator is making or ending it, or the adapter was destroyed.
    pub fn activate_as<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        servant: Arc<T>,
    ) -> Result<T::Stub, AdapterError> {
        self.core.activate(id.as_ref(), Servant::new(servant), None)?;
        self.reference::<T>(id)
    }

    /// The same, bound to the ORB's order ([`OrbBuilder::order`](crate::OrbBuilder::order)). The order receives
    /// `binding` with each request to the object. Operations that all objects have (such as `_is_a`) and locate
    /// requests are answered at once. Fails also if the ORB has no order.
    pub fn activate_ordered<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        servant: Arc<T>,
        binding: u32,
    ) -> Result<T::Stub, AdapterError> {
        if !self.orb.upgrade().ok_or(AdapterError::Gone)?.is_ordered {
            return Err(AdapterError::NoOrder);
        }
        self.core.activate(id.as_ref(), Servant::new(servant), Some(binding))?;
        self.reference::<T>(id)
    }

    /// A stub for the object with this id, active or not. Fails if the adapter was destroyed.
    pub fn reference<T: Interface + ?Sized>(&self, id: impl AsRef<[u8]>) -> Result<T::Stub, AdapterError> {
        let orb = self.orb.upgrade().filter(|_| !self.core.is_destroyed()).ok_or(AdapterError::Gone)?;
        let key = self.core.key(id.as_ref());
        Ok(Reference::own(&orb, T::ID, &key).into())
    }

    /// The id of the object of a reference, if this adapter has it, under any address or published key.
    pub fn id_of(&self, reference: &Ior) -> Option<Vec<u8>> {
        let orb = self.orb.upgrade()?;
        let key = orb.adapters.full_key(orb.key_here(reference)?);
        let key = ObjectKey::parse(&key)?;
        (key.adapter == &*self.core.name && key.incarnation == self.core.incarnation).then(|| key.id.to_vec())
    }

    /// Deactivates the object with this id. Waits until its running calls have ended, and the activator has the servant
    /// again. Within a call of the object it waits for other calls only; the activator gets the servant after that call.
    /// Fails if the object is not active.
    pub fn deactivate(&self, id: impl AsRef<[u8]>) -> Result<(), AdapterError> {
        self.core.deactivate(id.as_ref(), None)
    }

    /// Sets whether requests pass.
    pub fn pass(&self, passage: Passage) {
        self.core.gate.set(passage);
    }

    /// The number of active objects.
    pub fn active(&self) -> usize {
        self.core.objects.len()
    }

    /// Deactivates all objects and accepts no further request. Waits as [`deactivate`](Self::deactivate) does.
    pub fn destroy(self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.adapters.remove(&self.core);
        }
        self.core.end(None);
    }
}
