//! The monitor of a feedback loop: the utilisation of a processor's CPU in each sampling period.

use hyoshi_model::{HardCap, Instant, Span};

/// Measures at the ends of the sampling periods, `period`, `2 period`, ... If a measurement is late by more than half a
/// period, it belongs to the next end, so that no measurement covers less than half a period.
#[derive(Debug)]
pub(crate) struct LoadMonitor {
    period: Span,
    cap: HardCap,
    due: Instant,
    /// The last reading that succeeded, and its time.
    last: Option<(Instant, Span)>,
}

impl LoadMonitor {
    /// The first period begins at `now`, when the CPU time that counts was `used`.
    pub fn new(period: Span, cap: HardCap, now: Instant, used: Option<Span>) -> Self {
        let last = used.map(|used| (now, used));
        let mut monitor = LoadMonitor { period, cap, due: Instant::ZERO, last };
        monitor.skip_to(now);
        monitor
    }

    /// The end of the present sampling period.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The number of sampling periods that have ended by the last measurement.
    pub fn ended(&self) -> u64 {
        self.due.as_nanos() / self.period.as_nanos() - 1
    }

    /// A sampling period has ended: the utilisation since the last reading, in parts per million of the hard cap.
    /// `None` if `used`, the CPU time that counts, is not known. Missed periods are skipped.
    pub fn measure(&mut self, now: Instant, used: Option<Span>) -> Option<u32> {
        self.skip_to(now);
        let read = used.map(|used| (now, used));
        let before = self.last;
        self.last = read.or(before);
        let ((from, busy), (to, now_busy)) = (before?, read?);
        self.cap.utilisation_ppm(now_busy.saturating_sub(busy), to.since(from))
    }

    fn skip_to(&mut self, now: Instant) {
        let half = (self.period.as_nanos() - 1) / 2;
        let periods = now.as_nanos().saturating_add(half) / self.period.as_nanos() + 1;
        self.due = Instant::from_nanos(self.period.as_nanos().saturating_mul(periods));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn missed_periods_are_skipped() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut monitor = LoadMonitor::new(Span::from_millis(100), HardCap::OFF, at(0), None);
        assert_eq!(monitor.due(), at(100));
        assert_eq!(monitor.measure(at(100), Some(Span::ZERO)), None);
        assert_eq!(monitor.due(), at(200));
        assert_eq!(monitor.measure(at(450), Some(Span::from_millis(70))), Some(200_000));
        assert_eq!((monitor.due(), monitor.ended()), (at(500), 4));
    }

    proptest! {
        #[test]
        fn no_measurement_covers_less_than_half_a_period(
            period in 1_000_000u64..10_000_000_000,
            late in prop::collection::vec(0u64..50_000_000_000, 1..50),
        ) {
            let mut now = Instant::ZERO;
            let mut monitor = LoadMonitor::new(Span::from_nanos(period), HardCap::OFF, now, Some(Span::ZERO));
            for late in late {
                let begin = now;
                now = monitor.due() + Span::from_nanos(late % (3 * period));
                let covered = now.since(begin).as_nanos();
                prop_assert!(2 * covered + 1 >= period, "{covered} of {period}");
                prop_assert_eq!(monitor.measure(now, Some(now.since(Instant::ZERO))), Some(1_000_000));
                let end = monitor.ended() * period;
                prop_assert!(end.abs_diff(now.as_nanos()) <= period / 2 + 1, "{now} belongs to {end}");
                prop_assert!(monitor.due() > now);
            }
        }
    }
}
