//! The settings of a task's control group: a weight as floor, a quota as hard cap, and, if the kernel budgets real time
//! by group, enough of it for the task's windows.

use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use crate::window::Window;

/// CPU time that a group may have in each period, whole microseconds both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    budget: Span,
    period: Span,
}

/// A group's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// It weighs as much as this many ordinary programs at nice 0.
    pub weight: u64,
    /// The most that its threads may have while they are ordinary.
    pub quota: Option<Quota>,
    /// The least budget of the kernel for them while they are raised.
    pub raised: Option<Quota>,
}

const MICROSECOND: u64 = 1_000;
/// The kernel accepts budgets and periods from 1 ms on, and periods up to a second (kernel/sched/core.c).
const LEAST_BUDGET: u64 = 1_000;
const LONGEST_PERIOD: u64 = 1_000_000;
/// Enforced on the kernel's tick, 4 ms at 250 Hz: shorter periods would accumulate a debt.
const SHORTEST_PERIOD: u64 = 10_000;

impl Quota {
    /// The remainder for a hard task beside its windows: zero, or the smallest value that the kernel accepts.
    pub const NOTHING: Quota = Quota::micros(LEAST_BUDGET, LONGEST_PERIOD);
    /// A hard task with no grant: a hundredth of a CPU, so it can still answer, and end.
    pub const LEAST: Quota = Quota::micros(10_000, LONGEST_PERIOD);

    const fn micros(budget: u64, period: u64) -> Quota {
        Quota { budget: Span::from_micros(budget), period: Span::from_micros(period) }
    }

    /// The nearest setting below a reservation, except for [`Quota::NOTHING`].
    pub fn of(reservation: Reservation) -> Quota {
        let (budget, period) = (reservation.budget().as_nanos(), reservation.period().as_nanos());
        // As many periods as make neither too short; a reservation's budget is never zero.
        let periods = (SHORTEST_PERIOD * MICROSECOND).div_ceil(period);
        let periods = periods.max((LEAST_BUDGET * MICROSECOND).div_ceil(budget));
        let whole = period.saturating_mul(periods).div_ceil(MICROSECOND).min(LONGEST_PERIOD);
        let part = u128::from(whole) * u128::from(budget) / u128::from(period);
        Quota::micros(u64::try_from(part).unwrap_or(whole).max(LEAST_BUDGET), whole)
    }

    /// Room for a window's budgets and its overshoot, at any phase of the group's period.
    pub fn for_window(reservation: Reservation) -> Quota {
        /// Over this many periods the one that the group's own period cuts in two hardly counts.
        const PERIODS: u64 = 64;
        /// Of each: the last step, and as much again for late checks, with a twentieth of the budget. A group that has
        /// used its budget up stands still until its period ends.
        const OVERSHOOT: u64 = 2 * Window::LEAST_STEP.as_nanos();
        let period = reservation.period().as_nanos();
        let whole = period.saturating_mul(PERIODS).div_ceil(MICROSECOND).max(LONGEST_PERIOD);
        let windows = (whole * MICROSECOND).div_ceil(period) + 1;
        let each = reservation.budget().as_nanos();
        let part = windows.saturating_mul(each + each.div_ceil(20) + OVERSHOOT).div_ceil(MICROSECOND);
        Quota::micros(part.min(whole), whole)
    }

    /// The budget.
    pub const fn budget(self) -> Span {
        self.budget
    }

    /// The period.
    pub const fn period(self) -> Span {
        self.period
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.budget, self.period)
    }
}

impl Terms {
    /// If only the weight is reserved.
    pub fn alone(reservation: Reservation, hard: bool) -> Terms {
        let quota = hard.then(|| Quota::of(reservation));
        Terms { weight: weight(reservation.share()), quota, raised: None }
    }

    /// Beside windows. The use of raised threads is not in a group's quota, and the window ends with the budget: a hard
    /// cap leaves them nothing beside it.
    pub fn beside_window(reservation: Reservation, floor: bool, hard: bool) -> Terms {
        let weight = if floor { weight(reservation.share()) } else { 1 };
        Terms { weight, quota: hard.then_some(Quota::NOTHING), raised: Some(Quota::for_window(reservation)) }
    }

    /// For a hard task with no grant.
    pub const fn nothing() -> Terms {
        Terms { weight: 1, quota: Some(Quota::LEAST), raised: None }
    }
}

/// One percent of a CPU weighs as much as an ordinary program, so 30 % compete equally with thirty of them.
fn weight(share: Share) -> u64 {
    share.as_millionths().div_ceil(10_000).max(1)
}

#[cfg(test)]
mod tests {
    use hyoshi_model::Instant;
    use proptest::prelude::*;

    use super::*;

    fn reservation() -> impl Strategy<Value = Reservation> {
        let period = prop_oneof![Just(100_000u64), Just(33_000_000), 100_000..3_600_000_000_000u64];
        (period, 1u64..=1_000_000).prop_map(|(period, millionths)| {
            let budget = Share::from_millionths(millionths).of(Span::from_nanos(period)).max(Span::from_nanos(1));
            Reservation::new(budget, Span::from_nanos(period)).unwrap()
        })
    }

    /// As parts of 10^12.
    fn part(budget: Span, period: Span) -> u128 {
        u128::from(budget.as_nanos()) * 1_000_000_000_000 / u128::from(period.as_nanos())
    }

    proptest! {
        #[test]
        fn a_quota_is_accepted_by_the_kernel_and_at_most_the_reservation(reservation in reservation()) {
            let quota = Quota::of(reservation);
            let (budget, period) = (quota.budget.as_nanos() / MICROSECOND, quota.period.as_nanos() / MICROSECOND);
            prop_assert!((LEAST_BUDGET..=period).contains(&budget));
            prop_assert!((SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period));
            let wanted = part(reservation.budget(), reservation.period());
            let given = part(quota.budget, quota.period);
            prop_assert!(given <= wanted || quota == Quota::NOTHING, "{quota}");
            // Short of it by a microsecond of the least budget at most.
            prop_assert!(given * 1_000 >= wanted * 998 || quota == Quota::NOTHING, "{quota} for {reservation:?}");
        }

        #[test]
        fn what_raised_threads_are_left_holds_all_windows_that_can_begin_in_it(reservation in reservation()) {
            let quota = Quota::for_window(reservation);
            let windows = quota.period.as_nanos().div_ceil(reservation.period().as_nanos()) + 1;
            let need = windows.saturating_mul(reservation.budget().as_nanos());
            prop_assert!(quota.budget.as_nanos() >= need.min(quota.period.as_nanos()));
            prop_assert!(quota.budget <= quota.period);
            // Little more than is reserved, except for the overshoot of short windows.
            let overshoot = part(Window::LEAST_STEP * 2, reservation.period());
            let most = (part(reservation.budget(), reservation.period()) + overshoot) * 110 / 100 + 100_000;
            prop_assert!(part(quota.budget, quota.period) <= most.min(1_000_000_000_000), "{quota}");
        }

        #[test]
        fn only_hard_terms_have_a_quota(reservation in reservation(), floor: bool, hard: bool) {
            prop_assert_eq!(Terms::alone(reservation, hard).quota.is_some(), hard);
            prop_assert_eq!(Terms::beside_window(reservation, floor, hard).quota.is_some(), hard);
        }


        /// Checks as late as assumed, of windows with a task that leaves so little that the window sleeps one more
        /// step.
        #[test]
        fn the_budget_of_raised_threads_covers_the_overshoot_of_late_checks(
            budget in prop_oneof![1u64..500, 500u64..50_000],
            period in 1_000u64..100_000,
            looks in prop::collection::vec((prop_oneof![Just(1_000u64), 0..=1_000u64], any::<bool>()), 1..8),
            begins in 0u64..100_000,
        ) {
            let [budget, period] = [budget.min(period), period].map(Span::from_micros);
            let quota = Quota::for_window(Reservation::new(budget, period).unwrap());
            let mut window = Window::new(Reservation::new(budget, period).unwrap());
            let (mut now, mut meter) = (Instant::ZERO + Span::from_micros(begins), Span::ZERO);
            let ends = now + quota.period;
            let latest = Window::LEAST_STEP.as_nanos() + budget.as_nanos() / 20;
            for (late, leaves) in looks.into_iter().cycle() {
                let at = window.check(now, meter, None).at();
                let next = (at + Span::from_nanos(latest * late / 1_000)).min(ends);
                let step = at.since(now);
                if window.is_raised() {
                    let leaves = leaves && step > Window::LEAST_STEP && next > at;
                    meter += if leaves { step.saturating_sub(Span::from_nanos(1)) } else { next.since(now) };
                }
                now = next;
                if now == ends {
                    break;
                }
            }
            prop_assert!(meter <= quota.budget, "{meter} of {quota}");
        }
    }

    #[test]
    fn one_percent_weighs_as_much_as_an_ordinary_program() {
        let of = |percent| {
            Terms::alone(Reservation::new(Span::from_millis(percent), Span::from_millis(100)).unwrap(), false)
        };
        assert_eq!([1, 30, 100].map(|percent| of(percent).weight), [1, 30, 100]);
        assert_eq!(
            Terms::beside_window(Reservation::new(Span::from_millis(30), Span::from_millis(100)).unwrap(), false, true)
                .weight,
            1
        );
    }

    #[test]
    fn quotas_equal_the_reservation_if_the_kernel_accepts_it() {
        let of =
            |budget, period| Quota::of(Reservation::new(Span::from_micros(budget), Span::from_micros(period)).unwrap());
        assert_eq!(of(30_000, 100_000), Quota::micros(30_000, 100_000));
        assert_eq!(of(1_000, 3_000), Quota::micros(4_000, 12_000));
        assert_eq!(of(33, 33_000), Quota::micros(1_000, 1_000_000));
        assert_eq!(of(5_000_000, 10_000_000), Quota::micros(500_000, 1_000_000));
    }
}
