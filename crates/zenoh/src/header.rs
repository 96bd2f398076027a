//! The attachment of a completion. Integers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | 0 |
//! | 2 | 2 | position of the source among the target's predecessors |
//! | 4 | 4 | source: the operation that completed, by its position in the file |
//! | 8 | 4 | target: the triggered operation |
//! | 12 | 8 | session that the receiver assigned to the sender |
//! | 20 | 8 | sequence number of the completion in its session, from 1 |
//! | 28 | 8 | number of the source's job |
//! | 36 | 8 | origin: nominal release of the chain's first operation, in ns since instant 0 on the sender's clock |
//! | 44 | 8 | present period of the source, in ns |
//! | 52 | 8 | time of sending, in ns since instant 0 on the sender's clock |
//!
//! In Python: `struct.unpack("<BxHII6Q", attachment)`.

use std::fmt;

use hyoshi_node::idl::hyoshi_node::Completion;

/// The length of a header in bytes.
pub const HEADER: usize = 60;

const VERSION: u8 = 1;

/// The header of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionHeader {
    /// The session that the receiver assigned to the sender.
    pub session: u64,
    /// Counts the completions of a session, from 1.
    pub sequence: u64,
    /// The completion.
    pub completion: Completion,
}

/// The reason why an attachment is not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It has another length.
    Length(usize),
    /// It is of another version.
    Version(u8),
    /// The byte after the version is not 0, or the sequence number is 0.
    Value,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::Length(length) => write!(f, "the header has {length} bytes, not {HEADER}"),
            HeaderError::Version(version) => write!(f, "the header has version {version}, not {VERSION}"),
            HeaderError::Value => f.write_str("the header has an invalid byte 1 or sequence number 0"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl CompletionHeader {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let Completion { source, target, position, number, origin, period, sent } = self.completion;
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&position.to_le_bytes());
        bytes[4..8].copy_from_slice(&source.to_le_bytes());
        bytes[8..12].copy_from_slice(&target.to_le_bytes());
        let words = [self.session, self.sequence, number, origin, period, sent];
        for (to, word) in bytes[12..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    ///
    /// If they are not a header of this version.
    pub fn decode(bytes: &[u8]) -> Result<CompletionHeader, HeaderError> {
        let bytes: &[u8; HEADER] = bytes.try_into().map_err(|_| HeaderError::Length(bytes.len()))?;
        if bytes[0] != VERSION {
            return Err(HeaderError::Version(bytes[0]));
        }
        let mut words = [0; 6];
        for (word, from) in words.iter_mut().zip(bytes[12..].chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().unwrap_or_default());
        }
        let [session, sequence, number, origin, period, sent] = words;
        if bytes[1] != 0 || sequence == 0 {
            return Err(HeaderError::Value);
        }
        let [_, _, p0, p1, s0, s1, s2, s3, t0, t1, t2, t3, ..] = *bytes;
        let completion = Completion {
            source: u32::from_le_bytes([s0, s1, s2, s3]),
            target: u32::from_le_bytes([t0, t1, t2, t3]),
            position: u16::from_le_bytes([p0, p1]),
            number,
            origin,
            period,
            sent,
        };
        Ok(CompletionHeader { session, sequence, completion })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(numbers: [u64; 6], [source, target]: [u32; 2], position: u16) -> CompletionHeader {
        let [session, sequence, number, origin, period, sent] = numbers;
        let completion = Completion { source, target, position, number, origin, period, sent };
        CompletionHeader { session, sequence, completion }
    }

    #[test]
    fn the_bytes_of_a_header_are_where_the_table_says() {
        let bytes = header([5, 6, 7, 8, 9, 10], [3, 4], 2).encode();
        let mut expected = vec![1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        (5..=10u64).for_each(|word| expected.extend(word.to_le_bytes()));
        assert_eq!(bytes[..], expected);
    }

    #[test]
    fn other_lengths_versions_and_invalid_values_are_refused() {
        let good = header([5, 6, 7, 8, 9, 10], [3, 4], 2).encode();
        assert_eq!(CompletionHeader::decode(&[]), Err(HeaderError::Length(0)));
        assert_eq!(CompletionHeader::decode(&good[..59]), Err(HeaderError::Length(59)));
        assert_eq!(CompletionHeader::decode(&[good.as_slice(), &[0]].concat()), Err(HeaderError::Length(61)));
        let changed = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            CompletionHeader::decode(&bytes)
        };
        assert_eq!(changed(0, 2), Err(HeaderError::Version(2)));
        assert_eq!(changed(1, 1), Err(HeaderError::Value));
        assert_eq!(changed(20, 0), Err(HeaderError::Value));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(numbers: [u64; 6], operations: [u32; 2], position: u16) {
            let mut header = header(numbers, operations, position);
            header.sequence = header.sequence.max(1);
            prop_assert_eq!(CompletionHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_are_refused_or_encoded_again(
            mut bytes in prop::collection::vec(any::<u8>(), 0..=2 * HEADER),
            exact: bool,
            versions in 0u8..3,
        ) {
            if exact {
                bytes.resize(HEADER, versions);
                (bytes[0], bytes[1]) = (versions, 0);
            }
            if let Ok(header) = CompletionHeader::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..]);
            }
        }
    }
}
