//! Registered clients of objects, and publishers of events: they join and leave the feedback loop of a processor, and learn their periods.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_dispatch::JoinRefusal;
use hyoshi_model::{Instant, ProcessorId, Span, System};
use hyoshi_os::{MonotonicClock, Wake};
use hyoshi_trace::RatedClient;

use crate::processor::ProcessorState;

/// The latest periods of a loop's clients. The loop writes them under its lock, and never waits for a reader.
#[derive(Debug)]
pub(crate) struct ClientPeriods {
    /// By place, in nanoseconds; 0 without a client.
    periods: Vec<AtomicU64>,
    /// Posted after a change.
    pub changed: Wake,
}

impl ClientPeriods {
    /// For the loop of a processor.
    pub fn new(system: &System, processor: ProcessorId) -> ClientPeriods {
        let clients = system.with_clients_on(processor).filter_map(|id| system.operation(id).clients);
        let most: usize = clients.map(|clients| usize::from(clients.most)).sum();
        ClientPeriods { periods: (0..most).map(|_| AtomicU64::new(0)).collect(), changed: Wake::new() }
    }

    pub fn set(&self, client: u16, period: Span) {
        if let Some(place) = self.periods.get(usize::from(client)) {
            place.store(period.as_nanos(), Ordering::Release);
        }
    }

    fn get(&self, client: u16) -> Option<Span> {
        let period = self.periods.get(usize::from(client))?.load(Ordering::Acquire);
        (period > 0).then(|| Span::from_nanos(period))
    }
}

/// Lets clients of objects, and publishers of events, join the feedback loop of a processor. Each call locks the processor for a short section.
#[derive(Clone, Debug)]
pub struct ClientRateControl(Arc<ProcessorState>);

/// A client that has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedClient {
    /// Its place among the loop's clients.
    pub client: u16,
    /// Its task: the range of rates, and the estimate.
    pub task: RatedClient,
    /// Its period until the next sample.
    pub period: Span,
}

/// Why a client did not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinLoopError {
    /// The run has not begun, or is over.
    Idle,
    /// The loop refuses it.
    Refused(JoinRefusal),
}

impl JoinLoopError {
    /// Whether the reason is the file's limit of registered clients.
    pub const fn is_full(&self) -> bool {
        matches!(self, JoinLoopError::Refused(JoinRefusal::Full { .. }))
    }

    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            JoinLoopError::Idle => "join again during the run",
            JoinLoopError::Refused(refusal) => refusal.remedy(),
        }
    }
}

impl fmt::Display for JoinLoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinLoopError::Idle => f.write_str("the server's run has not begun, or has ended"),
            JoinLoopError::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for JoinLoopError {}

impl ClientRateControl {
    /// For a processor with a loop that may have clients.
    pub(crate) fn new(processor: &Arc<ProcessorState>) -> Option<ClientRateControl> {
        let control = ClientRateControl(processor.clone());
        (!control.periods().periods.is_empty()).then_some(control)
    }

    fn periods(&self) -> &ClientPeriods {
        &self.0.common.client_periods[self.0.id.index()]
    }

    /// The most clients that the loop can have.
    pub fn most(&self) -> usize {
        self.periods().periods.len()
    }

    /// A client with this claim joins. Its task has the part of the range that the file allows, and at least the mean
    /// execution time of earlier requests as the estimate. If it can join, the client `leaving` leaves before.
    ///
    /// # Errors
    ///
    /// If the loop refuses it, or there is no run.
    pub fn join(&self, claim: &RatedClient, leaving: Option<u16>) -> Result<JoinedClient, JoinLoopError> {
        if !self.is_running() {
            return Err(JoinLoopError::Idle);
        }
        // Created before the lock for which lanes may wait.
        let mut wakeups = self.0.wakeups();
        let joined = self.0.section(|crew, now| crew.join_client(now, (claim, leaving), &mut wakeups));
        wakeups.deliver();
        let (client, task) = joined?;
        Ok(JoinedClient { client, task, period: self.period(client).unwrap_or(task.longest) })
    }

    /// A client leaves. Later samples distribute its part.
    pub fn leave(&self, client: u16) {
        if self.is_running() {
            let mut wakeups = self.0.wakeups();
            self.0.section(|crew, now| crew.leave_client(now, client, &mut wakeups));
            wakeups.deliver();
        }
    }

    /// The present period of a client; `None` without one.
    pub fn period(&self, client: u16) -> Option<Span> {
        self.periods().get(client)
    }

    /// Waits until periods have changed, at most until `until` on this clock. Only one thread may call it.
    pub fn wait(&self, clock: &MonotonicClock, until: Instant) {
        self.periods().changed.wait_until(clock, until);
    }

    /// Ends a wait.
    pub fn wake(&self) {
        self.periods().changed.post();
    }

    fn is_running(&self) -> bool {
        let common = &self.0.common;
        common.has_begun() && common.now() > Instant::ZERO
    }
}

impl From<JoinRefusal> for JoinLoopError {
    fn from(refusal: JoinRefusal) -> Self {
        JoinLoopError::Refused(refusal)
    }
}
