//! Switching between RMS and a hybrid at run time: the paper recommends it and leaves it to future work (sections V-C
//! and VII).

use hyoshi_model::{Overload, Span};

use super::program::Trial;

/// RMS, until a critical job is in danger; then RMS+MLF, until no critical job was in danger for some time.
pub fn trials() -> [Trial; 2] {
    [false, true].map(|cancel| Trial {
        overload: Some(Overload { strategy: "RMS+MLF".into(), margin: Span::ZERO, calm: CALM }),
        ..Trial::new("RMS", cancel)
    })
}

/// One period of the slowest operations.
const CALM: Span = Span::from_secs(1);
