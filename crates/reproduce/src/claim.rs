//! A paper's claims and their ratings.

pub mod html;
pub mod terminal;

use serde::Serialize;

/// A numbered claim of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Its number, such as `K1`.
    pub id: &'static str,
    /// The claim.
    pub says: &'static str,
    /// Its place in the paper, with the paper's figures.
    pub paper: &'static str,
}

/// The rating of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The claim holds here, too.
    Reproduced,
    /// A part of it holds, or it holds under a condition in the reason.
    InPart,
    /// It does not hold here.
    NotReproduced,
    /// The required figures were not measured; the reason states what is missing.
    NotMeasured,
}

impl ClaimVerdict {
    /// The rating as text.
    pub const fn words(self) -> &'static str {
        match self {
            ClaimVerdict::Reproduced => "reproduced",
            ClaimVerdict::InPart => "in part",
            ClaimVerdict::NotReproduced => "not reproduced",
            ClaimVerdict::NotMeasured => "not measured",
        }
    }
}

/// A rating with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimFinding {
    /// The rating.
    pub verdict: ClaimVerdict,
    /// The figures of the rating, in a sentence.
    pub reason: String,
}

impl ClaimFinding {
    /// The claim holds.
    pub fn reproduced(reason: impl Into<String>) -> ClaimFinding {
        ClaimFinding { verdict: ClaimVerdict::Reproduced, reason: reason.into() }
    }

    /// A part of it holds.
    pub fn in_part(reason: impl Into<String>) -> ClaimFinding {
        ClaimFinding { verdict: ClaimVerdict::InPart, reason: reason.into() }
    }

    /// It does not hold.
    pub fn not_reproduced(reason: impl Into<String>) -> ClaimFinding {
        ClaimFinding { verdict: ClaimVerdict::NotReproduced, reason: reason.into() }
    }

    /// It was not measured.
    pub fn not_measured(reason: impl Into<String>) -> ClaimFinding {
        ClaimFinding { verdict: ClaimVerdict::NotMeasured, reason: reason.into() }
    }
}

/// A claim with its ratings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The claim.
    #[serde(flatten)]
    pub claim: Claim,
    /// The rating and its reason.
    #[serde(flatten)]
    pub finding: ClaimFinding,
    /// The rating of the runs on the kernel, if any.
    pub on_kernel: Option<ClaimFinding>,
}
