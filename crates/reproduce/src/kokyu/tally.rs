//! What one trial counts, region by region: the paper's measured variables (section III-B3).

use hyoshi_trace::Stats;
use hyoshi_trace::stats::Service;
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

    fn of(counts: &hyoshi_trace::Counts) -> Deadlines {
        let (made, cancelled) = (counts.made(), counts.cancelled());
        Deadlines { made, missed: counts.not_made() - cancelled, cancelled }
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
    /// What the statistics of a trial say of a region.
    pub fn of(stats: &Stats, region: usize) -> Counts {
        let [other, critical] = [false, true].map(|class| stats.counts(Some(region), |row| row.critical() == class));
        let latency = |class| {
            let Service { count, total, longest } = stats.service(region, |row| row.critical() == class);
            Latency { count, mean_ns: total.as_nanos() / count.max(1), max_ns: longest.as_nanos() }
        };
        Counts {
            enqueued: critical.enqueued + other.enqueued,
            critical: Deadlines::of(&critical),
            non_critical: Deadlines::of(&other),
            critical_execution: latency(true),
            non_critical_execution: latency(false),
            used_ns: (critical.consumed + other.consumed).as_nanos(),
        }
    }

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
