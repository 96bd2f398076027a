//! The counts of a trial by region: the paper's measured variables (section III-B3).

use hyoshi_trace::Stats;
use hyoshi_trace::stats::Service;
use serde::Serialize;

/// The deadlines of one class in one region.
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

    /// Of some jobs.
    pub fn of(counts: &hyoshi_trace::Counts) -> Deadlines {
        let (made, cancelled) = (counts.made(), counts.cancelled());
        Deadlines { made, missed: counts.not_made() - cancelled, cancelled }
    }
}

/// A repeatedly measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The number of measurements.
    pub count: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The counts of one region of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegionCounts {
    /// Dispatch requests that entered a queue.
    pub enqueued: u64,
    /// Deadlines of critical operations (the paper's HRT).
    pub critical: Deadlines,
    /// Deadlines of the other operations (SRT).
    pub non_critical: Deadlines,
    /// Time from the upcall to its return, for critical operations, including interruptions.
    pub critical_execution: Latency,
    /// The same for the other operations.
    pub non_critical_execution: Latency,
    /// CPU time of the jobs.
    pub used_ns: u64,
}

impl RegionCounts {
    /// The counts of a region, from a trial's statistics.
    pub fn of(stats: &Stats, region: usize) -> RegionCounts {
        let [other, critical] = [false, true].map(|class| stats.counts(Some(region), |row| row.critical() == class));
        let latency = |class| {
            let Service { count, total, longest } = stats.service(region, |row| row.critical() == class);
            Latency { count, mean_ns: total.as_nanos() / count.max(1), max_ns: longest.as_nanos() }
        };
        RegionCounts {
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
