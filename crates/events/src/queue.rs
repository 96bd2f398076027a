//! The queue of one subscriber: a limit, a drop rule and a lifespan. Without a clock and without a lock.

use std::collections::VecDeque;

use hyoshi_model::{Instant, Span, WhenFull};

/// The properties of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The maximum number of events that wait for the subscriber.
    pub limit: usize,
    /// Which event is dropped when one arrives at a full queue.
    pub when_full: WhenFull,
    /// Events that were pushed longer ago than this are dropped instead of delivered; `None`: no limit.
    pub lifespan: Option<Span>,
    /// The subscription ends after this time without a call of `receive`; `None`: it does not.
    pub idle: Option<Span>,
}

impl Default for Subscription {
    /// The newest 64 events, of any age.
    fn default() -> Self {
        Subscription { limit: 64, when_full: WhenFull::DropOldest, lifespan: None, idle: None }
    }
}

/// Counts of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Delivered events.
    pub delivered: u64,
    /// Events lost because the queue was full.
    pub lost: u64,
    /// Events dropped because their lifespan was over.
    pub expired: u64,
    /// Events that were pushed while the subscription was suspended.
    pub suspended: u64,
}

/// The queue of one subscriber. `T` is an event; the time of its push is beside it.
#[derive(Debug)]
pub(crate) struct SubscriberQueue<T> {
    properties: Subscription,
    waiting: VecDeque<(Instant, T)>,
    suspended: bool,
    /// The last call of `pop`.
    asked: Instant,
    pub counts: QueueCounts,
}

impl<T> SubscriberQueue<T> {
    pub fn new(properties: Subscription, now: Instant) -> Self {
        let (waiting, counts) = (VecDeque::new(), QueueCounts::default());
        SubscriberQueue { properties, waiting, suspended: false, asked: now, counts }
    }

    /// True if the last call of `pop` is longer ago than `idle`.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.properties.idle.is_some_and(|idle| now.since(self.asked) > idle)
    }

    /// Suspends or resumes. While suspended, new events are counted and dropped; waiting events stay.
    pub fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Adds an event pushed at `pushed`. True if one more event waits.
    pub fn push(&mut self, pushed: Instant, event: T) -> bool {
        if self.suspended {
            self.counts.suspended += 1;
            return false;
        }
        let full = self.waiting.len() >= self.properties.limit;
        self.counts.lost += u64::from(full);
        if full && (self.properties.when_full == WhenFull::DropNewest || self.waiting.pop_front().is_none()) {
            return false;
        }
        self.waiting.push_back((pushed, event));
        !full
    }

    /// The next event whose lifespan is not over at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<T> {
        self.asked = now;
        loop {
            let (pushed, event) = self.waiting.pop_front()?;
            if self.properties.lifespan.is_some_and(|lifespan| now.since(pushed) > lifespan) {
                self.counts.expired += 1;
                continue;
            }
            self.counts.delivered += 1;
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_full_queue_keeps_the_newest_or_the_oldest_events() {
        for (when_full, expected) in [(WhenFull::DropOldest, [3, 4]), (WhenFull::DropNewest, [1, 2])] {
            let mut queue = SubscriberQueue::new(
                Subscription { limit: 2, when_full, lifespan: None, ..Subscription::default() },
                Instant::ZERO,
            );
            let added: Vec<bool> = (1..=4).map(|event| queue.push(ms(event), event)).collect();
            assert_eq!(added, [true, true, false, false]);
            assert_eq!([queue.pop(ms(9)), queue.pop(ms(9))].map(Option::unwrap), expected);
            assert_eq!((queue.pop(ms(9)), queue.counts.lost, queue.counts.delivered), (None, 2, 2));
        }
    }

    #[test]
    fn events_beyond_their_lifespan_are_dropped_and_counted() {
        let properties = Subscription { lifespan: Some(Span::from_millis(5)), ..Subscription::default() };
        let mut queue = SubscriberQueue::new(properties, Instant::ZERO);
        [1, 4, 6].into_iter().for_each(|event| assert!(queue.push(ms(event), event)));
        assert_eq!((queue.pop(ms(9)), queue.counts.expired), (Some(4), 1));
        assert_eq!((queue.pop(ms(12)), queue.counts.expired), (None, 2));
    }

    #[test]
    fn a_subscriber_that_does_not_ask_becomes_idle() {
        let properties = Subscription { idle: Some(Span::from_millis(5)), ..Subscription::default() };
        let mut queue = SubscriberQueue::new(properties, ms(1));
        queue.push(ms(5), 1);
        assert!(!queue.is_idle(ms(6)) && queue.is_idle(ms(7)));
        queue.pop(ms(7));
        assert!(!queue.is_idle(ms(12)) && queue.is_idle(ms(13)));
    }

    #[test]
    fn a_queue_without_places_loses_every_event() {
        let mut queue = SubscriberQueue::new(
            Subscription { limit: 0, when_full: WhenFull::DropOldest, lifespan: None, ..Subscription::default() },
            Instant::ZERO,
        );
        assert!(!queue.push(ms(1), 1));
        assert_eq!((queue.pop(ms(1)), queue.counts.lost), (None, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Each event is delivered, lost, expired, suspended, or waits; the rest stay in order; the limit holds.
        #[test]
        fn every_event_is_accounted_for(
            limit in 0usize..5,
            oldest in any::<bool>(),
            lifespan in prop::option::of(0u64..20),
            steps in prop::collection::vec((0u8..4, 0u64..6), 0..200),
        ) {
            let when_full = if oldest { WhenFull::DropOldest } else { WhenFull::DropNewest };
            let lifespan = lifespan.map(Span::from_millis);
            let mut queue = SubscriberQueue::new(Subscription { limit, when_full, lifespan, idle: None }, Instant::ZERO);
            let (mut now, mut pushed, mut last) = (0, 0u64, None);
            for (step, later) in steps {
                now += later;
                match step {
                    0 | 1 => {
                        queue.push(ms(now), (pushed, now));
                        pushed += 1;
                    }
                    2 => {
                        if let Some((number, at)) = queue.pop(ms(now)) {
                            prop_assert!(last.is_none_or(|last| number > last));
                            prop_assert!(lifespan.is_none_or(|lifespan| Span::from_millis(now - at) <= lifespan));
                            last = Some(number);
                        }
                    }
                    _ => {
                        let suspended = queue.is_suspended();
                        queue.suspend(!suspended);
                    }
                }
                let QueueCounts { delivered, lost, expired, suspended } = queue.counts;
                prop_assert!(queue.waiting.len() <= limit);
                prop_assert_eq!(delivered + lost + expired + suspended + queue.waiting.len() as u64, pushed);
            }
        }
    }
}
