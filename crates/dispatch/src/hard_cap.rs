//! The hard cap: the share of a CPU that lanes may use in any 100 ms, critical work included.
//!
//! The [cap](crate::cap) keeps a reserve for critical work and never stops it. So critical overload uses a CPU until
//! the kernel throttles all real-time threads, once a second: ordinary threads wait for up to 950 ms. The hard cap
//! measures the use by lanes in a window that slides with time, and acts in two steps:
//!
//! ```text
//!   all work has used the budget         non-critical work is gated
//!   critical work has used the budget    every lane is paused
//! ```
//!
//! Each step ends when the use has fallen to the budget less the hysteresis. Critical work is never paused for the use
//! by non-critical work: after a window that non-critical work filled, lanes may use the CPU for up to two budgets
//! without a pause, and non-critical work waits until all use in the window is below the budget again.
//!
//! A pause does not stop a job that holds a resource: it continues until it releases the resource, so critical work may
//! exceed the budget by the declared times of resources. Release threads and the watchdog also run during a pause, for
//! up to 10 us for each release.

use alloc::{boxed::Box, vec};

use hyoshi_model::hard_cap::{LASTING, STEPS, WINDOW};
use hyoshi_model::{HardCap as Share, Instant, Span};

/// With more than this left, the timer is a lower bound. While the CPU is used beyond the budget, use is accounted for
/// at this interval.
const BEYOND: u64 = hyoshi_model::hard_cap::BEYOND.as_nanos();

const STEP: u64 = Share::step().as_nanos();
/// The step of the present time, and all steps that the window before any instant of it overlaps.
const RING: usize = STEPS + 1;

/// The hard cap of one processor. Inputs: times at which lanes use the CPU; outputs: gates, pauses and a timer.
#[derive(Clone, Debug)]
pub struct HardCapEnforcer {
    all: UsageWindow,
    critical: UsageWindow,
    /// The first and the latest pause of a series in short succession.
    first: Instant,
    latest: Instant,
    pauses: u64,
    spent_paused: Span,
}

/// The result of accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardCapChange {
    /// No change.
    None,
    /// Non-critical work is gated from now on, or no longer.
    Gate,
    /// Every lane pauses from now on. `lasting`: pauses have recurred for [`LASTING`], for the first time or again.
    Pause {
        /// See above.
        lasting: bool,
    },
    /// Lanes continue.
    Open,
}

impl HardCapEnforcer {
    /// The hard cap of one processor, or `None` if there is none.
    ///
    /// # Panics
    ///
    /// If the share is below 1 %, which the file's reader rejects.
    pub fn new(share: Share) -> Option<HardCapEnforcer> {
        assert!(share.ppm >= 10_000, "a hard cap below 1 % never lets lanes run");
        share.is_on().then(|| HardCapEnforcer {
            all: UsageWindow::new(share),
            critical: UsageWindow::new(share),
            first: Instant::ZERO,
            latest: Instant::ZERO,
            pauses: 0,
            spent_paused: Span::ZERO,
        })
    }

    /// True while non-critical work must not start.
    #[inline]
    pub fn gated(&self) -> bool {
        self.all.full
    }

    /// True while lanes pause.
    #[inline]
    pub fn paused(&self) -> bool {
        self.critical.full
    }

    /// How often lanes were paused, and for how long in total.
    pub fn pauses(&self, now: Instant) -> (u64, Span) {
        let open = if self.paused() { now.since(self.latest) } else { Span::ZERO };
        (self.pauses, self.spent_paused + open)
    }

    /// From `now` on lanes use the CPU or not, and critical work does or not. Call it again until it returns
    /// [`HardCapChange::None`]: each change may change which lanes use the CPU.
    #[inline]
    pub fn account(&mut self, now: Instant, any: bool, critical: bool) -> HardCapChange {
        let gate = self.all.account(now.as_nanos(), any);
        if self.critical.account(now.as_nanos(), critical) {
            return self.pause(now);
        }
        if gate { HardCapChange::Gate } else { HardCapChange::None }
    }

    /// The next call of [`HardCapEnforcer::account`] if nothing else happens.
    #[inline]
    pub fn timer(&self) -> Instant {
        Instant::from_nanos(self.all.due.min(self.critical.due))
    }

    #[cold]
    fn pause(&mut self, now: Instant) -> HardCapChange {
        if !self.paused() {
            self.spent_paused += now.since(self.latest);
            return HardCapChange::Open;
        }
        self.pauses += 1;
        if now.since(self.latest) > WINDOW * 2 || self.pauses == 1 {
            self.first = now;
        }
        self.latest = now;
        let lasting = now.since(self.first) >= LASTING;
        if lasting {
            self.first = now;
        }
        HardCapChange::Pause { lasting }
    }
}

/// The use of the CPU in the last window, by steps.
#[derive(Clone, Debug)]
struct UsageWindow {
    threshold: u64,
    hysteresis: u64,
    /// By step, and in total.
    used: Box<[u32]>,
    sum: u64,
    /// The end of the accounted time, and whether the CPU is used since.
    at: u64,
    busy: bool,
    /// The budget was used up, and too little of it has returned.
    full: bool,
    /// It cannot be used up before this.
    earliest: u64,
    /// When to account again if nothing else happens.
    due: u64,
}

impl UsageWindow {
    fn new(share: Share) -> UsageWindow {
        UsageWindow {
            threshold: share.threshold().as_nanos(),
            hysteresis: share.hysteresis().as_nanos(),
            used: vec![0; RING].into_boxed_slice(),
            sum: 0,
            at: 0,
            busy: false,
            full: false,
            earliest: 0,
            due: u64::MAX,
        }
    }

    /// From `now` on the CPU is used, or not. True if the budget is now used up and was not, or the reverse.
    #[inline]
    fn account(&mut self, now: u64, busy: bool) -> bool {
        let rests = !self.busy && !busy && !self.full;
        if rests {
            return false;
        }
        self.advance(now);
        let used = core::mem::replace(&mut self.busy, busy);
        let before = self.full;
        self.full = if before { self.sum + self.hysteresis > self.threshold } else { self.sum >= self.threshold };
        self.due = match (self.full, self.busy) {
            (false, false) => u64::MAX,
            (false, true) => {
                if before || now >= self.earliest {
                    self.earliest = self.used_up().max(now + STEP);
                }
                self.earliest
            }
            (true, true) => now + BEYOND,
            (true, false) if before && !used && now < self.due => self.due,
            (true, false) => self.recovered(),
        };
        self.full != before
    }

    /// Accounts for the time until `now`, and drops the steps before the window.
    fn advance(&mut self, now: u64) {
        let now = now.max(self.at);
        if now / STEP - self.at / STEP >= RING as u64 {
            // All recorded use is older than the window.
            self.used.fill(if self.busy { STEP as u32 } else { 0 });
            let step = (now / STEP) as usize % RING;
            self.used[step] = if self.busy { (now % STEP) as u32 } else { 0 };
            self.sum = if self.busy { STEPS as u64 * STEP + now % STEP } else { 0 };
            self.at = now;
            return;
        }
        if !self.busy && self.sum == 0 {
            self.at = now;
            return;
        }
        let mut step = (self.at / STEP) as usize % RING;
        let mut end = (self.at / STEP + 1) * STEP;
        loop {
            let until = end.min(now);
            if self.busy {
                self.used[step] += (until - self.at) as u32;
                self.sum += until - self.at;
            }
            self.at = until;
            if until < end {
                return;
            }
            step = if step + 1 == RING { 0 } else { step + 1 };
            self.sum -= u64::from(core::mem::take(&mut self.used[step]));
            end += STEP;
        }
    }

    /// When the budget is used up if the CPU is used from now on; if that is far, a lower bound.
    fn used_up(&self) -> u64 {
        let mut left = self.threshold - self.sum;
        if left > BEYOND {
            return self.at + left;
        }
        let mut at = self.at;
        for _ in 0..RING {
            let end = (at / STEP + 1) * STEP;
            if left <= end - at {
                return at + left;
            }
            left -= end - at;
            at = end;
            left += u64::from(self.used[(at / STEP) as usize % RING]);
        }
        at
    }

    /// When a pause ends if the CPU is not used.
    fn recovered(&self) -> u64 {
        let (mut sum, mut at) = (self.sum, self.at);
        for _ in 0..RING {
            at = (at / STEP + 1) * STEP;
            sum -= u64::from(self.used[(at / STEP) as usize % RING]).min(sum);
            if sum + self.hysteresis <= self.threshold {
                break;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn share(percent: u32) -> Share {
        Share { ppm: percent * 10_000, ..Share::OFF }
    }

    fn cap() -> HardCapEnforcer {
        HardCapEnforcer::new(share(94)).unwrap()
    }

    fn at_us(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    /// Begins and ends, in nanoseconds.
    type Spans = Vec<(u64, u64)>;

    /// A processor with critical work that needs the CPU for a given time after it was idle for a given time, in
    /// microseconds, alternately. In each pause, `held` microseconds of it run nevertheless. Returns when it ran and
    /// paused.
    fn run(cap: &mut HardCapEnforcer, wanted: &[(u64, u64)], held: u64) -> (Spans, Spans) {
        let (mut ran, mut pauses) = (Spans::new(), Spans::new());
        let (mut now, mut spare) = (0, 0);
        for (idle, work) in wanted {
            let begins = now + idle * 1_000;
            let mut left = work * 1_000;
            while left > 0 {
                let wants = now >= begins;
                let busy = wants && (!cap.paused() || spare > 0);
                match cap.account(Instant::from_nanos(now), busy, busy) {
                    HardCapChange::Pause { .. } => {
                        spare = held * 1_000;
                        pauses.push((now, now));
                        continue;
                    }
                    HardCapChange::Open => {
                        spare = 0;
                        continue;
                    }
                    HardCapChange::Gate | HardCapChange::None => {}
                }
                let stops = match (wants, busy) {
                    (false, _) => begins,
                    (true, false) => u64::MAX,
                    (true, true) if cap.paused() => now + left.min(spare),
                    (true, true) => now + left,
                };
                let next = cap.timer().as_nanos().min(stops);
                assert!(next > now, "it makes no progress at {now}");
                if busy {
                    ran.push((now, next));
                    left -= next - now;
                }
                if cap.paused() {
                    spare -= if busy { next - now } else { 0 };
                    pauses.last_mut().unwrap().1 = next;
                }
                now = next;
            }
        }
        (ran, pauses)
    }

    fn within(spans: &[(u64, u64)], from: u64, to: u64) -> u64 {
        spans.iter().map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from))).sum()
    }

    /// The most use in any window of this length: it begins or ends where some span does.
    fn most(spans: &[(u64, u64)], window: u64) -> u64 {
        let begins = spans
            .iter()
            .flat_map(|(begin, end)| [*begin, *end, begin.saturating_sub(window), end.saturating_sub(window)]);
        begins.map(|begin| within(spans, begin, begin + window)).max().unwrap_or(0)
    }

    const NANOS: u64 = WINDOW.as_nanos();

    #[test]
    fn a_share_of_the_whole_cpu_disables_the_hard_cap() {
        assert!(HardCapEnforcer::new(Share::OFF).is_none());
    }

    #[test]
    fn a_busy_processor_pauses_after_its_budget_and_continues_when_some_of_it_has_returned() {
        let mut cap = cap();
        cap.account(at_us(0), true, true);
        assert_eq!(cap.account(at_us(93_899), true, true), HardCapChange::None);
        assert_eq!(cap.timer(), at_us(93_900));
        assert_eq!(cap.account(at_us(93_900), true, true), HardCapChange::Pause { lasting: false });
        assert!(cap.gated());
        cap.account(at_us(93_900), false, false);
        // The first five steps have left the window, which begins with a step.
        assert_eq!(cap.timer(), at_us(100_500));
        assert_eq!(cap.account(at_us(100_500), true, true), HardCapChange::Open);
        assert_eq!(cap.pauses(Instant::ZERO), (1, Span::from_micros(6_600)));
        assert!(Span::from_micros(6_600) <= share(94).longest_pause());
    }

    #[test]
    fn an_idle_processor_sets_no_timer() {
        let mut cap = cap();
        cap.account(at_us(0), true, true);
        cap.account(at_us(50_000), false, false);
        assert_eq!(cap.timer(), Instant::NEVER);
    }

    #[test]
    fn a_processor_that_stays_below_its_budget_never_pauses() {
        let mut cap = cap();
        // 93.8 ms of each 100 ms, in one piece and in many.
        for pieces in [1, 7, 900] {
            let (_, pauses) = run(&mut cap, &vec![(6_200 / pieces, 93_800 / pieces); 40 * pieces as usize], 0);
            assert!(pauses.is_empty(), "{pieces}: {pauses:?}");
        }
    }

    #[test]
    fn overload_is_lasting_after_a_second_of_pauses_and_again_after_another() {
        let mut cap = cap();
        let (mut now, mut lasting) = (0, Vec::new());
        while now < 3_400_000_000 {
            match cap.account(Instant::from_nanos(now), !cap.paused(), !cap.paused()) {
                HardCapChange::Pause { lasting: true } => lasting.push(now / 100_000_000),
                HardCapChange::None => now = cap.timer().as_nanos(),
                HardCapChange::Pause { .. } | HardCapChange::Open | HardCapChange::Gate => {}
            }
        }
        assert_eq!(lasting, [10, 21, 31]);
    }

    #[test]
    fn a_processor_seen_late_has_used_all_of_the_window() {
        let mut cap = cap();
        cap.account(at_us(0), true, true);
        assert_eq!(cap.account(at_us(5_000_050), true, true), HardCapChange::Pause { lasting: false });
        assert_eq!(cap.critical.sum, STEPS as u64 * STEP + 50_000);
        cap.account(at_us(5_000_050), false, false);
        assert_eq!(cap.account(at_us(9_000_000), false, false), HardCapChange::Open);
        assert_eq!((cap.critical.sum, cap.critical.used.iter().map(|used| u64::from(*used)).sum::<u64>()), (0, 0));
    }

    fn demand() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop_oneof![
            // Mixtures of any size, long jobs, and almost no idle time.
            prop::collection::vec((0u64..30_000, 1u64..60_000), 1..60),
            prop::collection::vec((0u64..9_000, 50_000u64..300_000), 1..20),
            prop::collection::vec((0u64..300, 1u64..5_000), 50..300),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// In any window of 100 ms critical work uses at most the budget, plus the time of holders of resources beyond
        /// it.
        #[test]
        fn no_window_contains_more_than_the_budget_and_the_overshoot(
            wanted in demand(), percent in 30u32..100, held in prop_oneof![Just(0u64), 1u64..5_000]
        ) {
            let mut cap = HardCapEnforcer::new(share(percent)).unwrap();
            let (ran, pauses) = run(&mut cap, &wanted, held);
            let most = most(&ran, NANOS);
            prop_assert!(most <= share(percent).budget().as_nanos() + held * 1_000, "{most} ns with {} pauses", pauses.len());
        }

        /// No starvation: pauses of any window together last no longer than the analysis assumes.
        #[test]
        fn pauses_withhold_no_more_than_the_analysis_subtracts(wanted in demand(), percent in 30u32..100) {
            let mut cap = HardCapEnforcer::new(share(percent)).unwrap();
            let (_, pauses) = run(&mut cap, &wanted, 0);
            let longest = share(percent).longest_pause().as_nanos();
            prop_assert!(most(&pauses, NANOS) <= longest);
            prop_assert!(pauses.iter().all(|(from, to)| to - from <= longest));
        }

        /// It is not too strict: work that always needs the CPU gets all but the longest pause of every window.
        #[test]
        fn work_that_wants_more_gets_the_budget(percent in 30u32..100, windows in 3u64..20) {
            let mut cap = HardCapEnforcer::new(share(percent)).unwrap();
            let (ran, pauses) = run(&mut cap, &[(0, 100_000 * windows)], 0);
            let end = ran.last().unwrap().1;
            let paused: u64 = pauses.iter().map(|(from, to)| to - from).sum();
            prop_assert!(!pauses.is_empty());
            let least = end / NANOS * (NANOS - share(percent).longest_pause().as_nanos());
            prop_assert!(end - paused >= least, "{} of {end}", end - paused);
        }

        /// Non-critical work runs only after windows below the budget; critical work pauses only for its own use.
        #[test]
        fn non_critical_work_runs_only_while_all_use_is_below_the_budget(
            wanted in prop::collection::vec((any::<bool>(), 0u64..20_000, 1u64..60_000), 1..60), percent in 30u32..100
        ) {
            let mut cap = HardCapEnforcer::new(share(percent)).unwrap();
            let budget = share(percent).budget().as_nanos();
            let (mut all, mut critical, mut low) = (Vec::new(), Vec::new(), Vec::new());
            let mut now = 0u64;
            for (is_critical, idle, work) in wanted {
                let (begins, mut left) = (now + idle * 1_000, work * 1_000);
                while left > 0 {
                    let held = if is_critical { cap.paused() } else { cap.gated() };
                    let busy = now >= begins && !held;
                    if cap.account(Instant::from_nanos(now), busy, busy && is_critical) != HardCapChange::None {
                        continue;
                    }
                    let stops = if now < begins { begins } else if busy { now + left } else { u64::MAX };
                    let next = cap.timer().as_nanos().min(stops);
                    prop_assert!(next > now, "it makes no progress at {now}");
                    if busy {
                        all.push((now, next));
                        if is_critical { &mut critical } else { &mut low }.push((now, next));
                        left -= next - now;
                    }
                    now = next;
                }
            }
            for (_, end) in low {
                prop_assert!(within(&all, end.saturating_sub(NANOS), end) <= budget);
            }
            prop_assert!(most(&critical, NANOS) <= budget);
            prop_assert!(cap.pauses(Instant::ZERO).0 == 0 || most(&critical, NANOS + STEP) >= share(percent).threshold().as_nanos());
        }

        /// The ring's sum equals that of a plain log of the accounted window.
        #[test]
        fn the_sum_is_the_use_of_the_accounted_window(steps in prop::collection::vec((1u64..3_000_000, any::<bool>()), 1..400)) {
            let mut cap = HardCapEnforcer::new(Share { ppm: 999_999, ..Share::OFF }).unwrap();
            let (mut now, mut busy, mut log) = (0u64, false, Vec::new());
            for (span, next) in steps {
                if busy {
                    log.push((now, now + span));
                }
                now += span;
                // It does not account while nothing happens.
                let accounted = busy || next || cap.paused();
                cap.account(Instant::from_nanos(now), next, next);
                busy = next;
                let from = (now / STEP).saturating_sub(STEPS as u64) * STEP;
                if accounted {
                    prop_assert_eq!(cap.critical.sum, within(&log, from, now));
                }
            }
        }
    }
}
