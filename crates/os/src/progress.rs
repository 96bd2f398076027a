//! Whether another program's thread makes progress.
//!
//! A thread that left SCHED_DEADLINE while it was throttled, and returns before the kernel has forgotten that (at its
//! zero-lag instant), is throttled for ever (kernel 6.18): nothing replenishes it, no signal reaches it. Code that
//! reserves bandwidth must therefore check that it is used; [`Scheduling::free`](crate::scheduling::Scheduling::free)
//! frees a thread that hangs.

use std::fs;

use hyoshi_model::Span;

use crate::proc;

/// The progress of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadProgress {
    /// It is ready to run.
    pub wants: bool,
    /// How long it has run in total, as of the kernel's last tick.
    pub ran: Span,
}

impl ThreadProgress {
    /// Of a thread, by its number; `None` after it has ended, or if the kernel does not report it (CONFIG_SCHED_INFO).
    /// 4 us.
    pub fn of(tid: u32) -> Option<ThreadProgress> {
        let folder = format!("/proc/{tid}");
        let (wants, ran) = (proc::wants_to_run(&folder)?, proc::ran(&folder)?);
        Some(ThreadProgress { wants, ran })
    }
}

/// Whether a SCHED_DEADLINE thread has used up its budget and waits for the next period, which counts as wanting to
/// run; false if the kernel does not report it (before Linux 6.15, without CONFIG_SCHED_DEBUG).
pub fn is_throttled(tid: u32) -> bool {
    if !ThreadProgress::of(tid).is_some_and(|progress| progress.wants) {
        return false;
    }
    let text = fs::read_to_string(format!("/proc/{tid}/sched")).unwrap_or_default();
    let left = text.lines().find_map(|line| line.strip_prefix("dl.runtime"));
    let left = left.and_then(|rest| rest.rsplit(':').next()?.trim().parse::<i64>().ok());
    left.is_some_and(|left| left <= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_runs_gets_on_and_an_ordinary_one_is_never_throttled() {
        let tid = crate::own_thread();
        let first = ThreadProgress::of(tid).unwrap();
        assert!(first.wants && !is_throttled(tid));
        while ThreadProgress::of(tid).unwrap().ran == first.ran {}
        assert!(ThreadProgress::of(4_194_305).is_none() && !is_throttled(4_194_305));
    }
}
