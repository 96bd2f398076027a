//! Events in CORBA programs, through the interfaces of OMG's event service.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant as WallClock};

use hyoshi_events::EventChannel;
use hyoshi_model::{Span, read};
use hyoshi_node::CorbaEvents;
use hyoshi_node::idl::cos_event_channel_admin::{
    AlreadyConnected, ConnectPushConsumerError, ConnectPushSupplierError, ConsumerAdmin as _,
    EventChannel as EventChannelInterface, EventChannelStub, ProxyPushConsumer as _, ProxyPushConsumerStub,
    ProxyPushSupplier as _, ProxyPushSupplierStub, SupplierAdmin as _,
};
use hyoshi_node::idl::cos_event_comm::{PushConsumer, PushConsumerStub, PushError, PushSupplier, PushSupplierStub};
use hyoshi_orb::{
    Any, Elsewhere, Ior, Locator, Object, Orb, Servant, StubOperation, SystemException, SystemKind, TlsClient,
    TlsServer, Typed as _, Value, minor,
};
use hyoshi_runtime::{Node, Prepared, RunningNode};
use hyoshi_sched::{Plan, Strategies};

use crate::authority::Authority;
use crate::common::{folder, unused_address};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node with two events of one supplier, and one event that cannot be published.
struct Fixture {
    events: CorbaEvents,
    channel: EventChannel,
    address: String,
    socket: String,
    /// A client over TCP, and one over the Unix socket.
    client: Orb,
    local: Orb,
    consumers: Orb,
}

/// A node whose events have these endpoints.
fn node(endpoints: &str) -> (EventChannel, Prepared) {
    let text = format!(
        r#"
        name     = "corba-events"
        duration = "300s"
        [event."sensor/gps fix"]
        payload   = "64B"
        keep      = 1
        endpoints = [{endpoints}]
        [event.status]
        endpoints = [{endpoints}]
        [operation.gps]
        called       = true
        deadline     = "1ms"
        wcet         = "0.05ms"
        supplies     = ["sensor/gps fix"]
        queue        = {{ limit = 4 }}
        [operation.beat]
        every    = "100ms"
        wcet     = "0.05ms"
        supplies = ["status"]
        "#
    );
    let system = Arc::new(read(&text, "events.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut node = Node::new(system, plan).share_cpu(true).prepare().unwrap();
    (EventChannel::start(&mut node).unwrap(), node)
}

fn prepare() -> (Fixture, Prepared) {
    let (address, socket) = (unused_address().to_string(), folder().join("events").display().to_string());
    let (channel, node) = node(&format!(r#""tcp/{address}", "unix/{socket}""#));
    let events = CorbaEvents::serve(&channel, None, None).unwrap();
    let consumers = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    consumers.ready();
    let client = |rules: &str| Orb::builder().client_transport(rules.parse().unwrap()).build().unwrap();
    let (client, local) = (client("* tcp"), client("* unix"));
    (Fixture { events, channel, address, socket, client, local, consumers }, node)
}

fn start() -> (Fixture, RunningNode) {
    let (fixture, node) = prepare();
    (fixture, node.start())
}

impl Fixture {
    fn gps(&self) -> EventChannelStub {
        let key = "sensor/gps%20fix";
        self.client.resolve::<dyn EventChannelInterface>(&format!("corbaloc:iiop:1.2@{}/{key}", self.address)).unwrap()
    }

    fn local_gps(&self) -> EventChannelStub {
        let address = format!("corbaloc:omniunix:{}:/sensor/gps%20fix", self.socket);
        self.local.resolve::<dyn EventChannelInterface>(&address).unwrap()
    }

    fn proxy_for_consumer(&self) -> ProxyPushSupplierStub {
        self.gps().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap()
    }

    fn proxy_for_supplier(&self) -> ProxyPushConsumerStub {
        self.gps().for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap()
    }

    /// A connected consumer, and its proxy.
    fn consumer(&self) -> (Arc<Consumer>, ProxyPushSupplierStub) {
        let (consumer, proxy) = (Arc::new(Consumer::default()), self.proxy_for_consumer());
        proxy.connect_push_consumer(Some(&self.stub(&consumer))).unwrap();
        (consumer, proxy)
    }

    fn stub(&self, consumer: &Arc<Consumer>) -> PushConsumerStub {
        let adapter = self.consumers.adapter(&format!("consumer {:p}", Arc::as_ptr(consumer))).build().unwrap();
        adapter.activate::<dyn PushConsumer>(consumer.clone()).unwrap()
    }

    fn supplier(&self) -> ProxyPushConsumerStub {
        let proxy = self.proxy_for_supplier();
        proxy.connect_push_supplier(None).unwrap();
        proxy
    }
}

#[derive(Default)]
struct Consumer {
    received: Mutex<Vec<Any>>,
    changed: Condvar,
    hangs: AtomicBool,
    disconnected: AtomicBool,
}

impl Consumer {
    /// The first `count` events.
    fn received(&self, count: usize) -> Vec<Any> {
        let received = self.received.lock().unwrap();
        let waited = self.changed.wait_timeout_while(received, PATIENCE, |received| received.len() < count).unwrap();
        assert!(!waited.1.timed_out(), "only {:?}", *waited.0);
        waited.0[..count].to_vec()
    }
}

impl PushConsumer for Consumer {
    fn push(&self, data: &Any) -> Result<(), PushError> {
        while self.hangs.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        self.received.lock().unwrap().push(data.clone());
        self.changed.notify_all();
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.disconnected.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Default)]
struct Supplier(AtomicBool);

impl PushSupplier for Supplier {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Forwards all requests to another object.
struct Forwarder(Ior);

impl Locator for Forwarder {
    fn before(&self, _: &[u8], _: &str) -> Result<Servant, Elsewhere> {
        Err(Elsewhere::Forward(Box::new(self.0.clone())))
    }
}

fn raised(error: PushError) -> (SystemKind, u32) {
    match error {
        PushError::System(raised) => (raised.kind, raised.minor),
        other => panic!("{other}"),
    }
}

/// Pushes when the run has begun and the supplier has room.
fn push(proxy: &ProxyPushConsumerStub, any: &Any) {
    let began = WallClock::now();
    while let Err(error) = proxy.push(any) {
        let (kind, minor) = raised(error);
        assert!(
            kind == SystemKind::Transient && [minor::EVENT_FULL, minor::NOT_RUN].contains(&minor),
            "{kind:?} {minor:#x}"
        );
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = WallClock::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn consumers_receive_what_suppliers_push_and_late_ones_what_the_file_keeps() {
    let (fixture, running) = start();
    let ((first, _proxy), supplier) = (fixture.consumer(), fixture.supplier());
    let octets: &[u8] = b"48.1N";
    let anys = [Any::of("48.1N").unwrap(), Any::of(&-7i16).unwrap(), Any::of(octets).unwrap(), Any::default()];
    for (at, any) in anys.iter().enumerate() {
        push(&supplier, any);
        first.received(at + 1);
    }
    assert_eq!(first.received(4), anys);
    let inside = fixture.channel.subscribe(&["sensor/**"], Default::default()).unwrap();
    push(&supplier, &Any::of(octets).unwrap());
    let payload = |event: hyoshi_events::ReceivedEvent| event.payload.to_vec();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last: &Vec<u8>| *last != octets) {
        seen.push(payload(inside.receive(Span::from_secs(20)).unwrap()));
    }
    first.received(5);
    // The event that the file keeps, over the Unix socket.
    let gps = fixture.local_gps();
    let (late, proxy) = (Arc::new(Consumer::default()), gps.for_consumers().unwrap().unwrap());
    let proxy = proxy.obtain_push_supplier().unwrap().unwrap();
    proxy.connect_push_consumer(Some(&fixture.stub(&late))).unwrap();
    assert_eq!(late.received(1)[0].get::<&[u8]>(), Ok(octets));
    // From this program, not from CORBA.
    while fixture.channel.publish("sensor/gps fix", b"raw").is_err() {
        thread::yield_now();
    }
    assert_eq!(late.received(2)[1].value(), Ok(Value::Octets(b"raw".to_vec())));
    drop(running);
}

#[test]
fn each_misuse_gets_the_exception_of_the_standard() {
    let (fixture, running) = start();
    let (consumer, supplier) = (fixture.proxy_for_consumer(), fixture.proxy_for_supplier());
    assert!(matches!(supplier.push(&Any::default()), Err(PushError::Disconnected(_))), "it is not connected");
    supplier.connect_push_supplier(None).unwrap();
    let again = supplier.connect_push_supplier(None);
    assert!(matches!(again, Err(ConnectPushSupplierError::AlreadyConnected(AlreadyConnected {}))), "{again:?}");
    let system = |error: Result<(), ConnectPushConsumerError>| match error {
        Err(ConnectPushConsumerError::System(raised)) => (raised.kind, raised.minor),
        other => panic!("{other:?}"),
    };
    assert_eq!(system(consumer.connect_push_consumer(None)), (SystemKind::BadParam, minor::EVENT_CONSUMER));
    // Its events would circulate for ever.
    let own: PushConsumerStub = supplier.as_ref().widen::<dyn PushConsumer>().into();
    assert_eq!(system(consumer.connect_push_consumer(Some(&own))), (SystemKind::BadParam, minor::EVENT_CONSUMER));
    // The socket may be open to the node's user only.
    let socket = fixture.client.resolve_unchecked::<dyn PushConsumer>("corbaloc:omniunix:/run/other.sock:/x").unwrap();
    assert_eq!(system(consumer.connect_push_consumer(Some(&socket))), (SystemKind::BadParam, minor::EVENT_CONSUMER));
    let servant = Arc::new(Consumer::default());
    consumer.connect_push_consumer(Some(&fixture.stub(&servant))).unwrap();
    let again = consumer.connect_push_consumer(Some(&fixture.stub(&Arc::new(Consumer::default()))));
    assert!(matches!(again, Err(ConnectPushConsumerError::AlreadyConnected(_))), "{again:?}");
    // After the end there is no proxy.
    supplier.disconnect_push_consumer().unwrap();
    assert_eq!(raised(supplier.push(&Any::default()).unwrap_err()).0, SystemKind::ObjectNotExist);
    consumer.disconnect_push_supplier().unwrap();
    assert_eq!(consumer.disconnect_push_supplier().unwrap_err().kind, SystemKind::ObjectNotExist);
    assert!(!servant.disconnected.load(Ordering::Relaxed), "its own program has disconnected it");

    let gps = fixture.gps();
    let kind = |error: SystemException| (error.kind, error.minor);
    assert_eq!(kind(gps.destroy().unwrap_err()), (SystemKind::NoPermission, minor::EVENT_DESTROY));
    let (consumers, suppliers) = (gps.for_consumers().unwrap().unwrap(), gps.for_suppliers().unwrap().unwrap());
    let pull = (SystemKind::NoImplement, minor::EVENT_PULL);
    assert_eq!(kind(consumers.obtain_pull_supplier().unwrap_err()), pull);
    assert_eq!(kind(suppliers.obtain_pull_consumer().unwrap_err()), pull);
    let status = format!("corbaloc:iiop:1.2@{}/status", fixture.address);
    let status = fixture.client.resolve::<dyn EventChannelInterface>(&status).unwrap();
    let refused = status.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap_err();
    assert_eq!(kind(refused), (SystemKind::NoImplement, minor::EVENT_NO_SUPPLIER));
    let (beats, proxy) = (Arc::new(Consumer::default()), status.for_consumers().unwrap().unwrap());
    proxy.obtain_push_supplier().unwrap().unwrap().connect_push_consumer(Some(&fixture.stub(&beats))).unwrap();
    assert_eq!(beats.received(2)[1].value(), Ok(Value::Octets(Vec::new())));
    drop(running);
}

#[test]
fn publications_that_the_node_rejects_raise_a_system_exception() {
    let (fixture, node) = prepare();
    let supplier = fixture.supplier();
    assert_eq!(raised(supplier.push(&Any::default()).unwrap_err()), (SystemKind::Transient, minor::NOT_RUN));
    let running = node.start();
    push(&supplier, &Any::of(&[0u8; 64][..]).unwrap());
    let long = Any::of(&[0u8; 65][..]).unwrap();
    assert_eq!(raised(supplier.push(&long).unwrap_err()), (SystemKind::BadParam, minor::EVENT_TOO_LONG));
    let all = thread::scope(|scope| {
        let flood = || (0..300).filter_map(|_| supplier.push(&Any::default()).err()).map(raised).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(flood)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(!all.is_empty(), "a job each millisecond, and a queue of 4");
    assert!(all.iter().all(|one| *one == (SystemKind::Transient, minor::EVENT_FULL)), "{all:?}");
    assert!(fixture.events.counts()[0].refused >= all.len() as u64 + 2);
    drop(running);
}

#[test]
fn consumers_that_hang_or_die_delay_no_other_and_are_disconnected() {
    let (fixture, running) = start();
    let ((quick, _), (hangs, _), supplier) = (fixture.consumer(), fixture.consumer(), fixture.supplier());
    hangs.hangs.store(true, Ordering::Relaxed);
    // No program listens there.
    let dead = format!("corbaloc:iiop:1.2@{}/nothing", unused_address());
    let dead = fixture.client.resolve_unchecked::<dyn PushConsumer>(&dead).unwrap();
    fixture.proxy_for_consumer().connect_push_consumer(Some(&dead)).unwrap();
    // Its program runs, but lacks that object.
    let adapter = fixture.consumers.adapter("gone").build().unwrap();
    let gone = adapter.activate::<dyn PushConsumer>(Arc::new(Consumer::default())).unwrap();
    fixture.proxy_for_consumer().connect_push_consumer(Some(&gone)).unwrap();
    adapter.destroy();

    push(&supplier, &Any::of(&0u32).unwrap());
    let mut sent = 1;
    let began = WallClock::now();
    while fixture.events.counts()[0].disconnected < 3 {
        assert!(began.elapsed() < PATIENCE, "{:?}", fixture.events.counts());
        let pushed = WallClock::now();
        push(&supplier, &Any::of(&sent).unwrap());
        sent += 1;
        let received = quick.received(sent as usize);
        assert_eq!(received.last().unwrap().get::<u32>(), Ok(sent - 1));
        assert!(pushed.elapsed() < Duration::from_secs(5), "the consumers that hang delay others");
        thread::sleep(Duration::from_millis(20));
    }
    let counts = fixture.events.counts()[0].clone();
    assert!(counts.failed >= 10, "{counts:?}");
    hangs.hangs.store(false, Ordering::Relaxed);
    drop(running);
}

#[test]
fn a_client_has_a_limited_number_of_proxies() {
    let (fixture, running) = start();
    let gps = fixture.gps();
    let (consumers, suppliers) = (gps.for_consumers().unwrap().unwrap(), gps.for_suppliers().unwrap().unwrap());
    let proxies: Vec<_> = (0..8).map(|_| consumers.obtain_push_supplier().unwrap().unwrap()).collect();
    (0..8).for_each(|_| drop(suppliers.obtain_push_consumer().unwrap()));
    let limit = consumers.obtain_push_supplier().unwrap_err();
    assert_eq!((limit.kind, limit.minor), (SystemKind::ImpLimit, minor::EVENT_LIMIT));
    proxies[0].disconnect_push_supplier().unwrap();
    drop(consumers.obtain_push_supplier().unwrap());
    assert_eq!(suppliers.obtain_push_consumer().unwrap_err().kind, SystemKind::ImpLimit);
    // Over the Unix socket the client is this user, not this machine.
    drop(fixture.local_gps().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap());
    // A consumer has its place until its thread has ended.
    let consumer = Arc::new(Consumer::default());
    proxies[1].connect_push_consumer(Some(&fixture.stub(&consumer))).unwrap();
    proxies[1].disconnect_push_supplier().unwrap();
    until("its place is free", || suppliers.obtain_push_consumer().is_ok());
    drop(running);
}

#[test]
fn the_end_of_the_run_disconnects_consumers_and_suppliers() {
    let (fixture, running) = start();
    let (consumer, _) = fixture.consumer();
    let (hangs, _) = fixture.consumer();
    hangs.hangs.store(true, Ordering::Relaxed);
    let (supplier, proxy) = (Arc::new(Supplier::default()), fixture.proxy_for_supplier());
    let adapter = fixture.consumers.adapter("supplier").build().unwrap();
    let stub: PushSupplierStub = adapter.activate::<dyn PushSupplier>(supplier.clone()).unwrap();
    proxy.connect_push_supplier(Some(&stub)).unwrap();
    push(&proxy, &Any::of(&1u32).unwrap());
    consumer.received(1);
    let began = WallClock::now();
    let Fixture { events, consumers, .. } = fixture;
    drop(events);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(consumer.disconnected.load(Ordering::Relaxed) && supplier.0.load(Ordering::Relaxed));
    assert!(proxy.push(&Any::default()).is_err());
    hangs.hangs.store(false, Ordering::Relaxed);
    drop((running, consumers));
}

#[test]
fn a_client_from_the_network_leads_no_call_to_a_unix_socket() {
    let (fixture, running) = start();
    // A program of the node's user that listens at a Unix socket only.
    let private = format!("unix:{}", folder().join("private").display());
    let private = Orb::builder().listen(&private).unwrap().build().unwrap();
    private.ready();
    let adapter = private.adapter("private").build().unwrap();
    let consumer = Arc::new(Consumer::default());
    let at_socket = adapter.activate::<dyn PushConsumer>(consumer.clone()).unwrap();
    let suppliers = [(); 3].map(|()| Arc::new(Supplier::default()));
    let stubs = suppliers.clone().map(|supplier| adapter.activate::<dyn PushSupplier>(supplier).unwrap());
    let forwarder =
        |name: &str, to: &Ior| fixture.consumers.adapter(name).locator(Forwarder(to.clone())).build().unwrap();
    let forwards = forwarder("forwards", at_socket.as_ref().ior());
    let forwards = forwards.reference::<dyn PushConsumer>("x").unwrap();

    // The server that the client names forwards the call.
    fixture.proxy_for_consumer().connect_push_consumer(Some(&forwards)).unwrap();
    let proxy = fixture.supplier();
    push(&proxy, &Any::of(&1u32).unwrap());
    until("the call has failed", || fixture.events.counts()[0].failed > 0);
    assert!(consumer.received.lock().unwrap().is_empty());
    // The user of the run may use its own sockets.
    let gps = fixture.local_gps();
    let local = gps.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    local.connect_push_consumer(Some(&forwards)).unwrap();
    assert_eq!(consumer.received(1)[0].get::<u32>(), Ok(1), "the event that the file keeps");

    // Suppliers are called at the end of the run.
    let refused = fixture.proxy_for_supplier().connect_push_supplier(Some(&stubs[0]));
    let Err(ConnectPushSupplierError::System(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!((refused.kind, refused.minor), (SystemKind::BadParam, minor::EVENT_CONSUMER));
    let forwards = forwarder("forwards supplier", stubs[1].as_ref().ior());
    let forwards = forwards.reference::<dyn PushSupplier>("x").unwrap();
    fixture.proxy_for_supplier().connect_push_supplier(Some(&forwards)).unwrap();
    let local = gps.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    local.connect_push_supplier(Some(&stubs[2])).unwrap();
    let Fixture { events, consumers, .. } = fixture;
    drop(events);
    let informed = suppliers.map(|supplier| supplier.0.load(Ordering::Relaxed));
    assert_eq!(informed, [false, false, true]);
    drop((running, consumers));
}

#[test]
fn malformed_messages_and_values_are_refused_and_harm_nobody() {
    let (fixture, running) = start();
    let ((consumer, _), supplier) = (fixture.consumer(), fixture.supplier());
    let object = supplier.as_ref().widen::<dyn Object>();
    let bodies: [&[u8]; 5] = [
        b"",
        // A sequence that is longer than its message; a kind that does not exist; an indirection to nowhere.
        &[0, 0, 0, 19, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 255, 255, 255, 255],
        &[0, 0, 0, 99],
        &[255, 255, 255, 255, 255, 255, 255, 0],
        &[255; 200],
    ];
    for body in bodies {
        let write = |to: &mut hyoshi_orb::Encoder| {
            to.raw(body);
            Ok(())
        };
        let pushed: Result<(), SystemException> = object.call(&StubOperation::new("push"), write, |_| Ok(()));
        let kind = pushed.unwrap_err().kind;
        assert!([SystemKind::Marshal, SystemKind::BadTypecode].contains(&kind), "{kind:?}");
    }
    // Not even GIOP.
    let mut stream = TcpStream::connect(&fixture.address).unwrap();
    stream.write_all(&[b'x'; 4_096]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    // A value that is nested deeply, and one that is longer than a message may be.
    let deep = (0..200).fold(Any::default(), |any, _| Any::of(&any).unwrap());
    assert!(supplier.push(&deep).is_err());
    assert!(supplier.push(&Any::of(&vec![0u8; 1 << 20][..]).unwrap()).is_err());
    let supplier = fixture.supplier();
    push(&supplier, &Any::of(&1u32).unwrap());
    assert_eq!(consumer.received(1)[0].get::<u32>(), Ok(1));
    assert_eq!(*consumer.received(1)[0].type_code(), u32::type_code());
    until("the malformed ones reached no consumer", || consumer.received.lock().unwrap().len() == 1);
    drop(running);
}

#[test]
fn over_tls_clients_need_a_certificate_and_no_event_leaves_unencrypted() {
    let (plant, address) = (Authority::new("plant"), unused_address().to_string());
    let (channel, node) = node(&format!(r#""tls/{address}""#));
    let missing = CorbaEvents::serve(&channel, None, None).unwrap_err();
    assert!(missing.to_string().contains("needs a certificate"), "{missing}");
    let tls = |signer: &Authority| {
        // As server of the channel, and of a consumer.
        let papers = signer.papers(&[address.rsplit_once(':').unwrap().0, "127.0.0.1"]);
        let server = TlsServer::for_clients_of(papers.identity(), &plant.roots()).unwrap();
        (server, TlsClient::new(&plant.roots()).identity(papers.identity()))
    };
    let own = tls(&plant);
    let events = CorbaEvents::serve(&channel, None, Some((&own.0, &own.1))).unwrap();
    let running = node.start();
    let gps = |signer: &Authority| {
        let (server, client) = tls(signer);
        let orb = Orb::builder().tls_client(client).unwrap().tls_server(server);
        let orb = orb.listen("ssliop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let gps = orb.resolve::<dyn EventChannelInterface>(&format!("corbaloc:ssliop:1.2@{address}/sensor/gps%20fix"));
        (orb, gps)
    };
    assert_eq!(gps(&Authority::new("elsewhere")).1.unwrap_err().kind, SystemKind::NoPermission);
    let (orb, gps) = gps(&plant);
    let (gps, plain) = (gps.unwrap(), Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap());
    plain.ready();
    let connect = |orb: &Orb| {
        let consumer = Arc::new(Consumer::default());
        let stub = orb.adapter("consumers").build().unwrap().activate::<dyn PushConsumer>(consumer.clone()).unwrap();
        let proxy = gps.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        proxy.connect_push_consumer(Some(&stub)).unwrap();
        consumer
    };
    let (secure, open) = (connect(&orb), connect(&plain));
    let supplier = gps.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    supplier.connect_push_supplier(None).unwrap();
    push(&supplier, &Any::of(&1u32).unwrap());
    assert_eq!(secure.received(1)[0].get::<u32>(), Ok(1));
    until("the call over TCP has failed", || events.counts()[0].failed > 0);
    assert!(open.received.lock().unwrap().is_empty());
    drop((events, running));
}
