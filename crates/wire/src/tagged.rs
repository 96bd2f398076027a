//! Data with a tag, which readers may skip: service contexts, profiles, components.

use alloc::vec::Vec;

use crate::cdr::{Bookmark, ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};

/// Octets with a meaning that depends on a number: a service context, a profile or a component of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tagged<'a> {
    /// The number: a service context's id, the tag of a profile or component.
    pub tag: u32,
    /// Usually an encapsulation.
    pub data: &'a [u8],
}

impl<'a> Decode<'a> for Tagged<'a> {
    const LEAST: usize = 8;

    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Tagged { tag: u32::decode(from)?, data: Decode::decode(from)? })
    }
}

impl Encode for Tagged<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.tag.encode(to)?;
        self.data.encode(to)
    }
}

/// A sequence of them within a message: checked as a whole when it was decoded, then read one by one, never copied.
#[derive(Clone, Debug)]
pub struct TaggedList<'a> {
    left: usize,
    next: Bookmark<'a>,
}

impl<'a> TaggedList<'a> {
    /// An empty one.
    pub fn empty() -> Self {
        TaggedList { left: 0, next: Decoder::new(&[], Default::default()).bookmark() }
    }

    /// The data of the first with this tag.
    pub fn get(&self, tag: u32) -> Option<&'a [u8]> {
        self.clone().find(|item| item.tag == tag).map(|item| item.data)
    }
}

impl<'a> Iterator for TaggedList<'a> {
    type Item = Tagged<'a>;

    #[inline]
    fn next(&mut self) -> Option<Tagged<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut from = self.next.decoder();
        let item = Tagged::decode(&mut from).ok();
        self.next = from.bookmark();
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for TaggedList<'_> {}

impl<'a> Decode<'a> for TaggedList<'a> {
    const LEAST: usize = 4;

    /// Always inlined, as that of octets.
    #[inline(always)]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let count = from.length(Tagged::LEAST)?;
        let list = TaggedList { left: count, next: from.bookmark() };
        if count > 0 {
            skip(count, from)?;
        }
        Ok(list)
    }
}

/// Not inlined: most requests have none.
#[inline(never)]
fn skip(count: usize, from: &mut Decoder<'_>) -> Result<(), DecodeError> {
    (0..count).try_for_each(|_| Tagged::decode(from).map(drop))
}

/// A component's data that is such a list: TAG_POLICIES, for example. It is read with [`TaggedList`].
///
/// # Errors
///
/// Beyond 2^32 items or octets.
pub fn tagged_list(items: &[Tagged<'_>]) -> Result<Vec<u8>, EncodeError> {
    encapsulation(ByteOrder::Big, |to| items.encode(to))
}

impl PartialEq for TaggedList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

/// A separate encapsulation (9.3.3), the usual data of a tag: the byte order, then the output of `body`.
///
/// # Errors
///
/// Those of `body`.
pub fn encapsulation(
    order: ByteOrder,
    body: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut to = Encoder::new(order);
    to.raw(&[order.flag()]);
    body(&mut to)?;
    Ok(to.into_bytes())
}

/// A string that is not users' text, whatever the connection's character set: an operation's name, a repository id, a
/// host. Borrowed.
#[inline]
pub(crate) fn identifier<'a>(from: &mut Decoder<'a>) -> Result<&'a str, DecodeError> {
    let start = from.at();
    let octets = <&[u8]>::decode(from)?;
    match octets {
        // Against the standard, but some peers write an empty string like this.
        [] => return Ok(""),
        [text @ .., 0] if !text.contains(&0) => {}
        _ => return Err(DecodeError { at: start, kind: DecodeErrorKind::String }),
    }
    match core::str::from_utf8(octets) {
        Ok(text) => Ok(&text[..text.len() - 1]),
        Err(_) => Err(DecodeError { at: start, kind: DecodeErrorKind::CharSet }),
    }
}

/// Writes one in the form that [`identifier`] reads.
#[inline]
pub(crate) fn put_identifier(text: &str, to: &mut Encoder) -> Result<(), EncodeError> {
    if text.as_bytes().contains(&0) {
        return Err(EncodeError::NulInString);
    }
    to.length(text.len() + 1)?;
    to.raw(text.as_bytes());
    to.raw(&[0]);
    Ok(())
}
