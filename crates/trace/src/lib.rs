//! Probes and recordings: what happened to each job, when, and what the dispatcher was told and
//! decided.

#![forbid(unsafe_code)]

extern crate alloc;

pub mod event;

pub use event::{Decision, Event, Input, JobEnd, NoProbe, Outcome, Probe, Signal, Slot};
