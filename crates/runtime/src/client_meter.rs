//! The requests of one registered client: its rate, and the requests above it.

use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::Span;

use crate::remote::Rejected;

/// Requests that a client may send at once: networks and threads delay single requests.
const BURST: u64 = 3;

/// Admits the requests or publications of a registered client at its rate (the generic cell rate algorithm, ITU-T
/// I.371). The thread that reads them uses it, without a lock.
#[derive(Debug, Default)]
pub struct ClientMeter {
    /// The period that the client knows, in ns; 0 while no client is registered.
    period: AtomicU64,
    /// When the next request would be due if all earlier ones had been one period apart, in ns of CLOCK_MONOTONIC.
    due: AtomicU64,
    /// When the last request arrived.
    last: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
}

impl ClientMeter {
    /// A client is registered from now on.
    pub fn begin(&self, period: Span, now: u64) {
        [&self.due, &self.admitted, &self.refused].into_iter().for_each(|one| one.store(0, Ordering::Relaxed));
        self.last.store(now, Ordering::Relaxed);
        self.period.store(period.as_nanos().max(1), Ordering::Release);
    }

    /// The client has left.
    pub fn end(&self) {
        self.period.store(0, Ordering::Release);
    }

    /// The client knows this period. No effect without a client.
    pub fn set_period(&self, period: Span) {
        let registered = |known: u64| (known > 0).then_some(period.as_nanos().max(1));
        let _ = self.period.fetch_update(Ordering::Release, Ordering::Relaxed, registered);
    }

    /// The period that the client knows; zero without a client.
    pub fn period(&self) -> Span {
        Span::from_nanos(self.period.load(Ordering::Acquire))
    }

    /// A request at `now`, in ns. Returns the client's period.
    ///
    /// # Errors
    ///
    /// `Unregistered` without a registered client, `TooSoon` beyond its rate.
    pub fn admit(&self, now: u64) -> Result<Span, Rejected> {
        let period = self.period.load(Ordering::Acquire);
        if period == 0 {
            return Err(Rejected::Unregistered);
        }
        let last = self.last.fetch_max(now, Ordering::Relaxed);
        let keeps = |due: u64| {
            // A constant period never exceeds this limit. After a shorter period, earlier longer ones do not count.
            let due = due.min(last.saturating_add(period.saturating_mul(BURST)));
            let within = due.saturating_sub(now) <= period.saturating_mul(BURST - 1);
            within.then(|| due.max(now).saturating_add(period))
        };
        if self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, keeps).is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Rejected::TooSoon);
        }
        self.admitted.fetch_add(1, Ordering::Relaxed);
        Ok(Span::from_nanos(period))
    }

    /// When the last request arrived, in ns.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Requests beyond the rate.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_client_that_keeps_its_period_is_never_refused_and_none_exceeds_its_rate(
            gaps in prop::collection::vec(0u64..3_000, 1..300),
        ) {
            let meter = ClientMeter::default();
            prop_assert!(meter.admit(1).is_err(), "no client is registered");
            meter.begin(Span::from_nanos(1_000), 1);
            let keeps = gaps.iter().all(|gap| *gap >= 1_000);
            let (mut now, mut admitted) = (1, 0);
            for gap in gaps {
                now += gap;
                let is_admitted = meter.admit(now).is_ok();
                prop_assert!(is_admitted || !keeps);
                admitted += u64::from(is_admitted);
                prop_assert!(admitted <= now / 1_000 + BURST + 1);
                prop_assert_eq!(meter.last(), now);
            }
        }
    }

    proptest! {
        #[test]
        fn a_client_that_keeps_changing_periods_is_never_refused(
            requests in prop::collection::vec((1u64..100_000, 0u64..1_000, 1usize..4), 1..100),
        ) {
            let meter = ClientMeter::default();
            let mut now = 1;
            meter.begin(Span::from_nanos(1_000), now);
            for (period, late, count) in requests {
                meter.set_period(Span::from_nanos(period));
                for _ in 0..count {
                    now += period + late;
                    prop_assert!(meter.admit(now).is_ok());
                }
            }
        }
    }

    #[test]
    fn after_its_end_no_request_is_admitted_and_a_new_client_begins_anew() {
        let meter = ClientMeter::default();
        meter.begin(Span::from_millis(10), 1);
        let answers: Vec<bool> = (0..5).map(|_| meter.admit(1).is_ok()).collect();
        assert_eq!((answers, meter.refused()), (vec![true, true, true, false, false], 2));
        meter.end();
        assert_eq!(meter.admit(1_000_000_000), Err(Rejected::Unregistered));
        meter.begin(Span::from_millis(10), 1);
        assert!(meter.admit(1).is_ok());
        assert_eq!(meter.refused(), 0);
    }
}
