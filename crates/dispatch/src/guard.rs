//! Release guards (Sun and Liu 1996; in TAO: Zhang et al., RTAS 2005, section 3).

use hyoshi_model::{Guard, Instant, Span};

/// Keeps two releases of one subtask at least a period apart, so analysis may treat the subtask as periodic.
///
/// ```text
///            arrive, now >= g               arrive, now < g
///   Open ───────────────────► released   ───────────────────► Held(until g)
///     ▲                                                            │ timer, or idle point (rule 3)
///     └────────────────────────────────────────────────────────────┘ released
/// ```
///
/// It has no clock and no timer: the caller passes the time and sets the timer.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseGuard {
    rules: Guard,
    /// `g`: nothing is released before.
    until: Instant,
}

impl ReleaseGuard {
    /// An open guard: `g = 0`.
    pub fn new(rules: Guard) -> Self {
        ReleaseGuard { rules, until: Instant::ZERO }
    }

    /// The earliest instant at which a job that arrives at `now` may be released: max(g, now).
    pub fn earliest(&self, now: Instant) -> Instant {
        if self.rules == Guard::Off { now } else { now.max(self.until) }
    }

    /// A guard with the same rules and no earlier release.
    pub fn fresh(&self) -> Self {
        ReleaseGuard::new(self.rules)
    }

    /// Rule 1: a job is released at `now`; the next may follow a `period` later. The period is the present one of the
    /// job's root: otherwise adapted rates would break the guard.
    pub fn release(&mut self, now: Instant, period: Span) {
        self.until = now.saturating_add(period);
    }

    /// Rule 3: the processor is idle at `now`, so an early release delays no other job. True if that opened the guard.
    pub fn idle_point(&mut self, now: Instant) -> bool {
        let opens = self.rules == Guard::Idle && self.until > now;
        if opens {
            self.until = now;
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn guarded_releases_are_a_period_apart_and_never_before_arrival(
            arrivals in prop::collection::vec(0u64..1_000, 1..50), period in 1u64..300
        ) {
            let mut guard = ReleaseGuard::new(Guard::On);
            let (mut now, mut last) = (Instant::ZERO, None::<Instant>);
            for gap in arrivals {
                now += Span::from_nanos(gap);
                let release = guard.earliest(now.max(last.unwrap_or_default()));
                guard.release(release, Span::from_nanos(period));
                prop_assert!(release >= now);
                if let Some(last) = last {
                    prop_assert!(release.since(last) >= Span::from_nanos(period));
                }
                last = Some(release);
            }
        }
    }

    #[test]
    fn rule_three_opens_the_guard_at_an_idle_point_and_only_if_asked() {
        let (now, period) = (Instant::from_nanos(10), Span::from_nanos(100));
        for (rules, opens) in [(Guard::On, false), (Guard::Idle, true)] {
            let mut guard = ReleaseGuard::new(rules);
            guard.release(Instant::ZERO, period);
            assert_eq!(guard.idle_point(now), opens);
            assert_eq!(guard.earliest(now) == now, opens);
        }
    }
}
