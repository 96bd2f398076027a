//! Measures a lane's wake-up latency: how late a thread wakes up from a sleep of 1 ms.

use hyoshi_model::Span;

use super::DoctorFinding;
use super::DoctorVerdict::{Degraded, Granted};
use crate::clock::{Clock, MonotonicClock};
use crate::idle::{AwakeCpus, CPU_DMA_LATENCY};
use crate::priority::lane_priority;
use crate::thread::{Spawn, ThreadPolicy};

const WAKES: u64 = 200;
const BETWEEN: Span = Span::from_millis(1);
/// Measured: 21 to 37 us under load with real-time priority, 100 us at normal priority.
const GOOD: Span = Span::from_micros(200);

/// At the priority of the most urgent lane, or the granted one, on any CPU.
pub(super) fn wake_up() -> Option<DoctorFinding> {
    let policy = ThreadPolicy::Fifo(lane_priority(0));
    let thread = Spawn::new("doctor").policy(policy).spawn(|| {
        let clock = MonotonicClock::start();
        let late = |number: u64| {
            let at = hyoshi_model::Instant::ZERO + BETWEEN * (number + 1);
            clock.sleep_until(at);
            clock.now().since(at)
        };
        (0..WAKES).map(late).collect::<Vec<_>>()
    });
    let thread = thread.ok()?;
    let granted = thread.granted.policy;
    Some(judge_wake_up(thread.join().ok()?, granted))
}

/// Whether a run may keep CPUs from deep sleep.
pub(super) fn idle_states() -> Option<DoctorFinding> {
    Some(judge_idle_states(AwakeCpus::hold().map(drop)))
}

fn judge_idle_states(held: std::io::Result<()>) -> DoctorFinding {
    let topic = "idle states";
    match held {
        Ok(()) => DoctorFinding::new(
            topic,
            Granted,
            format!("{CPU_DMA_LATENCY} can be held"),
            "CPUs do not sleep deeply while critical operations run, and wake up sooner",
        ),
        Err(error) => {
            let found = format!("{CPU_DMA_LATENCY} cannot be held: {error}");
            let consequence = "a CPU in deep sleep wakes up late, by tens of microseconds on most machines";
            let finding = DoctorFinding::new(topic, Degraded, found, consequence);
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    finding.remedy(format!("sudo setfacl -m u:\"$USER\":w {CPU_DMA_LATENCY}"))
                }
                _ => finding.remedy("this kernel or container has no such file: set idle states on the host"),
            }
        }
    }
}

fn judge_wake_up(mut late: Vec<Span>, policy: ThreadPolicy) -> DoctorFinding {
    late.sort_unstable();
    let at = |percent: usize| micros(late[(late.len() - 1) * percent / 100]);
    let found = format!("median {}, p99 {}, worst of {} {}, at {policy}", at(50), at(99), late.len(), at(100));
    if late[(late.len() - 1) * 99 / 100] <= GOOD {
        return DoctorFinding::new("wake-up", Granted, found, "how late a job starts on this machine now");
    }
    let consequence = "jobs start this late on this machine now: leave room in deadlines";
    let remedy = match policy {
        ThreadPolicy::Fifo(_) => "see preemption, machine and frequency above; try again on an idle machine",
        ThreadPolicy::Other | ThreadPolicy::Idle => {
            "see CAP_SYS_NICE above: at a real-time priority wake-ups are more punctual"
        }
    };
    DoctorFinding::new("wake-up", Degraded, found, consequence).remedy(remedy)
}

/// To a tenth of a microsecond.
fn micros(span: Span) -> String {
    format!("{}.{} us", span.as_nanos() / 1_000, span.as_nanos() % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_states_that_cannot_be_forbidden_have_a_remedy() {
        assert_eq!(judge_idle_states(Ok(())).verdict, Granted);
        for kind in [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::NotFound] {
            let finding = judge_idle_states(Err(kind.into()));
            assert!(finding.verdict == Degraded && finding.remedy.is_some());
        }
    }

    #[test]
    fn punctual_wake_ups_are_granted_and_late_ones_have_a_reason() {
        let late = |micros: u64| (0..100).map(|n| Span::from_micros(micros * n / 100)).collect::<Vec<_>>();
        let good = judge_wake_up(late(50), ThreadPolicy::Fifo(79));
        assert_eq!(
            (good.verdict, good.found.as_str()),
            (Granted, "median 24.0 us, p99 49.0 us, worst of 100 49.0 us, at SCHED_FIFO 79")
        );
        let bad = judge_wake_up(late(5_000), ThreadPolicy::Other);
        assert!(bad.verdict == Degraded && bad.remedy.unwrap().contains("CAP_SYS_NICE"));
    }
}
