//! Twelve causes of lateness, as a run with context switches records them: the breakdown must name the right one. The
//! tests of `hyoshi-runtime` provoke those that can be provoked.

use hyoshi_model::*;
use hyoshi_replay::blame::{Rank, ResponseBreakdown, ResponsePart};
use hyoshi_trace::{CpuEvent, CpuUser, Wait};

use crate::scripts::{Script, culprit, us};

const FILE: &str = r#"name = "causes"
[processor.main]
strategy = "RMS"
cap = "100%"
hard_cap = "100%"
[resource.bus]
[operation.high]
every = "10ms"
phase = "PHASEus"
wcet = "2ms"
uses = { bus = "1ms" }
[operation.low]
every = "100ms"
wcet = "5ms"
uses = { bus = "1ms" }
[operation.after]
after = { all = ["low"] }
wcet = "1ms"
deadline = { end_to_end = "50ms" }
"#;

const HIGH: u32 = 0;
const LOW: u32 = 1;
const AFTER: u32 = 2;
const MATE: u32 = 3;

/// Other threads of the machine, by the numbers of their names.
const RUSTC: CpuUser = CpuUser::Other(7);
const FIFO: CpuUser = CpuUser::Other(8);

/// `high` is released first at `micros`, `low` at once.
fn high_at(micros: u64) -> Script {
    Script::new(&FILE.replace("PHASE", &micros.to_string()))
}

/// Only `low`, for the time of a script.
fn low() -> Script {
    high_at(99_000)
}

/// Checks the largest part that the job itself did not need: it is `kind`, with at least this length, and all other
/// parts have at most 100 us.
#[track_caller]
fn only(breakdown: &ResponseBreakdown, kind: ResponsePart, least: u64) {
    assert_eq!(breakdown.chief().map(|(kind, _)| kind), Some(kind), "{breakdown:?}");
    assert!(breakdown.total(|one| one == kind) >= us(least), "{breakdown:?}");
    let rest = breakdown.total(|one| one != kind && !one.is_own());
    assert!(rest <= us(100), "{rest} are blamed on others: {breakdown:?}");
}

/// `low` starts at once and blocks from 1 ms to 81 ms, while `meanwhile` has the CPU.
fn blocked(wait: Option<Wait>, meanwhile: CpuUser) -> ResponseBreakdown {
    let script = low().tick(20).begins(30, LOW);
    let script = match wait {
        Some(wait) => script.waits(1_000, wait, meanwhile),
        None => script.to(1_000, meanwhile),
    };
    script.back_to(81_000, LOW, true).ends(82_000, LOW, 1_960).breakdown(LOW)
}

#[test]
fn a_body_that_sleeps_is_not_the_fault_of_who_has_the_cpu_meanwhile() {
    for wait in [None, Some(Wait::Sleep), Some(Wait::Lock), Some(Wait::Page), Some(Wait::Io)] {
        for meanwhile in [RUSTC, CpuUser::Idle] {
            only(&blocked(wait, meanwhile), ResponsePart::Asleep(wait), 79_900);
        }
    }
}

#[test]
fn a_body_that_waits_for_an_undeclared_lock_is_not_preempted_by_its_holder() {
    let breakdown = high_at(480)
        .tick(20)
        .begins(30, LOW)
        .tick(500)
        .runs(500, HIGH)
        .back_to(501, HIGH, true)
        .waits(1_000, Wait::Lock, CpuUser::Lane(1))
        .back_to(3_000, HIGH, true)
        .ends(3_500, HIGH, 990)
        .breakdown(HIGH);
    assert_eq!(breakdown.total(|kind| kind == ResponsePart::Asleep(Some(Wait::Lock))), us(2_000), "{breakdown:?}");
    assert!(breakdown.total(|kind| matches!(kind, ResponsePart::Preempted { .. })) <= us(1), "{breakdown:?}");
}

#[test]
fn a_page_fault_and_a_read_after_it_are_distinguished() {
    let breakdown = low()
        .tick(20)
        .begins(30, LOW)
        .waits(1_000, Wait::Page, CpuUser::Idle)
        .back_to(3_000, LOW, false)
        .preempted_by(3_500, RUSTC)
        .back_to(4_000, LOW, false)
        .waits(5_000, Wait::Io, CpuUser::Idle)
        .back_to(9_000, LOW, false)
        .ends(10_000, LOW, 3_460)
        .breakdown(LOW);
    let parts = [ResponsePart::Asleep(Some(Wait::Page)), ResponsePart::Asleep(Some(Wait::Io)), ResponsePart::Other(7)];
    assert_eq!(
        parts.map(|part| breakdown.total(|kind| kind == part)),
        [us(2_000), us(4_000), us(500)],
        "{breakdown:?}"
    );
}

/// The thread decides to run the job while it has the CPU already, and blocks a moment later.
#[test]
fn a_body_that_blocks_at_once_is_not_taken_for_a_lane_that_changes_threads() {
    let script = |to: CpuUser| {
        low()
            .tick(20)
            .back_to(25, LOW, true)
            .runs(30, LOW)
            .waits(40, Wait::Lock, to)
            .back_to(8_040, LOW, true)
            .ends(9_000, LOW, 970)
            .breakdown(LOW)
    };
    only(&script(RUSTC), ResponsePart::Asleep(Some(Wait::Lock)), 7_900);
    // Another thread of the lane continues the job.
    assert_eq!(script(CpuUser::Lane(1)).total(|kind| matches!(kind, ResponsePart::Asleep(_))), Span::ZERO);
}

/// A less urgent thread would have been preempted at the wake-up, whenever that was.
#[test]
fn a_job_that_may_have_been_ready_below_a_more_urgent_thread_is_not_reported_as_sleeping() {
    let breakdown = high_at(4_980)
        .tick(20)
        .begins(30, LOW)
        .waits(1_000, Wait::Sleep, RUSTC)
        .preempted_by(3_000, FIFO)
        .tick(5_000)
        .back_to(8_000, LOW, false)
        .ends(9_000, LOW, 1_970)
        .breakdown(LOW);
    let parts = [ResponsePart::Asleep(Some(Wait::Sleep)), ResponsePart::Unexplained];
    assert_eq!(parts.map(|part| breakdown.total(|kind| kind == part)), [us(2_000), us(5_000)], "{breakdown:?}");
}

#[test]
fn io_that_a_kernel_thread_carries_out_is_a_block() {
    let breakdown = low()
        .tick(20)
        .begins(30, LOW)
        .waits(1_000, Wait::Io, CpuUser::Other(3))
        .to(1_200, CpuUser::Idle)
        .to(9_000, CpuUser::Other(3))
        .back_to(9_100, LOW, true)
        .ends(10_000, LOW, 1_860)
        .breakdown(LOW);
    only(&breakdown, ResponsePart::Asleep(Some(Wait::Io)), 8_000);
}

#[test]
fn who_waits_for_the_lane_of_a_body_that_blocks_waits_for_that_body() {
    let mate = "[operation.mate]\nevery = \"100ms\"\nphase = \"20us\"\nwcet = \"1ms\"\n";
    let breakdown = Script::new(&(FILE.replace("PHASE", "99000") + mate))
        .tick(10)
        .begins(20, LOW)
        .tick(40)
        .to(1_000, RUSTC)
        .back_to(9_000, LOW, true)
        .ends(10_000, LOW, 1_960)
        .runs(10_000, MATE)
        .ends(10_050, MATE, 50)
        .breakdown(MATE);
    only(&breakdown, ResponsePart::Waited { who: culprit(LOW), rank: Rank::Same }, 9_900);
}

#[test]
fn a_more_urgent_thread_of_the_machine_is_named() {
    let breakdown = low()
        .tick(20)
        .begins(30, LOW)
        .preempted_by(1_000, FIFO)
        .back_to(31_000, LOW, false)
        .ends(32_000, LOW, 1_960)
        .breakdown(LOW);
    only(&breakdown, ResponsePart::Other(8), 29_900);
}

#[test]
fn interrupts_are_their_thread_or_unexplained_but_no_overrun() {
    let thread = low()
        .tick(20)
        .begins(30, LOW)
        .preempted_by(1_000, CpuUser::Other(4))
        .back_to(9_000, LOW, false)
        .ends(10_000, LOW, 1_960)
        .breakdown(LOW);
    only(&thread, ResponsePart::Other(4), 7_900);
    // There is no switch in the interrupt itself: the thread's clock stops, if the kernel accounts for interrupts.
    let hard = low().tick(20).begins(30, LOW).ends(10_000, LOW, 1_960).breakdown(LOW);
    only(&hard, ResponsePart::Unexplained, 7_900);
}

#[test]
fn what_the_hypervisor_took_is_neither_scheduling_nor_an_overrun() {
    let running = low().tick(20).begins(30, LOW).stolen(9_000, 20_000).ends(10_000, LOW, 1_960).breakdown(LOW);
    only(&running, ResponsePart::Stolen, 7_900);
    // The hypervisor had the CPU during the release thread; the clock of that thread shows it.
    let releasing = low()
        .tick(20)
        .begins(30, LOW)
        .preempted_by(1_000, CpuUser::Release)
        .back_to(9_000, LOW, false)
        .seen(9_500, CpuEvent::Used { who: CpuUser::Release, span: us(30) })
        .stolen(9_500, 10_000)
        .ends(10_000, LOW, 1_960)
        .breakdown(LOW);
    only(&releasing, ResponsePart::Stolen, 7_900);
    // The hypervisor had the CPU when the timer was due.
    let late = low()
        .to(1, CpuUser::Idle)
        .to(8_000, CpuUser::Release)
        .tick(8_020)
        .begins(8_030, LOW)
        .stolen(9_000, 10_000)
        .ends(10_000, LOW, 1_960)
        .breakdown(LOW);
    only(&late, ResponsePart::Stolen, 7_900);
}

#[test]
fn an_overrun_is_the_jobs_own() {
    let breakdown = low().tick(20).begins(30, LOW).ends(30_000, LOW, 29_960).breakdown(LOW);
    only(&breakdown, ResponsePart::Overran, 24_900);
}

#[test]
fn a_late_release_is_due_to_who_kept_the_release_thread_from_the_cpu() {
    let late = |script: Script| {
        script.to(8_000, CpuUser::Release).tick(8_020).begins(8_030, LOW).ends(10_000, LOW, 1_960).breakdown(LOW)
    };
    only(&late(low().to(1, CpuUser::Idle)), ResponsePart::TimerLate, 7_900);
    only(&late(low().to(1, FIFO)), ResponsePart::Other(8), 7_900);
    // Our own release thread handled other releases.
    only(&late(low().to(1, CpuUser::Release)), ResponsePart::Overhead, 7_900);
    // A thread that the release thread preempts does not delay it.
    let ordinary = low()
        .to(1, RUSTC)
        .preempted_by(8_000, CpuUser::Release)
        .tick(8_020)
        .begins(8_030, LOW)
        .ends(10_000, LOW, 1_960)
        .breakdown(LOW);
    only(&ordinary, ResponsePart::TimerLate, 7_900);
}

#[test]
fn a_declared_resource_is_blamed_on_its_holder() {
    let breakdown = high_at(30)
        .tick(20)
        .begins(30, LOW)
        .acquires(40, LOW)
        .tick(50)
        .releases(5_000, LOW)
        .runs(5_010, HIGH)
        .back_to(5_011, HIGH, true)
        .ends(6_000, HIGH, 980)
        .breakdown(HIGH);
    only(&breakdown, ResponsePart::Resource { resource: ResourceId(0), by: Some(culprit(LOW)) }, 4_900);
}

#[test]
fn a_late_job_of_a_chain_is_late_for_what_led_to_it() {
    let breakdown = low()
        .tick(20)
        .begins(30, LOW)
        .to(1_000, RUSTC)
        .back_to(31_000, LOW, false)
        .ends(32_000, LOW, 1_960)
        .begins(32_010, AFTER)
        .ends(33_000, AFTER, 980)
        .breakdown(AFTER);
    only(&breakdown, ResponsePart::Upstream, 31_900);
}

/// A window of the cap has 100 ms: after `high` has used half of it, it gates non-critical work. `low` is released at
/// 60 ms.
fn capped() -> Script {
    let text = r#"name = "capped"
[processor.main]
strategy = "RMS"
cap = "50%"
cap_window = "100ms"
hard_cap = "100%"
[operation.high]
every = "150ms"
wcet = "2ms"
[operation.low]
every = "200ms"
phase = "60ms"
wcet = "5ms"
"#;
    Script::new(text).tick(20).begins(30, HIGH)
}

#[test]
fn what_the_cap_keeps_back_is_not_blamed_on_who_has_the_cpu() {
    for meanwhile in [CpuUser::Idle, RUSTC] {
        let breakdown = capped()
            .ends(51_000, HIGH, 50_970)
            .to(51_001, meanwhile)
            .tick(60_020)
            .tick(100_000)
            .begins(100_010, LOW)
            .ends(102_000, LOW, 1_980)
            .breakdown(LOW);
        only(&breakdown, ResponsePart::Cap { behind: None }, 39_900);
    }
    // A job that the cap pauses uses the rest of the CPU and delays no other job.
    let paused = capped()
        .tick(50_030)
        .tick(60_020)
        .ends(99_000, HIGH, 98_970)
        .to(99_001, CpuUser::Idle)
        .tick(100_000)
        .begins(100_010, LOW)
        .ends(101_000, LOW, 970)
        .breakdown(LOW);
    let kept = paused.total(|kind| kind == ResponsePart::Cap { behind: Some(culprit(HIGH)) });
    assert_eq!(kept, us(99_000 - 60_020), "{paused:?}");
}
