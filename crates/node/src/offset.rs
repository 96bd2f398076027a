//! The offset of another node's clock, from round trips (RFC 5905, section 8: on-wire protocol; the sample with the
//! shortest round trip has the least error).
//!
//! ```text
//!   own clock    t1 ──────────────────────────────► t4
//!                   \                             /
//!   its clock         t2 (received) ─► t3 (sent)
//! ```
//!
//! The request was received at t2, between t1 and t4. The error of the offset at that time is at most half of
//! (t4 - t1) - (t3 - t2). The clocks drift apart from t1 on; the drift is measured between samples.

use std::collections::VecDeque;

use hyoshi_model::Span;

/// The times of one round trip, in ns: `sent` and `back` on the own clock, `received` and `answered` on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the request was sent.
    pub sent: u64,
    /// When the other node received it.
    pub received: u64,
    /// When the other node answered.
    pub answered: u64,
    /// When the answer arrived.
    pub back: u64,
}

impl RoundTrip {
    /// Half of the time on the way.
    pub fn one_way(&self) -> Span {
        let there = self.answered.saturating_sub(self.received);
        Span::from_nanos(self.back.saturating_sub(self.sent).saturating_sub(there) / 2)
    }
}

/// The lead of a clock, and its error bound, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The other clock minus the own clock.
    pub offset: i64,
    /// The true offset differs by at most this.
    pub error: u64,
}

/// An impossible round trip: its times are out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

/// The offset of one clock, filtered.
#[derive(Clone, Debug, Default)]
pub struct ClockOffset {
    /// The last samples, the newest last.
    samples: VecDeque<Sample>,
    /// The sample from which drift is measured.
    anchor: Option<Sample>,
    /// The greatest drift between the clocks, in ns a second.
    drift: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// On the own clock: the offset is that of some time from `sent` to `back`.
    sent: u64,
    back: u64,
    offset: i64,
    /// At that time.
    error: u64,
}

/// The number of round trips kept; the one with the least error is used.
pub const WINDOW: usize = 16;

/// The greatest drift of a clock: the kernel slews clocks by 500 ppm at most (adjtimex(2)), here relative to another
/// one.
const MOST_DRIFT: u64 = 1_000_000;

const SECOND: u128 = 1_000_000_000;

impl RoundTrip {
    fn sample(self) -> Result<Sample, Impossible> {
        let RoundTrip { sent, received, answered, back } = self;
        let there = answered.checked_sub(received).ok_or(Impossible)?;
        let round = back.checked_sub(sent).and_then(|all| all.checked_sub(there)).ok_or(Impossible)?;
        // Between received - sent - round and received - sent.
        let latest = i128::from(received) - i128::from(sent);
        let offset = latest - i128::from(round / 2);
        let offset = i64::try_from(offset).map_err(|_| Impossible)?;
        Ok(Sample { sent, back, offset, error: round.div_ceil(2) })
    }
}

impl Sample {
    /// Its error at a later time, if clocks drift by so much.
    fn error_at(&self, now: u64, drift: u64) -> u64 {
        let aged = u128::from(now.saturating_sub(self.sent)) * u128::from(drift);
        self.error.saturating_add(u64::try_from(aged.div_ceil(SECOND)).unwrap_or(u64::MAX))
    }
}

impl ClockOffset {
    /// No samples.
    pub fn new() -> Self {
        ClockOffset { drift: MOST_DRIFT, ..ClockOffset::default() }
    }

    /// Adds a round trip. If it contradicts the earlier ones, they are dropped. True if drift cannot explain that: one
    /// of the clocks has jumped, for example on a suspended machine. Otherwise a clock's rate has changed.
    ///
    /// # Errors
    ///
    /// If its times are impossible; it is ignored.
    pub fn measure(&mut self, trip: RoundTrip) -> Result<bool, Impossible> {
        let sample = trip.sample()?;
        let contradicts = |drift| {
            let error = sample.error_at(sample.back, drift);
            self.best(sample.back, drift)
                .is_some_and(|known| known.offset.abs_diff(sample.offset) > known.error.saturating_add(error))
        };
        let jumped = contradicts(MOST_DRIFT);
        if jumped || contradicts(self.drift) {
            *self = ClockOffset::new();
        }
        self.learn_drift(sample);
        if self.samples.len() == WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        Ok(jumped)
    }

    /// The present estimate.
    pub fn estimate(&self, now: u64) -> Option<Estimate> {
        self.best(now, self.drift)
    }

    fn best(&self, now: u64, drift: u64) -> Option<Estimate> {
        let errors = self.samples.iter().map(|sample| (sample.error_at(now, drift), sample.offset));
        // Among equal ones the newest.
        let (error, offset) = errors.rev().min_by_key(|(error, _)| *error)?;
        Some(Estimate { offset, error })
    }

    /// The greatest drift between the clocks, in ns a second, as far as measured.
    pub fn drift(&self) -> u64 {
        self.drift
    }

    /// The number of round trips in use, at most [`WINDOW`].
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// The greatest change of the offset between the anchor and this sample.
    fn learn_drift(&mut self, sample: Sample) {
        let Some(anchor) = self.anchor else {
            self.anchor = Some(sample);
            return;
        };
        let apart = u128::from(sample.sent.saturating_sub(anchor.back));
        let changed =
            u128::from(anchor.offset.abs_diff(sample.offset)) + u128::from(anchor.error) + u128::from(sample.error);
        let drift = (changed * SECOND)
            .checked_div(apart)
            .map_or(MOST_DRIFT, |drift| u64::try_from(drift + 1).unwrap_or(MOST_DRIFT).min(MOST_DRIFT));
        self.drift = self.drift.min(drift);
        // A sample with less error shows drift sooner. Later, an old anchor would hide a changed clock rate.
        if sample.error < anchor.error && apart < SECOND || apart > 600 * SECOND {
            self.anchor = Some(sample);
            self.drift = if apart > 600 * SECOND { drift } else { MOST_DRIFT };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A round trip at `at` on the own clock, the other one `ahead` and `drift` ns a second faster.
    fn trip(at: u64, ahead: i64, drift: i64, there: u64, stay: u64, back: u64) -> RoundTrip {
        let other = |own: u64| {
            let drifted = i128::from(own) * i128::from(drift) / SECOND as i128;
            (i128::from(own) + i128::from(ahead) + drifted) as u64
        };
        let sum = at + there + stay + back;
        RoundTrip { sent: at, received: other(at + there), answered: other(at + there + stay), back: sum }
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_stated_error(
            ahead in -1_000_000_000_000i64..1_000_000_000_000,
            drift in -200_000i64..200_000,
            trips in prop::collection::vec((1_000_000u64..2_000_000_000, 0u64..3_000_000, 0u64..100_000, 0u64..3_000_000), 1..60),
            later in 0u64..100_000_000_000,
        ) {
            let mut offset = ClockOffset::new();
            let mut at = 2_000_000_000_000;
            for (gap, there, stay, back) in trips {
                at += gap;
                prop_assert_eq!(offset.measure(trip(at, ahead, drift, there, stay, back)), Ok(false));
                at += there + stay + back;
                let drifted = (there + stay + back).div_ceil(SECOND as u64 / MOST_DRIFT);
                let truth = i128::from(ahead) + i128::from(at) * i128::from(drift) / SECOND as i128;
                let known = offset.estimate(at).unwrap();
                // Divisions above round, and `stay` is measured by the other clock.
                prop_assert!((i128::from(known.offset) - truth).unsigned_abs() <= u128::from(known.error) + 50);
                let most = (there + back).div_ceil(2) + drifted;
                prop_assert!(known.error <= most + 50, "at most half of the last round trip, and drift since it began");
            }
            let truth = i128::from(ahead) + i128::from(at + later) * i128::from(drift) / SECOND as i128;
            let known = offset.estimate(at + later).unwrap();
            prop_assert!((i128::from(known.offset) - truth).unsigned_abs() <= u128::from(known.error) + 50);
        }

        #[test]
        fn nothing_that_a_node_answers_makes_it_panic(
            trips in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..40), now: u64,
        ) {
            let mut offset = ClockOffset::new();
            for (sent, received, answered, back) in trips {
                let _ = offset.measure(RoundTrip { sent, received, answered, back });
                let _ = offset.estimate(now);
            }
        }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut offset = ClockOffset::new();
        for (at, there, back) in [(1, 900_000, 100_000), (2, 10_000, 10_000), (3, 0, 800_000)] {
            offset.measure(trip(at * 1_000_000, 5_000_000, 0, there, 0, back)).unwrap();
        }
        let known = offset.estimate(4_000_000).unwrap();
        assert_eq!(known.offset, 5_000_000);
        assert!((10_000..13_000).contains(&known.error), "{known:?}");
    }

    #[test]
    fn a_clock_that_jumps_is_seen_and_what_was_known_is_dropped() {
        let mut offset = ClockOffset::new();
        for at in 1..10 {
            assert_eq!(offset.measure(trip(at * 1_000_000_000, 0, 0, 10_000, 0, 10_000)), Ok(false));
        }
        assert_eq!(offset.measure(trip(10_000_000_000, -3_000_000_000, 0, 10_000, 0, 10_000)), Ok(true));
        assert_eq!((offset.samples(), offset.estimate(10_000_020_000).unwrap().offset), (1, -3_000_000_000));
    }

    #[test]
    fn a_clock_with_a_changed_rate_has_not_jumped() {
        let mut offset = ClockOffset::new();
        let quarter = 250_000_000;
        for at in 1..400 {
            offset.measure(trip(at * quarter, 0, 0, 10_000, 0, 10_000)).unwrap();
        }
        assert!(offset.drift() < 1_000);
        // It is slewed from now on, by 500 ppm.
        for later in 1..400 {
            let gained = (later * quarter / 2_000) as i64;
            assert_eq!(offset.measure(trip((400 + later) * quarter, gained, 0, 10_000, 0, 10_000)), Ok(false));
            let known = offset.estimate((400 + later) * quarter + 20_000).unwrap();
            assert!((known.offset - gained).unsigned_abs() <= known.error, "{later}: {known:?}, in truth {gained}");
        }
    }

    #[test]
    fn drift_is_learnt_so_that_the_error_of_an_old_sample_grows_by_no_more() {
        let mut offset = ClockOffset::new();
        for second in 1..=100 {
            offset.measure(trip(second * 1_000_000_000, 7_000, 20_000, 5_000, 0, 5_000)).unwrap();
        }
        let now = 100_000_010_000;
        let (first, later) = (offset.estimate(now).unwrap(), offset.estimate(now + 1_000_000_000).unwrap());
        assert!(first.error >= 5_000 && later.error - first.error < 21_000, "{first:?} {later:?}");
        assert!(later.error - first.error >= 20_000, "clocks do drift by 20 us a second");
    }
}
