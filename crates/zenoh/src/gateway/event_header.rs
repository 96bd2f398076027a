//! The attachment of an event for programs. Integers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | 1 if the supplier's job was critical, 0 otherwise |
//! | 2 | 2 | 0 |
//! | 4 | 4 | supplier: the operation, by its position in the file |
//! | 8 | 4 | importance of the supplier's job |
//! | 12 | 8 | sequence number of the event at this gateway, from 1 |
//! | 20 | 8 | number of the supplier's job |
//! | 28 | 8 | time of the push, in ns since 1970 (CLOCK_REALTIME of the node) |
//! | 36 | 8 | age: from the nominal release of the chain's first operation to the push, in ns |
//! | 44 | 8 | response: from the nominal release of the supplier's job to the push, in ns |
//! | 52 | 8 | lateness: from the deadline of the supplier's job to the push, in ns; signed, negative if early |
//!
//! In Python: `struct.unpack("<BBxxII5Qq", attachment)`.

/// The length of a header in bytes.
pub const EVENT_HEADER: usize = 60;

const VERSION: u8 = 1;

/// The header of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Whether the supplier's job was critical.
    pub critical: bool,
    /// The supplier, by its position in the file.
    pub supplier: u32,
    /// The importance of the supplier's job.
    pub importance: u32,
    /// Counts the event at its gateway, from 1.
    pub sequence: u64,
    /// The number of the supplier's job.
    pub number: u64,
    /// The time of the push, in ns since 1970.
    pub pushed: u64,
    /// From the nominal release of the chain's first operation to the push, in ns.
    pub age: u64,
    /// From the nominal release of the supplier's job to the push, in ns.
    pub response: u64,
    /// From the deadline of the supplier's job to the push, in ns.
    pub lateness: i64,
}

impl EventHeader {
    /// As bytes.
    pub fn encode(&self) -> [u8; EVENT_HEADER] {
        let EventHeader { critical, supplier, importance, sequence, number, pushed, age, response, lateness } = *self;
        let mut bytes = [0; EVENT_HEADER];
        (bytes[0], bytes[1]) = (VERSION, u8::from(critical));
        bytes[4..8].copy_from_slice(&supplier.to_le_bytes());
        bytes[8..12].copy_from_slice(&importance.to_le_bytes());
        let words = [sequence, number, pushed, age, response, lateness.cast_unsigned()];
        for (to, word) in bytes[12..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_event_header_are_where_the_table_says() {
        let header = EventHeader {
            critical: true,
            supplier: 3,
            importance: 4,
            sequence: 5,
            number: 6,
            pushed: 7,
            age: 8,
            response: 9,
            lateness: -10,
        };
        let mut expected = vec![1, 1, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        (5..=9u64).for_each(|word| expected.extend(word.to_le_bytes()));
        expected.extend((-10i64).to_le_bytes());
        assert_eq!(header.encode()[..], expected);
    }
}
