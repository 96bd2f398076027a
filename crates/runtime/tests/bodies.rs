//! Users' bodies: their inputs and outputs, waiting, and shared values.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{finish, plan, privileged, run_with, system, until, work};
use hyoshi_model::Span;
use hyoshi_runtime::{EmitError, EndedBy, Node, RunNote, SharedError, SharedValue, StartError};
use hyoshi_trace::{DiscardReason, DispatchDecision, JobOutcome};

/// Observations of bodies, for checks after the run.
type Seen<T> = Arc<Mutex<Vec<T>>>;

#[test]
fn bytes_reach_the_jobs_that_a_job_triggers_also_on_another_processor() {
    let seen: Seen<(u64, u64, u64)> = Seen::default();
    let store = seen.clone();
    let ran = run_with(
        "
        duration = \"300ms\"
        [host.a]
        [host.b]
        [processor.p]
        host = \"a\"
        strategy = \"RMS\"
        [processor.q]
        host = \"b\"
        strategy = \"RMS\"
        [operation.sense]
        on = \"p\"
        every = \"10ms\"
        wcet = \"1ms\"
        payload = \"8B\"
        [operation.near]
        on = \"p\"
        after = { all = [\"sense\"] }
        wcet = \"1ms\"
        payload = \"16B\"
        [operation.far]
        on = \"q\"
        after = { all = [\"near\"] }
        guard = \"off\"
        wcet = \"1ms\"
        [[link]]
        between = [\"a\", \"b\"]
        delay = \"3ms\"
        ",
        |node, _| {
            node.body("sense", |job| job.emit_value(&(job.job().number * 3)).unwrap())
                .body("near", |job| {
                    let sensed: u64 = job.read().unwrap();
                    job.emit_value(&[sensed, sensed + 1]).unwrap();
                })
                .body("far", move |job| {
                    let [one, two]: [u64; 2] = job.read().unwrap();
                    store.lock().unwrap().push((job.job().number, one, two));
                })
        },
    );
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 25, "{seen:?}");
    assert!(seen.iter().all(|(number, one, two)| *one == number * 3 && *two == one + 1), "{seen:?}");
    ran.replay();
}

#[test]
fn a_join_gets_the_payloads_of_one_release_by_name_and_a_reader_the_latest() {
    let seen: Seen<(u64, u64, u64, Option<u64>)> = Seen::default();
    let store = seen.clone();
    let ran = run_with(
        "
        duration = \"400ms\"
        [operation.tick]
        every = \"10ms\"
        wcet = \"0.1ms\"
        [operation.left]
        after = { all = [\"tick\"] }
        wcet = \"0.1ms\"
        payload = \"8B\"
        [operation.right]
        after = { all = [\"tick\"] }
        wcet = \"0.1ms\"
        payload = \"8B\"
        [operation.both]
        after = { all = [\"left\", \"right\"] }
        reads = [\"map\"]
        wcet = \"0.1ms\"
        [operation.map]
        every = \"40ms\"
        wcet = \"0.1ms\"
        payload = \"8B\"
        ",
        |node, _| {
            node.body("left", |job| job.emit_value(&job.job().number).unwrap())
                .body("right", |job| job.emit_value(&(job.job().number + 1000)).unwrap())
                .body("map", |job| job.emit_value(&job.job().number).unwrap())
                .body("both", move |job| {
                    let (left, right) = (job.read_from("left").unwrap(), job.read_from("right").unwrap());
                    store.lock().unwrap().push((job.job().number, left, right, job.read_latest("map")));
                })
        },
    );
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 39);
    for (number, left, right, _) in &*seen {
        assert_eq!((*left, *right), (*number, number + 1000));
    }
    let maps: Vec<Option<u64>> = seen.iter().map(|(.., map)| *map).collect();
    assert!(maps.is_sorted() && maps.last().unwrap().unwrap() >= 8, "{maps:?}");
}

#[test]
fn what_an_any_trigger_gets_is_what_triggered_it() {
    let seen: Seen<u64> = Seen::default();
    let store = seen.clone();
    let ran = run_with(
        "
        duration = \"300ms\"
        [operation.a]
        every = \"20ms\"
        wcet = \"0.1ms\"
        payload = \"8B\"
        [operation.b]
        every = \"30ms\"
        phase = \"5ms\"
        wcet = \"0.1ms\"
        payload = \"8B\"
        [operation.each]
        after = { any = [\"a\", \"b\"] }
        wcet = \"0.1ms\"
        ",
        |node, _| {
            node.body("a", |job| job.emit_value(&job.job().number).unwrap())
                .body("b", |job| job.emit_value(&(job.job().number + 1000)).unwrap())
                .body("each", move |job| store.lock().unwrap().push(job.read().unwrap()))
        },
    );
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    let seen = seen.lock().unwrap();
    let (a, b): (Vec<u64>, Vec<u64>) = seen.iter().copied().partition(|value| *value < 1000);
    assert_eq!((a.len() as u64, b.len() as u64), (a.last().unwrap() + 1, b.last().unwrap() - 999), "each once");
    assert!(a.is_sorted() && b.is_sorted() && a.len() >= 14 && b.len() >= 9, "{seen:?}");
}

#[test]
fn emitting_more_than_the_file_allows_is_refused() {
    let errors: Seen<EmitError> = Seen::default();
    let store = errors.clone();
    run_with(
        "
        duration = \"50ms\"
        [operation.a]
        every = \"20ms\"
        wcet = \"0.1ms\"
        payload = \"2B\"
        ",
        |node, _| node.body("a", move |job| store.lock().unwrap().push(job.emit(b"abc").unwrap_err())),
    );
    assert_eq!(errors.lock().unwrap()[0], EmitError::TooLong { bytes: 3, most: 2 });
}

const BLOCKING: &str = "
    duration = \"400ms\"
    [processor.main]
    strategy = \"EDF\"
    pool = POOL
    [operation.waits]
    every = \"40ms\"
    deadline = \"35ms\"
    wcet = \"1ms\"
    [operation.works]
    every = \"40ms\"
    phase = \"1ms\"
    wcet = \"2ms\"
";

#[test]
fn a_blocked_job_lets_the_next_of_its_lane_run_and_continues_afterwards() {
    let ran = run_with(&BLOCKING.replace("POOL", "2"), |node, _| {
        node.body("waits", |job| job.blocking(|| std::thread::sleep(Duration::from_millis(10))))
    });
    let story: Vec<String> = ran.story(0).into_iter().filter(|word| !word.starts_with("ready")).collect();
    let round = ["run waits", "yield waits", "run works", "end works", "resume waits", "end waits"];
    let rounds = story.chunks_exact(6).filter(|chunk| *chunk == round).count();
    assert!(!privileged(&ran) || rounds >= 8, "{story:?}");
    assert!(ran.finished.notes.iter().all(|note| !matches!(note, RunNote::PoolExhausted { .. })));
    // Sleep uses no CPU time.
    assert!(ran.ends_of("waits").iter().all(|end| end.consumed < Span::from_millis(1)));
    ran.replay();
}

#[test]
fn without_another_thread_a_job_blocks_its_lane_and_the_run_reports_that() {
    let ran = run_with(&BLOCKING.replace("POOL", "1"), |node, _| {
        node.body("waits", |job| job.blocking(|| std::thread::sleep(Duration::from_millis(10))))
    });
    assert!(ran.finished_jobs("works") >= 9 && ran.finished_jobs("waits") >= 9);
    assert!(ran.finished.notes.iter().any(|note| matches!(note, RunNote::PoolExhausted { times } if *times >= 9)));
    assert!(!ran.story(0).contains(&"yield waits".to_owned()));
}

#[test]
fn jobs_that_block_longer_than_their_period_are_not_entered_twice_and_do_not_deadlock() {
    let inside = Arc::new(AtomicU64::new(0));
    let count = inside.clone();
    for pool in ["2", "3"] {
        let inside = inside.clone();
        let ran = run_with(&BLOCKING.replace("POOL", pool), |node, _| {
            node.body("waits", move |job| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                job.blocking(|| std::thread::sleep(Duration::from_millis(if job_is_even() { 90 } else { 5 })));
                inside.fetch_sub(1, Ordering::SeqCst);
            })
        });
        assert_eq!(ran.finished.ended_by, EndedBy::Duration);
        assert!(ran.finished_jobs("works") >= 9, "{:?}", ran.story(0));
        assert!(ran.finished_jobs("waits") >= 3);
        ran.replay();
        count.store(0, Ordering::SeqCst);
    }
}

fn job_is_even() -> bool {
    static TURN: AtomicU64 = AtomicU64::new(0);
    TURN.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
}

const SHARED: &str = "
    duration = \"800ms\"
    [processor.main]
    strategy = \"RMS\"
    PREEMPTION
    [resource.map]
    [operation.high]
    every = \"40ms\"
    phase = \"6ms\"
    wcet = \"1ms\"
    uses = { map = \"1ms\" }
    [operation.middle]
    every = \"50ms\"
    phase = \"6ms\"
    wcet = \"1ms\"
    [operation.low]
    every = \"200ms\"
    phase = \"5ms\"
    wcet = \"20ms\"
    uses = { map = \"8ms\" }
";

/// Between a low job's start and the end of its section no other job starts, although both are due.
fn no_job_starts_within_the_section(ran: &common::Ran, section: Span) {
    let low: Vec<_> = ran.ends_of("low").into_iter().filter(|end| end.outcome.finished()).collect();
    assert!(low.len() >= 3);
    for name in ["high", "middle"] {
        for end in ran.ends_of(name).iter().filter(|end| end.outcome.finished()) {
            let within = |low: &&hyoshi_trace::JobEnd| end.start > low.start && end.start < low.start + section;
            assert_eq!(low.iter().find(within), None, "{end:?}");
        }
    }
    assert!(ran.finished_jobs("high") >= 18 && ran.finished_jobs("middle") >= 14);
    ran.replay();
}

#[test]
fn while_built_in_work_holds_a_resource_nothing_up_to_its_ceiling_starts() {
    let ran = run_with(&SHARED.replace("PREEMPTION", ""), |node, _| node);
    if privileged(&ran) {
        no_job_starts_within_the_section(&ran, Span::from_millis(7));
    }
}

#[test]
fn while_a_body_holds_a_shared_value_nothing_up_to_its_ceiling_starts() {
    let map = Mutex::new(None);
    let ran = run_with(&SHARED.replace("PREEMPTION", ""), |node, system| {
        let shared = SharedValue::new(system, "map", 0u64).unwrap();
        *map.lock().unwrap() = Some(shared.clone());
        let (low, high) = (shared.clone(), shared);
        node.body("low", move |job| {
            low.lock(job, |value| {
                *value += 1;
                work(Span::from_millis(8));
            })
            .unwrap();
            work(Span::from_millis(10));
        })
        .body("high", move |job| high.lock(job, |value| *value += 1000).unwrap())
    });
    if privileged(&ran) {
        no_job_starts_within_the_section(&ran, Span::from_millis(7));
    }
    let value = map.into_inner().unwrap().unwrap().peek(|value| *value);
    assert_eq!(value % 1000, ran.finished_jobs("low") as u64);
}

#[test]
fn a_value_is_refused_to_those_who_do_not_declare_it_and_to_unknown_names() {
    let errors: Seen<String> = Seen::default();
    let store = errors.clone();
    let ran = run_with(&SHARED.replace("PREEMPTION", ""), |node, system| {
        let shared = SharedValue::new(system, "map", ()).unwrap();
        let unknown = SharedValue::new(system, "chart", ()).unwrap_err();
        assert_eq!(unknown, SharedError::Unknown { resource: "chart".into(), known: vec!["map".into()] });
        node.duration(Span::from_millis(100)).body("middle", move |job| {
            store.lock().unwrap().push(shared.lock(job, |()| ()).unwrap_err().to_string());
        })
    });
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    assert!(errors.lock().unwrap()[0].contains("uses = { map = "), "{errors:?}");
}

#[test]
fn with_full_preemption_resources_keep_others_out_and_everything_is_replayed() {
    let text = SHARED.replace("PREEMPTION", "preemption = \"full\"").replace("RMS", "EDF");
    let ran = run_with(&text, |node, _| node);
    assert!(ran.finished_jobs("high") >= 18 && ran.finished_jobs("low") >= 3);
    assert_eq!(ran.count("high", JobOutcome::Stopped), 0);
    ran.replay();
}

#[test]
fn a_body_for_an_unknown_operation_is_refused() {
    let system = system("duration = \"1s\"\n[operation.a]\nevery = \"1s\"\nwcet = \"1ms\"");
    let node = Node::new(system.clone(), plan(&system)).body("b", |_| ());
    assert!(matches!(node.start(), Err(StartError::NoSuchOperation { operation }) if operation == "b"));
}

#[test]
fn a_run_can_be_stopped_before_its_time_and_dropped_without_a_word() {
    let system = system("duration = \"60s\"\n[operation.a]\nevery = \"5ms\"\nwcet = \"1ms\"");
    let plan = plan(&system);
    drop(Node::new(system.clone(), plan.clone()).start().unwrap());
    let mut running = Node::new(system.clone(), plan).start().unwrap();
    let mut events = 0;
    until("events", || {
        running.poll(&mut |_, _, _| events += 1);
        events > 20
    });
    let finished = running.stop(&mut |_, _, _| events += 1);
    assert_eq!(finished.ended_by, EndedBy::Stopped);
    assert!(finished.elapsed < Span::from_secs(60));
}

#[test]
fn an_interrupt_ends_the_run() {
    let system = system("duration = \"60s\"\n[operation.a]\nevery = \"5ms\"\nwcet = \"1ms\"");
    let interrupt = hyoshi_os::Interrupt::manual(Arc::default());
    let plan = plan(&system);
    let running = Node::new(system.clone(), plan.clone()).interrupt(interrupt.clone()).start().unwrap();
    interrupt.request();
    assert_eq!(finish(system, plan, running).finished.ended_by, EndedBy::Interrupted);
}

#[test]
fn a_suspended_operation_runs_again_when_it_is_resumed_and_a_timeout_releases_it_without_an_event() {
    let system = system(
        "
        duration = \"60s\"
        [processor.main]
        pool = 2
        [event.gps]
        [operation.sense]
        every = \"10ms\"
        wcet = \"0.1ms\"
        payload = \"8B\"
        supplies = [\"gps\"]
        [operation.follow]
        after = { event = \"gps\" }
        wcet = \"0.1ms\"
        timeout = \"100ms\"
        ",
    );
    let plan = plan(&system);
    let seen: Seen<(bool, bool)> = Seen::default();
    let store = seen.clone();
    let sensing = Arc::new(AtomicU64::new(1));
    let senses = sensing.clone();
    let node = Node::new(system.clone(), plan.clone())
        .body("sense", move |job| {
            while senses.load(Ordering::Relaxed) == 0 && !job.stop_asked() {
                job.blocking(|| std::thread::sleep(Duration::from_millis(1)));
            }
            job.emit_value(&1u64).unwrap();
        })
        .body("follow", move |job| store.lock().unwrap().push((job.timed_out(), job.payload().is_some())));
    let interrupt = hyoshi_os::Interrupt::manual(Arc::default());
    let running = node.interrupt(interrupt.clone()).start().expect("it starts");
    let count = || seen.lock().unwrap().len();
    until("releases by events", || count() > 5);
    assert!(!running.suspend("sense") && !running.suspend("nobody") && running.suspend("follow"));
    std::thread::sleep(Duration::from_millis(20));
    let suspended = count();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(count(), suspended);
    assert!(running.resume("follow"));
    until("releases after the resumption", || count() > suspended + 5);
    assert!(seen.lock().unwrap().iter().all(|seen| *seen == (false, true)));
    sensing.store(0, Ordering::Relaxed);
    until("a timeout", || seen.lock().unwrap().last().is_some_and(|(timed_out, _)| *timed_out));
    assert!(seen.lock().unwrap().iter().all(|(timed_out, payload)| timed_out != payload));
    sensing.store(1, Ordering::Relaxed);
    interrupt.request();
    let ran = finish(system, plan, running);
    let dropped = |reason| {
        let is = |decision: &&DispatchDecision| matches!(decision, DispatchDecision::Discard { reason: one, .. } if *one == reason);
        ran.decisions().map(|(_, decision)| decision).filter(is).count()
    };
    assert!(dropped(DiscardReason::Suspended) > 5 && dropped(DiscardReason::TooOld) == 0);
    ran.replay();
}

#[test]
fn a_body_chooses_hops_and_the_first_copy_releases_the_next_operation() {
    let seen: Seen<(u64, Vec<u64>)> = Seen::default();
    let (store, refused) = (seen.clone(), Arc::new(AtomicU64::new(0)));
    let count = refused.clone();
    let ran = run_with(
        "
        duration = \"400ms\"
        [host.a]
        [host.b]
        [processor.p]
        host = \"a\"
        [processor.q]
        host = \"b\"
        [operation.client]
        on = \"p\"
        every = \"10ms\"
        wcet = \"1ms\"
        payload = \"8B\"
        [operation.primary]
        on = \"p\"
        after = { chosen = [\"client\"] }
        wcet = \"1ms\"
        takes = { uniform = [\"0.1ms\", \"0.2ms\"] }
        payload = \"8B\"
        [operation.secondary]
        on = \"q\"
        after = { chosen = [\"client\"] }
        guard = \"off\"
        wcet = \"1ms\"
        payload = \"8B\"
        [operation.server]
        on = \"q\"
        after = { first = [\"primary\", \"secondary\"] }
        guard = \"off\"
        wcet = \"1ms\"
        ",
        |node, _| {
            node.body("client", move |job| {
                // Neither, one of them, or both.
                let number = job.job().number;
                let error = job.choose("server").unwrap_err();
                count.fetch_add(u64::from(error.to_string().contains("cannot choose `server`")), Ordering::Relaxed);
                if number & 1 > 0 {
                    job.choose("primary").unwrap();
                }
                if number & 2 > 0 {
                    job.choose("secondary").unwrap();
                }
            })
            .body("primary", |job| job.emit_value(&1u64).unwrap())
            .body("secondary", |job| job.emit_value(&2u64).unwrap())
            .body("server", move |job| {
                let copies = ["primary", "secondary"].map(|copy| job.read_from::<u64>(copy));
                store.lock().unwrap().push((job.job().number, copies.into_iter().flatten().collect()));
            })
        },
    );
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 15 && refused.load(Ordering::Relaxed) > 20, "{seen:?}");
    for (number, copies) in &*seen {
        let expected: &[&[u64]] = match number % 4 {
            1 => &[&[1]],
            2 => &[&[2]],
            3 => &[&[1], &[2]],
            _ => &[],
        };
        assert!(expected.contains(&&copies[..]), "{number}: {copies:?}");
    }
    let numbers: std::collections::BTreeSet<u64> = seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), seen.len(), "each release once: {seen:?}");
    let both = numbers.iter().filter(|number| **number % 4 == 3).count();
    let later = |decision: &&DispatchDecision| {
        matches!(decision, DispatchDecision::Discard { reason: DiscardReason::LaterCopy, .. })
    };
    let later = ran.decisions().map(|(_, decision)| decision).filter(later).count();
    // The run may end between two copies.
    assert!(both > 5 && (both - 1..=both).contains(&later), "{later} of {both}");
    ran.replay();
}
