//! Nodes with valid certificates, nodes without, and operators with roles.

use std::collections::BTreeSet;

use hyoshi_model::Span;
use hyoshi_node::idl::hyoshi_node::{self as wire, IntroduceError, Peer, Reason};
use hyoshi_node::{NodeClient, NodeSettings, Tls, corbaloc};
use hyoshi_orb::{Orb, OrbBuilder, SystemKind, TlsClient, TlsRoots, TlsServer, minor};

use crate::authority::{Authority, Papers};
use crate::common::{DRONE, Host, STATION, text, until, unused_address};

/// The system with endpoints over TLS.
fn over_tls(duration: &str) -> String {
    text(&format!("tls/{}", unused_address()), &format!("tls/{}", unused_address()), duration)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// With these papers, trusting these authorities. The operator is `ann`.
fn tls(papers: &Papers, roots: &TlsRoots) -> Tls {
    Tls {
        server: TlsServer::for_clients_of(papers.identity(), roots).unwrap(),
        client: TlsClient::new(roots).identity(papers.identity()),
        operators: names(&["ann"]),
        readers: None,
    }
}

fn with_tls(text: &str, host: hyoshi_model::HostId, tls: Tls) -> Host {
    Host::with(text, host, |settings| NodeSettings { tls: Some(tls), ..settings }).unwrap()
}

fn client(papers: Option<&Papers>, roots: &TlsRoots, name: &str) -> OrbBuilder {
    let tls = TlsClient::new(roots).named(name);
    let tls = match papers {
        Some(papers) => tls.identity(papers.identity()),
        None => tls,
    };
    Orb::builder().tls_client(tls).unwrap()
}

/// The reason why this node rejects a host, or was rejected by it.
fn refusal(host: &Host) -> String {
    until("it is refused", || host.peers.standing()[0].state == "refused");
    host.peers.standing()[0].because.clone()
}

#[test]
fn two_nodes_with_certificates_for_their_hosts_join_and_exchange_completions() {
    let (plant, text) = (Authority::new("plant"), over_tls("60s"));
    let of = |name: &str| tls(&plant.papers(&[name]), &plant.roots());
    let mut drone = with_tls(&text, DRONE, of("drone"));
    let mut station = with_tls(&text, STATION, of("station"));
    let (one, other) = std::thread::scope(|scope| {
        let theirs = &station.peers;
        let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
        (drone.agree().unwrap(), other.join().unwrap())
    });
    assert_eq!(one.run, other.run);
    let running = (drone.begin(&one), station.begin(&other));
    until("completions arrive", || station.peers.standing()[0].received > 20);
    let standing = &drone.peers.standing()[0];
    assert_eq!((standing.state.as_str(), standing.unsent), ("joined", 0));
    drop(running);
}

#[test]
fn a_node_with_a_certificate_for_another_host_is_refused_and_both_sides_report_why() {
    let (plant, text) = (Authority::new("plant"), over_tls("60s"));
    let of = |name: &str| tls(&plant.papers(&[name]), &plant.roots());
    let drone = with_tls(&text, DRONE, of("drone"));
    let station = with_tls(&text, STATION, of("moon"));
    assert_eq!(refusal(&station), "your certificate is of moon, not of host `station`");
    assert_eq!(
        refusal(&drone),
        "its certificate is not for host `station`; start it with a certificate for that host (--tls-cert)"
    );
    // It is replaced by one with the right certificate: both join.
    drop(station);
    let station = with_tls(&text, STATION, of("station"));
    until("they join", || [&drone, &station].iter().all(|host| host.peers.standing()[0].state == "joined"));
}

#[test]
fn without_a_certificate_of_its_authorities_a_node_can_neither_join_nor_be_called() {
    let (plant, elsewhere, text) = (Authority::new("plant"), Authority::new("elsewhere"), over_tls("60s"));
    let drone = with_tls(&text, DRONE, tls(&plant.papers(&["drone"]), &plant.roots()));
    // It trusts both authorities, and shows a certificate of the other one.
    let both = TlsRoots::from_pem(format!("{}{}", plant.pem, elsewhere.pem).as_bytes()).unwrap();
    let station = with_tls(&text, STATION, tls(&elsewhere.papers(&["station"]), &both));
    assert!(refusal(&station).starts_with("it does not trust this node's certificate"), "{}", refusal(&station));
    assert!(refusal(&drone).starts_with("no authority that this node trusts"), "{}", refusal(&drone));

    let at = corbaloc(&drone.system.hosts[0].endpoints[0], "hyoshi-peer");
    let introduce = |papers: Option<&Papers>| {
        let orb = client(papers, &plant.roots(), "drone").build().unwrap();
        let who = wire::Introduction {
            version: wire::VERSION,
            system: "uav".into(),
            host: "station".into(),
            digest: {
                use ring::digest::{SHA256, digest};
                digest(&SHA256, hyoshi_model::write(&drone.system).as_bytes()).as_ref().try_into().unwrap()
            },
            incarnation: 7,
            clock: 8,
        };
        orb.resolve_unchecked::<dyn Peer>(&at).unwrap().introduce(&who)
    };
    for papers in [None, Some(&elsewhere.papers(&["station"]))] {
        match introduce(papers) {
            Err(IntroduceError::System(error)) => assert_eq!(error.minor, minor::TLS_REFUSED, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    // An operator is no node.
    match introduce(Some(&plant.papers(&["ann"]))) {
        Err(IntroduceError::Refused(refused)) => assert_eq!(refused.why, Reason::WrongCertificate),
        other => panic!("{other:?}"),
    }
    assert!(introduce(Some(&plant.papers(&["station"]))).is_ok());
}

#[test]
fn certificates_decide_who_may_see_how_a_node_stands_and_who_may_stop_it() {
    let (plant, text) = (Authority::new("plant"), over_tls("60s"));
    let certificates = ["ann", "bob", "eve"].map(|name| plant.papers(&[name]));
    let denied = SystemKind::NoPermission.not_done(minor::BROKER_NAME);
    for readers in [None, Some(names(&["bob"]))] {
        let exclusive = readers.is_some();
        let tls = Tls { readers, ..tls(&plant.papers(&["drone"]), &plant.roots()) };
        let drone =
            Host::with(&text, DRONE, |settings| NodeSettings { tls: Some(tls), wait: Span::ZERO, ..settings }).unwrap();
        let hyoshi_model::Endpoint::Tls(address) = drone.system.hosts[0].endpoints[0].clone() else { unreachable!() };
        let [ann, bob, eve] = certificates.each_ref().map(|papers| {
            NodeClient::new(client(Some(papers), &plant.roots(), "drone"), &format!("ssliop://{address}")).unwrap()
        });
        assert_eq!(ann.standing().unwrap().host, "drone");
        assert_eq!(bob.standing().unwrap().peers[0].state, "waiting");
        match exclusive {
            true => assert_eq!(eve.standing().unwrap_err(), denied),
            false => assert!(eve.standing().is_ok()),
        }
        for other in [&bob, &eve] {
            assert_eq!(other.stop().unwrap_err(), denied);
            assert!(matches!(other.publish("alarm", b""), Err(wire::PublishError::System(error)) if error == denied));
        }
        // An operator may publish: the test's node has no channel.
        assert!(matches!(ann.publish("alarm", b""), Err(wire::PublishError::EventRefused(_))));
        match (eve.events(), eve.subscribe(&["**".to_owned()])) {
            (Err(one), Err(wire::SubscribeError::System(other))) if exclusive => {
                assert_eq!([one, other], [denied, denied])
            }
            (Ok(events), Err(wire::SubscribeError::EventRefused(_))) if !exclusive => assert!(events.is_empty()),
            other => panic!("{other:?}"),
        }
        assert!(!drone.interrupt.requested());
        ann.stop().unwrap();
        assert!(drone.interrupt.requested());
    }
}
