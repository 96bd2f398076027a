//! A paper's claims, and what became of them here.

pub mod html;
pub mod terminal;

use serde::Serialize;

/// A numbered claim of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Such as `K1`.
    pub id: &'static str,
    /// What is claimed.
    pub says: &'static str,
    /// Where the paper says so, and with which figures.
    pub paper: &'static str,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is so here, too.
    Reproduced,
    /// Some of it is so, or only under a condition that the reason names.
    InPart,
    /// It is not so here.
    NotReproduced,
    /// Nothing was measured that could tell; the reason says what is missing.
    NotMeasured,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::InPart => "in part",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The figures it rests on, in a sentence.
    pub reason: String,
}

impl Finding {
    /// It is so.
    pub fn reproduced(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Reproduced, reason: reason.into() }
    }

    /// Some of it is.
    pub fn in_part(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::InPart, reason: reason.into() }
    }

    /// It is not.
    pub fn not_reproduced(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::NotReproduced, reason: reason.into() }
    }

    /// Nobody can tell.
    pub fn not_measured(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::NotMeasured, reason: reason.into() }
    }
}

/// A claim with what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The claim.
    #[serde(flatten)]
    pub claim: Claim,
    /// The verdict and its reason.
    #[serde(flatten)]
    pub finding: Finding,
    /// The same asked of the runs on the kernel, where it can be.
    pub on_kernel: Option<Finding>,
}
