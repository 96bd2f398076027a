//! CORBA on the wire, without sockets: CDR in both byte orders, GIOP 1.0 to 1.2, object references.
//!
//! Follows CORBA 3.3 part 2 (Interoperability), chapters 7 and 9. Octets are untrusted: every length is checked against
//! the received octets, and against [`Limits`], before any allocation for it. Strings and octet sequences are borrowed
//! from the message.
//!
//! ```
//! use hyoshi_wire::{ByteOrder, Decode, Decoder, Encode, Encoder};
//!
//! let mut to = Encoder::new(ByteOrder::Big);
//! 7u8.encode(&mut to)?;
//! 1.5f64.encode(&mut to)?; // aligned to eight octets
//! let bytes = to.into_bytes();
//! assert_eq!(bytes.len(), 16);
//!
//! let mut from = Decoder::new(&bytes, ByteOrder::Big);
//! assert_eq!(u8::decode(&mut from)?, 7);
//! assert_eq!(f64::decode(&mut from)?, 1.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod any;
pub mod cdr;
pub mod exception;
pub mod giop;
pub mod ior;
#[cfg(test)]
mod laws;
pub mod minor;
pub mod nilable;
mod standard;
pub mod tagged;
pub mod typecode;
pub mod types;

pub use any::{Any, Value};
pub use cdr::{
    ByteOrder, CharSet, Counted, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Limits,
    Version,
};
pub use exception::{Completed, SystemException, SystemKind, UserException};
pub use nilable::{FromIor, ToIor};
pub use typecode::{TypeCode, TypeIndex, TypeKind, Typed, Types};
pub use types::{Fixed, FixedDecimal, FixedError, LongDouble, WChar, WString};
