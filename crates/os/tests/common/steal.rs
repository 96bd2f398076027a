//! Whether something else than threads took CPU time during a test.

/// The time that interrupts and a hypervisor took since the system started, and that CPUs waited for disks, in clock ticks
/// (proc_stat(5)).
pub fn interruptions() -> u64 {
    let all = std::fs::read_to_string("/proc/stat").expect("it is there on Linux");
    let ticks = all.split_ascii_whitespace().skip(5).take(4);
    ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
