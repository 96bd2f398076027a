//! The pages on the broker show what it prints: each line of their blocks `text` and `console` occurs in a session with
//! the same commands, apart from numbers, units, paths and the group's name.

use std::collections::BTreeSet;

use super::limits::{GROUP, STRANGER, hyoshi, impersonates};
use super::*;

const PAGES: [&str; 2] = ["docs/broker.md", "docs/first-reservation.md"];

/// A line without the parts that differ between two sessions.
fn shape(line: &str) -> String {
    let varies = |word: &str| {
        word.contains(|sign: char| sign.is_ascii_digit())
            || word.ends_with("broker.sock")
            || ["%", "ms", "nothing", "hyoshi"].contains(&word)
    };
    let words = line.split_whitespace().map(|word| match word {
        word if varies(word) => "#",
        word if word.starts_with('─') => "─",
        word => word,
    });
    let mut words: Vec<_> = words.collect();
    words.dedup();
    words.join(" ")
}

fn shown(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let blocks =
        text.split("\n```").filter_map(|block| block.strip_prefix("text\n").or(block.strip_prefix("console\n")));
    blocks.flat_map(str::lines).filter(|line| !line.is_empty() && *line != "...").map(str::to_owned).collect()
}

#[test]
fn the_pages_on_the_broker_show_what_it_prints() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if !impersonates() || !common::real_time() || cpus < 2 {
        eprintln!("skipped: needs root, real-time priorities and two CPUs");
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_hyoshi"), place.path().join("hyoshi")).unwrap();
    place.write("limits.toml", format!("[group.{GROUP}]\nshare = \"50%\"\nimportance = 10\ntasks = 64\n"));
    let mut printed = String::new();

    let mut command = place.command("broker --limits limits.toml --cap 120% --socket");
    let mut broker = Program::start(command.arg(place.path().join("run/broker.sock")).stdout(Stdio::piped()));
    let lines = Said::by(broker.0.stdout.take().unwrap());
    while !printed.contains("broker.sock") {
        writeln!(printed, "{}", lines.line().expect("it serves")).unwrap();
    }

    for work in ["1ms", "33ms"] {
        printed += &place.hyoshi(&format!("hourglass --period 33ms --work {work} --for 2s")).exits(0).out;
    }
    let as_user = |words: &str| hyoshi(&place, STRANGER, Some(GROUP), words);
    let program = place.path().join("hyoshi").display().to_string();
    let runs = |words: &str| Program::start(as_user(&format!("exec {words}")).stdout(Stdio::null()));
    let whole = |task: &Value| reports(task) > 9 && task["reserved"] == task["requested"];

    let _player =
        runs(&format!("--name player --period 33ms --importance 5 -- {program} hourglass --period 33ms --work 10ms"));
    task(&place, "player", whole);
    for words in ["broker list", "broker explain player", "top --once"] {
        printed += &ask(&place, words).exits(0).out;
    }

    let mut third = common::broker::as_user(&place, STRANGER, Some(GROUP), "hyoshi");
    let third = Program::start(third.args(["hourglass", "--period", "50ms", "--work", "4ms"]).stdout(Stdio::null()));
    assert!(as_user(&format!("attach {} --name third --period auto", third.0.id())).status().unwrap().success());
    task(&place, "third", |task| task["period_ns"] == 50_000_000 && whole(task));
    printed += &ask(&place, "broker show third").exits(0).out;

    let _recogniser =
        runs(&format!("--name recogniser --period 100ms -- {program} hourglass --period 100ms --work 50ms"));
    let cut = |task: &Value| reports(task) > 9 && !task["reason"].as_str().unwrap_or("").is_empty();
    task(&place, "recogniser", cut);
    printed += &ask(&place, "broker explain recogniser").exits(0).out;
    ask(&place, "broker set recogniser importance 9").exits(0);
    task(&place, "recogniser", whole);
    task(&place, "player", cut);
    printed += &ask(&place, "top --once").exits(0).out;

    let shapes: BTreeSet<String> = printed.lines().map(shape).collect();
    for page in PAGES {
        for line in shown(page) {
            assert!(shapes.contains(&shape(&line)), "{page}: the session does not print\n{line}\nbut\n{printed}");
        }
    }
}
