//! Everything about a run that takes all its events: causes of lateness, and windows to be drawn.
//!
//! It costs several times what [`Stats`](crate::Stats) does, so only reports that show it ask for it.

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System};

use crate::blame::{Account, Blame, Culprits, Delays, Interest, Places};
use crate::event::{Decision, Event, Outcome};
use crate::stats::miss::{KEPT, lateness};
use crate::timeline::{Timeline, Window};

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
}

impl<'a> Insight<'a> {
    /// Before the start. `places` are of the system's processors in their order, `exact` is said of a
    /// simulation. With `windows` something is kept to be drawn; `apart` is how far behind each other
    /// the events of processors may come.
    pub fn new(system: &'a System, places: Vec<Places>, exact: bool, windows: bool, apart: Span) -> Self {
        let law = |places: &Places| Blame::new(system, places.clone(), exact, Interest::NotMade).at_most(OPEN);
        Insight {
            laws: places.iter().map(law).collect(),
            timeline: windows.then(|| Timeline::new(system, places, apart)),
            seen: Seen::new(system),
        }
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
        if let (Some(account), Event::Decision(Decision::End(_))) = (account, event) {
            self.seen.record(account);
        }
    }

    /// The run is over.
    pub fn finish(mut self, now: Instant) -> Seen {
        self.seen.windows = self.timeline.map_or_else(Vec::new, |timeline| timeline.finish(now));
        self.seen
    }
}

impl Seen {
    /// Nothing yet.
    pub fn new(system: &System) -> Self {
        Seen {
            delays: [Culprits::new(system), Culprits::new(system)],
            worst: vec![Default::default(); system.operations.len()],
            windows: Vec::new(),
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
    pub fn account(&self, job: hyoshi_model::JobId) -> Option<&Account> {
        let worst = self.worst.get(job.operation.index())?;
        worst.iter().flatten().find(|account| account.end.job == job)
    }
}
