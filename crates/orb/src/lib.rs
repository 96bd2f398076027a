//! Remote objects over GIOP (CORBA 3.3 part 2): adapters that hold servants, stubs that call them, the connections
//! between. `docs/orb.md` is the tour; the types of an IDL file come from `hyoshi idl`.
//!
//! A lane is an endpoint's own listener, connections and threads. Whoever reads a request runs it, answers with one
//! write and waits for the next in a plain read: two system calls a message and side. Nothing is locked that lanes
//! share, and everything a peer can make grow is bounded ([`ServerLimits`], [`ClientLimits`]).
//!
//! ```
//! use std::sync::Arc;
//! use hyoshi_orb::{IorEndpoint, Object, Orb};
//!
//! struct Thing;
//! impl Object for Thing {} // for an interface of one's own: its trait
//!
//! let server = Orb::builder().listen("iiop://127.0.0.1:0")?.build()?;
//! let thing = server.adapter("things").build()?.activate::<dyn Object>(Arc::new(Thing))?;
//! server.publish("Thing", &thing)?;
//! server.ready(); // serves clients from now on
//!
//! let Some(IorEndpoint::Tcp { port, .. }) = server.endpoints().first() else { panic!() };
//! let client = Orb::client()?;
//! let thing = client.resolve::<dyn Object>(&format!("corbaloc:iiop:1.2@127.0.0.1:{port}/Thing"))?;
//! assert!(!thing.as_ref().non_existent()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod adapter;
mod bidir;
mod call;
mod care;
mod channel;
mod client;
pub mod cpu_broker;
pub mod current;
mod delegate;
mod endpoint;
mod failure;
mod intake;
mod intercept;
mod interface;
mod limits;
mod link;
mod object;
mod objects;
mod orb;
mod outcome;
mod promise;
mod raises;
mod resolve;
mod server;
mod shared;
mod tls;
mod transport;
mod waits;

pub use adapter::{Adapter, AdapterBuilder};
pub use bidir::Claims;
pub use call::{Call, Replied};
pub use client::Pending;
pub use endpoint::EndpointError;
pub use intercept::{ClientInterceptor, Outgoing, ServerInterceptor};
pub use interface::{Around, Collocated, Interface, Invoked, Operation, Reference};
pub use limits::{ClientLimits, Scope, ServerLimits, Timeouts};
pub use object::{Object, ObjectRef};
pub use objects::{Activator, AdapterError, Elsewhere, Locator, Passage, Servant};
pub use orb::{Orb, OrbBuilder, OrbError};
pub use raises::Raises;
pub use server::{LaneOptions, Order, OwnedLane, Request};
pub use tls::{TlsClient, TlsError, TlsIdentity, TlsRoots, TlsServer, TlsWarning, certificate_names};
pub use transport::{TransportRuleError, TransportRules};
pub use waits::around_waits;

// What generated code needs of the wire, so that one path suffices.
pub use hyoshi_os::ThreadPolicy;
pub use hyoshi_wire::giop::{ServiceContext, ServiceContexts};
pub use hyoshi_wire::ior::{Ior, IorEndpoint};
pub use hyoshi_wire::minor;
pub use hyoshi_wire::{
    Any, ByteOrder, CharSet, Completed, Counted, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError,
    Encoder, Fixed, FixedDecimal, FixedError, FromIor, LongDouble, SystemException, SystemKind, ToIor, TypeCode,
    TypeIndex, TypeKind, Typed, Types, UserException, Value, Version, WChar, WString,
};
