//! The client's side: connections to servers, calls over them.

mod back;
mod crowd;
mod desk;
mod invoke;
mod line;
mod lookup;
mod mux;
mod names;
mod outbox;
mod peer;
mod pending;
mod route;

pub(crate) use back::WaysBack;
pub(crate) use invoke::{Failure, Request, invoke};
pub(crate) use line::{is_tls, refused};
pub(crate) use mux::Mux;
pub(crate) use peer::{Peer, Peers};
pub use pending::Pending;
pub(crate) use route::{Route, routes};
