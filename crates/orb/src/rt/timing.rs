//! The timing of calls: deadline, importance and criticality of the caller travel with each request (service context
//! 30, [`RequestTiming`]).
//!
//! ```text
//!   with_timing, a node's job, or the request that this thread serves ─► context 30 ─► Order, or the server's own calls
//! ```

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_model::Span;
use hyoshi_os::clock::{monotonic, unix};
use hyoshi_wire::giop::{CONTEXT_RT_SCHEDULING, OperationCall, SchedulingContext, ServiceContexts};
pub use hyoshi_wire::giop::{KokyuTiming, RequestTiming, ThreadId};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{DecodeError, SystemException};

use crate::failure::CallFailure;

/// The timing of a thread's calls ([`with_timing`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTiming {
    /// The calls must be served within this time from now; `None`: no deadline.
    pub within: Option<Span>,
    /// The longest execution time that the caller expects of a request; zero if unknown.
    pub execution: Span,
    /// Rank among other requests; higher is more important.
    pub importance: u32,
    /// Whether the caller is critical.
    pub critical: bool,
}

/// The timing of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum ThreadTiming {
    #[default]
    None,
    /// Of the request that it serves.
    Received(RequestTiming),
    /// By [`with_timing`], or a segment of a distributable thread.
    Chosen(RequestTiming),
}

thread_local! {
    static OWN: Cell<ThreadTiming> = const { Cell::new(ThreadTiming::None) };
}

static SOURCE: OnceLock<fn() -> Option<RequestTiming>> = OnceLock::new();
static CALLS: OnceLock<CallSource> = OnceLock::new();

/// Whether a request to an object is the call of an operation of a file: the object, and the operation's name in IDL.
type CallSource = fn(&Ior, &str) -> Option<OperationCall>;

/// Restores the thread's timing when it is dropped.
#[derive(Debug)]
pub(crate) struct Restore(ThreadTiming);

impl Drop for Restore {
    fn drop(&mut self) {
        OWN.set(self.0);
    }
}

/// The number of this machine's clock: CLOCK_MONOTONIC since its start, in this process's time namespace
/// (time_namespaces(7)).
pub fn machine_clock() -> u64 {
    static CLOCK: OnceLock<u64> = OnceLock::new();
    *CLOCK.get_or_init(hyoshi_os::clock::identity)
}

/// Calls within `run` on this thread carry this timing, and calls of the servants that they reach. In a node,
/// calls of a job carry the job's timing by default. Calls of the file always do.
pub fn with_timing<R>(timing: CallTiming, run: impl FnOnce() -> R) -> R {
    let thread = self::timing().map_or(ThreadId::NONE, |own| own.thread);
    let _restore = Restore(begin_chosen(Some(&timing), thread));
    run()
}

/// The timing of calls of this distributable thread from now on; without `timing` that of the thread.
pub(super) fn chosen(timing: Option<&CallTiming>, thread: ThreadId) -> RequestTiming {
    let own = match timing {
        None => self::timing(),
        Some(_) => None,
    };
    if let Some(own) = own {
        return RequestTiming { thread, ..own };
    }
    let timing = timing.copied().unwrap_or_default();
    let sent = monotonic().as_nanos();
    RequestTiming {
        clock: machine_clock(),
        sent,
        origin: sent,
        deadline: timing.within.map_or(u64::MAX, |within| sent.saturating_add(within.as_nanos())),
        execution: timing.execution.as_nanos(),
        importance: timing.importance,
        critical: timing.critical,
        thread,
    }
}

/// Calls of the thread carry what [`chosen`] returns. Returns its timing before.
pub(super) fn begin_chosen(timing: Option<&CallTiming>, thread: ThreadId) -> ThreadTiming {
    OWN.replace(ThreadTiming::Chosen(chosen(timing, thread)))
}

/// The thread has this timing again.
pub(super) fn restore(before: ThreadTiming) {
    OWN.set(before);
}

/// Calls within `run` on this thread carry this timing, except that they are sent later. For transports that pass on the
/// timing of a job which is not theirs.
pub fn carrying<R>(timing: RequestTiming, run: impl FnOnce() -> R) -> R {
    let _restore = Restore(OWN.replace(ThreadTiming::Chosen(timing)));
    run()
}

/// The timing that calls of this thread carry now.
#[inline]
pub fn timing() -> Option<RequestTiming> {
    let own = OWN.get();
    if let ThreadTiming::Chosen(chosen) = own {
        return Some(RequestTiming { sent: monotonic().as_nanos(), ..chosen });
    }
    if let Some(timing) = of_job() {
        return Some(timing);
    }
    match own {
        ThreadTiming::Received(received) => Some(RequestTiming { sent: monotonic().as_nanos(), ..received }),
        _ => None,
    }
}

/// The timing of the thread's job ([`timing_source`]).
#[inline]
fn of_job() -> Option<RequestTiming> {
    let timing = SOURCE.get().and_then(|source| source())?;
    match OWN.get() {
        // It serves a request: the job has the timing, and the request brought the distributable thread.
        ThreadTiming::Received(received) if timing.thread.is_none() => {
            Some(RequestTiming { thread: received.thread, ..timing })
        }
        _ => Some(timing),
    }
}

/// Each later call of this process carries what `source` returns on its thread, unless [`with_timing`] sets another.
/// Only the first setting of a process counts.
pub fn timing_source(source: fn() -> Option<RequestTiming>) {
    let _ = SOURCE.set(source);
}

/// Each later two-way call of this process is shown to `source` on its thread, before it waits; its result travels with
/// the request. Only the first setting of a process counts.
pub fn call_source(source: fn(&Ior, &str) -> Option<OperationCall>) {
    let _ = CALLS.set(source);
}

/// The call of an operation of a file that a request carries, and the timing of its job: an origin set by
/// [`with_timing`] is not that of the chain.
#[inline]
pub(crate) fn operation_call(object: &Ior, operation: &str) -> Option<([u8; OperationCall::LEN], TimingContext)> {
    let source = CALLS.get()?;
    let timing = of_job()?;
    source(object, operation).map(|call| (call.octets(), TimingContext::own(&timing)))
}

/// The timing that a request carries, at the time when it is read. `None` without a known one.
///
/// # Errors
///
/// If its octets are damaged.
pub(crate) fn carried(contexts: &ServiceContexts<'_>) -> Result<Option<RequestTiming>, DecodeError> {
    let Some(data) = contexts.get(CONTEXT_RT_SCHEDULING) else { return Ok(None) };
    Ok(SchedulingContext::read(data)?.map(|context| match context {
        SchedulingContext::Timing(timing) => timing,
        SchedulingContext::Kokyu(kokyu) => of_kokyu(&kokyu),
    }))
}

/// The thread serves a request with these contexts, until the first result is dropped. The second is the distributable
/// thread that the request brings.
#[inline]
pub(super) fn serve(contexts: &ServiceContexts<'_>) -> (Option<Restore>, ThreadId) {
    if contexts.len() == 0 && matches!(OWN.get(), ThreadTiming::None) {
        return (None, ThreadId::NONE);
    }
    let received = carried(contexts).ok().flatten().map(|timing| on_machine_clock(timing, monotonic().as_nanos()));
    let thread = received.map_or(ThreadId::NONE, |received| received.thread);
    (Some(Restore(OWN.replace(received.map_or(ThreadTiming::None, ThreadTiming::Received)))), thread)
}

/// The times on this machine's clock. If the sender's is unknown, the request counts as sent now: the time that it was
/// on its way is unknown.
pub fn on_machine_clock(timing: RequestTiming, now: u64) -> RequestTiming {
    if timing.clock == machine_clock() {
        return timing;
    }
    let left = timing.deadline.saturating_sub(timing.sent);
    let deadline = if timing.deadline == u64::MAX { u64::MAX } else { now.saturating_add(left) };
    let origin = now.saturating_sub(timing.sent.saturating_sub(timing.origin));
    RequestTiming { clock: machine_clock(), sent: now, origin, deadline, ..timing }
}

fn of_kokyu(kokyu: &KokyuTiming) -> RequestTiming {
    let (now, date) = (monotonic().as_nanos(), unix().as_nanos());
    let deadline = kokyu.deadline.saturating_mul(100);
    // Before now if the deadline has passed.
    let on_clock = now.saturating_add(deadline.saturating_sub(date)).saturating_sub(date.saturating_sub(deadline));
    RequestTiming {
        clock: machine_clock(),
        sent: now,
        origin: now,
        deadline: if kokyu.deadline == 0 { u64::MAX } else { on_clock },
        execution: kokyu.execution.saturating_mul(100),
        importance: u32::try_from(kokyu.importance).unwrap_or(0),
        critical: kokyu.criticality > 0,
        thread: kokyu.thread(),
    }
}

/// The data of a call's context 30.
pub(crate) enum TimingContext {
    Own([u8; RequestTiming::LEN]),
    OfThread([u8; RequestTiming::THREAD_LEN]),
    Kokyu(Vec<u8>),
}

impl TimingContext {
    /// With this timing, in TAO's form if `kokyu`.
    pub(crate) fn new(timing: &RequestTiming, kokyu: bool) -> Result<TimingContext, SystemException> {
        if !kokyu {
            return Ok(TimingContext::own(timing));
        }
        let data = to_kokyu(timing).data().map_err(|error| CallFailure::Encode(error).exception())?;
        Ok(TimingContext::Kokyu(data))
    }

    /// In our form: with the thread, if there is one.
    #[inline]
    fn own(timing: &RequestTiming) -> TimingContext {
        match timing.thread.is_none() {
            true => TimingContext::Own(timing.octets()),
            false => TimingContext::OfThread(timing.thread_octets()),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        match self {
            TimingContext::Own(octets) => octets,
            TimingContext::OfThread(octets) => octets,
            TimingContext::Kokyu(data) => data,
        }
    }
}

#[cold]
fn to_kokyu(timing: &RequestTiming) -> KokyuTiming {
    thread_local! {
        /// Unique in the system: TAO's server confuses two threads with one id.
        static ID: u64 = {
            static THREADS: AtomicU32 = AtomicU32::new(0);
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            machine_clock().wrapping_add((u64::from(std::process::id()) << 32) | u64::from(number))
        };
    }
    let left = timing.deadline.saturating_sub(timing.sent);
    let deadline = if timing.deadline == u64::MAX { 0 } else { (unix().as_nanos().saturating_add(left)) / 100 };
    KokyuTiming {
        guid: match timing.thread.is_none() {
            true => ID.with(|id| id.to_be_bytes().to_vec()),
            false => timing.thread.octets().to_vec(),
        },
        importance: i32::try_from(timing.importance).unwrap_or(i32::MAX),
        criticality: i32::from(timing.critical),
        priority: 0,
        deadline,
        execution: timing.execution / 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_holds_within_its_closure_and_is_restored() {
        assert_eq!(timing(), None);
        let asked = CallTiming { within: Some(Span::from_millis(5)), importance: 3, ..CallTiming::default() };
        let outer = with_timing(asked, || {
            let outer = timing().unwrap();
            with_timing(CallTiming::default(), || assert_eq!(timing().unwrap().deadline, u64::MAX));
            assert_eq!(timing().unwrap().deadline, outer.deadline);
            outer
        });
        assert_eq!((outer.deadline - outer.origin, outer.importance), (5_000_000, 3));
        assert_eq!(timing(), None);
    }

    #[test]
    fn times_of_an_unknown_clock_count_from_the_arrival() {
        let sent = RequestTiming { clock: 1, sent: 1_000, origin: 400, deadline: 6_000, ..RequestTiming::default() };
        let here = on_machine_clock(sent, 50_000);
        assert_eq!((here.origin, here.sent, here.deadline), (49_400, 50_000, 55_000));
        assert_eq!(on_machine_clock(here, 70_000), here);
    }

    #[test]
    fn a_deadline_in_taos_form_is_the_same_to_within_its_unit() {
        let now = monotonic().as_nanos();
        let timing = RequestTiming {
            clock: machine_clock(),
            sent: now,
            deadline: now + 1_000_000_000,
            importance: 4,
            critical: true,
            ..RequestTiming::default()
        };
        let back = of_kokyu(&to_kokyu(&timing));
        // The two clocks are read one after the other, which takes some time.
        assert!(back.deadline.abs_diff(timing.deadline) < 500_000_000, "{back:?} from {timing:?}");
        assert_eq!((back.importance, back.critical), (4, true));
        assert_eq!(of_kokyu(&to_kokyu(&RequestTiming { deadline: u64::MAX, ..timing })).deadline, u64::MAX);
    }
}
