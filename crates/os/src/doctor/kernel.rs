//! The kernel: release, preemption, tick, clock.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use hyoshi_model::Span;
use rustix::time::{ClockId, clock_getres};

use super::DoctorVerdict::{Degraded, Granted, Info};
use super::{DoctorFinding, read};
use crate::clock::{Clock, MonotonicClock, span_of};

pub(super) fn release() -> Option<DoctorFinding> {
    let release = read("/proc/sys/kernel/osrelease")?;
    Some(DoctorFinding::new("kernel", Info, release, "each feature is probed; the version is not used"))
}

/// Where in the kernel a more urgent thread may preempt another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelPreemption {
    RealTime,
    Full,
    Lazy,
    Voluntary,
    None,
}

pub(super) fn preemption() -> Option<DoctorFinding> {
    let model = if read("/sys/kernel/realtime").as_deref() == Some("1") {
        Some(KernelPreemption::RealTime)
    } else {
        let chosen = read("/sys/kernel/debug/sched/preempt").and_then(|text| chosen_now(&text));
        chosen.or_else(|| chosen_at_boot(&read("/proc/cmdline")?)).or_else(|| built_in(&config()?))
    };
    Some(judge_preemption(model))
}

/// `none voluntary (full) lazy`.
fn chosen_now(text: &str) -> Option<KernelPreemption> {
    named(text.split_once('(')?.1.split_once(')')?.0)
}

/// `preempt=full`; if it is repeated the last one counts.
fn chosen_at_boot(command_line: &str) -> Option<KernelPreemption> {
    command_line.split_whitespace().filter_map(|word| named(word.strip_prefix("preempt=")?)).next_back()
}

fn named(name: &str) -> Option<KernelPreemption> {
    match name {
        "full" => Some(KernelPreemption::Full),
        "lazy" => Some(KernelPreemption::Lazy),
        "voluntary" => Some(KernelPreemption::Voluntary),
        "none" => Some(KernelPreemption::None),
        _ => None,
    }
}

fn built_in(config: &str) -> Option<KernelPreemption> {
    let set = |option: &str| config.lines().any(|line| line.strip_suffix("=y") == Some(option));
    [
        ("CONFIG_PREEMPT_RT", KernelPreemption::RealTime),
        ("CONFIG_PREEMPT_LAZY", KernelPreemption::Lazy),
        ("CONFIG_PREEMPT", KernelPreemption::Full),
        ("CONFIG_PREEMPT_VOLUNTARY", KernelPreemption::Voluntary),
        ("CONFIG_PREEMPT_NONE", KernelPreemption::None),
    ]
    .into_iter()
    .find_map(|(option, model)| set(option).then_some(model))
}

/// The kernel's configuration, from its own file or the distribution's.
fn config() -> Option<String> {
    let mut text = String::new();
    if let Ok(file) = File::open("/proc/config.gz") {
        GzDecoder::new(file).read_to_string(&mut text).ok()?;
        return Some(text);
    }
    let release = read("/proc/sys/kernel/osrelease")?;
    read(&format!("/boot/config-{release}")).or_else(|| read(&format!("/lib/modules/{release}/config")))
}

fn judge_preemption(model: Option<KernelPreemption>) -> DoctorFinding {
    const FULL: &str =
        "add preempt=full to the kernel's command line (PREEMPT_DYNAMIC), or install a PREEMPT_RT kernel";
    let finding =
        |verdict, found: &str, consequence: &str| DoctorFinding::new("preemption", verdict, found, consequence);
    match model {
        Some(KernelPreemption::RealTime) => {
            finding(Granted, "PREEMPT_RT", "a lane waits for the kernel for microseconds only")
        }
        Some(KernelPreemption::Full) => {
            finding(Granted, "full", "a lane waits for the kernel's short critical sections only")
        }
        Some(KernelPreemption::Lazy) => {
            finding(Granted, "lazy", "real-time threads preempt the kernel as with full; ordinary ones less")
        }
        Some(KernelPreemption::Voluntary) => {
            finding(Degraded, "voluntary", "a long system call of another program may delay a lane by milliseconds")
                .remedy(FULL)
        }
        Some(KernelPreemption::None) => {
            finding(Degraded, "none", "a long system call of another program delays a lane until it ends").remedy(FULL)
        }
        None => finding(Info, "unknown", "see the measured wake-ups below")
            .remedy("to see it: sudo mount -t debugfs none /sys/kernel/debug, and look as root"),
    }
}

pub(super) fn tick() -> Option<DoctorFinding> {
    Some(judge_tick(span_of(clock_getres(ClockId::MonotonicCoarse))))
}

/// The coarse clock advances with the tick, so its resolution is the tick, whatever the kernel's configuration.
fn judge_tick(tick: Span) -> DoctorFinding {
    let hertz = 1_000_000_000 / tick.as_nanos().max(1);
    let found = format!("{tick}, {hertz} Hz");
    let consequence = "CPU time of threads on other CPUs, and budgets of SCHED_DEADLINE, have this precision";
    DoctorFinding::new("tick", Info, found, consequence)
}

pub(super) fn clock_source() -> Option<DoctorFinding> {
    const READINGS: u64 = 2_000;
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = MonotonicClock::start();
    let start = clock.now();
    let end = (0..READINGS).fold(start, |_, _| clock.now());
    Some(judge_clock_source(source.as_deref().unwrap_or("unknown"), end.since(start).as_nanos() / READINGS))
}

/// By cost, because names differ between architectures: in user space a reading costs some 25 ns, through the kernel
/// several hundred, from a device more than a microsecond.
fn judge_clock_source(source: &str, nanos: u64) -> DoctorFinding {
    let found = format!("{source}, {nanos} ns a reading");
    if nanos <= 250 {
        return DoctorFinding::new("clock source", Granted, found, "the clock is read in user space");
    }
    let consequence = "the clock is read through the kernel or from a device: every job's stamps have this cost";
    let remedy = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource; \
                  if the kernel has marked it unstable (dmesg | grep -i tsc), boot with tsc=reliable";
    DoctorFinding::new("clock source", Degraded, found, consequence).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_is_read_from_every_source() {
        assert_eq!(chosen_now("none voluntary (full) lazy"), Some(KernelPreemption::Full));
        assert_eq!(chosen_now("(none) voluntary full"), Some(KernelPreemption::None));
        assert_eq!(chosen_now("none voluntary full"), None);
        assert_eq!(chosen_at_boot("quiet preempt=none panic=1 preempt=voluntary"), Some(KernelPreemption::Voluntary));
        assert_eq!(chosen_at_boot("preempt=x"), None);
        let debian = "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_PREEMPT_DYNAMIC=y\n";
        assert_eq!(built_in(debian), Some(KernelPreemption::Voluntary));
        assert_eq!(built_in("CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT=y\n"), Some(KernelPreemption::RealTime));
        assert_eq!(built_in("CONFIG_PREEMPT_RCU=y\n"), None);
    }

    #[test]
    fn a_kernel_that_cannot_be_interrupted_has_a_remedy() {
        assert!(judge_preemption(Some(KernelPreemption::None)).remedy.unwrap().contains("preempt=full"));
        assert_eq!(judge_preemption(Some(KernelPreemption::RealTime)).remedy, None);
    }

    #[test]
    fn a_tick_of_4_ms_is_250_hertz() {
        assert_eq!(judge_tick(Span::from_millis(4)).found, "4ms, 250 Hz");
    }

    #[test]
    fn a_clock_is_judged_by_what_it_costs() {
        assert_eq!(judge_clock_source("arch_sys_counter", 40).verdict, Granted);
        assert_eq!(judge_clock_source("hpet", 1_400).verdict, Degraded);
    }
}
