//! The soft window: a task's threads are raised until its budget is consumed, then go on as before.

pub mod placement;
pub mod reach;

use hyoshi_model::{Instant, Reservation, Span};

/// What to do with a task's threads, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowStep {
    /// Raise the threads; look at their consumption at this instant.
    Raise(Instant),
    /// Leave them as they are; look at their consumption at this instant.
    Look(Instant),
    /// Lower the threads; the next period begins at this instant.
    Lower(Instant),
    /// They are lowered already; the next period begins at this instant.
    Wait(Instant),
}

impl WindowStep {
    /// When to come back with a reading of the meter.
    pub const fn at(self) -> Instant {
        match self {
            WindowStep::Raise(at) | WindowStep::Look(at) | WindowStep::Lower(at) | WindowStep::Wait(at) => at,
        }
    }
}

/// What to wait for between two looks, if the kernel reports a thread's consumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAlarm {
    /// When to look in any case.
    pub at: Instant,
    /// CPU time of the task until the report, of which [`WindowAlarm::parts`] are set for its threads; `None`: no report is needed.
    pub alarm: Option<Span>,
}

impl WindowAlarm {
    /// The shortest CPU time that an alarm can be set to.
    pub const LEAST_ALARM: Span = Span::from_micros(10);

    /// Divides the time until the report among the alarms of `threads`: the part of the thread whose alarm was reported last,
    /// and that of each other. No more than the whole is consumed before one of them is reported. Seldom do all threads of
    /// a task consume alike, so that thread has almost everything, unless the whole is too short.
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
/// it can therefore overshoot. While the meter stands still it sleeps longer, by what the task left of its budgets before
/// and at most by what [placement] has room for: it can overshoot by that, too, and then has spent it. Periods begin at whole multiples of the period since [`Instant::ZERO`]: all windows
/// of one machine share that origin, which [`placement`] relies on.
///
/// A hard window pays back: what was consumed beyond the budgets of the periods that have ended, since a look came late or
/// the threads had some time while they were lowered, counts as consumed in those that follow, ten budgets of it at most: a
/// program that was real-time by its own choice for long shall have windows again soon after. So late looks, as of a kernel
/// whose timers go by its tick, move time from window to window and add none.
///
/// Whoever changes its period gains nothing by that: the period that is served goes on until what was consumed in it would
/// have been granted in equal parts, by the reservation that was held then, and is no shorter than the new length; then, at
/// the new length's next multiple, comes the next budget. Had it a budget at each begin that it makes for itself, a task that
/// changes its period again and again would have them all.
///
/// It holds no clock: the caller says what time it is, and what the meter reads.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    reservation: Reservation,
    hard: bool,
    /// End of the period that is served; before it, `base` is the meter's reading at its begin.
    ends: Instant,
    base: Span,
    raised: bool,
    /// Begin of the period that is served, which is no shorter than the length that is held.
    begun: Instant,
    /// When what was consumed in it, until the meter read `counted`, would have been granted in equal parts.
    earned: Instant,
    counted: Span,
    /// What it may consume in the period that is served: the budget, or what an earlier one had granted already.
    due: Span,
    /// The meter's reading at the last look.
    seen: Span,
    /// What was left of budgets before, for steps while the meter stands still; and what of it was spent in this period.
    saved: Span,
    spent: Span,
    /// Whether the meter had moved at the last look, and whether that opened a period.
    ran: bool,
    opened: bool,
    /// Periods in a row without consumption.
    quiet: u32,
}

impl Window {
    /// The shortest time between two looks: a shorter one would cost more than it saves.
    pub const LEAST_STEP: Span = Span::from_micros(100);

    /// A sleeping task counts as awake after this much consumption.
    pub const WAKES_AFTER: Span = Span::from_micros(50);

    /// A sleeping task is looked at this often, or once a period if that is longer, because threads without an alarm
    /// may run.
    pub const LONGEST_SLEEP: Span = Span::from_millis(250);

    /// The longest step while the meter stands still: whoever is below may wait so long for a task that wakes up.
    const LONGEST_STEP: Span = Span::from_millis(5);

    /// How many budgets a hard one owes at most.
    const MOST_OWED: u64 = 10;

    /// A window that was never looked at: its first [`Window::look`] opens it.
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

    /// Makes it hard, or soft again. What was consumed while it was soft is not owed.
    pub fn harden(&mut self, hard: bool, meter: Span) {
        if hard && !self.hard {
            self.base = self.base.max(meter.saturating_sub(self.reservation.budget()));
        }
        self.hard = hard;
    }

    /// The longest step that one part in so many of a period is.
    pub fn step(period: Span, part: u64) -> Span {
        Span::from_nanos(period.as_nanos() / part.max(1)).clamp(Window::LEAST_STEP, Window::LONGEST_STEP)
    }

    /// Whether the task has consumed nothing since the last look, although it was raised.
    pub fn is_still(&self, meter: Span) -> bool {
        self.raised && meter == self.seen
    }

    /// What it holds.
    pub const fn reservation(&self) -> Reservation {
        self.reservation
    }

    /// Whether the threads are to be raised now.
    pub const fn is_raised(&self) -> bool {
        self.raised
    }

    /// Takes another reservation, in the middle of a period if need be: what was consumed in it counts, and what the old one
    /// had granted of that is not owed. A new period length takes effect at its first multiple at which what was consumed is
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
        self.look(now, meter, None)
    }

    /// At the instant that the last step named, or any other: decides by the meter's reading. While that stands still, the
    /// next step may be as long as this `part` of the period; `None`: it is as if it did not.
    pub fn look(&mut self, now: Instant, meter: Span, part: Option<u64>) -> WindowStep {
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
        if was { WindowStep::Look(at) } else { WindowStep::Raise(at) }
    }

    /// After a look that led to `step`: what to wait for, if each of the raised `threads` has an alarm.
    ///
    /// One thread consumes the budget by itself, so its alarm is the remaining budget. Of several threads, one has
    /// consumed its part ([`WindowAlarm::parts`]) before all have consumed the rest; after its report the window is watched by
    /// looks, as without alarms. A task that consumed nothing in a whole period sleeps: looks become rarer, and
    /// [`Window::WAKES_AFTER`] of consumption end its sleep. That consumption counts in no period, so the task can
    /// overshoot by it.
    pub fn rest(&self, step: WindowStep, threads: usize) -> WindowAlarm {
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

    /// Ends the period that is served, and begins the one of `now`.
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

    /// What was consumed since this was last counted is earned by what was held meanwhile. At its end the period has granted
    /// it all.
    fn earn(&mut self, meter: Span) {
        let more = u128::from(meter.saturating_sub(self.counted).as_nanos());
        let takes = more * u128::from(self.reservation.period().as_nanos());
        let takes = takes.div_ceil(u128::from(self.reservation.budget().as_nanos()));
        let takes = Span::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        self.earned = self.earned.saturating_add(takes).min(self.ends);
        self.counted = self.counted.max(meter);
    }

    /// What was consumed raised beyond what was due is taken from what was saved.
    fn spend(&mut self, meter: Span) {
        let spent = self.consumed(meter).saturating_sub(self.due).saturating_sub(self.spent).min(self.saved);
        self.saved = self.saved.saturating_sub(spent);
        self.spent += spent;
    }

    /// Consumed beyond the budgets of the periods that have ended since `base`.
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
