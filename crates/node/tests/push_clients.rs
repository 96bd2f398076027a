//! Push suppliers in CORBA programs with rates that a feedback loop sets.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_events::EventChannel;
use hyoshi_model::read;
use hyoshi_node::idl::cos_event_channel_admin::{
    EventChannel as EventChannelInterface, ProxyPushConsumer as _, SupplierAdmin as _,
};
use hyoshi_node::idl::cos_event_comm::{PushConsumer, PushConsumerStub, PushError};
use hyoshi_node::idl::hyoshi_rates::{Grant, JoinError, Modulator, ModulatorStub, Rates, RatesStub, Task};
use hyoshi_node::{CorbaEvents, Objects, ServingObjects};
use hyoshi_orb::{Any, Orb, SystemException, SystemKind, minor};
use hyoshi_runtime::{Node, RunningNode};
use hyoshi_sched::{Plan, Strategies};

use crate::client_rates::Interval;
use crate::common::unused_address;
use crate::programs::{Program, build};

const PATIENCE: Duration = Duration::from_secs(40);

/// The consumer of each event needs 2 ms of the CPU. At 40 % there are 200 events a second.
fn text(events: &str, rates: &str) -> String {
    format!(
        "name = 'push-clients'
        duration = '120s'
        [event.detection]
        payload = '64B'
        endpoints = ['tcp/{events}']
        [event.silent]
        [processor.fusion]
        strategy = 'EDF'
        [feedback.fusion]
        algorithm = 'FC-U'
        utilisation = '40%'
        period = '100ms'
        measure = 'lanes'
        endpoints = ['tcp/{rates}']
        [operation.receive]
        called = true
        clients = {{ rate = ['1Hz', '150Hz'], most = 3 }}
        wcet = '0.05ms'
        supplies = ['detection']
        queue = {{ limit = 8 }}
        [operation.whisper]
        called = true
        clients = {{ rate = ['1Hz', '2Hz'], most = 1 }}
        wcet = '0.05ms'
        supplies = ['silent']
        [operation.fuse]
        after = {{ event = 'detection' }}
        wcet = '2ms'
        queue = {{ limit = 8 }}"
    )
}

struct Run {
    events: String,
    rates: String,
    serving: ServingObjects,
    _channels: CorbaEvents,
    _running: RunningNode,
}

fn run() -> Run {
    let [events, rates] = [(); 2].map(|()| unused_address().to_string());
    let system = read(&text(&events, &rates), "push.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let system = Arc::new(system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let node = Node::new(system.clone(), plan).share_cpu(true);
    let (node, installed) = Objects::new().install(&system, None, node).unwrap();
    let mut node = node.prepare().unwrap();
    let channel = EventChannel::start(&mut node).unwrap();
    let channels = CorbaEvents::serve(&channel, None, None).unwrap();
    let serving = installed.publishers(&channels).serve(&mut node, None).unwrap();
    let run = Run { events, rates, serving, _channels: channels, _running: node.start() };
    let (_orb, probe) = run.rates();
    until("the run begins", || {
        matches!(probe.join(&task("receive", 200.0, 300.0), None),
        Err(JoinError::Refused(refused)) if refused.why.contains("the range of the system file"))
    });
    run
}

impl Run {
    fn rates(&self) -> (Orb, RatesStub) {
        let orb = Orb::client().unwrap();
        let rates = orb.resolve_unchecked::<dyn Rates>(&format!("corbaloc:iiop:1.2@{}/rates", self.rates)).unwrap();
        (orb, rates)
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn task(operation: &str, lowest: f64, highest: f64) -> Task {
    Task { operation: operation.to_owned(), lowest, highest, estimate: 0, value: 1 }
}

fn target(orb: &Orb, grant: &Grant) -> PushConsumerStub {
    let target = AsRef::<hyoshi_orb::Reference<dyn hyoshi_orb::Object>>::as_ref(grant.target.as_ref().unwrap());
    orb.resolve::<dyn PushConsumer>(&target.ior().to_string()).unwrap()
}

fn exception(raised: Result<(), PushError>) -> Option<SystemException> {
    match raised {
        Err(PushError::System(raised)) => Some(raised),
        _ => None,
    }
}

/// A push supplier at the rate of its modulator, until it is dropped.
struct Supplier {
    interval: Arc<Interval>,
    target: PushConsumerStub,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
    orb: Orb,
}

impl Supplier {
    fn join(run: &Run) -> Supplier {
        let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let interval = Arc::new(Interval::default());
        let modulator = orb.adapter("modulator").build().unwrap();
        let modulator: ModulatorStub = modulator.activate::<dyn Modulator>(interval.clone()).unwrap();
        let rates = orb.resolve_unchecked::<dyn Rates>(&format!("corbaloc:iiop:1.2@{}/rates", run.rates)).unwrap();
        let grant = rates.join(&task("receive", 1.0, 150.0), Some(&modulator)).unwrap();
        interval.rate(grant.hertz).unwrap();
        let (target, over) = (target(&orb, &grant), Arc::new(AtomicBool::new(false)));
        let (to, own, ended) = (target.clone(), interval.clone(), over.clone());
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                // In overload the queue may be full.
                let _ = to.push(&Any::of("here").unwrap());
                thread::sleep(Duration::from_secs_f64(1.0 / own.hertz()).saturating_sub(began.elapsed()));
            }
        });
        Supplier { interval, target, over, thread: Some(thread), orb }
    }
}

impl Drop for Supplier {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
        self.orb.shutdown();
    }
}

#[test]
fn push_suppliers_share_the_set_point_and_one_that_disconnects_leaves_its_share() {
    let run = run();
    let first = Supplier::join(&run);
    until("alone it has its highest rate", || first.interval.hertz() > 149.0);
    let second = Supplier::join(&run);
    until("both have about half", || first.interval.hertz() < 135.0 && second.interval.hertz() > 50.0);
    second.target.disconnect_push_consumer().unwrap();
    let raised = exception(second.target.push(&Any::of("gone").unwrap())).unwrap();
    assert_eq!(raised.kind, SystemKind::ObjectNotExist);
    let removed = |report: &String| report.contains("was removed: it disconnected");
    until("it is reported", || run.serving.client_reports().iter().any(removed));
    until("the first gets its share", || first.interval.hertz() > 149.0);
}

#[test]
fn a_push_above_the_rate_or_without_registration_is_refused() {
    let run = run();
    let (orb, rates) = run.rates();
    let channel = format!("corbaloc:iiop:1.2@{}/detection", run.events);
    let channel = orb.resolve::<dyn EventChannelInterface>(&channel).unwrap();
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None).unwrap();
    let raised = exception(proxy.push(&Any::of("here").unwrap())).unwrap();
    assert_eq!((raised.kind, raised.minor), (SystemKind::NoPermission, minor::UNREGISTERED));
    let grant = rates.join(&task("receive", 1.0, 2.0), None).unwrap();
    let pushes: Vec<_> = {
        let target = target(&orb, &grant);
        (0..40).map(|_| exception(target.push(&Any::of("here").unwrap()))).collect()
    };
    let too_often =
        |raised: &&Option<SystemException>| raised.as_ref().is_some_and(|one| one.minor == minor::TOO_OFTEN);
    assert!(pushes[0].is_none() && pushes.iter().filter(too_often).count() > 20, "{pushes:?}");
    rates.leave(grant.ticket).unwrap();
    let Err(JoinError::Refused(refused)) = rates.join(&task("whisper", 1.0, 2.0), None) else { panic!() };
    assert!(refused.why.contains("cannot reach") && refused.remedy.contains("`endpoints`"), "{refused:?}");
}

/// A push supplier in omniORB with a modulator.
#[test]
fn a_push_supplier_in_omniorb_learns_its_rates() {
    let Some(modulator) = build("rates").map(|directory| directory.join("modulator")) else { return };
    let run = run();
    let mut command = Command::new(&modulator);
    command.arg(format!("corbaloc:iiop:1.2@{}/rates", run.rates)).args(["receive", "20", "100", "push"]);
    let program = Program::start(command.args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]).stderr(Stdio::null()));
    let (code, lines) = program.end();
    let last = lines.last().unwrap();
    let (served, refused) = last.strip_prefix("served ").unwrap().split_once(" refused ").unwrap();
    let [served, refused] = [served, refused].map(|count| count.parse::<u32>().unwrap());
    assert!(code == Some(0) && served + refused == 100 && served >= 80, "{lines:?}");
    let fastest = lines.iter().filter_map(|line| line.strip_prefix("rate ")?.parse::<f64>().ok()).fold(0.0, f64::max);
    assert!(fastest > 90.0, "{lines:?}");
}
