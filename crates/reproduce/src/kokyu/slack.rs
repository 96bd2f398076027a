//! Does slack stealing explain MUF? This is the paper's first question for future work: whether "the better performance
//! of MUF under moderate jitter is due to incidental slack-stealing effects allowed by the greater overhead of dynamic
//! scheduling, or a particular capability of the mechanism itself".
//!
//! The effect is divided. MUF and RMS+MLF at the *same* costs differ by the mechanism alone. MUF at its own costs and
//! at those of RMS+MLF differs by overhead alone. For comparison, intentional slack stealing runs non-critical work
//! first, as long as no critical job is in danger.

use hyoshi_model::{Overload, Span};
use hyoshi_sched::{Discipline, Strategies, Strategy, Traits, Urgency};
use serde::Serialize;

use super::overhead::paper_costs;
use super::program::Trial;
use super::trial::TrialRow;

/// Regions with moderate jitter (section III-B2: "0-5 ms").
pub const MODERATE: [usize; 3] = [1, 5, 9];

/// The trials that answer the question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slack {
    /// MUF at the costs of RMS+MLF, without and with cancellation.
    pub muf_at_hybrid_costs: Vec<TrialRow>,
    /// Intentional slack stealing, without and with cancellation, at no cost.
    pub stealing: Vec<TrialRow>,
}

/// MUF at the paper's costs of RMS+MLF.
pub fn muf_at_hybrid_costs() -> [Trial; 2] {
    [false, true].map(|cancel| Trial { costs: paper_costs("RMS+MLF"), ..Trial::new("MUF", cancel) })
}

/// Non-critical work first, critical work at the last possible instant: `hyoshi-dispatch` switches when the slack is
/// used up.
pub fn stealing() -> [Trial; 2] {
    [false, true].map(|cancel| Trial {
        overload: Some(Overload { strategy: "RMS+MLF".into(), margin: Span::ZERO, calm: CALM }),
        ..Trial::new(STEALING.name(), cancel)
    })
}

/// The strategies switch back at once.
const CALM: Span = Span::from_micros(1);

/// The strategies of all trials.
pub fn strategies() -> Strategies {
    Strategies::built_in().with(&STEALING)
}

static STEALING: NonCriticalFirst = NonCriticalFirst;

/// The inverse order, for use only with a second strategy that rules in time.
struct NonCriticalFirst;

impl Strategy for NonCriticalFirst {
    fn name(&self) -> &str {
        "stealing"
    }

    fn summary(&self) -> &str {
        "non-critical work by laxity above critical work by rate"
    }

    fn urgency(&self, operation: &Traits) -> Urgency {
        if operation.critical {
            Urgency { class: 1, rank: operation.period.as_nanos(), discipline: Discipline::Fifo, tie: 0 }
        } else {
            Urgency { class: 0, rank: 0, discipline: Discipline::Laxity, tie: 0 }
        }
    }
}
