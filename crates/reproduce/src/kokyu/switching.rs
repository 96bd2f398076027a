//! Switching between RMS and a hybrid at run time, which the paper recommends and leaves to future
//! work (sections V-C and VII).

use hyoshi_model::{Overload, Span};

use super::program::Trial;

/// RMS, until a critical job would be endangered; then RMS+MLF, until none has been for a while.
pub fn trials() -> [Trial; 2] {
    [false, true].map(|cancel| Trial {
        overload: Some(Overload { strategy: "RMS+MLF".into(), margin: Span::ZERO, calm: CALM }),
        ..Trial::new("RMS", cancel)
    })
}

/// One period of the slowest operations.
const CALM: Span = Span::from_secs(1);
