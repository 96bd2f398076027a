//! Completions on their way between processors: one single-producer ring for each ordered pair
//! that is connected. Its producer is used under the source's lock only, its consumer under the
//! target's; a full ring loses the completion, and the run counts it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hyoshi_model::{Instant, OperationId, ProcessorId, System};
use hyoshi_trace::Signal;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::payload::Payload;

/// Completions that one link holds.
pub(crate) const LINK: usize = 1024;

/// A completion and what the job emitted.
#[derive(Debug)]
pub(crate) struct Message {
    pub signal: Signal,
    pub payload: Option<Arc<Payload>>,
}

/// The ends of the links at one processor.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// By target; `None` where nothing goes.
    pub outgoing: Vec<Option<Producer<Message>>>,
    pub incoming: Vec<Consumer<Message>>,
}

/// Links for every pair of processors of which one triggers the other.
pub(crate) fn connect(system: &System) -> Vec<Ends> {
    let count = system.processors.len();
    let none = || Ends { outgoing: (0..count).map(|_| None).collect(), incoming: Vec::new() };
    let mut ends: Vec<Ends> = (0..count).map(|_| none()).collect();
    for to in &system.operations {
        for from in to.trigger.predecessors().iter().map(|from| system.operation(*from)) {
            if from.on != to.on && ends[from.on.index()].outgoing[to.on.index()].is_none() {
                let (producer, consumer) = RingBuffer::new(LINK);
                ends[from.on.index()].outgoing[to.on.index()] = Some(producer);
                ends[to.on.index()].incoming.push(consumer);
            }
        }
    }
    ends
}

/// Payloads that wait for their completion to be due, as the dispatcher keeps completions.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    due: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    messages: Vec<Option<Message>>,
    free: Vec<u32>,
    count: u64,
}

impl InFlight {
    /// Room for what all links to a processor can hold, twice.
    pub fn of(system: &System, processor: ProcessorId) -> Self {
        let sources = |id: &OperationId| {
            let from = system.operation(*id);
            from.on != processor && from.payload > 0
        };
        let any = system.operations_on(processor).any(|id| {
            let mut predecessors = system.operation(id).trigger.predecessors().iter();
            predecessors.any(sources)
        });
        let room = if any { 2 * LINK * system.processors.len() } else { 0 };
        InFlight {
            due: BinaryHeap::with_capacity(room),
            messages: (0..room).map(|_| None).collect(),
            free: (0..room as u32).rev().collect(),
            count: 0,
        }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The dispatcher took `message` in flight, after all that were pushed before.
    pub fn push(&mut self, message: Message) {
        let Some(place) = self.free.pop() else { return };
        self.due.push(Reverse((message.signal.due, self.count, place)));
        self.messages[place as usize] = Some(message);
        self.count += 1;
    }

    /// The next that is due, in the dispatcher's order.
    pub fn pop(&mut self, now: Instant) -> Option<Message> {
        let Reverse((due, _, place)) = *self.due.peek()?;
        if due > now {
            return None;
        }
        self.due.pop();
        self.free.push(place);
        self.messages[place as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Span;

    fn message(number: u64, due: u64) -> Message {
        let operation = OperationId(0);
        let signal = Signal {
            from: operation,
            to: operation,
            position: 0,
            number,
            origin: Instant::ZERO,
            period: Span::ZERO,
            due: Instant::from_nanos(due),
        };
        Message { signal, payload: None }
    }

    #[test]
    fn what_is_in_flight_arrives_when_due_and_in_the_order_of_sending() {
        let mut flight =
            InFlight { messages: (0..4).map(|_| None).collect(), free: vec![3, 2, 1, 0], ..InFlight::default() };
        for (number, due) in [(1, 20), (2, 10), (3, 10), (4, 30), (5, 5)] {
            flight.push(message(number, due));
        }
        let at = Instant::from_nanos(20);
        let arrived: Vec<u64> = std::iter::from_fn(|| flight.pop(at)).map(|message| message.signal.number).collect();
        assert_eq!(arrived, [2, 3, 1], "the fifth found no room");
        assert_eq!(flight.free.len(), 3);
    }
}
