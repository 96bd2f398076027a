//! The CPUs that this process may use, and Linux's syntax of CPU lists.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The CPUs that the calling thread may use (sched_getaffinity(2)): those that `taskset`, a container or a cpuset
/// leaves.
pub fn allowed_cpus() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// A list such as `0-3,8,10-11`, the form of cpuset(7) and of /sys/devices/system/cpu; `None`
/// for anything else. An empty list is a list.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = CpuSet::MAX_CPU as u32;
    let mut cpus = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The shortest list of CPUs: `0-3,8`.
pub fn cpu_list(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|one, next| one.saturating_add(1) == *next);
    let ranges = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_read_as_the_kernel_writes_them_and_print_the_same() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        for bad in ["3-1", "x", "0-", "-1", "0-99999999", "99999999999"] {
            assert_eq!(parse_cpu_list(bad), None, "{bad}");
        }
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(cpu_list(&[]), "");
    }

    #[test]
    fn the_cpus_of_a_thread_are_those_that_the_kernel_lists() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let listed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let all = allowed_cpus();
        assert_eq!(Some(&all), parse_cpu_list(listed).as_ref());
        let last = *all.last().unwrap();
        let pinned = crate::Spawn::new("pinned").cpu(last).spawn(allowed_cpus).unwrap().join().unwrap();
        assert_eq!(pinned, [last]);
    }
}
