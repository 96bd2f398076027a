//! What the calling thread is carrying out.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use hyoshi_os::Credentials;

use crate::socket::Socket;

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { keys: Vec::new(), depth: 0, making: Vec::new(), serving: None }) };
}

struct Current {
    /// Keys of the objects whose requests run, the innermost at `depth - 1`. Beyond: kept for their memory.
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

    /// The process that opened it, if it is a Unix socket.
    fn credentials(&self) -> Option<Credentials>;

    /// Lets another thread read the connection while a request of this epoch runs, unless too many of its requests run.
    fn let_others_read(self: Arc<Self>, epoch: u64);

    /// Keeps a thread of the lane for other requests, until [`unspare`](Self::unspare). False if it is the last one.
    fn spare(&self) -> bool;

    fn unspare(&self);
}

/// A connection whose request a thread runs.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) connection: Arc<dyn Served>,
    /// Since when the thread owns the connection; none if an order runs the request, while other threads read.
    pub(crate) epoch: Option<u64>,
}

/// The key of the object whose request this thread carries out.
pub fn object_key() -> Option<Vec<u8>> {
    with_object_key(|key| key.map(<[u8]>::to_vec))
}

/// The same, without a copy.
pub(crate) fn with_object_key<R>(with: impl FnOnce(Option<&[u8]>) -> R) -> R {
    CURRENT.with_borrow(|current| with(current.depth.checked_sub(1).map(|at| current.keys[at].as_slice())))
}

/// The id of that object in its adapter: how a default servant or locator's servant tells whom it stands for.
pub fn object_id() -> Option<Vec<u8>> {
    let key = object_key()?;
    crate::objects::ObjectKey::parse(&key).map(|key| key.id.to_vec())
}

/// The certificate (X.509, DER) of the client whose request this thread serves, signed by an authority that the server
/// trusts. `None` over a plain connection, or if the client showed none.
pub fn peer_certificate() -> Option<Arc<[u8]>> {
    CURRENT.with_borrow(|current| current.serving.as_ref()?.connection.socket().link.certificate().cloned())
}

/// Whose request this thread carries out, if it came over a Unix socket: the process that connected and its user, as the
/// kernel tells them. None over TCP, and for calls within the process.
pub fn peer() -> Option<Credentials> {
    CURRENT.with_borrow(|current| current.serving.as_ref()?.connection.credentials())
}

/// A request that this thread carries out, until it is dropped.
#[derive(Debug)]
pub(crate) struct Within {
    /// The thread's: it must not move to another.
    stays_here: PhantomData<*const ()>,
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| current.depth -= 1);
    }
}

/// The thread carries out a request to the object with this key.
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
    Within { stays_here: PhantomData }
}

/// How many requests to this object run on this thread.
pub(crate) fn depth_within(key: Vec<u8>) -> u64 {
    CURRENT.with_borrow(|current| current.keys[..current.depth].iter().filter(|own| **own == key).count() as u64)
}

/// An activator that this thread runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Making {
    stays_here: PhantomData<*const ()>,
}

impl Drop for Making {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| current.making.pop());
    }
}

/// The thread makes or ends the object with this key.
pub(crate) fn making(key: Vec<u8>) -> Making {
    CURRENT.with_borrow_mut(|current| current.making.push(key));
    Making { stays_here: PhantomData }
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

/// The thread reads a connection from now on, or no more.
pub(crate) fn serve(serving: Option<Serving>) -> Option<Serving> {
    CURRENT.with_borrow_mut(|current| std::mem::replace(&mut current.serving, serving))
}

/// Whether it carries out a request that an order has run.
pub(crate) fn runs_ordered() -> bool {
    CURRENT.with_borrow(|current| current.serving.as_ref().is_some_and(|serving| serving.epoch.is_none()))
}

/// The socket of the connection whose request this thread runs.
pub(crate) fn socket() -> Option<Arc<Socket>> {
    CURRENT.with_borrow(|current| current.serving.as_ref().map(|serving| serving.connection.socket().clone()))
}

/// The thread is about to wait for another ORB: somebody else shall read the connection whose request it carries out,
/// since what it waits for may come over that.
pub(crate) fn let_others_read() {
    CURRENT.with_borrow(|current| {
        if let Some(Serving { connection, epoch: Some(epoch) }) = &current.serving {
            connection.clone().let_others_read(*epoch);
        }
    });
}
