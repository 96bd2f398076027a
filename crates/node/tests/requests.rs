//! Requests to objects as jobs of a node.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, ProcessorId, Span, System, read};
use hyoshi_node::{JobOrder, OperationBindError, ServedLane};
use hyoshi_orb::rt::{CallTiming, with_timing};
use hyoshi_orb::{LaneOptions, Orb, Reference, SystemException, SystemKind, minor};
use hyoshi_runtime::{Node, Prepared, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, JobRequest, TraceEvent};

use crate::tracking::{CallbackStub, LocateError, Named, Position, Tracker, TrackerStub};

const TEXT: &str = r#"
    name = "tracking"
    duration = "60s"
    [processor.main]
    strategy = "EDF"
    [operation.locate]
    called = true
    wcet = "1ms"
    deadline = "10s"
    queue = { limit = 2 }
    [operation.reset]
    called = true
    wcet = "1ms"
    deadline = "1s"
    [operation.control]
    every = "10ms"
    deadline = "20s"
    wcet = "0.1ms"
"#;

/// A servant that records its calls, and returns only while the gate is open.
#[derive(Default)]
struct Gated {
    open: Mutex<bool>,
    changed: Condvar,
    done: Mutex<Vec<String>>,
}

impl Gated {
    fn pass(&self, what: &str) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.changed.wait(open).unwrap();
        }
        drop(open);
        self.done.lock().unwrap().push(what.to_owned());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Named for Gated {
    fn name(&self) -> Result<String, SystemException> {
        self.pass("name");
        Ok("gated".to_owned())
    }
}

impl Tracker for Gated {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        self.pass(&format!("locate {id}"));
        Ok(Position { x: f64::from(id), y: 0.0 })
    }
    fn hint(&self, note: &str, _: &[u8]) -> Result<(), SystemException> {
        self.pass(&format!("hint {note}"));
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        self.pass("echo");
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        self.pass("nothing");
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Server {
    system: Arc<System>,
    plan: Arc<Plan>,
    servant: Arc<Gated>,
    order: JobOrder,
    serving: ServedLane,
    orb: Orb,
    reference: String,
    /// The same servant, of which all requests are jobs of `reset`.
    urgent: String,
}

/// A tracker: `nothing` and `echo` are jobs of the operation `reset`, all other methods of `locate`.
fn server(limit: u32) -> (Server, Prepared) {
    server_of(&TEXT.replace("limit = 2", &format!("limit = {limit}")))
}

fn server_of(text: &str) -> (Server, Prepared) {
    let system = Arc::new(read(text, "tracking.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let order = JobOrder::new(&system, ProcessorId(0), 16);
    let binding = order.bind("locate", &[("nothing", "reset"), ("echo", "reset")]).unwrap();
    let mut node = order.install(Node::new(system.clone(), plan.clone())).prepare().unwrap();
    let lane = LaneOptions { name: "requests".into(), threads: 0, ..LaneOptions::default() };
    let builder = Orb::builder().lane(lane).order(order.clone(), 16).listen("iiop://127.0.0.1:0").unwrap();
    let orb = builder.build().unwrap();
    let servant = Arc::new(Gated::default());
    let adapter = orb.adapter("a").build().unwrap();
    let stub = adapter.activate_ordered::<dyn Tracker>("tracker", servant.clone(), binding).unwrap();
    let reference = AsRef::<Reference<dyn Tracker>>::as_ref(&stub).ior().to_string();
    let all = order.bind("reset", &[]).unwrap();
    let stub = adapter.activate_ordered::<dyn Tracker>("urgent", servant.clone(), all).unwrap();
    let urgent = AsRef::<Reference<dyn Tracker>>::as_ref(&stub).ior().to_string();
    let serving = order.serve(&mut node, orb.owned_lane("requests").unwrap()).unwrap();
    orb.ready();
    (Server { system, plan, servant, order, serving, orb, reference, urgent }, node)
}

impl Server {
    /// A client of its own connection.
    fn client(&self) -> (Orb, TrackerStub) {
        self.client_of(&self.reference)
    }

    fn client_of(&self, reference: &str) -> (Orb, TrackerStub) {
        let orb = Orb::client().unwrap();
        let stub = orb.resolve_unchecked::<dyn Tracker>(reference).unwrap();
        (orb, stub)
    }
}

fn end(running: RunningNode) -> Vec<(Instant, TraceEvent)> {
    let mut events = Vec::new();
    running.stop(&mut |_, at, event| events.push((at, event)));
    events
}

/// Polls until so many requests have been handed to the dispatcher.
fn until_invoked(running: &mut RunningNode, events: &mut Vec<(Instant, TraceEvent)>, count: usize) {
    let began = WallClock::now();
    let invoked = |events: &[(Instant, TraceEvent)]| {
        events.iter().filter(|(_, event)| matches!(event, TraceEvent::Input(Input::Invoke(_)))).count()
    };
    while invoked(events) < count {
        running.poll(&mut |_, at, event| events.push((at, event)));
        assert!(began.elapsed() < Duration::from_secs(30), "{} of {count} requests came", invoked(events));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn calls_of_several_clients_are_jobs_that_a_replay_decides_again() {
    let (server, node) = server(8);
    server.servant.open();
    let running = node.start();
    thread::scope(|scope| {
        for client in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let (_orb, stub) = server.client();
                for id in 0..50 {
                    assert_eq!(stub.locate(client * 100 + id).unwrap().x, f64::from(client * 100 + id));
                    assert_eq!(stub.echo(&[1, 2, 3]).unwrap(), [1, 2, 3]);
                }
                stub.nothing().unwrap();
            });
        }
    });
    let events = end(running);
    let of = |operation: u32| {
        let ran = |event: &&(Instant, TraceEvent)| matches!(event.1, TraceEvent::Decision(DispatchDecision::Run { job, .. }) if job.operation.0 == operation);
        events.iter().filter(ran).count()
    };
    assert_eq!((of(0), of(1)), (200, 204));
    let replayed = hyoshi_replay::replay(&server.system, &server.plan.processors[0], events);
    replayed.unwrap_or_else(|parted| panic!("{parted}"));
}

#[test]
fn the_strategy_orders_requests_and_one_that_finds_the_queue_full_is_refused() {
    let (server, node) = server(2);
    let mut running = node.start();
    let mut events = Vec::new();
    // One runs, and waits at the gate within its body: until it ends its thread reads no request.
    let (first_orb, first) = server.client();
    let first = thread::spawn(move || (first.nothing(), drop(first_orb)).0);
    until_invoked(&mut running, &mut events, 1);
    // A oneway returns when the kernel has it. Each has a connection of its own. All are jobs of `locate`, by their object.
    let clients = ["a", "b", "c"].map(|note| {
        let (orb, stub) = server.client();
        stub.hint(note, &[]).unwrap();
        orb
    });
    // Its deadline is earlier: it is a job of `reset`.
    let (urgent_orb, urgent) = server.client_of(&server.urgent);
    urgent.hint("urgent", &[]).unwrap();
    server.servant.open();
    first.join().unwrap().unwrap();
    let began = WallClock::now();
    while server.servant.done.lock().unwrap().len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", server.servant.done.lock().unwrap());
        thread::sleep(Duration::from_millis(1));
    }
    let done = server.servant.done.lock().unwrap().clone();
    assert_eq!(done[..2], ["nothing", "hint urgent"]);
    let events = [events, end(running)].concat();
    let full = |event: &&(Instant, TraceEvent)| matches!(event.1, TraceEvent::Decision(DispatchDecision::End(end)) if end.outcome == JobOutcome::DroppedFull);
    // Two of the other three had room.
    assert_eq!((server.servant.done.lock().unwrap().len(), events.iter().filter(full).count()), (4, 1));
    drop((clients, urgent_orb));
}

/// A client that waits for a reply learns that its request was refused.
#[test]
fn a_refused_request_gets_transient_and_was_not_carried_out() {
    let (server, node) = server(1);
    let mut running = node.start();
    let mut events = Vec::new();
    let (first_orb, first) = server.client();
    let first = thread::spawn(move || (first.nothing(), drop(first_orb)).0);
    until_invoked(&mut running, &mut events, 1);
    let (fills_orb, fills) = server.client();
    fills.hint("fills the queue", &[]).unwrap();
    let calls = [(); 3].map(|()| {
        let (orb, stub) = server.client();
        thread::spawn(move || (stub.locate(7), drop(orb)).0)
    });
    server.servant.open();
    first.join().unwrap().unwrap();
    for answer in calls.map(|call| call.join().unwrap()) {
        match answer {
            Ok(found) => assert_eq!(found.x, 7.0),
            Err(LocateError::System(raised)) => {
                assert_eq!((raised.kind, raised.minor), (SystemKind::Transient, minor::NOT_RUN));
                assert_eq!(raised.completed, hyoshi_orb::Completed::No);
            }
            Err(other) => panic!("{other}"),
        }
    }
    drop((end(running), fills_orb));
}

#[test]
fn a_client_that_dies_costs_nothing_and_the_end_of_the_run_refuses_what_waits() {
    let (server, node) = server(2);
    let mut running = node.start();
    let mut events = Vec::new();
    let (orb, stub) = server.client();
    let first = thread::spawn(move || (stub.nothing(), drop(orb)).0);
    until_invoked(&mut running, &mut events, 1);
    {
        use std::io::Write;
        let hyoshi_orb::IorEndpoint::Tcp { host, port, .. } = server.orb.endpoints()[0].clone() else { unreachable!() };
        let mut dies = std::net::TcpStream::connect((host.as_str(), port)).unwrap();
        dies.write_all(b"GIOP\x01\x02\x01\x00\xff\x00\x00\x00half a request").unwrap();
    }
    server.servant.open();
    first.join().unwrap().unwrap();
    let (_orb, stub) = server.client();
    stub.nothing().unwrap();
    drop(end(running));
    assert_eq!(server.order.refused_after_run(), 0);
}

#[test]
fn requests_that_arrive_after_the_run_are_answered_and_counted() {
    let (server, node) = server(2);
    server.servant.open();
    let running = node.start();
    let (_orb, stub) = server.client();
    let stub = stub.as_ref().within(hyoshi_model::Span::from_secs(30));
    stub.nothing().unwrap();
    drop(end(running));
    let over = |raised: SystemException| {
        assert_eq!((raised.kind, raised.minor), (SystemKind::Transient, minor::RUN_OVER));
        assert_eq!(raised.completed, hyoshi_orb::Completed::No);
    };
    over(stub.nothing().unwrap_err());
    // Of a new connection, too, and of the other binding. Retried requests are counted each time.
    let (_other, urgent) = server.client_of(&server.urgent);
    let before = server.order.refused_after_run();
    assert!(before >= 1);
    over(urgent.as_ref().within(hyoshi_model::Span::from_secs(30)).nothing().unwrap_err());
    assert!(server.order.refused_after_run() > before);
    assert_eq!(server.servant.done.lock().unwrap().len(), 1, "none of them was carried out");
    drop(server.serving);
}

/// Calls another object of its own node: without giving its lane up it would wait for itself.
struct Asks(TrackerStub);

impl Named for Asks {
    fn name(&self) -> Result<String, SystemException> {
        self.0.name()
    }
}

impl Tracker for Asks {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        self.0.locate(id)
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        self.0.echo(raw)
    }
    fn nothing(&self) -> Result<(), SystemException> {
        self.0.nothing()
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn a_job_that_calls_another_object_lets_its_lane_go_on_meanwhile() {
    let text = TEXT.replace("strategy = \"EDF\"", "strategy = \"EDF\"\n    pool = 3");
    let system = Arc::new(read(&text, "tracking.toml", None).unwrap().system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let order = JobOrder::new(&system, ProcessorId(0), 16);
    let (outer, inner) = (order.bind("locate", &[]).unwrap(), order.bind("reset", &[]).unwrap());
    let mut node = order.install(Node::new(system.clone(), plan)).prepare().unwrap();
    let lane = LaneOptions { name: "requests".into(), threads: 0, ..LaneOptions::default() };
    let builder = Orb::builder().lane(lane).order(order.clone(), 16).collocation(false);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let gated = Arc::new(Gated::default());
    gated.open();
    let inner = adapter.activate_ordered::<dyn Tracker>("inner", gated, inner).unwrap();
    let calls = Orb::client().unwrap();
    let asks = calls.resolve_unchecked::<dyn Tracker>(&inner.as_ref().ior().to_string()).unwrap();
    let outer = adapter.activate_ordered::<dyn Tracker>("outer", Arc::new(Asks(asks)), outer).unwrap();
    let _serving = order.serve(&mut node, orb.owned_lane("requests").unwrap()).unwrap();
    orb.ready();
    let running = node.start();
    let client = Orb::client().unwrap();
    let stub = client.resolve_unchecked::<dyn Tracker>(&outer.as_ref().ior().to_string()).unwrap();
    for id in 0..20 {
        let found = stub.as_ref().within(hyoshi_model::Span::from_secs(20)).locate(id).unwrap();
        assert_eq!(found.x, f64::from(id));
    }
    let events = end(running);
    let suspended = events.iter().filter(|(_, event)| matches!(event, TraceEvent::Input(Input::Suspend { .. })));
    assert_eq!(suspended.count(), 20);
    // The calls of the outer jobs carry the jobs' timing.
    let invoked = invoked(&events);
    for pair in invoked.chunks(2) {
        let [(_, outer), (at, inner)] = pair else { panic!("{invoked:?}") };
        assert_eq!((inner.origin, inner.deadline), (outer.origin, outer.deadline));
        assert!(outer.origin <= inner.sent && inner.sent <= *at);
    }
}

/// The requests that were handed to the dispatcher, with their times of arrival.
fn invoked(events: &[(Instant, TraceEvent)]) -> Vec<(Instant, JobRequest)> {
    let request = |(at, event): &(Instant, TraceEvent)| match event {
        TraceEvent::Input(Input::Invoke(request)) => Some((*at, *request)),
        _ => None,
    };
    events.iter().filter_map(request).collect()
}

#[test]
fn callers_postpone_their_deadlines_but_are_never_more_urgent_than_the_file_says() {
    let (server, node) = server(8);
    let mut running = node.start();
    let mut events = Vec::new();
    let (first_orb, first) = server.client();
    let first = thread::spawn(move || (first.nothing(), drop(first_orb)).0);
    until_invoked(&mut running, &mut events, 1);
    // `locate` has 10 s in the file. The third asks for 1 ms, the fourth for nothing.
    let within = [Some(Span::from_secs(60)), Some(Span::from_secs(30)), Some(Span::from_millis(1)), None];
    let clients: Vec<Orb> = (0..4)
        .map(|at| {
            let (orb, stub) = server.client();
            let send = || stub.hint(&at.to_string(), &[]).unwrap();
            match within[at] {
                None => send(),
                within => {
                    with_timing(CallTiming { within, importance: 9, critical: true, ..CallTiming::default() }, send);
                }
            }
            // In this order, although each has a connection of its own.
            let began = WallClock::now();
            while at < 3 && began.elapsed() < Duration::from_millis(20) {
                thread::sleep(Duration::from_millis(1));
            }
            orb
        })
        .collect();
    server.servant.open();
    first.join().unwrap().unwrap();
    let began = WallClock::now();
    while server.servant.done.lock().unwrap().len() < 5 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", server.servant.done.lock().unwrap());
        thread::sleep(Duration::from_millis(1));
    }
    let done = server.servant.done.lock().unwrap().clone();
    assert_eq!(done[3..], ["hint 1", "hint 0"]);
    let events = [events, end(running)].concat();
    for (at, request) in &invoked(&events)[1..] {
        let counts_from = if request.deadline < *at + Span::from_secs(10) { request.sent } else { *at };
        assert!(request.deadline >= counts_from + Span::from_secs(10), "{request:?}");
        assert_eq!(request.importance, 0);
        assert!(request.origin <= request.sent && request.sent <= *at);
    }
    drop(clients);
}

#[test]
fn a_request_that_can_no_longer_meet_its_deadline_is_cancelled_with_timeout() {
    let text = TEXT.replace("strategy = \"EDF\"", "strategy = \"EDF\"\n    cancel = true").replace("10s", "50ms");
    let (server, node) = server_of(&text);
    let mut running = node.start();
    let mut events = Vec::new();
    let (first_orb, first) = server.client();
    let first = thread::spawn(move || (first.nothing(), drop(first_orb)).0);
    until_invoked(&mut running, &mut events, 1);
    let (orb, late) = server.client();
    let timing = CallTiming { within: Some(Span::from_millis(1)), ..CallTiming::default() };
    let late = thread::spawn(move || (with_timing(timing, || late.locate(1)), drop(orb)).0);
    // Longer than the 50 ms that the file gives to `locate`. They count from the sending: the lane reads nothing now.
    thread::sleep(Duration::from_millis(120));
    server.servant.open();
    first.join().unwrap().unwrap();
    match late.join().unwrap() {
        Err(LocateError::System(raised)) => {
            assert_eq!((raised.kind, raised.minor), (SystemKind::Timeout, minor::TOO_LATE));
            assert_eq!(raised.completed, hyoshi_orb::Completed::No);
        }
        other => panic!("{other:?}"),
    }
    drop(end(running));
}

#[test]
fn an_object_is_bound_only_to_called_operations_of_its_processor() {
    let system = Arc::new(read(TEXT, "tracking.toml", None).unwrap().system);
    let order = JobOrder::new(&system, ProcessorId(0), 16);
    let error = order.bind("moon", &[]).unwrap_err();
    assert_eq!(error, OperationBindError::Unknown { operation: "moon".into() });
    let error = order.bind("locate", &[("nothing", "control")]).unwrap_err();
    assert!(error.to_string().contains("called = true"), "{error}");
    assert!(order.bind("locate", &[]).is_ok());
}
