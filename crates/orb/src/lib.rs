//! Remote objects over GIOP (CORBA 3.3 part 2): adapters with servants, stubs that call them, and connections.
//! `docs/orb.md` is a tour; `hyoshi idl` writes the types of an IDL file.
//!
//! A lane has endpoints with their connections, and threads. The thread that reads a request runs it, replies with one
//! write and waits for the next request in a read: two system calls. Lanes share no lock, and all resources that a peer
//! can use are bounded ([`ServerLimits`], [`ClientLimits`]).
//!
//! ```
//! use std::sync::Arc;
//! use hyoshi_orb::{IorEndpoint, Object, Orb};
//!
//! struct Thing;
//! impl Object for Thing {} // or the trait of your interface
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
//!
//! The modules, in layers; each uses only modules beside and below it:
//!
//! ```text
//!   orb, adapter, resolve, delegate          what a program builds and configures
//!   interface, invocation │ server           references and their calls │ lanes: connections and threads of a server
//!   shared                                   the state of one ORB
//!   objects │ client                         adapters and servants │ connections to servers
//!   current, bidir, socket, tls, channel     one connection; `channel` is its protocol, without I/O
//! ```
//!
//! [`rt`] is Real-time CORBA: policies and priorities for all layers, and on top its schedulers.

#![forbid(unsafe_code)]

mod adapter;
pub mod behaviour;
mod bidir;
mod call;
mod call_delegates;
mod channel;
mod client;
pub mod cpu_broker;
pub mod current;
mod delegate;
mod endpoint;
mod failure;
mod housekeeping;
mod intercept;
mod interface;
mod invocation;
mod key;
mod limits;
mod objects;
mod orb;
mod outcome;
mod promise;
pub mod proxy;
mod raises;
mod resolve;
pub mod rt;
mod server;
mod shared;
mod socket;
mod stream;
mod tls;
mod transport;
mod waits;

pub use adapter::{Adapter, AdapterBuilder};
pub use bidir::Claims;
pub use call::{Call, Replied};
pub use call_delegates::{CallDelegateError, CallDelegates};
pub use endpoint::ListenError;
pub use intercept::{ClientInterceptor, Outgoing, ServerInterceptor};
pub use interface::{Around, Collocated, Interface, Invoked, Object, ObjectRef, Reference, StubOperation};
pub use invocation::Pending;
pub use limits::{ClientLimits, ServerLimits, SyncScope, Timeouts};
pub use objects::{Activator, AdapterError, Elsewhere, Locator, Passage, Servant};
pub use orb::{Orb, OrbBuilder, OrbError};
pub use raises::Raises;
pub use server::{LaneOptions, LaneTurn, Order, OrderedRequest, OwnedLane, RequestClient};
pub use tls::{TlsClient, TlsError, TlsIdentity, TlsRoots, TlsServer, TlsWarning, certificate_names};
pub use transport::{Transport, TransportRuleError, TransportRules};
pub use waits::around_waits;

// For generated code, which uses only this crate.
pub use hyoshi_os::ThreadPolicy;
pub use hyoshi_wire::giop::{ServiceContext, ServiceContexts};
pub use hyoshi_wire::ior::{Ior, IorEndpoint};
pub use hyoshi_wire::minor;
pub use hyoshi_wire::{
    Any, ByteOrder, CharSet, Completed, Counted, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError,
    Encoder, Fixed, FixedDecimal, FixedError, FromIor, LongDouble, SystemException, SystemKind, ToIor, TypeCode,
    TypeIndex, TypeKind, Typed, Types, UserException, Value, Version, WChar, WString,
};
