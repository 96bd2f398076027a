//! Bidirectional GIOP (CORBA 3.3 part 2, 9.8): calls both ways over one connection.
//!
//! A client offers it: in the first request of a connection that it opened it tells the addresses that its references
//! name (its listen points, service context 5), and from then on carries out what comes over that connection. A server
//! that accepts it sends its requests to those addresses over the connection, under odd request ids; the client's are
//! even. A client that listens nowhere is reached in no other way: its references name a host that nobody has.
//!
//! ```text
//!             ┌───────────────────── Connection, in a lane ─────────────────────┐
//!   socket ──►│ Reader: replies ──► Mux (calls of this side)                    │
//!             │         requests ─► Duplex's queue ──► threads of the lane      │──► socket
//!             └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The reader runs no servant and never waits. So a reply is always read, however many servants wait for one.

mod points;
mod whose;

pub use points::Claims;
pub(crate) use points::{Announcer, CONTEXT, MOST, believed, context, is_way_back, reaches, way_back};
pub(crate) use whose::Whose;
