//! Connections that a peer opened and that carry calls both ways, by the address that the peer announced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyoshi_os::PiMutex;
use hyoshi_wire::CharSet;

use super::mux::Mux;
use crate::bidir::PeerIdentity;
use crate::current;

/// The most connections that lead to one address.
const MOST: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WaysBack {
    /// The oldest first. Its peer owns the address while the connection exists.
    all: PiMutex<Vec<AnnouncedConnection>>,
    /// Whether there are any.
    any: AtomicBool,
    /// Peers that references lead to.
    users: AtomicUsize,
}

/// A connection whose peer announced the address.
#[derive(Debug)]
struct AnnouncedConnection {
    mux: Arc<Mux>,
    /// Its peer; `None` if that is not known well enough to share the address.
    identity: Option<PeerIdentity>,
}

impl AnnouncedConnection {
    /// True of the first connection, and of others of the same peer.
    fn shares(&self, first: &AnnouncedConnection) -> bool {
        Arc::ptr_eq(&self.mux, &first.mux) || (self.identity.is_some() && self.identity == first.identity)
    }
}

impl WaysBack {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Selects among the connections of the peer that announced the address first: that of the request which the calling
    /// thread serves; else the oldest with these narrow characters; else the oldest. (An omniORB client with several
    /// connections reads only those on which it waits.)
    #[cold]
    pub(super) fn way(&self, chars: CharSet) -> Option<Arc<Mux>> {
        let own = current::socket();
        let all = self.all.lock();
        let alive = all.iter().filter(|known| known.mux.is_alive());
        let first = alive.clone().next()?;
        let mut shared = alive.filter(|known| known.shares(first)).map(|known| &known.mux);
        let same = shared.clone().find(|mux| own.as_ref().is_some_and(|own| mux.uses(own)));
        same.or_else(|| shared.find(|mux| mux.chars() == Some(chars))).or(Some(&first.mux)).cloned()
    }

    /// Counts a reference that leads there.
    pub(super) fn use_it(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts it out.
    pub(super) fn leave_it(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while references lead there.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Adds a connection. Calls use it unless another peer has announced the address before. False if it is known, or
    /// there are too many.
    pub(super) fn add(&self, mux: &Arc<Mux>, identity: Option<PeerIdentity>) -> bool {
        let mut all = self.all.lock();
        all.retain(|known| known.mux.is_alive());
        if all.iter().any(|known| Arc::ptr_eq(&known.mux, mux)) {
            return false;
        }
        let new = AnnouncedConnection { mux: mux.clone(), identity };
        if all.len() >= MOST {
            // Connections of other peers must not prevent the owner of the address from announcing it again.
            let foreign = all.iter().rposition(|known| !known.shares(&all[0]));
            match foreign.filter(|_| new.shares(&all[0])) {
                Some(foreign) => drop(all.remove(foreign)),
                None => return false,
            }
        }
        all.push(new);
        self.any.store(true, Ordering::Relaxed);
        true
    }

    /// All connections.
    pub(super) fn all(&self) -> Vec<Arc<Mux>> {
        if !self.is_there() {
            return Vec::new();
        }
        self.all.lock().iter().map(|known| known.mux.clone()).collect()
    }

    /// Removes connections that have ended.
    pub(crate) fn forget_dead(&self) {
        let mut all = self.all.lock();
        all.retain(|known| known.mux.is_alive());
        self.any.store(!all.is_empty(), Ordering::Relaxed);
    }
}
