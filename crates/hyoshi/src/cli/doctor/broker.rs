//! The abilities of the CPU broker on this machine.

use hyoshi_broker::kernel::Way;
use hyoshi_broker::machine::ways;
use hyoshi_os::cgroup::{CpuGroup, Version};
use hyoshi_os::doctor::{Finding, Verdict};
use hyoshi_os::meter::{Meter, Source};
use hyoshi_os::process::Process;

/// The abilities of the CPU broker here.
pub(super) fn finding() -> Finding {
    let mut meter = Meter::new();
    if let Ok(own) = Process::open(std::process::id()) {
        meter.add(&own, false);
    }
    judge(&ways(), meter.source(), CpuGroup::of_this_process().version)
}

fn judge(ways: &[Way], meter: Source, groups: Option<Version>) -> Finding {
    // Proxies that reserve nothing are always usable.
    let reserves = |way: &&Way| way.usable && !["none", "simulated"].contains(&way.name);
    let usable: Vec<_> = ways.iter().filter(reserves).map(|way| way.name).collect();
    let usable = if usable.is_empty() { "no way to reserve CPU time".to_owned() } else { usable.join(", ") };
    let meter = match meter {
        Source::TaskClock => "metered by the task clock",
        Source::CpuClock => "metered by CPU clocks, a tick behind",
    };
    let groups = match groups {
        Some(Version::One) => "control groups version 1",
        Some(Version::Two) => "control groups version 2",
        None => "no control groups",
    };
    let found = format!("{usable}; {meter}; {groups}");
    let finding = |verdict, consequence, remedy| Finding { topic: "CPU broker", found, verdict, consequence, remedy };
    let window = ways.iter().find(|way| way.name == "window");
    match ways.iter().find(|way| way.used) {
        Some(used) if used.name == "window" => {
            finding(Verdict::Granted, format!("`hyoshi broker` uses {}: {}", used.name, used.why), None)
        }
        used => {
            let used =
                used.map_or_else(String::new, |used| format!("`hyoshi broker` uses {}: {}; ", used.name, used.why));
            let why = window.map_or("", |window| window.why.as_str());
            let remedy = "run `hyoshi broker` as root, or raise RLIMIT_RTPRIO to 39 for its user".to_owned();
            finding(Verdict::Degraded, format!("{used}windows are not available: {why}"), Some(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abilities_of_the_broker_and_their_limits_are_listed() {
        let way = |name, usable, used| Way { name, usable, used, why: format!("why {name}") };
        let all = [way("window", true, true), way("weights", true, false), way("none", true, false)];
        let finding = judge(&all, Source::TaskClock, Some(Version::Two));
        assert_eq!(finding.found, "window, weights; metered by the task clock; control groups version 2");
        assert_eq!((finding.verdict, finding.remedy), (Verdict::Granted, None));
        let some = [way("window", false, false), way("weights", false, false), way("none", true, true)];
        let finding = judge(&some, Source::CpuClock, None);
        assert_eq!(
            finding.found,
            "no way to reserve CPU time; metered by CPU clocks, a tick behind; no control groups"
        );
        assert_eq!(finding.consequence, "`hyoshi broker` uses none: why none; windows are not available: why window");
        assert!(finding.verdict == Verdict::Degraded && finding.remedy.is_some());
    }
}
