//! What the paper's text reports for its figures. The charts have no numbers, so the rest of a curve is not known.

use super::experiments::FcsServer;
use super::workload::FcsVariant;

/// The steady utilisation and miss ratio in experiment II (figures 6 to 9).
pub(super) const fn steady(server: FcsServer, variant: FcsVariant) -> Option<(&'static str, &'static str)> {
    match (server, variant) {
        (FcsServer::A, FcsVariant::Open) => Some(("crashed", "crashed")),
        (FcsServer::A, FcsVariant::FcU) => Some(("70.01 %", "0 %")),
        (FcsServer::A, FcsVariant::FcM) => Some(("98.93 %", "1.49 %")),
        (FcsServer::A, FcsVariant::FcUm) => Some(("74.97 %", "0 %")),
        (FcsServer::B, FcsVariant::FcU) => Some(("70 %", "")),
        (FcsServer::B, FcsVariant::FcM) => Some(("", "1.5 %")),
        (FcsServer::B, FcsVariant::FcUm) => Some(("75 %", "")),
        (_, FcsVariant::FcUmFast) | (FcsServer::B, FcsVariant::Open) => None,
    }
}

/// The utilisations of the three phases of experiment III (figures 10 to 12), and the misses after the step up.
pub(super) const fn phases(variant: FcsVariant) -> Option<([&'static str; 3], &'static str)> {
    match variant {
        FcsVariant::Open => Some((["~75 %", "~100 %", "~40 %"], "some")),
        FcsVariant::FcU => Some((["70 %", "70 %", "70 %"], "")),
        FcsVariant::FcM => Some(([">90 %", "crashed", ""], "")),
        FcsVariant::FcUm => Some((["75 %", "75 %", "75 %"], "")),
        FcsVariant::FcUmFast => None,
    }
}

/// A figure of the paper with a run over time.
pub(super) struct PaperFigure {
    pub number: u32,
    /// What the text reports.
    pub text: &'static str,
}

/// The figure of a run of experiment II, or of experiment III without a server.
pub(super) const fn figure(server: Option<FcsServer>, variant: FcsVariant) -> Option<PaperFigure> {
    let (number, text) = match (server, variant) {
        (Some(FcsServer::A), FcsVariant::FcU) => (5, "67.7 % at the fifth sample, then around 70 %"),
        (Some(FcsServer::B), FcsVariant::FcU) => {
            (7, "holds 70 %; rates are higher than on server A, settling is later")
        }
        (Some(FcsServer::B), FcsVariant::FcUm) => {
            (8, "holds 75 %; rates are higher than on server A, settling is later")
        }
        (Some(FcsServer::B), FcsVariant::FcM) => {
            (9, "holds 1.5 % of misses; rates are higher than on server A, settling is later")
        }
        (None, FcsVariant::Open) => (10, "about 75 %, then almost 100 % with misses, then about 40 %"),
        (None, FcsVariant::FcU) => (11, "holds 70 % in steady state"),
        (None, FcsVariant::FcUm) => {
            (12, "holds 75 % in steady state; settles much faster in overload than in underload")
        }
        _ => return None,
    };
    Some(PaperFigure { number, text })
}
