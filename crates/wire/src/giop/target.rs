//! The object of a request (9.4.2.1): by key, and in 1.2 also by profile or whole reference.

use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};
use crate::ior::TAG_INTERNET_IOP;
use crate::tagged::{Tagged, TaggedList, identifier, put_identifier};

/// How a request names its object.
///
/// Send only [`Key`](Target::Key): omniORB answers the others with UNKNOWN instead of requesting a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Target<'a> {
    /// By object key (`KeyAddr`).
    Key(&'a [u8]),
    /// By a profile of its reference (`ProfileAddr`).
    Profile(Tagged<'a>),
    /// By its reference (`ReferenceAddr`).
    Reference {
        /// The repository id of the reference.
        type_id: &'a str,
        /// Its profiles.
        profiles: TaggedList<'a>,
        /// The profile that the client chose.
        selected: Tagged<'a>,
    },
}

/// The form that a server requests if it does not support the received one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// By key.
    Key,
    /// By profile.
    Profile,
    /// By reference.
    Reference,
}

impl Encode for Addressing {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        (*self as u16).encode(to)
    }
}

impl Decode<'_> for Addressing {
    const LEAST: usize = 2;

    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u16::decode(from)? {
            0 => Ok(Addressing::Key),
            1 => Ok(Addressing::Profile),
            2 => Ok(Addressing::Reference),
            _ => Err(from.error(DecodeErrorKind::Value("an unknown form of addressing"))),
        }
    }
}

impl<'a> Target<'a> {
    /// The object key; for the other two forms the one in the IIOP profile.
    ///
    /// # Errors
    ///
    /// For a profile that is not IIOP, or is damaged: request a key ([`ReplyStatus::NeedsAddressingMode`]).
    ///
    /// [`ReplyStatus::NeedsAddressingMode`]: super::ReplyStatus::NeedsAddressingMode
    #[inline]
    pub fn key(&self) -> Result<&'a [u8], DecodeError> {
        match self {
            Target::Key(key) => Ok(key),
            Target::Profile(profile) | Target::Reference { selected: profile, .. } => key_within(*profile),
        }
    }

    /// The rest of one in this form.
    #[cold]
    pub(super) fn decode_form(form: Addressing, from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match form {
            Addressing::Key => Decode::decode(from).map(Target::Key),
            Addressing::Profile => Tagged::decode(from).map(Target::Profile),
            Addressing::Reference => whole_reference(from),
        }
    }
}

/// An IIOP profile's key: version, host, port, key (9.7.2), without reading the rest.
fn key_within(profile: Tagged<'_>) -> Result<&[u8], DecodeError> {
    if profile.tag != TAG_INTERNET_IOP {
        let kind = DecodeErrorKind::Unsupported("targets by a profile that is not IIOP");
        return Err(DecodeError { at: 0, kind });
    }
    let mut from = Decoder::encapsulated(profile.data)?;
    from.raw(2)?;
    <&[u8]>::decode(&mut from)?;
    u16::decode(&mut from)?;
    Decode::decode(&mut from)
}

/// The bare key up to 1.1, the union of 1.2.
impl Encode for Target<'_> {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        if to.version() < Version::V1_2 {
            let Target::Key(key) = self else {
                return Err(EncodeError::NotInVersion("addressing by profile or reference"));
            };
            return key.encode(to);
        }
        match self {
            Target::Key(key) => {
                Addressing::Key.encode(to)?;
                key.encode(to)
            }
            Target::Profile(profile) => {
                Addressing::Profile.encode(to)?;
                profile.encode(to)
            }
            Target::Reference { type_id, profiles, selected } => {
                Addressing::Reference.encode(to)?;
                let index = profiles.clone().position(|profile| profile == *selected);
                let index = index.ok_or(EncodeError::Value("the selected profile is not in the reference"))?;
                to.length(index)?;
                put_identifier(type_id, to)?;
                to.length(profiles.len())?;
                profiles.clone().try_for_each(|profile| profile.encode(to))
            }
        }
    }
}

impl<'a> Decode<'a> for Target<'a> {
    const LEAST: usize = 4;

    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if from.version() < Version::V1_2 {
            return Decode::decode(from).map(Target::Key);
        }
        Target::decode_form(Addressing::decode(from)?, from)
    }
}

fn whole_reference<'a>(from: &mut Decoder<'a>) -> Result<Target<'a>, DecodeError> {
    let index = u32::decode(from)? as usize;
    let type_id = identifier(from)?;
    let profiles = TaggedList::decode(from)?;
    let selected = profiles
        .clone()
        .nth(index)
        .ok_or_else(|| from.error(DecodeErrorKind::Value("a selected profile beyond the last")))?;
    Ok(Target::Reference { type_id, profiles, selected })
}
