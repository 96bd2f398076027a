//! OMG's naming service (CosNaming, Naming Service 1.3): types, a client ([`Naming`]) and a service
//! ([`NamingService`]) over the ORB.
//!
//! `hyoshi idl` writes the types, traits and stubs from `idl/CosNaming.idl`.
//!
//! ```
//! use hyoshi_naming::{Naming, NamingLimits, NamingService};
//! use hyoshi_orb::{IorEndpoint, Object, ObjectRef, Orb};
//!
//! let server = Orb::builder().listen("iiop://127.0.0.1:0")?.build()?;
//! let _service = NamingService::start(&server, None, NamingLimits::default())?;
//! server.ready();
//!
//! let Some(IorEndpoint::Tcp { port, .. }) = server.endpoints().first() else { panic!() };
//! let client = Orb::client()?;
//! let names = Naming::at(&client, &format!("corbaloc:iiop:1.2@127.0.0.1:{port}/NameService"))?;
//! names.new_context("plant")?;
//! let plant: ObjectRef = names.resolve::<dyn Object>("plant")?;
//! assert!(plant.as_ref().is_a("IDL:omg.org/CosNaming/NamingContext:1.0")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod client;
mod context;
mod generated;
mod iterators;
mod name;
mod refused;
mod service;
mod store;
mod tree;

pub use client::{Listed, NameError, Naming};
pub use generated::cos_naming::*;
pub use service::{KEY, NamingService, NamingServiceError};
pub use store::StoreError;
pub use tree::NamingLimits;
