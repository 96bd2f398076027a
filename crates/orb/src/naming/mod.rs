//! Naming: OMG's CosNaming (Naming Service 1.3), as types, a client and a service.
//!
//! The types, traits and stubs are written by `hyoshi idl` from `idl/CosNaming.idl`.

mod client;
mod context;
mod generated;
mod iterators;
mod refused;
mod service;
mod store;
mod tree;

pub use client::{Listed, NameError, Naming};
pub use generated::cos_naming::*;
pub use service::{KEY, NamingService, NamingServiceError};
pub use store::StoreError;
pub use tree::NamingLimits;
