//! The regions of contracts that were active during a job's life.

use hyoshi_model::{HostId, Instant, ProcessorId, System};
use hyoshi_replay::blame::ResponseBreakdown;
use hyoshi_report::contracts::{RegionChangeSummary, contracts};
use hyoshi_trace::{ContractHistories, CpuEvent, TraceEvent};

/// A region, by its contract and its begin on the clock of the job's processor.
pub(super) type ActiveRegion = (String, RegionChangeSummary);

/// Collects the changes of regions by one clock.
pub(super) struct ActiveRegions<'a> {
    system: &'a System,
    histories: ContractHistories,
    clock: HostId,
    /// The lead of that clock over the one of each processor.
    ahead: Vec<i64>,
    /// The end of the job by that clock; later changes do not matter.
    end: Instant,
}

impl<'a> ActiveRegions<'a> {
    pub fn new(system: &'a System, clock: HostId) -> Self {
        let ahead = vec![0; system.processors.len()];
        ActiveRegions { system, histories: ContractHistories::new(system), clock, ahead, end: Instant::NEVER }
    }

    /// The job has ended on its processor.
    pub fn ended(&mut self, processor: ProcessorId, at: Instant) {
        self.end = at.by_clock_ahead(self.ahead.get(processor.index()).copied().unwrap_or(0));
    }

    /// The next event of a processor.
    pub fn event(&mut self, processor: ProcessorId, at: Instant, event: &TraceEvent) {
        let Some(ahead) = self.ahead.get_mut(processor.index()) else { return };
        if let TraceEvent::Cpu(CpuEvent::Clock { host, offset, .. }) = event
            && *host == self.clock
        {
            *ahead = *offset;
        }
        let at = at.by_clock_ahead(*ahead);
        if at <= self.end {
            self.histories.event(at, event);
        }
    }

    /// The regions that were active between the start and the end of the job's response, in the order of their begins.
    pub fn during(&self, account: &ResponseBreakdown) -> Vec<ActiveRegion> {
        let from = account.from.by_clock_ahead(account.ahead);
        let histories = self.histories.until(self.end);
        let mut all: Vec<ActiveRegion> = Vec::new();
        for (summary, history) in contracts(self.system, &histories).into_iter().zip(&histories) {
            let mut active: Vec<(u16, RegionChangeSummary)> = Vec::new();
            for (step, mut change) in history.steps.iter().zip(summary.changes) {
                if step.at > self.end {
                    break;
                }
                if step.at <= from {
                    active.retain(|(region, _)| Some(*region) != step.from);
                }
                if let Some(to) = step.to {
                    change.at_ns = step.at.by_clock_ahead(account.ahead.saturating_neg()).as_nanos();
                    active.push((to, change));
                }
            }
            all.extend(active.into_iter().map(|(_, change)| (summary.contract.clone(), change)));
        }
        all.sort_by_key(|(_, change)| change.at_ns);
        all
    }
}
