//! What queueing costs (figures 10 and 11): the time to put a request into its lane's queue, and
//! to take one out. Runs on the kernel measure it; where there are none, the dispatcher's own code
//! is measured in a simulation, with warm caches and no lock to take.

use std::time::Instant as WallClock;

use hyoshi_model::{Instant, Span};
use hyoshi_trace::stats::{Distribution, Queueing};
use hyoshi_trace::{Decision, Event, Input, Probe};
use serde::Serialize;

/// What queueing cost in one trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowQueueing {
    /// The strategy.
    pub strategy: String,
    /// Whether what cannot finish in time was cancelled.
    pub cancel: bool,
    /// Region by region.
    pub regions: Vec<QueueingCost>,
}

/// Times of one kind: a median, which a busy machine does not move, and the paper's mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Typical {
    /// How many.
    pub count: u64,
    /// Half were shorter.
    pub median_ns: u64,
    /// The mean.
    pub mean_ns: u64,
}

/// What queueing cost in one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueingCost {
    /// To put a request into its lane's queue.
    pub enqueue: Typical,
    /// To take one out, the decision included.
    pub dequeue: Typical,
}

impl QueueingCost {
    /// What was measured.
    pub fn of(queueing: &Queueing) -> QueueingCost {
        let typical = |of: &Distribution<Span>| Typical {
            count: of.extent().count(),
            median_ns: of.quantile(0.5).unwrap_or_default().as_nanos(),
            mean_ns: of.extent().mean().unwrap_or_default().as_nanos(),
        };
        QueueingCost { enqueue: typical(&queueing.enqueue), dequeue: typical(&queueing.dequeue) }
    }

    /// Both together, as the paper adds them up; of medians.
    pub fn median_ns(&self) -> u64 {
        self.enqueue.median_ns + self.dequeue.median_ns
    }
}

/// Looks at the wall clock while a simulation is dispatched.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    region: usize,
    /// Since when, and how many requests it has put into queues.
    tick: Option<(WallClock, u32)>,
    decide: Option<WallClock>,
    regions: Vec<Queueing>,
}

impl Stopwatch {
    /// For so many regions.
    pub fn new(regions: usize) -> Stopwatch {
        Stopwatch { region: 0, tick: None, decide: None, regions: vec![Queueing::default(); regions] }
    }

    /// Region by region.
    pub fn costs(&self) -> Vec<QueueingCost> {
        self.regions.iter().map(QueueingCost::of).collect()
    }
}

fn since(began: WallClock) -> Span {
    Span::from_nanos(began.elapsed().as_nanos() as u64)
}

impl Probe for Stopwatch {
    #[inline]
    fn event(&mut self, _: Instant, event: Event) {
        if let (Event::Input(_), Some((began, jobs))) = (&event, self.tick) {
            self.tick = None;
            if let Some(queueing) = self.regions.get_mut(self.region) {
                queueing.enqueued(jobs, since(began));
            }
        }
        match event {
            Event::Input(Input::Tick) => self.tick = Some((WallClock::now(), 0)),
            Event::Input(Input::LaneRuns { .. }) => self.decide = Some(WallClock::now()),
            Event::Input(_) => self.decide = None,
            Event::Decision(Decision::Ready { .. }) => {
                if let Some((_, jobs)) = &mut self.tick {
                    *jobs += 1;
                }
            }
            Event::Decision(Decision::Run { resumed: false, .. }) => {
                if let (Some(began), Some(queueing)) = (self.decide.take(), self.regions.get_mut(self.region)) {
                    queueing.dequeued(since(began));
                }
            }
            Event::Decision(Decision::Epoch { index }) => self.region = usize::from(index),
            _ => {}
        }
    }
}
