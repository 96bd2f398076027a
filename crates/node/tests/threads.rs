//! Distributable threads of chains over two hosts: listed, shown, cancelled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hyoshi_model::{HostId, OperationId, Span, System};
use hyoshi_node::idl::hyoshi_node::{
    CancelFound, CancelThreadError, SegmentState, ThreadRef, ThreadSegment, ThreadsError,
};
use hyoshi_node::{Agreed, NodeClient, NodePeers, NodeSettings};
use hyoshi_orb::Orb;
use hyoshi_os::Clock;
use hyoshi_runtime::{JobContext, Node, Prepared, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, TraceEvent};

use crate::common::{DRONE, STATION, folder, settings, system, until};

/// A thread goes from the drone to the station, and back to the drone.
fn round_trip(folder: &Path, every: &str, duration: &str) -> String {
    let at = |name: &str| format!("unix/{}", folder.join(name).display());
    format!(
        r#"
        name = "round"
        duration = "{duration}"
        [host.drone]
        endpoints = ["{}"]
        [host.station]
        endpoints = ["{}"]
        [processor.airframe]
        host = "drone"
        [processor.ground]
        host = "station"
        [operation.begin]
        on = "airframe"
        every = "{every}"
        wcet = "0.1ms"
        [operation.work]
        on = "ground"
        after = {{ all = ["begin"] }}
        wcet = "0.5ms"
        guard = "off"
        queue = {{ limit = 8 }}
        [operation.end]
        on = "airframe"
        after = {{ all = ["work"] }}
        wcet = "0.1ms"
        guard = "off"
        [chain.round]
        path = ["begin", "work", "end"]
        deadline = "60s"
        carried_by = "thread"
        "#,
        at("drone"),
        at("station"),
    )
}

const BEGIN: OperationId = OperationId(0);
const WORK: OperationId = OperationId(1);
const END: OperationId = OperationId(2);

/// The node of one host, with a control socket.
struct Side {
    node: Option<Prepared>,
    peers: NodePeers,
    socket: PathBuf,
}

impl Side {
    fn start(
        system: &Arc<System>,
        host: HostId,
        folder: &Path,
        work: impl FnMut(&mut JobContext<'_>) + Send + 'static,
    ) -> Side {
        let plan = Arc::new(Plan::new(system, &Strategies::built_in()).unwrap());
        let mut node = Node::for_host(system.clone(), plan, host).body("work", work).prepare().unwrap();
        let socket = folder.join(format!("{}.sock", host.0));
        let settings = settings(system, host, Span::from_secs(20));
        let peers = NodePeers::start(NodeSettings { control: Some(socket.clone()), ..settings }, &mut node).unwrap();
        Side { node: Some(node), peers, socket }
    }

    fn begin(&mut self, agreed: &Agreed) -> RunningNode {
        self.node.take().unwrap().begin(agreed.clock)
    }

    fn operator(&self) -> NodeClient {
        NodeClient::new(Orb::builder(), &format!("unix:{}", self.socket.display())).unwrap()
    }
}

fn agree(drone: &Side, station: &Side) -> (Agreed, Agreed) {
    let theirs = &station.peers;
    thread::scope(|scope| {
        let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
        (drone.peers.agree(|_| ()).unwrap(), other.join().unwrap())
    })
}

fn why(error: CancelThreadError) -> String {
    match error {
        CancelThreadError::ThreadRefused(refused) => refused.why,
        error => panic!("{error}"),
    }
}

fn head(operator: &NodeClient, operation: &str) -> Option<ThreadSegment> {
    let states = operator.threads(&ThreadRef::default()).unwrap();
    assert!(states.all >= states.segments.len() as u64, "{states:?}");
    states.segments.into_iter().find(|segment| segment.operation == operation)
}

/// True once the thread has ended at its last operation.
fn ends_of(operator: &NodeClient, thread: ThreadRef) -> bool {
    let segments = operator.threads(&thread).map(|states| states.segments).unwrap_or_default();
    segments.iter().any(|segment| segment.operation == "end" && segment.state == SegmentState::Ended)
}

/// Sets the flag, also when the test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The ends of jobs until `over`.
fn ends(mut running: RunningNode, over: &AtomicBool) -> Vec<JobEnd> {
    let mut ends = Vec::new();
    let mut sink = |event: TraceEvent| {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
            ends.push(end);
        }
    };
    while !over.load(Ordering::Relaxed) {
        running.poll(&mut |_, _, event| sink(event));
        thread::sleep(Duration::from_millis(20));
    }
    let finished = running.stop(&mut |_, _, event| sink(event));
    assert_eq!(finished.lost.events, 0);
    ends
}

#[test]
fn a_thread_is_shown_and_cancelled_from_either_host_and_the_next_one_runs() {
    let folder = folder();
    let system = system(&round_trip(&folder, "20ms", "60s"));
    // Bodies run until they are asked to stop: a thread's head is surely there.
    let (stops, free) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (stopped, freed) = (stops.clone(), free.clone());
    let work = move |job: &mut JobContext<'_>| {
        while !job.stop_asked() && !freed.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(200));
        }
        stopped.fetch_add(u64::from(job.stop_asked()), Ordering::Relaxed);
    };
    let (mut drone, mut station) =
        (Side::start(&system, DRONE, &folder, |_| ()), Side::start(&system, STATION, &folder, work));
    let operators = [drone.operator(), station.operator()];
    let nothing = operators[0].threads(&ThreadRef::default()).unwrap();
    assert!(nothing.segments.is_empty(), "the run has not begun");
    let (one, other) = agree(&drone, &station);
    let (there, here) = (station.begin(&other), drone.begin(&one));
    let (mut origin, mut last) = (0, 0);
    for (round, operator) in operators.iter().enumerate() {
        let mut found = None;
        until("a thread runs on the station", || {
            found = head(operator, "work").filter(|segment| segment.state == SegmentState::Running);
            found.is_some()
        });
        let segment = found.unwrap();
        assert_eq!(
            (segment.host.as_str(), segment.processor.as_str(), segment.chain.as_str()),
            ("station", "ground", "round")
        );
        let thread = segment.thread;
        let run = u32::from_be_bytes(one.run[..4].try_into().unwrap());
        assert_eq!(thread.origin, u64::from(run) << 32, "the run, and the first operation");
        let segments = operator.threads(&thread).unwrap().segments;
        let states: Vec<_> = segments.iter().map(|one| (one.operation.as_str(), one.state)).collect();
        assert_eq!(states, [("begin", SegmentState::Ended), ("work", SegmentState::Running)]);
        assert!(segments[1].left > 0 && segments[1].age > 0 && segments[1].thread == thread);
        (origin, last) = (thread.origin, thread.number);
        let cancelled = operator.cancel_thread(&thread).unwrap();
        assert_eq!((cancelled.operation.as_str(), cancelled.host.as_str()), ("work", "station"));
        until("the body sees it", || stops.load(Ordering::Relaxed) as usize > round);
        until("the thread is gone", || {
            operator.threads(&thread).unwrap().segments.iter().all(|segment| segment.state == SegmentState::Ended)
        });
        let again = why(operator.cancel_thread(&thread).unwrap_err());
        assert_eq!(again, "the thread is not alive: it has ended");
        let later = ThreadRef { number: 1 << 40, ..thread };
        assert!(why(operator.cancel_thread(&later).unwrap_err()).starts_with("the thread has not begun"));
        for foreign in [
            ThreadRef { origin: thread.origin ^ (1 << 32), ..thread },
            ThreadRef { origin: thread.origin | 1, ..thread },
        ] {
            assert_eq!(why(operator.cancel_thread(&foreign).unwrap_err()), "the thread belongs to another run");
            assert!(matches!(operator.threads(&foreign), Err(ThreadsError::ThreadRefused(_))));
        }
    }
    free.store(true, Ordering::Relaxed);
    until("later threads end", || ends_of(&operators[0], ThreadRef { number: last + 30, origin }));
    drop((here, there));
    drop((drone, station));
}

#[test]
fn nothing_is_left_of_threads_that_are_cancelled_at_random_moments() {
    cancel_at_random(300);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_is_left_of_ten_thousand_threads_that_are_cancelled_at_random_moments() {
    cancel_at_random(10_000);
}

fn cancel_at_random(count: u64) {
    let folder = folder();
    let system = system(&round_trip(&folder, "2ms", "10min"));
    let work = |job: &mut JobContext<'_>| {
        // Sometimes short, sometimes longer than the period.
        let until = job.now() + Span::from_micros(job.job().number * 7_919 % 2_500);
        while job.now() < until && !job.stop_asked() {
            std::hint::spin_loop();
        }
    };
    let (mut drone, mut station) =
        (Side::start(&system, DRONE, &folder, |_| ()), Side::start(&system, STATION, &folder, work));
    let operators = [drone.operator(), station.operator()];
    let (one, other) = agree(&drone, &station);
    let (there, here) = (station.begin(&other), drone.begin(&one));
    let origin = u64::from(u32::from_be_bytes(one.run[..4].try_into().unwrap())) << 32;
    let (mut cancelled, mut found, mut random) = (BTreeSet::new(), [0u64; 3], 12_345u64);
    let over = AtomicBool::new(false);
    let (drone_ends, station_ends) = thread::scope(|scope| {
        let at_end = SetAtEnd(&over);
        let here = scope.spawn(|| ends(here, &over));
        let there = scope.spawn(|| ends(there, &over));
        until("threads run", || head(&operators[0], "work").is_some());
        for step in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            thread::sleep(Duration::from_micros(random >> 53));
            let number = one.clock.now().as_nanos() / 2_000_000;
            let thread = ThreadRef { origin, number: number.saturating_sub(random >> 32 & 1) };
            match operators[(step % 2) as usize].cancel_thread(&thread) {
                Ok(cancel) => {
                    found[usize::from(cancel.found == CancelFound::Hop)] += 1;
                    cancelled.insert(thread.number);
                }
                Err(refused) => {
                    let why = why(refused);
                    assert!(
                        why.starts_with("the thread is not alive") || why.starts_with("the thread has not begun"),
                        "{why}"
                    );
                    found[2] += 1;
                }
            }
        }
        let thread = |number: &u64| ThreadRef { origin, number: *number };
        for number in &cancelled {
            let states = operators[0].threads(&thread(number)).unwrap().segments;
            let is_over = |segment: &ThreadSegment| segment.state == SegmentState::Ended || segment.cancelled;
            assert!(states.iter().all(is_over), "{states:?}");
        }
        let last = cancelled.last().copied().unwrap_or(0);
        until("later threads end on the drone", || {
            let number = one.clock.now().as_nanos() / 2_000_000 - 20;
            number > last && ends_of(&operators[0], ThreadRef { origin, number })
        });
        let live = operators[0].threads(&ThreadRef::default()).unwrap();
        assert!(live.segments.iter().all(|one| !cancelled.contains(&one.thread.number)), "{live:?}");
        drop(at_end);
        (here.join().unwrap(), there.join().unwrap())
    });
    println!("{} cancelled, {} of them between hosts; {} had ended or not begun", cancelled.len(), found[1], found[2]);
    assert!(cancelled.len() as u64 > count / 10, "{found:?}");
    let of = |ends: &[JobEnd], operation| -> Vec<(u64, JobOutcome)> {
        let own = ends.iter().filter(|end| end.job.operation == operation);
        own.map(|end| (end.job.number, end.outcome)).collect()
    };
    // A cancelled thread never reached its last operation, or was cancelled there.
    for (number, outcome) in of(&drone_ends, END) {
        assert_eq!(outcome == JobOutcome::Cancelled, cancelled.contains(&number), "{number}: {outcome:?}");
    }
    let all = [of(&drone_ends, BEGIN), of(&station_ends, WORK), of(&drone_ends, END)].concat();
    let ended: BTreeSet<u64> =
        all.iter().filter(|(_, outcome)| *outcome == JobOutcome::Cancelled).map(|(number, _)| *number).collect();
    assert!(ended.is_subset(&cancelled), "no other thread was cancelled");
    assert_eq!((ended.len() as u64) + found[1], cancelled.len() as u64, "each ended once, or its hop was dropped");
    drop((drone, station));
}
