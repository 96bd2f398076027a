//! Rates the paper's claims: for each, a pure function from figures to a verdict with its reason.

mod cost;
mod deadlines;
mod strategy;
#[cfg(test)]
mod tests;

use crate::claim::{Claim, ClaimFinding, Judgement};

use super::KokyuFigures;
use super::trial::TrialRow;

/// Every claim, in order.
pub const CLAIMS: [Claim; 13] = [
    Claim {
        id: "K1",
        says: "RMS meets all critical deadlines up to region 6 and misses them beyond",
        paper: "section IV-A and figure 9: RMS met critical deadlines only in regions 0 to 6",
    },
    Claim {
        id: "K2",
        says: "MUF and RMS+MLF meet all critical deadlines in all regions",
        paper: "section IV-A: in all regions, but for one miss each in region 9 (section IV-B)",
    },
    Claim {
        id: "K3",
        says: "RMS makes more non-critical deadlines than the hybrids where load is feasible",
        paper: "section IV-A: RMS made more non-critical deadlines in regions 0 to 6",
    },
    Claim {
        id: "K4",
        says: "cancellation lowers the number of missed deadlines under MUF and RMS+MLF",
        paper: "section IV-A, figures 7 and 8",
    },
    Claim {
        id: "K5",
        says: "cancellation lowers the number of made deadlines, too",
        paper: "section IV-A, figures 7 and 8: \"though it also resulted in a lower number of operation deadlines made\"",
    },
    Claim {
        id: "K6",
        says: "RMS with cancellation cancels nothing and misses more critical deadlines",
        paper: "section IV-A: not one request cancelled, first critical misses in region 6 instead of 7, and more of them",
    },
    Claim {
        id: "K7",
        says: "cancellation bounds the requests enqueued; without it they grow linearly",
        paper: "figure 6: linearly from around 3,100 in regions 0 and 1 to above 4,500 in region 11 without cancellation",
    },
    Claim {
        id: "K8",
        says: "fewer non-critical deadlines are made under more jitter at similar load",
        paper: "section IV-A: more deadlines met in regions 0, 4 and 8 than in 1-3, 5-7 and 9-11",
    },
    Claim {
        id: "K9",
        says: "the cost of queueing stays flat as load and jitter grow",
        paper: "figures 10 and 11: mean latencies \"did not rise significantly\"",
    },
    Claim {
        id: "K10",
        says: "MUF's queueing cost is above that of RMS and RMS+MLF, within a small factor",
        paper: "section IV-B: 32 us against 12 us per request; section V-B: a factor of about 1.5",
    },
    Claim {
        id: "K11",
        says: "infrastructure overhead alone can cause a critical miss",
        paper: "section IV-B: one miss in region 9 under MUF and under RMS+MLF ©; RMS © misses first in region 6",
    },
    Claim {
        id: "K12",
        says: "slack stealing explains MUF's performance under moderate jitter",
        paper: "section VII, future work: slack stealing through overhead, or a capability of the mechanism",
    },
    Claim {
        id: "K13",
        says: "switching between RMS and a hybrid gets the best of both",
        paper: "section V-C: recommended, and left to future work",
    },
];

/// Rates every claim.
pub fn judge(figures: &KokyuFigures) -> Vec<Judgement> {
    let kernel = figures.kernel.as_ref().map(|kernel| kernel.rows.as_slice());
    let queueing = figures.kernel.as_ref().map(|kernel| kernel.queueing.as_slice());
    let of = |claim: Claim| {
        let rows = &figures.simulated;
        let (finding, on_kernel) = match claim.id {
            "K1" => (deadlines::k1(rows), kernel.map(deadlines::k1)),
            "K2" => (deadlines::k2(rows), kernel.map(deadlines::k2)),
            "K3" => (deadlines::k3(rows), kernel.map(deadlines::k3)),
            "K4" => (deadlines::k4(rows), kernel.map(deadlines::k4)),
            "K5" => (deadlines::k5(rows, &figures.advertised), kernel.map(|rows| deadlines::k5(rows, &[]))),
            "K6" => (
                deadlines::k6(rows, &figures.at_paper_costs, &figures.thresholds),
                kernel.map(|rows| deadlines::k6(rows, rows, &[])),
            ),
            "K7" => {
                let on_kernel = figures.kernel.as_ref().map(|kernel| deadlines::k7(&kernel.rows, &kernel.offered));
                (deadlines::k7(rows, &figures.offered), on_kernel)
            }
            "K8" => (deadlines::k8(rows, &figures.steady), None),
            "K9" => (cost::k9(&figures.queueing), queueing.map(cost::k9)),
            "K10" => (cost::k10(&figures.queueing), queueing.map(cost::k10)),
            "K11" => (cost::k11(&figures.thresholds), None),
            "K12" => (strategy::k12(rows, &figures.at_paper_costs, &figures.slack), None),
            "K13" => (
                strategy::k13(rows, &figures.switched),
                kernel.map(|rows| strategy::k13(&fixed(rows), &switched(rows))),
            ),
            other => unreachable!("{other} has a rule"),
        };
        Judgement { claim, finding, on_kernel }
    };
    CLAIMS.into_iter().map(of).collect()
}

/// The trials that do not switch.
fn fixed(rows: &[TrialRow]) -> Vec<TrialRow> {
    rows.iter().filter(|row| !row.strategy.starts_with("RMS ⇄")).cloned().collect()
}

/// The trials that switch.
fn switched(rows: &[TrialRow]) -> Vec<TrialRow> {
    rows.iter().filter(|row| row.strategy.starts_with("RMS ⇄")).cloned().collect()
}

/// The trial of a strategy, with or without cancellation.
fn find<'a>(rows: &'a [TrialRow], strategy: &str, cancel: bool) -> Option<&'a TrialRow> {
    rows.iter().find(|row| row.strategy == strategy && row.cancel == cancel)
}

/// The finding if a required trial was not run.
fn nothing() -> ClaimFinding {
    ClaimFinding::not_measured("the required trials were not run")
}
