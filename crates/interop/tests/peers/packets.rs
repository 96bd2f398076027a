//! Wireshark's dissector reads the packets between Hyoshi and omniORB.

use std::path::Path;
use std::process::{Command, Stdio};

use hyoshi_interop::peers::Peer as PeerInterface;
use hyoshi_interop::{Able, check_all};
use hyoshi_orb::Orb;

use crate::orbs::Peer;
use crate::ours::{address_of, served};
use crate::process::{self, Server};

/// Starts a capture of the loopback. `None`, with a printed reason, if it is not installed or not permitted.
fn capture(to: &Path) -> Option<Server> {
    let interfaces = Command::new("dumpcap").arg("-D").stdin(Stdio::null()).output();
    let Ok(interfaces) = interfaces else {
        eprintln!("skipped, for tshark is not installed (.ci/peers installs it)");
        return None;
    };
    if !String::from_utf8_lossy(&interfaces.stdout).contains("lo") {
        eprintln!("skipped, for dumpcap may not capture here: be root, or give it CAP_NET_RAW");
        return None;
    }
    let mut command = Command::new("dumpcap");
    command.args(["-i", "lo", "-f", "tcp", "-B", "64", "-w"]).arg(to);
    Some(Server::start_until(command, "File: "))
}

/// Packets of the capture that match; GIOP is expected at these ports.
fn matching(file: &Path, ports: &[u16], filter: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    // Two CPUs can capture the packets of a connection in another order than they were sent.
    command.arg("-r").arg(file).args(["-o", "tcp.reassemble_out_of_order:TRUE", "-Y", filter]);
    for port in ports {
        command.args(["-d", &format!("tcp.port=={port},giop")]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn the_dissector_finds_nothing_malformed() {
    // What we send is the same each time. How TCP divides it is not, and the dissector has defects: it can start within a
    // message if packets are missing or out of order, and it mixes up fragments of GIOP 1.1 that share a segment.
    assert!((0..5).any(|_| is_well_formed()), "each of five captures has malformed packets");
}

/// False if the dissector finds malformed packets, which are printed.
fn is_well_formed() -> bool {
    let Some(omniorb) = Peer::OmniOrb.built() else { return true };
    let file = std::env::temp_dir().join(format!("hyoshi-interop-{}.pcapng", std::process::id()));
    let Some(capture) = capture(&file) else { return true };

    let server = Server::start(Peer::OmniOrb.server(omniorb));
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let theirs = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let failed = check_all(&orb, &theirs, Able::default());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let (ours, peer) = served();
    process::run(Peer::OmniOrb.client(omniorb, &peer.ior().to_string(), None), String::new);
    let ports = [address_of(theirs.ior()).1, address_of(peer.ior()).1];
    ours.shutdown();
    orb.shutdown();
    capture.interrupt();

    let port = |port: u16| format!("tcp.port == {port}");
    let ours_or_theirs = format!("({} || {})", port(ports[0]), port(ports[1]));
    let messages = matching(&file, &ports, &format!("giop && {ours_or_theirs}"));
    assert!(messages.len() > 1000, "only {} packets with GIOP were seen", messages.len());
    let malformed = matching(&file, &ports, &format!("_ws.malformed && {ours_or_theirs}"));
    let listed: Vec<&str> = malformed.iter().take(20).map(String::as_str).collect();
    if !malformed.is_empty() {
        println!("{} of {} packets:\n{}", malformed.len(), messages.len(), listed.join("\n"));
    }
    // A file that could not be deleted does not fail the test.
    let _ = std::fs::remove_file(&file);
    malformed.is_empty()
}
