//! The connections to one endpoint that calls have for themselves, each for one call at a time.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_os::clock::coarse;
use hyoshi_os::{AtomicSlot, PiMutex};

use super::line::{ConnectionPermit, Line};
use crate::failure::CallFailure;
use crate::socket::BUFFER;
use crate::stream::MaybeTlsStream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Those that exist.
    open: Arc<AtomicUsize>,
    /// For the end of the ORB.
    links: PiMutex<Vec<Weak<MaybeTlsStream>>>,
    /// Idle connections: a place for each that may exist. Calls use the first, and take no lock: it would pass from
    /// call to call through the kernel once two threads meet there.
    idle: Box<[IdlePlace]>,
    /// Idle connections that wait for late replies, the latest at the end. Boxed, because they move between owners.
    #[allow(clippy::vec_box)]
    late: PiMutex<Vec<Box<Line>>>,
    /// How many connections have ended by themselves. Each connection is checked after that, before it is used.
    doubts: AtomicU32,
}

#[derive(Debug, Default)]
struct IdlePlace {
    line: AtomicSlot<Line>,
    /// When its connection was last used, on the coarse clock in nanoseconds: readable without taking it.
    used: AtomicU64,
}

impl Pool {
    /// A pool of at most this many connections.
    pub(super) fn new(most: usize) -> Self {
        Pool {
            open: Arc::default(),
            links: PiMutex::default(),
            idle: (0..most).map(|_| IdlePlace::default()).collect(),
            late: PiMutex::default(),
            doubts: AtomicU32::new(0),
        }
    }

    /// One that can be used at once.
    #[inline]
    pub(super) fn take(&self) -> Option<Box<Line>> {
        let (now, doubts) = (coarse(), self.doubts.load(Ordering::Relaxed));
        for place in &self.idle {
            let Some(mut line) = place.line.take() else { continue };
            if line.is_usable(now, doubts) {
                (line.used, line.doubts) = (now, doubts);
                return Some(line);
            }
            line.close();
        }
        self.try_late()
    }

    /// All idle ones wait for late replies: perhaps that of the first has arrived.
    #[cold]
    fn try_late(&self) -> Option<Box<Line>> {
        let mut late = self.late.lock();
        let mut line = if late.is_empty() { None } else { Some(late.remove(0)) }?;
        drop(late);
        if !line.drain(&mut vec![0; BUFFER]) {
            line.close();
            return None;
        }
        if line.is_late() {
            self.give_back_late(line);
            return None;
        }
        Some(line)
    }

    /// A new one, unless all that may be exist.
    #[cold]
    pub(super) fn add(
        &self,
        connect: impl FnOnce() -> Result<Line, CallFailure>,
    ) -> Option<Result<Box<Line>, CallFailure>> {
        let place = ConnectionPermit::take(&self.open, self.idle.len())?;
        Some(connect().map(|mut line| {
            line.place = Some(place);
            let mut links = self.links.lock();
            links.retain(|link| link.strong_count() > 0);
            links.push(line.link());
            Box::new(line)
        }))
    }

    /// The call is over, and the connection as good as before.
    #[inline]
    pub(crate) fn give_back(&self, mut line: Box<Line>) {
        if line.is_clean() {
            for place in &self.idle {
                let used = line.used.as_nanos();
                match place.line.put(line) {
                    Ok(()) => return place.used.store(used, Ordering::Relaxed),
                    Err(back) => line = back,
                }
            }
        }
        // Or each place was full for a moment, because connections changed places meanwhile.
        line.close();
    }

    /// The call is over, but its reply has not arrived.
    pub(crate) fn give_back_late(&self, line: Box<Line>) {
        self.late.lock().push(line);
    }

    /// A connection has ended: the others may have ended too, and are checked before use.
    #[cold]
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes connections that were idle for so long. Returns whether any exist.
    pub(super) fn retire(&self, now: Span, idle: Span) -> bool {
        let is_old = |used: Span| now.saturating_sub(used) > idle;
        for place in &self.idle {
            // Others stay in their places, where calls look for them.
            if is_old(Span::from_nanos(place.used.load(Ordering::Relaxed)))
                && let Some(line) = place.line.take()
            {
                if is_old(line.used) { line.close() } else { self.give_back(line) }
            }
        }
        let old: Vec<_> = self.late.lock().extract_if(.., |line| is_old(line.used)).collect();
        old.into_iter().for_each(|line| line.close());
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Closes those that calls are waiting on.
    pub(super) fn abandon(&self) {
        let links: Vec<_> = self.links.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| link.close());
    }

    /// Closes those that are idle.
    pub(super) fn close(&self) {
        let late = std::mem::take(&mut *self.late.lock());
        self.idle.iter().filter_map(|place| place.line.take()).chain(late).for_each(|line| line.close());
    }
}
