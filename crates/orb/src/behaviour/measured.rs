//! What a delegate measures.

use hyoshi_model::{Instant, Span};
use hyoshi_trace::stats::Distribution;

/// How a request that was passed on ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegateOutcome {
    /// With a result, or with an exception that the operation declares.
    Answered,
    /// With a system exception, or without a reply.
    Failed,
    /// The client cancelled it.
    Cancelled,
}

/// Counts of requests to one operation, and the latency of their replies.
#[derive(Clone, Debug)]
pub struct DelegateMeasurements {
    /// All requests. Each of them is passed, refused, dropped or answered from the cache.
    pub requests: u64,
    /// Requests passed on to the object, or to that of a redirection.
    pub passed: u64,
    /// Requests that got the delegate's exception.
    pub refused: u64,
    /// Oneways that were dropped.
    pub dropped: u64,
    /// Requests that were answered from the cache.
    pub cached: u64,
    /// Passed requests that ended with a system exception, or without a reply.
    pub failed: u64,
    /// Passed requests that the client cancelled.
    pub cancelled: u64,
    /// From a passed request to its reply, delays included. Not of oneways.
    pub latency: Distribution<Span>,
    /// When the first and the last request arrived.
    first: Option<Instant>,
    last: Instant,
}

impl DelegateMeasurements {
    pub(super) fn new() -> Self {
        let latency = Distribution::new(Span::from_micros(1), Span::from_secs(60), Span::ZERO, 1);
        let [requests, passed, refused, dropped, cached, failed, cancelled] = [0; 7];
        let (first, last) = (None, Instant::from_nanos(0));
        DelegateMeasurements { requests, passed, refused, dropped, cached, failed, cancelled, latency, first, last }
    }

    pub(super) fn arrived(&mut self, now: Instant) {
        self.requests += 1;
        self.first.get_or_insert(now);
        self.last = self.last.max(now);
    }

    pub(super) fn ended(&mut self, began: Instant, now: Instant, outcome: DelegateOutcome) {
        match outcome {
            DelegateOutcome::Answered => self.latency.record(now.since(began)),
            DelegateOutcome::Failed => self.failed += 1,
            DelegateOutcome::Cancelled => self.cancelled += 1,
        }
    }

    /// Requests per second, between the first and the last. `None` for fewer than two.
    pub fn rate(&self) -> Option<f64> {
        let over = self.last.since(self.first?).as_secs_f64();
        (over > 0.0).then(|| (self.requests - 1) as f64 / over)
    }
}
