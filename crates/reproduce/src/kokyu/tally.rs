//! What one trial counts, region by region: the paper's measured variables (section III-B3).

use hyoshi_model::{Instant, Span};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Probe};
use serde::Serialize;

/// What became of the deadlines of one class in one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Deadlines {
    /// Finished in time.
    pub made: u64,
    /// Not finished in time, and not cancelled.
    pub missed: u64,
    /// Cancelled at the first dispatch.
    pub cancelled: u64,
}

impl Deadlines {
    /// Every operation dispatched or cancelled.
    pub fn total(&self) -> u64 {
        self.made + self.missed + self.cancelled
    }

    fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Made => self.made += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Missed | Outcome::Stopped | Outcome::DroppedBusy | Outcome::DroppedFull => self.missed += 1,
        }
    }
}

/// A time seen again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A sum on its way to a [`Latency`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    count: u64,
    nanos: u128,
    most: u64,
}

impl Sum {
    /// One more.
    pub fn record(&mut self, span: Span) {
        self.count += 1;
        self.nanos += u128::from(span.as_nanos());
        self.most = self.most.max(span.as_nanos());
    }

    /// Count, mean and longest.
    pub fn latency(&self) -> Latency {
        let mean_ns = (self.nanos / u128::from(self.count.max(1))) as u64;
        Latency { count: self.count, mean_ns, max_ns: self.most }
    }
}

/// What one region of one trial counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Dispatch requests that entered a queue.
    pub enqueued: u64,
    /// Deadlines of critical operations (the paper's HRT).
    pub critical: Deadlines,
    /// Deadlines of all others (SRT).
    pub non_critical: Deadlines,
    /// From the upcall to its return, of critical operations: execution and whatever interrupted it.
    pub critical_execution: Latency,
    /// The same of all others.
    pub non_critical_execution: Latency,
    /// CPU time that jobs used.
    pub used_ns: u64,
}

impl Counts {
    /// Deadlines of both classes.
    pub fn all(&self) -> Deadlines {
        let (critical, other) = (self.critical, self.non_critical);
        Deadlines {
            made: critical.made + other.made,
            missed: critical.missed + other.missed,
            cancelled: critical.cancelled + other.cancelled,
        }
    }
}

/// Counts job ends by the region of their release.
#[derive(Clone, Debug)]
pub struct Tally {
    counts: Vec<Counts>,
    executions: Vec<[Sum; 2]>,
    /// The earliest critical job that was not in time.
    first_miss: Option<JobEnd>,
}

impl Tally {
    /// For so many regions.
    pub fn new(regions: usize) -> Tally {
        Tally {
            counts: vec![Counts::default(); regions],
            executions: vec![[Sum::default(); 2]; regions],
            first_miss: None,
        }
    }

    /// A job is over.
    pub fn record(&mut self, end: &JobEnd) {
        let region = usize::from(end.epoch);
        let (Some(counts), Some(executions)) = (self.counts.get_mut(region), self.executions.get_mut(region)) else {
            return;
        };
        counts.enqueued += u64::from(end.ready != Instant::NEVER);
        counts.used_ns += end.consumed.as_nanos();
        let class = if end.critical { &mut counts.critical } else { &mut counts.non_critical };
        class.record(end.outcome);
        // The end of the trial is not the return of an upcall.
        if end.outcome.finished() && !end.consumed.is_zero() {
            executions[usize::from(end.critical)].record(end.end.since(end.start));
        }
        if end.critical && end.outcome != Outcome::Made && self.first_miss.is_none_or(|first| end.end < first.end) {
            self.first_miss = Some(*end);
        }
    }

    /// The earliest critical job that was not in time.
    pub fn first_miss(&self) -> Option<&JobEnd> {
        self.first_miss.as_ref()
    }

    /// Region by region.
    pub fn counts(&self) -> Vec<Counts> {
        let of = |(counts, [other, critical]): (&Counts, &[Sum; 2])| Counts {
            critical_execution: critical.latency(),
            non_critical_execution: other.latency(),
            ..*counts
        };
        self.counts.iter().zip(&self.executions).map(of).collect()
    }
}

impl Probe for Tally {
    #[inline]
    fn event(&mut self, _: Instant, event: Event) {
        if let Event::Decision(Decision::End(end)) = event {
            self.record(&end);
        }
    }
}
