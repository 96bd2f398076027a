//! K12 and K13: the paper's future work.

use hyoshi_report::figures::count;

use super::deadlines::regions;
use super::{find, nothing};
use crate::claim::ClaimFinding;
use crate::kokyu::best::best;
use crate::kokyu::slack::{MODERATE, Slack};
use crate::kokyu::trial::TrialRow;

/// Non-critical deadlines made in the regions of moderate jitter.
fn made(row: &TrialRow) -> u64 {
    MODERATE.iter().filter_map(|region| row.regions.get(*region)).map(|counts| counts.non_critical.made).sum()
}

/// The difference of two numbers, as text.
fn more(one: u64, other: u64) -> String {
    match one.cmp(&other) {
        std::cmp::Ordering::Equal => "as many".into(),
        std::cmp::Ordering::Greater => format!("{} more", count(one - other)),
        std::cmp::Ordering::Less => format!("{} fewer", count(other - one)),
    }
}

/// Slack stealing explains MUF's performance under moderate jitter. `free` are trials at no cost, `costly` those at the
/// paper's costs.
pub fn k12(free: &[TrialRow], costly: &[TrialRow], slack: &Slack) -> ClaimFinding {
    let sum = |rows: &[TrialRow], strategy: &str| -> Option<u64> {
        Some(made(find(rows, strategy, false)?) + made(find(rows, strategy, true)?))
    };
    let (Some(muf), Some(hybrid)) = (sum(costly, "MUF"), sum(costly, "RMS+MLF")) else { return nothing() };
    let (Some(free_muf), Some(free_hybrid)) = (sum(free, "MUF"), sum(free, "RMS+MLF")) else { return nothing() };
    let Some(same_costs) = sum(&slack.muf_at_hybrid_costs, "MUF") else { return nothing() };
    let stolen: Option<String> = slack.stealing.first().and_then(|stealing| {
        let without = find(free, "RMS+MLF", false)?;
        let missed: u64 = stealing.regions.iter().map(|counts| counts.critical.missed).sum();
        Some(format!(
            "; stealing slack on purpose would make {} than RMS+MLF without cancellation, with {} critical misses",
            more(made(stealing), made(without)),
            count(missed)
        ))
    });
    let reason = format!(
        "in {} MUF makes {} non-critical deadlines than RMS+MLF at the paper's costs, {} at no cost; by the \
         mechanism alone {}, by its overhead alone {}{}",
        regions(&MODERATE),
        more(muf, hybrid),
        more(free_muf, free_hybrid),
        more(same_costs, hybrid),
        more(muf, same_costs),
        stolen.unwrap_or_default(),
    );
    let by_overhead = muf.saturating_sub(same_costs);
    let by_mechanism = same_costs.saturating_sub(hybrid);
    match () {
        () if muf <= hybrid => ClaimFinding::not_reproduced(format!("{reason}: there is nothing to explain")),
        () if by_overhead > by_mechanism => ClaimFinding::reproduced(reason),
        () if by_overhead > 0 => ClaimFinding::in_part(reason),
        () => ClaimFinding::not_reproduced(reason),
    }
}

/// Switching combines the advantages: `switched` are trials of RMS with RMS+MLF in overload, `rows` the paper's trials.
/// In all regions it has no more critical misses than RMS+MLF. It makes at least 99 % of the non-critical deadlines of
/// the best fixed strategy without critical misses.
pub fn k13(rows: &[TrialRow], switched: &[TrialRow]) -> ClaimFinding {
    if switched.is_empty() {
        return nothing();
    }
    let (mut missed, mut short, mut asked, mut worst): (u64, Vec<String>, usize, Option<u64>) =
        (0, Vec::new(), 0, None);
    for row in switched {
        let fixed: Vec<TrialRow> = rows.iter().filter(|fixed| fixed.cancel == row.cancel).cloned().collect();
        let hybrid = find(rows, "RMS+MLF", row.cancel);
        for (region, counts) in row.regions.iter().enumerate() {
            let allowed = hybrid.and_then(|row| row.regions.get(region)).map_or(0, |counts| counts.critical.missed);
            missed += counts.critical.missed.saturating_sub(allowed);
            let Some((_, most)) = best(&fixed, region) else { continue };
            asked += 1;
            if most == 0 {
                continue;
            }
            let permille = counts.non_critical.made * 1_000 / most;
            worst = Some(worst.map_or(permille, |worst| worst.min(permille)));
            if permille < 990 {
                let percent = format!("{}.{} %", permille / 10, permille % 10);
                short.push(format!("{percent} in region {region}{}", if row.cancel { " ©" } else { "" }));
            }
        }
    }
    if asked == 0 {
        return ClaimFinding::not_measured(
            "no fixed strategy met all critical deadlines in any region, so there is nothing to compare with",
        );
    }
    let regions: usize = switched.iter().map(|row| row.regions.len()).sum();
    let left_out = match regions - asked {
        0 => String::new(),
        some => {
            format!(
                "; {some} of {regions} regions left out because no fixed strategy met all critical deadlines \
                     there"
            )
        }
    };
    let worst = worst.unwrap_or_default();
    let least = if short.is_empty() {
        format!(
            "at least {}.{} % of the best fixed strategy's non-critical deadlines in every region",
            worst / 10,
            worst % 10
        )
    } else {
        format!(
            "99 % of the best fixed strategy's non-critical deadlines in {} of {asked} regions, but {}",
            asked - short.len(),
            short.join(", ")
        )
    };
    let reason = format!("{} critical misses beyond those of RMS+MLF; {least}{left_out}", count(missed));
    match (missed, short.len()) {
        (0, 0) => ClaimFinding::reproduced(reason),
        (0, some) if some * 2 < asked => ClaimFinding::in_part(reason),
        (_, 0) => ClaimFinding::in_part(reason),
        _ => ClaimFinding::not_reproduced(reason),
    }
}
