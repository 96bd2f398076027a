//! The trigger of a job, and the path from its predecessors' completion over the link or the network to its
//! arrival.

use std::collections::BTreeMap;

use hyoshi_model::{Deadline, Instant, JobId, OperationId, Span, System, Trigger, execution_time};

use super::ResponsePart;
use hyoshi_trace::{JobEnd, Signal};

/// The way of a completion from another host, as both hosts recorded it. Times are on the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// When the other host sent it.
    pub sent: Instant,
    /// When it arrived.
    pub received: Instant,
    /// The error bound of the difference between the two clocks.
    pub error: Span,
}

impl Crossing {
    /// The time on the network.
    pub fn took(&self) -> Span {
        self.received.since(self.sent)
    }

    /// False if the error of the clocks exceeds the time on the network: then nothing is known about it.
    pub fn is_certain(&self) -> bool {
        self.error <= self.took()
    }
}

/// How a job on its processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The job that triggered it, if known.
    pub by: Option<JobId>,
    /// Its operation's timeout released it.
    pub timed_out: bool,
    /// The time at which its trigger was complete.
    pub at: Option<Instant>,
    /// The delay of the link.
    pub link: Span,
    /// Instead of the link: the way from another host, if it was recorded.
    pub crossing: Option<Crossing>,
    /// The end of its delay by a guard or an offset.
    pub held_until: Option<Instant>,
    /// The latest move of its operation to its processor.
    pub moved: Option<LatestMove>,
}

/// The latest move of an operation to this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatestMove {
    /// When it arrived. Jobs that were due earlier are released then.
    pub at: Instant,
    /// The operation on the processor that it has left: itself, if it stayed or came back.
    pub from: OperationId,
}

/// The dispatcher's current input, as far as it triggers jobs.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The signal that has just arrived.
    signal: Option<Signal>,
    /// Its way over the network; `None` for a link within this process, `Some(None)` if its sending was not recorded.
    crossing: Option<Option<Crossing>>,
    /// The same for the next signal.
    next: Option<Option<Crossing>>,
    /// The job that ended last: it triggers jobs that become ready within the same input.
    ended: Option<JobId>,
    /// The operation whose timeout is over: it releases its next job.
    timed_out: Option<OperationId>,
    /// The latest move of each operation to this processor. Later inputs do not change it.
    moves: BTreeMap<OperationId, LatestMove>,
}

impl Arrivals {
    pub fn signal(&mut self, signal: &Signal) {
        let (crossing, moves) = (self.next.take(), std::mem::take(&mut self.moves));
        *self = Arrivals { signal: Some(*signal), crossing, moves, ..Arrivals::default() };
    }

    /// The next signal arrives over the network.
    pub fn crosses(&mut self, crossing: Option<Crossing>) {
        self.next = Some(crossing);
    }

    pub fn tick(&mut self) {
        *self = Arrivals { moves: std::mem::take(&mut self.moves), ..Arrivals::default() };
    }

    /// An operation has moved here, or stays.
    pub fn moved(&mut self, operation: OperationId, latest: LatestMove) {
        self.moves.insert(operation, latest);
    }

    pub fn timed_out(&mut self, operation: OperationId) {
        self.timed_out = Some(operation);
    }

    pub fn ended(&mut self, job: JobId) {
        self.ended = Some(job);
    }

    /// The arrival of `job`, which first appears at `now`.
    pub fn of(&self, system: &System, now: Instant, job: JobId) -> Arrival {
        if let (true, Some(before)) = (job.leg > 0, self.ended) {
            return Arrival { by: Some(before), at: Some(now), ..Arrival::default() };
        }
        let predecessors = system.operation(job.operation).trigger.predecessors();
        // Nothing but time released it.
        if self.timed_out == Some(job.operation) {
            return Arrival { timed_out: true, ..Arrival::default() };
        }
        if predecessors.is_empty() {
            return Arrival { moved: self.moves.get(&job.operation).copied(), ..Arrival::default() };
        }
        if let Some(before) = self.ended.filter(|before| predecessors.contains(&before.operation)) {
            return Arrival { by: Some(before), at: Some(now), ..Arrival::default() };
        }
        let fits = |signal: &Signal| signal.to == job.operation && predecessors.contains(&signal.from);
        let Some(signal) = self.signal.filter(fits) else { return Arrival { at: Some(now), ..Arrival::default() } };
        let legs = system.setting(0, signal.from).legs;
        Arrival {
            by: Some(JobId { operation: signal.from, number: signal.number, leg: legs.max(1) - 1 }),
            at: Some(signal.due.min(now)),
            link: match self.crossing {
                None => system.link_delay((signal.from, signal.to), signal.position, signal.number, signal.due),
                // The file's delay is not added to the network's.
                Some(_) => Span::ZERO,
            },
            crossing: self.crossing.flatten(),
            ..Arrival::default()
        }
    }
}

/// The start of a job's response: where its deadline counts from.
pub fn counted_from(system: &System, end: &JobEnd) -> Instant {
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let from = match system.setting(epoch, end.job.operation).deadline {
        Deadline::Own(_) => end.release,
        Deadline::Origin(_) => end.origin,
    };
    from.min(end.end)
}

/// The parts of a response before the job entered its lane's queue, or ended without entering it.
pub(super) fn before(
    system: &System,
    arrival: &Arrival,
    end: &JobEnd,
    exact: bool,
) -> Vec<(ResponsePart, Instant, Instant)> {
    let from = counted_from(system, end);
    let until = end.ready.min(end.end).max(from);
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let setting = system.setting(epoch, end.job.operation);
    let mut parts = Vec::new();
    let mut at = from;
    let mut part = |kind: ResponsePart, to: Instant| {
        let to = to.clamp(at, until);
        if to > at {
            parts.push((kind, at, to));
        }
        at = to;
    };
    if end.job.leg > 0 {
        part(ResponsePart::Legs, until);
    } else if system.operation(end.job.operation).trigger == Trigger::Periodic {
        let processor = system.processor(system.operation(end.job.operation).on);
        let moved = arrival.moved.filter(|moved| moved.at > end.release);
        let jitter_only = exact && processor.costs.is_none() && moved.is_none();
        part(
            ResponsePart::Jitter,
            if jitter_only { until } else { end.release.saturating_add(drawn_jitter(system, end, epoch)) },
        );
        if let Some(LatestMove { at, from }) = moved {
            let [from, to] = [from, end.job.operation].map(|id| system.operation(id).on);
            part(ResponsePart::Moved { from, to }, at);
        }
    } else {
        let arrived = arrival.at.unwrap_or(end.release.saturating_sub(setting.offset));
        match arrival.crossing {
            Some(crossing) => {
                part(ResponsePart::Upstream, crossing.sent.min(arrived));
                part(ResponsePart::Network { known: crossing.is_certain() }, arrived);
            }
            None => {
                part(ResponsePart::Upstream, arrived.saturating_sub(arrival.link));
                part(ResponsePart::Link, arrived);
            }
        }
        part(ResponsePart::Offset, arrived.saturating_add(setting.offset));
        if let Some(held) = arrival.held_until {
            part(ResponsePart::Guard, if exact { until } else { held });
        }
    }
    part(ResponsePart::TimerLate, until);
    parts
}

/// The jitter of a periodic release: drawn when its timer was armed, possibly in the previous epoch.
fn drawn_jitter(system: &System, end: &JobEnd, epoch: usize) -> Span {
    let drawn = |epoch: usize| {
        let setting = system.setting(epoch, end.job.operation);
        execution_time::lateness(system.seed, end.job, setting.jitter, setting.period)
    };
    drawn(epoch).max(drawn(epoch.saturating_sub(1)))
}

/// Time that a job was held before its response. (A guard moves the release itself if the deadline counts from it.)
pub(super) fn held_before(arrival: &Arrival, end: &JobEnd) -> Span {
    match (arrival.held_until, arrival.at) {
        (Some(_), Some(at)) => end.release.since(at),
        _ => Span::ZERO,
    }
}
