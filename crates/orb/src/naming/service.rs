//! The naming service: the tree of contexts behind CosNaming's operations, kept on disk.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use hyoshi_model::Instant;
use hyoshi_os::{Clock, MonotonicClock, PiMutex};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{SystemException, SystemKind};

use super::context::Context;
use super::generated::cos_naming::{Binding, BindingIterator, BindingIteratorStub, BindingType, NamingContextExt};
use super::generated::cos_naming::{NamingContextExtStub, NamingContextStub};
use super::iterators::{Cursor, Iterators};
use super::refused::to_wire;
use super::store::{Snapshot, Store, StoreError, Unkept};
use super::tree::{Bound, Change, ContextId, NamingLimits, ROOT, Refusal, Tree};
use crate::adapter::{Adapter, AdapterError, Elsewhere, Locator, ObjectKey, Servant};
use crate::minor;
use crate::object::{Object, ObjectRef};
use crate::orb::{Orb, Shared};
use crate::reference::Reference;

/// The key that naming services have everywhere: `corbaloc::host/NameService`.
pub const KEY: &str = "NameService";
const CONTEXTS: &str = "naming";
const ITERATORS: &str = "naming-iterators";
/// Octets of names in one answer; more is left to the iterator.
const ANSWER: usize = 1 << 20;

/// A naming service of this process. It ends when this goes or its ORB ends; what it keeps on disk stays.
pub struct NamingService {
    service: Arc<Service>,
    adapters: [Adapter; 2],
    orb: Weak<Shared>,
}

/// Why there is no naming service.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamingServiceError {
    /// What it should keep cannot be read or written.
    Store(StoreError),
    /// The ORB has a naming service already, or is gone.
    Adapter(AdapterError),
}

impl fmt::Display for NamingServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamingServiceError::Store(error) => error.fmt(f),
            NamingServiceError::Adapter(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NamingServiceError {}

impl From<AdapterError> for NamingServiceError {
    fn from(error: AdapterError) -> Self {
        NamingServiceError::Adapter(error)
    }
}

/// What all contexts share.
pub(crate) struct Service {
    orb: Weak<Shared>,
    pub(crate) limits: NamingLimits,
    /// Held by whoever changes something, from the decision until it is carried out; taken before the tree.
    store: PiMutex<Option<Store>>,
    /// Held only to look or to carry out, never while the disk works.
    tree: PiMutex<Tree>,
    iterators: PiMutex<Iterators>,
    clock: MonotonicClock,
    /// Of contexts, of iterators.
    adapters: OnceLock<[Adapter; 2]>,
}

impl NamingService {
    /// Begins to serve the names kept in a directory (which is made if it is not there), or none that last. The root
    /// context has the key `NameService`.
    ///
    /// # Errors
    ///
    /// Of a directory that another service works with, or whose file is damaged, foreign or cannot be written.
    pub fn start(orb: &Orb, directory: Option<&Path>, limits: NamingLimits) -> Result<Self, NamingServiceError> {
        let mut tree = Tree::new(limits.clone());
        let store = directory.map(|directory| Store::open(directory, &mut tree)).transpose();
        let store = store.map_err(NamingServiceError::Store)?;
        let service = Arc::new(Service {
            orb: Arc::downgrade(orb.shared()),
            store: PiMutex::new(store),
            tree: PiMutex::new(tree),
            iterators: PiMutex::new(Iterators::new(limits.iterators, limits.idle_iterators)),
            clock: MonotonicClock::start(),
            adapters: OnceLock::new(),
            limits,
        });
        let contexts = Contexts(Arc::downgrade(&service));
        let contexts = orb.adapter(CONTEXTS).persistent().locator(contexts).build()?;
        let iterators = Listings(Arc::downgrade(&service));
        let iterators = match orb.adapter(ITERATORS).locator(iterators).build() {
            Ok(iterators) => iterators,
            Err(error) => {
                contexts.destroy();
                return Err(error.into());
            }
        };
        let adapters = [contexts, iterators];
        // Cannot be set already: it was made above.
        let _ = service.adapters.set(adapters.clone());
        let naming = NamingService { service, adapters, orb: Arc::downgrade(orb.shared()) };
        orb.publish(KEY, &naming.root()?)?;
        Ok(naming)
    }

    /// The context that `NameService` stands for.
    ///
    /// # Errors
    ///
    /// If the ORB is gone.
    pub fn root(&self) -> Result<NamingContextExtStub, AdapterError> {
        self.adapters[0].reference::<dyn NamingContextExt>(ROOT.to_be_bytes())
    }

    /// What was cut from the file on disk, if anything: zeros that a loss of power left, or an empty file.
    pub fn repaired(&self) -> Option<String> {
        self.service.store.lock().as_ref()?.repaired().map(str::to_owned)
    }

    /// How many bindings there are, and in how many contexts.
    pub fn size(&self) -> (usize, usize) {
        self.service.tree.lock().size()
    }
}

impl Drop for NamingService {
    fn drop(&mut self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.adapters.unpublish(KEY.as_bytes());
        }
        self.adapters.clone().into_iter().for_each(Adapter::destroy);
    }
}

impl fmt::Debug for NamingService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamingService").field("size", &self.size()).finish()
    }
}

/// Finds contexts by their ids.
struct Contexts(Weak<Service>);

impl Locator for Contexts {
    fn before(&self, id: &[u8], _: &str) -> Result<Servant, Elsewhere> {
        let found = self.0.upgrade().zip(number(id)).filter(|(service, id)| service.tree.lock().has(*id));
        let (service, id) = found.ok_or_else(gone)?;
        Ok(Servant::new::<dyn NamingContextExt>(Arc::new(Context { service, id })))
    }
}

/// Finds iterators by their ids.
struct Listings(Weak<Service>);

impl Locator for Listings {
    fn before(&self, id: &[u8], _: &str) -> Result<Servant, Elsewhere> {
        let found = self.0.upgrade().zip(number(id));
        let found = found.filter(|(service, id)| service.iterators.lock().used(*id, service.now()).is_some());
        let (service, id) = found.ok_or_else(gone)?;
        Ok(Servant::new::<dyn BindingIterator>(Arc::new(Listing { service, id })))
    }
}

fn number(id: &[u8]) -> Option<u64> {
    id.try_into().ok().map(u64::from_be_bytes)
}

fn gone() -> SystemException {
    SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT)
}

impl Service {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Looks something up.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Tree) -> R) -> R {
        look(&self.tree.lock())
    }

    /// Decides, keeps what was decided on disk, and carries it out. `Err(Ok(_))`: the tree refuses.
    pub(crate) fn change<C: AsRef<[Change]>>(
        &self,
        decide: impl FnOnce(&Tree) -> Result<C, Refusal>,
    ) -> Result<C, Result<Refusal, SystemException>> {
        let mut store = self.store.lock();
        let decided = decide(&self.tree.lock()).map_err(Ok)?;
        let changes = decided.as_ref();
        if let Some(store) = store.as_mut() {
            let known = store.is_doubtful();
            self.keep(store, changes).map_err(|unkept| {
                let (raised, error) = match unkept {
                    Unkept::Not(error) => (SystemKind::PersistStore.not_done(minor::NAMING_STORE), error),
                    Unkept::Perhaps(error) => (SystemKind::PersistStore.maybe_done(minor::NAMING_STORE_DOUBT), error),
                };
                // Once, until the next successful write.
                if !known {
                    eprintln!("hyoshi: the naming service cannot write a change: {error}; free space on its disk");
                }
                Err(raised)
            })?;
        }
        let mut tree = self.tree.lock();
        for change in changes {
            tree.apply(change.clone());
        }
        drop(tree);
        Ok(decided)
    }

    /// Nobody else changes the tree meanwhile, but names are resolved while the disk works.
    fn keep(&self, store: &mut Store, changes: &[Change]) -> Result<(), Unkept> {
        if store.is_due() {
            let snapshot = Snapshot::of(&self.tree.lock()).map_err(Unkept::Not)?;
            store.write_anew(&snapshot).map_err(Unkept::Not)?;
        }
        store.append(changes)
    }

    pub(crate) fn orb(&self) -> Result<Arc<Shared>, SystemException> {
        self.orb.upgrade().ok_or_else(|| SystemKind::BadInvOrder.not_done(minor::NO_ORB))
    }

    fn adapter(&self, which: usize) -> Result<&Adapter, SystemException> {
        let adapters = self.adapters.get().ok_or_else(|| SystemKind::BadInvOrder.not_done(minor::NO_ADAPTER))?;
        Ok(&adapters[which])
    }

    /// A reference to a context of this service.
    pub(crate) fn context(&self, id: ContextId) -> Result<NamingContextStub, SystemException> {
        let stub = self.adapter(0)?.reference::<dyn NamingContextExt>(id.to_be_bytes());
        let stub = stub.map_err(|_| SystemKind::BadInvOrder.not_done(minor::NO_ORB))?;
        Ok(stub.as_ref().widen().into())
    }

    /// A stub for a context of another service, that waits only so long.
    pub(crate) fn elsewhere(&self, ior: Ior) -> Result<NamingContextStub, SystemException> {
        let there: Reference<dyn super::NamingContext> = Reference::new(&self.orb()?, ior);
        Ok(there.within(self.limits.elsewhere))
    }

    /// A reference to what is bound.
    pub(crate) fn object(&self, bound: Bound) -> Result<ObjectRef, SystemException> {
        Ok(match bound {
            Bound::Here(id) => self.context(id)?.as_ref().widen::<dyn Object>().into(),
            Bound::Object(ior) | Bound::Elsewhere(ior) => Reference::new(&self.orb()?, ior).into(),
        })
    }

    /// What a context's reference refers to: one of this service, known by its id whatever address it is reached
    /// at later, or another's.
    pub(crate) fn bound(&self, ior: &Ior) -> Result<Bound, SystemException> {
        let key = self.orb()?.key_here(ior);
        let here = key.as_deref().and_then(|key| match ObjectKey::parse(key) {
            Some(key) if key.adapter == CONTEXTS.as_bytes() && key.incarnation.is_none() => number(key.id),
            None if key == KEY.as_bytes() => Some(ROOT),
            _ => None,
        });
        Ok(here.map_or_else(|| Bound::Elsewhere(ior.clone()), Bound::Here))
    }

    /// Begins a listing.
    pub(crate) fn list(
        self: &Arc<Self>,
        context: ContextId,
        most: u32,
    ) -> Result<(Vec<Binding>, Option<BindingIteratorStub>), SystemException> {
        let mut cursor = Cursor { context, last: None };
        let (listed, more) = self.listed(&mut cursor, most);
        if !more {
            return Ok((listed, None));
        }
        let id = self.iterators.lock().open(cursor, self.now());
        let id = id.ok_or_else(|| SystemKind::ImpLimit.not_done(minor::NAMING_LIMIT))?;
        let stub = self.adapter(1)?.reference::<dyn BindingIterator>(id.to_be_bytes());
        Ok((listed, Some(stub.map_err(|_| SystemKind::BadInvOrder.not_done(minor::NO_ORB))?)))
    }

    /// What comes next, and whether something follows.
    fn listed(&self, cursor: &mut Cursor, most: u32) -> (Vec<Binding>, bool) {
        let tree = self.tree.lock();
        let after = cursor.last.take();
        let mut left = tree.list(cursor.context, after.as_ref()).peekable();
        let (mut listed, mut octets, mut last) = (Vec::new(), 0, None);
        while listed.len() < most as usize && octets < ANSWER {
            let Some((name, is_context)) = left.next() else { break };
            octets += name.id.len() + name.kind.len() + 32;
            let binding_type = if is_context { BindingType::Ncontext } else { BindingType::Nobject };
            listed.push(Binding { binding_name: to_wire(vec![name.clone()]), binding_type });
            last = Some(name);
        }
        let more = left.peek().is_some();
        cursor.last = last.cloned().or_else(|| after.clone());
        (listed, more)
    }
}

/// An iterator, as one request sees it.
struct Listing {
    service: Arc<Service>,
    id: u64,
}

impl Listing {
    fn next(&self, most: u32) -> Result<Vec<Binding>, SystemException> {
        let mut iterators = self.service.iterators.lock();
        let cursor = iterators.used(self.id, self.service.now()).ok_or_else(gone)?;
        Ok(self.service.listed(cursor, most).0)
    }
}

impl BindingIterator for Listing {
    fn next_one(&self) -> Result<(bool, Binding), SystemException> {
        Ok(match self.next(1)?.pop() {
            Some(binding) => (true, binding),
            None => (false, Binding::default()),
        })
    }

    fn next_n(&self, how_many: u32) -> Result<(bool, Vec<Binding>), SystemException> {
        // Naming Service 1.3, 2.2.7.
        if how_many == 0 {
            return Err(SystemKind::BadParam.not_done(minor::NAMING_NONE));
        }
        let listed = self.next(how_many)?;
        Ok((!listed.is_empty(), listed))
    }

    fn destroy(&self) -> Result<(), SystemException> {
        if self.service.iterators.lock().close(self.id) { Ok(()) } else { Err(gone()) }
    }
}
