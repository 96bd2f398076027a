//! The proxies of all clients: their states, and how many a client may have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyoshi_events::Subscriber;
use hyoshi_model::{Instant, Span};
use hyoshi_orb::{Adapter, Ior, SystemException, SystemKind, certificate_names, current, minor};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, SpawnedThread};

use crate::ceilings::network_of;
use crate::idl::cos_event_comm::{PushSupplier as _, PushSupplierStub};

/// The maximum number of proxies of all clients, and of one client.
const ALL: usize = 64;
const OF_ONE: usize = 16;
/// A proxy without a consumer that was unused for this long is replaced if a new proxy needs its place.
const UNUSED: Span = Span::from_secs(60);
/// The time limit to inform all suppliers of the end, and to inform one of them.
const FAREWELL: Span = Span::from_secs(1);
const FAREWELL_OF_ONE: Span = Span::from_millis(100);

/// The proxies of a node.
pub(super) struct Proxies {
    clock: MonotonicClock,
    table: PiMutex<ProxyTable>,
    /// Threads that push to consumers.
    threads: PiMutex<Vec<SpawnedThread<()>>>,
    /// The adapters of the proxies' objects.
    adapters: PiMutex<Vec<Adapter>>,
    over: AtomicBool,
}

#[derive(Default)]
struct ProxyTable {
    next: u64,
    all: HashMap<u64, Arc<Proxy>>,
}

/// A client's access to an event.
///
/// ```text
///              connect_push_consumer ─► Consumer ─┐
///   Obtained ─┤                                    ├─ disconnect, failures, unused, end of the run ─► Ended
///              connect_push_supplier ─► Supplier ─┘
/// ```
pub(super) struct Proxy {
    pub id: u64,
    /// The client that obtained it.
    client: String,
    /// When it was last used, in ns.
    used: AtomicU64,
    adapter: Adapter,
    pub link: PiMutex<ProxyLink>,
}

/// See [`Proxy`].
pub(super) enum ProxyLink {
    Obtained,
    Consumer(Arc<Subscriber>),
    Supplier(Option<PushSupplierStub>),
    Ended,
}

impl Proxies {
    pub fn new() -> Proxies {
        Proxies {
            clock: MonotonicClock::from_origin(0),
            table: PiMutex::default(),
            threads: PiMutex::default(),
            adapters: PiMutex::default(),
            over: AtomicBool::new(false),
        }
    }

    pub fn add_adapter(&self, adapter: &Adapter) {
        self.adapters.lock().push(adapter.clone());
    }

    /// Whether a reference leads to one of the proxies.
    pub fn has_object(&self, reference: &Ior) -> bool {
        self.adapters.lock().iter().any(|adapter| adapter.id_of(reference).is_some())
    }

    /// A new proxy for the calling client. Its object will be in this adapter.
    ///
    /// # Errors
    ///
    /// If the client, or all clients together, have the maximum number of proxies, and none is unused.
    pub fn obtain(&self, adapter: &Adapter) -> Result<Arc<Proxy>, SystemException> {
        let (client, now) = (client(), self.clock.now());
        let mut table = self.table.lock();
        let is_own = |proxy: &&Arc<Proxy>| proxy.client == client;
        let has_most = table.all.values().filter(is_own).count() >= OF_ONE;
        let unused = if has_most || table.all.len() >= ALL {
            // A client with the maximum number replaces one of its own.
            let unused = table.all.values().filter(|proxy| (!has_most || is_own(proxy)) && proxy.is_unused(now));
            let unused = unused.min_by_key(|proxy| proxy.used.load(Ordering::Relaxed)).cloned();
            Some(unused.ok_or(SystemKind::ImpLimit.not_done(minor::EVENT_LIMIT))?)
        } else {
            None
        };
        table.next += 1;
        let (id, used) = (table.next, AtomicU64::new(now.as_nanos()));
        let proxy =
            Arc::new(Proxy { id, client, used, adapter: adapter.clone(), link: PiMutex::new(ProxyLink::Obtained) });
        // Before the table is unlocked: another call must not choose the same proxy.
        unused.iter().for_each(|unused| drop(table.all.remove(&unused.id)));
        table.all.insert(id, proxy.clone());
        drop(table);
        unused.inspect(|unused| self.end(unused));
        Ok(proxy)
    }

    pub fn mark_used(&self, proxy: &Proxy) {
        proxy.used.store(self.clock.now().as_nanos(), Ordering::Relaxed);
    }

    /// Ends a proxy: calls of it raise OBJECT_NOT_EXIST. The proxy of a consumer keeps its place until its thread ends.
    pub fn end(&self, proxy: &Proxy) {
        // The link is unlocked before the table is locked, because `obtain` locks them in the reverse order.
        let link = std::mem::replace(&mut *proxy.link.lock(), ProxyLink::Ended);
        match link {
            ProxyLink::Consumer(subscriber) => subscriber.disconnect(),
            ProxyLink::Obtained | ProxyLink::Supplier(_) => self.forget(proxy),
            ProxyLink::Ended => {}
        }
        // If the object is not active, the proxy has ended before.
        let _ = proxy.adapter.deactivate(proxy.id.to_be_bytes());
    }

    /// Removes a proxy from the table.
    pub fn forget(&self, proxy: &Proxy) {
        self.table.lock().all.remove(&proxy.id);
    }

    /// Adds a thread that ends soon after its proxy.
    pub fn add_thread(&self, thread: SpawnedThread<()>) {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Whether `end_all` was called.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends all proxies, and informs consumers and suppliers. The channels must no longer accept calls.
    pub fn end_all(&self) {
        self.over.store(true, Ordering::Release);
        let all: Vec<Arc<Proxy>> = self.table.lock().all.values().cloned().collect();
        let supplier = |proxy: &Arc<Proxy>| match &*proxy.link.lock() {
            ProxyLink::Supplier(supplier) => supplier.clone(),
            _ => None,
        };
        let suppliers: Vec<PushSupplierStub> = all.iter().filter_map(supplier).collect();
        all.iter().for_each(|proxy| self.end(proxy));
        let until = self.clock.now() + FAREWELL;
        for supplier in suppliers {
            let left = until.since(self.clock.now()).min(FAREWELL_OF_ONE);
            if left > Span::ZERO {
                // The supplier may have ended before.
                let _ = supplier.as_ref().within(left).disconnect_push_supplier();
            }
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Proxy {
    /// Whether its client has not used it for long. A consumer is called repeatedly: its proxy ends when calls fail.
    fn is_unused(&self, now: Instant) -> bool {
        let used = Instant::from_nanos(self.used.load(Ordering::Relaxed));
        now.since(used) >= UNUSED && !matches!(*self.link.lock(), ProxyLink::Consumer(_))
    }
}

/// The client of the request that this thread serves, by a property that the client cannot choose itself.
fn client() -> String {
    let names = current::peer_certificate().and_then(|certificate| certificate_names(&certificate).ok());
    if let Some(name) = names.and_then(|names| names.into_iter().next()) {
        return format!("certificate {name}");
    }
    match (current::peer(), current::peer_address().map(|address| address.to_canonical())) {
        (Some(client), _) => format!("user {}", client.uid),
        (None, Some(address)) if address.is_loopback() => "this machine".to_owned(),
        (None, Some(address)) => network_of(address).to_string(),
        (None, None) => "this process".to_owned(),
    }
}
