//! Exceptions of operations.

use std::fmt::Debug;

use hyoshi_wire::{DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException};

/// The exceptions of an operation: an enum of its declared ones and [`SystemException`], or only [`SystemException`].
pub trait Raises: From<SystemException> + Debug {
    /// The declared exception with this repository id. `None` if it is not declared.
    fn decode(id: &str, from: &mut Decoder<'_>) -> Option<Result<Self, DecodeError>>;

    /// The repository id of the exception.
    fn id(&self) -> &'static str;

    /// Writes the members, without the id.
    ///
    /// # Errors
    ///
    /// If a value cannot be encoded on the connection.
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError>;

    /// The standard exception, if it is one.
    fn system(&self) -> Option<&SystemException>;
}

/// For operations that declare nothing.
impl Raises for SystemException {
    fn decode(_: &str, _: &mut Decoder<'_>) -> Option<Result<Self, DecodeError>> {
        None
    }

    fn id(&self) -> &'static str {
        self.kind.id()
    }

    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        Encode::encode(self, to)
    }

    fn system(&self) -> Option<&SystemException> {
        Some(self)
    }
}
