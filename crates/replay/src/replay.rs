//! Feeds a recording's inputs to a new dispatcher and compares its decisions with the recorded ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use hyoshi_dispatch::{Dispatcher, Effects};
use hyoshi_model::{Instant, JobId, OperationId, Span, System, Trigger};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{DispatchDecision, Input, Probe, TraceEvent};

/// The results of a replay's comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Inputs fed.
    pub inputs: u64,
    /// Identical decisions.
    pub decisions: u64,
}

/// The first difference between a replay and its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// The decisions differ, or one of them is missing (`None`).
    Decision {
        /// Position among the recorded events.
        position: u64,
        /// Its time.
        at: Instant,
        /// The recorded decision.
        recorded: Option<DispatchDecision>,
        /// The dispatcher's decision.
        replayed: Option<DispatchDecision>,
    },
    /// The input is impossible: the recording was edited, or belongs to another system.
    Impossible {
        /// Position among the recorded events.
        position: u64,
        /// Its time.
        at: Instant,
        /// The recorded input.
        input: Input,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Divergence::Decision { position, at, recorded, replayed } => {
                write!(f, "event {position} at {at}: recorded {recorded:?}, replayed {replayed:?}")
            }
            Divergence::Impossible { position, at, input } => write!(
                f,
                "event {position} at {at}: {input:?} is impossible here; the recording was edited or belongs to \
                 another system"
            ),
        }
    }
}

impl std::error::Error for Divergence {}

/// Collects decisions. Beyond [`MOST`] it drops them, and the replay diverges.
#[derive(Debug, Default)]
pub(crate) struct Decisions(VecDeque<(Instant, DispatchDecision)>);

impl Probe for Decisions {
    fn event(&mut self, now: Instant, event: TraceEvent) {
        if let (TraceEvent::Decision(decision), true) = (event, self.0.len() < MOST) {
            self.0.push_back((now, decision));
        }
    }
}

/// The most decisions after one input, and about the most releases: a recording may be hostile.
const MOST: usize = 1 << 20;

/// A replay in progress. The recorded events must be complete and in order.
#[derive(Debug)]
pub struct Replay<'a> {
    system: &'a System,
    dispatcher: Dispatcher<Decisions>,
    effects: Effects,
    position: u64,
    last: Instant,
    latest: Span,
    done: ReplayCounts,
}

/// The largest lateness of a timer.
const LATEST: Span = Span::from_secs(60);

/// [`LATEST`], or less if that would release too many jobs at once.
fn latest(system: &System, plan: &ProcessorPlan) -> Span {
    let shortest = |id: &OperationId| (0..system.epochs.len()).map(|epoch| system.setting(epoch, *id).period).min();
    let periodic = plan.operations.iter().filter(|id| system.operation(**id).trigger == Trigger::Periodic);
    let rates = periodic.filter_map(shortest).map(|period| 1.0 / period.as_nanos().max(1) as f64);
    // Not `sum`: without elements it returns -0.0.
    let rate = rates.fold(0.0, |sum, rate| sum + rate);
    LATEST.min(Span::from_nanos((MOST as f64 / rate) as u64))
}

impl<'a> Replay<'a> {
    /// A replay from instant 0.
    pub fn new(system: &'a System, plan: &ProcessorPlan) -> Self {
        let dispatcher = Dispatcher::new(system, plan, Decisions::default());
        let effects = dispatcher.effects();
        let latest = latest(system, plan);
        Replay { system, dispatcher, effects, position: 0, last: Instant::ZERO, latest, done: ReplayCounts::default() }
    }

    /// Sets late releases before the first event: these periodic jobs were released so much after their nominal
    /// release, whatever jitter is drawn for them.
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.dispatcher.release_late(late);
        self.effects = self.dispatcher.effects();
    }

    /// The dispatcher after the last input. Its latest decisions may not have been compared yet.
    pub(crate) fn dispatcher(&self) -> &Dispatcher<Decisions> {
        &self.dispatcher
    }

    /// The effects of the last input.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The next recorded event.
    pub fn event(&mut self, at: Instant, event: TraceEvent) -> Result<(), Box<Divergence>> {
        let position = self.position;
        self.position += 1;
        if let TraceEvent::Cpu(_) = event {
            return Ok(());
        }
        let pending = self.dispatcher.probe_mut().0.pop_front();
        match (event, pending) {
            (TraceEvent::Decision(decision), pending) => {
                if pending != Some((at, decision)) {
                    let (recorded, replayed) = (Some(decision), pending.map(|(_, decision)| decision));
                    return Err(Box::new(Divergence::Decision { position, at, recorded, replayed }));
                }
                self.done.decisions += 1;
            }
            (TraceEvent::Input(_), Some((at, decision))) => {
                let replayed = Some(decision);
                return Err(Box::new(Divergence::Decision { position, at, recorded: None, replayed }));
            }
            (TraceEvent::Cpu(_), _) => {}
            (TraceEvent::Input(input), None) => {
                if !self.timely(at) || !self.dispatcher.accepts(self.system, at, &input) {
                    return Err(Box::new(Divergence::Impossible { position, at, input }));
                }
                self.dispatcher.handle(at, input, &mut self.effects);
                // A replay has no lanes to wake, no other processors and no payloads.
                self.effects.sends.clear();
                self.effects.returned.clear();
                self.effects.cancelled.clear();
                self.effects.retimed.clear();
                self.effects.contract_updates.clear();
                self.effects.paced.clear();
                self.effects.departed.clear();
                self.done.inputs += 1;
            }
        }
        Ok(())
    }

    /// False if time decreases, or exceeds a timer by more than the largest lateness.
    fn timely(&mut self, at: Instant) -> bool {
        let before = std::mem::replace(&mut self.last, at);
        let next = self.effects.timer;
        at >= before
            && (next == Instant::NEVER || at <= next.max(before).saturating_add(self.latest))
            && at != Instant::NEVER
    }

    /// The counts. A recording may end between an input and its decisions.
    pub fn done(self) -> ReplayCounts {
        self.done
    }
}

/// Replays the events of one processor, which must be complete and in order.
pub fn replay(
    system: &System,
    plan: &ProcessorPlan,
    recorded: impl IntoIterator<Item = (Instant, TraceEvent)>,
) -> Result<ReplayCounts, Box<Divergence>> {
    let mut replay = Replay::new(system, plan);
    recorded.into_iter().try_for_each(|(at, event)| replay.event(at, event))?;
    Ok(replay.done())
}
