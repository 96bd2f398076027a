//! The laws of adaptation, pure: requests for a task, grants by a policy, and the times at which its threads are
//! raised.
//!
//! After the CPU Broker (Eide, Stack, Regehr, Lepreau: "Dynamic CPU Management for Real-Time, Middleware-Based
//! Systems", UUCS-04-004, 2004). A task reports its consumption; a chain of *advocates* turns it into a request; a
//! *policy* decides on the requests of all tasks within a cap; grants are passed back up the chain. Nothing here reads
//! a clock, has a thread or opens a file: the caller passes the time and carries out the decisions.
//!
//! - [`advocate`]: the requests of one task; every kind is a line in one table.
//! - [`policy`]: the grants if not all requests fit.
//! - [`accounts`]: the part of the cap that the tasks of one user may hold together; [`rate`]: how often a user may
//!   call.
//! - [`period`]: the period of a program's work, found from its wake-ups.
//! - [`arbiter`]: all decisions of the broker as one state machine, with an explanation of each grant.
//! - [`window`]: when a task's threads are raised and lowered to provide its grant, and on which CPU.
//! - [`admission`]: all of it, carried out only by placement; [`mod@file`]: the programs of a system's file, and the
//!   reservations that its CPUs admit.
//! - [`service_budget`]: the CPU time of the broker itself, divided among users.
//! - [`group`]: the settings of a control group: a floor and a cap.
//! - [`feedback`]: rates of tasks, from the measured utilisation and miss ratio (FCS/nORB: Lu, Wang and Gill, RTAS 2003).
//!
//! ```
//! use hyoshi_control::{Arbiter, AdvocateChain, Joining, Status, Strict, TaskId};
//! use hyoshi_model::{Instant, Reservation, Share, Span};
//!
//! let ms = Span::from_millis;
//! let mut arbiter = Arbiter::new(Box::new(Strict), Share::from_percent(75));
//! let joining = |budget, importance| {
//!     Ok::<_, Box<dyn std::error::Error>>(Joining {
//!         importance,
//!         ..Joining::new("task", Reservation::new(ms(budget), ms(250))?, AdvocateChain::default())
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
pub mod feedback;
pub mod file;
pub mod group;
pub mod period;
pub mod policy;
pub mod rate;
pub mod service_budget;
pub mod task;
pub mod window;

pub use accounts::{AccountId, Accounts};
pub use admission::Admission;
pub use advocate::{Advice, Advocate, AdvocateChain, Emission, Spec};
pub use arbiter::{Arbiter, Decision, Explanation, Joining, Refusal, ReservationChange};
pub use backlog::{Backlog, ChangeResult};
pub use period::{Finder, PeriodEstimate};
pub use policy::{AnyPolicy, Ask, Fair, Partition, Policy, PolicySpec, Strict, Weighted};
pub use rate::Rate;
pub use service_budget::ServiceBudget;
pub use task::{Confirmation, Grant, GroupId, Limit, Reason, Status, TaskId, Values};
pub use window::{Window, WindowAlarm, WindowStep};
