//! Does what a recording tells belong to the system that it holds? A checksum says that a file is
//! as somebody wrote it, not that it makes sense: who reads on may index by its numbers only after
//! this, and add a few of its times where they are not [`Instant::NEVER`]. What the kernel tells
//! ([`Event::Seen`]) and until when a job is held is taken as it stands: add those saturating.

use alloc::{vec, vec::Vec};
use core::fmt;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, ResourceId, Span, System};

use super::Entry;
use crate::event::{Decision, Event, Input, JobEnd, Seen, Signal, Slot};

/// Checks the events of a recording one by one, in their order.
#[derive(Clone, Debug)]
pub struct Fits {
    operations: usize,
    resources: usize,
    epochs: usize,
    slots: usize,
    hosts: usize,
    /// By processor: whether the recording contains it.
    contained: Vec<bool>,
    /// By processor: when its dispatcher was last told or decided something.
    last: Vec<Instant>,
}

/// Something that cannot be: the recording was edited, or is damaged in a way that no checksum shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It names something that the system does not have so many of.
    Unknown {
        /// What.
        what: &'static str,
        /// The number that it names.
        number: u64,
        /// How many there are.
        of: usize,
        /// When.
        at: Instant,
    },
    /// It has an event of a processor that its header does not name.
    NotContained {
        /// The processor.
        processor: ProcessorId,
        /// When.
        at: Instant,
    },
    /// Time goes back on a processor.
    Back {
        /// From here.
        from: Instant,
        /// To there.
        to: Instant,
    },
    /// A time that no run reaches.
    Beyond {
        /// When it was told.
        at: Instant,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Unknown { what, number, of, at } => {
                write!(f, "at {at} it tells of {what} {number}, but the system in it has {of}")
            }
            Misfit::NotContained { processor, at } => {
                write!(f, "at {at} it has an event of processor {}, which its header does not name", processor.0)
            }
            Misfit::Back { from, to } => write!(f, "its time goes back from {from} to {to}"),
            Misfit::Beyond { at } => write!(f, "at {at} it names a time that no run reaches"),
        }?;
        f.write_str(": it was edited or damaged; what it told before can be trusted no more than this")
    }
}

impl core::error::Error for Misfit {}

/// 146 years: sums and differences of a few such times do not overflow.
const LATEST: u64 = 1 << 62;

impl Fits {
    /// For recordings of `system`.
    pub fn new(system: &System) -> Self {
        // The dispatchers' own bound on live jobs, of all processors together.
        let live = system.operations.iter().map(|operation| operation.queue.most_jobs());
        Fits {
            operations: system.operations.len(),
            resources: system.resources.len(),
            epochs: system.epochs.len().max(1),
            slots: live.fold(0, usize::saturating_add),
            hosts: system.hosts.len(),
            contained: vec![true; system.processors.len()],
            last: vec![Instant::ZERO; system.processors.len()],
        }
    }

    /// For recordings that contain these processors alone.
    pub fn of_part(mut self, processors: &[u32]) -> Self {
        let contained = |processor: usize| processors.binary_search(&(processor as u32)).is_ok();
        self.contained = (0..self.last.len()).map(contained).collect();
        self
    }

    /// Checks the next event.
    #[inline]
    pub fn check(&mut self, entry: &Entry) -> Result<(), Misfit> {
        let at = entry.now;
        known(at, "processor", entry.processor.0.into(), self.last.len())?;
        if !self.contained[entry.processor.index()] {
            return Err(Misfit::NotContained { processor: entry.processor, at });
        }
        if at.as_nanos() > LATEST {
            return Err(Misfit::Beyond { at });
        }
        match &entry.event {
            Event::Seen(Seen::Clock { host, offset, error }) => {
                known(at, "host", host.0.into(), self.hosts)?;
                within(at, &[Instant::from_nanos(offset.unsigned_abs())]).and(short(at, *error))
            }
            // What is seen comes by another way, and may come a moment late.
            Event::Seen(_) => Ok(()),
            Event::Input(input) => self.advance(entry).and(self.input(at, input)),
            Event::Decision(decision) => self.advance(entry).and(self.decision(at, decision)),
        }
    }

    fn advance(&mut self, entry: &Entry) -> Result<(), Misfit> {
        let last = &mut self.last[entry.processor.index()];
        let from = core::mem::replace(last, entry.now);
        if entry.now < from { Err(Misfit::Back { from, to: entry.now }) } else { Ok(()) }
    }

    fn input(&self, at: Instant, input: &Input) -> Result<(), Misfit> {
        match input {
            Input::Tick | Input::Close | Input::Begin => Ok(()),
            Input::LaneRuns { executed, .. } => short(at, *executed),
            Input::Signal(signal) => self.signal(at, signal),
            Input::Complete { slot, consumed, .. }
            | Input::Observe { slot, consumed }
            | Input::Resume { slot, consumed } => self.slot(at, *slot).and(short(at, *consumed)),
            Input::Suspend { slot } => self.slot(at, *slot),
            Input::Acquire { slot, resource } | Input::Release { slot, resource } => {
                self.slot(at, *slot).and(self.resource(at, *resource))
            }
            Input::Invoke(request) => {
                self.operation(at, request.operation).and(within(at, &[request.origin, or_never(request.deadline)]))
            }
            Input::Retime { operation, period } => self.operation(at, *operation).and(short(at, *period)),
            Input::Enter { index } => self.epoch(at, *index),
            Input::Cancel { job, .. } => self.job(at, *job),
        }
    }

    fn decision(&self, at: Instant, decision: &Decision) -> Result<(), Misfit> {
        match decision {
            Decision::Epoch { index } => self.epoch(at, *index),
            Decision::Hold { job, .. }
            | Decision::Yield { job }
            | Decision::Demote { job }
            | Decision::Move { job, .. } => self.job(at, *job),
            Decision::Ready { job, release, deadline, .. } => {
                self.job(at, *job).and(within(at, &[*release, *deadline]))
            }
            Decision::Run { job, slot, .. } => self.job(at, *job).and(self.slot(at, *slot)),
            Decision::Gate { .. } | Decision::Switch { .. } | Decision::Pause { .. } | Decision::Overload => Ok(()),
            Decision::Relegate { operation } => self.operation(at, *operation),
            Decision::Send(signal) => self.signal(at, signal),
            Decision::End(end) => self.end(at, end),
        }
    }

    #[inline]
    fn end(&self, at: Instant, end: &JobEnd) -> Result<(), Misfit> {
        self.job(at, end.job)?;
        self.epoch(at, end.epoch)?;
        // A job that was never queued or started has no such instant.
        within(at, &[end.origin, end.release, end.end, end.deadline, or_never(end.ready), or_never(end.start)])?;
        short(at, end.consumed)
    }

    fn signal(&self, at: Instant, signal: &Signal) -> Result<(), Misfit> {
        self.operation(at, signal.from).and(self.operation(at, signal.to))?;
        within(at, &[signal.origin, signal.due]).and(short(at, signal.period))
    }

    fn job(&self, at: Instant, job: JobId) -> Result<(), Misfit> {
        self.operation(at, job.operation)
    }

    fn operation(&self, at: Instant, operation: OperationId) -> Result<(), Misfit> {
        known(at, "operation", operation.0.into(), self.operations)
    }

    fn resource(&self, at: Instant, resource: ResourceId) -> Result<(), Misfit> {
        known(at, "resource", resource.0.into(), self.resources)
    }

    fn epoch(&self, at: Instant, epoch: u16) -> Result<(), Misfit> {
        known(at, "region", epoch.into(), self.epochs)
    }

    fn slot(&self, at: Instant, slot: Slot) -> Result<(), Misfit> {
        known(at, "place of a live job", slot.0.into(), self.slots)
    }
}

fn or_never(instant: Instant) -> Instant {
    if instant == Instant::NEVER { Instant::ZERO } else { instant }
}

#[inline]
fn known(at: Instant, what: &'static str, number: u64, of: usize) -> Result<(), Misfit> {
    if number < of as u64 { Ok(()) } else { Err(Misfit::Unknown { what, number, of, at }) }
}

#[inline]
fn short(at: Instant, span: Span) -> Result<(), Misfit> {
    if span.as_nanos() <= LATEST { Ok(()) } else { Err(Misfit::Beyond { at }) }
}

#[inline]
fn within(at: Instant, instants: &[Instant]) -> Result<(), Misfit> {
    if instants.iter().all(|instant| instant.as_nanos() <= LATEST) { Ok(()) } else { Err(Misfit::Beyond { at }) }
}
