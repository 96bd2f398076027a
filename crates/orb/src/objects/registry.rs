//! All adapters, and the published keys.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{SystemException, SystemKind, Version};

use super::core::{Core, Found};
use super::gate::Passage;
use super::source::Elsewhere;
use super::{AdapterError, ByOctets, Servant, recent};
use crate::key::{MAGIC, ObjectKey};
use crate::minor;
use crate::rt::{AdapterRt, ThreadpoolId};

/// The tables in which a request's key is looked up.
#[derive(Debug)]
pub(crate) struct Adapters {
    /// Identifies this run of the server in keys of transient objects.
    pub(crate) incarnation: u64,
    /// No other tables of this process have it.
    number: u64,
    by_name: ByOctets<Arc<Core>>,
    published: ByOctets<Published>,
}

/// Where an object is.
pub(crate) enum Located {
    Here,
    Elsewhere(Arc<Ior>),
    Nowhere,
}

/// The object of a published key: its reference, and its full key if it is here.
#[derive(Clone, Debug)]
struct Published {
    ior: Arc<Ior>,
    here: Option<Arc<[u8]>>,
}

impl Adapters {
    pub(crate) fn new(incarnation: u64) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(1);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        Adapters { incarnation, number, by_name: ByOctets::default(), published: ByOctets::default() }
    }

    pub(crate) fn add(&self, core: Core) -> Result<Arc<Core>, AdapterError> {
        if core.name.len() > 255 {
            return Err(AdapterError::NameTooLong(core.name().to_owned()));
        }
        let core = Arc::new(core);
        match self.by_name.pin().try_insert(core.name.clone(), core.clone()) {
            Ok(_) => Ok(core),
            Err(_) => Err(AdapterError::NameTaken(core.name().to_owned())),
        }
    }

    pub(crate) fn remove(&self, core: &Arc<Core>) {
        let names = self.by_name.pin();
        if names.get(&core.name).is_some_and(|found| Arc::ptr_eq(found, core)) {
            names.remove(&core.name);
        }
    }

    pub(crate) fn publish(&self, key: &[u8], reference: &Ior, own_key: Option<&[u8]>) -> Result<(), AdapterError> {
        if key.starts_with(&MAGIC) {
            return Err(AdapterError::KeyReserved(key.to_vec()));
        }
        let published = Published { ior: Arc::new(reference.clone()), here: own_key.map(Into::into) };
        self.published.pin().insert(key.into(), published);
        Ok(())
    }

    pub(crate) fn unpublish(&self, key: &[u8]) {
        self.published.pin().remove(key);
    }

    /// Keys of adapters are never published.
    #[inline]
    fn published(&self, key: &[u8]) -> Option<Published> {
        if key.starts_with(&MAGIC) { None } else { self.published.pin().get(key).cloned() }
    }

    /// Runs `with` on the adapter of a key and the object's id in it.
    #[inline]
    fn look_up<'k, R>(
        &self,
        key: &'k [u8],
        with: impl FnOnce(&Arc<Core>, &'k [u8]) -> R,
    ) -> Result<R, SystemException> {
        let none = |minor| SystemKind::ObjectNotExist.not_done(minor);
        let key = ObjectKey::parse(key).ok_or_else(|| none(minor::NO_USABLE_PROFILE))?;
        let adapters = self.by_name.pin();
        let core = adapters.get(key.adapter).ok_or_else(|| none(minor::NO_ADAPTER))?;
        if key.incarnation != core.incarnation {
            return Err(none(minor::OLD_INCARNATION));
        }
        Ok(with(core, key.id))
    }

    /// The adapter of a key, and the object's id in it.
    pub(crate) fn adapter<'k>(&self, key: &'k [u8]) -> Result<(Arc<Core>, &'k [u8]), SystemException> {
        self.look_up(key, |core, id| (core.clone(), id))
    }

    /// Runs `with` on the servant for a request, and returns a locator's servant to it. Clients that use an old version,
    /// because their corbaloc has none, are forwarded to the full reference.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        key: &[u8],
        operation: &str,
        version: Version,
        with: impl FnOnce(&Servant, &[u8], Option<&Arc<AdapterRt>>) -> R,
    ) -> Result<R, Elsewhere> {
        let published = self.published(key);
        let key = match &published {
            Some(Published { here: Some(own), .. }) if version == Version::V1_2 => own,
            Some(Published { ior, .. }) => return Err(Elsewhere::Forward(Box::new(ior.as_ref().clone()))),
            None => key,
        };
        if let Some(entered) = recent::enter(self.number, key) {
            return Ok(with(entered.servant(), key, entered.rt()));
        }
        // An inactive object may need user code that waits. The table must not be pinned meanwhile.
        let (id, found, rt) = match self.look_up(key, |core, id| core.enter(id).ok_or_else(|| (core.clone(), id)))? {
            Ok(entered) => {
                recent::remember(self.number, key, entered.object());
                return Ok(with(entered.servant(), key, entered.rt()));
            }
            Err((core, id)) => (id, core.find(id, operation)?, core.rt.clone()),
        };
        // A locator gets back what it lent, even after a panic.
        let done = catch_unwind(AssertUnwindSafe(|| with(found.servant(), key, rt.as_ref())));
        if let Found::Located(locator, servant) = found {
            locator.after(id, operation, servant);
        }
        Ok(done.unwrap_or_else(|panicked| resume_unwind(panicked)))
    }

    /// The adapter's key of a published one, if the object is here.
    pub(crate) fn full_key(&self, key: Vec<u8>) -> Vec<u8> {
        self.published(&key).and_then(|published| published.here).map_or(key, |own| own.to_vec())
    }

    /// The object's binding to an order, if the operation is one of its own.
    pub(crate) fn binding(&self, key: &[u8], operation: &str) -> Option<u32> {
        let published = self.published(key);
        let key = published.as_ref().map_or(Some(key), |published| published.here.as_deref())?;
        self.look_up(key, |core, id| core.binding(id, operation)).ok()?
    }

    /// Where an object is, without asking its servant.
    pub(crate) fn locate(&self, key: &[u8]) -> Located {
        let published = self.published(key);
        let key = match &published {
            Some(Published { here: Some(own), .. }) => own,
            Some(Published { ior, .. }) => return Located::Elsewhere(ior.clone()),
            None => key,
        };
        match self.adapter(key) {
            Ok((core, id)) if core.has(id) => Located::Here,
            _ => Located::Nowhere,
        }
    }

    /// The name of an adapter that uses this thread pool.
    pub(crate) fn user_of(&self, pool: ThreadpoolId) -> Option<String> {
        let uses =
            |core: &&Arc<Core>| core.rt.as_ref().and_then(|rt| rt.pool.as_ref()).is_some_and(|own| own.id == pool);
        self.by_name.pin().values().find(uses).map(|core| core.name().to_owned())
    }

    /// Requests that wait for adapters get TRANSIENT.
    pub(crate) fn discard_held(&self) {
        let pinned = self.by_name.pin();
        let holding = pinned.values().filter(|core| core.gate.passage() == Passage::Holding);
        holding.for_each(|core| core.gate.set(Passage::Discarding));
    }

    /// Ends all adapters; waits for calls up to `until`.
    pub(crate) fn end(&self, until: Option<Instant>) {
        let all: Vec<_> = self.by_name.pin().values().cloned().collect();
        self.by_name.pin().clear();
        all.iter().for_each(|core| core.end(until));
    }
}
