//! FCS/nORB: C. Lu, X. Wang and C. Gill, "Feedback Control Real-Time Scheduling in ORB Middleware", IEEE RTAS 2003.
//!
//! Experiments II and III at full length in virtual time; on the kernel all three experiments. `docs/reproducing.md`
//! lists our assumptions where the paper is not specific.

pub mod claims;
pub mod experiments;
mod html;
pub mod kernel;
pub mod overhead;
mod paper;
pub mod run;
mod terminal;
pub mod varying;
pub mod workload;

use serde::Serialize;

use crate::claim::Judgement;
use crate::control::{ExperimentControl, Stopped};
use experiments::{FcsExperiment, FcsRuns, FcsServer};
use kernel::FcsKernel;
use run::simulated;
use varying::MarginStep;
use workload::{FcsVariant, FcsWorkload};

/// All measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FcsFigures {
    /// The seed of the lowest rates, phases and execution times.
    pub seed: u64,
    /// Experiments II and III in virtual time.
    #[serde(flatten)]
    pub simulated: FcsRuns,
    /// FC-U with steps of all execution times (section 4.4, the safety margin).
    pub margin: Vec<MarginStep>,
    /// The measurements on the kernel, unless they were left out.
    pub kernel: Option<FcsKernel>,
}

/// The experiments and their ratings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FcsReproduction {
    /// The claims of the paper.
    pub claims: Vec<Judgement>,
    /// Their basis.
    #[serde(flatten)]
    pub figures: FcsFigures,
}

/// Everything in virtual time.
///
/// # Errors
///
/// If `control` stops it.
pub fn run(seed: u64, control: ExperimentControl<'_>) -> Result<FcsFigures, Stopped> {
    let mut runs = FcsRuns::default();
    let mut add = |experiment: FcsExperiment, variant: FcsVariant, repeat, capped| {
        (control.step)(&format!("{experiment}, {}", variant.name()));
        let workload = FcsWorkload { capped, ..experiment.workload(variant, seed, repeat) };
        simulated(&workload, control).map(|run| runs.add(experiment, &workload, run))
    };
    for server in FcsServer::ALL {
        for variant in FcsVariant::ALL {
            for repeat in 0..server.repeats() {
                add(FcsExperiment::Portability(server), variant, repeat, false)?;
            }
        }
    }
    for variant in FcsVariant::ALL {
        add(FcsExperiment::Varying, variant, 0, false)?;
    }
    add(FcsExperiment::Varying, FcsVariant::FcM, 0, true)?;
    (control.step)("FC-U, steps of all execution times");
    let margin = varying::margins(seed, control)?;
    Ok(FcsFigures { seed, simulated: runs, margin, kernel: None })
}

impl FcsReproduction {
    /// Rates the figures.
    pub fn judge(figures: FcsFigures) -> FcsReproduction {
        FcsReproduction { claims: claims::judge(&figures), figures }
    }

    /// Notes that matter for the figures of the kernel.
    pub fn notes(&self) -> &[String] {
        self.figures.kernel.as_ref().map_or(&[], |kernel| &kernel.notes)
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_report::TerminalStyle;

    use super::*;
    use crate::ClaimVerdict;
    use crate::claim::terminal::verdicts;

    const CONTROL: ExperimentControl<'_> = ExperimentControl { step: &|_| (), stop: &|| false };

    fn near(found: u64, expected: u64, distance: u64) {
        assert!(found.abs_diff(expected) <= distance, "{found} instead of {expected}");
    }

    #[test]
    fn in_virtual_time_loops_hold_their_set_points_and_settle_as_the_models() {
        let reproduced = FcsReproduction::judge(run(1, CONTROL).unwrap());
        let figures = &reproduced.figures;
        let style = TerminalStyle { width: Some(80), ..TerminalStyle::PLAIN };
        let shown = format!("{}{}", verdicts(&reproduced.claims, style), reproduced.tables(style));
        for server in FcsServer::ALL {
            for variant in FcsVariant::ALL.into_iter().skip(1) {
                let steady = claims::steady(figures.simulated.of(server, variant)).unwrap();
                match variant.utilisation_ppm() {
                    Some(set) => near(steady.utilisation_ppm, set.into(), 2_000),
                    None => near(steady.miss_ratio_ppm, 15_000, 3_000),
                }
            }
            let settled =
                |variant| claims::settled(figures.simulated.of(server, variant), |run| run.settled_after).unwrap();
            let model = |variant| {
                claims::settled(figures.simulated.of(server, variant), |run| run.model_settled_after).unwrap()
            };
            assert!((settled(FcsVariant::FcU) - model(FcsVariant::FcU)).abs() <= 1.0, "{shown}");
            for variant in [FcsVariant::FcM, FcsVariant::FcUm] {
                assert!((settled(variant) / model(variant) - 1.0).abs() <= 0.1, "{shown}");
            }
            assert!(settled(FcsVariant::FcUmFast) <= 1.5 * settled(FcsVariant::FcU), "{shown}");
        }
        // With the default caps, FC-M fills the cap and holds its miss ratio.
        let capped = figures.simulated.varying.iter().find(|one| one.capped).unwrap();
        let steady = capped.phases[1].steady.unwrap();
        near(steady.miss_ratio_ppm, 15_000, 5_000);
        assert!(steady.utilisation_ppm > 900_000, "{shown}");
        let holding = reproduced.claims.iter().filter(|one| one.finding.verdict == ClaimVerdict::Reproduced);
        let ids: Vec<&str> = holding.map(|one| one.claim.id).collect();
        assert_eq!(ids, ["F2", "F3", "F4", "F5", "F6", "F7", "F8", "F10", "F11"], "{shown}");
    }

    #[test]
    fn the_fast_form_has_no_more_misses_than_fc_um_in_experiment_3() {
        let ratio = |variant| {
            let samples =
                (1..=6).flat_map(|seed| simulated(&varying::workload(variant, seed), CONTROL).unwrap().samples);
            let sums = samples.fold((0, 0), |sum, one| (sum.0 + one.missed, sum.1 + one.ended));
            sums.0 as f64 / sums.1 as f64
        };
        let [um, fast] = [FcsVariant::FcUm, FcsVariant::FcUmFast].map(ratio);
        assert!(fast <= um, "{fast:.2e} instead of {um:.2e}");
    }

    #[test]
    fn tables_fit_80_columns_and_the_page_has_the_papers_figures() {
        let reproduced = FcsReproduction::judge(run(2, CONTROL).unwrap());
        let style = TerminalStyle { width: Some(80), ..TerminalStyle::PLAIN };
        let tables = format!("{}{}", verdicts(&reproduced.claims, style), reproduced.tables(style));
        assert!(tables.lines().all(|line| line.chars().count() <= 80), "{tables}");
        assert!(!tables.contains("hidden"), "{tables}");
        let page = reproduced.html("hyoshi reproduce fcs");
        assert!((5..=12).all(|figure| page.contains(&format!("figure {figure}"))));
    }

    #[test]
    fn a_stopped_experiment_has_no_result() {
        let control = ExperimentControl { step: &|_| (), stop: &|| true };
        assert_eq!(run(1, control), Err(Stopped));
    }
}
