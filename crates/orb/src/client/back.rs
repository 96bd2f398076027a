//! Ways to a peer that it opened itself: connections that carry calls both ways, by the address that it announced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyoshi_os::PiMutex;
use hyoshi_wire::CharSet;

use super::mux::Mux;
use crate::bidir::Whose;
use crate::current;

/// The most connections that lead to one address.
const MOST: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WaysBack {
    /// The oldest first: its peer has the address, for as long as the connection lives.
    all: PiMutex<Vec<AnnouncedConnection>>,
    /// Whether there are any.
    any: AtomicBool,
    /// Peers that references lead to.
    users: AtomicUsize,
}

/// A connection that leads to the address, as its peer says.
#[derive(Debug)]
struct AnnouncedConnection {
    mux: Arc<Mux>,
    /// Its owner; none if nothing proves it well enough to share the address.
    whose: Option<Whose>,
}

impl AnnouncedConnection {
    /// True of the first connection, and of those that show to be of the same peer.
    fn shares(&self, first: &AnnouncedConnection) -> bool {
        Arc::ptr_eq(&self.mux, &first.mux) || (self.whose.is_some() && self.whose == first.whose)
    }
}

impl WaysBack {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Of the connections of the peer that announced the address first: the one whose request the calling thread
    /// carries out, if that is of these; else the oldest on which narrow characters are as said, else the oldest. (A
    /// client of omniORB's that has opened several reads those only on which it waits.)
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

    /// A reference leads there.
    pub(super) fn use_it(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// No more.
    pub(super) fn leave_it(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while references lead there.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Calls may go over this connection, as soon as none of another peer came first. False if it is known, or there
    /// are too many.
    pub(super) fn add(&self, mux: &Arc<Mux>, whose: Option<Whose>) -> bool {
        let mut all = self.all.lock();
        all.retain(|known| known.mux.is_alive());
        if all.iter().any(|known| Arc::ptr_eq(&known.mux, mux)) {
            return false;
        }
        let new = AnnouncedConnection { mux: mux.clone(), whose };
        if all.len() >= MOST {
            // Others do not keep the peer that has the address from announcing it again.
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

    /// Those there are.
    pub(super) fn all(&self) -> Vec<Arc<Mux>> {
        if !self.is_there() {
            return Vec::new();
        }
        self.all.lock().iter().map(|known| known.mux.clone()).collect()
    }

    /// Some of them may have ended.
    pub(crate) fn forget_dead(&self) {
        let mut all = self.all.lock();
        all.retain(|known| known.mux.is_alive());
        self.any.store(!all.is_empty(), Ordering::Relaxed);
    }
}
