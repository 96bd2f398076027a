//! Decoding of CDR.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::{ByteOrder, CharSet, DecodeError, DecodeErrorKind, Limits, Version};

/// A type that can be read from CDR; `'a` is the message, from which texts and octets may be borrowed.
pub trait Decode<'a>: Sized {
    /// The least octets of one value, without padding: a sequence that claims more elements than can have arrived is
    /// rejected before any allocation. At least 1.
    const LEAST: usize = 1;

    /// Reads one.
    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError>;

    /// Reads `count` elements, which the caller has checked against the remaining octets; numbers are read in one step.
    fn decode_all(from: &mut Decoder<'a>, count: usize) -> Result<Vec<Self>, DecodeError> {
        if size_of::<Self>() == 0 {
            from.charge(count)?;
        }
        // Elements can be larger in memory than in the message, and contain sequences that claim as much again: reserve
        // room for a page, and more as elements arrive.
        let mut items = Vec::with_capacity(count.min(4096 / size_of::<Self>().max(1)));
        for _ in 0..count {
            items.push(Self::decode(from)?);
        }
        Ok(items)
    }

    /// Reads the elements of an array, without allocating; numbers are read in one step.
    fn decode_array<const N: usize>(from: &mut Decoder<'a>) -> Result<[Self; N], DecodeError> {
        if size_of::<Self>() == 0 {
            from.charge(N)?;
        }
        let mut items = [const { None }; N];
        for item in &mut items {
            *item = Some(Self::decode(from)?);
        }
        Ok(items.map(|item| match item {
            Some(item) => item,
            None => unreachable!("each has been set"),
        }))
    }
}

/// A position in a message or encapsulation.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset of `bytes` in the outermost encapsulation: GIOP has no messages beyond four octets of size.
    base: u32,
    order: ByteOrder,
    version: Version,
    chars: CharSet,
    limits: Limits,
    depth: u32,
    /// How many more values without octets are accepted.
    spare: usize,
    pub(crate) kept: bool,
    /// The starts of fragments' data, if their numbers may be aligned in several ways.
    seams: &'a [usize],
    alignment: Alignment,
    /// Hash of all padding that was skipped in a message with seams. Readers with the same hash have read all numbers
    /// at the same positions.
    skipped: u64,
}

/// How a peer aligned the numbers of a message of GIOP 1.1 that it sent in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    /// Unknown: a number is rejected if the other ways disagree about its position.
    Unknown,
    /// Each number by its position in the fragment: the standard (9.4.9), omniORBpy.
    Fragment,
    /// The same, but the numbers of a sequence or array follow each other without padding: omniORB.
    FragmentOnce,
    /// By the position in the whole message, as in GIOP 1.2: no known peer does, but the other ways do not fit.
    Message,
}

/// A position from which octets are decoded again: much smaller than a [`Decoder`], and without its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bookmark<'a> {
    bytes: &'a [u8],
    seams: &'a [usize],
    at: usize,
    order: ByteOrder,
    alignment: Alignment,
}

impl<'a> Bookmark<'a> {
    /// A decoder at this position.
    #[inline]
    pub(crate) fn decoder(self) -> Decoder<'a> {
        let Bookmark { bytes, seams, at, order, alignment } = self;
        Decoder { at, seams, alignment, ..Decoder::new(bytes, order) }
    }
}

/// The start of a fragment's data in GIOP 1.1: after its header.
const FRAGMENT_DATA: usize = 12;

const UNKNOWN: DecodeErrorKind = DecodeErrorKind::Value("fragments of GIOP 1.1 with ambiguous numbers");
const CUT: DecodeErrorKind = DecodeErrorKind::Value("a number in two fragments of GIOP 1.1");

impl<'a> Decoder<'a> {
    /// At the start of `bytes`, from which alignment is counted.
    #[inline]
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        let (version, chars, limits) = (Version::V1_2, CharSet::Utf8, Limits::default());
        let spare = spare(bytes.len());
        let (seams, alignment): (&[usize], _) = (&[], Alignment::Unknown);
        Decoder {
            bytes,
            at: 0,
            base: 0,
            order,
            version,
            chars,
            limits,
            depth: 0,
            spare,
            kept: false,
            seams,
            alignment,
            skipped: 0,
        }
    }

    /// For the octets of an [`Any`](crate::Any), which were within limits on arrival.
    pub(crate) fn kept(bytes: &'a [u8]) -> Self {
        let limits = Limits { message: usize::MAX, depth: usize::MAX };
        Decoder { limits, spare: usize::MAX, kept: true, ..Decoder::new(bytes, ByteOrder::NATIVE) }
    }

    /// For an encapsulation (9.3.3) that was extracted from its message: a profile, a component, a service context. It
    /// begins with its byte order.
    ///
    /// # Errors
    ///
    /// If it is empty.
    pub fn encapsulated(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut inner = Decoder::new(bytes, ByteOrder::Big);
        inner.order = ByteOrder::from_flag(u8::decode(&mut inner)?);
        Ok(inner)
    }

    /// For a message of GIOP 1.1 that arrived in fragments. Their data begins at `seams`, in rising order. Peers align
    /// numbers there in several ways: [`whole`](Decoder::whole) finds the right one.
    #[inline]
    #[must_use]
    pub(crate) fn in_fragments(mut self, seams: &'a [usize]) -> Self {
        self.seams = seams;
        self
    }

    /// This position.
    #[inline]
    pub(crate) fn bookmark(&self) -> Bookmark<'a> {
        let &Decoder { bytes, seams, at, order, alignment, .. } = self;
        Bookmark { bytes, seams, at, order, alignment }
    }

    /// Sets the version and character set from here on.
    #[inline]
    pub fn speak(&mut self, version: Version, chars: CharSet) {
        (self.version, self.chars) = (version, chars);
    }

    /// Sets other limits.
    #[inline]
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
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

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The nesting depth in values, type codes and anys.
    pub fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Offset of the next octet in the outermost encapsulation or message, in octets.
    pub(crate) fn position(&self) -> usize {
        self.base as usize + self.at
    }

    /// Offset of the next octet, in octets.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Octets not yet read.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether it is aligned by positions in fragments.
    pub(crate) fn is_in_fragments(&self) -> bool {
        !self.seams.is_empty()
    }

    /// All remaining octets, without reading them.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// An error at this position.
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { at: self.position(), kind }
    }

    /// Skips padding, whatever its octets (they can be garbage), up to a multiple of `to` (1, 2, 4 or 8).
    #[inline]
    pub fn align(&mut self, to: usize) -> Result<(), DecodeError> {
        if !self.seams.is_empty() {
            return self.align_in_fragment(to);
        }
        let padding = self.at.wrapping_neg() & (to - 1);
        self.raw(padding).map(|_| ())
    }

    #[cold]
    fn align_in_fragment(&mut self, to: usize) -> Result<(), DecodeError> {
        let (by_fragment, by_message) = (self.place_in_fragment(to), self.at.next_multiple_of(to));
        let place = match self.alignment {
            Alignment::Unknown if by_fragment != by_message => return Err(self.error(UNKNOWN)),
            Alignment::Unknown | Alignment::Message => by_message,
            Alignment::Fragment | Alignment::FragmentOnce => by_fragment,
        };
        if place > self.at {
            self.skipped = (self.skipped ^ place as u64).wrapping_mul(0x100_0000_01b3);
        }
        self.raw(place - self.at).map(|_| ())
    }

    /// The position of a number of this size in fragments.
    #[cold]
    fn number_in_fragment(&mut self, size: usize) -> Result<usize, DecodeError> {
        self.align_in_fragment(size)?;
        if self.crosses_seam(size) { Err(self.error(CUT)) } else { Ok(self.at) }
    }

    /// The next position of a number of this size if it is aligned by its position in the fragment.
    fn place_in_fragment(&self, size: usize) -> usize {
        let mut at = self.at;
        loop {
            let (before, after) = self.seams.split_at(self.seams.partition_point(|seam| *seam <= at));
            let place = before.last().map_or(at, |seam| at - seam + FRAGMENT_DATA);
            let padding = place.wrapping_neg() & (size - 1);
            match after.first() {
                // A number that would be aligned here is in the next fragment, and is aligned there.
                Some(next) if padding > 0 && at + padding >= *next => at = *next,
                _ => return at + padding,
            }
        }
    }

    /// True if a fragment begins within the next `count` octets, not before them.
    fn crosses_seam(&self, count: usize) -> bool {
        let next = self.seams.get(self.seams.partition_point(|seam| *seam <= self.at));
        next.is_some_and(|next| next - self.at < count)
    }

    /// The octets of the numbers of a sequence or array, each of `width` octets (1, 2, 4 or 8).
    #[inline]
    pub(crate) fn numbers(&mut self, count: usize, width: usize) -> Result<Cow<'a, [u8]>, DecodeError> {
        // An empty sequence is only its length: without elements there is no alignment.
        if count == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        self.align(width)?;
        let size = count.saturating_mul(width);
        if self.seams.is_empty() || self.alignment == Alignment::FragmentOnce || !self.crosses_seam(size) {
            return self.raw(size).map(Cow::Borrowed);
        }
        let mut octets = Vec::new();
        for _ in 0..count {
            self.align(width)?;
            if self.crosses_seam(width) {
                return Err(self.error(CUT));
            }
            octets.extend_from_slice(self.raw(width)?);
        }
        Ok(Cow::Owned(octets))
    }

    /// Reads all remaining octets: the arguments of a request, the results of a reply.
    ///
    /// Peers that send fragments of GIOP 1.1 align numbers after the first fragment in different ways, and the message
    /// does not show which. `read` is called for each of them if they differ. One is right if it ends with the
    /// message's last octet. Without this, a number at ambiguous positions is an error.
    ///
    /// # Errors
    ///
    /// That of `read`; or the ways of known peers both end with the last octet, but read numbers at different
    /// positions.
    #[inline]
    pub fn whole<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        if self.seams.is_empty() { read(self) } else { self.whole_of_fragments(&read) }
    }

    #[cold]
    fn whole_of_fragments<T>(&mut self, read: &dyn Fn(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        let start = self.clone();
        let error = match read(self) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let to_the_end = |alignment| {
            let mut from = Decoder { alignment, ..start.clone() };
            let value = read(&mut from).ok()?;
            (from.left() == 0).then_some((value, from))
        };
        let right = match (to_the_end(Alignment::Fragment), to_the_end(Alignment::FragmentOnce)) {
            (Some((_, one)), Some((_, other))) if one.skipped != other.skipped => return Err(start.error(UNKNOWN)),
            (Some(right), _) | (None, Some(right)) => Some(right),
            (None, None) => to_the_end(Alignment::Message),
        };
        let (value, end) = right.ok_or(error)?;
        *self = end;
        Ok(value)
    }

    /// The next `count` octets, borrowed.
    #[inline]
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes[self.at..].get(..count) {
            Some(octets) => {
                self.at += count;
                Ok(octets)
            }
            None => Err(self.short(count)),
        }
    }

    /// The octets of a number, aligned to its size, which is 1, 2, 4 or 8.
    #[inline]
    pub(crate) fn number<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = if self.seams.is_empty() { (self.at + (N - 1)) & !(N - 1) } else { self.number_in_fragment(N)? };
        match self.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(octets) => {
                self.at = start + N;
                Ok(*octets)
            }
            None => Err(self.short(start - self.at + N)),
        }
    }

    #[cold]
    fn short(&self, needed: usize) -> DecodeError {
        self.error(DecodeErrorKind::Short { needed, left: self.left() })
    }

    /// The length of a sequence of elements with at least `least` octets each: checked against the
    /// received octets.
    #[inline]
    pub fn length(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = u32::decode(self)? as usize;
        let (needed, left) = (count.saturating_mul(least.max(1)), self.left());
        if needed > left {
            return Err(self.error(DecodeErrorKind::Short { needed, left }));
        }
        Ok(count)
    }

    /// An encapsulation (9.3.3): a separate decoder with its own alignment and byte order.
    pub fn encapsulation(&mut self) -> Result<Decoder<'a>, DecodeError> {
        let length = self.length(1)?;
        let base = self.position() as u32;
        let bytes = self.raw(length)?;
        let mut inner =
            Decoder { bytes, at: 0, base, seams: &[], spare: self.spare.min(spare(length)), ..self.clone() };
        inner.order = ByteOrder::from_flag(u8::decode(&mut inner)?);
        Ok(inner)
    }

    /// Reads one nesting level deeper, up to [`Limits::depth`].
    pub fn nested<T, E: From<DecodeError>>(
        &mut self,
        read: impl FnOnce(&mut Decoder<'a>) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.depth() >= self.limits.depth {
            return Err(self.error(DecodeErrorKind::Depth(self.limits.depth)).into());
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Accounts for `count` values without octets, such as empty structs: the received octets bound the number of other
    /// values, but not of these.
    pub fn charge(&mut self, count: usize) -> Result<(), DecodeError> {
        match self.spare.checked_sub(count) {
            Some(left) => self.spare = left,
            None => return Err(self.error(TOO_MANY)),
        }
        Ok(())
    }

    /// Compares the charges since there were `spare` with the stored octets. Within this limit,
    /// [`charge`](Self::charge) allows it in every message that contains it, in each form: no value has more than twice
    /// the octets here that it has there.
    pub(crate) fn charged_within(&self, spare: usize, octets: usize) -> Result<(), DecodeError> {
        if spare - self.spare > octets.saturating_mul(4).saturating_add(4096) {
            return Err(self.error(TOO_MANY));
        }
        Ok(())
    }

    /// How many more values without octets may arrive.
    pub(crate) fn spare(&self) -> usize {
        self.spare
    }

    /// As [`length`](Decoder::length), of a sequence with a bound in IDL.
    pub fn bounded_length(&mut self, least: usize, most: usize) -> Result<usize, DecodeError> {
        let start = self.clone();
        match self.length(least)? {
            got if got > most => Err(start.error(DecodeErrorKind::Bound { most, got })),
            count => Ok(count),
        }
    }

    /// A string, wide string or sequence with its bound in IDL: characters or elements.
    ///
    /// ```
    /// # use hyoshi_wire::{ByteOrder, Decoder};
    /// let mut from = Decoder::new(b"\0\0\0\x06Hallo\0", ByteOrder::Big);
    /// assert!(from.clone().bounded::<String>(4).is_err());
    /// assert_eq!(from.bounded::<String>(5).unwrap(), "Hallo");
    /// ```
    pub fn bounded<T: Decode<'a> + Counted>(&mut self, most: usize) -> Result<T, DecodeError> {
        let start = self.clone();
        // At most four octets a character and a terminator: more is certainly too long.
        let claimed = u32::decode(&mut self.clone())? as usize;
        if claimed > most.saturating_mul(4).saturating_add(4) {
            return Err(start.error(DecodeErrorKind::Bound { most, got: claimed }));
        }
        let value = T::decode(self)?;
        match value.count() {
            got if got > most => Err(start.error(DecodeErrorKind::Bound { most, got })),
            _ => Ok(value),
        }
    }
}

/// The most values without octets of a message of this size: several for each octet, because structs nest.
#[inline]
fn spare(octets: usize) -> usize {
    octets.saturating_mul(8).saturating_add(4096)
}

const TOO_MANY: DecodeErrorKind = DecodeErrorKind::Value("more values without octets than a message may contain");

/// A type that IDL can bound, for [`Decoder::bounded`].
pub trait Counted {
    /// Characters or elements.
    fn count(&self) -> usize;
}

impl<T> Counted for Vec<T> {
    fn count(&self) -> usize {
        self.len()
    }
}

impl<T> Counted for &[T] {
    fn count(&self) -> usize {
        self.len()
    }
}

impl Counted for alloc::string::String {
    fn count(&self) -> usize {
        self.chars().count()
    }
}

impl Counted for alloc::borrow::Cow<'_, str> {
    fn count(&self) -> usize {
        self.chars().count()
    }
}

/// In units of UTF-16, as peers count.
impl Counted for crate::WString {
    fn count(&self) -> usize {
        self.encode_utf16().count()
    }
}
