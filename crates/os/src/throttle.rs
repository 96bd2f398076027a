//! The kernel's limits of real-time threads on a CPU.
//!
//! Three mechanisms limit them, and a probe finds which exist: the throttle of real-time classes
//! (`sched_rt_runtime_us`, sched(7)), the budget of a version 1 control group, and on newer kernels the fair server, a
//! deadline reservation for ordinary threads. FIFO threads that spin on every core measured 95.6 to 95.8 %. The cap of
//! lanes stays below this share, so Hyoshi, not the kernel, chooses the lanes that lose time.

use std::fs;

use hyoshi_model::Span;
use serde::Serialize;

use crate::cgroup::CpuGroup;

/// A share of each CPU, in parts per million, over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FifoLimit {
    /// Parts per million of a CPU.
    pub ppm: u32,
    /// The kernel's window; zero if there is no limit.
    #[serde(serialize_with = "as_nanos")]
    pub window: Span,
    /// The mechanism that sets it.
    pub set_by: LimitedBy,
}

/// The limits of real-time threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LimitedBy {
    /// Nothing: a thread that never sleeps freezes its CPU.
    Nothing,
    /// `/proc/sys/kernel/sched_rt_runtime_us`.
    Throttle,
    /// `cpu.rt_runtime_us` of this process's control group.
    Group,
    /// The kernel's reservation for ordinary threads.
    FairServer,
}

/// The tightest of the limits in force. Needs milliseconds: call it once, at the start of a run.
pub fn fifo_limit() -> FifoLimit {
    let group = CpuGroup::of_this_process().rt_budget;
    [(throttle(), LimitedBy::Throttle), (group, LimitedBy::Group), (fair_server(), LimitedBy::FairServer)]
        .into_iter()
        .filter_map(|(budget, set_by)| limit(budget?, set_by))
        .fold(FifoLimit { ppm: 1_000_000, window: Span::ZERO, set_by: LimitedBy::Nothing }, tighter)
}

/// Runtime and period in microseconds of the throttle; a runtime of -1 is off.
pub(crate) fn throttle() -> Option<(i64, i64)> {
    let number = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok();
    number("sched_rt_runtime_us").zip(number("sched_rt_period_us"))
}

/// The time that the fair server leaves of a second, in microseconds; `None` if the kernel has none. Its settings are
/// in debugfs, often unreadable: then the default is assumed, 50 ms a second.
pub(crate) fn fair_server() -> Option<(i64, i64)> {
    let setting = |name: &str| {
        let nanos = fs::read_to_string(format!("/sys/kernel/debug/sched/fair_server/cpu0/{name}")).ok()?;
        nanos.trim().parse::<i64>().ok().map(|nanos| nanos / 1_000)
    };
    match (setting("runtime"), setting("period")) {
        (Some(0), _) => None,
        (Some(runtime), Some(period)) => Some((period - runtime, period)),
        // The kernel describes its own types there, and `struct rq` has a member of that name.
        _ => names(&fs::read("/sys/kernel/btf/vmlinux").ok()?, b"\0fair_server\0").then_some((950_000, 1_000_000)),
    }
}

fn names(types: &[u8], member: &[u8]) -> bool {
    types.windows(member.len()).any(|window| window == member)
}

fn limit((runtime, period): (i64, i64), set_by: LimitedBy) -> Option<FifoLimit> {
    let (runtime, period) = (u64::try_from(runtime).ok()?, u64::try_from(period).ok().filter(|period| *period > 0)?);
    let ppm = (u128::from(runtime) * 1_000_000 / u128::from(period)).min(1_000_000) as u32;
    Some(FifoLimit { ppm, window: Span::from_nanos(period.saturating_mul(1_000)), set_by })
}

fn tighter(one: FifoLimit, other: FifoLimit) -> FifoLimit {
    if other.ppm < one.ppm { other } else { one }
}

fn as_nanos<S: serde::Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_share_of_its_period_and_minus_one_is_none() {
        let second = Span::from_secs(1);
        let expected = FifoLimit { ppm: 950_000, window: second, set_by: LimitedBy::Throttle };
        assert_eq!(limit((950_000, 1_000_000), LimitedBy::Throttle), Some(expected));
        assert_eq!(limit((-1, 1_000_000), LimitedBy::Throttle), None);
        assert_eq!(limit((0, 1_000_000), LimitedBy::Group).map(|limit| limit.ppm), Some(0));
        assert_eq!(limit((5, 0), LimitedBy::Group), None);
    }

    #[test]
    fn the_tightest_limit_is_the_one_in_force() {
        let [a, b] = [(950_000, LimitedBy::Throttle), (200_000, LimitedBy::Group)]
            .map(|(runtime, by)| limit((runtime, 1_000_000), by).unwrap());
        assert_eq!(tighter(a, b), b);
        assert_eq!(tighter(b, a), b);
    }

    #[test]
    fn a_member_is_found_by_its_whole_name_only() {
        assert!(names(b"\0rq\0fair_server\0", b"\0fair_server\0"));
        assert!(!names(b"\0rq\0fair_server_enabled\0", b"\0fair_server\0"));
    }
}
