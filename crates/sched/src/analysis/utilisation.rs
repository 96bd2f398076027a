//! Sums of utilisations in integers that never round the wrong way, and the two classic bounds.

use core::cmp::Ordering;
use core::fmt;

use serde::{Serialize, Serializer};

/// Fractions are in units of 2^-48: a worst case of 2^64 ns times legs still fits into 128 bits.
pub(super) const ONE: u128 = 1 << 48;

/// Demand of `cost` each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeriodicDemand {
    pub cost: u64,
    pub period: u64,
}

impl PeriodicDemand {
    /// Utilisation in units of 1 / [`ONE`], rounded up.
    pub fn rounded_up(self) -> u128 {
        (u128::from(self.cost) * ONE).div_ceil(u128::from(self.period.max(1)))
    }
}

/// The sum in units of 1 / [`ONE`], rounded up.
pub(super) fn sum(shares: impl Iterator<Item = PeriodicDemand>) -> u128 {
    shares.fold(0, |sum, share| sum.saturating_add(share.rounded_up()))
}

/// In parts per million, rounded; for display only.
pub(super) fn ppm(scaled: u128) -> u64 {
    let whole = (scaled / ONE).saturating_mul(1_000_000);
    let rest = (scaled % ONE * 1_000_000 + ONE / 2) / ONE;
    u64::try_from(whole.saturating_add(rest)).unwrap_or(u64::MAX)
}

/// How a sum of utilisations compares with 1: exactly, or [`Load::Unclear`].
pub(super) fn load(shares: &[PeriodicDemand]) -> Load {
    let above = sum(shares.iter().copied());
    let inexact = shares.len() as u128;
    if above < ONE {
        return Load::Below;
    }
    if above.saturating_sub(inexact) > ONE {
        return Load::Above;
    }
    match exact(shares) {
        Some(Ordering::Less) => Load::Below,
        Some(Ordering::Equal) => Load::Full,
        Some(Ordering::Greater) => Load::Above,
        None => Load::Unclear,
    }
}

/// The sum over the least common multiple of the periods, if that fits.
fn exact(shares: &[PeriodicDemand]) -> Option<Ordering> {
    let window = hyperperiod(shares)?;
    let mut demand = 0u128;
    for share in shares {
        let jobs = window / u128::from(share.period);
        demand = demand.checked_add(jobs.checked_mul(u128::from(share.cost))?)?;
    }
    Some(demand.cmp(&window))
}

/// The least common multiple of the periods, if it fits.
pub(super) fn hyperperiod(shares: &[PeriodicDemand]) -> Option<u128> {
    shares.iter().try_fold(1u128, |multiple, share| {
        let period = u128::from(share.period);
        (multiple / greatest_common_divisor(multiple, period)).checked_mul(period)
    })
}

fn greatest_common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

/// Why a utilisation bound does not apply to a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inapplicable {
    /// Nothing runs there.
    Idle,
    /// Levels are not by rate, one for each.
    NotRateMonotonic,
    /// A started job is not interrupted.
    NonPreemptive,
    /// A deadline is shorter than its period.
    ConstrainedDeadline,
    /// Releases jitter, or depend on others.
    NotPeriodic,
    /// Jobs block each other on resources.
    Resources,
    /// The cap may delay jobs.
    Cap,
    /// Scheduling costs time.
    Overheads,
    /// A body calls objects that the file does not name.
    Calls,
    /// Pauses by the caps may be as long as a period.
    Pauses,
    /// Jobs may be cancelled because of their declared times.
    Cancellation,
    /// Jobs beyond their declared times are demoted or stopped.
    Overruns,
}

impl Inapplicable {
    /// How a bound for a feedback loop would apply.
    pub const fn remedy(self) -> &'static str {
        match self {
            Inapplicable::Idle => "enable an operation",
            Inapplicable::NotRateMonotonic => "use strategy RMS, or EDF with preemption = \"full\"",
            Inapplicable::NonPreemptive => "use preemption = \"levels\" or, with EDF, preemption = \"full\"",
            Inapplicable::ConstrainedDeadline => "remove `deadline`, or set one as long as the longest period",
            Inapplicable::NotPeriodic => "remove `jitter`, and use release guards",
            Inapplicable::Resources => "remove `uses`",
            Inapplicable::Cap => "set cap = \"100%\" and on_hard_cap = \"report\"; `hard_cap` still limits all work",
            Inapplicable::Overheads => "remove the costs",
            Inapplicable::Calls => "name the method in `calls`",
            Inapplicable::Pauses => "allow only lower rates, or raise `cap` and `hard_cap`",
            Inapplicable::Cancellation => "set cancel = false",
            Inapplicable::Overruns => "set on_overrun = \"report\"",
        }
    }
}

impl fmt::Display for Inapplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Inapplicable::Idle => "nothing runs here",
            Inapplicable::NotRateMonotonic => "levels are not by rate, a level for each",
            Inapplicable::NonPreemptive => "a started job is not interrupted",
            Inapplicable::ConstrainedDeadline => "a deadline is shorter than the period",
            Inapplicable::NotPeriodic => "releases jitter or are triggered",
            Inapplicable::Resources => "jobs share resources",
            Inapplicable::Cap => "the cap may delay jobs",
            Inapplicable::Overheads => "scheduling costs time",
            Inapplicable::Calls => "a body may call any object",
            Inapplicable::Pauses => "pauses by the caps may be as long as the shortest period",
            Inapplicable::Cancellation => "jobs may be cancelled",
            Inapplicable::Overruns => "overruns are demoted or stopped",
        })
    }
}

impl Serialize for Inapplicable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A sum of utilisations against 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Below.
    Below,
    /// Exactly 1.
    Full,
    /// Above.
    Above,
    /// Too close to 1 to decide within 128 bits.
    Unclear,
}

/// A bound on utilisation, which proves a whole processor at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "applies")]
pub enum UtilisationBound {
    /// It applies.
    Yes {
        /// The bound, in parts per million, rounded down; of the product for the hyperbolic one.
        bound_ppm: u64,
        /// The value that is compared with it, rounded; `met` decides.
        value_ppm: u64,
        /// True if it proves the processor.
        met: bool,
    },
    /// It does not apply.
    No {
        /// Why.
        why: Inapplicable,
    },
}

/// U <= n (2^(1/n) - 1) proves rate monotonic levels (Liu and Layland 1973), here in the form
/// (1 + U/n)^n <= 2.
pub(super) fn liu_layland(shares: &[PeriodicDemand]) -> UtilisationBound {
    let (n, total) = (shares.len() as u128, sum(shares.iter().copied()));
    UtilisationBound::Yes { bound_ppm: bound_of(n), value_ppm: ppm(total), met: equal_parts_fit(n, total) }
}

fn equal_parts_fit(n: u128, total: u128) -> bool {
    product((0..n).map(|_| total.div_ceil(n))) <= 2 * ONE
}

/// The largest utilisation in parts per million for which the test holds.
fn bound_of(n: u128) -> u64 {
    let (mut bound_ppm, mut too_much) = (0u64, 1_000_001u64);
    while too_much - bound_ppm > 1 {
        let middle = u64::midpoint(bound_ppm, too_much);
        let fits = equal_parts_fit(n, (u128::from(middle) * ONE).div_ceil(1_000_000));
        *(if fits { &mut bound_ppm } else { &mut too_much }) = middle;
    }
    bound_ppm
}

/// Liu and Layland's bound for this number of tasks, at least 1, in parts per million, rounded down. For many, its limit
/// ln 2.
pub(super) fn liu_layland_ppm(tasks: u32) -> u64 {
    if tasks < 100 { bound_of(tasks.into()) } else { 693_147 }
}

/// The product of all (U_i + 1) at most 2 proves rate monotonic levels (Bini, Buttazzo and
/// Buttazzo, IEEE TC 2003).
pub(super) fn hyperbolic(shares: &[PeriodicDemand]) -> UtilisationBound {
    let value = product(shares.iter().map(|share| share.rounded_up()));
    UtilisationBound::Yes { bound_ppm: 2_000_000, value_ppm: ppm(value), met: value <= 2 * ONE }
}

/// The product of (1 + x) over all x, rounded up at each step; stops above 4, where no test needs more.
fn product(factors: impl Iterator<Item = u128>) -> u128 {
    let mut product = ONE;
    for factor in factors {
        if product > 4 * ONE || factor > 4 * ONE {
            return product.max(5 * ONE);
        }
        product = (product * (ONE + factor)).div_ceil(ONE);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn shares(of: &[(u64, u64)]) -> Vec<PeriodicDemand> {
        of.iter().map(|&(cost, period)| PeriodicDemand { cost, period }).collect()
    }

    #[test]
    fn a_utilisation_of_exactly_one_differs_from_both_neighbours() {
        assert_eq!(load(&shares(&[(1, 3), (1, 3), (1, 3)])), Load::Full);
        let (third, period) = (333_333_333_333_333, 1_000_000_000_000_000);
        assert_eq!(load(&shares(&[(third, period), (third, period), (third, period)])), Load::Below);
        assert_eq!(load(&shares(&[(third, period), (third, period), (third + 2, period)])), Load::Above);
        assert_eq!(load(&shares(&[(u64::MAX, 1)])), Load::Above);
    }

    #[test]
    fn liu_and_layland_bounds_are_those_of_their_table() {
        // Liu and Layland 1973, theorem 5: 0.8284 for two tasks, 0.7798 for three, 0.693 in the limit.
        for (n, expected) in [(1, 1_000_000), (2, 828_427), (3, 779_763), (1_000, 693_387)] {
            let UtilisationBound::Yes { bound_ppm, .. } = liu_layland(&shares(&[(1, 1_000_000)].repeat(n))) else {
                panic!("applies")
            };
            assert!(bound_ppm.abs_diff(expected) <= 1, "{n}: {bound_ppm}");
        }
    }

    #[test]
    fn the_hyperbolic_bound_accepts_what_liu_and_layland_refuse() {
        // U = (1/2, 1/3): 0.8333 > 0.8284, but 1.5 * 4/3 = 2 exactly.
        let set = shares(&[(1, 2), (1, 3)]);
        assert!(matches!(liu_layland(&set), UtilisationBound::Yes { met: false, .. }));
        assert!(matches!(
            hyperbolic(&shares(&[(1, 2), (333_333, 1_000_000)])),
            UtilisationBound::Yes { met: true, .. }
        ));
    }

    proptest! {
        #[test]
        fn whatever_liu_and_layland_accept_the_hyperbolic_bound_accepts_too(
            set in prop::collection::vec((1u64..50, 50u64..1_000), 1..8)
        ) {
            let set = shares(&set);
            if matches!(liu_layland(&set), UtilisationBound::Yes { met: true, .. }) {
                let met = matches!(hyperbolic(&set), UtilisationBound::Yes { met: true, .. });
                prop_assert!(met);
            }
        }

        #[test]
        fn the_load_agrees_with_plain_fractions(set in prop::collection::vec((1u64..20, 1u64..40), 1..6)) {
            let set = shares(&set);
            let window: u64 = (1..40).fold(1u128, |m, n| m / greatest_common_divisor(m, n) * n) as u64;
            let demand: u128 = set.iter().map(|s| u128::from(window / s.period) * u128::from(s.cost)).sum();
            let expected = match demand.cmp(&u128::from(window)) {
                Ordering::Less => Load::Below,
                Ordering::Equal => Load::Full,
                Ordering::Greater => Load::Above,
            };
            prop_assert_eq!(load(&set), expected);
        }
    }
}
