//! A lock-free ring that carries events from a dispatcher to a thread below the lanes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::Instant;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::event::{Probe, TraceEvent};

/// Creates a ring for `capacity` events. It allocates only here.
///
/// An event that finds the ring full is counted as lost.
pub fn ring(capacity: usize) -> (RingProbe, RingDrain) {
    let (producer, consumer) = RingBuffer::new(capacity.max(1));
    let lost = Arc::new(AtomicU64::new(0));
    (RingProbe { producer, lost: lost.clone() }, RingDrain { consumer, lost })
}

/// The dispatcher's end. It never blocks or allocates.
#[derive(Debug)]
pub struct RingProbe {
    producer: Producer<(Instant, TraceEvent)>,
    lost: Arc<AtomicU64>,
}

impl Probe for RingProbe {
    #[inline]
    fn event(&mut self, now: Instant, event: TraceEvent) {
        if self.producer.push((now, event)).is_err() {
            self.lose();
        }
    }
}

impl RingProbe {
    #[cold]
    fn lose(&self) {
        // The only writer, so relaxed order suffices.
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// The receiving end, for a thread of low priority.
#[derive(Debug)]
pub struct RingDrain {
    consumer: Consumer<(Instant, TraceEvent)>,
    lost: Arc<AtomicU64>,
}

impl RingDrain {
    /// Passes the events that have arrived to `each`, in order. Returns their number.
    pub fn drain(&mut self, mut each: impl FnMut(Instant, TraceEvent)) -> usize {
        // Bounded by the present number of events: a fast producer does not keep the caller here.
        let arrived = self.consumer.slots();
        for _ in 0..arrived {
            let Ok((now, event)) = self.consumer.pop() else { break };
            each(now, event);
        }
        arrived
    }

    /// The same, up to the first event later than `until`, which stays in the ring.
    pub fn drain_until(&mut self, until: Instant, mut each: impl FnMut(Instant, TraceEvent)) -> usize {
        let mut drained = 0;
        for _ in 0..self.consumer.slots() {
            if self.consumer.peek().is_ok_and(|(now, _)| *now > until) {
                break;
            }
            let Ok((now, event)) = self.consumer.pop() else { break };
            each(now, event);
            drained += 1;
        }
        drained
    }

    /// Events that found the ring full since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// True if the dispatcher's end is dropped and all events were passed on.
    pub fn is_finished(&self) -> bool {
        self.consumer.is_abandoned() && self.consumer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Input;

    const TICK: TraceEvent = TraceEvent::Input(Input::Tick);

    #[test]
    fn a_full_ring_counts_what_it_loses_and_keeps_what_it_has() {
        let (mut probe, mut drain) = ring(4);
        (0..10).for_each(|at| probe.event(Instant::from_nanos(at), TICK));
        let mut seen = Vec::new();
        assert_eq!(drain.drain(|now, _| seen.push(now.as_nanos())), 4);
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!(drain.lost(), 6);
        probe.event(Instant::from_nanos(11), TICK);
        assert_eq!(drain.drain(|_, _| ()), 1);
    }

    #[test]
    fn what_happened_after_an_instant_stays() {
        let (mut probe, mut drain) = ring(8);
        [1, 3, 3, 5].into_iter().for_each(|at| probe.event(Instant::from_nanos(at), TICK));
        let mut seen = Vec::new();
        let mut until = |at| drain.drain_until(Instant::from_nanos(at), |now, _| seen.push(now.as_nanos()));
        assert_eq!([until(0), until(3), until(4), until(9)], [0, 3, 0, 1]);
        assert_eq!(seen, [1, 3, 3, 5]);
    }

    #[test]
    fn events_cross_threads_in_order_and_the_end_is_seen() {
        let (mut probe, mut drain) = ring(64);
        let sender = std::thread::spawn(move || (0..10_000).for_each(|at| probe.event(Instant::from_nanos(at), TICK)));
        let (mut last, mut count) = (None, 0);
        while !drain.is_finished() {
            count += drain.drain(|now, _| {
                assert!(last.is_none_or(|last| last < now));
                last = Some(now);
            });
        }
        sender.join().unwrap();
        assert_eq!(count as u64 + drain.lost(), 10_000);
    }
}
