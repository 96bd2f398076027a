//! Threads of lower lanes that serve a lane while all of its own are busy (`allow_borrowing` of Real-time CORBA, section
//! 5.11.2).
//!
//! ```text
//!            all threads of the lane are busy          a client's octets arrive
//!   Unasked ──────────────────────────────────► Asked ─────────────────────────► a lower thread: raised, serves, returns
//!      ▲                                         │ ▲                                 │ the lane is still busy
//!      └─────────────────────────────────────────┘ └─────────────────────────────────┘
//!        a lower thread finds an idle one of the lane
//! ```
//!
//! The lower lane's epoll waits for that of the lane, so lanes that have idle threads of their own share nothing.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hyoshi_os::PiMutex;

use super::{Alive, AtWork, Lane, Worker};
use crate::rt::current::{go_home, settle};
use crate::shared::Shared;

/// Numbers of sources from here on, below those of connections, are the epolls of lanes that borrow.
pub(super) const BORROWERS: u64 = 1 << 31;

thread_local! {
    /// The lane that this thread of another lane serves.
    static LENT_TO: Cell<*const Lane> = const { Cell::new(ptr::null()) };
}

/// Of a lane.
#[derive(Debug, Default)]
pub(super) struct Borrowing {
    /// Lower lanes whose threads it may borrow, each with its number there.
    lenders: OnceLock<Vec<(Weak<Lane>, u64)>>,
    /// The lenders wait for its clients.
    asked: AtomicBool,
    /// What borrowed threads serve.
    pub(super) at_work: OnceLock<Box<[PiMutex<Option<AtWork>>]>>,
    /// Higher lanes that may borrow threads of this one, and the numbers of those threads there.
    borrowers: PiMutex<Vec<(Weak<Lane>, usize)>>,
}

impl Lane {
    /// Threads of these lanes may serve this one's clients. Called once, before the lane is opened.
    pub(crate) fn borrow_from(self: &Arc<Self>, lower: &[Arc<Lane>]) -> io::Result<()> {
        let (mut lenders, mut threads) = (Vec::new(), self.options.threads);
        for lane in lower {
            let mut borrowers = lane.borrowing.borrowers.lock();
            let number = BORROWERS + borrowers.len() as u64;
            lane.poller.add_unarmed(&self.poller, number)?;
            borrowers.push((Arc::downgrade(self), threads));
            lenders.push((Arc::downgrade(lane), number));
            threads += lane.options.threads;
        }
        let places = (self.options.threads..threads).map(|_| PiMutex::new(None)).collect();
        let _ = self.borrowing.at_work.set(places);
        let _ = self.borrowing.lenders.set(lenders);
        Ok(())
    }

    /// All threads of the lane are busy.
    #[inline]
    pub(super) fn ask_lenders(&self) {
        let Some(lenders) = self.borrowing.lenders.get() else { return };
        fence(Ordering::SeqCst);
        if !self.borrowing.asked.swap(true, Ordering::SeqCst) {
            for (lender, number) in lenders {
                lender.upgrade().inspect(|lender| drop(lender.poller.arm(&self.poller, *number, false)));
            }
        }
    }

    /// Something arrived at a lane that borrows: the calling thread of this lane serves it, at that lane's priority.
    pub(super) fn serve_borrower(&self, orb: &Arc<Shared>, number: u64, worker: &mut Worker) {
        let place = self.borrowing.borrowers.lock().get((number - BORROWERS) as usize).cloned();
        let Some((Some(lane), threads)) = place.map(|(lane, threads)| (lane.upgrade(), threads)) else { return };
        if lane.idle.load(Ordering::Relaxed) > 0 {
            lane.borrowing.asked.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // A thread that became busy just now has found that the lenders were asked already.
            if lane.idle.load(Ordering::Relaxed) == 0 {
                lane.ask_lenders();
            }
            return;
        }
        if !LENT_TO.get().is_null() {
            // A lent thread is not lent again. Its own lane asks for that lane's clients, too.
            let _ = self.poller.arm(&lane.poller, number, false);
            return;
        }
        let ready = lane.poller.wait_with_hangup(Some(Duration::ZERO));
        // At once: the next thread may serve the next client beside this one.
        let _ = self.poller.arm(&lane.poller, number, false);
        let Ok(Some(ready)) = ready else { return };
        let home = settle(Some(lane.home()));
        go_home();
        let own = worker.number;
        worker.number += threads;
        LENT_TO.set(Arc::as_ptr(&lane));
        {
            let _alive = Alive::begin(&lane);
            lane.take_up(orb, ready, worker);
            if lane.stopping() {
                // The poke may have been for a thread of the lane.
                lane.poller.poke();
            }
        }
        LENT_TO.set(ptr::null());
        worker.number = own;
        settle(home);
        go_home();
    }

    /// True of a thread that the lane has borrowed.
    pub(super) fn has_borrowed_this(&self) -> bool {
        ptr::eq(LENT_TO.get(), self)
    }
}
