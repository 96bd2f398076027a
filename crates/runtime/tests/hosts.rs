//! Two nodes that each run one host of a system, joined by a thread for each direction.

use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span};
use hyoshi_os::MonotonicClock;
use hyoshi_runtime::{IncomingCompletions, Node, OutgoingCompletions, Prepared, Rejected, StartError};
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
fn carry(mut from: OutgoingCompletions, mut to: IncomingCompletions, over: &AtomicBool) -> u64 {
    let mut carried = 0;
    while !over.load(Ordering::Acquire) {
        from.wait(Span::from_millis(5));
        while let Some(departure) = from.take() {
            to.push(departure.signal, departure.payload()).unwrap();
            carried += 1;
        }
        to.deliver();
    }
    carried
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
    let (departures, arrivals) = (drone.take_departures().remove(0), station.take_arrivals().remove(0));
    assert_eq!((departures.to(), arrivals.from()), (HostId(1), HostId(0)));
    assert!(station.take_departures().is_empty() && drone.take_arrivals().is_empty());
    let clock = MonotonicClock::start_in(Span::from_millis(50));
    let (mut sent, mut received) = (0, 0);
    let over = AtomicBool::new(false);
    let carried = std::thread::scope(|scope| {
        let carrier = scope.spawn(|| carry(departures, arrivals, &over));
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
fn what_hosts_can_only_share_within_one_process_is_an_error() {
    let text = TWO_HOSTS.replace("after = { all = [\"sense\"] }", "every = \"20ms\"\nreads = [\"sense\"]");
    let system = system(&text);
    let node = Node::for_host(system.clone(), plan(&system), HostId(1));
    let error = node.prepare().map(Prepared::abandon).unwrap_err();
    assert!(matches!(&error, StartError::NeedsOneProcess { operation, .. } if operation == "recognise"));
    assert!(error.remedy().contains("run without --host"), "{error}");
    Node::new(system.clone(), plan(&system)).prepare().unwrap().abandon();
}
