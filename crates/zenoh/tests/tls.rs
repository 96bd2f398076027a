//! Nodes over TLS, and certificates that are not those of their peers.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hyoshi_model::{HostId, Span};
use hyoshi_node::idl::hyoshi_node::Completion;
use hyoshi_node::{NodeError, Tls};
use hyoshi_orb::{Orb, TlsClient, TlsServer};
use hyoshi_zenoh::{CompletionHeader, ZenohLink, ZenohTls, dialling, key_expression, listening};
use rcgen::DnType;
use zenoh::{Session, Wait};

use crate::authority::{Authority, Papers};
use crate::common::{DRONE, Host, STATION, finish, folder, system, until};
use crate::strangers::{connected, introduce, now, put};
use crate::{over_zenoh, start_with};

/// An authority and the certificates that it signs, in files.
struct Plant {
    authority: Authority,
    folder: PathBuf,
}

impl Plant {
    fn new() -> Plant {
        let plant = Plant { authority: Authority::new("plant"), folder: folder() };
        plant.authority.file(&plant.folder);
        plant
    }

    /// A certificate for this DNS name, with that common name.
    fn papers(&self, name: &str, common_name: &str) -> Papers {
        self.authority.papers_with(&[name], |params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
        })
    }

    /// For Zenoh, trusting this authority.
    fn zenoh(&self, papers: &Papers) -> ZenohTls {
        let file = papers.file(&self.folder, "own.pem");
        let own = self
            .folder
            .join(format!("{}.pem", papers.serial.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
        fs::rename(file, &own).unwrap();
        ZenohTls::from_files(&own, &own, &self.folder.join("authority.pem")).unwrap()
    }

    /// For IIOP.
    fn node(&self, papers: &Papers) -> Tls {
        let roots = self.authority.roots();
        Tls {
            server: TlsServer::for_clients_of(papers.identity(), &roots).unwrap(),
            client: TlsClient::new(&roots).identity(papers.identity()),
            operators: BTreeSet::new(),
            readers: None,
        }
    }

    /// For both.
    fn both(&self, name: &str) -> (Option<Tls>, Option<ZenohTls>) {
        let papers = self.papers(name, name);
        (Some(self.node(&papers)), Some(self.zenoh(&papers)))
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn over_tls(duration: &str) -> String {
    over_zenoh(duration).replace("\"tcp/", "\"tls/")
}

fn start(text: &str, host: HostId, tls: (Option<Tls>, Option<ZenohTls>)) -> Result<Host, NodeError> {
    start_with(text, host, Span::from_secs(20), tls)
}

#[test]
fn nodes_exchange_completions_over_tls() {
    let (text, plant) = (over_tls("1s"), Plant::new());
    let mut drone = start(&text, DRONE, plant.both("drone")).unwrap();
    let mut station = start(&text, STATION, plant.both("station")).unwrap();
    let (one, other) = thread::scope(|scope| {
        let theirs = &station.peers;
        let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
        (drone.agree().unwrap(), other.join().unwrap())
    });
    thread::scope(|scope| {
        let running = station.begin(&other);
        scope.spawn(|| finish(running, |_, _, _| ()));
        finish(drone.begin(&one), |_, _, _| ());
    });
    let received = &station.peers.standing()[0];
    assert!(received.received > 50, "{received:?}");
    assert_eq!((received.missing, station.peers.refused()), (0, 0), "{received:?}");
}

/// The drone joins over IIOP, and has this certificate for Zenoh.
fn assert_nothing_arrives(text: &str, plant: &Plant, of_zenoh: ZenohTls, station: &Host) {
    let mut drone = start(text, DRONE, (Some(plant.node(&plant.papers("drone", "drone"))), Some(of_zenoh))).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    until("the drone joins", || drone.peers.standing()[0].state == "joined");
    let before = drone.peers.standing()[0].unsent;
    until("the drone counts what it cannot send", || drone.peers.standing()[0].unsent > before + 200);
    assert_eq!(drone.peers.standing()[0].sent, 0);
    let peer = &station.peers.standing()[0];
    assert_eq!((peer.received, peer.rejected, station.peers.refused()), (0, 0, 0), "{peer:?}");
    drop(running);
}

#[test]
fn a_certificate_of_another_authority_is_refused_on_both_sides() {
    let (text, plant, other) = (over_tls("60s"), Plant::new(), Plant::new());
    let mut station = start_with(&text, STATION, Span::ZERO, plant.both("station")).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    // The station refuses the certificate, though the drone accepts that of the station.
    let papers = other.papers("drone", "drone");
    fs::write(other.folder.join("authority.pem"), &plant.authority.pem).unwrap();
    assert_nothing_arrives(&text, &plant, other.zenoh(&papers), &station);
    // The drone refuses the station's, though the station would accept that of the drone.
    fs::write(plant.folder.join("authority.pem"), &other.authority.pem).unwrap();
    assert_nothing_arrives(&text, &plant, plant.zenoh(&plant.papers("drone", "drone")), &station);
    drop(running);
}

fn dial(plant: &Plant, station: &Host, name: &str) -> Session {
    let tls = plant.zenoh(&plant.papers(name, name));
    let settings = dialling(&station.system, DRONE, &[STATION], ZenohLink::Critical, Some(&tls));
    zenoh::open(settings).wait().unwrap()
}

#[test]
fn a_host_cannot_send_completions_of_another_one() {
    let (text, plant) = (over_tls("60s"), Plant::new());
    let mut station = start_with(&text, STATION, Span::ZERO, plant.both("station")).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    until("it runs", || agreed.clock.origin() as u64 + 5_000_000 < now());
    let papers = plant.papers("drone", "drone");
    let orb = Orb::builder().tls_client(plant.node(&papers).client.named("station")).unwrap().build().unwrap();
    let number = introduce(&station, &orb);
    let key = key_expression(&station.system, DRONE, STATION);
    // It has the drone's session.
    let (moon, drone) = (dial(&plant, &station, "moon"), dial(&plant, &station, "drone"));
    let forged = moon.declare_publisher(key.clone()).wait().unwrap();
    let publisher = connected(&drone, key);
    let send = |publisher, sequence: u64, at: u64| {
        let origin = now() - agreed.clock.origin() as u64;
        let completion =
            Completion { source: 0, target: 1, position: 0, number: at, origin, period: 10_000_000, sent: origin };
        put(publisher, &at.to_ne_bytes(), &CompletionHeader { session: number, sequence, completion }.encode());
    };
    for at in 0..20 {
        send(&forged, 100 + at, at);
        send(&publisher, at + 1, at);
        until("the drone's arrives", || station.peers.standing()[0].received == at + 1);
    }
    assert!(!forged.matching_status().wait().unwrap().matching());
    let peer = &station.peers.standing()[0];
    assert_eq!((peer.received, peer.rejected, peer.missing, station.peers.refused()), (20, 0, 0, 0), "{peer:?}");
    drop(running);
}

#[test]
fn a_host_cannot_receive_completions_for_another_one() {
    let (text, plant) = (over_tls("60s"), Plant::new());
    let system = system(&text);
    let tls = plant.zenoh(&plant.papers("moon", "moon"));
    let moon = zenoh::open(listening(&system, STATION, Some(&tls)).unwrap()).wait().unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    let hear = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let subscriber = moon.declare_subscriber(key_expression(&system, DRONE, STATION)).callback(hear).wait().unwrap();
    let mut drone = start_with(&text, DRONE, Span::ZERO, plant.both("drone")).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    until("the drone counts what it cannot send", || drone.peers.standing()[0].unsent > 200);
    assert_eq!((drone.peers.standing()[0].sent, heard.load(Ordering::Relaxed)), (0, 0));
    drop((running, subscriber));
}

#[test]
fn a_certificate_without_the_hosts_common_name_is_an_error_with_a_remedy() {
    let (text, plant) = (over_tls("60s"), Plant::new());
    let papers = plant.papers("drone", "yard");
    let tls = (Some(plant.node(&papers)), Some(plant.zenoh(&papers)));
    let error = start(&text, DRONE, tls).err().unwrap();
    assert!(matches!(&error, NodeError::Carrier(_)), "{error}");
    assert!(error.to_string().contains("the common name `yard`, not `drone`"), "{error}");
    assert!(error.remedy().unwrap().contains("CN=drone"), "{:?}", error.remedy());
    // Without a certificate.
    let endpoints = text.replace("endpoints = [\"tls/", "endpoints = [\"tcp/");
    let error = start(&endpoints, DRONE, (None, None)).err().unwrap();
    assert!(
        matches!(&error, NodeError::NoCertificate { endpoint } if endpoint.to_string().starts_with("tls/")),
        "{error}"
    );
    assert!(error.remedy().unwrap().contains("--tls-cert"));
    let path = plant.folder.join("a;b.pem");
    fs::rename(papers.file(&plant.folder, "own.pem"), &path).unwrap();
    let error = ZenohTls::from_files(&path, &path, &path).unwrap_err();
    assert!(error.message.contains("a;b.pem") && error.remedy.contains("without `;`"), "{error:?}");
}
