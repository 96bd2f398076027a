//! Profiles: locations of an object.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Component, TAG_INTERNET_IOP, TAG_MULTIPLE_COMPONENTS};
use crate::cdr::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};
use crate::tagged::{Tagged, TaggedList, encapsulation, identifier, put_identifier};

/// A location of an object, undecoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// [`TAG_INTERNET_IOP`] or another.
    pub tag: u32,
    /// Its data; passed on unchanged.
    pub data: Vec<u8>,
}

impl Profile {
    /// An IIOP profile. In version 1.0 it has no components.
    ///
    /// # Errors
    ///
    /// For components in version 1.0; a host with a NUL inside.
    pub fn iiop(
        version: Version,
        host: &str,
        port: u16,
        key: &[u8],
        components: &[Tagged<'_>],
    ) -> Result<Profile, EncodeError> {
        let data = encapsulation(ByteOrder::Big, |to| {
            to.raw(&version.octets());
            put_identifier(host, to)?;
            port.encode(to)?;
            key.encode(to)?;
            match version {
                Version::V1_0 if components.is_empty() => Ok(()),
                Version::V1_0 => Err(EncodeError::NotInVersion("components of profiles")),
                _ => components.encode(to),
            }
        })?;
        Ok(Profile { tag: TAG_INTERNET_IOP, data })
    }

    /// As in a message.
    pub fn tagged(&self) -> Tagged<'_> {
        Tagged { tag: self.tag, data: &self.data }
    }
}

impl Encode for Profile {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.tagged().encode(to)
    }
}

impl Decode<'_> for Profile {
    const LEAST: usize = Tagged::LEAST;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let Tagged { tag, data } = Tagged::decode(from)?;
        Ok(Profile { tag, data: data.into() })
    }
}

/// The data of an IIOP profile (9.7.2), read in place.
#[derive(Clone, Debug, PartialEq)]
pub struct IiopProfile<'a> {
    /// Of IIOP 1: a client uses at most its own version.
    pub minor: u8,
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: &'a str,
    /// Zero if the object is reached only by a component: TLS, a Unix socket.
    pub port: u16,
    /// The object key.
    pub key: &'a [u8],
    /// Further data; from 1.1 on.
    pub components: TaggedList<'a>,
}

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IorEndpoint {
    /// TCP.
    Tcp {
        /// A name or address.
        host: String,
        /// The port.
        port: u16,
        /// The CORBA priority of the lane behind it (TAO); none if it is for all.
        priority: Option<i16>,
    },
    /// TLS over TCP.
    Tls {
        /// A name or address.
        host: String,
        /// The port.
        port: u16,
        /// The options that the server requires.
        requires: u16,
    },
    /// A Unix socket of this machine.
    Unix {
        /// The machine of the socket, by its own name.
        host: String,
        /// The path.
        path: String,
    },
}

impl<'a> IiopProfile<'a> {
    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// For another tag; major version other than 1; damaged octets.
    pub fn decode(profile: &'a Profile) -> Result<Self, DecodeError> {
        if profile.tag != TAG_INTERNET_IOP {
            let kind = DecodeErrorKind::Unsupported("profiles other than IIOP");
            return Err(DecodeError { at: 0, kind });
        }
        let mut from = Decoder::encapsulated(&profile.data)?;
        let &[1, minor] = from.raw(2)? else {
            return Err(from.error(DecodeErrorKind::Unsupported("versions of IIOP other than 1")));
        };
        let host = identifier(&mut from)?;
        let port = u16::decode(&mut from)?;
        let key = Decode::decode(&mut from)?;
        // Some ORBs omit an empty list.
        let components = if minor == 0 || from.left() == 0 { TaggedList::empty() } else { Decode::decode(&mut from)? };
        Ok(IiopProfile { minor, host, port, key, components })
    }

    /// The version to use with the server.
    pub fn version(&self) -> Version {
        Version::from_octets(1, self.minor).unwrap_or_default()
    }

    /// All addresses of the server: the profile's own, then those of its components. Damaged components are omitted,
    /// because unknown ones must be ignored too.
    pub fn endpoints(&self) -> Vec<IorEndpoint> {
        let tcp = |host: &str, port, priority| IorEndpoint::Tcp { host: host.into(), port, priority };
        let mut all = Vec::new();
        let mut tao = Vec::new();
        if self.port != 0 {
            all.push(tcp(self.host, self.port, None));
        }
        for component in self.components.clone() {
            match Component::decode(component) {
                Ok(Component::AlternateAddress { host, port }) => all.push(tcp(host, port, None)),
                Ok(Component::Ssl(ssl)) => {
                    all.push(IorEndpoint::Tls { host: self.host.into(), port: ssl.port, requires: ssl.requires });
                }
                Ok(Component::OmniUnix { host, path }) => {
                    all.push(IorEndpoint::Unix { host: host.into(), path: path.into() });
                }
                Ok(Component::TaoEndpoints(endpoints)) => tao = endpoints,
                _ => {}
            }
        }
        // The first repeats the profile's own address, now with its priority.
        for endpoint in tao {
            let priority = (endpoint.priority >= 0).then_some(endpoint.priority);
            let plain = tcp(endpoint.host, endpoint.port, None);
            match all.iter_mut().find(|known| **known == plain) {
                Some(known) => *known = tcp(endpoint.host, endpoint.port, priority),
                None => all.push(tcp(endpoint.host, endpoint.port, priority)),
            }
        }
        all
    }
}

/// The components of a profile that has nothing else (7.6.4).
///
/// # Errors
///
/// For another tag; damaged octets.
pub fn multiple_components(profile: &Profile) -> Result<TaggedList<'_>, DecodeError> {
    if profile.tag != TAG_MULTIPLE_COMPONENTS {
        let kind = DecodeErrorKind::Unsupported("profiles that hold more than components");
        return Err(DecodeError { at: 0, kind });
    }
    Decode::decode(&mut Decoder::encapsulated(&profile.data)?)
}
