//! The abilities of the CPU broker on this machine.

use hyoshi_broker::machine::proxies;
use hyoshi_broker::platform::ProxyInfo;
use hyoshi_os::cgroup::{CgroupVersion, CpuGroup};
use hyoshi_os::doctor::{DoctorFinding, DoctorVerdict};
use hyoshi_os::meter::{Meter, MeterSource};
use hyoshi_os::process::Process;

/// The abilities of the CPU broker here.
pub(super) fn finding() -> DoctorFinding {
    let mut meter = Meter::new();
    if let Ok(own) = Process::open(std::process::id()) {
        meter.add(&own, false);
    }
    judge(&proxies(), meter.source(), CpuGroup::of_this_process().version)
}

fn judge(proxies: &[ProxyInfo], meter: MeterSource, groups: Option<CgroupVersion>) -> DoctorFinding {
    // Proxies that reserve nothing are always usable.
    let reserves = |proxy: &&ProxyInfo| proxy.usable && !["none", "simulated"].contains(&proxy.name);
    let usable: Vec<_> = proxies.iter().filter(reserves).map(|proxy| proxy.name).collect();
    let usable = if usable.is_empty() { "no way to reserve CPU time".to_owned() } else { usable.join(", ") };
    let meter = match meter {
        MeterSource::TaskClock => "metered by the task clock",
        MeterSource::CpuClock => "metered by CPU clocks, a tick behind",
    };
    let groups = match groups {
        Some(CgroupVersion::One) => "control groups version 1",
        Some(CgroupVersion::Two) => "control groups version 2",
        None => "no control groups",
    };
    let found = format!("{usable}; {meter}; {groups}");
    let finding =
        |verdict, consequence, remedy| DoctorFinding { topic: "CPU broker", found, verdict, consequence, remedy };
    let window = proxies.iter().find(|proxy| proxy.name == "window");
    match proxies.iter().find(|proxy| proxy.used) {
        Some(used) if used.name == "window" => {
            finding(DoctorVerdict::Granted, format!("`hyoshi broker` uses {}: {}", used.name, used.reason), None)
        }
        used => {
            let used =
                used.map_or_else(String::new, |used| format!("`hyoshi broker` uses {}: {}; ", used.name, used.reason));
            let why = window.map_or("", |window| window.reason.as_str());
            let remedy = "run `hyoshi broker` as root, or raise RLIMIT_RTPRIO to 39 for its user".to_owned();
            finding(DoctorVerdict::Degraded, format!("{used}windows are not available: {why}"), Some(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abilities_of_the_broker_and_their_limits_are_listed() {
        let proxy = |name, usable, used| ProxyInfo { name, usable, used, reason: format!("why {name}") };
        let all = [proxy("window", true, true), proxy("weights", true, false), proxy("none", true, false)];
        let finding = judge(&all, MeterSource::TaskClock, Some(CgroupVersion::Two));
        assert_eq!(finding.found, "window, weights; metered by the task clock; control groups version 2");
        assert_eq!((finding.verdict, finding.remedy), (DoctorVerdict::Granted, None));
        let some = [proxy("window", false, false), proxy("weights", false, false), proxy("none", true, true)];
        let finding = judge(&some, MeterSource::CpuClock, None);
        assert_eq!(
            finding.found,
            "no way to reserve CPU time; metered by CPU clocks, a tick behind; no control groups"
        );
        assert_eq!(finding.consequence, "`hyoshi broker` uses none: why none; windows are not available: why window");
        assert!(finding.verdict == DoctorVerdict::Degraded && finding.remedy.is_some());
    }
}
