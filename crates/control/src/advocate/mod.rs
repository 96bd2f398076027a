//! Advocates: the requests for one task (the paper's section III-A).
//!
//! An advocate gets a task's status and the request so far, and returns another request; several form an
//! [`AdvocateChain`].

mod application;
mod chain;
mod fixed;
mod glacial;
mod kind;
mod max_decay;
mod percentile;
mod proactive;
mod reporting;
mod spec;
mod table;
mod watchdog;

use core::fmt;

use hyoshi_model::{Instant, Reservation, Span};

use crate::task::{Grant, Status};

pub use application::{Modes, ProportionalBudget};
pub use chain::{AdvocateChain, ChainError};
pub use fixed::{Cap, FixedRate, Floor};
pub use glacial::Glacial;
pub use kind::{AdvocateKind, AdvocateParameter, ParameterError, ParameterUnit};
pub use max_decay::MaxDecay;
pub use percentile::Percentile;
pub use proactive::Proactive;
pub use reporting::{Conditions, LogAdvocate};
pub use spec::{Spec, SpecError};
pub use table::KINDS;
pub use watchdog::Watchdog;

/// Output of an advocate for the caller of the arbiter to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// A line for the log file of the chain's advocate at `position`.
    Log {
        /// The advocate's position in the chain.
        position: u8,
        /// The task's status.
        status: Status,
        /// The request so far.
        asked: Reservation,
    },
    /// Values of the system conditions of the chain's advocate at `position`.
    Conditions {
        /// The advocate's position in the chain.
        position: u8,
        /// The task's status.
        status: Status,
        /// The request so far.
        asked: Reservation,
    },
}

/// An advocate's result for a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Its request.
    pub ask: Reservation,
    /// Its output. The chain fills in the position.
    pub emitted: Option<Emission>,
}

impl From<Reservation> for Advice {
    fn from(ask: Reservation) -> Self {
        Advice { ask, emitted: None }
    }
}

/// Requests CPU for one task; a plain state machine.
pub trait Advocate: fmt::Debug + Send {
    /// Its name in commands and files.
    fn name(&self) -> &'static str;

    /// From a status and the request of the advocates before it (for the first: the declared reservation) computes its
    /// request. A status without a cycle ([`Status::demand`] is `None`) does not show any demand: advocates that learn
    /// repeat their last request.
    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice;

    /// The grant for the chain's request, passed when it changes, from the last advocate up to the first.
    fn granted(&mut self, grant: &Grant) {
        let _ = grant;
    }

    /// When it needs a status without a report: [`Instant::NEVER`] for most.
    fn next_check(&self) -> Instant {
        Instant::NEVER
    }

    /// A short description of its present state, for `explain`: "the greatest of the last 10 reports is 21ms".
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An advocate's description, for printing.
pub struct Words<'a>(pub &'a dyn Advocate);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}

/// `demand` with `headroom` millionths more, in whole thousandths of the period: a step fine enough for any figure, and
/// coarse enough that measurement noise does not change the reservation.
fn with_headroom(demand: Span, headroom: u32, like: Reservation) -> Reservation {
    let grain = u128::from((like.period().as_nanos() / 1_000).max(1));
    let exact = u128::from(demand.as_nanos()) * (1_000_000 + u128::from(headroom));
    let nanos = exact.div_ceil(1_000_000 * grain) * grain;
    like.with_budget(Span::from_nanos(u64::try_from(nanos.max(grain)).unwrap_or(u64::MAX)))
}
