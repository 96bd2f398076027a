//! `any`: a value with its type (CORBA 3.3 part 2, 9.3.5.2).
//!
//! It is stored as octets in one form, whatever the byte order, version and character set of its message, and checked
//! against its type on arrival: an any needs no more memory than its octets, and can be passed on without a tree.
//! [`Any::value`] builds a tree on request.

#[cfg(test)]
mod tests;
mod transcode;
mod value;

pub use value::{ObjectValue, Value};

use alloc::{sync::Arc, vec::Vec};
use core::fmt;

use crate::cdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
use crate::typecode::{TypeCode, TypeIndex, TypeKind, Typed, Types};
use transcode::TranscodeError;

/// A value of any type: cheap to clone. Two are equal if their type codes are, and all of their values bit by bit.
///
/// ```
/// use hyoshi_wire::{Any, Value};
/// let any = Any::of(&vec![1.5, 2.5])?;
/// assert_eq!(any.type_code().to_string(), "sequence<double>");
/// assert_eq!(any.get::<Vec<f64>>()?, [1.5, 2.5]);
/// assert!(any.get::<String>().is_err());
/// assert_eq!(any.value()?, Value::Sequence(vec![Value::Double(1.5), Value::Double(2.5)]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Any {
    code: TypeCode,
    octets: Arc<[u8]>,
}

/// Why an any cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyError {
    /// It is of another type.
    OtherType {
        /// Its own.
        holds: TypeCode,
        /// The requested type.
        wanted: TypeCode,
    },
    /// The Rust type reads other octets than its type code declares.
    Decode(DecodeError),
}

impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyError::OtherType { holds, wanted } => write!(f, "the any holds {holds}, not {wanted}"),
            AnyError::Decode(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AnyError {}

impl From<DecodeError> for AnyError {
    fn from(error: DecodeError) -> Self {
        AnyError::Decode(error)
    }
}

impl Any {
    /// Of a value of a Rust type. An exception is stored without its repository id, as its members encode themselves.
    pub fn of<T: Encode + Typed + ?Sized>(value: &T) -> Result<Any, EncodeError> {
        let mut to = Encoder::kept();
        value.encode(&mut to)?;
        Ok(Any { code: T::type_code(), octets: to.into_bytes().into() })
    }

    /// Of a tree, which must match the type code.
    pub fn new(code: TypeCode, value: &Value) -> Result<Any, EncodeError> {
        let mut to = Encoder::kept();
        value.encode_as(&code, &mut to)?;
        Ok(Any { code, octets: to.into_bytes().into() })
    }

    /// Its type.
    pub fn type_code(&self) -> &TypeCode {
        &self.code
    }

    /// Its value, if it is of type `T` ([equivalence](TypeCode::is_equivalent) is enough). Texts in UTF-8 and octets
    /// can be borrowed.
    pub fn get<'a, T: Decode<'a> + Typed>(&'a self) -> Result<T, AnyError> {
        let wanted = T::type_code();
        if !self.code.is_equivalent(&wanted) {
            return Err(AnyError::OtherType { holds: self.code.clone(), wanted });
        }
        Ok(T::decode(&mut Decoder::kept(&self.octets))?)
    }

    /// Its value as a tree: about thirty octets of memory for each element.
    pub fn value(&self) -> Result<Value, DecodeError> {
        Value::decode_as(&self.code, &mut Decoder::kept(&self.octets))
    }
}

/// Of type `null`.
impl Default for Any {
    fn default() -> Self {
        Any { code: TypeCode::build(|types| types.simple(TypeKind::Null)), octets: Arc::default() }
    }
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Ok(value) => write!(f, "Any({} {value:?})", self.code),
            Err(error) => write!(f, "Any({} that is damaged: {error})", self.code),
        }
    }
}

impl Typed for Any {
    fn describe(types: &mut Types) -> TypeIndex {
        types.simple(TypeKind::Any)
    }
}

impl Encode for Any {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.code.encode(to)?;
        match transcode::transcode(&self.code, &mut Decoder::kept(&self.octets), to) {
            Ok(()) => Ok(()),
            Err(TranscodeError::Write(error)) => Err(error),
            Err(TranscodeError::Read(_)) => Err(EncodeError::Value("an any that does not match its type code")),
        }
    }
}

impl Decode<'_> for Any {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.nested(|from| {
            let code = TypeCode::decode(from)?;
            let mut to = Encoder::kept();
            transcode::checked(transcode::transcode(&code, from, &mut to), from)?;
            let octets: Vec<u8> = to.into_bytes();
            Ok(Any { code, octets: octets.into() })
        })
    }
}
