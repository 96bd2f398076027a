//! A hostile authority, hostile references and hostile files against TLS. Each test is a check of one attack that must
//! not work; `tls_flood` has those that measure time.

use crate::authority;
use crate::loopback::{ClosedPort, unused_address};
use crate::tracking;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use authority::{Authority, Papers};
use hyoshi_orb::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};
use tracking::{Tracker, TrackerStub, Yard};

const HERE: &[&str] = &["127.0.0.1", "localhost"];

fn serve(tls: TlsServer, endpoints: &[&str]) -> (Orb, TrackerStub) {
    let mut builder = Orb::builder().tls_server(tls);
    for endpoint in endpoints {
        builder = builder.listen(endpoint).unwrap();
    }
    let orb = builder.build().unwrap();
    let adapter = orb.adapter("yard").build().unwrap();
    orb.ready();
    let yard = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.publish("Yard", &yard).unwrap();
    (orb, yard)
}

fn client(tls: TlsClient) -> Orb {
    Orb::builder().tls_client(tls).unwrap().build().unwrap()
}

fn port(orb: &Orb, secure: bool) -> u16 {
    let port = |endpoint: &IorEndpoint| match endpoint {
        IorEndpoint::Tls { port, .. } if secure => Some(*port),
        IorEndpoint::Tcp { port, .. } if !secure => Some(*port),
        _ => None,
    };
    orb.endpoints().iter().find_map(port).unwrap()
}

/// Listens in plain and counts connections: a client that comes here was brought to speak in plain.
fn plain_trap() -> (u16, Arc<AtomicUsize>) {
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = trap.local_addr().unwrap().port();
    let caught = Arc::new(AtomicUsize::new(0));
    let count = caught.clone();
    std::thread::spawn(move || {
        while trap.accept().is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, caught)
}

mod plain_despite_tls {
    use super::*;

    /// Calls what `address` refers to; says what is raised, and how many came in plain.
    fn call(authority: &Authority, address: &str, trapped: &AtomicUsize) -> (SystemException, usize) {
        let client = client(TlsClient::new(&authority.roots()));
        let stub = client.resolve_unchecked::<dyn Tracker>(address).unwrap();
        let raised = stub.nothing().unwrap_err();
        (raised, trapped.load(Ordering::SeqCst))
    }

    #[test]
    fn a_reference_with_both_is_called_over_tls_whatever_their_order() {
        let authority = Authority::new("plant");
        let (orb, _) = serve(TlsServer::new(authority.papers(HERE).identity()).unwrap(), &["ssliop://127.0.0.1:0"]);
        let (plain, trapped) = plain_trap();
        let secure = port(&orb, true);
        let client = client(TlsClient::new(&authority.roots()));
        for address in [
            format!("corbaloc:iiop:1.2@127.0.0.1:{plain},ssliop:1.2@127.0.0.1:{secure}/Yard"),
            format!("corbaloc:ssliop:1.2@127.0.0.1:{secure},iiop:1.2@127.0.0.1:{plain}/Yard"),
        ] {
            client.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing().unwrap();
        }
        assert_eq!(trapped.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_closed_port_of_tls_does_not_lead_to_the_plain_one_and_the_error_says_so() {
        let authority = Authority::new("plant");
        let (plain, trapped) = plain_trap();
        let closed_port = ClosedPort::new();
        let closed = closed_port.number();
        for address in [
            format!("corbaloc:ssliop:1.2@127.0.0.1:{closed},iiop:1.2@127.0.0.1:{plain}/Yard"),
            format!("corbaloc:iiop:1.2@127.0.0.1:{plain},ssliop:1.2@127.0.0.1:{closed}/Yard"),
        ] {
            let (raised, trapped) = call(&authority, &address, &trapped);
            assert_eq!((raised.minor, trapped), (minor::REFUSED, 0), "{raised}");
            assert!(raised.to_string().contains("plain address is not used"), "{raised}");
        }
    }

    #[test]
    fn a_server_on_another_host_in_plain_than_over_tls_is_called_over_tls() {
        let authority = Authority::new("plant");
        let tls = TlsServer::new(authority.papers(HERE).identity()).unwrap();
        let (orb, yard) = serve(tls, &["iiop://127.0.0.1:0", "ssliop://localhost:0"]);
        let other = Authority::new("elsewhere");
        // Whoever does not believe the server would hear so, if TLS is used: in plain the call would be carried out.
        let wary = client(TlsClient::new(&other.roots()));
        let raised = wary.stub::<dyn Tracker>(yard.ior().clone()).nothing().unwrap_err();
        assert_eq!(raised.minor, minor::TLS_UNKNOWN_CA, "{raised}");
        client(TlsClient::new(&authority.roots())).stub::<dyn Tracker>(yard.ior().clone()).nothing().unwrap();
        orb.shutdown();
    }
}

mod files {
    use super::*;

    fn chain() -> Papers {
        Authority::new("plant").papers(HERE)
    }

    /// Decimal and hexadecimal octets, or base64, of the key: none of it may be in a message.
    fn is_silent(said: &str, key: &str) {
        let body: String = key.lines().filter(|line| !line.starts_with('-')).collect();
        for from in (0..body.len() - 8).step_by(4) {
            assert!(!said.contains(&body[from..from + 8]), "{said}");
        }
        let decimal = format!("{:?}", &key.as_bytes()[..8]);
        assert!(!said.contains(decimal.trim_matches(['[', ']'])), "{said}");
        assert!(said.len() < 400, "{said}");
    }

    #[test]
    fn a_broken_key_file_is_refused_without_an_octet_of_it() {
        let papers = chain();
        let key = &papers.key;
        let broken = [
            key.replace('\n', " "),
            key.replace('\n', "\\n"),
            key.replace('\n', "\0"),
            key.replace('\n', "\t"),
            key[..key.len() / 2].to_owned(),
            key.replacen("-----END", "----END", 1),
            key.replacen("BEGIN PRIVATE", "BEGIN SECRET", 1),
            key.replacen("-----\n", "-----\n!!!!", 1),
            format!("-----BEGIN {key}"),
            key.replacen("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----", 1),
        ];
        for text in broken {
            for refused in [
                TlsIdentity::from_pem(papers.certificate.as_bytes(), text.as_bytes()).unwrap_err(),
                TlsIdentity::from_pem(text.as_bytes(), text.as_bytes()).unwrap_err(),
                TlsRoots::from_pem(text.as_bytes()).unwrap_err(),
            ] {
                is_silent(&refused.to_string(), key);
                is_silent(&format!("{refused:?}"), key);
            }
        }
    }

    #[test]
    fn an_encrypted_or_cut_off_key_is_called_so() {
        let papers = chain();
        let with = |key: &str| TlsIdentity::from_pem(papers.certificate.as_bytes(), key.as_bytes()).unwrap_err();
        for encrypted in [
            papers.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
            papers.key.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1),
        ] {
            assert!(with(&encrypted).to_string().contains("encrypted"), "{}", with(&encrypted));
        }
        let cut = with(&papers.key[..papers.key.len() / 2]).to_string();
        assert!(cut.contains("private key") && cut.contains("cut off"), "{cut}");
    }
}

/// What a client gets that shows these certificates, in DER, with this key.
fn shown(server: &Orb, roots: &TlsRoots, certificates: &str, key: &str) -> Result<(), SystemException> {
    let own = TlsIdentity::from_pem(certificates.as_bytes(), key.as_bytes()).unwrap();
    let client = client(TlsClient::new(roots).identity(own));
    let address = format!("corbaloc:ssliop:1.2@127.0.0.1:{}/Yard", port(server, true));
    client.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing()
}

/// An authority under another, as `change` has it.
struct Sub {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn sub(of: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Sub {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "guest");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    change(&mut params);
    let pem = of.sign(&params, &key).pem();
    Sub { issuer: Issuer::new(params, key), pem }
}

impl Sub {
    fn leaf(&self, names: Vec<SanType>, common: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names;
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        (leaf.pem() + &self.pem, key.serialize_pem())
    }
}

mod authorities {
    use super::*;

    fn strict(authority: &Authority) -> Orb {
        let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
        serve(tls, &["ssliop://127.0.0.1:0"]).0
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    #[test]
    fn under_name_constraints_neither_a_common_name_nor_a_uri_counts() {
        let authority = Authority::new("plant");
        let server = strict(&authority);
        let guest = sub(&authority, |params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("guest.plant".to_owned())],
                excluded_subtrees: vec![],
            });
        });
        let uri = SanType::URI("spiffe://plant/chief".try_into().unwrap());
        let get = |names: Vec<SanType>, common: &str| {
            let (chain, key) = guest.leaf(names, common);
            shown(&server, &authority.roots(), &chain, &key)
        };
        get(vec![dns("ann.guest.plant")], "chief").unwrap();
        for (names, common) in [
            (vec![], "chief"),
            (vec![uri.clone()], "chief"),
            (vec![dns("ann.guest.plant"), uri], "ann"),
            (vec![dns("chief.plant")], "ann"),
        ] {
            let refused = get(names.clone(), common).unwrap_err();
            assert_eq!((refused.kind, refused.completed), (SystemKind::NoPermission, Completed::No), "{names:?}");
        }
        // An authority without constraints may issue both.
        let free = sub(&authority, |_| ());
        for names in [vec![], vec![SanType::URI("spiffe://plant/ann".try_into().unwrap())]] {
            let (chain, key) = free.leaf(names, "ann");
            shown(&server, &authority.roots(), &chain, &key).unwrap();
        }
    }

    #[test]
    fn an_issuer_that_may_not_sign_certificates_is_none() {
        let authority = Authority::new("plant");
        let server = strict(&authority);
        let bad: [fn(&mut CertificateParams); 3] = [
            |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature],
            |params| params.is_ca = IsCa::ExplicitNoCa,
            |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1),
        ];
        for change in bad {
            let (chain, key) = sub(&authority, change).leaf(vec![dns("chief")], "chief");
            let refused = shown(&server, &authority.roots(), &chain, &key).unwrap_err();
            assert_eq!(refused.kind, SystemKind::NoPermission, "{refused}");
        }
        let (chain, key) = sub(&authority, |params| params.key_usages.clear()).leaf(vec![dns("ann")], "ann");
        shown(&server, &authority.roots(), &chain, &key).unwrap();
    }

    #[test]
    fn what_is_no_authority_is_refused_among_authorities() {
        let authority = Authority::new("plant");
        let leaf = authority.papers_with(&["chief"], |params| params.is_ca = IsCa::ExplicitNoCa);
        let refused = TlsRoots::from_pem(leaf.certificate.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains("not an authority"), "{refused}");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let signer = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let refused = TlsRoots::from_pem(signer.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains("keyCertSign"), "{refused}");
    }

    #[test]
    fn an_authority_that_has_expired_vouches_for_nobody() {
        let authority = Authority::with("plant", |params| {
            params.not_before = rcgen::date_time_ymd(2010, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        let server = strict(&authority);
        let ann = authority.papers(&["ann"]);
        // The server's own certificate is of that authority too: the client refuses it first.
        let refused = shown(&server, &authority.roots(), &ann.certificate, &ann.key).unwrap_err();
        assert_eq!(refused.minor, minor::TLS_EXPIRED, "{refused}");
        // And the server refuses the client.
        let good = Authority::new("other");
        let tls = TlsServer::for_clients_of(good.papers(HERE).identity(), &authority.roots()).unwrap();
        let (server, _) = serve(tls, &["ssliop://127.0.0.1:0"]);
        let refused = shown(&server, &good.roots(), &ann.certificate, &ann.key).unwrap_err();
        assert_eq!(refused.minor, minor::TLS_REFUSED, "{refused}");
    }

    #[test]
    fn crossed_chains_are_refused_at_no_cost() {
        let authority = Authority::new("plant");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = heard.clone();
        let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
        let tls = tls.on_refused(move |_, why| hear.lock().unwrap().push(why.to_owned()));
        let (server, _) = serve(tls, &["ssliop://127.0.0.1:0"]);
        let (chain, key) = authority::crossed("plant", 100);
        let refused = shown(&server, &authority.roots(), &chain, &key).unwrap_err();
        assert_eq!(refused.minor, minor::TLS_REFUSED, "{refused}");
        // The client may hear of it sooner.
        let until = Instant::now() + Duration::from_secs(20);
        while heard.lock().unwrap().is_empty() {
            assert!(Instant::now() < until, "the server reports nothing");
            std::thread::yield_now();
        }
        let heard = heard.lock().unwrap().clone();
        assert!(heard[0].contains("100 further certificates"), "{heard:?}");
    }

    #[test]
    fn a_callback_that_panics_ends_no_other_handshake() {
        let authority = Authority::new("plant");
        let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
        let (server, _) = serve(tls.on_refused(|_, _| panic!("as the test wants it")), &["ssliop://127.0.0.1:0"]);
        let (bad, good) = (Authority::new("elsewhere").papers(&["ann"]), authority.papers(&["ann"]));
        for _ in 0..5 {
            shown(&server, &authority.roots(), &bad.certificate, &bad.key).unwrap_err();
        }
        shown(&server, &authority.roots(), &good.certificate, &good.key).unwrap();
    }

    #[test]
    fn an_authority_with_a_new_key_under_the_same_name_is_another_one() {
        let (old, new) = (Authority::new("plant"), Authority::new("plant"));
        let server = strict(&new);
        let ann = old.papers(&["ann"]);
        for _ in 0..5 {
            let refused = shown(&server, &new.roots(), &ann.certificate, &ann.key).unwrap_err();
            assert_eq!(
                (refused.kind, refused.minor, refused.completed),
                (SystemKind::NoPermission, minor::TLS_REFUSED, Completed::No),
                "{refused}"
            );
        }
        let refused = shown(&server, &old.roots(), &ann.certificate, &ann.key).unwrap_err();
        assert_eq!(refused.minor, minor::TLS_UNKNOWN_CA, "{refused}");
    }
}

mod handshakes {
    use super::*;

    /// What a client raises that speaks TLS to this server of OpenSSL's; none if there is no openssl.
    fn raised_at(flags: &[&str]) -> Option<SystemException> {
        let at = std::env::temp_dir().join(format!("hyoshi-attacks-{}-{}", std::process::id(), flags.len()));
        std::fs::create_dir_all(&at).unwrap();
        let authority = Authority::new("plant");
        let address = unused_address();
        let own = authority.papers(&[&address.ip().to_string()]).file(&at, "yard.pem");
        let mut server = std::process::Command::new("openssl")
            .args(["s_server", "-quiet", "-accept", &address.to_string(), "-cert"])
            .arg(own)
            .args(flags)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .ok()?;
        while std::net::TcpStream::connect(address).is_err() {
            assert!(server.try_wait().unwrap().is_none(), "it does not serve");
            std::thread::yield_now();
        }
        let client = client(TlsClient::new(&authority.roots()));
        let address = format!("corbaloc:ssliop:1.2@{address}/Yard");
        let raised = client.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing().unwrap_err();
        server.kill().unwrap();
        server.wait().unwrap();
        std::fs::remove_dir_all(&at).unwrap();
        Some(raised)
    }

    #[test]
    fn a_server_with_no_common_cipher_or_version_is_not_one_that_refuses_the_certificate() {
        for flags in [
            &["-no_tls1_3", "-cipher", "AES128-SHA"][..],
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        ] {
            let Some(raised) = raised_at(flags) else { return println!("skipped: needs openssl") };
            assert_eq!(
                (raised.minor, raised.completed),
                (minor::TLS_INCOMPATIBLE, Completed::No),
                "{flags:?}: {raised}"
            );
        }
    }
}

mod transports {
    use super::*;

    #[test]
    fn rules_forbid_transports_by_address_at_both_ends() {
        let authority = Authority::new("plant");
        let tls = TlsServer::new(authority.papers(HERE).identity()).unwrap();
        let (orb, _) = serve(tls.clone(), &["iiop://127.0.0.1:0", "ssliop://127.0.0.1:0"]);
        let (plain, secure) = (port(&orb, false), port(&orb, true));
        let plain = format!("corbaloc:iiop:1.2@127.0.0.1:{plain}/Yard");
        let secure = format!("corbaloc:ssliop:1.2@127.0.0.1:{secure}/Yard");
        let called = |rules: &str, address: &str| {
            let builder = Orb::builder().client_transport(rules.parse().unwrap());
            let orb = builder.tls_client(TlsClient::new(&authority.roots())).unwrap().build().unwrap();
            orb.resolve_unchecked::<dyn Tracker>(address).unwrap().nothing().map_err(|raised| raised.minor)
        };
        assert_eq!(called("localhost ssl; * tcp", &plain), Err(minor::TRANSPORT_RULE));
        assert_eq!(called("localhost ssl; * tcp", &secure), Ok(()));
        assert_eq!(called("10.0.0.0/8 ssl,tcp", &secure), Err(minor::TRANSPORT_RULE));
        assert_eq!(called("127.0.0.0/8 tcp", &plain), Ok(()));

        let server = |rules: &str| {
            let builder = Orb::builder().tls_server(tls.clone()).server_transport(rules.parse().unwrap());
            let builder = builder.listen("iiop://127.0.0.1:0").unwrap().listen("ssliop://127.0.0.1:0").unwrap();
            let orb = builder.build().unwrap();
            let adapter = orb.adapter("yard").build().unwrap();
            orb.ready();
            let yard = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
            orb.publish("Yard", &yard).unwrap();
            orb
        };
        let orb = server("localhost ssl");
        let call = |address: String| called("", &address);
        assert!(call(format!("corbaloc:iiop:1.2@127.0.0.1:{}/Yard", port(&orb, false))).is_err());
        call(format!("corbaloc:ssliop:1.2@127.0.0.1:{}/Yard", port(&orb, true))).unwrap();
        let orb = server("* tcp");
        call(format!("corbaloc:iiop:1.2@127.0.0.1:{}/Yard", port(&orb, false))).unwrap();
        assert!(call(format!("corbaloc:ssliop:1.2@127.0.0.1:{}/Yard", port(&orb, true))).is_err());
    }

    #[test]
    fn an_orb_for_tls_alone_never_speaks_plain_tcp() {
        let authority = Authority::new("plant");
        let (plain, trapped) = plain_trap();
        let address = format!("corbaloc:iiop:1.2@127.0.0.1:{plain}/Yard");
        let with = Orb::builder().tls_client(TlsClient::new(&authority.roots())).unwrap();
        for builder in [Orb::builder(), with] {
            let orb = builder.tls_only().build().unwrap();
            let raised = orb.resolve_unchecked::<dyn Tracker>(&address).unwrap().nothing().unwrap_err();
            assert_eq!((raised.minor, trapped.load(Ordering::SeqCst)), (minor::TLS_NOT_SET_UP, 0), "{raised}");
        }
    }
}
