//! The hard cap: the most CPU time that critical work may use in any 100 ms.
//!
//! The [cap](crate::cap) holds back non-critical work, never critical work. So an overload of critical work would use
//! a CPU until the kernel throttles all real-time threads, once a second and for 50 ms: ordinary threads wait for up
//! to 950 ms. Instead, the hard cap pauses all lanes as soon as critical work has used its budget in a sliding window:
//!
//! ```text
//!             used in the last 100 ms reaches the budget
//!   Open ─────────────────────────────────────────────────► Paused
//!     ▲                                                        │
//!     └────────────────────────────────────────────────────────┘
//!             used has fallen to the budget less the hysteresis
//! ```
//!
//! A pause does not stop a job that holds a resource: it continues until it releases the resource. So critical work
//! may exceed the budget by the time for which resources are declared. Release threads and the watchdog also run
//! during a pause; their use (up to 10 us for each release) is additional.
//!
//! Only critical work counts here. If non-critical work has just used its own budget, critical work may follow at
//! once. Together they may use the CPU for up to two budgets in a row, and a window that they use completely costs the
//! non-critical work the next one. If both counted, non-critical work would pause critical work.

use alloc::{boxed::Box, vec};

use hyoshi_model::hard_cap::{LASTING, STEPS, WINDOW};
use hyoshi_model::{HardCap as Share, Instant, Span};

/// While more than this is left, the next check is after the budget could be used up, not exactly then.
const COARSE: u64 = WINDOW.as_nanos() / 50;

const STEP: u64 = Share::step().as_nanos();
/// The current step, and all steps that a window ending in it touches.
const RING: usize = STEPS + 1;

/// The law of the hard cap. Input: the times at which critical work has the CPU. Output: pauses and a timer.
#[derive(Clone, Debug)]
pub struct HardCap {
    budget: u64,
    hysteresis: u64,
    /// Critical use by step, and the sum.
    used: Box<[u32]>,
    sum: u64,
    /// The time up to which use is accounted for, and whether critical work has the CPU since then.
    at: u64,
    busy: bool,
    paused: bool,
    /// When to account again if nothing else happens.
    due: Instant,
    /// The first and the latest pause of those that follow each other closely.
    first: Instant,
    latest: Instant,
    pauses: u64,
    spent_paused: Span,
}

/// The result of accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Every lane pauses from now on. `lasting`: pauses have recurred for [`LASTING`], for the first time or again.
    Pause {
        /// See above.
        lasting: bool,
    },
    /// Lanes continue.
    Open,
}

impl HardCap {
    /// The law of one processor, or `None` for no hard cap.
    pub fn new(share: Share) -> Option<HardCap> {
        share.is_on().then(|| HardCap {
            budget: share.budget().as_nanos(),
            hysteresis: share.hysteresis().as_nanos(),
            used: vec![0; RING].into_boxed_slice(),
            sum: 0,
            at: 0,
            busy: false,
            paused: false,
            due: Instant::NEVER,
            first: Instant::ZERO,
            latest: Instant::ZERO,
            pauses: 0,
            spent_paused: Span::ZERO,
        })
    }

    /// True while lanes pause.
    #[inline]
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// How often lanes were paused, and for how long in all.
    pub fn pauses(&self) -> (u64, Span) {
        (self.pauses, self.spent_paused)
    }

    /// From `now` on critical work has the CPU, or not.
    #[inline]
    pub fn account(&mut self, now: Instant, busy: bool) -> Change {
        let rests = !self.busy && !busy && !self.paused;
        if rests {
            return Change::None;
        }
        self.advance(now.as_nanos());
        self.busy = busy;
        let change = match self.paused {
            false if self.sum >= self.budget => self.pause(now),
            true if self.sum + self.hysteresis <= self.budget => {
                self.paused = false;
                self.spent_paused += now.since(self.latest);
                Change::Open
            }
            _ => Change::None,
        };
        self.due = match (self.paused, self.busy) {
            (false, false) => Instant::NEVER,
            (false, true) => Instant::from_nanos(self.used_up()),
            (true, _) => Instant::from_nanos(self.recovered()),
        };
        change
    }

    /// When to call [`HardCap::account`] next if nothing else happens.
    #[inline]
    pub fn timer(&self) -> Instant {
        self.due
    }

    #[cold]
    fn pause(&mut self, now: Instant) -> Change {
        self.paused = true;
        self.pauses += 1;
        if now.since(self.latest) > WINDOW * 2 || self.pauses == 1 {
            self.first = now;
        }
        self.latest = now;
        let lasting = now.since(self.first) >= LASTING;
        if lasting {
            self.first = now;
        }
        Change::Pause { lasting }
    }

    /// Accounts for the time until `now`, and forgets what is older than the window.
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
        loop {
            let step = self.at / STEP;
            let end = (step + 1) * STEP;
            let until = end.min(now);
            if self.busy {
                self.used[step as usize % RING] += (until - self.at) as u32;
                self.sum += until - self.at;
            }
            self.at = until;
            if until < end {
                return;
            }
            let next = (step + 1) as usize % RING;
            self.sum -= u64::from(core::mem::take(&mut self.used[next]));
        }
    }

    /// When the budget is used up if critical work keeps the CPU; earlier if that is far away.
    fn used_up(&self) -> u64 {
        let mut left = self.budget.saturating_sub(self.sum);
        if left > COARSE {
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

    /// When a pause is over if nothing uses the CPU.
    fn recovered(&self) -> u64 {
        let (mut sum, mut at) = (self.sum, self.at);
        for _ in 0..RING {
            at = (at / STEP + 1) * STEP;
            sum -= u64::from(self.used[(at / STEP) as usize % RING]).min(sum);
            if sum + self.hysteresis <= self.budget {
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

    fn cap() -> HardCap {
        HardCap::new(share(94)).unwrap()
    }

    fn at_us(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    /// A processor whose critical work wants the CPU for these times after being idle for these times, in
    /// microseconds, in turn. In each pause, `held` microseconds of it still run. Returns when it ran and paused.
    fn run(cap: &mut HardCap, wanted: &[(u64, u64)], held: u64) -> (Vec<(u64, u64)>, Vec<(u64, u64)>) {
        let (mut ran, mut pauses): (Vec<(u64, u64)>, Vec<(u64, u64)>) = (Vec::new(), Vec::new());
        let (mut now, mut spare) = (0, 0);
        for (idle, work) in wanted {
            let begins = now + idle * 1_000;
            let mut left = work * 1_000;
            while left > 0 {
                let wants = now >= begins;
                let busy = wants && (!cap.paused() || spare > 0);
                match cap.account(Instant::from_nanos(now), busy) {
                    Change::Pause { .. } => {
                        spare = held * 1_000;
                        pauses.push((now, now));
                        continue;
                    }
                    Change::Open => {
                        spare = 0;
                        continue;
                    }
                    Change::None => {}
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

    /// The most in any window of this length: the window begins or ends where some span does.
    fn most(spans: &[(u64, u64)], window: u64) -> u64 {
        let begins = spans
            .iter()
            .flat_map(|(begin, end)| [*begin, *end, begin.saturating_sub(window), end.saturating_sub(window)]);
        begins.map(|begin| within(spans, begin, begin + window)).max().unwrap_or(0)
    }

    const NANOS: u64 = WINDOW.as_nanos();

    #[test]
    fn a_share_of_the_whole_cpu_is_no_hard_cap() {
        assert!(HardCap::new(Share::OFF).is_none());
    }

    #[test]
    fn a_busy_processor_pauses_after_its_budget_and_goes_on_once_some_of_it_is_back() {
        let mut cap = cap();
        cap.account(at_us(0), true);
        assert_eq!(cap.account(at_us(93_999), true), Change::None);
        assert_eq!(cap.timer(), at_us(94_000));
        assert_eq!(cap.account(at_us(94_000), true), Change::Pause { lasting: false });
        cap.account(at_us(94_000), false);
        // The first five steps have left the window, which begins with a step.
        assert_eq!(cap.timer(), at_us(100_500));
        assert_eq!(cap.account(at_us(100_500), true), Change::Open);
        assert_eq!(cap.pauses(), (1, Span::from_micros(6_500)));
        assert!(Span::from_micros(6_500) <= share(94).longest_pause());
    }

    #[test]
    fn an_idle_processor_sets_no_timer() {
        let mut cap = cap();
        cap.account(at_us(0), true);
        cap.account(at_us(50_000), false);
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
            match cap.account(Instant::from_nanos(now), !cap.paused()) {
                Change::Pause { lasting: true } => lasting.push(now / 100_000_000),
                Change::None => now = cap.timer().as_nanos(),
                Change::Pause { .. } | Change::Open => {}
            }
        }
        assert_eq!(lasting, [10, 21, 31]);
    }

    #[test]
    fn a_processor_seen_late_has_used_all_of_the_window() {
        let mut cap = cap();
        cap.account(at_us(0), true);
        assert_eq!(cap.account(at_us(5_000_050), true), Change::Pause { lasting: false });
        assert_eq!(cap.sum, STEPS as u64 * STEP + 50_000);
        cap.account(at_us(5_000_050), false);
        assert_eq!(cap.account(at_us(9_000_000), false), Change::Open);
        assert_eq!((cap.sum, cap.used.iter().map(|used| u64::from(*used)).sum::<u64>()), (0, 0));
    }

    fn demand() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop_oneof![
            // Mixtures of any size, long jobs, and hardly any rest.
            prop::collection::vec((0u64..30_000, 1u64..60_000), 1..60),
            prop::collection::vec((0u64..9_000, 50_000u64..300_000), 1..20),
            prop::collection::vec((0u64..300, 1u64..5_000), 50..300),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// In any window of 100 ms critical work uses the budget at most, plus the time of resource holders beyond it.
        #[test]
        fn no_window_contains_more_than_the_budget_and_the_overshoot(
            wanted in demand(), percent in 30u32..100, held in prop_oneof![Just(0u64), 1u64..5_000]
        ) {
            let mut cap = HardCap::new(share(percent)).unwrap();
            let (ran, pauses) = run(&mut cap, &wanted, held);
            let most = most(&ran, NANOS);
            prop_assert!(most <= share(percent).budget().as_nanos() + held * 1_000, "{most} ns with {} pauses", pauses.len());
        }

        /// No starvation: pauses of any window together last no longer than the analysis assumes.
        #[test]
        fn pauses_withhold_no_more_than_the_analysis_subtracts(wanted in demand(), percent in 30u32..100) {
            let mut cap = HardCap::new(share(percent)).unwrap();
            let (_, pauses) = run(&mut cap, &wanted, 0);
            let longest = share(percent).longest_pause().as_nanos();
            prop_assert!(most(&pauses, NANOS) <= longest);
            prop_assert!(pauses.iter().all(|(from, to)| to - from <= longest));
        }

        /// It leaves enough: work that always wants the CPU gets all but the longest pause of every window.
        #[test]
        fn work_that_wants_more_gets_the_budget(percent in 30u32..100, windows in 3u64..20) {
            let mut cap = HardCap::new(share(percent)).unwrap();
            let (ran, pauses) = run(&mut cap, &[(0, 100_000 * windows)], 0);
            let end = ran.last().unwrap().1;
            let paused: u64 = pauses.iter().map(|(from, to)| to - from).sum();
            prop_assert!(!pauses.is_empty());
            let least = end / NANOS * (NANOS - share(percent).longest_pause().as_nanos());
            prop_assert!(end - paused >= least, "{} of {end}", end - paused);
        }

        /// The ring's sum equals that of a plain log of the accounted window.
        #[test]
        fn the_sum_is_the_use_of_the_accounted_window(steps in prop::collection::vec((1u64..3_000_000, any::<bool>()), 1..400)) {
            let mut cap = HardCap::new(Share { ppm: 999_999, ..Share::OFF }).unwrap();
            let (mut now, mut busy, mut log) = (0u64, false, Vec::new());
            for (span, next) in steps {
                if busy {
                    log.push((now, now + span));
                }
                now += span;
                // It does not account while nothing happens.
                let accounted = busy || next || cap.paused();
                cap.account(Instant::from_nanos(now), next);
                busy = next;
                let from = (now / STEP).saturating_sub(STEPS as u64) * STEP;
                if accounted {
                    prop_assert_eq!(cap.sum, within(&log, from, now));
                }
            }
        }
    }
}
