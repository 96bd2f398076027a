//! Parameters and members that are object references: they can be nil, so in Rust they are `Option<Stub>`.

use crate::cdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
use crate::ior::Ior;

/// The reference of a stub.
pub trait ToIor {
    /// The reference.
    fn to_ior(&self) -> &Ior;
}

/// A stub from a received reference.
pub trait FromIor {
    /// The stub; the reference is not nil.
    fn from_ior(ior: Ior) -> Self;
}

impl<T: ToIor> ToIor for &T {
    fn to_ior(&self) -> &Ior {
        (**self).to_ior()
    }
}

/// None is the nil reference.
impl<T: ToIor> Encode for Option<T> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.as_ref().map_or(&Ior::NIL, ToIor::to_ior).encode(to)
    }
}

/// The nil reference is `None`.
impl<T: FromIor> Decode<'_> for Option<T> {
    const LEAST: usize = Ior::LEAST;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let ior = Ior::decode(from)?;
        Ok((!ior.is_nil()).then(|| T::from_ior(ior)))
    }
}
