//! The greatest lateness of jobs of a level ordered by key: response bounds in addition to the verdicts of
//! [`demand`](super::demand).
//!
//! **The bound.** For a job with key p let t0 be the last instant up to its release before which no job of a more
//! urgent level and no job of this level with a key up to p was pending. From t0 until it finishes the processor is
//! never idle. It executes only jobs of more urgent levels and jobs of this level with keys up to p, all released since
//! t0, and at most one that was started before with a later key or holds a resource. With x = p - t0 it has finished by
//! t0 + F(x), the least F with
//!
//! ```text
//!   F = B(x) + sum of C × min(jobs with keys up to x, jobs released within F) + H(F)
//! ```
//!
//! or by the end of the busy window, if that is sooner. So its lateness, counted from its key, is at most the greatest
//! F(x) - x for x from its own least distance of key and release on. This is Spuri's bound (INRIA RR-2772, 1996), with
//! the blocking term of George, Rivierre and Spuri (INRIA RR-2966, 1996), more urgent levels counted over the whole
//! window, and the search of abstract response-time analysis (Bozhko and Brandenburg, ECRTS 2020): only x at which
//! another job is added, because between them F(x) does not grow. F(x) does not depend on the owner of the nearest
//! keys, so one search is enough for the level.

use alloc::vec::Vec;

use super::demand::KeyedLevel;
use super::effort::Effort;
use super::fixed::Demand;

impl KeyedLevel<'_> {
    /// For each operation of the level the greatest F(x) - x; `None` if the search would be too long. `released` is the
    /// same work by releases.
    pub fn latenesses(&self, released: &[Demand], effort: &Effort<'_>) -> Option<Vec<i128>> {
        let mut order: Vec<usize> = (0..self.own.len()).collect();
        order.sort_by_key(|index| core::cmp::Reverse(self.own[*index].key));
        if !effort.affords(self.cost(&order, effort.left())) {
            return None;
        }
        let mut latenesses = alloc::vec![0; self.own.len()];
        let (mut worst, mut end) = (i128::MIN, i128::MAX);
        for index in order {
            let key = self.own[index].key;
            worst = self.worst_between(key, end, worst, released, effort)?;
            (latenesses[index], end) = (worst, key);
        }
        Some(latenesses)
    }

    /// The same of one operation alone.
    pub fn lateness(&self, index: usize, released: &[Demand], effort: &Effort<'_>) -> Option<i128> {
        if !effort.affords(self.cost(&[index], effort.left())) {
            return None;
        }
        self.worst_between(self.own[index].key, i128::MAX, i128::MIN, released, effort)
    }

    /// The greatest F(x) - x among `start <= x < end`, or `so_far` if that is greater.
    fn worst_between(
        &self,
        start: i128,
        end: i128,
        so_far: i128,
        released: &[Demand],
        effort: &Effort<'_>,
    ) -> Option<i128> {
        let (mut worst, mut x) = (so_far, start);
        let (mut last, mut last_blocking) = (1, i128::MAX);
        // No F(x) exceeds the busy window.
        while x < end && self.window - x > worst {
            let blocking = self.blocking(x);
            // F grows with x while the blocking is the same, so the search continues from the last.
            let from = if blocking == last_blocking { last } else { 1 };
            let found = self.finish(x, from, blocking, released, effort)?;
            (last, last_blocking) = (found, blocking);
            worst = worst.max(found - x);
            x = self.own.iter().map(|one| one.next_step(x)).min().unwrap_or(end);
        }
        Some(worst)
    }

    /// F(x), which is at least `from`.
    fn finish(&self, x: i128, from: i128, blocking: i128, released: &[Demand], effort: &Effort<'_>) -> Option<i128> {
        let jobs: Vec<i128> = self.own.iter().map(|one| one.jobs(x)).collect();
        let mut finish = from;
        loop {
            effort.step((self.own.len() + self.higher.len()) as u64)?;
            let window = u128::try_from(finish).unwrap_or_default();
            let released_by = |demand: &Demand| i128::try_from(demand.jobs(window)).unwrap_or(i128::MAX);
            let mut next = blocking;
            for ((one, jobs), demand) in self.own.iter().zip(&jobs).zip(released) {
                next = next.saturating_add((*jobs).min(released_by(demand)).saturating_mul(one.cost));
            }
            for demand in self.higher {
                next = next.saturating_add(released_by(demand).saturating_mul(i128::from(demand.cost)));
            }
            if next >= self.window {
                return Some(self.window);
            }
            if next <= finish {
                return Some(finish);
            }
            finish = next;
        }
    }

    /// About how many terms a search adds up; above `limit` the value only shows that there are more.
    fn cost(&self, order: &[usize], limit: u64) -> u64 {
        /// Rounds until a window stops growing, on average.
        const ROUNDS: i128 = 6;
        let (mut steps, mut end) = (0i128, i128::MAX);
        let terms = (self.own.len() + self.higher.len()) as i128;
        for index in order {
            if steps.saturating_mul(terms).saturating_mul(ROUNDS) > i128::from(limit) {
                break;
            }
            let key = self.own[*index].key;
            let span = end.saturating_sub(key).min(self.window);
            for one in self.own {
                steps = steps.saturating_add(span / one.period + 1);
            }
            end = key;
        }
        u64::try_from(steps.saturating_mul(terms).saturating_mul(ROUNDS)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Keyed;
    use super::super::effort::{AnalysisOptions, Bounds};
    use super::super::fixed;
    use super::*;
    use proptest::prelude::*;

    fn without_limit<T>(work: impl FnOnce(&Effort<'_>) -> T) -> T {
        work(&Effort::new(AnalysisOptions { bounds: Bounds::All, progress: &|_| true }))
    }

    fn keyed() -> impl Strategy<Value = (Keyed, Demand)> {
        (1u64..8, 8u64..40, 0i128..60, 0u64..20, 0i128..10, 0i128..9).prop_map(
            |(cost, period, deadline, jitter, later, blocks)| {
                let key = deadline - i128::from(jitter);
                let one = Keyed {
                    cost: cost.into(),
                    period: period.into(),
                    key,
                    burst: 0,
                    after: 0,
                    blocks,
                    latest_key: deadline + later,
                    counted: deadline,
                };
                (one, Demand { cost, period, burst: jitter })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn the_search_finds_the_latest_job_as_trying_all_windows_does(
            set in prop::collection::vec(keyed(), 1..5),
            higher in prop::collection::vec((1u64..3, 9u64..30, 0u64..9), 0..3),
            below in 0u64..6,
        ) {
            let (own, released): (Vec<_>, Vec<_>) = set.into_iter().unzip();
            let higher: Vec<Demand> =
                higher.into_iter().map(|(cost, period, burst)| Demand { cost, period, burst }).collect();
            let all: Vec<Demand> = released.iter().chain(&higher).copied().collect();
            let Ok(window) = fixed::busy_window(&all, below) else { return Ok(()) };
            // At exactly full load it is a hyperperiod, which may be too long to test exhaustively.
            prop_assume!(window < 50_000);
            let window = i128::from(window);
            let level = KeyedLevel { own: &own, higher: &higher, below: below.into(), window };
            let lateness = |one: &Keyed| {
                let all = one.key..=one.key + window;
                all.map(|x| without_limit(|effort| level.finish(x, 1, level.blocking(x), &released, effort)).unwrap() - x).max().unwrap()
            };
            let expected: Vec<i128> = own.iter().map(lateness).collect();
            prop_assert_eq!(without_limit(|effort| level.latenesses(&released, effort)).unwrap(), expected);
        }
    }

    #[test]
    fn a_search_beyond_its_budget_is_not_begun_and_one_that_is_stopped_ends() {
        let one = |cost, period: u64| Keyed {
            cost,
            period: period.into(),
            key: period.into(),
            burst: 0,
            after: 0,
            blocks: 0,
            latest_key: period.into(),
            counted: period.into(),
        };
        let own = [one(1_000_000, 1_999_999), one(5_000_000_000_000, 10_000_000_000_007)];
        let released = [
            Demand { cost: 1_000_000, period: 1_999_999, burst: 0 },
            Demand { cost: 5_000_000_000_000, period: 10_000_000_000_007, burst: 0 },
        ];
        let level = KeyedLevel { own: &own, higher: &[], below: 0, window: 9_999_999_000_000 };
        let quick = Effort::new(AnalysisOptions { bounds: Bounds::Quick, progress: &|_| true });
        assert_eq!(level.latenesses(&released, &quick), None);
        let stopped =
            Effort::new(AnalysisOptions { bounds: Bounds::All, progress: &|progress| progress.done < 1 << 21 });
        assert_eq!(level.latenesses(&released, &stopped), None);
    }
}
