//! A lane whose requests are brief costs nothing between them.

#[path = "common/tracking.rs"]
mod tracking;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use hyoshi_orb::{LaneOptions, Orb};
use tracking::*;

fn serve(brief: bool) -> (Orb, TrackerStub) {
    let builder = Orb::builder().collocation(false).lane(LaneOptions { brief, ..LaneOptions::default() });
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    tracker.nothing().unwrap();
    (orb, tracker)
}

/// How often the threads that tend ORBs have gone to sleep.
fn sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let of = |task: fs::DirEntry| {
        let tends = fs::read_to_string(task.path().join("comm")).ok()?.trim_end() == "orb-care";
        let status = fs::read_to_string(task.path().join("status")).ok().filter(|_| tends)?;
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    tasks.filter_map(of).sum()
}

// Alone in its process: the threads of other tests' ORBs would count, too.
#[test]
fn between_the_requests_of_a_brief_lane_nobody_wakes_up() {
    let orbs = [serve(true), serve(false)];
    let [brief, usual] = [0, 1].map(|number| {
        let (_, tracker) = &orbs[number];
        std::thread::sleep(Duration::from_millis(100));
        let before = sleeps();
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(20));
            tracker.nothing().unwrap();
        }
        sleeps() - before
    });
    assert!(usual > 20 && brief * 4 < usual, "{brief} against {usual}");
}
