//! Real-time CORBA at the server: thread pools, priority models and the kernel's priorities of threads that run servants.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::rt::{
    AboveCeiling, ClientScheduler, DirectMapping, NativeMapping, Priority, PriorityBands, PriorityCeilings,
    PriorityModel, PriorityTransform, RequestBuffer, RtPolicyError, ScheduleError, ServerScheduler, TcpProperties,
    ThreadpoolError, ThreadpoolLane, ThreadpoolOptions, current,
};
use hyoshi_orb::{
    AdapterBuilder, AdapterError, ClientInterceptor, Ior, IorEndpoint, LaneOptions, Orb, OrbBuilder, Order,
    OrderedRequest, Outgoing, Replied, ServiceContexts, SystemException, SystemKind, TlsClient, TlsServer, minor,
};
use hyoshi_os::own_thread;
use hyoshi_os::scheduling::{Scheduling, SchedulingClass};
use hyoshi_wire::giop::{CONTEXT_RT_PRIORITY, Context, RequestHeader, Response, ServiceContext, Target};
use hyoshi_wire::ior::{Component, PriorityModelPolicy, TAG_POLICIES, TAG_TAO_ENDPOINTS};
use hyoshi_wire::{ByteOrder, Encoder};

use crate::authority::Authority;
use crate::peer;
use crate::privileges::missing;
use crate::tracking::*;

fn priority(number: i16) -> Priority {
    Priority::new(number).unwrap()
}

/// Where a request ran.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ran {
    current: Option<i16>,
    class: SchedulingClass,
    thread: String,
}

impl Ran {
    fn here() -> Ran {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let class = Scheduling::of(own_thread()).unwrap().class;
        Ran { current: current::priority().map(Priority::number), class, thread }
    }

    fn at(&self, number: i16, native: u8) -> bool {
        self.current == Some(number) && self.class == SchedulingClass::Fifo(native)
    }
}

/// Reports where its requests run; `name` waits until the test lets it go on.
struct Probe {
    ran: Mutex<Sender<Ran>>,
    go_on: Mutex<Receiver<()>>,
    /// Called within `nothing`.
    calls: Mutex<Option<TrackerStub>>,
}

struct Probed {
    probe: Arc<Probe>,
    ran: Receiver<Ran>,
    go: Sender<()>,
}

impl Probed {
    fn new() -> Probed {
        let ((ran, all), (go, go_on)) = (channel(), channel());
        let probe = Probe { ran: Mutex::new(ran), go_on: Mutex::new(go_on), calls: Mutex::default() };
        Probed { probe: Arc::new(probe), ran: all, go }
    }

    fn next(&self) -> Ran {
        self.ran.recv_timeout(std::time::Duration::from_secs(20)).expect("a request ran")
    }
}

impl Named for Probe {
    fn name(&self) -> Result<String, SystemException> {
        self.ran.lock().unwrap().send(Ran::here()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        Ok(String::new())
    }
}

impl Tracker for Probe {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        current::set_priority(priority(id as i16)).map_err(SystemException::from)?;
        self.ran.lock().unwrap().send(Ran::here()).unwrap();
        Ok(Position::default())
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        self.nothing()
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        self.ran.lock().unwrap().send(Ran::here()).unwrap();
        let calls = self.calls.lock().unwrap().take();
        calls.map_or(Ok(()), |other| other.nothing())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

/// Sends this priority with each request, and keeps that of the reply.
#[derive(Clone, Default)]
struct Claims(Arc<Mutex<(Option<i16>, Option<i16>)>>);

impl Claims {
    fn claim(&self, number: Option<i16>) {
        *self.0.lock().unwrap() = (number, None);
    }

    fn replied(&self) -> Option<i16> {
        self.0.lock().unwrap().1
    }
}

impl ClientInterceptor for Claims {
    fn before(&self, call: &mut Outgoing<'_>) -> Result<(), SystemException> {
        if let Some(number) = self.0.lock().unwrap().0 {
            call.send_context(CONTEXT_RT_PRIORITY, Context::Priority(number).data().unwrap());
        }
        Ok(())
    }
    fn after(&self, _: &Outgoing<'_>, _: &Replied, contexts: &ServiceContexts<'_>) {
        let data = contexts.get(CONTEXT_RT_PRIORITY);
        self.0.lock().unwrap().1 =
            data.map(|data| match Context::decode(ServiceContext { tag: CONTEXT_RT_PRIORITY, data }).unwrap() {
                Context::Priority(number) => number,
                other => panic!("{other:?}"),
            });
    }
}

pub fn has_privilege() -> bool {
    let tried = std::thread::spawn(|| hyoshi_os::set_own_policy(hyoshi_os::ThreadPolicy::Fifo(40)).is_ok());
    let has = tried.join().unwrap();
    if !has {
        missing("real-time priorities");
    }
    has
}

fn listening(builder: OrbBuilder) -> Orb {
    builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap()
}

/// CORBA priority 0 is native 40.
fn direct() -> OrbBuilder {
    Orb::builder().priority_mapping(DirectMapping::default())
}

fn lane(number: i16, threads: usize) -> ThreadpoolLane {
    ThreadpoolLane { priority: priority(number), static_threads: threads, ..ThreadpoolLane::default() }
}

const DEFAULT: fn() -> ThreadpoolOptions = ThreadpoolOptions::default;

fn served(adapter: AdapterBuilder) -> (hyoshi_orb::Adapter, Probed) {
    (adapter.build().unwrap(), Probed::new())
}

fn remote(client: &Orb, stub: &TrackerStub) -> TrackerStub {
    client.resolve_unchecked::<dyn Tracker>(&stub.ior().to_string()).unwrap()
}

/// A stub for one endpoint of a reference.
fn through(client: &Orb, stub: &TrackerStub, endpoint: &IorEndpoint) -> TrackerStub {
    let IorEndpoint::Tcp { host, port, .. } = endpoint else { panic!("{endpoint:?}") };
    let key = stub.ior().iiop().next().unwrap().unwrap().key;
    let profile = hyoshi_wire::ior::Profile::iiop(hyoshi_orb::Version::V1_2, host, *port, key, &[]).unwrap();
    client.stub::<dyn Tracker>(Ior { type_id: stub.ior().type_id.clone(), profiles: vec![profile] })
}

fn endpoints(stub: &TrackerStub) -> Vec<IorEndpoint> {
    stub.ior().iiop().flat_map(|profile| profile.unwrap().endpoints()).collect()
}

fn lanes_of(stub: &TrackerStub) -> Vec<Option<i16>> {
    let priority = |endpoint| match endpoint {
        IorEndpoint::Tcp { priority, .. } => priority,
        other => panic!("{other:?}"),
    };
    endpoints(stub).into_iter().map(priority).collect()
}

fn minor_of<T: std::fmt::Debug>(result: Result<T, SystemException>) -> (SystemKind, u32) {
    let exception = result.unwrap_err();
    (exception.kind, exception.minor)
}

#[test]
fn a_pool_that_an_adapter_is_about_to_use_is_not_destroyed() {
    let orb = listening(direct());
    for number in 0..200 {
        let pool = orb.rt().create_threadpool(lane(5, 1), &DEFAULT()).unwrap();
        let start = std::sync::Barrier::new(2);
        let (built, destroyed) = std::thread::scope(|scope| {
            let built = scope.spawn(|| {
                let builder = orb.adapter(&format!("a{number}")).threadpool(pool);
                start.wait();
                builder.build()
            });
            start.wait();
            let destroyed = orb.rt().destroy_threadpool(pool);
            (built.join().unwrap(), destroyed)
        });
        assert!(built.is_ok() != destroyed.is_ok(), "{built:?} {destroyed:?}");
        if let Ok(adapter) = built {
            adapter.destroy();
            orb.rt().destroy_threadpool(pool).unwrap();
        }
    }
}

#[test]
fn an_object_runs_at_its_declared_priority_on_the_lane_of_that_priority() {
    if !has_privilege() {
        return;
    }
    let orb = listening(direct());
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(20, 1), lane(5, 2)], &DEFAULT()).unwrap();
    let model = PriorityModel::ServerDeclared { priority: priority(5) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let low = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    let high = adapter.activate_with_priority::<dyn Tracker>(probed.probe.clone(), priority(20)).unwrap();
    assert_eq!((lanes_of(&low), lanes_of(&high)), (vec![Some(5)], vec![Some(20)]));
    orb.ready();
    let client = Orb::client().unwrap();
    for _ in 0..3 {
        remote(&client, &low).nothing().unwrap();
        let ran = probed.next();
        assert!(ran.at(5, 45) && ran.thread.starts_with("rt0-5-"), "{ran:?}");
        remote(&client, &high).nothing().unwrap();
        let ran = probed.next();
        assert!(ran.at(20, 60) && ran.thread == "rt0-20-0", "{ran:?}");
    }
    // Through the other lane the object's priority holds, too.
    through(&client, &high, &endpoints(&low)[0]).nothing().unwrap();
    let ran = probed.next();
    assert!(ran.at(20, 60) && ran.thread.starts_with("rt0-5-"), "{ran:?}");
    remote(&client, &low).nothing().unwrap();
    assert!(probed.next().at(5, 45), "the thread has its own priority again");
}

#[test]
fn a_request_runs_at_its_clients_priority_and_the_reply_repeats_it() {
    if !has_privilege() {
        return;
    }
    let orb = listening(direct());
    let model = PriorityModel::ClientPropagated { default: priority(3) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model));
    let plain = orb.adapter("plain").build().unwrap().activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let claims = Claims::default();
    let client = Orb::builder().client_interceptor(claims.clone()).build().unwrap();
    let (tracker, plain) = (remote(&client, &tracker), remote(&client, &plain));
    for (claimed, runs, native) in [(Some(9), 9, 49), (None, 3, 43), (Some(39), 39, 79)] {
        claims.claim(claimed);
        tracker.nothing().unwrap();
        let ran = probed.next();
        assert!(ran.at(runs, native), "{claimed:?}: {ran:?}");
        assert_eq!(claims.replied(), claimed.or(Some(3)), "a thread without a priority sends the default");
        // The thread is an ordinary one between requests.
        plain.nothing().unwrap();
        let ran = probed.next();
        assert_eq!((ran.current, ran.class), (None, Scheduling::ORDINARY.class));
        assert_eq!(claims.replied(), None, "an adapter without the model repeats nothing");
    }
    for refused in [-1, 40] {
        claims.claim(Some(refused));
        assert_eq!(minor_of(tracker.nothing()), (SystemKind::DataConversion, minor::RT_UNMAPPED));
    }
    // What a servant sets holds until its request ends.
    claims.claim(Some(9));
    tracker.locate(12).unwrap();
    assert!(probed.next().at(12, 52));
    plain.nothing().unwrap();
    assert_eq!(probed.next().class, Scheduling::ORDINARY.class);
}

#[test]
fn a_reply_repeats_the_octets_of_the_priority_in_either_byte_order() {
    let orb = listening(direct());
    let model = PriorityModel::ClientPropagated { default: priority(3) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let key = tracker.ior().iiop().next().unwrap().unwrap().key;
    let mut stream: TcpStream = peer::connect(&orb);
    for data in [[1, 0, 7, 0], [0, 0, 0, 7]] {
        let contexts = [ServiceContext { tag: CONTEXT_RT_PRIORITY, data: &data }];
        let (target, response) = (Target::Key(key), Response::Target);
        let header = RequestHeader { id: 2, response, target, operation: "nothing", contexts: &contexts };
        let mut to = Encoder::new(ByteOrder::Big);
        header.begin(&mut to).unwrap().end(&mut to).unwrap();
        stream.write_all(to.bytes()).unwrap();
        let reply = peer::message(&mut stream).unwrap();
        let number = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
        assert_eq!((number(16), number(20), number(24), number(28)), (0, 1, CONTEXT_RT_PRIORITY, 4));
        assert_eq!(reply[32..36], data);
        assert_eq!(probed.next().current, Some(7));
    }
}

#[test]
fn references_have_the_policies_and_endpoints_that_tao_reads() {
    let orb = listening(direct());
    let lanes = [lane(5, 1), lane(20, 1), lane(30, 1)];
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &DEFAULT()).unwrap();
    let bands = PriorityBands::new(&[(priority(0), priority(9)), (priority(10), priority(39))]).unwrap();
    let component = |stub: &TrackerStub, tag| {
        let mut found = None;
        for profile in stub.ior().iiop() {
            found = profile.unwrap().components.get(tag).map(<[u8]>::to_vec).or(found);
        }
        found
    };

    let model = PriorityModel::ServerDeclared { priority: priority(5) };
    let builder = orb.adapter("declared").priority_model(model).priority_bands(bands.clone()).threadpool(pool);
    let declared = builder.build().unwrap().activate::<dyn Tracker>(Probed::new().probe).unwrap();
    let policies = component(&declared, TAG_POLICIES).unwrap();
    let golden: &[&[u8]] = &[
        b"\0\0\0\0",
        b"\0\0\0\x02", // big-endian, two policies
        b"\0\0\0\x28",
        b"\0\0\0\x0a",
        b"\0\0\0\0\0\0\0\x01\0\x05",
        b"\0\0", // priority model: server-declared, 5
        b"\0\0\0\x2d",
        b"\0\0\0\x10",
        b"\0\0\0\0\0\0\0\x02\0\0\0\x09\0\x0a\0\x27", // bands 0 to 9, 10 to 39
    ];
    assert_eq!(policies, golden.concat());
    let tagged = hyoshi_wire::tagged::Tagged { tag: TAG_POLICIES, data: &policies };
    let Component::Policies(mut read) = Component::decode(tagged).unwrap() else { panic!() };
    let wanted = PriorityModelPolicy { client_propagated: false, priority: 5 };
    assert_eq!(PriorityModelPolicy::read(read.next().unwrap()), Ok(Some(wanted)));
    // With bands, clients choose among the lanes in them.
    assert_eq!(lanes_of(&declared), [Some(5), Some(20), Some(30)]);

    let model = PriorityModel::ClientPropagated { default: priority(20) };
    let builder = orb.adapter("propagated").priority_model(model).priority_bands(bands).threadpool(pool);
    let propagated = builder.build().unwrap().activate::<dyn Tracker>(Probed::new().probe).unwrap();
    let golden: &[&[u8]] = &[b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\0\x28", b"\0\0\0\x0a", b"\0\0\0\0\0\0\0\0\0\x14"];
    assert_eq!(component(&propagated, TAG_POLICIES).unwrap(), golden.concat(), "bands are the server's own");
    // The default's lane is the profile's address, for clients without Real-time CORBA.
    assert_eq!(lanes_of(&propagated), [Some(20), Some(5), Some(30)]);
    let endpoints = component(&propagated, TAG_TAO_ENDPOINTS).unwrap();
    let port = propagated.ior().iiop().next().unwrap().unwrap().port.to_be_bytes();
    let golden: &[&[u8]] =
        &[b"\0\0\0\0", b"\0\0\0\x03", b"\0\0\0\x0a", b"127.0.0.1\0", &port, b"\0\x14", b"\0\0", b"\0\0\0\x0a"];
    assert_eq!(endpoints[..golden.concat().len()], golden.concat());

    // Without lanes there is one endpoint of priority -1.
    let pool = orb.rt().create_threadpool(lane(7, 1), &DEFAULT()).unwrap();
    let plain = orb.adapter("plain").threadpool(pool).build().unwrap();
    let plain = plain.activate::<dyn Tracker>(Probed::new().probe).unwrap();
    assert_eq!((component(&plain, TAG_POLICIES), lanes_of(&plain)), (None, vec![None]));
    let port = plain.ior().iiop().next().unwrap().unwrap().port.to_be_bytes();
    let golden: &[&[u8]] = &[b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\0\x0a", b"127.0.0.1\0", &port, b"\xff\xff"];
    assert_eq!(component(&plain, TAG_TAO_ENDPOINTS).unwrap(), golden.concat());
}

#[test]
fn policies_that_do_not_fit_are_refused() {
    let orb = listening(direct());
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(5, 1), lane(20, 1)], &DEFAULT()).unwrap();
    let declared = |number| PriorityModel::ServerDeclared { priority: priority(number) };
    let bands = |bands: &[(i16, i16)]| {
        let bands: Vec<_> = bands.iter().map(|(low, high)| (priority(*low), priority(*high))).collect();
        PriorityBands::new(&bands).unwrap()
    };
    let refused = |builder: AdapterBuilder| match builder.build() {
        Err(AdapterError::RealTime(error)) => error,
        other => panic!("{other:?}"),
    };
    let adapter = || orb.adapter("a").threadpool(pool);
    assert_eq!(refused(adapter().priority_model(declared(6))), RtPolicyError::NoLane(priority(6)));
    assert_eq!(refused(orb.adapter("a").priority_model(declared(40))), RtPolicyError::NotMapped(priority(40)));
    assert_eq!(refused(adapter().priority_bands(bands(&[(0, 39)]))), RtPolicyError::BandsWithoutModel);
    let gap = adapter().priority_model(declared(5)).priority_bands(bands(&[(0, 9), (10, 15), (16, 39)]));
    assert_eq!(refused(gap), RtPolicyError::EmptyBand(priority(10), priority(15)));
    let outside = adapter().priority_model(declared(5)).priority_bands(bands(&[(10, 39)]));
    assert_eq!(refused(outside), RtPolicyError::OutsideBands(priority(5)));

    let (adapter, probed) = served(adapter().priority_model(declared(5)));
    let activate =
        |number| adapter.activate_as_with_priority::<dyn Tracker>("x", probed.probe.clone(), priority(number));
    assert!(matches!(activate(6), Err(AdapterError::RealTime(RtPolicyError::NoLane(_)))));
    adapter.reference_with_priority::<dyn Tracker>("x", priority(20)).unwrap();
    assert!(matches!(activate(5), Err(AdapterError::RealTime(RtPolicyError::OtherPriority(_)))));
    assert_eq!(lanes_of(&activate(20).unwrap()), [Some(20)]);
    assert!(matches!(activate(20), Err(AdapterError::ObjectActive(_))));
    adapter.deactivate("x").unwrap();
    assert_eq!(lanes_of(&activate(5).unwrap()), [Some(5)], "it has no priority once it is deactivated");
    let new = adapter.new_reference_with_priority::<dyn Tracker>(priority(20)).unwrap();
    assert_eq!(lanes_of(&new), [Some(20)]);
    // A failed activation leaves the active object's priority.
    adapter.activate_as::<dyn Tracker>("y", probed.probe.clone()).unwrap();
    let again = adapter.activate_as_with_priority::<dyn Tracker>("y", probed.probe.clone(), priority(20));
    assert!(matches!(again, Err(AdapterError::ObjectActive(_))));
    assert_eq!(lanes_of(&adapter.reference::<dyn Tracker>("y").unwrap()), [Some(5)]);

    let model = PriorityModel::ClientPropagated { default: priority(5) };
    let other = orb.adapter("other").priority_model(model).build().unwrap();
    let activated = other.activate_with_priority::<dyn Tracker>(probed.probe.clone(), priority(5));
    assert!(matches!(activated, Err(AdapterError::RealTime(RtPolicyError::NotServerDeclared))));
}

#[test]
fn pools_that_cannot_work_are_refused_and_one_in_use_is_not_destroyed() {
    let orb = listening(direct());
    let rt = orb.rt();
    let refused =
        |lanes: &[ThreadpoolLane]| rt.create_threadpool_with_lanes(lanes, &DEFAULT()).unwrap_err().to_string();
    assert_eq!(refused(&[]), "the thread pool has no lanes: add one");
    assert_eq!(refused(&[lane(7, 0)]), "the thread pool's lane of priority 7 has no threads: add a static one");
    assert_eq!(refused(&[lane(7, 1), lane(7, 2)]), "two lanes of the thread pool have priority 7: merge them");
    assert!(refused(&[lane(40, 1)]).starts_with("CORBA priority 40: the priority mapping has no native priority"));
    let elsewhere = ThreadpoolLane { listen: vec!["nowhere".into()], ..lane(1, 1) };
    assert!(refused(&[elsewhere]).starts_with("\"nowhere\" is not an endpoint"));
    let both = RequestBuffer { requests: 1, octets: 1 };
    let both = ThreadpoolOptions { allow_borrowing: true, buffering: Some(both), ..DEFAULT() };
    assert!(matches!(rt.create_threadpool(lane(1, 1), &both), Err(ThreadpoolError::BorrowsAndBuffers)));
    let client = Orb::client().unwrap();
    let nowhere = client.rt().create_threadpool(lane(1, 1), &DEFAULT()).unwrap_err();
    assert!(matches!(nowhere, ThreadpoolError::NoEndpoint(_)), "{nowhere}");

    let pool = rt.create_threadpool(lane(7, 1), &ThreadpoolOptions { stack: 1 << 20, ..DEFAULT() }).unwrap();
    let (adapter, probed) = served(orb.adapter("a").threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let tracker = remote(&client, &tracker);
    tracker.nothing().unwrap();
    assert_eq!(probed.next().current, Some(7), "that of the lane");
    let in_use = rt.destroy_threadpool(pool).unwrap_err().to_string();
    assert_eq!(in_use, format!("thread pool {pool} serves the adapter \"a\": destroy the adapter first"));
    adapter.destroy();
    rt.destroy_threadpool(pool).unwrap();
    assert!(matches!(rt.destroy_threadpool(pool), Err(ThreadpoolError::InvalidThreadpool(_))));
    assert_eq!(tracker.nothing().unwrap_err().kind, SystemKind::Transient, "no server listens any more");
    let gone = orb.adapter("b").threadpool(pool).build();
    assert!(matches!(gone, Err(AdapterError::RealTime(RtPolicyError::InvalidThreadpool(_)))));
    orb.shutdown();
    assert!(matches!(rt.create_threadpool(lane(1, 1), &DEFAULT()), Err(ThreadpoolError::Gone)));
}

#[test]
fn a_lane_has_its_static_and_dynamic_threads_from_the_start_and_an_endpoint_of_its_own() {
    let orb = listening(direct());
    let listen = vec!["iiop://127.0.0.1:0".to_owned(); 2];
    let lanes = [ThreadpoolLane { dynamic_threads: 2, listen, ..lane(33, 1) }, lane(34, 1)];
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &DEFAULT()).unwrap();
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        let name =
            |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
        all.filter_map(name).filter(|name| name.starts_with(&format!("rt{pool}-33-"))).count()
    };
    assert_eq!(threads(), 3);
    let adapter = orb.adapter("a").threadpool(pool).build().unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Probed::new().probe).unwrap();
    assert_eq!(lanes_of(&tracker), [Some(33), Some(33), Some(34)]);
    let mut ports: Vec<_> = endpoints(&tracker).into_iter().chain(orb.endpoints().to_vec()).collect();
    ports.sort_by_key(|endpoint| format!("{endpoint:?}"));
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

/// Leader and followers in one: the thread waits, reads and serves, whichever connection is next.
#[test]
fn a_lane_of_one_thread_serves_all_connections_one_request_at_a_time() {
    let orb = listening(direct());
    let pool = orb.rt().create_threadpool(lane(7, 1), &DEFAULT()).unwrap();
    let (adapter, probed) = served(orb.adapter("a").threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let ior = tracker.ior().to_string();
            std::thread::spawn(move || {
                let client = Orb::client().unwrap();
                client.resolve_unchecked::<dyn Tracker>(&ior).unwrap().name().unwrap();
            })
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(probed.next().thread, "rt0-7-0");
        assert!(probed.ran.try_recv().is_err(), "another request runs beside it");
        probed.go.send(()).unwrap();
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn lanes_do_not_wait_for_each_other() {
    let orb = listening(direct());
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(5, 1), lane(20, 1)], &DEFAULT()).unwrap();
    let model = PriorityModel::ServerDeclared { priority: priority(5) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let low = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    let high = adapter.activate_with_priority::<dyn Tracker>(probed.probe.clone(), priority(20)).unwrap();
    orb.ready();
    let client = Orb::client().unwrap();
    let waits = low.ior().to_string();
    let blocked = std::thread::spawn(move || {
        Orb::client().unwrap().resolve_unchecked::<dyn Tracker>(&waits).unwrap().name().unwrap();
    });
    assert_eq!(probed.next().current, Some(5));
    remote(&client, &high).nothing().unwrap();
    assert_eq!(probed.next().current, Some(20));
    probed.go.send(()).unwrap();
    blocked.join().unwrap();
}

/// Calls `name`, which waits, on a thread and connection of its own.
fn blocked(stub: &TrackerStub) -> std::thread::JoinHandle<Result<String, SystemException>> {
    let ior = stub.ior().to_string();
    std::thread::spawn(move || {
        let client = Orb::client().unwrap();
        client.resolve_unchecked::<dyn Tracker>(&ior).unwrap().name()
    })
}

#[test]
fn a_busy_lane_borrows_threads_of_lower_lanes_which_return_to_their_own() {
    if !has_privilege() {
        return;
    }
    let orb = listening(direct());
    let options = ThreadpoolOptions { allow_borrowing: true, ..DEFAULT() };
    let lanes = [lane(5, 1), lane(20, 1), lane(30, 1)];
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &options).unwrap();
    let model = PriorityModel::ServerDeclared { priority: priority(5) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let activate =
        |number| adapter.activate_with_priority::<dyn Tracker>(probed.probe.clone(), priority(number)).unwrap();
    let [low, middle, high] = [5, 20, 30].map(activate);
    orb.ready();
    let client = Orb::client().unwrap();
    let runs_at = |stub: &TrackerStub, number: i16| {
        remote(&client, stub).nothing().unwrap();
        let ran = probed.next();
        assert!(ran.at(number, 40 + number as u8), "{ran:?}");
        ran.thread
    };
    let names = |lanes: &[i16]| lanes.iter().map(|lane| format!("rt{pool}-{lane}-0")).collect::<Vec<_>>();
    // Each request waits beside the others: as many run as there are threads that may serve it.
    let side_by_side = |stub: &TrackerStub, number: i16, count| {
        let one = || {
            let waits = blocked(stub);
            let ran = probed.next();
            assert!(ran.at(number, 40 + number as u8), "{ran:?}");
            (waits, ran.thread)
        };
        let (waits, mut threads): (Vec<_>, Vec<_>) = (0..count).map(|_| one()).unzip();
        threads.sort();
        (waits, threads)
    };
    let finish = |waits: Vec<std::thread::JoinHandle<_>>| {
        waits.iter().for_each(|_| probed.go.send(()).unwrap());
        waits.into_iter().for_each(|waits| drop::<Result<String, SystemException>>(waits.join().unwrap()));
    };
    for _ in 0..3 {
        for (stub, number) in [(&low, 5), (&middle, 20), (&high, 30)] {
            runs_at(stub, number);
        }
        let (mut waits, threads) = side_by_side(&high, 30, 3);
        assert_eq!(threads, names(&[20, 30, 5]));
        // The fourth waits for any of them.
        waits.push(blocked(&high));
        finish(waits);
        assert!(probed.next().at(30, 70));
    }
    // A middle lane does not borrow from a higher one.
    let (waits, threads) = side_by_side(&middle, 20, 2);
    assert_eq!(threads, names(&[20, 5]));
    assert_eq!(runs_at(&high, 30), format!("rt{pool}-30-0"));
    finish(waits);
    assert_eq!(runs_at(&low, 5), format!("rt{pool}-5-0"));
    adapter.destroy();
    orb.rt().destroy_threadpool(pool).unwrap();
}

#[test]
fn requests_wait_in_the_buffer_up_to_its_limits() {
    let orb = listening(direct());
    let buffering = RequestBuffer { requests: 2, octets: 4096 };
    let options = ThreadpoolOptions { buffering: Some(buffering), ..DEFAULT() };
    let pool = orb.rt().create_threadpool(lane(5, 1), &options).unwrap();
    let model = PriorityModel::ServerDeclared { priority: priority(7) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let profile = tracker.ior().iiop().next().unwrap().unwrap();
    let mut stream = TcpStream::connect((profile.host, profile.port)).unwrap();
    // On one connection requests are read in their order.
    let request = |id, octets: usize| {
        let (target, response) = (Target::Key(profile.key), Response::Target);
        let header = RequestHeader { id, response, target, operation: "_get_name", contexts: &[] };
        let mut to = Encoder::new(ByteOrder::Big);
        let begun = header.begin(&mut to).unwrap();
        to.raw(&vec![0; octets]);
        begun.end(&mut to).unwrap();
        to.into_bytes()
    };
    let reply = |stream: &mut TcpStream| {
        let reply = peer::message(stream).unwrap();
        let number = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
        // A system exception: its name of 31 octets, its minor code.
        (peer::id(&reply), (number(16) == 2).then(|| number(reply.len() - 8)))
    };
    for _ in 0..20 {
        stream.write_all(&request(1, 0)).unwrap();
        let ran = probed.next();
        assert_eq!((ran.current, ran.thread.as_str()), (Some(7), &*format!("rt{pool}-5-w0")));
        let rest = [request(2, 5000), request(3, 0), request(4, 0), request(5, 0)].concat();
        stream.write_all(&rest).unwrap();
        assert_eq!(reply(&mut stream), (2, Some(minor::RT_BUFFER)), "too many octets");
        assert_eq!(reply(&mut stream), (5, Some(minor::RT_BUFFER)), "too many requests");
        for id in [1, 3, 4] {
            probed.go.send(()).unwrap();
            assert_eq!(reply(&mut stream), (id, None));
        }
        (0..2).for_each(|_| drop(probed.next()));
    }
    // The end waits for requests that were read.
    stream.write_all(&[request(1, 0), request(2, 0), request(3, 0), request(4, 0)].concat()).unwrap();
    assert_eq!(reply(&mut stream), (4, Some(minor::RT_BUFFER)));
    let ends = std::thread::spawn(move || orb.shutdown());
    (0..3).for_each(|_| probed.go.send(()).unwrap());
    for id in [1, 2, 3] {
        assert_eq!(reply(&mut stream), (id, None));
    }
    ends.join().unwrap();
}

#[test]
fn a_client_leaves_room_in_the_buffer_to_another_one() {
    let path = std::env::temp_dir().join(format!("hyoshi-orb-buffer-{}.sock", std::process::id()));
    let orb = listening(direct());
    let buffering = RequestBuffer { requests: 4, octets: 4096 };
    let options = ThreadpoolOptions { buffering: Some(buffering), ..DEFAULT() };
    let listen = vec!["iiop://127.0.0.1:0".to_owned(), format!("unix:{}", path.display())];
    let pool = orb.rt().create_threadpool(ThreadpoolLane { listen, ..lane(5, 1) }, &options).unwrap();
    let (adapter, probed) = served(orb.adapter("a").threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let profile = tracker.ior().iiop().next().unwrap().unwrap();
    let request = |id, octets: usize| {
        let (target, response) = (Target::Key(profile.key), Response::Target);
        let header = RequestHeader { id, response, target, operation: "_get_name", contexts: &[] };
        let mut to = Encoder::new(ByteOrder::Big);
        let begun = header.begin(&mut to).unwrap();
        to.raw(&vec![0; octets]);
        begun.end(&mut to).unwrap();
        to.into_bytes()
    };
    // Its id, and whether it is an exception.
    let reply = |stream: &mut dyn std::io::Read| {
        let reply = peer::message(&mut { stream }).unwrap();
        (peer::id(&reply), reply[16] | reply[19])
    };
    let mut other = std::os::unix::net::UnixStream::connect(&path).unwrap();
    other.write_all(&request(1, 0)).unwrap();
    drop(probed.next());
    probed.go.send(()).unwrap();
    assert_eq!(reply(&mut other), (1, 0));
    let mut flood = TcpStream::connect((profile.host, profile.port)).unwrap();
    flood.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    flood.write_all(&request(1, 0)).unwrap();
    drop(probed.next());
    // Alone it could have all octets.
    flood.write_all(&request(2, 3000)).unwrap();
    assert_eq!(reply(&mut flood), (2, 2));
    flood.write_all(&(3..20).flat_map(|id| request(id, 0)).collect::<Vec<_>>()).unwrap();
    (5..20).for_each(|id| assert_eq!(reply(&mut flood), (id, 2), "it has half of the buffer"));
    other.write_all(&request(2, 1000)).unwrap();
    (0..4).for_each(|_| probed.go.send(()).unwrap());
    assert_eq!(reply(&mut other), (2, 0), "it found room");
    [1, 3, 4].into_iter().for_each(|id| assert_eq!(reply(&mut flood), (id, 0)));
}

#[test]
fn a_request_on_a_lane_of_another_pool_is_forwarded() {
    let orb = listening(direct());
    let pool = orb.rt().create_threadpool(lane(7, 1), &DEFAULT()).unwrap();
    let (adapter, probed) = served(orb.adapter("a").threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.publish("Tracker", &tracker).unwrap();
    orb.ready();
    let client = Orb::client().unwrap();
    let here = orb.endpoints()[0].clone();
    through(&client, &tracker, &here).nothing().unwrap();
    assert_eq!(probed.next().thread, "rt0-7-0");
    let IorEndpoint::Tcp { port, .. } = here else { panic!() };
    for version in ["", "1.2@"] {
        let address = format!("corbaloc:iiop:{version}127.0.0.1:{port}/Tracker");
        client.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing().unwrap();
        assert_eq!(probed.next().thread, "rt0-7-0");
    }
    // A oneway has no reply: it runs where it arrived.
    through(&client, &tracker, &here).hint("", &[]).unwrap();
    assert!(probed.next().thread.starts_with("orb-"));
}

#[test]
fn a_client_runs_within_its_ceiling() {
    let here = "127.0.0.1".parse().unwrap();
    for above in [AboveCeiling::Clamp, AboveCeiling::Refuse] {
        let ceilings = PriorityCeilings::new(above).address(here, priority(9));
        let orb = listening(direct().priority_ceilings(ceilings));
        let rt = orb.rt();
        let model = PriorityModel::ClientPropagated { default: priority(12) };
        let (adapter, probed) = served(orb.adapter("a").priority_model(model));
        let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
        orb.ready();
        let claims = Claims::default();
        let client = Orb::builder().client_interceptor(claims.clone()).build().unwrap();
        let tracker = remote(&client, &tracker);
        let ran = |claimed| {
            claims.claim(claimed);
            tracker.nothing().map(|()| probed.next().current.unwrap())
        };
        assert_eq!((ran(Some(9)), ran(Some(2))), (Ok(9), Ok(2)));
        assert_eq!(ran(None), Ok(9), "the default does not lift the ceiling");
        assert_eq!(rt.exceeded_ceilings().load(Ordering::Relaxed), 0);
        match above {
            AboveCeiling::Clamp => assert_eq!(ran(Some(10)), Ok(9)),
            AboveCeiling::Refuse => assert_eq!(minor_of(ran(Some(10))), (SystemKind::NoPermission, minor::RT_CEILING)),
        }
        assert_eq!(rt.exceeded_ceilings().load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_client_is_refused_on_lanes_above_its_ceiling() {
    let ceilings = PriorityCeilings::new(AboveCeiling::Refuse).address("127.0.0.1".parse().unwrap(), priority(9));
    let orb = listening(direct().priority_ceilings(ceilings));
    let lanes = [lane(5, 1), lane(12, 1), lane(20, 1)];
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &DEFAULT()).unwrap();
    let model = PriorityModel::ClientPropagated { default: priority(12) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let claims = Claims::default();
    let client = Orb::builder().client_interceptor(claims.clone()).build().unwrap();
    let at = |number: i16| {
        let is_its = |at: &&IorEndpoint| matches!(at, IorEndpoint::Tcp { priority, .. } if *priority == Some(number));
        through(&client, &tracker, endpoints(&tracker).iter().find(is_its).unwrap())
    };
    claims.claim(Some(9));
    for allowed in [5, 12] {
        at(allowed).nothing().unwrap();
        assert_eq!(probed.next().current, Some(9));
    }
    assert_eq!(minor_of(at(20).nothing()), (SystemKind::NoPermission, minor::RT_CEILING));
    claims.claim(None);
    assert_eq!(minor_of(at(20).nothing()), (SystemKind::NoPermission, minor::RT_CEILING));
}

#[test]
fn a_servant_does_not_set_the_kernel_priority_of_a_thread_that_the_program_orders() {
    struct AtOnce;
    impl Order for AtOnce {
        fn arrived(&self, _: u32, request: OrderedRequest) {
            request.run();
        }
    }
    let lane = LaneOptions { name: "mine".to_owned(), threads: 0, ..LaneOptions::default() };
    let orb = listening(direct().lane(lane).order(AtOnce, 1));
    let probed = Probed::new();
    let model = PriorityModel::ServerDeclared { priority: priority(7) };
    let adapters = [orb.adapter("plain"), orb.adapter("declared").priority_model(model)].map(|it| it.build().unwrap());
    let activate =
        |adapter: &hyoshi_orb::Adapter| adapter.activate_ordered::<dyn Tracker>("x", probed.probe.clone(), 0).unwrap();
    let trackers = adapters.each_ref().map(activate);
    orb.ready();
    let lane = orb.owned_lane("mine").unwrap();
    let client = Orb::client().unwrap();
    let own = Ran::here();
    for tracker in trackers.map(|tracker| remote(&client, &tracker)) {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| tracker.locate(20));
            while !call.is_finished() {
                lane.turn();
                lane.wait(Some(Duration::from_millis(1)));
            }
            call.join().unwrap().unwrap();
        });
        assert_eq!(probed.next(), Ran { current: Some(20), ..own.clone() });
        assert_eq!(Ran::here(), own);
    }
}

#[test]
fn what_a_servant_sets_on_a_thread_of_its_callers_ends_with_the_call() {
    let orb = listening(direct().collocation(true));
    let (adapter, probed) = served(orb.adapter("a"));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    if !has_privilege() {
        return;
    }
    std::thread::spawn(move || {
        for before in [None, Some(7)] {
            before.inspect(|number| current::set_priority(priority(*number)).unwrap());
            let own = Ran::here();
            tracker.locate(20).unwrap();
            assert!(probed.next().at(20, 60));
            assert_eq!(Ran::here(), own);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn users_and_certificates_have_ceilings_and_strangers_the_lowest_lane() {
    let authority = Authority::new("plant");
    let (yard, chief) = (authority.papers(&["127.0.0.1"]), authority.papers(&["chief.plant"]));
    let folder = std::env::temp_dir().join(format!("hyoshi-rt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let tls = TlsServer::for_clients_perhaps_of(yard.identity(), &authority.roots()).unwrap();
    let uid = hyoshi_os::Credentials::own().uid;
    let ceilings =
        PriorityCeilings::new(AboveCeiling::Clamp).user(uid, priority(15)).certificate("chief.plant", priority(30));
    let builder = direct().priority_ceilings(ceilings).tls_server(tls);
    let orb = builder.listen("ssliop://127.0.0.1:0").unwrap();
    let orb = orb.listen(&format!("unix:{}", path.display())).unwrap().build().unwrap();
    let unix = ThreadpoolLane { listen: vec![format!("unix:{}.5", path.display())], ..lane(5, 1) };
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(35, 1), unix], &DEFAULT()).unwrap();
    let model = PriorityModel::ClientPropagated { default: priority(5) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let ran = |client: OrbBuilder, claimed| {
        let claims = Claims::default();
        claims.claim(Some(claimed));
        let client = client.client_interceptor(claims).build().unwrap();
        remote(&client, &tracker).nothing().unwrap();
        probed.next().current.unwrap()
    };
    // Clients use the Unix socket, if they may.
    assert_eq!(ran(Orb::builder(), 20), 15);
    let over_tls = || {
        let rules = "* ssl".parse().unwrap();
        Orb::builder().client_transport(rules)
    };
    let stranger = TlsClient::new(&authority.roots());
    assert_eq!(ran(over_tls().tls_client(stranger).unwrap(), 20), 5);
    let known = TlsClient::new(&authority.roots()).identity(chief.identity());
    assert_eq!(ran(over_tls().tls_client(known).unwrap(), 33), 30);
    assert_eq!(orb.rt().exceeded_ceilings().load(Ordering::Relaxed), 3);
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_call_within_the_process_runs_on_its_objects_lane_unless_it_is_direct() {
    for direct_calls in [false, true] {
        let builder = if direct_calls { direct().collocation(true) } else { direct() };
        let orb = listening(builder);
        let pool = orb.rt().create_threadpool_with_lanes(&[lane(5, 1), lane(20, 1)], &DEFAULT()).unwrap();
        let model = PriorityModel::ServerDeclared { priority: priority(5) };
        let (adapter, probed) = served(orb.adapter("a").priority_model(model).threadpool(pool));
        let low = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
        let also_low = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
        let high = adapter.activate_with_priority::<dyn Tracker>(probed.probe.clone(), priority(20)).unwrap();
        orb.ready();
        low.nothing().unwrap();
        let own = std::thread::current().name().unwrap_or_default().to_owned();
        assert_eq!(probed.next().thread, if direct_calls { own } else { "rt0-5-0".into() });
        let client = Orb::client().unwrap();
        for (callee, lane) in [(&high, "rt0-20-0"), (&also_low, "rt0-5-0")] {
            *probed.probe.calls.lock().unwrap() = Some(callee.clone());
            remote(&client, &low).nothing().unwrap();
            assert_eq!(probed.next().thread, "rt0-5-0");
            assert_eq!(probed.next().thread, if direct_calls { "rt0-5-0" } else { lane });
        }
    }
}

#[derive(Debug)]
struct Doubled;

impl PriorityTransform for Doubled {
    fn inbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority> {
        assert_eq!(object_id, b"x");
        Priority::new(priority.number() * 2)
    }
    fn outbound(&self, priority: Priority, _: &[u8]) -> Option<Priority> {
        (priority.number() < 10).then_some(priority)
    }
}

#[test]
fn a_transform_changes_what_arrives_and_refuses_what_leaves() {
    let orb = listening(direct().priority_transform(Doubled));
    let model = PriorityModel::ServerDeclared { priority: priority(7) };
    let (adapter, probed) = served(orb.adapter("a").priority_model(model));
    let tracker = adapter.activate_as::<dyn Tracker>("x", probed.probe.clone()).unwrap();
    orb.ready();
    remote(&Orb::client().unwrap(), &tracker).nothing().unwrap();
    assert_eq!(probed.next().current, Some(14));
    assert_eq!(orb.rt().outbound(priority(9), b"x"), Ok(priority(9)));
    assert_eq!(minor_of(orb.rt().outbound(priority(10), b"x")), (SystemKind::DataConversion, minor::RT_UNMAPPED));
}

#[test]
fn schedulers_use_the_names_of_their_tables() {
    if !has_privilege() {
        return;
    }
    let orb = listening(Orb::builder().priority_mapping(NativeMapping::default()));
    let table = HashMap::from([("scan".to_owned(), priority(45)), ("brake".to_owned(), priority(70))]);
    let scheduler = ServerScheduler::new(&orb, table.clone());
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(45, 1), lane(70, 1)], &DEFAULT()).unwrap();
    let (adapter, probed) = served(scheduler.create_adapter("a").threadpool(pool));
    let early = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    let brake = scheduler.schedule_object(&adapter, &early, "brake").unwrap();
    assert_eq!((lanes_of(&early), lanes_of(&brake)), (vec![Some(45)], vec![Some(70)]));
    let unknown = scheduler.schedule_object(&adapter, &early, "break").unwrap_err();
    assert_eq!(unknown.to_string(), "the table of priorities has no name \"break\": add it");
    orb.ready();
    let client = Orb::client().unwrap();
    for (stub, thread) in [(&brake, "rt0-70-0"), (&early, "rt0-45-0")] {
        remote(&client, stub).nothing().unwrap();
        let ran = probed.next();
        assert!(ran.at(70, 70) && ran.thread == thread, "{ran:?}");
    }
    let activities = ClientScheduler::new(table);
    let on_a_thread = move || {
        let stub = orb.stub::<dyn Tracker>(brake.ior().clone());
        // The mapping is that of the ORB of the last call.
        stub.echo(&[]).unwrap();
        activities.schedule_activity("scan").unwrap();
        let unknown = activities.schedule_activity("idle");
        assert!(matches!(unknown, Err(ScheduleError::UnknownName(_))));
        Ran::here()
    };
    assert!(std::thread::spawn(on_a_thread).join().unwrap().at(45, 45));
}

/// How many octets the kernels of both sides accept for a server that does not read.
fn fits(to: &IorEndpoint) -> usize {
    let IorEndpoint::Tcp { port, .. } = to else { panic!("{to:?}") };
    let to = hyoshi_os::SocketAddress::Tcp(([127, 0, 0, 1], *port).into());
    let own = TcpProperties { send_buffer: Some(4096), ..TcpProperties::default() };
    let stream = hyoshi_os::SocketStream::connect_with(&to, Duration::from_secs(20), None, &own).unwrap();
    let mut all = 0;
    while stream.ready(true, Some(Duration::from_millis(500))).unwrap() {
        all += stream.write(&[0; 1024], hyoshi_os::May::Never).unwrap_or(0);
    }
    all
}

#[test]
fn accepted_connections_of_all_lanes_have_the_properties_of_the_server() {
    let fit = |properties| {
        let orb = direct().server_tcp(properties).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        let pool = orb.rt().create_threadpool_with_lanes(&[lane(5, 1)], &DEFAULT()).unwrap();
        let adapter = orb.adapter("a").priority_model(PriorityModel::ServerDeclared { priority: priority(5) });
        let (adapter, probed) = served(adapter.threadpool(pool));
        let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
        let of_lane = tracker.ior().iiop().next().unwrap().unwrap().endpoints();
        // Before the ORB is ready, nothing is read.
        let fit = [fits(&orb.endpoints()[0]), fits(&of_lane[0])];
        orb.ready();
        remote(&Orb::client().unwrap(), &tracker).nothing().unwrap();
        fit
    };
    let default = fit(TcpProperties::default());
    let small = fit(TcpProperties { receive_buffer: Some(4096), dont_route: true, ..TcpProperties::default() });
    assert!(small.iter().zip(default).all(|(small, default)| small * 2 < default), "{small:?}, {default:?}");
}

/// The state of this process's thread of that name, and its CPU time, as in proc(5).
fn state(name: &str) -> (char, Duration) {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|thread| Some(thread.ok()?.path()));
    let state = |stat: String| stat.split_once(&format!("({name}) "))?.1.chars().next();
    let of = |thread: std::path::PathBuf| {
        let state = state(std::fs::read_to_string(thread.join("stat")).ok()?)?;
        let used = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        Some((state, Duration::from_nanos(used.split(' ').next()?.parse().ok()?)))
    };
    threads.filter_map(of).next().unwrap()
}

#[test]
fn a_lane_polls_for_its_time_and_then_sleeps_until_a_request() {
    const POLLS: Duration = Duration::from_millis(200);
    let orb = listening(direct());
    let polling = ThreadpoolLane { busy_poll: Span::from_nanos(POLLS.as_nanos() as u64), ..lane(7, 1) };
    let pool = orb.rt().create_threadpool_with_lanes(&[polling], &DEFAULT()).unwrap();
    let (adapter, probed) = served(orb.adapter("a").threadpool(pool));
    let tracker = adapter.activate::<dyn Tracker>(probed.probe.clone()).unwrap();
    orb.ready();
    let client = Orb::client().unwrap();
    let tracker = remote(&client, &tracker);
    let name = format!("rt{pool}-7-0");
    let end = std::time::Instant::now() + Duration::from_secs(40);
    // The CPU time of the thread until it sleeps; with requests meanwhile, which do not prolong it.
    let until_it_sleeps = |requests: bool| {
        let (_, before) = state(&name);
        loop {
            if requests {
                tracker.nothing().unwrap();
                assert_eq!(probed.next().thread, name);
            }
            std::thread::sleep(Duration::from_millis(1));
            let (state, used) = state(&name);
            if state == 'S' {
                return used - before;
            }
            assert!(std::time::Instant::now() < end, "it does not sleep");
        }
    };
    for requests in [false, true] {
        // It rests after it has polled: then a request leads to no polling.
        until_it_sleeps(false);
        loop {
            tracker.nothing().unwrap();
            assert_eq!(probed.next().thread, name);
            let used = until_it_sleeps(requests);
            assert!(used < 2 * POLLS, "{used:?}");
            if used > POLLS / 4 {
                break;
            }
            assert!(std::time::Instant::now() < end, "it does not poll");
        }
    }
}
