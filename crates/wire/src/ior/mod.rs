//! References to objects (CORBA 3.3 part 2, 7.6 and 9.7): `IOR:`, `corbaloc:` and `corbaname:`.
//!
//! An [`Ior`] keeps every profile and component unchanged, known or not, and passes it on like that; known ones are
//! decoded on demand ([`IiopProfile`], [`Component`]).
//!
//! ```
//! use hyoshi_wire::ior::{Corbaloc, Ior, Profile};
//! use hyoshi_wire::Version;
//!
//! let profile = Profile::iiop(Version::V1_2, "host", 2809, b"Tracker", &[])?;
//! let ior = Ior { type_id: "IDL:Tracking/Tracker:1.0".into(), profiles: vec![profile] };
//! let same: Ior = ior.to_string().parse()?;
//! assert_eq!(same, ior);
//! assert_eq!(same.iiop().next().unwrap()?.key, b"Tracker");
//!
//! let place: Corbaloc = "corbaloc:iiop:1.2@host:2809/Tracker".parse()?;
//! assert_eq!(place.ior("IDL:Tracking/Tracker:1.0")?.unwrap(), ior);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod component;
mod corbaloc;
mod corbaname;
mod error;
mod name;
mod profile;
mod tags;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

pub use component::{Component, PriorityModelPolicy, SslTransport, TaoEndpoint, association_options};
pub use corbaloc::{Corbaloc, CorbalocAddress, DEFAULT_PORT};
pub use corbaname::Corbaname;
pub use error::{ReferenceError, ReferenceErrorKind};
pub use name::{NameComponent, parse_name, print_name};
pub use profile::{IiopProfile, IorEndpoint, Profile, multiple_components};
pub use tags::*;

use crate::cdr::{ByteOrder, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
use crate::tagged::{encapsulation, identifier, put_identifier};

/// A reference: the locations of an object, one for each profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ior {
    /// Repository id of the most derived interface known to the creator of the reference; can be empty.
    pub type_id: String,
    /// Locations. None: a nil reference.
    pub profiles: Vec<Profile>,
}

impl Ior {
    /// The nil reference.
    pub const NIL: Ior = Ior { type_id: String::new(), profiles: Vec::new() };

    /// Whether it is nil.
    pub fn is_nil(&self) -> bool {
        self.profiles.is_empty()
    }

    /// Its IIOP profiles, in the order of the attempts.
    pub fn iiop(&self) -> impl Iterator<Item = Result<IiopProfile<'_>, DecodeError>> {
        self.profiles.iter().filter(|profile| profile.tag == TAG_INTERNET_IOP).map(IiopProfile::decode)
    }
}

impl Encode for Ior {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        put_identifier(&self.type_id, to)?;
        self.profiles.encode(to)
    }
}

impl Decode<'_> for Ior {
    const LEAST: usize = 8;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Ior { type_id: identifier(from)?.into(), profiles: Decode::decode(from)? })
    }
}

/// `IOR:` and an encapsulation in hexadecimal (7.6.9).
impl fmt::Display for Ior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets = encapsulation(ByteOrder::Big, |to| self.encode(to)).map_err(|_| fmt::Error)?;
        f.write_str("IOR:")?;
        octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl FromStr for Ior {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Ior, ReferenceError> {
        let fail = |at, kind| ReferenceError { at, kind };
        let digits = match text.split_at_checked(4) {
            Some((scheme, digits)) if scheme.eq_ignore_ascii_case("IOR:") => digits,
            _ => return Err(fail(0, ReferenceErrorKind::Scheme)),
        };
        if let Some((at, c)) = digits.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(fail(4 + at, ReferenceErrorKind::Hex(c)));
        }
        let digit = |octet: u8| char::from(octet).to_digit(16).unwrap_or_default() as u8;
        let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
        if !odd.is_empty() {
            return Err(fail(text.len() - 1, ReferenceErrorKind::HalfOctet));
        }
        let octets: Vec<u8> = pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect();
        let read = || {
            let mut from = Decoder::encapsulated(&octets)?;
            Ior::decode(&mut from)
        };
        read().map_err(|error| fail(4 + 2 * error.at, ReferenceErrorKind::Octets(error)))
    }
}

/// A reference as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectUrl {
    /// `IOR:`
    Ior(Ior),
    /// `corbaloc:`
    Corbaloc(Corbaloc),
    /// `corbaname:`
    Corbaname(Corbaname),
}

impl FromStr for ObjectUrl {
    type Err = ReferenceError;

    /// White space around it is ignored.
    fn from_str(text: &str) -> Result<ObjectUrl, ReferenceError> {
        let before = text.len() - text.trim_start().len();
        let shift = |error: ReferenceError| ReferenceError { at: error.at + before, ..error };
        let text = text.trim();
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        match () {
            () if scheme.eq_ignore_ascii_case("corbaloc") => text.parse().map(ObjectUrl::Corbaloc),
            () if scheme.eq_ignore_ascii_case("corbaname") => text.parse().map(ObjectUrl::Corbaname),
            () => text.parse().map(ObjectUrl::Ior),
        }
        .map_err(shift)
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectUrl::Ior(ior) => ior.fmt(f),
            ObjectUrl::Corbaloc(corbaloc) => corbaloc.fmt(f),
            ObjectUrl::Corbaname(corbaname) => corbaname.fmt(f),
        }
    }
}
