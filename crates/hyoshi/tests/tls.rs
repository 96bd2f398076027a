//! `hyoshi naming` and `hyoshi call` over TLS, with certificates that each test makes.
//!
//! `tests/golden/tls.txt` holds what is refused, word by word. After a change of wording: `BLESS=1 cargo test -p hyoshi
//! --test tls`, then read the diff by eye.

use crate::authority;
use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

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
