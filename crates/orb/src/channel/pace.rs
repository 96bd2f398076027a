//! How slow the other side of a socket may be.

/// In seconds of a coarse clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) stalled: u64,
    pub(crate) slowest: usize,
}

impl Pace {
    /// The last second for so many octets, of which the first was due at `begun`.
    pub(crate) fn end(self, begun: u64, octets: usize) -> u64 {
        begun.saturating_add(self.stalled + (octets / self.slowest) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_has_time_by_its_octets_and_what_stands_still_has_not() {
        let pace = Pace { stalled: 2, slowest: 100 };
        assert_eq!([pace.end(5, 0), pace.end(5, 99), pace.end(5, 1_000)], [7, 7, 17]);
    }
}
