//! A lane whose requests are brief costs nothing between them.

#[path = "common/tracking.rs"]
mod tracking;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// The numbers of the housekeeping threads, the oldest first; perhaps with one that has the name of its parent still.
fn tenders() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let tends = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "orb-housekeep")
    };
    let number = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    let mut all: Vec<u32> = tasks.filter(tends).filter_map(number).collect();
    all.sort_unstable();
    all
}

/// How often the thread has gone to sleep.
fn sleeps(thread: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

/// Waits for something, with patience.
fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < end, "it never comes to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
}

// Alone in its process: the threads of other tests' ORBs would count, too.
#[test]
fn between_the_requests_of_a_brief_lane_nobody_wakes_up() {
    let [(_brief, brief), (_usual, usual)] = [true, false].map(serve);
    let mut last = Vec::new();
    let [tends_brief, tends_usual] = wait_for(|| {
        let before = std::mem::replace(&mut last, tenders());
        if before == last { <[u32; 2]>::try_from(before).ok() } else { None }
    });
    let before = [tends_brief, tends_usual].map(sleeps);
    for _ in 0..60 {
        let before = sleeps(tends_usual);
        brief.nothing().unwrap();
        usual.nothing().unwrap();
        // The one wakes up after each request, and the other has as long to do so.
        wait_for(|| (sleeps(tends_usual) > before).then_some(()));
    }
    let [brief, usual] = [(tends_brief, before[0]), (tends_usual, before[1])].map(|(of, before)| sleeps(of) - before);
    assert!(usual >= 60 && brief * 4 < usual, "{brief} against {usual}");
}
