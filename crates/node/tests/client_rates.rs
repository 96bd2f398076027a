//! Clients of objects that take part in feedback control: they join, learn their rates, leave, vanish, or ignore them.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, Span, System, read};
use hyoshi_node::idl::hyoshi_rates::{
    Admission, Grant, JoinError, Modulator, ModulatorStub, RateError, Rates, RatesStub, Task,
};
use hyoshi_node::{Objects, ServingObjects};
use hyoshi_orb::{Orb, SystemException, SystemKind, TlsClient, TlsServer, minor};
use hyoshi_os::own_cpu_time;
use hyoshi_runtime::{Node, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, FeedbackHistories, Input, TraceEvent};

use crate::authority::Authority;
use crate::common::{folder, unused_address};
use crate::programs::{Program, build};
use crate::tracking::{CallbackStub, LocateError, Named, Position, Tracker, TrackerStub};

const PATIENCE: Duration = Duration::from_secs(40);

/// Each request needs 2 ms of the CPU. At 40 % there are 200 requests a second.
fn text(map: &str, rates: &str) -> String {
    format!(
        "name = 'rates'
        duration = '120s'
        [processor.map]
        strategy = 'EDF'
        [feedback.map]
        algorithm = 'FC-U'
        utilisation = '40%'
        period = '100ms'
        measure = 'lanes'
        endpoints = [{rates}]
        [operation.query]
        on = 'map'
        called = true
        clients = {{ rate = ['1Hz', '150Hz'], most = 3 }}
        wcet = '2ms'
        importance = 4
        queue = {{ limit = 16 }}
        [operation.watch]
        on = 'map'
        every = '100ms'
        wcet = '1ms'
        [object.map]
        operation = 'query'
        endpoints = ['tcp/{map}']"
    )
}

struct Map;

impl Named for Map {
    fn name(&self) -> Result<String, SystemException> {
        Ok("map".to_owned())
    }
}

impl Tracker for Map {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        Ok(Position { x: f64::from(id), y: 0.0 })
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        let until = own_cpu_time() + Span::from_millis(2);
        while own_cpu_time() < until {}
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Run {
    system: Arc<System>,
    plan: Arc<Plan>,
    serving: ServingObjects,
    running: RunningNode,
    events: Vec<(Instant, TraceEvent)>,
    map: String,
    rates: String,
    socket: String,
    /// Jobs of `watch` use all of the CPU.
    saturates: Arc<AtomicBool>,
}

fn run() -> Run {
    let rates = unused_address().to_string();
    let socket = folder().join("rates").display().to_string();
    let run = run_at(&format!("'tcp/{rates}', 'unix/{socket}'"), None);
    let run = Run { rates, socket, ..run };
    // It refuses clients before instant 0.
    let (_orb, probe) = run.rates();
    until("the run begins", || has_begun(&probe));
    run
}

fn has_begun(probe: &RatesStub) -> bool {
    match probe.join(&task(200.0, 300.0), None) {
        Err(JoinError::Refused(refused)) => refused.why.contains("the range of the system file"),
        other => panic!("{other:?}"),
    }
}

fn run_at(endpoints: &str, tls: Option<(&TlsServer, &TlsClient)>) -> Run {
    let map = unused_address().to_string();
    let text = text(&map, endpoints);
    let system = Arc::new(read(&text, "rates.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut objects = Objects::new();
    objects.add::<dyn Tracker>("map", Arc::new(Map));
    let node = Node::new(system.clone(), plan.clone()).share_cpu(true);
    let (node, installed) = objects.install(&system, None, node).unwrap();
    let saturates = Arc::new(AtomicBool::new(false));
    let until = saturates.clone();
    let node = node.body("watch", move |_| {
        // After a second, the watchdog would end the run.
        let end = own_cpu_time() + Span::from_millis(700);
        while until.load(Ordering::Relaxed) && own_cpu_time() < end {}
    });
    let mut node = node.prepare().unwrap();
    let serving = installed.serve(&mut node, tls).unwrap();
    let (rates, socket) = (String::new(), String::new());
    Run { system, plan, serving, running: node.start(), events: Vec::new(), map, rates, socket, saturates }
}

impl Run {
    fn rates(&self) -> (Orb, RatesStub) {
        let orb = Orb::client().unwrap();
        let rates = orb.resolve_unchecked::<dyn Rates>(&format!("corbaloc:iiop:1.2@{}/rates", self.rates)).unwrap();
        (orb, rates)
    }

    fn poll(&mut self) {
        let events = &mut self.events;
        self.running.poll(&mut |_, at, event| events.push((at, event)));
    }

    fn until(&mut self, what: &str, mut condition: impl FnMut(&Run) -> bool) {
        let began = WallClock::now();
        while !condition(self) {
            assert!(began.elapsed() < PATIENCE, "{what}; {:?}", self.serving.client_reports());
            self.poll();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the run, and replays it.
    fn end(self) -> Vec<(Instant, TraceEvent)> {
        let Run { mut events, system, plan, running, serving, .. } = self;
        running.stop(&mut |_, at, event| events.push((at, event)));
        drop(serving);
        let replayed = hyoshi_replay::replay(&system, &plan.processors[0], events.clone());
        replayed.unwrap_or_else(|parted| panic!("{parted}"));
        events
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = WallClock::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn task(lowest: f64, highest: f64) -> Task {
    Task { operation: "query".to_owned(), lowest, highest, estimate: 2_000_000, value: 1 }
}

/// A rate modulator: the latest rate, as the bits of a number.
#[derive(Default)]
pub struct Interval(AtomicU64, AtomicU64);

impl Interval {
    pub fn hertz(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Modulator for Interval {
    fn rate(&self, hertz: f64) -> Result<(), SystemException> {
        self.0.store(hertz.to_bits(), Ordering::Relaxed);
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A client that sends requests at the rate of its modulator, until it is dropped.
struct Client {
    interval: Arc<Interval>,
    grant: Grant,
    over: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
    orb: Option<Orb>,
}

impl Client {
    fn join(run: &Run, what: &Task) -> Client {
        let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let interval = Arc::new(Interval::default());
        let modulator = orb.adapter("modulator").build().unwrap();
        let modulator: ModulatorStub = modulator.activate::<dyn Modulator>(interval.clone()).unwrap();
        let rates = orb.resolve_unchecked::<dyn Rates>(&format!("corbaloc:iiop:1.2@{}/rates", run.rates)).unwrap();
        let grant = rates.join(what, Some(&modulator)).unwrap();
        interval.rate(grant.hertz).unwrap();
        let target: TrackerStub = target(&orb, &grant);
        let (over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, own, count) = (over.clone(), interval.clone(), refused.clone());
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = WallClock::now();
                count.fetch_add(u64::from(target.hint("", &[]).is_err()), Ordering::Relaxed);
                thread::sleep(Duration::from_secs_f64(1.0 / own.hertz()).saturating_sub(began.elapsed()));
            }
        });
        Client { interval, grant, over, refused, thread: Some(thread), orb: Some(orb) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
        self.orb.take().inspect(Orb::shutdown);
    }
}

fn target(orb: &Orb, grant: &Grant) -> TrackerStub {
    let target = AsRef::<hyoshi_orb::Reference<dyn hyoshi_orb::Object>>::as_ref(grant.target.as_ref().unwrap());
    orb.resolve_unchecked::<dyn Tracker>(&target.ior().to_string()).unwrap()
}

#[test]
fn clients_get_rates_that_hold_the_set_point_and_a_vanished_one_leaves_its_share() {
    let mut run = run();
    let first = Client::join(&run, &task(1.0, 500.0));
    assert_eq!((first.grant.verdict, first.grant.hertz), (Admission::Lower, 1.0));
    assert!(first.grant.note.contains("the system file allows at most 150"), "{}", first.grant.note);
    run.until("alone it has its highest rate", |_| first.interval.hertz() > 149.0);
    let second = Client::join(&run, &task(1.0, 150.0));
    // 200 a second are the set point, of which `watch` uses little.
    run.until("both have about half", |_| first.interval.hertz() < 145.0 && second.interval.hertz() > 50.0);
    assert_eq!((first.refused.load(Ordering::Relaxed), second.refused.load(Ordering::Relaxed)), (0, 0));
    run.until("each sample is told", |_| second.interval.1.load(Ordering::Relaxed) > 10);
    drop(second);
    run.until("it is reported", |run| run.serving.client_reports().iter().any(|one| one.contains("was removed")));
    run.until("the first gets its share", |_| first.interval.hertz() > 149.0);
    let system = run.system.clone();
    drop(first);
    let events = run.end();
    let mut histories = FeedbackHistories::new(&system);
    events.iter().for_each(|(at, event)| histories.event(hyoshi_model::ProcessorId(0), *at, event));
    let (clients, omitted) = histories.all()[0].clients();
    assert_eq!((clients.len(), omitted, clients[0].task.label.as_str()), (2, 0, "127.0.0.1"));
    assert!(clients[1].left.is_some() && clients.iter().all(|client| client.changes > 5), "{clients:?}");
}

/// Almost no request is served, but the feedback lane works.
#[test]
fn rates_fall_and_clients_join_and_leave_while_the_lane_is_saturated() {
    let mut run = run();
    let (orb, rates) = run.rates();
    let client = Client::join(&run, &task(1.0, 150.0));
    run.until("it has its highest rate", |_| client.interval.hertz() > 149.0);
    run.saturates.store(true, Ordering::Relaxed);
    run.until("it has its lowest rate", |_| client.interval.hertz() < 1.001);
    let other = rates.join(&task(1.0, 150.0), None).unwrap();
    assert!(rates.rate(other.ticket).unwrap() < 1.001);
    rates.leave(other.ticket).unwrap();
    // Its requests are unread for long, so the client is not silent.
    let began = WallClock::now();
    run.until("longer than a client may be silent", |_| began.elapsed() > Duration::from_secs(15));
    let reports = run.serving.client_reports();
    assert!(!reports.iter().any(|report| report.contains("removed")), "{reports:?}");
    run.saturates.store(false, Ordering::Relaxed);
    run.until("it has its highest rate again", |_| client.interval.hertz() > 149.0);
    drop((client, orb));
    run.end();
}

#[test]
fn a_client_that_cannot_be_served_is_refused_with_the_reason() {
    let run = run();
    let (orb, rates) = run.rates();
    let refused = |what: &Task| match rates.join(what, None) {
        Err(JoinError::Refused(refused)) => format!("{}: {}", refused.why, refused.remedy),
        other => panic!("{other:?}"),
    };
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        assert!(refused(&task(1.0, bad)).starts_with(&format!("`highest` is {bad} Hz: use a finite rate")));
    }
    assert!(refused(&task(3.0, 2.0)).starts_with("the range of rates is empty"));
    assert!(refused(&task(200.0, 300.0)).contains("the range of the system file"));
    assert!(refused(&Task { estimate: 2_000_001, ..task(1.0, 2.0) }).contains("above the operation's `wcet` of 2ms"));
    assert!(
        refused(&Task { operation: "watch".to_owned(), ..task(1.0, 2.0) })
            .ends_with("use one of these operations: query")
    );
    // 200 requests of 2 ms a second, less 1 % for `watch`. The third place keeps its least rate.
    let one = rates.join(&task(100.0, 150.0), None).unwrap();
    let above = refused(&task(100.0, 150.0));
    assert!(
        above.starts_with("with this client, the load at the lowest rates would be 41.2%, above the loop's limit"),
        "{above}"
    );
    let others = [(); 2].map(|()| rates.join(&task(1.0, 150.0), None).unwrap());
    assert!(refused(&task(1.0, 150.0)).starts_with("3 clients are registered"));
    rates.leave(one.ticket).unwrap();
    rates.leave(one.ticket).unwrap();
    assert!(matches!(rates.rate(one.ticket), Err(RateError::Refused(_))));
    let newest = rates.join(&task(100.0, 150.0), None).unwrap();
    assert!(rates.rate(others[0].ticket).unwrap() >= 1.0);
    // Another machine's address, and a client without an address.
    let elsewhere = orb.resolve_unchecked::<dyn Modulator>("corbaloc:iiop:1.2@10.0.0.1:7/m").unwrap();
    let Err(JoinError::Refused(why)) = rates.join(&task(1.0, 2.0), Some(&elsewhere)) else { panic!() };
    assert_eq!(why.why, "the modulator is at `10.0.0.1`, but the client calls from 127.0.0.1");
    let local = Orb::builder().client_transport("* unix".parse().unwrap()).build().unwrap();
    let by_socket = local.resolve_unchecked::<dyn Rates>(&format!("corbaloc:omniunix:{}:/rates", run.socket)).unwrap();
    let Err(JoinError::Refused(why)) = by_socket.join(&task(1.0, 2.0), Some(&elsewhere)) else { panic!() };
    assert!(why.why.contains("over a Unix socket"), "{}", why.why);
    // The newest client of the address with most clients makes room for one of another.
    let local_client = by_socket.join(&task(1.0, 150.0), None).unwrap();
    assert!(rates.rate(others[1].ticket).is_ok() && matches!(rates.rate(newest.ticket), Err(RateError::Refused(_))));
    assert!(refused(&task(1.0, 150.0)).starts_with("3 clients are registered"), "two are of this address");
    assert!(by_socket.rate(local_client.ticket).is_ok());
    // A request of a client that is not registered, and of one that has left.
    let named = orb.resolve_unchecked::<dyn Tracker>(&format!("corbaloc:iiop:1.2@{}/map", run.map)).unwrap();
    let raised = named.nothing().unwrap_err();
    assert_eq!((raised.kind, raised.minor), (SystemKind::NoPermission, minor::UNREGISTERED));
    assert_eq!(target(&orb, &one).nothing().unwrap_err().kind, SystemKind::ObjectNotExist);
    assert!(target(&orb, &others[0]).nothing().is_ok());
    let reports = run.serving.client_reports();
    assert!(
        reports.iter().any(|one| one.contains("requests to join were refused; reason of the last one:")),
        "{reports:?}"
    );
    run.end();
}

#[test]
fn a_client_that_ignores_its_rate_gets_no_more_than_that_and_a_silent_one_leaves() {
    let mut run = run();
    let (orb, rates) = run.rates();
    let [greedy, silent] = [(); 2].map(|()| rates.join(&task(1.0, 2.0), None).unwrap());
    let ignored = Arc::new(Mutex::new((0, 0)));
    let (over, counts, stub) = (Arc::new(AtomicBool::new(false)), ignored.clone(), target(&orb, &greedy));
    let ended = over.clone();
    let began = WallClock::now();
    let client = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let answer = stub.nothing();
            let mut counts = counts.lock().unwrap();
            match answer {
                Ok(()) => counts.0 += 1,
                Err(raised) => {
                    assert_eq!((raised.kind, raised.minor), (SystemKind::Transient, minor::TOO_OFTEN));
                    counts.1 += 1;
                }
            }
            drop(counts);
            thread::sleep(Duration::from_millis(20));
        }
    });
    let reported = |run: &Run, what: &str| run.serving.client_reports().iter().any(|one| one.contains(what));
    run.until("the greedy one is reported", |run| reported(run, "exceeds its rate"));
    run.until("the silent one leaves", |run| reported(run, "was removed: it sent no request and no `rate` call for"));
    assert!(matches!(rates.rate(silent.ticket), Err(RateError::Refused(_))));
    assert!(rates.rate(greedy.ticket).is_ok());
    over.store(true, Ordering::Relaxed);
    client.join().unwrap();
    let (served, refused) = *ignored.lock().unwrap();
    let most = 2.0 * began.elapsed().as_secs_f64() + 4.0;
    assert!(refused > 10 && f64::from(served) <= most, "{served} served of at most {most}, {refused} refused");
    let events = run.end();
    let count = |is: fn(&TraceEvent) -> bool| events.iter().filter(|(_, event)| is(event)).count();
    assert_eq!(count(|event| matches!(event, TraceEvent::Input(Input::Join { .. }))), 2);
    assert_eq!(count(|event| matches!(event, TraceEvent::Input(Input::Leave { .. }))), 1);
    assert!(count(|event| matches!(event, TraceEvent::Decision(DispatchDecision::Pace { .. }))) > 2);
}

/// Two clients in omniORB: one with a modulator, one that polls.
#[test]
fn clients_in_omniorb_learn_their_rates() {
    let Some(modulator) = build("rates").map(|directory| directory.join("modulator")) else { return };
    let run = run();
    let start = |last: &[&str]| {
        let mut command = Command::new(&modulator);
        command.arg(format!("corbaloc:iiop:1.2@{}/rates", run.rates)).args(["query", "20", "100"]).args(last);
        Program::start(command.args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]).stderr(Stdio::null()))
    };
    for last in [&[][..], &["poll"]] {
        let program = start(last);
        assert_eq!(program.line(), "refused `highest` is NaN Hz");
        // A modulator may have its first rate before the answer to `join`.
        let mut lines = std::iter::repeat_with(|| program.line());
        let granted = lines.find(|line| !line.starts_with("rate ")).unwrap();
        assert!(granted.starts_with("granted ") && granted.ends_with(" 20.000 100.000"), "{granted}");
        // The load is low, so the rate rises.
        let rate: f64 = program.line().strip_prefix("rate ").unwrap().parse().unwrap();
        assert!((20.0..=100.001).contains(&rate), "{rate}");
        let (code, lines) = program.end();
        let last = lines.last().unwrap();
        let (served, refused) = last.strip_prefix("served ").unwrap().split_once(" refused ").unwrap();
        let [served, refused] = [served, refused].map(|count| count.parse::<u32>().unwrap());
        assert_eq!((code, served + refused), (Some(0), 100), "{lines:?}");
        assert!(served >= 80, "{lines:?}");
        let fastest = lines.iter().filter_map(|line| line.strip_prefix("rate ")?.parse::<f64>().ok());
        assert!(fastest.fold(rate, f64::max) > 90.0, "{granted}, {rate}, {lines:?}");
    }
    run.end();
}

#[test]
fn over_tls_a_client_needs_a_certificate_and_its_modulator_tls() {
    let (plant, address) = (Authority::new("plant"), unused_address().to_string());
    let tls = |signer: &Authority| {
        let papers = signer.papers(&[address.rsplit_once(':').unwrap().0, "127.0.0.1", "pilot"]);
        let server = TlsServer::for_clients_of(papers.identity(), &plant.roots()).unwrap();
        (server, TlsClient::new(&plant.roots()).identity(papers.identity()))
    };
    let own = tls(&plant);
    let mut run = run_at(&format!("'tls/{address}'"), Some((&own.0, &own.1)));
    let client = |signer: &Authority| {
        let (server, client) = tls(signer);
        let orb = Orb::builder().tls_client(client).unwrap().tls_server(server);
        let orb = orb.listen("ssliop://127.0.0.1:0").unwrap().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let rates = orb.resolve::<dyn Rates>(&format!("corbaloc:ssliop:1.2@{address}/rates"));
        (orb, rates)
    };
    assert_eq!(client(&Authority::new("elsewhere")).1.unwrap_err().kind, SystemKind::NoPermission);
    let (orb, rates) = client(&plant);
    let rates = rates.unwrap();
    until("the run begins", || has_begun(&rates));
    let plain = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let modulator = |orb: &Orb| {
        let interval = Arc::new(Interval::default());
        (orb.adapter("modulator").build().unwrap().activate::<dyn Modulator>(interval.clone()).unwrap(), interval)
    };
    let Err(JoinError::Refused(refused)) = rates.join(&task(1.0, 2.0), Some(&modulator(&plain).0)) else { panic!() };
    assert_eq!(refused.why, "the client uses TLS, but its modulator has no TLS endpoint");
    let (secure, interval) = modulator(&orb);
    let grant = rates.join(&task(1.0, 2.0), Some(&secure)).unwrap();
    run.until("it is sent", |_| interval.hertz() >= 1.0);
    rates.leave(grant.ticket).unwrap();
    assert_eq!(run.serving.client_reports().len(), 1, "only refusals");
    run.end();
}
