//! The CPUs: their number, who shares them, their frequency, and whether they are virtual.

use super::DoctorVerdict::{Degraded, Granted, Info};
use super::{DoctorFinding, read};
use crate::cpu::{allowed_cpus, cpu_list, parse_cpu_list};

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn count() -> Option<DoctorFinding> {
    Some(judge_count(&read(&format!("{CPUS}/online")).unwrap_or_default(), &allowed_cpus()))
}

fn judge_count(online: &str, allowed: &[u32]) -> DoctorFinding {
    let found = format!("{online} online, {} allowed for this process", cpu_list(allowed));
    let finding = |verdict, consequence: &str| DoctorFinding::new("CPUs", verdict, found, consequence);
    match allowed {
        [] | [_] => finding(Degraded, "all threads share one CPU with the lanes, also the display of a run")
            .remedy("assign two CPUs to the virtual machine or container (docker run --cpuset-cpus 0-1 ...)"),
        _ if parse_cpu_list(online).is_some_and(|online| online.len() > allowed.len()) => {
            finding(Info, "only this process's CPUs can run processors of a file")
        }
        _ => finding(Granted, "all CPUs can run processors of a file"),
    }
}

pub(super) fn isolation() -> Option<DoctorFinding> {
    let list = |name| read(&format!("{CPUS}/{name}")).unwrap_or_default();
    Some(judge_isolation(&list("isolated"), &list("nohz_full"), &allowed_cpus()))
}

fn judge_isolation(isolated: &str, nohz_full: &str, allowed: &[u32]) -> DoctorFinding {
    // Kernels without the feature have no such file, those without a setting write "(null)".
    let set = |list: &str| parse_cpu_list(list).is_some_and(|cpus| !cpus.is_empty());
    let word = |list: &str| if set(list) { list.trim().to_owned() } else { "none".to_owned() };
    let found = format!("isolated {}, without tick {}", word(isolated), word(nohz_full));
    let finding = |verdict, consequence| DoctorFinding::new("isolation", verdict, found, consequence);
    if set(isolated) {
        return finding(Granted, "put processors on isolated CPUs: the kernel places no other program there");
    }
    let finding = finding(Info, "other programs and kernel threads share the CPUs of lanes, below them");
    match allowed {
        [.., last] if allowed.len() > 1 => finding.remedy(format!(
            "to save the last microseconds, add to the kernel's command line: isolcpus=managed_irq,domain,{last} \
                nohz_full={last} rcu_nocbs={last} irqaffinity=0"
        )),
        _ => finding,
    }
}

pub(super) fn siblings() -> Option<DoctorFinding> {
    let allowed = allowed_cpus();
    let of = |cpu| parse_cpu_list(&read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"))?);
    let groups: Vec<_> = allowed.iter().filter_map(|cpu| of(*cpu)).collect();
    Some(judge_siblings(&groups, &allowed))
}

fn judge_siblings(groups: &[Vec<u32>], allowed: &[u32]) -> DoctorFinding {
    let ours = |group: &&Vec<u32>| group.iter().filter(|cpu| allowed.contains(cpu)).count() > 1;
    let mut shared: Vec<String> = groups.iter().filter(ours).map(|group| cpu_list(group)).collect();
    shared.sort();
    shared.dedup();
    if shared.is_empty() {
        return DoctorFinding::new(
            "hyper-threading",
            Granted,
            "no siblings among our CPUs",
            "a CPU is a core of its own",
        );
    }
    let found = format!("siblings {}", shared.join(" and "));
    let consequence = "a job needs up to twice the time while the sibling is busy: declared worst cases may not hold";
    DoctorFinding::new("hyper-threading", Degraded, found, consequence)
        .remedy("echo off | sudo tee /sys/devices/system/cpu/smt/control, or leave one CPU of each pair idle")
}

pub(super) fn governor() -> Option<DoctorFinding> {
    let of = |cpu| read(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"));
    Some(judge_governor(&allowed_cpus().into_iter().filter_map(of).collect::<Vec<_>>()))
}

fn judge_governor(governors: &[String]) -> DoctorFinding {
    let mut names = governors.to_vec();
    names.sort();
    names.dedup();
    let finding = |verdict, found: &str, consequence| DoctorFinding::new("frequency", verdict, found, consequence);
    match names.as_slice() {
        [] => {
            finding(Info, "not controlled by this kernel", "the hypervisor or the firmware sets the frequency of a CPU")
        }
        [only] if only == "performance" => finding(Granted, "performance", "CPUs keep their highest frequency"),
        _ => finding(
            Degraded,
            &names.join(", "),
            "a job after an idle time runs slower: calibrated work needs more time",
        )
        .remedy("sudo cpupower frequency-set -g performance"),
    }
}

pub(super) fn machine() -> Option<DoctorFinding> {
    Some(judge_machine(&read("/proc/cpuinfo")?, &read("/proc/stat")?, read("/sys/hypervisor/type").is_some()))
}

fn judge_machine(cpuinfo: &str, stat: &str, xen: bool) -> DoctorFinding {
    let counters =
        |line: &str| -> Vec<u64> { line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect() };
    let counters = stat.lines().next().map(counters).unwrap_or_default();
    // The first eight are all of the time; guests' time, the rest, is included in the first two.
    let (total, stolen): (u64, u64) = (counters.iter().take(8).sum(), counters.get(7).copied().unwrap_or(0));
    let mut flags = cpuinfo.lines().filter_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let flagged = flags.next().is_some_and(|(_, flags)| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if !flagged && !xen && stolen == 0 {
        return DoctorFinding::new("machine", Granted, "no sign of a hypervisor", "no hypervisor steals CPU time");
    }
    let per_mille = stolen.saturating_mul(1_000) / total.max(1);
    let found = format!("virtual, {}.{} % of its time stolen so far", per_mille / 10, per_mille % 10);
    let consequence =
        "the hypervisor may use a CPU for milliseconds: no worst case can be promised; reports show stolen time";
    DoctorFinding::new("machine", Degraded, found, consequence).remedy(
        "for hard deadlines run on the bare machine, or let the hypervisor pin each virtual CPU to its own core",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_degraded_and_a_part_of_them_is_reported() {
        assert_eq!(judge_count("0-3", &[0, 1, 2, 3]).verdict, Granted);
        assert_eq!(judge_count("0-3", &[2, 3]).found, "0-3 online, 2-3 allowed for this process");
        assert_eq!(judge_count("0-3", &[2, 3]).verdict, Info);
        assert_eq!(judge_count("0", &[0]).verdict, Degraded);
    }

    #[test]
    fn isolation_is_read_in_all_the_ways_kernels_write_nothing() {
        assert_eq!(judge_isolation("2-3", "2-3", &[0, 1, 2, 3]).found, "isolated 2-3, without tick 2-3");
        let none = judge_isolation("", "(null)", &[0, 1]);
        assert_eq!(none.found, "isolated none, without tick none");
        assert!(none.remedy.unwrap().contains("isolcpus=managed_irq,domain,1"));
    }

    #[test]
    fn siblings_count_when_both_are_ours() {
        let groups = [vec![0, 4], vec![1, 5], vec![0, 4]];
        assert_eq!(judge_siblings(&groups, &[0, 1, 4]).found, "siblings 0,4");
        assert_eq!(judge_siblings(&groups, &[0, 1]).verdict, Granted);
    }

    #[test]
    fn any_governor_but_performance_is_named() {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(judge_governor(&names(&["performance", "performance"])).verdict, Granted);
        assert_eq!(judge_governor(&names(&["schedutil", "performance"])).found, "performance, schedutil");
        assert_eq!(judge_governor(&[]).verdict, Info);
    }

    #[test]
    fn a_virtual_machine_is_known_by_its_flag_or_by_what_was_stolen() {
        let bare = judge_machine("processor: 0\nflags\t\t: fpu sse\n", "cpu  10 0 10 80 0 0 0 0 0 0\n", false);
        assert_eq!(bare.verdict, Granted);
        let flagged = judge_machine("flags\t\t: fpu hypervisor sse\n", "cpu  10 0 10 70 0 0 0 10 5 0\n", false);
        assert_eq!(flagged.found, "virtual, 10.0 % of its time stolen so far");
        assert_eq!(judge_machine("", "cpu  1 1 1 1 1 1 1 1 0 0\n", false).verdict, Degraded);
        assert_eq!(judge_machine("", "", true).verdict, Degraded);
    }
}
