//! `hyoshi naming` and `hyoshi call` over TLS, with certificates that each test makes.
//!
//! `tests/golden/tls.txt` holds what is refused, word by word. After a change of wording: `BLESS=1 cargo test -p hyoshi
//! --test tls`, then read the diff by eye.

use crate::authority;
use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use authority::{Authority, Papers};
use common::Place;
use common::said::Said;

/// A naming service that ends with the test.
struct Service {
    child: Child,
    port: u16,
}

impl Service {
    fn start(place: &Place, words: &str) -> Service {
        let mut command = place.command(&format!("naming --memory {words}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let at = Said::by(child.stdout.take().unwrap()).line().unwrap_or_default();
        let port = at.strip_suffix("/NameService").and_then(|at| at.rsplit_once(':')?.1.parse().ok());
        Service { child, port: port.unwrap_or_else(|| panic!("it does not serve: {at}")) }
    }

    fn over_tls(place: &Place, words: &str) -> Service {
        Service::start(place, &format!("--listen ssliop://127.0.0.1:0 --tls-cert yard.pem --tls-key yard.key {words}"))
    }

    fn at(&self) -> String {
        format!("corbaloc:ssliop:1.2@127.0.0.1:{}/NameService", self.port)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `NAME.pem` and `NAME.key`.
fn write(place: &Place, name: &str, papers: &Papers) {
    place.write(&format!("{name}.pem"), &papers.certificate);
    place.write(&format!("{name}.key"), &papers.key);
    own(place, &format!("{name}.key"));
}

/// Only its owner can use the file.
fn own(place: &Place, name: &str) {
    fs::set_permissions(place.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// The plant's authority, a server and an operator with its papers, and a stranger's of another authority.
fn plant() -> Place {
    let place = Place::new();
    let (plant, elsewhere) = (Authority::new("plant"), Authority::new("elsewhere"));
    place.write("plant.pem", &plant.pem);
    place.write("elsewhere.pem", &elsewhere.pem);
    write(&place, "yard", &plant.papers(&["127.0.0.1", "localhost"]));
    write(&place, "named", &plant.papers(&["yard.plant"]));
    write(&place, "operator", &plant.papers(&["operator"]));
    write(&place, "stranger", &elsewhere.papers(&["stranger"]));
    place
}

#[test]
fn names_are_served_and_objects_called_over_tls_by_clients_that_show_a_certificate() {
    let place = plant();
    let service = Service::over_tls(&place, "--tls-clients plant.pem");
    let at = service.at();
    let operator = "--tls-roots plant.pem --tls-cert operator.pem --tls-key operator.key";
    let ask = |words: &str| place.hyoshi(&format!("naming {words} --at {at} {operator}")).exits(0).out;
    ask(&format!("bind --contexts plant/names {at}"));
    assert_eq!(ask("list --recursive"), "plant/\nplant/names\n");
    assert!(ask("resolve plant/names").starts_with("IOR:"));
    // The context found by its name, and the way to it, over TLS both.
    let named = format!("corbaname:ssliop:1.2@127.0.0.1:{}#plant/names", service.port);
    let gone = place.hyoshi(&format!("call {named} _non_existent {operator}")).exits(0);
    assert_eq!(gone.out, "false\n");

    // Certificate and key in one file.
    place.write("both.pem", place.read("operator.key") + &place.read("operator.pem"));
    own(&place, "both.pem");
    place.hyoshi(&format!("call {at} _non_existent --tls-roots plant.pem --tls-cert both.pem")).exits(0);
}

#[test]
fn a_service_asks_another_over_tls() {
    let place = plant();
    let inner = Service::over_tls(&place, "--tls-clients plant.pem");
    let outer = Service::over_tls(&place, "--tls-roots plant.pem");
    let both = "--tls-roots plant.pem --tls-cert operator.pem --tls-key operator.key";
    let ask = |at: &str, words: &str| place.hyoshi(&format!("naming {words} --at {at} {both}")).exits(0).out;
    ask(&outer.at(), &format!("bind --as-context inner {}", inner.at()));
    ask(&inner.at(), "context leaf");
    assert!(ask(&outer.at(), "resolve inner/leaf").starts_with("IOR:"));
}

/// Its standard error goes to a file of the place.
fn service(place: &Place, words: &str) -> Service {
    let mut command = place.command(&format!("naming --memory {words}"));
    command.stderr(fs::File::create(place.path().join("service.err")).unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let at = Said::by(child.stdout.take().unwrap()).line().unwrap_or_default();
    let port = at.strip_suffix("/NameService").and_then(|at| at.rsplit_once(':')?.1.parse().ok());
    Service { child, port: port.unwrap_or_else(|| panic!("it does not serve: {at}")) }
}

impl Service {
    /// SIGHUP; returns what it says of that.
    fn hang_up(&self, place: &Place) -> String {
        let before = place.read("service.err").len();
        Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        let said = || place.read("service.err")[before..].to_owned();
        let until = Instant::now() + Duration::from_secs(20);
        while !said().ends_with('\n') {
            assert!(Instant::now() < until, "it says nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
        said()
    }
}

#[test]
fn sighup_makes_a_service_read_its_files_again_and_keep_the_old_ones_if_they_are_bad() {
    let place = plant();
    let service =
        service(&place, "--listen ssliop://127.0.0.1:0 --tls-cert yard.pem --tls-key yard.key --tls-clients plant.pem");
    let at = service.at();
    let lists = |roots: &str, who: &str, code: i32| {
        let flags = format!("--tls-roots {roots} --tls-cert {who}.pem --tls-key {who}.key");
        place.hyoshi(&format!("naming list --at {at} {flags}")).exits(code);
    };
    lists("plant.pem", "operator", 0);
    // A key that is none: everything stays.
    let (certificate, key) = (place.read("yard.pem"), place.read("yard.key"));
    place.write("yard.key", &key[..key.len() / 2]);
    let said = service.hang_up(&place);
    assert!(said.starts_with("hyoshi naming: SIGHUP: old files kept: yard.key: no private key"), "{said}");
    lists("plant.pem", "operator", 0);
    // One of another certificate; one that has expired.
    place.write("yard.key", place.read("operator.key"));
    assert!(service.hang_up(&place).contains("the private key does not match the certificate"));
    let old = Authority::new("plant");
    let expired = old.papers_with(&["127.0.0.1"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    write(&place, "yard", &expired);
    assert!(service.hang_up(&place).contains("expired"));
    lists("plant.pem", "operator", 0);
    // Another authority, and a certificate from it.
    let new = Authority::new("new");
    place.write("new.pem", &new.pem);
    place.write("plant.pem", &new.pem);
    write(&place, "yard", &new.papers(&["127.0.0.1"]));
    write(&place, "ann", &new.papers(&["ann"]));
    assert!(service.hang_up(&place).contains("were read again"));
    lists("new.pem", "ann", 0);
    lists("new.pem", "operator", 2);
    assert_ne!(certificate, place.read("yard.pem"));
}

#[test]
fn one_bad_file_keeps_all_old_ones_and_a_certificate_without_names_is_warned_about() {
    let (place, plant) = (Place::new(), Authority::new("plant"));
    place.write("plant.pem", &plant.pem);
    place.write("roots.pem", &plant.pem);
    write(&place, "yard", &plant.papers(&["127.0.0.1"]));
    write(&place, "operator", &plant.papers(&["operator"]));
    let words = "--listen ssliop://127.0.0.1:0 --tls-cert yard.pem --tls-key yard.key --tls-clients plant.pem";
    let service = service(&place, &format!("{words} --tls-roots roots.pem"));
    let lists = |code: i32| {
        let flags = "--tls-roots plant.pem --tls-cert operator.pem --tls-key operator.key --tls-name named.plant";
        place.hyoshi(&format!("naming list --at {} {flags}", service.at())).exits(code);
    };
    // A good certificate for the server; what it trusts as a client is broken.
    place.write("roots.pem", "");
    write(&place, "yard", &plant.papers(&["named.plant"]));
    let said = service.hang_up(&place);
    assert!(said.starts_with("hyoshi naming: SIGHUP: old files kept: roots.pem: no certificate"), "{said}");
    lists(2);
    place.write("roots.pem", &plant.pem);
    assert!(service.hang_up(&place).contains("were read again"));
    lists(0);
    write(&place, "yard", &plant.papers(&[]));
    service.hang_up(&place);
    let until = Instant::now() + Duration::from_secs(20);
    while !place.read("service.err").contains("hyoshi naming: the certificate of \"yard\" names no host") {
        assert!(Instant::now() < until, "{}", place.read("service.err"));
        std::thread::sleep(Duration::from_millis(10));
    }
    lists(2);
}

#[test]
fn sighup_does_not_end_a_service_without_certificates() {
    let place = Place::new();
    let service = service(&place, "--listen iiop://127.0.0.1:0");
    assert!(service.hang_up(&place).contains("there is nothing to read again"));
    place.hyoshi(&format!("naming list --at corbaloc:iiop:1.2@127.0.0.1:{}/NameService", service.port)).exits(0);
}

/// What is refused, and in which words.
#[test]
fn refusals_of_tls_say_what_is_wrong_and_what_to_do() {
    let place = plant();
    let any = Service::over_tls(&place, "");
    let strict = Service::over_tls(&place, "--tls-clients plant.pem");
    let named = Service::start(&place, "--listen ssliop://127.0.0.1:0 --tls-cert named.pem --tls-key named.key");
    let plain = Service::start(&place, "--listen iiop://127.0.0.1:0");
    let ports = [("ANY", &any), ("STRICT", &strict), ("NAMED", &named), ("PLAIN", &plain)];
    place.write("empty.pem", "");
    let mut said = String::new();
    let mut tell = |words: &str, code: i32| {
        let asked = ports.iter().fold(words.to_owned(), |words, (name, service)| {
            words.replace(&format!("@{name}/"), &format!("@127.0.0.1:{}/", service.port))
        });
        let ended = place.hyoshi(&asked).exits(code);
        let text = format!("{}{}", ended.out, ended.err).replace(&place.path().display().to_string(), "PLACE");
        let text =
            ports.iter().fold(text, |text, (name, service)| text.replace(&format!("127.0.0.1:{}", service.port), name));
        let _ = write!(said, "$ hyoshi {words}\n{text}\n");
    };
    let call =
        |server: &str, flags: &str| format!("call corbaloc:ssliop:1.2@{server}/NameService _non_existent {flags}");
    tell(&call("ANY", ""), 1);
    tell(&call("ANY", "--tls-roots elsewhere.pem"), 1);
    tell(&call("ANY", "--tls-roots missing.pem"), 2);
    tell(&call("ANY", "--tls-roots empty.pem"), 2);
    tell(&call("ANY", "--tls-cert operator.pem"), 2);
    tell(&call("STRICT", "--tls-roots plant.pem"), 1);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert stranger.pem --tls-key stranger.key"), 1);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert operator.pem"), 2);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert operator.pem --tls-key yard.key"), 2);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert operator.key --tls-key operator.pem"), 2);
    let key = place.read("operator.key");
    place.write("encrypted.key", key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    place.write("cut.key", &key[..key.len() / 2]);
    place.write("joined.key", key.replace('\n', " "));
    place.write("open.key", &key);
    for broken in ["encrypted", "cut", "joined"] {
        tell(&call("STRICT", &format!("--tls-roots plant.pem --tls-cert operator.pem --tls-key {broken}.key")), 2);
    }
    tell(&call("STRICT", "--tls-roots operator.key"), 2);
    tell(&call("STRICT", "--tls-roots operator.pem"), 2);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert operator.pem --tls-key open.key"), 0);
    tell(&call("STRICT", "--tls-roots plant.pem --tls-cert operator.pem --tls-key open.key --strict"), 2);
    tell(&call("PLAIN", "--tls-roots plant.pem --tls-only").replace("ssliop", "iiop"), 1);
    tell(&call("NAMED", "--tls-roots plant.pem"), 1);
    tell(&call("NAMED", "--tls-roots plant.pem --tls-name yard.plant"), 0);
    tell(&call("NAMED", "--tls-roots plant.pem --tls-name no/name"), 2);
    tell(&call("PLAIN", "--tls-roots plant.pem"), 1);
    tell("call corbaloc:iiop:1.2@ANY/NameService _non_existent", 1);
    tell("naming list --at corbaloc:ssliop:1.2@STRICT/NameService --tls-roots plant.pem", 2);
    tell("naming list --at corbaloc:ssliop:1.2@ANY/NameService", 2);
    tell("naming --memory --listen ssliop://127.0.0.1:0", 2);
    tell("naming --memory --listen ssliop://127.0.0.1:0 --tls-cert yard.pem --tls-key operator.key", 2);
    tell("naming --memory --listen ssliop://127.0.0.1:0 --tls-cert yard.pem", 2);
    tell("naming --memory --listen iiop://127.0.0.1:0 --tls-cert yard.pem --tls-key yard.key", 2);
    tell("naming --memory --listen iiop://127.0.0.1:0 --tls-clients plant.pem", 2);
    tell("naming --tls-roots plant.pem list", 2);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tls.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    assert_eq!(said, fs::read_to_string(&golden).unwrap_or_default(), "BLESS=1 takes the new words");
}
