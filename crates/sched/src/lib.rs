//! Strategies, the plans they make, and schedulability analysis. Pure: no clock, no thread.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "analysis")]
pub mod analysis;
pub mod plan;
pub mod strategy;

#[cfg(feature = "analysis")]
pub use analysis::{Outcome, Report, Verdict, analyse};
pub use plan::{Level, MOST_LEVELS, Place, Placement, Plan, ProcessorPlan, UnknownStrategy};
pub use strategy::{Discipline, Strategies, Strategy, Traits, Urgency};
