//! Values of types that are known only at run time.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::Any;
use super::transcode::{skip_id, unsupported, width};
use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use crate::typecode::{TypeCode, TypeIndex, TypeKind, TypeNode, case, read_label, unaliased, write_label};
use crate::types::{FixedDecimal, LongDouble, WChar, WString, read_packed, write_packed};

/// A value as a tree; its type code determines its meaning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Of `null` and `void`.
    Null,
    /// `short`.
    Short(i16),
    /// `long`.
    Long(i32),
    /// `unsigned short`.
    UShort(u16),
    /// `unsigned long`.
    ULong(u32),
    /// `long long`.
    LongLong(i64),
    /// `unsigned long long`.
    ULongLong(u64),
    /// `float`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// `long double`.
    LongDouble(Box<LongDouble>),
    /// `boolean`.
    Boolean(bool),
    /// `char`.
    Char(char),
    /// `wchar`.
    WChar(WChar),
    /// `octet`.
    Octet(u8),
    /// `string`.
    String(String),
    /// `wstring`.
    WString(WString),
    /// `fixed`.
    Fixed(Box<FixedDecimal>),
    /// An enumerator, by its position.
    Enum(u32),
    /// The members of a struct or exception, in order.
    Struct(Vec<Value>),
    /// A union.
    Union {
        /// The discriminator, as [`Types::union`](crate::Types::union) has labels.
        label: Box<i128>,
        /// None if no case has the label.
        value: Option<Box<Value>>,
    },
    /// The elements of a sequence or array.
    Sequence(Vec<Value>),
    /// A sequence or array of octets.
    Octets(Vec<u8>),
    /// An object reference.
    Object(Box<ObjectValue>),
    /// A type code.
    TypeCode(TypeCode),
    /// `any`.
    Any(Box<Any>),
}

/// An object reference as in a message; nil without profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectValue {
    /// Repository id of the interface; empty for any.
    pub id: String,
    /// Tag and octets of each.
    pub profiles: Vec<(u32, Vec<u8>)>,
}

impl Value {
    /// Writes it as a value of this type.
    pub fn encode_as(&self, code: &TypeCode, to: &mut Encoder) -> Result<(), EncodeError> {
        self.write(code.nodes(), code.root, to)
    }

    /// Reads a value of this type.
    pub fn decode_as(code: &TypeCode, from: &mut Decoder<'_>) -> Result<Value, DecodeError> {
        Value::read(code.nodes(), code.root, from)
    }

    fn write(&self, nodes: &[TypeNode], of: TypeIndex, to: &mut Encoder) -> Result<(), EncodeError> {
        const OTHER: EncodeError = EncodeError::Value("a value of another type than its type code");
        let of = unaliased(nodes, of);
        let Some(node) = of.place().map(|place| &nodes[place]) else {
            return match (of.simple(), self) {
                (Some(TypeKind::Null | TypeKind::Void), Value::Null) => Ok(()),
                (Some(TypeKind::Short), Value::Short(value)) => value.encode(to),
                (Some(TypeKind::Long), Value::Long(value)) => value.encode(to),
                (Some(TypeKind::UShort), Value::UShort(value)) => value.encode(to),
                (Some(TypeKind::ULong), Value::ULong(value)) => value.encode(to),
                (Some(TypeKind::LongLong), Value::LongLong(value)) => value.encode(to),
                (Some(TypeKind::ULongLong), Value::ULongLong(value)) => value.encode(to),
                (Some(TypeKind::Float), Value::Float(value)) => value.encode(to),
                (Some(TypeKind::Double), Value::Double(value)) => value.encode(to),
                (Some(TypeKind::LongDouble), Value::LongDouble(value)) => value.encode(to),
                (Some(TypeKind::Boolean), Value::Boolean(value)) => value.encode(to),
                (Some(TypeKind::Char), Value::Char(value)) => value.encode(to),
                (Some(TypeKind::WChar), Value::WChar(value)) => value.encode(to),
                (Some(TypeKind::Octet), Value::Octet(value)) => value.encode(to),
                (Some(TypeKind::TypeCode), Value::TypeCode(value)) => value.encode(to),
                (Some(TypeKind::Any), Value::Any(value)) => value.encode(to),
                _ => Err(OTHER),
            };
        };
        let bounded = |got, most: u32, to: &Encoder| if most == 0 { Ok(()) } else { to.bounded(got, most as usize) };
        match (node, self) {
            (TypeNode::String(most), Value::String(text)) => {
                bounded(text.chars().count(), *most, to)?;
                text.encode(to)
            }
            (TypeNode::WString(most), Value::WString(text)) => {
                bounded(text.encode_utf16().count(), *most, to)?;
                text.encode(to)
            }
            (TypeNode::Fixed { digits, scale }, Value::Fixed(value)) => {
                let value = value.rescaled(*digits, *scale);
                let value = value.map_err(|_| EncodeError::Value("a number that its fixed type cannot hold"))?;
                write_packed(value.unscaled, *digits, to)
            }
            (TypeNode::Sequence { of, most }, Value::Sequence(items)) => {
                bounded(items.len(), *most, to)?;
                to.length(items.len())?;
                items.iter().try_for_each(|item| item.write(nodes, *of, to))
            }
            (TypeNode::Sequence { of, most }, Value::Octets(octets)) if is_octet(nodes, *of) => {
                bounded(octets.len(), *most, to)?;
                octets.encode(to)
            }
            (TypeNode::Array { of, length }, Value::Sequence(items)) if items.len() == *length as usize => {
                items.iter().try_for_each(|item| item.write(nodes, *of, to))
            }
            (TypeNode::Array { of, length }, Value::Octets(octets))
                if is_octet(nodes, *of) && octets.len() == *length as usize =>
            {
                to.raw(octets);
                Ok(())
            }
            (TypeNode::Named { kind: TypeKind::Object, .. }, Value::Object(object)) => {
                object.id.encode(to)?;
                to.length(object.profiles.len())?;
                object.profiles.iter().try_for_each(|(tag, octets)| {
                    tag.encode(to)?;
                    octets.encode(to)
                })
            }
            (TypeNode::Enum { names, .. }, Value::Enum(place)) if (*place as usize) < names.len() => place.encode(to),
            (TypeNode::Struct { exception, id, members, .. }, Value::Struct(values))
                if members.len() == values.len() =>
            {
                if *exception && !to.kept {
                    id.encode(to)?;
                }
                members.iter().zip(values).try_for_each(|((_, of), value)| value.write(nodes, *of, to))
            }
            (TypeNode::Union { discriminator, cases, by_label, .. }, Value::Union { label, value }) => {
                write_label(nodes, *discriminator, **label, to)?;
                match (case(cases, by_label, **label), value) {
                    (Some(of), Some(value)) => value.write(nodes, of, to),
                    (None, None) => Ok(()),
                    _ => Err(OTHER),
                }
            }
            _ => Err(OTHER),
        }
    }

    fn read(nodes: &[TypeNode], of: TypeIndex, from: &mut Decoder<'_>) -> Result<Value, DecodeError> {
        let of = unaliased(nodes, of);
        let Some(node) = of.place().map(|place| &nodes[place]) else {
            return Value::read_simple(of.simple().unwrap_or(TypeKind::Null), from);
        };
        let bounded = |got, most: u32, at: &Decoder<'_>| match most as usize {
            most if most != 0 && got > most => Err(at.error(DecodeErrorKind::Bound { most, got })),
            _ => Ok(()),
        };
        Ok(match node {
            TypeNode::String(most) => {
                let text = String::decode(from)?;
                bounded(text.chars().count(), *most, from)?;
                Value::String(text)
            }
            TypeNode::WString(most) => {
                let text = WString::decode(from)?;
                bounded(text.encode_utf16().count(), *most, from)?;
                Value::WString(text)
            }
            TypeNode::Fixed { digits, scale } => {
                Value::Fixed(Box::new(FixedDecimal { unscaled: read_packed(*digits, from)?, scale: *scale }))
            }
            TypeNode::Sequence { of, most } => {
                // Elements may have no octets; those with octets end with the message, and the others are charged.
                let count = u32::decode(from)? as usize;
                bounded(count, *most, from)?;
                from.nested(|from| Value::read_many(nodes, *of, count, from))?
            }
            TypeNode::Array { of, length } => {
                from.charge(1)?;
                from.nested(|from| Value::read_many(nodes, *of, *length as usize, from))?
            }
            // Aliases were resolved.
            TypeNode::Alias { of, .. } => Value::read(nodes, *of, from)?,
            TypeNode::Named { kind: TypeKind::Object, .. } => {
                let id = String::decode(from)?;
                let count = from.length(8)?;
                let mut profiles = Vec::new();
                for _ in 0..count {
                    profiles.push((u32::decode(from)?, <Vec<u8>>::decode(from)?));
                }
                Value::Object(Box::new(ObjectValue { id, profiles }))
            }
            TypeNode::Named { kind, .. } => return Err(from.error(unsupported(*kind))),
            TypeNode::Enum { names, .. } => match u32::decode(from)? {
                place if (place as usize) < names.len() => Value::Enum(place),
                _ => return Err(from.error(DecodeErrorKind::Value("an enumerator that its type lacks"))),
            },
            TypeNode::Struct { exception, id, members, .. } => {
                from.charge(1)?;
                if *exception {
                    skip_id(id, from);
                }
                from.nested(|from| {
                    members.iter().map(|(_, of)| Value::read(nodes, *of, from)).collect::<Result<_, DecodeError>>()
                })
                .map(Value::Struct)?
            }
            TypeNode::Union { discriminator, cases, by_label, .. } => {
                let label = read_label(nodes, *discriminator, from)?;
                let value = match case(cases, by_label, label) {
                    Some(of) => Some(Box::new(from.nested(|from| Value::read(nodes, of, from))?)),
                    None => None,
                };
                Value::Union { label: Box::new(label), value }
            }
        })
    }

    fn read_many(
        nodes: &[TypeNode],
        of: TypeIndex,
        count: usize,
        from: &mut Decoder<'_>,
    ) -> Result<Value, DecodeError> {
        if is_octet(nodes, of) {
            return Ok(Value::Octets(from.raw(count)?.to_vec()));
        }
        let items = match unaliased(nodes, of).simple().and_then(width) {
            Some(width) => {
                let octets = from.numbers(count, width)?;
                let mut numbers = Decoder::new(&octets, from.order());
                (0..count).map(|_| Value::read(nodes, of, &mut numbers)).collect::<Result<_, DecodeError>>()
            }
            None => (0..count).map(|_| Value::read(nodes, of, from)).collect(),
        };
        items.map(Value::Sequence)
    }

    fn read_simple(kind: TypeKind, from: &mut Decoder<'_>) -> Result<Value, DecodeError> {
        Ok(match kind {
            TypeKind::Null | TypeKind::Void => {
                from.charge(1)?;
                Value::Null
            }
            TypeKind::Short => Value::Short(i16::decode(from)?),
            TypeKind::Long => Value::Long(i32::decode(from)?),
            TypeKind::UShort => Value::UShort(u16::decode(from)?),
            TypeKind::ULong => Value::ULong(u32::decode(from)?),
            TypeKind::LongLong => Value::LongLong(i64::decode(from)?),
            TypeKind::ULongLong => Value::ULongLong(u64::decode(from)?),
            TypeKind::Float => Value::Float(f32::decode(from)?),
            TypeKind::Double => Value::Double(f64::decode(from)?),
            TypeKind::LongDouble => Value::LongDouble(Box::new(LongDouble::decode(from)?)),
            TypeKind::Boolean => Value::Boolean(bool::decode(from)?),
            TypeKind::Char => Value::Char(char::decode(from)?),
            TypeKind::WChar => Value::WChar(WChar::decode(from)?),
            TypeKind::Octet => Value::Octet(u8::decode(from)?),
            TypeKind::TypeCode => Value::TypeCode(TypeCode::decode(from)?),
            TypeKind::Any => Value::Any(Box::new(Any::decode(from)?)),
            _ => return Err(from.error(DecodeErrorKind::Unsupported("values of this kind"))),
        })
    }
}

fn is_octet(nodes: &[TypeNode], of: TypeIndex) -> bool {
    unaliased(nodes, of).simple() == Some(TypeKind::Octet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_needs_thirty_two_octets() {
        assert_eq!(size_of::<Value>(), 32);
    }
}
