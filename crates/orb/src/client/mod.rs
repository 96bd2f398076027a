//! Connections to servers: one or several for each endpoint, for one call at a time or shared.

mod back;
mod crowd;
mod dial;
mod line;
mod lookup;
mod mux;
mod names;
mod peer;
mod peers;
mod pool;
mod shared_connection;
mod sockets;

pub(crate) use back::WaysBack;
pub(crate) use dial::{ConnectionSettings, Patience, no_connection};
pub(crate) use line::Line;
pub(crate) use mux::{BidirOffer, DuplexLane, Mux, Opening, PendingReply, TakeIn, wait_for};
pub(crate) use peer::{Over, Peer};
pub(crate) use peers::Peers;
