//! Dispatching: one pure state machine for each processor decides what is released and what each lane runs next. The
//! simulator and the Linux runtime both drive it.
//!
//! Between lanes the kernel decides by priority; within a lane the queue's discipline decides (Kokyu, section II-B;
//! TAO's dispatching). Release guards follow Sun and Liu 1996.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cap;
pub mod dispatcher;
pub mod effects;
pub mod first;
pub mod guard;
pub mod hard_cap;
mod heap;
pub mod job;
pub mod join;
pub mod kernel;
pub mod lane;
mod operation;
pub mod queue;
pub mod switch;
mod tickets;
pub mod timers;
pub mod transport;

pub use dispatcher::{ContractAdmission, Dispatcher, EvaluatedContract, JoinRefusal};
pub use effects::{ChangedRegion, DepartedOperation, Effects, OverrunAction, Run, SchedulerWork};
pub use job::{Job, JobState};
pub use kernel::Kernel;
pub use lane::{LaneMask, LaneState, lanes_of, levels_of, plans};
pub use transport::{CompletionTransport, InFlight};
