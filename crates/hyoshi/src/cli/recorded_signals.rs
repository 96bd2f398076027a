//! Recorded input from outside: delays and losses of signals (`--links recorded`), requests, suspended operations, samples
//! and rates of feedback loops, hops that bodies chose, and starts of hosts that joined late.

use std::collections::HashMap;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, System};
use hyoshi_sim::Journey;
use hyoshi_trace::recording::RecordingHeader;
use hyoshi_trace::{DispatchDecision, Input, Signal, Slot, TraceEvent};

/// The identity of a signal: the triggered operation, the predecessor's position, the release number.
type Key = (OperationId, u16, u64);

/// Every signal of a recording.
#[derive(Debug, Default)]
pub(super) struct RecordedSignals {
    /// The times of sending and of arrival, each on that host's clock.
    known: HashMap<Key, (Option<Instant>, Option<Instant>)>,
    /// Operations on processors that the recording contains.
    contained: Vec<bool>,
    /// Requests, late starts, suspended operations, samples and rates, by processor in order of arrival.
    inputs: Vec<(Instant, ProcessorId, Input)>,
    /// The started jobs, and the hops that completions chose.
    started: HashMap<(ProcessorId, Slot), JobId>,
    hops: HashMap<JobId, u64>,
    /// Whether completions of an operation choose hops.
    chooses: Vec<bool>,
}

impl RecordedSignals {
    pub fn new(system: &System, header: &RecordingHeader) -> RecordedSignals {
        let contained = system.operations.iter().map(|operation| header.contains(operation.on));
        let mut chooses = vec![false; system.operations.len()];
        system.choices().keys().for_each(|id| chooses[id.index()] = true);
        RecordedSignals { contained: contained.collect(), chooses, ..RecordedSignals::default() }
    }

    /// The next event of the recording.
    pub fn event(&mut self, processor: ProcessorId, at: Instant, event: &TraceEvent) {
        match event {
            TraceEvent::Input(input) if input.is_of_loop() => self.inputs.push((at, processor, *input)),
            TraceEvent::Input(
                input @ (Input::Invoke(_)
                | Input::Begin
                | Input::SuspendTriggers { .. }
                | Input::Condition { .. }
                | Input::Force { .. }
                | Input::Admit { .. }
                | Input::Withdraw { .. }),
            ) => {
                self.inputs.push((at, processor, *input));
            }
            TraceEvent::Decision(DispatchDecision::Run { job, slot, .. }) if self.chooses[job.operation.index()] => {
                self.started.insert((processor, *slot), *job);
            }
            TraceEvent::Input(Input::Choose { slot, hops }) => {
                self.started.get(&(processor, *slot)).map(|job| self.hops.insert(*job, *hops));
            }
            TraceEvent::Decision(DispatchDecision::Send(signal)) => {
                self.known.entry(key(signal)).or_default().0 = Some(signal.due)
            }
            TraceEvent::Input(Input::Signal(signal) | Input::DropHop(signal)) => {
                self.known.entry(key(signal)).or_default().1 = Some(signal.due)
            }
            _ => {}
        }
    }

    /// The fate of a signal. In a simulation all hosts share one clock. The arrival time on the receiver's clock
    /// counts, because that clock decides the receiver's releases.
    pub fn of(&self, signal: &Signal) -> Option<Journey> {
        match *self.known.get(&key(signal))? {
            (Some(sent), Some(arrived)) if arrived >= sent => Some(Journey::Delay(arrived.since(sent))),
            (_, Some(arrived)) => Some(Journey::Until(arrived)),
            (Some(_), None) => self.contained.get(signal.to.index())?.then_some(Journey::Lost),
            (None, None) => None,
        }
    }

    /// Every request, late start, suspended operation, sample and rate, in the order of time.
    pub fn inputs(&mut self) -> Vec<(Instant, ProcessorId, Input)> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.sort_by_key(|(at, ..)| *at);
        inputs
    }

    /// The hops that each completion chose.
    pub fn hops(&mut self) -> HashMap<JobId, u64> {
        std::mem::take(&mut self.hops)
    }

    /// Losses are unknown: events were lost while recording.
    pub fn doubt(&mut self) {
        self.known.retain(|_, (_, arrived)| arrived.is_some());
    }
}

fn key(signal: &Signal) -> Key {
    (signal.to, signal.position, signal.number)
}
