//! Events that programs publish.

use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_events::{EventChannel, PublishError};
use hyoshi_runtime::Rejected;
use zenoh::sample::{Sample, SampleKind};

/// An event that programs publish.
pub(super) struct PublishedEvent {
    name: String,
    channel: EventChannel,
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
    /// An event of the file, by its position.
    pub fn new(channel: &EventChannel, event: u32) -> PublishedEvent {
        let name = channel.system().events[event as usize].name.clone();
        PublishedEvent { name, channel: channel.clone(), counts: IncomingCounts::default() }
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes a sample, or counts why it is refused. On one of Zenoh's threads, which other sessions share: it must not
    /// wait.
    pub fn receive(&self, sample: &Sample) {
        let count = self.publish(sample).err().unwrap_or(&self.counts.accepted);
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn publish(&self, sample: &Sample) -> Result<(), &AtomicU64> {
        let counts = &self.counts;
        if sample.kind() != SampleKind::Put {
            return Err(&counts.malformed);
        }
        self.channel.publish(&self.name, &sample.payload().to_bytes()).map_err(|error| match error {
            PublishError::Rejected { because: Rejected::TooLong, .. } => &counts.too_long,
            PublishError::Rejected { because: Rejected::TooSoon, .. } => &counts.too_fast,
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
