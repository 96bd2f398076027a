//! Computes all figures of a run, a simulation or a recording from its events. Reports can read them at any time.
//!
//! ```
//! # use hyoshi_model::*;
//! use hyoshi_replay::Observer;
//! use hyoshi_trace::{DispatchDecision, TraceEvent};
//!
//! # let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n";
//! # let system = read(text, "one.toml", None).unwrap().system;
//! let mut observer = Observer::new(&system);
//! let (processor, at) = (ProcessorId(0), Instant::from_nanos(1_000));
//! observer.event(processor, at, &TraceEvent::Decision(DispatchDecision::Switch { second: true }));
//! let figures = observer.figures(Instant::from_nanos(5_000));
//! assert_eq!(figures.strategies[0].total(), Span::from_nanos(4_000));
//! assert_eq!(figures.stats.counts(None, |_| true).released(), 0);
//! ```

use std::cell::RefCell;

use hyoshi_model::{HostId, Instant, ProcessorId, System};

use crate::blame::Crossing;
use crate::causes::{CauseAnalysis, CauseReport};
use hyoshi_trace::{
    ContractHistories, ContractHistory, DispatchDecision, FeedbackHistories, FeedbackHistory, Input, JobEnd, Probe,
    Splits, Stats, StrategyHistories, StrategyHistory, TimeSplit, TraceEvent,
};

/// Receives the events of all processors. Those of each processor must be in order. A job's end allocates nothing,
/// unless causes are analysed or job ends are kept.
#[derive(Debug)]
pub struct Observer<'a> {
    stats: Stats,
    /// Job ends not yet in the statistics.
    recent: Vec<JobEnd>,
    time: Splits,
    strategies: StrategyHistories,
    contracts: ContractHistories,
    feedback: FeedbackHistories,
    causes: Option<CauseAnalysis<'a>>,
    /// The reference clock of chains, and its lead over the clock of each processor.
    clock: Option<(HostId, Vec<i64>)>,
    /// Job ends by processor, if they are kept.
    ends: Vec<Vec<JobEnd>>,
    keeps_ends: bool,
}

/// The results of an [`Observer`] until an instant.
#[derive(Clone, Debug)]
pub struct Figures<'a> {
    /// Statistics of jobs and chains.
    pub stats: &'a Stats,
    /// The use of time of each processor.
    pub time: Vec<TimeSplit>,
    /// The history of the second strategy of each processor.
    pub strategies: Vec<StrategyHistory>,
    /// The regions of each contract over time.
    pub contracts: Vec<ContractHistory>,
    /// The samples of the feedback loop of each processor.
    pub feedback: &'a [FeedbackHistory],
    /// Causes of lateness and windows of the timeline, if analysed.
    pub causes: Option<&'a CauseReport>,
    /// Job ends by processor, in order; empty if they are not kept.
    pub ends: &'a [Vec<JobEnd>],
}

/// The number of job ends that are recorded at once.
const RECENT: usize = 64;

impl<'a> Observer<'a> {
    /// Starts before the first event.
    pub fn new(system: &System) -> Self {
        let (stats, processors) = (Stats::new(system), system.processors.len());
        let (time, strategies) = (Splits::new(processors), StrategyHistories::new(system));
        Observer {
            stats,
            recent: Vec::with_capacity(RECENT),
            time,
            strategies,
            contracts: ContractHistories::new(system),
            feedback: FeedbackHistories::new(system),
            causes: None,
            clock: None,
            ends: vec![Vec::new(); processors],
            keeps_ends: false,
        }
    }

    /// The statistics use this host's clock, as far as the events contain its offset. Everything else uses the clock of
    /// its processor.
    pub fn by_clock_of(self, host: HostId) -> Self {
        let processors = self.ends.len();
        Observer { clock: Some((host, vec![0; processors])), ..self }
    }

    /// Passes all events to `causes`, too, at several times the cost.
    pub fn with_causes(self, causes: Option<CauseAnalysis<'a>>) -> Self {
        Observer { causes, ..self }
    }

    /// Keeps all job ends if `keeps_ends`: memory then grows with time.
    pub fn keeping_ends(self, keeps_ends: bool) -> Self {
        Observer { keeps_ends, ..self }
    }

    /// Whether events that are not [`counted`](Self::counts) are needed.
    pub fn wants_everything(&self) -> bool {
        self.causes.is_some()
    }

    /// Whether every observer uses an event.
    #[inline]
    pub fn counts(event: &TraceEvent) -> bool {
        matches!(
            event,
            TraceEvent::Decision(
                DispatchDecision::End(_)
                    | DispatchDecision::Switch { .. }
                    | DispatchDecision::Sample { .. }
                    | DispatchDecision::Latency { .. }
                    | DispatchDecision::Condition { .. }
                    | DispatchDecision::Region { .. }
                    | DispatchDecision::Retime { .. }
                    | DispatchDecision::Level { .. }
                    | DispatchDecision::Admission { .. }
                    | DispatchDecision::Pace { .. }
                    | DispatchDecision::Discard { .. }
                    | DispatchDecision::Hold { .. }
            ) | TraceEvent::Input(Input::Signal(_) | Input::DropHop(_) | Input::Force { .. })
                | TraceEvent::Cpu(_)
        ) || matches!(event, TraceEvent::Input(input) if input.is_of_loop())
    }

    /// The way of the next signal of a processor from another host: see [`CauseAnalysis::crosses`].
    pub fn crosses(&mut self, processor: ProcessorId, crossing: Option<Crossing>) {
        if let Some(causes) = &mut self.causes {
            causes.crosses(processor, crossing);
        }
    }

    /// The next event of a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                let ahead = self.ahead(processor);
                self.recent.push(ahead.map_or(*end, |ahead| end.by_clock_ahead(ahead)));
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
            TraceEvent::Decision(DispatchDecision::Discard { to, reason, .. }) => self.stats.discard(*to, *reason),
            TraceEvent::Decision(DispatchDecision::Hold { job, .. }) => {
                self.stats.held(*job, self.by_clock(processor, now));
            }
            TraceEvent::Input(Input::Signal(signal) | Input::DropHop(signal)) => {
                self.stats.arrived(signal, self.by_clock(processor, signal.due.min(now)));
            }
            TraceEvent::Decision(DispatchDecision::Condition { .. } | DispatchDecision::Region { .. })
            | TraceEvent::Input(Input::Force { .. }) => {
                let at = self.by_clock(processor, now);
                self.contracts.event(at, event);
            }
            TraceEvent::Decision(DispatchDecision::Switch { .. }) => self.strategies.event(processor, now, event),
            TraceEvent::Decision(
                DispatchDecision::Sample { .. }
                | DispatchDecision::Latency { .. }
                | DispatchDecision::Retime { .. }
                | DispatchDecision::Level { .. }
                | DispatchDecision::Admission { .. }
                | DispatchDecision::Pace { .. },
            ) => self.feedback.event(processor, now, event),
            TraceEvent::Input(input) if input.is_of_loop() => self.feedback.event(processor, now, event),
            TraceEvent::Cpu(seen) => {
                if let hyoshi_trace::CpuEvent::Clock { .. } = seen {
                    self.stats.over_networks();
                }
                if let (hyoshi_trace::CpuEvent::Clock { host, offset, .. }, Some((reference, ahead))) =
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
        if let Some(causes) = &mut self.causes {
            causes.event(processor, now, event);
        }
    }

    /// The lead of the reference clock over a processor's, if there is one.
    #[inline]
    fn ahead(&self, processor: ProcessorId) -> Option<i64> {
        self.clock.as_ref().and_then(|(_, ahead)| ahead.get(processor.index()).copied())
    }

    /// Converts an instant of a processor's clock to the reference clock.
    fn by_clock(&self, processor: ProcessorId, at: Instant) -> Instant {
        self.ahead(processor).map_or(at, |ahead| at.by_clock_ahead(ahead))
    }

    #[inline(never)]
    fn catch_up(&mut self) {
        self.stats.record_all(&self.recent);
        self.recent.clear();
    }

    /// Ends the run and its open windows.
    pub fn close(&mut self, now: Instant) {
        if let Some(causes) = &mut self.causes {
            causes.close(now);
        }
    }

    /// The statistics of jobs and chains so far.
    pub fn stats(&mut self) -> &Stats {
        self.catch_up();
        &self.stats
    }

    /// The statistics so far, and the samples of the feedback loop of each processor.
    pub fn progress(&mut self) -> (&Stats, &[FeedbackHistory]) {
        self.catch_up();
        (&self.stats, self.feedback.all())
    }

    /// All figures until `now`. No event may be later.
    pub fn figures(&mut self, now: Instant) -> Figures<'_> {
        self.catch_up();
        Figures {
            stats: &self.stats,
            time: self.time.until(now),
            strategies: self.strategies.until(now),
            contracts: self.contracts.until(now),
            feedback: self.feedback.all(),
            causes: self.causes.as_ref().map(CauseAnalysis::report),
            ends: &self.ends,
        }
    }
}

/// The probe of one processor for a shared observer, in a single thread.
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
    fn event(&mut self, now: Instant, event: TraceEvent) {
        if self.everything || Observer::counts(&event) {
            self.observer.borrow_mut().event(self.processor, now, &event);
        }
    }
}
