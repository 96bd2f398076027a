//! The server's side: lanes take connections, read requests and run them.

mod both;
mod calls;
mod connection;
mod doorway;
mod duplex;
mod fair;
mod handshakes;
mod kept;
mod lane;
mod linger;
mod order;
mod owned;
mod reading;
mod replies;
mod serve;
mod table;
mod tend;

pub(crate) use connection::{Connection, Serving, Spared};
pub(crate) use lane::Lane;
pub use lane::LaneOptions;
pub use order::{Order, Request};
pub use owned::OwnedLane;
