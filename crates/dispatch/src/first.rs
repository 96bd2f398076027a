//! An operation after the `first` of several copies of a stage runs once for each release number.

use hyoshi_model::{COPIES_APART, Instant, OperationId, Span, System, Trigger};

use crate::join::CompletionToken;

/// How many releases a copy may be ahead of the time: clocks differ, and a host may send wrong numbers.
const LEAD: u64 = COPIES_APART / 2;

/// How many release numbers are remembered: the newest, and those before it. A copy with the greatest lead then leaves
/// room for all true copies.
const REMEMBERED: u64 = 2 * COPIES_APART;

/// The numbers that copies from other hosts can have at a time: releases of their root are at least its shortest period
/// apart, except at a change of epoch.
#[derive(Clone, Copy, Debug)]
pub struct CopyNumbers {
    shortest: Span,
    epochs: u64,
}

impl CopyNumbers {
    /// Of an operation after the first of several copies; `None` for other operations, and if requests release the root.
    pub fn of(system: &System, id: OperationId) -> Option<CopyNumbers> {
        let operation = system.operation(id);
        let ([root], Trigger::First(_)) = (&operation.roots[..], &operation.trigger) else { return None };
        let periods = (0..system.epochs.len()).map(|epoch| system.setting(epoch, *root).period);
        let shortest = periods.filter(|period| !period.is_zero()).min()?;
        let is_periodic = system.operation(*root).trigger == Trigger::Periodic;
        is_periodic.then_some(CopyNumbers { shortest, epochs: system.epochs.len() as u64 })
    }

    /// Whether a job of this number may have been released by now. A greater number would make the copies of other hosts
    /// count as later ones.
    pub fn permits(&self, number: u64, now: Instant) -> bool {
        let released = now.as_nanos() / self.shortest.as_nanos();
        number <= released.saturating_add(self.epochs).saturating_add(LEAD)
    }
}

/// The release numbers of which some copy has arrived. Copies of different numbers may arrive in any order: one copy
/// may be absent or slow. A copy too far behind counts as a later copy; `check` requires that none is.
///
/// ```text
///   number:    newest-127 ... newest-1 newest
///   arrived:       1      ...     0      1       bit 0 is the newest
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstCopies {
    /// The newest number, and its origin.
    newest: Option<(u64, Instant)>,
    arrived: u128,
}

impl FirstCopies {
    /// True if no copy of this number has arrived before.
    ///
    /// Origins grow with numbers. If an origin is later, but its number is not, then the root was restarted and counts
    /// again from 0; the earlier numbers are forgotten. Origins from different hosts differ by the error of the clocks,
    /// so only a difference of more than a period counts. The newest number may itself be ahead of the time, so a number
    /// that is near it must be later by more than the lead.
    pub fn arrive(&mut self, token: &CompletionToken) -> bool {
        let (number, origin) = (token.number, token.origin);
        let restarts = |(newest, then): (u64, Instant)| {
            let periods = if newest.saturating_sub(number) > LEAD { 1 } else { LEAD + 1 };
            let apart = Span::from_nanos(token.period.as_nanos().saturating_mul(periods));
            number <= newest && origin.since(then) > apart
        };
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
        assert_eq!(arrive(&mut copies, &[200, 200 - REMEMBERED, 201 - REMEMBERED]), [true, false, true]);
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

    #[test]
    fn only_numbers_that_the_time_permits_are_plausible() {
        let numbers = CopyNumbers { shortest: Span::from_nanos(PERIOD), epochs: 1 };
        let at = |number: u64| Instant::from_nanos(number * PERIOD);
        assert!(numbers.permits(7, at(7)) && numbers.permits(7 + 1 + LEAD, at(7)));
        assert!(!numbers.permits(7 + 2 + LEAD, at(7)) && !numbers.permits(u64::MAX, at(7)));
    }

    proptest! {
        /// A host sends the greatest numbers that are plausible. Each number of two other hosts, which are late by less
        /// than `COPIES_APART` periods, is released once, unless that host sent it before.
        #[test]
        fn numbers_that_jump_ahead_make_no_true_copy_a_later_one(
            forged in prop::collection::vec((0u64..300, 0..=LEAD), 0..40), late in 0..COPIES_APART,
        ) {
            let numbers = CopyNumbers { shortest: Span::from_nanos(PERIOD), epochs: 1 };
            let (mut copies, mut seen) = (FirstCopies::default(), BTreeSet::new());
            for step in 0u64..300 {
                let now = Instant::from_nanos(step * PERIOD);
                for (_, lead) in forged.iter().filter(|(at, _)| *at == step) {
                    let number = step + lead;
                    prop_assert!(numbers.permits(number, now));
                    let is_first = copies.arrive(&CompletionToken { origin: now, ..token(number) });
                    prop_assert_eq!(is_first, seen.insert(number));
                }
                for number in [Some(step), step.checked_sub(late)].into_iter().flatten() {
                    prop_assert!(numbers.permits(number, now));
                    prop_assert_eq!(copies.arrive(&token(number)), seen.insert(number), "{}", number);
                }
            }
        }

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
