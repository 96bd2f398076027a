//! Whether an adapter accepts requests now.

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
    /// Requests pass.
    Active,
    /// Requests wait: a bounded number of them, and not with the last thread of a lane. Others get TRANSIENT.
    Holding,
    /// Requests get TRANSIENT.
    Discarding,
    /// Requests get OBJ_ADAPTER. Final.
    Inactive,
}

/// The state, and the requests that wait for a change.
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

    /// Changes the state and wakes waiting requests.
    pub(crate) fn set(&self, to: Passage) {
        let set = |state| (state != Passage::Inactive as u8).then_some(to as u8);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        self.changed.post();
    }

    /// Lets a request through, waits with it, or returns why not.
    #[inline]
    pub(crate) fn pass(&self) -> Result<(), SystemException> {
        if self.passage() == Passage::Active { Ok(()) } else { self.wait() }
    }

    #[cold]
    fn wait(&self) -> Result<(), SystemException> {
        let discarded = || SystemKind::Transient.not_done(minor::DISCARDED);
        loop {
            match self.passage() {
                Passage::Active => return Ok(()),
                Passage::Discarding => return Err(discarded()),
                Passage::Inactive => return Err(SystemKind::ObjAdapter.not_done(minor::INACTIVE)),
                Passage::Holding => {
                    let _spared = current::spare_thread().ok_or_else(discarded)?;
                    let room = |waiting| (waiting < self.most).then_some(waiting + 1);
                    self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).map_err(|_| discarded())?;
                    self.changed.wait();
                    if self.waiting.fetch_sub(1, Ordering::AcqRel) > 1 && self.passage() != Passage::Holding {
                        self.changed.post(); // a post lets one through: each wakes the next
                    }
                }
            }
        }
    }
}
