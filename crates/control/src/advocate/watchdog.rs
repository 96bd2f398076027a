//! Watchdog: requests more if reports are missing.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::{Instant, Reservation, Share};

use super::kind::{AdvocateKind, AdvocateParameter, ParameterUnit};
use super::{Advice, Advocate, with_headroom};
use crate::task::Status;

pub(super) const KIND: AdvocateKind = AdvocateKind {
    name: "watchdog",
    about: "requests more if reports are missing although the task is busy: a cycle may need far more than it holds",
    parameters: &[
        AdvocateParameter {
            name: "periods",
            about: "how many periods without a report it waits",
            measure: ParameterUnit::Count,
            least: 1,
            most: 1_000,
            default: Some(2),
        },
        AdvocateParameter {
            name: "raise",
            about: "how much more it then requests, and again after each further period, relative to the request",
            measure: ParameterUnit::Share,
            least: 10_000,
            most: 10_000_000,
            default: Some(500_000),
        },
    ],
    build: |settings| Box::new(Watchdog::new(settings[0], settings[1] as u32)),
};

/// Wakes up when some expected reports are missing (the paper's section III-A), checks whether its task uses up its
/// reservation, and requests more and more until it reports.
///
/// ```text
///               report                      `periods` without one, and busy
///   Quiet ◄───────────────── Raised(n) ◄────────────────────────────────────── Quiet
///                              │  ▲
///                              └──┘ another period without one, and busy: n + 1
/// ```
///
/// A task that consumed less than half of its reservation meanwhile is not starved but idle; its request stays.
#[derive(Clone, Debug)]
pub struct Watchdog {
    periods: u64,
    raise: u32,
    /// The last report, or the start of the watch.
    since: Option<Instant>,
    look: Instant,
    raised: u32,
    idle: bool,
}

impl Watchdog {
    /// After `periods` without a report, by `raise` millionths of the request.
    pub fn new(periods: u64, raise: u32) -> Self {
        Watchdog { periods: periods.max(1), raise, since: None, look: Instant::NEVER, raised: 0, idle: false }
    }

    fn is_busy(status: &Status, since: Instant) -> bool {
        let Some(held) = status.held else { return true };
        let periods = status.at.since(since).as_nanos() / held.period().as_nanos();
        let had = u128::from(held.budget().as_nanos()) * u128::from(periods.max(1));
        2 * u128::from(status.consumed.as_nanos()) >= had
    }
}

impl Advocate for Watchdog {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        let wait = asked.period().checked_mul(self.periods).unwrap_or(Reservation::LONGEST);
        match self.since {
            Some(since) if status.cycles == 0 => {
                if status.at >= self.look {
                    self.idle = !Watchdog::is_busy(status, since);
                    self.raised = if self.idle { 0 } else { (self.raised + 1).min(1_000) };
                    self.look = status.at.saturating_add(asked.period());
                }
            }
            _ => {
                (self.since, self.raised, self.idle) = (Some(status.at), 0, false);
                self.look = status.at.saturating_add(wait);
            }
        }
        if self.raised == 0 {
            return asked.into();
        }
        with_headroom(asked.budget(), self.raise.saturating_mul(self.raised), asked).into()
    }

    fn next_check(&self) -> Instant {
        self.look
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.raised, self.since) {
            (0, None) => f.write_str("no report yet"),
            (0, _) if self.idle => f.write_str("reports are missing, but the task is idle"),
            (0, _) => f.write_str("reports arrive"),
            (times, _) => {
                let more = Share::from_millionths(u64::from(self.raise) * u64::from(times));
                match self.periods + u64::from(times) - 1 {
                    1 => write!(f, "no report for a period: requests {more} more"),
                    periods => write!(f, "no report for {periods} periods: requests {more} more"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Span;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn it_asks_for_more_and_more_while_a_busy_task_does_not_report() {
        let asked = Reservation::new(Span::from_millis(10), Span::from_millis(100)).unwrap();
        let mut watchdog = Watchdog::new(2, 500_000);
        let mut advise = |status: Status| {
            let status = Status { held: Some(asked), ..status };
            let ask = watchdog.advise(&status, asked).ask.budget().as_nanos() / 1_000_000;
            (ask, watchdog.next_check().as_nanos() / 1_000_000)
        };
        let ms = Span::from_millis;
        assert_eq!(advise(Status::of_cycle(at(0), ms(9))), (10, 200));
        assert_eq!(advise(Status::overdue(at(150), ms(15))), (10, 200), "too early to say");
        assert_eq!(advise(Status::overdue(at(200), ms(20))), (15, 300));
        assert_eq!(advise(Status::overdue(at(300), ms(35))), (20, 400));
        assert_eq!(advise(Status::of_cycle(at(350), ms(40))), (10, 550), "a report ends it");
        assert_eq!(advise(Status::overdue(at(550), ms(3))), (10, 650), "an idle task needs no more");
    }
}
