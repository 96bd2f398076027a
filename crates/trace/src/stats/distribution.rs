//! Distributions of times in constant memory: HDR histograms, with exact extremes.

use core::marker::PhantomData;

use hdrhistogram::Histogram;
use hyoshi_model::{Lateness, Span};

/// A time with a value in nanoseconds: a [`Span`], or a signed [`Lateness`].
pub trait Nanos: Copy {
    /// As signed nanoseconds.
    fn nanos(self) -> i64;
    /// From signed nanoseconds.
    fn from_nanos(nanos: i64) -> Self;
}

impl Nanos for Span {
    fn nanos(self) -> i64 {
        self.as_nanos().min(i64::MAX as u64) as i64
    }
    fn from_nanos(nanos: i64) -> Self {
        Span::from_nanos(nanos.max(0) as u64)
    }
}

impl Nanos for Lateness {
    fn nanos(self) -> i64 {
        self.as_nanos()
    }
    fn from_nanos(nanos: i64) -> Self {
        Lateness::from_nanos(nanos)
    }
}

/// The distribution of a time.
///
/// Counts have one or two significant digits; minimum, maximum and mean are exact. Values beyond the range count at its
/// end. A quantile that lies there is the maximum, so it is never too small.
#[derive(Clone, Debug)]
pub struct Distribution<T> {
    /// Counts values plus `bias`, which are never negative.
    histogram: Histogram<u32>,
    bias: i64,
    extent: Extent<T>,
}

impl<T: Nanos> Distribution<T> {
    /// For values from `-bias` to `longest`, with the resolution `finest` and so many significant digits (of the value
    /// plus `bias`). Two digits need eight times the memory of one.
    pub fn new(finest: Span, longest: Span, bias: Span, digits: u8) -> Self {
        let finest = finest.as_nanos().max(1);
        let longest = longest.as_nanos().saturating_add(bias.as_nanos()).max(finest.saturating_mul(2));
        let histogram = Histogram::new_with_bounds(finest, longest, digits);
        // Unreachable: the bounds above satisfy the histogram's conditions, except for spans of centuries.
        let histogram = histogram.unwrap_or_else(|_| Histogram::new_with_bounds(1 << 20, 1 << 60, 2).expect("sound"));
        Distribution { histogram, bias: bias.nanos(), extent: Extent::default() }
    }

    /// Records a value.
    #[inline]
    pub fn record(&mut self, value: T) {
        let biased = value.nanos().saturating_add(self.bias).max(0) as u64;
        self.histogram.saturating_record(biased);
        self.extent.record(value);
    }

    /// Fetches into the cache the data that the record of a value will change.
    #[inline]
    pub(super) fn prefetch(&self, value: T) -> u64 {
        let biased = value.nanos().saturating_add(self.bias).max(0) as u64;
        self.extent.count + u64::from(self.histogram.count_at(biased))
    }

    /// Removes all values. Keeps its memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.extent = Extent::default();
    }

    /// Number, minimum, maximum and mean.
    pub fn extent(&self) -> &Extent<T> {
        &self.extent
    }

    /// The value that the share `quantile` (0 to 1) does not exceed; `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<T> {
        let (least, most) = (self.extent.least()?.nanos(), self.extent.most()?.nanos());
        let biased = self.histogram.value_at_quantile(quantile);
        if biased >= self.histogram.highest_equivalent(self.histogram.high()) {
            return Some(T::from_nanos(most));
        }
        Some(T::from_nanos((biased as i64).saturating_sub(self.bias).clamp(least, most)))
    }

    /// The values in order, with their counts: the data of a chart.
    pub fn counted(&self) -> impl Iterator<Item = (T, u64)> + '_ {
        self.histogram.iter_recorded().map(|step| {
            let value = (step.value_iterated_to() as i64).saturating_sub(self.bias);
            (T::from_nanos(value), step.count_since_last_iteration())
        })
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        let shift = self.bias - other.bias;
        for step in other.histogram.iter_recorded() {
            let biased = (step.value_iterated_to() as i64).saturating_add(shift).max(0) as u64;
            let count = step.count_since_last_iteration().min(u64::from(u32::MAX)) as u32;
            self.histogram.saturating_record_n(biased, count);
        }
        self.extent.merge(&other.extent);
    }

    /// An empty distribution with the range of all `parts`.
    pub fn spanning<'a>(parts: impl Iterator<Item = &'a Self>) -> Self
    where
        T: 'a,
    {
        let (mut finest, mut longest, mut bias, mut digits) = (u64::MAX, 1, 0, 1);
        for part in parts {
            finest = finest.min(part.histogram.low());
            longest = longest.max(part.histogram.high());
            bias = bias.max(part.bias);
            digits = digits.max(part.histogram.sigfig());
        }
        let finest = if finest == u64::MAX { 1 } else { finest };
        Distribution::new(Span::from_nanos(finest), Span::from_nanos(longest), Span::from_nanos(bias as u64), digits)
    }
}

/// Number, minimum, maximum and mean of a time, all exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<T> {
    count: u64,
    sum: i128,
    least: i64,
    most: i64,
    of: PhantomData<T>,
}

impl<T> Default for Extent<T> {
    fn default() -> Self {
        Extent { count: 0, sum: 0, least: i64::MAX, most: i64::MIN, of: PhantomData }
    }
}

impl<T: Nanos> Extent<T> {
    /// Records a value.
    #[inline]
    pub fn record(&mut self, value: T) {
        let nanos = value.nanos();
        self.count += 1;
        self.sum += i128::from(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The minimum, if any.
    pub fn least(&self) -> Option<T> {
        (self.count > 0).then(|| T::from_nanos(self.least))
    }

    /// The maximum, if any.
    pub fn most(&self) -> Option<T> {
        (self.count > 0).then(|| T::from_nanos(self.most))
    }

    /// The mean, rounded down to nanoseconds, if any.
    pub fn mean(&self) -> Option<T> {
        (self.count > 0).then(|| T::from_nanos((self.sum / i128::from(self.count)) as i64))
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn a_quantile_beyond_the_range_is_the_greatest_value_seen() {
        let mut spans = Distribution::new(Span::from_micros(1), millis(10), Span::ZERO, 2);
        spans.record(millis(500));
        spans.record(millis(700));
        assert_eq!(spans.quantile(0.5), Some(millis(700)));
        assert_eq!(spans.extent().least(), Some(millis(500)));
        assert_eq!(spans.extent().mean(), Some(millis(600)));
    }

    #[test]
    fn nothing_recorded_has_no_quantile() {
        let none = Distribution::<Span>::new(Span::ZERO, Span::ZERO, Span::ZERO, 2);
        assert_eq!(none.quantile(0.5), None);
        assert_eq!(none.extent().most(), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent_of_the_sorted_values(
            mut values in proptest::collection::vec(-5_000_000i64..20_000_000, 1..300),
            quantile in 0.0f64..=1.0,
        ) {
            let bias = millis(5);
            let mut lateness = Distribution::new(Span::from_micros(1), millis(40), bias, 2);
            values.iter().for_each(|value| lateness.record(Lateness::from_nanos(*value)));
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (expected, found) = (values[rank - 1], lateness.quantile(quantile).unwrap().as_nanos());
            let slack = 2_000 + (expected + bias.as_nanos() as i64) / 100;
            prop_assert!((found - expected).abs() <= slack, "{found} for {expected}");
        }

        #[test]
        fn merging_is_recording_both(
            one in proptest::collection::vec(0i64..90_000_000, 0..100),
            other in proptest::collection::vec(0i64..90_000_000, 0..100),
        ) {
            let empty = || Distribution::<Span>::new(Span::from_micros(1), millis(50), Span::ZERO, 2);
            let of = |values: &[i64]| {
                let mut distribution = empty();
                values.iter().for_each(|nanos| distribution.record(Nanos::from_nanos(*nanos)));
                distribution
            };
            let (mut merged, both) = (of(&one), of(&[one.clone(), other.clone()].concat()));
            merged.merge(&of(&other));
            prop_assert_eq!(merged.extent(), both.extent());
            prop_assert_eq!(merged.quantile(0.9), both.quantile(0.9));
        }
    }
}
