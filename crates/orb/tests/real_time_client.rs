//! Real-time CORBA at the client: the priorities that requests carry, the lanes and connections that they use, and the
//! class of their packets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::rt::{
    self, ClientPolicies, DirectMapping, Dscp, DscpTable, OnewayOverflow, PolicyKind, Priority, PriorityBands,
    PriorityModel, PriorityTransform, TcpProperties, ThreadpoolLane, ThreadpoolOptions, current,
};
use hyoshi_orb::{
    Adapter, ClientLimits, Completed, Encode, Ior, Orb, OrbBuilder, SyncScope, SystemException, SystemKind, TlsClient,
    TlsServer, Transport, minor,
};
use hyoshi_wire::giop::{CONTEXT_RT_PRIORITY, ReplyStatus};
use hyoshi_wire::ior::{
    Component, POLICY_PRIORITY_MODEL, PriorityModelPolicy, Profile, TAG_POLICIES, TAG_TAO_ENDPOINTS, TaoEndpoint,
};
use hyoshi_wire::tagged::{Tagged, tagged_list};

use crate::authority::Authority;
use crate::peer;
use crate::privileges::missing;
use crate::tracking::*;

fn priority(number: i16) -> Priority {
    Priority::new(number).unwrap()
}

fn bands(ranges: &[(i16, i16)]) -> Option<PriorityBands> {
    let ranges: Vec<_> = ranges.iter().map(|(low, high)| (priority(*low), priority(*high))).collect();
    Some(PriorityBands::new(&ranges).unwrap())
}

fn minor_of<T: std::fmt::Debug>(result: Result<T, SystemException>) -> (SystemKind, u32) {
    let exception = result.unwrap_err();
    (exception.kind, exception.minor)
}

/// Runs on a thread with this CORBA priority (0 to 39), if any. The kernel's permission does not matter.
fn at<R: Send>(number: Option<i16>, run: impl FnOnce() -> R + Send) -> R {
    let with_priority = || {
        if let Some(number) = number {
            let _ = current::set_priority(priority(number));
            while current::priority() != Some(priority(number)) {
                // Another test's ORB was the last to set a mapping.
                let _last = Orb::builder().priority_mapping(DirectMapping::default()).build().unwrap();
                let _ = current::set_priority(priority(number));
            }
        }
        run()
    };
    std::thread::scope(|scope| scope.spawn(with_priority).join().unwrap())
}

/// A server that keeps the messages of its clients, and counts their connections.
struct RawServer {
    port: u16,
    messages: Receiver<Vec<u8>>,
    connections: Arc<AtomicUsize>,
}

impl RawServer {
    fn start() -> RawServer {
        RawServer::which(None)
    }

    /// A server that forwards all requests to this reference, or replies to them.
    fn which(forwards: Option<Ior>) -> RawServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (to, messages) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::Relaxed);
                let (to, forwards) = (to.clone(), forwards.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &to, forwards.as_ref()));
            }
        });
        RawServer { port, messages, connections }
    }

    /// A reference to its object with this model, and with endpoints of these priorities: all its own.
    fn reference(&self, model: Option<PriorityModelPolicy>, lanes: &[i16]) -> Ior {
        let model = model.map(|model| model.data().unwrap());
        let policy = model.iter().map(|data| Tagged { tag: POLICY_PRIORITY_MODEL, data });
        let policies = tagged_list(&policy.collect::<Vec<_>>()).unwrap();
        let endpoint = |priority: &i16| TaoEndpoint { host: "127.0.0.1", port: self.port, priority: *priority };
        let endpoints = Component::TaoEndpoints(lanes.iter().map(endpoint).collect()).data().unwrap();
        let mut components = vec![Tagged { tag: TAG_POLICIES, data: &policies }];
        if !lanes.is_empty() {
            components.push(Tagged { tag: TAG_TAO_ENDPOINTS, data: &endpoints });
        }
        let profile = Profile::iiop(hyoshi_orb::Version::V1_2, "127.0.0.1", self.port, b"key", &components).unwrap();
        Ior { type_id: "IDL:Tracking/Tracker:1.0".into(), profiles: vec![profile] }
    }

    /// The data of service context 10 in the next request.
    fn carried(&self) -> Option<[u8; 4]> {
        let message = self.messages.recv_timeout(Duration::from_secs(20)).expect("a request arrived");
        let start = [CONTEXT_RT_PRIORITY.to_ne_bytes(), 4u32.to_ne_bytes()].concat();
        let at = (0..message.len()).step_by(4).find(|at| message[*at..].starts_with(&start))?;
        Some(message[at + 8..at + 12].try_into().unwrap())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn answer(mut stream: TcpStream, to: &Sender<Vec<u8>>, forwards: Option<&Ior>) {
    while let Some(message) = peer::message(&mut stream) {
        let (kind, id) = (message[7], peer::id(&message));
        if kind == 0 {
            // The lower bits of the flags: whether a reply is expected.
            let replies = message[16] & 3 != 0;
            let _ = to.send(message);
            let reply = match forwards {
                Some(ior) => peer::reply(id, ReplyStatus::LocationForward, |to| ior.encode(to)),
                None => peer::reply(id, ReplyStatus::NoException, |_| Ok(())),
            };
            if replies && stream.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

const PROPAGATED: PriorityModelPolicy = PriorityModelPolicy { client_propagated: true, priority: 5 };
const DECLARED: PriorityModelPolicy = PriorityModelPolicy { client_propagated: false, priority: 5 };

/// As in the kernel's byte order, which requests have.
fn octets(number: i16) -> Option<[u8; 4]> {
    let [first, second] = number.to_ne_bytes();
    Some([u8::from(cfg!(target_endian = "little")), 0, first, second])
}

#[test]
fn each_request_carries_the_priority_of_its_thread_if_the_model_is_client_propagated() {
    let server = RawServer::start();
    let client = Orb::client().unwrap();
    let stub = client.stub::<dyn Tracker>(server.reference(Some(PROPAGATED), &[]));
    for own in [Some(20), None, Some(0), Some(39)] {
        at(own, || {
            stub.nothing().unwrap();
            stub.oneways(SyncScope::Transport).hint("", &[]).unwrap();
            stub.oneways(SyncScope::None).hint("", &[]).unwrap();
            stub.nothing_async().wait().unwrap();
        });
        for _ in 0..4 {
            assert_eq!(server.carried(), octets(own.unwrap_or(5)), "{own:?}");
        }
    }
    let golden = if cfg!(target_endian = "little") { [1, 0, 0x14, 0] } else { [0, 0, 0, 0x14] };
    assert_eq!(octets(20), Some(golden));
    for model in [Some(DECLARED), None] {
        let stub = client.stub::<dyn Tracker>(server.reference(model, &[]));
        at(Some(20), || stub.nothing().unwrap());
        assert_eq!(server.carried(), None);
    }
}

#[test]
fn a_forwarded_asynchronous_call_keeps_the_priority_of_the_thread_that_called() {
    let last = RawServer::start();
    let first = RawServer::which(Some(last.reference(Some(PriorityModelPolicy { priority: 9, ..PROPAGATED }), &[])));
    let client = Orb::client().unwrap();
    for model in [PROPAGATED, DECLARED] {
        for (own, carried) in [(None, 9), (Some(20), 20)] {
            let stub = client.stub::<dyn Tracker>(first.reference(Some(model), &[]));
            let call = at(own, || stub.nothing_async());
            at(Some(30), || call.wait()).unwrap();
            assert_eq!(last.carried(), octets(carried), "{own:?}, {model:?}");
        }
    }
}

fn served(builder: OrbBuilder) -> Orb {
    builder.priority_mapping(DirectMapping::default()).listen("iiop://127.0.0.1:0").unwrap().build().unwrap()
}

/// Its lanes of priorities 5, 20 and 30.
fn with_lanes(orb: &Orb, name: &str, model: PriorityModel, bands: Option<PriorityBands>) -> Adapter {
    let lane = |number| ThreadpoolLane { priority: priority(number), static_threads: 1, ..Default::default() };
    let lanes = [5, 20, 30].map(lane);
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &ThreadpoolOptions::default()).unwrap();
    let builder = orb.adapter(name).priority_model(model).threadpool(pool);
    match bands {
        Some(bands) => builder.priority_bands(bands).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

/// Keeps the name of the thread that runs a request, and its CORBA priority.
#[derive(Default)]
struct Probe {
    ran: Mutex<Vec<(String, Option<i16>)>>,
    /// Called within `nothing`.
    calls: Option<TrackerStub>,
    /// Whether the last request arrived over a Unix socket.
    over_unix: AtomicBool,
}

impl Probe {
    fn ran(&self) -> (String, Option<i16>) {
        self.ran.lock().unwrap().pop().expect("a request ran")
    }
}

impl Named for Probe {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

impl Tracker for Probe {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        Ok(Position::default())
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.ran.lock().unwrap().push((thread, current::priority().map(Priority::number)));
        self.over_unix.store(hyoshi_orb::current::peer().is_some(), Ordering::Relaxed);
        self.calls.as_ref().map_or(Ok(()), |other| other.nothing())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

fn remote(client: &Orb, stub: &TrackerStub) -> TrackerStub {
    client.resolve_unchecked::<dyn Tracker>(&stub.ior().to_string()).unwrap()
}

#[test]
fn a_request_goes_to_the_lane_of_its_priority() {
    let orb = served(Orb::builder());
    let probe = Arc::new(Probe::default());
    let model = PriorityModel::ClientPropagated { default: priority(20) };
    let propagated = with_lanes(&orb, "propagated", model, None).activate::<dyn Tracker>(probe.clone()).unwrap();
    let lane_bands = bands(&[(0, 25), (26, 39)]);
    let declared = with_lanes(&orb, "declared", PriorityModel::ServerDeclared { priority: priority(20) }, lane_bands);
    let declared = declared.activate::<dyn Tracker>(probe.clone()).unwrap();
    orb.ready();
    let client = Orb::builder().priority_mapping(DirectMapping::default()).build().unwrap();
    let (propagated, declared) = (remote(&client, &propagated), remote(&client, &declared));
    for (own, lane) in [(Some(5), 5), (Some(30), 30), (None, 20), (Some(20), 20)] {
        at(own, || propagated.nothing().unwrap());
        assert_eq!(probe.ran(), (format!("rt0-{lane}-0"), Some(lane)));
        at(own, || propagated.nothing_async().wait().unwrap());
        assert_eq!(probe.ran(), (format!("rt0-{lane}-0"), Some(lane)));
        at(own, || declared.nothing().unwrap());
        assert_eq!(probe.ran(), ("rt1-20-0".into(), Some(20)), "its bands have other lanes, too");
    }
    at(Some(7), || {
        let none = (SystemKind::InvPolicy, minor::RT_NO_LANE);
        assert_eq!(minor_of(propagated.nothing()), none);
        assert_eq!(minor_of(propagated.nothing_async().wait()), none);
        assert_eq!(minor_of(propagated.validate_connection()), none);
        declared.validate_connection().unwrap();
    });
}

#[derive(Debug)]
struct OneMore;

impl PriorityTransform for OneMore {
    fn outbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority> {
        assert_eq!(object_id, b"x");
        Priority::new(priority.number() + 1).filter(|more| more.number() < 12)
    }
}

#[test]
fn a_servants_request_carries_the_priority_that_it_serves_as_transformed() {
    let server = RawServer::start();
    let orb = served(Orb::builder().priority_transform(OneMore));
    let other = orb.stub::<dyn Tracker>(server.reference(Some(PROPAGATED), &[]));
    let probe = Arc::new(Probe { calls: Some(other.clone()), ..Probe::default() });
    let adapter = orb.adapter("a").priority_model(PriorityModel::ClientPropagated { default: priority(3) });
    let tracker = adapter.build().unwrap().activate_as::<dyn Tracker>("x", probe).unwrap();
    orb.ready();
    let client = Orb::client().unwrap();
    let tracker = remote(&client, &tracker);
    for (own, carried) in [(None, 4), (Some(10), 11)] {
        at(own, || tracker.nothing().unwrap());
        assert_eq!(server.carried(), octets(carried));
    }
    let refused = at(Some(11), || minor_of(tracker.nothing()));
    assert_eq!(refused, (SystemKind::DataConversion, minor::RT_UNMAPPED));
    // Outside of servants nothing changes.
    at(Some(10), || other.nothing().unwrap());
    assert_eq!(server.carried(), octets(10));
}

#[test]
fn a_sole_endpoint_and_those_without_a_priority_serve_all_priorities() {
    let server = RawServer::start();
    let client = Orb::client().unwrap();
    for lanes in [&[20][..], &[-1]] {
        let stub = client.stub::<dyn Tracker>(server.reference(Some(PROPAGATED), lanes));
        at(Some(7), || stub.nothing().unwrap());
        assert_eq!(server.carried(), octets(7));
        at(None, || stub.nothing().unwrap());
        assert_eq!(server.carried(), octets(5));
    }
    assert_eq!(server.connections(), 1, "one server, in whatever form references show it");
}

#[test]
fn a_band_has_its_connection_to_a_lane_within_it() {
    let orb = served(Orb::builder());
    let probe = Arc::new(Probe::default());
    let model = PriorityModel::ClientPropagated { default: priority(20) };
    let propagated = with_lanes(&orb, "propagated", model, None).activate::<dyn Tracker>(probe.clone()).unwrap();
    let model = PriorityModel::ServerDeclared { priority: priority(20) };
    let declared = with_lanes(&orb, "declared", model, None).activate::<dyn Tracker>(probe.clone()).unwrap();
    let banded = with_lanes(&orb, "banded", model, bands(&[(0, 39)])).activate::<dyn Tracker>(probe.clone()).unwrap();
    let plain = orb.adapter("plain").build().unwrap().activate::<dyn Tracker>(probe.clone()).unwrap();
    orb.ready();
    let client = Orb::builder().priority_mapping(DirectMapping::default());
    let client = client.client_policies(ClientPolicies { bands: bands(&[(4, 9), (10, 25)]), ..Default::default() });
    let client = client.build().unwrap();
    let [propagated, declared, banded, plain] =
        [propagated, declared, banded, plain].map(|stub| remote(&client, &stub));
    for (own, lane) in [(4, 5), (9, 5), (10, 20), (25, 20)] {
        at(Some(own), || propagated.nothing().unwrap());
        assert_eq!(probe.ran(), (format!("rt0-{lane}-0"), Some(own)));
    }
    let refused = |stub: &TrackerStub, own, minor| {
        at(Some(own), || {
            assert_eq!(minor_of(stub.nothing()), (SystemKind::InvPolicy, minor));
            assert_eq!(minor_of(stub.validate_connection()), (SystemKind::InvPolicy, minor));
        });
    };
    refused(&propagated, 26, minor::RT_NO_BAND);
    // Server-declared: the object's priority selects the band.
    at(Some(30), || declared.nothing().unwrap());
    assert_eq!(probe.ran(), ("rt1-20-0".into(), Some(20)));
    refused(&banded, 20, minor::RT_TWO_BANDS);
    plain.nothing().unwrap();
    assert_eq!(probe.ran().1, None);
    // A reference's own policies replace those of the ORB.
    let own = |bands| ClientPolicies { bands, ..Default::default() };
    at(Some(20), || banded.client_policies(&own(None)).nothing().unwrap());
    assert_eq!(probe.ran(), ("rt2-20-0".into(), Some(20)));
    refused(&declared.client_policies(&own(bands(&[(0, 19)]))), 20, minor::RT_NO_BAND);
    refused(&propagated.client_policies(&own(bands(&[(6, 19)]))), 7, minor::RT_NO_LANE);
}

#[test]
fn connections_are_shared_only_by_requests_with_the_same_settings() {
    let server = RawServer::start();
    let client = Orb::client().unwrap();
    let ior = server.reference(Some(PROPAGATED), &[]);
    let [first, second] = [(); 2].map(|()| client.stub::<dyn Tracker>(ior.clone()));
    let call = |stub: &TrackerStub, own| {
        at(own, || stub.nothing().unwrap());
        server.connections()
    };
    assert_eq!((call(&first, None), call(&second, Some(9))), (1, 1));
    let private = ClientPolicies { private_connection: true, ..Default::default() };
    let [own, others] = [&first, &second].map(|stub| stub.client_policies(&private));
    assert_eq!((call(&own, None), call(&others, None), call(&own.clone(), Some(3))), (2, 3, 3));
    let banded = ClientPolicies { bands: bands(&[(0, 9), (10, 20)]), ..Default::default() };
    let banded = [&first, &second].map(|stub| stub.client_policies(&banded));
    let all = [(0, 1), (1, 9), (0, 10), (1, 20)].map(|(at, own)| call(&banded[at], Some(own)));
    assert_eq!(all, [4, 4, 5, 5]);
    let tcp = TcpProperties { receive_buffer: Some(20_000), dont_route: true, ..Default::default() };
    let tcp = first.client_policies(&ClientPolicies { tcp, ..Default::default() });
    assert_eq!((call(&tcp, None), call(&tcp, Some(7)), call(&first, None)), (6, 6, 6));
    let policies = ClientPolicies { private_connection: true, ..Default::default() };
    let client = Orb::builder().client_policies(policies).build().unwrap();
    let [first, second] = [(); 2].map(|()| client.stub::<dyn Tracker>(ior.clone()));
    first.validate_connection().unwrap();
    first.validate_connection().unwrap();
    let connected = || {
        std::thread::sleep(Duration::from_millis(1));
        server.connections() == 7
    };
    assert!((0..2000).any(|_| connected()), "{}", server.connections());
    assert_eq!((call(&first, None), call(&second, None)), (7, 8));
    assert_eq!((0..).map_while(|_| server.messages.try_recv().ok()).count(), 14, "validation sends no request");
}

/// Captures the packets of the loopback, if that is possible.
fn capture(to: &std::path::Path) -> Option<Child> {
    let interfaces = Command::new("dumpcap").arg("-D").stdin(Stdio::null()).output();
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).status().is_err()
        || !interfaces.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains("lo"))
    {
        missing("dumpcap and tshark (.ci/peers installs them), and root or CAP_NET_RAW");
        return None;
    }
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-i", "lo", "-f", "tcp", "-w"]).arg(to).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("File: ") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0, "dumpcap did not start");
    }
    // Its later output has a reader, too.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Some(child)
}

/// The classes of the packets with data that were captured, to (true) and from each port.
fn classes(file: &std::path::Path, ports: &[u16]) -> Vec<(u16, bool, u8)> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", "tcp.len > 0", "-T", "fields", "-E", "separator=,"]);
    for field in ["tcp.srcport", "tcp.dstport", "ip.dsfield.dscp", "ipv6.tclass.dscp"] {
        command.args(["-e", field]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let packet = |line: &str| {
        let fields: Vec<u16> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let &[from, to, class] = &fields[..] else { return None };
        let known = |port| ports.contains(&port);
        known(to).then_some((to, true, class as u8)).or(known(from).then_some((from, false, class as u8)))
    };
    let mut all: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().filter_map(packet).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn packets_have_the_class_of_their_requests_priority_or_of_the_lane_that_replies() {
    let class = |number| Dscp::new(number).unwrap();
    let table = || DscpTable::new(&[(priority(5), class(10)), (priority(20), class(26)), (priority(30), class(46))]);
    for host in ["127.0.0.1", "[::1]"] {
        let file = std::env::temp_dir().join(format!("hyoshi-dscp-{}.pcapng", std::process::id()));
        let Some(mut capture) = capture(&file) else { return };
        let builder = Orb::builder().priority_mapping(DirectMapping::default()).network_priority(table());
        let orb = builder.listen(&format!("iiop://{host}:0")).unwrap().build().unwrap();
        let model = PriorityModel::ClientPropagated { default: priority(20) };
        let probe = Arc::new(Probe::default());
        let lanes = with_lanes(&orb, "lanes", model, None).activate::<dyn Tracker>(probe.clone()).unwrap();
        let any = orb.adapter("any").priority_model(model).build().unwrap();
        let any = any.activate::<dyn Tracker>(probe.clone()).unwrap();
        orb.ready();
        let client = Orb::builder().priority_mapping(DirectMapping::default()).network_priority(table());
        let client = client.build().unwrap();
        let (lanes, any) = (remote(&client, &lanes), remote(&client, &any));
        for own in [Some(5), Some(30), None] {
            at(own, || lanes.nothing().unwrap());
        }
        for own in [Some(4), Some(29), Some(39)] {
            at(own, || any.nothing().unwrap());
        }
        // Packets wait in the kernel's buffer until dumpcap reads them.
        std::thread::sleep(Duration::from_millis(500));
        let asked = Command::new("kill").args(["-INT", &capture.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()));
        capture.wait().unwrap();
        let mut wanted = Vec::new();
        for endpoint in lanes.ior().iiop().flat_map(|profile| profile.unwrap().endpoints()) {
            let hyoshi_orb::IorEndpoint::Tcp { port, priority: Some(lane), .. } = endpoint else { panic!() };
            let class = if lane == 5 {
                10
            } else if lane == 20 {
                26
            } else {
                46
            };
            wanted.extend([(port, false, class), (port, true, class)]);
        }
        let port = any.ior().iiop().next().unwrap().unwrap().port;
        // A lane of the ORB's own has no priority, and so no class.
        wanted.extend([(port, false, 0), (port, true, 0), (port, true, 26), (port, true, 46)]);
        wanted.sort_unstable();
        let ports: Vec<_> = wanted.iter().map(|(port, ..)| *port).collect();
        assert_eq!(classes(&file, &ports), wanted, "{host}");
        // A file that could not be deleted does not fail the test.
        let _ = std::fs::remove_file(&file);
    }
}

#[test]
fn a_reference_is_used_over_the_first_protocol_of_the_policy_that_it_offers() {
    use Transport::{Tcp, Tls, Unix};
    let authority = Authority::new("plant");
    let probe = Arc::new(Probe::default());
    let model = PriorityModel::ClientPropagated { default: priority(20) };
    let path = |name: &str| std::env::temp_dir().join(format!("hyoshi-protocols-{}-{name}", std::process::id()));
    let serve = |name: &str, endpoint: &str| {
        let tls = TlsServer::new(authority.papers(&["127.0.0.1"]).identity()).unwrap();
        let orb = served(Orb::builder().tls_server(tls).listen(endpoint).unwrap());
        let unix = format!("unix:{}", path(name).display());
        let lane = |number, listen: &[&str]| {
            let listen = listen.iter().map(|endpoint| endpoint.to_string()).collect();
            ThreadpoolLane { priority: priority(number), static_threads: 1, listen, ..Default::default() }
        };
        let lanes = [lane(5, &[endpoint]), lane(20, &[endpoint, &unix])];
        let pool = orb.rt().create_threadpool_with_lanes(&lanes, &ThreadpoolOptions::default()).unwrap();
        let adapter = orb.adapter(name).priority_model(model).threadpool(pool).build().unwrap();
        let stub = adapter.activate::<dyn Tracker>(probe.clone()).unwrap();
        orb.ready();
        (orb, stub)
    };
    let [plain, secure] = [serve("plain", "iiop://127.0.0.1:0"), serve("secure", "ssliop://127.0.0.1:0")];
    let client = || Orb::builder().priority_mapping(DirectMapping::default());
    let speaks_tls = client().tls_client(TlsClient::new(&authority.roots())).unwrap().build().unwrap();
    let client = client().build().unwrap();
    let over = |stub: &TrackerStub, protocols: &[Transport]| {
        let policies = ClientPolicies { protocols: protocols.to_vec(), ..Default::default() };
        let stub = stub.client_policies(&policies);
        at(Some(5), || stub.validate_connection().and_then(|()| stub.nothing()).map_err(|e| (e.kind, e.minor)))
            .map(|()| probe.over_unix.load(Ordering::Relaxed))
    };
    let none = Err((SystemKind::InvPolicy, minor::RT_NO_PROTOCOL));
    let tcp = remote(&client, &plain.1);
    assert_eq!(over(&tcp, &[]), Ok(false), "its lane");
    assert_eq!(over(&tcp, &[Unix, Tcp]), Ok(true), "the protocol counts before the lane");
    assert_eq!([&[Tcp, Unix][..], &[Tcp], &[Tls, Tcp]].map(|all| over(&tcp, all)), [Ok(false); 3]);
    assert_eq!(over(&tcp, &[Tls]), none);
    let tls = remote(&speaks_tls, &secure.1);
    assert_eq!([&[][..], &[Unix, Tls], &[Tcp, Unix]].map(|all| over(&tls, all)), [Ok(true); 3]);
    assert_eq!([&[Tls, Unix][..], &[Tls]].map(|all| over(&tls, all)), [Ok(false); 2]);
    assert_eq!(over(&tls, &[Tcp]), none);
    // Without settings for TLS, the next protocol is used.
    assert_eq!(over(&remote(&client, &secure.1), &[Tls, Unix]), Ok(true));
    // The policy of an ORB applies to references without a model, too; and it does not weaken TLS.
    let policies = ClientPolicies { protocols: vec![Tcp], ..Default::default() };
    let builder = Orb::builder().tls_client(TlsClient::new(&authority.roots())).unwrap();
    let only_tcp = builder.client_policies(policies).build().unwrap();
    let adapter = secure.0.adapter("no model").build().unwrap();
    let both = adapter.activate::<dyn Tracker>(probe.clone()).unwrap();
    let refused = minor_of(remote(&only_tcp, &both).nothing());
    assert_eq!(refused, (SystemKind::InvPolicy, minor::RT_NO_PROTOCOL));
    remote(&client, &both).nothing().unwrap();
    remote(&only_tcp, &plain.1).nothing().unwrap();
}

/// The number in the last octets of a message.
fn number(message: &[u8]) -> u32 {
    u32::from_ne_bytes(message[message.len() - 4..].try_into().unwrap())
}

#[test]
fn oneways_to_a_server_that_does_not_read_are_dropped_or_refused_and_those_sent_arrive_whole() {
    const CALLS: u32 = 300;
    for overflow in [OnewayOverflow::Drop, OnewayOverflow::Transient] {
        for scope in [SyncScope::Transport, SyncScope::None] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            // Until it accepts the connection, the server reads nothing; and the client must not lose patience.
            let patient = Span::from_secs(600);
            let limits = ClientLimits { backlog: 100_000, stalled: patient, idle: patient, ..Default::default() };
            let tcp = TcpProperties { send_buffer: Some(20_000), ..Default::default() };
            let policies = ClientPolicies { tcp, oneway_overflow: overflow, ..Default::default() };
            let client = Orb::builder().client_limits(limits).client_policies(policies).build().unwrap();
            let tracker = client.stub::<dyn Tracker>(peer::reference(&listener, "IDL:Tracking/Tracker:1.0"));
            let tracker = tracker.oneways(scope);
            tracker.validate_connection().unwrap();
            let send = |call: u32| tracker.hint("x", &call.to_ne_bytes().repeat(2_500));
            let mut refused = Vec::new();
            for call in 0..CALLS {
                if let Err(exception) = send(call) {
                    let SystemException { kind, minor, completed, .. } = exception;
                    assert_eq!((kind, minor, completed), (SystemKind::Transient, minor::BACKLOG, Completed::No));
                    refused.push(call);
                }
            }
            let dropped = client.rt().dropped_oneways().load(Ordering::Relaxed) as usize;
            match overflow {
                OnewayOverflow::Drop => assert!(refused.is_empty() && dropped > 0),
                _ => assert!(!refused.is_empty() && dropped == 0),
            }
            let arrives = CALLS as usize - dropped - refused.len();
            assert!(arrives > 10, "what memory has room for: {arrives}");
            // The connections of validation: for two-way calls, and for oneways.
            let mut streams = [(); 2].map(|()| listener.accept().unwrap().0);
            let stream = streams.iter_mut().find(|stream| {
                stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                stream.peek(&mut [0]).is_ok()
            });
            let stream = stream.expect("requests arrive");
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let arrived: Vec<_> = (0..arrives).map(|_| number(&peer::message(stream).expect("a request"))).collect();
            assert!(arrived.is_sorted_by(|one, next| one < next), "{arrived:?}");
            assert!(arrived.iter().all(|call| !refused.contains(call)));
            // There is room again.
            send(CALLS).unwrap();
            assert_eq!(number(&peer::message(stream).unwrap()), CALLS);
            assert_eq!(client.rt().dropped_oneways().load(Ordering::Relaxed) as usize, dropped);
        }
    }
}

#[test]
fn a_reference_shows_the_policies_in_effect_and_those_in_conflict() {
    use PolicyKind::{PriorityBands, PriorityModel, Protocols};
    let server = RawServer::start();
    let of_orb = ClientPolicies { private_connection: true, bands: bands(&[(4, 9)]), ..Default::default() };
    let client = Orb::builder().client_policies(of_orb.clone()).build().unwrap();
    let conflicts = |stub: &TrackerStub, own| at(own, || stub.effective_policies().unwrap().conflicts);
    let stub = client.stub::<dyn Tracker>(server.reference(Some(PROPAGATED), &[5, 20]));
    let in_effect = at(Some(7), || stub.effective_policies().unwrap());
    assert_eq!(in_effect.model, Some(rt::PriorityModel::ClientPropagated { default: priority(5) }));
    assert_eq!((in_effect.client, in_effect.conflicts), (of_orb.clone(), vec![]));
    assert_eq!(conflicts(&stub, Some(10)), [PriorityBands]);
    // The reference's own policies replace those of the ORB.
    let own = stub.client_policies(&ClientPolicies { protocols: vec![Transport::Unix], ..Default::default() });
    let in_effect = at(Some(5), || own.effective_policies().unwrap());
    assert_eq!(in_effect.client, ClientPolicies { protocols: vec![Transport::Unix], ..Default::default() });
    assert_eq!((in_effect.conflicts, conflicts(&own, Some(6))), (vec![Protocols], vec![PriorityModel]));
    let narrow = ClientPolicies { bands: bands(&[(6, 19)]), ..Default::default() };
    assert_eq!(conflicts(&stub.client_policies(&narrow), Some(7)), [PriorityModel, PriorityBands]);
    // Without a model there are no bands.
    let plain = client.stub::<dyn Tracker>(server.reference(None, &[]));
    let in_effect = at(Some(10), || plain.effective_policies().unwrap());
    assert_eq!(in_effect.client, ClientPolicies { bands: None, ..of_orb });
    assert_eq!((in_effect.model, in_effect.conflicts), (None, vec![]));
    // Those of the server's adapter.
    let orb = served(Orb::builder());
    let model = rt::PriorityModel::ServerDeclared { priority: priority(20) };
    let banded =
        with_lanes(&orb, "banded", model, bands(&[(0, 39)])).activate::<dyn Tracker>(Arc::new(Probe::default()));
    let banded = remote(&client, &banded.unwrap());
    assert_eq!(conflicts(&banded, Some(5)), [PriorityBands], "of both sides");
    let in_effect = banded.client_policies(&ClientPolicies::default()).effective_policies().unwrap();
    assert_eq!((in_effect.client.bands, in_effect.model), (bands(&[(0, 39)]), Some(model)));
    assert_eq!(server.connections(), 0, "nothing was sent");
}

#[test]
fn the_policies_of_a_thread_count_before_those_of_the_orb_and_after_those_of_a_reference() {
    let server = RawServer::start();
    let client = Orb::client().unwrap();
    let stub = client.stub::<dyn Tracker>(server.reference(None, &[]));
    let refusing = ClientPolicies { protocols: vec![Transport::Unix], ..Default::default() };
    let private = ClientPolicies { private_connection: true, ..Default::default() };
    let effective = |stub: &TrackerStub| stub.effective_policies().unwrap().client;
    let refused = |stub: &TrackerStub| {
        let none = (SystemKind::InvPolicy, minor::RT_NO_PROTOCOL);
        let calls = [stub.nothing(), stub.nothing_async().wait(), stub.hint("", &[]), stub.validate_connection()];
        calls.into_iter().for_each(|call| assert_eq!(minor_of(call), none));
    };
    let outer = current::override_policies(&refusing);
    assert_eq!(effective(&stub), refusing);
    refused(&stub);
    stub.client_policies(&ClientPolicies::default()).nothing().unwrap();
    {
        let _inner = current::override_policies(&private);
        assert_eq!(effective(&stub), private);
        stub.nothing().unwrap();
        assert_eq!(server.connections(), 2);
        at(None, || assert_eq!(effective(&stub), ClientPolicies::default(), "of another thread"));
    }
    refused(&stub);
    drop(outer);
    assert_eq!(effective(&stub), ClientPolicies::default());
    stub.nothing().unwrap();
    assert_eq!(server.connections(), 2);
}
