//! The experiments of the papers that Hyoshi stands on, run again and judged: each numbered claim
//! is reproduced, reproduced in part, or not, with the figures and the reason.
//!
//! A paper is a module: the experiment as data, what it measures, a pure function from figures to
//! a verdict for each claim, and how the results are shown beside the paper's.
//!
//! ```
//! use hyoshi_model::Span;
//! use hyoshi_reproduce::Watch;
//! use hyoshi_reproduce::kokyu::{Reproduced, Setup, run};
//!
//! let setup = Setup { region: Span::from_secs(1), ..Setup::default() }; // 150 s in the paper
//! let watch = Watch { step: &|_| (), stop: &|| false };
//! let reproduced = Reproduced::judge(run(setup, watch).unwrap());
//! for judgement in &reproduced.claims {
//!     println!("{} {}: {}", judgement.claim.id, judgement.claim.says, judgement.finding.verdict.words());
//! }
//! ```

#![forbid(unsafe_code)]

pub mod broker;
pub mod claim;
pub mod kokyu;
mod watch;

pub use claim::{Claim, Finding, Judgement, Verdict};
pub use watch::{Stopped, Watch};
