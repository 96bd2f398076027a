//! Real-time threads of other programs, and their CPUs.

use std::fs;

use crate::proc::Stat;

/// A thread of a user's program that runs at SCHED_FIFO or SCHED_RR and on one CPU only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealTimeThread {
    /// Its process.
    pub pid: u32,
    /// The thread's name.
    pub name: String,
    /// Its only CPU.
    pub cpu: u32,
    /// Its priority, from 1 to 99.
    pub priority: u8,
}

/// `PF_KTHREAD` of include/linux/sched.h: interrupt threads of the kernel are at priority 50.
const KERNEL: u64 = 0x0020_0000;

/// All threads but this process's own that are pinned to one CPU at a real-time priority in `priorities`, of all users.
/// Processes of another namespace, or that end meanwhile, are omitted. About 10 us for each thread.
pub fn real_time_threads(priorities: std::ops::RangeInclusive<u8>) -> Vec<RealTimeThread> {
    let mut found = Vec::new();
    let own = std::process::id();
    for pid in numbers("/proc").filter(|pid| *pid != own) {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            let folder = format!("/proc/{pid}/task/{tid}");
            let Ok(Some(stat)) = Stat::read(&folder) else { continue };
            let real_time = stat.real_time.filter(|priority| priorities.contains(priority));
            let Some(priority) = real_time.filter(|_| stat.flags & KERNEL == 0 && !stat.has_ended()) else { continue };
            if let Some(cpu) = only_cpu(&fs::read_to_string(format!("{folder}/status")).unwrap_or_default()) {
                found.push(RealTimeThread { pid, name: stat.name, cpu, priority });
            }
        }
    }
    found
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The CPU of a thread that may use only one (proc_pid_status(5)).
fn only_cpu(status: &str) -> Option<u32> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    allowed.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_one_cpu_is_distinguished_from_those_of_several() {
        let status = |list: &str| format!("Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\n");
        assert_eq!(only_cpu(&status("3")), Some(3));
        assert_eq!(only_cpu(&status("0-1")), None);
        assert_eq!(only_cpu(&status("0,2")), None);
        assert_eq!(only_cpu(""), None);
    }

    #[test]
    fn this_process_is_left_out() {
        assert!(real_time_threads(1..=99).iter().all(|thread| thread.pid != std::process::id()));
    }
}
