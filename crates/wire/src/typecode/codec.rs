//! Type codes on the wire (CORBA 3.3 part 2, 9.3.5.1).
//!
//! The work for a message is bounded by its size. A type code needs memory in proportion to its octets, because an
//! indirection is an index here and never a copy. It nests, through indirections too, at most as deep as
//! [`Limits::depth`](crate::Limits::depth). A type that contains itself other than through a sequence is rejected.

use alloc::{borrow::Cow, boxed::Box, string::String, vec, vec::Vec};

use super::{TypeCode, TypeIndex, TypeKind, TypeNode, build::index_labels, is_finite, unaliased};
use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};
use crate::types::WChar;

/// In place of a kind: the type code is the one at the following offset.
const INDIRECTION: u32 = 0xffff_ffff;
/// The deepest nesting that is written.
const DEEPEST: usize = 128;

struct Writer<'t> {
    nodes: &'t [TypeNode],
    /// Where each was first written. All further occurrences are indirections, as in omniORB and JacORB, whether the
    /// type is within itself or was written before.
    written: Vec<Option<usize>>,
    depth: usize,
}

impl Encode for TypeCode {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let nodes = self.nodes();
        let written = vec![None; nodes.len()];
        Writer { nodes, written, depth: 0 }.write(self.root, to)
    }
}

impl Writer<'_> {
    fn write(&mut self, of: TypeIndex, to: &mut Encoder) -> Result<(), EncodeError> {
        let nodes = self.nodes;
        let (place, node) = match (of.simple(), of.place()) {
            (None, Some(place)) => (place, &nodes[place]),
            (kind, _) => return (kind.unwrap_or(TypeKind::Null) as u32).encode(to),
        };
        match *node {
            TypeNode::String(most) => return write_all(&[TypeKind::String as u32, most], to),
            TypeNode::WString(most) => return write_all(&[TypeKind::WString as u32, most], to),
            TypeNode::Fixed { digits, scale } => {
                (TypeKind::Fixed as u32).encode(to)?;
                digits.encode(to)?;
                return scale.encode(to);
            }
            _ => {}
        }
        to.align(4);
        let at = to.len();
        if let Some(first) = self.written[place] {
            return indirection(first, to);
        }
        if self.depth == DEEPEST {
            return Err(EncodeError::Value("a type code nested deeper than 128"));
        }
        self.written[place] = Some(at);
        self.depth += 1;
        (kind(node) as u32).encode(to)?;
        to.encapsulate(|to| self.parameters(node, to))?;
        self.depth -= 1;
        Ok(())
    }

    fn parameters(&mut self, node: &TypeNode, to: &mut Encoder) -> Result<(), EncodeError> {
        let (id, name) = node.title();
        match node {
            TypeNode::String(_) | TypeNode::WString(_) | TypeNode::Fixed { .. } => {}
            TypeNode::Sequence { of, most: count } | TypeNode::Array { of, length: count } => {
                self.write(*of, to)?;
                count.encode(to)?;
            }
            TypeNode::Alias { of, .. } => {
                title(id, name, to)?;
                self.write(*of, to)?;
            }
            TypeNode::Named { .. } => title(id, name, to)?,
            TypeNode::Enum { names, .. } => {
                title(id, name, to)?;
                to.length(names.len())?;
                names.iter().try_for_each(|name| name.encode(to))?;
            }
            TypeNode::Struct { members, .. } => {
                title(id, name, to)?;
                to.length(members.len())?;
                for (name, of) in members {
                    name.encode(to)?;
                    self.write(*of, to)?;
                }
            }
            TypeNode::Union { discriminator, cases, .. } => {
                if !discriminates(self.nodes, *discriminator) {
                    return Err(EncodeError::Value(NO_DISCRIMINATOR));
                }
                title(id, name, to)?;
                self.write(*discriminator, to)?;
                let default = cases.iter().position(|(label, _, _)| label.is_none());
                default.map_or(-1, |place| place as i32).encode(to)?;
                to.length(cases.len())?;
                for (place, (label, name, of)) in cases.iter().enumerate() {
                    if label.is_none() && default != Some(place) {
                        return Err(EncodeError::Value("a union with two defaults"));
                    }
                    // The label of the default is ignored by readers: 0.
                    write_label(self.nodes, *discriminator, label.unwrap_or(0), to)?;
                    name.encode(to)?;
                    self.write(*of, to)?;
                }
            }
        }
        Ok(())
    }
}

fn write_all(words: &[u32], to: &mut Encoder) -> Result<(), EncodeError> {
    u32::encode_all(words, to)
}

fn title(id: &str, name: &str, to: &mut Encoder) -> Result<(), EncodeError> {
    id.encode(to)?;
    name.encode(to)
}

fn indirection(first: usize, to: &mut Encoder) -> Result<(), EncodeError> {
    INDIRECTION.encode(to)?;
    let back = to.len() - first;
    i32::try_from(back).map(|back| -back).map_err(|_| EncodeError::TooLong(back))?.encode(to)
}

fn kind(node: &TypeNode) -> TypeKind {
    match node {
        TypeNode::String(_) => TypeKind::String,
        TypeNode::WString(_) => TypeKind::WString,
        TypeNode::Fixed { .. } => TypeKind::Fixed,
        TypeNode::Sequence { .. } => TypeKind::Sequence,
        TypeNode::Array { .. } => TypeKind::Array,
        TypeNode::Alias { .. } => TypeKind::Alias,
        TypeNode::Named { kind, .. } => *kind,
        TypeNode::Enum { .. } => TypeKind::Enum,
        TypeNode::Struct { exception: false, .. } => TypeKind::Struct,
        TypeNode::Struct { exception: true, .. } => TypeKind::Exception,
        TypeNode::Union { .. } => TypeKind::Union,
    }
}

/// True if a union can have this discriminator: also if it has no case, and so no label to show it.
fn discriminates(nodes: &[TypeNode], discriminator: TypeIndex) -> bool {
    let discriminator = unaliased(nodes, discriminator);
    match (discriminator.simple(), discriminator.place()) {
        (Some(kind), _) => matches!(
            kind,
            TypeKind::Boolean
                | TypeKind::Octet
                | TypeKind::Short
                | TypeKind::UShort
                | TypeKind::Long
                | TypeKind::ULong
                | TypeKind::LongLong
                | TypeKind::ULongLong
                | TypeKind::Char
                | TypeKind::WChar
        ),
        // An enumeration without enumerators has no values.
        (None, Some(place)) => matches!(&nodes[place], TypeNode::Enum { names, .. } if !names.is_empty()),
        (None, None) => false,
    }
}

/// Writes a value of a union's discriminator.
pub(crate) fn write_label(
    nodes: &[TypeNode],
    discriminator: TypeIndex,
    label: i128,
    to: &mut Encoder,
) -> Result<(), EncodeError> {
    const BAD: EncodeError = EncodeError::Value("a label that the discriminator's type does not have");
    fn number<T: TryFrom<i128> + Encode>(label: i128, to: &mut Encoder) -> Result<(), EncodeError> {
        T::try_from(label).map_err(|_| BAD)?.encode(to)
    }
    let character = || u32::try_from(label).ok().and_then(char::from_u32).ok_or(BAD);
    let discriminator = unaliased(nodes, discriminator);
    match (discriminator.simple(), discriminator.place()) {
        (Some(TypeKind::Boolean), _) if matches!(label, 0 | 1) => number::<u8>(label, to),
        (Some(TypeKind::Octet), _) => number::<u8>(label, to),
        (Some(TypeKind::Short), _) => number::<i16>(label, to),
        (Some(TypeKind::UShort), _) => number::<u16>(label, to),
        (Some(TypeKind::Long), _) => number::<i32>(label, to),
        (Some(TypeKind::ULong), _) => number::<u32>(label, to),
        (Some(TypeKind::LongLong), _) => number::<i64>(label, to),
        (Some(TypeKind::ULongLong), _) => number::<u64>(label, to),
        (Some(TypeKind::Char), _) => character()?.encode(to),
        (Some(TypeKind::WChar), _) => WChar(character()?).encode(to),
        (_, Some(place)) => match &nodes[place] {
            TypeNode::Enum { names, .. } if usize::try_from(label).is_ok_and(|label| label < names.len()) => {
                number::<u32>(label, to)
            }
            _ => Err(BAD),
        },
        _ => Err(BAD),
    }
}

/// Reads a value of a union's discriminator.
pub(crate) fn read_label(
    nodes: &[TypeNode],
    discriminator: TypeIndex,
    from: &mut Decoder<'_>,
) -> Result<i128, DecodeError> {
    let discriminator = unaliased(nodes, discriminator);
    Ok(match (discriminator.simple(), discriminator.place()) {
        (Some(TypeKind::Boolean), _) => bool::decode(from)?.into(),
        (Some(TypeKind::Octet), _) => u8::decode(from)?.into(),
        (Some(TypeKind::Short), _) => i16::decode(from)?.into(),
        (Some(TypeKind::UShort), _) => u16::decode(from)?.into(),
        (Some(TypeKind::Long), _) => i32::decode(from)?.into(),
        (Some(TypeKind::ULong), _) => u32::decode(from)?.into(),
        (Some(TypeKind::LongLong), _) => i64::decode(from)?.into(),
        (Some(TypeKind::ULongLong), _) => u64::decode(from)?.into(),
        (Some(TypeKind::Char), _) => u32::from(char::decode(from)?).into(),
        (Some(TypeKind::WChar), _) => u32::from(WChar::decode(from)?.0).into(),
        (_, Some(place)) => match &nodes[place] {
            TypeNode::Enum { names, .. } => {
                let place = u32::decode(from)?;
                if place as usize >= names.len() {
                    return Err(from.error(DecodeErrorKind::Value("an enumerator that its type lacks")));
                }
                place.into()
            }
            _ => return Err(from.error(DecodeErrorKind::Value(NO_DISCRIMINATOR))),
        },
        _ => return Err(from.error(DecodeErrorKind::Value(NO_DISCRIMINATOR))),
    })
}

const NO_DISCRIMINATOR: &str = "a union's discriminator of an invalid type";

const ENDLESS: DecodeErrorKind = DecodeErrorKind::Value("a type that contains itself other than through a sequence");

struct Reader {
    nodes: Vec<TypeNode>,
    /// How many type codes nest within the node; 0 until it is read.
    heights: Vec<usize>,
    /// The offset of each type code, in ascending order.
    seen: Vec<(u32, TypeIndex)>,
    /// The number of type codes around the next one.
    depth: usize,
}

impl Decode<'_> for TypeCode {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut reader = Reader { nodes: Vec::new(), heights: Vec::new(), seen: Vec::new(), depth: 0 };
        let start = from.clone();
        let root = reader.read(from)?;
        if !is_finite(&reader.nodes) {
            return Err(start.error(ENDLESS));
        }
        let nodes = (!reader.nodes.is_empty()).then(|| reader.nodes.into());
        Ok(TypeCode { nodes, root })
    }
}

impl Reader {
    fn read(&mut self, from: &mut Decoder<'_>) -> Result<TypeIndex, DecodeError> {
        from.align(4)?;
        // GIOP has no messages beyond four octets of size.
        let (start, at) = (from.clone(), from.position() as u32);
        let number = u32::decode(from)?;
        if number == INDIRECTION {
            return self.follow(from);
        }
        let Some(kind) = TypeKind::from_number(number) else {
            return Err(start.error(DecodeErrorKind::Value("a type code of an unknown kind")));
        };
        match kind {
            TypeKind::String => {
                let node = TypeNode::String(u32::decode(from)?);
                Ok(self.push(at, node, 1))
            }
            TypeKind::WString => {
                let node = TypeNode::WString(u32::decode(from)?);
                Ok(self.push(at, node, 1))
            }
            TypeKind::Fixed => {
                let node = TypeNode::Fixed { digits: u16::decode(from)?, scale: i16::decode(from)? };
                Ok(self.push(at, node, 1))
            }
            TypeKind::Value | TypeKind::ValueBox | TypeKind::Event => {
                Err(start.error(DecodeErrorKind::Unsupported("value types")))
            }
            TypeKind::Object
            | TypeKind::Struct
            | TypeKind::Union
            | TypeKind::Enum
            | TypeKind::Sequence
            | TypeKind::Array
            | TypeKind::Alias
            | TypeKind::Exception
            | TypeKind::Native
            | TypeKind::AbstractInterface
            | TypeKind::LocalInterface
            | TypeKind::Component
            | TypeKind::Home => {
                // Deeper nesting could not be written again, whatever the limits here.
                if self.depth == DEEPEST {
                    return Err(start.error(DecodeErrorKind::Depth(DEEPEST)));
                }
                // Its index is known before its content: the content can refer to it.
                let index = self.push(at, TypeNode::String(0), 0);
                let mut inner = from.encapsulation()?;
                self.depth += 1;
                let (node, height) = inner.nested(|inner| self.parameters(kind, inner))?;
                self.depth -= 1;
                if let Some(place) = index.place() {
                    (self.nodes[place], self.heights[place]) = (node, height + 1);
                }
                // The next part may resolve aliases, and must end before the whole is known.
                if self.is_alias_of_itself(index) {
                    return Err(start.error(ENDLESS));
                }
                Ok(index)
            }
            _ => {
                let index = TypeIndex::of_simple(kind);
                self.seen.push((at, index));
                Ok(index)
            }
        }
    }

    fn is_alias_of_itself(&self, index: TypeIndex) -> bool {
        let mut next = index;
        while let Some(TypeNode::Alias { of, .. }) = next.place().map(|place| &self.nodes[place]) {
            if *of == index {
                return true;
            }
            next = *of;
        }
        false
    }

    fn push(&mut self, at: u32, node: TypeNode, height: usize) -> TypeIndex {
        let index = TypeIndex::of_place(self.nodes.len());
        self.nodes.push(node);
        self.heights.push(height);
        self.seen.push((at, index));
        index
    }

    /// The type code that began earlier within the same outermost one.
    fn follow(&mut self, from: &mut Decoder<'_>) -> Result<TypeIndex, DecodeError> {
        const BAD: DecodeErrorKind = DecodeErrorKind::Value("an indirection to an octet where no type code began");
        let start = from.clone();
        let offset = i32::decode(from)?;
        let target = (from.position() as u32 - 4).checked_add_signed(offset).filter(|_| offset < 0);
        let target = target.ok_or_else(|| start.error(BAD))?;
        let found = self.seen.binary_search_by_key(&target, |(at, _)| *at).map_err(|_| start.error(BAD))?;
        let index = self.seen[found].1;
        let most = from.limits().depth;
        if from.depth() + self.height(index) > most {
            return Err(start.error(DecodeErrorKind::Depth(most)));
        }
        Ok(index)
    }

    fn height(&self, of: TypeIndex) -> usize {
        of.place().map_or(0, |place| self.heights[place])
    }

    /// The contents of the encapsulation, and the height of the types within.
    fn parameters(&mut self, kind: TypeKind, from: &mut Decoder<'_>) -> Result<(TypeNode, usize), DecodeError> {
        match kind {
            TypeKind::Sequence => {
                let of = self.read(from)?;
                Ok((TypeNode::Sequence { of, most: u32::decode(from)? }, self.height(of)))
            }
            TypeKind::Array => {
                let of = self.read(from)?;
                Ok((TypeNode::Array { of, length: u32::decode(from)? }, self.height(of)))
            }
            TypeKind::Alias => {
                let (id, name) = (text(from)?, text(from)?);
                let of = self.read(from)?;
                Ok((TypeNode::Alias { id, name, of }, self.height(of)))
            }
            TypeKind::Enum => {
                let (id, name) = (text(from)?, text(from)?);
                let count = from.length(4)?;
                let mut names = Vec::new();
                for _ in 0..count {
                    names.push(text(from)?);
                }
                Ok((TypeNode::Enum { id, name, names: names.into() }, 0))
            }
            TypeKind::Struct | TypeKind::Exception => {
                let (id, name) = (text(from)?, text(from)?);
                let count = from.length(8)?;
                let (mut members, mut height) = (Vec::new(), 0);
                for _ in 0..count {
                    let name = text(from)?;
                    let of = self.read(from)?;
                    height = height.max(self.height(of));
                    members.push((name, of));
                }
                let exception = kind == TypeKind::Exception;
                Ok((TypeNode::Struct { exception, id, name, members: members.into() }, height))
            }
            TypeKind::Union => self.union(from),
            _ => Ok((TypeNode::Named { kind, id: text(from)?, name: text(from)? }, 0)),
        }
    }

    fn union(&mut self, from: &mut Decoder<'_>) -> Result<(TypeNode, usize), DecodeError> {
        let (id, name) = (text(from)?, text(from)?);
        let start = from.clone();
        let discriminator = self.read(from)?;
        if !discriminates(&self.nodes, discriminator) {
            return Err(start.error(DecodeErrorKind::Value(NO_DISCRIMINATOR)));
        }
        let default = i32::decode(from)?;
        let count = from.length(9)?;
        let (mut cases, mut height) = (Vec::new(), self.height(discriminator));
        for place in 0..count {
            let is_default = usize::try_from(default).is_ok_and(|default| default == place);
            let label = if is_default {
                self.default_label(discriminator, from)?;
                None
            } else {
                Some(read_label(&self.nodes, discriminator, from)?)
            };
            let name = text(from)?;
            let of = self.read(from)?;
            height = height.max(self.height(of));
            cases.push((label, name, of));
        }
        let cases = cases.into_boxed_slice();
        let by_label = index_labels(&cases);
        Ok((TypeNode::Union { id, name, discriminator, cases, by_label }, height))
    }

    /// Skips the label of the default: of the discriminator's type, whatever its value. A type that the version lacks
    /// is rejected here too: the label could not be written again.
    fn default_label(&self, discriminator: TypeIndex, from: &mut Decoder<'_>) -> Result<(), DecodeError> {
        let discriminator = unaliased(&self.nodes, discriminator);
        let enumeration = discriminator.place().map(|place| &self.nodes[place]);
        match discriminator.simple() {
            Some(TypeKind::Boolean | TypeKind::Char) => from.raw(1).map(|_| ()),
            Some(TypeKind::WChar) if from.version() == Version::V1_2 => {
                let length = u8::decode(from)?;
                from.raw(length.into()).map(|_| ())
            }
            Some(TypeKind::WChar) if from.version() == Version::V1_1 => u16::decode(from).map(|_| ()),
            None if matches!(enumeration, Some(TypeNode::Enum { .. })) => u32::decode(from).map(|_| ()),
            _ => read_label(&self.nodes, discriminator, from).map(|_| ()),
        }
    }
}

fn text(from: &mut Decoder<'_>) -> Result<Box<str>, DecodeError> {
    Cow::<str>::decode(from).map(|text| String::from(text).into())
}
