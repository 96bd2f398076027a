//! Two nodes that each run one host of a system, joined by a thread for each direction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span};
use hyoshi_os::MonotonicClock;
use hyoshi_runtime::{
    ArrivedOutput, Departure, IncomingCompletions, Node, OutgoingCompletions, OutgoingOutput, Prepared, Rejected,
    StartError,
};
use hyoshi_trace::{DispatchDecision, Input, Signal, TraceEvent};

use crate::common::{plan, system};

const TWO_HOSTS: &str = r#"
    duration = "400ms"
    [host.drone]
    [host.station]
    [processor.airframe]
    host = "drone"
    [processor.ground]
    host = "station"
    [operation.sense]
    on = "airframe"
    every = "10ms"
    wcet = "0.1ms"
    payload = "8B"
    critical = true
    [operation.recognise]
    on = "ground"
    after = { all = ["sense"] }
    wcet = "0.1ms"
    critical = true
    [[link]]
    between = ["drone", "station"]
    delay = "3ms"
"#;

/// Carries completions from one node to another until `over`.
fn carry(from: &mut OutgoingCompletions, mut to: IncomingCompletions, over: &AtomicBool) -> u64 {
    let mut carried = 0;
    while !over.load(Ordering::Acquire) {
        from.wait(Span::from_millis(5));
        while let Some(departure) = from.take() {
            match departure {
                Departure::Completion(completion) => {
                    to.push(completion.signal, completion.payload()).unwrap();
                    carried += 1;
                }
                Departure::Output(output) => to.replicate(arrived(&output), output.payload()).unwrap(),
            }
        }
        to.deliver();
    }
    carried
}

fn arrived(output: &OutgoingOutput) -> ArrivedOutput {
    let ((number, leg), release) = (output.job(), output.release());
    ArrivedOutput { operation: output.operation(), number, leg, sender_release: release.as_nanos(), release }
}

#[test]
fn completions_and_payloads_go_from_the_node_of_one_host_to_that_of_another() {
    let system = system(TWO_HOSTS);
    let plan = plan(&system);
    let node = |host| Node::for_host(system.clone(), plan.clone(), HostId(host));
    let mut drone = node(0).body("sense", |job| {
        let number = job.job().number;
        job.emit(&number.to_le_bytes()).unwrap();
    });
    let mut station = node(1).body("recognise", |job| {
        assert_eq!(job.payload(), Some(&job.job().number.to_le_bytes()[..]));
    });
    assert_eq!(drone.cpus().unwrap().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ProcessorId(0)]);
    assert_eq!(station.cpus().unwrap().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ProcessorId(1)]);
    let (mut drone, mut station) = (drone.prepare().unwrap(), station.prepare().unwrap());
    let (mut departures, arrivals) = (drone.take_departures().remove(0), station.take_arrivals().remove(0));
    assert_eq!((departures.to(), arrivals.from()), (HostId(1), HostId(0)));
    assert!(station.take_departures().is_empty() && drone.take_arrivals().is_empty());
    let clock = MonotonicClock::start_in(Span::from_millis(50));
    let (mut sent, mut received) = (0, 0);
    let over = AtomicBool::new(false);
    let carried = std::thread::scope(|scope| {
        let carrier = scope.spawn(|| carry(&mut departures, arrivals, &over));
        let station = station.begin(clock);
        let drone = drone.begin(clock);
        drone.wait(&mut |processor, _, event| {
            assert_eq!(processor, ProcessorId(0));
            sent += u64::from(matches!(event, TraceEvent::Decision(DispatchDecision::Send(_))));
        });
        let finished = station.wait(&mut |processor, at, event| {
            assert_eq!(processor, ProcessorId(1));
            if let TraceEvent::Input(Input::Signal(signal)) = event {
                received += 1;
                assert!(signal.due <= at, "the file's delay is not added to the real one");
            }
        });
        assert_eq!(finished.lost.signals, 0);
        over.store(true, Ordering::Release);
        carrier.join().unwrap()
    });
    assert_eq!(carried, sent);
    assert!(sent >= 39 && received + 1 >= sent, "sent {sent}, received {received}");
}

#[test]
fn an_arrival_that_the_other_host_cannot_have_sent_is_rejected() {
    let system = system(&TWO_HOSTS.replace("400ms", "60s"));
    let plan = plan(&system);
    let mut station: Prepared = Node::for_host(system.clone(), plan, HostId(1)).prepare().unwrap();
    let mut arrivals = station.take_arrivals().remove(0);
    let signal = Signal {
        from: OperationId(0),
        to: OperationId(1),
        position: 0,
        number: 0,
        origin: Instant::ZERO,
        period: Span::from_millis(10),
        due: Instant::ZERO,
        ticket: None,
    };
    assert_eq!(arrivals.push(signal, &[]), Err(Rejected::Idle));
    let running = station.begin(MonotonicClock::start());
    let tomorrow = Instant::ZERO + Span::from_secs(86_400);
    for (wrong, why) in [
        (Signal { from: OperationId(1), ..signal }, Rejected::Foreign),
        (Signal { to: OperationId(0), ..signal }, Rejected::Foreign),
        (Signal { to: OperationId(7), ..signal }, Rejected::Foreign),
        (Signal { position: 1, ..signal }, Rejected::Foreign),
        (Signal { origin: tomorrow, ..signal }, Rejected::Implausible),
        (Signal { period: Span::from_nanos(u64::MAX), ..signal }, Rejected::Implausible),
        (Signal { number: u64::MAX, ..signal }, Rejected::Implausible),
    ] {
        assert_eq!(arrivals.push(wrong, &[]), Err(why), "{wrong:?}");
    }
    assert_eq!(arrivals.push(signal, &[0; 9]), Err(Rejected::TooLong));
    assert_eq!(arrivals.push(signal, &[0; 8]), Ok(()));
    arrivals.deliver();
    drop(running);
}

#[test]
fn a_copy_with_a_release_number_ahead_of_the_time_is_rejected() {
    let copies = "[operation.copy]
        on = \"ground\"
        after = { all = [\"sense\"] }
        wcet = \"0.1ms\"
        [operation.decide]
        on = \"ground\"
        after = { first = [\"sense\", \"copy\"] }
        wcet = \"0.1ms\"
        [[link]]";
    let text = TWO_HOSTS.replace("400ms", "60s").replace("10ms", "10s").replace("[[link]]", copies);
    let system = system(&text);
    let mut station = Node::for_host(system.clone(), plan(&system), HostId(1)).prepare().unwrap();
    let mut arrivals = station.take_arrivals().remove(0);
    let id = |name| OperationId(system.operations.iter().position(|one| one.name == name).unwrap() as u32);
    let signal = |to, number| Signal {
        from: id("sense"),
        to: id(to),
        position: 0,
        number,
        origin: Instant::ZERO,
        period: Span::from_secs(10),
        due: Instant::ZERO,
        ticket: None,
    };
    let running = station.begin(MonotonicClock::start());
    let mut push = |to, number| arrivals.push(signal(to, number), &[]);
    // In the first ten seconds one is released. Clocks and a change of epoch permit more.
    assert_eq!((push("decide", 0), push("decide", 33)), (Ok(()), Ok(())));
    assert_eq!(push("decide", 1_000), Err(Rejected::Implausible));
    assert_eq!(push("copy", 1_000), Ok(()), "it makes no other copy a later one");
    drop(running);
}

#[test]
fn what_hosts_can_only_share_within_one_process_is_an_error() {
    let text = TWO_HOSTS.replace("after = { all = [\"sense\"] }", "every = \"20ms\"\nreads = [\"sense\"]");
    let system = system(&text);
    let node = Node::for_host(system.clone(), plan(&system), HostId(1));
    let error = node.prepare().map(Prepared::abandon).unwrap_err();
    assert!(matches!(&error, StartError::NeedsOneProcess { operation, .. } if operation == "recognise"));
    let remedy = "add `replicate = { to = [\"station\"] }` to operation `sense`, or run without --host";
    assert_eq!(error.remedy(), remedy);
    Node::new(system.clone(), plan(&system)).prepare().unwrap().abandon();
}

/// Two hosts. The second reads a replica of the first one's outputs; every fourth output is late.
fn replicated(flush: &str) -> String {
    format!(
        "
        duration = \"600ms\"
        [host.drone]
        [host.station]
        [processor.airframe]
        host = \"drone\"
        [processor.ground]
        host = \"station\"
        [operation.track]
        on = \"airframe\"
        every = \"20ms\"
        deadline = \"10ms\"
        wcet = \"1ms\"
        payload = \"8B\"
        replicate = {{ to = [\"station\"], flush = \"{flush}\" }}
        [operation.follow]
        on = \"ground\"
        after = {{ all = [\"track\"] }}
        guard = \"off\"
        reads = [\"track\"]
        wcet = \"0.1ms\"
        [operation.show]
        on = \"ground\"
        every = \"5ms\"
        reads = [\"track\"]
        wcet = \"0.1ms\"
        [[link]]
        between = [\"drone\", \"station\"]
        delay = \"3ms\"
        "
    )
}

/// The number of a value that was read, its age, and the number of the job that read it.
type Seen = Arc<Mutex<Vec<(Option<u64>, Option<Span>, u64)>>>;

fn late(number: u64) -> bool {
    number % 4 == 3
}

fn with_bodies(node: Node, shown: &Seen, followed: &Seen) -> Node {
    let reader = |store: &Seen| {
        let store = store.clone();
        move |job: &mut hyoshi_runtime::JobContext<'_>| {
            let seen = (job.read_latest("track"), job.age("track"), job.job().number);
            store.lock().unwrap().push(seen);
        }
    };
    let node = node.body("track", |job| {
        job.emit_value(&job.job().number).unwrap();
        if late(job.job().number) {
            std::thread::sleep(std::time::Duration::from_millis(12));
        }
    });
    node.body("show", reader(shown)).body("follow", reader(followed))
}

/// Ages count from the release, so they show when each output arrived.
fn check_flushed_at_deadlines(shown: &Seen, delay: Span) {
    let shown = shown.lock().unwrap();
    let numbers: Vec<u64> = shown.iter().filter_map(|(number, ..)| *number).collect();
    assert!(numbers.is_sorted() && numbers.iter().max() >= Some(&20), "{shown:?}");
    assert!(numbers.iter().all(|number| !late(*number)), "a late output was flushed: {shown:?}");
    assert!(shown.iter().all(|(number, age, _)| number.is_some() == age.is_some()), "{shown:?}");
    let youngest = Span::from_millis(10) + delay;
    assert!(shown.iter().filter_map(|(_, age, _)| *age).all(|age| age >= youngest), "flushed early: {shown:?}");
    for pair in shown.windows(2).filter(|pair| pair[0].0.is_some() && pair[0].0 == pair[1].0) {
        assert!(pair[0].1 < pair[1].1, "age grows until the next flush: {shown:?}");
    }
}

#[test]
fn in_one_process_a_replica_gets_outputs_at_their_deadlines_with_the_delay_of_the_link() {
    let system = system(&replicated("deadline"));
    let (shown, followed) = (Seen::default(), Seen::default());
    let node = with_bodies(Node::new(system.clone(), plan(&system)), &shown, &followed);
    let finished = node.start().unwrap().wait(&mut |_, _, _| ());
    assert_eq!(finished.lost.signals, 0);
    check_flushed_at_deadlines(&shown, Span::from_millis(3));
}

#[test]
fn in_one_process_an_output_that_is_flushed_at_completion_arrives_before_its_signal() {
    let system = system(&replicated("completion").replace("\"3ms\"", "[\"1ms\", \"9ms\"]"));
    let (shown, followed) = (Seen::default(), Seen::default());
    let node = with_bodies(Node::new(system.clone(), plan(&system)), &shown, &followed);
    node.start().unwrap().wait(&mut |_, _, _| ());
    let followed = followed.lock().unwrap();
    assert!(followed.len() >= 20 && followed.iter().any(|(.., number)| late(*number)), "{followed:?}");
    for (read, _, number) in &*followed {
        assert!(*read >= Some(*number), "the signal came first: {followed:?}");
    }
}

/// Runs both hosts as nodes. Returns the carried completions and the late outputs.
fn run_nodes(flush: &str, shown: &Seen, followed: &Seen) -> (u64, u64) {
    let system = system(&replicated(flush));
    let node = |host| Node::for_host(system.clone(), plan(&system), HostId(host));
    let mut drone = with_bodies(node(0), shown, followed).prepare().unwrap();
    let mut station = with_bodies(node(1), shown, followed).prepare().unwrap();
    let (departures, arrivals) = (drone.take_departures().remove(0), station.take_arrivals().remove(0));
    assert_eq!((departures.to(), arrivals.from()), (HostId(1), HostId(0)));
    let clock = MonotonicClock::start_in(Span::from_millis(50));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let carrier = scope.spawn(|| {
            let mut departures = departures;
            let carried = carry(&mut departures, arrivals, &over);
            (carried, departures.late_outputs())
        });
        let (station, drone) = (station.begin(clock), drone.begin(clock));
        drone.wait(&mut |_, _, _| ());
        station.wait(&mut |_, _, _| ());
        over.store(true, Ordering::Release);
        carrier.join().unwrap()
    })
}

#[test]
fn between_nodes_outputs_are_flushed_at_their_deadlines_and_late_ones_are_counted() {
    let (shown, followed) = (Seen::default(), Seen::default());
    let (carried, late) = run_nodes("deadline", &shown, &followed);
    assert!(carried >= 25 && (6..=30).contains(&late), "{carried} carried, {late} late");
    check_flushed_at_deadlines(&shown, Span::ZERO);
}

#[test]
fn between_nodes_an_output_that_is_flushed_at_completion_leaves_before_its_signal() {
    let (shown, followed) = (Seen::default(), Seen::default());
    let (carried, late_outputs) = run_nodes("completion", &shown, &followed);
    assert_eq!(late_outputs, 0, "late outputs are flushed, too");
    let followed = followed.lock().unwrap();
    assert!(carried >= 25 && followed.len() >= 20, "{carried} carried");
    assert!(followed.iter().all(|(read, _, number)| *read >= Some(*number)), "the signal came first: {followed:?}");
}

#[test]
fn a_host_that_only_replicates_to_another_has_a_sender_and_the_other_a_receiver() {
    let text =
        replicated("deadline").replace("after = { all = [\"track\"] }\n        guard = \"off\"", "every = \"50ms\"");
    let system = system(&text);
    let node = |host| Node::for_host(system.clone(), plan(&system), HostId(host)).prepare().unwrap();
    let (mut drone, mut station) = (node(0), node(1));
    let ends = |prepared: &mut Prepared| (prepared.take_departures().len(), prepared.take_arrivals().len());
    assert_eq!((ends(&mut drone), ends(&mut station)), ((1, 0), (0, 1)));
    drone.abandon();
    station.abandon();
}

#[test]
fn outputs_that_wait_beyond_their_bound_are_dropped_and_counted() {
    let system = system(
        r#"
        duration = "2s"
        [host.a]
        [host.b]
        [processor.p]
        host = "a"
        [processor.q]
        host = "b"
        [operation.sense]
        on = "p"
        every = "1ms"
        wcet = "0.05ms"
        takes = "0.01ms"
        deadline = "10s"
        payload = "8B"
        replicate = { to = ["b"] }
        [operation.show]
        on = "q"
        every = "10ms"
        wcet = "0.05ms"
        reads = ["sense"]
        "#,
    );
    let node = Node::for_host(system.clone(), plan(&system), HostId(0)).body("sense", |_| ());
    let mut prepared = node.prepare().unwrap();
    let mut departures = prepared.take_departures().remove(0);
    let over = AtomicBool::new(false);
    let finished = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                departures.wait(Span::from_millis(10));
                assert!(departures.take().is_none(), "each waits for its deadline");
            }
        });
        let finished = prepared.start().wait(&mut |_, _, _| ());
        over.store(true, Ordering::Release);
        finished
    });
    // 1,024 may wait, of some 2,000.
    assert!((500..=1_000).contains(&finished.lost.signals), "{}", finished.lost.signals);
}

#[test]
fn an_output_that_the_other_host_cannot_have_sent_is_rejected_and_an_older_one_ignored() {
    let system = system(&replicated("deadline").replace("600ms", "60s"));
    let seen = Seen::default();
    let node = Node::for_host(system.clone(), plan(&system), HostId(1));
    let mut station = with_bodies(node, &seen, &Seen::default()).prepare().unwrap();
    let mut arrivals = station.take_arrivals().remove(0);
    let output = ArrivedOutput {
        operation: OperationId(0),
        number: 5,
        leg: 0,
        sender_release: 100,
        release: Instant::from_nanos(100),
    };
    assert_eq!(arrivals.replicate(output, &[]), Err(Rejected::Idle));
    let running = station.begin(MonotonicClock::start());
    let tomorrow = Instant::ZERO + Span::from_secs(86_400);
    for (wrong, why) in [
        (ArrivedOutput { operation: OperationId(1), ..output }, Rejected::Foreign),
        (ArrivedOutput { operation: OperationId(9), ..output }, Rejected::Foreign),
        (ArrivedOutput { release: tomorrow, ..output }, Rejected::Implausible),
        (ArrivedOutput { number: u64::MAX, ..output }, Rejected::Implausible),
    ] {
        assert_eq!(arrivals.replicate(wrong, &[]), Err(why), "{wrong:?}");
    }
    assert_eq!(arrivals.replicate(output, &[0; 9]), Err(Rejected::TooLong));
    let wait_for = |arrivals: &mut IncomingCompletions, given: ArrivedOutput, shown: u64| {
        assert_eq!(arrivals.replicate(given, &given.number.to_le_bytes()), Ok(()));
        seen.lock().unwrap().clear();
        crate::common::until("a reader", || seen.lock().unwrap().len() >= 2);
        assert_eq!(seen.lock().unwrap()[1].0, Some(shown));
    };
    wait_for(&mut arrivals, output, 5);
    wait_for(&mut arrivals, ArrivedOutput { number: 4, sender_release: 90, ..output }, 5);
    wait_for(&mut arrivals, ArrivedOutput { number: 6, sender_release: 110, ..output }, 6);
    // After a restart of the sender its clock may be behind.
    arrivals.begin_session(true);
    wait_for(&mut arrivals, ArrivedOutput { number: 2, sender_release: 50, ..output }, 2);
    drop(running);
}
