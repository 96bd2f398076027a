//! The path of completions to other processors. The dispatcher is independent of networks: its caller passes each
//! completion that a transport delivers as [`Input::Signal`](hyoshi_trace::Input::Signal).

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;
use core::fmt::Debug;

use hyoshi_model::{Instant, ProcessorId};
use hyoshi_trace::Signal;

/// One processor's end of the links between processors. `Data` travels with each completion.
pub trait CompletionTransport: Debug {
    /// The data that travels beside a signal.
    type Data;

    /// Sends a completion. One that does not fit is lost, and the transport counts it.
    fn send(&mut self, to: ProcessorId, signal: Signal, data: Self::Data);

    /// When the next completion arrives here, if that is known.
    fn next(&self) -> Instant;

    /// A completion that has arrived here by `now`: the earliest first, and of several at one instant the first sent.
    fn receive(&mut self, now: Instant) -> Option<(Signal, Self::Data)>;
}

/// The most completions in transit to one processor.
pub const IN_FLIGHT: usize = 65_536;

/// Completions in transit to one processor.
#[derive(Debug)]
pub struct InFlight<T> {
    heap: BinaryHeap<Flying<T>>,
    count: u64,
}

#[derive(Debug)]
struct Flying<T> {
    signal: Signal,
    count: u64,
    data: T,
}

impl<T> InFlight<T> {
    /// None yet, and room for `capacity` without allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        InFlight { heap: BinaryHeap::with_capacity(capacity), count: 0 }
    }

    /// Adds one that arrives at `signal.due`. False if there are too many: it is lost.
    pub fn push(&mut self, signal: Signal, data: T) -> bool {
        let fits = self.heap.len() < IN_FLIGHT;
        if fits {
            self.heap.push(Flying { signal, count: self.count, data });
            self.count += 1;
        }
        fits
    }

    /// The next arrival.
    #[inline]
    pub fn next(&self) -> Instant {
        self.heap.peek().map_or(Instant::NEVER, |first| first.signal.due)
    }

    /// The next that has arrived by `now`.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<(Signal, T)> {
        if self.next() > now || self.heap.is_empty() {
            return None;
        }
        self.heap.pop().map(|first| (first.signal, first.data))
    }
}

impl<T> Flying<T> {
    fn key(&self) -> (Instant, u64) {
        (self.signal.due, self.count)
    }
}

/// The heap's greatest entry is the first to arrive.
impl<T> Ord for Flying<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Flying<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use hyoshi_model::{OperationId, Span};

    #[test]
    fn signals_arrive_when_due_and_in_the_order_of_sending() {
        let operation = OperationId(0);
        let signal = |number, due| Signal {
            from: operation,
            to: operation,
            position: 0,
            number,
            origin: Instant::ZERO,
            period: Span::ZERO,
            due: Instant::from_nanos(due),
            ticket: None,
        };
        let mut flight = InFlight::with_capacity(4);
        for (number, due) in [(1, 20), (2, 10), (3, 10), (4, 30)] {
            assert!(flight.push(signal(number, due), number * 2));
        }
        let at = Instant::from_nanos(20);
        let arrived: Vec<_> =
            core::iter::from_fn(|| flight.pop(at)).map(|(signal, data)| (signal.number, data)).collect();
        assert_eq!(arrived, [(2, 4), (3, 6), (1, 2)]);
        assert_eq!(flight.next(), Instant::from_nanos(30));
    }
}
