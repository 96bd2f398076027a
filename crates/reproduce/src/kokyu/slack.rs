//! Does slack stealing explain MUF? The paper's first question for future work: whether "the better
//! performance of MUF under moderate jitter is due to incidental slack-stealing effects allowed by
//! the greater overhead of dynamic scheduling, or a particular capability of the mechanism itself".
//!
//! What a strategy gains is taken apart: MUF and RMS+MLF at the *same* costs differ by the mechanism
//! alone, MUF at its own costs and at those of RMS+MLF by overhead alone. Beside them stands what
//! stealing slack on purpose would give: non-critical work first, as long as no critical job is
//! endangered.

use hyoshi_model::{Overload, Span};
use hyoshi_sched::{Discipline, Strategies, Strategy, Traits, Urgency};
use serde::Serialize;

use super::overhead::paper_costs;
use super::program::Trial;
use super::trial::Row;

/// Regions with moderate jitter (section III-B2: "0-5 ms").
pub const MODERATE: [usize; 3] = [1, 5, 9];

/// What the question is answered by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slack {
    /// MUF at what RMS+MLF costs, without and with cancellation.
    pub muf_at_hybrid_costs: Vec<Row>,
    /// Slack stolen on purpose, without and with cancellation; nothing costs anything.
    pub stealing: Vec<Row>,
}

/// MUF, paying what the paper tells of RMS+MLF.
pub fn muf_at_hybrid_costs() -> [Trial; 2] {
    [false, true].map(|cancel| Trial { costs: paper_costs("RMS+MLF"), ..Trial::new("MUF", cancel) })
}

/// Non-critical work first, critical work at the last instant at which all of it is still in time:
/// what `hyoshi-dispatch` decides a switch by is the slack.
pub fn stealing() -> [Trial; 2] {
    [false, true].map(|cancel| Trial {
        overload: Some(Overload { strategy: "RMS+MLF".into(), margin: Span::ZERO, calm: CALM }),
        ..Trial::new(STEALING.name(), cancel)
    })
}

/// The strategies change back at once.
const CALM: Span = Span::from_micros(1);

/// Every strategy that trials name.
pub fn strategies() -> Strategies {
    Strategies::built_in().with(&STEALING)
}

static STEALING: NonCriticalFirst = NonCriticalFirst;

/// The wrong way round, and only to be used with one that takes over in time.
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
