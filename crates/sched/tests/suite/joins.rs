//! Joins of several roots, and the start of deadlines and bounds.

use hyoshi_model::{Chain, Preemption, Span};
use hyoshi_sched::Report;
use hyoshi_sched::analysis::{Assumption, CountedFrom, Missing, OperationReport, Outcome, Requirement, Verdict};

use crate::build::{Build, Op, chain, on, op};

fn entry<'a>(report: &'a Report, name: &str) -> &'a OperationReport {
    report.operations().find(|(_, _, one)| one.name == name).unwrap().2
}

fn why(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Unknown { missing: Missing::Join { why, .. } } => why.clone(),
        other => panic!("{other:?}"),
    }
}

/// Two roots and their join, all on one processor.
fn fused(one: Op, other: Op, deadline: u64) -> Build {
    let fuse = Op { after: vec![0, 1], period: one.period.max(other.period), deadline, ..op("fuse", 1, 3) };
    on("DM", Preemption::Levels, [one, other, fuse])
}

#[test]
fn roots_in_step_wait_for_the_last_phase_and_its_response() {
    // camera 0..5, imu at 20, done by 24; fuse from 24 to 27 after the camera's release.
    let build = fused(op("camera", 100, 5), Op { phase: 20, ..op("imu", 100, 4) }, 100);
    let report = build.report();
    let fuse = entry(&report, "fuse");
    assert_eq!((&fuse.verdict, fuse.counted_from), (&Verdict::Proved, CountedFrom::Root));
    // Phases of interfering operations are not used: both may arrive just before.
    assert!((27..=20 + 2 * 12).contains(&fuse.bound_ns.unwrap()), "{fuse:?}");
    assert!(report.scenes[0].processors[0].assumptions.contains(&Assumption::Joins));
    assert_eq!(report.outcome, Outcome::Holds);
}

#[test]
fn a_completion_that_waits_too_long_for_the_other_is_pushed_out() {
    let apart = |queue| {
        let mut build = fused(op("early", 100, 5), Op { phase: 150, ..op("late", 100, 4) }, 300);
        build.ops[2].queue = queue;
        build.report()
    };
    let one = why(&entry(&apart(1), "fuse").verdict);
    assert!(one.contains("2 completions of early") && one.contains("raise it to 2"), "{one}");
    assert!(entry(&apart(2), "fuse").verdict.is_proved());
}

#[test]
fn a_slow_root_is_joined_with_what_the_fast_one_left() {
    let mut build = fused(op("camera", 400, 5), op("imu", 100, 4), 1_000);
    build.ops[2].queue = 2;
    let report = build.report();
    let fuse = entry(&report, "fuse");
    // The imu's data may be two of its periods old, and a camera's completion waits for at most one.
    assert!(fuse.verdict.is_proved(), "{fuse:?}");
    assert!((200..=230).contains(&fuse.bound_ns.unwrap()), "{fuse:?}");
    // A longer queue keeps older data.
    build.ops[2].queue = 4;
    assert!((400..=430).contains(&entry(&build.report(), "fuse").bound_ns.unwrap()));
}

#[test]
fn roots_of_nearly_one_rate_are_advised_to_have_one() {
    let why = why(&entry(&fused(op("camera", 101, 5), op("imu", 100, 4), 1_000).report(), "fuse").verdict);
    assert!(why.contains("camera may wait") && why.contains("use one period"), "{why}");
}

#[test]
fn a_root_that_may_lose_jobs_leaves_its_join_unknown_and_is_named() {
    let slow = Op { deadline: 200, queue: 1, ..op("slow", 100, 58) };
    let mut build = fused(slow, op("other", 100, 1), 500);
    build.ops.push(op("busy", 70, 26));
    let why = why(&entry(&build.report(), "fuse").verdict);
    assert!(why.contains("slow"), "{why}");
}

#[test]
fn chains_through_a_join_have_bounds_on_latency_and_age_and_say_what_they_lack() {
    let limit = Some(Span::from_nanos(1_000));
    let mut build = fused(op("camera", 400, 5), op("imu", 100, 4), 1_000);
    build.ops[2].queue = 2;
    let demands =
        |name: &str, path| Chain { name: name.into(), max_age: limit, max_reaction: limit, ..chain(path, 1_000) };
    build.chains = vec![demands("camera", &[0, 2]), demands("imu", &[1, 2])];
    let report = build.report();
    let chains = &report.scenes[0].chains;
    let of =
        |name: &str, requirement| chains.iter().find(|one| one.name == name && one.requirement == requirement).unwrap();
    assert!(of("camera", Requirement::Deadline).verdict.is_proved());
    assert!(of("imu", Requirement::MaxAge).verdict.is_proved());
    assert!(why(&of("imu", Requirement::Deadline).verdict).contains("use max_age"));
    assert!(why(&of("camera", Requirement::MaxReaction).verdict).contains("reactions"));
}

#[test]
fn a_deadline_of_its_own_is_held_against_a_bound_from_its_own_release() {
    // One level: read runs 10, act follows it at once and runs 2, 5 more may be pending before it.
    let act = Op { after: vec![0], from_origin: false, deadline: 8, ..op("act", 100, 2) };
    let set = [op("read", 100, 10), act.clone(), op("urgent", 50, 3)];
    let report = on("RMS", Preemption::Levels, set.clone()).report();
    let own = entry(&report, "act");
    assert_eq!(own.counted_from, CountedFrom::Release);
    // From the root's release it would be 15 at least.
    let end_to_end = [set[0].clone(), Op { from_origin: true, deadline: 100, ..act }, set[2].clone()];
    let report = on("RMS", Preemption::Levels, end_to_end).report();
    assert_eq!(entry(&report, "act").counted_from, CountedFrom::Root);
    assert!(own.bound_ns <= entry(&report, "act").bound_ns, "{own:?}");
}
