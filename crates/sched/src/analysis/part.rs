//! The jobs of an operation at one level, and the result of their analysis.

use hyoshi_model::{Deadline, OperationId};

use super::demand::TooMuch;
use super::method::AnalysisMethod;
use super::verdict::Missing;
use super::work::{Release, Work};
use crate::plan::Placement;

/// The critical or the other jobs of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationPart {
    pub operation: OperationId,
    pub critical: bool,
    pub level: u8,
    /// Its most and its least urgent level, if these may change at run time.
    pub best: u8,
    pub worst: u8,
    /// Jobs per release, and the worst case of each.
    pub legs: u64,
    pub leg: u64,
    /// The cost of each, with the overhead at its priority.
    pub charge: u64,
    /// Its operation has several jobs per release, or follows others without a gap.
    pub of_chain: bool,
}

impl OperationPart {
    /// The parts of an operation: one, or two of a load chain with critical first legs.
    pub fn of(work: &Work) -> impl Iterator<Item = OperationPart> {
        let (legs, runs) = (work.legs, work.runs());
        let part = |critical, of_these: u64, level: fn(Placement) -> u8| OperationPart {
            operation: work.operation,
            critical,
            level: level(work.place),
            best: work.positions().map(level).fold(level(work.place), u8::min),
            worst: work.positions().map(level).fold(level(work.place), u8::max),
            legs: of_these,
            leg: work.wcet,
            charge: work.wcet,
            of_chain: legs > 1 || !work.run_up.is_empty(),
        };
        let critical = part(true, work.critical_legs, |place| place.critical.level);
        let other = part(false, legs - work.critical_legs, |place| place.other.level);
        [critical, other].into_iter().filter(move |part| runs && part.legs > 0)
    }

    /// Worst case of its jobs of one release.
    pub fn cost(&self) -> u64 {
        self.leg.saturating_mul(self.legs)
    }

    /// With their overhead.
    pub fn charged(&self) -> u64 {
        self.charge.saturating_mul(self.legs)
    }
}

/// The result of the analysis of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartResult {
    pub part: OperationPart,
    pub method: AnalysisMethod,
    pub response: ResponseBound,
    /// For an operation with a run-up and its own deadline: from its own release to its finish.
    pub own: Option<u64>,
}

/// A response bound, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseBound {
    /// From release to finish of the last of the part's jobs; of an operation with a run-up, from
    /// the release of the first operation of that.
    Bound(u64),
    /// From the start of the deadline to the finish of the last of the part's jobs; and a window with possibly more
    /// work than fits, if the deadline is beyond it.
    Counted { bound: u64, too_much: Option<TooMuch> },
    /// From the start of the deadline to the finish: it held in all tests but is not proved, so no other bound uses it.
    Tested(u64),
    /// No bound was computed, but no job is late.
    InTime,
    /// There may be more work than fits.
    Demand(TooMuch),
    /// Nothing is known.
    Unknown(Missing),
}

impl ResponseBound {
    /// True if jobs may be late without limit, as far as known.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, ResponseBound::Demand(_) | ResponseBound::Unknown(_) | ResponseBound::Tested(_))
    }
}

/// The bound on the response, from the start of the deadline.
pub(super) fn counted(work: &Work, release: &Release, found: &PartResult) -> Option<u64> {
    match (&found.response, work.deadline) {
        (ResponseBound::Bound(bound), Deadline::Own(_)) => found.own.unwrap_or(*bound).checked_add(work.jitter),
        (ResponseBound::Bound(bound), Deadline::Origin(_)) => {
            release.counted?.checked_add(*bound)?.checked_add(release.older)
        }
        (ResponseBound::Counted { bound, .. } | ResponseBound::Tested(bound), _) => Some(*bound),
        _ => None,
    }
}

/// When a part's jobs have finished, counted from the origin.
pub(super) fn finish_of(work: &Work, release: &Release, found: &PartResult) -> Option<u64> {
    let declared = match (&found.response, work.deadline) {
        (ResponseBound::Bound(bound), _) => release.counted?.checked_add(*bound),
        (ResponseBound::Counted { bound, .. }, Deadline::Origin(_)) => Some(*bound),
        (ResponseBound::Counted { bound, .. }, Deadline::Own(_)) => (release.latest? - work.jitter).checked_add(*bound),
        (ResponseBound::InTime, Deadline::Origin(deadline)) => release.latest.map(|_| deadline.as_nanos()),
        (ResponseBound::InTime, Deadline::Own(deadline)) => {
            (release.latest? - work.jitter).checked_add(deadline.as_nanos())
        }
        (ResponseBound::Demand(_) | ResponseBound::Unknown(_) | ResponseBound::Tested(_), _) => None,
    };
    // A job with a later deadline is not later after it.
    declared?.checked_add(work.later)
}
