//! Nodes find each other, begin together, lose each other and reconnect.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use hyoshi_model::Span;
use hyoshi_node::{NodeError, NodeSettings, PeerEvent, WholeSystem};
use hyoshi_orb::{Orb, OrbError};
use hyoshi_os::{Interrupt, MonotonicClock, Wake};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use crate::common::{DRONE, Host, STATION, finish, folder, system, text, until, unused_address};

/// Over TCP on loopback, and over Unix sockets.
fn both_ways(duration: &str) -> [String; 2] {
    let folder = folder();
    let tcp = text(&format!("tcp/{}", unused_address()), &format!("tcp/{}", unused_address()), duration);
    let at = |name| format!("unix/{}", folder.join(name).display());
    [tcp, text(&at("drone"), &at("station"), duration)]
}

#[test]
fn two_nodes_agree_on_instant_0_and_a_chain_runs_through_both() {
    for text in both_ways("500ms") {
        let mut drone = Host::start(&text, DRONE, Span::from_secs(20)).unwrap();
        let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
        let (one, other) = thread::scope(|scope| {
            let theirs = &station.peers;
            let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
            (drone.agree().unwrap(), other.join().unwrap())
        });
        assert_eq!((one.run, one.late, other.late), (other.run, false, false));
        let apart = one.clock.origin().abs_diff(other.clock.origin());
        assert!(apart < 5_000_000, "both are on one machine: {apart} ns");
        let (mut sent, mut received, mut completed) = (0, 0, 0);
        thread::scope(|scope| {
            let running = station.begin(&other);
            let theirs = scope.spawn(|| {
                let mut counts = (0, 0);
                let finished = finish(running, |_, _, event| match event {
                    TraceEvent::Input(Input::Signal(_)) => counts.0 += 1,
                    TraceEvent::Decision(DispatchDecision::End(end)) => {
                        // Deadlines of a busy machine are not the subject.
                        counts.1 += u64::from(end.job.operation.0 == 1 && end.outcome.finished());
                    }
                    _ => {}
                });
                (counts, finished)
            });
            finish(drone.begin(&one), |_, _, event| {
                sent += u64::from(matches!(event, TraceEvent::Decision(DispatchDecision::Send(_))));
            });
            let (counts, finished) = theirs.join().unwrap();
            assert_eq!(finished.lost.signals, 0);
            (received, completed) = counts;
        });
        assert!(sent >= 48 && received + 2 >= sent && completed + 2 >= received, "{sent} {received} {completed}");
        let ours = &drone.peers.standing()[0];
        assert_eq!((ours.state.as_str(), ours.unsent, ours.host.as_str()), ("joined", 0, "station"));
        assert_eq!(ours.sent, sent);
        let theirs = &station.peers.standing()[0];
        assert_eq!((theirs.rejected, theirs.joined), (0, 1));
        let (_, clock) = drone.peers.clocks().next().expect("clocks were compared");
        let truth = one.clock.origin() - other.clock.origin();
        assert!((clock.offset - truth).unsigned_abs() <= clock.error, "{clock:?}, in truth {truth}");
    }
}

#[test]
fn a_node_alone_begins_after_its_wait_and_a_later_one_uses_its_instant_0() {
    let [text, _] = both_ways("60s");
    let mut drone = Host::start(&text, DRONE, Span::from_millis(10)).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    assert!(!agreed.late);
    until("the drone sends without effect", || drone.peers.standing()[0].unsent > 3);
    let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
    let late = station.agree().unwrap();
    assert_eq!((late.late, late.run), (true, agreed.run));
    assert!(late.clock.origin().abs_diff(agreed.clock.origin()) < 5_000_000);
    let theirs = station.begin(&late);
    until("completions arrive", || station.peers.standing()[0].received > 20);
    let events = drone.peers.take_events();
    assert_eq!(events, [PeerEvent::Joined { host: "station".into(), before: 0 }]);
    // It ends and starts again.
    theirs.stop(&mut |_, _, _| ());
    drop(station);
    until("the drone sees that", || drone.peers.standing()[0].state == "lost");
    let unsent = drone.peers.standing()[0].unsent;
    until("nothing is sent", || drone.peers.standing()[0].unsent > unsent + 3);
    let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
    let again = station.agree().unwrap();
    assert_eq!(again.run, agreed.run);
    let theirs = station.begin(&again);
    until("completions arrive again", || station.peers.standing()[0].received > 20);
    let events = drone.peers.take_events();
    let lost = PeerEvent::Lost { host: "station".into(), because: "it ended".into() };
    assert_eq!(events, [lost, PeerEvent::Joined { host: "station".into(), before: 1 }]);
    let standing = &drone.peers.standing()[0];
    assert_eq!((standing.joined, standing.state.as_str()), (2, "joined"));
    drop((running, theirs));
}

#[test]
fn nodes_that_began_separate_runs_refuse_each_other() {
    // An introduction takes 10 ms. A node that does not wait begins before, unless the machine delays it.
    assert!((0..20).any(|_| began_apart_and_refused()), "the second node joined the first one 20 times");
}

/// False if the second node joined the first one.
fn began_apart_and_refused() -> bool {
    let [text, _] = both_ways("60s");
    let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
    let alone = drone.agree().unwrap();
    let running = drone.begin(&alone);
    let mut station = Host::start(&text, STATION, Span::ZERO).unwrap();
    let apart = station.agree().unwrap();
    let theirs = station.begin(&apart);
    if apart.run != alone.run {
        until("both refuse", || [&drone, &station].iter().all(|host| host.peers.standing()[0].state == "refused"));
        assert!(drone.peers.standing()[0].because.contains("runs apart"));
        // Nothing is exchanged.
        assert_eq!(station.peers.standing()[0].received, 0);
    }
    drop((running, theirs));
    apart.run != alone.run
}

#[test]
fn a_node_with_another_file_is_refused_and_the_difference_named() {
    let [text, _] = both_ways("60s");
    let other = text.replace("every = \"5ms\"", "every = \"6ms\"");
    let drone = Host::start(&text, DRONE, Span::from_secs(20)).unwrap();
    let station = Host::start(&other, STATION, Span::from_secs(20)).unwrap();
    let refused = |host: &Host| host.peers.standing()[0].state == "refused";
    until("both refuse", || refused(&drone) && refused(&station));
    let because = drone.peers.standing()[0].because.clone();
    assert_eq!(
        because,
        "it was started with another file: in [operation.watch] `every = \"5ms\"` here, `every = \"6ms\"` there"
    );
    station.interrupt.request();
    assert!(matches!(station.agree(), Err(NodeError::Interrupted)));
}

#[test]
fn what_keeps_a_node_from_listening_is_an_error_with_a_remedy() {
    let [text, unix] = both_ways("1s");
    let without = text.lines().filter(|line| !line.contains("endpoints")).collect::<Vec<_>>().join("\n");
    let error = Host::start(&without, DRONE, Span::ZERO).err().unwrap();
    assert!(matches!(&error, NodeError::NoEndpoints { host } if host == "drone"));
    assert!(error.remedy().unwrap().contains("[host.drone]"));
    for text in [&text, &unix] {
        let first = Host::start(text, DRONE, Span::ZERO).unwrap();
        let error = Host::start(text, DRONE, Span::ZERO).err().unwrap();
        assert!(error.remedy().unwrap().contains("hyoshi node list"), "{error}");
        drop(first);
    }
    let tls = text.replacen("tcp/", "tls/", 1);
    let error = Host::start(&tls, DRONE, Span::ZERO).err().unwrap();
    assert!(matches!(error, NodeError::NoCertificate { .. }), "{error}");
}

#[test]
fn a_unix_socket_that_another_user_could_replace_is_not_dialled() {
    let (own, open) = (folder(), folder());
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let at = |folder: &Path, name| format!("unix/{}", folder.join(name).display());
    let drone = Host::start(&text(&at(&own, "drone"), &at(&open, "station"), "60s"), DRONE, Span::ZERO).unwrap();
    until("the station is refused", || drone.peers.standing()[0].state == "refused");
    let because = &drone.peers.standing()[0].because;
    assert!(because.contains("is not trusted") && because.contains("mode 777"), "{because}");
}

#[test]
fn a_node_uses_another_endpoint_than_an_untrusted_unix_socket() {
    let open = folder();
    let tcp = || format!("tcp/{}", unused_address());
    let station = tcp();
    let plain = text(&tcp(), &station, "60s");
    let both = format!("[\"unix/{}\", \"{station}\"]", open.join("station").display());
    let with_both = plain.replace(&format!("[\"{station}\"]"), &both);
    assert_ne!(plain, with_both);
    let station = Host::start(&with_both, STATION, Span::ZERO).unwrap();
    // It would not have listened there.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let drone = Host::start(&with_both, DRONE, Span::ZERO).unwrap();
    until("the station has joined", || drone.peers.standing()[0].state == "joined");
    drop((drone, station));
}

#[test]
fn an_operator_sees_and_stops_a_run_of_all_hosts() {
    let [text, _] = both_ways("60s");
    let (system, folder) = (system(&text), folder());
    let (socket, interrupt) = (folder.join("uav.sock"), Interrupt::manual(Arc::new(Wake::new())));
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let node = Node::new(system.clone(), plan).prepare().unwrap();
    let threads = (node.chain_threads(), node.machine_load());
    let all = WholeSystem::serve(system.clone(), &socket, None, threads.clone(), interrupt.clone()).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let again = WholeSystem::serve(system, &socket, None, threads, interrupt.clone());
    assert!(matches!(again, Err(NodeError::Orb(OrbError::Listen { .. }))), "the second run of a system needs another");
    let operator = hyoshi_node::NodeClient::new(Orb::builder(), &format!("unix:{}", socket.display())).unwrap();
    let standing = operator.standing().unwrap();
    assert_eq!((standing.system.as_str(), standing.host.as_str(), standing.gathering), ("uav", "", true));
    assert_eq!((standing.processors, standing.running), (vec!["airframe".to_owned(), "ground".to_owned()], 0));
    all.begin(MonotonicClock::start(), [7; 16]);
    until("it runs", || operator.standing().unwrap().running > 0);
    let standing = operator.standing().unwrap();
    assert_eq!((standing.gathering, standing.run, standing.peers.len()), (false, [7; 16], 0));
    assert!(!interrupt.requested());
    operator.stop().unwrap();
    assert!(interrupt.requested());
    drop(all);
    node.abandon();
    assert!(!socket.exists());
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn an_operator_sees_how_a_node_stands_and_stops_it() {
    let [text, _] = both_ways("60s");
    let socket = folder().join("uav.drone.sock");
    let control = socket.clone();
    let with_control = |settings| NodeSettings { control: Some(control), wait: Span::ZERO, ..settings };
    let mut drone = Host::with(&text, DRONE, with_control).unwrap();
    let client = |at: &str| hyoshi_node::NodeClient::new(hyoshi_orb::Orb::builder(), at).unwrap();
    let operator = client(&format!("unix:{}", socket.display()));
    let standing = operator.standing().unwrap();
    assert_eq!((standing.host.as_str(), standing.gathering, standing.running), ("drone", true, 0));
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    until("it runs", || operator.standing().unwrap().running > 0);
    let standing = operator.standing().unwrap();
    assert_eq!((standing.run, standing.processors), (agreed.run, vec!["airframe".to_owned()]));
    assert_eq!(standing.peers[0].state, "waiting");
    // Elsewhere it is served to certificates only.
    let endpoint = drone.system.hosts[0].endpoints[0].clone();
    let stranger = client(&hyoshi_node::corbaloc(&endpoint, hyoshi_node::KEY));
    assert_eq!(stranger.stop().unwrap_err().kind, hyoshi_orb::SystemKind::NoPermission);
    assert!(!drone.interrupt.requested());
    operator.stop().unwrap();
    assert!(drone.interrupt.requested());
    drop((running, drone));
    assert!(!socket.exists());
}
