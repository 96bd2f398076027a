//! One fold from events to figures. A simulation, a run and a recording that is read feed it; reports read it, at any
//! time.
//!
//! ```
//! # use hyoshi_model::*;
//! use hyoshi_replay::Observer;
//! use hyoshi_trace::{Decision, Event};
//!
//! # let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n";
//! # let system = read(text, "one.toml", None).unwrap().system;
//! let mut observer = Observer::new(&system);
//! let (processor, at) = (ProcessorId(0), Instant::from_nanos(1_000));
//! observer.event(processor, at, &Event::Decision(Decision::Switch { second: true }));
//! let figures = observer.figures(Instant::from_nanos(5_000));
//! assert_eq!(figures.strategies[0].total(), Span::from_nanos(4_000));
//! assert_eq!(figures.stats.counts(None, |_| true).released(), 0);
//! ```

use std::cell::RefCell;

use hyoshi_model::{HostId, Instant, ProcessorId, System};

use crate::insight::{Insight, Seen};
use hyoshi_trace::{Decision, Event, JobEnd, Probe, Reign, Reigns, Splits, Stats, TimeSplit};

/// Fed with the events of all processors, each in their order. A job's end allocates nothing, unless it looks for causes
/// or keeps job ends.
#[derive(Debug)]
pub struct Observer<'a> {
    stats: Stats,
    /// Ends that the statistics do not have yet.
    recent: Vec<JobEnd>,
    time: Splits,
    strategies: Reigns,
    insight: Option<Insight<'a>>,
    /// Whose clock chains count by, and by processor how far it is ahead.
    clock: Option<(HostId, Vec<i64>)>,
    /// By processor, where they are kept.
    ends: Vec<Vec<JobEnd>>,
    keeps_ends: bool,
}

/// Everything that an [`Observer`] has counted until an instant.
#[derive(Clone, Debug)]
pub struct Figures<'a> {
    /// What became of jobs and chains.
    pub stats: &'a Stats,
    /// How each processor's time was used, by processor.
    pub time: Vec<TimeSplit>,
    /// When the second strategy was in force, by processor.
    pub strategies: Vec<Reign>,
    /// Causes of lateness and windows to draw, if all events were looked at.
    pub insight: Option<&'a Seen>,
    /// Job ends by processor, in the order in which they came; empty where they are not kept.
    pub ends: &'a [Vec<JobEnd>],
}

/// Ends are counted so many at a time.
const RECENT: usize = 64;

impl<'a> Observer<'a> {
    /// Before the start.
    pub fn new(system: &System) -> Self {
        let (stats, processors) = (Stats::new(system), system.processors.len());
        let (time, strategies) = (Splits::new(processors), Reigns::new(system));
        Observer {
            stats,
            recent: Vec::with_capacity(RECENT),
            time,
            strategies,
            insight: None,
            clock: None,
            ends: vec![Vec::new(); processors],
            keeps_ends: false,
        }
    }

    /// Statistics count by this host's clock, as far as the events tell of it. Everything else, which is of single
    /// processors, counts by their own.
    pub fn by_clock_of(self, host: HostId) -> Self {
        let processors = self.ends.len();
        Observer { clock: Some((host, vec![0; processors])), ..self }
    }

    /// Looks at every event for what `insight` finds, too: several times the work.
    pub fn with_insight(self, insight: Option<Insight<'a>>) -> Self {
        Observer { insight, ..self }
    }

    /// Keeps every job's end, if that is wanted: memory grows with time.
    pub fn keeping_ends(self, keeps_ends: bool) -> Self {
        Observer { keeps_ends, ..self }
    }

    /// Whether events that are not [`counted`](Self::counts) matter.
    pub fn wants_everything(&self) -> bool {
        self.insight.is_some()
    }

    /// Whether every observer counts an event.
    #[inline]
    pub fn counts(event: &Event) -> bool {
        matches!(event, Event::Decision(Decision::End(_) | Decision::Switch { .. }) | Event::Seen(_))
    }

    /// The next event of a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) {
        match event {
            Event::Decision(Decision::End(end)) => {
                let ahead = self.clock.as_ref().and_then(|(_, ahead)| ahead.get(processor.index()));
                self.recent.push(ahead.map_or(*end, |ahead| end.by_clock_ahead(*ahead)));
                if self.recent.len() == RECENT {
                    self.catch_up();
                }
                self.time.event(processor, now, event);
                if self.keeps_ends
                    && let Some(ends) = self.ends.get_mut(processor.index())
                {
                    ends.push(*end);
                }
            }
            Event::Decision(Decision::Switch { .. }) => self.strategies.event(processor, now, event),
            Event::Seen(seen) => {
                if let (hyoshi_trace::Seen::Clock { host, offset, .. }, Some((reference, ahead))) =
                    (seen, &mut self.clock)
                    && host == reference
                    && let Some(ahead) = ahead.get_mut(processor.index())
                {
                    *ahead = *offset;
                }
                self.time.event(processor, now, event);
            }
            _ => {}
        }
        if let Some(insight) = &mut self.insight {
            insight.event(processor, now, event);
        }
    }

    #[inline(never)]
    fn catch_up(&mut self) {
        self.stats.record_all(&self.recent);
        self.recent.clear();
    }

    /// Ends the run: closes open windows.
    pub fn close(&mut self, now: Instant) {
        if let Some(insight) = &mut self.insight {
            insight.close(now);
        }
    }

    /// What became of jobs and chains so far.
    pub fn stats(&mut self) -> &Stats {
        self.catch_up();
        &self.stats
    }

    /// All figures until `now`. No event may be later.
    pub fn figures(&mut self, now: Instant) -> Figures<'_> {
        self.catch_up();
        Figures {
            stats: &self.stats,
            time: self.time.until(now),
            strategies: self.strategies.until(now),
            insight: self.insight.as_ref().map(Insight::seen),
            ends: &self.ends,
        }
    }
}

/// One processor's probe, of an observer that several share: a simulation has one thread.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'o, 'a> {
    processor: ProcessorId,
    observer: &'o RefCell<Observer<'a>>,
    everything: bool,
}

impl<'o, 'a> Feed<'o, 'a> {
    /// The probe of a processor.
    pub fn new(processor: ProcessorId, observer: &'o RefCell<Observer<'a>>) -> Self {
        Feed { processor, observer, everything: observer.borrow().wants_everything() }
    }
}

impl Probe for Feed<'_, '_> {
    #[inline]
    fn event(&mut self, now: Instant, event: Event) {
        if self.everything || Observer::counts(&event) {
            self.observer.borrow_mut().event(self.processor, now, &event);
        }
    }
}
