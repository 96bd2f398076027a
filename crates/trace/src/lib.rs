//! Probes, statistics and recordings: what happened to each job, when, and what the dispatcher was
//! told and decided.
//!
//! [`Event`] is what a dispatcher reports to its [`Probe`]. [`Stats`] count job ends in constant memory; [`ring`] carries events from a lane to a thread below it; [`recording`] keeps them in a
//! file that stays readable when the process is killed.
//!
//! ```
//! use hyoshi_trace::{Decision, Event, Input, Probe, ring};
//! use hyoshi_model::Instant;
//!
//! let (mut probe, mut drain) = ring::ring(1024);
//! probe.event(Instant::from_nanos(5), Event::Input(Input::Tick));
//! let mut seen = Vec::new();
//! drain.drain(|now, event| seen.push((now, event)));
//! assert_eq!(seen, [(Instant::from_nanos(5), Event::Input(Input::Tick))]);
//! assert_eq!(drain.lost(), 0);
//! ```

#![forbid(unsafe_code)]

extern crate alloc;

pub mod agreement;
pub mod event;
pub mod merge;
pub mod recording;
pub mod reign;
pub mod ring;
pub mod split;
pub mod stats;

pub use event::{
    Decision, Event, Input, JobEnd, NoProbe, Outcome, Probe, Request, Seen, Signal, Slot, Ticket, Wait, Who,
};
pub use recording::{Header, Reader, Writer};
pub use reign::{Reign, Reigns};
pub use ring::{RingDrain, RingProbe};
pub use split::{Splits, TimeSplit};
pub use stats::{Counts, Stats};
