//! Time in integer nanoseconds: an [`Instant`] on the run's own clock, and a [`Span`] between two.
//!
//! Instants count from the start of a run or simulation. Both are unsigned, so a negative period cannot be expressed;
//! lateness, the one signed quantity, has its own type.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// The longest span a file may name: ten years. Sums of a few such spans stay far from overflow.
pub const LONGEST_SPAN: Span = Span(10 * 365 * 86_400 * 1_000_000_000);

/// A point in time, in nanoseconds since the run began.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Finish minus deadline, in nanoseconds: negative when the job was early.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lateness(i64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);
    /// Later than everything: no timer is set.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `nanos` after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// How late this instant is against `deadline`.
    pub const fn lateness(self, deadline: Instant) -> Lateness {
        Lateness(self.0.wrapping_sub(deadline.0) as i64)
    }

    /// This instant moved by `span`, clamped to [`Instant::NEVER`].
    pub const fn saturating_add(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }

    /// This instant moved back by `span`, clamped to the start.
    pub const fn saturating_sub(self, span: Span) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }

    /// The same instant by a clock that is ahead by this many nanoseconds; not before 0.
    pub const fn by_clock_ahead(self, nanos: i64) -> Instant {
        Instant(self.0.saturating_add_signed(nanos))
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Span(nanos)
    }

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros * 1_000)
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis * 1_000_000)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Span(secs * 1_000_000_000)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds as a float, only for display and statistics.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// True for the empty span.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Difference, zero if `other` is longer.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// Sum, or `None` on overflow.
    pub const fn checked_add(self, other: Span) -> Option<Span> {
        match self.0.checked_add(other.0) {
            Some(nanos) => Some(Span(nanos)),
            None => None,
        }
    }

    /// Product, or `None` on overflow.
    pub const fn checked_mul(self, factor: u64) -> Option<Span> {
        match self.0.checked_mul(factor) {
            Some(nanos) => Some(Span(nanos)),
            None => None,
        }
    }
}

impl Lateness {
    /// `nanos` late, or early when negative.
    pub const fn from_nanos(nanos: i64) -> Self {
        Lateness(nanos)
    }

    /// Nanoseconds late, or early when negative.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    fn add(self, span: Span) -> Instant {
        Instant(self.0 + span.0)
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        self.0 += span.0;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0 + other.0)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        self.0 += other.0;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0 * factor)
    }
}

impl core::iter::Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

/// Rounds to this many significant digits, if a precision is set.
fn round_nanos(nanos: u64, digits: usize) -> u64 {
    let all = nanos.checked_ilog10().map_or(1, |tens| tens as usize + 1);
    let step = 10u64.pow(all.saturating_sub(digits.max(1)) as u32);
    // Do not round up a value that does not fit 64 bits.
    nanos.checked_add(step / 2).unwrap_or(nanos) / step * step
}

/// Writes nanoseconds exactly, in the largest unit: `2.5ms`, `33.333us`, `1.01084079s`, `7ns`.
fn write_nanos(f: &mut fmt::Formatter<'_>, nanos: u64) -> fmt::Result {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    for (size, unit) in UNITS {
        if nanos >= size {
            let (whole, mut fraction) = (nanos / size, nanos % size);
            if fraction == 0 {
                return write!(f, "{whole}{unit}");
            }
            let mut digits = size.ilog10() as usize;
            while fraction.is_multiple_of(10) {
                (fraction, digits) = (fraction / 10, digits - 1);
            }
            return write!(f, "{whole}.{fraction:0digits$}{unit}");
        }
    }
    if nanos == 0 { f.write_str("0s") } else { write!(f, "{nanos}ns") }
}

/// Exact, in the largest unit. A precision sets the significant digits: `{:.4}` of 5,025,006 ns is `5.025ms`, not
/// `5.025006ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_nanos(f, f.precision().map_or(self.0, |digits| round_nanos(self.0, digits)))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_nanos(f, self.0)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Instant::NEVER { f.write_str("never") } else { write_nanos(f, self.0) }
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write_nanos(f, self.0.unsigned_abs())
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_span_prints_in_the_unit_an_engineer_would_use() {
        let printed = |nanos| Span::from_nanos(nanos).to_string();
        assert_eq!(printed(2_500_000), "2.5ms");
        assert_eq!(printed(33_333), "33.333us");
        assert_eq!(printed(1_050_000_000), "1.05s");
        assert_eq!(printed(1_000_000_001), "1.000000001s");
        assert_eq!(printed(1_010_840_790), "1.01084079s");
        assert_eq!(printed(u64::MAX), "18446744073.709551615s");
        assert_eq!(printed(7), "7ns");
        assert_eq!(printed(0), "0s");
    }

    #[test]
    fn with_a_precision_a_span_has_so_many_digits_and_the_unit_of_its_size() {
        let printed = |nanos| alloc::format!("{:.4}", Span::from_nanos(nanos));
        assert_eq!(printed(5_025_006), "5.025ms");
        assert_eq!(printed(33_333_333), "33.33ms");
        assert_eq!(printed(33_333), "33.33us");
        assert_eq!(printed(999_950), "1ms");
        assert_eq!(printed(1_000_000_001), "1s");
        assert_eq!(printed(59_996_000_000), "60s");
        assert_eq!([0, 7, 9_999, 12_345].map(printed), ["0s", "7ns", "9.999us", "12.35us"]);
        assert_eq!(printed(u64::MAX), "18440000000s");
        assert_eq!(alloc::format!("{:.0}", Span::from_nanos(149)), "100ns");
    }

    #[test]
    fn lateness_is_negative_for_an_early_job() {
        let finish = Instant::from_nanos(90);
        assert_eq!(finish.lateness(Instant::from_nanos(100)).as_nanos(), -10);
        assert_eq!(finish.lateness(Instant::from_nanos(70)).to_string(), "20ns");
    }
}
