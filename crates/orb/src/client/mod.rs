//! The client's side: connections to servers, calls over them.

mod back;
mod buffers;
mod crowd;
mod dial;
mod invoke;
mod itinerary;
mod line;
mod lookup;
mod mux;
mod names;
mod peer;
mod peers;
mod pending;
mod pool;
mod remote;
mod route;
mod shared_connection;

pub(crate) use back::WaysBack;
pub(crate) use invoke::{Invocation, invoke};
pub(crate) use mux::{BidirOffer, Keeper, Mux, TakeIn};
pub(crate) use peers::Peers;
pub use pending::Pending;
pub(crate) use remote::RemoteObject;
