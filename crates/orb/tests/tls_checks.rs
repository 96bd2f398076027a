//! An attack on TLS as a list of checks: certificates of a hostile authority, octets of a hostile client, and OpenSSL
//! with settings that are not accepted. Each check has a name; all that fail are printed.
//! `cargo test -p hyoshi-orb --test suite tls_checks:: -- --nocapture` prints how many there are.

use crate::authority;
use crate::tracking;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use authority::{Authority, Papers, crossed};
use hyoshi_model::Span;
use hyoshi_orb::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};
use tracking::{Tracker, Yard};

const HERE: &[&str] = &["127.0.0.1", "localhost"];

#[derive(Default)]
struct Checks {
    count: usize,
    failed: Vec<String>,
}

impl Checks {
    fn check(&mut self, name: impl Into<String>, holds: bool) {
        self.count += 1;
        if !holds {
            self.failed.push(name.into());
        }
    }

    fn end(self, of: &str) {
        println!("{of}: {} of {} checks as expected", self.count - self.failed.len(), self.count);
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }
}

fn serve(tls: TlsServer) -> (Orb, u16) {
    let limits = ServerLimits { handshake: Span::from_secs(2), ..ServerLimits::default() };
    let orb = Orb::builder().tls_server(tls).server_limits(limits).listen("ssliop://127.0.0.1:0").unwrap();
    let orb = orb.build().unwrap();
    let yard = orb.adapter("yard").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.ready();
    orb.publish("Yard", &yard).unwrap();
    let Some(IorEndpoint::Tls { port, .. }) = orb.endpoints().first().cloned() else { panic!("no TLS") };
    (orb, port)
}

fn call(tls: TlsClient, host: &str, port: u16) -> Result<(), SystemException> {
    let timeouts = Timeouts { round_trip: Some(Span::from_secs(10)), ..Timeouts::default() };
    let orb = Orb::builder().tls_client(tls).unwrap().timeouts(timeouts).build().unwrap();
    let address = format!("corbaloc:ssliop:1.2@{host}:{port}/Yard");
    orb.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing()
}

type Change = fn(&mut CertificateParams);

/// A certificate below an authority of its own below `of`, and the chain with both.
fn below(of: &Authority, authority: Change, leaf: Change) -> (String, String) {
    let (sub, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "sub");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority(&mut params);
    let issuer = of.sign(&params, &sub).pem();
    let mut below = CertificateParams::new(HERE.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    below.distinguished_name.push(DnType::CommonName, "chief");
    leaf(&mut below);
    let signed = below.signed_by(&own, &Issuer::new(params, sub)).unwrap().pem();
    (signed + &issuer, own.serialize_pem())
}

fn names(names: &[&str]) -> Vec<SanType> {
    let name = |name: &&str| match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) if name.contains(':') => SanType::URI((*name).try_into().unwrap()),
        Err(_) => SanType::DnsName((*name).try_into().unwrap()),
    };
    names.iter().map(name).collect()
}

/// What may be wrong with a leaf, whichever side shows it.
const LEAVES: &[(&str, Change)] = &[
    ("expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
    ("not valid yet", |params| params.not_before = date_time_ymd(3000, 1, 1)),
    ("valid never", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2030, 1, 1), date_time_ymd(2029, 1, 1))
    }),
    ("an authority's", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
    ("for signing code", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]),
];

/// What may be wrong with an authority between the leaf and the root.
const AUTHORITIES: &[(&str, Change)] = &[
    ("expired", |params| params.not_after = date_time_ymd(2020, 1, 1)),
    ("not valid yet", |params| params.not_before = date_time_ymd(3000, 1, 1)),
    ("no authority", |params| params.is_ca = IsCa::ExplicitNoCa),
    ("without basic constraints", |params| params.is_ca = IsCa::NoCa),
    ("without keyCertSign", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
    ("for lists of revoked certificates only", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign]),
    ("for another host", |params| params.name_constraints = Some(permitted("guest.plant"))),
    ("not for this host", |params| {
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![],
            excluded_subtrees: vec![GeneralSubtree::DnsName("localhost".to_owned())],
        });
    }),
    ("for other purposes", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]),
];

fn permitted(name: &str) -> NameConstraints {
    NameConstraints { permitted_subtrees: vec![GeneralSubtree::DnsName(name.to_owned())], excluded_subtrees: vec![] }
}

#[test]
fn clients_do_not_speak_to_servers_with_bad_certificates() {
    let mut checks = Checks::default();
    let plant = Authority::new("plant");
    let mut refuses = |name: &str, chain: &str, key: &str, host: &str| {
        let own = TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let (_orb, port) = serve(TlsServer::new(own).unwrap());
        let called = call(TlsClient::new(&plant.roots()), host, port);
        let refused = matches!(&called, Err(raised) if raised.completed == Completed::No && raised.kind == SystemKind::NoPermission);
        checks.check(format!("a server's certificate {name}: {called:?}"), refused);
    };
    for (name, change) in LEAVES {
        let papers = plant.papers_with(HERE, change);
        refuses(name, &papers.certificate, &papers.key, "127.0.0.1");
    }
    let client_only =
        plant.papers_with(HERE, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    refuses("for clients", &client_only.certificate, &client_only.key, "127.0.0.1");
    for (name, change) in AUTHORITIES {
        let (chain, key) = below(&plant, *change, |_| ());
        refuses(&format!("from an authority {name}"), &chain, &key, "localhost");
    }
    let deep: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let shallow = Authority::with("plant", deep);
    let (chain, key) = below(&shallow, |_| (), |_| ());
    refuses("of another authority of that name", &chain, &key, "localhost");
    for (name, of) in [
        ("another host", &["tracker.plant"][..]),
        ("another address", &["127.0.0.2"]),
        ("a host of that name as a URI", &["https://localhost"]),
        ("a host below", &["a.localhost"]),
        ("a wildcard below", &["*.localhost"]),
        ("none", &[]),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.subject_alt_names = names(of);
        let certificate = plant.sign(&params, &key).pem();
        refuses(&format!("for {name}"), &certificate, &key.serialize_pem(), "localhost");
    }
    let elsewhere = Authority::new("elsewhere").papers(HERE);
    refuses("of another authority", &elsewhere.certificate, &elsewhere.key, "127.0.0.1");
    let with_root = elsewhere.certificate.clone() + &Authority::new("elsewhere").pem;
    refuses("that brings its own root", &with_root, &elsewhere.key, "127.0.0.1");
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    refuses("signed by itself", &own, &key.serialize_pem(), "localhost");
    for count in [9, 20, 100] {
        let (chain, key) = crossed("plant", count);
        refuses(&format!("with {count} crossed authorities"), &chain, &key, "localhost");
    }
    // Good ones, or all of the above would prove nothing.
    let mut accepts = |name: &str, chain: &str, key: &str, host: &str| {
        let own = TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let (_orb, port) = serve(TlsServer::new(own).unwrap());
        let called = call(TlsClient::new(&plant.roots()), host, port);
        checks.check(format!("a good server's certificate {name}: {called:?}"), called.is_ok());
    };
    let good = plant.papers(HERE);
    accepts("by its address", &good.certificate, &good.key, "127.0.0.1");
    accepts("by its name", &good.certificate, &good.key, "localhost");
    let (chain, key) = below(&plant, |_| (), |_| ());
    accepts("with an authority between", &chain, &key, "localhost");
    let (chain, key) = below(
        &plant,
        |params| params.name_constraints = Some(permitted("localhost")),
        |params| params.subject_alt_names = names(&["localhost"]),
    );
    accepts("within constraints", &chain, &key, "localhost");
    checks.end("servers' certificates");
}

#[test]
fn servers_do_not_serve_clients_with_bad_certificates() {
    let mut checks = Checks::default();
    let plant = Authority::new("plant");
    let tls = TlsServer::for_clients_of(plant.papers(HERE).identity(), &plant.roots()).unwrap();
    let (_orb, port) = serve(tls);
    let shown = |chain: &str, key: &str| {
        let own = TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        call(TlsClient::new(&plant.roots()).identity(own), "127.0.0.1", port)
    };
    let mut refuses = |name: &str, called: Result<(), SystemException>| {
        let refused =
            matches!(&called, Err(raised) if raised.minor == minor::TLS_REFUSED && raised.completed == Completed::No);
        checks.check(format!("a client's certificate {name}: {called:?}"), refused);
    };
    for (name, change) in LEAVES {
        let papers = plant.papers_with(HERE, change);
        refuses(name, shown(&papers.certificate, &papers.key));
    }
    let server_only =
        plant.papers_with(HERE, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    refuses("for servers", shown(&server_only.certificate, &server_only.key));
    for (name, change) in AUTHORITIES {
        let (chain, key) = below(&plant, *change, |_| ());
        refuses(&format!("from an authority {name}"), shown(&chain, &key));
    }
    let constrained: Change = |params| params.name_constraints = Some(permitted("guest.plant"));
    for (name, leaf) in [
        ("a common name alone", (|params| params.subject_alt_names.clear()) as Change),
        ("a URI", |params| params.subject_alt_names = names(&["spiffe://plant/chief"])),
        ("a URI beside a permitted name", |params| {
            params.subject_alt_names = names(&["ann.guest.plant", "spiffe://plant/chief"]);
        }),
        ("another host", |params| params.subject_alt_names = names(&["chief.plant"])),
        ("a host whose name ends so", |params| params.subject_alt_names = names(&["evilguest.plant"])),
        ("another host beside a permitted one", |params| {
            params.subject_alt_names = names(&["ann.guest.plant", "chief"]);
        }),
        ("a wildcard above", |params| params.subject_alt_names = names(&["*.plant"])),
    ] {
        let (chain, key) = below(&plant, constrained, leaf);
        refuses(&format!("under constraints, with {name}"), shown(&chain, &key));
    }
    for other in [Authority::new("elsewhere"), Authority::new("plant")] {
        let papers = other.papers(&["chief"]);
        refuses("of another authority", shown(&papers.certificate, &papers.key));
        refuses("with its own root", shown(&(papers.certificate.clone() + &other.pem), &papers.key));
        refuses("with the plant's root beside it", shown(&(papers.certificate + &plant.pem), &papers.key));
    }
    for count in [3, 9, 50, 100] {
        let (chain, key) = crossed("plant", count);
        refuses(&format!("with {count} crossed authorities"), shown(&chain, &key));
    }
    // Below a leaf.
    let leaf = plant.papers_with(&["ann"], |params| params.is_ca = IsCa::ExplicitNoCa);
    let signer = KeyPair::from_pem(&leaf.key).unwrap();
    let mut like = CertificateParams::new(vec!["ann".to_owned()]).unwrap();
    like.distinguished_name.push(DnType::CommonName, "yard");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["chief".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "chief");
    let below_leaf = params.signed_by(&key, &Issuer::new(like, signer)).unwrap().pem();
    refuses("signed by a leaf", shown(&(below_leaf + &leaf.certificate), &key.serialize_pem()));
    refuses("that is none", call(TlsClient::new(&plant.roots()), "127.0.0.1", port));
    let mut accepts = |name: &str, called: Result<(), SystemException>| {
        checks.check(format!("a good client's certificate {name}: {called:?}"), called.is_ok());
    };
    let ann = plant.papers(&["ann"]);
    accepts("of the plant", shown(&ann.certificate, &ann.key));
    let (chain, key) = below(&plant, |_| (), |params| params.subject_alt_names.clear());
    accepts("with a common name", shown(&chain, &key));
    let (chain, key) = below(&plant, constrained, |params| params.subject_alt_names = names(&["ann.guest.plant"]));
    accepts("within constraints", shown(&chain, &key));
    let (chain, key) = below(&plant, |params| params.key_usages.clear(), |_| ());
    accepts("from an authority without keyUsage", shown(&chain, &key));
    checks.end("clients' certificates");
}

#[test]
fn hostile_octets_end_their_own_connection_and_no_other() {
    let mut checks = Checks::default();
    let plant = Authority::new("plant");
    let (_orb, port) = serve(TlsServer::new(plant.papers(HERE).identity()).unwrap());
    // A whole first message, of which others are made.
    let catcher = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = catcher.local_addr().unwrap().port();
    let roots = plant.roots();
    let caller = std::thread::spawn(move || call(TlsClient::new(&roots), "127.0.0.1", at));
    let mut hello = vec![0; 4096];
    let (mut caught, _) = catcher.accept().unwrap();
    let length = caught.read(&mut hello).unwrap();
    hello.truncate(length);
    drop((caught, catcher));
    caller.join().unwrap().unwrap_err();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut octets = hello.clone();
        change(&mut octets);
        octets
    };
    let record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[kind, 3, 3][..], &length, content].concat()
    };
    let long: Vec<u8> = (0..64).flat_map(|_| record(22, &[1, 0, 0xff, 0xff].repeat(4000))).collect();
    let tiny: Vec<u8> = hello[5..].iter().flat_map(|octet| record(22, &[*octet])).collect();
    let all: Vec<(&str, Vec<u8>)> = vec![
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("plain GIOP", b"GIOP\x01\x02\x01\x00\x10\x00\x00\x00".repeat(3)),
        ("SSH", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        ("SSL 2", vec![0x80, 0x2e, 1, 0, 2, 0, 21, 0, 0, 0, 16, 1, 0, 0x80]),
        ("zeros", vec![0; 100]),
        ("ones", vec![0xff; 100]),
        ("an alert", record(21, &[2, 0])),
        ("an alert too long", record(21, &[0; 100])),
        ("octets of an application", record(23, b"GIOP")),
        ("a change of cipher", record(20, &[1])),
        ("a heartbeat", record(24, &[1, 0x40, 0])),
        ("an empty handshake", record(22, &[])),
        ("a record beyond all length", [&[22, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat()),
        ("a message beyond all length", record(22, &[&[1, 0xff, 0xff, 0xff][..], &[0; 1000]].concat())),
        ("a message that does not end", long),
        ("another message first", with(&|octets| octets[5] = 2)),
        ("no versions", with(&|octets| octets[9..11].copy_from_slice(&[9, 9]))),
        ("half a message", hello[..hello.len() / 2].to_vec()),
        ("a message in single octets", tiny),
        ("one octet", vec![22]),
        ("nothing", vec![]),
        ("the message twice", hello.repeat(2)),
        ("the message and noise", [&hello[..], &[0xff; 100]].concat()),
        ("the message and what is not enciphered", [&hello[..], &record(23, b"GIOP")].concat()),
        ("a broken length within", with(&|octets| octets[8] = octets[8].wrapping_add(40))),
        ("a session longer than there may be", with(&|octets| octets[43] = 200)),
    ];
    for (name, octets) in &all {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = socket.write_all(octets);
        let mut answer = Vec::new();
        // It ends, at its deadline at the latest, and whatever it gets is no reply.
        let ended = match socket.read_to_end(&mut answer) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        checks.check(format!("{name}: ended"), ended);
        checks.check(
            format!("{name}: answered by TLS or not at all"),
            answer.first().is_none_or(|kind| matches!(kind, 20..=23)),
        );
        checks.check(
            format!("{name}: others are served"),
            call(TlsClient::new(&plant.roots()), "127.0.0.1", port).is_ok(),
        );
    }
    checks.end("hostile octets");
}

/// With OpenSSL at the other end.
#[test]
fn what_is_not_spoken_any_more_is_refused() {
    let mut checks = Checks::default();
    let at = std::env::temp_dir().join(format!("hyoshi-checks-{}", std::process::id()));
    std::fs::create_dir_all(&at).unwrap();
    let plant = Authority::new("plant");
    let papers: Papers = plant.papers(HERE);
    let (root, own) = (plant.file(&at), papers.file(&at, "ann.pem"));
    let (_orb, port) = serve(TlsServer::for_clients_of(papers.identity(), &plant.roots()).unwrap());
    let connects = |flags: &[&str]| {
        let mut client = Command::new("openssl");
        client
            .args(["s_client", "-verify_return_error", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"])
            .arg(&root);
        client.arg("-cert").arg(&own).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = client.spawn().ok()?;
        // A request for code sets and all is not needed: a MessageError is answered by nothing, garbage by MessageError.
        let _ = client.stdin.take().unwrap().write_all(b"GIOP\x01\x02\x01\x63\x00\x00\x00\x00");
        let output = client.wait_with_output().unwrap();
        Some(output.stdout.starts_with(b"GIOP"))
    };
    for (flags, good) in [
        (&["-tls1_3"][..], true),
        (&["-tls1_2"], true),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"], true),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], true),
        (&["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], true),
        (&["-tls1_3", "-curves", "P-384"], true),
        (&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (&["-tls1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (&["-tls1_2", "-cipher", "AES128-SHA"], false),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"], false),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"], false),
        (&["-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"], false),
        (&["-tls1_2", "-cipher", "eNULL:@SECLEVEL=0"], false),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], false),
        (&["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"], false),
        (&["-tls1_3", "-curves", "P-521"], false),
        (&["-tls1_2", "-no_etm", "-cipher", "AES256-SHA256"], false),
    ] {
        let Some(connected) = connects(flags) else { return println!("skipped: needs openssl") };
        checks.check(format!("{flags:?}"), connected == good);
    }
    // Weak certificates of clients, which rustls' authority cannot make.
    let key = at.join("weak.key");
    let weak = at.join("weak.pem");
    std::fs::write(at.join("ca.key"), plant.key()).unwrap();
    for (name, new, hash, good) in [
        ("RSA of 1,024 bits", "rsa:1024", "-sha256", false),
        ("RSA of 2,048 bits", "rsa:2048", "-sha256", true),
        ("a hash of SHA-1", "rsa:2048", "-sha1", false),
        ("a hash of MD5", "rsa:2048", "-md5", false),
    ] {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", new, "-nodes", hash, "-subj", "/CN=ann", "-addext"])
            .args(["basicConstraints=critical,CA:false", "-CA"])
            .arg(&root)
            .arg("-CAkey")
            .arg(at.join("ca.key"))
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&weak)
            .output()
            .unwrap();
        if !made.status.success() {
            println!("skipped: this openssl makes no certificate with {name}");
            continue;
        }
        let shown = TlsIdentity::from_files(&weak, &key)
            .map(|own| call(TlsClient::new(&plant.roots()).identity(own), "127.0.0.1", port).is_ok());
        checks.check(format!("{name}: {shown:?}"), shown.unwrap_or(false) == good);
    }
    std::fs::remove_dir_all(&at).unwrap();
    checks.end("versions, ciphers and weak certificates");
}
