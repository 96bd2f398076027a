//! Events of a run at programs of Zenoh, in Python: they read and publish.

#[cfg(not(feature = "zenoh"))]
#[test]
fn a_file_with_a_gateway_needs_a_program_with_zenoh() {
    let place = crate::common::Place::new();
    place.write(
        "rover.toml",
        "name = 'rover'\n[host.rover.gateway]\nlisten = ['tcp/127.0.0.1:7460']\nevents = ['gps']\n[event.gps]\n\
         [operation.gps]\nevery = '10ms'\nwcet = '0.1ms'\nsupplies = ['gps']\n",
    );
    let ended = place.hyoshi("run rover.toml --no-report --duration 100ms").exits(2);
    assert!(
        ended.err.contains("host `rover` has a gateway") && ended.err.contains("--features zenoh"),
        "{}",
        ended.err
    );
    place.hyoshi("check rover.toml").exits(0);
}

#[cfg(feature = "zenoh")]
mod with_zenoh {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::sync::OnceLock;
    use std::sync::mpsc::TryRecvError;
    use std::thread;
    use std::time::{Duration, Instant};

    use serde_json::Value;

    use crate::authority::Authority;
    use crate::common::loopback::unused_address;
    use crate::common::programs::{PATIENCE, Program, build};
    use crate::common::{Ended, Place, alone};

    const PAGE: &str = include_str!("../../../docs/zenoh.md");

    /// Python with Zenoh; none where it cannot be installed.
    fn python() -> Option<PathBuf> {
        static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
        BUILT.get_or_init(|| build("zenoh").map(|directory| directory.join("venv/bin/python"))).clone()
    }

    /// The first block of a language in the page.
    fn block(language: &str) -> &'static str {
        let (_, after) = PAGE.split_once(&format!("```{language}\n")).unwrap();
        after.split_once("```").unwrap().0
    }

    /// The page's system at this endpoint.
    fn rover(address: &str) -> String {
        let text = block("toml").replace("127.0.0.1:7460", address);
        assert!(text.contains(address));
        text
    }

    fn run(place: &Place) -> Program {
        let words = "run rover.toml --duration 10min --no-report --control run.sock --format json";
        Program::start(place.command(words).stderr(Stdio::null()))
    }

    /// The program, connected: it prints a line. Zenoh's clients end if the gateway does not listen yet.
    fn connected(start: impl Fn() -> Command) -> (Program, String) {
        let began = Instant::now();
        loop {
            let program = Program::start(start().stderr(Stdio::null()));
            if let Ok(line) = program.lines.recv_timeout(PATIENCE) {
                return (program, line);
            }
            assert!(began.elapsed() < PATIENCE, "it does not connect");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the run has begun: publications before it are refused.
    fn begun(place: &Place) {
        let show = format!("node show --at unix:{} --format json", place.path().join("run.sock").display());
        let began = Instant::now();
        loop {
            let shown = place.hyoshi(&show);
            if shown.code == 0 && shown.json()["node"]["running_ns"].as_u64() > Some(0) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{}", shown.err);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(place: &Place, run: Program) -> Value {
        place.hyoshi(&format!("node stop --at unix:{}", place.path().join("run.sock").display())).exits(0);
        let (code, lines) = run.end();
        Ended { code: code.unwrap(), out: lines.join("\n"), err: String::new() }.json()
    }

    fn notes(summary: &Value) -> Vec<&str> {
        summary["notes"].as_array().unwrap().iter().filter_map(|note| note["text"].as_str()).collect()
    }

    #[test]
    fn the_page_s_program_publishes_and_reads_the_events_of_the_page_s_system() {
        let Some(python) = python() else { return };
        let _alone = alone();
        let (place, address) = (Place::new(), unused_address().to_string());
        // A machine that stalls may bring publications together.
        let text = rover(&address).replace("min_interval = \"10ms\"", "deadline     = \"10ms\"");
        assert!(!text.contains("min_interval"));
        place.write("rover.toml", text);
        place.write("program.py", block("python"));
        let run = run(&place);
        begun(&place);
        let (program, first) = connected(|| {
            let mut command = Command::new(&python);
            command.arg(place.path().join("program.py")).arg(format!("tcp/{address}"));
            command
        });
        let lines: Vec<String> = [first].into_iter().chain((0..20).map(|_| program.line())).collect();
        let of = |event: &str| -> Vec<&str> {
            let key = format!("hyoshi/rover/events/{event} ");
            lines.iter().filter_map(|line| line.strip_prefix(&key)).collect()
        };
        let (fixes, positions) = (of("sensor/gps"), of("position"));
        assert_eq!(fixes.len() + positions.len(), lines.len(), "{lines:#?}");
        for (payload, events) in [("'48.1N 11.5E': ", fixes), ("'': ", positions)] {
            assert!(events.len() >= 9, "{lines:#?}");
            let numbers = events.iter().map(|event| event.split_once(' ').unwrap());
            let numbers: Vec<u64> = numbers
                .map(|(number, rest)| {
                    assert!(rest.starts_with(payload) && rest.ends_with(" ms late"), "{rest}");
                    let age = rest[payload.len()..].split(' ').next().unwrap().parse::<f64>().unwrap();
                    assert!((0.0..10_000.0).contains(&age), "{rest}");
                    number.parse().unwrap()
                })
                .collect();
            assert!(numbers.is_sorted_by(|one, next| *next == one + 1), "{numbers:?}");
        }
        drop(program);
        let summary = stop(&place, run);
        let notes = notes(&summary);
        assert!(notes.iter().any(|note| note.starts_with("the gateway of host rover: ")), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("refused")), "{notes:?}");
    }

    /// Publishes, also wrongly, queries, and watches the node.
    const HOSTILE: &str = r#"
import queue, sys, time
import zenoh

config = zenoh.Config.from_json5('{ mode: "client", connect: { endpoints: ["%s"] } }' % sys.argv[1])
session = zenoh.open(config)
alive = session.liveliness().declare_subscriber(
    "hyoshi/rover/alive/*", lambda token: print(token.kind, token.key_expr, flush=True), history=True)
time.sleep(0.2)
gps = session.declare_publisher("hyoshi/rover/publish/sensor/gps")
other = session.declare_publisher("hyoshi/rover/publish/position")
while not gps.matching_status.matching:
    time.sleep(0.01)
print("matching", gps.matching_status.matching, other.matching_status.matching, flush=True)
seen = queue.Queue()
subscriber = session.declare_subscriber("hyoshi/rover/events/sensor/gps", seen.put)
for number in range(5):
    gps.put(f"fix {number}", attachment=b"of another program")
    try:
        seen.get(timeout=5)
    except queue.Empty:
        pass
    time.sleep(0.05)
gps.put("x" * 65)
gps.put("x" * 200_000)
gps.delete()
other.put("not published by programs")
session.put("hyoshi/rover/publish/unknown", "")
session.put("hyoshi/rover/events/sensor/gps", "forged")
time.sleep(0.2)
for consolidation in [zenoh.ConsolidationMode.AUTO, zenoh.ConsolidationMode.NONE]:
    replies = session.get("hyoshi/rover/events/sensor/gps", consolidation=consolidation)
    print([reply.ok.payload.to_string() for reply in replies], flush=True)
print(len(list(session.get("hyoshi/rover/events/position"))), flush=True)
for number in range(500):
    gps.put("flood")
time.sleep(1)
print("published", flush=True)
while True:
    time.sleep(1)
"#;

    #[test]
    fn programs_see_the_loss_of_a_node_and_their_wrong_publications_are_counted() {
        let Some(python) = python() else { return };
        let _alone = alone();
        let (place, address) = (Place::new(), unused_address().to_string());
        place.write("rover.toml", rover(&address));
        let run_one = run(&place);
        begun(&place);
        let start = || {
            let mut command = Command::new(&python);
            command.args(["-c", HOSTILE]).arg(format!("tcp/{address}"));
            command
        };
        let (program, first) = connected(start);
        assert_eq!(first, "SampleKind.PUT hyoshi/rover/alive/rover");
        assert_eq!(program.line(), "matching True False");
        assert_eq!(program.line(), "['fix 4']");
        assert_eq!(program.line(), "['fix 2', 'fix 3', 'fix 4']");
        assert_eq!(program.line(), "0");
        assert_eq!(program.line(), "published");
        let summary = stop(&place, run_one);
        assert_eq!(program.line(), "SampleKind.DELETE hyoshi/rover/alive/rover");
        let all = notes(&summary);
        let refused = all.iter().find(|note| note.starts_with("event sensor/gps: "));
        let refused = refused.unwrap_or_else(|| panic!("{all:?}"));
        assert!(refused.contains("refused: 1 deletions, 2 longer than `payload`, "), "{refused}");
        assert!(refused.contains(" of 508 publications"), "{refused}");
        assert!(refused.ends_with("faster than `min_interval`"), "{refused}");
        drop(program);

        // A node that is killed.
        let mut run_two = run(&place);
        let (program, first) = connected(start);
        assert_eq!(first, "SampleKind.PUT hyoshi/rover/alive/rover");
        run_two.child.kill().unwrap();
        while program.line() != "SampleKind.DELETE hyoshi/rover/alive/rover" {}
    }

    /// A router that begins late, with a subscriber.
    const ROUTER: &str = r#"
import sys, time
import zenoh

config = zenoh.Config.from_json5('{ mode: "router", listen: { endpoints: ["%s"] }, scouting: { multicast: { enabled: false } } }' % sys.argv[1])
session = zenoh.open(config)
subscriber = session.declare_subscriber("hyoshi/rover/events/position", lambda sample: print("position", flush=True))
while True:
    session.put("hyoshi/rover/publish/sensor/gps", "48.1N 11.5E")
    time.sleep(0.1)
"#;

    #[test]
    fn a_run_begins_without_its_router_and_connects_to_it_later() {
        let Some(python) = python() else { return };
        let _alone = alone();
        for mode in ["peer", "client"] {
            let (place, address) = (Place::new(), unused_address().to_string());
            let listen = format!("listen  = [\"tcp/{address}\"]");
            let text = rover(&address).replace(&listen, &format!("connect = [\"tcp/{address}\"]\nmode = \"{mode}\""));
            assert!(text.contains("connect"));
            place.write("rover.toml", text);
            let words = "run rover.toml --duration 10min --no-report --control run.sock --format json";
            let mut command = place.command(words);
            let log = std::fs::File::create(place.path().join("run.log")).unwrap();
            let run = Program::start(command.stderr(log));
            let printed = |what: &str| {
                let began = Instant::now();
                while !place.read("run.log").contains(what) {
                    assert!(began.elapsed() < PATIENCE, "{mode}: {}", place.read("run.log"));
                    thread::sleep(Duration::from_millis(20));
                }
            };
            printed("the gateway of host rover is not connected to a router or peer; it retries");
            let start = || {
                let mut router = Command::new(&python);
                router.args(["-c", ROUTER]).arg(format!("tcp/{address}"));
                router
            };
            let (router, first) = connected(start);
            assert_eq!(first, "position");
            printed("the gateway of host rover is connected");
            // It is lost, and returns.
            drop(router);
            let (router, first) = connected(start);
            assert_eq!(first, "position");
            drop(router);
            let summary = stop(&place, run);
            assert!(notes(&summary).iter().any(|note| note.starts_with("the gateway of host rover: ")), "{summary}");
        }
    }

    /// Publishes and reads over TLS.
    const OVER_TLS: &str = r#"
import sys, time
import zenoh

endpoint, own, roots = sys.argv[1:]
config = zenoh.Config.from_json5("""{
    mode: "client", connect: { endpoints: ["%s"] }, transport: { link: { tls: {
        enable_mtls: true, root_ca_certificate: "%s", connect_certificate: "%s", connect_private_key: "%s",
        verify_name_on_connect: false,
    } } } }""" % (endpoint, roots, own, own))
session = zenoh.open(config)
subscriber = session.declare_subscriber(
    "hyoshi/rover/events/sensor/gps", lambda sample: print(sample.payload.to_string(), flush=True))
while True:
    session.put("hyoshi/rover/publish/sensor/gps", "48.1N")
    time.sleep(0.1)
"#;

    #[test]
    fn over_tls_a_program_needs_a_certificate_that_the_file_names() {
        let Some(python) = python() else { return };
        let _alone = alone();
        let (place, gateway, node) = (Place::new(), unused_address().to_string(), unused_address());
        let listen = format!("listen  = [\"tls/{gateway}\"]\nreaders = [\"pilot\"]\npublishers = [\"pilot\"]");
        let text = rover(&gateway).replace(&format!("listen  = [\"tcp/{gateway}\"]"), &listen);
        let text = text + &format!("\n[host.rover]\nendpoints = [\"tls/{node}\"]\n");
        place.write("rover.toml", text);
        let plant = Authority::new("plant");
        plant.file(place.path());
        for name in ["rover", "pilot", "guest"] {
            let papers = plant.papers_with(&[name], |params| {
                params.distinguished_name = rcgen::DistinguishedName::new();
                params.distinguished_name.push(rcgen::DnType::CommonName, name);
            });
            let file = papers.file(place.path(), &format!("{name}.pem"));
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let ended = place.hyoshi("run rover.toml --no-report --duration 100ms").exits(2);
        assert!(ended.err.contains("the gateway of host `rover` needs a certificate"), "{}", ended.err);
        let words = format!(
            "run rover.toml --host rover --wait 0s --tls-cert rover.pem --tls-roots authority.pem --duration 10min \
             --no-report --control {}/run.sock --format json",
            place.path().display()
        );
        let run = Program::start(place.command(&words).stderr(Stdio::null()));
        let start = |name: &str| {
            let mut command = Command::new(&python);
            let path = |file: &str| place.path().join(file);
            command.args(["-c", OVER_TLS]).arg(format!("tls/{gateway}"));
            command.arg(path(&format!("{name}.pem"))).arg(path("authority.pem"));
            command
        };
        let (pilot, first) = connected(|| start("pilot"));
        assert_eq!(first, "48.1N");
        let guest = Program::start(start("guest").stderr(Stdio::null()));
        // It neither reads nor publishes, though the pilot does.
        let many: Vec<String> = (0..20).map(|_| pilot.line()).collect();
        assert!(many.iter().all(|line| line == "48.1N"));
        assert!(guest.lines.try_recv().is_err_and(|error| error == TryRecvError::Empty), "it runs, and reads nothing");
        drop((pilot, guest));
        stop(&place, run);
    }

    #[test]
    fn an_endpoint_that_is_in_use_ends_the_run_before_it_begins() {
        let (place, taken) = (Place::new(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let address = taken.local_addr().unwrap().to_string();
        place.write("rover.toml", rover(&address));
        let ended = place.hyoshi("run rover.toml --no-report --duration 100ms").exits(2);
        assert!(
            ended.err.contains(&format!("the gateway of host `rover` cannot listen at tcp/{address}")),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("help: is a run of this system running already?"), "{}", ended.err);
    }
}
