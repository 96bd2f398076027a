//! Contracts as QuO has them (Zinky, Bakken and Schantz, "Architectural Support for Quality of Service for CORBA
//! Objects", 1997): an application states its operating regions, and what to do in each. Nothing here reads a clock or
//! starts a thread.
//!
//! ```text
//! samples ─► Watch ─readings─► RegionMachine ─changes─► actions
//!                                                  └──► Limits of settings, in layers
//! ```
//!
//! - [`watch`]: a condition over a window of time, and when it is stale.
//! - [`region`]: the active regions, with hysteresis, dwell times and latches.
//! - [`reach`]: which regions can be entered, before anything runs.
//! - [`limits`]: settings that several layers limit.
//!
//! Expressions are those of [`hyoshi_model::expression`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod limits;
pub mod reach;
pub mod region;
pub mod watch;

pub use limits::Limits;
pub use reach::{Reach, RegionReach};
pub use region::{ChangeCause, RegionChange, RegionMachine};
pub use watch::{SampleSum, Watch, WatchSample};
