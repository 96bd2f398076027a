//! The naming service: the tree of contexts behind CosNaming's operations, kept on disk.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use hyoshi_model::Instant;
use hyoshi_orb::{Adapter, AdapterError, Elsewhere, Locator, Object, ObjectRef, Orb, Servant, minor};
use hyoshi_os::{Clock, MonotonicClock, PiMutex};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{FromIor, SystemException, SystemKind};

use crate::context::Context;
use crate::generated::cos_naming::{Binding, BindingIterator, BindingIteratorStub, BindingType, NamingContextExt};
use crate::generated::cos_naming::{NamingContextExtStub, NamingContextStub};
use crate::iterators::{Cursor, Iterators};
use crate::store::{Snapshot, Store, StoreError, Unkept};
use crate::tree::{Bound, Change, ContextId, NamingLimits, ROOT, Refusal, Tree};

/// The key that naming services have everywhere: `corbaloc::host/NameService`.
pub const KEY: &str = "NameService";
const CONTEXTS: &str = "naming";
const ITERATORS: &str = "naming-iterators";
/// Octets of names in one answer; more is left to the iterator.
const ANSWER: usize = 1 << 20;

/// A naming service of this process. It ends when it is dropped or its ORB ends; its files remain.
pub struct NamingService {
    service: Arc<Service>,
    adapters: [Adapter; 2],
}

/// The reason why a naming service did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamingServiceError {
    /// Its store cannot be read or written.
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
    pub(crate) limits: NamingLimits,
    /// Held during a change, from the decision until it is applied; taken before the tree.
    store: PiMutex<Option<Store>>,
    /// Held only to read or to apply a change, never during disk writes.
    tree: PiMutex<Tree>,
    iterators: PiMutex<Iterators>,
    clock: MonotonicClock,
    /// Of contexts, of iterators.
    adapters: OnceLock<[Adapter; 2]>,
}

impl NamingService {
    /// Serves the names stored in a directory, which is created if missing; without one, names are not stored. The root
    /// context has the key `NameService`.
    ///
    /// # Errors
    ///
    /// If another service uses the directory, or its file is damaged, foreign or cannot be written.
    pub fn start(orb: &Orb, directory: Option<&Path>, limits: NamingLimits) -> Result<Self, NamingServiceError> {
        let mut tree = Tree::new(limits.clone());
        let store = directory.map(|directory| Store::open(directory, &mut tree)).transpose();
        let store = store.map_err(NamingServiceError::Store)?;
        let service = Arc::new(Service {
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
        let naming = NamingService { service, adapters };
        orb.publish(KEY, &naming.root()?)?;
        Ok(naming)
    }

    /// The root context `NameService`.
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

    /// The numbers of bindings and of contexts.
    pub fn size(&self) -> (usize, usize) {
        self.service.tree.lock().size()
    }
}

impl Drop for NamingService {
    fn drop(&mut self) {
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

    /// Decides, stores what was decided, and carries it out.
    pub(crate) fn change<C: AsRef<[Change]>>(
        &self,
        decide: impl FnOnce(&Tree) -> Result<C, Refusal>,
    ) -> Result<C, Refusal> {
        let mut store = self.store.lock();
        let decided = decide(&self.tree.lock())?;
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
                Refusal::Unstored(raised)
            })?;
        }
        let mut tree = self.tree.lock();
        for change in changes {
            tree.apply(change.clone());
        }
        drop(tree);
        Ok(decided)
    }

    /// Only one change runs at a time, but names are resolved during disk writes.
    fn keep(&self, store: &mut Store, changes: &[Change]) -> Result<(), Unkept> {
        if store.is_due() {
            let snapshot = Snapshot::of(&self.tree.lock()).map_err(Unkept::Not)?;
            store.write_anew(&snapshot).map_err(Unkept::Not)?;
        }
        store.append(changes)
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
    pub(crate) fn elsewhere(&self, ior: Ior) -> NamingContextStub {
        NamingContextStub::from_ior(ior).as_ref().within(self.limits.elsewhere)
    }

    /// A reference to what is bound.
    pub(crate) fn object(&self, bound: Bound) -> Result<ObjectRef, SystemException> {
        Ok(match bound {
            Bound::Here(id) => self.context(id)?.as_ref().widen::<dyn Object>().into(),
            Bound::Object(ior) | Bound::Elsewhere(ior) => ObjectRef::from_ior(ior),
        })
    }

    /// What a context's reference refers to: one of this service, known by its id whatever address it is reached
    /// at later, or another's.
    pub(crate) fn bound(&self, ior: &Ior) -> Result<Bound, SystemException> {
        let here = self.adapter(0)?.id_of(ior).and_then(|id| number(&id));
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
            listed.push(Binding { binding_name: vec![name.clone()], binding_type });
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
