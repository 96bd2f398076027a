//! The subscriber's end of a subscription.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, Span};

use crate::channel::ChannelState;
use crate::queue::{QueueCounts, SubscriberQueue, Subscription};

/// An event: a job of a supplier has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// The name in the file.
    pub name: Arc<str>,
    /// The operation that supplied it.
    pub supplier: Arc<str>,
    /// The release number of the supplier's job.
    pub number: u64,
    /// The nominal release of the first job of the supplier's chain.
    pub origin: Instant,
    /// The nominal release of the supplier's job.
    pub release: Instant,
    /// The absolute deadline of that job.
    pub deadline: Instant,
    /// When that job completed.
    pub pushed: Instant,
    /// The importance of that job.
    pub importance: u32,
    /// Whether that job was critical.
    pub critical: bool,
    /// The payload; possibly empty.
    pub payload: Arc<[u8]>,
}

impl ReceivedEvent {
    /// The age of its data when it was pushed.
    pub fn age(&self) -> Span {
        self.pushed.since(self.origin)
    }

    /// From the deadline to the push, in ns; negative if the push was early.
    pub fn lateness(&self) -> i64 {
        let lateness = i128::from(self.pushed.as_nanos()) - i128::from(self.deadline.as_nanos());
        i64::try_from(lateness).unwrap_or(if lateness < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The channel's end of a subscription.
#[derive(Debug)]
pub(crate) struct SubscriberState {
    /// The events that it selects, by their positions in the file.
    pub selected: Box<[bool]>,
    queue: Mutex<SubscriberQueue<ReceivedEvent>>,
    arrived: Condvar,
    /// Set while the queue is locked.
    ended: AtomicBool,
}

impl SubscriberState {
    pub fn new(selected: Box<[bool]>, properties: Subscription, now: Instant) -> Self {
        let queue = Mutex::new(SubscriberQueue::new(properties, now));
        SubscriberState { selected, queue, arrived: Condvar::new(), ended: AtomicBool::new(false) }
    }

    pub fn push(&self, event: &ReceivedEvent) {
        if self.queue().push(event.pushed, event.clone()) {
            self.arrived.notify_one();
        }
    }

    pub fn is_suspended(&self) -> bool {
        self.queue().is_suspended()
    }

    pub fn is_idle(&self, now: Instant) -> bool {
        self.queue().is_idle(now)
    }

    /// The subscription has ended.
    pub fn end(&self) {
        let _queue = self.queue();
        self.ended.store(true, Ordering::Release);
        self.arrived.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the waits of the subscriber.
    pub fn wake(&self) {
        let _queue = self.queue();
        self.arrived.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, SubscriberQueue<ReceivedEvent>> {
        // No code panics while it holds this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription. Drop it to disconnect.
#[derive(Debug)]
pub struct Subscriber {
    pub(crate) state: Arc<SubscriberState>,
    pub(crate) channel: Arc<ChannelState>,
}

impl Subscriber {
    /// The next event; waits for it at most `most`. `None` after that time, or if no event waits and the subscription
    /// or the channel has ended.
    pub fn receive(&self, most: Span) -> Option<ReceivedEvent> {
        let until = WallClock::now() + Duration::from_nanos(most.as_nanos());
        let mut queue = self.state.queue();
        loop {
            if let Some(event) = queue.pop(self.channel.now()) {
                return Some(event);
            }
            let left = until.saturating_duration_since(WallClock::now());
            if left.is_zero() || self.has_ended() {
                return None;
            }
            let waited = self.state.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Suspends the subscription until [`resume`](Self::resume): new events are counted and dropped.
    pub fn suspend(&self) {
        self.state.queue().suspend(true);
        self.channel.select();
    }

    /// Resumes the subscription.
    pub fn resume(&self) {
        self.state.queue().suspend(false);
        self.channel.select();
    }

    /// Ends the subscription, also while another thread waits in [`receive`](Self::receive).
    pub fn disconnect(&self) {
        self.channel.disconnect(&self.state);
    }

    /// Waits until the subscription or the channel ends, at most `most`. True if it has ended.
    pub fn ends_within(&self, most: Span) -> bool {
        let (queue, most) = (self.state.queue(), Duration::from_nanos(most.as_nanos()));
        let waited = self.state.arrived.wait_timeout_while(queue, most, |_| !self.has_ended());
        drop(waited);
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.state.has_ended() || self.channel.is_over()
    }

    /// False after it was disconnected, or its subscriber was idle.
    pub fn is_connected(&self) -> bool {
        !self.state.has_ended()
    }

    /// The counts of its events.
    pub fn counts(&self) -> QueueCounts {
        self.state.queue().counts
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.channel.disconnect(&self.state);
    }
}
