//! The ORB: owner of endpoints, adapters and connections.

mod builder;
mod housekeeping;
mod lanes;
mod threadpools;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hyoshi_os::{Dscp, TcpCounts, Wake};
use hyoshi_wire::ior::{Ior, IorEndpoint};
use hyoshi_wire::{SystemException, SystemKind};

pub use builder::{OrbBuilder, OrbError};
pub use threadpools::{RtOrb, ThreadpoolError, ThreadpoolLane, ThreadpoolOptions};

use self::lanes::LaneMaker;
use crate::adapter::AdapterBuilder;
use crate::interface::{Interface, Reference};
use crate::limits::duration;
use crate::objects::AdapterError;
use crate::server::{Lane, OwnedLane};
use crate::shared::Shared;
use crate::{minor, resolve};

/// If a program has not called [`Orb::ready`] by then, it gets a warning.
const OPENS_WITHIN: Duration = Duration::from_secs(5);

/// An ORB: makes objects callable from other processes, and calls remote objects. Clones share it.
#[derive(Clone)]
pub struct Orb {
    /// Dropping the last handle ends the ORB.
    running: Arc<Handle>,
}

struct Handle(Arc<Running>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

/// An ORB with its lanes.
struct Running {
    shared: Arc<Shared>,
    /// Those of thread pools, too.
    lanes: ArcSwap<Vec<Arc<Lane>>>,
    /// Makes lanes of thread pools.
    maker: LaneMaker,
    /// Thread pools that were created.
    pools: AtomicU32,
    /// The deadline to start serving; see [`Orb::ready`].
    due: Instant,
    opened: AtomicBool,
    ended: Wake,
}

impl Orb {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.running.0.shared
    }

    /// An ORB with settings.
    pub fn builder() -> OrbBuilder {
        OrbBuilder::default()
    }

    /// An ORB for calls only. Fails if the system has no thread left.
    pub fn client() -> Result<Orb, OrbError> {
        Orb::builder().build()
    }

    /// Begins an adapter. Its objects end with this run of the program, unless it is made
    /// [`persistent`](AdapterBuilder::persistent).
    pub fn adapter(&self, name: &str) -> AdapterBuilder {
        AdapterBuilder::new(self.shared().clone(), name)
    }

    /// Its endpoints, as in its references. If it has none but can be called
    /// ([`offer_bidirectional`](OrbBuilder::offer_bidirectional)), it has a generated name there.
    pub fn endpoints(&self) -> &[IorEndpoint] {
        &self.shared().endpoints
    }

    /// Publishes an object under a chosen key: `corbaloc:iiop:host:port/KEY`. Clients are forwarded to an object of another
    /// server. A key that is published again refers to the new object. Fails if the key begins like those of adapters.
    pub fn publish<T: Interface + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        object: &impl AsRef<Reference<T>>,
    ) -> Result<(), AdapterError> {
        let ior = object.as_ref().ior();
        let own = self.shared().own_key(ior);
        self.shared().adapters.publish(key.as_ref(), ior, own.as_deref())
    }

    /// Withdraws a published key.
    pub fn unpublish(&self, key: impl AsRef<[u8]>) {
        self.shared().adapters.unpublish(key.as_ref());
    }

    /// A stub for the object at `address`: `IOR:...`, `corbaloc:iiop:host:port/Key`, `corbaname::host#plant/tracker`
    /// (by the naming service), or `file:path` of a file with one of them. Asks the object whether it has the interface.
    ///
    /// # Errors
    ///
    /// INV_OBJREF if the text is none of them, or the name is not bound; BAD_PARAM if the object has another interface; the
    /// exception of a failed call.
    pub fn resolve<T: Interface + ?Sized>(&self, address: &str) -> Result<T::Stub, SystemException> {
        let reference = self.reference::<T>(address)?;
        if reference.is_a(T::ID)? {
            return Ok(reference.into());
        }
        Err(SystemKind::BadParam.not_done(minor::WRONG_INTERFACE))
    }

    /// The same without asking the object. Only a corbaname's naming service is called.
    pub fn resolve_unchecked<T: Interface + ?Sized>(&self, address: &str) -> Result<T::Stub, SystemException> {
        self.reference::<T>(address).map(Into::into)
    }

    fn reference<T: Interface + ?Sized>(&self, address: &str) -> Result<Reference<T>, SystemException> {
        Ok(Reference::new(self.shared(), resolve::resolve(self.shared(), address)?))
    }

    /// A stub for a reference from another source.
    pub fn stub<T: Interface + ?Sized>(&self, ior: Ior) -> T::Stub {
        Reference::new(self.shared(), ior).into()
    }

    /// The lane of this name, if it has no threads and the program serves it.
    pub fn owned_lane(&self, name: &str) -> Option<OwnedLane> {
        self.running.0.lanes.load().iter().filter(|lane| lane.name() == name).find_map(OwnedLane::of)
    }

    /// The number of connections that were closed or not accepted to leave room for clients of other addresses
    /// ([`ServerLimits::connections`](crate::ServerLimits::connections)). It rises.
    pub fn refused_connections(&self) -> Arc<AtomicU64> {
        self.shared().refused.clone()
    }

    /// What the kernel has counted of all TCP connections that this ORB has opened. What a connection counted between the
    /// last call and its end is missing.
    pub fn tcp_counts(&self) -> TcpCounts {
        self.shared().peers.sockets().counts()
    }

    /// The packets of all connections that this ORB has opened, and of those that it opens later, have this DSCP. `None`:
    /// that of their policies.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it for an open connection.
    pub fn set_client_dscp(&self, dscp: Option<Dscp>) -> io::Result<()> {
        self.shared().peers.sockets().set_dscp(dscp)
    }

    /// Its parts of Real-time CORBA: thread pools and priorities (`RTCORBA::RTORB`).
    pub fn rt(&self) -> RtOrb {
        RtOrb::new(self.clone())
    }

    /// Sends delayed oneways ([`SyncScope::None`](crate::SyncScope::None)).
    pub fn flush(&self) {
        self.shared().peers.each(|peer| peer.flush());
    }

    /// Begins to serve clients. Call it when the objects are activated and published: before that, clients would get
    /// OBJECT_NOT_EXIST, which is final. Clients that connect earlier wait in the kernel's queue of the port, which
    /// [`build`](OrbBuilder::build) has bound. Further calls do nothing.
    ///
    /// If a program listens and calls neither this nor [`run`](Self::run) within 5 s, the ORB warns on standard error.
    pub fn ready(&self) {
        self.running.0.open();
    }

    /// Serves clients ([`ready`](Self::ready)), and returns when the ORB is shut down.
    pub fn run(&self) {
        self.ready();
        let running = &self.running.0;
        while !running.shared.is_stopped() {
            running.ended.wait();
        }
        running.ended.post();
        // A servant that ended the ORB has not replied yet.
        let until = running.end_of_patience();
        for lane in running.lanes.load_full().iter() {
            lane.wait_for_threads(until);
        }
    }

    /// Accepts no further request, waits for running ones, and closes all connections with CloseConnection. It does not
    /// wait for the calling thread's own request. Dropping the last handle of an ORB does the same.
    ///
    /// After [`ServerLimits::ending`](crate::ServerLimits::ending) it closes the connections to other ORBs: delayed oneways
    /// ([`SyncScope::None`](crate::SyncScope::None)) are lost, and servants that wait for a reply get COMM_FAILURE. They have one
    /// second more; then it returns in any case, and their replies are dropped.
    pub fn shutdown(&self) {
        self.running.0.shutdown();
    }
}

impl fmt::Debug for Orb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared().fmt(f)
    }
}

impl Running {
    fn open(&self) {
        if !self.shared.is_stopped() && !self.opened.swap(true, Ordering::AcqRel) {
            self.lanes.load().iter().for_each(|lane| lane.open());
        }
    }

    /// When to check whether the ORB was opened; `None` if it was, or has nothing to open.
    fn opening_due(&self) -> Option<Instant> {
        let closed = !self.opened.load(Ordering::Acquire) && self.lanes.load().iter().any(|lane| lane.listens());
        closed.then_some(self.due)
    }

    /// The end of waiting for running requests, if the shutdown begins now.
    fn end_of_patience(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(duration(self.shared.server.ending)).unwrap_or(now + Duration::from_secs(1 << 30))
    }

    fn shutdown(&self) {
        if self.shared.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.adapters.discard_held();
        let mut until = self.end_of_patience();
        // Some oneways use connections of the lanes.
        self.shared.peers.try_flush();
        let lanes = self.lanes.load_full();
        lanes.iter().for_each(|lane| lane.stop_accepting());
        let all_ended = |until| lanes.iter().all(|lane| lane.wait_for_threads(until));
        let ended = all_ended(until);
        self.shared.peers.close(until);
        if !ended {
            // They may wait for a silent peer.
            self.shared.peers.each(|peer| peer.abandon());
            until = Instant::now() + Duration::from_secs(1);
            all_ended(until);
        }
        lanes.iter().for_each(|lane| lane.close_rest());
        self.shared.adapters.end(Some(until));
        self.shared.housekeeping.end();
        self.ended.post();
    }
}
