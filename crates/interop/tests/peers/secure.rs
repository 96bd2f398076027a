//! TLS between Hyoshi and omniORB, which uses OpenSSL: both sides show certificates, in both directions.

use std::path::PathBuf;
use std::process::Command;

#[path = "../../../orb/tests/common/authority.rs"]
pub mod authority;

use authority::Authority;
use hyoshi_interop::peers::Peer as PeerInterface;
use hyoshi_interop::{Able, check_all, serve};
use hyoshi_orb::{IorEndpoint, Orb, OrbBuilder, SystemKind, TlsClient, TlsServer, minor};

use crate::orbs::Peer;
use crate::process::{self, Server};

/// An authority, and files for omniORB.
pub struct Papers {
    pub authority: Authority,
    at: PathBuf,
}

impl Papers {
    pub fn new(name: &str) -> Self {
        let at = std::env::temp_dir().join(format!("hyoshi-interop-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&at).unwrap();
        Papers { authority: Authority::new("plant"), at }
    }

    /// omniORB's program, with certificates that `signer` signed, on TLS alone.
    pub fn omniorb(&self, program: PathBuf, signer: &Authority) -> Command {
        let mut command = Command::new(program);
        command.args(["-ORBgiopMaxMsgSize", "8388608", "-ORBendPoint", "giop:ssl:127.0.0.1:0"]);
        command.env("PEER_CA", self.authority.file(&self.at));
        command.env("PEER_KEY", signer.papers(&["127.0.0.1", "omniorb.plant"]).file(&self.at, "omniorb.pem"));
        command
    }

    /// Hyoshi's ORB: shows its certificate wherever a peer requests one.
    fn ours(&self) -> OrbBuilder {
        let own = self.authority.papers(&["127.0.0.1"]);
        let roots = self.authority.roots();
        Orb::builder()
            .listen("ssliop://127.0.0.1:0")
            .unwrap()
            .tls_server(TlsServer::for_clients_of(own.identity(), &roots).unwrap())
            .tls_client(TlsClient::new(&roots).identity(own.identity()).only())
            .unwrap()
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

#[test]
fn we_call_omniorb_over_tls_and_are_called_back() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let papers = Papers::new("called");
    let server = Server::start(papers.omniorb(omniorb.join("server"), &papers.authority));
    let orb = papers.ours().build().unwrap();
    orb.ready();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let profile = peer.ior().iiop().next().unwrap().unwrap();
    assert_eq!(profile.port, 0);
    let failed = check_all(&orb, &peer, Able::default());
    assert!(failed.is_empty(), "\n{}\n--- server\n{}", failed.join("\n"), server.log());

    let bare = Orb::builder().tls_client(TlsClient::new(&papers.authority.roots())).unwrap().build().unwrap();
    let refused = bare.resolve::<dyn PeerInterface>(&server.reference).unwrap().nothing().unwrap_err();
    assert_eq!((refused.kind, refused.minor), (SystemKind::NoPermission, minor::TLS_REFUSED), "{refused}");
    orb.shutdown();
}

#[test]
fn omniorb_calls_us_over_tls_and_is_called_back() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let papers = Papers::new("calls");
    let orb = papers.ours().build().unwrap();
    orb.ready();
    let peer = serve(&orb).unwrap();
    let mut client = papers.omniorb(omniorb.join("client"), &papers.authority);
    client.args([&peer.ior().to_string(), "--ordered", "--codes"]);
    process::run(client, String::new);

    // A client with a certificate of another authority is refused; the server continues.
    let mut client = papers.omniorb(omniorb.join("client"), &Authority::new("elsewhere"));
    let output = client.args([&peer.ior().to_string(), "--no-callbacks"]).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let Some(IorEndpoint::Tls { port, .. }) = orb.endpoints().first() else { panic!("no TLS") };
    let address = format!("corbaloc:ssliop:1.2@127.0.0.1:{port}/Peer");
    papers
        .ours()
        .collocation(false)
        .build()
        .unwrap()
        .resolve::<dyn PeerInterface>(&address)
        .unwrap()
        .nothing()
        .unwrap();
    orb.shutdown();
}
