//! `hyoshi sim`, from the command line.

use crate::common;

use std::io::Write;

use common::{Place, class, example, without_circumstances};

#[test]
fn the_flight_program_holds() {
    let place = Place::new();
    let ended = place.hyoshi(&format!("sim {}", example("flight-program.toml"))).exits(0);
    assert!(ended.out.contains("Holds: all 19,344 critical jobs met their deadlines."), "{}", ended.out);
}

#[test]
fn the_flight_program_holds_under_rms_only_because_of_the_caps() {
    let place = Place::new();
    let words = format!("sim {} --strategy RMS --format json", example("flight-program.toml"));
    let json = place.hyoshi(&words).exits(0).json();
    assert_eq!(class(&json, "critical")["missed"], 0);

    // Without the caps, as in the paper, not from region 7 on, when the processor is full.
    let json = place.hyoshi(&format!("{words} --cap 100% --hard-cap 100%")).exits(1).json();
    assert_eq!(json["holds"], false);
    let missed = |epoch: usize| json["epochs"][epoch]["critical"]["missed"].as_u64().unwrap();
    assert!((0..7).all(|epoch| missed(epoch) == 0) && (7..12).all(|epoch| missed(epoch) > 0), "{}", json["epochs"]);
    assert_eq!(class(&json, "critical")["missed"], 552, "as the README has it");
}

#[test]
fn which_of_two_strategies_was_ruled_is_told() {
    let place = Place::new();
    let flight = example("flight-program.toml");
    let out = place.hyoshi(&format!("sim {flight} --strategy RMS,RMS+MLF --format json")).exits(0);
    let report: serde_json::Value = serde_json::from_str(&out.out).unwrap();
    let overload = &report["processors"][0]["overload"];
    assert_eq!(overload["strategy"], "RMS+MLF");
    assert!(overload["switches"].as_u64().unwrap() > 2, "{overload}");
    let stretches = overload["over_time"].as_array().unwrap();
    let sum: u64 = stretches.iter().map(|stretch| stretch["ruled_ns"].as_u64().unwrap()).sum();
    assert_eq!(overload["ruled_ns"], sum);
    // It is quiet in the first regions: nothing is in danger there.
    assert!(stretches[0]["at_ns"].as_u64().unwrap() > 4_000_000_000);
    let out = place.hyoshi(&format!("sim {flight} --strategy RMS,RMS+MLF")).exits(0);
    assert!(out.out.contains("RMS, RMS+MLF in overload: "), "{}", out.out);
}

#[test]
fn the_same_seed_gives_the_same_json_octet_for_octet() {
    let place = Place::new();
    let words = format!("sim {} --seed 7 --duration 10s --format json", example("flight-program.toml"));
    let json = |words: &str| place.hyoshi(words).exits(0).json();
    assert_eq!(place.hyoshi(&words).exits(0).out, place.hyoshi(&words).exits(0).out);
    let other = without_circumstances(json(&words.replace("--seed 7", "--seed 8")));
    assert_ne!(without_circumstances(json(&words))["operations"], other["operations"]);
}

#[test]
fn every_example_loads_is_checked_and_simulated() {
    let place = Place::new();
    let mut simulated = 0;
    for entry in std::fs::read_dir(example("")).unwrap() {
        let path = entry.unwrap().path();
        // broker.toml has a broker's limits.
        if path.extension().is_none_or(|extension| extension != "toml") || path.ends_with("broker.toml") {
            continue;
        }
        let checked = place.hyoshi(&format!("check {}", path.display()));
        assert!(checked.code < 2, "{}: {}", path.display(), checked.err);
        place.hyoshi(&format!("sim {}", path.display())).exits(0);
        simulated += 1;
    }
    assert!(simulated >= 2);
}

#[test]
fn jobs_are_lines_of_whole_nanoseconds() {
    let place = Place::new();
    let words = format!("sim {} --jobs jobs.csv --format json", example("flight-program.toml"));
    let json = place.hyoshi(&words).exits(0).json();
    let jobs = place.read("jobs.csv");
    let mut lines = jobs.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let times: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].ends_with("_ns")).collect();
    assert!(times.len() >= 7, "{columns:?}");
    let (mut count, mut made) = (0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), columns.len(), "{line}");
        for at in &times {
            assert!(fields[*at].is_empty() || fields[*at].parse::<i64>().is_ok(), "{line}");
        }
        let of = |name: &str| fields[columns.iter().position(|column| *column == name).unwrap()];
        count += 1;
        if of("outcome") == "made" {
            made += 1;
            let at = |name: &str| of(name).parse::<i64>().unwrap();
            assert!(at("release_ns") <= at("ready_ns") && at("start_ns") < at("end_ns"), "{line}");
            assert!(at("end_ns") <= at("deadline_ns"), "{line}");
            assert_eq!(at("lateness_ns"), at("end_ns") - at("deadline_ns"), "{line}");
        }
    }
    let all = |what: &str| {
        class(&json, "critical")[what].as_u64().unwrap() + class(&json, "non-critical")[what].as_u64().unwrap()
    };
    assert_eq!((count, made), (all("released"), all("made")));
}

#[test]
fn the_report_needs_no_network() {
    let place = Place::new();
    place.hyoshi(&format!("sim {} --report report.html", example("flight-program.toml"))).exits(0);
    let report = place.read("report.html");
    assert!(report.contains("<svg") && report.contains("flight-program"));
    // Names of XML are no places to fetch something from.
    let report = report.replace("http://www.w3.org/", "");
    let lower = report.to_lowercase();
    for outside in ["http:", "https:", "src=\"//", "href=\"//", "@import", "url(//"] {
        assert!(!lower.contains(outside), "the report refers to {outside}");
    }
    assert_eq!(place.names(), ["report.html"]);
}

#[test]
fn a_warning_of_the_file_is_told_once() {
    let place = Place::new();
    place.write("system.toml", common::OVERLOADED);
    let ended = place.hyoshi("sim system.toml --report report.html");
    let printed = "has a load of 140.0%";
    assert_eq!(ended.err.matches(printed).count(), 1, "{}", ended.err);
    assert!(ended.err.contains("[processor.main]"), "with its line: {}", ended.err);
    assert!(!ended.out.contains(printed), "{}", ended.out);
    // The report and JSON are read by themselves.
    assert!(place.read("report.html").contains(printed));
    let ended = place.hyoshi("sim system.toml --format json");
    assert_eq!((ended.out.matches(printed).count(), ended.err.as_str()), (1, ""));
}

#[test]
fn calls_that_the_file_does_not_name_are_not_simulated_and_leave_the_verdict_open() {
    let place = Place::new();
    let operation = |name: &str, rest: &str| format!("[operation.{name}]\ncritical = true\nwcet = \"1ms\"\n{rest}\n");
    let file = [
        "name = \"calling\"".to_owned(),
        operation("plan", "every = \"20ms\"\ncalls = \"any\""),
        operation("steer", "after = { all = [\"plan\"] }"),
    ];
    place.write("system.toml", file.join("\n"));
    let simulated = place.hyoshi("sim system.toml").exits(0);
    let note = "calls = \"any\": the calls are not simulated: plan";
    assert!(simulated.out.contains(note), "{}", simulated.out);
    let checked = place.hyoshi("check system.toml").exits(1).out;
    assert!(checked.contains("plan may call any object"), "{checked}");
    assert!(!checked.contains("proved"), "{checked}");
}

#[test]
fn a_system_can_come_through_a_pipe() {
    let place = Place::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(common::SMALL.as_bytes()).unwrap();
    drop(writer);
    let output = place.command("sim /dev/stdin --record piped.hyo").stdin(reader).output().unwrap();
    let ended = common::Ended::of("sim /dev/stdin", &output).exits(0);
    assert!(ended.out.contains("small"), "{}", ended.out);
    place.hyoshi("trace replay piped.hyo").exits(0);
}

#[test]
fn a_reader_that_goes_away_ends_nothing_badly() {
    let place = Place::with_small();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for words in ["sim small.toml --report report.html", "sim small.toml --format json", "check small.toml", "schema"] {
        let output = place.command(words).stdout(writer.try_clone().unwrap()).output().unwrap();
        let ended = common::Ended::of(words, &output).exits(0);
        assert_eq!(ended.err, "", "{words}");
    }
    assert!(place.read("report.html").contains("</html>"));
    // Errors have nowhere to go then, but the exit code.
    let output = place.command("sim missing.toml").stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn two_results_do_not_go_to_one_file() {
    let place = Place::with_small();
    for words in ["--record x --jobs x", "--record x --jobs ./x", "--report x --jobs x", "--record x --report x"] {
        let refused = place.hyoshi(&format!("sim small.toml {words}")).exits(2);
        assert!(refused.err.contains("name the same file"), "{}", refused.err);
        assert!(!place.path().join("x").exists());
    }
    let refused = place.hyoshi("run small.toml --record x --report x").exits(2);
    assert!(refused.err.contains("name the same file"), "{}", refused.err);
}

#[test]
fn a_simulation_that_is_interrupted_says_so_and_exits_with_3() {
    let place = Place::with_small();
    let mut command = place.command("sim small.toml --duration 80000h --format json --record sim.rec");
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    place.wait_for_growth("sim.rec", 2);
    let kill = format!("kill -INT {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let ended = common::Ended::of("sim", &child.wait_with_output().unwrap()).exits(3);
    let json = ended.json();
    assert_eq!((&json["interrupted"], &json["holds"]), (&true.into(), &true.into()));
    assert_eq!(place.hyoshi("sim small.toml --format json").exits(0).json()["interrupted"], false);
}

#[test]
fn regions_beyond_the_duration_are_not_warned_of() {
    let place = Place::new();
    let late = "[[epoch]]\nname = \"calm\"\nat = \"0s\"\n[[epoch]]\nname = \"busy\"\nat = \"1s\"\nset = { \"operation.steer.wcet\" = \"30ms\" }\n";
    place.write("late.toml", format!("{}{late}", common::SMALL));
    let said = |words: &str| place.hyoshi(words).err;
    assert!(said("sim late.toml").contains("in epoch `busy`"));
    assert_eq!(said("sim late.toml --duration 500ms"), "");
    let out = place.hyoshi("sim late.toml --duration 500ms").out;
    let busy = out.lines().find(|line| line.trim_start().starts_with("busy ")).unwrap();
    assert!(busy.ends_with("not reached"), "{out}");
}

#[test]
fn with_several_processors_the_table_names_each_operations() {
    let place = Place::new();
    place.write(
        "two.toml",
        common::SMALL
            .replace("[operation.steer]", "[processor.other]\n[operation.steer]\non = \"main\"")
            .replace("[operation.plan]", "[operation.plan]\non = \"other\""),
    );
    for verb in ["sim", "check"] {
        let out = place.hyoshi(&format!("{verb} two.toml")).exits(0).out;
        let of = |name: &str| {
            out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{out}")).to_owned()
        };
        assert!(of("operation ").contains("processor"), "{out}");
        assert!(of("steer").contains(" main ") && of("plan").contains(" other "), "{out}");
    }
    let one = place.hyoshi(&format!("sim {}", example("flight-program.toml"))).out;
    assert!(!one.lines().any(|line| line.contains("operation ") && line.contains("processor")), "{one}");
}
