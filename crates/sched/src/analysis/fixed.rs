//! Response times below more urgent levels, by the crate `response-time-analysis` of MPI-SWS
//! (Bozhko and Brandenburg, ECRTS 2020), which is proved in Coq for one task under analysis.
//!
//! **A FIFO level as one task.** Within a level jobs run in the order in which they were enqueued, and only more urgent
//! levels preempt a started job. So the level behaves as one task: its jobs arrive by the sum of its operations'
//! arrival curves and run in sequence. The analysis needs only that and the task's request bound, which is the sum of
//! the operations' request bounds. Its response bound holds for every job of the level. No job of a less urgent level
//! runs while it waits, except one that holds a resource with a ceiling at the level or above (immediate ceilings: at
//! most one, and it had started before): a floating non-preemptive section.
//!
//! **A load chain.** Between two legs of a chain, jobs of the same level that were enqueued meanwhile run. So for the
//! chain itself, other operations of its level count like more urgent ones, over the whole window. For all others the
//! chain is one job with the sum of its legs: a leg is enqueued when the leg before completes, so from the release of
//! the first to the finish of the last the level always has one, and a busy window contains whole chains.
//!
//! **A run of operations.** The same holds for operations that trigger each other directly on one processor, from a
//! level to the same or a less urgent one: from the release of the first to the finish of the last the last one's level
//! always has one. So any busy window of that level or one below it contains as many jobs of each as releases of the
//! first, however irregular these are. The response of each, counted from the release of the first, is that of one job
//! that contains all before it.
//!
//! The crate's sums wrap silently, and it searches up to its limit: [`busy_window`] bounds both before the crate is
//! called.

use alloc::{collections::BinaryHeap, vec::Vec};
use core::cmp::Reverse;

use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::{RBF, RequestBound, Slice};
use response_time_analysis::fixed_point;
use response_time_analysis::fixed_priority::{floating_nonpreemptive, fully_nonpreemptive};
use response_time_analysis::supply::Dedicated;
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;

use super::utilisation::{self, Load, ONE, PeriodicDemand};
use super::verdict::Missing;

/// Work of at most `cost` at most every `period`, released late by up to `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    pub cost: u64,
    pub period: u64,
    pub burst: u64,
}

type Curve = RBF<Sporadic, Scalar>;

impl Demand {
    pub fn share(self) -> PeriodicDemand {
        PeriodicDemand { cost: self.cost, period: self.period }
    }

    fn curve(self) -> Curve {
        let arrivals = Sporadic::new(Duration::from(self.period), Duration::from(self.burst));
        RBF::new(arrivals, Scalar::new(Service::from(self.cost)))
    }

    /// Jobs within a window, as the crate counts them.
    pub fn jobs(self, window: u128) -> u128 {
        let early = window + u128::from(self.burst);
        // Several times as fast, and nearly always possible.
        match u64::try_from(early) {
            Ok(early) => u128::from(early.div_ceil(self.period)),
            Err(_) => early.div_ceil(u128::from(self.period)),
        }
    }
}

/// Steps of a search after which the result is "unknown".
const PATIENCE: u128 = 10_000_000;

/// Rounds of a busy window that are always computed: up to a load of 93 %, for any number of operations.
const FEW_ROUNDS: u128 = 1_000;

/// The longest time for which the processor can be busy with `demands` and `blocking`, at least 1.
pub(super) fn busy_window(demands: &[Demand], blocking: u64) -> Result<u64, Missing> {
    let shares: Vec<PeriodicDemand> = demands.iter().map(|demand| demand.share()).collect();
    let spare = ONE.saturating_sub(utilisation::sum(shares.iter().copied()));
    let limit = match utilisation::load(&shares) {
        Load::Above => return Err(Missing::Overload),
        Load::Unclear => return Err(Missing::FullLoad),
        Load::Below if spare > 0 => {
            // L <= blocking + sum C (1 + (L + J) / T), solved for L.
            let constant = at_once(demands.iter(), blocking).and_then(|constant| constant.checked_mul(ONE));
            constant.ok_or(Missing::Overflow)?.div_ceil(spare) + 1
        }
        // At full load released together the window ends with the hyperperiod; otherwise it may never end.
        Load::Full if blocking == 0 && demands.iter().all(|demand| demand.burst == 0) => {
            utilisation::hyperperiod(&shares).ok_or(Missing::Overflow)?
        }
        Load::Full | Load::Below => return Err(Missing::FullLoad),
    };
    fits_in_64_bits(demands, blocking, limit)?;
    let jobs: u128 = demands.iter().map(|demand| demand.jobs(limit)).sum();
    // Each round of the search adds at least one more job, and leaves at most the share U of the missing time.
    let rounds = jobs.min(64 * ONE / spare.max(1)) + 1;
    if rounds > FEW_ROUNDS && rounds.saturating_mul(demands.len() as u128) > PATIENCE {
        return Err(Missing::LongWindow);
    }
    let curves: Vec<Curve> = demands.iter().map(|demand| demand.curve()).collect();
    let blocking = Service::from(blocking);
    let total = |window: Duration| blocking + curves.iter().map(|curve| curve.service_needed(window)).sum();
    let found = fixed_point::search(&Dedicated::new(), Duration::from(limit as u64), total);
    found.map(u64::from).map_err(|_| Missing::LongWindow)
}

/// `blocking` + sum C (1 + J / T), rounded up: with U times its length, at least the demand of any window.
fn at_once<'a>(mut demands: impl Iterator<Item = &'a Demand>, blocking: u64) -> Option<u128> {
    demands.try_fold(u128::from(blocking), |sum, demand| {
        let early = (u128::from(demand.cost) * u128::from(demand.burst)).div_ceil(u128::from(demand.period));
        sum.checked_add(u128::from(demand.cost) + early)
    })
}

/// Ensures that no sum of the crate wraps: neither demand nor steps within `limit` exceed 63 bits.
fn fits_in_64_bits(demands: &[Demand], blocking: u64, limit: u128) -> Result<(), Missing> {
    let mut total = u128::from(blocking) + limit;
    for demand in demands {
        let work = demand.jobs(limit).checked_mul(u128::from(demand.cost)).ok_or(Missing::Overflow)?;
        total = total.checked_add(work).ok_or(Missing::Overflow)?;
        total = total.max(limit + u128::from(demand.burst) + 2 * u128::from(demand.period));
    }
    if total < 1 << 63 { Ok(()) } else { Err(Missing::Overflow) }
}

/// True if the crate would be too slow for each job of `own` within a busy window.
fn tries_patience(own: &[Demand], others: &[Demand], window: u64) -> bool {
    let all = own.iter().chain(others);
    let spare = ONE.saturating_sub(utilisation::sum(all.clone().map(|demand| demand.share())));
    let jobs: u128 = all.clone().map(|demand| demand.jobs(u128::from(window))).sum();
    // The crate also steps over the releases that jitter has made coincide.
    let offsets: u128 = own.iter().map(|demand| demand.jobs(u128::from(window))).sum();
    let rounds = jobs.min(64 * ONE / spare.max(1)) + 1;
    offsets.saturating_mul(rounds).saturating_mul(all.count() as u128) > PATIENCE
}

/// True if the longest busy window contains no more jobs of the level than its start.
///
/// Then the start is the only offset that the crate would examine, and both it and the busy window are the least
/// solution of the same equation: the window is the response.
fn ends_with_its_first(own: &[Demand], window: u64) -> bool {
    own.iter().all(|demand| demand.jobs(u128::from(window)) == demand.jobs(1))
}

/// The response bound, from release to finish, of every job of the level `own` below `higher`.
pub(super) fn level(own: &[Demand], higher: &[Demand], blocking: u64) -> Result<u64, Missing> {
    let all: Vec<Demand> = own.iter().chain(higher).copied().collect();
    let window = busy_window(&all, blocking)?;
    if ends_with_its_first(own, window) {
        return Ok(window);
    }
    if tries_patience(own, higher, window) {
        return fifo(own, higher, blocking, window);
    }
    let own: Vec<Curve> = own.iter().map(|demand| demand.curve()).collect();
    let higher: Vec<Curve> = higher.iter().map(|demand| demand.curve()).collect();
    let rbf = Slice::of(&own);
    let under_analysis =
        floating_nonpreemptive::TaskUnderAnalysis { rbf: &rbf, blocking_bound: Service::from(blocking) };
    let found = floating_nonpreemptive::dedicated_uniproc_rta(&under_analysis, &higher, Duration::from(window));
    found.map(u64::from).map_err(|_| Missing::LongWindow)
}

/// The same search in one pass over the releases of many operations.
///
/// The crate adds up all of them at each release. Here releases are merged in order, and each search begins at the
/// finish of the previous one: both only grow.
///
/// It ends where no later release can have a longer response. With `own` released up to A and `higher` up to the finish
/// A + R, A + R <= K + A U(own) + (A + R) U(higher), where K = blocking + sum C (1 + J / T) of all; so A (1 - U) + R (1
/// - U(higher)) <= K. Jitter is in K and in the first response alike: however large it is, few releases remain.
fn fifo(own: &[Demand], higher: &[Demand], blocking: u64, window: u64) -> Result<u64, Missing> {
    /// Largest number of terms to add up: a few seconds.
    const MOST: u128 = 1 << 31;
    let used = |demands: &[Demand]| utilisation::sum(demands.iter().map(|demand| demand.share()));
    let spare_below_higher = ONE.saturating_sub(used(higher));
    let spare = spare_below_higher.saturating_sub(used(own));
    let most = at_once(own.iter().chain(higher), blocking).and_then(|most| most.checked_mul(ONE));
    let most = most.ok_or(Missing::Overflow)?;
    // Where a response longer than this one is no longer possible.
    let end = |response: u64| match most.saturating_sub(u128::from(response) * spare_below_higher) {
        left if spare > 0 => u128::from(window).min(left.div_ceil(spare)) as u64,
        _ => window,
    };
    let finish = |work: u128, mut finish: u64| loop {
        let above: u128 = higher.iter().map(|one| one.jobs(u128::from(finish)) * u128::from(one.cost)).sum();
        match u64::try_from(work + above).map_err(|_| Missing::Overflow)? {
            needed if needed <= finish => return Ok(finish),
            needed => finish = needed,
        }
    };
    let first = |demand: &Demand| demand.jobs(1) * u128::from(demand.cost);
    let mut work = u128::from(blocking) + own.iter().map(first).sum::<u128>();
    let mut finished = finish(work, 1)?;
    let (mut response, mut until) = (finished, end(finished));
    let later = |demand: &Demand| demand.jobs(u128::from(until.max(1))) - demand.jobs(1);
    let jobs: u128 = own.iter().map(later).sum();
    if jobs > 1 << 24 || jobs.saturating_mul(higher.len() as u128 + 8) > MOST {
        return Err(Missing::LongWindow);
    }
    let next = |demand: &Demand| Reverse((demand.period - demand.burst % demand.period, demand.period, demand.cost));
    let mut releases: BinaryHeap<_> = own.iter().map(next).collect();
    while let Some(at) = releases.peek().map(|release| release.0.0).filter(|at| *at < until) {
        while let Some(mut release) = releases.peek_mut().filter(|release| release.0.0 == at) {
            let Reverse((next, period, cost)) = &mut *release;
            work += u128::from(*cost);
            *next += *period;
        }
        finished = finish(work, finished)?;
        if finished.saturating_sub(at) > response {
            response = finished - at;
            until = end(response);
        }
    }
    Ok(response)
}

/// The response bound of a job that only `above` interrupts; `others` are all at least as urgent.
///
/// Until it starts all of them count. From then on only `above` does, over its own window.
pub(super) fn non_preemptive(own: Demand, others: &[Demand], above: &[Demand], blocking: u64) -> Result<u64, Missing> {
    let others: Vec<Demand> = others.iter().chain(above).copied().collect();
    let all: Vec<Demand> = others.iter().copied().chain([own]).collect();
    let window = busy_window(&all, blocking)?;
    if tries_patience(&[own], &others, window) {
        return Err(Missing::LongWindow);
    }
    // Its cost is there from the start of the window: blocking, for those above.
    let stretched = if above.is_empty() { own.cost } else { busy_window(above, own.cost)? };
    let curve = own.curve();
    let others: Vec<Curve> = others.iter().map(|demand| demand.curve()).collect();
    let under_analysis = fully_nonpreemptive::TaskUnderAnalysis {
        wcet: curve.wcet,
        arrivals: &curve.arrival_bound,
        blocking_bound: Service::from(blocking),
    };
    let found = fully_nonpreemptive::dedicated_uniproc_rta(&under_analysis, &others, Duration::from(window));
    let found = found.map(u64::from).map_err(|_| Missing::LongWindow)?;
    found.checked_add(stretched - own.cost).ok_or(Missing::Overflow)
}

/// The response bound of a whole chain, from its release to the finish of its last leg or operation.
///
/// If chains of one operation may overlap, legs of the later one run between those of the earlier: then the whole busy
/// window is the bound.
pub(super) fn chain(own: &[Demand], others: &[Demand], blocking: u64) -> Result<u64, Missing> {
    let found = level(own, others, blocking)?;
    let apart = own.iter().map(|demand| demand.period.saturating_sub(demand.burst)).min().unwrap_or_default();
    if found <= apart {
        return Ok(found);
    }
    let all: Vec<Demand> = own.iter().chain(others).copied().collect();
    busy_window(&all, blocking)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(cost: u64, period: u64) -> Demand {
        Demand { cost, period, burst: 0 }
    }

    #[test]
    fn response_times_are_those_of_the_textbook() {
        // Burns and Wellings, Real-Time Systems and Programming Languages, task set of the response-time
        // section: (T, C) = (80, 40), (40, 10), (20, 5) respond in 80, 15, 5.
        let set = [demand(5, 20), demand(10, 40), demand(40, 80)];
        let responses: Vec<u64> = (0..3).map(|i| level(&set[i..=i], &set[..i], 0).unwrap()).collect();
        assert_eq!(responses, [5, 15, 80]);
    }

    #[test]
    fn joseph_and_pandya_converge_below_the_busy_window() {
        // (T, C) = (7, 3), (12, 3), (20, 5): 3, 6, 20 (Burns and Wellings' first set, after Joseph and Pandya 1986).
        let set = [demand(3, 7), demand(3, 12), demand(5, 20)];
        let responses: Vec<u64> = (0..3).map(|i| level(&set[i..=i], &set[..i], 0).unwrap()).collect();
        assert_eq!(responses, [3, 6, 20]);
    }

    #[test]
    fn a_deadline_beyond_the_period_needs_more_than_the_first_job() {
        // Lehoczky 1990: (T, C) = (70, 26), (100, 62): jobs of the second respond in 114, 102, 116, 104, 118, 106, 94.
        assert_eq!(level(&[demand(62, 100)], &[demand(26, 70)], 0), Ok(118));
    }

    #[test]
    fn a_release_that_jitters_interferes_twice() {
        // Audsley et al. 1993: jitter of 4 lets two releases of period 10 fall into a window of 8.
        let jittery = Demand { cost: 3, period: 10, burst: 4 };
        assert_eq!(level(&[demand(5, 40)], &[jittery], 0), Ok(11));
        assert_eq!(level(&[demand(5, 40)], &[demand(3, 10)], 0), Ok(8));
    }

    #[test]
    fn a_fifo_level_waits_for_all_of_its_own_but_not_for_later_ones() {
        let own = [demand(2, 10), demand(3, 10)];
        assert_eq!(level(&own, &[demand(1, 4)], 0), Ok(7));
        assert_eq!(level(&own, &[demand(1, 4)], 2), Ok(10));
    }

    #[test]
    fn a_job_that_cannot_be_interrupted_waits_only_to_start() {
        // Davis, Burns, Bril and Lukkien 2007 (CAN revisited), table 1: 1 ms messages (T, D) = (2.5, 2.5), (3.5, 3.25),
        // (3.5, 3.25): the third responds in 3.5 only when its second instance is examined. In units of 0.25 ms.
        let set = [demand(4, 10), demand(4, 14), demand(4, 14)];
        assert_eq!(non_preemptive(set[2], &set[..2], &[], 0), Ok(14));
    }

    #[test]
    fn full_load_has_a_bound_without_jitter_and_none_with_it() {
        let set = [demand(1, 2), demand(2, 4)];
        assert_eq!(level(&set[1..], &set[..1], 0), Ok(4));
        let late = Demand { burst: 1, ..set[0] };
        assert_eq!(level(&set[1..], &[late], 0), Err(Missing::FullLoad));
        assert_eq!(level(&set[1..], &[demand(2, 2)], 0), Err(Missing::Overload));
    }

    #[test]
    fn sums_that_leave_64_bits_are_refused_and_not_wrapped() {
        let huge = Demand { cost: u64::MAX / 4, period: u64::MAX, burst: u64::MAX };
        assert_eq!(level(&[huge], &[demand(1, 3)], 0), Err(Missing::Overflow));
        assert_eq!(level(&[demand(1, 3)], &[huge, huge], u64::MAX), Err(Missing::Overflow));
    }

    #[test]
    fn a_window_of_too_many_jobs_is_refused_in_time() {
        let set = [demand(899_000_000, 1_000_000_000), demand(1, 10)];
        assert_eq!(level(&set[1..], &set[..1], 0), Err(Missing::LongWindow));
    }

    #[test]
    fn releases_that_jitter_makes_coincide_are_not_searched_one_by_one() {
        // With 2^55 ns of jitter 36,028,545,172 jobs arrive at once, and each period has room for 1 us of them.
        let set = [demand(999_000, 1_000_000), Demand { cost: 1, period: 1_000_007, burst: 1 << 55 }];
        let at_once = set[1].jobs(1) as u64;
        assert_eq!(level(&set[1..], &set[..1], 0), Ok(at_once + at_once.div_ceil(1_000) * 999_000));
    }

    type Drawn = Vec<(u64, u64, u64)>;

    fn demands(all: Drawn) -> Vec<Demand> {
        all.into_iter().map(|(cost, period, burst)| Demand { cost, period, burst }).collect()
    }

    /// The crate's bound and the longest time for which the processor can be busy, if that ends.
    fn by_the_crate(own: &[Demand], higher: &[Demand], blocking: u64) -> Option<(u64, u64)> {
        let all: Vec<Demand> = own.iter().chain(higher).copied().collect();
        let window = busy_window(&all, blocking).ok()?;
        let curves = |all: &[Demand]| -> Vec<Curve> { all.iter().map(|demand| demand.curve()).collect() };
        let (own, higher) = (curves(own), curves(higher));
        let (rbf, blocking_bound) = (Slice::of(&own), Service::from(blocking));
        let under_analysis = floating_nonpreemptive::TaskUnderAnalysis { rbf: &rbf, blocking_bound };
        let found = floating_nonpreemptive::dedicated_uniproc_rta(&under_analysis, &higher, Duration::from(window));
        Some((found.unwrap().into(), window))
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 1_000, ..Default::default() })]

        #[test]
        fn one_pass_over_the_releases_finds_what_the_crate_finds(
            own in proptest::collection::vec((1u64..20, 20u64..400, 0u64..60), 1..6),
            higher in proptest::collection::vec((1u64..20, 20u64..200, 0u64..60), 0..4),
            blocking in 0u64..20,
        ) {
            let (own, higher) = (demands(own), demands(higher));
            if let Some((bound, window)) = by_the_crate(&own, &higher, blocking) {
                proptest::prop_assert_eq!(fifo(&own, &higher, blocking, window), Ok(bound));
            }
        }

        #[test]
        fn nothing_is_left_out_at_high_loads_and_under_long_jitter(
            own in proptest::collection::vec((1u64..9, 8u64..30, 0u64..400), 1..4),
            higher in proptest::collection::vec((1u64..9, 8u64..60, 0u64..90), 0..3),
            blocking in 0u64..20,
        ) {
            let (own, higher) = (demands(own), demands(higher));
            if let Some((bound, window)) = by_the_crate(&own, &higher, blocking) {
                proptest::prop_assert_eq!(fifo(&own, &higher, blocking, window), Ok(bound));
            }
        }

        #[test]
        fn a_window_that_ends_with_the_first_jobs_is_the_response_that_the_crate_finds(
            own in proptest::collection::vec((1u64..20, 20u64..400, 0u64..30), 1..4),
            higher in proptest::collection::vec((1u64..20, 20u64..200, 0u64..60), 0..4),
            blocking in 0u64..20,
        ) {
            let (own, higher) = (demands(own), demands(higher));
            if let Some((bound, window)) = by_the_crate(&own, &higher, blocking).filter(|(_, window)| ends_with_its_first(&own, *window)) {
                proptest::prop_assert_eq!(bound, window);
            }
        }
    }
}
