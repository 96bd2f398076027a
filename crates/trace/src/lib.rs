//! Probes, statistics and recordings of a dispatcher: its inputs, its decisions, and the ends of its jobs.
//!
//! [`TraceEvent`] is what a dispatcher reports to its [`Probe`]. [`Stats`] count job ends in constant memory. [`ring`]
//! carries events from a lane to a thread below it. [`recording`] writes them to a file that is readable after the
//! process is killed.
//!
//! ```
//! use hyoshi_trace::{DispatchDecision, TraceEvent, Input, Probe, ring};
//! use hyoshi_model::Instant;
//!
//! let (mut probe, mut drain) = ring::ring(1024);
//! probe.event(Instant::from_nanos(5), TraceEvent::Input(Input::Tick));
//! let mut seen = Vec::new();
//! drain.drain(|now, event| seen.push((now, event)));
//! assert_eq!(seen, [(Instant::from_nanos(5), TraceEvent::Input(Input::Tick))]);
//! assert_eq!(drain.lost(), 0);
//! ```

#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod agreement;
pub mod contract_history;
pub mod event;
pub mod feedback_history;
pub mod merge;
pub mod rated_client;
pub mod recording;
pub mod ring;
pub mod split;
pub mod stats;
pub mod strategy_history;

pub use admission::{AdmissionOutcome, AdmissionRefusal, ExcessLoad};
pub use contract_history::{ContractHistories, ContractHistory, RegionStep, RegionTime};
pub use event::{
    CpuEvent, CpuUser, DiscardReason, DispatchDecision, Input, JobEnd, JobOutcome, JobRequest, JobService, NoProbe,
    Probe, Signal, Slot, Ticket, TraceEvent, Wait,
};
pub use feedback_history::{
    ClientHistory, FeedbackHistories, FeedbackHistory, FeedbackPoint, RateHistory, SteadyState,
};
pub use rated_client::{ClientLabel, RatedClient};
pub use recording::{RecordingHeader, RecordingReader, RecordingWriter};
pub use ring::{RingDrain, RingProbe};
pub use split::{Splits, TimeSplit};
pub use stats::{Counts, Stats};
pub use strategy_history::{StrategyHistories, StrategyHistory};
