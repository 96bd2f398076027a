//! The server's side: lanes take connections, read requests and run them.

mod accept;
mod connection;
mod duplex;
mod duplex_reader;
mod fair;
mod handshakes;
mod lane;
mod linger;
mod order;
mod owned;
mod reading;
mod serve;
mod table;
mod tick;

pub(crate) use connection::{Connection, Serving, Spared};
pub(crate) use lane::Lane;
pub use lane::LaneOptions;
pub use order::{Order, Request};
pub use owned::OwnedLane;
