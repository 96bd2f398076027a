//! Twelve causes of lateness, as a run with the kernel's switches records them: the law must name the right one. Those that
//! can be provoked are provoked in the tests of `hyoshi-runtime`.

use crate::scripts;

use hyoshi_model::*;
use hyoshi_trace::blame::{Account, Kind, Rank};
use hyoshi_trace::{Decision, Event, Input, Seen, Slot, Wait, Who};
use scripts::{accounts, complete, culprit, end, ended, job, ready, run, switch, us};

const FILE: &str = r#"name = "causes"
[processor.main]
strategy = "RMS"
cap = "50%"
[resource.bus]
[operation.high]
every = "10ms"
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

/// Other threads of the machine, by the numbers of their names.
const RUSTC: Who = Who::Other(7);
const FIFO: Who = Who::Other(8);

/// A recording, instant by instant.
#[derive(Default)]
struct Script(Vec<(u64, Event)>);

impl Script {
    fn then(mut self, micros: u64, event: Event) -> Self {
        self.0.push((micros, event));
        self
    }

    /// The operation's job is released at 0 and queued at `micros`.
    fn ready(self, micros: u64, operation: u32) -> Self {
        self.then(micros, scripts::ready(job(operation), operation as u8))
    }

    /// It begins, and its thread comes to the CPU.
    fn begins(self, micros: u64, operation: u32) -> Self {
        self.then(micros, run(operation)).to(micros + 1, Who::Lane(operation as u8))
    }

    /// The CPU goes to `who`; whoever had it gave it up.
    fn to(self, micros: u64, who: Who) -> Self {
        self.then(micros, switch(who))
    }

    /// The same; whoever had it is going to wait for this.
    fn waits(self, micros: u64, wait: Wait, who: Who) -> Self {
        self.then(micros, Event::Seen(Seen::Waits(wait))).to(micros, who)
    }

    /// The CPU goes to `who`; whoever had it could have gone on.
    fn preempted_by(self, micros: u64, who: Who) -> Self {
        self.then(micros, Event::Seen(Seen::Switch { to: who, preempted: true }))
    }

    fn stolen(self, micros: u64, span: u64) -> Self {
        self.then(micros, Event::Seen(Seen::Stolen { span: us(span) }))
    }

    fn acquires(self, micros: u64, operation: u32) -> Self {
        self.then(micros, Event::Input(Input::Acquire { slot: Slot(operation), resource: ResourceId(0) }))
    }

    fn releases(self, micros: u64, operation: u32) -> Self {
        self.then(micros, Event::Input(Input::Release { slot: Slot(operation), resource: ResourceId(0) }))
    }

    /// The job was queued at `ready`, began at `start`, ends now and consumed so much.
    fn ends(self, micros: u64, operation: u32, times: (u64, u64), consumed: u64) -> Self {
        self.then(micros, complete(operation, consumed)).then(micros, end(operation, times, micros, consumed))
    }

    fn account(self, operation: u32) -> Account {
        self.account_of(job(operation))
    }

    fn account_of(self, job: JobId) -> Account {
        let system = read(FILE, "causes.toml", None).unwrap().system;
        let mut accounts = accounts(&system, &self.0).into_iter();
        accounts.find(|account| account.end.job == job).unwrap()
    }
}

/// The most of what the job did not need itself, which is `kind`, at least so long; nobody else has more than 100 us.
#[track_caller]
fn only(account: &Account, kind: Kind, least: u64) {
    assert_eq!(account.chief().map(|(kind, _)| kind), Some(kind), "{account:?}");
    assert!(account.total(|one| one == kind) >= us(least), "{account:?}");
    let rest = account.total(|one| one != kind && !one.is_own());
    assert!(rest <= us(100), "{rest} are blamed on others: {account:?}");
}

/// `low` begins at once, and blocks from 1 ms to 81 ms while `meanwhile` has the CPU.
fn blocked(wait: Option<Wait>, meanwhile: Who) -> Account {
    let script = Script::default().ready(20, LOW).begins(30, LOW);
    let script = match wait {
        Some(wait) => script.waits(1_000, wait, meanwhile),
        None => script.to(1_000, meanwhile),
    };
    script.preempted_by(81_000, Who::Lane(1)).ends(82_000, LOW, (20, 30), 1_960).account(LOW)
}

#[test]
fn a_body_that_sleeps_is_not_the_fault_of_who_has_the_cpu_meanwhile() {
    for wait in [None, Some(Wait::Sleep), Some(Wait::Lock), Some(Wait::Page), Some(Wait::Io)] {
        for meanwhile in [RUSTC, Who::Idle] {
            only(&blocked(wait, meanwhile), Kind::Asleep(wait), 79_900);
        }
    }
}

#[test]
fn a_body_that_waits_for_an_undeclared_lock_is_not_preempted_by_its_holder() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .ready(500, HIGH)
        .then(500, run(HIGH))
        .preempted_by(501, Who::Lane(0))
        .waits(1_000, Wait::Lock, Who::Lane(1))
        .preempted_by(3_000, Who::Lane(0))
        .ends(3_500, HIGH, (500, 500), 990)
        .account(HIGH);
    assert_eq!(account.total(|kind| kind == Kind::Asleep(Some(Wait::Lock))), us(2_000), "{account:?}");
    assert!(account.total(|kind| matches!(kind, Kind::Preempted { .. })) <= us(1), "{account:?}");
}

#[test]
fn a_page_fault_and_a_read_in_turn_are_told_apart() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .waits(1_000, Wait::Page, Who::Idle)
        .to(3_000, Who::Lane(1))
        .preempted_by(3_500, RUSTC)
        .to(4_000, Who::Lane(1))
        .waits(5_000, Wait::Io, Who::Idle)
        .to(9_000, Who::Lane(1))
        .ends(10_000, LOW, (20, 30), 3_460)
        .account(LOW);
    let parts = [Kind::Asleep(Some(Wait::Page)), Kind::Asleep(Some(Wait::Io)), Kind::Other(7)];
    assert_eq!(parts.map(|part| account.total(|kind| kind == part)), [us(2_000), us(4_000), us(500)], "{account:?}");
}

/// The thread decides to run the job while it has the CPU already, and blocks a moment later.
#[test]
fn a_body_that_blocks_at_once_is_not_taken_for_a_lane_that_changes_threads() {
    let script = |to: Who| {
        Script::default()
            .ready(20, LOW)
            .preempted_by(25, Who::Lane(1))
            .then(30, run(LOW))
            .waits(40, Wait::Lock, to)
            .preempted_by(8_040, Who::Lane(1))
            .ends(9_000, LOW, (20, 30), 970)
            .account(LOW)
    };
    only(&script(RUSTC), Kind::Asleep(Some(Wait::Lock)), 7_900);
    // Another thread of the lane takes over: it is the one that runs the job.
    assert_eq!(script(Who::Lane(1)).total(|kind| matches!(kind, Kind::Asleep(_))), Span::ZERO);
}

/// A less urgent thread would have been preempted at the wake-up, whenever that was.
#[test]
fn one_that_may_have_been_ready_while_a_more_urgent_thread_had_the_cpu_is_not_said_to_sleep() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .waits(1_000, Wait::Sleep, RUSTC)
        .preempted_by(3_000, FIFO)
        .ready(5_000, HIGH)
        .to(8_000, Who::Lane(1))
        .ends(9_000, LOW, (20, 30), 1_970)
        .account(LOW);
    let parts = [Kind::Asleep(Some(Wait::Sleep)), Kind::Unexplained];
    assert_eq!(parts.map(|part| account.total(|kind| kind == part)), [us(2_000), us(5_000)], "{account:?}");
}

#[test]
fn io_that_a_kernel_thread_carries_out_is_a_block() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .waits(1_000, Wait::Io, Who::Other(3))
        .to(1_200, Who::Idle)
        .to(9_000, Who::Other(3))
        .preempted_by(9_100, Who::Lane(1))
        .ends(10_000, LOW, (20, 30), 1_860)
        .account(LOW);
    only(&account, Kind::Asleep(Some(Wait::Io)), 8_000);
}

#[test]
fn who_waits_for_the_lane_of_a_body_that_blocks_waits_for_that_body() {
    let next = JobId { number: 1, ..job(HIGH) };
    let account = Script::default()
        .ready(20, HIGH)
        .begins(30, HIGH)
        .then(40, ready(next, 0))
        .to(1_000, RUSTC)
        .preempted_by(9_000, Who::Lane(0))
        .ends(10_000, HIGH, (20, 30), 1_960)
        .then(10_000, Event::Decision(Decision::End(ended(next, (40, 10_000), 10_000, 0))))
        .account_of(next);
    only(&account, Kind::Waited { who: culprit(HIGH), rank: Rank::Same }, 9_900);
}

#[test]
fn a_more_urgent_thread_of_the_machine_is_named() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .preempted_by(1_000, FIFO)
        .to(31_000, Who::Lane(1))
        .ends(32_000, LOW, (20, 30), 1_960)
        .account(LOW);
    only(&account, Kind::Other(8), 29_900);
}

#[test]
fn interrupts_are_their_thread_or_unexplained_but_no_overrun() {
    let thread = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .preempted_by(1_000, Who::Other(4))
        .to(9_000, Who::Lane(1))
        .ends(10_000, LOW, (20, 30), 1_960)
        .account(LOW);
    only(&thread, Kind::Other(4), 7_900);
    // In the interrupt itself there is no switch: the thread's clock stands, if the kernel accounts for it.
    let hard = Script::default().ready(20, LOW).begins(30, LOW).ends(10_000, LOW, (20, 30), 1_960).account(LOW);
    only(&hard, Kind::Unexplained, 7_900);
}

#[test]
fn what_the_hypervisor_took_is_neither_scheduling_nor_an_overrun() {
    let running = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .stolen(9_000, 20_000)
        .ends(10_000, LOW, (20, 30), 1_960)
        .account(LOW);
    only(&running, Kind::Stolen, 7_900);
    // It took the CPU while the release thread had it: that thread's own clock knows.
    let releasing = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .preempted_by(1_000, Who::Release)
        .to(9_000, Who::Lane(1))
        .then(9_500, Event::Seen(Seen::Used { who: Who::Release, span: us(30) }))
        .stolen(9_500, 10_000)
        .ends(10_000, LOW, (20, 30), 1_960)
        .account(LOW);
    only(&releasing, Kind::Stolen, 7_900);
    // It took the CPU when the timer was due.
    let late = Script::default()
        .to(1, Who::Idle)
        .to(8_000, Who::Release)
        .ready(8_020, LOW)
        .begins(8_030, LOW)
        .stolen(9_000, 10_000)
        .ends(10_000, LOW, (8_020, 8_030), 1_960)
        .account(LOW);
    only(&late, Kind::Stolen, 7_900);
}

#[test]
fn an_overrun_is_the_jobs_own() {
    let account = Script::default().ready(20, LOW).begins(30, LOW).ends(30_000, LOW, (20, 30), 29_960).account(LOW);
    only(&account, Kind::Overran, 24_900);
}

#[test]
fn a_late_release_is_due_to_who_kept_the_release_thread_from_the_cpu() {
    let late = |script: Script| {
        script
            .to(8_000, Who::Release)
            .ready(8_020, LOW)
            .begins(8_030, LOW)
            .ends(10_000, LOW, (8_020, 8_030), 1_960)
            .account(LOW)
    };
    only(&late(Script::default().to(1, Who::Idle)), Kind::TimerLate, 7_900);
    only(&late(Script::default().to(1, FIFO)), Kind::Other(8), 7_900);
    // Our own release thread was at work on other releases.
    only(&late(Script::default().to(1, Who::Release)), Kind::Overhead, 7_900);
    // One that the release thread preempts is not in its way.
    let ordinary = Script::default()
        .to(1, RUSTC)
        .preempted_by(8_000, Who::Release)
        .ready(8_020, LOW)
        .begins(8_030, LOW)
        .ends(10_000, LOW, (8_020, 8_030), 1_960)
        .account(LOW);
    only(&ordinary, Kind::TimerLate, 7_900);
}

#[test]
fn a_declared_resource_is_blamed_on_its_holder() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .acquires(40, LOW)
        .ready(50, HIGH)
        .releases(5_000, LOW)
        .then(5_010, run(HIGH))
        .preempted_by(5_011, Who::Lane(0))
        .ends(6_000, HIGH, (50, 5_010), 980)
        .account(HIGH);
    only(&account, Kind::Resource { resource: ResourceId(0), by: Some(culprit(LOW)) }, 4_900);
}

#[test]
fn a_late_job_of_a_chain_is_late_for_what_led_to_it() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .to(1_000, RUSTC)
        .to(31_000, Who::Lane(1))
        .ends(32_000, LOW, (20, 30), 1_960)
        .ready(32_000, AFTER)
        .begins(32_010, AFTER)
        .ends(33_000, AFTER, (32_000, 32_010), 980)
        .account(AFTER);
    only(&account, Kind::Upstream, 31_900);
}

#[test]
fn what_the_cap_keeps_back_is_not_blamed_on_who_has_the_cpu() {
    for meanwhile in [Who::Idle, RUSTC] {
        let account = Script::default()
            .to(1, meanwhile)
            .then(10, Event::Decision(Decision::Gate { lane: 0 }))
            .ready(20, LOW)
            .then(50_000, Event::Decision(Decision::Gate { lane: 255 }))
            .begins(50_010, LOW)
            .ends(52_000, LOW, (20, 50_010), 1_980)
            .account(LOW);
        only(&account, Kind::Cap { behind: None }, 49_900);
    }
    // One that the cap has paused goes on in what is left of the CPU, and keeps nobody from it.
    let paused = Script::default()
        .ready(20, HIGH)
        .begins(30, HIGH)
        .then(1_000, Event::Decision(Decision::Gate { lane: 0 }))
        .ready(1_010, LOW)
        .then(9_000, Event::Decision(Decision::Gate { lane: 255 }))
        .ends(9_010, HIGH, (20, 30), 8_970)
        .begins(9_020, LOW)
        .ends(10_000, LOW, (1_010, 9_020), 970)
        .account(LOW);
    let kept = paused.total(|kind| kind == Kind::Cap { behind: Some(culprit(HIGH)) });
    assert_eq!(kept, us(9_000 - 1_010), "{paused:?}");
}
