//! Copies a value from one message to another by its type code, without a tree: between any byte orders, versions and
//! character sets.

use alloc::borrow::Cow;

use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use crate::typecode::{TypeCode, TypeIndex, TypeKind, TypeNode, case, read_label, unaliased, write_label};
use crate::types::{LongDouble, WChar, WString, read_packed, write_packed};

/// The error of a copy, and its side.
pub(super) enum TranscodeError {
    Read(DecodeError),
    Write(EncodeError),
}

impl From<DecodeError> for TranscodeError {
    fn from(error: DecodeError) -> Self {
        TranscodeError::Read(error)
    }
}

impl From<EncodeError> for TranscodeError {
    fn from(error: EncodeError) -> Self {
        TranscodeError::Write(error)
    }
}

/// For a reader: a value that cannot be written cannot be read either.
pub(super) fn checked(done: Result<(), TranscodeError>, from: &Decoder<'_>) -> Result<(), DecodeError> {
    match done {
        Ok(()) => Ok(()),
        Err(TranscodeError::Read(error)) => Err(error),
        Err(TranscodeError::Write(EncodeError::Bound { most, got })) => {
            Err(from.error(DecodeErrorKind::Bound { most, got }))
        }
        Err(TranscodeError::Write(_)) => {
            Err(from.error(DecodeErrorKind::Value("a value that cannot be kept in an any")))
        }
    }
}

/// Copies one value of the type.
pub(super) fn transcode(code: &TypeCode, from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), TranscodeError> {
    let (spare, start) = (from.spare(), to.len());
    one(code.nodes(), code.root, from, to)?;
    if !from.kept {
        // By the any's own octets: in a smaller message than this one it must not exceed the limit. Within another any
        // it can have a little more padding than by itself.
        let padding = if start == 0 { 0 } else { 16 };
        from.charged_within(spare, (to.len() - start).saturating_sub(padding))?;
    }
    Ok(())
}

fn one(nodes: &[TypeNode], of: TypeIndex, from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), TranscodeError> {
    let of = unaliased(nodes, of);
    match (of.simple(), of.place()) {
        (None, Some(place)) => compound(nodes, &nodes[place], from, to),
        (kind, _) => simple(kind.unwrap_or(TypeKind::Null), from, to),
    }
}

/// How many octets a number of this kind has, if it is one.
pub(super) fn width(kind: TypeKind) -> Option<usize> {
    Some(match kind {
        TypeKind::Octet => 1,
        TypeKind::Short | TypeKind::UShort => 2,
        TypeKind::Long | TypeKind::ULong | TypeKind::Float => 4,
        TypeKind::LongLong | TypeKind::ULongLong | TypeKind::Double => 8,
        _ => return None,
    })
}

fn simple(kind: TypeKind, from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), TranscodeError> {
    if let Some(width) = width(kind) {
        return numbers(width, 1, from, to);
    }
    match kind {
        TypeKind::Null | TypeKind::Void => from.charge(1)?,
        TypeKind::Boolean => bool::decode(from)?.encode(to)?,
        TypeKind::Char => char::decode(from)?.encode(to)?,
        TypeKind::WChar => WChar::decode(from)?.encode(to)?,
        TypeKind::LongDouble => LongDouble::decode(from)?.encode(to)?,
        TypeKind::TypeCode => TypeCode::decode(from)?.encode(to)?,
        TypeKind::Any => from.nested(|from| {
            let code = TypeCode::decode(from)?;
            code.encode(to)?;
            transcode(&code, from, to)
        })?,
        TypeKind::Principal => return Err(from.error(DecodeErrorKind::Unsupported("values of Principal")).into()),
        _ => return Err(from.error(DecodeErrorKind::Unsupported("values of this kind")).into()),
    }
    Ok(())
}

fn compound(
    nodes: &[TypeNode],
    node: &TypeNode,
    from: &mut Decoder<'_>,
    to: &mut Encoder,
) -> Result<(), TranscodeError> {
    match node {
        TypeNode::String(most) => {
            let text = Cow::<str>::decode(from)?;
            if *most != 0 {
                to.bounded(text.chars().count(), *most as usize)?;
            }
            text.encode(to)?;
        }
        TypeNode::WString(most) => {
            let text = WString::decode(from)?;
            if *most != 0 {
                to.bounded(text.encode_utf16().count(), *most as usize)?;
            }
            text.encode(to)?;
        }
        TypeNode::Fixed { digits, .. } => write_packed(read_packed(*digits, from)?, *digits, to)?,
        TypeNode::Sequence { of, most } => {
            // Elements may have no octets; those with octets end with the message, and the others are charged.
            let count = u32::decode(from)? as usize;
            if *most != 0 {
                to.bounded(count, *most as usize)?;
            }
            to.length(count)?;
            from.nested(|from| many(nodes, *of, count, from, to))?;
        }
        TypeNode::Array { of, length } => {
            from.charge(1)?;
            from.nested(|from| many(nodes, *of, *length as usize, from, to))?;
        }
        // Aliases were resolved.
        TypeNode::Alias { of, .. } => one(nodes, *of, from, to)?,
        TypeNode::Named { kind: TypeKind::Object, .. } => reference(from, to)?,
        TypeNode::Named { kind, .. } => return Err(from.error(unsupported(*kind)).into()),
        TypeNode::Enum { names, .. } => {
            let place = u32::decode(from)?;
            if place as usize >= names.len() {
                return Err(from.error(DecodeErrorKind::Value("an enumerator that its type lacks")).into());
            }
            place.encode(to)?;
        }
        TypeNode::Struct { exception, id, members, .. } => {
            from.charge(1)?;
            if *exception {
                skip_id(id, from);
                if !to.kept {
                    id.encode(to)?;
                }
            }
            from.nested(|from| members.iter().try_for_each(|(_, of)| one(nodes, *of, from, to)))?;
        }
        TypeNode::Union { discriminator, cases, by_label, .. } => {
            let label = read_label(nodes, *discriminator, from)?;
            write_label(nodes, *discriminator, label, to)?;
            if let Some(of) = case(cases, by_label, label) {
                from.nested(|from| one(nodes, of, from, to))?;
            }
        }
    }
    Ok(())
}

/// Values of a type that is known only by its name.
pub(super) fn unsupported(kind: TypeKind) -> DecodeErrorKind {
    DecodeErrorKind::Unsupported(match kind {
        TypeKind::AbstractInterface => "values of abstract interfaces",
        TypeKind::LocalInterface => "values of local interfaces",
        TypeKind::Native => "values of native types",
        TypeKind::Component => "values of components",
        TypeKind::Home => "values of homes",
        _ => "values of this kind",
    })
}

/// In the standard an exception's repository id is before its members. omniORB omits it in an any (and JacORB requires
/// it), so it is skipped only if it is present.
pub(super) fn skip_id(id: &str, from: &mut Decoder<'_>) {
    let mut ahead = from.clone();
    if !from.kept && Cow::<str>::decode(&mut ahead).is_ok_and(|found| found == id) {
        *from = ahead;
    }
}

fn many(
    nodes: &[TypeNode],
    of: TypeIndex,
    count: usize,
    from: &mut Decoder<'_>,
    to: &mut Encoder,
) -> Result<(), TranscodeError> {
    let of = unaliased(nodes, of);
    if let Some(width) = of.simple().and_then(width) {
        return numbers(width, count, from, to);
    }
    (0..count).try_for_each(|_| one(nodes, of, from, to))
}

/// Numbers of `width` octets, all at once.
fn numbers(width: usize, count: usize, from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), TranscodeError> {
    if count == 0 {
        return Ok(());
    }
    let octets = from.numbers(count, width)?;
    to.align(width);
    if from.order() == to.order() || width == 1 {
        to.raw(&octets);
        return Ok(());
    }
    match width {
        2 => octets.as_chunks::<2>().0.iter().for_each(|number| to.raw(&u16::from_be_bytes(*number).to_le_bytes())),
        4 => octets.as_chunks::<4>().0.iter().for_each(|number| to.raw(&u32::from_be_bytes(*number).to_le_bytes())),
        _ => octets.as_chunks::<8>().0.iter().for_each(|number| to.raw(&u64::from_be_bytes(*number).to_le_bytes())),
    }
    Ok(())
}

/// An object reference (9.3.6): a type id and profiles, each of them a tag and octets of its own byte order.
fn reference(from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), TranscodeError> {
    Cow::<str>::decode(from)?.encode(to)?;
    let count = from.length(8)?;
    to.length(count)?;
    for _ in 0..count {
        u32::decode(from)?.encode(to)?;
        <&[u8]>::decode(from)?.encode(to)?;
    }
    Ok(())
}
