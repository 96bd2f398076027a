//! Feedback control of rates, as a user sees it.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::common::broker::kill;
use crate::common::loopback::unused_address;
use crate::common::{Ended, Place, alone, example, real_time};

#[test]
fn other_gains_are_tried_on_the_recorded_jobs() {
    let place = Place::new();
    place.hyoshi(&format!("sim {} --duration 20s --record sim.hyo", example("feedback.toml")));
    let settled = |words: &str| {
        let json = place.hyoshi(&format!("sim --from sim.hyo {words} --format json")).json();
        json["processors"][0]["feedback"]["settled_after"].as_u64().unwrap()
    };
    let (as_recorded, slower) = (settled(""), settled("--gains 3,0.447"));
    assert!(slower > as_recorded + 3, "{as_recorded} and {slower} samples");
    let refused = place.hyoshi("sim --from sim.hyo --gains 0,0.447").exits(2);
    assert!(refused.err.contains("write two or three numbers from 0.000001 to 1000000"), "{}", refused.err);
    let refused = place.hyoshi(&format!("check {} --gains 2,0.447", example("tight.toml"))).exits(2);
    assert!(refused.err.contains("--gains has no effect: system `"), "{}", refused.err);
}

/// Two operations with periods of at least 50 ms. Jobs need 2.5 times their worst case.
const ANALYSED: &str = "name = 'analysed'\nduration = '60s'\n[processor.camera]\nstrategy = 'RMS'\n\
    [feedback.camera]\nalgorithm = 'FC-U'\nutilisation = 'analysis'\nperiod = '1s'\n\
    [operation.track]\nrate = ['5Hz', '20Hz']\nwcet = '8ms'\ntakes = { uniform = ['20ms', '20ms'] }\n\
    [operation.detect]\nrate = ['4Hz', '20Hz']\nwcet = '8ms'\ntakes = { uniform = ['20ms', '20ms'] }\n";

#[test]
fn a_set_point_by_analysis_is_the_bound_of_check_and_is_the_same_in_a_replay() {
    let place = Place::new();
    place.write("loop.toml", ANALYSED);
    let checked = place.hyoshi("check loop.toml --format json").json();
    let one = &checked["feedback"][0];
    // 82.8 %, less two pauses of 6.74 ms in 100 ms, of the cap of 94 %.
    let bound = one["bound_ppm"].as_u64().unwrap();
    assert!((737_000..738_500).contains(&bound), "{one}");
    assert_eq!((&one["target_ppm"], &one["set_by_analysis"]), (&one["bound_ppm"], &true.into()), "{one}");
    let set = |json: &Value| {
        let feedback = &json["processors"][0]["feedback"];
        assert_eq!(feedback["set_by_analysis"], true);
        feedback["utilisation_set_ppm"].as_u64().unwrap()
    };
    let json = place.hyoshi("sim loop.toml --record sim.hyo --format json").json();
    assert_eq!(set(&json), bound);
    let steady = json["processors"][0]["feedback"]["steady"]["utilisation_ppm"].as_u64().unwrap();
    assert!(steady.abs_diff(bound) < 10_000, "{steady}");
    assert_eq!(json["processors"][0]["feedback"]["steady"]["miss_ratio_ppm"], 0);
    // A replay needs no analysis: with another one, the recorded value counts.
    assert_eq!(set(&place.hyoshi("trace summary sim.hyo --format json").json()), bound);
    assert_eq!(set(&place.hyoshi("sim --from sim.hyo --cap 90% --format json").json()), bound);
    place.hyoshi("trace replay sim.hyo").exits(0);
    let text = place.hyoshi("sim loop.toml --duration 5s").exits(0).out;
    assert!(text.contains("(analysis)"), "{text}");
    // Changes of the command line count.
    let wider = place.hyoshi("check loop.toml --cap 100% --hard-cap 100% --format json").json();
    assert!(wider["feedback"][0]["bound_ppm"].as_u64().unwrap().abs_diff(828_427) <= 2, "{wider}");
    let refused = place.hyoshi("check loop.toml --strategy MUF").exits(2);
    assert!(refused.err.contains("no set point of `camera` is proved free of misses"), "{}", refused.err);
    assert!(refused.err.contains("levels are not by rate, a level for each"), "{}", refused.err);
    place.write("loop.toml", ANALYSED.replace("'analysis'", "'analysis'\nmargin = '80%'"));
    let refused = place.hyoshi("check loop.toml").exits(2);
    assert!(refused.err.contains("the margin leaves no utilisation for `camera`"), "{}", refused.err);
}

#[test]
fn service_levels_follow_the_load_and_are_the_same_in_a_replay() {
    let place = Place::new();
    let levels = |json: &Value| {
        let rates = json["processors"][0]["feedback"]["rates"].as_array().unwrap().clone();
        let of = |rate: &Value| rate["level"].as_object().map(|level| Value::Object(level.clone()));
        rates.iter().filter_map(of).collect::<Vec<_>>()
    };
    let file = example("service-levels.toml");
    let json = place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).json();
    let found = levels(&json);
    assert_eq!((&found[1]["operation"], &found[1]["name"]), (&"detect".into(), &"full".into()), "{found:?}");
    // It rises at the start and after the load, and falls under it.
    assert!((3..=6).contains(&found[1]["changes"].as_u64().unwrap()), "{found:?}");
    assert_eq!(levels(&place.hyoshi("trace summary sim.hyo --format json").json()), found);
    assert_eq!(levels(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
    place.hyoshi("trace replay sim.hyo").exits(0);
    let ran = place.hyoshi(&format!("run {file} --duration 1s --record run.hyo --format json")).json();
    assert_eq!(levels(&ran).len(), 2);
    place.hyoshi("trace replay run.hyo").exits(0);
    let refused = place.hyoshi(&format!("run {file} --freeze fixed.toml")).exits(2);
    assert!(refused.err.contains("`detect` has service levels, which cannot be frozen"), "{}", refused.err);
}

#[test]
fn a_latency_settles_and_is_the_same_in_a_replay() {
    let place = Place::new();
    let latencies = |json: &Value| {
        let feedback = &json["processors"][0]["feedback"];
        assert_eq!(feedback["latency_set"]["of"], "track", "{feedback}");
        let over_time = feedback["over_time"].as_array().unwrap().iter();
        over_time.map(|point| point["latency_ns"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let file = example("latency.toml");
    let json = place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).json();
    let found = latencies(&json);
    // In the second half of the fog, the 90 % quantile of `track` is within a tenth of 20 ms.
    let settled = &found[45..60];
    let mean = settled.iter().sum::<u64>() / settled.len() as u64;
    assert!((18_000_000..22_000_000).contains(&mean), "{found:?}");
    assert_eq!(latencies(&place.hyoshi("trace summary sim.hyo --format json").json()), found);
    assert_eq!(latencies(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
    place.hyoshi("trace replay sim.hyo").exits(0);
    // A greater GL makes smaller steps.
    let third = |words: &str| {
        let json = place.hyoshi(&format!("sim --from sim.hyo {words} --format json")).json();
        json["processors"][0]["feedback"]["over_time"][2]["total_ppm"].as_u64().unwrap()
    };
    let (slower, as_recorded) = (third("--gains 2,0.447,16"), third(""));
    assert!(slower < as_recorded, "{slower} and {as_recorded}");
    let ran = place.hyoshi(&format!("run {file} --duration 5s --record run.hyo --format json")).json();
    assert!(!latencies(&ran).is_empty());
    place.hyoshi("trace replay run.hyo").exits(0);
    let text = place.hyoshi(&format!("sim {file} --duration 20s")).exits(0).out;
    assert!(text.contains("U 75.0 %, L 20ms (90 % of track)"), "{text}");
}

/// While a process is stopped, its clock goes on.
#[test]
fn a_jump_of_the_clock_raises_no_rate() {
    let _alone = alone();
    let place = Place::new();
    // The rates rise in each sample of the run: GA is far above the ratio of the jobs.
    let file = "name = \"jump\"\nduration = \"5s\"\n[processor.main]\n[feedback.main]\nalgorithm = \"FC-U\"\n\
        utilisation = \"70%\"\nperiod = \"100ms\"\nmeasure = \"lanes\"\ngains = { ga = 50, gm = 0.447 }\n\
        [operation.track]\nrate = [\"20Hz\", \"500Hz\"]\nwcet = \"1ms\"\n";
    place.write("jump.toml", file);
    let words = "run jump.toml --record jump.hyo --no-report --format json";
    let child = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for_growth("jump.hyo", 4);
    kill(child.id(), "-STOP");
    std::thread::sleep(std::time::Duration::from_secs(1));
    kill(child.id(), "-CONT");
    let ended = Ended::of(words, &child.wait_with_output().unwrap());
    assert!([0, 1].contains(&ended.code), "{} {}", ended.out, ended.err);
    let json = ended.json();
    let points = json["processors"][0]["feedback"]["over_time"].as_array().unwrap();
    let of = |point: &Value| ["at_ns", "total_ppm"].map(|key| point[key].as_u64().unwrap());
    let points: Vec<[u64; 2]> = points.iter().map(of).collect();
    let jumps = |pair: &&[[u64; 2]]| pair[1][0] - pair[0][0] > 900_000_000;
    let jump = points.windows(2).find(jumps).unwrap_or_else(|| panic!("the clock jumps: {points:?}"));
    assert!(jump[1][1] <= jump[0][1], "{points:?}");
    // The loop goes on.
    assert!(points.first().unwrap()[1] < jump[0][1] && jump[1][1] < points.last().unwrap()[1], "{points:?}");
    place.hyoshi("trace replay jump.hyo").exits(0);
}

/// The server's loop sets the client's rate; at its lowest, requests use 5 % of the server's CPU.
fn client_and_server() -> String {
    let (client, server) = (unused_address(), unused_address());
    let second = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1));
    format!(
        r#"
name = "rates"
duration = "5s"

[host.client]
endpoints = ["tcp/{client}"]

[host.server]
endpoints = ["tcp/{server}"]

[processor.client]
host = "client"
cpu = {second}

[processor.server]
host = "server"
cpu = 0

[feedback.server]
algorithm = "FC-U"
utilisation = "50%"
period = "200ms"
measure = "lanes"

[operation.ask]
on = "client"
rate = ["10Hz", "400Hz"]
wcet = "0.1ms"

[operation.serve]
on = "server"
after = {{ all = ["ask"] }}
wcet = "3ms"
takes = {{ uniform = ["4ms", "5ms"] }}
"#
    )
}

#[test]
fn the_loop_of_one_process_sets_the_rates_of_another() {
    let _alone = alone();
    let place = Place::new();
    place.write("rates.toml", client_and_server());
    let run = |host: &str, words: &str| {
        let socket = place.path().join(format!("{host}.sock"));
        let words =
            format!("run rates.toml --host {host} --control {} --no-report --format json {words}", socket.display());
        let child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (words, child)
    };
    let (client, server) = (run("client", ""), run("server", "--freeze frozen.toml"));
    // Deadlines of a busy machine are not the subject.
    let json = |(words, child): (String, Child)| {
        let ended = Ended::of(&words, &child.wait_with_output().unwrap());
        assert!([0, 1].contains(&ended.code), "{} {}", ended.out, ended.err);
        ended.json()
    };
    let (client, server) = (json(client), json(server));
    let of_loop = |json: &Value| {
        let processors = json["processors"].as_array().unwrap();
        processors.iter().find(|one| one["name"] == "server").unwrap()["feedback"].clone()
    };
    let (seen, held) = (of_loop(&client), of_loop(&server));
    assert!(held["samples"].as_u64() > Some(15), "{held}");
    assert_eq!(seen["samples"], 0);
    let (set, got) = (&held["rates"][0], &seen["rates"][0]);
    assert!(set["changes"].as_u64() > Some(3) && got["changes"].as_u64() > Some(3), "{set} {got}");
    assert!(set["measured_ns"].as_u64() > set["declared_ns"].as_u64(), "{set}");
    let frozen = place.read("frozen.toml");
    assert!(!frozen.contains("[feedback") && frozen.contains("every = "), "{frozen}");
    if real_time() {
        let steady = held["steady"]["utilisation_ppm"].as_u64().unwrap();
        assert!((440_000..560_000).contains(&steady), "{held}");
    }
    let refused = place.hyoshi("run rates.toml --host client --freeze frozen.toml").exits(2);
    assert!(refused.err.contains("no feedback loop runs on host `client`"), "{}", refused.err);
    assert!(refused.err.contains("--host server"), "{}", refused.err);
}

/// One chain couples two hosts. At the lowest rates each processor uses at most 5 %.
fn far_group() -> String {
    let second = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1));
    let part = |host: &str, cpu: usize, utilisation: u32| {
        format!(
            "[host.{host}]\nendpoints = [\"tcp/{}\"]\n[processor.{host}]\nhost = \"{host}\"\ncpu = {cpu}\n\
             [feedback.{host}]\nalgorithm = \"EUCON\"\nutilisation = \"{utilisation}%\"\nperiod = \"250ms\"\n\
             measure = \"lanes\"\n",
            unused_address()
        )
    };
    format!(
        r#"
name = "far"
duration = "8s"
{}{}
[operation.sense]
on = "front"
rate = ["10Hz", "200Hz"]
wcet = "1ms"
takes = {{ uniform = ["2ms", "2ms"] }}

[operation.fuse]
on = "back"
after = {{ all = ["sense"] }}
wcet = "2ms"

[operation.plan]
on = "back"
rate = ["10Hz", "400Hz"]
wcet = "1ms"
takes = {{ uniform = ["1.5ms", "1.5ms"] }}
"#,
        part("front", second, 20),
        part("back", 0, 40)
    )
}

#[test]
fn one_process_computes_the_rates_of_a_group_on_two_hosts() {
    let _alone = alone();
    let place = Place::new();
    place.write("far.toml", far_group());
    let run = |host: &str, words: &str| {
        let socket = place.path().join(format!("{host}.sock"));
        let words = format!(
            "run far.toml --host {host} --control {} --no-report --format json --record {host}.hyo {words}",
            socket.display()
        );
        let child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (words, child)
    };
    let (front, back) = (run("front", "--freeze frozen.toml"), run("back", ""));
    let json = |(words, child): (String, Child)| {
        let ended = Ended::of(&words, &child.wait_with_output().unwrap());
        assert!([0, 1].contains(&ended.code), "{} {}", ended.out, ended.err);
        ended.json()
    };
    let (front, back) = (json(front), json(back));
    let of = |json: &Value, processor: &str| {
        let processors = json["processors"].as_array().unwrap();
        processors.iter().find(|one| one["name"] == processor).unwrap()["feedback"].clone()
    };
    let held = [of(&front, "front"), of(&back, "back")];
    for one in &held {
        assert!(one["samples"].as_u64() > Some(15) && one["rates"][0]["changes"].as_u64() > Some(3), "{one}");
    }
    assert!(held[0]["unsolved_steps"].is_u64() && held[1]["unsolved_steps"].is_null(), "{held:?}");
    if real_time() {
        for (one, set) in held.iter().zip([200_000, 400_000]) {
            let steady = one["steady"]["utilisation_ppm"].as_u64().unwrap();
            assert!((set * 8 / 10..set * 12 / 10).contains(&steady), "{one}");
        }
    }
    place.hyoshi("trace replay front.hyo").exits(0);
    place.hyoshi("trace replay back.hyo").exits(0);
    let frozen = place.read("frozen.toml");
    assert!(!frozen.contains("[feedback") && !frozen.contains("rate = ["), "{frozen}");
    let refused = place.hyoshi("run far.toml --host back --freeze frozen.toml").exits(2);
    assert!(refused.err.contains("use --freeze in the process with `--host front`"), "{}", refused.err);
}

#[test]
fn a_job_that_was_due_while_its_operation_moved_has_this_cause() {
    let place = Place::new();
    let text = std::fs::read_to_string(example("reallocation.toml")).unwrap();
    // Long jobs of `detect` delay the departure, and `track` has the deadline of its period.
    let text = text
        .replace("\"40ms\", \"55ms\"", "\"90ms\", \"99ms\"")
        .replace("deadline = \"1s\"\nwcet     = \"20ms\"", "wcet = \"20ms\"");
    place.write("moves.toml", &text);
    let report = place.hyoshi("sim moves.toml --format json").exits(1).json();
    let misses = report["misses"].as_array().unwrap();
    let moved = misses.iter().filter(|one| one["operation"] == "track@rear");
    let explained: Vec<_> = moved.map(|one| one["explanation"].as_str().unwrap()).collect();
    assert!(!explained.is_empty(), "{misses:?}");
    assert!(explained.iter().all(|text| text.contains("its operation moved here in between")), "{explained:?}");
    let notes = report["notes"].as_array().unwrap();
    let note = |text: &str| notes.iter().any(|note| note["text"].as_str().unwrap().contains(text));
    assert!(
        note("`track` moved to `rear` at") && note("`front` was above its set point at the lowest rates"),
        "{notes:?}"
    );
}
