//! K9 to K11: the cost of queueing, and the effect of overhead.

use hyoshi_report::figures::{count, nanos};

use super::nothing;
use crate::claim::ClaimFinding;
use crate::kokyu::overhead::Threshold;
use crate::kokyu::queueing::{QueueingCost, RowQueueing};
use crate::kokyu::trial::name;

/// The cost is flat if the last four regions cost at most this percentage of the first four.
const FLAT_PERCENT: u64 = 150;

/// "Within a reasonable scalar": the paper prints 32 us against 12 us and about 1.5.
const SMALL_FACTOR_PERCENT: u64 = 300;

/// Differences of at most so many percent and nanoseconds are noise: of two readings of a clock, each with an error of
/// about 25 ns.
const SAME: (u64, u64) = (5, 50);

/// A miss at up to so many times the paper's costs, in thousandths, is plausible; at high enough costs any system
/// fails.
const PLAUSIBLE_PERMILLE: u64 = 3_000;

/// The mean of a trial's regions.
fn mean(regions: &[QueueingCost]) -> Option<u64> {
    let costs: Vec<u64> = regions.iter().filter(|cost| cost.dequeue.count > 0).map(QueueingCost::median_ns).collect();
    (!costs.is_empty()).then(|| (costs.iter().sum::<u64>() / costs.len() as u64).max(1))
}

fn times(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// The cost of queueing stays flat as load and jitter grow: from the first four regions, which have all kinds of
/// jitter, to the last four, which have the same kinds and up to eleven legs.
pub fn k9(rows: &[RowQueueing]) -> ClaimFinding {
    let ends = |row: &RowQueueing| {
        let (first, last) = (row.regions.get(..4)?, row.regions.get(8..)?);
        Some((name(&row.strategy, row.cancel), mean(first)?, mean(last)?))
    };
    let ends: Vec<(String, u64, u64)> = rows.iter().filter_map(ends).collect();
    let flat = ends.iter().filter(|(_, first, last)| last * 100 <= first * FLAT_PERCENT).count();
    let Some((steepest, first, last)) = ends.iter().max_by_key(|(_, first, last)| last * 1_000 / first) else {
        return nothing();
    };
    let reason = format!(
        "from regions 0-3 to 8-11 it grows most under {steepest}: {} to {} per request, a factor of {}",
        nanos(*first),
        nanos(*last),
        times(last * 100 / first),
    );
    match flat {
        all if all == ends.len() => ClaimFinding::reproduced(reason),
        0 => ClaimFinding::not_reproduced(reason),
        some => ClaimFinding::in_part(format!(
            "{reason}; within {} in {some} of {} trials",
            times(FLAT_PERCENT),
            ends.len()
        )),
    }
}

/// MUF's queueing cost is above that of RMS and RMS+MLF, within a small factor.
pub fn k10(rows: &[RowQueueing]) -> ClaimFinding {
    let of = |strategy: &str| mean(&rows.iter().find(|row| row.strategy == strategy && !row.cancel)?.regions);
    let (Some(rms), Some(muf), Some(hybrid)) = (of("RMS"), of("MUF"), of("RMS+MLF")) else { return nothing() };
    let against = [rms, hybrid].map(|other| muf * 100 / other);
    let reason = format!(
        "MUF {} per request, RMS {}, RMS+MLF {}: factors of {} and {}",
        nanos(muf),
        nanos(rms),
        nanos(hybrid),
        times(against[0]),
        times(against[1]),
    );
    let small = against.iter().all(|percent| *percent <= SMALL_FACTOR_PERCENT);
    let above = [rms, hybrid].iter().filter(|other| muf > **other + **other * SAME.0 / 100 + SAME.1).count();
    match above {
        2 if small => ClaimFinding::reproduced(reason),
        0 => ClaimFinding::not_reproduced(format!("{reason}: the difference is within the clock's noise")),
        _ => ClaimFinding::in_part(reason),
    }
}

/// Infrastructure overhead alone can cause a critical miss.
pub fn k11(thresholds: &[Threshold]) -> ClaimFinding {
    let found: Vec<&Threshold> = thresholds.iter().filter(|threshold| threshold.scale_permille.is_some()).collect();
    if thresholds.is_empty() {
        return nothing();
    }
    let words = |threshold: &&Threshold| {
        threshold.first.as_ref().map(|miss| {
            let misses = if miss.misses == 1 { "1 miss".into() } else { format!("{} misses", count(miss.misses)) };
            format!(
                "{} at {} (x{}), {} of {} in region {}",
                threshold.name(),
                nanos(threshold.queueing_ns),
                times(threshold.scale_permille.unwrap_or_default() / 10),
                misses,
                miss.operation,
                miss.region,
            )
        })
    };
    let list: Vec<String> = found.iter().filter_map(words).collect();
    if list.is_empty() {
        return ClaimFinding::not_reproduced("no critical miss up to 256 times the paper's costs");
    }
    let least = found.iter().filter_map(|threshold| threshold.scale_permille).min().unwrap_or(u64::MAX);
    let reason = format!("first miss, by queueing cost per request: {}", list.join("; "));
    match least {
        ..=1_000 => ClaimFinding::reproduced(reason),
        1_001..=PLAUSIBLE_PERMILLE => ClaimFinding::in_part(format!("{reason}; none at the paper's own costs")),
        _ => ClaimFinding::not_reproduced(format!("{reason}; none near the paper's costs")),
    }
}
