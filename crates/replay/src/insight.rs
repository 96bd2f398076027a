//! Everything about a run that takes all its events: causes of lateness, and windows to be drawn.
//!
//! It costs several times what [`Stats`](hyoshi_trace::Stats) does, so only reports that show it ask for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, Span, System};
use hyoshi_sched::{Plan, ProcessorPlan};

use crate::blame::{Account, Blame, Culprits, Delays, Interest};
use crate::timeline::{Timeline, Window};
use hyoshi_trace::stats::OverTime;
use hyoshi_trace::stats::miss::{KEPT, lateness};
use hyoshi_trace::{Decision, Event, Outcome};

/// Accounts that are open at once on each processor: what an event costs stays bounded under overload.
const OPEN: usize = 64;

/// Fed with the events of all processors, each in their order.
#[derive(Debug)]
pub struct Insight<'a> {
    laws: Vec<Blame<'a>>,
    timeline: Option<Timeline<'a>>,
    seen: Seen,
}

/// What it found.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What the jobs that did not make their deadlines lost their time to: other operations' jobs
    /// and critical ones apart.
    pub delays: [Culprits; 2],
    /// Accounts of the latest jobs of each operation and class, latest first.
    worst: Vec<[Vec<Account>; 2]>,
    /// Windows, in the order in which they are to be shown.
    pub windows: Vec<Window>,
    /// Job ends over the whole run, by operation; empty without windows.
    pub history: Vec<OverTime>,
}

/// Stretches of the history of one operation, and of all operations together.
const HISTORY: (usize, usize) = (512, 500_000);

impl<'a> Insight<'a> {
    /// Before the start; `exact` is said of a simulation. With `windows` something is kept to be drawn; `apart` is how far behind each other
    /// the events of processors may come.
    pub fn new(system: &'a System, plan: &'a Plan, exact: bool, windows: bool, apart: Span) -> Self {
        let law = |plan: &ProcessorPlan| Blame::new(system, plan, exact, Interest::NotMade).at_most(OPEN);
        Insight {
            laws: plan.processors.iter().map(law).collect(),
            timeline: windows.then(|| Timeline::new(system, plan, apart)),
            seen: Seen { history: if windows { history(system) } else { Vec::new() }, ..Seen::new(system) },
        }
    }

    /// Before the first event: what [`Replay::release_late`](crate::Replay::release_late) takes.
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.laws.iter_mut().for_each(|law| law.release_late(late));
    }

    /// The next event of a processor.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) {
        let Some(law) = self.laws.get_mut(processor.index()) else { return };
        let account = match &mut self.timeline {
            Some(timeline) => law.event_watched(now, event, |mark| timeline.mark(processor, mark)),
            None => law.event(now, event),
        };
        if let Some(timeline) = &mut self.timeline {
            let chief = account.as_ref().and_then(Account::chief);
            timeline.event(processor, now, event, chief);
        }
        if let Event::Decision(Decision::End(end)) = event
            && let Some(history) = self.seen.history.get_mut(end.job.operation.index())
        {
            history.record(end);
        }
        if let (Some(account), Event::Decision(Decision::End(_))) = (account, event) {
            self.seen.record(account);
        }
    }

    /// The run is over: no window goes on.
    pub fn close(&mut self, now: Instant) {
        if let Some(timeline) = self.timeline.take() {
            self.seen.windows = timeline.finish(now);
        }
    }

    /// What it has found; windows only once it is [closed](Self::close).
    pub fn seen(&self) -> &Seen {
        &self.seen
    }
}

/// An empty history of each operation.
pub fn history(system: &System) -> Vec<OverTime> {
    let most = (HISTORY.1 / system.operations.len().max(1)).clamp(32, HISTORY.0);
    vec![OverTime::new(system, most); system.operations.len()]
}

impl Seen {
    /// Nothing yet.
    pub fn new(system: &System) -> Self {
        Seen {
            delays: [Culprits::new(system), Culprits::new(system)],
            worst: vec![Default::default(); system.operations.len()],
            windows: Vec::new(),
            history: Vec::new(),
        }
    }

    /// One more account of a job that did not make its deadline.
    pub fn record(&mut self, account: Account) {
        let critical = usize::from(account.end.critical);
        self.delays[critical].record(&account);
        if account.end.outcome != Outcome::Missed {
            return;
        }
        let Some(worst) = self.worst.get_mut(account.end.job.operation.index()) else { return };
        let worst = &mut worst[critical];
        // Of equally late jobs the earlier ones, as in the statistics.
        let late = lateness(&account.end);
        let place = worst.iter().position(|kept| late > lateness(&kept.end)).unwrap_or(worst.len());
        if place < KEPT {
            worst.insert(place, account);
            worst.truncate(KEPT);
        }
    }

    /// What the late jobs of one operation and class lost their time to.
    pub fn delays(&self, operation: OperationId, critical: bool) -> Option<&Delays> {
        self.delays[usize::from(critical)].of(operation)
    }

    /// The account of one of the latest jobs.
    pub fn account(&self, job: JobId) -> Option<&Account> {
        let worst = self.worst.get(job.operation.index())?;
        worst.iter().flatten().find(|account| account.end.job == job)
    }
}
