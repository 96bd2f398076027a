//! Whether a hypervisor stopped the CPU during a test.

/// Time for which a hypervisor stopped any CPU since the system started, in clock ticks (proc_stat(5)).
pub fn stolen() -> u64 {
    let all = std::fs::read_to_string("/proc/stat").expect("it is there on Linux");
    all.split_ascii_whitespace().nth(8).and_then(|steal| steal.parse().ok()).unwrap_or_default()
}
