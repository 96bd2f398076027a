//! Amounts of CPU: a [`Share`] of it, and a periodic [`Reservation`].
//!
//! The CPU Broker's advocates request reservations, its policies grant them, and its scheduler proxies hold them (Eide
//! et al., "Dynamic CPU Management for Real-Time, Middleware-Based Systems", UUCS-04-004, section III-A). They have a
//! deadline; section V-C names its absence as a cause of late alerts.

use core::fmt;
use core::str::FromStr;

use crate::quantity::{self, QuantityError};
use crate::time::Span;

/// A part of one CPU, in millionths of it: 500,000 is half of one, 1,500,000 one and a half.
///
/// It counts whole millionths, so that sums of shares are exact and runs repeat to the bit.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u64);

impl Share {
    /// Nothing.
    pub const ZERO: Share = Share(0);
    /// One whole CPU.
    pub const CPU: Share = Share(1_000_000);

    /// `millionths` of one CPU.
    pub const fn from_millionths(millionths: u64) -> Self {
        Share(millionths)
    }

    /// `percent` of one CPU.
    pub const fn from_percent(percent: u64) -> Self {
        Share(percent * 10_000)
    }

    /// Millionths of one CPU.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    /// True for nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The most time that this share of a `period` can hold, rounded down to the nanosecond.
    ///
    /// Together with [`Reservation::share`], which rounds up, budgets made from shares never
    /// add up to more than the shares did.
    pub const fn of(self, period: Span) -> Span {
        let nanos = self.0 as u128 * period.as_nanos() as u128 / Share::CPU.0 as u128;
        Span::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    /// The fraction `part` / `whole` of this share, rounded down; zero if `whole` is zero.
    pub const fn scaled(self, part: u64, whole: u64) -> Share {
        if whole == 0 {
            return Share::ZERO;
        }
        let scaled = self.0 as u128 * part as u128 / whole as u128;
        Share(if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 })
    }

    /// Sum, clamped at the largest share.
    pub const fn saturating_add(self, other: Share) -> Share {
        Share(self.0.saturating_add(other.0))
    }

    /// Difference, zero if `other` is larger.
    pub const fn saturating_sub(self, other: Share) -> Share {
        Share(self.0.saturating_sub(other.0))
    }
}

impl core::iter::Sum for Share {
    fn sum<I: Iterator<Item = Share>>(shares: I) -> Share {
        shares.fold(Share::ZERO, Share::saturating_add)
    }
}

/// As a percentage of one CPU: `37.5%`, `150%`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest) = (self.0 / 10_000, self.0 % 10_000);
        let mut digits = 4;
        while digits > 0 && rest.is_multiple_of(10) {
            (rest, digits) = (rest / 10, digits - 1);
        }
        if digits == 0 { write!(f, "{whole}%") } else { write!(f, "{whole}.{rest:0digits$}%") }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a percentage of one CPU: `"75%"`, or of several, `"150%"`.
impl FromStr for Share {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity::share_of_cpus(text).map(Share)
    }
}

/// An amount of time in each period, with a deadline.
///
/// `0 < budget <= deadline <= period`, so no reservation is for more than one CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation {
    budget: Span,
    period: Span,
    deadline: Span,
}

/// Why a reservation is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationError {
    /// A budget of zero.
    NoBudget,
    /// A period below [`Reservation::SHORTEST`].
    TooShort(Span),
    /// A period above [`Reservation::LONGEST`].
    TooLong(Span),
    /// More time than the period has.
    BudgetAbovePeriod {
        /// The budget.
        budget: Span,
        /// The period.
        period: Span,
    },
    /// A deadline shorter than the budget.
    DeadlineBelowBudget {
        /// The deadline.
        deadline: Span,
        /// The budget.
        budget: Span,
    },
    /// A deadline after the period's end.
    DeadlineAbovePeriod {
        /// The deadline.
        deadline: Span,
        /// The period.
        period: Span,
    },
}

impl ReservationError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            ReservationError::NoBudget => "reserve some time, or detach the task",
            ReservationError::TooShort(_) => {
                "reserve for several cycles at once: ten times the budget in ten times the period"
            }
            ReservationError::TooLong(_) => "divide the budget over shorter periods: a tenth in a tenth of the period",
            ReservationError::BudgetAbovePeriod { .. } => {
                "a reservation is for at most one CPU: lower the budget or make the period longer"
            }
            ReservationError::DeadlineBelowBudget { .. } => "set the deadline between the budget and the period",
            ReservationError::DeadlineAbovePeriod { .. } => "leave the deadline out: it is then the period",
        }
    }
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReservationError::NoBudget => f.write_str("the budget is zero"),
            ReservationError::TooShort(period) => {
                write!(f, "the period of {period} is below the shortest, {}", Reservation::SHORTEST)
            }
            ReservationError::TooLong(period) => {
                write!(f, "the period of {period} is above the longest, {}", Reservation::LONGEST)
            }
            ReservationError::BudgetAbovePeriod { budget, period } => {
                write!(f, "the budget of {budget} is above the period of {period}")
            }
            ReservationError::DeadlineBelowBudget { deadline, budget } => {
                write!(f, "the deadline of {deadline} is below the budget of {budget}")
            }
            ReservationError::DeadlineAbovePeriod { deadline, period } => {
                write!(f, "the deadline of {deadline} is above the period of {period}")
            }
        }
    }
}

impl core::error::Error for ReservationError {}

impl Reservation {
    /// The shortest period: below it, switching costs more than is reserved (SCHED_DEADLINE also rejects less).
    pub const SHORTEST: Span = Span::from_micros(100);
    /// The longest period; with it a budget times a million still fits 64 bits, so shares are cheap to compute.
    pub const LONGEST: Span = Span::from_secs(3_600);

    /// `budget` in each `period`, at any time in it.
    pub const fn new(budget: Span, period: Span) -> Result<Self, ReservationError> {
        if period.as_nanos() < Self::SHORTEST.as_nanos() {
            Err(ReservationError::TooShort(period))
        } else if period.as_nanos() > Self::LONGEST.as_nanos() {
            Err(ReservationError::TooLong(period))
        } else if budget.is_zero() {
            Err(ReservationError::NoBudget)
        } else if budget.as_nanos() > period.as_nanos() {
            Err(ReservationError::BudgetAbovePeriod { budget, period })
        } else {
            Ok(Reservation { budget, period, deadline: period })
        }
    }

    /// The same, but within `deadline` of the start of each period.
    pub const fn within(self, deadline: Span) -> Result<Self, ReservationError> {
        if deadline.as_nanos() > self.period.as_nanos() {
            Err(ReservationError::DeadlineAbovePeriod { deadline, period: self.period })
        } else if deadline.as_nanos() < self.budget.as_nanos() {
            Err(ReservationError::DeadlineBelowBudget { deadline, budget: self.budget })
        } else {
            Ok(Reservation { deadline, ..self })
        }
    }

    /// The same with the possible budget nearest to `budget`: at least a nanosecond, at most the deadline.
    pub fn with_budget(self, budget: Span) -> Self {
        Reservation { budget: budget.clamp(Span::from_nanos(1), self.deadline), ..self }
    }

    /// The same within `share`: larger budgets are cut, others stay. `None` if no time is left.
    pub fn cut_to(self, share: Share) -> Option<Self> {
        let budget = self.budget.min(share.of(self.period));
        if budget.is_zero() { None } else { Some(Reservation { budget, ..self }) }
    }

    /// Time in each period.
    pub const fn budget(self) -> Span {
        self.budget
    }

    /// The period.
    pub const fn period(self) -> Span {
        self.period
    }

    /// The deadline of the budget in each period: the period, unless [`Reservation::within`] set a shorter one.
    pub const fn deadline(self) -> Span {
        self.deadline
    }

    /// Budget over period, rounded up.
    pub const fn share(self) -> Share {
        Share((self.budget.as_nanos() * Share::CPU.0).div_ceil(self.period.as_nanos()))
    }
}

/// `30ms of 100ms`, `10ms of 500ms within 50ms`; the precision applies as for [spans](Span).
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.budget, f)?;
        f.write_str(" of ")?;
        fmt::Display::fmt(&self.period, f)?;
        if self.deadline == self.period {
            return Ok(());
        }
        f.write_str(" within ")?;
        fmt::Display::fmt(&self.deadline, f)
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn a_reservation_prints_budget_period_and_deadline() {
        let third = Reservation::new(ms(30), ms(100)).unwrap();
        assert_eq!((third.to_string(), third.share().to_string()), ("30ms of 100ms".into(), "30%".into()));
        assert_eq!(third.within(ms(50)).unwrap().to_string(), "30ms of 100ms within 50ms");
        assert_eq!(Share::from_millionths(375_000).to_string(), "37.5%");
        assert_eq!(Share::from_millionths(1_500_003).to_string(), "150.0003%");
        assert_eq!("150%".parse(), Ok(Share::from_percent(150)));
    }

    #[test]
    fn what_cannot_be_reserved_is_refused_with_its_remedy() {
        let of = |budget, period| Reservation::new(Span::from_micros(budget), Span::from_micros(period));
        assert_eq!(of(0, 1_000).unwrap_err().to_string(), "the budget is zero");
        assert_eq!(of(1, 1).unwrap_err().to_string(), "the period of 1us is below the shortest, 100us");
        assert!(of(1, 3_600_000_001).unwrap_err().to_string().contains("above the longest, 3600s"));
        assert_eq!(of(101, 100).unwrap_err().to_string(), "the budget of 101us is above the period of 100us");
        let whole = Reservation::new(ms(30), ms(100)).unwrap();
        assert_eq!(whole.within(ms(20)).unwrap_err().to_string(), "the deadline of 20ms is below the budget of 30ms");
        assert_eq!(
            whole.within(ms(101)).unwrap_err().to_string(),
            "the deadline of 101ms is above the period of 100ms"
        );
        assert!(!whole.within(ms(101)).unwrap_err().remedy().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_cut_to_a_share_is_within_it(
            period in Reservation::SHORTEST.as_nanos()..=Reservation::LONGEST.as_nanos(),
            budget in 1u64..=Reservation::LONGEST.as_nanos(),
            share in 0u64..=2_000_000,
        ) {
            let period = Span::from_nanos(period);
            let whole = Reservation::new(Span::from_nanos(budget).min(period), period).unwrap();
            prop_assert!(whole.share() <= Share::CPU);
            prop_assert!(whole.share().of(period) >= whole.budget());
            if let Some(cut) = whole.cut_to(Share::from_millionths(share)) {
                prop_assert!(cut.share().as_millionths() <= share && cut.budget() <= whole.budget());
            }
        }

        #[test]
        fn a_printed_share_reads_back_as_itself(millionths in 0u64..4_096_000_000) {
            let share = Share::from_millionths(millionths);
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}
