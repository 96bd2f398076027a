//! The decision of a feedback loop on an operation on standby.

use core::fmt;

use hyoshi_model::Span;
use serde::{Deserialize, Serialize};

use crate::event::span;

/// The outcome of a request to admit or to withdraw an operation on standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionOutcome {
    /// It releases jobs from now on.
    Admitted {
        /// Its period until the next sample.
        #[serde(with = "span")]
        period: Span,
        /// True at its highest rate.
        highest: bool,
    },
    /// It releases no more jobs. When its present jobs have ended, the other tasks regain its share at the next sample.
    Withdrawn,
    /// Nothing changed.
    Refused(AdmissionRefusal),
}

/// Why an operation is not admitted or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionRefusal {
    /// It is already admitted.
    Admitted,
    /// It is not admitted.
    Withdrawn,
    /// An epoch has disabled it or its host.
    Disabled,
    /// With it, the load at the lowest rates would be too large.
    Load(ExcessLoad),
}

/// A load at the lowest rates of all tasks that is above the limit of a feedback loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcessLoad {
    /// The load, in parts per million of the CPU.
    pub least_ppm: u64,
    /// The set point, in parts per million of the CPU.
    pub most_ppm: u64,
}

impl fmt::Display for ExcessLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ppm: u64| ppm as f64 / 1e4;
        let (least, most) = (percent(self.least_ppm), percent(self.most_ppm));
        write!(f, "the load at the lowest rates would be {least:.1}%, above the loop's limit of {most:.1}%")
    }
}

impl AdmissionOutcome {
    /// Why an accepted operation is below its highest rate. `None` if it is not.
    pub const fn lower_because(&self) -> Option<&'static str> {
        match self {
            AdmissionOutcome::Admitted { highest: false, .. } => Some("other tasks use the rest of the set point"),
            _ => None,
        }
    }
}

impl AdmissionRefusal {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            AdmissionRefusal::Admitted => "it needs no further admission; `hyoshi node withdraw` ends it",
            AdmissionRefusal::Withdrawn => "`hyoshi node admit` begins it",
            AdmissionRefusal::Disabled => "request it again when an epoch enables the operation",
            AdmissionRefusal::Load(_) => {
                "withdraw another operation first, or lower the lowest rate of this one in the system file"
            }
        }
    }
}

impl fmt::Display for AdmissionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdmissionRefusal::Admitted => f.write_str("the operation is already admitted"),
            AdmissionRefusal::Withdrawn => f.write_str("the operation is not admitted"),
            AdmissionRefusal::Disabled => f.write_str("the operation or its host is disabled at present"),
            AdmissionRefusal::Load(load) => write!(f, "with this operation, {load}"),
        }
    }
}

impl core::error::Error for AdmissionRefusal {}
