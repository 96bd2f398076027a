//! The monitor of a feedback loop: the utilisation of a processor's CPU in each sampling period.

use hyoshi_model::{Instant, Span};

/// Measures at the ends of the sampling periods, `period`, `2 period`, ...
#[derive(Debug)]
pub(crate) struct LoadMonitor {
    period: Span,
    /// The hard cap, in parts per million.
    cap_ppm: u32,
    due: Instant,
    /// The last reading that succeeded, and its time.
    last: Option<(Instant, Span)>,
}

impl LoadMonitor {
    /// The first period begins at `now`, when the CPU time that counts was `used`.
    pub fn new(period: Span, cap_ppm: u32, now: Instant, used: Option<Span>) -> Self {
        let last = used.map(|used| (now, used));
        let mut monitor = LoadMonitor { period, cap_ppm, due: Instant::ZERO, last };
        monitor.skip_to(now);
        monitor
    }

    /// The end of the present sampling period.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A sampling period has ended: the utilisation since the last reading, in parts per million of the hard cap.
    /// `None` if `used`, the CPU time that counts, is not known. Missed periods are skipped.
    pub fn measure(&mut self, now: Instant, used: Option<Span>) -> Option<u32> {
        self.skip_to(now);
        let read = used.map(|used| (now, used));
        let before = self.last;
        self.last = read.or(before);
        let ((from, busy), (to, now_busy)) = (before?, read?);
        utilisation(now_busy.saturating_sub(busy), to.since(from), self.cap_ppm)
    }

    fn skip_to(&mut self, now: Instant) {
        let periods = now.as_nanos() / self.period.as_nanos() + 1;
        self.due = Instant::from_nanos(self.period.as_nanos().saturating_mul(periods));
    }
}

/// The part of `span` that is `busy`, in parts per million of the hard cap.
fn utilisation(busy: Span, span: Span, cap_ppm: u32) -> Option<u32> {
    if span.is_zero() {
        return None;
    }
    let busy = u128::from(busy.as_nanos()) * 1_000_000_000_000;
    u32::try_from(busy / u128::from(span.as_nanos()) / u128::from(cap_ppm.max(1))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_utilisation_is_a_part_of_the_hard_cap() {
        let ms = Span::from_millis;
        assert_eq!(utilisation(ms(47), ms(100), 940_000), Some(500_000));
        assert_eq!(utilisation(ms(100), ms(100), 500_000), Some(2_000_000));
        assert_eq!(utilisation(ms(1), ms(0), 1_000_000), None);
    }

    #[test]
    fn missed_periods_are_skipped() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut monitor = LoadMonitor::new(Span::from_millis(100), 1_000_000, at(0), None);
        assert_eq!(monitor.due(), at(100));
        assert_eq!(monitor.measure(at(100), Some(Span::ZERO)), None);
        assert_eq!(monitor.due(), at(200));
        assert_eq!(monitor.measure(at(450), Some(Span::from_millis(70))), Some(200_000));
        assert_eq!(monitor.due(), at(500));
    }
}
