//! The connections to one endpoint that calls have for themselves, each for one call at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_os::PiMutex;
use hyoshi_os::clock::coarse;

use super::line::{ConnectionPermit, Line};
use crate::failure::CallFailure;
use crate::socket::BUFFER;
use crate::stream::MaybeTlsStream;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Those that exist.
    open: Arc<AtomicUsize>,
    /// For the end of the ORB.
    links: PiMutex<Vec<Weak<MaybeTlsStream>>>,
    /// Idle connections, the one used last at the end. Boxed, because they move between owners.
    #[allow(clippy::vec_box)]
    idle: PiMutex<Vec<Box<Line>>>,
}

impl Pool {
    /// One that can be used at once.
    #[inline]
    pub(super) fn take(&self) -> Option<Box<Line>> {
        let now = coarse();
        loop {
            let mut line = self.idle.lock().pop()?;
            if line.is_late() {
                return self.try_late(line);
            }
            if line.is_usable(now) {
                line.used = now;
                line.doubted = false;
                return Some(line);
            }
            line.close();
        }
    }

    /// All idle ones wait for late replies, because those are at the front: perhaps this one's has arrived.
    #[cold]
    fn try_late(&self, mut line: Box<Line>) -> Option<Box<Line>> {
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

    /// A new one, unless `most` exist.
    #[cold]
    pub(super) fn add(
        &self,
        most: usize,
        connect: impl FnOnce() -> Result<Line, CallFailure>,
    ) -> Option<Result<Box<Line>, CallFailure>> {
        let place = ConnectionPermit::take(&self.open, most)?;
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
    pub(crate) fn give_back(&self, line: Box<Line>) {
        if line.is_clean() { self.idle.lock().push(line) } else { line.close() }
    }

    /// The call is over, but its reply has not arrived.
    pub(crate) fn give_back_late(&self, line: Box<Line>) {
        self.idle.lock().insert(0, line);
    }

    /// A connection has ended: the others may have ended too, and are checked before use.
    #[cold]
    pub(crate) fn doubt(&self) {
        self.idle.lock().iter_mut().for_each(|line| line.doubted = true);
    }

    /// Closes connections that were idle for so long. Returns whether any exist.
    pub(super) fn retire(&self, now: Span, idle: Span) -> bool {
        let is_old = |line: &mut Box<Line>| now.saturating_sub(line.used) > idle || line.has_expired();
        let old: Vec<_> = self.idle.lock().extract_if(.., is_old).collect();
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
        let idle = std::mem::take(&mut *self.idle.lock());
        idle.into_iter().for_each(|line| line.close());
    }
}
