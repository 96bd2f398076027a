//! A line on the terminal that shows the progress of a long computation.

use std::io::stderr;
use std::time::{Duration, Instant};

use hyoshi_report::terminal::{can_redraw, cut, width_of};

use super::{Format, streams};

/// The line is drawn this often at most.
const REDRAW: Duration = Duration::from_millis(300);

/// A line on standard error, if that is a terminal and people read the results.
pub(super) struct ProgressLine {
    shown: Instant,
    visible: bool,
    wanted: bool,
}

impl ProgressLine {
    pub fn new(format: Format) -> Self {
        let wanted = format == Format::Text && can_redraw(&stderr());
        ProgressLine { shown: Instant::now(), visible: false, wanted }
    }

    /// Shows the text, unless something was shown a moment ago.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.wanted && self.shown.elapsed() > REDRAW {
            self.step(&text());
        }
    }

    /// Shows the text at once.
    pub fn step(&mut self, text: &str) {
        if self.wanted {
            let width = usize::from(width_of(&stderr()).unwrap_or(80));
            streams::err(format_args!("\r\x1b[K{}", cut(text, width.saturating_sub(1))));
            (self.shown, self.visible) = (Instant::now(), true);
        }
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            streams::err("\r\x1b[K");
        }
    }
}
