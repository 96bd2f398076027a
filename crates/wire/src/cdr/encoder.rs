//! Encoding to CDR.

use alloc::vec::Vec;

use super::{ByteOrder, CharSet, EncodeError, Version};

/// A type that can be written as CDR.
pub trait Encode {
    /// Appends it.
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError>;

    /// Appends the elements of a sequence or array, without the length; numbers are written in one step.
    fn encode_all(items: &[Self], to: &mut Encoder) -> Result<(), EncodeError>
    where
        Self: Sized,
    {
        items.iter().try_for_each(|item| item.encode(to))
    }
}

/// Octets under construction; grows as needed and can be reused ([`clear`](Encoder::clear)).
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// The origin of alignment: the start of the message or of the encapsulation.
    origin: usize,
    order: ByteOrder,
    version: Version,
    chars: CharSet,
    pub(crate) kept: bool,
    /// Peers pad with arbitrary octets.
    #[cfg(test)]
    pub(crate) padding: u8,
}

impl Encoder {
    /// An empty one, for GIOP 1.2 and UTF-8.
    pub fn new(order: ByteOrder) -> Self {
        Encoder {
            bytes: Vec::new(),
            origin: 0,
            order,
            version: Version::V1_2,
            chars: CharSet::Utf8,
            kept: false,
            #[cfg(test)]
            padding: 0,
        }
    }

    /// For the octets of an [`Any`](crate::Any): in this machine's byte order, strings in UTF-8, and without the
    /// repository id before an exception's members.
    pub(crate) fn kept() -> Self {
        Encoder { kept: true, ..Encoder::new(ByteOrder::NATIVE) }
    }

    /// Starts again, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.origin = 0;
    }

    /// Counts alignment from here on: a message begins. Returns its offset.
    #[inline]
    pub fn restart(&mut self) -> usize {
        self.origin = self.bytes.len();
        self.origin
    }

    /// Removes everything written from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Sets the version and character set from here on.
    pub fn speak(&mut self, version: Version, chars: CharSet) {
        (self.version, self.chars) = (version, chars);
    }

    /// The byte order.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The version of GIOP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The character set of narrow characters.
    pub fn chars(&self) -> CharSet {
        self.chars
    }

    /// The written octets.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The written octets, moved out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The number of written octets.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Zeros up to a multiple of `to` (1, 2, 4 or 8).
    #[inline]
    pub fn align(&mut self, to: usize) {
        let padding = (self.bytes.len() - self.origin).wrapping_neg() & (to - 1);
        if padding != 0 {
            #[cfg(not(test))]
            let zeros = [0; 8];
            #[cfg(test)]
            let zeros = [self.padding; 8];
            // Copies a constant number, then truncates: a variable number would take a call of memcpy.
            let length = self.bytes.len() + padding;
            self.bytes.extend_from_slice(&zeros);
            self.bytes.truncate(length);
        }
    }

    /// Reserves room for this many more octets.
    pub fn reserve(&mut self, octets: usize) {
        self.bytes.reserve(octets);
    }

    /// Octets, unchanged.
    #[inline]
    pub fn raw(&mut self, octets: &[u8]) {
        self.bytes.extend_from_slice(octets);
    }

    /// The length of a sequence or string.
    #[inline]
    pub fn length(&mut self, count: usize) -> Result<(), EncodeError> {
        u32::try_from(count).map_err(|_| EncodeError::TooLong(count))?.encode(self)
    }

    /// Rejects a length beyond the bound in IDL: call it before writing the string or sequence.
    #[inline]
    pub fn bounded(&self, got: usize, most: usize) -> Result<(), EncodeError> {
        if got > most { Err(EncodeError::Bound { most, got }) } else { Ok(()) }
    }

    /// An encapsulation (9.3.3): its length, its byte order, and the output of `body`, with its own alignment.
    pub fn encapsulate(
        &mut self,
        body: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.length(0)?;
        let (start, outer) = (self.bytes.len(), self.origin);
        self.origin = start;
        self.bytes.push(self.order.flag());
        let done = body(self);
        self.origin = outer;
        done?;
        let length = self.bytes.len() - start;
        self.patch_u32(start - 4, u32::try_from(length).map_err(|_| EncodeError::TooLong(length))?);
        Ok(())
    }

    /// Overwrites four octets, such as the size in a message's header.
    ///
    /// # Panics
    ///
    /// If they were not written before.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        let octets = self.octets(value);
        self.bytes[at..at + 4].copy_from_slice(&octets);
    }

    /// A number in its byte order.
    #[inline]
    pub(crate) fn octets(&self, value: u32) -> [u8; 4] {
        match self.order {
            ByteOrder::Big => value.to_be_bytes(),
            ByteOrder::Little => value.to_le_bytes(),
        }
    }
}
