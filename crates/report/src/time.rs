//! Where each processor's time went.

use hyoshi_trace::split::{Basis, TimeSplit};
use serde::Serialize;

use crate::input::ReportInput;

/// Others that a report names of each processor.
const MOST_OTHERS: usize = 10;

/// Where the time of a processor went; the parts sum to the duration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeSummary {
    /// What it is made from: `simulated`, `switches` or `clocks`.
    pub basis: &'static str,
    /// CPU time of jobs.
    pub execution_ns: u64,
    /// CPU time of scheduling them.
    pub overhead_ns: u64,
    /// Its threads had the CPU, but their clocks stood.
    pub held_ns: u64,
    /// Others had the CPU.
    pub others_ns: u64,
    /// Nobody had it.
    pub idle_ns: u64,
    /// Nobody knows who had it.
    pub unknown_ns: u64,
    /// What a hypervisor took; it is part of the others.
    pub stolen_ns: u64,
    /// How often a lane lost the CPU while it could have gone on.
    pub preemptions: u64,
    /// How often switches were lost.
    pub gaps: u64,
    /// Who of the others had the CPU for longest.
    pub threads: Vec<ThreadSummary>,
}

/// A thread of others, or several of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadSummary {
    /// What the kernel calls it.
    pub name: String,
    /// How long it had the CPU.
    pub had_ns: u64,
    /// How often.
    pub switches: u64,
}

impl TimeSummary {
    pub(crate) fn of(account: &ReportInput<'_>, processor: usize) -> Option<TimeSummary> {
        let time = account.figures.time.get(processor)?;
        let thread = |(number, span, switches): &(u32, hyoshi_model::Span, u64)| ThreadSummary {
            name: account.threads.get(*number as usize).cloned().unwrap_or_else(|| "(unnamed)".into()),
            had_ns: span.as_nanos(),
            switches: *switches,
        };
        let TimeSplit { execution, overhead, held, others, idle, unknown, stolen, preemptions, gaps, .. } = *time;
        Some(TimeSummary {
            basis: match time.basis {
                Basis::Simulated => "simulated",
                Basis::Switches => "switches",
                Basis::Clocks => "clocks",
            },
            execution_ns: execution.as_nanos(),
            overhead_ns: overhead.as_nanos(),
            held_ns: held.as_nanos(),
            others_ns: others.as_nanos(),
            idle_ns: idle.as_nanos(),
            unknown_ns: unknown.as_nanos(),
            stolen_ns: stolen.as_nanos(),
            preemptions,
            gaps,
            threads: time.by_other.iter().take(MOST_OTHERS).map(thread).collect(),
        })
    }

    /// Whether it has more than busy and idle time.
    pub(crate) fn has_details(&self) -> bool {
        self.basis != "simulated" || self.overhead_ns > 0
    }
}
