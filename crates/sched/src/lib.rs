//! Priorities and proofs: strategies, the plans they produce, and schedulability analysis. Pure: no clock, no thread.
//!
//! A [`Strategy`] assigns each operation a level and a discipline (Kokyu's configuration). A [`Plan`] numbers the
//! levels of each processor for the dispatcher. [`analyse`] proves deadlines under a plan, or names the failure or the
//! missing bound, and its sources.
//!
//! ```
//! # #[cfg(feature = "analysis")] {
//! use hyoshi_sched::{Outcome, Plan, Strategies, analyse};
//!
//! let text = r#"
//!     name = "uav"
//!     [processor.airframe]
//!     strategy = "RMS+MLF"
//!     [operation.steer]
//!     rate = "40Hz"
//!     wcet = "5ms"
//!     critical = true
//!     [operation.fuse]
//!     after = { all = ["steer"] }
//!     wcet = "3ms"
//!     critical = true
//!     [operation.log]
//!     every = "100ms"
//!     wcet = "40ms"
//! "#;
//! let system = hyoshi_model::read(text, "uav.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
//! let plan = Plan::new(&system, &Strategies::built_in())?;
//! assert_eq!(plan.processors[0].levels[0].label, "critical, every 25ms");
//!
//! let report = analyse(&system, &plan);
//! assert_eq!(report.outcome, Outcome::Holds);
//! let fuse = &report.scenes[0].processors[0].operations[1];
//! assert_eq!((fuse.bound_ns, fuse.slack_ns), (Some(8_000_000), Some(17_000_000)));
//! # }
//! # Ok::<(), hyoshi_sched::UnknownStrategy>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "analysis")]
pub mod analysis;
pub mod plan;
pub mod ranking;
pub mod strategy;

#[cfg(feature = "analysis")]
pub use analysis::{AnalysisOptions, Bounds, Outcome, Report, Verdict, analyse, analyse_with};
pub use plan::{Level, Placement, Plan, ProcessorPlan, UnknownStrategy};
pub use ranking::{LevelPosition, MOST_LEVELS, Ranking};
pub use strategy::{Discipline, Strategies, Strategy, Traits, Urgency};
