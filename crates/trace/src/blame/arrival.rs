//! What led to a job, and how long it took: from its predecessors' completion over the link to
//! its arrival here.

use std::collections::VecDeque;

use hyoshi_model::{Deadline, Instant, JobId, Span, System, Trigger, takes};

use super::Kind;
use crate::event::{JobEnd, Signal};

/// Signals of one operation that are remembered until they are delivered.
const REMEMBERED: usize = 64;

/// How a job came to its processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The job that triggered it, if that is known.
    pub by: Option<JobId>,
    /// When its trigger was complete here.
    pub at: Option<Instant>,
    /// How long the link took.
    pub link: Span,
    /// Until when its guard, or its offset, held it.
    pub held_until: Option<Instant>,
}

/// Signals on their way, and completions of this very instant.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// By operation of the system, with when each was told.
    signals: Vec<VecDeque<(Instant, Signal)>>,
    /// The present tick, and the one before it: what could be delivered then was.
    ticks: (Instant, Instant),
    /// By operation: its jobs carry the release numbers of their root.
    numbered: Vec<bool>,
    /// The job that has just ended: what becomes ready next, within the same input, follows from it.
    ended: Option<JobId>,
}

impl Arrivals {
    pub fn new(system: &System) -> Self {
        let numbered = system.operation_ids().map(|id| system.numbered_by_root(id)).collect();
        Arrivals {
            signals: vec![VecDeque::new(); system.operations.len()],
            ticks: Default::default(),
            numbered,
            ended: None,
        }
    }

    pub fn signal(&mut self, system: &System, now: Instant, signal: &Signal) {
        self.ended = None;
        let known = (signal.from.index()) < system.operations.len();
        if let Some(waiting) = self.signals.get_mut(signal.to.index()).filter(|_| known) {
            if waiting.len() >= REMEMBERED {
                waiting.pop_front();
            }
            waiting.push_back((now, *signal));
        }
    }

    pub fn tick(&mut self, now: Instant) {
        self.ended = None;
        self.ticks = (now, self.ticks.0);
    }

    pub fn ended(&mut self, job: JobId) {
        self.ended = Some(job);
    }

    /// How `job` came here; it is seen at `now` for the first time.
    pub fn of(&mut self, system: &System, now: Instant, job: JobId) -> Arrival {
        if let (true, Some(before)) = (job.leg > 0, self.ended) {
            return Arrival { by: Some(before), at: Some(now), ..Arrival::default() };
        }
        let operation = system.operation(job.operation);
        let predecessors = operation.trigger.predecessors();
        if predecessors.is_empty() {
            return Arrival::default();
        }
        if let Some(before) = self.ended.filter(|before| predecessors.contains(&before.operation)) {
            return Arrival { by: Some(before), at: Some(now), ..Arrival::default() };
        }
        // Of what has arrived by now the last completes a join, and the first is an event of its own.
        let numbered = self.numbered[job.operation.index()];
        let joins = matches!(&operation.trigger, Trigger::All(all) if all.len() > 1);
        let waiting = &mut self.signals[job.operation.index()];
        if !joins {
            // Delivered before, to an operation that was switched off.
            waiting.retain(|(told, signal)| signal.due.max(*told) > self.ticks.1);
        }
        let fits = |signal: &Signal| signal.due <= now && (!numbered || signal.number == job.number);
        let arrived = waiting.iter().map(|(_, signal)| signal).enumerate().filter(|(_, signal)| fits(signal));
        let found = if joins {
            arrived.max_by_key(|(_, signal)| signal.due).map(|(position, signal)| (position, *signal))
        } else {
            arrived
                .min_by_key(|(position, signal)| (signal.due, *position))
                .map(|(position, signal)| (position, *signal))
        };
        let Some((position, signal)) = found else { return Arrival { at: Some(now), ..Arrival::default() } };
        waiting.remove(position);
        if joins {
            waiting.retain(|(_, other)| other.due > signal.due || (numbered && other.number != job.number));
        }
        let host = |operation| system.processor(system.operation(operation).on).host;
        let (least, most) = system.delay(host(signal.from), host(signal.to));
        let drawn = JobId { operation: signal.to, number: signal.number, leg: signal.position };
        let by = JobId {
            operation: signal.from,
            number: signal.number,
            leg: system.setting(0, signal.from).legs.max(1) - 1,
        };
        Arrival {
            by: Some(by),
            at: Some(signal.due),
            link: takes::uniform(takes::bits(system.seed, drawn, 3), least, most),
            held_until: None,
        }
    }
}

/// From when a job's response counts: as its deadline does.
pub fn counted_from(system: &System, end: &JobEnd) -> Instant {
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let from = match system.setting(epoch, end.job.operation).deadline {
        Deadline::Own(_) => end.release,
        Deadline::Origin(_) => end.origin,
    };
    from.min(end.end)
}

/// The parts of a response before the job entered its lane's queue (or ended without).
pub(super) fn before(system: &System, arrival: &Arrival, end: &JobEnd, exact: bool) -> Vec<(Kind, Instant, Instant)> {
    let from = counted_from(system, end);
    let until = end.ready.min(end.end).max(from);
    let epoch = usize::from(end.epoch).min(system.epochs.len().saturating_sub(1));
    let setting = system.setting(epoch, end.job.operation);
    let mut parts = Vec::new();
    let mut at = from;
    let mut part = |kind: Kind, to: Instant| {
        let to = to.clamp(at, until);
        if to > at {
            parts.push((kind, at, to));
        }
        at = to;
    };
    if end.job.leg > 0 {
        part(Kind::Legs, until);
    } else if system.operation(end.job.operation).trigger == Trigger::Periodic {
        let processor = system.processor(system.operation(end.job.operation).on);
        let jitter_only = exact && processor.costs.is_none();
        part(
            Kind::Jitter,
            if jitter_only { until } else { end.release.saturating_add(drawn_jitter(system, end, epoch)) },
        );
    } else {
        let arrived = arrival.at.unwrap_or(end.release.saturating_sub(setting.offset));
        part(Kind::Upstream, arrived.saturating_sub(arrival.link));
        part(Kind::Link, arrived);
        part(Kind::Offset, arrived.saturating_add(setting.offset));
        if let Some(held) = arrival.held_until {
            part(Kind::Guard, if exact { until } else { held });
        }
    }
    part(Kind::TimerLate, until);
    parts
}

/// The jitter that a periodic release was given: drawn when its timer was set, perhaps an epoch before.
fn drawn_jitter(system: &System, end: &JobEnd, epoch: usize) -> Span {
    let drawn = |epoch: usize| {
        let setting = system.setting(epoch, end.job.operation);
        takes::lateness(system.seed, end.job, setting.jitter, setting.period)
    };
    drawn(epoch).max(drawn(epoch.saturating_sub(1)))
}

/// How long a job was held before its response began to count (a guard moves the release itself,
/// where the deadline counts from it).
pub(super) fn held_before(arrival: &Arrival, end: &JobEnd) -> Span {
    match (arrival.held_until, arrival.at) {
        (Some(_), Some(at)) => end.release.since(at),
        _ => Span::ZERO,
    }
}
