//! The request that the calling thread serves.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use hyoshi_os::{Credentials, Dscp, Poller};

use crate::rt::{PoolLane, Priority, PriorityCeilings};
use crate::server::ClientSource;
use crate::socket::Socket;

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { keys: Vec::new(), depth: 0, making: Vec::new(), serving: None }) };
}

pub(crate) struct Current {
    /// Keys of the objects whose requests run, the innermost at `depth - 1`. Later buffers are reused.
    keys: Vec<Vec<u8>>,
    depth: usize,
    /// Keys of objects that an activator makes or ends.
    making: Vec<Vec<u8>>,
    /// The connection of the request that runs.
    serving: Option<Serving>,
}

/// A connection that a lane serves, as code above the server needs it.
pub(crate) trait Served: fmt::Debug + Send + Sync {
    fn socket(&self) -> &Arc<Socket>;

    /// Where its client is; none if this ORB opened it.
    fn source(&self) -> Option<ClientSource>;

    /// The process that opened it, if it is a Unix socket.
    fn credentials(&self) -> Option<Credentials>;

    /// Never closes the connection to make room for another one. False if it was so already.
    fn protect(&self) -> bool;

    /// Lets another thread read the connection while a request of this epoch runs, unless too many of its requests run.
    fn let_others_read(self: Arc<Self>, epoch: u64);

    /// Lets other threads than the owner in this epoch read the connection. False if it has a reader of its own.
    fn offer(&self, epoch: u64) -> bool;

    /// Reads what has arrived, and cancels the distributable threads that it names. True if more should be read: a
    /// request still runs.
    fn read_cancels(self: Arc<Self>, buffer: &mut [u8]) -> bool;

    /// Reports octets that arrive to this poller, once.
    fn watch(&self, poller: &Poller, number: u64) -> io::Result<()>;

    /// Keeps a thread of the lane for other requests, until [`unspare`](Self::unspare). False if it is the last one.
    fn spare(&self) -> bool;

    fn unspare(&self);

    /// The lane of a thread pool that serves it.
    fn pool_lane(&self) -> Option<PoolLane>;

    /// True if it carries calls both ways.
    fn is_both_ways(&self) -> bool;

    /// The highest priority that its client may claim; `None` if it has no entry.
    fn ceiling(&self, ceilings: &PriorityCeilings) -> Option<Priority>;
}

/// A connection whose request a thread runs.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) connection: Arc<dyn Served>,
    /// Since when the thread owns the connection; none if an order runs the request, while other threads read.
    pub(crate) epoch: Option<u64>,
}

/// Runs `with` on the key of the object whose request this thread serves.
pub(crate) fn with_object_key<R>(with: impl FnOnce(Option<&[u8]>) -> R) -> R {
    CURRENT.with_borrow(|current| with(current.depth.checked_sub(1).map(|at| current.keys[at].as_slice())))
}

/// The id, in its adapter, of the object whose request this thread serves. Default servants and those of locators need it.
pub fn object_id() -> Option<Vec<u8>> {
    with_object_key(|key| crate::key::ObjectKey::parse(key?).map(|key| key.id.to_vec()))
}

/// The certificate (X.509, DER) of the client whose request this thread serves, signed by an authority that the server
/// trusts. `None` over a plain connection, or if the client showed none.
pub fn peer_certificate() -> Option<Arc<[u8]>> {
    CURRENT.with_borrow(|current| current.serving.as_ref()?.connection.socket().link.certificate().cloned())
}

/// The client whose request this thread serves: its process and user, as the kernel reports them for a Unix socket. `None`
/// over TCP, and for calls within the process.
pub fn peer() -> Option<Credentials> {
    CURRENT.with_borrow(|current| current.serving.as_ref()?.connection.credentials())
}

/// The address of the client of the request that this thread serves. `None` over a Unix socket, and for calls within
/// the process.
pub fn peer_address() -> Option<IpAddr> {
    CURRENT.with_borrow(|current| Some(current.serving.as_ref()?.connection.socket().link.addresses().0?.ip()))
}

/// A server with too many connections does not close the one whose request this thread serves
/// ([`ServerLimits::connections`](crate::ServerLimits::connections)). Call it once the client has proved what it is, and
/// bound the number of such connections. False if it was called before, or there is no connection.
pub fn protect_connection() -> bool {
    CURRENT.with_borrow(|current| current.serving.as_ref().is_some_and(|serving| serving.connection.protect()))
}

/// Sets the DSCP of all further packets on the connection of the request that this thread serves. Call it after the
/// client has proved its identity. A call with the present DSCP costs nothing. Over a Unix socket, and within the
/// process, this has no effect.
pub fn set_connection_dscp(dscp: Dscp) {
    CURRENT.with_borrow(|current| {
        if let Some(serving) = &current.serving {
            // A connection that has just ended has no class.
            let _ = serving.connection.socket().link.set_dscp(dscp);
        }
    });
}

/// A request or an activator that this thread runs, until it is dropped. Not `Send`.
pub(crate) struct Within {
    is_making: bool,
    of_thread: PhantomData<*const ()>,
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| match self.is_making {
            true => drop(current.making.pop()),
            false => current.depth -= 1,
        });
    }
}

/// The thread serves a request to the object with this key.
#[inline]
pub(crate) fn within(key: &[u8]) -> Within {
    CURRENT.with_borrow_mut(|current| {
        if current.keys.len() == current.depth {
            current.keys.push(Vec::new());
        }
        let kept = &mut current.keys[current.depth];
        kept.clear();
        kept.extend_from_slice(key);
        current.depth += 1;
    });
    Within { is_making: false, of_thread: PhantomData }
}

/// The number of requests to this object that run on this thread.
pub(crate) fn depth_within(key: Vec<u8>) -> u64 {
    CURRENT.with_borrow(|current| current.keys[..current.depth].iter().filter(|own| **own == key).count() as u64)
}

/// The thread runs an activator that makes or ends the object with this key.
pub(crate) fn making(key: Vec<u8>) -> Within {
    CURRENT.with_borrow_mut(|current| current.making.push(key));
    Within { is_making: true, of_thread: PhantomData }
}

/// True while the thread makes or ends objects.
#[inline]
pub(crate) fn makes_some() -> bool {
    CURRENT.with_borrow(|current| !current.making.is_empty())
}

/// True while it makes or ends this one.
pub(crate) fn makes(key: &[u8]) -> bool {
    CURRENT.with_borrow(|current| current.making.iter().any(|own| own == key))
}

/// Keeps a thread of the lane free for other requests until it is dropped.
#[derive(Debug)]
pub struct SpareThread {
    of: Option<Arc<dyn Served>>,
}

impl Drop for SpareThread {
    fn drop(&mut self) {
        self.of.as_ref().inspect(|connection| connection.unspare());
    }
}

/// Call it before a servant waits for a slow peer: other threads read the connection, and the lane keeps a thread free
/// while the returned value exists. `None` if this is the lane's last free thread; then do not wait.
pub fn spare_thread() -> Option<SpareThread> {
    let serving = CURRENT.with_borrow(|current| current.serving.clone());
    // A thread that no lane owns, or that an order runs, blocks no other request.
    let Some(Serving { connection, epoch: Some(epoch) }) = serving else {
        return Some(SpareThread { of: None });
    };
    if !connection.spare() {
        return None;
    }
    connection.clone().let_others_read(epoch);
    Some(SpareThread { of: Some(connection) })
}

/// Sets the connection that the thread serves; returns the one before.
pub(crate) fn serve(serving: Option<Serving>) -> Option<Serving> {
    CURRENT.with_borrow_mut(|current| std::mem::replace(&mut current.serving, serving))
}

/// The connection that the thread serves, and since when it owns it.
pub(crate) fn serving() -> Option<(Arc<dyn Served>, Option<u64>)> {
    CURRENT.with_borrow(|current| current.serving.as_ref().map(|serving| (serving.connection.clone(), serving.epoch)))
}

/// Whether the thread serves a request of an order.
pub(crate) fn runs_ordered() -> bool {
    CURRENT.with_borrow(|current| current.serving.as_ref().is_some_and(|serving| serving.epoch.is_none()))
}

/// The lane of a thread pool that this thread serves.
pub(crate) fn pool_lane() -> Option<PoolLane> {
    with_connection(|connection| connection?.pool_lane())
}

/// Runs `with` on the connection whose request this thread runs, if a lane's thread runs it.
pub(crate) fn with_connection<R>(with: impl FnOnce(Option<&dyn Served>) -> R) -> R {
    CURRENT.with_borrow(|current| with(current.serving.as_ref().map(|serving| &*serving.connection)))
}

/// The socket of the connection whose request this thread runs.
pub(crate) fn socket() -> Option<Arc<Socket>> {
    CURRENT.with_borrow(|current| current.serving.as_ref().map(|serving| serving.connection.socket().clone()))
}

/// The thread is going to wait for another ORB. Another thread reads its connection, which may bring the awaited reply.
pub(crate) fn let_others_read() {
    CURRENT.with_borrow(|current| {
        if let Some(Serving { connection, epoch: Some(epoch) }) = &current.serving {
            connection.clone().let_others_read(*epoch);
        }
    });
}
