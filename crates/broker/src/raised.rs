//! Who owns a thread's real-time priority: the broker, or the program by its own choice.
//!
//! A raised thread may lower its own priority without privilege and keeps the class (sched(7)). It also keeps both
//! when it executes another program. Its priority still belongs to the broker: after the window it would be a priority
//! without a budget. Four facts of the kernel decide:
//!
//! - The broker raises with SCHED_RESET_ON_FORK, and removing that flag needs CAP_SYS_NICE: a real-time class without
//!   it is the choice of a privileged process.
//! - Without CAP_SYS_NICE no process raises a priority above RLIMIT_RTPRIO, so no such process has a priority above the
//!   windows.
//! - Changing between SCHED_FIFO and SCHED_RR needs an RLIMIT_RTPRIO above 0, of any value.
//! - SCHED_DEADLINE always needs CAP_SYS_NICE.

use hyoshi_os::priority::WINDOWS;
use hyoshi_os::process::{ProcessIdentity, RealTimeRight};
use hyoshi_os::scheduling::{Scheduling, SchedulingClass};

/// Whether a thread that the broker raised has this scheduling from the broker: a window's priority, or one that the
/// thread derived from it and could not set by itself.
pub(crate) fn is_ours(found: Scheduling, process: ProcessIdentity, tid: u32) -> bool {
    judge(found, || RealTimeRight::of(process.number, tid))
}

/// Whether a thread that is not known as raised has a priority that only a raised thread can have: a thread that
/// executed a program has the number of its process's first thread. SCHED_RR does not count, because services such as
/// rtkit set it for threads without privileges.
pub(crate) fn has_escaped(found: Scheduling, process: ProcessIdentity, tid: u32) -> bool {
    matches!(found.class, SchedulingClass::Fifo(at) if found.reset_on_fork && at <= *WINDOWS.end())
        && !matches!(found.class, SchedulingClass::Fifo(at) if RealTimeRight::of(process.number, tid).allows(at))
}

/// Whether only the broker can have assigned this bandwidth, to the thread or to the one that executed its program.
pub(crate) fn is_bandwidth(found: Scheduling, process: ProcessIdentity, tid: u32) -> bool {
    matches!(found, Scheduling { class: SchedulingClass::Deadline(_), reset_on_fork: true })
        && !RealTimeRight::of(process.number, tid).capable
}

/// Whether a thread, in a process of a task of an earlier broker, has scheduling that the broker left: also a window's
/// priority in a program of root's, unless RLIMIT_RTPRIO allows it.
pub(crate) fn is_left_over(found: Scheduling, process: ProcessIdentity, tid: u32) -> bool {
    let right = || RealTimeRight::of(process.number, tid);
    match found {
        Scheduling { class: SchedulingClass::Fifo(at), reset_on_fork: true } if WINDOWS.contains(&at) => {
            at > right().limit
        }
        Scheduling { class: SchedulingClass::Fifo(at), reset_on_fork: true } => {
            at < *WINDOWS.start() && !right().allows(at)
        }
        _ => is_bandwidth(found, process, tid),
    }
}

fn judge(found: Scheduling, right: impl FnOnce() -> RealTimeRight) -> bool {
    match (found.class, found.reset_on_fork) {
        (SchedulingClass::Fifo(at), true) if WINDOWS.contains(&at) => true,
        (SchedulingClass::Fifo(at) | SchedulingClass::RoundRobin(at), true) => {
            at <= *WINDOWS.end() && !right().allows(at)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_raised_thread_keeps_nothing_that_it_may_not_take_by_itself(at in 1..=99u8, limit in 0..=99u8, fifo: bool) {
            let class = if fifo { SchedulingClass::Fifo(at) } else { SchedulingClass::RoundRobin(at) };
            let found = |reset_on_fork| Scheduling { class, reset_on_fork };
            let right = RealTimeRight { limit, capable: false };
            // It can reach this from a window: the same or a lower priority; the other class only with a limit.
            let reachable = at <= *WINDOWS.end() && (fifo || limit > 0);
            if reachable && at > limit {
                prop_assert!(judge(found(true), || right));
            }
            if at <= limit && !(fifo && WINDOWS.contains(&at)) {
                prop_assert!(!judge(found(true), || right), "its own choice");
            }
            prop_assert!(!judge(found(false), || right), "someone with the right has set it");
            prop_assert!(at <= *WINDOWS.end() || !judge(found(true), || right));
            let capable = RealTimeRight { limit, capable: true };
            prop_assert_eq!(judge(found(true), || capable), fifo && WINDOWS.contains(&at));
        }
    }
}
