//! Connections other than plain TCP with the default code sets.

use std::path::PathBuf;
use std::process::Command;

use hyoshi_interop::peers::{Callback, Peer as PeerInterface};
use hyoshi_interop::{Able, serve};
use hyoshi_model::Span;
use hyoshi_orb::{Orb, SyncScope, SystemKind};

use crate::orbs::Peer;
use crate::ours::{address_of, call, served};
use crate::process::{self, Server};

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("hyoshi-interop-{name}-{}", std::process::id()))
}

/// omniORB's server with this endpoint alone.
fn omniorb_at(at: &std::path::Path, endpoint: &str) -> Command {
    let mut command = Command::new(at.join("server"));
    command.args(["-ORBgiopMaxMsgSize", "8388608", "-ORBendPoint", endpoint]);
    command
}

#[test]
fn omniorb_of_utf_8_and_ours_share_all_characters() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let mut command = Peer::OmniOrb.server(omniorb);
    command.args(["-ORBnativeCharCodeSet", "UTF-8"]).env("PEER_UTF8", "1");
    let server = Server::start(command);
    call(&server, Able::default());
    let (orb, peer) = served();
    let mut client = Peer::OmniOrb.client(omniorb, &peer.ior().to_string(), None);
    client.args(["-ORBnativeCharCodeSet", "UTF-8", "--codes"]).env("PEER_UTF8", "1");
    process::run(client, String::new);
    orb.shutdown();
}

#[test]
fn unix_sockets_lead_both_ways() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let path = socket("omniorb");
    let server = Server::start(omniorb_at(omniorb, &format!("giop:unix:{}", path.display())));
    call(&server, Able::default());
    drop(server);

    let path = socket("ours");
    let orb = Orb::builder().listen(&format!("unix:{}", path.display())).unwrap().build().unwrap();
    orb.ready();
    let peer = serve(&orb).unwrap();
    let mut client = Peer::OmniOrb.client(omniorb, &peer.ior().to_string(), None);
    client.args(["-ORBclientTransportRule", "* unix,tcp"]);
    process::run(client, String::new);
    orb.shutdown();
}

#[test]
fn corbaloc_names_objects_of_either_side() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let server = Server::start(Peer::OmniOrb.server(omniorb));
    let orb = Orb::client().unwrap();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let (host, port) = address_of(peer.ior());
    let again = orb.resolve::<dyn PeerInterface>(&format!("corbaloc:iiop:1.2@{host}:{port}/Peer")).unwrap();
    again.nothing().unwrap();

    let (orb, peer) = served();
    let (host, port) = address_of(peer.ior());
    let mut client = Peer::OmniOrb.client(omniorb, &format!("corbaloc:iiop:1.2@{host}:{port}/Peer"), None);
    // Such a reference has no code sets, without which omniORB sends no wide characters.
    client.arg("--narrow");
    process::run(client, String::new);
    orb.shutdown();
}

#[test]
fn a_server_that_was_started_again_is_found_again() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    // Unlike a port, a path can be used again at once.
    let endpoint = format!("giop:unix:{}", socket("again").display());
    let first = Server::start(omniorb_at(omniorb, &endpoint));
    let orb = Orb::client().unwrap();
    let peer = orb.resolve::<dyn PeerInterface>(&first.reference).unwrap();
    peer.nothing().unwrap();
    drop(first);
    let second = Server::start(omniorb_at(omniorb, &endpoint));
    assert_eq!(second.reference.parse().as_ref(), Ok(peer.ior()), "its keys are persistent");
    // The connection is lost, which is detected at the latest when a request is sent. GIOP allows another attempt only
    // if the request was certainly not executed.
    if let Err(exception) = peer.nothing() {
        assert_eq!(exception.kind, SystemKind::CommFailure, "{exception}");
        peer.nothing().unwrap();
    }
}

#[test]
fn an_object_of_another_interface_is_refused() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let server = Server::start(Peer::OmniOrb.server(omniorb));
    let orb = Orb::client().unwrap();
    let refused = orb.resolve::<dyn Callback>(&server.reference).unwrap_err();
    assert_eq!(refused.kind, SystemKind::BadParam);
}

/// Calls that last too long, and oneways of every scope.
fn patience(server: &Server) {
    let orb = Orb::client().unwrap();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let late = peer.within(Span::from_millis(200)).sleep_ms(2000).unwrap_err();
    assert_eq!(late.kind, SystemKind::Timeout, "{late}");
    peer.nothing().unwrap();
    peer.noted().unwrap();
    let mut number = 0;
    for scope in [SyncScope::None, SyncScope::Transport, SyncScope::Server, SyncScope::Target] {
        let sender = peer.within(Span::from_secs(20));
        let sender = sender.oneways(scope);
        for _ in 0..10 {
            number += 1;
            sender.note(number, &vec![0; number as usize]).unwrap_or_else(|error| panic!("{scope:?}: {error}"));
        }
    }
    orb.flush();
    let mut count = 0;
    for _ in 0..500 {
        count += peer.noted().unwrap().0;
        if count >= number {
            break;
        }
        // Another process counts them, without an answer.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(count, number);
    orb.shutdown();
}

#[test]
fn calls_end_in_time_and_oneways_of_every_scope_arrive() {
    if let Some(omniorb) = Peer::OmniOrb.built() {
        patience(&Server::start(Peer::OmniOrb.server(omniorb)));
    }
    if let Some(jacorb) = Peer::JacOrb.built() {
        patience(&Server::start(Peer::JacOrb.server(jacorb)));
    }
}
