//! The laws of adaptation, pure: what to ask for a task, whom to give how much, and when to raise it.
//!
//! After the CPU Broker (Eide, Stack, Regehr, Lepreau: "Dynamic CPU Management for Real-Time,
//! Middleware-Based Systems", UUCS-04-004, 2004). A task reports what it consumed; a chain of
//! *advocates* makes a request of it; a *policy* settles the requests of all tasks within a cap; what
//! was granted travels back up the chain. Nothing here reads a clock, holds a thread or opens a file:
//! whoever drives it says what time it is and carries out what it decides.
//!
//! - [`advocate`]: what to ask on behalf of one task; every kind is a line in one table.
//! - [`policy`]: whom to give how much when there is not enough.
//! - [`accounts`]: the part of the cap that the tasks of one user may hold together; [`rate`]: how often a user may
//!   call.
//! - [`period`]: how often a program's work comes round, found from its wake-ups.
//! - [`arbiter`]: the broker's whole decision as one state machine, with an explanation of each grant.
//! - [`window`]: when a task's threads are raised and lowered so that it gets what was granted, and
//!   on which CPU.
//! - [`admission`]: all of it, carried out by placement alone; [`mod@file`]: the programs of a system's file, and what its
//!   CPUs admit of them.
//! - [`upkeep`]: the CPU time that the broker itself may take, divided among users.
//! - [`group`]: what a control group is given to be a floor below it and a cap above it.
//!
//! ```
//! use hyoshi_control::{Arbiter, Chain, Joining, Status, Strict, TaskId};
//! use hyoshi_model::{Instant, Reservation, Share, Span};
//!
//! let ms = Span::from_millis;
//! let mut arbiter = Arbiter::new(Box::new(Strict), Share::from_percent(75));
//! let joining = |budget, importance| {
//!     Ok::<_, Box<dyn std::error::Error>>(Joining {
//!         importance,
//!         ..Joining::new("task", Reservation::new(ms(budget), ms(250))?, Chain::default())
//!     })
//! };
//! arbiter.join(TaskId(1), joining(95, 10)?, Instant::ZERO)?;
//! arbiter.join(TaskId(2), joining(125, 5)?, Instant::ZERO)?;
//! // 75 % of 250 ms are 187.5 ms: what the first leaves of them is 92.5 ms.
//! assert_eq!(arbiter.held(TaskId(2)).map(Reservation::budget), Some(Span::from_micros(92_500)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accounts;
pub mod admission;
pub mod advocate;
pub mod arbiter;
pub mod backlog;
pub mod file;
pub mod group;
pub mod period;
pub mod policy;
pub mod rate;
pub mod task;
pub mod upkeep;
pub mod window;

pub use accounts::{AccountId, Accounts};
pub use admission::Admission;
pub use advocate::{Advice, Advocate, AdvocateChain, Emission, Spec};
pub use arbiter::{Arbiter, ReservationChange, Decision, Explanation, Joining, Refusal};
pub use backlog::{Backlog, Carried};
pub use period::{Finder, PeriodEstimate};
pub use policy::{AnyPolicy, Ask, Fair, Partition, Policy, PolicySpec, Strict, Weighted};
pub use rate::Rate;
pub use task::{Confirmation, Grant, GroupId, Limit, Reason, Status, TaskId, Values};
pub use upkeep::Upkeep;
pub use window::{WindowAlarm, WindowStep, Window};
