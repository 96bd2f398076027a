//! External requests as jobs. Idle threads of a lane read them; the dispatcher orders them among all jobs.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_os::{Alarms, Clock as _, MonotonicClock, PiMutex};
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

    /// The request of a registered client with this period, read at `now`. If the operation's deadline is the shortest
    /// period of a client, the request's deadline is the client's period (FCS/nORB, section 2.1).
    pub fn of_client(self, system: &System, period: Span, now: Instant) -> Self {
        let deadline = system.setting(system.epoch_at(now), self.operation).deadline.span();
        let clients = system.operation(self.operation).clients;
        if clients.is_none_or(|clients| clients.shortest != deadline) {
            return self;
        }
        let at = self.counts_from(now).saturating_add(period);
        ArrivedRequest { deadline: Some(self.deadline.map_or(at, |asked| asked.max(at))), ..self }
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
    budget: ReadingBudget,
}

/// Reading may take a quarter of the time of a CPU, and 1 ms at once. It runs at the priority of the lane that reads: a
/// flood of requests must not stop the other lanes. (The generic cell rate algorithm, ITU-T I.371.)
#[derive(Debug, Default)]
struct ReadingBudget {
    /// When the budget has covered all reading so far, in ns.
    covered: AtomicU64,
}

/// The part of the time.
const SHARE: u64 = 4;
const AT_ONCE: Span = Span::from_millis(1);

impl ReadingBudget {
    /// When the next turn may begin.
    fn earliest(&self) -> Instant {
        Instant::from_nanos(self.covered.load(Ordering::Relaxed).saturating_sub(SHARE * AT_ONCE.as_nanos()))
    }

    /// A turn has begun and ended. Its thread may have been preempted: no turn counts as longer than 1 ms.
    fn spend(&self, began: Instant, ended: Instant) {
        let covered = self.covered.load(Ordering::Relaxed).max(began.as_nanos());
        let spent = SHARE * ended.since(began).min(AT_ONCE).as_nanos();
        self.covered.store(covered.saturating_add(spent), Ordering::Relaxed);
    }
}

/// The most requests read in one turn.
pub(crate) const MOST: usize = 64;

impl Requests {
    pub fn new(lane: u8, reader: Box<dyn RequestReader>, refuse: Arc<dyn Refuse>) -> std::io::Result<Self> {
        let alarms = Alarms::new()?;
        alarms.watch(reader.descriptor())?;
        let reader = PiMutex::new((reader, Vec::with_capacity(MOST)));
        Ok(Requests { lane, alarms, reader, refuse, waits: AtomicBool::new(false), budget: ReadingBudget::default() })
    }

    /// No job serves this request.
    pub fn refuse(&self, call: u32) {
        self.refuse.refuse(call);
    }

    /// The run is over.
    pub fn over(&self) {
        self.refuse.over();
    }

    /// When they may be read again.
    pub fn earliest(&self) -> Instant {
        self.budget.earliest()
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
        let began = clock.now();
        reader.turn(clock, arrived);
        let passed = pass(arrived);
        self.budget.spend(began, clock.now());
        passed
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("lane", &self.lane).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reading_takes_a_quarter_of_the_time_and_a_millisecond_at_most_and_waits_only_beyond_that(
            turns in prop::collection::vec((0u64..3_000_000, 1u64..1_000_000), 1..200),
        ) {
            let (budget, mut now) = (ReadingBudget::default(), 0);
            let mut read = Vec::new();
            for (pause, length) in turns {
                let earliest = budget.earliest().as_nanos();
                now = (now + pause).max(earliest);
                let (began, ended) = (now, now + length);
                // In each window that begins with a turn; the last turn may exceed the budget.
                read.push((began, length));
                let mut sum = 0;
                for (start, length) in read.iter().rev().skip(1) {
                    sum += length;
                    prop_assert!(4 * sum <= began - start + 2 * 4_000_000, "{sum} ns from {start} to {began}");
                }
                budget.spend(Instant::from_nanos(began), Instant::from_nanos(ended));
                if pause >= 4 * length {
                    prop_assert!(budget.earliest().as_nanos() <= now + 4 * length);
                }
                now = ended;
            }
        }
    }
}
