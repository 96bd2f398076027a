//! The naming service: the tree of contexts behind CosNaming's operations, stored on disk.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use hyoshi_orb::{Adapter, AdapterError, Elsewhere, Locator, Object, ObjectRef, Orb, Servant, minor};
use hyoshi_os::{Clock, MonotonicClock, PiMutex};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{FromIor, SystemException, SystemKind};

use crate::context::ContextServant;
use crate::generated::cos_naming::{Binding, BindingIterator, BindingIteratorStub, BindingType, NamingContextExt};
use crate::generated::cos_naming::{NamingContextExtStub, NamingContextStub};
use crate::iterators::{Iterators, ListPosition};
use crate::store::{Snapshot, Store, StoreError, Unstored};
use crate::tree::{ContextId, NamingLimits, NamingRefusal, NamingTree, ROOT, Referent, TreeChange};

/// The usual key of naming services: `corbaloc::host/NameService`.
pub const KEY: &str = "NameService";
const CONTEXTS: &str = "naming";
const ITERATORS: &str = "naming-iterators";
/// Octets of names in one answer; the iterator lists the others.
const ANSWER: usize = 1 << 20;

/// A naming service of this process. It ends when it is dropped or its ORB ends; its files remain.
pub struct NamingService {
    service: Arc<NamingState>,
    adapters: [Adapter; 2],
}

/// The reason why a naming service did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamingServiceError {
    /// Its store cannot be read or written.
    Store(StoreError),
    /// The ORB has a naming service already, or has ended.
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

/// The state that all contexts share.
pub(crate) struct NamingState {
    pub(crate) limits: NamingLimits,
    /// Held during a change, from the decision until it is applied; locked before the tree.
    store: PiMutex<Option<Store>>,
    /// Held only to read or to apply a change, never during disk writes.
    tree: PiMutex<NamingTree>,
    iterators: PiMutex<Iterators>,
    clock: MonotonicClock,
    /// Those of contexts and of iterators.
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
        let mut tree = NamingTree::new(limits.clone());
        let store = directory.map(|directory| Store::open(directory, &mut tree)).transpose();
        let store = store.map_err(NamingServiceError::Store)?;
        let service = Arc::new(NamingState {
            store: PiMutex::new(store),
            tree: PiMutex::new(tree),
            iterators: PiMutex::new(Iterators::new(limits.iterators, limits.idle_iterators)),
            clock: MonotonicClock::start(),
            adapters: OnceLock::new(),
            limits,
        });
        let locator = |find| ById { service: Arc::downgrade(&service), find };
        let contexts = orb.adapter(CONTEXTS).persistent().locator(locator(find_context)).build()?;
        let iterators = orb.adapter(ITERATORS).locator(locator(find_listing)).build();
        let iterators = iterators.inspect_err(|_| contexts.clone().destroy())?;
        let naming = NamingService { service, adapters: [contexts, iterators] };
        // Cannot be set already: it was made above.
        let _ = naming.service.adapters.set(naming.adapters.clone());
        orb.publish(KEY, &naming.root()?)?;
        Ok(naming)
    }

    /// The root context `NameService`. Fails if the ORB has ended.
    pub fn root(&self) -> Result<NamingContextExtStub, AdapterError> {
        self.adapters[0].reference::<dyn NamingContextExt>(ROOT.to_be_bytes())
    }

    /// The part of the file on disk that was cut off, if any: zeros that a loss of power left, or an empty file.
    pub fn repaired(&self) -> Option<String> {
        self.service.store.lock().as_ref()?.repaired.clone()
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

/// Finds servants by ids.
struct ById {
    service: Weak<NamingState>,
    find: fn(Arc<NamingState>, u64) -> Option<Servant>,
}

impl Locator for ById {
    fn before(&self, id: &[u8], _: &str) -> Result<Servant, Elsewhere> {
        let found = self.service.upgrade().zip(number(id)).and_then(|(service, id)| (self.find)(service, id));
        found.ok_or_else(|| gone().into())
    }
}

fn find_context(service: Arc<NamingState>, id: ContextId) -> Option<Servant> {
    let exists = service.tree.lock().has(id);
    exists.then(|| Servant::new::<dyn NamingContextExt>(Arc::new(ContextServant { service, id })))
}

fn find_listing(service: Arc<NamingState>, id: u64) -> Option<Servant> {
    let exists = service.iterators.lock().used(id, service.clock.now()).is_some();
    exists.then(|| Servant::new::<dyn BindingIterator>(Arc::new(Listing { service, id })))
}

fn number(id: &[u8]) -> Option<u64> {
    id.try_into().ok().map(u64::from_be_bytes)
}

fn gone() -> SystemException {
    SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT)
}

impl NamingState {
    pub(crate) fn look<R>(&self, look: impl FnOnce(&NamingTree) -> R) -> R {
        look(&self.tree.lock())
    }

    /// Decides on a change, stores it and applies it.
    pub(crate) fn change<C: AsRef<[TreeChange]>>(
        &self,
        decide: impl FnOnce(&NamingTree) -> Result<C, NamingRefusal>,
    ) -> Result<C, NamingRefusal> {
        let mut store = self.store.lock();
        let decided = decide(&self.tree.lock())?;
        if let Some(store) = store.as_mut() {
            let reported = store.doubtful;
            self.store(store, decided.as_ref()).map_err(|unstored| {
                let (raised, error) = match unstored {
                    Unstored::Nothing(error) => (SystemKind::PersistStore.not_done(minor::NAMING_STORE), error),
                    Unstored::Perhaps(error) => (SystemKind::PersistStore.maybe_done(minor::NAMING_STORE_DOUBT), error),
                };
                // Once, until the next successful write.
                if !reported {
                    eprintln!("hyoshi: the naming service cannot write a change: {error}; free space on its disk");
                }
                NamingRefusal::Unstored(raised)
            })?;
        }
        let mut tree = self.tree.lock();
        for change in decided.as_ref() {
            tree.apply(change.clone());
        }
        drop(tree);
        Ok(decided)
    }

    /// Only one change runs at a time, but names are resolved during disk writes.
    fn store(&self, store: &mut Store, changes: &[TreeChange]) -> Result<(), Unstored> {
        if store.is_due() {
            let snapshot = Snapshot::of(&self.tree.lock()).map_err(Unstored::Nothing)?;
            store.write_anew(&snapshot).map_err(Unstored::Nothing)?;
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

    /// A stub with a time limit for a context of another service.
    pub(crate) fn elsewhere(&self, ior: Ior) -> NamingContextStub {
        NamingContextStub::from_ior(ior).as_ref().within(self.limits.elsewhere)
    }

    /// A reference to a bound object or context.
    pub(crate) fn object(&self, bound: Referent) -> Result<ObjectRef, SystemException> {
        Ok(match bound {
            Referent::Here(id) => self.context(id)?.as_ref().widen::<dyn Object>().into(),
            Referent::Object(ior) | Referent::Elsewhere(ior) => ObjectRef::from_ior(ior),
        })
    }

    /// The context of a reference: one of this service by its id, under any of its addresses, or another's.
    pub(crate) fn bound(&self, ior: &Ior) -> Result<Referent, SystemException> {
        let here = self.adapter(0)?.id_of(ior).and_then(|id| number(&id));
        Ok(here.map_or_else(|| Referent::Elsewhere(ior.clone()), Referent::Here))
    }

    pub(crate) fn list(
        self: &Arc<Self>,
        context: ContextId,
        most: u32,
    ) -> Result<(Vec<Binding>, Option<BindingIteratorStub>), SystemException> {
        let mut cursor = ListPosition { context, last: None };
        let (listed, more) = self.listed(&mut cursor, most);
        if !more {
            return Ok((listed, None));
        }
        let id = self.iterators.lock().open(cursor, self.clock.now());
        let id = id.ok_or_else(|| SystemKind::ImpLimit.not_done(minor::NAMING_LIMIT))?;
        let stub = self.adapter(1)?.reference::<dyn BindingIterator>(id.to_be_bytes());
        Ok((listed, Some(stub.map_err(|_| SystemKind::BadInvOrder.not_done(minor::NO_ORB))?)))
    }

    /// The next bindings, and whether more follow.
    fn listed(&self, cursor: &mut ListPosition, most: u32) -> (Vec<Binding>, bool) {
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

struct Listing {
    service: Arc<NamingState>,
    id: u64,
}

impl Listing {
    fn next(&self, most: u32) -> Result<Vec<Binding>, SystemException> {
        let mut iterators = self.service.iterators.lock();
        let cursor = iterators.used(self.id, self.service.clock.now()).ok_or_else(gone)?;
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
