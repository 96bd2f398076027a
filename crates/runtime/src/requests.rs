//! External requests as jobs. Idle threads of a lane read them; the dispatcher orders them among all jobs.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use hyoshi_model::{Instant, OperationId};
use hyoshi_os::{Alarms, MonotonicClock, PiMutex};
use hyoshi_trace::Signal;

/// A request that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedRequest {
    /// The operation that serves it: `called = true` in the file.
    pub operation: OperationId,
    /// The reader's number for it: [`JobContext::call`](crate::JobContext::call) returns it.
    pub call: u32,
    /// The nominal release of its caller's chain, if known.
    pub origin: Option<Instant>,
    /// When its caller sent it, if known.
    pub sent: Option<Instant>,
    /// It arrived after this, as far as the reader knows. A deadline counts from `sent`, but not from before this time.
    pub after: Instant,
    /// Its absolute deadline, if that is later than the operation's.
    pub deadline: Option<Instant>,
    /// Its importance, if that is lower than the operation's.
    pub importance: Option<u32>,
    /// Whether it is critical, if that differs from the operation.
    pub critical: Option<bool>,
    /// It is a call of an operation of the file: the completion of the part before the call. It releases `operation` with
    /// that operation's own deadline and importance.
    pub completion: Option<Signal>,
}

impl ArrivedRequest {
    /// The time from which its deadline counts, if it is read at `now`.
    pub fn counts_from(&self, now: Instant) -> Instant {
        self.sent.map_or(now, |sent| sent.max(self.after).min(now))
    }

    /// A request with the operation's own deadline, importance and criticality.
    pub fn new(operation: OperationId, call: u32) -> Self {
        let (origin, sent, after) = (None, None, Instant::ZERO);
        ArrivedRequest {
            operation,
            call,
            origin,
            sent,
            after,
            deadline: None,
            importance: None,
            critical: None,
            completion: None,
        }
    }
}

/// Reads requests for one processor, on threads of its lanes.
pub trait RequestReader: Send {
    /// Readable while requests can be read.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Reads arrived requests without waiting; their times are on `clock`. Reads no more than fit: `arrived` must not
    /// grow beyond its capacity.
    fn turn(&mut self, clock: &MonotonicClock, arrived: &mut Vec<ArrivedRequest>);
}

/// Rejects requests that no job serves.
pub trait Refuse: Send + Sync + fmt::Debug {
    /// The operation is off or busy, its queue is full, its job was cancelled, or the run is over. Called outside all
    /// locks.
    fn refuse(&self, call: u32);

    /// The run is over: the lanes read no further requests. The reader's source may be read elsewhere from now on.
    fn over(&self) {}
}

/// The requests of one processor.
pub(crate) struct Requests {
    pub lane: u8,
    alarms: Alarms,
    reader: PiMutex<(Box<dyn RequestReader>, Vec<ArrivedRequest>)>,
    refuse: Arc<dyn Refuse>,
    /// A thread waits for requests, or is about to.
    waits: AtomicBool,
}

/// The most requests read in one turn.
pub(crate) const MOST: usize = 64;

impl Requests {
    pub fn new(lane: u8, reader: Box<dyn RequestReader>, refuse: Arc<dyn Refuse>) -> std::io::Result<Self> {
        let alarms = Alarms::new()?;
        alarms.watch(reader.descriptor())?;
        let reader = PiMutex::new((reader, Vec::with_capacity(MOST)));
        Ok(Requests { lane, alarms, reader, refuse, waits: AtomicBool::new(false) })
    }

    /// No job serves this request.
    pub fn refuse(&self, call: u32) {
        self.refuse.refuse(call);
    }

    /// The run is over.
    pub fn over(&self) {
        self.refuse.over();
    }

    /// Waits until requests can be read, or for [`Requests::poke`]. Calls `is_posted` last before waiting.
    pub fn wait(&self, is_posted: impl Fn() -> bool) {
        self.waits.store(true, Ordering::SeqCst);
        // Either this thread sees the post, or the posting thread sees that this one waits.
        fence(Ordering::SeqCst);
        if !is_posted() {
            self.alarms.wait(None);
        }
        self.waits.store(false, Ordering::SeqCst);
    }

    /// Ends a wait.
    pub fn poke(&self) {
        fence(Ordering::SeqCst);
        if self.waits.load(Ordering::SeqCst) {
            self.alarms.poke();
        }
    }

    /// Reads arrived requests and passes them on.
    pub fn read<R>(&self, clock: &MonotonicClock, pass: impl FnOnce(&mut Vec<ArrivedRequest>) -> R) -> R {
        let mut reader = self.reader.lock();
        let (reader, arrived) = &mut *reader;
        reader.turn(clock, arrived);
        pass(arrived)
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("lane", &self.lane).finish_non_exhaustive()
    }
}
