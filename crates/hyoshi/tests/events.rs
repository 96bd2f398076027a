//! Events of a running system, from the shell.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ended, Place, alone, example};

/// A run of `examples/uav-chain.toml` that is stopped at the end.
struct Run<'a> {
    place: &'a Place,
    control: String,
    process: Child,
}

impl<'a> Run<'a> {
    fn start(place: &'a Place, words: &str, control: &str) -> Run<'a> {
        let words = format!("run uav-chain.toml --no-report {words} --control {control}");
        let process = place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let control = format!("--at unix:{}", place.path().join(control).display());
        Run { place, control, process }
    }

    fn events(&self, words: &str) -> Ended {
        self.place.hyoshi(&format!("events {words} {}", self.control))
    }

    /// The states of the events, by name, when `ready` is true for them.
    fn states(&self, ready: impl Fn(&dyn Fn(&str) -> Value) -> bool) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let ended = self.events("list --format json");
            assert!(began.elapsed() < Duration::from_secs(60), "{}{}", ended.out, ended.err);
            if ended.code == 0 {
                let states = ended.json()["events"].as_array().unwrap().clone();
                let state = |name: &str| states.iter().find(|state| state["event"] == name).unwrap().clone();
                if ready(&state) {
                    return states;
                }
            }
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.place.hyoshi(&format!("node stop {}", self.control));
        let _ = self.process.wait();
    }
}

fn pushed(state: &Value) -> u64 {
    state["pushed"].as_u64().unwrap()
}

#[test]
fn events_of_a_run_are_listed_watched_and_published() {
    let _alone = alone();
    let place = Place::new();
    place.write("uav-chain.toml", std::fs::read(example("uav-chain.toml")).unwrap());
    let run = Run::start(&place, "", "all.sock");
    run.states(|state| pushed(&state("alarm/obstacle")) > 2);
    let table = run.events("list").exits(0).out;
    assert!(table.contains("sensor/position") && table.lines().all(|line| line.chars().count() <= 100), "{table}");

    let watched = run.events("watch sensor/* --count 12 --format json").exits(0).out;
    let events: Vec<Value> = watched.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 12);
    for name in ["camera", "position"] {
        let numbers = events.iter().filter(|event| event["supplier"] == name);
        let numbers: Vec<u64> = numbers.map(|event| event["number"].as_u64().unwrap()).collect();
        assert!(!numbers.is_empty() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{watched}");
    }

    let before = pushed(&run.states(|_| true)[4]);
    run.events("publish command/goto --text 48.1N").exits(0);
    // Refused until the `min_interval` of the supplier is over.
    let again = || run.events("publish command/goto --hex 0001ff");
    let refused = std::iter::repeat_with(again).take(200).take_while(|ended| ended.code != 0).inspect(|ended| {
        assert!(ended.err.contains("sooner than `min_interval`") && ended.err.contains("`command`"), "{}", ended.err);
    });
    assert!(refused.count() < 200);
    let states = run.states(|state| pushed(&state("command/goto")) == before + 2);
    assert_eq!((&states[4]["open"], &states[0]["open"]), (&true.into(), &false.into()));

    for (words, message, remedy) in [
        ("publish sensor/camera", "event `sensor/camera` cannot be published here", "add an operation"),
        ("publish nothing", "unknown event `nothing`", "events list"),
        ("watch noth*ng", "no event matches `noth*ng`", "events list"),
        ("publish command/goto --hex 0", "two hexadecimal digits", ""),
        ("publish command/goto --file nowhere", "cannot open nowhere", ""),
        ("publish command/goto --text a --hex 00", "cannot be used with", ""),
    ] {
        let refused = run.events(words).exits(2).err;
        assert!(refused.contains(message) && refused.contains(remedy), "{refused}");
    }
    place.write("long", [b'x'; 65]);
    let long = run.events("publish command/goto --file long").exits(2).err;
    assert!(long.contains("payload longer than declared") && long.contains("raise `payload`"), "{long}");
    place.write("longer", [b'x'; (64 << 10) + 1]);
    assert!(run.events("publish command/goto --file longer").exits(2).err.contains("longer than 64 KiB"));
}

#[test]
fn the_loss_of_a_host_is_an_event_and_its_events_resume_after_its_return() {
    let _alone = alone();
    let place = Place::new();
    over_sockets(&place);
    let station = Run::start(&place, "--host station", "station.sock");
    {
        let mut drone = Run::start(&place, "--host drone", "drone.sock");
        station.states(|state| pushed(&state("alarm/obstacle")) > 2);
        drone.process.kill().unwrap();
    }
    let lost = station.states(|state| pushed(&state("host/drone/lost")) == 1);
    let alarms = |states: &[Value]| pushed(states.iter().find(|state| state["event"] == "alarm/obstacle").unwrap());
    let _drone = Run::start(&place, "--host drone", "drone.sock");
    station.states(|state| pushed(&state("alarm/obstacle")) > alarms(&lost) + 2);
}

/// Writes the example with its own endpoints.
fn over_sockets(place: &Place) {
    let endpoint = |host: &str| format!("unix/{}", place.path().join(host).display());
    let text = std::fs::read_to_string(example("uav-chain.toml")).unwrap();
    let text = text.replace("tcp/127.0.0.1:7447", &endpoint("drone.iiop"));
    place.write("uav-chain.toml", text.replace("tcp/127.0.0.1:7448", &endpoint("station.iiop")));
}

#[test]
fn each_host_shows_the_events_of_its_suppliers_and_a_watch_ends_with_the_run() {
    let _alone = alone();
    let place = Place::new();
    over_sockets(&place);
    let drone = Run::start(&place, "--host drone", "drone.sock");
    let station = Run::start(&place, "--host station", "station.sock");
    // The chain leaves the drone and returns to it.
    station.states(|state| pushed(&state("alarm/obstacle")) > 2);
    let states = drone.states(|state| pushed(&state("sensor/camera")) > 2);
    let here = |name: &str| states.iter().find(|state| state["event"] == name).unwrap()["suppliers_here"].clone();
    assert_eq!((here("sensor/camera"), here("scene/objects")), (serde_json::json!(["camera"]), serde_json::json!([])));
    let watch = place.command(&format!("events watch scene/* {}", station.control));
    let watch = { watch }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(station);
    let ended = watch.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() || err.contains("no node answers"), "{out}{err}");
}
