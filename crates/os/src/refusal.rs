//! A request that the kernel refused, the reason, and the remedy. A refusal is data: the caller continues with less,
//! and reports it.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use crate::cgroup::CpuGroup;
use crate::cpu::{allowed_cpus, cpu_list};
use crate::scheduling::Bandwidth;
use crate::thread::ThreadPolicy;

/// A request to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum KernelRequest {
    /// A scheduling policy (sched_setscheduler(2)).
    Policy(ThreadPolicy),
    /// A single CPU for a thread (sched_setaffinity(2)).
    Cpu(u32),
    /// A thread's own CPU time (SCHED_DEADLINE).
    Deadline(Bandwidth),
    /// Resident memory (mlockall(2)).
    LockedMemory,
}

/// A request that the kernel refused. Small and without heap, because it occurs on the hot path; [`Refused::reason`]
/// examines it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The request.
    pub asked: KernelRequest,
    /// The kernel's error number.
    pub errno: i32,
}

/// Why a request was refused, as far as this machine's settings show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum RefusalReason {
    /// Neither CAP_SYS_NICE nor a sufficient RLIMIT_RTPRIO.
    NoPrivilege {
        /// The highest priority that the limit allows.
        rtprio: u64,
    },
    /// No CAP_SYS_NICE, for SCHED_DEADLINE, which no limit grants (sched(7)).
    NoCapability,
    /// The control group has no real-time budget (cgroup version 1, CONFIG_RT_GROUP_SCHED).
    NoGroupBudget {
        /// The group's folder.
        group: PathBuf,
        /// The topmost group, which has a budget.
        top: PathBuf,
    },
    /// The privilege exists, so something else forbids it: a seccomp filter, or a version 2 group on a kernel with
    /// CONFIG_RT_GROUP_SCHED.
    Forbidden,
    /// The CPU is offline, does not exist, or is not among those of this process.
    CpuNotAllowed {
        /// The allowed CPUs.
        allowed: String,
    },
    /// Neither CAP_IPC_LOCK nor an unlimited RLIMIT_MEMLOCK.
    MemoryLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// The thread has ended.
    Gone,
    /// Another error; the text is the kernel's.
    Kernel(String),
}

impl Refused {
    pub(crate) fn new(asked: KernelRequest, errno: Errno) -> Self {
        Refused { asked, errno: errno.raw_os_error() }
    }

    /// True if the thread has ended: no privilege would help.
    pub fn is_gone(&self) -> bool {
        self.errno == Errno::SRCH.raw_os_error()
    }

    /// True if the thread may run on none of the requested CPUs: its cpuset has others (EINVAL).
    pub fn is_cpu_forbidden(&self) -> bool {
        matches!(self.asked, KernelRequest::Cpu(_)) && self.errno == Errno::INVAL.raw_os_error()
    }

    /// Finds the reason in this process's limits and control group.
    pub fn reason(&self) -> RefusalReason {
        reason(self, Privileges::of_this_process(), &CpuGroup::of_this_process(), &allowed_cpus())
    }

    /// Finds the reason of a refusal for a thread of another process: in that one's control group.
    pub fn reason_for(&self, pid: u32) -> RefusalReason {
        reason(self, Privileges::of_this_process(), &CpuGroup::of_process(pid), &allowed_cpus())
    }
}

/// This process's privileges: capabilities(7), getrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Privileges {
    pub sys_nice: bool,
    pub ipc_lock: bool,
    pub perfmon: bool,
    pub rtprio: u64,
    /// `None`: unlimited.
    pub memlock: Option<u64>,
}

impl Privileges {
    pub(crate) fn of_this_process() -> Self {
        let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        Privileges {
            sys_nice: effective.contains(CapabilitySet::SYS_NICE),
            ipc_lock: effective.contains(CapabilitySet::IPC_LOCK),
            perfmon: effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
            rtprio: getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX),
            memlock: getrlimit(Resource::Memlock).current,
        }
    }

    /// The highest SCHED_FIFO priority that the privileges allow.
    pub(crate) fn highest_fifo(&self) -> u8 {
        if self.sys_nice { 99 } else { self.rtprio.min(99) as u8 }
    }

    pub(crate) fn may_lock_all_memory(&self) -> bool {
        self.ipc_lock || self.memlock.is_none()
    }
}

fn reason(refused: &Refused, privileges: Privileges, group: &CpuGroup, allowed: &[u32]) -> RefusalReason {
    match (refused.asked, Errno::from_raw_os_error(refused.errno)) {
        (_, Errno::SRCH) => RefusalReason::Gone,
        (KernelRequest::Policy(ThreadPolicy::Fifo(priority)), Errno::PERM) if privileges.highest_fifo() < priority => {
            RefusalReason::NoPrivilege { rtprio: privileges.rtprio }
        }
        (KernelRequest::Policy(ThreadPolicy::Fifo(_)), Errno::PERM) if group.forbids_fifo() => no_group_budget(group),
        (KernelRequest::Deadline(_), Errno::PERM) if !privileges.sys_nice => RefusalReason::NoCapability,
        (_, Errno::PERM) if refused.asked != KernelRequest::LockedMemory => RefusalReason::Forbidden,
        (KernelRequest::Cpu(_), Errno::INVAL) => RefusalReason::CpuNotAllowed { allowed: cpu_list(allowed) },
        (KernelRequest::LockedMemory, _) if !privileges.may_lock_all_memory() => {
            RefusalReason::MemoryLimit { limit: privileges.memlock.unwrap_or(u64::MAX) }
        }
        (_, errno) => RefusalReason::Kernel(errno.to_string()),
    }
}

/// For a group in which every real-time priority is refused.
pub(crate) fn no_group_budget(group: &CpuGroup) -> RefusalReason {
    RefusalReason::NoGroupBudget { group: group.folder.clone(), top: group.top.clone() }
}

impl RefusalReason {
    /// The remedy: a command for an administrator, or a setting.
    pub fn remedy(&self) -> Option<String> {
        match self {
            RefusalReason::NoPrivilege { .. } => {
                Some(format!("{}\nor {}", set_capabilities(), raise_limit("rtprio", "99")))
            }
            RefusalReason::NoCapability => Some(set_capabilities()),
            RefusalReason::NoGroupBudget { group, top } => Some(format!(
                "echo 950000 | sudo tee {}/cpu.rt_runtime_us   (parents first)\n\
                 or leave the group: echo $$ | sudo tee {}/cgroup.procs",
                group.display(),
                top.display()
            )),
            RefusalReason::Forbidden => Some(
                "in a container: docker run --cap-add SYS_NICE --ulimit rtprio=99 ...\n\
                 on a kernel with CONFIG_RT_GROUP_SCHED and cgroup version 2: boot with rt_group_sched=0, or \
                 echo $$ | sudo tee /sys/fs/cgroup/cgroup.procs"
                    .to_owned(),
            ),
            RefusalReason::CpuNotAllowed { allowed } => Some(format!(
                "use one of {allowed}, or widen this process's set: taskset -pc 0-$(($(nproc --all)-1)) $$"
            )),
            RefusalReason::MemoryLimit { .. } => {
                Some(format!("{}\nor {}", set_capabilities(), raise_limit("memlock", "unlimited")))
            }
            RefusalReason::Gone | RefusalReason::Kernel(_) => None,
        }
    }
}

/// For this program, so the line can be pasted.
pub(crate) fn set_capabilities() -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "$(command -v hyoshi)".into(), |path| path.display().to_string());
    format!("sudo setcap cap_sys_nice,cap_ipc_lock+ep {program}")
}

pub(crate) fn raise_limit(item: &str, value: &str) -> String {
    format!(
        "echo \"$USER - {item} {value}\" | sudo tee -a /etc/security/limits.d/99-hyoshi.conf, and log in again \
         (in a systemd unit: Limit{}={})",
        item.to_uppercase(),
        if value == "unlimited" { "infinity" } else { value }
    )
}

impl fmt::Display for KernelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelRequest::Policy(policy) => write!(f, "{policy}"),
            KernelRequest::Cpu(cpu) => write!(f, "CPU {cpu}"),
            KernelRequest::Deadline(bandwidth) => write!(f, "SCHED_DEADLINE {bandwidth}"),
            KernelRequest::LockedMemory => f.write_str("locked memory"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refused {}: {}", self.asked, Errno::from_raw_os_error(self.errno))
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::NoPrivilege { rtprio } => write!(f, "no CAP_SYS_NICE, and RLIMIT_RTPRIO is {rtprio}"),
            RefusalReason::NoCapability => f.write_str("no CAP_SYS_NICE"),
            RefusalReason::NoGroupBudget { group, .. } => {
                write!(f, "the control group {} has a real-time budget of 0", group.display())
            }
            RefusalReason::Forbidden => {
                f.write_str("the privilege exists, but a seccomp filter or the kernel's real-time groups forbid it")
            }
            RefusalReason::CpuNotAllowed { allowed } => write!(f, "this process may use CPU {allowed}"),
            RefusalReason::MemoryLimit { limit } => {
                write!(
                    f,
                    "no CAP_IPC_LOCK, and RLIMIT_MEMLOCK is {} KiB: once reached, allocations would fail",
                    limit >> 10
                )
            }
            RefusalReason::Gone => f.write_str("the thread has ended"),
            RefusalReason::Kernel(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Privileges =
        Privileges { sys_nice: false, ipc_lock: false, perfmon: false, rtprio: 20, memlock: Some(8 << 20) };
    const ROOT: Privileges = Privileges { sys_nice: true, ipc_lock: true, perfmon: true, ..NOBODY };

    fn group(rt_budget: Option<(i64, i64)>) -> CpuGroup {
        CpuGroup {
            version: Some(crate::cgroup::CgroupVersion::One),
            folder: "/cg/cpu/jobs".into(),
            top: "/cg/cpu".into(),
            rt_budget,
        }
    }

    fn why(asked: KernelRequest, errno: Errno, privileges: Privileges, rt_budget: Option<(i64, i64)>) -> RefusalReason {
        reason(&Refused::new(asked, errno), privileges, &group(rt_budget), &[0, 1])
    }

    #[test]
    fn one_error_number_is_three_different_reasons() {
        let fifo = KernelRequest::Policy(ThreadPolicy::Fifo(50));
        let no_budget = no_group_budget(&group(None));
        assert_eq!(why(fifo, Errno::PERM, NOBODY, None), RefusalReason::NoPrivilege { rtprio: 20 });
        assert_eq!(why(fifo, Errno::PERM, ROOT, Some((0, 1_000_000))), no_budget);
        assert_eq!(why(fifo, Errno::PERM, ROOT, None), RefusalReason::Forbidden);
        let within_the_limit = KernelRequest::Policy(ThreadPolicy::Fifo(20));
        assert_eq!(why(within_the_limit, Errno::PERM, NOBODY, Some((0, 1_000_000))), no_budget);
    }

    #[test]
    fn other_requests_have_their_own_reasons() {
        let no_cpu = RefusalReason::CpuNotAllowed { allowed: "0-1".into() };
        assert_eq!(why(KernelRequest::Cpu(9), Errno::INVAL, ROOT, None), no_cpu);
        assert_eq!(
            why(KernelRequest::LockedMemory, Errno::PERM, NOBODY, None),
            RefusalReason::MemoryLimit { limit: 8 << 20 }
        );
        assert_eq!(why(KernelRequest::Policy(ThreadPolicy::Other), Errno::SRCH, ROOT, None), RefusalReason::Gone);
        let deadline = KernelRequest::Deadline(Bandwidth { runtime: 1, deadline: 2, period: 2, flags: 0 });
        assert_eq!(why(deadline, Errno::PERM, NOBODY, None), RefusalReason::NoCapability);
        assert_eq!(why(deadline, Errno::PERM, ROOT, None), RefusalReason::Forbidden);
    }

    #[test]
    fn every_reason_that_has_a_cure_names_a_command() {
        let reasons = [
            RefusalReason::NoPrivilege { rtprio: 0 },
            RefusalReason::NoCapability,
            no_group_budget(&group(None)),
            RefusalReason::Forbidden,
            RefusalReason::CpuNotAllowed { allowed: "0".into() },
            RefusalReason::MemoryLimit { limit: 65536 },
        ];
        for reason in reasons {
            let remedy = reason.remedy().unwrap();
            assert!(["sudo", "docker", "taskset"].iter().any(|command| remedy.contains(command)), "{remedy}");
        }
    }
}
