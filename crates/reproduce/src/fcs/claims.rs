//! Rates the paper's claims: for each, a pure function from figures to a verdict with its reason.

use hyoshi_report::figures::{nanos, percent};

use super::FcsFigures;
use super::experiments::{FcsRuns, FcsServer};
use super::kernel::FcsKernel;
use super::overhead::LoopOverhead;
use super::run::{FcsRun, FcsSteady};
use super::varying::{FcsPhase, VaryingRun};
use super::workload::{FcsVariant, MISS_RATIO_PPM};
use crate::claim::{Claim, ClaimFinding, Judgement};
use FcsVariant::{FcM, FcU, FcUm, FcUmFast, Open};

/// Every claim, in order.
pub const CLAIMS: [Claim; 11] = [
    Claim {
        id: "F1",
        says: "a loop costs below 1 % of a CPU; FC-U least, FC-UM most",
        paper: "section 4.2, table 3: 0.40 % (FC-U), 0.54 % (FC-M), 0.90 % (FC-UM)",
    },
    Claim {
        id: "F2",
        says: "FC-U and FC-UM hold their utilisation without misses",
        paper: "section 4.3, figure 6: 70.01 % and 74.97 %, no miss",
    },
    Claim {
        id: "F3",
        says: "FC-M holds its miss ratio at almost full utilisation",
        paper: "section 4.3, figure 6: 1.49 % of misses at a utilisation of 98.93 %",
    },
    Claim {
        id: "F4",
        says: "from low rates FC-M and FC-UM settle much after FC-U",
        paper: "section 4.3, figure 6c; FC-U has 67.7 % at the fifth sample",
    },
    Claim { id: "F5", says: "a faster server settles later, at higher rates", paper: "section 4.3, figures 7 to 9" },
    Claim {
        id: "F6",
        says: "OPEN fails if execution times are twice the estimates",
        paper: "section 4.3: the server crashed at a load of 140 %",
    },
    Claim {
        id: "F7",
        says: "FC-U and FC-UM return after steps; OPEN does not",
        paper: "section 4.4, figures 10 to 12: OPEN reaches almost 100 %, then about 40 %",
    },
    Claim { id: "F8", says: "FC-UM settles faster in overload than in underload", paper: "section 4.4, figure 12" },
    Claim { id: "F9", says: "a step up under FC-M crashes the machine", paper: "section 4.4: the kernel starved" },
    Claim {
        id: "F10",
        says: "proportional rates keep ratios and order of priorities",
        paper: "section 3.3, as long as no rate is at a limit",
    },
    Claim {
        id: "F11",
        says: "a rise of utilisation by more than 1 - Us causes misses",
        paper: "section 4.4: the safety margin",
    },
];

/// A utilisation holds its set point within this.
const NEAR_PPM: u64 = 5_000;
/// FC-M holds its miss ratio within this.
const NEAR_MISSES_PPM: u64 = 3_000;
/// An almost full processor.
const ALMOST_FULL_PPM: u64 = 950_000;
/// With so many misses a system has failed: ten times the set point.
const FAILING_PPM: u64 = 150_000;
/// "Much later": at least so many times the samples.
const MUCH: u64 = 2;
/// After a step a set point holds within this: there are fewer samples.
const RETURNED_PPM: u64 = 10_000;
/// The cost that F1 allows, in parts per million of a CPU.
const COST_PPM: f64 = 10_000.0;
/// The greatest relative change of a ratio of rates: periods are whole nanoseconds.
const SAME_RATIO: f64 = 1e-6;

/// Rates every claim.
pub fn judge(figures: &FcsFigures) -> Vec<Judgement> {
    let kernel = figures.kernel.as_ref();
    let both = |rule: fn(&FcsRuns) -> Option<ClaimFinding>| {
        (rule(&figures.simulated), kernel.and_then(|kernel| rule(&kernel.runs)))
    };
    let of = |claim: Claim| {
        let (finding, on_kernel) = match claim.id {
            "F1" => (kernel.and_then(|kernel| f1(&kernel.overhead)), None),
            "F2" => both(f2),
            "F3" => {
                let (finding, mut on_kernel) = both(f3);
                if let (Some(found), Some(kernel)) = (&mut on_kernel, kernel) {
                    found.reason.push_str(&format!(", of the cap of {}", percent(kernel.cap_ppm.into())));
                }
                (finding, on_kernel)
            }
            "F4" => both(f4),
            "F5" => both(f5),
            "F6" => both(f6),
            "F7" => both(f7),
            "F8" => both(f8),
            "F9" => (f9(&figures.simulated), kernel.and_then(f9_on_kernel)),
            "F10" => both(f10),
            "F11" => (f11(figures), None),
            other => unreachable!("{other} has a rule"),
        };
        let missing = || match claim.id {
            "F1" => "it requires the kernel, which was left out or refused",
            _ => "its runs are missing",
        };
        Judgement { claim, finding: finding.unwrap_or_else(|| ClaimFinding::not_measured(missing())), on_kernel }
    };
    CLAIMS.into_iter().map(of).collect()
}

/// Reproduced if all hold, in part if some do.
fn rated(holds: &[bool], reason: String) -> ClaimFinding {
    match (holds.iter().all(|one| *one), holds.iter().any(|one| *one)) {
        (true, _) => ClaimFinding::reproduced(reason),
        (false, true) => ClaimFinding::in_part(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
    }
}

/// Parts per million with two digits.
pub(super) fn precise(ppm: u64) -> String {
    format!("{:.2} %", ppm as f64 / 1e4)
}

/// The mean of the runs' steady states.
pub(super) fn steady(runs: &[FcsRun]) -> Option<FcsSteady> {
    let all: Vec<FcsSteady> = runs.iter().filter_map(|run| run.steady).collect();
    let count = all.len() as u64;
    let mean = |of: fn(&FcsSteady) -> u64| all.iter().map(of).sum::<u64>() / count.max(1);
    (count > 0).then(|| FcsSteady {
        utilisation_ppm: mean(|one| one.utilisation_ppm),
        interval_ppm: mean(|one| one.interval_ppm),
        miss_ratio_ppm: mean(|one| one.miss_ratio_ppm),
    })
}

/// The mean of the settling times, in samples; `None` if a run did not settle.
pub(super) fn settled(runs: &[FcsRun], of: fn(&FcsRun) -> Option<u64>) -> Option<f64> {
    let all: Option<Vec<u64>> = runs.iter().map(of).collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(all.iter().sum::<u64>() as f64 / all.len() as f64)
}

/// Samples for people.
pub(super) fn in_samples(samples: Option<f64>) -> String {
    samples.map_or("never".into(), |samples| {
        if samples.fract() == 0.0 { format!("{samples:.0}") } else { format!("{samples:.1}") }
    })
}

fn f1(overhead: &[LoopOverhead]) -> Option<ClaimFinding> {
    let of = |variant| overhead.iter().find(|one| one.variant == variant);
    let [u, m, um] = [of(FcU)?, of(FcM)?, of(FcUm)?];
    let each = [u, m, um].map(|one| format!("{:.4} % ({})", one.overhead_ppm / 1e4, one.variant.name()));
    let cheap = [u, m, um].iter().all(|one| one.overhead_ppm < COST_PPM);
    // One run has no interval.
    let above = |one: &LoopOverhead, other: &LoopOverhead| {
        let apart = (one.cost_interval_ns + other.cost_interval_ns) as i64;
        one.runs > 1 && other.runs > 1 && one.cost_ns - other.cost_ns > apart
    };
    let ordered = above(m, u) && above(um, m);
    let order = if ordered {
        "in the paper's order"
    } else {
        "no order beyond the noise: here every loop measures both utilisation and misses"
    };
    Some(rated(&[cheap, ordered], format!("with a period of 4 s {}, {}, {}; {order}", each[0], each[1], each[2])))
}

fn holds_utilisation(variant: FcsVariant, runs: &[FcsRun]) -> Option<(bool, bool, String)> {
    let (set, found) = (u64::from(variant.utilisation_ppm()?), steady(runs)?);
    let words = format!(
        "{} {} \u{b1}{:.2} ({} misses)",
        variant.name(),
        precise(found.utilisation_ppm),
        found.interval_ppm as f64 / 1e4,
        precise(found.miss_ratio_ppm)
    );
    Some((found.utilisation_ppm.abs_diff(set) <= NEAR_PPM, found.miss_ratio_ppm == 0, words))
}

fn f2(runs: &FcsRuns) -> Option<ClaimFinding> {
    let held = |variant| holds_utilisation(variant, runs.of(FcsServer::A, variant));
    let ((u, u_clean, u_words), (um, um_clean, um_words)) = (held(FcU)?, held(FcUm)?);
    Some(rated(&[u, u_clean, um, um_clean], format!("{u_words}, {um_words}")))
}

fn f3(runs: &FcsRuns) -> Option<ClaimFinding> {
    let found = steady(runs.of(FcsServer::A, FcM))?;
    let holds = found.miss_ratio_ppm.abs_diff(MISS_RATIO_PPM.into()) <= NEAR_MISSES_PPM;
    let full = found.utilisation_ppm >= ALMOST_FULL_PPM;
    let reason =
        format!("{} of misses at a utilisation of {}", precise(found.miss_ratio_ppm), precise(found.utilisation_ppm));
    Some(rated(&[holds, full], reason))
}

fn f4(runs: &FcsRuns) -> Option<ClaimFinding> {
    let shown = [FcU, FcM, FcUm, FcUmFast];
    let each = |of: fn(&FcsRun) -> Option<u64>| shown.map(|variant| settled(runs.of(FcsServer::A, variant), of));
    let [u, m, um, _] = each(|run| run.settled_after);
    let least = u? * MUCH as f64;
    let late = |samples: Option<f64>| samples.is_none_or(|samples| samples >= least);
    let named = shown.iter().zip(each(|run| run.settled_after));
    let named: Vec<_> = named.map(|(variant, after)| format!("{} ({})", in_samples(after), variant.name())).collect();
    let model = each(|run| run.model_settled_after).map(in_samples).join(", ");
    let mut words = format!("samples: {}; the saturated linear model: {model}", named.join(", "));
    if let Some(fifth) = fifth_sample(runs) {
        words.push_str(&format!("; FC-U has {} at the fifth sample", percent(fifth)));
    }
    Some(rated(&[late(m), late(um)], words))
}

/// The utilisation of FC-U's fifth sample on server A.
pub(super) fn fifth_sample(runs: &FcsRuns) -> Option<u64> {
    runs.of(FcsServer::A, FcU).first()?.samples.get(4)?.utilisation_ppm
}

fn f5(runs: &FcsRuns) -> Option<ClaimFinding> {
    let (mut holds, mut words) = (Vec::new(), Vec::new());
    for variant in [FcU, FcUm, FcM] {
        let [a, b] = FcsServer::ALL.map(|server| runs.of(server, variant));
        let (found, total) = (steady(b)?, |runs: &[FcsRun]| Some(runs.first()?.samples.last()?.total_ppm));
        let times = [a, b].map(|runs| settled(runs, |run| run.settled_after));
        holds.push(match variant.utilisation_ppm() {
            Some(set) => found.utilisation_ppm.abs_diff(set.into()) <= NEAR_PPM,
            None => found.miss_ratio_ppm.abs_diff(MISS_RATIO_PPM.into()) <= NEAR_MISSES_PPM,
        });
        let (rise, later) = (total(b)? as f64 / total(a)?.max(1) as f64, times[1] > times[0]);
        holds.extend([rise > 1.0, later]);
        words.push(format!(
            "{} {} with {} misses, rates x {rise:.2}, samples until settled: {} instead of {}",
            variant.name(),
            precise(found.utilisation_ppm),
            precise(found.miss_ratio_ppm),
            in_samples(times[1]),
            in_samples(times[0])
        ));
    }
    Some(rated(&holds, words.join("; ")))
}

fn f6(runs: &FcsRuns) -> Option<ClaimFinding> {
    let open = runs.of(FcsServer::A, Open);
    let found = steady(open)?;
    let fails = found.miss_ratio_ppm >= FAILING_PPM;
    let rest = match open[0].longest_wait_ns {
        Some(wait) => format!("no crash: an ordinary thread on the same CPU waited at most {}", nanos(wait)),
        None => "without caps nothing below the lanes runs".into(),
    };
    let reason = format!(
        "at a utilisation of {}, {} of the jobs miss their deadline or are dropped; {rest}",
        precise(found.utilisation_ppm),
        percent(found.miss_ratio_ppm)
    );
    Some(if fails { ClaimFinding::reproduced(reason) } else { ClaimFinding::not_reproduced(reason) })
}

fn f7(runs: &FcsRuns) -> Option<ClaimFinding> {
    // Short runs have no step down.
    let levels = |variant: FcsVariant| {
        let phases = runs.varying(variant)?.phases.iter().map(|phase| Some(phase.steady?.utilisation_ppm));
        <[u64; 3]>::try_from(phases.collect::<Option<Vec<_>>>()?).ok()
    };
    let text = |levels: [u64; 3]| levels.map(percent).join(", ");
    let (mut holds, mut words) = (Vec::new(), Vec::new());
    for variant in [FcU, FcUm] {
        let (levels, set) = (levels(variant)?, u64::from(variant.utilisation_ppm()?));
        holds.push(levels[1..].iter().all(|level| level.abs_diff(set) <= RETURNED_PPM));
        words.push(format!("{}: {}", variant.name(), text(levels)));
    }
    let open = levels(Open)?;
    holds.push(open[1] >= ALMOST_FULL_PPM && open[2] <= 500_000);
    words.push(format!("OPEN: {}", text(open)));
    Some(rated(&holds, format!("at the ends of the three phases {}", words.join("; "))))
}

/// The phases after the step up and after the step down.
fn up_and_down(varying: &VaryingRun) -> Option<(&FcsPhase, &FcsPhase)> {
    Some((varying.phases.get(1)?, varying.phases.get(2)?))
}

fn f8(runs: &FcsRuns) -> Option<ClaimFinding> {
    let samples = |variant| {
        let (up, down) = up_and_down(runs.varying(variant)?)?;
        Some((up.settled_after, down.settled_after))
    };
    let (up, down) = samples(FcUm)?;
    let text = |samples: Option<u64>| samples.map_or("never".into(), |samples| samples.to_string());
    let fast =
        samples(FcUmFast).map_or(String::new(), |(up, down)| format!("; FC-UM-fast {} and {}", text(up), text(down)));
    let reason = format!("samples after the step up {}, after the step down {}{fast}", text(up), text(down));
    let faster = up.is_some_and(|up| down.is_none_or(|down| up < down));
    Some(if faster { ClaimFinding::reproduced(reason) } else { ClaimFinding::not_reproduced(reason) })
}

/// The samples of a phase until misses are within the set point again.
fn recovery(varying: &VaryingRun) -> Option<u64> {
    let phase = varying.phases.get(1)?;
    let mut samples = varying.run.samples_between(phase.from_ns, phase.until_ns);
    // The first samples after the step may still have no late job.
    let mut overloaded = false;
    let place = samples.position(|sample| {
        overloaded |= sample.miss_ratio_ppm() > MISS_RATIO_PPM.into();
        overloaded && sample.miss_ratio_ppm() <= MISS_RATIO_PPM.into()
    });
    place.map(|place| place as u64 + 1)
}

fn recovered(varying: &VaryingRun) -> String {
    recovery(varying).map_or("misses stay above the set point".into(), |samples| {
        format!("misses are at the set point again after {samples} samples")
    })
}

fn f9(runs: &FcsRuns) -> Option<ClaimFinding> {
    let free = runs.varying(FcM)?;
    let capped = runs.varying.iter().find(|one| one.capped)?;
    let (phase, capped_phase) = (free.phases.get(1)?, capped.phases.get(1)?);
    let reason = format!(
        "without caps the processor is full for {} samples, with up to {} misses: the cause of the crash; {}. With the \
         default caps, lanes beyond their share run below the rest of the machine, which does not starve; up to {} \
         misses, {}",
        phase.full,
        percent(phase.most_missed_ppm),
        recovered(free),
        percent(capped_phase.most_missed_ppm),
        recovered(capped)
    );
    Some(if phase.full > 0 { ClaimFinding::in_part(reason) } else { ClaimFinding::not_reproduced(reason) })
}

fn f9_on_kernel(kernel: &FcsKernel) -> Option<ClaimFinding> {
    let varying = kernel.runs.varying(FcM)?;
    let wait = varying.run.longest_wait_ns?;
    let phase = varying.phases.get(1)?;
    let reason = format!(
        "no crash: after the step up to {} of the cap of {} and up to {} misses; {}; an ordinary thread on the same CPU \
         waited at most {}",
        percent(phase.most_ppm),
        percent(kernel.cap_ppm.into()),
        percent(phase.most_missed_ppm),
        recovered(varying),
        nanos(wait)
    );
    Some(ClaimFinding::not_reproduced(reason))
}

fn f10(runs: &FcsRuns) -> Option<ClaimFinding> {
    let (mut worst, mut order, mut limited, mut count) = (0.0_f64, true, 0, 0);
    for row in runs.portability.iter().filter(|row| row.variant != Open) {
        for run in &row.runs {
            let at_limit = run.rates.iter().any(|rate| rate.period_ns == rate.shortest_ns);
            limited += u64::from(at_limit);
            count += 1;
            let mut by_start: Vec<_> = run.rates.iter().collect();
            by_start.sort_by_key(|rate| rate.start_ns);
            order &= by_start.windows(2).all(|pair| pair[0].period_ns <= pair[1].period_ns);
            let factors = run.rates.iter().map(|rate| rate.start_ns as f64 / rate.period_ns.max(1) as f64);
            let (least, most) =
                factors.fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)));
            if !at_limit {
                worst = worst.max(most / least - 1.0);
            }
        }
    }
    if count == 0 {
        return None;
    }
    let kept = worst <= SAME_RATIO && limited < count;
    let words = if order { "the order of rates is the same at the end" } else { "the order of rates has changed" };
    let reason = format!(
        "in {} runs without a rate at its limit, of {count}, ratios differ by at most {worst:.0e}; {words}",
        count - limited
    );
    Some(rated(&[kept, order], reason))
}

fn f11(figures: &FcsFigures) -> Option<ClaimFinding> {
    let beyond = |one: &&super::MarginStep| one.demand_ppm > 1_000_000;
    if !figures.margin.iter().any(|one| beyond(&one)) {
        return None;
    }
    let holds = figures.margin.iter().filter(beyond).all(|one| one.missed > 0);
    let each: Vec<String> = figures
        .margin
        .iter()
        .map(|one| format!("{} demanded: {}", percent(one.demand_ppm), hyoshi_report::figures::count(one.missed)))
        .collect();
    let reason = format!("FC-U, deadlines missed after a step of all execution times, {}", each.join(", "));
    Some(if holds { ClaimFinding::reproduced(reason) } else { ClaimFinding::not_reproduced(reason) })
}
