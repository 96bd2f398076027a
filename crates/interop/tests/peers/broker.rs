//! The CPU broker's interfaces from omniORB: a program that reports its own use, over the Unix socket and over TLS.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hyoshi_broker::access::Access;
use hyoshi_broker::audit::Audit;
use hyoshi_broker::certificates::Certificates;
use hyoshi_broker::client::{BrokerClient, PATIENCE};
use hyoshi_broker::idl::cpu_broker::Task as _;
use hyoshi_broker::limits::{LimitScope, Rules, UserLimits};
use hyoshi_broker::machine::Machine;
use hyoshi_broker::{BrokerService, BrokerState, RemoteAccess, TaskSpec, policy, socket};
use hyoshi_control::Arbiter;
use hyoshi_model::{Share, Span};
use hyoshi_orb::{Orb, TlsClient, TlsServer};
use hyoshi_os::{Credentials, Interrupt, Notifier, Wake};

use crate::orbs::Peer;
use crate::process;
use crate::secure::Papers;
use crate::secure::authority::Authority;

/// Runs `client` with a broker at this socket. With `remote`, the broker serves other machines too.
fn with_broker(name: &str, remote: Option<RemoteAccess>, client: impl FnOnce(&Path, Vec<String>)) {
    let directory = std::env::temp_dir().join(format!("hyoshi-interop-{name}-{}", std::process::id()));
    let (socket, uid) = (directory.join("broker.sock"), Credentials::own().uid);
    socket::prepare(&socket, uid).unwrap();
    let (machine, _) = Machine::open(&directory.join("state"), Some("none")).unwrap();
    let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(75));
    let mut state = BrokerState::new(arbiter, Box::new(machine), Access { broker: uid, group: None }, Audit::none());
    // The certificate has the rights of this user, not of an operator: importance has a limit.
    let own = UserLimits { importance: 10, ..UserLimits::of(LimitScope::User(uid.to_string())) };
    state.set_rules(Arc::new(Rules::new([own], "limits")));
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::manual(wake.clone());
    let service = BrokerService::start_for(state, &socket, uid, remote, wake).unwrap();
    let addresses = service.remote().collect();
    std::thread::scope(|scope| {
        scope.spawn(|| service.run(&interrupt, &Notifier::none(), |notice| eprintln!("{notice}")));
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            client(&socket, addresses);
            let client = BrokerClient::connect(Some(&socket)).unwrap();
            assert!(client.tasks().unwrap().is_empty());
        }));
        interrupt.request();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_program_of_omniorbs_reports_itself_to_the_broker() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    with_broker("broker", None, |socket, _| {
        let mut reporter = Command::new(omniorb.join("reporter"));
        reporter.arg(hyoshi_orb::cpu_broker::corbaloc(socket)).args(["-ORBclientTransportRule", "* unix"]);
        process::run(reporter, String::new);
    });
}

#[test]
fn a_program_of_omniorbs_asks_the_broker_over_tls_what_its_certificate_allows() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let papers = Papers::new("reports");
    let own = papers.authority.papers(&["127.0.0.1"]);
    let roots = papers.authority.roots();
    // It may change the tasks of this user.
    let users = BTreeMap::from([("omniorb.plant".to_owned(), Credentials::own().uid)]);
    let remote = RemoteAccess {
        endpoints: vec!["ssliop://127.0.0.1:0".to_owned()],
        tls: TlsServer::for_clients_of(own.identity(), &roots).unwrap(),
        certificates: Certificates { users, ..Certificates::default() },
    };
    let tls = TlsClient::new(&roots).identity(own.identity());
    let orb = Orb::builder().tls_client(tls).unwrap();
    with_broker("broker-tls", Some(remote), |socket: &Path, addresses: Vec<String>| {
        let client = BrokerClient::at(&addresses[0], orb, PATIENCE).unwrap();
        let reference = client.broker().ior().to_string();
        let reporter = |signer: &Authority| {
            let mut reporter = papers.omniorb(omniorb.join("reporter"), signer);
            reporter.arg(&reference).args(["-ORBclientTransportRule", "* ssl"]);
            reporter
        };
        let stranger = reporter(&Authority::new("elsewhere")).output().unwrap();
        assert!(!stranger.status.success(), "{}", String::from_utf8_lossy(&stranger.stdout));
        let here = BrokerClient::connect(Some(socket)).unwrap();
        let steady = here.join(&TaskSpec::new("steady", Span::from_millis(50))).unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        steady.add_process(sleeper.id(), 0).unwrap();
        process::run(reporter(&papers.authority), String::new);
        steady.leave().unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}
