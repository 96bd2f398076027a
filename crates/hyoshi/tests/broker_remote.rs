//! Brokers that serve other machines, several directed from one place, and programs that report: as processes.
//!
//! `tests/golden/broker_remote.txt` holds what is refused, word by word. After a change of wording: `BLESS=1 cargo test -p
//! hyoshi --test suite broker_remote::`, then read the diff by eye.

use crate::authority;
use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use authority::{Authority, Papers};
use common::said::Said;
use common::{Ended, Place, broker};
use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::BrokerClient;
use hyoshi_broker::idl::cpu_broker::{Broker as _, CycleReport, Task as _};
use hyoshi_model::Span;
use hyoshi_naming::Naming;
use hyoshi_orb::{Object, Orb};
use hyoshi_os::meter::Meter;
use hyoshi_os::process::Process;
use hyoshi_wire::ior::Corbaloc;
use serde_json::Value;

/// A process that ends with the test, and what it says.
struct Running(Child, Said);

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let out = Said::by(child.stdout.take().unwrap());
        Running(child, out)
    }

    /// The rest of the first line that begins so.
    fn says(&self, begin: &str) -> String {
        self.1.after(begin)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended as the test wanted it to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker at `NAME/broker.sock` of the place.
struct Broker {
    running: broker::Broker,
    socket: PathBuf,
    /// Where it serves other machines; empty if it does not.
    at: String,
}

impl Broker {
    fn start(place: &Place, name: &str, words: &str) -> Broker {
        let socket = place.path().join(name).join("broker.sock");
        let scheduler = if words.contains("--scheduler") { "" } else { "--scheduler none" };
        let mut command = place.command(&format!("broker {scheduler} {words} --socket"));
        command.stderr(fs::File::create(place.path().join(format!("{name}.err"))).unwrap());
        let mut running = broker::Broker::of(command.arg(&socket));
        let at = if words.contains("--listen") { running.says("           ") } else { String::new() };
        Broker { running, socket, at }
    }

    fn serving(place: &Place, name: &str, words: &str) -> Broker {
        let address = if name == "mill" { "127.0.0.2" } else { "127.0.0.1" };
        let words = format!("--listen ssliop://{address}:0 --tls-cert yard.pem --tls-key yard.key {words}");
        Broker::start(place, name, &format!("{words} --tls-clients plant.pem --tls-operator chief"))
    }

    /// Asks it over its socket.
    fn ask(&self, place: &Place, words: &str) -> Ended {
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        place.hyoshi(&format!("{verb} --socket {} {rest}", self.socket.display()))
    }

    /// A process of this machine, which it meters.
    fn sleeper(&self, place: &Place, name: &str) -> Running {
        let sleeper = Running::start(Command::new("sleep").arg("1000"));
        self.ask(place, &format!("attach {} --name {name} --period 50ms", sleeper.0.id())).exits(0);
        sleeper
    }

    fn task(&self, place: &Place, name: &str) -> Value {
        let tasks = self.ask(place, "broker list --format json").exits(0).json();
        tasks["tasks"].as_array().unwrap().iter().find(|task| task["name"] == name).cloned().unwrap_or(Value::Null)
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

/// The plant's authority, a server's papers and those of people, and a stranger's of another authority.
fn plant() -> Place {
    let place = Place::new();
    let (plant, elsewhere) = (Authority::new("plant"), Authority::new("elsewhere"));
    place.write("plant.pem", &plant.pem);
    write(&place, "yard", &plant.papers(&["127.0.0.1", "127.0.0.2"]));
    for name in ["chief", "ann", "desk"] {
        write(&place, name, &plant.papers(&[name]));
    }
    write(&place, "stranger", &elsewhere.papers(&["chief"]));
    place
}

/// With whose papers.
fn shown(name: &str) -> String {
    format!("--tls-roots plant.pem --tls-cert {name}.pem --tls-key {name}.key")
}

fn wait_for(condition: impl FnMut() -> bool) {
    broker::wait_for(condition).expect("it comes to pass");
}

#[test]
fn a_broker_serves_other_machines_and_a_certificate_gives_the_rights_that_it_was_given() {
    let place = plant();
    let broker = Broker::serving(&place, "yard", "--tls-user ann=65534 --audit audit.log");
    let _sleeper = broker.sleeper(&place, "steady");
    let by = |who: &str, words: &str, code: i32| {
        let ended = place.hyoshi(&format!("broker --broker {} {} {words}", broker.at, shown(who))).exits(code);
        format!("{}{}", ended.out, ended.err)
    };
    for who in ["chief", "ann", "desk"] {
        assert!(by(who, "list", 0).contains("steady"), "all who have a certificate see");
        assert!(by(who, "explain steady", 0).starts_with("steady (task 1): "));
    }
    for who in ["ann", "desk"] {
        assert!(by(who, "set steady importance 2", 1).contains("task `steady` belongs to user"));
        assert!(by(who, "detach steady", 1).contains("task `steady` belongs to user"));
        assert!(by(who, "policy set strict", 1).contains("only operators may change the policy"));
    }
    by("chief", "set steady importance 1000", 0);
    assert!(by("chief", "show steady", 0).contains("importance  1000\n"));
    by("chief", "advocate add steady max-decay --reports 3", 0);
    assert!(by("chief", "policy set weighted --cap 50%", 0).starts_with("policy      weighted, cap 50%"));
    assert!(by("chief", "show", 0).contains(&broker.at));
    by("chief", "detach steady", 0);
    assert_eq!(broker.task(&place, "steady"), Value::Null);
    wait_for(|| place.read("audit.log").contains("\"leave\""));
    let changes: Vec<Value> = place.read("audit.log").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |who: &str| changes.iter().filter(|line| line["certificate"] == who).count();
    assert_eq!((of("chief"), of("ann"), of("desk")), (4, 3, 3));
    let refused = |line: &&Value| line["certificate"] != "chief" && line["certificate"].is_string();
    assert!(changes.iter().filter(refused).all(|line| line["refused"].is_string()));
    let ann = changes.iter().find(|line| line["certificate"] == "ann").unwrap();
    assert_eq!(
        (&ann["uid"], &ann["pid"]),
        (&65534.into(), &Value::Null),
        "whose tasks are hers; of her process nothing is known"
    );
}

#[test]
fn top_shows_one_broker_elsewhere_of_several_over_tls() {
    let place = plant();
    let (yard, mill) = (Broker::serving(&place, "yard", ""), Broker::serving(&place, "mill", ""));
    let (_steady, _brisk) = (yard.sleeper(&place, "steady"), mill.sleeper(&place, "brisk"));
    place.write("plant.hosts", format!("yard {}\nmill {}\n", yard.at, mill.at));
    let top = |whom: &str, who: &str| {
        place.hyoshi(&format!("top --once --every 100ms --format json {whom} {} --patience 5s", shown(who)))
    };
    let printed = top("--hosts plant.hosts --broker mill", "desk").exits(0).json();
    assert_eq!((&printed["tasks"][0]["name"], &printed["at"]), (&"brisk".into(), &mill.at.clone().into()));
    let printed = top(&format!("--broker {}", yard.at), "ann").exits(0).json();
    assert_eq!((&printed["tasks"][0]["name"], &printed["broker"]["tasks"]), (&"steady".into(), &1.into()));
    let several = top("--hosts plant.hosts", "desk").exits(2).json();
    let error = &several["errors"][0];
    assert_eq!(
        (&error["message"], &error["help"]),
        (&"this verb accepts one broker".into(), &"select one with --broker NAME".into())
    );
    let stranger = top(&format!("--broker {}", yard.at), "stranger").exits(2).json();
    let why = stranger["errors"][0]["message"].as_str().unwrap();
    assert!(why.contains("The server refused this client's certificate"), "{stranger}");
}

/// What is refused, and in which words.
#[test]
fn refusals_say_what_is_wrong_and_what_to_do() {
    let place = plant();
    let yard = Broker::serving(&place, "yard", "--tls-reader desk");
    place.write("plant.hosts", "yard ssliop://127.0.0.1:1\nyard ssliop://127.0.0.1:2\n");
    let mut said = String::new();
    let mut tell = |words: &str, code: i32| {
        let ended = place.hyoshi(&words.replace("YARD", &yard.at)).exits(code);
        let text = format!("{}{}", ended.out, ended.err).replace(&place.path().display().to_string(), "PLACE");
        let _ =
            write!(said, "$ hyoshi {words}\n{}\n", text.replace(yard.at.trim_start_matches("ssliop://"), "HOST:PORT"));
    };
    tell("broker --listen iiop://0.0.0.0:2811", 2);
    tell("broker --listen unix:/run/other.sock", 2);
    tell("broker --listen yard:2811", 2);
    tell("broker --listen ssliop:yard:2811", 2);
    tell("broker --listen ssliop://127.0.0.1:0 --tls-cert yard.pem --tls-key yard.key", 2);
    tell("broker --listen ssliop://127.0.0.1:0 --tls-clients plant.pem", 2);
    tell("broker --tls-operator chief", 2);
    tell("broker --tls-cert yard.pem", 2);
    tell("broker --listen ssliop://127.0.0.1:0 --tls-clients plant.pem --tls-user ann", 2);
    tell("broker --listen ssliop://127.0.0.1:0 --tls-clients plant.pem --tls-user ann=nobody-of-that-name", 2);
    tell("broker --broker YARD", 2);
    tell("broker --tls-reader desk list", 2);
    tell("broker list --broker yard", 2);
    tell("broker list --broker iiop://127.0.0.1:2811", 2);
    // The same as a reference, in whatever words.
    let plain = "corbaloc:iiop:1.2@127.0.0.1:2811/Broker".parse::<Corbaloc>().unwrap().ior("").unwrap().unwrap();
    let refused = place.hyoshi(&format!("broker list --broker {plain}")).exits(2).err;
    assert!(refused.contains("do not serve plain TCP"), "{refused}");
    // Where it offers both, only TLS is used: without authorities that is said, and nothing is sent.
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let secure = yard.at.trim_start_matches("ssliop://");
    let both = format!("corbaloc:iiop:1.2@{},ssliop:1.2@{secure}/Broker", trap.local_addr().unwrap());
    let both: Corbaloc = both.parse().unwrap();
    let both = both.ior("").unwrap().unwrap();
    let refused = place.hyoshi(&format!("broker list --broker {both}")).exits(2).err;
    assert!(refused.contains("--tls-roots FILE"), "{refused}");
    place.hyoshi(&format!("broker list --broker {both} {}", shown("desk"))).exits(0);
    assert!(trap.accept().is_err(), "it was called in plain");
    tell("broker list --broker CORBALOC:iiop:1.2@127.0.0.1:2811/Broker", 2);
    tell("broker list --broker ssliop://127.0.0.1", 2);
    tell("broker list --broker YARD", 2);
    tell("broker list --broker YARD --tls-roots plant.pem", 2);
    tell("broker list --broker YARD --tls-cert desk.pem", 2);
    tell(&format!("broker list --broker YARD {}", shown("stranger")), 2);
    tell(&format!("broker list --broker YARD {}", shown("ann")), 2);
    tell(&format!("broker list --broker YARD {}", shown("desk")), 0);
    tell(&format!("broker list --broker ssliop://127.0.0.1:1 {}", shown("desk")), 2);
    tell("broker list --socket /run/other.sock --broker YARD", 2);
    tell("broker list --hosts plant.hosts", 2);
    tell("broker list --hosts missing.hosts", 2);
    tell("exec --broker YARD --period 33ms true", 125);
    tell("attach 1 --broker YARD --period 33ms", 2);
    const REFUSALS: usize = 10;
    let stranger = format!("broker list --broker {} {}", yard.at, shown("stranger"));
    (0..REFUSALS).for_each(|_| drop(place.hyoshi(&stranger).exits(2)));
    // Beside what it says of a machine that gives it no real-time priority.
    let printed = || {
        let away = |line: &&str| line.starts_with("hyoshi broker: refused over TLS: 127.0.0.1:");
        place.read("yard.err").lines().filter(away).count()
    };
    wait_for(|| printed() > 0);
    assert!(printed() < REFUSALS, "not each: {}", place.read("yard.err"));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/broker_remote.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    assert_eq!(said, fs::read_to_string(&golden).unwrap_or_default(), "BLESS=1 takes the new words");
}

#[test]
fn sighup_makes_a_broker_read_a_list_of_revoked_certificates_and_go_on() {
    let place = plant();
    let authority = Authority::new("plant");
    place.write("plant.pem", &authority.pem);
    write(&place, "yard", &authority.papers(&["127.0.0.1", "127.0.0.2"]));
    let (chief, desk) = (authority.papers(&["chief"]), authority.papers(&["desk"]));
    write(&place, "chief", &chief);
    write(&place, "desk", &desk);
    let broker = Broker::serving(&place, "yard", "");
    let list = |who: &str, code: i32| {
        place.hyoshi(&format!("broker list --broker {} {}", broker.at, shown(who))).exits(code).err
    };
    list("chief", 0);
    list("desk", 0);
    place.write("plant.pem", authority.pem.clone() + &authority.revokes(&[&chief.serial]));
    let said = || place.read("yard.err");
    broker::kill(broker.running.child.id(), "-HUP");
    wait_for(|| {
        said().contains("SIGHUP: certificates, keys, authorities and lists of revoked certificates were read again")
    });
    assert!(list("chief", 2).contains("The server refused this client's certificate"));
    list("desk", 0);
    // A broken set changes nothing.
    place.write("plant.pem", "");
    broker::kill(broker.running.child.id(), "-HUP");
    wait_for(|| said().contains("SIGHUP: old files kept: ") && said().contains("plant.pem: no certificate"));
    place.write("plant.pem", &authority.pem);
    list("desk", 0);
    assert!(list("chief", 2).contains("The server refused this client's certificate"));
}

#[test]
fn several_brokers_are_directed_from_one_place_and_one_that_is_silent_hides_no_other() {
    let place = plant();
    let (yard, mill) = (Broker::serving(&place, "yard", ""), Broker::serving(&place, "mill", ""));
    let _sleepers = (yard.sleeper(&place, "steady"), yard.sleeper(&place, "map"), mill.sleeper(&place, "steady"));
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    place.write("two.hosts", format!("# the plant\nyard {}\nmill {}\n", yard.at, mill.at));
    place.write(
        "all.hosts",
        format!("{}silent ssliop://{silent}\ngone ssliop://127.0.0.1:1\n", place.read("two.hosts")),
    );
    let chief = shown("chief");
    let ask = |words: &str, code: i32| place.hyoshi(&format!("broker {words} {chief}")).exits(code);

    let listed = ask("list --hosts two.hosts", 0).out;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(rows[0], ["host", "task"]);
    assert_eq!(rows[2..], [["yard", "map"], ["yard", "steady"], ["mill", "steady"]]);
    ask("set steady importance 7 --hosts two.hosts", 0);
    ask("set steady weight 3 --hosts two.hosts --broker mill", 0);
    let of = |broker: &Broker| {
        let task = broker.task(&place, "steady");
        (task["importance"].as_u64(), task["weight"].as_u64())
    };
    assert_eq!((of(&yard), of(&mill)), ((Some(7), Some(1)), (Some(7), Some(3))));
    let policies = ask("policy set weighted --cap 40% --hosts two.hosts", 0).out;
    assert_eq!(policies.matches("policy      weighted, cap 40%").count(), 2, "{policies}");
    assert!(policies.lines().all(|line| line.starts_with("yard  ") || line.starts_with("mill  ")));
    // One refuses; the other does it.
    let refused = ask(&format!("set map importance 2 --broker {},{}", yard.at, mill.at), 1);
    assert!(refused.err.contains("there is no task `map`") && refused.err.contains("127.0.0.2:"), "{}", refused.err);
    assert_eq!(yard.task(&place, "map")["importance"], 2);

    let begun = Instant::now();
    let most = ask("list --hosts all.hosts --patience 1s", 2);
    assert!(begun.elapsed() < Duration::from_secs(30), "it waits for nobody for long");
    let hosts: Vec<&str> = most.out.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(hosts, ["yard", "yard", "mill"]);
    for host in ["silent", "gone"] {
        assert!(most.err.contains(&format!("error: {host}: no broker answers at ssliop://")), "{}", most.err);
    }
    let json = ask("show steady --hosts all.hosts --patience 1s --format json", 2).json();
    let hosts = json["hosts"].as_array().unwrap();
    assert_eq!(
        hosts.iter().map(|host| host["host"].as_str().unwrap()).collect::<Vec<_>>(),
        ["yard", "mill", "silent", "gone"]
    );
    assert_eq!((&hosts[1]["task"]["weight"], &hosts[0]["task"]["name"]), (&3.into(), &"steady".into()));
    assert!(hosts[3]["errors"][0]["message"].as_str().unwrap().contains("no broker answers"));

    let words = format!("broker watch --every 20ms --hosts two.hosts {chief}");
    let watch = Running::start(&mut place.command(&words));
    watch.says("mill  steady");
    ask("detach steady --hosts two.hosts --broker mill", 0);
    assert!(watch.says("mill  steady").contains("ended"));
}

/// The sum of a member of a log's lines.
fn sum(place: &Place, log: &str, task: &str, member: &str) -> u64 {
    let text = fs::read_to_string(place.path().join(log)).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["task"] == task).filter_map(|line| line[member].as_u64()).sum()
}

#[test]
fn a_server_on_our_orb_reports_its_invocations_by_configuration_alone() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "here", "--log reports.log");
    let settings = format!(
        "task=names period=50ms importance=3 broker={} adapter=naming operation=resolve,bind",
        broker.socket.display()
    );
    let serve = |words: &str, settings: &str| {
        let mut command = place.command(&format!("naming --memory --listen {words}"));
        command.env("HYOSHI_DELEGATE", settings);
        command
    };
    let server = Running::start(&mut serve("iiop://127.0.0.1:0", &settings));
    let at = format!("corbaloc:iiop:1.2@127.0.0.1:{}", server.says("corbaloc:iiop:1.2@127.0.0.1:"));
    wait_for(|| broker.task(&place, "names") != Value::Null);
    let task = broker.task(&place, "names");
    assert_eq!((&task["processes"][0], &task["importance"]), (&server.0.id().into(), &3.into()));
    broker.ask(&place, "broker advocate add names log").exits(0);

    let orb = Orb::client().unwrap();
    let naming = Naming::at(&orb, &at).unwrap();
    // What its task was reported before: what the broker itself saw.
    wait_for(|| broker.task(&place, "names")["reports"].as_u64() > Some(0));
    let resolve = |times: u32| (0..times).for_each(|_| drop(naming.resolve::<dyn Object>("nobody/here").unwrap_err()));
    resolve(1);
    wait_for(|| fs::read_to_string(place.path().join("reports.log")).is_ok());
    // From the first own report on the broker makes none: all that comes is of invocations.
    // The broker reports another task of the same period meanwhile.
    let spinner = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    broker.ask(&place, &format!("attach {} --name other --period 50ms", spinner.0.id())).exits(0);
    let others = || broker.task(&place, "other")["reports"].as_u64().unwrap_or(0);
    wait_for(|| {
        let (before, reports) = (sum(&place, "reports.log", "names", "cycles"), others());
        wait_for(|| others() >= reports + 4);
        before == sum(&place, "reports.log", "names", "cycles")
    });
    drop(spinner);
    let (before, reports) =
        (sum(&place, "reports.log", "names", "cycles"), broker.task(&place, "names")["reports"].as_u64());
    resolve(40);
    drop(naming.list(10));
    wait_for(|| sum(&place, "reports.log", "names", "cycles") >= before + 40);
    assert_eq!(sum(&place, "reports.log", "names", "cycles"), before + 40, "each once, and no other operation");
    assert!(sum(&place, "reports.log", "names", "consumed_ns") > 40_000);
    let made = broker.task(&place, "names")["reports"].as_u64().unwrap() - reports.unwrap();
    assert!((1..=40).contains(&made), "{made}: those that end while one is reported are reported together");

    // A broker that is killed takes nothing with it, and the next one is reported to.
    let socket = broker.socket.clone();
    broker.running.ends("-KILL");
    resolve(5);
    let broker = Broker::start(&place, "here", "");
    assert_eq!(socket, broker.socket);
    wait_for(|| {
        resolve(1);
        broker.task(&place, "names")["reports"].as_u64() > Some(0)
    });

    let refused = serve("iiop://127.0.0.1:0", "task=names").output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("HYOSHI_DELEGATE: the task's period is missing"), "{why}");
}

const CYCLE: CycleReport = CycleReport { consumed: 2_000_000, cycles: 1, mode: -1, numbers: Vec::new() };

#[test]
fn a_program_reports_itself_and_hears_what_it_is_granted() {
    let place = Place::new();
    let broker = Broker::start(&place, "here", "--scheduler simulated");
    let client = BrokerClient::connect(Some(&broker.socket)).unwrap();
    let joining =
        TaskSpec { initial_budget: Some(Span::from_millis(2)), ..TaskSpec::new("own", Span::from_millis(50)) };
    let task = client.join(&joining).unwrap();
    task.add_process(std::process::id(), 0).unwrap();
    let granted = task.report(&CYCLE).unwrap();
    assert!(granted.requested.budget >= CYCLE.consumed && granted.reserved == granted.requested, "{granted:?}");
    let seen = task.status().unwrap().reports;
    for _ in 0..20 {
        task.report_oneway(&CYCLE).unwrap();
    }
    // They come in order: what is asked after them is asked of a broker that has them.
    wait_for(|| task.status().unwrap().reports == seen + 20);
    // One with the same period, for which the broker reports: it has come by that one's periods, too.
    let _other = broker.sleeper(&place, "other");
    wait_for(|| broker.task(&place, "other")["reports"].as_u64() >= Some(5));
    assert_eq!(task.status().unwrap().reports, seen + 20, "the broker makes none for it");
    let same = client.broker().own_task("another name", 1_000_000, 1).unwrap().unwrap();
    assert_eq!(same.name().unwrap(), "own", "a process has one task");
    task.leave().unwrap();
    assert!(task.report(&CYCLE).is_err());
}

/// A client in the middle of a message: what `dies_mid_report` kills.
#[test]
#[ignore = "a role that another test starts"]
fn half_a_report() {
    let Some(socket) = std::env::var_os("HYOSHI_ROLE_SOCKET").map(PathBuf::from) else { return };
    let client = BrokerClient::connect(Some(&socket)).unwrap();
    let task = client.join(&TaskSpec::new("half", Span::from_millis(50))).unwrap();
    task.add_process(std::process::id(), 0).unwrap();
    task.report(&CYCLE).unwrap();
    let seen = task.status().unwrap().reports;
    // GIOP 1.2, little-endian, a request of 96 octets: of which 20 come.
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GIOP\x01\x02\x01\x00\x60\x00\x00\x00").unwrap();
    stream.write_all(&[7; 20]).unwrap();
    println!("half a message is sent after {seen}");
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_client_that_dies_mid_report_loses_nothing_but_itself() {
    let place = Place::new();
    let broker = Broker::start(&place, "here", "");
    let client = BrokerClient::connect(Some(&broker.socket)).unwrap();
    let whole = client.join(&TaskSpec::new("whole", Span::from_millis(50))).unwrap();
    whole.add_process(std::process::id(), 0).unwrap();
    whole.report(&CYCLE).unwrap();
    let seen = whole.status().unwrap().reports;
    for round in 1..=3 {
        let mut role = Command::new(std::env::current_exe().unwrap());
        // Of two threads: with one, as on a machine of one CPU, what it says would begin in the middle of a line.
        role.args(["--exact", "broker_remote::half_a_report", "--ignored", "--nocapture", "--test-threads=2"]);
        role.env("HYOSHI_ROLE_SOCKET", &broker.socket);
        let half = Running::start(&mut role);
        let printed: u64 = half.says("half a message is sent after ").parse().unwrap();
        assert_eq!(broker.task(&place, "half")["reports"], printed);
        whole.report(&CYCLE).unwrap();
        half.kill();
        wait_for(|| broker.task(&place, "half").is_null());
        whole.report(&CYCLE).unwrap();
        assert_eq!(whole.status().unwrap().reports, seen + 2 * round);
    }
    let explained = broker.ask(&place, "broker explain whole").exits(0).out;
    assert!(explained.contains("2ms in its last cycle"), "{explained}");
}

/// `cargo test -p hyoshi --test suite what_a_delegate_costs -- --ignored --nocapture`: the figures of docs/orb.md.
#[test]
#[ignore = "a measurement"]
fn what_a_delegate_costs() {
    const CALLS: u32 = 3_000;
    let place = Place::new();
    let broker = Broker::start(&place, "here", "");
    let meter = |pid: u32| {
        let mut meter = Meter::new();
        meter.add(&Process::open(pid).unwrap(), false);
        meter
    };
    for reports in [false, true] {
        let mut command = place.command("naming --memory --listen iiop://127.0.0.1:0");
        if reports {
            command.env("HYOSHI_DELEGATE", format!("task=names period=50ms broker={}", broker.socket.display()));
        }
        let server = Running::start(&mut command);
        let at = format!("corbaloc:iiop:1.2@127.0.0.1:{}", server.says("corbaloc:iiop:1.2@127.0.0.1:"));
        let orb = Orb::client().unwrap();
        let naming = Naming::at(&orb, &at).unwrap();
        if reports {
            wait_for(|| broker.task(&place, "names") != Value::Null);
        }
        for pause in [Duration::ZERO, Duration::from_millis(1)] {
            let mut meters = [meter(server.0.id()), meter(broker.running.child.id())];
            let before = meters.each_mut().map(Meter::read);
            let mut took: Vec<Duration> = (0..CALLS)
                .map(|_| {
                    let begun = Instant::now();
                    drop(naming.resolve::<dyn Object>("nobody/here").unwrap_err());
                    let took = begun.elapsed();
                    std::thread::sleep(pause);
                    took
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            let used = meters.each_mut().map(Meter::read);
            let each = |at: usize| used[at].saturating_sub(before[at]).as_nanos() as f64 / f64::from(CALLS) / 1e3;
            took.sort();
            println!(
                "reports: {reports}, a call each {pause:?}: {:.1} us of CPU a call at the server, {:.1} us at the broker; it takes {:?}, p99 {:?}",
                each(0),
                each(1),
                took[took.len() / 2],
                took[took.len() * 99 / 100],
            );
        }
    }
}
