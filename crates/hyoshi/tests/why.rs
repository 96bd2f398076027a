//! `hyoshi why` and `hyoshi trace export`: why a job was late, and the same for a viewer.

use crate::common;

use common::{Place, alone};
use serde_json::Value;

/// One job that is always late, and why: `high` runs first, and again in the middle.
const LATE: &str = r#"name = "late"
duration = "100ms"

[processor.main]
strategy = "RMS"

[operation.high]
every = "10ms"
wcet = "4ms"
critical = true

[operation.low]
every = "50ms"
wcet = "10ms"
deadline = "15ms"

[operation.after]
after = { all = ["low"] }
wcet = "1ms"
"#;

fn late() -> Place {
    let place = Place::new();
    place.write("late.toml", LATE);
    place.hyoshi("sim late.toml --record late.hyo").exits(0);
    place
}

#[test]
fn the_answer_word_by_word() {
    let place = late();
    let why = place.hyoshi("why late.hyo low#1").exits(1);
    let expected = "\
low#1 missed its deadline by 3ms
  non-critical, on main (RMS); release at 0.050000s, due 15ms later, ended 18ms later

  ░░░░░░░░░░░░░░░░████████████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒████████████████
                                                              ^ deadline
  █ ran  ▓ ran too long  ░ waited  ▒ preempted  x resource, cap  · before its queue  o other

where its 18ms were spent
        10ms    55.6 %  executed, within its declared worst case
         4ms    22.2 %  waited for high#5, which is more urgent
         4ms    22.2 %  preempted by high#6, which is more urgent

step by step, from its release
          +0       4ms  waited for high#5, which is more urgent
        +4ms       6ms  executed, within its declared worst case
       +10ms       4ms  preempted by high#6, which is more urgent
       +14ms       4ms  executed, within its declared worst case

what the dispatcher decided
                    +0  ready, in the queue of lane 1
                  +4ms  begins, in lane 1
                 +18ms  ends

lasted 18ms (proved bound 19ms)
from a simulation: every instant is known
";
    assert_eq!(why.out, expected);
    let worst = place.hyoshi("why late.hyo --worst low").exits(1);
    assert!(worst.out.starts_with("low#0 missed its deadline by 3ms"), "{}", worst.out);
}

#[test]
fn the_path_to_a_job_is_told_hop_by_hop() {
    let place = late();
    let why = place.hyoshi("why late.hyo after#0").exits(1);
    assert!(why.out.starts_with("after#0 missed its deadline by 4ms"), "{}", why.out);
    for said in
        ["the path to it", "low#0 on main: 10ms executing", "after#0 on main: 1ms executing", "before it: the jobs"]
    {
        assert!(why.out.contains(said), "{said}: {}", why.out);
    }
    let json = place.hyoshi("why late.hyo after#0 --format json").exits(1).json();
    assert_eq!(json["path"][0]["operation"], "low");
    assert_eq!(json["job"]["operation"], "after");
    let parts = json["job"]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["span_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), json["job"]["response_ns"].as_u64());
}

#[test]
fn a_timeout_is_named_as_the_release_of_its_job() {
    let place = Place::new();
    let text = "name = 'timeout'\nduration = '50ms'\n[processor.main]\n[operation.gps]\nevery = '1s'\nwcet = '1ms'\n\
        [operation.watch]\nafter = { all = ['gps'] }\ntimeout = '20ms'\nwcet = '1ms'\n";
    place.write("timeout.toml", text);
    place.hyoshi("sim timeout.toml --record timeout.hyo").exits(0);
    let words = "released by its timeout: no trigger for 20ms";
    let why = |job: &str| place.hyoshi(&format!("why timeout.hyo {job}")).exits(0).out;
    assert!(!why("watch#0").contains("timeout"), "{}", why("watch#0"));
    assert!(why("watch#1").contains(words), "{}", why("watch#1"));
    let json = |job: &str| place.hyoshi(&format!("why timeout.hyo {job} --format json")).exits(0).json();
    assert_eq!(
        (&json("watch#0")["job"]["timed_out"], &json("watch#1")["job"]["timed_out"]),
        (&false.into(), &true.into())
    );
}

#[test]
fn without_a_job_the_late_ones_are_listed() {
    let place = late();
    let list = place.hyoshi("why late.hyo").exits(1);
    assert!(list.out.starts_with("4 of 14 jobs did not make their deadlines"), "{}", list.out);
    assert!(list.out.contains("waited for high#0") || list.out.contains("preempted by high#1"), "{}", list.out);
    let json = place.hyoshi("why late.hyo --format json").exits(1).json();
    assert_eq!((json["not_made"].as_u64(), json["jobs"].as_u64()), (Some(4), Some(14)));
    let fine = Place::with_small();
    fine.hyoshi("sim small.toml --record fine.hyo").exits(0);
    assert!(fine.hyoshi("why fine.hyo").exits(0).out.starts_with("all "));
}

#[test]
fn what_is_not_in_the_recording_is_told_with_what_is() {
    let place = late();
    for (words, said) in [
        ("why late.hyo lov#1", "did you mean `low`?"),
        ("why late.hyo nothing#1", "it has high, low, after"),
        ("why late.hyo low#77", "it has low#0 to low#1"),
        ("why late.hyo low#0.3", "but no such leg"),
        ("why late.hyo low#x", "no release number"),
        ("why late.hyo --worst hgh", "did you mean `high`?"),
        ("why late.hyo LOW", "did you mean `low`?"),
        ("why late.hyo After#0", "did you mean `after`?"),
        ("why none.hyo low#1", "cannot read none.hyo"),
        ("why late.toml low#1", "not a recording"),
    ] {
        let ended = place.hyoshi(words).exits(2);
        assert!(ended.err.contains(said), "{words}: {}", ended.err);
    }
}

/// `fuse` waits for three jobs of a template, each of which takes more than it declares.
const OVERRUN: &str = r#"name = "overrun"
duration = "60ms"

[processor.main]
strategy = "RMS"

[operation.map]
every = "20ms"
wcet = "2ms"
takes = "TAKES"
count = 3

[operation.fuse]
every = "30ms"
wcet = "5ms"
deadline = "10ms"

[operation.show]
after = { all = ["fuse"] }
wcet = "1ms"
"#;

#[test]
fn who_overran_is_told_and_by_how_much_wherever_it_matters() {
    let place = Place::new();
    place.write("overrun.toml", OVERRUN.replace("TAKES", "4ms"));
    place.hyoshi("sim overrun.toml --record rec.hyo");
    let list = place.hyoshi("why rec.hyo").exits(1).out;
    assert!(list.contains("waited for 3 jobs of map, which are more urgent; 3 of them overran, map.1#0 the most: declares 2ms, used 4ms"), "{list}");
    // What came before it is carried into the line of the later stage.
    let show = list.lines().find(|line| line.contains("show#0")).unwrap();
    assert!(
        show.contains("before it: the jobs")
            && show.contains("5ms of it executing as declared, 12ms of it fuse#0 waited for 3 jobs of map"),
        "{show}"
    );
    assert!(list.contains("jobs of map: waited"), "{list}");
    let json = place.hyoshi("why rec.hyo --format json").exits(1).json();
    let miss = json["misses"].as_array().unwrap().iter().find(|miss| miss["operation"] == "fuse").unwrap();
    let together = &miss["together"][0];
    assert_eq!(
        (&together["operation"], &together["jobs"], &together["overruns"]),
        (&"map".into(), &3.into(), &3.into())
    );
    assert_eq!(together["overrun"]["declared_ns"], 2_000_000);
    assert_eq!(together["overrun"]["used_ns"], 4_000_000);
    assert_eq!(json["lost_to"]["culprits"][0]["operation"], "map");
    let show = json["misses"].as_array().unwrap().iter().find(|miss| miss["operation"] == "show").unwrap();
    assert_eq!((&show["earlier"]["of"]["operation"], &show["earlier"]["operation"]), (&"fuse".into(), &"map".into()));
    let step = place.hyoshi("why rec.hyo fuse#0").exits(1).out;
    assert!(step.contains("waited for map.1#0, which is more urgent; it overran: declares 2ms, used 4ms"), "{step}");
    let own = place.hyoshi("why rec.hyo map.2#0").out;
    assert!(own.contains("executed, beyond its declared worst case: declares 2ms, used 4ms"), "{own}");
    place.hyoshi("trace summary rec.hyo --report rec.html");
    assert!(place.read("rec.html").contains("overran: declares 2ms, used 4ms"));
}

#[test]
fn a_template_stands_for_its_operations() {
    let place = Place::new();
    place.write("overrun.toml", OVERRUN.replace("TAKES", "9ms"));
    place.hyoshi("sim overrun.toml --record rec.hyo");
    let map = place.hyoshi("why rec.hyo map").exits(1).out;
    assert!(map.contains(" jobs of map did not make their deadlines"), "{map}");
    assert!(!map.contains("fuse#"), "{map}");
    let json = place.hyoshi("why rec.hyo map --format json").exits(1).json();
    assert_eq!(json["of"], "map");
    assert!(
        json["misses"].as_array().unwrap().iter().all(|miss| miss["operation"].as_str().unwrap().starts_with("map."))
    );
    assert!(place.hyoshi("why rec.hyo --worst map").exits(1).out.starts_with("map."));
    let several = place.hyoshi("why rec.hyo map#3").exits(2).err;
    assert!(several.contains("`map` is a template") && several.contains("such as `map.1#3`"), "{several}");
    let mistyped = place.hyoshi("why rec.hyo Map").exits(2).err;
    assert!(mistyped.contains("did you mean `map`?"), "{mistyped}");
}

#[test]
fn every_key_is_documented() {
    fn keys(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                into.push(key.clone());
                keys(value, into);
            }),
            Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
            _ => {}
        }
    }
    let place = late();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let (_, ours) = doc.split_once("## `sim --from`").unwrap();
    for words in ["why late.hyo low#1", "why late.hyo", "trace export --perfetto late.hyo", "sim --from late.hyo"] {
        let json = place.hyoshi(&format!("{words} --format json")).json();
        let json = json.get("again").cloned().unwrap_or(json);
        let mut written = Vec::new();
        keys(&json, &mut written);
        for key in written {
            // What `trace compare` tells has a place of its own.
            let elsewhere =
                ["agreeing", "jobs", "near_ties", "disturbed", "disagreements", "name"].contains(&key.as_str());
            assert!(elsewhere || doc.contains(&format!("`{key}`")), "{words}: docs/json.md says nothing of {key}");
        }
    }
    assert!(ours.contains("## `why`"));
}

#[test]
fn an_export_holds_every_job_and_is_marked_if_the_recording_is_cut() {
    let place = late();
    let json = place.hyoshi("trace export --perfetto late.hyo --format json").exits(0).json();
    assert_eq!(json["file"], "late.perfetto-trace");
    // Two are released as the simulation ends.
    assert_eq!((json["jobs"].as_u64(), json["flows"].as_u64()), (Some(14 + 2), Some(2)), "{json}");
    let bytes = place.bytes("late.perfetto-trace");
    // Every packet is field 1 of the trace, with a length.
    let (mut at, mut packets) = (0, 0);
    while at < bytes.len() {
        assert_eq!(bytes[at], 0x0a);
        let (mut length, mut shift) = (0usize, 0);
        loop {
            at += 1;
            length |= usize::from(bytes[at] & 0x7f) << shift;
            shift += 7;
            if bytes[at] & 0x80 == 0 {
                break;
            }
        }
        at += 1 + length;
        packets += 1;
    }
    assert_eq!((at, Some(packets)), (bytes.len(), json["packets"].as_u64()));

    let whole = place.bytes("late.hyo");
    place.write("cut.hyo", &whole[..whole.len() - 10]);
    let cut = place.hyoshi("trace export --perfetto cut.hyo -o cut.pt").exits(0);
    assert!(cut.out.contains("marked as partial"), "{}", cut.out);
    assert!(place.bytes("cut.pt").windows(20).any(|window| window == b"recording ends early"));
    assert!(place.hyoshi("trace export --perfetto late.hyo -o late.hyo").exits(2).err.contains("cannot overwrite"));
    // The flag may be left out.
    place.hyoshi("trace export late.hyo -o same.pt").exits(0);
    assert_eq!(place.bytes("same.pt"), bytes);
}

#[test]
fn a_job_of_a_run_is_explained_too() {
    let _alone = alone();
    let place = Place::with_small();
    place.hyoshi("run small.toml --no-report --record run.hyo");
    let json = place.hyoshi("why run.hyo plan#3 --format json").json();
    let parts = json["job"]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["span_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), json["job"]["response_ns"].as_u64(), "{json}");
    assert_ne!(json["job"]["basis"], "exact");
    place.hyoshi("trace export --perfetto run.hyo").exits(0);
}

#[test]
fn a_job_that_never_began_is_not_late_by_being_cancelled() {
    let place = Place::new();
    place.write("full.toml", common::OVERLOADED.replace("\"2s\"", "\"300ms\""));
    place.hyoshi("sim full.toml --record full.hyo").exits(0);
    let why = place.hyoshi("why full.hyo explore").exits(1).out;
    assert!(!why.contains("past its deadline"), "{why}");
}

/// Jobs that were due during a move were released on arrival: the move is the cause, not a late timer.
#[test]
fn a_job_that_was_due_during_a_move_names_the_move() {
    let place = Place::new();
    let text = include_str!("../../../examples/reallocation.toml");
    // Longer jobs than in the example: the last one on `front` ends late.
    place.write("moves.toml", text.replace("[\"40ms\", \"55ms\"]", "[\"90ms\", \"99ms\"]"));
    place.hyoshi("sim moves.toml --duration 60s --record moves.hyo");
    let why = place.hyoshi("why moves.hyo --worst track@rear");
    let cause = "released late: its operation moved from `front` to `rear` meanwhile";
    assert!(why.out.contains(cause) && !why.out.contains("timer"), "{}", why.out);
    let why = place.hyoshi("why moves.hyo --worst track@rear --format json");
    let parts = serde_json::from_str::<Value>(&why.out).unwrap()["job"]["parts"].clone();
    let moved = parts.as_array().unwrap().iter().find(|part| part["cause"] == "moved");
    assert!(moved.is_some_and(|part| part["span_ns"].as_u64().unwrap() > 1_000_000), "{parts}");
}
