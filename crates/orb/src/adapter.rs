//! Object adapters: they activate and deactivate objects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_wire::ior::Ior;

use crate::interface::{Interface, Reference};
use crate::key::ObjectKey;
use crate::objects::{Activator, AdapterError, Core, Locator, Passage, Servant};
use crate::rt::{AdapterRt, Priority, PriorityBands, PriorityModel, RtPolicyError, ThreadpoolId};
use crate::shared::Shared;

/// The settings of an adapter ([`Orb::adapter`](crate::Orb::adapter)).
#[derive(Debug)]
#[must_use]
pub struct AdapterBuilder {
    orb: Arc<Shared>,
    core: Core,
    model: Option<PriorityModel>,
    bands: Option<PriorityBands>,
    pool: Option<ThreadpoolId>,
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
        AdapterBuilder { orb, core, model: None, bands: None, pool: None }
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

    /// Which side sets the priority of requests to its objects (`RTCORBA::PriorityModelPolicy`).
    pub fn priority_model(mut self, model: PriorityModel) -> Self {
        self.model = Some(model);
        self
    }

    /// The bands of priorities that clients have a connection for (`RTCORBA::PriorityBandedConnectionPolicy`). References
    /// contain them if the server sets the priorities.
    pub fn priority_bands(mut self, bands: PriorityBands) -> Self {
        self.bands = Some(bands);
        self
    }

    /// Threads of this pool serve its requests ([`RtOrb::create_threadpool`](crate::rt::RtOrb::create_threadpool)).
    pub fn threadpool(mut self, pool: ThreadpoolId) -> Self {
        self.pool = Some(pool);
        self
    }

    /// The adapter, which accepts requests from now on.
    ///
    /// # Errors
    ///
    /// If the name is taken or too long, or the policies of Real-time CORBA do not fit together.
    pub fn build(mut self) -> Result<Adapter, AdapterError> {
        let orb = self.orb.clone();
        let _users = self.pool.map(|_| orb.rt.users.lock());
        if self.model.is_some() || self.bands.is_some() || self.pool.is_some() {
            let policies = AdapterRt::new(&self.orb.rt, self.model, self.bands, self.pool)?;
            self.orb.outrank(&policies);
            self.core.rt = Some(Arc::new(policies));
        }
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
        self.activate_as(self.new_id(), servant)
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
    /// requests are answered at once. Fails also if the ORB has no order, or the adapter's thread pool buffers requests.
    pub fn activate_ordered<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        servant: Arc<T>,
        binding: u32,
    ) -> Result<T::Stub, AdapterError> {
        let buffers = |rt: &Arc<AdapterRt>| rt.pool.as_ref().is_some_and(|pool| pool.buffers);
        let is_ordered = self.orb.upgrade().ok_or(AdapterError::Gone)?.is_ordered;
        if !is_ordered || self.core.rt.as_ref().is_some_and(buffers) {
            return Err(AdapterError::NoOrder);
        }
        self.core.activate(id.as_ref(), Servant::new(servant), Some(binding))?;
        self.reference::<T>(id)
    }

    /// Activates an object under a new id at this priority (`activate_object_with_priority`).
    ///
    /// # Errors
    ///
    /// If the adapter does not have server-declared priorities, or has no lane or band for this one; as
    /// [`activate`](Self::activate).
    pub fn activate_with_priority<T: Interface + ?Sized>(
        &self,
        servant: Arc<T>,
        priority: Priority,
    ) -> Result<T::Stub, AdapterError> {
        self.activate_as_with_priority(self.new_id(), servant, priority)
    }

    /// Activates an object under this id at this priority (`activate_object_with_id_and_priority`).
    ///
    /// # Errors
    ///
    /// If the adapter does not have server-declared priorities, or has no lane or band for this one; if the object has
    /// another priority; as [`activate_as`](Self::activate_as).
    pub fn activate_as_with_priority<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        servant: Arc<T>,
        priority: Priority,
    ) -> Result<T::Stub, AdapterError> {
        let is_new = self.declare(id.as_ref(), priority, false)?;
        self.activate_as(id.as_ref(), servant).inspect_err(|_| {
            if let (true, Some(policies)) = (is_new, &self.core.rt) {
                policies.forget(id.as_ref());
            }
        })
    }

    /// A stub with a new id and this priority, for an object that is not active yet (`create_reference_with_priority`).
    /// The adapter keeps the priority until the object is deactivated. Fails as
    /// [`reference_with_priority`](Self::reference_with_priority).
    pub fn new_reference_with_priority<T: Interface + ?Sized>(
        &self,
        priority: Priority,
    ) -> Result<T::Stub, AdapterError> {
        self.reference_with_priority::<T>(self.new_id(), priority)
    }

    /// A stub for the object with this id, at this priority (`create_reference_with_id_and_priority`).
    ///
    /// # Errors
    ///
    /// If the adapter does not have server-declared priorities, or has no lane or band for this one; if the object has
    /// another priority; if the adapter was destroyed.
    pub fn reference_with_priority<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        priority: Priority,
    ) -> Result<T::Stub, AdapterError> {
        self.declare(id.as_ref(), priority, false)?;
        self.reference::<T>(id)
    }

    /// Sets the priority of an object, in place of the one it has.
    pub(crate) fn schedule(&self, id: &[u8], priority: Priority) -> Result<(), AdapterError> {
        self.declare(id, priority, true).map(drop)
    }

    fn declare(&self, id: &[u8], priority: Priority, anew: bool) -> Result<bool, AdapterError> {
        let orb = self.orb.upgrade().ok_or(AdapterError::Gone)?;
        let policies = self.core.rt.as_ref().ok_or(RtPolicyError::NotServerDeclared)?;
        Ok(policies.declare(&orb.rt, id, priority, anew)?)
    }

    fn new_id(&self) -> [u8; 8] {
        self.core.next.fetch_add(1, Ordering::Relaxed).to_be_bytes()
    }

    /// A stub for the object with this id, active or not. Fails if the adapter was destroyed.
    pub fn reference<T: Interface + ?Sized>(&self, id: impl AsRef<[u8]>) -> Result<T::Stub, AdapterError> {
        let orb = self.orb.upgrade().filter(|_| !self.core.is_destroyed()).ok_or(AdapterError::Gone)?;
        let key = self.core.key(id.as_ref());
        let ior = orb.reference(T::ID, &key, self.core.rt.as_deref(), id.as_ref());
        Ok(Reference::own(&orb, ior, &key).into())
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
