//! Twelve causes of lateness, as a run with the kernel's switches records them: the law must name the right one.

use hyoshi_model::*;
use hyoshi_trace::blame::{Account, Blame, Culprit, Interest, Kind, Places, Rank};
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome, Seen, Slot, Who};

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

fn at(micros: u64) -> Instant {
    Instant::ZERO + us(micros)
}

fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

fn job(operation: u32) -> JobId {
    JobId { operation: OperationId(operation), number: 0, leg: 0 }
}

fn culprit(operation: u32) -> Culprit {
    Culprit { operation: OperationId(operation), job: Some((0, 0)) }
}

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
        let (release, deadline) = (at(0), at(20_000));
        let ready = Decision::Ready { job: job(operation), release, deadline, lane: operation as u8 };
        self.then(micros, Event::Decision(ready))
    }

    /// It begins, and its thread comes to the CPU.
    fn begins(self, micros: u64, operation: u32) -> Self {
        let run = Decision::Run { job: job(operation), lane: operation as u8, slot: Slot(operation), resumed: false };
        self.then(micros, Event::Decision(run)).to(micros + 1, Who::Lane(operation as u8))
    }

    /// The CPU goes to `who`; whoever had it gave it up.
    fn to(self, micros: u64, who: Who) -> Self {
        self.then(micros, Event::Seen(Seen::Switch { to: who, preempted: false }))
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
    fn ends(self, micros: u64, operation: u32, (ready, start): (u64, u64), consumed: u64) -> Self {
        let complete = Input::Complete { slot: Slot(operation), consumed: us(consumed) };
        let end = JobEnd {
            job: job(operation),
            outcome: if micros > 20_000 { Outcome::Missed } else { Outcome::Made },
            critical: false,
            overran: false,
            demoted: false,
            epoch: 0,
            origin: at(0),
            release: at(0),
            ready: at(ready),
            start: at(start),
            end: at(micros),
            deadline: at(20_000),
            consumed: us(consumed),
        };
        self.then(micros, Event::Input(complete)).then(micros, Event::Decision(Decision::End(end)))
    }

    /// The account of the operation's job. Its parts add up to its response.
    fn account(self, operation: u32) -> Account {
        let system = read(FILE, "causes.toml", None).unwrap().system;
        let places = Places {
            preemption: Preemption::Levels,
            lanes: 3,
            critical: vec![false; 3],
            levels: vec![vec![Some((0, 0)), Some((1, 1)), Some((2, 2))]],
            second: vec![],
            ceilings: vec![Some(0)],
        };
        let mut law = Blame::new(&system, places, false, Interest::All);
        let accounts = self.0.iter().filter_map(|(now, event)| law.event(at(*now), event)).collect::<Vec<_>>();
        let account = accounts.into_iter().find(|account| account.end.job == job(operation)).unwrap();
        assert_eq!(account.parts.iter().map(|(_, span)| *span).sum::<Span>(), account.response(), "{account:?}");
        account
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
fn blocked(meanwhile: Who) -> Account {
    Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .to(1_000, meanwhile)
        .preempted_by(81_000, Who::Lane(1))
        .ends(82_000, LOW, (20, 30), 1_960)
        .account(LOW)
}

#[test]
fn a_body_that_sleeps_is_not_the_fault_of_who_has_the_cpu_meanwhile() {
    only(&blocked(RUSTC), Kind::Asleep, 79_900);
}

#[test]
fn a_body_that_waits_for_an_undeclared_lock_is_not_preempted_by_its_holder() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .ready(500, HIGH)
        .then(500, Event::Decision(Decision::Run { job: job(HIGH), lane: 0, slot: Slot(HIGH), resumed: false }))
        .preempted_by(501, Who::Lane(0))
        .to(1_000, Who::Lane(1))
        .preempted_by(3_000, Who::Lane(0))
        .ends(3_500, HIGH, (500, 500), 990)
        .account(HIGH);
    assert_eq!(account.total(|kind| kind == Kind::Asleep), us(2_000), "{account:?}");
    assert!(account.total(|kind| matches!(kind, Kind::Preempted { .. })) <= us(1), "{account:?}");
}

#[test]
fn a_page_fault_that_waits_for_the_disk_is_a_block_while_the_cpu_idles() {
    only(&blocked(Who::Idle), Kind::Asleep, 79_900);
}

#[test]
fn io_that_a_kernel_thread_carries_out_is_a_block() {
    let account = Script::default()
        .ready(20, LOW)
        .begins(30, LOW)
        .to(1_000, Who::Other(3))
        .to(1_200, Who::Idle)
        .to(9_000, Who::Other(3))
        .to(9_100, Who::Lane(1))
        .ends(10_000, LOW, (20, 30), 1_860)
        .account(LOW);
    only(&account, Kind::Asleep, 8_000);
}

#[test]
fn who_waits_for_the_lane_of_a_body_that_blocks_waits_for_that_body() {
    let account = Script::default()
        .ready(20, HIGH)
        .begins(30, HIGH)
        .then(
            40,
            Event::Decision(Decision::Ready {
                job: JobId { number: 1, ..job(HIGH) },
                release: at(0),
                deadline: at(20_000),
                lane: 0,
            }),
        )
        .to(1_000, RUSTC)
        .to(9_000, Who::Lane(0))
        .ends(10_000, HIGH, (20, 30), 1_960);
    let next = JobEnd {
        job: JobId { number: 1, ..job(HIGH) },
        outcome: Outcome::Made,
        critical: false,
        overran: false,
        demoted: false,
        epoch: 0,
        origin: at(0),
        release: at(0),
        ready: at(40),
        start: at(10_000),
        end: at(10_000),
        deadline: at(20_000),
        consumed: Span::ZERO,
    };
    let system = read(FILE, "causes.toml", None).unwrap().system;
    let places = Places {
        preemption: Preemption::Levels,
        lanes: 3,
        critical: vec![false; 3],
        levels: vec![vec![Some((0, 0)), Some((1, 1)), Some((2, 2))]],
        second: vec![],
        ceilings: vec![Some(0)],
    };
    let mut law = Blame::new(&system, places, false, Interest::All);
    for (now, event) in &account.0 {
        law.event(at(*now), event);
    }
    let account = law.event(at(10_000), &Event::Decision(Decision::End(next))).unwrap();
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
        .then(5_010, Event::Decision(Decision::Run { job: job(HIGH), lane: 0, slot: Slot(HIGH), resumed: false }))
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
    let account = Script::default()
        .to(1, Who::Idle)
        .then(10, Event::Decision(Decision::Gate { lane: 0 }))
        .ready(20, LOW)
        .then(50_000, Event::Decision(Decision::Gate { lane: 255 }))
        .begins(50_010, LOW)
        .ends(52_000, LOW, (20, 50_010), 1_980)
        .account(LOW);
    only(&account, Kind::Cap { behind: None }, 49_900);
}
