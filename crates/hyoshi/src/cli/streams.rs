//! Standard output and standard error, for a program that outlives whoever reads them.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use super::Failure;

/// Writes to standard output. A reader that has gone (`hyoshi sim FILE | head`) has seen what it
/// wanted; anything else that is in the way is told.
pub(super) fn out(text: impl Display) -> Result<(), Failure> {
    out_while_read(text).map(drop)
}

/// The same for what has no end: false once the reader has gone.
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

/// Writes to standard error, at once: several processes may share it. Should that fail, there is nobody left to tell.
pub(super) fn err(text: impl Display) {
    drop(io::stderr().lock().write_all(text.to_string().as_bytes()));
}
