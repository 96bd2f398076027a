//! The order of execution of lanes on the kernel.

use crate::common;

use common::{Ran, privileged, run, run_on, run_with, undisturbed::undisturbed, work};
use hyoshi_model::Span;
use hyoshi_runtime::EndedBy;
use hyoshi_trace::{DispatchDecision, JobOutcome};

#[test]
fn jobs_of_two_rates_are_released_run_and_counted() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "500ms",
            "
        [operation.fast]
        every = \"10ms\"
        wcet = \"1ms\"
        [operation.slow]
        every = \"50ms\"
        wcet = \"10ms\"
    ",
        );
        assert_eq!(ran.finished.ended_by, EndedBy::Duration);
        assert_eq!(ran.finished.elapsed, Span::from_millis(500));
        let (fast, slow) = (ran.finished_jobs("fast"), ran.finished_jobs("slow"));
        // The release at 500 ms may be included or not.
        assert!((50..=51).contains(&fast) && (10..=11).contains(&slow), "{fast} {slow}");
        ran.replay();
    });
}

#[test]
fn jobs_that_are_released_at_the_start_take_as_long_as_any() {
    undisturbed(|| {
        let text = "duration = \"100ms\"\n[operation.first]\nevery = \"50ms\"\nwcet = \"5ms\"";
        let ran = run_with(text, |node, _| node.body("first", |_| work(Span::from_millis(5))));
        let first = ran.ends_of("first")[0];
        assert!(first.end.since(first.start) * 2 >= first.consumed, "{first:?}");
    });
}

/// Positions of the decisions of this kind in the story.
fn places(ran: &Ran, what: &str) -> Vec<usize> {
    let story = ran.story(0);
    story.iter().enumerate().filter(|(_, word)| *word == what).map(|(place, _)| place).collect()
}

#[test]
fn of_jobs_released_together_the_more_urgent_lane_s_starts_first() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "600ms",
            "
        [operation.c]
        every = \"60ms\"
        wcet = \"1ms\"
        [operation.a]
        every = \"20ms\"
        wcet = \"1ms\"
        [operation.b]
        every = \"30ms\"
        wcet = \"1ms\"
    ",
        );
        if !privileged(&ran) {
            return;
        }
        let together: Vec<[usize; 3]> = places(&ran, "run c")
            .into_iter()
            .zip(places(&ran, "run b").into_iter().step_by(2))
            .zip(places(&ran, "run a").into_iter().step_by(3))
            .map(|((c, b), a)| [a, b, c])
            .collect();
        assert!(together.len() >= 9);
        assert!(together.iter().all(|order| order.is_sorted()), "{together:?}");
        ran.replay();
    });
}

#[test]
fn a_more_urgent_lane_interrupts_and_a_less_urgent_one_waits() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "800ms",
            "
        [operation.fast]
        every = \"10ms\"
        wcet = \"1ms\"
        phase = \"3ms\"
        [operation.slow]
        every = \"80ms\"
        wcet = \"30ms\"
    ",
        );
        if !privileged(&ran) {
            return;
        }
        let (starts, ends) = (places(&ran, "run slow"), places(&ran, "end slow"));
        let within = |(start, end): (&usize, &usize)| {
            places(&ran, "run fast").iter().filter(|fast| (start..end).contains(fast)).count()
        };
        let interruptions: Vec<usize> = starts.iter().zip(&ends).map(within).collect();
        assert!(interruptions.iter().all(|count| *count >= 3), "{interruptions:?}");
        assert_eq!(ran.count("fast", JobOutcome::Missed), 0);
    });
}

#[test]
fn without_preemption_a_started_job_finishes_first() {
    undisturbed(|| {
        let ran = run_on(
            "RMS",
            "600ms",
            "
        preemption = \"none\"
        [operation.fast]
        every = \"10ms\"
        wcet = \"1ms\"
        phase = \"3ms\"
        [operation.slow]
        every = \"60ms\"
        wcet = \"20ms\"
    ",
        );
        let story: Vec<String> = ran.story(0).into_iter().filter(|word| !word.starts_with("ready")).collect();
        for pair in story.chunks_exact(2) {
            assert_eq!(pair[0].replace("run", "end"), pair[1], "{story:?}");
        }
        assert!(ran.finished_jobs("slow") >= 9);
        ran.replay();
    });
}

#[test]
fn most_urgent_first_keeps_every_critical_deadline_at_140_percent_load() {
    undisturbed(|| {
        let ran = run_on(
            "MUF",
            "2s",
            "
        [operation.control]
        every = \"20ms\"
        wcet = \"4ms\"
        critical = true
        [operation.guard]
        every = \"50ms\"
        wcet = \"10ms\"
        critical = true
        [operation.other]
        every = \"30ms\"
        wcet = \"15ms\"
        [operation.more]
        every = \"40ms\"
        wcet = \"20ms\"
    ",
        );
        if !privileged(&ran) {
            return;
        }
        for name in ["control", "guard"] {
            // If the hypervisor uses the CPU for longer than the slack, a miss is not an error.
            let missed =
                ran.ends_of(name).into_iter().filter(|end| end.outcome != JobOutcome::Made).collect::<Vec<_>>();
            let stolen = ran.finished.stolen[0].2.unwrap_or_default();
            assert!(missed.is_empty() || !stolen.is_zero(), "{missed:?}");
        }
        assert!(ran.finished_jobs("control") >= 99 && ran.finished_jobs("other") + ran.finished_jobs("more") > 20);
        ran.replay();
    });
}

#[test]
fn fully_preemptive_jobs_of_one_lane_give_way_to_earlier_deadlines_and_go_on_after() {
    undisturbed(|| {
        let ran = run_on(
            "EDF",
            "1s",
            "
        preemption = \"full\"
        [operation.short]
        every = \"10ms\"
        phase = \"3ms\"
        wcet = \"1ms\"
        [operation.middle]
        every = \"40ms\"
        phase = \"5ms\"
        wcet = \"8ms\"
        [operation.long]
        every = \"100ms\"
        wcet = \"40ms\"
    ",
        );
        if !privileged(&ran) {
            return;
        }
        let (yields, resumes) = (places(&ran, "yield long").len(), places(&ran, "resume long").len());
        assert!(yields >= 30 && resumes >= yields - 1, "{yields} {resumes}");
        assert_eq!((ran.finished_jobs("short").min(99), ran.finished_jobs("long").min(9)), (99, 9));
        // The hypervisor may use the CPU for longer than the slack.
        let stolen = ran.finished.stolen[0].2.unwrap_or_default();
        assert!(ran.count("short", JobOutcome::Missed) == 0 || !stolen.is_zero());
        // Preemption does not count: preempted jobs used exactly their execution time.
        for end in ran.ends_of("long").iter().filter(|end| end.outcome.finished()) {
            assert!(end.consumed >= Span::from_millis(40) && end.consumed < Span::from_millis(41), "{end:?}");
        }
        ran.replay();
    });
}

#[test]
fn a_chain_runs_across_processors_and_guards_keep_its_releases_a_period_apart() {
    undisturbed(|| {
        let ran = run("
        duration = \"600ms\"
        [host.a]
        [host.b]
        [processor.p]
        host = \"a\"
        strategy = \"RMS\"
        [processor.q]
        host = \"b\"
        strategy = \"RMS\"
        [operation.sense]
        on = \"p\"
        every = \"20ms\"
        wcet = \"8ms\"
        takes = { uniform = [\"1ms\", \"8ms\"] }
        [operation.act]
        on = \"q\"
        after = { all = [\"sense\"] }
        guard = \"on\"
        wcet = \"1ms\"
        [operation.log]
        on = \"p\"
        after = { all = [\"act\"] }
        wcet = \"1ms\"
        [[link]]
        between = [\"a\", \"b\"]
        delay = \"1ms\"
    ");
        assert_eq!(ran.finished.lost.signals, 0);
        let counts = ["sense", "act", "log"].map(|name| ran.finished_jobs(name));
        assert!(counts[0] >= 30 && counts[1] >= 28 && counts[2] >= 27, "{counts:?}");
        let act = ran.id("act");
        let released: Vec<_> = ran
            .decisions()
            .filter_map(|(at, decision)| match decision {
                DispatchDecision::Ready { job, .. } if job.operation == act => Some(at),
                _ => None,
            })
            .collect();
        let short = released.windows(2).filter(|pair| pair[1].since(pair[0]) < Span::from_millis(19)).count();
        assert!(privileged(&ran) && short <= 1, "{released:?}");
        ran.replay();
    });
}
