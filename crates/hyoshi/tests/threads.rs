//! Distributable threads of `examples/uav-chain.toml`, from the shell.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ended, Place, alone, example};

/// A run that is stopped at the end.
struct Run<'a> {
    place: &'a Place,
    at: String,
    process: Child,
}

impl<'a> Run<'a> {
    fn start(place: &'a Place, words: &str, control: &str) -> Run<'a> {
        let words = format!("run uav-chain.toml --no-report {words} --control {control}");
        let process = place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Run { place, at: format!("--at unix:{}", place.path().join(control).display()), process }
    }

    fn threads(&self, words: &str) -> Ended {
        self.place.hyoshi(&format!("threads {words} {}", self.at))
    }

    /// A live thread, when there is one that `picks` selects.
    fn live(&self, picks: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let ended = self.threads("list --format json");
            assert!(began.elapsed() < Duration::from_secs(60), "{}{}", ended.out, ended.err);
            if ended.code == 0
                && let Some(found) = ended.json()["threads"].as_array().unwrap().iter().find(|one| picks(one))
            {
                return found.clone();
            }
        }
    }

    /// Cancels live threads until one was cancelled before it ended. Returns its id and its answer.
    fn cancel_one(&self, picks: impl Fn(&Value) -> bool) -> (String, Value) {
        loop {
            let id = self.live(&picks)["thread"].as_str().unwrap().to_owned();
            let cancelled = self.threads(&format!("cancel {id} --format json"));
            if cancelled.code == 0 {
                return (id, cancelled.json());
            }
            assert!(cancelled.out.contains("the thread is not alive"), "{}{}", cancelled.out, cancelled.err);
        }
    }

    fn end(&mut self) {
        self.place.hyoshi(&format!("node stop {}", self.at)).exits(0);
        let _ = self.process.wait();
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes the example with Unix sockets.
fn write(place: &Place) {
    let endpoint = |host: &str| format!("unix/{}", place.path().join(host).display());
    let text = std::fs::read_to_string(example("uav-chain.toml")).unwrap();
    let text = text.replace("tcp/127.0.0.1:7447", &endpoint("drone.iiop"));
    place.write("uav-chain.toml", text.replace("tcp/127.0.0.1:7448", &endpoint("station.iiop")));
}

#[test]
fn threads_of_a_run_of_all_hosts_are_listed_shown_and_cancelled() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let run = Run::start(&place, "", "all.sock");
    let thread = run.live(|thread| thread["operation"] == "recognise");
    assert_eq!((&thread["chain"], &thread["host"]), (&"avoid".into(), &"station".into()));
    let table = run.threads("list").exits(0).out;
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let (id, cancelled) = run.cancel_one(|thread| thread["operation"] == "recognise");
    let operation = cancelled["operation"].as_str().unwrap();
    assert!(["recognise", "assess", "evade"].contains(&operation), "{cancelled}");
    let shown = run.threads(&format!("show {id} --format json")).exits(0).json();
    assert_eq!((&shown["thread"], &shown["chain"]), (&id.clone().into(), &"avoid".into()));
    assert_eq!(shown["segments"][0]["operation"], "camera");
    assert!(shown["used_ns"].as_u64().unwrap() > 0, "{shown}");
    let text = run.threads(&format!("show {id}")).exits(0).out;
    assert!(text.contains("avoid") && text.contains("camera"), "{text}");
    let again = run.threads(&format!("cancel {id}")).exits(2).err;
    assert!(again.contains("the thread is not alive: it has ended"), "{again}");
    let (origin, number) = id.split_once('-').unwrap();
    let foreign = format!("{:x}-{number}", u64::from_str_radix(origin, 16).unwrap() ^ (1 << 40));
    for (words, message, remedy) in [
        (format!("cancel {foreign}"), "the thread belongs to another run", "threads list"),
        (format!("show {foreign}"), "the thread belongs to another run", "threads list"),
        (format!("cancel {origin}-ffffffff"), "the thread has not begun", "threads list"),
        (format!("show {origin}-ffffffff"), "nothing is known about the thread", "threads list"),
        ("cancel 17".to_owned(), "is not a thread's id", "such as"),
        ("show 5f1c9a22-xyz".to_owned(), "is not a thread's id", "such as"),
    ] {
        let refused = run.threads(&words).exits(2).err;
        assert!(refused.contains(message) && refused.contains(remedy), "{words}: {refused}");
    }
    let elsewhere = place.hyoshi(&format!("threads cancel {id} --at unix:/nowhere.sock")).exits(2).err;
    assert!(elsewhere.contains("no node answers"), "{elsewhere}");
}

#[test]
fn a_thread_is_cancelled_and_explained_over_two_processes() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let [mut station, mut drone] = ["station", "drone"]
        .map(|host| Run::start(&place, &format!("--host {host} --record {host}.hyo"), &format!("{host}.sock")));
    // Either node answers for both hosts.
    let (id, cancelled) = drone.cancel_one(|thread| thread["host"] == "station");
    assert!(cancelled["host"] == "station" || cancelled["host"] == "drone", "{cancelled}");
    let later = station.live(|thread| thread["host"] == "station" && thread["thread"] != id.as_str());
    assert_eq!(later["chain"], "avoid");
    drone.end();
    station.end();
    place.hyoshi("trace merge drone.hyo station.hyo -o merged.hyo").exits(0);
    let number = u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap();
    let operation = cancelled["operation"].as_str().unwrap();
    let why = place.hyoshi(&format!("why merged.hyo {operation}#{number}")).exits(1);
    assert!(why.out.contains("cancelled") && why.out.contains("camera"), "{}{}", why.out, why.err);
    for file in ["drone.hyo", "station.hyo", "merged.hyo"] {
        let replayed = place.hyoshi(&format!("trace replay {file}"));
        assert_eq!(replayed.code, 0, "{file}: {}{}", replayed.out, replayed.err);
    }
}

/// A thread that is cancelled between two hosts has no job there, but the recording holds its arrival.
#[test]
fn a_thread_that_is_cancelled_on_its_way_is_explained() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let text = std::fs::read_to_string(place.path().join("uav-chain.toml")).unwrap();
    place.write("uav-chain.toml", text.replace("[\"0.5ms\", \"4ms\"]", "\"200ms\"").replace("150ms", "1s"));
    let mut run = Run::start(&place, "--record all.hyo", "all.sock");
    let (id, cancelled) = loop {
        let id = run.live(|thread| thread["operation"] == "camera")["thread"].as_str().unwrap().to_owned();
        // Until the camera's job has ended: then the thread is on its way.
        while !run.threads(&format!("show {id} --format json")).exits(0).json()["head"].is_null() {}
        let cancelled = run.threads(&format!("cancel {id} --format json"));
        // Else it has ended, or was on its way back.
        if cancelled.code == 0 && cancelled.json()["on_its_way"] == true && cancelled.json()["host"] == "station" {
            break (id, cancelled.json());
        }
    };
    assert_eq!(cancelled["operation"], "recognise");
    run.end();
    let number = u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap();
    let why = place.hyoshi(&format!("why all.hyo recognise#{number}")).exits(1).out;
    let first = why.lines().next().unwrap();
    assert!(first.starts_with(&format!("recognise#{number} was never released")), "{why}");
    assert!(first.ends_with(&format!("arrived from camera#{number}")), "{why}");
    assert!(why.contains(&format!("\ncamera#{number} ")), "{why}");
    let json = place.hyoshi(&format!("why all.hyo recognise#{number} --format json")).exits(1).json();
    assert_eq!((&json["dropped"]["operation"], &json["job"]["operation"]), (&"recognise".into(), &"camera".into()));
    let before = place.hyoshi(&format!("why all.hyo camera#{number}")).out;
    assert!(before.contains("recognise is not released: the thread was cancelled"), "{before}");
    place.hyoshi("trace replay all.hyo").exits(0);
    let summary = place.hyoshi("trace summary all.hyo --format json").json();
    let operations = summary["operations"].as_array().unwrap();
    let recognise = operations.iter().find(|one| one["name"] == "recognise").unwrap();
    assert!(recognise["discarded"]["cancelled"].as_u64().unwrap() > 0, "{recognise}");
}
