//! Events that programs publish.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyoshi_events::{EventChannel, PublishError};
use hyoshi_model::{HostId, Instant, Span};
use hyoshi_os::{Clock, MonotonicClock};
use hyoshi_runtime::Rejected;
use zenoh::sample::{Sample, SampleKind};

/// The pause after a publication that is refused, on the thread that reads.
const REFUSED: Duration = Duration::from_millis(1);
/// The least average time between publications of an event whose supplier has no `min_interval`.
const INTERVAL: Span = Span::from_millis(1);

/// An event that programs publish.
pub(super) struct PublishedEvent {
    name: String,
    channel: EventChannel,
    /// The largest payload.
    most: usize,
    clock: MonotonicClock,
    rate: Mutex<RateLimit>,
    counts: IncomingCounts,
}

#[derive(Debug, Default)]
struct IncomingCounts {
    accepted: AtomicU64,
    malformed: AtomicU64,
    too_long: AtomicU64,
    too_fast: AtomicU64,
    full: AtomicU64,
    idle: AtomicU64,
}

/// What happened to the publications of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// The event.
    pub event: String,
    /// Publications that released a job of the supplier.
    pub accepted: u64,
    /// Refused: Zenoh's deletions, which are not events.
    pub malformed: u64,
    /// Refused: longer than `payload`.
    pub too_long: u64,
    /// Refused: more often than `min_interval` allows.
    pub too_fast: u64,
    /// Refused: the supplier's queue was full, or the supplier was off.
    pub full: u64,
    /// Refused: the run had not begun, or had ended.
    pub idle: u64,
}

impl PublicationCounts {
    /// All that were refused.
    pub fn refused(&self) -> u64 {
        self.malformed + self.too_long + self.too_fast + self.full + self.idle
    }
}

impl PublishedEvent {
    /// An event of the file, by its position, that a supplier of this host accepts.
    pub fn new(channel: &EventChannel, host: HostId, event: u32) -> PublishedEvent {
        let system = channel.system();
        let event = &system.events[event as usize];
        let suppliers = event.suppliers.iter().map(|id| system.operation(*id));
        let mut open = suppliers.filter(|one| one.is_requested() && system.processor(one.on).host == host);
        let supplier = open.next();
        let interval = supplier.and_then(|one| one.min_interval).unwrap_or(INTERVAL);
        PublishedEvent {
            name: event.name.clone(),
            channel: channel.clone(),
            most: supplier.map_or(0, |one| one.payload as usize),
            clock: MonotonicClock::from_origin(0),
            rate: Mutex::new(RateLimit::new(interval, supplier.map_or(1, |one| one.queue.limit))),
            counts: IncomingCounts::default(),
        }
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes a sample, or counts why it is refused and pauses. On one of Zenoh's threads.
    pub fn receive(&self, sample: &Sample) {
        let counts = &self.counts;
        let refused = match self.publish(sample) {
            Ok(()) => {
                counts.accepted.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(count) => count,
        };
        refused.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(REFUSED);
    }

    fn publish(&self, sample: &Sample) -> Result<(), &AtomicU64> {
        let counts = &self.counts;
        if sample.kind() != SampleKind::Put {
            return Err(&counts.malformed);
        }
        if sample.payload().len() > self.most {
            return Err(&counts.too_long);
        }
        if !self.rate.lock().unwrap_or_else(PoisonError::into_inner).admit(self.clock.now()) {
            return Err(&counts.too_fast);
        }
        self.channel.publish(&self.name, &sample.payload().to_bytes()).map_err(|error| match error {
            PublishError::Rejected { because: Rejected::TooLong, .. } => &counts.too_long,
            PublishError::Rejected { because: Rejected::Full, .. } => &counts.full,
            _ => &counts.idle,
        })
    }

    /// What happened so far.
    pub fn counts(&self) -> PublicationCounts {
        let IncomingCounts { accepted, malformed, too_long, too_fast, full, idle } = &self.counts;
        let [accepted, malformed, too_long, too_fast, full, idle] =
            [accepted, malformed, too_long, too_fast, full, idle].map(|count| count.load(Ordering::Relaxed));
        PublicationCounts { event: self.name.clone(), accepted, malformed, too_long, too_fast, full, idle }
    }
}

/// Admits one publication in each interval on average, and bursts (the generic cell rate algorithm, ITU-T I.371).
#[derive(Debug)]
struct RateLimit {
    interval: Span,
    /// How far the theoretical arrival may be ahead of a publication.
    tolerance: Span,
    /// When the next one would arrive at exactly the rate.
    theoretical: Instant,
}

impl RateLimit {
    /// A burst of at least 1.
    fn new(interval: Span, burst: u32) -> RateLimit {
        let tolerance = interval.as_nanos().saturating_mul(u64::from(burst.max(1) - 1));
        RateLimit { interval, tolerance: Span::from_nanos(tolerance), theoretical: Instant::ZERO }
    }

    fn admit(&mut self, now: Instant) -> bool {
        let theoretical = self.theoretical.max(now);
        let admitted = theoretical.since(now) <= self.tolerance;
        if admitted {
            self.theoretical = theoretical + self.interval;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_burst_is_admitted_and_then_one_in_each_interval() {
        let mut rate = RateLimit::new(Span::from_millis(10), 3);
        let admitted = |rate: &mut RateLimit, now: u64| (0..5).filter(|_| rate.admit(ms(now))).count();
        assert_eq!([100, 105, 110, 120, 135, 1_000].map(|now| admitted(&mut rate, now)), [3, 0, 1, 1, 1, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In each window at most a burst and one for each interval; a program at the rate is never refused.
        #[test]
        fn no_window_has_more_than_the_burst_and_its_intervals(
            burst in 1u32..5,
            gaps in prop::collection::vec(0u64..30, 1..100),
        ) {
            let (mut rate, mut now, mut admitted) = (RateLimit::new(Span::from_millis(10), burst), 0, Vec::new());
            for gap in gaps {
                now += gap;
                let refused = !rate.admit(ms(now));
                prop_assert!(!(refused && admitted.last().is_none_or(|last| now - last >= 10)));
                admitted.extend((!refused).then_some(now));
            }
            for (at, first) in admitted.iter().enumerate() {
                for (more, last) in admitted[at..].iter().enumerate() {
                    prop_assert!((more as u64) < u64::from(burst) + (last - first) / 10);
                }
            }
        }
    }
}
