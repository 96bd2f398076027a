//! Releases of several periodic streams that an `any` trigger merges.
//!
//! Of each stream at most ceil((w + s) / T) tokens arrive within any window of w; s is the difference of the earliest
//! and the latest arrival after their origins. For whole numbers that is at most (w + s + T - 1) / T. A sum of such
//! lines is the line of one stream. Its period is the harmonic sum of the periods (rounded down), and its burst is that
//! period times the sum of all (s + T - 1) / T: if the sum allows n releases in a window, so does it.

/// As one stream: its period, unless there is more than one release in each nanosecond.
pub(super) fn period(periods: &[u64]) -> Option<u64> {
    match periods {
        [one] => Some(*one),
        // Rounded up, so the period is rounded down.
        several => {
            let rate = several.iter().fold(0u128, |sum, period| sum + ONE.div_ceil(u128::from((*period).max(1))));
            u64::try_from(ONE / rate.max(1)).ok().filter(|period| *period > 0)
        }
    }
}

/// As one stream: its burst, if tokens of each arrive up to `spread` later than their earliest.
pub(super) fn burst(periods: &[u64], spread: u64) -> Option<u64> {
    if let [_] = periods {
        return Some(spread);
    }
    let merged = u128::from(period(periods)?);
    let mut sum = 0u128;
    for period in periods.iter().map(|period| u128::from((*period).max(1))) {
        let early = merged.checked_mul(u128::from(spread) + period - 1)?.checked_mul(FINE)?;
        sum = sum.checked_add(early.div_ceil(period))?;
    }
    u64::try_from(sum / FINE).ok()
}

/// Origins of all streams within a window of `span`, closed at one side.
pub(super) fn origins(periods: &[u64], span: u64) -> u64 {
    periods.iter().fold(0, |sum, period| sum.saturating_add(span.div_ceil((*period).max(1))))
}

/// Rates in units of 1 / ONE, and parts of a nanosecond in units of 1 / FINE.
const ONE: u128 = 1 << 96;
const FINE: u128 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_stream_allows_whatever_the_sum_of_several_does(
            periods in prop::collection::vec(4u64..60, 1..5), spread in 0u64..100, window in 1u64..400,
        ) {
            let sum: u64 = periods.iter().map(|period| (window + spread).div_ceil(*period)).sum();
            let merged = (window + burst(&periods, spread).unwrap()).div_ceil(period(&periods).unwrap());
            prop_assert!(merged >= sum, "{merged} < {sum}");
            // Except for rounding of the period it allows at most one release of each more.
            let rate: f64 = periods.iter().map(|period| 1.0 / *period as f64).sum();
            let exact = (window + spread) as f64 * rate + periods.len() as f64;
            let rounding = (1.0 / period(&periods).unwrap() as f64 - rate) * (window as f64);
            prop_assert!(merged as f64 <= exact + rounding + 1.0);
        }
    }

    #[test]
    fn two_equal_streams_start_together_and_are_twice_as_frequent() {
        let one = |window: u64| (window + burst(&[20, 20], 0).unwrap()).div_ceil(period(&[20, 20]).unwrap());
        assert_eq!([one(1), one(21), one(41)], [2, 5, 7]);
    }

    #[test]
    fn huge_numbers_have_no_burst_and_do_not_wrap() {
        assert_eq!(burst(&[u64::MAX, 1], u64::MAX), None);
        assert_eq!((period(&[1, 1]), burst(&[1, 1], 0)), (None, None));
        assert!(period(&[u64::MAX, u64::MAX]).is_some_and(|period| period <= u64::MAX / 2));
        assert_eq!(origins(&[1, 1], u64::MAX), u64::MAX);
    }
}
