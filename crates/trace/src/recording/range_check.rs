//! Checks that the numbers and times of a recording fit its system.
//!
//! A checksum detects damage, not nonsense. Code that uses a recording may index by its numbers only after this check.
//! It may then add a few of its times, except [`Instant::NEVER`]. The times of [`TraceEvent::Cpu`] events and the ends
//! of delays are not checked: add them with saturation.

use alloc::{vec, vec::Vec};
use core::fmt;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, ResourceId, Span, System};

use super::RecordedEvent;
use crate::admission::AdmissionOutcome;
use crate::event::{CpuEvent, DispatchDecision, Input, JobEnd, Signal, Slot, TraceEvent};

/// Checks the events of a recording one by one, in order.
#[derive(Clone, Debug)]
pub struct RangeCheck {
    /// By operation: the number of its service levels, or 1 without levels.
    levels: Vec<usize>,
    resources: usize,
    epochs: usize,
    slots: usize,
    hosts: usize,
    conditions: usize,
    /// By contract: the numbers of its conditions and regions.
    contracts: Vec<(usize, usize)>,
    routes: usize,
    /// By processor: whether the recording contains it.
    contained: Vec<bool>,
    /// By processor: the time of its dispatcher's last event.
    last: Vec<Instant>,
}

/// An impossible event: the recording was edited, or damaged in a way that no checksum detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// A number beyond those of the system.
    Unknown {
        /// The numbered kind.
        what: &'static str,
        /// The number.
        number: u64,
        /// The system's count.
        of: usize,
        /// The time of the event.
        at: Instant,
    },
    /// An event of a processor that is not in the header.
    NotContained {
        /// The processor.
        processor: ProcessorId,
        /// The time of the event.
        at: Instant,
    },
    /// The time of a processor decreases.
    Back {
        /// From this time.
        from: Instant,
        /// To this time.
        to: Instant,
    },
    /// A time that no run reaches.
    Beyond {
        /// The time of the event.
        at: Instant,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeError::Unknown { what, number, of, at } => {
                write!(f, "at {at} it names {what} {number}, but its system has {of}")
            }
            RangeError::NotContained { processor, at } => {
                write!(f, "at {at} it has an event of processor {}, which its header does not name", processor.0)
            }
            RangeError::Back { from, to } => write!(f, "its time decreases from {from} to {to}"),
            RangeError::Beyond { at } => write!(f, "at {at} it has a time that no run reaches"),
        }?;
        f.write_str(": the recording was edited or damaged; do not trust its earlier events either")
    }
}

impl core::error::Error for RangeError {}

/// 146 years: sums and differences of a few such times do not overflow.
const LATEST: u64 = 1 << 62;

impl RangeCheck {
    /// A check for recordings of `system`.
    pub fn new(system: &System) -> Self {
        // The dispatchers' own bound on live jobs, of all processors together.
        let live = system.operations.iter().map(|operation| operation.queue.most_jobs());
        RangeCheck {
            levels: system.operations.iter().map(|operation| operation.levels.len().max(1)).collect(),
            resources: system.resources.len(),
            epochs: system.epochs.len().max(1),
            slots: live.fold(0, usize::saturating_add),
            hosts: system.hosts.len(),
            conditions: system.conditions.len(),
            routes: system.contract_routes().len(),
            contracts: system.contracts.iter().map(|one| (one.conditions.len(), one.regions.len())).collect(),
            contained: vec![true; system.processors.len()],
            last: vec![Instant::ZERO; system.processors.len()],
        }
    }

    /// A check for recordings that contain only these processors.
    pub fn of_part(mut self, processors: &[u32]) -> Self {
        let contained = |processor: usize| processors.binary_search(&(processor as u32)).is_ok();
        self.contained = (0..self.last.len()).map(contained).collect();
        self
    }

    /// Checks the next event.
    #[inline]
    pub fn check(&mut self, entry: &RecordedEvent) -> Result<(), RangeError> {
        let at = entry.now;
        known(at, "processor", entry.processor.0.into(), self.last.len())?;
        if !self.contained[entry.processor.index()] {
            return Err(RangeError::NotContained { processor: entry.processor, at });
        }
        if at.as_nanos() > LATEST {
            return Err(RangeError::Beyond { at });
        }
        match &entry.event {
            TraceEvent::Cpu(CpuEvent::Clock { host, offset, error }) => {
                known(at, "host", host.0.into(), self.hosts)?;
                within(at, &[Instant::from_nanos(offset.unsigned_abs())]).and(short(at, *error))
            }
            // Observations of the CPU use another path and may arrive a moment late.
            TraceEvent::Cpu(_) => Ok(()),
            TraceEvent::Input(input) => self.advance(entry).and(self.input(at, input)),
            TraceEvent::Decision(decision) => self.advance(entry).and(self.decision(at, decision)),
        }
    }

    fn advance(&mut self, entry: &RecordedEvent) -> Result<(), RangeError> {
        let last = &mut self.last[entry.processor.index()];
        let from = core::mem::replace(last, entry.now);
        if entry.now < from { Err(RangeError::Back { from, to: entry.now }) } else { Ok(()) }
    }

    fn input(&self, at: Instant, input: &Input) -> Result<(), RangeError> {
        match input {
            Input::Tick | Input::Close | Input::Begin => Ok(()),
            Input::LaneRuns { executed, .. } => short(at, *executed),
            Input::Signal(signal) | Input::DropHop(signal) => self.signal(at, signal),
            Input::Complete { slot, consumed, .. }
            | Input::Observe { slot, consumed }
            | Input::Resume { slot, consumed } => self.slot(at, *slot).and(short(at, *consumed)),
            Input::Suspend { slot } | Input::Choose { slot, .. } => self.slot(at, *slot),
            Input::Acquire { slot, resource } | Input::Release { slot, resource } => {
                self.slot(at, *slot).and(self.resource(at, *resource))
            }
            Input::Invoke(request) => self
                .operation(at, request.operation)
                .and(within(at, &[request.origin, request.sent, or_never(request.deadline)])),
            Input::Retime { operation, period } | Input::Adapt { operation, period } => {
                self.operation(at, *operation).and(short(at, *period))
            }
            Input::Sample { .. } | Input::Leave { .. } => Ok(()),
            Input::Join { task, .. } => {
                let spans = [task.estimate, task.shortest, task.longest];
                self.operation(at, task.operation).and(spans.into_iter().try_for_each(|span| short(at, span)))
            }
            Input::Condition { condition, .. } => known(at, "condition", (*condition).into(), self.conditions),
            Input::Force { contract, region, .. } => {
                let (_, regions) = self.contract(at, *contract)?;
                region.iter().try_for_each(|region| known(at, "region", (*region).into(), regions))
            }
            Input::ContractUpdate { route, .. } => known(at, "route of a contract", (*route).into(), self.routes),
            Input::Enter { index } => self.epoch(at, *index),
            Input::SuspendTriggers { operation, .. }
            | Input::Depart { operation }
            | Input::Stay { operation }
            | Input::Admit { operation }
            | Input::Withdraw { operation } => self.operation(at, *operation),
            Input::Arrive { operation, from, nominal, number } => {
                let number = Instant::from_nanos(*number);
                self.operation(at, *operation).and(self.operation(at, *from)).and(within(at, &[*nominal, number]))
            }
            Input::Cancel { job, .. } => self.job(at, *job),
        }
    }

    fn decision(&self, at: Instant, decision: &DispatchDecision) -> Result<(), RangeError> {
        match decision {
            DispatchDecision::Epoch { index } => self.epoch(at, *index),
            DispatchDecision::Hold { job, .. }
            | DispatchDecision::Yield { job }
            | DispatchDecision::Demote { job }
            | DispatchDecision::Move { job, .. } => self.job(at, *job),
            DispatchDecision::Ready { job, release, deadline, .. } => {
                self.job(at, *job).and(within(at, &[*release, *deadline]))
            }
            DispatchDecision::Run { job, slot, .. } => self.job(at, *job).and(self.slot(at, *slot)),
            // Reports print a latency, but never add it to an instant.
            DispatchDecision::Gate { .. }
            | DispatchDecision::Latency { .. }
            | DispatchDecision::Switch { .. }
            | DispatchDecision::Pause { .. }
            | DispatchDecision::Sample { .. }
            | DispatchDecision::Overload => Ok(()),
            DispatchDecision::Retime { operation, period } | DispatchDecision::Pace { operation, period, .. } => {
                self.operation(at, *operation).and(short(at, *period))
            }
            DispatchDecision::Condition { contract, condition, .. } => {
                let (conditions, _) = self.contract(at, *contract)?;
                known(at, "condition", (*condition).into(), conditions)
            }
            DispatchDecision::Region { contract, from, to } => {
                let (_, regions) = self.contract(at, *contract)?;
                let mut named = from.iter().chain(to);
                named.try_for_each(|region| known(at, "region", (*region).into(), regions))
            }
            DispatchDecision::Relegate { operation }
            | DispatchDecision::TimeOut { operation }
            | DispatchDecision::Discard { to: operation, .. } => self.operation(at, *operation),
            DispatchDecision::Admission { operation, outcome } => match outcome {
                AdmissionOutcome::Admitted { period, .. } => self.operation(at, *operation).and(short(at, *period)),
                AdmissionOutcome::Withdrawn | AdmissionOutcome::Refused(_) => self.operation(at, *operation),
            },
            DispatchDecision::Level { operation, level } => self.level(at, *operation, *level),
            DispatchDecision::Send(signal) => self.signal(at, signal),
            DispatchDecision::End(end) => self.end(at, end),
        }
    }

    #[inline]
    fn end(&self, at: Instant, end: &JobEnd) -> Result<(), RangeError> {
        self.level(at, end.job.operation, end.service.level)?;
        self.epoch(at, end.epoch)?;
        // A job that was never queued or started has no such instant.
        within(at, &[end.origin, end.release, end.end, end.deadline, or_never(end.ready), or_never(end.start)])?;
        short(at, end.consumed)
    }

    fn signal(&self, at: Instant, signal: &Signal) -> Result<(), RangeError> {
        self.operation(at, signal.from).and(self.operation(at, signal.to))?;
        within(at, &[signal.origin, signal.due]).and(short(at, signal.period))
    }

    fn job(&self, at: Instant, job: JobId) -> Result<(), RangeError> {
        self.operation(at, job.operation)
    }

    fn operation(&self, at: Instant, operation: OperationId) -> Result<(), RangeError> {
        known(at, "operation", operation.0.into(), self.levels.len())
    }

    fn level(&self, at: Instant, operation: OperationId, level: u8) -> Result<(), RangeError> {
        self.operation(at, operation)?;
        known(at, "service level", level.into(), self.levels[operation.index()])
    }

    fn resource(&self, at: Instant, resource: ResourceId) -> Result<(), RangeError> {
        known(at, "resource", resource.0.into(), self.resources)
    }

    fn epoch(&self, at: Instant, epoch: u16) -> Result<(), RangeError> {
        known(at, "region", epoch.into(), self.epochs)
    }

    /// The numbers of its conditions and regions.
    fn contract(&self, at: Instant, contract: u16) -> Result<(usize, usize), RangeError> {
        known(at, "contract", contract.into(), self.contracts.len())?;
        Ok(self.contracts[usize::from(contract)])
    }

    fn slot(&self, at: Instant, slot: Slot) -> Result<(), RangeError> {
        known(at, "slot", slot.0.into(), self.slots)
    }
}

fn or_never(instant: Instant) -> Instant {
    if instant == Instant::NEVER { Instant::ZERO } else { instant }
}

#[inline]
fn known(at: Instant, what: &'static str, number: u64, of: usize) -> Result<(), RangeError> {
    if number < of as u64 { Ok(()) } else { Err(RangeError::Unknown { what, number, of, at }) }
}

#[inline]
fn short(at: Instant, span: Span) -> Result<(), RangeError> {
    if span.as_nanos() <= LATEST { Ok(()) } else { Err(RangeError::Beyond { at }) }
}

#[inline]
fn within(at: Instant, instants: &[Instant]) -> Result<(), RangeError> {
    if instants.iter().all(|instant| instant.as_nanos() <= LATEST) { Ok(()) } else { Err(RangeError::Beyond { at }) }
}
