//! The analyses of a run that need all its events: causes of lateness, and windows of the timeline.
//!
//! They cost several times as much as [`Stats`](hyoshi_trace::Stats), so only reports that show them request them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, Span, System};
use hyoshi_sched::{Plan, ProcessorPlan};

use crate::blame::{Blame, Crossing, Culprits, Delays, Interest, ResponseBreakdown};
use crate::timeline::{Timeline, TimelineWindow};
use hyoshi_trace::stats::OverTime;
use hyoshi_trace::stats::miss::{KEPT, lateness};
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};

/// The most open breakdowns of each processor. It bounds the cost of an event under overload.
const OPEN: usize = 64;

/// Analyses the events of all processors. Those of each processor must be in order.
#[derive(Debug)]
pub struct CauseAnalysis<'a> {
    blames: Vec<Blame<'a>>,
    timeline: Option<Timeline<'a>>,
    report: CauseReport,
}

/// The results of a [`CauseAnalysis`].
#[derive(Clone, Debug, Default)]
pub struct CauseReport {
    /// Causes of delay of jobs that did not meet their deadlines: for non-critical and for critical jobs.
    pub delays: [Culprits; 2],
    /// Breakdowns of the latest jobs of each operation and class, latest first.
    worst: Vec<[Vec<ResponseBreakdown>; 2]>,
    /// The windows of the timeline, in the order of display.
    pub windows: Vec<TimelineWindow>,
    /// Job ends over the whole run, by operation; empty without windows.
    pub history: Vec<OverTime>,
}

/// The most intervals in the history of one operation, and of all operations together.
const HISTORY: (usize, usize) = (512, 500_000);

impl<'a> CauseAnalysis<'a> {
    /// Starts before the first event; `exact` for a simulation. With `windows` it keeps windows of the timeline.
    /// `lag` is the largest lag between the events of different processors.
    pub fn new(system: &'a System, plan: &'a Plan, exact: bool, windows: bool, lag: Span) -> Self {
        let blame = |plan: &ProcessorPlan| Blame::new(system, plan, exact, Interest::NotMade).at_most(OPEN);
        CauseAnalysis {
            blames: plan.processors.iter().map(blame).collect(),
            timeline: windows.then(|| Timeline::new(system, plan, lag)),
            report: CauseReport {
                history: if windows { history(system) } else { Vec::new() },
                ..CauseReport::new(system)
            },
        }
    }

    /// Sets late releases before the first event: see [`Replay::release_late`](crate::Replay::release_late).
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.blames.iter_mut().for_each(|blame| blame.release_late(late));
    }

    /// The way of the next signal of a processor from another host, as recorded; `None` if its sending is unknown.
    pub fn crosses(&mut self, processor: ProcessorId, crossing: Option<Crossing>) {
        if let Some(blame) = self.blames.get_mut(processor.index()) {
            blame.crosses(crossing);
        }
    }

    /// The next event of a processor.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        let Some(blame) = self.blames.get_mut(processor.index()) else { return };
        let breakdown = match &mut self.timeline {
            Some(timeline) => blame.event_watched(now, event, |change| timeline.change(processor, change)),
            None => blame.event(now, event),
        };
        if let Some(timeline) = &mut self.timeline {
            let chief = breakdown.as_ref().and_then(ResponseBreakdown::chief);
            timeline.event(processor, now, event, chief);
        }
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event
            && let Some(history) = self.report.history.get_mut(end.job.operation.index())
        {
            history.record(end);
        }
        if let (Some(breakdown), TraceEvent::Decision(DispatchDecision::End(_))) = (breakdown, event) {
            self.report.record(breakdown);
        }
    }

    /// Ends the run and its open windows.
    pub fn close(&mut self, now: Instant) {
        if let Some(timeline) = self.timeline.take() {
            self.report.windows = timeline.finish(now);
        }
    }

    /// The results. Windows are included after [`close`](Self::close).
    pub fn report(&self) -> &CauseReport {
        &self.report
    }
}

/// An empty history of each operation.
pub fn history(system: &System) -> Vec<OverTime> {
    let most = (HISTORY.1 / system.operations.len().max(1)).clamp(32, HISTORY.0);
    vec![OverTime::new(system, most); system.operations.len()]
}

impl CauseReport {
    /// Without any results.
    pub fn new(system: &System) -> Self {
        CauseReport {
            delays: [Culprits::new(system), Culprits::new(system)],
            worst: vec![Default::default(); system.operations.len()],
            windows: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Adds the breakdown of a job that did not meet its deadline.
    pub fn record(&mut self, breakdown: ResponseBreakdown) {
        let critical = usize::from(breakdown.end.critical);
        self.delays[critical].record(&breakdown);
        if breakdown.end.outcome != JobOutcome::Missed {
            return;
        }
        let Some(worst) = self.worst.get_mut(breakdown.end.job.operation.index()) else { return };
        let worst = &mut worst[critical];
        // Of equally late jobs, the earlier ones, as in the statistics.
        let late = lateness(&breakdown.end);
        let index = worst.iter().position(|kept| late > lateness(&kept.end)).unwrap_or(worst.len());
        if index < KEPT {
            worst.insert(index, breakdown);
            worst.truncate(KEPT);
        }
    }

    /// Causes of delay of one operation and class.
    pub fn delays(&self, operation: OperationId, critical: bool) -> Option<&Delays> {
        self.delays[usize::from(critical)].of(operation)
    }

    /// The breakdown of one of the latest jobs.
    pub fn breakdown(&self, job: JobId) -> Option<&ResponseBreakdown> {
        let worst = self.worst.get(job.operation.index())?;
        worst.iter().flatten().find(|breakdown| breakdown.end.job == job)
    }
}
