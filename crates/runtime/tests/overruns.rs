//! Jobs that run beyond their worst case, and work that never returns.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{privileged, run_on, run_with, undisturbed::undisturbed, work};
use hyoshi_model::Span;
use hyoshi_runtime::{EndedBy, RunNote};
use hyoshi_trace::JobOutcome;

#[test]
fn built_in_work_is_stopped_at_its_worst_case() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "400ms",
            "
        [operation.greedy]
        every = \"20ms\"
        wcet = \"2ms\"
        takes = \"10ms\"
        on_overrun = \"stop\"
    ",
        );
        let ends = ran.ends_of("greedy");
        assert!(ends.iter().filter(|end| end.outcome == JobOutcome::Stopped).count() >= 19, "{ends:?}");
        if privileged(&ran) {
            let late = ends.iter().filter(|end| end.consumed > Span::from_millis(3)).count();
            assert!(late <= 1, "{ends:?}");
        }
        ran.replay();
    });
}

#[test]
fn built_in_work_of_exactly_its_worst_case_is_not_stopped() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "400ms",
            "
        [operation.exact]
        every = \"10ms\"
        wcet = \"1ms\"
        on_overrun = \"stop\"
        [operation.also]
        every = \"20ms\"
        wcet = \"2ms\"
        on_overrun = \"demote\"
    ",
        );
        assert_eq!(
            (
                ran.count("exact", JobOutcome::Stopped),
                ran.ends().filter(|end| end.service.demoted || end.overran).count()
            ),
            (0, 0)
        );
        assert!(ran.finished_jobs("exact") >= 39);
        ran.replay();
    });
}

#[test]
fn demoted_work_continues_in_idle_time_and_delays_no_job() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "600ms",
            "
        [operation.greedy]
        every = \"30ms\"
        wcet = \"1ms\"
        takes = \"14ms\"
        on_overrun = \"demote\"
        [operation.steady]
        every = \"60ms\"
        wcet = \"20ms\"
    ",
        );
        if !privileged(&ran) {
            return;
        }
        let ends = ran.ends_of("greedy");
        let demoted = ends.iter().filter(|end| end.service.demoted && end.outcome.finished()).count();
        assert!(demoted >= 5, "{ends:?}");
        assert_eq!(ran.count("steady", JobOutcome::Missed), 0, "the lane below it is not delayed");
        // No work is lost between the threads.
        let returned = ends.iter().filter(|end| !end.consumed.is_zero());
        assert!(returned.clone().all(|end| end.consumed == Span::from_millis(14)), "{ends:?}");
        ran.replay();
    });
}

const BODY: &str = "
    duration = \"600ms\"
    [processor.main]
    strategy = \"RMS\"
    [operation.greedy]
    every = \"50ms\"
    wcet = \"2ms\"
    on_overrun = \"HOW\"
    [operation.steady]
    every = \"60ms\"
    wcet = \"5ms\"
";

#[test]
fn a_demoted_body_is_not_entered_again_before_it_is_out() {
    undisturbed(|| {
        let (inside, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let count = entered.clone();
        // A demoted body shares the CPU with ordinary programs.
        let ran = run_with(&BODY.replace("HOW", "demote").replace("600ms", "3s"), |node, _| {
            node.body("greedy", move |_| {
                assert!(!inside.swap(true, Ordering::SeqCst), "entered twice at a time");
                count.fetch_add(1, Ordering::SeqCst);
                // Every other job runs longer than the period.
                work(Span::from_millis(if count.load(Ordering::SeqCst) % 2 == 1 { 70 } else { 1 }));
                inside.store(false, Ordering::SeqCst);
            })
        });
        assert_eq!(ran.finished.ended_by, EndedBy::Duration);
        assert!(entered.load(Ordering::SeqCst) >= 4);
        if privileged(&ran) {
            assert_eq!(ran.count("steady", JobOutcome::Missed), 0, "{:?}", ran.ends_of("steady"));
            assert!(ran.ends_of("greedy").iter().any(|end| end.service.demoted));
        }
        ran.replay();
    });
}

#[test]
fn a_body_beyond_its_worst_case_is_requested_to_return_and_its_lane_continues() {
    undisturbed(|| {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let ran = run_with(&BODY.replace("HOW", "stop"), |node, _| {
            node.body("greedy", move |job| {
                while !job.stop_asked() {
                    work(Span::from_micros(100));
                }
                count.fetch_add(1, Ordering::SeqCst);
            })
        });
        assert!(asked.load(Ordering::SeqCst) >= 10);
        if privileged(&ran) {
            assert!(ran.count("greedy", JobOutcome::Stopped) >= 10, "{:?}", ran.ends_of("greedy"));
            assert_eq!(ran.count("steady", JobOutcome::Missed), 0);
        }
        ran.replay();
    });
}

#[test]
fn a_body_that_never_returns_ends_the_run_by_name_and_is_left_behind() {
    undisturbed(|| {
        let enough = Arc::new(AtomicBool::new(false));
        let until = enough.clone();
        let text = "
        duration = \"20s\"
        [processor.main]
        strategy = \"RMS\"
        [operation.runaway]
        every = \"100ms\"
        wcet = \"1ms\"
    ";
        let started = std::time::Instant::now();
        let ran = run_with(text, |node, _| node.body("runaway", move |_| while !until.load(Ordering::Relaxed) {}));
        assert!(started.elapsed().as_secs() < 15, "the run ends long before its time");
        assert!(matches!(&ran.finished.ended_by, EndedBy::Runaway { operation, .. } if operation == "runaway"));
        assert!(ran.finished.ended_by.to_string().contains("`runaway` ran away"));
        let busy = |note: &RunNote| matches!(note, RunNote::NotReturned { operation, consumed } if operation == "runaway" && *consumed >= Span::from_secs(1));
        assert!(ran.finished.notes.iter().any(busy), "{:?}", ran.finished.notes);
        enough.store(true, Ordering::Relaxed);
        ran.replay();
    });
}

#[test]
fn a_panic_in_a_body_ends_the_run_with_its_message_and_not_the_process() {
    undisturbed(|| {
        let ran = run_with(&BODY.replace("HOW", "report"), |node, _| {
            node.body("greedy", |job| panic!("job {}", job.job().number))
        });
        let panicked = EndedBy::Panicked { operation: "greedy".into(), message: "job 0".into() };
        assert_eq!(ran.finished.ended_by, panicked);
        ran.replay();
    });
}

#[test]
fn late_work_is_stopped_at_its_deadline() {
    undisturbed(|| {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let text = "
        duration = \"400ms\"
        [processor.main]
        strategy = \"RMS\"
        [operation.built-in]
        every = \"40ms\"
        wcet = \"30ms\"
        deadline = \"5ms\"
        on_miss = \"stop\"
        [operation.body]
        every = \"40ms\"
        phase = \"10ms\"
        wcet = \"30ms\"
        deadline = \"5ms\"
        on_miss = \"stop\"
        [operation.never]
        after = { any = [\"built-in\", \"body\"] }
        wcet = \"1ms\"
    ";
        let ran = run_with(text, |node, _| {
            node.body("body", move |job| {
                while !job.stop_asked() {
                    work(Span::from_micros(100));
                }
                count.fetch_add(1, Ordering::SeqCst);
            })
        });
        // Each job is late: it is stopped, or not started in time.
        let stopped = |name: &str| ran.count(name, JobOutcome::Stopped);
        assert!(stopped("built-in") >= 9 && stopped("body") >= 9, "{:?}", ran.ends_of("body"));
        assert!(ran.ends().filter(|end| end.outcome == JobOutcome::Stopped).all(|end| end.end >= end.deadline));
        assert_eq!(ran.ends_of("never").len(), 0);
        if privileged(&ran) {
            assert!(asked.load(Ordering::SeqCst) >= 9);
        }
        ran.replay();
    });
}

#[test]
fn the_release_after_a_miss_is_skipped() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "400ms",
            "
        [operation.late]
        every = \"20ms\"
        wcet = \"25ms\"
        on_miss = \"skip-next\"
    ",
        );
        let ends = ran.ends_of("late");
        assert!(ran.count("late", JobOutcome::Skipped) >= 5, "{ends:?}");
        if privileged(&ran) {
            let missed = ran.count("late", JobOutcome::Missed);
            assert!(missed.abs_diff(ran.count("late", JobOutcome::Skipped)) <= 1, "{ends:?}");
        }
        ran.replay();
    });
}
