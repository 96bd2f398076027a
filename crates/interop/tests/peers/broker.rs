//! The CPU broker's interfaces from omniORB: a program that reports itself, over the Unix socket.

use std::process::Command;
use std::sync::Arc;

use hyoshi_broker::access::Access;
use hyoshi_broker::audit::Audit;
use hyoshi_broker::client::Client;
use hyoshi_broker::idl::cpu_broker::Broker;
use hyoshi_broker::machine::Machine;
use hyoshi_broker::{Service, State, place, policy};
use hyoshi_control::Arbiter;
use hyoshi_model::Share;
use hyoshi_os::{Credentials, Interrupt, Notifier, Wake};

use crate::orbs::Peer;
use crate::process;

#[test]
fn a_program_of_omniorbs_reports_itself_to_the_broker() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let directory = std::env::temp_dir().join(format!("hyoshi-interop-broker-{}", std::process::id()));
    let (socket, uid) = (directory.join("broker.sock"), Credentials::own().uid);
    place::prepare(&socket, uid).unwrap();
    let (machine, _) = Machine::open(&directory.join("state"), Some("none")).unwrap();
    let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(75));
    let state = State::new(arbiter, Box::new(machine), Access { broker: uid, group: None }, Audit::none());
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::manual(wake.clone());
    let service = Service::start(state, &socket, uid, wake).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| service.run(&interrupt, &Notifier::none(), |notice| eprintln!("{notice}")));
        let done = std::panic::catch_unwind(|| {
            let mut reporter = Command::new(omniorb.join("reporter"));
            reporter.arg(place::corbaloc(&socket)).args(["-ORBclientTransportRule", "* unix"]);
            process::run(reporter, String::new);
            let client = Client::connect(Some(&socket)).unwrap();
            assert!(client.broker().tasks().unwrap().is_empty());
        });
        interrupt.request();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    std::fs::remove_dir_all(&directory).unwrap();
}
