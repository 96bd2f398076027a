//! Rates the paper's claims: for each, a pure function from figures to a verdict with its reason.

use hyoshi_report::figures::{count, nanos, percent};

use super::BrokerFigures;
use super::arbitration::{CAP, EXPECTED, ImportanceStage, PERIOD};
use super::kernel::{Arbitrated, Cost, KernelExperiments, Openness};
use super::prediction::{FORGETFUL, Predicted};
use super::tracking::{LEARNING, Tracked};
use crate::claim::{Claim, ClaimFinding, ClaimVerdict, Judgement};

/// Every claim, in order.
pub const CLAIMS: [Claim; 7] = [
    Claim {
        id: "B1",
        says: "a report costs most with a two-way delegate, less with a one-way delegate, least within the broker",
        paper: "table I: 1742, 1716 and 400 us of CPU; 1587, 660 and 400 us of latency at the monitor",
    },
    Claim {
        id: "B2",
        says: "reservations track a changing demand, and MaxDecay anticipates",
        paper: "section V-B and figure 4: phases of 100, 150 and 200 ms in 300 ms, ten periods each",
    },
    Claim {
        id: "B3",
        says: "Strict serves important tasks first, the sum stays at the cap, and changes apply at once",
        paper: "section V-B and figure 5: 95, 125 and 40 ms in 250 ms under a cap of 75 %",
    },
    Claim {
        id: "B4",
        says: "a proactive advocate beats MaxDecay for a program with regular spikes",
        paper: "section V-C and figure 6: MaxDecay \"would consistently over-allocate or be slow to react to spikes\"",
    },
    Claim {
        id: "B5",
        says: "under load the UAV loses frames and alerts; with the broker it loses none",
        paper: "section V-C and table II: 432, 320 and 432 frames; 76, 50 and 76 alerts",
    },
    Claim {
        id: "B6",
        says: "the broker manages unmodified programs",
        paper: "sections III and IV: delegates and proc_advocate; \"(unmodified) Hourglass\" in section V-B",
    },
    Claim {
        id: "B7",
        says: "policies and advocates can be added without changing the broker",
        paper: "sections III and IV-D: an open architecture; external objects connected by cbhey",
    },
];

/// Figure 4 over-reserves by less than this share of the demand.
const OVER_PPM: u64 = 150_000;
/// Configurations that differ by at most so many percent cost the same: the paper's first two differ by 1.5.
const SAME_PERCENT: u64 = 10;
/// The largest distance of the sum from the cap.
const NEAR_PPM: u64 = 1_000;

/// Rates every claim.
pub fn judge(figures: &BrokerFigures) -> Vec<Judgement> {
    let kernel = figures.kernel.as_ref();
    let of = |claim: Claim| {
        let (finding, on_kernel) = match claim.id {
            "B1" => (b1(kernel.and_then(|kernel| kernel.overhead.as_deref())), None),
            "B2" => {
                let tracked = kernel.and_then(|kernel| kernel.tracked.as_ref());
                (b2(&figures.tracked), tracked.map(|on_kernel| b2(&on_kernel.tracked)))
            }
            "B3" => (b3(&figures.arbitrated), kernel.and_then(b3_on_kernel)),
            "B4" => (b4(&figures.predicted), None),
            "B5" => (
                ClaimFinding::not_measured(
                    "it requires image streams between machines, which this command does not have",
                ),
                None,
            ),
            "B6" => (b6(kernel), None),
            "B7" => (b7(kernel.and_then(|kernel| kernel.openness.as_ref())), None),
            other => unreachable!("{other} has a rule"),
        };
        Judgement { claim, finding, on_kernel }
    };
    CLAIMS.into_iter().map(of).collect()
}

/// The finding if the required experiment was left out or refused.
fn nothing() -> ClaimFinding {
    ClaimFinding::not_measured("it requires real programs on the kernel, which were left out or refused")
}

fn b1(costs: Option<&[Cost]>) -> ClaimFinding {
    let Some([two_way, one_way, in_broker]) = costs else { return nothing() };
    let latency = |cost: &Cost| cost.latency_ns.unwrap_or_default();
    let reason = format!(
        "CPU time of monitor and broker per report: {}, {} and {}; the monitor waits {} and {}",
        nanos(two_way.cpu_ns),
        nanos(one_way.cpu_ns),
        nanos(in_broker.cpu_ns),
        nanos(latency(two_way)),
        nanos(latency(one_way)),
    );
    let no_dearer = one_way.cpu_ns * 100 <= two_way.cpu_ns * (100 + SAME_PERCENT);
    let cheapest = in_broker.cpu_ns < one_way.cpu_ns.min(two_way.cpu_ns);
    match (no_dearer && latency(one_way) < latency(two_way), cheapest) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

fn b2(tracked: &Tracked) -> ClaimFinding {
    let ((early, late), over, (anticipated, falls)) = (tracked.missed(), tracked.over_ppm(), tracked.anticipated());
    let reason = format!(
        "{late} of {} deadlines missed after the first {LEARNING} periods of each phase, {early} within them; {} \
         reserved beyond the demand; in {anticipated} of {falls} phases of lower demand the reservation was first \
         kept and then reduced",
        count(tracked.cycles.len() as u64),
        percent(over),
    );
    match (late == 0, over < OVER_PPM && anticipated == falls) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

fn b3(stages: &[ImportanceStage]) -> ClaimFinding {
    let as_expected = stages.iter().enumerate().filter(|(number, stage)| stage.is_as_expected(*number)).count();
    let at_cap = stages.iter().filter(|stage| is_at_cap(stage)).count();
    let held: Vec<String> = stages.iter().map(in_words).collect();
    let reason = format!("{}; {at_cap} of {} sums at the cap", held.join(", then "), stages.len());
    match (as_expected == EXPECTED.len(), at_cap == EXPECTED.len()) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

fn is_at_cap(stage: &ImportanceStage) -> bool {
    stage.sum_ppm().abs_diff(CAP.as_millionths()) <= NEAR_PPM
}

/// The reservations of the three tasks.
fn in_words(stage: &ImportanceStage) -> String {
    stage.held_ns.map(nanos).join(" + ")
}

/// Uses soft caps, or hard ones if there are no soft ones.
fn b3_on_kernel(kernel: &KernelExperiments) -> Option<ClaimFinding> {
    let (first, second) = (kernel.soft.as_ref(), kernel.hard.as_ref());
    let played = first.or(second)?;
    let held = b3(&played.stages);
    let slowest = played.stages[1..].iter().map(|stage| stage.settled_ns).max().unwrap_or_default();
    let (missed, all) = missed_fully(played);
    let others = [first, second].into_iter().flatten().map(|one| format!("{}: {}", one.scheduler, others(one)));
    let reason = format!(
        "{}; at most {} from a command to its reservations; fully served tasks missed {} of {} deadlines; deadlines \
         met by the other tasks: {}",
        held.reason,
        nanos(slowest),
        count(missed),
        count(all),
        others.collect::<Vec<_>>().join("; "),
    );
    let settled = slowest <= PERIOD.as_nanos();
    Some(match (held.verdict, settled && missed == 0 && all > 0) {
        (ClaimVerdict::Reproduced, true) => ClaimFinding::reproduced(reason),
        (ClaimVerdict::NotReproduced, _) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    })
}

/// Of fully served tasks: missed deadlines, and all.
fn missed_fully(played: &Arbitrated) -> (u64, u64) {
    let mut sum = (0, 0);
    for stage in &played.stages {
        for served in stage.fully().filter_map(|task| stage.served.get(task)) {
            sum = (sum.0 + served.periods - served.met, sum.1 + served.periods);
        }
    }
    sum
}

/// The deadlines met by the other tasks.
fn others(played: &Arbitrated) -> String {
    let mut words = Vec::new();
    for (number, stage) in played.stages.iter().enumerate() {
        let fully: Vec<usize> = stage.fully().collect();
        for (task, served) in stage.served.iter().enumerate().filter(|(task, _)| !fully.contains(task)) {
            words.push(format!("task {} in stage {}: {} of {}", task + 1, number + 1, served.met, served.periods));
        }
    }
    words.join(", ")
}

fn b4(predicted: &Predicted) -> ClaimFinding {
    let Predicted { programs, proactive, max_decay, better_in_both, worse_in_both, .. } = predicted;
    let unbeaten = predicted.unbeaten();
    let usual = max_decay.iter().find(|one| one.advocate.ends_with(" 5"));
    let usual = usual.map_or(String::new(), |one| {
        format!(" ({}: {} and {})", one.advocate, percent(one.over_ppm()), percent(one.missed_ppm()))
    });
    let reason = format!(
        "over {programs} programs {} reserved beyond the demand and {} of {} spikes missed{usual}; with {FORGETFUL} \
         reports or fewer max-decay holds hardly any spike, so only its misses are compared; better in both for \
         {better_in_both} programs, worse in both for {worse_in_both}",
        percent(proactive.over_ppm()),
        percent(proactive.missed_ppm()),
        count(proactive.spikes),
    );
    match (unbeaten.is_empty(), *worse_in_both) {
        (true, 0) => ClaimFinding::reproduced(reason),
        (true, _) => ClaimFinding::in_part(reason),
        (false, _) => ClaimFinding::not_reproduced(format!("{reason}; not better than {}", unbeaten.join(", "))),
    }
}

fn b6(kernel: Option<&KernelExperiments>) -> ClaimFinding {
    let Some(KernelExperiments { openness: Some(open), tracked, .. }) = kernel else { return nothing() };
    let started = tracked.as_ref().map(|tracked| tracked.own_process);
    let exec = match started {
        Some(true) => "; one that `hyoshi exec` started was the task's own process",
        Some(false) => "; one that `hyoshi exec` started was not the task's process",
        None => "",
    };
    let reason = format!(
        "a running program that does not use the broker was attached: {} reports, {} consumed in the last, {} \
         requested, {}{exec}",
        count(open.reports),
        nanos(open.consumed_ns),
        nanos(open.asked_ns),
        if open.lived { "and it continued" } else { "and it ended" },
    );
    let attached = open.reports > 0 && open.asked_ns >= open.consumed_ns && open.lived;
    match (attached, started != Some(false)) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

fn b7(open: Option<&Openness>) -> ClaimFinding {
    let Some(open) = open else { return nothing() };
    let reason = format!(
        "an advocate in another process was added by its reference to a task of a running broker and called {} \
         times: {} became {}; meanwhile the policy was changed: {}",
        count(open.advice),
        nanos(open.asked_ns),
        nanos(open.asked_twice_ns),
        open.policies.join(", "),
    );
    let distinct = open.policies.windows(2).all(|pair| pair[0] != pair[1]) && !open.policies.is_empty();
    match (open.advice > 0 && open.asked_twice_ns > open.asked_ns, distinct) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::Span;

    use super::*;
    use crate::broker::arbitration::ServedPeriods;
    use crate::broker::tracking::TrackedCycle;
    use crate::broker::{arbitration, tracking};

    fn cost(cpu: u64, latency: Option<u64>) -> Cost {
        Cost {
            configuration: "two-way",
            reports: 1,
            cpu_ns: cpu,
            latency_ns: latency,
            median_latency_ns: latency,
            paper_cpu_ns: 1,
            paper_latency_ns: 1,
        }
    }

    #[test]
    fn b1_depends_on_the_order_of_the_costs() {
        let of = |costs: [u64; 3], latencies: [u64; 2]| {
            let costs = [cost(costs[0], Some(latencies[0])), cost(costs[1], Some(latencies[1])), cost(costs[2], None)];
            b1(Some(&costs)).verdict
        };
        assert_eq!(of([1_742, 1_716, 400], [1_587, 660]), ClaimVerdict::Reproduced);
        assert_eq!(of([100, 105, 10], [20, 5]), ClaimVerdict::Reproduced);
        assert_eq!(of([100, 150, 10], [20, 5]), ClaimVerdict::InPart);
        assert_eq!(of([100, 90, 95], [20, 5]), ClaimVerdict::InPart);
        assert_eq!(of([100, 90, 95], [5, 20]), ClaimVerdict::NotReproduced);
        assert_eq!(b1(None).verdict, ClaimVerdict::NotMeasured);
    }

    #[test]
    fn b2_counts_misses_after_the_first_two_periods_of_each_phase() {
        let mut tracked = tracking::play(10, 60);
        assert_eq!(b2(&tracked).verdict, ClaimVerdict::Reproduced);
        tracked.cycles[11].met = false;
        assert_eq!(b2(&tracked).verdict, ClaimVerdict::Reproduced);
        tracked.cycles[12].met = false;
        assert_eq!(b2(&tracked).verdict, ClaimVerdict::InPart);
        tracked.cycles = vec![TrackedCycle { demand_ns: 100, held_ns: 200, met: false }; 60];
        assert_eq!(b2(&tracked).verdict, ClaimVerdict::NotReproduced);
    }

    #[test]
    fn b3_wants_the_right_reservations_within_a_period_and_no_miss_of_the_fully_granted() {
        let mut stages = arbitration::play();
        assert_eq!(b3(&stages).verdict, ClaimVerdict::Reproduced);
        for stage in &mut stages {
            stage.served = vec![ServedPeriods { periods: 10, met: 10, mean_obtained_ns: 1 }; 3];
            stage.settled_ns = Span::from_millis(3).as_nanos();
        }
        let played = |stages: &[ImportanceStage]| {
            let soft = Arbitrated { scheduler: "window", cpu: Some(0), spinners: 1, stages: stages.to_vec() };
            b3_on_kernel(&KernelExperiments { soft: Some(soft), ..KernelExperiments::default() }).unwrap().verdict
        };
        assert_eq!(played(&stages), ClaimVerdict::Reproduced);
        // The second task never holds all that it requests: its misses are shown, but not rated.
        stages[0].served[1].met = 0;
        assert_eq!(played(&stages), ClaimVerdict::Reproduced);
        stages[1].served[2].met = 9;
        assert_eq!(played(&stages), ClaimVerdict::InPart);
        stages[1].served[2].met = 10;
        stages[2].settled_ns = Span::from_millis(300).as_nanos();
        assert_eq!(played(&stages), ClaimVerdict::InPart);
        stages[1].held_ns = [0; 3];
        assert_eq!(b3(&stages).verdict, ClaimVerdict::NotReproduced);
        assert_eq!(b3_on_kernel(&KernelExperiments::default()), None);
    }

    #[test]
    fn b6_and_b7_tell_what_was_done() {
        let open = Openness {
            reports: 10,
            consumed_ns: 5_000_000,
            asked_ns: 5_250_000,
            asked_twice_ns: 10_500_000,
            advice: 4,
            policies: vec!["strict".into(), "weighted".into()],
            lived: true,
        };
        let kernel = |openness| KernelExperiments { openness: Some(openness), ..KernelExperiments::default() };
        assert_eq!(b6(Some(&kernel(open.clone()))).verdict, ClaimVerdict::Reproduced);
        assert_eq!(b6(Some(&kernel(Openness { lived: false, ..open.clone() }))).verdict, ClaimVerdict::InPart);
        assert_eq!(b6(None).verdict, ClaimVerdict::NotMeasured);
        assert_eq!(b7(Some(&open)).verdict, ClaimVerdict::Reproduced);
        assert_eq!(b7(Some(&Openness { advice: 0, ..open })).verdict, ClaimVerdict::InPart);
        assert_eq!(b7(None).verdict, ClaimVerdict::NotMeasured);
    }
}
