//! The one table of advocates, used by commands, files, IDL and docs.

use super::kind::{AdvocateKind, same};
use super::{application, fixed, glacial, max_decay, percentile, proactive, reporting, watchdog};

/// Every kind of advocate. A new one needs a file and a line here.
pub static KINDS: [AdvocateKind; 12] = [
    max_decay::KIND,
    glacial::KIND,
    percentile::KIND,
    proactive::KIND,
    fixed::RATE,
    fixed::CAP,
    fixed::FLOOR,
    watchdog::KIND,
    application::MODES,
    application::VALUE,
    reporting::LOG,
    reporting::CONDITIONS,
];

impl AdvocateKind {
    /// The kind of this name; underscores may replace dashes, as in files.
    pub fn named(name: &str) -> Option<&'static AdvocateKind> {
        KINDS.iter().find(|kind| same(kind.name, name))
    }
}
