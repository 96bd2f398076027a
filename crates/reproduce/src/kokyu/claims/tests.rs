//! Tests of every rule, with data for which the claim holds and data for which it does not.

use super::{cost, deadlines, strategy};
use crate::claim::{ClaimFinding, ClaimVerdict};
use crate::kokyu::Advertised;
use crate::kokyu::overhead::{FirstMiss, Threshold};
use crate::kokyu::program::REGIONS;
use crate::kokyu::queueing::{QueueingCost, RowQueueing, Typical};
use crate::kokyu::slack::Slack;
use crate::kokyu::tally::{Deadlines, RegionCounts};
use crate::kokyu::trial::TrialRow;
use ClaimVerdict::{InPart, NotMeasured, NotReproduced, Reproduced};

/// A trial in which every region has 1,000 critical and 100 other jobs, all in time, with changes.
fn row(strategy: &str, cancel: bool, change: impl Fn(usize, &mut RegionCounts)) -> TrialRow {
    let regions = (0..REGIONS.len()).map(|region| {
        let mut counts = RegionCounts {
            enqueued: 1_100,
            critical: Deadlines { made: 1_000, ..Deadlines::default() },
            non_critical: Deadlines { made: 100, ..Deadlines::default() },
            ..RegionCounts::default()
        };
        change(region, &mut counts);
        counts
    });
    TrialRow { strategy: strategy.into(), cancel, regions: regions.collect() }
}

fn late(counts: &mut RegionCounts, critical: u64, non_critical: u64) {
    for (class, late) in [(&mut counts.critical, critical), (&mut counts.non_critical, non_critical)] {
        class.made -= late;
        class.missed += late;
    }
}

/// The six trials, with changes by name: `MUF ©`.
fn rows(change: impl Fn(&str, usize, &mut RegionCounts)) -> Vec<TrialRow> {
    let mut rows = Vec::new();
    for strategy in ["RMS", "MUF", "RMS+MLF"] {
        for cancel in [false, true] {
            let name = crate::kokyu::trial::name(strategy, cancel);
            rows.push(row(strategy, cancel, |region, counts| change(&name, region, counts)));
        }
    }
    rows
}

/// The paper's results as data.
fn as_in_the_paper() -> Vec<TrialRow> {
    rows(|name, region, counts| match name {
        "RMS" if region > 6 => late(counts, 200, 0),
        "RMS ©" if region > 5 => late(counts, 201, 0),
        "MUF" | "RMS+MLF" => late(counts, 0, 40),
        "MUF ©" | "RMS+MLF ©" => {
            late(counts, 0, 50);
            (counts.non_critical.missed, counts.non_critical.cancelled) = (10, 40);
        }
        _ => {}
    })
}

fn verdict(finding: ClaimFinding) -> ClaimVerdict {
    assert!(!finding.reason.is_empty());
    finding.verdict
}

#[test]
fn k1_holds_if_rms_misses_in_every_region_beyond_the_sixth_and_in_no_other() {
    assert_eq!(verdict(deadlines::k1(&as_in_the_paper())), Reproduced);
    let some = rows(|name, region, counts| late(counts, if name == "RMS" && region == 9 { 3 } else { 0 }, 0));
    assert_eq!(verdict(deadlines::k1(&some)), InPart);
    let early = rows(|name, region, counts| late(counts, if name == "RMS" && region > 3 { 100 } else { 0 }, 0));
    assert_eq!(verdict(deadlines::k1(&early)), NotReproduced);
    let never = rows(|_, _, _| ());
    assert_eq!(verdict(deadlines::k1(&never)), NotReproduced);
    assert_eq!(verdict(deadlines::k1(&[])), NotMeasured);
}

#[test]
fn k2_holds_without_a_miss_and_in_part_with_an_isolated_one() {
    assert_eq!(verdict(deadlines::k2(&as_in_the_paper())), Reproduced);
    let isolated = rows(|name, region, counts| late(counts, u64::from(name == "MUF" && region == 9), 0));
    let finding = deadlines::k2(&isolated);
    assert!(finding.reason.contains("1 under MUF in region 9"), "{}", finding.reason);
    assert_eq!(verdict(finding), InPart);
    let many = rows(|name, _, counts| late(counts, if name == "RMS+MLF ©" { 90 } else { 0 }, 0));
    assert_eq!(verdict(deadlines::k2(&many)), NotReproduced);
}

#[test]
fn k3_holds_if_rms_makes_more_somewhere_and_fewer_nowhere_up_to_region_6() {
    assert_eq!(verdict(deadlines::k3(&as_in_the_paper())), Reproduced);
    assert_eq!(verdict(deadlines::k3(&rows(|_, _, _| ()))), NotReproduced);
    let mixed = rows(|name, region, counts| match (name, region) {
        ("RMS", 2) => late(counts, 0, 60),
        ("RMS", _) => {}
        _ => late(counts, 0, 40),
    });
    assert_eq!(verdict(deadlines::k3(&mixed)), InPart);
    // RMS's results in overload do not count.
    let overload = rows(|name, region, counts| late(counts, 0, if name != "RMS" && region > 6 { 40 } else { 0 }));
    assert_eq!(verdict(deadlines::k3(&overload)), NotReproduced);
}

#[test]
fn k4_wants_fewer_misses_with_cancellation_under_both_hybrids() {
    assert_eq!(verdict(deadlines::k4(&as_in_the_paper())), Reproduced);
    let one = rows(|name, _, counts| late(counts, 0, if name == "MUF" { 10 } else { 0 }));
    assert_eq!(verdict(deadlines::k4(&one)), InPart);
    assert_eq!(verdict(deadlines::k4(&rows(|_, _, _| ()))), NotReproduced);
}

#[test]
fn k5_wants_fewer_made_with_cancellation_or_at_least_with_rash_worst_cases() {
    assert_eq!(verdict(deadlines::k5(&as_in_the_paper(), &[])), Reproduced);
    let helps = rows(|name, _, counts| late(counts, 0, if name.ends_with('©') { 10 } else { 40 }));
    assert_eq!(verdict(deadlines::k5(&helps, &[])), NotReproduced);
    let rash = row("MUF", true, |region, counts| late(counts, 0, if region == 5 { 60 } else { 10 }));
    let finding = deadlines::k5(&helps, &[Advertised { percent: 200, row: rash }]);
    assert!(finding.reason.contains("200 %") && finding.reason.contains("region 5"), "{}", finding.reason);
    assert_eq!(verdict(finding), InPart);
}

#[test]
fn k6_wants_nothing_cancelled_and_more_missed() {
    let paper = as_in_the_paper();
    assert_eq!(verdict(deadlines::k6(&paper, &paper, &[])), Reproduced);
    let same = rows(|name, region, counts| late(counts, if name.starts_with("RMS") && region > 6 { 9 } else { 0 }, 0));
    assert_eq!(verdict(deadlines::k6(&same, &same, &[])), InPart);
    // The trials at no cost decide whether anything is cancelled; those at the paper's costs decide which misses more.
    let finding = deadlines::k6(&same, &paper, &[]);
    assert!(finding.reason.contains("at the paper's costs"), "{}", finding.reason);
    assert_eq!(verdict(finding), Reproduced);
    let cancels = rows(|name, _, counts| counts.non_critical.cancelled = u64::from(name == "RMS ©"));
    assert_eq!(verdict(deadlines::k6(&cancels, &cancels, &[])), NotReproduced);
    let at = |cancel, scale| threshold("RMS", cancel, Some(scale), 6);
    let finding = deadlines::k6(&paper, &paper, &[at(false, 2_300), at(true, 2_250)]);
    assert!(finding.reason.contains("at 2.25 to 2.30 times those costs only RMS © misses"), "{}", finding.reason);
    let finding = deadlines::k6(&paper, &paper, &[at(false, 2_300), at(true, 2_300)]);
    assert!(!finding.reason.contains("times those costs"), "{}", finding.reason);
}

#[test]
fn k7_wants_a_line_without_cancellation_and_a_bound_with_it() {
    let offered: Vec<u64> = (0..12).map(|region| 1_000 + 100 * region).collect();
    let line = |region: usize| 1_000 + 100 * region as u64;
    let paper = rows(|name, region, counts| {
        counts.enqueued = if name.ends_with('©') && name != "RMS ©" { line(region.min(7)) } else { line(region) };
    });
    assert_eq!(verdict(deadlines::k7(&paper, &offered)), Reproduced);
    let saturated = rows(|name, region, counts| {
        counts.enqueued =
            if name.starts_with("RMS") && !name.contains('+') { line(region) } else { line(region.min(7)) };
    });
    assert_eq!(verdict(deadlines::k7(&saturated, &offered)), InPart);
    let unbounded = rows(|_, region, counts| counts.enqueued = line(region));
    assert_eq!(verdict(deadlines::k7(&unbounded, &offered)), NotReproduced);
}

#[test]
fn k8_wants_calm_regions_ahead_and_jitter_itself_to_cost_deadlines() {
    let calm = |region: usize| region.is_multiple_of(4);
    let jittery = rows(|_, region, counts| late(counts, 0, if calm(region) { 0 } else { 20 }));
    let steady = rows(|_, _, _| ());
    assert_eq!(verdict(deadlines::k8(&jittery, &steady)), Reproduced);
    // By the load alone: the same without jitter.
    assert_eq!(verdict(deadlines::k8(&jittery, &jittery)), InPart);
    let reverse = rows(|_, region, counts| late(counts, 0, if calm(region) { 20 } else { 0 }));
    assert_eq!(verdict(deadlines::k8(&reverse, &reverse)), NotReproduced);
    assert_eq!(verdict(deadlines::k8(&jittery, &[])), NotMeasured);
}

fn queueing(strategy: &str, nanos: impl Fn(u64) -> u64) -> RowQueueing {
    let cost = |region| {
        let half = Typical { count: 100, median_ns: nanos(region) / 2, mean_ns: nanos(region) };
        QueueingCost { enqueue: half, dequeue: half }
    };
    RowQueueing { strategy: strategy.into(), cancel: false, regions: (0..12).map(cost).collect() }
}

#[test]
fn k9_accepts_a_fall_and_no_rise() {
    let flat = |_| 1_000;
    let falls = |region| 2_000 - 100 * region;
    let rises = |region| 1_000 + 200 * region;
    assert_eq!(verdict(cost::k9(&[queueing("RMS", flat), queueing("MUF", falls)])), Reproduced);
    assert_eq!(verdict(cost::k9(&[queueing("RMS", flat), queueing("MUF", rises)])), InPart);
    assert_eq!(verdict(cost::k9(&[queueing("MUF", rises)])), NotReproduced);
    assert_eq!(verdict(cost::k9(&[])), NotMeasured);
}

#[test]
fn k10_wants_muf_above_both_and_not_far_above() {
    let of = |rms: u64, muf: u64, hybrid: u64| {
        let row = |name, nanos| queueing(name, move |_| nanos);
        verdict(cost::k10(&[row("RMS", rms), row("MUF", muf), row("RMS+MLF", hybrid)]))
    };
    assert_eq!(of(12_000, 32_000, 12_000), Reproduced);
    assert_eq!(of(1_000, 1_500, 1_450), InPart);
    assert_eq!(of(1_000, 1_020, 1_000), NotReproduced);
    assert_eq!(of(1_000, 9_000, 1_000), InPart);
}

fn threshold(strategy: &str, cancel: bool, scale_permille: Option<u64>, region: usize) -> Threshold {
    let miss = FirstMiss { region, operation: "tracker".into(), at_ns: 1, misses: 1 };
    let first = scale_permille.map(|_| miss);
    Threshold { strategy: strategy.into(), cancel, scale_permille, queueing_ns: 12_000, first }
}

#[test]
fn k11_holds_at_the_papers_costs_and_in_part_beyond_them() {
    let at = |scale| verdict(cost::k11(&[threshold("MUF", false, scale, 9), threshold("RMS", false, None, 0)]));
    assert_eq!(at(Some(1_000)), Reproduced);
    assert_eq!(at(Some(1_001)), InPart);
    assert_eq!(at(Some(3_001)), NotReproduced);
    assert_eq!(at(None), NotReproduced);
    assert_eq!(verdict(cost::k11(&[])), NotMeasured);
}

#[test]
fn k12_holds_if_muf_is_ahead_by_its_overhead() {
    let muf =
        |late_by: u64| rows(move |name, _, counts| late(counts, 0, if name.starts_with("MUF") { late_by } else { 10 }));
    let slack = |late_by: u64| {
        let of = |cancel| row("MUF", cancel, |_, counts| late(counts, 0, late_by));
        Slack { muf_at_hybrid_costs: vec![of(false), of(true)], stealing: Vec::new() }
    };
    // Better by its own costs: stealing. Better at the same costs: the mechanism.
    assert_eq!(verdict(strategy::k12(&muf(10), &muf(5), &slack(10))), Reproduced);
    assert_eq!(verdict(strategy::k12(&muf(10), &muf(5), &slack(6))), InPart);
    assert_eq!(verdict(strategy::k12(&muf(10), &muf(5), &slack(5))), NotReproduced);
    assert_eq!(verdict(strategy::k12(&muf(10), &muf(12), &slack(10))), NotReproduced);
    assert_eq!(verdict(strategy::k12(&[], &[], &Slack::default())), NotMeasured);
}

#[test]
fn k13_wants_no_critical_miss_and_99_percent_of_the_best_safe_strategy() {
    let fixed = rows(|name, region, counts| match name {
        "RMS" | "RMS ©" if region > 6 => late(counts, 200, 0),
        "RMS" | "RMS ©" => {}
        _ => late(counts, 0, 40),
    });
    let switched = |change: fn(usize, &mut RegionCounts)| [row("RMS ⇄ RMS+MLF", false, change)];
    let best = switched(|region, counts| late(counts, 0, if region > 6 { 40 } else { 1 }));
    assert_eq!(verdict(strategy::k13(&fixed, &best)), Reproduced);
    let short = switched(|region, counts| late(counts, 0, if region > 5 { 40 } else { 0 }));
    let finding = strategy::k13(&fixed, &short);
    assert!(finding.reason.contains("60.0 % in region 6"), "{}", finding.reason);
    assert_eq!(verdict(finding), InPart);
    let misses = switched(|region, counts| late(counts, u64::from(region == 9), 40));
    assert_eq!(verdict(strategy::k13(&fixed, &misses)), NotReproduced);
    assert_eq!(verdict(strategy::k13(&fixed, &[])), NotMeasured);
}
