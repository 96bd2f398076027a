//! The CPU broker: gives CPU to what matters, for programs that nobody will change. It follows *Dynamic CPU Management
//! for Real-Time, Middleware-Based Systems* (Eide, Stack, Regehr, Lepreau; Utah UUCS-04-004, 2004): advocates ask, a
//! policy grants, a scheduler proxy carries it out. `docs/broker.md` is the tour.
//!
//! What is decided is decided in `hyoshi-control`, what the kernel does in `hyoshi-os`; here is what joins them: objects on
//! the ORB ([`Service`], [`idl`]), who may do what ([`access`]), what was done ([`audit`]), and for programs that ask a
//! broker, [`client`].
//!
//! ```
//! use hyoshi_broker::access::{Access, Caller};
//! use hyoshi_os::Credentials;
//!
//! let access = Access { broker: 0, group: Some(27) };
//! let ann = Caller::Known(Credentials { pid: 4242, uid: 1000, gid: 1000, groups: vec![] });
//! assert!(access.may_change(&ann, 1000), "her own task");
//! assert!(!access.may_change(&ann, 1001), "another's");
//! ```

#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod certificates;
pub mod client;
pub mod external;
mod foreign;
mod gate;
mod journal;
pub mod kernel;
mod lanes;
mod library;
pub mod limits;
pub mod lines;
pub mod machine;
pub mod members;
mod owners;
pub mod place;
pub mod policy;
pub mod proxy;
mod raised;
mod refusals;
pub mod roster;
mod service;
pub mod setting;
mod state;
pub mod touched;
mod trouble;
mod watch;
pub mod words;

pub use service::{Remote, Service, ServiceError};
pub use state::{Cycle, Found, Joining, PROVISIONAL, RunStanding, Standing, State};
pub use trouble::Trouble;

/// The broker's interfaces in Rust, from `idl/broker.idl`.
pub mod idl {
    include!(concat!(env!("OUT_DIR"), "/broker.rs"));
}
