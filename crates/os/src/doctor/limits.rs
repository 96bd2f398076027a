//! The share of a CPU for real-time threads, its limits, and the map of priorities.

use super::DoctorFinding;
use super::DoctorVerdict::{Degraded, Granted, Info, Refused};
use crate::cgroup::{CgroupVersion, CpuGroup};
use crate::priority::{ABOVE_LANES, LANES, WATCHDOG, WINDOWS};
use crate::refusal::no_group_budget;
use crate::throttle::{self, FifoLimit, LimitedBy};

const RESTORE: &str = "sudo sysctl -w kernel.sched_rt_period_us=1000000 kernel.sched_rt_runtime_us=950000";

pub(super) fn throttle() -> Option<DoctorFinding> {
    throttle::throttle().map(judge_throttle)
}

fn judge_throttle((runtime, period): (i64, i64)) -> DoctorFinding {
    let found = format!("{runtime} of {period} us");
    let finding = |verdict, consequence: &str| DoctorFinding::new("real-time throttling", verdict, found, consequence);
    match runtime {
        ..0 => {
            finding(Degraded, "off: only Hyoshi's own cap and watchdog stop a lane that never sleeps").remedy(RESTORE)
        }
        0 => finding(Refused, "no thread gets a real-time priority").remedy(RESTORE),
        _ if runtime.saturating_mul(100) < period.saturating_mul(95) => {
            finding(Degraded, "lanes are stopped for the rest of each period after they used this").remedy(RESTORE)
        }
        _ => finding(Granted, "lanes are capped below this, so the kernel never has to stop them"),
    }
}

pub(super) fn fair_server() -> Option<DoctorFinding> {
    let (topic, left) = ("fair server", throttle::fair_server());
    Some(match left {
        Some((left, period)) => {
            let found = format!("present, {} of {period} us for ordinary threads", period - left);
            DoctorFinding::new(
                topic,
                Info,
                found,
                "ordinary threads run for that long above busy lanes; the cap leaves room",
            )
        }
        None => DoctorFinding::new(topic, Info, "not seen", "real-time throttling alone keeps the machine usable"),
    })
}

pub(super) fn share() -> Option<DoctorFinding> {
    Some(judge_share(throttle::fifo_limit()))
}

fn judge_share(limit: FifoLimit) -> DoctorFinding {
    let share = format!("{}.{} %", limit.ppm / 10_000, limit.ppm / 1_000 % 10);
    let set_by = match limit.set_by {
        LimitedBy::Nothing => "unlimited",
        LimitedBy::Throttle => "by real-time throttling",
        LimitedBy::Group => "by the control group",
        LimitedBy::FairServer => "by the fair server",
    };
    let consequence = match limit.set_by {
        LimitedBy::Nothing => "of each CPU: the cap alone keeps the machine usable".to_owned(),
        _ => format!("of each CPU in each {}: the cap stays below it", limit.window),
    };
    DoctorFinding::new("share for lanes", Info, format!("{share}, {set_by}"), consequence)
}

pub(super) fn group() -> Option<DoctorFinding> {
    Some(judge_group(&CpuGroup::of_this_process()))
}

fn judge_group(group: &CpuGroup) -> DoctorFinding {
    let folder = group.folder.display();
    let finding =
        |verdict, found: String, consequence: &str| DoctorFinding::new("control group", verdict, found, consequence);
    match (group.version, group.rt_budget) {
        (None, _) => finding(Info, "none".to_owned(), "groups of programs cannot have reservations"),
        (Some(CgroupVersion::Two), _) => {
            finding(Info, format!("version 2, {folder}"), "real-time threads need no budget of the group")
        }
        (Some(CgroupVersion::One), None) => {
            finding(Info, format!("version 1, {folder}"), "the kernel has no real-time budgets for groups")
        }
        (Some(CgroupVersion::One), Some((runtime, period))) => {
            let found = format!("version 1, {folder}, real-time budget {runtime} of {period} us");
            if runtime == 0 {
                let reason = no_group_budget(group);
                return finding(Refused, found, "no thread of the group gets a real-time priority")
                    .remedy(reason.remedy().unwrap_or_default());
            }
            if runtime > 0 && runtime.saturating_mul(2) < period {
                let remedy = format!("echo 950000 | sudo tee {folder}/cpu.rt_runtime_us   (parents first)");
                return finding(Degraded, found, "all lanes together get at most this share of a CPU").remedy(remedy);
            }
            finding(Granted, found, "real-time threads run in this group; new groups below it start with a budget of 0")
        }
    }
}

pub(super) fn priorities() -> Option<DoctorFinding> {
    let band = |band: std::ops::RangeInclusive<u8>| format!("{}-{}", band.start(), band.end());
    let found = format!(
        "{WATCHDOG} watchdog, {} releases, feedback, transports and broker, {} lanes, {} broker's windows",
        band(ABOVE_LANES),
        band(LANES),
        band(WINDOWS)
    );
    let consequence = "programs above 79 delay lanes, those below 40 never do";
    Some(DoctorFinding::new("priority map", Info, found, consequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Span;

    #[test]
    fn throttling_is_judged_by_what_is_left_for_lanes() {
        let verdicts = [950_000, -1, 500_000, 0].map(|runtime| judge_throttle((runtime, 1_000_000)).verdict);
        assert_eq!(verdicts, [Granted, Degraded, Degraded, Refused]);
    }

    #[test]
    fn a_group_without_budget_is_a_refusal_that_names_its_file() {
        let group = |version, rt_budget| CpuGroup {
            version: Some(version),
            folder: "/cg/jobs".into(),
            top: "/cg".into(),
            rt_budget,
        };
        let without = judge_group(&group(CgroupVersion::One, Some((0, 1_000_000))));
        assert_eq!(without.verdict, Refused);
        assert!(without.remedy.unwrap().contains("/cg/jobs/cpu.rt_runtime_us"));
        assert_eq!(judge_group(&group(CgroupVersion::One, Some((200_000, 1_000_000)))).verdict, Degraded);
        assert_eq!(judge_group(&group(CgroupVersion::One, Some((950_000, 1_000_000)))).verdict, Granted);
        assert_eq!(judge_group(&group(CgroupVersion::Two, None)).verdict, Info);
    }

    #[test]
    fn a_share_prints_as_a_percentage() {
        let limit = FifoLimit { ppm: 955_500, window: Span::from_secs(1), set_by: LimitedBy::Throttle };
        assert_eq!(judge_share(limit).found, "95.5 %, by real-time throttling");
    }
}
