//! The costs of queueing (figures 10 and 11): the time to put a request into its lane's queue, and to remove one. Runs
//! on the kernel measure it. Without them, the dispatcher's own code is measured in a simulation, with warm caches and
//! without a lock.

use std::time::Instant as WallClock;

use hyoshi_model::{Instant, Span};
use hyoshi_trace::stats::{Distribution, Queueing};
use hyoshi_trace::{DispatchDecision, Input, Probe, TraceEvent};
use serde::Serialize;

/// The costs of queueing in one trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowQueueing {
    /// The strategy.
    pub strategy: String,
    /// Whether jobs that could not finish in time were cancelled.
    pub cancel: bool,
    /// By region.
    pub regions: Vec<QueueingCost>,
}

/// Times of one kind: the median, which other load does not affect, and the mean as in the paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Typical {
    /// Their number.
    pub count: u64,
    /// The median.
    pub median_ns: u64,
    /// The mean.
    pub mean_ns: u64,
}

/// The costs of queueing in one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueingCost {
    /// To put a request into its lane's queue.
    pub enqueue: Typical,
    /// To remove one, including the decision.
    pub dequeue: Typical,
}

impl QueueingCost {
    /// From measurements.
    pub fn of(queueing: &Queueing) -> QueueingCost {
        let typical = |of: &Distribution<Span>| Typical {
            count: of.extent().count(),
            median_ns: of.quantile(0.5).unwrap_or_default().as_nanos(),
            mean_ns: of.extent().mean().unwrap_or_default().as_nanos(),
        };
        QueueingCost { enqueue: typical(&queueing.enqueue), dequeue: typical(&queueing.dequeue) }
    }

    /// The sum of the medians, as the paper adds them.
    pub fn median_ns(&self) -> u64 {
        self.enqueue.median_ns + self.dequeue.median_ns
    }
}

/// Measures the wall time of the dispatcher in a simulation.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    region: usize,
    /// The start of the tick, and the number of requests that it enqueued.
    tick: Option<(WallClock, u32)>,
    decide: Option<WallClock>,
    regions: Vec<Queueing>,
}

impl Stopwatch {
    /// For `regions` regions.
    pub fn new(regions: usize) -> Stopwatch {
        Stopwatch { region: 0, tick: None, decide: None, regions: vec![Queueing::default(); regions] }
    }

    /// By region.
    pub fn costs(&self) -> Vec<QueueingCost> {
        self.regions.iter().map(QueueingCost::of).collect()
    }
}

fn since(began: WallClock) -> Span {
    Span::from_nanos(began.elapsed().as_nanos() as u64)
}

impl Probe for Stopwatch {
    #[inline]
    fn event(&mut self, _: Instant, event: TraceEvent) {
        if let (TraceEvent::Input(_), Some((began, jobs))) = (&event, self.tick) {
            self.tick = None;
            if let Some(queueing) = self.regions.get_mut(self.region) {
                queueing.enqueued(jobs, since(began));
            }
        }
        match event {
            TraceEvent::Input(Input::Tick) => self.tick = Some((WallClock::now(), 0)),
            TraceEvent::Input(Input::LaneRuns { .. }) => self.decide = Some(WallClock::now()),
            TraceEvent::Input(_) => self.decide = None,
            TraceEvent::Decision(DispatchDecision::Ready { .. }) => {
                if let Some((_, jobs)) = &mut self.tick {
                    *jobs += 1;
                }
            }
            TraceEvent::Decision(DispatchDecision::Run { resumed: false, .. }) => {
                if let (Some(began), Some(queueing)) = (self.decide.take(), self.regions.get_mut(self.region)) {
                    queueing.dequeued(since(began));
                }
            }
            TraceEvent::Decision(DispatchDecision::Epoch { index }) => self.region = usize::from(index),
            _ => {}
        }
    }
}
