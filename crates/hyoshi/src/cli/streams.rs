//! Standard output and standard error, whose readers may close them early.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use super::Failure;

/// Writes to standard output. It is no error if the reader has closed the pipe (`hyoshi sim FILE | head`).
pub(super) fn out(text: impl Display) -> Result<(), Failure> {
    out_while_read(text).map(drop)
}

/// The same for output without an end: false after the reader has closed the pipe.
pub(super) fn out_while_read(text: impl Display) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let help = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or write to another disk",
                _ => "write to a terminal, a pipe or a regular file",
            };
            Err(Failure::new(format!("cannot write to standard output: {error}")).help(help))
        }
        Err(_) => Ok(false),
        Ok(()) => Ok(true),
    }
}

/// Writes to standard error in one call, because several processes may share it. Errors are ignored.
pub(super) fn err(text: impl Display) {
    drop(io::stderr().lock().write_all(text.to_string().as_bytes()));
}
