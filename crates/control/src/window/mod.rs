//! The soft window: a task's threads are raised until its budget is consumed, and lowered until the next period.

pub mod placement;
pub mod reach;

use hyoshi_model::{Instant, Reservation, Span};

/// The action for a task's threads, and the instant of the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowStep {
    /// Raise the threads; check their consumption at this instant.
    Raise(Instant),
    /// Leave them unchanged; check their consumption at this instant.
    Check(Instant),
    /// Lower the threads; the next period begins at this instant.
    Lower(Instant),
    /// They are lowered already; the next period begins at this instant.
    Wait(Instant),
}

impl WindowStep {
    /// The instant of the next check, with a reading of the meter.
    pub const fn at(self) -> Instant {
        match self {
            WindowStep::Raise(at) | WindowStep::Check(at) | WindowStep::Lower(at) | WindowStep::Wait(at) => at,
        }
    }
}

/// The alarms between two checks, if the kernel reports a thread's consumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAlarm {
    /// The latest next check.
    pub at: Instant,
    /// CPU time of the task until the report; [`WindowAlarm::parts`] divides it among its threads. `None`: no report is
    /// needed.
    pub alarm: Option<Span>,
}

impl WindowAlarm {
    /// The shortest CPU time of an alarm.
    pub const LEAST_ALARM: Span = Span::from_micros(10);

    /// Divides the time until the report among the alarms of `threads`. Returns the part of the thread with the latest
    /// report, and the part of each other thread. At most the whole is consumed before an alarm reports. Threads of a
    /// task seldom consume alike, so the first part is almost everything, unless the whole is too short.
    pub fn parts(left: Span, threads: usize) -> (Span, Span) {
        let threads = threads.max(1) as u64;
        let other = Span::from_nanos(left.as_nanos() / 64).max(WindowAlarm::LEAST_ALARM);
        let most = left.saturating_sub(other * (threads - 1));
        let equal = Span::from_nanos(left.as_nanos() / threads);
        if most <= equal { (equal, equal) } else { (most, other) }
    }
}

/// One task's window.
///
/// ```text
///              check: budget left            check: budget consumed
///            ┌───────────────────┐   ┌────────────────────────────────────┐
///            ▼                   │   │                                    ▼
///   ──────► Raised ──────────────┘───┘                                 Lowered
///            ▲   ▲                                                        │
///            │   └─ check, in a new period: the rest is forfeited         │
///            └────────────────────────────────────────────────────────────┘ check, in a new period;
///                                                                           or a larger reservation
/// ```
///
/// The raised threads of a task are confined to one CPU, so the rest of the budget cannot be consumed before that much
/// time has passed: the window sleeps until then, checks, and sleeps again for the rest. It never polls at a fixed
/// rate, and no step is shorter than [`Window::LEAST_STEP`], by which it can therefore overshoot. While the meter
/// stands still it sleeps longer, by the unused budgets of earlier periods and at most by the room in the [placement]:
/// it can overshoot by that, too, and then has spent it. Periods begin at whole multiples of the period since
/// [`Instant::ZERO`]: all windows of one machine share that origin, which [`placement`] relies on.
///
/// A hard window pays back its overshoot. Time consumed beyond the budgets of past periods, because a check was late or
/// the threads ran while they were lowered, counts as consumed in later ones, at most ten budgets of it: a program that
/// was real-time by its own choice for long must have windows again soon after. So late checks, as of a kernel with
/// timers of the resolution of its tick, move time from window to window and add none.
///
/// A change of period gains nothing. The present period continues until its consumption would have been granted in
/// equal parts, by the reservation held then, and is no shorter than the new length; the next budget begins at the new
/// length's next multiple after that. Otherwise a task that changes its period again and again would get a budget at
/// each start that it makes for itself.
///
/// It has no clock: the caller passes the time, and the reading of the meter.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    reservation: Reservation,
    hard: bool,
    /// End of the present period; before it, `base` is the meter's reading at its start.
    ends: Instant,
    base: Span,
    raised: bool,
    /// Start of the present period, which is no shorter than the held length.
    begun: Instant,
    /// When its consumption, up to the meter reading `counted`, would have been granted in equal parts.
    earned: Instant,
    counted: Span,
    /// The limit of its consumption in the present period: the budget, or what an earlier one had granted already.
    due: Span,
    /// The meter's reading at the last check.
    seen: Span,
    /// The rest of earlier budgets, for steps while the meter stands still; and how much of it was spent in this
    /// period.
    saved: Span,
    spent: Span,
    /// Whether the meter had moved at the last check, and whether that check opened a period.
    ran: bool,
    opened: bool,
    /// Periods in a row without consumption.
    quiet: u32,
}

impl Window {
    /// The shortest time between two checks: a shorter one would cost more than it saves.
    pub const LEAST_STEP: Span = Span::from_micros(100);

    /// A sleeping task counts as awake after this much consumption.
    pub const WAKES_AFTER: Span = Span::from_micros(50);

    /// A sleeping task is checked at this interval, or once a period if that is longer, because threads without an
    /// alarm may run.
    pub const LONGEST_SLEEP: Span = Span::from_millis(250);

    /// The longest step while the meter stands still: less urgent work may wait this long for a task that wakes up.
    const LONGEST_STEP: Span = Span::from_millis(5);

    /// The most budgets of debt of a hard window.
    const MOST_OWED: u64 = 10;

    /// A window before its first [`Window::check`], which opens it.
    pub fn new(reservation: Reservation) -> Self {
        Window {
            reservation,
            hard: false,
            ends: Instant::ZERO,
            base: Span::ZERO,
            raised: false,
            begun: Instant::ZERO,
            earned: Instant::ZERO,
            counted: Span::ZERO,
            due: reservation.budget(),
            seen: Span::ZERO,
            saved: Span::ZERO,
            spent: Span::ZERO,
            ran: false,
            opened: false,
            quiet: 0,
        }
    }

    /// Makes it hard, or soft again. Consumption while it was soft is not a debt.
    pub fn harden(&mut self, hard: bool, meter: Span) {
        if hard && !self.hard {
            self.base = self.base.max(meter.saturating_sub(self.reservation.budget()));
        }
        self.hard = hard;
    }

    /// The longest step, as one part in this many of a period.
    pub fn step(period: Span, part: u64) -> Span {
        Span::from_nanos(period.as_nanos() / part.max(1)).clamp(Window::LEAST_STEP, Window::LONGEST_STEP)
    }

    /// Whether the task has consumed nothing since the last check, although it was raised.
    pub fn is_still(&self, meter: Span) -> bool {
        self.raised && meter == self.seen
    }

    /// Its reservation.
    pub const fn reservation(&self) -> Reservation {
        self.reservation
    }

    /// Whether the threads must be raised now.
    pub const fn is_raised(&self) -> bool {
        self.raised
    }

    /// Changes the reservation, even in the middle of a period: consumption in it counts, and the part that the old one
    /// had granted is not a debt. A new period length takes effect at its first multiple at which the consumption is
    /// earned, or by which the old one would have granted it anew, and its own length has passed.
    pub fn reserve(&mut self, reservation: Reservation, now: Instant, meter: Span) -> WindowStep {
        if now >= self.ends && self.ends != Instant::ZERO {
            self.close(now, meter);
        }
        self.earn(meter);
        if reservation.period() != self.reservation.period() && self.ends != Instant::ZERO {
            let least = self.begun.saturating_add(reservation.period());
            self.ends = multiple_from(now.max(self.earned).max(least), reservation.period());
        }
        self.due = reservation.budget().max(self.consumed(meter).min(self.due));
        self.reservation = reservation;
        self.check(now, meter, None)
    }

    /// At the instant of the last step, or any other: decides by the meter's reading. While that stands still, the next
    /// step may be as long as this `part` of the period; `None`: as if it did not.
    pub fn check(&mut self, now: Instant, meter: Span, part: Option<u64>) -> WindowStep {
        let still = self.is_still(meter);
        (self.ran, self.opened) = (meter != self.seen, now >= self.ends);
        self.seen = meter;
        if self.opened {
            self.close(now, meter);
        }
        let left = self.reservation.budget().saturating_sub(self.consumed(meter));
        let was = core::mem::replace(&mut self.raised, !left.is_zero());
        if !self.raised {
            if was {
                self.spend(meter);
            }
            return if was { WindowStep::Lower(self.ends) } else { WindowStep::Wait(self.ends) };
        }
        let longest = part.filter(|_| still).map(|part| Window::step(self.reservation.period(), part));
        let longer = longest.map_or(Span::ZERO, |longest| (left + self.saved).min(longest));
        let at = now.saturating_add(left.max(Window::LEAST_STEP).max(longer)).min(self.ends);
        if was { WindowStep::Check(at) } else { WindowStep::Raise(at) }
    }

    /// After a check that returned `step`: the alarms, if each of the raised `threads` has one.
    ///
    /// One thread consumes the budget by itself, so its alarm is the remaining budget. Of several threads, one has
    /// consumed its part ([`WindowAlarm::parts`]) before all have consumed the rest; after its report the window is
    /// watched by checks, as without alarms. A task that consumed nothing in a whole period sleeps: checks become
    /// rarer, and [`Window::WAKES_AFTER`] of consumption end its sleep. That consumption counts in no period, so the
    /// task can overshoot by it.
    pub fn next_alarm(&self, step: WindowStep, threads: usize) -> WindowAlarm {
        let left = self.reservation.budget().saturating_sub(self.consumed(self.seen));
        if !self.raised || threads == 0 {
            return WindowAlarm { at: step.at(), alarm: None };
        }
        if self.sleeps() {
            let period = self.reservation.period().as_nanos();
            let longest = Window::LONGEST_SLEEP.as_nanos() / period;
            let periods = longest.min(1 << self.quiet.min(20)).saturating_sub(1);
            let more = Span::from_nanos(period.saturating_mul(periods));
            return WindowAlarm { at: self.ends.saturating_add(more), alarm: Some(left.min(Window::WAKES_AFTER)) };
        }
        if threads > 1 && self.ran && !self.opened {
            return WindowAlarm { at: step.at(), alarm: None };
        }
        WindowAlarm { at: self.ends, alarm: Some(left) }
    }

    /// Whether the task consumed nothing in the whole period before, nor since.
    pub fn sleeps(&self) -> bool {
        self.raised && self.quiet > 0 && self.consumed(self.seen).is_zero()
    }

    fn consumed(&self, meter: Span) -> Span {
        meter.saturating_sub(self.base)
    }

    /// Ends the present period, and begins the one of `now`.
    fn close(&mut self, now: Instant, meter: Span) {
        let was_quiet = self.raised && self.ends != Instant::ZERO && self.consumed(meter).is_zero();
        self.quiet = if was_quiet { self.quiet.saturating_add(1) } else { 0 };
        if self.raised {
            self.spend(meter);
            let left = self.due.saturating_sub(self.consumed(meter));
            self.saved = (self.saved + left).min(Window::LONGEST_STEP);
        }
        self.base = meter.saturating_sub(self.owed(now, meter));
        (self.due, self.spent) = (self.reservation.budget(), Span::ZERO);
        self.ends = next_multiple(now, self.reservation.period());
        self.begun = self.ends.saturating_sub(self.reservation.period());
        (self.earned, self.counted) = (self.begun, self.base);
    }

    /// The consumption since the last count is earned by the reservation held meanwhile. At its end the period has
    /// granted it all.
    fn earn(&mut self, meter: Span) {
        let more = u128::from(meter.saturating_sub(self.counted).as_nanos());
        let takes = more * u128::from(self.reservation.period().as_nanos());
        let takes = takes.div_ceil(u128::from(self.reservation.budget().as_nanos()));
        let takes = Span::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        self.earned = self.earned.saturating_add(takes).min(self.ends);
        self.counted = self.counted.max(meter);
    }

    /// Raised consumption beyond the limit reduces the saved rest.
    fn spend(&mut self, meter: Span) {
        let spent = self.consumed(meter).saturating_sub(self.due).saturating_sub(self.spent).min(self.saved);
        self.saved = self.saved.saturating_sub(spent);
        self.spent += spent;
    }

    /// Consumption beyond the budgets of the periods that have ended since `base`.
    fn owed(&self, now: Instant, meter: Span) -> Span {
        if !self.hard || self.ends == Instant::ZERO {
            return Span::ZERO;
        }
        let budgets = |count| Span::from_nanos(self.reservation.budget().as_nanos().saturating_mul(count));
        let more = budgets(now.since(self.ends).as_nanos() / self.reservation.period().as_nanos());
        let due = Span::from_nanos((self.due + self.spent).as_nanos().saturating_add(more.as_nanos()));
        self.consumed(meter).saturating_sub(due).min(budgets(Window::MOST_OWED))
    }
}

/// The first whole multiple of `period` after `now`.
fn next_multiple(now: Instant, period: Span) -> Instant {
    let past = Span::from_nanos(now.as_nanos() % period.as_nanos());
    now.saturating_sub(past).saturating_add(period)
}

/// The first whole multiple of `period` that is not before `instant`.
fn multiple_from(instant: Instant, period: Span) -> Instant {
    let past = Span::from_nanos(instant.as_nanos() % period.as_nanos());
    if past.is_zero() { instant } else { next_multiple(instant, period) }
}

#[cfg(test)]
mod tests;
