//! The server's side: lanes take connections, read requests and run them.

mod both;
mod connection;
mod doorway;
mod fair;
mod handshakes;
mod kept;
mod lane;
mod linger;
mod parked;
mod reading;
mod replies;
mod serve;
mod table;
mod tend;

pub(crate) use connection::{Connection, Serving, Spared};
pub(crate) use kept::Kept;
pub(crate) use lane::Lane;
pub use lane::LaneOptions;
