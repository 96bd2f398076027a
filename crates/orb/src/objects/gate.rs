//! Whether an adapter takes requests now.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use hyoshi_os::Wake;
use hyoshi_wire::{SystemException, SystemKind};

use crate::{current, minor};

/// Whether requests pass (the states of a POA manager, CORBA 3.3 part 1, 15.3.2).
///
/// ```text
///   Holding ◄────► Active ◄────► Discarding       any ──────► Inactive
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Passage {
    /// They do.
    Active,
    /// They wait, a bounded number of them, and not with the last thread of a lane; those beyond get TRANSIENT.
    Holding,
    /// They get TRANSIENT.
    Discarding,
    /// They get OBJ_ADAPTER, for good.
    Inactive,
}

/// The state, and who waits for it to change.
#[derive(Debug)]
pub(crate) struct Gate {
    state: AtomicU8,
    waiting: AtomicUsize,
    pub(crate) most: usize,
    changed: Wake,
}

impl Gate {
    pub(crate) fn new(most: usize) -> Self {
        Gate { state: AtomicU8::new(Passage::Active as u8), waiting: AtomicUsize::new(0), most, changed: Wake::new() }
    }

    #[inline]
    pub(crate) fn passage(&self) -> Passage {
        match self.state.load(Ordering::Acquire) {
            0 => Passage::Active,
            1 => Passage::Holding,
            2 => Passage::Discarding,
            _ => Passage::Inactive,
        }
    }

    /// Changes the state; those that wait look again.
    pub(crate) fn set(&self, to: Passage) {
        let set = |state| (state != Passage::Inactive as u8).then_some(to as u8);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        self.changed.post();
    }

    /// Lets a request through, waits with it, or tells why not.
    #[inline]
    pub(crate) fn pass(&self) -> Result<(), SystemException> {
        if self.passage() == Passage::Active { Ok(()) } else { self.wait() }
    }

    #[cold]
    fn wait(&self) -> Result<(), SystemException> {
        loop {
            match self.passage() {
                Passage::Active => return Ok(()),
                Passage::Discarding => return Err(SystemKind::Transient.not_done(minor::DISCARDED)),
                Passage::Inactive => return Err(SystemKind::ObjAdapter.not_done(minor::INACTIVE)),
                Passage::Holding => {
                    let Some(_spared) = current::spare_thread() else {
                        return Err(SystemKind::Transient.not_done(minor::DISCARDED));
                    };
                    let most = self.most;
                    let room = |waiting| (waiting < most).then_some(waiting + 1);
                    if self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).is_err() {
                        return Err(SystemKind::Transient.not_done(minor::DISCARDED));
                    }
                    self.changed.wait();
                    if self.waiting.fetch_sub(1, Ordering::AcqRel) > 1 && self.passage() != Passage::Holding {
                        self.changed.post(); // a post lets one through: each wakes the next
                    }
                }
            }
        }
    }
}
