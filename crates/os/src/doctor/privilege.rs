//! This process's privileges: real-time priorities, locked memory, performance counters.

use super::DoctorVerdict::{Degraded, Granted, Info, Refused};
use super::{DoctorFinding, read};
use crate::cpu::allowed_cpus;
use crate::refusal::{Privileges, RefusalReason, raise_limit, set_capabilities};
use crate::switches::{CpuSwitches, SwitchSource, SwitchVisibility};
use crate::thread::{Granted as Place, Spawn, ThreadPolicy};

pub(super) fn nice() -> Option<DoctorFinding> {
    Some(judge_nice(Privileges::of_this_process()))
}

fn judge_nice(privileges: Privileges) -> DoctorFinding {
    let finding = |verdict, found, consequence: &str| DoctorFinding::new("CAP_SYS_NICE", verdict, found, consequence);
    match privileges {
        Privileges { sys_nice: true, .. } => finding(Granted, "present", "lanes get real-time priorities"),
        Privileges { rtprio: 99.., .. } => {
            finding(Info, "absent", "not needed for lanes: RLIMIT_RTPRIO allows their priorities")
        }
        _ => finding(Refused, "absent", "lanes run at normal priority: any busy program delays them")
            .remedy(set_capabilities()),
    }
}

pub(super) fn rtprio() -> Option<DoctorFinding> {
    Some(judge_rtprio(Privileges::of_this_process()))
}

fn judge_rtprio(privileges: Privileges) -> DoctorFinding {
    let found = match privileges.rtprio {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    };
    let finding = |verdict, consequence: String| DoctorFinding::new("RLIMIT_RTPRIO", verdict, found, consequence);
    let remedy = || raise_limit("rtprio", "99");
    match privileges.rtprio {
        99.. => finding(Granted, "every priority of the map is allowed".to_owned()),
        limit if privileges.sys_nice => finding(Info, format!("CAP_SYS_NICE overrides the limit of {limit}")),
        0 => finding(Refused, "no real-time priority without CAP_SYS_NICE".to_owned()).remedy(remedy()),
        limit => finding(
            Degraded,
            format!("threads of the map above priority {limit} run at normal priority, other threads above them"),
        )
        .remedy(remedy()),
    }
}

pub(super) fn memory() -> Option<DoctorFinding> {
    Some(judge_memory(Privileges::of_this_process()))
}

fn judge_memory(privileges: Privileges) -> DoctorFinding {
    let limit = privileges.memlock.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    let capability = if privileges.ipc_lock { "present" } else { "absent" };
    let found = format!("CAP_IPC_LOCK {capability}, RLIMIT_MEMLOCK {limit}");
    if privileges.may_lock_all_memory() {
        return DoctorFinding::new("memory", Granted, found, "all memory of a run stays resident");
    }
    let consequence = "memory is not locked: a page fault may delay a job, from microseconds to a disk access";
    let reason = RefusalReason::MemoryLimit { limit: privileges.memlock.unwrap_or_default() };
    DoctorFinding::new("memory", Refused, found, consequence).remedy(reason.remedy().unwrap_or_default())
}

/// Tests the kernel, not the settings: a thread requests it.
pub(super) fn fifo() -> Option<DoctorFinding> {
    let tried = [1, 50, 99].map(|priority| {
        let thread = Spawn::new("doctor").policy(ThreadPolicy::Fifo(priority)).spawn(|| {});
        (priority, thread.map(|thread| thread.granted.clone()).ok())
    });
    Some(judge_fifo(&tried))
}

fn judge_fifo(tried: &[(u8, Option<Place>)]) -> DoctorFinding {
    let granted = |place: &Option<Place>| place.as_ref().is_some_and(Place::in_full);
    let words =
        tried.iter().map(|(priority, place)| format!("{priority} {}", if granted(place) { "yes" } else { "no" }));
    let found = words.collect::<Vec<_>>().join(", ");
    let finding = |verdict, consequence: String| DoctorFinding::new("SCHED_FIFO", verdict, found, consequence);
    let Some((_, place)) = tried.iter().find(|(_, place)| !granted(place)) else {
        return finding(Granted, "a thread got the whole map of priorities".to_owned());
    };
    let reason = place.as_ref().and_then(|place| place.refused.first()).map(|refused| refused.reason());
    let reason = reason.unwrap_or_else(|| RefusalReason::Kernel("no thread could be started".to_owned()));
    let verdict = if tried.iter().any(|(_, place)| granted(place)) { Degraded } else { Refused };
    finding(verdict, format!("lanes that are refused run at normal priority: {reason}"))
        .remedy(reason.remedy().unwrap_or_else(|| "raise the limit of processes: ulimit -u unlimited".to_owned()))
}

pub(super) fn perf() -> Option<DoctorFinding> {
    Some(judge_perf(read("/proc/sys/kernel/perf_event_paranoid").as_deref(), Privileges::of_this_process()))
}

fn judge_perf(paranoid: Option<&str>, privileges: Privileges) -> DoctorFinding {
    let topic = "perf_event_paranoid";
    let Some(level) = paranoid.and_then(|text| text.parse::<i32>().ok()) else {
        let consequence = "this kernel has no performance counters: CPU time of running threads is known to a tick";
        return DoctorFinding::new(topic, Info, "absent", consequence);
    };
    // 2 forbids the kernel's side; the task clock of own threads is still allowed.
    if level <= 2 || privileges.perfmon {
        return DoctorFinding::new(topic, Granted, level.to_string(), "CPU time of running threads is known to 0.1 ms");
    }
    let consequence = "CPU time of running threads is known to a tick only, and perf refuses to record";
    DoctorFinding::new(topic, Degraded, level.to_string(), consequence)
        .remedy("sudo sysctl -w kernel.perf_event_paranoid=2")
}

/// Tests the kernel, not the settings: watches a CPU for a moment.
pub(super) fn switches() -> Option<DoctorFinding> {
    let cpu = allowed_cpus().first().copied()?;
    Some(judge_switches(CpuSwitches::of(cpu).map(|switches| switches.visibility()).map_err(|error| error.to_string())))
}

fn judge_switches(visibility: Result<SwitchVisibility, String>) -> DoctorFinding {
    let finding =
        |verdict, found: String, consequence| DoctorFinding::new("context switches", verdict, found, consequence);
    let remedy = "sudo sysctl -w kernel.perf_event_paranoid=0, or sudo setcap \
                  cap_sys_nice,cap_ipc_lock,cap_perfmon+ep $(command -v hyoshi)";
    match visibility {
        Ok(SwitchVisibility::Everything) => finding(
            Granted,
            "every one is recorded".into(),
            "a recording shows which thread had the CPU at each instant",
        ),
        Ok(SwitchVisibility::OwnThreads) => {
            let consequence = "a recording shows when a lane lost the CPU, but not to which thread";
            finding(Degraded, "of this process's threads only".into(), consequence).remedy(remedy)
        }
        Ok(SwitchVisibility::Nothing) | Err(_) => {
            let found = visibility.err().map_or("none".into(), |error| format!("none ({error})"));
            let consequence = "waiting time of a job is inferred from its CPU time";
            finding(Degraded, found, consequence).remedy(remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{KernelRequest, Refused as Refusal};
    use rustix::io::Errno;

    const NOBODY: Privileges =
        Privileges { sys_nice: false, ipc_lock: false, perfmon: false, rtprio: 0, memlock: Some(64 << 10) };

    #[test]
    fn without_privileges_each_finding_is_a_refusal_with_a_command() {
        for finding in [judge_nice(NOBODY), judge_rtprio(NOBODY), judge_memory(NOBODY)] {
            assert_eq!(finding.verdict, Refused, "{finding:?}");
            assert!(finding.remedy.unwrap().contains("sudo"));
        }
    }

    #[test]
    fn a_limit_and_the_capability_are_equivalent() {
        let limits = Privileges { rtprio: 99, memlock: None, ..NOBODY };
        assert_eq!(
            [judge_nice(limits), judge_rtprio(limits), judge_memory(limits)].map(|f| f.verdict),
            [Info, Granted, Granted]
        );
        let capable = Privileges { sys_nice: true, ipc_lock: true, ..NOBODY };
        assert_eq!(
            [judge_nice(capable), judge_rtprio(capable), judge_memory(capable)].map(|f| f.verdict),
            [Granted, Info, Granted]
        );
    }

    #[test]
    fn what_a_scratch_thread_got_is_what_counts() {
        let place = |priority, refused: Vec<_>| {
            (priority, Some(Place { policy: ThreadPolicy::Fifo(priority), cpu: None, refused }))
        };
        let refusal = |priority| vec![Refusal::new(KernelRequest::Policy(ThreadPolicy::Fifo(priority)), Errno::PERM)];
        assert_eq!(judge_fifo(&[place(1, vec![]), place(99, vec![])]).verdict, Granted);
        let some = judge_fifo(&[place(1, vec![]), place(99, refusal(99))]);
        assert_eq!((some.verdict, some.found.as_str()), (Degraded, "1 yes, 99 no"));
        assert_eq!(judge_fifo(&[place(1, refusal(1))]).verdict, Refused);
        assert_eq!(judge_fifo(&[(1, None)]).verdict, Refused);
    }

    #[test]
    fn each_visibility_describes_its_recording() {
        let judged =
            [Ok(SwitchVisibility::Everything), Ok(SwitchVisibility::OwnThreads), Err("Permission denied".into())]
                .map(judge_switches);
        assert_eq!(judged.clone().map(|f| f.verdict), [Granted, Degraded, Degraded]);
        assert!(judged[0].consequence.contains("which thread") && judged[1].consequence.contains("not to which"));
        assert!(judged[2].found.contains("Permission denied") && judged[2].consequence.contains("inferred"));
        assert!(judged[1..].iter().all(|f| f.remedy.as_ref().unwrap().contains("perf_event_paranoid=0")));
    }

    #[test]
    fn distributions_that_close_perf_get_a_remedy() {
        assert_eq!(judge_perf(Some("2"), NOBODY).verdict, Granted);
        assert_eq!(judge_perf(Some("4"), NOBODY).verdict, Degraded);
        assert_eq!(judge_perf(Some("4"), Privileges { perfmon: true, ..NOBODY }).verdict, Granted);
        assert_eq!(judge_perf(None, NOBODY).verdict, Info);
    }
}
