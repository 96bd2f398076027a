//! Bidirectional GIOP (CORBA 3.3 part 2, 9.8): calls both ways over one connection.
//!
//! A client offers it in the first request of a connection that it opened: service context 5 lists its listen points,
//! the addresses in its references. A server that accepts sends requests for these addresses over the connection. Request
//! ids of the client are even, those of the server odd. A client that listens nowhere can be called only in this way: its
//! references have a generated host name.
//!
//! ```text
//!             ┌───────────────────── Connection, in a lane ─────────────────────┐
//!   socket ──►│ Reader: replies ──► Mux (calls of this side)                    │
//!             │         requests ─► Duplex's queue ──► threads of the lane      │──► socket
//!             └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The reader runs no servant and never waits, so it reads a reply however many servants wait for one.

mod identity;
mod points;

pub(crate) use identity::PeerIdentity;
pub use points::Claims;
pub(crate) use points::{Announcer, CONTEXT, MOST, believed, context, is_way_back, reaches, way_back};
