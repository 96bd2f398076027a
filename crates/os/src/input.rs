//! Waiting for standard input (poll(2)).

use std::io;

use hyoshi_model::Span;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Sleeps until standard input has data, or has ended: true. False if that did not happen within `most`, or if a signal
/// arrived first.
///
/// # Errors
///
/// From the kernel.
pub fn wait_for_input(most: Span) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    let nanos = most.as_nanos();
    let most = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    match poll(&mut input, Some(&most)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
