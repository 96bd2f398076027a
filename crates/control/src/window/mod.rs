//! The soft window: a task's threads are raised until its budget is consumed, then go on as before.

pub mod placement;

use hyoshi_model::{Instant, Reservation, Span};

/// What to do with a task's threads, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Raise the threads; look at their consumption at this instant.
    Raise(Instant),
    /// Leave them as they are; look at their consumption at this instant.
    Look(Instant),
    /// Lower the threads; the next period begins at this instant.
    Lower(Instant),
    /// They are lowered already; the next period begins at this instant.
    Wait(Instant),
}

impl Step {
    /// When to come back with a reading of the meter.
    pub const fn at(self) -> Instant {
        match self {
            Step::Raise(at) | Step::Look(at) | Step::Lower(at) | Step::Wait(at) => at,
        }
    }
}

/// One task's window.
///
/// ```text
///              look: budget left             look: budget consumed
///            ┌───────────────────┐   ┌────────────────────────────────────┐
///            ▼                   │   │                                    ▼
///   ──────► Raised ──────────────┘───┘                                 Lowered
///            ▲   ▲                                                        │
///            │   └─ look, in a new period: whatever was left is forfeited │
///            └────────────────────────────────────────────────────────────┘ look, in a new period;
///                                                                           or a larger reservation
/// ```
///
/// The raised threads of a task are confined to one CPU, so what is left of the budget cannot be consumed
/// before that much time has passed: the window sleeps until then, looks, and sleeps for what is left
/// again. It never polls at a fixed rate, and never steps by less than [`Window::LEAST_STEP`], by which
/// it can therefore overshoot. Periods begin at whole multiples of the period since [`Instant::ZERO`]: all windows
/// of one machine share that origin, which [`placement`] relies on.
///
/// It holds no clock: the caller says what time it is, and what the meter reads.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    reservation: Reservation,
    /// End of the period that is served; before it, `base` is the meter's reading at its begin.
    ends: Instant,
    base: Span,
    raised: bool,
}

impl Window {
    /// The shortest time between two looks: a shorter one would cost more than it saves.
    pub const LEAST_STEP: Span = Span::from_micros(100);

    /// A window that was never looked at: its first [`Window::look`] opens it.
    pub fn new(reservation: Reservation) -> Self {
        Window { reservation, ends: Instant::ZERO, base: Span::ZERO, raised: false }
    }

    /// What it holds.
    pub const fn reservation(&self) -> Reservation {
        self.reservation
    }

    /// Whether the threads are to be raised now.
    pub const fn is_raised(&self) -> bool {
        self.raised
    }

    /// Takes another reservation, in the middle of a period if need be: what was consumed in it counts. A new
    /// period length takes effect when the period that is served ends, or, if that is sooner, at the new
    /// length's next multiple.
    pub fn reserve(&mut self, reservation: Reservation, now: Instant, meter: Span) -> Step {
        if reservation.period() != self.reservation.period() {
            self.ends = self.ends.min(next_multiple(now, reservation.period()));
        }
        self.reservation = reservation;
        self.look(now, meter)
    }

    /// At the instant that the last step named, or any other: decides by the meter's reading.
    pub fn look(&mut self, now: Instant, meter: Span) -> Step {
        if now >= self.ends {
            self.ends = next_multiple(now, self.reservation.period());
            self.base = meter;
        }
        let left = self.reservation.budget().saturating_sub(meter.saturating_sub(self.base));
        let was = core::mem::replace(&mut self.raised, !left.is_zero());
        if !self.raised {
            return if was { Step::Lower(self.ends) } else { Step::Wait(self.ends) };
        }
        let at = now.saturating_add(left.max(Window::LEAST_STEP)).min(self.ends);
        if was { Step::Look(at) } else { Step::Raise(at) }
    }
}

/// The first whole multiple of `period` after `now`.
fn next_multiple(now: Instant, period: Span) -> Instant {
    let past = Span::from_nanos(now.as_nanos() % period.as_nanos());
    now.saturating_sub(past).saturating_add(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn us(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    fn window(budget: u64, period: u64) -> Window {
        Window::new(Reservation::new(us(budget), us(period)).unwrap())
    }

    #[test]
    fn it_sleeps_for_what_is_left_and_lowers_when_nothing_is() {
        let mut window = window(3_000, 10_000);
        assert_eq!(window.look(at(10_000), us(500)), Step::Raise(at(13_000)));
        // It ran half of the time: half is left.
        assert_eq!(window.look(at(13_000), us(2_000)), Step::Look(at(14_500)));
        assert_eq!(window.look(at(14_500), us(3_480)), Step::Look(at(14_600)), "the least step");
        assert_eq!(window.look(at(14_600), us(3_580)), Step::Lower(at(20_000)));
        assert_eq!(window.look(at(15_000), us(3_980)), Step::Wait(at(20_000)));
        assert_eq!(window.look(at(20_000), us(8_000)), Step::Raise(at(23_000)), "what it took lowered does not count");
    }

    #[test]
    fn what_is_not_wanted_is_kept_until_the_period_ends_and_then_forfeited() {
        let mut window = window(3_000, 10_000);
        window.look(at(0), us(0));
        assert_eq!(window.look(at(3_000), us(0)), Step::Look(at(6_000)));
        assert_eq!(window.look(at(9_000), us(0)), Step::Look(at(10_000)), "not past the period's end");
        assert_eq!(window.look(at(10_000), us(1_000)), Step::Look(at(13_000)));
    }

    #[test]
    fn a_late_look_opens_the_period_it_is_in() {
        let mut window = window(3_000, 10_000);
        window.look(at(0), us(0));
        assert_eq!(window.look(at(34_000), us(9_000)), Step::Look(at(37_000)));
        assert_eq!(window.look(at(37_000), us(12_000)), Step::Lower(at(40_000)));
    }

    #[test]
    fn another_reservation_counts_what_was_consumed() {
        let mut window = window(3_000, 10_000);
        let of = |budget, period| Reservation::new(us(budget), us(period)).unwrap();
        window.look(at(0), us(0));
        assert_eq!(window.reserve(of(2_000, 10_000), at(2_500), us(2_500)), Step::Lower(at(10_000)));
        assert_eq!(window.reserve(of(4_000, 10_000), at(3_000), us(2_500)), Step::Raise(at(4_500)));
        // A shorter period begins at its own next multiple.
        assert_eq!(window.reserve(of(2_000, 4_000), at(3_500), us(3_000)), Step::Lower(at(4_000)));
        assert_eq!(window.look(at(4_000), us(3_000)), Step::Raise(at(6_000)));
    }

    proptest! {
        /// Whatever part of the time a task runs and however late the looks are, a window that is always wanted is
        /// raised until its budget is consumed and for at most one step and one lateness longer.
        #[test]
        fn it_is_raised_for_the_budget_and_at_most_a_step_longer(
            budget in 1u64..9_000,
            lateness in prop::collection::vec(0u64..150, 1..20),
            speeds in prop::collection::vec(1u64..=4, 1..20),
        ) {
            let mut window = window(budget, 10_000);
            let (mut now, mut meter, mut raised_in_period, mut looks) = (0u64, 0u64, 0u64, 0usize);
            let (mut period, mut was_raised) = (0, false);
            while now < 200_000 {
                let step = window.look(at(now), us(meter));
                looks += 1;
                if now / 10_000 != period {
                    let most = budget + 100 + 150;
                    prop_assert!(raised_in_period <= most, "{} of {}", raised_in_period, budget);
                    (period, raised_in_period) = (now / 10_000, 0);
                }
                was_raised = window.is_raised();
                let next = (step.at().as_nanos() / 1_000).max(now + 1) + lateness[looks % lateness.len()];
                // While raised it runs a quarter, half, three quarters or all of the time; lowered, all of it.
                let speed = if was_raised { speeds[looks % speeds.len()] } else { 4 };
                let ran = (next - now) * speed / 4;
                let until_end = (period + 1) * 10_000 - now.min((period + 1) * 10_000);
                raised_in_period += if was_raised { ran.min(until_end) } else { 0 };
                (now, meter) = (next, meter + ran);
            }
            prop_assert!(looks < 20 * (2 + 100), "{} looks", looks);
            let _ = was_raised;
        }
    }
}
