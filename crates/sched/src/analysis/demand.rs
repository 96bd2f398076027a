//! Processor demand: whether every job of a level ordered by key meets its deadline.
//!
//! A job's *key* is its absolute deadline under earliest deadline first, and its deadline less its worst case under
//! least laxity without preemption (the order by waiting laxity never changes with time). The job must finish `after`
//! the key: 0 for the former, its worst case for the latter.
//!
//! **The test.** Suppose a job with key p is unfinished at p + after. Let t0 be the last instant before its release at
//! which no job of a more urgent level and no job of this level with a key up to p was pending. From t0 to p + after
//! the processor is never idle and executes only
//!
//! - more urgent jobs released since t0: at most H(p + after - t0),
//! - jobs of this level with keys up to p, released since t0: at most the demand D(p - t0),
//! - the rest of one job that was started before t0 with a later key (without preemption within the level), or that
//!   holds a resource with a ceiling at the level or above: at most B(p - t0). A second such job cannot start, because
//!   a better one is always pending.
//!
//! So if B(x) + D(x) + H(x + after) <= x + after for all x from the operation's own least distance of key and
//! release, no job of it is late. x + after is at most the busy window of this level and those above.
//! Without levels above and for deadlines this is the test of Baruah, Mok and Rosier (RTSS 1990)
//! with the blocking term of George, Rivierre and Spuri (INRIA RR-2966, 1996).
//!
//! **The search** goes downwards like QPA (Zhang and Burns, IEEE TC 2009): if f(y) = B + D + H < y, every point between
//! f(y) and y passes as well. This needs a monotone f, so the search is done between the distances at which B steps.
//!
//! Arithmetic saturates towards more demand: an overflow turns "proved" into "unknown", never the reverse.

use alloc::vec::Vec;

use super::fixed::Demand;
use super::verdict::Missing;

/// An operation of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keyed {
    /// Work per release, at this level.
    pub cost: i128,
    pub period: i128,
    /// Least distance from a release to its key; negative if a release may be after it.
    pub key: i128,
    /// How much earlier a key may be than a period after the last.
    pub burst: i128,
    /// From the key to the required finish of the job.
    pub after: i128,
    /// Blocks better keys for this long if it has a later one, at most `latest_key` after its release.
    pub blocks: i128,
    pub latest_key: i128,
    /// From the start of the deadline to the key.
    pub counted: i128,
}

impl Keyed {
    /// Jobs released and with keys within a window of `x`.
    pub fn jobs(&self, x: i128) -> i128 {
        if x < self.key {
            return 0;
        }
        let early = (x - self.key).saturating_add(self.burst);
        // Several times as fast, and these nearly always fit.
        match (u64::try_from(early), u64::try_from(self.period)) {
            (Ok(early), Ok(period)) => i128::from(early / period) + 1,
            _ => early / self.period + 1,
        }
    }

    /// Their demand.
    fn demand(&self, x: i128) -> i128 {
        self.jobs(x).saturating_mul(self.cost)
    }

    /// The least window longer than `x` that has another job.
    pub fn next_step(&self, x: i128) -> i128 {
        if x < self.key {
            return self.key;
        }
        self.key.saturating_sub(self.burst).saturating_add(self.jobs(x).saturating_mul(self.period))
    }
}

/// A level ordered by key, and the work around it.
pub(super) struct KeyedLevel<'a> {
    pub own: &'a [Keyed],
    /// More urgent levels.
    pub higher: &'a [Demand],
    /// Longest blocking from less urgent levels.
    pub below: i128,
    /// Busy window of this level and those above.
    pub window: i128,
}

/// Steps of a search after which the result is "unknown".
const PATIENCE: usize = 2_000_000;
/// Steps that are always computed, whatever the number of operations in each.
const LEAST_PATIENCE: usize = 2_000;

/// A window with possibly more work than fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch {
    pub demand: i128,
    pub window: i128,
}

impl KeyedLevel<'_> {
    /// The longest window that fails, for operations with this `after` and keys no nearer to their releases than
    /// `least_key`; `None` if all pass.
    pub fn failing(&self, least_key: i128, after: i128) -> Result<Option<TooMuch>, Missing> {
        self.failing_of_several(least_key, (after, after))
    }

    /// The same for operations that differ in `after`, given the least and the greatest. If all windows pass, they pass
    /// for each of them; a window that fails may belong to none of them.
    pub fn failing_of_several(&self, least_key: i128, after: (i128, i128)) -> Result<Option<TooMuch>, Missing> {
        let mut patience = (PATIENCE / self.own.len().max(1)).max(LEAST_PATIENCE);
        // From the longest: windows beyond the busy window cannot occur.
        let mut end = self.window.saturating_add(1).saturating_sub(after.0);
        for edge in self.edges(least_key) {
            if let Some(found) = self.failing_between(edge, end, after, &mut patience)? {
                return Ok(Some(found));
            }
            end = end.min(edge);
        }
        Ok(None)
    }

    /// Distances at which blocking steps, the longest first: between neighbours it is constant.
    fn edges(&self, least_key: i128) -> Vec<i128> {
        let blocking = self.own.iter().filter(|one| one.blocks > 0 && one.latest_key >= least_key);
        let mut blocking: Vec<(i128, i128)> = blocking.map(|one| (one.latest_key, one.blocks)).collect();
        blocking.sort_unstable_by(|one, other| other.cmp(one));
        let (mut edges, mut most) = (Vec::new(), self.below);
        for (key, blocks) in blocking {
            // An operation that blocks no longer than another with a later key makes no step.
            if blocks > most {
                most = blocks;
                edges.push(key);
            }
        }
        edges.push(least_key);
        edges.dedup();
        edges
    }

    /// Among `start <= x < end`, where blocking is constant.
    fn failing_between(
        &self,
        start: i128,
        end: i128,
        (least, most): (i128, i128),
        patience: &mut usize,
    ) -> Result<Option<TooMuch>, Missing> {
        let mut x = end - 1;
        while x >= start {
            *patience = patience.checked_sub(1).ok_or(Missing::LongWindow)?;
            let (window, demand) = (x + least, self.total(x, most));
            if demand > window {
                return Ok(Some(TooMuch { demand, window }));
            }
            // All between `demand` and `window` pass. At equality the point below fails or is below a step.
            x = if demand < window { demand - least } else { x - 1 };
        }
        Ok(None)
    }

    fn total(&self, x: i128, after: i128) -> i128 {
        let own = self.own.iter().fold(self.blocking(x), |sum, one| sum.saturating_add(one.demand(x)));
        let window = u128::try_from(x + after).unwrap_or_default();
        self.higher.iter().fold(own, |sum, demand| {
            let jobs = i128::try_from(demand.jobs(window)).unwrap_or(i128::MAX);
            sum.saturating_add(jobs.saturating_mul(i128::from(demand.cost)))
        })
    }

    pub fn blocking(&self, x: i128) -> i128 {
        let own = self.own.iter().filter(|one| one.latest_key > x).map(|one| one.blocks);
        own.fold(self.below, i128::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keyed() -> impl Strategy<Value = Keyed> {
        (1i128..8, 4i128..40, -3i128..40, 0i128..20, 0i128..10, 0i128..9).prop_map(
            |(cost, period, key, burst, later, blocks)| Keyed {
                cost,
                period,
                key,
                burst,
                after: 0,
                blocks,
                latest_key: key + later,
                counted: key + later,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn the_search_finds_the_longest_window_that_fails_as_trying_all_does(
            own in prop::collection::vec(keyed(), 1..5),
            higher in prop::collection::vec((1u64..4, 5u64..30, 0u64..9), 0..3),
            below in 0i128..6, window in 1i128..150, after in 0i128..6, least_key in 0i128..30,
        ) {
            let higher: Vec<Demand> =
                higher.into_iter().map(|(cost, period, burst)| Demand { cost, period, burst }).collect();
            let level = KeyedLevel { own: &own, higher: &higher, below, window };
            let fails = |x: &i128| level.total(*x, after) > x + after;
            let longest = (least_key..=window - after).rev().find(fails).map(|x| x + after);
            prop_assert_eq!(level.failing(least_key, after).unwrap().map(|found| found.window), longest);
        }
    }

    #[test]
    fn processor_demand_of_a_known_set_first_exceeds_its_window_at_six() {
        // (C, D, T) = (2, 4, 6), (2, 5, 8), (3, 6, 12): 4 of 5 by 5, 7 of 6 by 6.
        let one = |cost, key, period| Keyed {
            cost,
            period,
            key,
            burst: 0,
            after: 0,
            blocks: 0,
            latest_key: key,
            counted: key,
        };
        let own = [one(2, 4, 6), one(2, 5, 8), one(3, 6, 12)];
        let level = KeyedLevel { own: &own, higher: &[], below: 0, window: 6 };
        assert_eq!(level.failing(4, 0), Ok(Some(TooMuch { demand: 7, window: 6 })));
        assert_eq!(KeyedLevel { window: 5, ..level }.failing(4, 0), Ok(None));
    }
}
