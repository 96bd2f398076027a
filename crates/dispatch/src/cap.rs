//! The cap on the CPU time of lanes: it keeps the machine usable, and keeps the kernel's own throttling, which stops
//! all lanes alike, from acting.
//!
//! The lanes have a budget in each window. Non-critical work of a lane may start only while the budget still covers a
//! reserve for the work above it: all critical work of the processor, and the non-critical work of more urgent lanes,
//! at their declared utilisation, for the rest of the window. So the least urgent lanes are gated first, and critical
//! work never is.
//!
//! Critical work may then use more than a window's budget: under a strategy that runs non-critical work first, the
//! delayed critical work runs when that is gated. The next window's non-critical work pays for the excess. Otherwise
//! lanes would use the whole CPU in every window, and the kernel's fair server would stop them for 50 ms (observed with
//! RMS at 105 % load).

use alloc::vec::Vec;

use hyoshi_model::{Instant, Span};

const MILLION: u128 = 1_000_000;

/// No lane is gated.
pub const OPEN: u8 = u8::MAX;

/// The cap of one processor. Inputs: busy and idle times; outputs: the first gated lane and a timer.
#[derive(Clone, Debug)]
pub struct CapEnforcer {
    window: Span,
    budget: Span,
    /// The reserve above each lane, in parts per million; never decreasing.
    reserve_ppm: Vec<u32>,
    window_end: Instant,
    used: Span,
    busy_since: Option<Instant>,
    gate: u8,
}

impl CapEnforcer {
    /// A cap of `cap_ppm` parts per million in each `window`, or `None` if there is no cap.
    pub fn new(cap_ppm: u32, window: Span, lanes: usize) -> Option<CapEnforcer> {
        let budget = share(cap_ppm, window);
        let cap = CapEnforcer {
            window,
            budget,
            reserve_ppm: alloc::vec![0; lanes],
            window_end: Instant::ZERO + window,
            used: Span::ZERO,
            busy_since: None,
            gate: OPEN,
        };
        (u128::from(cap_ppm) < MILLION && !window.is_zero()).then_some(cap)
    }

    /// Sets the reserve above each lane (an epoch changes it), in parts per million. It is clamped to `cap`, so an idle
    /// processor never gates, and made monotone.
    pub fn reserve(&mut self, reserve_ppm: impl Iterator<Item = u64>) {
        let cap = (u128::from(self.budget.as_nanos()) * MILLION / u128::from(self.window.as_nanos())) as u64;
        let mut floor = 0;
        for (kept, wanted) in self.reserve_ppm.iter_mut().zip(reserve_ppm) {
            floor = wanted.min(cap.saturating_sub(1)).max(floor);
            *kept = floor as u32;
        }
    }

    /// The most urgent lane with non-critical work that may not start, else [`OPEN`].
    pub fn gate(&self) -> u8 {
        self.gate
    }

    /// From `now` on the lanes use the CPU, or not. Returns true if the gate has moved.
    pub fn account(&mut self, now: Instant, busy: bool) -> bool {
        let ran_since = self.busy_since;
        self.used += ran_since.map_or(Span::ZERO, |since| now.since(since));
        self.busy_since = busy.then_some(now);
        let before = self.gate;
        if now >= self.window_end {
            // The window of `now`; time beyond its predecessor's end counts here.
            let start = Instant::from_nanos(now.as_nanos() - now.as_nanos() % self.window.as_nanos());
            let here = ran_since.map_or(Span::ZERO, |since| now.since(since.max(start)));
            let rested = ran_since.is_none() && start > self.window_end;
            let owed = if rested { Span::ZERO } else { self.used.saturating_sub(here + self.budget) };
            self.window_end = start + self.window;
            self.used = owed.min(self.budget) + here;
            self.gate = OPEN;
        }
        let left = self.window_end.since(now);
        while let Some(candidate) = self.candidate() {
            if self.used + share(self.reserve_ppm[usize::from(candidate)], left) < self.budget {
                break;
            }
            self.gate = candidate;
        }
        self.gate != before
    }

    /// The next call of [`CapEnforcer::account`] if nothing else happens.
    pub fn timer(&self) -> Instant {
        match (self.busy_since, self.candidate()) {
            // used + (t - since) + reserve (end - t) reaches the budget at t.
            (Some(since), Some(candidate)) => {
                let reserve = self.reserve_ppm[usize::from(candidate)];
                let kept = share(reserve, self.window_end.since(since));
                let spare = self.budget.saturating_sub(self.used + kept).as_nanos();
                let pace = MILLION as u64 - u64::from(reserve);
                let nanos = match spare.checked_mul(MILLION as u64) {
                    Some(product) => product.div_ceil(pace),
                    None => (u128::from(spare) * MILLION).div_ceil(u128::from(pace)).min(u128::from(u64::MAX)) as u64,
                };
                since.saturating_add(Span::from_nanos(nanos)).min(self.window_end)
            }
            (Some(_), None) => self.window_end,
            (None, _) if self.gate != OPEN => self.window_end,
            (None, _) => Instant::NEVER,
        }
    }

    /// The lane that would be gated next.
    fn candidate(&self) -> Option<u8> {
        let lanes = self.reserve_ppm.len() as u8;
        self.gate.min(lanes).checked_sub(1)
    }
}

fn share(ppm: u32, of: Span) -> Span {
    // It nearly always fits 64 bits, in which dividing is several times as fast.
    let nanos = match of.as_nanos().checked_mul(u64::from(ppm)) {
        Some(product) => product / MILLION as u64,
        None => (u128::from(of.as_nanos()) * u128::from(ppm) / MILLION) as u64,
    };
    Span::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    fn two_lanes() -> CapEnforcer {
        let mut cap = CapEnforcer::new(900_000, Span::from_millis(100), 2).unwrap();
        cap.reserve([300_000, 300_000].into_iter());
        cap
    }

    #[test]
    fn a_cap_of_the_whole_cpu_is_disabled() {
        assert!(CapEnforcer::new(1_000_000, Span::from_millis(100), 1).is_none());
    }

    #[test]
    fn a_busy_processor_gates_when_the_rest_of_the_budget_is_the_reserve() {
        let mut cap = two_lanes();
        cap.account(at_ms(0), true);
        // used t + 0.3 (100 - t) = 90 at t = 600 / 7 ms.
        assert_eq!(cap.timer().as_nanos(), 85_714_286);
        assert!(!cap.account(at_ms(80), true));
        assert!(cap.account(cap.timer(), true));
        assert_eq!(cap.gate(), 0);
        assert!(cap.account(at_ms(100), true));
        assert_eq!(cap.gate(), OPEN);
    }

    #[test]
    fn what_critical_work_took_beyond_the_budget_the_next_window_owes() {
        let mut cap = two_lanes();
        cap.account(at_ms(0), true);
        cap.account(cap.timer(), true);
        assert_eq!(cap.gate(), 0);
        // Delayed critical work fills the rest of the window: 10 ms more than the budget.
        cap.account(at_ms(100), true);
        // used 10 + t + 0.3 (100 - t) = 90 at t = 500 / 7 ms.
        assert_eq!(cap.timer().as_nanos(), 171_428_572);
        cap.account(cap.timer(), false);
        // An idle window pays the debt.
        cap.account(at_ms(330), true);
        assert_eq!(cap.used, Span::ZERO);
    }

    #[test]
    fn a_window_at_rest_pays_a_debt_and_one_that_has_just_begun_does_not() {
        for (next, owed) in [(130, 5), (230, 0)] {
            let mut cap = two_lanes();
            cap.account(at_ms(0), true);
            cap.account(at_ms(95), false);
            cap.account(at_ms(next), true);
            assert_eq!(cap.used, Span::from_millis(owed), "next at {next} ms");
        }
    }

    #[test]
    fn an_idle_processor_sets_no_timer() {
        let mut cap = two_lanes();
        cap.account(at_ms(0), true);
        cap.account(at_ms(50), false);
        assert_eq!(cap.timer(), Instant::NEVER);
    }

    proptest! {
        /// The whole law against a count of milliseconds, lane by lane. A reserve of the whole CPU leaves an idle one
        /// open.
        #[test]
        fn windows_debts_and_gates_are_those_of_a_count_of_milliseconds(
            steps in prop::collection::vec((1u64..150, any::<bool>()), 1..60),
            reserves in prop::collection::vec(0u64..=1_000_000, 1..4),
        ) {
            let (window, budget) = (100, 90);
            let mut cap = CapEnforcer::new(900_000, Span::from_millis(window), reserves.len()).unwrap();
            cap.reserve(reserves.iter().copied());
            let monotone = reserves.iter().scan(0, |floor, reserve| {
                *floor = (*reserve).min(899_999).max(*floor);
                Some(*floor)
            });
            let reserves = monotone.collect::<alloc::vec::Vec<u64>>();
            let (mut ran, mut busy) = (alloc::vec::Vec::new(), false);
            let (mut now, mut begin, mut owed, mut gate) = (0, 0, 0, OPEN);
            let count = |ran: &[bool]| ran.iter().filter(|ran| **ran).count() as u64;
            for (step, next) in steps {
                now += step;
                ran.resize(now as usize, busy);
                let start = now / window * window;
                if start > begin {
                    let used = owed + count(&ran[begin as usize..start as usize]);
                    let rested = !busy && start > begin + window;
                    owed = if rested { 0 } else { used.saturating_sub(budget).min(budget) };
                    (begin, gate) = (start, OPEN);
                }
                cap.account(at_ms(now), next);
                busy = next;
                let (used, left) = (owed + count(&ran[begin as usize..]), begin + window - now);
                prop_assert_eq!((cap.used, cap.window_end), (Span::from_millis(used), at_ms(begin + window)));
                let open = reserves.iter().filter(|reserve| used * 1_000_000 + **reserve * left < budget * 1_000_000).count();
                gate = if open < reserves.len() { gate.min(open as u8) } else { gate };
                prop_assert_eq!(cap.gate(), gate);
            }
        }

        /// Under any greedy load, delayed critical work included, the cap holds over many windows, except for the debt
        /// of the last one.
        #[test]
        fn over_many_windows_the_cap_holds(critical_ms in 0u64..80, late in 0u64..100, windows in 10u64..40) {
            let mut cap = CapEnforcer::new(900_000, Span::from_millis(100), 1).unwrap();
            cap.reserve([critical_ms * 10_000].into_iter());
            let (mut critical, mut used) = (0, 0);
            for ms in 0..100 * windows {
                // Released as late in its period as the strategy delays it.
                critical += if ms % 100 == late { critical_ms } else { 0 };
                let greedy = cap.gate() == OPEN;
                let busy = greedy || critical > 0;
                critical -= u64::from(busy && !greedy);
                used += u64::from(busy);
                cap.account(at_ms(ms), busy);
                cap.account(at_ms(ms + 1), busy);
            }
            // Decisions are a millisecond apart here.
            prop_assert!(used <= 91 * windows + 100, "{used} ms of {windows} windows");
        }

        /// Non-critical work that obeys the gate, and critical work within its reserve, stay within the cap.
        #[test]
        fn critical_work_within_its_reserve_always_finds_budget(
            critical_ppm in 0u32..800_000, seed in prop::collection::vec(1u64..20, 1..40)
        ) {
            let window = Span::from_millis(100);
            let mut cap = CapEnforcer::new(900_000, window, 1).unwrap();
            cap.reserve([u64::from(critical_ppm)].into_iter());
            let mut now = Instant::ZERO;
            for step in seed {
                // Greedy non-critical work runs until it is gated, or for a step.
                cap.account(now, cap.gate() == OPEN);
                let until = cap.timer().min(now + Span::from_millis(step));
                cap.account(until, false);
                let left = cap.window_end.since(until);
                prop_assert!(cap.used + share(critical_ppm, left) <= cap.budget + Span::from_nanos(2));
                now = until + Span::from_millis(1);
            }
        }

        #[test]
        fn less_urgent_lanes_are_gated_no_later_than_more_urgent_ones(
            reserves in prop::collection::vec(0u64..1_000_000, 1..8), run in 0u64..100
        ) {
            let mut cap = CapEnforcer::new(900_000, Span::from_millis(100), reserves.len()).unwrap();
            cap.reserve(reserves.iter().copied());
            cap.account(Instant::ZERO, true);
            cap.account(at_ms(run), true);
            prop_assert!(cap.reserve_ppm.is_sorted());
            prop_assert!(cap.gate() == OPEN || usize::from(cap.gate()) < reserves.len());
        }
    }
}
