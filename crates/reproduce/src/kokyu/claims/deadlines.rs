//! K1 to K8: deadlines made, missed and cancelled, and requests enqueued.

use hyoshi_report::figures::{count, share};

use super::{find, nothing};
use crate::claim::Finding;
use crate::kokyu::Advertised;
use crate::kokyu::overhead::Threshold;
use crate::kokyu::program::{LAST_FEASIBLE, REGIONS, STRATEGIES};
use crate::kokyu::tally::Counts;
use crate::kokyu::trial::{Row, name};

/// The strategies that keep critical work apart.
const HYBRIDS: [&str; 2] = [STRATEGIES[1], STRATEGIES[2]];

/// A miss in so many jobs is an isolated one.
const ISOLATED: u64 = 1_000;

/// Requests may differ from those offered by so many percent: regions do not end with a period.
const SLACK_PERCENT: u64 = 6;

fn critical_missed(regions: &[Counts]) -> u64 {
    regions.iter().map(|region| region.critical.missed).sum()
}

fn critical(regions: &[Counts]) -> u64 {
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
pub fn k1(rows: &[Row]) -> Finding {
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
        _ if early == 0 && everywhere => Finding::reproduced(reason),
        Some(_) if early * ISOLATED <= critical(before) && !missing.is_empty() => Finding::in_part(reason),
        _ => Finding::not_reproduced(reason),
    }
}

/// MUF and RMS+MLF meet all critical deadlines in all regions.
pub fn k2(rows: &[Row]) -> Finding {
    let hybrids: Vec<&Row> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
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
        0 => Finding::reproduced(format!("none of {} missed, with and without cancellation", count(all))),
        _ => {
            let reason = format!("{} of {} missed: {}", count(missed), count(all), where_missed.join("; "));
            if missed * ISOLATED <= all { Finding::in_part(reason) } else { Finding::not_reproduced(reason) }
        }
    }
}

/// RMS makes more non-critical deadlines than the hybrids where load is feasible.
pub fn k3(rows: &[Row]) -> Finding {
    let Some(rms) = find(rows, "RMS", false) else { return nothing() };
    let hybrids: Vec<&Row> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
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
        (false, true) => Finding::reproduced(reason),
        (false, false) => Finding::in_part(reason),
        (true, _) => Finding::not_reproduced(reason),
    }
}

/// A figure of a hybrid without and with cancellation, added up over all regions.
fn without_and_with(rows: &[Row], of: fn(&Counts) -> u64) -> Option<[(&'static str, u64, u64); 2]> {
    let sum = |row: &Row| row.regions.iter().map(of).sum::<u64>();
    let pair = |strategy| Some((strategy, sum(find(rows, strategy, false)?), sum(find(rows, strategy, true)?)));
    Some([pair(HYBRIDS[0])?, pair(HYBRIDS[1])?])
}

fn against(pairs: &[(&str, u64, u64)]) -> String {
    let one =
        |(strategy, without, with): &(&str, u64, u64)| format!("{strategy} {} → {}", count(*without), count(*with));
    pairs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Cancellation lowers the number of missed deadlines under MUF and RMS+MLF.
pub fn k4(rows: &[Row]) -> Finding {
    let Some(pairs) = without_and_with(rows, |region| region.all().missed) else { return nothing() };
    let reason = format!("missed, without → with cancellation: {}", against(&pairs));
    match pairs.iter().filter(|(_, without, with)| with < without).count() {
        2 => Finding::reproduced(reason),
        1 => Finding::in_part(reason),
        _ => Finding::not_reproduced(reason),
    }
}

/// Cancellation lowers the number of made deadlines, too.
pub fn k5(rows: &[Row], advertised: &[Advertised]) -> Finding {
    let Some(pairs) = without_and_with(rows, |region| region.all().made) else { return nothing() };
    let reason = format!("made, without → with cancellation: {}", against(&pairs));
    if pairs.iter().all(|(_, without, with)| with < without) {
        return Finding::reproduced(reason);
    }
    // A worst case that jobs stay far below makes cancellation rash.
    let fewer = |one: &Advertised| -> Vec<usize> {
        let Some(without) = find(rows, &one.row.strategy, false) else { return Vec::new() };
        let both = one.row.regions.iter().zip(&without.regions).enumerate();
        both.filter(|(_, (with, without))| with.all().made < without.all().made).map(|(index, _)| index).collect()
    };
    let rash = advertised.iter().map(|one| (one, fewer(one))).find(|(_, fewer)| !fewer.is_empty());
    match rash {
        Some((one, fewer)) => Finding::in_part(format!(
            "{reason}: more, for late legs starve the next frame; but with worst cases advertised at {} % of what a leg \
             takes, cancellation makes fewer in {} ({})",
            one.percent,
            regions(&fewer),
            one.row.name(),
        )),
        None if pairs.iter().any(|(_, without, with)| with < without) => Finding::in_part(reason),
        None => Finding::not_reproduced(format!("{reason}: not fewer, for late legs starve the next frame")),
    }
}

/// RMS with cancellation cancels nothing and misses more critical deadlines: `free` where nothing
/// costs anything, `costly` at the paper's costs.
pub fn k6(free: &[Row], costly: &[Row], thresholds: &[Threshold]) -> Finding {
    let pair = |rows| Some([find(rows, "RMS", false)?, find(rows, "RMS", true)?]);
    let (Some(free), Some(costly)) = (pair(free), pair(costly)) else { return nothing() };
    let cancelled = |row: &Row| row.regions.iter().map(|region| region.all().cancelled).sum::<u64>();
    let missed = |row: &Row| {
        let first = row.regions.iter().position(|region| region.critical.missed > 0);
        let first = first.map_or(String::new(), |region| format!(", first in region {region}"));
        format!("{}{first}", count(critical_missed(&row.regions)))
    };
    let told = |[without, with]: [&Row; 2]| {
        let cancelled = count(cancelled(with));
        format!(
            "{cancelled} cancelled; critical misses without → with cancellation: {} → {}",
            missed(without),
            missed(with)
        )
    };
    let mut reason = told(free);
    if free != costly {
        reason = format!("{reason}; at the paper's costs {}", told(costly));
    }
    reason.push_str(&earlier(thresholds).unwrap_or_default());
    let more = critical_missed(&costly[1].regions) > critical_missed(&costly[0].regions);
    match (cancelled(free[1]) == 0, more) {
        (true, true) => Finding::reproduced(reason),
        (true, false) | (false, true) => Finding::in_part(reason),
        (false, false) => Finding::not_reproduced(reason),
    }
}

/// At which costs the check alone makes RMS miss a region earlier.
fn earlier(thresholds: &[Threshold]) -> Option<String> {
    let of = |cancel| thresholds.iter().find(|one| one.strategy == "RMS" && one.cancel == cancel);
    let (without, with) = (of(false)?, of(true)?);
    let (first, scale) = (with.first.as_ref()?, with.scale_permille?);
    let beyond = without.scale_permille.is_none_or(|other| scale < other);
    let until = without.scale_permille.map_or(String::new(), |other| format!(" to {}", factor(other)));
    beyond.then(|| {
        format!(
            "; at {}{until} times those costs only RMS © misses in region {}, for its checks fill the processor",
            factor(scale),
            first.region
        )
    })
}

fn factor(permille: u64) -> String {
    format!("{}.{:02}", permille / 1_000, permille % 1_000 / 10)
}

/// Cancellation bounds the requests enqueued; without it they grow linearly.
pub fn k7(rows: &[Row], offered: &[u64]) -> Finding {
    let near = |enqueued: u64, offered: u64| enqueued.abs_diff(offered) * 100 <= offered * SLACK_PERCENT;
    let grows = |row: &&Row| row.regions.iter().zip(offered).all(|(region, offered)| near(region.enqueued, *offered));
    let (Some(last), Some(eighth)) = (offered.last(), offered.get(8)) else { return nothing() };
    // From region 8 on, at most half of the growth that is offered.
    let bounded = |row: &&Row| {
        let most = row.regions.iter().skip(8).map(|region| region.enqueued).max().unwrap_or(0);
        most <= eighth + last.saturating_sub(*eighth) / 2
    };
    let without: Vec<&Row> = STRATEGIES.iter().filter_map(|strategy| find(rows, strategy, false)).collect();
    let with: Vec<&Row> = HYBRIDS.iter().filter_map(|strategy| find(rows, strategy, true)).collect();
    if without.is_empty() || with.is_empty() {
        return nothing();
    }
    let linear: Vec<&str> = without.iter().filter(|row| grows(row)).map(|row| row.strategy.as_str()).collect();
    let held = with.iter().filter(|row| bounded(row)).count();
    let at_end =
        |row: &&Row| format!("{} {}", row.name(), count(row.regions.last().map_or(0, |region| region.enqueued)));
    let ends: Vec<String> = without.iter().chain(&with).map(at_end).collect();
    let reason = format!(
        "of {} requests offered in region 11 were enqueued: {}; linear without cancellation under {}",
        count(*last),
        ends.join(", "),
        if linear.is_empty() { "no strategy".into() } else { linear.join(", ") },
    );
    let saturated = "; an overloaded processor ends fewer legs, and what has not ended starts no next one";
    match (linear.len() == without.len(), held == with.len()) {
        (true, true) => Finding::reproduced(reason),
        (false, true) if !linear.is_empty() => Finding::in_part(format!("{reason}{saturated}")),
        (true, false) if held > 0 => Finding::in_part(reason),
        _ => Finding::not_reproduced(reason),
    }
}

/// Regions with no jitter beside those with some and almost the same route.
const NEIGHBOURS: [(usize, usize); 5] = [(0, 1), (4, 3), (4, 5), (8, 7), (8, 9)];

/// Fewer non-critical deadlines are made under more jitter at similar load. `steady` are the same
/// trials with every drawn execution time replaced by its mean.
pub fn k8(rows: &[Row], steady: &[Row]) -> Finding {
    let hybrids: Vec<&Row> = rows.iter().filter(|row| HYBRIDS.contains(&row.strategy.as_str())).collect();
    let in_time = |region: &Counts| (region.non_critical.made, region.non_critical.total().max(1));
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
        "a larger share in time than in their neighbours in {hold} of {asked} comparisons of regions 0, 4 and 8{}; but of \
         the jitter itself, its mean kept: fewer in {fewer}, more in {more} regions",
        eight.unwrap_or_default(),
    );
    match () {
        () if hold == asked && more == 0 && fewer > 0 => Finding::reproduced(reason),
        () if hold * 2 > asked || fewer > more => Finding::in_part(reason),
        () => Finding::not_reproduced(reason),
    }
}

fn share_words(made: u64, of: u64) -> String {
    share(made, of)
}
