//! An operation after the `first` of several copies of a stage runs once for each release number.

use hyoshi_model::{COPIES_REMEMBERED as REMEMBERED, Instant};

use crate::join::CompletionToken;

/// The release numbers of which some copy has arrived. Copies of different numbers may arrive in any order: one copy
/// may be absent or slow. A copy too far behind counts as a later copy; `check` requires that none is.
///
/// ```text
///   number:    newest-63 ... newest-1 newest
///   arrived:       1     ...     0      1       bit 0 is the newest
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstCopies {
    /// The newest number, and its origin.
    newest: Option<(u64, Instant)>,
    arrived: u64,
}

impl FirstCopies {
    /// True if no copy of this number has arrived before.
    ///
    /// Origins grow with numbers. If an origin is later, but its number is not, then the root was restarted and counts
    /// again from 0; the earlier numbers are forgotten. Origins from different hosts differ by the error of the clocks,
    /// so only a difference of more than a period counts.
    pub fn arrive(&mut self, token: &CompletionToken) -> bool {
        let (number, origin) = (token.number, token.origin);
        let restarts = |(newest, then): (u64, Instant)| number <= newest && origin.since(then) > token.period;
        let Some((newest, then)) = self.newest.filter(|newest| !restarts(*newest)) else {
            *self = FirstCopies { newest: Some((number, origin)), arrived: 1 };
            return true;
        };
        if number > newest {
            self.newest = Some((number, origin.max(then)));
            self.arrived = if number - newest < REMEMBERED { self.arrived << (number - newest) | 1 } else { 1 };
            return true;
        }
        let behind = newest - number;
        if behind >= REMEMBERED {
            return false;
        }
        let before = self.arrived;
        self.arrived |= 1 << behind;
        self.arrived != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::BTreeSet, vec::Vec};
    use hyoshi_model::Span;
    use proptest::prelude::*;

    const PERIOD: u64 = 10;

    fn token(number: u64) -> CompletionToken {
        let (origin, period) = (Instant::from_nanos(number.saturating_mul(PERIOD)), Span::from_nanos(PERIOD));
        CompletionToken { number, origin, period, ticket: None }
    }

    fn arrive(copies: &mut FirstCopies, numbers: &[u64]) -> Vec<bool> {
        numbers.iter().map(|number| copies.arrive(&token(*number))).collect()
    }

    #[test]
    fn a_later_copy_is_skipped_also_when_newer_numbers_arrived_between() {
        let mut copies = FirstCopies::default();
        assert_eq!(
            arrive(&mut copies, &[3, 3, 4, 6, 4, 5, 6, 5]),
            [true, false, true, true, false, true, false, false]
        );
    }

    #[test]
    fn a_number_too_far_behind_counts_as_a_later_copy() {
        let mut copies = FirstCopies::default();
        assert_eq!(arrive(&mut copies, &[100, 100 - REMEMBERED, 101 - REMEMBERED]), [true, false, true]);
        assert_eq!(arrive(&mut copies, &[u64::MAX, u64::MAX, 100]), [true, false, false]);
    }

    #[test]
    fn a_root_that_counts_from_0_again_is_heard_at_once() {
        let mut copies = FirstCopies::default();
        arrive(&mut copies, &[20, 21]);
        let again =
            |number: u64| CompletionToken { origin: Instant::from_nanos(1_000 + number * PERIOD), ..token(number) };
        assert!(copies.arrive(&again(0)) && !copies.arrive(&again(0)) && copies.arrive(&again(1)));
    }

    proptest! {
        /// By the definition, with all numbers kept, while no copy is too far behind.
        #[test]
        fn each_number_is_released_exactly_once(steps in prop::collection::vec((0u64..4, 0u64..REMEMBERED), 1..200)) {
            let (mut copies, mut seen) = (FirstCopies::default(), BTreeSet::new());
            let mut newest = REMEMBERED;
            for (ahead, behind) in steps {
                newest += ahead;
                let number = newest - behind;
                let newest_seen = seen.last().copied().unwrap_or(0);
                prop_assume!(number + REMEMBERED > newest_seen);
                prop_assert_eq!(copies.arrive(&token(number)), seen.insert(number));
            }
        }
    }
}
