//! Certificates, keys, authorities and lists of revoked certificates that are reloaded while a server runs, and the
//! copies of a key in memory.

#[path = "common/authority.rs"]
mod authority;
#[path = "common/tracking.rs"]
mod tracking;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use authority::{Authority, Papers};
use hyoshi_model::Span;
use hyoshi_orb::*;
use tracking::{Tracker, TrackerStub, Yard};

const HERE: &[&str] = &["127.0.0.1"];

fn serve(tls: &TlsServer) -> (Orb, TrackerStub) {
    let limits = ServerLimits { renewal: Span::from_millis(300), ..ServerLimits::default() };
    let orb = Orb::builder().tls_server(tls.clone()).server_limits(limits).listen("ssliop://127.0.0.1:0").unwrap();
    let orb = orb.build().unwrap();
    let yard = orb.adapter("yard").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.ready();
    (orb, yard)
}

/// A client, and the server's object as it sees it. One connection, so that it is known which one is closed.
fn client(yard: &TrackerStub, roots: &TlsRoots, papers: &Papers) -> (Orb, TrackerStub) {
    let tls = TlsClient::new(roots).identity(papers.identity());
    let orb = Orb::builder().tls_client(tls).unwrap().build().unwrap();
    let stub = orb.stub::<dyn Tracker>(yard.ior().clone());
    (orb, stub)
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_takes_new_certificates_and_authorities_and_keeps_its_connections() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let tls = TlsServer::for_clients_of(old.papers(HERE).identity(), &old.roots()).unwrap();
    let (_server, yard) = serve(&tls);
    let ann = old.papers(&["ann"]);
    let (_before, before) = client(&yard, &old.roots(), &ann);
    before.nothing().unwrap();
    tls.renew(&TlsServer::for_clients_of(new.papers(HERE).identity(), &new.roots()).unwrap()).unwrap();
    before.nothing().unwrap();
    let (_stale, stale) = client(&yard, &old.roots(), &ann);
    assert_eq!(stale.nothing().unwrap_err().minor, minor::TLS_UNKNOWN_CA);
    let (_fresh, fresh) = client(&yard, &new.roots(), &new.papers(&["ann"]));
    fresh.nothing().unwrap();
    // Whether clients must show a certificate is what references say.
    assert!(tls.renew(&TlsServer::new(new.papers(HERE).identity()).unwrap()).is_err());
    fresh.nothing().unwrap();
}

#[test]
fn a_client_takes_new_authorities() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let tls = TlsClient::new(&old.roots());
    let orb = Orb::builder().tls_client(tls.clone()).unwrap().build().unwrap();
    let (_server, yard) = serve(&TlsServer::new(new.papers(HERE).identity()).unwrap());
    let yard = orb.stub::<dyn Tracker>(yard.ior().clone());
    assert_eq!(yard.nothing().unwrap_err().minor, minor::TLS_UNKNOWN_CA);
    // Another ORB with the same settings is renewed, too; one with a certificate besides is not.
    let [second, third] = [tls.clone(), tls.clone().identity(old.papers(&["ann"]).identity())]
        .map(|tls| Orb::builder().tls_client(tls).unwrap().build().unwrap());
    tls.renew(&TlsClient::new(&new.roots())).unwrap();
    yard.nothing().unwrap();
    second.stub::<dyn Tracker>(yard.ior().clone()).nothing().unwrap();
    let raised = third.stub::<dyn Tracker>(yard.ior().clone()).nothing().unwrap_err();
    assert_eq!(raised.minor, minor::TLS_UNKNOWN_CA);
}

#[test]
fn a_revoked_certificate_is_refused_and_its_connection_closed_at_the_next_renewal() {
    let authority = Authority::new("plant");
    let own = authority.papers(HERE).identity();
    let tls = TlsServer::for_clients_of(own.clone(), &authority.roots()).unwrap();
    let (_server, yard) = serve(&tls);
    let (ann, ben) = (authority.papers(&["ann"]), authority.papers(&["ben"]));
    let (_ann, as_ann) = client(&yard, &authority.roots(), &ann);
    let (_ben, as_ben) = client(&yard, &authority.roots(), &ben);
    as_ann.nothing().unwrap();
    as_ben.nothing().unwrap();
    let revoking = authority.pem.clone() + &authority.revokes(&[&ann.serial]);
    let roots = TlsRoots::from_pem(revoking.as_bytes()).unwrap();
    tls.renew(&TlsServer::for_clients_of(own, &roots).unwrap()).unwrap();
    // The old connection is closed; a new one is refused.
    wait_for("her connection is closed", || as_ann.nothing().is_err());
    assert_eq!(as_ann.nothing().unwrap_err().minor, minor::TLS_REFUSED);
    as_ben.nothing().unwrap();
    let (_again, again) = client(&yard, &authority.roots(), &ben);
    again.nothing().unwrap();
}

#[test]
fn a_revoked_server_is_not_spoken_to() {
    let authority = Authority::new("plant");
    let own = authority.papers(HERE);
    let (_server, yard) = serve(&TlsServer::new(own.identity()).unwrap());
    let roots = authority.pem.clone() + &authority.revokes(&[&own.serial]);
    let tls = TlsClient::new(&TlsRoots::from_pem(roots.as_bytes()).unwrap());
    let orb = Orb::builder().tls_client(tls).unwrap().build().unwrap();
    let raised = orb.stub::<dyn Tracker>(yard.ior().clone()).nothing().unwrap_err();
    assert_eq!(raised.minor, minor::TLS_CERTIFICATE, "{raised}");
    let broken = authority.pem.clone() + "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let refused = TlsRoots::from_pem(broken.as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("list of revoked certificates"), "{refused}");
}

#[test]
fn a_connection_whose_clients_certificate_expires_is_closed_at_the_next_renewal() {
    let authority = Authority::new("plant");
    let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
    let (_server, yard) = serve(&tls);
    let soon = SystemTime::now() + Duration::from_secs(4);
    let ann = authority.papers_with(&["ann"], |params| params.not_after = soon.into());
    let (_ann, as_ann) = client(&yard, &authority.roots(), &ann);
    let (_ben, as_ben) = client(&yard, &authority.roots(), &authority.papers(&["ben"]));
    as_ann.nothing().unwrap();
    as_ben.nothing().unwrap();
    wait_for("her connection is closed", || as_ann.nothing().is_err());
    assert!(SystemTime::now() >= soon);
    assert_eq!(as_ann.nothing().unwrap_err().minor, minor::TLS_REFUSED);
    as_ben.nothing().unwrap();
}

/// A directory that ends with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let at = std::env::temp_dir().join(format!("hyoshi-renew-{name}-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        Place(at)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_will_go_wrong_is_warned_about() {
    let authority = Authority::new("plant");
    let place = Place::new("warned");
    let warnings = |papers: &Papers, mode| {
        let certificate = place.write("yard.pem", &papers.certificate, 0o644);
        let key = place.write("yard.key", &papers.key, mode);
        let own = TlsIdentity::from_files(certificate, key).unwrap();
        let said: Vec<String> = TlsServer::new(own).unwrap().warnings().iter().map(ToString::to_string).collect();
        said.join("\n").replace(&place.0.display().to_string(), "PLACE")
    };
    let days = |days: u64| {
        move |params: &mut rcgen::CertificateParams| {
            params.not_after = (SystemTime::now() + Duration::from_secs(days * 86_400 + 3600)).into();
        }
    };
    let good = authority.papers(HERE);
    assert_eq!(warnings(&good, 0o600), "");
    assert_eq!(warnings(&good, 0o644), "other users can use the private key in PLACE/yard.key (mode 0644)");
    assert_eq!(warnings(&authority.papers_with(HERE, days(31)), 0o600), "");
    assert_eq!(
        warnings(&authority.papers_with(HERE, days(29)), 0o600),
        "the certificate of \"yard\" expires in 29 days"
    );
    let old = authority.papers_with(HERE, |params| {
        params.not_after = (SystemTime::now() - Duration::from_secs(86_400 + 60)).into();
    });
    assert_eq!(warnings(&old, 0o600), "the certificate of \"yard\" expired 1 day ago; peers refuse it");
    let nameless = authority.papers(&[]);
    assert_eq!(warnings(&nameless, 0o600), "the certificate of \"yard\" names no host; clients refuse it");
}

/// Where in this process' memory a pattern is that a core dump would have; each octet of it is written there xor 0x5a. Ranges
/// that the kernel does not dump (`dd`) are left out.
fn dumped(masked: &[u8]) -> Vec<String> {
    use std::os::unix::fs::FileExt;
    let memory = fs::File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = Vec::new();
    let mut range = None;
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first
            .split_once('-')
            .and_then(|(from, to)| Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?)))
        {
            range = Some((from, to, line.to_owned()));
        }
        let Some(flags) = line.strip_prefix("VmFlags:") else { continue };
        let Some((from, to, named)) = range.take() else { continue };
        if flags.split_whitespace().any(|flag| flag == "dd") || !flags.contains("rd") || named.contains("[v") {
            continue;
        }
        let mut chunk = vec![0u8; 1 << 16];
        for at in (from..to).step_by(1 << 16) {
            let length = chunk.len().min((to - at) as usize);
            if memory.read_exact_at(&mut chunk[..length], at).is_err() {
                continue;
            }
            let matches = |window: &[u8]| window.iter().zip(masked).all(|(octet, mask)| octet ^ 0x5a == *mask);
            // The chunk itself is memory, too: it is not looked at in itself.
            let own = chunk.as_ptr() as u64;
            let here = chunk[..length].windows(masked.len()).position(matches).map(|index| at + index as u64);
            if let Some(here) = here.filter(|here| !(own..own + (1 << 16)).contains(here)) {
                found.push(format!("{here:x} in {named}"));
            }
        }
        chunk.fill(0);
    }
    found
}

/// In a process of its own (this test, again), where nothing else has made keys.
#[test]
fn a_private_key_is_in_no_memory_that_a_core_dump_has() {
    if std::env::var_os("HYOSHI_TEST_KEY").is_none() {
        let place = Place::new("dump");
        let (key, certificate) = (place.0.join("yard.key"), place.0.join("yard.pem"));
        let made = std::process::Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                "/CN=yard",
            ])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output();
        let Ok(made) = made else { return println!("skipped: needs openssl") };
        assert!(made.status.success());
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_private_key_is_in_no_memory_that_a_core_dump_has", "--exact", "--nocapture", "--test-threads=1"])
            .env("HYOSHI_TEST_KEY", &place.0)
            .output()
            .unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        assert!(String::from_utf8_lossy(&again.stdout).contains("looked at the memory"));
        return;
    }
    let at = PathBuf::from(std::env::var_os("HYOSHI_TEST_KEY").unwrap());
    let identity = TlsIdentity::from_files(at.join("yard.pem"), at.join("yard.key")).unwrap();
    // Used, too: both sides of a handshake.
    let tls = TlsServer::new(identity).unwrap();
    let (server, yard) = serve(&tls);
    let roots = TlsRoots::from_file(at.join("yard.pem")).unwrap();
    let orb = Orb::builder().tls_client(TlsClient::new(&roots)).unwrap().build().unwrap();
    let _ = orb.stub::<dyn Tracker>(yard.ior().clone()).nothing();
    // The private number, from `priv:` on, in hexadecimal: octets are kept masked, in both orders.
    let mut shown = std::process::Command::new("openssl")
        .args(["pkey", "-noout", "-text", "-in"])
        .arg(at.join("yard.key"))
        .output()
        .unwrap()
        .stdout;
    let from = shown.windows(5).position(|five| five == b"priv:").unwrap() + 5;
    let to = shown.windows(4).position(|four| four == b"pub:").unwrap();
    let digits: Vec<u8> = shown[from..to].iter().copied().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    let mut masked: Vec<u8> = digits.chunks(2).map(|two| (digit(two[0]) << 4 | digit(two[1])) ^ 0x5a).collect();
    shown.fill(0);
    let big_end_first = masked.split_off(masked.len() - 32);
    let little_end_first: Vec<u8> = big_end_first.iter().rev().copied().collect();
    // The search finds what is there.
    let planted: Vec<u8> = (0..32u8).map(|at| at.wrapping_mul(151).wrapping_add(3)).collect();
    let pattern: Vec<u8> = planted.iter().map(|octet| octet ^ 0x5a).collect();
    assert!(!dumped(&pattern).is_empty(), "{planted:?}");
    let found = [dumped(&big_end_first), dumped(&little_end_first)].concat();
    assert!(found.is_empty(), "{found:#?}");
    println!("looked at the memory");
    server.shutdown();
}
