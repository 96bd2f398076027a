//! Names in omniNames, bound by Hyoshi and found by omniORB, and the reverse.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::Command;

use hyoshi_interop::peers::Peer as PeerInterface;
use hyoshi_naming::{NameComponent, NamingContext, NamingContextExt, naming_context};
use hyoshi_orb::{ObjectRef, Orb};

use crate::loopback::unused_address;
use crate::orbs::Peer;
use crate::ours::served;
use crate::process::{self, Server};

/// omniNames with a separate directory.
struct Names {
    server: Option<Server>,
    directory: PathBuf,
    address: SocketAddrV4,
}

impl Names {
    /// None (and why) if it is not installed.
    fn start() -> Option<Names> {
        let address = unused_address();
        let directory = std::env::temp_dir().join(format!("hyoshi-interop-names-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new("omniNames");
        if command.arg("-help").output().is_err() {
            eprintln!("skipped, for omniNames is not installed (.ci/peers installs it)");
            return None;
        }
        let mut command = Command::new("omniNames");
        command.args(["-start", &address.port().to_string(), "-always", "-datadir"]).arg(&directory);
        command.args(["-ORBendPoint", &format!("giop:tcp:{address}")]);
        let server = Some(Server::start_until(command, "Checkpointing completed."));
        Some(Names { server, directory, address })
    }

    fn corbaloc(&self) -> String {
        format!("corbaloc:iiop:1.2@{}/NameService", self.address)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        drop(self.server.take());
        // A file that could not be deleted does not fail the test.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn name(of: &str) -> Vec<NameComponent> {
    vec![NameComponent { id: of.to_owned(), kind: String::new() }]
}

#[test]
fn names_are_bound_and_resolved_through_omninames() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let Some(names) = Names::start() else { return };
    let (orb, peer) = served();
    let root = orb.resolve::<dyn NamingContextExt>(&names.corbaloc()).unwrap();

    // Bound by Hyoshi, found by omniORB.
    root.bind(&name("Ours"), Some(&ObjectRef::from(peer.as_ref().widen()))).unwrap();
    let again = root.bind(&name("Ours"), Some(&ObjectRef::from(peer.as_ref().widen())));
    assert!(format!("{again:?}").contains("AlreadyBound"), "{again:?}");
    let address = format!("corbaname:iiop:1.2@{}#Ours", names.address);
    process::run(Peer::OmniOrb.client(omniorb, &address, None), String::new);

    // Bound by omniORB, found by Hyoshi.
    let mut command = Peer::OmniOrb.server(omniorb);
    command.args(["--name", "Theirs", "-ORBInitRef", &format!("NameService={}", names.corbaloc())]);
    let server = Server::start(command);
    let client = Orb::client().unwrap();
    let root = client.resolve::<dyn NamingContextExt>(&names.corbaloc()).unwrap();
    for found in [root.resolve(&name("Theirs")).unwrap(), root.resolve_str("Theirs").unwrap()] {
        let theirs = found.unwrap().as_ref().narrow::<dyn PeerInterface>().unwrap().unwrap();
        assert_eq!(theirs.ior().to_string().parse().as_ref(), Ok(theirs.ior()));
        theirs.nothing().unwrap();
    }
    let (all, rest) = root.list(10).unwrap();
    let mut ids: Vec<&str> = all.iter().map(|binding| binding.binding_name[0].id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!((ids, rest.is_none()), (vec!["Ours", "Theirs"], true));
    root.unbind(&name("Theirs")).unwrap();
    let gone = root.resolve(&name("Theirs")).unwrap_err();
    let nowhere = name("Theirs");
    assert!(
        matches!(&gone, hyoshi_naming::ResolveError::NotFound(naming_context::NotFound { rest_of_name, .. })
            if *rest_of_name == nowhere),
        "{gone:?}"
    );
    drop(server);
    orb.shutdown();
}
