//! One node per host: a system over several processes, usually on several machines.
//!
//! [`NodePeers`] connects the node of one host, made with [`hyoshi_runtime::Node::for_host`], to the nodes of the other
//! hosts. They agree on instant 0 ([`agreement`]), compare their clocks ([`offset`]), and send each other completions
//! and outputs for replicas over IIOP (`idl/node.idl`). Completions may use a [`CompletionCarrier`] instead. If a host
//! is late, lost or restarted, the other hosts report it and continue. `docs/node.md` is the tour. [`Objects`] serves
//! objects of the file, [`CorbaEvents`] its events.
//!
//! ```text
//!   completing lane ─► ring ─► sender's thread ═ IIOP ═► thread of the ORB ─► ring ─► dispatcher ─► lane
//!                        └─► the lane, for threads of chains ═ IIOP ═►┘
//!                                contact's thread ═ introduce, exchange ═► thread of the ORB
//! ```
//!
//! The threads of the ORB and the senders are above the lanes, at the priority of release threads: their work for one
//! completion lasts some microseconds, and a peer may send twice the rates in the file. Calls of clients that are not
//! peers are delayed (`strangers`).

#![forbid(unsafe_code)]

pub mod agreement;
mod callers;
mod carrier;
mod ceilings;
mod contact;
mod control;
pub mod corba_events;
mod delegates;
mod departures;
pub mod jobs;
pub mod objects;
pub mod offset;
mod operators;
mod outlet;
mod payload;
mod peer;
mod peer_links;
mod peers;
mod proxies;
mod rates;
mod servant_delegates;
mod servant_error;
mod served;
mod shared;
mod strangers;
mod threads;
mod watched_events;

pub use carrier::{ArrivingCompletions, CarriedClass, CarrierError, CompletionCarrier, CompletionSender, completion};
pub use contact::corbaloc;
pub use control::{ClientError, KEY, NodeClient, folder, sockets};
pub use corba_events::CorbaEvents;
pub use jobs::{JobOrder, OperationBindError, ServedLane, calls_of_jobs};
pub use objects::{InstalledObjects, Objects, ServingObjects, object};
pub use operators::WholeSystem;
pub use payload::IdlPayload;
pub use peer::PeerLink;
pub use peers::{Agreed, NodeError, NodePeers, NodeSettings, PeerClocks, Tls};
pub use servant_error::ServantError;
pub use served::ENDED;
pub use shared::PeerEvent;

/// The interfaces of nodes in Rust, from `idl/node.idl`, those of OMG's event service, and those for
/// clients of feedback loops.
pub mod idl {
    include!(concat!(env!("OUT_DIR"), "/node.rs"));
    include!(concat!(env!("OUT_DIR"), "/CosEvent.rs"));
    include!(concat!(env!("OUT_DIR"), "/rates.rs"));
}
