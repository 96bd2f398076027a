//! When a server begins to serve: its ports are bound from the start, and its clients wait until its objects exist.

use crate::peer;
use crate::tracking;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hyoshi_orb::{ByteOrder, Decoder, Orb};
use hyoshi_wire::giop::{Reply, ReplyStatus, Response};
use peer::{connect, message, request};
use tracking::*;

fn status(message: &[u8]) -> ReplyStatus {
    let mut from = Decoder::new(message, ByteOrder::from_flag(message[6]));
    from.raw(12).unwrap();
    Reply::decode(from).unwrap().status
}

#[test]
fn a_client_that_comes_before_the_objects_is_served_when_they_exist() {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    // The port is bound: the client connects, and is not refused.
    let mut early = connect(&orb);
    early.write_all(&request(1, b"Tracker", "nothing", Response::Target)).unwrap();
    early.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let waits = early.read(&mut [0; 12]).unwrap_err().kind();
    assert!(matches!(waits, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits}");
    early.set_read_timeout(None).unwrap();

    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.publish("Tracker", &tracker).unwrap();
    orb.ready();
    orb.ready();
    assert_eq!(status(&message(&mut early).expect("it is not closed")), ReplyStatus::NoException);
    // Those that come later are served at once.
    let mut late = connect(&orb);
    late.write_all(&request(1, b"Tracker", "nothing", Response::Target)).unwrap();
    assert_eq!(status(&message(&mut late).expect("it is not closed")), ReplyStatus::NoException);
}

#[test]
fn a_server_that_ends_before_it_is_ready_closes_its_port() {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let mut early = connect(&orb);
    orb.shutdown();
    orb.ready();
    assert!(!matches!(early.read(&mut [0; 12]), Ok(1..)), "nobody serves it");
}

/// A program that serves, or forgets to: this test, run again by the next.
#[test]
fn a_program_of_its_own() {
    let Ok(what) = std::env::var("HYOSHI_TEST_READY") else { return };
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    match what.as_str() {
        "ready" => orb.ready(),
        "run" => {
            let running = orb.clone();
            std::thread::spawn(move || running.run());
        }
        _ => {}
    }
    println!("built");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_program_that_forgets_to_serve_is_warned() {
    let start = |what: &str| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "ready::a_program_of_its_own", "--nocapture"]).env("HYOSHI_TEST_READY", what);
        again.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let end = |mut child: Child| {
        drop(child.stdin.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        said
    };
    // They were built before the one that is warned.
    let others = ["ready", "run"].map(start).map(|mut child| {
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.ends_with("built")));
        (child, said)
    });
    let mut forgets = start("nothing");
    let mut said = String::new();
    let mut octets = [0; 256];
    while !said.contains('\n') {
        let count = forgets.stderr.as_mut().unwrap().read(&mut octets).unwrap();
        assert!(count > 0, "it ended without a warning: {said}");
        said += std::str::from_utf8(&octets[..count]).unwrap();
    }
    assert!(said.starts_with("hyoshi: clients at 127.0.0.1:"), "{said}");
    assert!(said.contains("neither Orb::ready nor Orb::run"), "{said}");
    assert_eq!(end(forgets), "", "once is enough");
    for (other, said) in others {
        assert_eq!(end(other), "");
        drop(said);
    }
}
