//! Standard output and standard error, whose readers may close them early.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use hyoshi_report::TerminalStyle;

use super::CliError;

/// Writes to standard output. It is no error if the reader has closed the pipe (`hyoshi sim FILE | head`).
pub(super) fn out(text: impl Display) -> Result<(), CliError> {
    out_while_read(text).map(drop)
}

/// The same for output without an end: false after the reader has closed the pipe.
pub(super) fn out_while_read(text: impl Display) -> Result<bool, CliError> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let help = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or write to another disk",
                _ => "write to a terminal, a pipe or a regular file",
            };
            Err(CliError::new(format!("cannot write to standard output: {error}")).help(help))
        }
        Err(_) => Ok(false),
        Ok(()) => Ok(true),
    }
}

/// Writes to standard error in one call, because several processes may share it. Errors are ignored.
pub(super) fn err(text: impl Display) {
    drop(io::stderr().lock().write_all(text.to_string().as_bytes()));
}

/// The sentences of diagnostics wrapped at the width of standard error. Lines of a source with their marks stay whole.
pub(super) fn wrap_diagnostics(text: &str) -> String {
    let look = TerminalStyle::of_stderr();
    let is_sentence = |line: &str| {
        let mut in_escape = false;
        let plain: String = line
            .chars()
            .filter(|letter| {
                let hidden = in_escape || *letter == '\x1b';
                in_escape = hidden && !letter.is_ascii_alphabetic();
                !hidden
            })
            .collect();
        ["= ", "error: ", "warning: "].iter().any(|start| plain.trim_start().starts_with(start))
    };
    text.split_inclusive('\n').map(|line| if is_sentence(line) { look.wrap(line) } else { line.to_owned() }).collect()
}
