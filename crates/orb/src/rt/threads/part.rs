//! A distributable thread within this process: its state, shared by the thread that runs it and by those that cancel
//! or look it up.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hyoshi_os::PiMutex;
use hyoshi_wire::giop::ThreadId;
use hyoshi_wire::{SystemException, SystemKind, Version};

use super::SEGMENTS;
use crate::rt::timing::ThreadTiming;
use crate::{channel, minor};

/// Oneways of a part that a cancel reaches.
const ONEWAYS: usize = 8;

/// Where a request was sent.
pub(crate) trait CancelPath: fmt::Debug + Send + Sync {
    /// Sends a CancelRequest for this request, without waiting.
    fn send_cancel(&self, request: u32, version: Version);

    /// The call of this request, if it still waits for a reply, fails.
    fn give_up(&self, request: u32);

    /// The server's address; `None` over a Unix socket.
    fn address(&self) -> Option<SocketAddr>;
}

/// A part of a distributable thread: from its start here, or the arrival of a request, to its end or the reply. Parts
/// are reused.
///
/// ```text
///            calls: a request is sent            the reply
///   Here ◄──────────────────────────────► Away ───────────► Here ──► Ended
///     │ cancel: the next scheduling point   │ cancel: a CancelRequest follows the request
///     ▼ fails                               ▼
///   Cancelled                             Cancelled
/// ```
#[derive(Debug)]
pub(crate) struct ThreadPart {
    pub(super) id: ThreadId,
    /// Its place in the [registry](super::registry).
    pub(super) place: (u16, u16),
    /// Two-way calls under way, from before they are sent.
    pub(super) calling: AtomicU32,
    /// It has sent oneways.
    pub(super) has_forked: AtomicBool,
    /// [`IS_CANCELLED`] and [`HAS_ENDED`].
    status: AtomicU8,
    /// When it was cancelled, in milliseconds of the coarse clock.
    cancelled_at: AtomicU64,
    /// Open segments: the first ones of the state's. Only the thread that runs the part changes it, under the lock.
    depth: AtomicUsize,
    state: PiMutex<PartState>,
}

/// When a part was last cancelled.
pub(super) static LAST_CANCEL: AtomicU64 = AtomicU64::new(0);

const IS_CANCELLED: u8 = 1;
const HAS_ENDED: u8 = 2;

#[derive(Debug, Default)]
struct PartState {
    /// The open ones are the first. The others keep their memory.
    segments: Vec<OpenSegment>,
    /// Two-way requests without a reply.
    calls: Vec<SentRequest>,
    /// The last oneways.
    oneways: Vec<SentRequest>,
    /// The number of the next of them.
    next: u32,
}

#[derive(Debug, Default)]
struct OpenSegment {
    name: String,
    before: ThreadTiming,
}

#[derive(Debug)]
struct SentRequest {
    number: u32,
    path: Arc<dyn CancelPath>,
    request: u32,
    version: Version,
}

impl SentRequest {
    fn cancel(&self) {
        self.path.send_cancel(self.request, self.version);
    }
}

/// Where the head of a distributable thread is, as far as this process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadLocation {
    /// In this process, within these segments, the innermost last.
    Here(Vec<String>),
    /// In a call that this process sent to the server at this address (`None` over a Unix socket); in this process it is
    /// within these segments.
    Away(Option<SocketAddr>, Vec<String>),
    /// It has left this process.
    Ended,
}

/// The state of a distributable thread (`RTScheduling::DistributableThread::DT_State`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadStatus {
    /// It runs.
    Active,
    /// It is cancelled, and ends at its next scheduling point.
    Cancelled,
    /// It has left this process.
    Ended,
}

/// The exception of a cancelled thread.
pub(super) const CANCELLED: SystemException = SystemKind::ThreadCancelled.not_done(minor::CANCELLED);

impl ThreadPart {
    pub(super) fn new() -> ThreadPart {
        ThreadPart {
            id: ThreadId::NONE,
            place: (0, 0),
            calling: AtomicU32::new(0),
            has_forked: AtomicBool::new(false),
            status: AtomicU8::new(0),
            cancelled_at: AtomicU64::new(u64::MAX),
            depth: AtomicUsize::new(0),
            state: PiMutex::default(),
        }
    }

    /// Makes it a part of this thread.
    pub(super) fn reuse(&mut self, id: ThreadId, place: (u16, u16)) {
        (self.id, self.place) = (id, place);
        *self.calling.get_mut() = 0;
        *self.has_forked.get_mut() = false;
        *self.status.get_mut() = 0;
        *self.cancelled_at.get_mut() = u64::MAX;
        *self.depth.get_mut() = 0;
        let state = self.state.get_mut();
        state.calls.clear();
        state.oneways.clear();
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.status.load(Ordering::SeqCst) & IS_CANCELLED != 0
    }

    /// THREAD_CANCELLED if it is cancelled.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SystemException> {
        if self.is_cancelled() { Err(CANCELLED) } else { Ok(()) }
    }

    pub(super) fn status(&self) -> ThreadStatus {
        match self.status.load(Ordering::SeqCst) {
            0 => ThreadStatus::Active,
            IS_CANCELLED => ThreadStatus::Cancelled,
            _ => ThreadStatus::Ended,
        }
    }

    pub(super) fn location(&self) -> ThreadLocation {
        let state = self.state.lock();
        if self.status() == ThreadStatus::Ended {
            return ThreadLocation::Ended;
        }
        let segments = state.segments[..self.depth()].iter().map(|open| open.name.clone()).collect();
        match state.calls.last() {
            Some(call) => ThreadLocation::Away(call.path.address(), segments),
            None => ThreadLocation::Here(segments),
        }
    }

    /// Cancels it: its own next scheduling point fails, and a CancelRequest follows each request under way. False if it
    /// has ended: otherwise a scheduling point, or its end here, reports it.
    pub(crate) fn cancel(&self) -> bool {
        let runs = |status| (status & HAS_ENDED == 0).then_some(status | IS_CANCELLED);
        let before = self.status.fetch_update(Ordering::SeqCst, Ordering::SeqCst, runs);
        if before == Ok(0) {
            self.cancelled_at.store(channel::now(), Ordering::Relaxed);
            LAST_CANCEL.store(channel::now(), Ordering::Relaxed);
            let state = self.state.lock();
            state.calls.iter().chain(&state.oneways).for_each(SentRequest::cancel);
        }
        before.is_ok()
    }

    /// Its oneways need no cancel any more. The last owner of a connection closes it: not under a lock.
    pub(super) fn drop_oneways(&self) {
        // Without an allocation if there are none.
        let gone: Vec<_> = self.state.lock().oneways.drain(..).collect();
        drop(gone);
    }

    /// Its calls wait no longer if it was cancelled before this time.
    pub(super) fn give_up(&self, before: u64) {
        if self.is_cancelled() && self.cancelled_at.load(Ordering::Relaxed) < before {
            let state = self.state.lock();
            state.calls.iter().for_each(|call| call.path.give_up(call.request));
        }
    }

    /// It has ended here. True if it was cancelled before.
    #[inline]
    pub(super) fn end(&self) -> bool {
        let status = self.status.load(Ordering::SeqCst);
        if status & HAS_ENDED != 0 {
            return status & IS_CANCELLED != 0;
        }
        self.status.fetch_or(HAS_ENDED, Ordering::SeqCst) & IS_CANCELLED != 0
    }

    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Opens a segment, to return to `before` at its end.
    pub(super) fn open(&self, name: &str, before: ThreadTiming) -> Result<(), SystemException> {
        let (mut state, depth) = (self.state.lock(), self.depth());
        if depth >= SEGMENTS {
            return Err(SystemKind::ImpLimit.not_done(minor::SEGMENT_LIMIT));
        }
        if state.segments.len() == depth {
            state.segments.push(OpenSegment::default());
        }
        let open = &mut state.segments[depth];
        open.name.clear();
        open.name.push_str(name);
        open.before = before;
        self.depth.store(depth + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the innermost open segment has this name; an empty name is any.
    pub(super) fn is_within(&self, name: &str) -> Result<(), SystemException> {
        self.state.lock().is_within(self.depth(), name)
    }

    /// Closes the innermost segment, which has this name or any if it is empty. Returns the timing before it, and how
    /// many are open still.
    pub(super) fn close(&self, name: &str) -> Result<(ThreadTiming, usize), SystemException> {
        let (state, depth) = (self.state.lock(), self.depth());
        state.is_within(depth, name)?;
        self.depth.store(depth - 1, Ordering::Relaxed);
        Ok((state.segments[depth - 1].before, depth - 1))
    }

    /// Closes the segments from this depth on. Returns the timing before them, if there were any.
    pub(super) fn close_from(&self, depth: usize) -> Option<ThreadTiming> {
        let state = self.state.lock();
        if self.depth() <= depth {
            return None;
        }
        self.depth.store(depth, Ordering::Relaxed);
        Some(state.segments[depth].before)
    }

    /// A two-way request was sent whole: a cancel follows it until [`replied`](Self::replied). Returns its number.
    #[inline]
    pub(crate) fn sent(&self, path: Arc<dyn CancelPath>, request: u32, version: Version) -> u32 {
        let mut state = self.state.lock();
        let number = state.number();
        let sent = SentRequest { number, path, request, version };
        // It was cancelled before it was known that the request was sent.
        if self.is_cancelled() {
            sent.cancel();
        }
        state.calls.push(sent);
        number
    }

    /// The request of this number has its reply, or no call waits for one.
    #[inline]
    pub(crate) fn replied(&self, number: u32) {
        let mut state = self.state.lock();
        // The last one, except with asynchronous calls.
        let gone = state.calls.iter().rposition(|call| call.number == number).map(|at| state.calls.swap_remove(at));
        drop(state);
        drop(gone);
    }

    /// A oneway was sent. Only the last ones are remembered.
    pub(crate) fn sent_oneway(&self, path: Arc<dyn CancelPath>, request: u32, version: Version) {
        let mut state = self.state.lock();
        let sent = SentRequest { number: state.number(), path, request, version };
        if self.is_cancelled() {
            sent.cancel();
        }
        if state.oneways.len() == ONEWAYS {
            state.oneways.remove(0);
        }
        state.oneways.push(sent);
    }
}

impl PartState {
    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    fn is_within(&self, depth: usize, name: &str) -> Result<(), SystemException> {
        match self.segments[..depth].last() {
            None => Err(SystemKind::BadInvOrder.not_done(minor::NO_SEGMENT)),
            Some(open) if name.is_empty() || open.name == name => Ok(()),
            Some(_) => Err(SystemKind::BadParam.not_done(minor::SEGMENT_NAME)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the requests that are cancelled.
    #[derive(Debug, Default)]
    struct Recorded(PiMutex<Vec<u32>>);

    impl CancelPath for Recorded {
        fn send_cancel(&self, request: u32, _: Version) {
            self.0.lock().push(request);
        }

        fn give_up(&self, request: u32) {
            self.0.lock().push(1000 + request);
        }

        fn address(&self) -> Option<SocketAddr> {
            None
        }
    }

    #[test]
    fn a_cancel_follows_each_request_under_way_and_those_sent_after_it() {
        let (part, path) = (Arc::new(ThreadPart::new()), Arc::new(Recorded::default()));
        let sent = |request| part.sent(path.clone(), request, Version::V1_2);
        let (first, second) = (sent(2), sent(4));
        part.replied(first);
        for oneway in 0..=ONEWAYS as u32 {
            part.sent_oneway(path.clone(), 101 + oneway * 2, Version::V1_2);
        }
        assert!(path.0.lock().is_empty());
        assert!(part.cancel() && part.cancel(), "the second one does nothing");
        let mut cancelled = std::mem::take(&mut *path.0.lock());
        cancelled.sort_unstable();
        assert_eq!(cancelled, [4, 103, 105, 107, 109, 111, 113, 115, 117]);
        part.give_up(0);
        assert!(path.0.lock().is_empty(), "it may still be answered");
        part.give_up(u64::MAX);
        assert_eq!(std::mem::take(&mut *path.0.lock()), [1004]);
        part.replied(second);
        part.replied(sent(6));
        assert_eq!(*path.0.lock(), [6], "it raced with the cancel");
        assert!(part.end());
        assert_eq!((part.status(), part.cancel()), (ThreadStatus::Ended, false));
    }
}
