//! `hyoshi top`: in a pipe, in a terminal, and over a restart of the broker.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use super::*;

fn top(place: &Place, words: &str) -> Command {
    let mut command = place.command(&format!("top {words} --socket"));
    command.arg(place.path().join("run/broker.sock"));
    command
}

#[test]
fn once_it_tells_how_tasks_stand_and_what_they_use() {
    let place = Place::new();
    let said = Ended::of("top", &top(&place, "--once --every 100ms").output().unwrap()).exits(2).err;
    assert!(said.starts_with("error: no broker answers at "), "{said}");
    let _broker = Broker::start(&place, "--scheduler simulated --cap 20%");
    let _program = spinner(&place, "--name a --period 20ms --importance 5");
    task(&place, "a", |task| task["reason"] != "");
    let text = Ended::of("top", &top(&place, "--once --every 100ms").output().unwrap()).exits(0).out;
    assert!(text.contains("policy fair  scheduler simulated\n 1 task  reserved 20% of 20%  used "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  a ") && line.contains(" 4ms 20.0 % ")), "{text}");
    let json = Ended::of("top", &top(&place, "--once --every 500ms --format json").output().unwrap()).exits(0).json();
    assert_eq!((&json["hyoshi"]["verb"], &json["broker"]["tasks"]), (&"top".into(), &1.into()));
    let a = &json["tasks"][0];
    assert!(a["name"] == "a" && a["cpu_millionths"].as_u64() > Some(0) && a["total_ns"].as_u64() > Some(0), "{json}");
    let often = Ended::of("top", &place.command("top --every 1ms").output().unwrap()).exits(2).err;
    assert_eq!(
        often,
        "error: --every 1ms is too short\nhelp: use at least 100ms, because each sample costs CPU time\n"
    );
}

#[test]
fn it_outlives_the_broker_and_says_that_it_waits() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "");
    let _program = spinner(&place, "--name a --period 20ms");
    let mut program = Program::start(top(&place, "--every 100ms --format json").stdout(Stdio::piped()));
    let said = Said::by(program.0.stdout.take().unwrap());
    let next = |what: &str, wanted: &dyn Fn(&Value) -> bool| {
        said.find(what, |line| wanted(&serde_json::from_str(line).unwrap()).then_some(()));
    };
    next("what is there", &|line| line["tasks"][0]["name"] == "a");
    broker.ends("-KILL");
    next("that it waits", &|line| line["errors"][0]["message"].is_string() && line["tasks"].is_null());
    broker = Broker::start(&place, "");
    next("what is there again", &|line| {
        line["tasks"][0]["name"] == "a" && line["broker"]["process"] == broker.child.id()
    });
    kill(program.0.id(), "-TERM");
    assert_eq!(program.0.wait().unwrap().code(), Some(0));
}

/// What comes, as it comes: who waits for it can give up.
fn parts(mut out: ChildStdout) -> Receiver<Vec<u8>> {
    let (sends, parts) = channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = out.read(&mut part) {
            if sends.send(part[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    parts
}

/// The process that said so before it became `hyoshi top`.
fn number(said: &str) -> u32 {
    said.lines().find_map(|line| line.strip_prefix("pid ")).unwrap().trim().parse().unwrap()
}

#[test]
fn a_terminal_is_given_back_as_it_was() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let _program = spinner(&place, "--name a --period 20ms");
    task(&place, "a", |task| reports(task) > 0);
    let hyoshi = format!(
        "{:?} top --every 100ms --socket {:?}",
        env!("CARGO_BIN_EXE_hyoshi"),
        place.path().join("run/broker.sock")
    );
    for typed in ["q", "\u{3}", ""] {
        // script(1) makes a terminal; what it shows is on its standard output.
        let session = format!("stty rows 24 cols 80; echo \"pid $$\"; exec {hyoshi}");
        let session = format!("sh -c '{session}'; echo \"code $?\"; stty -a");
        let mut command = Command::new("script");
        command.args(["-qec", &session, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("TERM", "xterm");
        let Ok(started) = command.spawn() else {
            eprintln!("skipped: needs script (package bsdutils)");
            return;
        };
        let mut script = Program(started);
        let parts = parts(script.0.stdout.take().unwrap());
        let mut said = String::new();
        let mut stdin = script.0.stdin.take().unwrap();
        let mut waits = true;
        let until = Instant::now() + Duration::from_secs(60);
        while !said.contains("icanon") {
            match parts.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(part) => said += &String::from_utf8_lossy(&part),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {said:?}"),
            }
            if waits && said.contains("policy fair") {
                waits = false;
                match typed {
                    "" => kill(number(&said), "-TERM"),
                    _ => stdin.write_all(typed.as_bytes()).unwrap(),
                }
            }
        }
        let (drawn, after) = said.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{said:?}"));
        assert!(drawn.contains("\u{1b}[?1049h") && drawn.contains("q quit"), "{said:?}");
        assert!(after.contains("code 0") && after.contains(" icanon"), "{said:?}");
        assert!(drawn.rfind("\u{1b}[?25h") > drawn.rfind("\u{1b}[?25l"), "the cursor is shown: {said:?}");
    }
}
