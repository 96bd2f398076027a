//! Contracts as QuO has them (Zinky, Bakken and Schantz, "Architectural Support for Quality of Service for CORBA
//! Objects", 1997): an application states its operating regions, and what to do in each. Nothing here reads a clock or
//! starts a thread.
//!
//! ```text
//! samples ─► ConditionWindow ─readings─► RegionMachine ─changes─► actions
//!                                                  └──► SettingLimits, in layers
//! ```
//!
//! - [`window`]: a condition over a window of time, and when it is stale.
//! - [`region`]: the active regions, with hysteresis, dwell times and latches.
//! - [`reach`]: which regions can be entered, before anything runs.
//! - [`flapping`]: regions that begin and end in a cycle.
//! - [`limits`]: settings that several layers limit.
//!
//! Expressions are those of [`hyoshi_model::predicate`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod flapping;
pub mod limits;
pub mod reach;
pub mod region;
pub mod window;

pub use flapping::{FlapDetector, FlappingRegion};
pub use limits::SettingLimits;
pub use reach::{Reachability, RegionReach};
pub use region::{ChangeCause, RegionChange, RegionMachine};
pub use window::{ConditionWindow, SampleSum, WindowSample};
