//! Object adapters: which objects there are, and who carries out their requests.
//!
//! A key names the adapter and the object; finding both takes two look-ups in hash tables that
//! readers never lock (`papaya`), however many there are.

mod gate;
mod key;
mod objects;
mod registry;
mod servant;
mod source;
mod special;
mod turn;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_os::PiMutex;

pub(crate) use gate::Gate;
pub use gate::Passage;
pub(crate) use key::{MAGIC, ObjectKey};
pub(crate) use objects::{Core, Found};
pub(crate) use registry::{Adapters, Located};
pub use servant::Servant;
pub(crate) use servant::{Entered, Slot};
pub use source::{Activator, Elsewhere, Locator};
pub(crate) use special::special;
use turn::Turns;

use crate::interface::Interface;
use crate::orb::Shared;
use crate::reference::Reference;

/// A hash table of ours. Two are looked into for each request: short keys take this hash 3 ns where std's takes 20. It is
/// seeded at random in each process, so nobody outside foresees which keys collide.
type ByOctets<V> = papaya::HashMap<Box<[u8]>, V, foldhash::quality::RandomState>;

/// Requests that wait for an adapter, or for an object to be made.
const HELD: usize = 16;

/// An adapter about to be ([`Orb::adapter`](crate::Orb::adapter)).
pub struct AdapterBuilder {
    orb: Arc<Shared>,
    core: Core,
}

/// A set of objects. Cloning it gives the same adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    orb: Weak<Shared>,
    core: Arc<Core>,
}

/// Why an adapter or object could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterError {
    /// An adapter of that name is there.
    NameTaken(String),
    /// Longer than 255 octets.
    NameTooLong(String),
    /// An object with that id is active.
    ObjectActive(Vec<u8>),
    /// No object with that id is active.
    NotActive(Vec<u8>),
    /// The adapter's activator is just making or ending the object with that id.
    Changing(Vec<u8>),
    /// The key cannot be published: it begins as those of adapters do.
    KeyReserved(Vec<u8>),
    /// The adapter was destroyed, or the ORB is gone.
    Gone,
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdapterError::NameTaken(name) => write!(f, "there is an adapter \"{name}\" already: choose another name"),
            AdapterError::NameTooLong(name) => write!(f, "the adapter's name is longer than 255 octets: \"{name}\""),
            AdapterError::ObjectActive(id) => {
                write!(f, "the object \"{}\" is active already: deactivate it first", id.escape_ascii())
            }
            AdapterError::NotActive(id) => write!(f, "no object \"{}\" is active", id.escape_ascii()),
            AdapterError::Changing(id) => {
                write!(
                    f,
                    "the activator is just making or ending the object \"{}\": activate it later",
                    id.escape_ascii()
                )
            }
            AdapterError::KeyReserved(key) => {
                write!(f, "the key \"{}\" begins as those of adapters do: choose another", key.escape_ascii())
            }
            AdapterError::Gone => f.write_str("the adapter was destroyed, or its ORB shut down"),
        }
    }
}

impl std::error::Error for AdapterError {}

impl AdapterBuilder {
    pub(crate) fn new(orb: Arc<Shared>, name: &str) -> Self {
        let core = Core {
            name: name.as_bytes().into(),
            incarnation: Some(orb.adapters.incarnation),
            objects: ByOctets::default(),
            default: None,
            activator: None,
            locator: None,
            gate: Gate::new(HELD),
            turns: Turns::new(HELD),
            changing: PiMutex::default(),
            next: AtomicU64::new(0),
        };
        AdapterBuilder { orb, core }
    }

    /// References stay good when the server is started again (at the same address), for objects that are
    /// activated again under the same id. Otherwise they end with this run: OBJECT_NOT_EXIST.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.core.incarnation = None;
        // Ids that the adapter gives out must not be those of an earlier run.
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        self.core.next = AtomicU64::new(since);
        self
    }

    /// This servant carries out requests to all objects that are not active.
    #[must_use]
    pub fn default_servant<T: Interface + ?Sized>(mut self, servant: Arc<T>) -> Self {
        self.core.default = Some(Servant::new(servant));
        self
    }

    /// Makes servants when objects are first asked for.
    #[must_use]
    pub fn activator(mut self, activator: impl Activator + 'static) -> Self {
        self.core.activator = Some(Arc::new(activator));
        self
    }

    /// Finds a servant for each request to an object that is not active.
    #[must_use]
    pub fn locator(mut self, locator: impl Locator + 'static) -> Self {
        self.core.locator = Some(Arc::new(locator));
        self
    }

    /// How many requests wait at most while the adapter holds them, or while its activator makes or ends their objects;
    /// default 16 each. Each keeps a thread of its lane, which has one left for other requests at any time: a lane of
    /// one thread holds none. What is not held gets TRANSIENT.
    #[must_use]
    pub fn hold_at_most(mut self, requests: usize) -> Self {
        self.core.gate.most = requests;
        self.core.turns.most = requests;
        self
    }

    /// How long a request waits at most while the activator makes or ends its object; default 10 s. Then it gets
    /// TRANSIENT: so activators that wait for each other's objects end.
    #[must_use]
    pub fn made_within(mut self, span: Span) -> Self {
        self.core.turns.patience = span;
        self
    }

    /// Begins to hold requests at once, until [`Adapter::pass`].
    #[must_use]
    pub fn holding(self) -> Self {
        self.core.gate.set(Passage::Holding);
        self
    }

    /// The adapter; requests come from now on.
    ///
    /// # Errors
    ///
    /// Of a name that is taken or too long.
    pub fn build(self) -> Result<Adapter, AdapterError> {
        let core = self.orb.adapters.add(self.core)?;
        Ok(Adapter { orb: Arc::downgrade(&self.orb), core })
    }
}

impl fmt::Debug for AdapterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl Adapter {
    /// Its name.
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Activates an object under an id that no other had, and gives a stub that calls it.
    ///
    /// # Errors
    ///
    /// If the adapter was destroyed.
    pub fn activate<T: Interface + ?Sized>(&self, servant: Arc<T>) -> Result<T::Stub, AdapterError> {
        let id = self.core.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        self.activate_as(id, servant)
    }

    /// Activates an object under this id.
    ///
    /// # Errors
    ///
    /// If one with that id is active, or is just made or ended by an activator, or the adapter was destroyed.
    pub fn activate_as<T: Interface + ?Sized>(
        &self,
        id: impl AsRef<[u8]>,
        servant: Arc<T>,
    ) -> Result<T::Stub, AdapterError> {
        let id = id.as_ref();
        self.core.activate(id, Servant::new(servant))?;
        self.reference::<T>(id)
    }

    /// A stub for the object with this id, active or not.
    ///
    /// # Errors
    ///
    /// If the adapter was destroyed.
    pub fn reference<T: Interface + ?Sized>(&self, id: impl AsRef<[u8]>) -> Result<T::Stub, AdapterError> {
        let orb = self.orb.upgrade().filter(|_| !self.core.is_destroyed()).ok_or(AdapterError::Gone)?;
        let key = self.core.key(id.as_ref());
        Ok(Reference::own(&orb, T::ID, &key).into())
    }

    /// Deactivates the object with this id: no further call reaches it. Waits until those that run have ended, and the
    /// activator has taken the servant back. Called from within a call of the object it waits for the others only;
    /// the activator gets the servant when that call has ended too.
    ///
    /// # Errors
    ///
    /// If none with that id is active.
    pub fn deactivate(&self, id: impl AsRef<[u8]>) -> Result<(), AdapterError> {
        self.core.deactivate(id.as_ref(), None)
    }

    /// Whether requests pass from now on.
    pub fn pass(&self, passage: Passage) {
        self.core.gate.set(passage);
    }

    /// How many objects are active.
    pub fn active(&self) -> usize {
        self.core.objects.len()
    }

    /// Deactivates every object, and lets no further request in. Waits as [`deactivate`](Self::deactivate) does.
    pub fn destroy(self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.adapters.remove(&self.core);
        }
        self.core.end(None);
    }
}
