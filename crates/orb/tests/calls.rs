//! Calls over TCP and Unix sockets: what goes out comes in, whoever is where.

use crate::said;
use crate::tracking;

use std::process::{Command, Stdio};
use std::sync::Arc;

use hyoshi_model::Span;
use hyoshi_orb::{IorEndpoint, LaneOptions, Orb, SyncScope, SystemException, SystemKind, minor};
use said::Said;
use tracking::*;

fn server() -> (Orb, TrackerStub, Arc<Yard>) {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let yard = Arc::new(Yard::default());
    let tracker = orb.adapter("trackers").build().unwrap().activate::<dyn Tracker>(yard.clone()).unwrap();
    orb.publish("Tracker", &tracker).unwrap();
    (orb, tracker, yard)
}

fn corbaloc(orb: &Orb) -> String {
    let Some(IorEndpoint::Tcp { host, port, .. }) = orb.endpoints().first() else { panic!("no TCP") };
    format!("corbaloc:iiop:{host}:{port}/Tracker")
}

fn uses(tracker: &TrackerStub) {
    assert_eq!(tracker.locate(7), Ok(Position { x: 7.0, y: 0.5 }));
    assert_eq!(tracker.locate(100), Err(UnknownTarget { id: 100 }.into()));
    assert_eq!(tracker.name().unwrap(), "yard ä");
    let mut p = Position { x: 1.0, y: 2.0 };
    assert_eq!(tracker.swap(&mut p).unwrap(), (7, "1 2".to_owned()));
    assert_eq!(p, Position { x: 2.0, y: 1.0 });
    for length in [0, 1, 1000, 65_536, 100_000, 3 << 20] {
        let raw: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        assert!(tracker.echo(&raw).unwrap() == raw, "{length} octets");
    }
    tracker.nothing().unwrap();
    assert_eq!(tracker.is_a("IDL:Tracking/Named:1.0"), Ok(true));
    assert_eq!(tracker.is_a("IDL:Tracking/Callback:1.0"), Ok(false));
    assert_eq!(tracker.non_existent(), Ok(false));
    assert_eq!(tracker.widen::<dyn Named>().ior(), tracker.ior());
}

#[test]
fn a_call_goes_from_one_orb_to_another_and_back() {
    let (server, _, yard) = server();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    assert!(tracker.collocated().is_none());
    uses(&tracker);
    tracker.hint("left", &[1, 2]).unwrap();
    yard.heard.wait();
    assert_eq!(*yard.hints.lock().unwrap(), ["left"]);
}

#[test]
fn a_stringified_reference_leads_there_too_and_so_does_a_file_with_it() {
    let (_server, tracker, _) = server();
    let client = Orb::client().unwrap();
    let again = client.resolve::<dyn Tracker>(&tracker.ior().to_string()).unwrap();
    uses(&again);
    let file = std::env::temp_dir().join(format!("hyoshi-orb-{}.ior", std::process::id()));
    std::fs::write(&file, format!("{}\n", tracker.ior())).unwrap();
    client.resolve::<dyn Named>(&format!("file:{}", file.display())).unwrap().name().unwrap();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn calls_within_a_process_need_no_wire() {
    let (_server, tracker, yard) = server();
    assert!(tracker.collocated().is_some());
    uses(&tracker);
    let named: NamedStub = tracker.widen::<dyn Named>().into();
    assert!(named.collocated().is_some());
    assert_eq!(named.name().unwrap(), "yard ä");
    tracker.hint("here", &[]).unwrap();
    assert_eq!(*yard.hints.lock().unwrap(), ["here"]);
}

#[test]
fn a_server_knows_whose_request_came_over_a_unix_socket_and_nobodys_over_tcp() {
    use hyoshi_orb::{Call, ServerInterceptor, current};
    use std::sync::Mutex;
    #[derive(Clone, Default)]
    struct Peers(Arc<Mutex<Vec<Option<u32>>>>);
    impl ServerInterceptor for Peers {
        fn before(&self, _: &mut Call<'_>) -> Result<(), SystemException> {
            self.0.lock().unwrap().push(current::peer().map(|peer| peer.pid));
            Ok(())
        }
    }
    let path = std::env::temp_dir().join(format!("hyoshi-orb-peer-{}.sock", std::process::id()));
    let peers = Peers::default();
    let builder = Orb::builder().server_interceptor(peers.clone()).listen(&format!("unix:{}", path.display())).unwrap();
    let server = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    server.ready();
    let tracker = server.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    server.publish("Tracker", &tracker).unwrap();
    let client = Orb::client().unwrap();
    let near = format!("corbaloc:omniunix:{}:/Tracker", path.display());
    client.resolve_unchecked::<dyn Tracker>(&near).unwrap().nothing().unwrap();
    let port = server.endpoints().iter().find_map(|endpoint| match endpoint {
        IorEndpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    });
    // The published key leads there, not on to the Unix socket.
    let far = format!("corbaloc:iiop:1.2@127.0.0.1:{}/Tracker", port.unwrap());
    client.resolve_unchecked::<dyn Tracker>(&far).unwrap().nothing().unwrap();
    assert_eq!(*peers.0.lock().unwrap(), [Some(std::process::id()), None]);
    assert_eq!(current::peer(), None, "nobody's request");
}

#[test]
fn ipv6_and_unix_sockets_serve_as_well() {
    let path = std::env::temp_dir().join(format!("hyoshi-orb-{}.sock", std::process::id()));
    let mut builder = Orb::builder().listen(&format!("unix:{}", path.display())).unwrap();
    let six = std::net::TcpListener::bind("[::1]:0").is_ok();
    if six {
        builder = builder.lane(LaneOptions { name: "six".into(), threads: 2, ..LaneOptions::default() });
        builder = builder.listen("iiop://[::1]:0").unwrap();
    } else {
        eprintln!("no IPv6 on this machine: only the Unix socket is tested");
    }
    let server = builder.build().unwrap();
    server.ready();
    let tracker = server.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let client = Orb::client().unwrap();
    // The reference has both: the Unix socket is nearer.
    uses(&client.resolve::<dyn Tracker>(&tracker.ior().to_string()).unwrap());
    server.publish("Tracker", &tracker).unwrap();
    uses(&client.resolve::<dyn Tracker>(&format!("corbaloc:omniunix:{}:/Tracker", path.display())).unwrap());
    if six {
        let port = server.endpoints().iter().find_map(|endpoint| match endpoint {
            IorEndpoint::Tcp { port, .. } => Some(*port),
            _ => None,
        });
        let address = format!("corbaloc:iiop:[::1]:{}/Tracker", port.unwrap());
        uses(&client.resolve::<dyn Tracker>(&address).unwrap());
    }
}

struct Heard(std::sync::Mutex<Vec<(u32, Position)>>);

impl Callback for Heard {
    fn moved(&self, id: u32, to: &Position) -> Result<(), SystemException> {
        self.0.lock().unwrap().push((id, *to));
        Ok(())
    }
}

#[test]
fn a_servant_calls_its_caller_back_while_that_waits() {
    let (server, ..) = server();
    let client = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    client.ready();
    let heard = Arc::new(Heard(Default::default()));
    let callback = client.adapter("callbacks").build().unwrap().activate::<dyn Callback>(heard.clone()).unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    tracker.subscribe(Some(&callback)).unwrap();
    tracker.subscribe(None).unwrap();
    assert_eq!(*heard.0.lock().unwrap(), [(1, Position { x: 1.0, y: 2.0 })]);
}

#[test]
fn asynchronous_calls_overlap_and_come_back_in_any_order() {
    let (server, ..) = server();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    let slow = tracker.locate_async(999);
    let mut quick: Vec<_> = (0..50).map(|id| tracker.locate_async(id)).collect();
    for (id, pending) in quick.drain(..).enumerate().rev() {
        assert_eq!(pending.wait().unwrap().x, id as f64);
    }
    assert!(!slow.is_over(), "the quick ones did not wait for it");
    assert_eq!(slow.wait(), Ok(Position::default()));
    let mut later = tracker.locate_async(950);
    assert_eq!(later.wait_for(Span::from_millis(1)), None);
    assert_eq!(later.wait_for(Span::from_secs(10)), Some(Ok(Position::default())));
    assert_eq!(tracker.locate_async(100).wait(), Err(UnknownTarget { id: 100 }.into()));
    drop(tracker.locate_async(950));
    assert_eq!(tracker.locate_async(3).wait().unwrap().x, 3.0);
}

#[test]
fn oneways_go_as_far_as_asked() {
    let (server, _, yard) = server();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    let heard = |count| {
        while yard.hints.lock().unwrap().len() < count {
            yard.heard.wait();
        }
    };
    for (count, scope) in
        [SyncScope::None, SyncScope::Transport, SyncScope::Server, SyncScope::Target].into_iter().enumerate()
    {
        let tracker = tracker.oneways(scope);
        tracker.hint(&format!("{scope:?}"), &[]).unwrap();
        if scope == SyncScope::Target {
            assert_eq!(yard.hints.lock().unwrap().len(), count + 1, "it has been carried out");
        }
        heard(count + 1);
    }
    let many = tracker.oneways(SyncScope::None);
    for at in 0..1000 {
        many.hint(&at.to_string(), &[]).unwrap();
    }
    client.flush();
    heard(1004);
    let hints = yard.hints.lock().unwrap();
    assert!(hints[4..].iter().enumerate().all(|(at, hint)| *hint == at.to_string()), "in the order they were sent");
}

#[test]
fn many_threads_call_at_once_over_few_connections() {
    let (server, ..) = server();
    let limits = hyoshi_orb::ClientLimits { connections: 2, ..Default::default() };
    let client = Orb::builder().client_limits(limits).build().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let tracker = &tracker;
            scope.spawn(move || {
                for at in 0..200 {
                    let id = (thread * 31 + at) % 100;
                    assert_eq!(tracker.locate(id).unwrap().x, f64::from(id));
                }
            });
        }
    });
}

#[test]
fn a_panic_in_a_servant_is_an_exception_at_its_caller() {
    let (server, ..) = server();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&corbaloc(&server)).unwrap();
    let raised = SystemKind::Unknown.maybe_done(minor::PANICKED);
    assert_eq!(tracker.locate(666), Err(LocateError::System(raised)));
    assert_eq!(tracker.locate(1).unwrap().x, 1.0, "and the server goes on");
}

/// Not a test of its own: the server of the next one, in a process of its own.
#[test]
fn serves_if_it_is_asked_to() {
    if std::env::var_os("HYOSHI_TEST_SERVER").is_some() {
        let (orb, ..) = server();
        println!("at {}", corbaloc(&orb));
        // Until whoever started it ends it.
        let _ = std::io::stdin().read_line(&mut String::new());
        orb.shutdown();
    }
}

#[test]
fn a_server_in_another_process_is_called() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "calls::serves_if_it_is_asked_to", "--nocapture"])
        .env("HYOSHI_TEST_SERVER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Kept until the end: the server's harness writes there too.
    let said = Said::by(child.stdout.take().unwrap());
    let address = said.find("where it is", |line| Some(line.split_once("at corbaloc")?.1.to_owned()));
    let client = Orb::client().unwrap();
    uses(&client.resolve::<dyn Tracker>(&format!("corbaloc{address}")).unwrap());
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
