//! Advocates: what to ask on behalf of one task (the paper's section III-A).
//!
//! An advocate takes a task's status and the reservation that is asked so far, and asks for another;
//! several make a [`AdvocateChain`].

mod application;
mod chain;
mod fixed;
mod glacial;
mod kind;
mod max_decay;
mod percentile;
mod proactive;
mod spec;
mod table;
mod telling;
mod watchdog;

use core::fmt;

use hyoshi_model::{Instant, Reservation, Span};

use crate::task::{Grant, Status};

pub use application::{Modes, ProportionalBudget};
pub use chain::{AdvocateChain, ChainError};
pub use fixed::{Cap, Floor, FixedRate};
pub use glacial::Glacial;
pub use kind::{AdvocateKind, ParameterUnit, NotRead, AdvocateParameter};
pub use max_decay::MaxDecay;
pub use percentile::Percentile;
pub use proactive::Proactive;
pub use spec::{Spec, SpecError};
pub use table::KINDS;
pub use telling::{Conditions, LogAdvocate};
pub use watchdog::Watchdog;

/// What an advocate wants told to the world around the broker: the shell that drives the arbiter writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// A line for the log file of the chain's advocate at `position`.
    Log {
        /// Which advocate of the chain.
        position: u8,
        /// The task's status.
        status: Status,
        /// What was asked for it so far.
        asked: Reservation,
    },
    /// Values of the system conditions that the chain's advocate at `position` keeps.
    Conditions {
        /// Which advocate of the chain.
        position: u8,
        /// The task's status.
        status: Status,
        /// What was asked for it so far.
        asked: Reservation,
    },
}

/// What an advocate makes of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What it asks.
    pub ask: Reservation,
    /// What it wants told. Its position is the chain's to fill in.
    pub emitted: Option<Emission>,
}

impl From<Reservation> for Advice {
    fn from(ask: Reservation) -> Self {
        Advice { ask, emitted: None }
    }
}

/// Asks for CPU on behalf of one task; a plain state machine.
pub trait Advocate: fmt::Debug + Send {
    /// Its name in commands and files.
    fn name(&self) -> &'static str;

    /// Takes a status and what the advocates before it ask (the first: what was declared), and asks for more,
    /// less or the same. A status without a cycle ([`Status::demand`] is `None`) teaches nothing of demand:
    /// advocates that learn repeat their last.
    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice;

    /// What became of the chain's ask, told when it changes, from the last advocate up to the first.
    fn granted(&mut self, grant: &Grant) {
        let _ = grant;
    }

    /// When it wants to be asked although no report came: [`Instant::NEVER`] for most.
    fn next_look(&self) -> Instant {
        Instant::NEVER
    }

    /// In a few words, what it does now, for `explain`: "the greatest of the last 10 reports is 21ms".
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An advocate's own words, to be printed.
pub struct Words<'a>(pub &'a dyn Advocate);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}

/// `demand` with `headroom` millionths more, in whole thousandths of the period: small enough a step for
/// any figure, large enough that measurement noise does not become a change of the reservation.
fn with_headroom(demand: Span, headroom: u32, like: Reservation) -> Reservation {
    let grain = u128::from((like.period().as_nanos() / 1_000).max(1));
    let exact = u128::from(demand.as_nanos()) * (1_000_000 + u128::from(headroom));
    let nanos = exact.div_ceil(1_000_000 * grain) * grain;
    like.with_budget(Span::from_nanos(u64::try_from(nanos.max(grain)).unwrap_or(u64::MAX)))
}
