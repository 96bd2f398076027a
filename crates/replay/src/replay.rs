//! Feeds a recording's inputs to a fresh dispatcher and compares its decisions with the recorded ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use hyoshi_dispatch::{Dispatcher, Effects};
use hyoshi_model::{Instant, JobId, OperationId, Span, System, Trigger};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Decision, Event, Input, Probe};

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Inputs fed.
    pub inputs: u64,
    /// Decisions that were identical.
    pub decisions: u64,
}

/// Where a replay and its recording part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// The dispatcher decided otherwise, or nothing (`None`), or something the recording lacks.
    Decision {
        /// Position among the recorded events.
        position: u64,
        /// When.
        at: Instant,
        /// What was recorded.
        recorded: Option<Decision>,
        /// What the dispatcher decides.
        replayed: Option<Decision>,
    },
    /// The input is impossible: the recording was edited, or belongs to another system.
    Impossible {
        /// Position among the recorded events.
        position: u64,
        /// When.
        at: Instant,
        /// What was recorded.
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
                "event {position} at {at}: {input:?} cannot happen here; the recording was edited or is of another system"
            ),
        }
    }
}

impl std::error::Error for Divergence {}

/// Collects decisions only: inputs are what we feed. Beyond [`MOST`] it drops them, and the replay diverges.
#[derive(Debug, Default)]
pub(crate) struct Decisions(VecDeque<(Instant, Decision)>);

impl Probe for Decisions {
    fn event(&mut self, now: Instant, event: Event) {
        if let (Event::Decision(decision), true) = (event, self.0.len() < MOST) {
            self.0.push_back((now, decision));
        }
    }
}

/// The most decisions that follow from one input, and about the most releases: a recording may be hostile.
const MOST: usize = 1 << 20;

/// A replay in progress: recorded events go in one by one, and must be complete and in order.
#[derive(Debug)]
pub struct Replay<'a> {
    system: &'a System,
    dispatcher: Dispatcher<Decisions>,
    effects: Effects,
    position: u64,
    last: Instant,
    latest: Span,
    done: Replayed,
}

/// No timer is seen later than this.
const LATEST: Span = Span::from_secs(60);

/// [`LATEST`], or less where that would be too many releases at once.
fn latest(system: &System, plan: &ProcessorPlan) -> Span {
    let shortest = |id: &OperationId| (0..system.epochs.len()).map(|epoch| system.setting(epoch, *id).period).min();
    let periodic = plan.operations.iter().filter(|id| system.operation(**id).trigger == Trigger::Periodic);
    let rates = periodic.filter_map(shortest).map(|period| 1.0 / period.as_nanos().max(1) as f64);
    // Not `sum`: of none it is -0.0.
    let rate = rates.fold(0.0, |sum, rate| sum + rate);
    LATEST.min(Span::from_nanos((MOST as f64 / rate) as u64))
}

impl<'a> Replay<'a> {
    /// A replay from the start of time.
    pub fn new(system: &'a System, plan: &ProcessorPlan) -> Self {
        let dispatcher = Dispatcher::new(system, plan, Decisions::default());
        let effects = dispatcher.effects();
        let latest = latest(system, plan);
        Replay { system, dispatcher, effects, position: 0, last: Instant::ZERO, latest, done: Replayed::default() }
    }

    /// Before the first event: these periodic releases came so much later than nominal, whatever jitter is drawn for them.
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.dispatcher.release_late(late);
        self.effects = self.dispatcher.effects();
    }

    /// The dispatcher after the last input. The decisions that follow from it may not have been compared yet.
    pub(crate) fn dispatcher(&self) -> &Dispatcher<Decisions> {
        &self.dispatcher
    }

    /// What followed from the last input.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The next recorded event.
    pub fn event(&mut self, at: Instant, event: Event) -> Result<(), Box<Divergence>> {
        let position = self.position;
        self.position += 1;
        if let Event::Seen(_) = event {
            return Ok(());
        }
        let pending = self.dispatcher.probe_mut().0.pop_front();
        match (event, pending) {
            (Event::Decision(decision), pending) => {
                if pending != Some((at, decision)) {
                    let (recorded, replayed) = (Some(decision), pending.map(|(_, decision)| decision));
                    return Err(Box::new(Divergence::Decision { position, at, recorded, replayed }));
                }
                self.done.decisions += 1;
            }
            (Event::Input(_), Some((at, decision))) => {
                let replayed = Some(decision);
                return Err(Box::new(Divergence::Decision { position, at, recorded: None, replayed }));
            }
            (Event::Seen(_), _) => {}
            (Event::Input(input), None) => {
                if !self.timely(at) || !self.dispatcher.accepts(self.system, at, &input) {
                    return Err(Box::new(Divergence::Impossible { position, at, input }));
                }
                self.dispatcher.handle(at, input, &mut self.effects);
                // There are no lanes to wake, no processors to send to and no payloads.
                self.effects.sends.clear();
                self.effects.returned.clear();
                self.effects.cancelled.clear();
                self.done.inputs += 1;
            }
        }
        Ok(())
    }

    /// True unless time runs backwards, or leaps past a timer by more than any machine is late.
    fn timely(&mut self, at: Instant) -> bool {
        let before = std::mem::replace(&mut self.last, at);
        let next = self.effects.timer;
        at >= before
            && (next == Instant::NEVER || at <= next.max(before).saturating_add(self.latest))
            && at != Instant::NEVER
    }

    /// What was compared. A recording may end between an input and its decisions.
    pub fn done(self) -> Replayed {
        self.done
    }
}

/// Replays the events of one processor, which must be complete and in order.
pub fn replay(
    system: &System,
    plan: &ProcessorPlan,
    recorded: impl IntoIterator<Item = (Instant, Event)>,
) -> Result<Replayed, Box<Divergence>> {
    let mut replay = Replay::new(system, plan);
    recorded.into_iter().try_for_each(|(at, event)| replay.event(at, event))?;
    Ok(replay.done())
}
