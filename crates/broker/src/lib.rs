//! The CPU broker: reserves CPU time for unmodified programs, by measured use and importance. It follows *Dynamic CPU
//! Management for Real-Time, Middleware-Based Systems* (Eide, Stack, Regehr, Lepreau; Utah UUCS-04-004, 2004):
//! advocates request, a policy grants, a scheduler proxy reserves. `docs/broker.md` is the tour.
//!
//! `hyoshi-control` decides, `hyoshi-os` has the kernel's mechanisms. This crate connects them: objects on the ORB
//! ([`BrokerService`], [`idl`]), rights ([`access`]), an audit log ([`audit`]), and the client ([`client`]).
//!
//! ```
//! use hyoshi_broker::access::{Access, Caller};
//! use hyoshi_os::Credentials;
//!
//! let access = Access { broker: 0, group: Some(27) };
//! let ann = Caller::Known(Credentials { pid: 4242, uid: 1000, gid: 1000, groups: vec![] });
//! assert!(access.may_change(&ann, 1000), "her own task");
//! assert!(!access.may_change(&ann, 1001), "another user's");
//! ```

#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod certificates;
pub mod client;
pub mod component;
pub mod external;
mod foreign_policy;
mod journal;
mod lanes;
mod library;
mod limiter;
pub mod limits;
pub mod log_writer;
pub mod machine;
mod owners;
pub mod platform;
pub mod policy;
pub mod proxy;
mod raised;
mod refusals;
mod request_error;
mod service;
pub mod socket;
mod state;
pub mod state_file;
pub mod task_processes;
pub mod task_store;
mod wakeups;
pub mod words;

pub use request_error::RequestError;
pub use service::{BrokerService, RemoteAccess, ServiceError};
pub use state::{BrokerState, DetectedPeriod, PROVISIONAL, ReportedCycle, RunSnapshot, TaskSnapshot, TaskSpec};

/// The broker's interfaces in Rust, from `idl/broker.idl`.
pub mod idl {
    include!(concat!(env!("OUT_DIR"), "/broker.rs"));
}
