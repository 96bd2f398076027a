//! `[reservation.NAME]` in a file: admitted, played, started through the broker.

use crate::common;

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Stdio;

use common::broker::Broker;
use common::{Ended, Place, example};
use hyoshi_broker::idl::cpu_broker::{Advocate, Grant, Reservation, Status};
use hyoshi_orb::{Orb, SystemException};
use serde_json::Value;

/// It grants as windows do, meters, and changes nothing.
fn broker(place: &Place, more: &str) -> Broker {
    Broker::start(place, &format!("--scheduler simulated {more}"))
}

fn run(place: &Place) -> Ended {
    let socket = place.path().join("run/broker.sock");
    place.hyoshi(&format!("run system.toml --no-report --format json --socket {}", socket.display()))
}

fn tasks(place: &Place) -> Value {
    let socket = place.path().join("run/broker.sock");
    let words = format!("broker list --format json --socket {}", socket.display());
    place.hyoshi(&words).exits(0).json()["tasks"].clone()
}

/// Works for some milliseconds of each period, and writes where it should not be seen.
const WORKS: &str = "echo said; while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.02; done";

fn file(rest: &str) -> String {
    format!("name = 'film'\nduration = '700ms'\n{rest}")
}

fn program(name: &str, words: &str, rest: &str) -> String {
    format!("[reservation.{name}]\nprogram = {words}\nperiod = '20ms'\n{rest}\n")
}

fn spoken(json: &Value) -> String {
    format!("{}: {}", json["errors"][0]["message"].as_str().unwrap(), json["errors"][0]["help"].as_str().unwrap())
}

#[test]
fn what_advocates_and_policies_there_are_the_laws_say_with_their_place() {
    let place = Place::new();
    let text = "name = 'wrong'\nbroker = { policy = 'partition(video 40% strict, rest 30% fairly)' }\n\
                [reservation.player]\nprogram = ['player']\nperiod = '33ms'\n\
                advocate = [{ max_decay = { report = 10 } }, { cap = '160%' }, { maxdecay = 3 }, { conditions = {} }]\n";
    place.write("system.toml", text);
    let ended = place.hyoshi("check system.toml").exits(2);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/reservations-refused.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &ended.err).unwrap();
    }
    assert_eq!(ended.err, std::fs::read_to_string(golden).unwrap_or_default());
    place.write(
        "system.toml",
        text.replace("rest 30% fairly", "rest 30% weighted").split("advocate").next().unwrap().to_owned()
            + "group = 'film'\n",
    );
    let ended = place.hyoshi("check system.toml").exits(2);
    assert!(ended.err.contains("there is no group `film`") && ended.err.contains("video, rest"), "{}", ended.err);
}

#[test]
fn the_example_is_admitted_and_played() {
    let place = Place::new();
    let film = example("film.toml");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/reservations.txt");
    let check = place.hyoshi(&format!("check {film}")).exits(0).out;
    let sim = place.hyoshi(&format!("sim {film}")).exits(0).out;
    // How long a simulation took is not to be compared.
    let sim: Vec<String> = sim.lines().map(|line| line.split(" simulated in ").next().unwrap().to_owned()).collect();
    let both = format!("{check}\n{}\n", sim.join("\n"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &both).unwrap();
    }
    assert_eq!(both, std::fs::read_to_string(golden).unwrap_or_default());

    let json = place.hyoshi(&format!("sim {film} --format json --report film.html")).exits(0).json();
    let programs = json["programs"].as_array().unwrap();
    assert_eq!(programs.iter().map(|one| one["periods"].as_u64().unwrap()).collect::<Vec<_>>(), [200, 400]);
    assert_eq!(programs[0]["missed"], 0, "the more important had what it asked");
    assert!(place.read("film.html").contains("Programs under the CPU broker"));
}

/// Asks for 12 ms, whatever else is asked.
struct Twelve;

impl Advocate for Twelve {
    fn advise(&self, _: &str, _: &Status, asked: &Reservation) -> Result<Reservation, SystemException> {
        Ok(Reservation { budget: 12_000_000, ..*asked })
    }

    fn granted(&self, _: &str, _: &Grant) -> Result<(), SystemException> {
        Ok(())
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok("twelve".to_owned())
    }
}

#[test]
fn an_advocate_in_another_process_advises_in_a_run_and_is_unknown_before() {
    let place = Place::new();
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let object =
        orb.adapter("advocates").build().unwrap().activate::<dyn Advocate>(std::sync::Arc::new(Twelve)).unwrap();
    place.write("adviser.ior", object.ior().to_string());
    let text = program(
        "works",
        &format!("['sh', '-c', '{WORKS}']"),
        "takes = '8ms'\nleast = '2ms'\nadvocate = [{ max_decay = 3 }, { external = { object = 'file:adviser.ior', timeout = '1s' } }]",
    );
    place.write("system.toml", file(&text));
    let check = place.hyoshi("check system.toml").exits(0).out;
    let said = "works: requests of advocates in other processes and libraries are unknown; its `least` of 2ms is used";
    assert!(check.contains(said) && check.contains("Holds: every reservation is admitted."), "{check}");
    let json = place.hyoshi("check system.toml --format json").exits(0).json();
    let works = &json["reservations"][0]["programs"][0];
    assert_eq!((&works["known"], &works["asked_ns"]), (&false.into(), &2_000_000.into()));
    let sim = place.hyoshi("sim system.toml").exits(0).out;
    assert!(sim.contains("are skipped in a simulation: works"), "{sim}");

    let _broker = broker(&place, "");
    let json = run(&place).exits(0).json();
    let asked = json["programs"][0]["asked_ns"].as_u64().unwrap();
    assert!((8_000_000..=12_000_000).contains(&asked), "12 ms from its first answer on: {asked}");
    place.write("system.toml", file(&text.replace("adviser.ior", "gone.ior")));
    let printed = spoken(&run(&place).exits(2).json());
    assert!(printed.contains("reservation works: cannot read a reference from gone.ior: "), "{printed}");
    orb.shutdown();
}

#[test]
fn a_refusal_names_the_reservations_before_it() {
    let place = Place::new();
    let takes = |takes: &str, more: &str| {
        format!("takes = '{takes}'\nadvocate = [{{ floor = '1%' }}]\nbudget = '{takes}'\n{more}")
    };
    let text = program("high", "['high']", &takes("12ms", "importance = 5"))
        + &program("low", "['low']", &takes("8ms", "importance = 2"));
    place.write("system.toml", file(&text));
    let text = place.hyoshi("check system.toml").exits(1);
    assert!(
        text.out.contains("Does not hold: reservation low: may request 8ms of 20ms; only 3ms fits"),
        "{}",
        text.out
    );
    let json = place.hyoshi("check system.toml --format json").exits(1).json();
    assert_eq!(json["outcome"], "does-not-hold");
    let longest = text.out.lines().filter(|line| !line.contains(": ")).map(|line| line.chars().count()).max();
    assert!(longest < Some(120), "the table is as wide as its figures: {}", text.out);
    let low = &json["reservations"][0]["programs"][1];
    assert_eq!(
        (&json["holds"], &low["verdict"], &low["because"][0]["name"]),
        (&false.into(), &"refused".into(), &"high".into())
    );
}

#[test]
fn a_run_starts_programs_through_the_broker_and_ends_them() {
    let place = Place::new();
    let _broker = broker(&place, "--policy weighted --cap 60%");
    let text = "broker = { policy = 'weighted', cap = '60%' }\n".to_owned()
        + &program("works", &format!("['sh', '-c', '{WORKS}']"), "budget = '2ms'\nweight = 3")
        + &program("fails", "['sh', '-c', 'sleep 0.1; exit 3']", "")
        + "[operation.steer]\nevery = '50ms'\nwcet = '100us'\n";
    place.write("system.toml", file(&text));
    let ended = run(&place);
    let json = ended.json();
    assert_eq!(ended.code, 1, "one failed: {json:#}");
    let (works, fails) = (&json["programs"][0], &json["programs"][1]);
    assert_eq!((&works["ended"], &fails["ended"]), (&Value::Null, &"exit status: 3".into()));
    assert!(works["periods"].as_u64().unwrap() > 5 && works["consumed_ns"].as_u64().unwrap() > 0, "{works:#}");
    assert!(works["asked_ns"].as_u64().unwrap() > 0 && works["held_ns"].as_u64().unwrap() > 0, "{works:#}");
    assert!(ended.err.contains("said"), "what programs write goes to standard error: {}", ended.err);
    let topics: Vec<&str> =
        json["notes"].as_array().unwrap().iter().map(|note| note["topic"].as_str().unwrap()).collect();
    assert!(topics.contains(&"reservations") && !topics.contains(&"broker"), "{topics:?}");
    assert_eq!(tasks(&place).as_array().map(Vec::len), Some(0), "nothing is left behind");
    assert!(!ended.err.contains("was killed"), "{}", ended.err);
}

#[test]
fn beside_a_run_whoever_is_left_is_ended_but_nobody_else_and_not_if_the_run_is_over() {
    // How much later its start is said to be.
    for (later, last, left) in [(0, "", false), (0, "over\n", true), (1, "", true)] {
        let place = Place::new();
        let mut sleep = std::process::Command::new("sleep");
        let mut program = sleep.arg("600").process_group(0).stdin(Stdio::null()).spawn().unwrap();
        let start = hyoshi_os::process::identity(program.id()).unwrap().start + later;
        let mut watch = place.command("run-watch").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        write!(watch.stdin.take().unwrap(), "{} {start}\n{last}", program.id()).unwrap();
        let said = watch.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr);
        let lives = program.try_wait().unwrap().is_none();
        let _ = program.kill();
        let ended = program.wait().unwrap();
        assert_eq!(said.contains("the run was killed; ending its program"), !left, "{said}");
        assert_eq!((lives, ended.signal()), (left, Some(if left { 9 } else { 15 })), "{later} {last}");
    }
}

#[test]
fn what_cannot_be_started_is_told_before_anything_is() {
    let place = Place::new();
    let steer = "[operation.steer]\nevery = '50ms'\nwcet = '100us'\n";
    let touch = program("touch", "['touch', 'started']", "");
    place.write("system.toml", file(&(touch.clone() + steer)));
    let ended = run(&place).exits(2);
    let printed = spoken(&ended.json());
    assert!(printed.contains("cannot start 1 reservation of the file: no broker answers at "), "{printed}");
    assert!(printed.contains("start one with `hyoshi broker`, or name its socket with `--socket PATH`"), "{printed}");

    let _broker = broker(&place, "");
    place.write("system.toml", file(&(touch.clone() + &program("gone", "['./gone']", "") + steer)));
    let printed = spoken(&run(&place).exits(2).json());
    assert!(printed.contains("reservation gone: no executable program \"./gone\""), "{printed}");

    // Of two tasks of one name the broker takes one.
    let mut other = place.command("exec --socket");
    other.arg(place.path().join("run/broker.sock"));
    let mut other = other.args(["--name", "taken", "--period", "1s", "--", "sleep", "60"]).spawn().unwrap();
    let listed = || tasks(&place).to_string().contains("taken");
    let started = std::time::Instant::now();
    while !listed() && started.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    place.write("system.toml", file(&(touch + &program("taken", "['sleep', '9']", "importance = 0") + steer)));
    let printed = spoken(&run(&place).exits(2).json());
    let _ = other.kill();
    let _ = other.wait();
    assert!(printed.contains("task `taken` already exists"), "{printed}");
    assert!(!place.has("started"), "nothing has been started");
}

#[test]
fn a_file_of_programs_alone_is_checked_played_and_run() {
    let place = Place::new();
    let _broker = broker(&place, "");
    let text = program("works", &format!("['sh', '-c', '{WORKS}']"), "takes = '2ms'");
    place.write("system.toml", file(&text));
    let check = place.hyoshi("check system.toml").exits(0);
    assert!(check.out.contains("Holds: every reservation is admitted."), "{}", check.out);
    assert_eq!(place.hyoshi("check system.toml --format json").exits(0).json()["outcome"], "holds");
    let sim = place.hyoshi("sim system.toml").exits(0);
    assert!(sim.out.contains("Holds: all 35 cycles of programs were in time."), "{}", sim.out);
    let json = run(&place);
    assert_eq!(json.code, 0, "{}{}", json.out, json.err);
    let json = json.json();
    assert_eq!(json["programs"][0]["met"], Value::Null);
    assert_eq!(json["analysis"]["outcome"], Value::Null, "nothing was analysed");
    // The broker's cap is of each CPU that it has, and the file's of CPU 0.
    assert!(json["programs"][0]["periods"].as_u64().unwrap() > 5, "{json:#}");
}

#[test]
fn a_program_that_somebody_detaches_is_told_of_alone() {
    let place = Place::new();
    let _broker = broker(&place, "");
    let socket = place.path().join("run/broker.sock");
    let detach = format!("{} broker detach gone --socket {}", env!("CARGO_BIN_EXE_hyoshi"), socket.display());
    let text = program("works", &format!("['sh', '-c', '{WORKS}']"), "budget = '2ms'")
        + &program("gone", &format!("['sh', '-c', 'sleep 0.1; {detach}; sleep 60']"), "");
    place.write("system.toml", file(&text).replace("700ms", "2s"));
    let json = run(&place).json();
    let notes = json["notes"].as_array().unwrap();
    let of = |topic| notes.iter().filter(move |note| note["topic"] == topic).map(|note| note["text"].to_string());
    assert!(!of("broker").any(|text| text.contains("it ended")), "it has not: {notes:#?}");
    let printed: Vec<String> = of("reservations").collect();
    assert!(printed.len() == 1 && printed[0].contains("gone was detached from the broker"), "{printed:?}: {notes:#?}");
    assert!(json["programs"][0]["periods"].as_u64().unwrap() > 20, "it is asked for until the end: {json:#}");
}

#[test]
fn a_run_that_is_killed_leaves_no_program_behind() {
    let place = Place::new();
    let _broker = broker(&place, "");
    // What a program has started ends with it; SIGTERM is asked of it first.
    let script = "trap \"touch asked; exit\" TERM; sleep 60 & echo $! >started; wait; wait";
    let text = program("works", &format!("['sh', '-c', '{script}']"), "budget = '2ms'");
    place.write("system.toml", file(&text).replace("700ms", "60s"));
    let mut command = place.command("run system.toml --no-report --socket");
    let mut run = command.arg(place.path().join("run/broker.sock")).stdout(Stdio::null()).spawn().unwrap();
    let until = |done: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !done() {
            assert!(begun.elapsed().as_secs() < 30, "it never came to pass");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    until(&|| place.has("started") && place.read("started").ends_with('\n') && tasks(&place)[0]["name"] == "works");
    let started: u32 = place.read("started").trim().parse().unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    until(&|| !Path::new(&format!("/proc/{started}")).exists());
    // The program's own end may take it longer.
    until(&|| place.has("asked"));
    until(&|| tasks(&place).as_array().is_some_and(Vec::is_empty));
}
