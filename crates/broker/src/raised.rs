//! Whose a thread's real-time priority is: the broker's, or the program's own choice.
//!
//! A raised thread may lower its own priority without privilege, and keeps the class (sched(7)); it also keeps both when it
//! executes another program. What it has then is still the broker's: a priority that outlives its window is a priority without
//! a budget. Four facts of the kernel decide:
//!
//! - the broker raises with SCHED_RESET_ON_FORK, and taking that flag away needs CAP_SYS_NICE: a real-time class without it is
//!   the choice of someone who may;
//! - nobody raises a priority above RLIMIT_RTPRIO without CAP_SYS_NICE, so nothing above the windows comes from one;
//! - changing between SCHED_FIFO and SCHED_RR takes an RLIMIT_RTPRIO above 0, of whatever height;
//! - SCHED_DEADLINE always takes CAP_SYS_NICE.

use hyoshi_os::priority::WINDOWS;
use hyoshi_os::process::{Identity, RealTimeRight};
use hyoshi_os::scheduling::{Class, Scheduling};

/// Whether a thread that the broker has raised has this from the broker: a window's priority, or what the thread made of it and
/// could not take by itself.
pub(crate) fn is_ours(found: Scheduling, process: Identity, tid: u32) -> bool {
    judge(found, || RealTimeRight::of(process.number, tid))
}

/// Whether a thread of a task, which the broker has not raised as far as it knows, has a priority that only a raised thread can
/// have brought: one that executed another program has the number of its process's first thread from then on. SCHED_RR is not
/// looked at, which services such as rtkit give to threads of programs without any right.
pub(crate) fn has_escaped(found: Scheduling, process: Identity, tid: u32) -> bool {
    matches!(found.class, Class::Fifo(at) if found.reset_on_fork && at <= *WINDOWS.end())
        && !matches!(found.class, Class::Fifo(at) if RealTimeRight::of(process.number, tid).allows(at))
}

/// Whether a thread has bandwidth that only the broker can have given to it, or to the thread that executed its program.
pub(crate) fn is_bandwidth(found: Scheduling, process: Identity, tid: u32) -> bool {
    matches!(found, Scheduling { class: Class::Deadline(_), reset_on_fork: true })
        && !RealTimeRight::of(process.number, tid).capable
}

/// Whether a thread, in a process that was in a task of the broker before, has what a broker left: also a window's priority
/// in a program of root's, unless RLIMIT_RTPRIO allows it that.
pub(crate) fn is_left_over(found: Scheduling, process: Identity, tid: u32) -> bool {
    let right = || RealTimeRight::of(process.number, tid);
    match found {
        Scheduling { class: Class::Fifo(at), reset_on_fork: true } if WINDOWS.contains(&at) => at > right().limit,
        Scheduling { class: Class::Fifo(at), reset_on_fork: true } => at < *WINDOWS.start() && !right().allows(at),
        _ => is_bandwidth(found, process, tid),
    }
}

fn judge(found: Scheduling, right: impl FnOnce() -> RealTimeRight) -> bool {
    match (found.class, found.reset_on_fork) {
        (Class::Fifo(at), true) if WINDOWS.contains(&at) => true,
        (Class::Fifo(at) | Class::RoundRobin(at), true) => at <= *WINDOWS.end() && !right().allows(at),
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
            let class = if fifo { Class::Fifo(at) } else { Class::RoundRobin(at) };
            let found = |reset_on_fork| Scheduling { class, reset_on_fork };
            let right = RealTimeRight { limit, capable: false };
            // What it can reach from a window: at or below it; in the other class only with a limit.
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
