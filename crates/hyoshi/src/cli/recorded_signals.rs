//! Recorded input from outside: delays and losses of signals (`--links recorded`), requests, suspended operations, and
//! starts of hosts that joined late.

use std::collections::HashMap;

use hyoshi_model::{Instant, OperationId, ProcessorId, System};
use hyoshi_sim::Journey;
use hyoshi_trace::recording::RecordingHeader;
use hyoshi_trace::{DispatchDecision, Input, Signal, TraceEvent};

/// The identity of a signal: the triggered operation, the predecessor's position, the release number.
type Key = (OperationId, u16, u64);

/// Every signal of a recording.
#[derive(Debug, Default)]
pub(super) struct RecordedSignals {
    /// The times of sending and of arrival, each on that host's clock.
    known: HashMap<Key, (Option<Instant>, Option<Instant>)>,
    /// Operations on processors that the recording contains.
    contained: Vec<bool>,
    /// Requests, late starts and suspended operations, by processor in order of arrival.
    inputs: Vec<(Instant, ProcessorId, Input)>,
}

impl RecordedSignals {
    pub fn new(system: &System, header: &RecordingHeader) -> RecordedSignals {
        let contained = system.operations.iter().map(|operation| header.contains(operation.on));
        RecordedSignals { known: HashMap::new(), contained: contained.collect(), inputs: Vec::new() }
    }

    /// The next event of the recording.
    pub fn event(&mut self, processor: ProcessorId, at: Instant, event: &TraceEvent) {
        match event {
            TraceEvent::Input(input @ (Input::Invoke(_) | Input::Begin | Input::SuspendTriggers { .. })) => {
                self.inputs.push((at, processor, *input));
            }
            TraceEvent::Decision(DispatchDecision::Send(signal)) => {
                self.known.entry(key(signal)).or_default().0 = Some(signal.due)
            }
            TraceEvent::Input(Input::Signal(signal)) => self.known.entry(key(signal)).or_default().1 = Some(signal.due),
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

    /// Every request, late start and suspended operation, in the order of time.
    pub fn inputs(&mut self) -> Vec<(Instant, ProcessorId, Input)> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.sort_by_key(|(at, ..)| *at);
        inputs
    }

    /// Losses are unknown: events were lost while recording.
    pub fn doubt(&mut self) {
        self.known.retain(|_, (_, arrived)| arrived.is_some());
    }
}

fn key(signal: &Signal) -> Key {
    (signal.to, signal.position, signal.number)
}
