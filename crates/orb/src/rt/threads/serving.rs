//! The requests of distributable threads that this process serves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_wire::giop::{Request, ThreadId};
use hyoshi_wire::{Completed, SystemException, SystemKind};

use super::part::{CANCELLED, ThreadPart};
use super::registry::{self, HopArrival};
use super::{NEXT, POSITION, RunningPart, ThreadPosition, own_origin};
use crate::current::{self, Served};
use crate::minor;
use crate::rt::timing::{self, Restore};

/// A request that a thread of the operating system serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedRequest {
    id: u32,
    wants_reply: bool,
    /// It has brought a distributable thread.
    pub(super) is_hop: bool,
}

impl ServedRequest {
    /// For a thread that starts within it: the client's CancelRequest cancels it.
    pub(super) fn arrival(&self) -> Option<HopArrival> {
        let of = |connection: Arc<dyn Served>, epoch| HopArrival::new(connection, self.id, self.wants_reply, epoch);
        current::serving().map(|(connection, epoch)| of(connection, epoch))
    }
}

/// A request of a distributable thread that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedPart(RunningPart);

impl QueuedPart {
    pub(crate) fn cancel(&self) {
        self.0.0.cancel();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.0.is_cancelled()
    }
}

/// A request has arrived that will run later. `None` if it brings no thread.
///
/// # Errors
///
/// Those of [`visit`].
pub(crate) fn queue(request: &Request<'_>, connection: Arc<dyn Served>) -> Result<Option<QueuedPart>, SystemException> {
    let id = timing::carried(&request.contexts).ok().flatten().map_or(ThreadId::NONE, |timing| timing.thread);
    if id.is_none() {
        return Ok(None);
    }
    let arrival = HopArrival::new(connection, request.id, request.response.expected(), None);
    Ok(Some(QueuedPart(RunningPart(arrive(id, arrival)?))))
}

/// A thread with this id arrives.
#[inline]
fn arrive(id: ThreadId, arrival: HopArrival) -> Result<Arc<ThreadPart>, SystemException> {
    if id.origin == own_origin() {
        refuse_forged(id)?;
    }
    registry::add(id, Some(arrival))
}

/// BAD_PARAM for an id of this process that it has not issued, or of a thread whose head is here.
#[cold]
fn refuse_forged(id: ThreadId) -> Result<(), SystemException> {
    let parts = registry::parts_of(id);
    let is_away =
        |part: &Arc<ThreadPart>| part.calling.load(Ordering::Relaxed) > 0 || part.has_forked.load(Ordering::Relaxed);
    if id.number >= NEXT.load(Ordering::Relaxed) || (!parts.is_empty() && !parts.iter().any(is_away)) {
        return Err(SystemKind::BadParam.not_done(minor::THREAD_ID));
    }
    Ok(())
}

/// The client of the connection that the calling thread reads sent a CancelRequest.
#[cold]
pub(crate) fn cancel_request(request: u32) {
    if let Some((connection, _)) = current::serving() {
        registry::cancel(&*connection, Some(request));
    }
}

/// A request that the calling thread serves, until it is dropped: then its timing and thread are those before.
#[derive(Debug)]
pub(crate) struct Visit {
    timing: Option<Restore>,
    before: Option<ThreadPosition>,
}

/// The calling thread serves this request from now on. A thread that waited for its turn comes as `queued`.
///
/// # Errors
///
/// THREAD_CANCELLED if its thread was cancelled while it waited; BAD_PARAM for a forged id; IMP_LIMIT if there are too
/// many threads. A damaged context is no error: the request has no timing.
#[inline]
pub(crate) fn visit(request: &Request<'_>, queued: Option<QueuedPart>, tracks: bool) -> Result<Visit, SystemException> {
    let (restore, thread) = timing::serve(&request.contexts);
    let mut served = ServedRequest { id: request.id, wants_reply: request.response.expected(), is_hop: false };
    let part = match queued {
        Some(QueuedPart(part)) => Some(part),
        None if thread.is_none() || !tracks => None,
        // A call within the process has no connection, and keeps its thread.
        None => match served.arrival() {
            Some(arrival) => Some(RunningPart(arrive(thread, arrival)?)),
            None => None,
        },
    };
    served.is_hop = part.is_some();
    let check = part.as_ref().map_or(Ok(()), |part| part.0.check());
    let own = ThreadPosition { part, request: Some(served) };
    let before = POSITION.replace(own);
    let visit = Visit { timing: restore, before: Some(before) };
    check.map(|()| visit)
}

impl Visit {
    /// The servant has returned. Of a cancelled thread, or one with an open segment, the outcome is an exception.
    #[inline]
    pub(crate) fn leave(mut self, done: Result<(), SystemException>) -> Result<(), SystemException> {
        let part = match self.before.take() {
            Some(before) => POSITION.replace(before).part,
            None => None,
        };
        self.timing.take();
        match part {
            None => done,
            Some(part) => outcome(&part.0, done),
        }
    }
}

fn outcome(part: &ThreadPart, done: Result<(), SystemException>) -> Result<(), SystemException> {
    let is_cancelled = part.end();
    match done {
        // Of a scheduling point or call within the operation: a part of it has run.
        Err(exception) if exception.kind == SystemKind::ThreadCancelled => {
            Err(SystemException { completed: Completed::Maybe, ..exception })
        }
        Err(exception) if is_cancelled => Err(SystemException { completed: exception.completed, ..CANCELLED }),
        Ok(()) if is_cancelled => Err(SystemKind::ThreadCancelled.done(minor::CANCELLED)),
        Ok(()) if part.depth() > 0 => Err(SystemKind::BadInvOrder.done(minor::SEGMENT_OPEN)),
        done => done,
    }
}

impl Drop for Visit {
    #[inline]
    fn drop(&mut self) {
        // After a panic of the servant, or a refusal.
        if let Some(before) = self.before.take() {
            drop(POSITION.replace(before));
        }
    }
}
