//! Repeats the experiments of the papers behind Hyoshi, and rates each numbered claim: reproduced, in part, or not,
//! with figures and a reason.
//!
//! Each paper has a module: the experiment as data, its measurements, a pure function from figures to a rating of each
//! claim, and the display beside the paper's results.
//!
//! ```
//! use hyoshi_model::Span;
//! use hyoshi_reproduce::ExperimentControl;
//! use hyoshi_reproduce::kokyu::{Reproduced, Setup, run};
//!
//! let setup = Setup { region: Span::from_secs(1), ..Setup::default() }; // 150 s in the paper
//! let control = ExperimentControl { step: &|_| (), stop: &|| false };
//! let reproduced = Reproduced::judge(run(setup, control).unwrap());
//! for judgement in &reproduced.claims {
//!     println!("{} {}: {}", judgement.claim.id, judgement.claim.says, judgement.finding.verdict.words());
//! }
//! ```

#![forbid(unsafe_code)]

pub mod broker;
pub mod claim;
mod control;
pub mod dt_ec;
pub mod fcs;
pub mod kokyu;
pub mod nodes;

pub use claim::{Claim, ClaimFinding, ClaimVerdict, Judgement};
pub use control::{ExperimentControl, Length, Stopped};
