//! How slow the other side of a socket may be.

/// A bound on both: a standstill, and the mean rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest standstill, in milliseconds.
    pub(crate) stalled: u64,
    /// The least octets per second.
    pub(crate) slowest: usize,
}

impl Pace {
    /// The latest time for so many octets, of which the first was due at `begun`; milliseconds.
    pub(crate) fn end(self, begun: u64, octets: usize) -> u64 {
        begun.saturating_add(self.stalled + (octets as u64).saturating_mul(1_000) / self.slowest as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_a_message_grows_with_its_octets() {
        let pace = Pace { stalled: 2_000, slowest: 100 };
        assert_eq!([pace.end(5, 0), pace.end(5, 50), pace.end(5, 1_000)], [2_005, 2_505, 12_005]);
    }
}
