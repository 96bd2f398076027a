//! Components: further data about the server of a profile.

use alloc::vec::Vec;

use super::{
    POLICY_PRIORITY_BANDS, POLICY_PRIORITY_MODEL, TAG_ALTERNATE_IIOP_ADDRESS, TAG_CODE_SETS, TAG_OMNIORB_BIDIR,
    TAG_OMNIORB_UNIX_TRANS, TAG_ORB_TYPE, TAG_POLICIES, TAG_SSL_SEC_TRANS, TAG_TAO_ENDPOINTS,
};
use crate::cdr::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use crate::giop::CodeSets;
use crate::tagged::{Tagged, TaggedList, encapsulation, identifier, put_identifier};

/// A known component, read in place; others stay unchanged.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Component<'a> {
    /// The ORB that made the reference: [`orb_name`](super::orb_name).
    OrbType(u32),
    /// The server's code sets.
    CodeSets(CodeSets),
    /// The server's policies: their types, and their values as encapsulations ([`PriorityModelPolicy`], bands).
    Policies(TaggedList<'a>),
    /// Another address, equivalent to the profile's own.
    AlternateAddress {
        /// A name or address.
        host: &'a str,
        /// The port.
        port: u16,
    },
    /// TLS.
    Ssl(SslTransport),
    /// TAO's endpoints; the first is the profile's own address.
    TaoEndpoints(Vec<TaoEndpoint<'a>>),
    /// omniORB's Unix socket.
    OmniUnix {
        /// The machine's own name: the socket is useful only there.
        host: &'a str,
        /// The path.
        path: &'a str,
    },
    /// omniORB calls back over the client's connection, from this address.
    OmniBidir(&'a str),
    /// Any other.
    Other(Tagged<'a>),
}

/// TLS in a reference (`SSLIOP::SSL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SslTransport {
    /// The options that the server supports; bits as [`association_options`] names them.
    pub supports: u16,
    /// The options that it requires.
    pub requires: u16,
    /// The port, on the profile's host.
    pub port: u16,
}

/// An endpoint and the priority of the lane behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaoEndpoint<'a> {
    /// A name or address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The CORBA priority; -1 without lanes.
    pub priority: i16,
}

/// Policy 40: which side sets the priority of a request (Real-time CORBA 1.2, 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityModelPolicy {
    /// The client, with each request; otherwise the server, for each object.
    pub client_propagated: bool,
    /// Of requests without a priority, or of the object.
    pub priority: i16,
}

impl PriorityModelPolicy {
    /// Reads the policy, if it is one.
    ///
    /// # Errors
    ///
    /// For damaged octets.
    pub fn read(policy: Tagged<'_>) -> Result<Option<PriorityModelPolicy>, DecodeError> {
        if policy.tag != POLICY_PRIORITY_MODEL {
            return Ok(None);
        }
        let mut from = Decoder::encapsulated(policy.data)?;
        let client_propagated = match u32::decode(&mut from)? {
            0 => true,
            1 => false,
            _ => return Err(from.error(DecodeErrorKind::Value("an unknown priority model"))),
        };
        Ok(Some(PriorityModelPolicy { client_propagated, priority: i16::decode(&mut from)? }))
    }

    /// The policy's value, for [`TAG_POLICIES`].
    ///
    /// # Errors
    ///
    /// Never fails for a value of this type.
    pub fn data(&self) -> Result<Vec<u8>, EncodeError> {
        encapsulation(ByteOrder::Big, |to| {
            u32::from(!self.client_propagated).encode(to)?;
            self.priority.encode(to)
        })
    }

    /// The value of the policy with these bands (45).
    ///
    /// # Errors
    ///
    /// Beyond 2^32 bands.
    pub fn bands_data(bands: &[[i16; 2]]) -> Result<Vec<u8>, EncodeError> {
        encapsulation(ByteOrder::Big, |to| bands.encode(to))
    }

    /// Reads bands of priorities, the lowest and highest of each, if the policy is that (45).
    ///
    /// # Errors
    ///
    /// For damaged octets.
    pub fn read_bands(policy: Tagged<'_>) -> Result<Option<Vec<[i16; 2]>>, DecodeError> {
        if policy.tag != POLICY_PRIORITY_BANDS {
            return Ok(None);
        }
        Decode::decode(&mut Decoder::encapsulated(policy.data)?).map(Some)
    }
}

impl<'a> Component<'a> {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// For a known component with invalid octets.
    pub fn decode(tagged: Tagged<'a>) -> Result<Component<'a>, DecodeError> {
        let from = &mut match tagged.tag {
            TAG_ORB_TYPE
            | TAG_CODE_SETS
            | TAG_POLICIES
            | TAG_ALTERNATE_IIOP_ADDRESS
            | TAG_SSL_SEC_TRANS
            | TAG_TAO_ENDPOINTS
            | TAG_OMNIORB_UNIX_TRANS
            | TAG_OMNIORB_BIDIR => Decoder::encapsulated(tagged.data)?,
            _ => return Ok(Component::Other(tagged)),
        };
        Ok(match tagged.tag {
            TAG_ORB_TYPE => Component::OrbType(u32::decode(from)?),
            TAG_CODE_SETS => Component::CodeSets(Decode::decode(from)?),
            TAG_POLICIES => Component::Policies(Decode::decode(from)?),
            TAG_ALTERNATE_IIOP_ADDRESS => {
                Component::AlternateAddress { host: identifier(from)?, port: u16::decode(from)? }
            }
            TAG_SSL_SEC_TRANS => Component::Ssl(SslTransport {
                supports: u16::decode(from)?,
                requires: u16::decode(from)?,
                port: u16::decode(from)?,
            }),
            TAG_TAO_ENDPOINTS => Component::TaoEndpoints(Decode::decode(from)?),
            TAG_OMNIORB_UNIX_TRANS => Component::OmniUnix { host: identifier(from)?, path: identifier(from)? },
            TAG_OMNIORB_BIDIR => Component::OmniBidir(identifier(from)?),
            _ => Component::Other(tagged),
        })
    }

    /// Its tag.
    pub fn tag(&self) -> u32 {
        match self {
            Component::OrbType(_) => TAG_ORB_TYPE,
            Component::CodeSets(_) => TAG_CODE_SETS,
            Component::Policies(_) => TAG_POLICIES,
            Component::AlternateAddress { .. } => TAG_ALTERNATE_IIOP_ADDRESS,
            Component::Ssl(_) => TAG_SSL_SEC_TRANS,
            Component::TaoEndpoints(_) => TAG_TAO_ENDPOINTS,
            Component::OmniUnix { .. } => TAG_OMNIORB_UNIX_TRANS,
            Component::OmniBidir(_) => TAG_OMNIORB_BIDIR,
            Component::Other(tagged) => tagged.tag,
        }
    }

    /// Its data, for a profile.
    ///
    /// # Errors
    ///
    /// For a text with a NUL inside.
    pub fn data(&self) -> Result<Vec<u8>, EncodeError> {
        encapsulation(ByteOrder::Big, |to| match self {
            Component::OrbType(orb) => orb.encode(to),
            Component::CodeSets(sets) => sets.encode(to),
            Component::Policies(policies) => {
                to.length(policies.len())?;
                policies.clone().try_for_each(|policy| policy.encode(to))
            }
            Component::AlternateAddress { host, port } => {
                put_identifier(host, to)?;
                port.encode(to)
            }
            Component::Ssl(ssl) => [ssl.supports, ssl.requires, ssl.port].encode(to),
            Component::TaoEndpoints(endpoints) => endpoints.encode(to),
            Component::OmniUnix { host, path } => {
                put_identifier(host, to)?;
                put_identifier(path, to)
            }
            Component::OmniBidir(sendfrom) => put_identifier(sendfrom, to),
            Component::Other(tagged) => {
                to.truncate(0);
                to.raw(tagged.data);
                Ok(())
            }
        })
    }
}

impl Encode for TaoEndpoint<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        put_identifier(self.host, to)?;
        self.port.encode(to)?;
        self.priority.encode(to)
    }
}

impl<'a> Decode<'a> for TaoEndpoint<'a> {
    const LEAST: usize = 8;

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(TaoEndpoint { host: identifier(from)?, port: u16::decode(from)?, priority: i16::decode(from)? })
    }
}

/// The names of the bits that [`SslTransport`] has (`Security::AssociationOptions`).
pub fn association_options(bits: u16) -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 12] = [
        "NoProtection",
        "Integrity",
        "Confidentiality",
        "DetectReplay",
        "DetectMisordering",
        "EstablishTrustInTarget",
        "EstablishTrustInClient",
        "NoDelegation",
        "SimpleDelegation",
        "CompositeDelegation",
        "IdentityAssertion",
        "DelegationByClient",
    ];
    NAMES.iter().enumerate().filter(move |(bit, _)| bits & (1 << bit) != 0).map(|(_, name)| *name)
}
