//! Traffic classes on a network device: bulk traffic that saturates a link does not delay critical completions.
//!
//! A [`ClassPlan`] (pure) derives the classes of a device from the file: hierarchical token buckets (HTB, tc-htb(8)),
//! each with a guaranteed rate, a ceiling and a priority, and filters on the DSCP in the IP header (tc-u32(8)).
//! [`HeldClasses`] installs them through netlink, reads them back, and removes them when it is dropped.
//!
//! ```text
//!   packet ─► filter: DSCP ─► class EF    ─► short FIFO ─┐
//!                        ├──► class AF4x  ─► short FIFO ─┼─► at most the device's rate ─► device
//!                        └──► the rest    ─► short FIFO ─┘
//! ```
//!
//! If another program or a user has set a queueing discipline, it stays, and the device is refused. Classes that a
//! killed run has left have a known number, [`HANDLE`], and are replaced by a process that has claimed the device in its
//! network namespace.

#![forbid(unsafe_code)]

mod claim;
mod error;
mod held;
mod kernel;
mod message;
mod plan;

pub use error::NetworkError;
pub use held::{ClassCounts, HeldClasses, remove_left};
pub use kernel::probe;
pub use plan::{ClassPlan, HANDLE, PlannedClass};
