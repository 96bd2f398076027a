//! Distributable threads (`RTScheduling::Current` of Real-time CORBA 1.2, chapter 3): a thread of execution with one id
//! that continues in the servants it calls, on any host. `docs/distributable-threads.md` is a tour.
//!
//! ```text
//!   begin_scheduling_segment ─► a thread starts here, its root        an invocation: context 30 has id and parameters
//!            │                                                                  │
//!            ▼                                                                  ▼
//!   scheduling points: begin, update, end, check, invocation, reply      the servant's part, with segments of its own
//!            │ cancelled: THREAD_CANCELLED, up to the root                      │ it is cancelled by a CancelRequest
//!            ▼                                                                  ▼
//!   end_scheduling_segment of the outermost ─► it ends                   the reply: what is left open is an error
//! ```
//!
//! Functions here act on the thread that the calling thread of the operating system runs. All times are relative: see
//! [`CallTiming`].

mod part;
mod registry;
mod serving;
mod watch;

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyoshi_model::Span;
use hyoshi_os::Spawn;
use hyoshi_wire::giop::ThreadId;
use hyoshi_wire::{Completed, SystemException, SystemKind, Version};

use super::timing::{self, CallTiming, ThreadTiming};
use super::{Priority, current as rt_current};
use crate::minor;
use crate::raises::Raises;

use part::CANCELLED;
pub(crate) use part::{CancelPath, ThreadPart};
pub use part::{ThreadLocation, ThreadStatus};
pub(crate) use registry::{cancel as cancel_arrived, give_up_late};
use serving::ServedRequest;
pub(crate) use serving::{QueuedPart, cancel_request, queue, visit};
pub(crate) use watch::start_watch;

/// The most open segments of a thread in one servant, or at its root.
pub const SEGMENTS: usize = 32;

/// The most distributable threads in a process. A thread counts once for its root, and once for each of its requests
/// that servants of the process run or that wait there. A quarter is reserved for threads that start without a request.
/// A client may use half of the rest that other clients leave free. Each shard applies these shares.
pub const PARTS: usize = 4096;

/// How long a call of a cancelled thread waits for its reply. Then it fails, as after a timeout.
pub const UNWINDS_WITHIN: Span = Span::from_secs(10);

thread_local! {
    static POSITION: RefCell<ThreadPosition> = const { RefCell::new(ThreadPosition { part: None, request: None }) };
}

/// What the thread of the operating system runs.
#[derive(Debug)]
struct ThreadPosition {
    part: Option<RunningPart>,
    /// The request that it serves.
    request: Option<ServedRequest>,
}

/// A part, until its end here.
#[derive(Debug)]
struct RunningPart(Arc<ThreadPart>);

impl Drop for RunningPart {
    #[inline]
    fn drop(&mut self) {
        registry::remove(&self.0);
    }
}

/// The part that runs here.
#[inline]
fn running() -> Option<Arc<ThreadPart>> {
    POSITION.with_borrow(|position| position.part.as_ref().map(|part| part.0.clone()))
}

/// The number of this process among the origins of ids.
fn own_origin() -> u64 {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let mut octets = [0; 8];
        let random = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octets);
        let number = u64::from_ne_bytes(octets);
        // The kernel has random octets once it has started.
        if random.is_ok() && number != 0 { number } else { timing::machine_clock() ^ u64::from(std::process::id()) | 1 }
    })
}

/// The next number of a thread that starts here.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn new_id() -> ThreadId {
    ThreadId { origin: own_origin(), number: NEXT.fetch_add(1, Ordering::Relaxed) }
}

/// Begins a segment of the thread with these parameters, which its calls carry until the segment ends. Without
/// parameters it has those of the segment, request or job around it, else [`CallTiming::default`]. Segments nest. If no
/// distributable thread runs here, one starts and ends with this segment.
///
/// # Errors
///
/// THREAD_CANCELLED of a cancelled thread. BAD_PARAM if the deadline has passed: `within` is zero. IMP_LIMIT if
/// [`SEGMENTS`] are open, or [`PARTS`] threads run. Then no segment begins.
pub fn begin_scheduling_segment(name: &str, parameters: Option<CallTiming>) -> Result<(), SystemException> {
    refuse_past(parameters)?;
    POSITION.with_borrow_mut(|position| {
        let (part, starts) = match &position.part {
            Some(part) => {
                part.0.check()?;
                (part.0.clone(), None)
            }
            None => {
                // A job's or a foreign scheduler's id goes on.
                let id = timing::timing().map(|own| own.thread).filter(|id| !id.is_none()).unwrap_or_else(new_id);
                let part = registry::add(id, position.request.as_ref().and_then(ServedRequest::arrival))?;
                (part.clone(), Some(RunningPart(part)))
            }
        };
        let before = timing::begin_chosen(parameters.as_ref(), part.id);
        if let Err(exception) = part.open(name, before) {
            timing::restore(before);
            return Err(exception);
        }
        if starts.is_some() {
            position.part = starts;
        }
        Ok(())
    })
}

/// Changes the parameters of the innermost segment, which must have this name; an empty name is any.
///
/// # Errors
///
/// THREAD_CANCELLED of a cancelled thread. BAD_PARAM if the segment has another name, or the deadline has passed;
/// BAD_INV_ORDER if no segment is open here. Then nothing changes.
pub fn update_scheduling_segment(name: &str, parameters: CallTiming) -> Result<(), SystemException> {
    refuse_past(Some(parameters))?;
    let part = running().ok_or(SystemKind::BadInvOrder.not_done(minor::NO_SEGMENT))?;
    part.is_within(name)?;
    part.check()?;
    timing::begin_chosen(Some(&parameters), part.id);
    Ok(())
}

/// Ends the innermost segment, which must have this name; an empty name is any. The calls of the thread carry the
/// parameters before it again. The thread ends with its outermost segment, where it started.
///
/// # Errors
///
/// THREAD_CANCELLED of a cancelled thread: the segment has ended nevertheless. BAD_PARAM if the innermost segment has
/// another name, BAD_INV_ORDER if none is open here: then nothing changes.
pub fn end_scheduling_segment(name: &str) -> Result<(), SystemException> {
    let ended = POSITION.with_borrow_mut(|position| {
        let part = position.part.as_ref().ok_or(SystemKind::BadInvOrder.not_done(minor::NO_SEGMENT))?;
        let (before, left) = part.0.close(name)?;
        timing::restore(before);
        Ok((part.0.clone(), position.end_if(left == 0)))
    });
    ended.and_then(|(part, _)| part.check())
}

impl ThreadPosition {
    /// Takes the part out if it ends here: it was the outermost segment of a thread that did not arrive with a request.
    fn end_if(&mut self, is_outermost: bool) -> Option<RunningPart> {
        let ends = is_outermost && !self.request.as_ref().is_some_and(|request| request.is_hop);
        // First: what cancels it from now on finds that it has ended.
        let part = if ends { self.part.take() } else { None };
        part.inspect(|part| _ = part.0.end())
    }
}

/// A scheduling point without a change.
///
/// # Errors
///
/// THREAD_CANCELLED if the thread that runs here is cancelled.
#[inline]
pub fn check() -> Result<(), SystemException> {
    POSITION.with_borrow(|position| position.part.as_ref().map_or(Ok(()), |part| part.0.check()))
}

/// Begins a segment that ends when the result is dropped, as [`begin_scheduling_segment`] does.
///
/// ```
/// # use hyoshi_model::Span;
/// # use hyoshi_orb::rt::{CallTiming, threads};
/// let parameters = CallTiming { within: Some(Span::from_millis(20)), importance: 5, ..CallTiming::default() };
/// let tracking = threads::segment("track", Some(parameters))?;
/// // Calls of servants ...
/// tracking.end()?; // THREAD_CANCELLED if it was cancelled
/// # Ok::<(), hyoshi_orb::SystemException>(())
/// ```
///
/// # Errors
///
/// Those of [`begin_scheduling_segment`].
pub fn segment(name: &str, parameters: Option<CallTiming>) -> Result<SchedulingSegment, SystemException> {
    begin_scheduling_segment(name, parameters)?;
    let part = running();
    let depth = part.as_ref().map_or(0, |part| part.depth());
    Ok(SchedulingSegment { part, depth, _of_thread: PhantomData })
}

/// A segment, until it is dropped ([`segment`]). Segments within it that are open then end with it.
#[must_use = "the segment ends when it is dropped"]
#[derive(Debug)]
pub struct SchedulingSegment {
    /// None once it has ended.
    part: Option<Arc<ThreadPart>>,
    /// The depth within it.
    depth: usize,
    _of_thread: PhantomData<*const ()>,
}

impl SchedulingSegment {
    /// Changes its parameters, as [`update_scheduling_segment`] does.
    ///
    /// # Errors
    ///
    /// THREAD_CANCELLED of a cancelled thread, BAD_PARAM if the deadline has passed, BAD_INV_ORDER within another
    /// segment.
    pub fn update(&self, parameters: CallTiming) -> Result<(), SystemException> {
        match running() {
            Some(part) if self.is_innermost(&part) => update_scheduling_segment("", parameters),
            _ => Err(SystemKind::BadInvOrder.not_done(minor::NO_SEGMENT)),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// THREAD_CANCELLED of a cancelled thread; the segment has ended nevertheless. BAD_INV_ORDER if it had ended, or a
    /// segment within it was open, which ended with it.
    pub fn end(mut self) -> Result<(), SystemException> {
        let running = running();
        let in_order = running.as_ref().is_some_and(|part| self.is_innermost(part));
        self.close();
        running.map_or(Ok(()), |part| part.check())?;
        if in_order { Ok(()) } else { Err(SystemKind::BadInvOrder.done(minor::NO_SEGMENT)) }
    }

    fn is_innermost(&self, running: &Arc<ThreadPart>) -> bool {
        self.part.as_ref().is_some_and(|part| Arc::ptr_eq(part, running)) && running.depth() == self.depth
    }

    fn close(&mut self) {
        let Some(part) = self.part.take() else { return };
        let ended = POSITION.with_borrow_mut(|position| {
            // The part of a servant that has returned has ended.
            let runs = position.part.as_ref().is_some_and(|running| Arc::ptr_eq(&running.0, &part));
            let before = if runs { part.close_from(self.depth - 1) } else { None }?;
            timing::restore(before);
            position.end_if(self.depth == 1)
        });
        drop(ended);
    }
}

impl Drop for SchedulingSegment {
    fn drop(&mut self) {
        self.close();
    }
}

/// Starts a distributable thread on a new thread of the operating system, within a segment of this name. Without
/// parameters it has those of the caller. The new thread has the caller's CORBA priority, and an id of its own: a
/// cancel of the caller does not reach it.
///
/// # Errors
///
/// BAD_PARAM if the deadline has passed, IMP_LIMIT if [`PARTS`] threads run, NO_RESOURCES if the operating system
/// starts no thread, THREAD_CANCELLED of a cancelled caller.
pub fn spawn(
    name: &str,
    parameters: Option<CallTiming>,
    run: impl FnOnce() + Send + 'static,
) -> Result<DistributableThread, SystemException> {
    refuse_past(parameters)?;
    check()?;
    let part = registry::add(new_id(), None)?;
    let spawned = DistributableThread(part.id, part.clone());
    let running = RunningPart(part.clone());
    let (priority, chosen) = (rt_current::priority(), timing::chosen(parameters.as_ref(), part.id));
    part.open(name, ThreadTiming::None)?;
    let thread = Spawn::new(name).stack(SPAWNED_STACK).spawn(move || {
        // Without the privilege its requests carry the priority nevertheless.
        let _ = priority.map(|priority: Priority| rt_current::set_priority(priority));
        timing::restore(ThreadTiming::Chosen(chosen));
        POSITION.with_borrow_mut(|position| position.part = Some(running));
        let _ends = EndOfPosition;
        if check().is_ok() {
            run();
        }
    });
    thread.map(|_| spawned).map_err(|_: io::Error| SystemKind::NoResources.not_done(minor::THREAD_LIMIT))
}

/// Octets of the stack of a spawned thread.
const SPAWNED_STACK: usize = 1 << 20;

/// Ends what runs here when it is dropped.
struct EndOfPosition;

impl Drop for EndOfPosition {
    fn drop(&mut self) {
        let ended = POSITION.with_borrow_mut(|position| position.part.take());
        drop(ended);
    }
}

/// The id of the thread that runs here (`Current::id`).
pub fn id() -> Option<ThreadId> {
    POSITION.with_borrow(|position| position.part.as_ref().map(|part| part.0.id))
}

/// The thread that runs here.
pub fn current() -> Option<DistributableThread> {
    running().map(|part| DistributableThread(part.id, part))
}

/// The names of the segments that are open here, the innermost last (`Current::current_scheduling_segment_names`).
pub fn current_scheduling_segment_names() -> Vec<String> {
    match running().map(|part| part.location()) {
        Some(ThreadLocation::Here(names) | ThreadLocation::Away(_, names)) => names,
        _ => Vec::new(),
    }
}

/// The thread with this id, if it has started in this process or serves a request in it, and has not ended here.
pub fn lookup(id: ThreadId) -> Option<DistributableThread> {
    let parts = registry::parts_of(id);
    // The part of which the head is nearest.
    let here = parts.iter().find(|part| part.calling.load(Ordering::Relaxed) == 0).or(parts.first());
    here.map(|part| DistributableThread(id, part.clone()))
}

/// How many distributable threads are in this process, counted as [`PARTS`] are.
pub fn count() -> usize {
    registry::count()
}

/// A distributable thread, as this process knows it. It may end at any time.
#[derive(Clone, Debug)]
pub struct DistributableThread(ThreadId, Arc<ThreadPart>);

impl DistributableThread {
    /// Its id.
    pub fn id(&self) -> ThreadId {
        self.0
    }

    /// Cancels it, wherever its head is, and returns at once. The head's next scheduling point raises THREAD_CANCELLED,
    /// and then each one up to the root. To cancel it again does nothing.
    ///
    /// # Errors
    ///
    /// BAD_INV_ORDER if it has ended here.
    pub fn cancel(&self) -> Result<(), SystemException> {
        match self.1.cancel() {
            true => Ok(()),
            false => Err(SystemKind::BadInvOrder.not_done(minor::THREAD_ENDED)),
        }
    }

    /// Its state.
    pub fn state(&self) -> ThreadStatus {
        self.1.status()
    }

    /// Where its head is.
    pub fn location(&self) -> ThreadLocation {
        self.1.location()
    }
}

/// A deadline of no time has passed.
fn refuse_past(parameters: Option<CallTiming>) -> Result<(), SystemException> {
    match parameters.and_then(|own| own.within) {
        Some(within) if within.is_zero() => Err(SystemKind::BadParam.not_done(minor::DEADLINE_PAST)),
        _ => Ok(()),
    }
}

/// A call of the thread that runs here, from before it is sent until its outcome is known.
#[derive(Debug)]
pub(crate) struct ThreadCall(Arc<ThreadPart>);

/// The thread that runs here begins a call, with a reply if `waits`; `None` if none does.
///
/// # Errors
///
/// THREAD_CANCELLED if it is cancelled.
#[inline]
pub(crate) fn begin_call(waits: bool) -> Result<Option<ThreadCall>, SystemException> {
    let Some(part) = running() else { return Ok(None) };
    part.check()?;
    // Before it is sent: the thread may come back with a call of the server.
    part.calling.fetch_add(1, Ordering::Relaxed);
    if !waits {
        part.has_forked.store(true, Ordering::Relaxed);
    }
    Ok(Some(ThreadCall(part)))
}

impl ThreadCall {
    pub(crate) fn part(&self) -> &ThreadPart {
        &self.0
    }

    /// Its request was sent whole: a cancel follows it until the result is dropped.
    #[inline]
    pub(crate) fn sent(&self, path: Arc<dyn CancelPath>, request: u32, version: Version) -> SentHop<'_> {
        SentHop { part: &self.0, number: self.0.sent(path, request, version) }
    }

    /// Its outcome: THREAD_CANCELLED if the thread was cancelled meanwhile.
    #[inline]
    pub(crate) fn outcome<R, E: Raises>(&self, outcome: Result<R, E>) -> Result<R, E> {
        let system = outcome.as_ref().err().and_then(|raised| raised.system().copied());
        if system.is_some_and(|exception| exception.kind == SystemKind::ThreadCancelled) {
            // From a servant: the whole thread ends.
            self.0.cancel();
            return outcome;
        }
        if !self.0.is_cancelled() {
            return outcome;
        }
        let completed = system.map_or(Completed::Yes, |exception| exception.completed);
        Err(SystemException { completed, ..CANCELLED }.into())
    }
}

/// A two-way request under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct SentHop<'a> {
    part: &'a ThreadPart,
    number: u32,
}

impl Drop for SentHop<'_> {
    #[inline]
    fn drop(&mut self) {
        self.part.replied(self.number);
    }
}

impl Drop for ThreadCall {
    #[inline]
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}
