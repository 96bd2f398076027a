//! K1 to K8: deadlines made, missed and cancelled, and requests enqueued.

use hyoshi_report::figures::{count, share};

use super::{find, nothing};
use crate::claim::ClaimFinding;
use crate::kokyu::Advertised;
use crate::kokyu::overhead::Threshold;
use crate::kokyu::program::{LAST_FEASIBLE, REGIONS, STRATEGIES};
use crate::kokyu::tally::RegionCounts;
use crate::kokyu::trial::{TrialRow, name};

/// The strategies that separate critical work.
const HYBRIDS: [&str; 2] = [STRATEGIES[1], STRATEGIES[2]];

/// One miss in so many jobs is an isolated one.
const ISOLATED: u64 = 1_000;

/// The largest deviation of the requests from the offered ones in percent: regions do not end with a period.
const SLACK_PERCENT: u64 = 6;

fn critical_missed(regions: &[RegionCounts]) -> u64 {
    regions.iter().map(|region| region.critical.missed).sum()
}

fn critical(regions: &[RegionCounts]) -> u64 {
    regions.iter().map(|region| region.critical.total()).sum()
}

/// `regions 2, 3 and 6`, or a single `region 6`.
pub(super) fn regions(which: &[usize]) -> String {
    let words: Vec<String> = which.iter().map(usize::to_string).collect();
    match words.as_slice() {
        [] => "no region".into(),
        [one] => format!("region {one}"),
        [some @ .., last] => format!("regions {} and {last}", some.join(", ")),
    }
}

/// RMS meets all critical deadlines up to region 6 and misses them beyond.
pub fn k1(rows: &[TrialRow]) -> ClaimFinding {
    let Some(rms) = find(rows, "RMS", false) else { return nothing() };
    let (before, beyond) = rms.regions.split_at((LAST_FEASIBLE + 1).min(rms.regions.len()));
    let early = critical_missed(before);
    let missing: Vec<usize> = beyond
        .iter()
        .enumerate()
        .filter(|(_, region)| region.critical.missed > 0)
        .map(|(index, _)| LAST_FEASIBLE + 1 + index)
        .collect();
    let first = rms.regions.iter().position(|region| region.critical.missed > 0);
    let reason = format!(
        "{} of {} missed in regions 0 to {LAST_FEASIBLE}; {} of {} missed beyond, in {}",
        count(early),
        count(critical(before)),
        count(critical_missed(beyond)),
        count(critical(beyond)),
        regions(&missing),
    );
    let everywhere = missing.len() == beyond.len() && !beyond.is_empty();
    match first {
        _ if early == 0 && everywhere => ClaimFinding::reproduced(reason),
        Some(_) if early * ISOLATED <= critical(before) && !missing.is_empty() => ClaimFinding::in_part(reason),
        _ => ClaimFinding::not_reproduced(reason),
    }
}

/// MUF and RMS+MLF meet all critical deadlines in all regions.
pub fn k2(rows: &[TrialRow]) -> ClaimFinding {
    let hybrids: Vec<&TrialRow> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
    if hybrids.is_empty() {
        return nothing();
    }
    let missed: u64 = hybrids.iter().map(|row| critical_missed(&row.regions)).sum();
    let all: u64 = hybrids.iter().map(|row| critical(&row.regions)).sum();
    let where_missed: Vec<String> = hybrids
        .iter()
        .filter(|row| critical_missed(&row.regions) > 0)
        .map(|row| {
            let missing = row.regions.iter().enumerate().filter(|(_, region)| region.critical.missed > 0);
            let missing: Vec<usize> = missing.map(|(index, _)| index).collect();
            format!("{} under {} in {}", count(critical_missed(&row.regions)), row.name(), regions(&missing))
        })
        .collect();
    match missed {
        0 => ClaimFinding::reproduced(format!("none of {} missed, with and without cancellation", count(all))),
        _ => {
            let reason = format!("{} of {} missed: {}", count(missed), count(all), where_missed.join("; "));
            if missed * ISOLATED <= all { ClaimFinding::in_part(reason) } else { ClaimFinding::not_reproduced(reason) }
        }
    }
}

/// RMS makes more non-critical deadlines than the hybrids where load is feasible.
pub fn k3(rows: &[TrialRow]) -> ClaimFinding {
    let Some(rms) = find(rows, "RMS", false) else { return nothing() };
    let hybrids: Vec<&TrialRow> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
    if hybrids.is_empty() {
        return nothing();
    }
    let feasible = ..(LAST_FEASIBLE + 1).min(rms.regions.len());
    let (mut more, mut fewer, mut ahead) = (Vec::new(), Vec::new(), 0);
    for (index, region) in rms.regions[feasible].iter().enumerate() {
        let best = hybrids.iter().filter_map(|row| row.regions.get(index)).map(|other| other.non_critical.made).max();
        let (mine, best) = (region.non_critical.made, best.unwrap_or(0));
        match mine.cmp(&best) {
            std::cmp::Ordering::Greater => more.push(index),
            std::cmp::Ordering::Less => fewer.push(index),
            std::cmp::Ordering::Equal => {}
        }
        ahead += mine.saturating_sub(best);
    }
    let made: u64 = rms.regions[feasible].iter().map(|region| region.non_critical.made).sum();
    let reason = format!(
        "RMS made {} in regions 0 to {LAST_FEASIBLE}; more than the best hybrid in {} ({} more), fewer in {}",
        count(made),
        regions(&more),
        count(ahead),
        regions(&fewer),
    );
    match (more.is_empty(), fewer.is_empty()) {
        (false, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::in_part(reason),
        (true, _) => ClaimFinding::not_reproduced(reason),
    }
}

/// The sum of a count over all regions, without and with cancellation, for each hybrid.
fn without_and_with(rows: &[TrialRow], of: fn(&RegionCounts) -> u64) -> Option<[(&'static str, u64, u64); 2]> {
    let sum = |row: &TrialRow| row.regions.iter().map(of).sum::<u64>();
    let pair = |strategy| Some((strategy, sum(find(rows, strategy, false)?), sum(find(rows, strategy, true)?)));
    Some([pair(HYBRIDS[0])?, pair(HYBRIDS[1])?])
}

fn against(pairs: &[(&str, u64, u64)]) -> String {
    let one =
        |(strategy, without, with): &(&str, u64, u64)| format!("{strategy} {} → {}", count(*without), count(*with));
    pairs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Cancellation lowers the number of missed deadlines under MUF and RMS+MLF.
pub fn k4(rows: &[TrialRow]) -> ClaimFinding {
    let Some(pairs) = without_and_with(rows, |region| region.all().missed) else { return nothing() };
    let reason = format!("missed, without → with cancellation: {}", against(&pairs));
    match pairs.iter().filter(|(_, without, with)| with < without).count() {
        2 => ClaimFinding::reproduced(reason),
        1 => ClaimFinding::in_part(reason),
        _ => ClaimFinding::not_reproduced(reason),
    }
}

/// Cancellation lowers the number of made deadlines, too.
pub fn k5(rows: &[TrialRow], advertised: &[Advertised]) -> ClaimFinding {
    let Some(pairs) = without_and_with(rows, |region| region.all().made) else { return nothing() };
    let reason = format!("made, without → with cancellation: {}", against(&pairs));
    if pairs.iter().all(|(_, without, with)| with < without) {
        return ClaimFinding::reproduced(reason);
    }
    // With a worst case far above the execution time, cancellation is rash.
    let fewer = |one: &Advertised| -> Vec<usize> {
        let Some(without) = find(rows, &one.row.strategy, false) else { return Vec::new() };
        let both = one.row.regions.iter().zip(&without.regions).enumerate();
        both.filter(|(_, (with, without))| with.all().made < without.all().made).map(|(index, _)| index).collect()
    };
    let rash = advertised.iter().map(|one| (one, fewer(one))).find(|(_, fewer)| !fewer.is_empty());
    match rash {
        Some((one, fewer)) => ClaimFinding::in_part(format!(
            "{reason}: more, because late legs starve the next frame; but with worst cases advertised at {} % of a \
             leg's execution time, cancellation makes fewer in {} ({})",
            one.percent,
            regions(&fewer),
            one.row.name(),
        )),
        None if pairs.iter().any(|(_, without, with)| with < without) => ClaimFinding::in_part(reason),
        None => ClaimFinding::not_reproduced(format!("{reason}: not fewer, because late legs starve the next frame")),
    }
}

/// RMS with cancellation cancels nothing and misses more critical deadlines. `free` are trials at no cost, `costly`
/// those at the paper's costs.
pub fn k6(free: &[TrialRow], costly: &[TrialRow], thresholds: &[Threshold]) -> ClaimFinding {
    let pair = |rows| Some([find(rows, "RMS", false)?, find(rows, "RMS", true)?]);
    let (Some(free), Some(costly)) = (pair(free), pair(costly)) else { return nothing() };
    let cancelled = |row: &TrialRow| row.regions.iter().map(|region| region.all().cancelled).sum::<u64>();
    let missed = |row: &TrialRow| {
        let first = row.regions.iter().position(|region| region.critical.missed > 0);
        let first = first.map_or(String::new(), |region| format!(", first in region {region}"));
        format!("{}{first}", count(critical_missed(&row.regions)))
    };
    let summary = |[without, with]: [&TrialRow; 2]| {
        let cancelled = count(cancelled(with));
        format!(
            "{cancelled} cancelled; critical misses without → with cancellation: {} → {}",
            missed(without),
            missed(with)
        )
    };
    let mut reason = summary(free);
    if free != costly {
        reason = format!("{reason}; at the paper's costs {}", summary(costly));
    }
    reason.push_str(&earlier(thresholds).unwrap_or_default());
    let more = critical_missed(&costly[1].regions) > critical_missed(&costly[0].regions);
    match (cancelled(free[1]) == 0, more) {
        (true, true) => ClaimFinding::reproduced(reason),
        (true, false) | (false, true) => ClaimFinding::in_part(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
    }
}

/// The costs at which the check alone makes RMS miss a region earlier.
fn earlier(thresholds: &[Threshold]) -> Option<String> {
    let of = |cancel| thresholds.iter().find(|one| one.strategy == "RMS" && one.cancel == cancel);
    let (without, with) = (of(false)?, of(true)?);
    let (first, scale) = (with.first.as_ref()?, with.scale_permille?);
    let beyond = without.scale_permille.is_none_or(|other| scale < other);
    let until = without.scale_permille.map_or(String::new(), |other| format!(" to {}", factor(other)));
    beyond.then(|| {
        format!(
            "; at {}{until} times those costs only RMS © misses in region {}, because its checks fill the processor",
            factor(scale),
            first.region
        )
    })
}

fn factor(permille: u64) -> String {
    format!("{}.{:02}", permille / 1_000, permille % 1_000 / 10)
}

/// Cancellation bounds the requests enqueued; without it they grow linearly.
pub fn k7(rows: &[TrialRow], offered: &[u64]) -> ClaimFinding {
    let near = |enqueued: u64, offered: u64| enqueued.abs_diff(offered) * 100 <= offered * SLACK_PERCENT;
    let grows =
        |row: &&TrialRow| row.regions.iter().zip(offered).all(|(region, offered)| near(region.enqueued, *offered));
    let (Some(last), Some(eighth)) = (offered.last(), offered.get(8)) else { return nothing() };
    // From region 8 on, at most half of the offered growth.
    let bounded = |row: &&TrialRow| {
        let most = row.regions.iter().skip(8).map(|region| region.enqueued).max().unwrap_or(0);
        most <= eighth + last.saturating_sub(*eighth) / 2
    };
    let without: Vec<&TrialRow> = STRATEGIES.iter().filter_map(|strategy| find(rows, strategy, false)).collect();
    let with: Vec<&TrialRow> = HYBRIDS.iter().filter_map(|strategy| find(rows, strategy, true)).collect();
    if without.is_empty() || with.is_empty() {
        return nothing();
    }
    let linear: Vec<&str> = without.iter().filter(|row| grows(row)).map(|row| row.strategy.as_str()).collect();
    let held = with.iter().filter(|row| bounded(row)).count();
    let at_end =
        |row: &&TrialRow| format!("{} {}", row.name(), count(row.regions.last().map_or(0, |region| region.enqueued)));
    let ends: Vec<String> = without.iter().chain(&with).map(at_end).collect();
    let reason = format!(
        "of {} requests offered in region 11 were enqueued: {}; linear without cancellation under {}",
        count(*last),
        ends.join(", "),
        if linear.is_empty() { "no strategy".into() } else { linear.join(", ") },
    );
    let saturated = "; an overloaded processor finishes fewer legs, and an unfinished leg does not start the next one";
    match (linear.len() == without.len(), held == with.len()) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, true) if !linear.is_empty() => ClaimFinding::in_part(format!("{reason}{saturated}")),
        (true, false) if held > 0 => ClaimFinding::in_part(reason),
        _ => ClaimFinding::not_reproduced(reason),
    }
}

/// Regions without jitter, and neighbours with jitter and almost the same route.
const NEIGHBOURS: [(usize, usize); 5] = [(0, 1), (4, 3), (4, 5), (8, 7), (8, 9)];

/// Fewer non-critical deadlines are made under more jitter at similar load. `steady` are the same
/// trials with every drawn execution time replaced by its mean.
pub fn k8(rows: &[TrialRow], steady: &[TrialRow]) -> ClaimFinding {
    let hybrids: Vec<&TrialRow> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
    let in_time = |region: &RegionCounts| (region.non_critical.made, region.non_critical.total().max(1));
    // Shares compared without division.
    let at_least = |one: (u64, u64), other: (u64, u64)| {
        u128::from(one.0) * u128::from(other.1) >= u128::from(other.0) * u128::from(one.1)
    };
    let (mut hold, mut asked) = (0, 0);
    for row in &hybrids {
        for (calm, jittery) in NEIGHBOURS {
            if let (Some(calm), Some(jittery)) = (row.regions.get(calm), row.regions.get(jittery)) {
                asked += 1;
                hold += usize::from(at_least(in_time(calm), in_time(jittery)));
            }
        }
    }
    let (mut fewer, mut more) = (0, 0);
    for row in steady {
        let Some(drawn) = find(rows, &row.strategy, row.cancel) else { continue };
        let jittery = drawn.regions.iter().zip(&row.regions).zip(REGIONS).filter(|(_, region)| region.jitters());
        for ((drawn, steady), _) in jittery {
            fewer += usize::from(drawn.non_critical.made < steady.non_critical.made);
            more += usize::from(drawn.non_critical.made > steady.non_critical.made);
        }
    }
    if asked == 0 || steady.is_empty() {
        return nothing();
    }
    let eight = find(rows, HYBRIDS[0], true).map(|row| {
        let share = |index: usize| row.regions.get(index).map_or((0, 0), in_time);
        let [seven, eight, nine] = [7, 8, 9].map(share).map(|(made, of)| share_words(made, of));
        format!(" ({}: {seven}, {eight}, {nine} in regions 7, 8, 9)", name(HYBRIDS[0], true))
    });
    let reason = format!(
        "in {hold} of {asked} comparisons regions 0, 4 and 8 finish a larger share in time than their neighbours{}; \
         jitter alone, with the mean unchanged, lowers the number in {fewer} regions and raises it in {more}",
        eight.unwrap_or_default(),
    );
    match () {
        () if hold == asked && more == 0 && fewer > 0 => ClaimFinding::reproduced(reason),
        () if hold * 2 > asked || fewer > more => ClaimFinding::in_part(reason),
        () => ClaimFinding::not_reproduced(reason),
    }
}

fn share_words(made: u64, of: u64) -> String {
    share(made, of)
}
