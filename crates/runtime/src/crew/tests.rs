//! Tests of the crew without threads: each section is called at a chosen time, with fake threads that record their
//! policies.

use std::ops::Range;
use std::sync::Arc;

use hyoshi_model::{HostId, Instant, ResourceId, Span, read};
use hyoshi_os::fake::FakeThread;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{MonotonicClock, ThreadPolicy};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::ring::ring;

use super::*;
use crate::chain_threads::{CancelOutcome, ChainThread, MOST_REMEMBERED, SegmentState};
use crate::link::connect;

/// The crew of one processor, driven by the test.
struct ManualCrew {
    crew: Crew<FakeThread>,
    wakeups: PendingWakeups,
}

const HIGH: ThreadPolicy = ThreadPolicy::Fifo(lane_priority(0));
const LOW: ThreadPolicy = ThreadPolicy::Fifo(lane_priority(1));

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

/// `bodies` names the operations that have a user's body.
fn hand(text: &str, bodies: &[&str], thread: fn() -> FakeThread) -> ManualCrew {
    let text = format!("name = \"t\"\n{text}");
    let system = Arc::new(read(&text, "t", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let common = Arc::new(CommonState::new(system.clone(), None, ms(10_000)));
    common.begin(MonotonicClock::start());
    let cell = |id: OperationId| {
        let named = bodies.contains(&system.operation(id).name.as_str());
        named.then(|| BodyCell::new(&system, (id, id), false, &[], Box::new(|_| ())))
    };
    let mut cells: Vec<Option<BodyCell>> = system.operation_ids().map(cell).collect();
    let (probe, _) = ring(1 << 12);
    let links = connect(&common).0.remove(0);
    let with_bodies: Vec<bool> = cells.iter().map(Option::is_some).collect();
    let mut crew = Crew::new(common.clone(), &plan.processors[0], probe, (&mut cells, &with_bodies), links);
    // As for an ordinary user.
    crew.may_idle = false;
    let mut control = Vec::new();
    for (lane, count) in crew.threads_of(&plan.processors[0]).into_iter().enumerate() {
        for _ in 0..count {
            let own = Arc::new(ThreadControl::default());
            let number = crew.add_thread(lane as u8, own.clone());
            let thread = thread();
            let policy = ThreadPolicy::Fifo(crew.priority_of(lane as u8));
            let granted = if thread.set_policy(policy).is_ok() { policy } else { ThreadPolicy::Other };
            crew.thread_started(number, thread, granted);
            control.push(own);
        }
    }
    let wakeups = PendingWakeups::new(common, control, Arc::default(), Arc::default());
    ManualCrew { crew, wakeups }
}

impl ManualCrew {
    fn time(&mut self, at: Instant) -> Vec<u16> {
        self.crew.on_time(at, &mut self.wakeups);
        self.posted()
    }

    /// Threads to be woken.
    fn posted(&mut self) -> Vec<u16> {
        let posted = self.wakeups.threads().to_vec();
        self.wakeups.clear();
        posted
    }

    /// The job that a thread starts, if any.
    fn next(&mut self, thread: u16, at: Instant) -> Option<JobStart> {
        match self.crew.next(thread, at, Span::ZERO, &mut self.wakeups) {
            LaneStep::Run(begin) => Some(begin),
            _ => None,
        }
    }

    fn finish(&mut self, thread: u16, begin: JobStart, at: Instant) -> LaneStep {
        let returned = Returned {
            slot: begin.slot,
            cell: begin.cell,
            consumed: None,
            cpu: Span::ZERO,
            cpu_after: Span::ZERO,
            local: begin.local,
            answered: false,
        };
        self.crew.finish(thread, at, returned, &mut self.wakeups)
    }

    fn thread(&self, thread: u16) -> &FakeThread {
        &self.crew.members[usize::from(thread)].policy_control.as_ref().unwrap().thread
    }

    /// As after each section.
    fn apply_policies(&mut self) {
        while let Some(policy_control) = self.crew.take_changed() {
            if !policy_control.apply() {
                self.crew.common.refused_later.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn policies(&mut self, thread: u16) -> Vec<ThreadPolicy> {
        self.apply_policies();
        self.thread(thread).policies()
    }
}

const TWO: &str = "
    [processor.main]
    strategy = \"MUF\"
    PROCESSOR
    [operation.control]
    every = \"10ms\"
    phase = \"2ms\"
    wcet = \"1ms\"
    critical = true
    [operation.fill]
    every = \"100ms\"
    wcet = \"80ms\"
    FILL
";

#[test]
fn a_lane_is_woken_once_however_much_there_is_to_do() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "").replace("FILL", "count = 3"), &[], FakeThread::new);
    assert_eq!(hand.time(ms(0)), [1]);
    assert_eq!(hand.time(ms(2)), [0], "the low lane's thread is on its way already");
    let begin = hand.next(1, ms(2)).unwrap();
    assert_eq!(hand.posted(), [0u16; 0]);
    assert!(hand.next(0, ms(2)).is_some());
    // The second of three follows without a wake-up.
    assert!(matches!(hand.finish(1, begin, ms(5)), LaneStep::Run(_)));
    assert_eq!(hand.posted(), [0u16; 0]);
}

#[test]
fn a_wake_up_for_nothing_lets_the_thread_sleep_again() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "").replace("FILL", ""), &[], FakeThread::new);
    assert!(matches!(hand.crew.next(1, ms(1), Span::ZERO, &mut hand.wakeups), LaneStep::Idle));
    assert_eq!(hand.time(ms(0)), [1], "it is still counted as idle");
}

#[test]
fn the_cap_puts_a_lane_without_critical_work_at_normal_priority_until_its_next_window() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "cap = \"50%\"").replace("FILL", ""), &[], FakeThread::new);
    hand.time(ms(0));
    let _begin = hand.next(1, ms(0)).unwrap();
    assert_eq!(hand.policies(1), [LOW]);
    // 40 ms for non-critical work: 10 of the 50 are reserved for control.
    hand.time(ms(45));
    assert_eq!(hand.policies(1), [LOW, ThreadPolicy::Other]);
    assert_eq!(hand.policies(0), [HIGH]);
    // Critical work stays below the cap, so the next window has no debt.
    let mut control = hand.next(0, ms(45));
    while let Some(begin) = control {
        control = match hand.finish(0, begin, ms(46)) {
            LaneStep::Run(begin) => Some(begin),
            _ => None,
        };
    }
    hand.time(ms(100));
    assert_eq!(hand.policies(1), [LOW, ThreadPolicy::Other, LOW]);
}

#[test]
fn who_holds_a_resource_runs_at_its_ceiling_and_is_not_paused() {
    let text = TWO.replace("PROCESSOR", "cap = \"50%\"").replace("FILL", "uses = { map = \"1ms\" }")
        + "[operation.also]\nevery = \"20ms\"\nwcet = \"1ms\"\ncritical = true\nuses = { map = \"1ms\" }\n[resource.map]\n";
    let mut hand = hand(&text, &[], FakeThread::new);
    hand.time(ms(0));
    // `also` first, because its lane is more urgent.
    let also = hand.next(0, ms(0)).unwrap();
    assert!(matches!(hand.finish(0, also, ms(1)), LaneStep::Idle));
    let begin = hand.next(1, ms(1)).unwrap();
    hand.crew.acquire(1, begin.slot, ResourceId(0), ms(1));
    assert_eq!(hand.policies(1), [LOW, HIGH]);
    hand.time(ms(60));
    assert_eq!(hand.policies(1), [LOW, HIGH], "gated, but it holds what others need");
    hand.crew.release(1, begin.slot, ResourceId(0), ms(61), &mut hand.wakeups);
    assert_eq!(hand.policies(1), [LOW, HIGH, ThreadPolicy::Other]);
}

const FULL: &str = "
    [processor.main]
    strategy = \"EDF\"
    preemption = \"full\"
    [operation.long]
    every = \"100ms\"
    wcet = \"30ms\"
    [operation.short]
    every = \"20ms\"
    phase = \"5ms\"
    wcet = \"1ms\"
";

#[test]
fn a_better_job_of_the_lane_lowers_the_running_thread_and_its_end_raises_it_again() {
    let mut hand = hand(FULL, &[], FakeThread::new);
    let first = hand.time(ms(0))[0];
    let _long = hand.next(first, ms(0)).unwrap();
    let second = hand.time(ms(5))[0];
    assert_ne!(first, second);
    assert_eq!(hand.policies(first), [HIGH, ThreadPolicy::Fifo(1)]);
    let short = hand.next(second, ms(5)).unwrap();
    assert!(matches!(hand.finish(second, short, ms(6)), LaneStep::Idle));
    assert_eq!(hand.policies(first), [HIGH, ThreadPolicy::Fifo(1), HIGH]);
    assert_eq!(hand.posted(), [0u16; 0], "it runs, and needs no wake-up");
    assert_eq!(hand.policies(second), [HIGH]);
}

#[test]
fn a_lowered_job_that_ends_all_the_same_waits_for_its_turn_to_be_completed() {
    let mut hand = hand(FULL, &[], FakeThread::new);
    let first = hand.time(ms(0))[0];
    let long = hand.next(first, ms(0)).unwrap();
    let second = hand.time(ms(5))[0];
    let short = hand.next(second, ms(5)).unwrap();
    // The better job sleeps in its body; the lowered one ends.
    let LaneStep::Turn(returned) = hand.finish(first, long, ms(6)) else { panic!("it is not its turn") };
    assert!(matches!(hand.finish(second, short, ms(7)), LaneStep::Idle));
    assert_eq!(hand.posted(), [first]);
    assert!(matches!(hand.crew.finish(first, ms(7), returned, &mut hand.wakeups), LaneStep::Idle));
}

#[test]
fn a_demoted_body_runs_below_the_lanes_and_returns_for_the_next_job() {
    let text = TWO.replace("PROCESSOR", "").replace("FILL", "on_overrun = \"demote\"");
    let mut hand = hand(&text, &["fill"], FakeThread::new);
    let thread = hand.time(ms(0))[0];
    let begin = hand.next(thread, ms(0)).unwrap();
    hand.thread(thread).consume(Span::from_millis(80));
    hand.time(ms(90));
    assert_eq!(hand.policies(thread), [LOW, ThreadPolicy::Other]);
    assert!(matches!(hand.finish(thread, begin, ms(95)), LaneStep::Idle));
    assert_eq!(hand.policies(thread), [LOW, ThreadPolicy::Other, LOW]);
}

#[test]
fn a_gated_lane_is_below_ordinary_threads_where_the_kernel_lets_it_return() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "cap = \"50%\"").replace("FILL", ""), &[], FakeThread::new);
    hand.crew.may_idle = true;
    hand.time(ms(0));
    let _begin = hand.next(1, ms(0)).unwrap();
    hand.time(ms(45));
    assert_eq!(hand.policies(1), [LOW, ThreadPolicy::Idle]);
}

#[test]
fn a_job_with_an_occupied_body_is_set_aside_and_its_lane_continues() {
    let text = TWO.replace("PROCESSOR", "hard_cap = \"100%\"").replace("FILL", "on_overrun = \"demote\"");
    let text = text + "[operation.more]\nevery = \"100ms\"\nwcet = \"1ms\"\n";
    let mut hand = hand(&text, &["fill"], FakeThread::new);
    let first = hand.time(ms(0))[0];
    // Least laxity: `fill` is first, then `more`.
    let fill = hand.next(first, ms(0)).unwrap();
    hand.thread(first).consume(Span::from_millis(80));
    let second = *hand.time(ms(90)).last().unwrap();
    let more = hand.next(second, ms(90)).unwrap();
    assert_ne!(more.now.job.operation, fill.now.job.operation);
    hand.time(ms(100));
    // The next `fill` cannot enter the body; `more` of the same release can.
    let LaneStep::Run(next) = hand.finish(second, more, ms(101)) else { panic!("`more` is next") };
    assert_ne!(next.now.job.operation, fill.now.job.operation);
    assert!(matches!(hand.finish(second, next, ms(102)), LaneStep::Idle));
    // After the body is free, it can.
    let LaneStep::Run(again) = hand.finish(first, fill, ms(103)) else { panic!("`fill` enters") };
    assert_eq!(again.now.job.number, 1);
}

#[test]
fn without_privileges_the_kernel_is_not_called_again_and_again() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "cap = \"50%\"").replace("FILL", ""), &[], FakeThread::unprivileged);
    let thread = hand.time(ms(0))[0];
    hand.next(thread, ms(0)).unwrap();
    hand.time(ms(45));
    hand.time(ms(100));
    assert_eq!(hand.policies(thread), []);
    assert_eq!(hand.crew.common.refused_later.load(Ordering::Relaxed), 0);
}

#[test]
fn a_job_keeps_the_token_while_it_blocks_if_no_other_thread_could_run() {
    let mut hand = hand(&TWO.replace("PROCESSOR", "").replace("FILL", ""), &["fill"], FakeThread::new);
    let thread = hand.time(ms(0))[0];
    let begin = hand.next(thread, ms(0)).unwrap();
    assert!(!hand.crew.suspend(thread, begin.slot, ms(1), &mut hand.wakeups));
    assert_eq!(hand.crew.common.blocked_lanes.load(Ordering::Relaxed), 1);
    assert!(matches!(hand.finish(thread, begin, ms(2)), LaneStep::Idle));
}

const THREAD: &str = "
    [processor.here]
    [processor.there]
    [operation.far]
    on = \"there\"
    every = \"10ms\"
    wcet = \"1ms\"
    [operation.near]
    on = \"here\"
    after = { all = [\"far\"] }
    wcet = \"1ms\"
    guard = \"off\"
    [operation.first]
    on = \"here\"
    every = \"10ms\"
    wcet = \"2ms\"
    [operation.second]
    on = \"here\"
    after = { all = [\"first\"] }
    wcet = \"1ms\"
    [operation.beside]
    on = \"here\"
    after = { all = [\"first\"] }
    wcet = \"1ms\"
    [chain.local]
    path = [\"first\", \"second\"]
    deadline = \"50ms\"
    carried_by = \"thread\"
    [chain.remote]
    path = [\"far\", \"near\"]
    deadline = \"50ms\"
    carried_by = \"thread\"
";

#[test]
fn a_cancelled_thread_ends_at_its_head_and_others_do_not() {
    let mut hand = hand(THREAD, &["first"], FakeThread::new);
    let thread = |number| ChainThread { root: OperationId(2), number };
    let cancel =
        |hand: &mut ManualCrew, number, at| hand.crew.cancel_thread(at, thread(number), None, &mut hand.wakeups);
    assert_eq!(cancel(&mut hand, 0, ms(0)), CancelOutcome::NotBegun);
    let lane = hand.time(ms(0))[0];
    let begin = hand.next(lane, ms(0)).unwrap();
    let mut live = Vec::with_capacity(4);
    assert_eq!(hand.crew.live_segments(&mut live), 1);
    assert_eq!((live[0].thread, live[0].operation, live[0].state), (thread(0), OperationId(2), SegmentState::Running));
    assert_eq!(cancel(&mut hand, 0, ms(1)), CancelOutcome::Cancelled(OperationId(2)));
    assert_eq!(hand.crew.members[usize::from(lane)].control.ordered(), BodyOrder::Stop);
    live.clear();
    hand.crew.live_segments(&mut live);
    assert!(live[0].is_cancelled);
    // A cancelled body that returns triggers nothing, not even what is beside the thread.
    assert!(matches!(hand.finish(lane, begin, ms(2)), LaneStep::Idle));
    live.clear();
    assert_eq!(hand.crew.live_segments(&mut live), 0);
    assert_eq!(cancel(&mut hand, 0, ms(3)), CancelOutcome::Absent);
    hand.crew.segments_of(thread(0), &mut live);
    assert_eq!((live.len(), live[0].operation, live[0].state), (1, OperationId(2), SegmentState::Ended));
    // The next thread is at its second segment when it is cancelled; the job beside it goes on.
    hand.posted();
    let lane = hand.time(ms(10))[0];
    let begin = hand.next(lane, ms(10)).unwrap();
    let LaneStep::Run(next) = hand.finish(lane, begin, ms(12)) else { panic!("two jobs follow") };
    assert_eq!(cancel(&mut hand, 1, ms(12)), CancelOutcome::Cancelled(OperationId(3)));
    let ended: Vec<_> = hand.crew.dispatcher.jobs().map(|(_, job)| (job.id.operation, job.cancelled)).collect();
    let running = next.now.job.operation;
    assert!(ended.iter().all(|(operation, cancelled)| *cancelled == (*operation == OperationId(3))), "{ended:?}");
    assert!([OperationId(3), OperationId(4)].contains(&running) && ended.iter().any(|(id, _)| *id == OperationId(4)));
}

#[test]
fn a_hop_of_a_cancelled_thread_is_dropped_for_a_second() {
    let mut hand = hand(THREAD, &[], FakeThread::new);
    let (near, thread) = (OperationId(1), ChainThread { root: OperationId(0), number: 7 });
    assert!(!hand.crew.drops_hop(near, 7, ms(1)));
    let cancel = |hand: &mut ManualCrew, at| hand.crew.cancel_thread(at, thread, None, &mut hand.wakeups);
    assert_eq!(cancel(&mut hand, ms(1)), CancelOutcome::Absent);
    assert!(!hand.crew.drops_hop(near, 8, ms(2)) && !hand.crew.drops_hop(OperationId(3), 7, ms(2)));
    assert!(hand.crew.drops_hop(near, 7, ms(2)));
    assert_eq!(cancel(&mut hand, ms(3)), CancelOutcome::Dropped(near));
    assert_eq!(cancel(&mut hand, ms(4)), CancelOutcome::Absent, "the thread has ended");
    assert!(hand.crew.drops_hop(near, 7, ms(1_003)), "each cancellation renews it");
    assert!(!hand.crew.drops_hop(near, 7, ms(1_004)), "the memory is bounded");
    // As is the number of threads.
    let many = |hand: &mut ManualCrew, number, at| {
        hand.crew.cancel_thread(at, ChainThread { number, ..thread }, None, &mut hand.wakeups)
    };
    let outcomes: Vec<_> = (0..2_000).map(|number| many(&mut hand, number, ms(1_500))).collect();
    assert_eq!(outcomes.iter().filter(|one| **one == CancelOutcome::Absent).count(), MOST_REMEMBERED);
    assert_eq!(outcomes.last(), Some(&CancelOutcome::Busy));
    assert_eq!(many(&mut hand, 1, ms(2_501)), CancelOutcome::Absent);
}

#[test]
fn a_host_that_cancels_threads_at_random_leaves_memory_to_others() {
    let mut hand = hand(THREAD, &[], FakeThread::new);
    let mut cancel = |by: Option<u32>, numbers: Range<u64>, at| {
        let root = OperationId(0);
        let mut one = |number| {
            hand.crew.cancel_thread(at, ChainThread { root, number }, by.map(HostId), &mut hand.wakeups)
                == CancelOutcome::Absent
        };
        numbers.filter(|number| one(*number)).count()
    };
    // None of them was released.
    assert_eq!(cancel(Some(1), 1_000_000..1_002_000, ms(1)), MOST_REMEMBERED / 2);
    assert_eq!(cancel(Some(2), 2_000_000..2_002_000, ms(1)), MOST_REMEMBERED / 4);
    assert_eq!(cancel(None, 0..2_000, ms(1)), MOST_REMEMBERED / 4, "an operator here");
    // Its own it may renew, and so may another host that has room for them.
    assert_eq!(cancel(Some(1), 1_000_000..1_000_010, ms(500)), 10);
    assert_eq!(cancel(Some(2), 1_000_000..1_000_010, ms(500)), 0);
    assert_eq!(cancel(Some(1), 1_000_010..1_000_020, ms(1_100)), 10, "those that were not renewed are forgotten");
    assert_eq!(cancel(Some(2), 1_000_000..1_000_010, ms(1_100)), 10);
}
