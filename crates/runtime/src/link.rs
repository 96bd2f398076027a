//! Completions between the processors of one process: one single-producer ring for each ordered pair that is connected.
//! Its producer is used under the source's lock only, its consumer under the target's. Links between hosts take as long as
//! they would in a simulation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_dispatch::transport::IN_FLIGHT;
use hyoshi_dispatch::{InFlight, Transport};
use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_trace::Signal;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::common::Common;
use crate::payload::Payload;

/// Completions that one link holds.
pub(crate) const LINK: usize = 1024;

/// What travels with a completion: what its job emitted.
pub(crate) type Data = Option<Arc<Payload>>;

/// The end at one processor.
#[derive(Debug)]
pub(crate) struct Memory {
    common: Arc<Common>,
    /// To each processor.
    delays: Vec<(Span, Span)>,
    /// By target; `None` where nothing goes.
    outgoing: Vec<Option<Producer<(Signal, Data)>>>,
    incoming: Vec<Consumer<(Signal, Data)>>,
    arriving: InFlight<Data>,
}

/// Links for every pair of processors of which one triggers the other.
pub(crate) fn connect(common: &Arc<Common>) -> Vec<Memory> {
    let system = &common.system;
    let count = system.processors.len();
    let end = |processor| Memory {
        common: common.clone(),
        delays: system.delays_from(processor),
        outgoing: (0..count).map(|_| None).collect(),
        incoming: Vec::new(),
        arriving: InFlight::with_capacity(0),
    };
    let mut ends: Vec<Memory> = system.processor_ids().map(end).collect();
    for to in &system.operations {
        for from in to.trigger.predecessors().iter().map(|from| system.operation(*from)) {
            if from.on != to.on && ends[from.on.index()].outgoing[to.on.index()].is_none() {
                let (producer, consumer) = RingBuffer::new(LINK);
                ends[from.on.index()].outgoing[to.on.index()] = Some(producer);
                let target = &mut ends[to.on.index()];
                if target.incoming.is_empty() {
                    target.arriving = InFlight::with_capacity(IN_FLIGHT);
                }
                target.incoming.push(consumer);
            }
        }
    }
    ends
}

impl Memory {
    fn lost(&self) {
        self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
    }
}

impl Transport for Memory {
    type Data = Data;

    fn send(&mut self, to: ProcessorId, mut signal: Signal, data: Data) {
        let delay = self.delays[to.index()];
        signal.due += self.common.system.draw_delay(delay, signal.to, signal.position, signal.number);
        let sent = self.outgoing[to.index()].as_mut().is_some_and(|link| link.push((signal, data)).is_ok());
        if !sent {
            self.lost();
        }
    }

    #[inline]
    fn next(&self) -> Instant {
        self.arriving.next()
    }

    fn receive(&mut self, now: Instant) -> Option<(Signal, Data)> {
        for link in 0..self.incoming.len() {
            while let Ok((signal, data)) = self.incoming[link].pop() {
                if !self.arriving.push(signal, data) {
                    self.lost();
                }
            }
        }
        self.arriving.pop(now)
    }
}
