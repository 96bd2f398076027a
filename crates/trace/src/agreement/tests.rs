use super::near_ties::{distance, near_tie, near_ties};
use super::*;
use crate::event::JobService;
use alloc::string::String;
use hyoshi_model::{OperationId, ServiceLevel};
use proptest::prelude::*;

/// Operations 0 to 7 are periodic; 8 is on the other processor, after 0; 9 and 10 are after 8, and 10 has a guard.
fn chains() -> System {
    let mut text = String::from("name = 'chains'\n[processor.main]\n[processor.other]\n");
    for operation in 0..8 {
        text += &alloc::format!("[operation.o{operation}]\non = 'main'\nevery = '1s'\nwcet = '1ms'\n");
    }
    for (operation, on, after, guard) in [(8, "other", 0, "off"), (9, "main", 8, "off"), (10, "main", 8, "on")] {
        let after = alloc::format!("after = {{ all = ['o{after}'] }}\nguard = '{guard}'");
        text += &alloc::format!("[operation.o{operation}]\non = '{on}'\n{after}\nwcet = '1ms'\n");
    }
    hyoshi_model::read(&text, "chains.toml", None).unwrap().system
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Span::from_micros(micros)
}

/// A job of operation `operation`, ready at its release, that runs without a break.
fn job(operation: u32, release: u64, start: u64, end: u64, deadline: u64) -> JobEnd {
    JobEnd {
        job: JobId { operation: OperationId(operation), number: release, leg: 0 },
        outcome: if end <= deadline { JobOutcome::Made } else { JobOutcome::Missed },
        critical: false,
        overran: false,
        service: Default::default(),
        epoch: 0,
        origin: at(release),
        release: at(release),
        ready: at(release),
        start: at(start),
        end: at(end),
        deadline: at(deadline),
        consumed: at(end).since(at(start)),
    }
}

fn compared(simulated: &[JobEnd], run: &[JobEnd]) -> RunComparison {
    let system = chains();
    compare(&system, &[ProcessorEnds { simulated, run }], at(1_000_000), TOLERANCE).remove(0)
}

#[test]
fn small_overheads_change_nothing() {
    let simulated =
        [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000), job(0, 20_000, 20_000, 22_000, 29_000)];
    let run = [job(0, 0, 20, 2_030, 9_000), job(1, 0, 2_040, 5_050, 9_000), job(0, 20_000, 20_015, 22_020, 29_000)];
    let agreement = compared(&simulated, &run);
    assert_eq!((agreement.agreeing, agreement.jobs), (2, 3));
    assert!(agreement.disagreements.is_empty());
}

#[test]
fn another_order_without_a_near_tie_is_a_disagreement() {
    let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000)];
    let run = [job(1, 0, 0, 3_000, 9_000), job(0, 0, 3_000, 5_000, 9_000)];
    assert_eq!(compared(&simulated, &run).disagreements.len(), 1);
}

#[test]
fn a_release_just_before_or_after_a_completion_is_a_near_tie() {
    // In the run the first job ends 30 us later, behind the release of a more urgent one.
    let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 4_000, 9_000), job(2, 2_020, 4_000, 5_000, 9_000)];
    let run = [job(0, 0, 0, 2_030, 9_000), job(2, 2_020, 2_030, 3_030, 9_000), job(1, 0, 3_030, 5_030, 9_000)];
    let agreement = compared(&simulated, &run);
    assert_eq!(agreement.near_ties.len(), 1, "{agreement:?}");
    assert_eq!((agreement.near_ties[0].completion, agreement.near_ties[0].timed), (at(2_000), at(2_020)));
}

/// Job 0 on the main processor triggers 8 on the other, which triggers 9 on the main processor. Job 9 is ready
/// before the release of job 1 at 10 ms in the simulation, after it in the run. All times in microseconds: `ended`
/// when job 0 ends, simulated and in the run; `delay` what the run adds to the simulation's 100 from job to job.
fn chain(ended: [u64; 2], delay: u64, beside: &[(JobEnd, JobEnd)]) -> (RunComparison, RunComparison) {
    let system = chains();
    let ends = |ended: u64, delay: u64, is_run: bool| {
        let triggered = |operation, ready| JobEnd {
            job: JobId { operation: OperationId(operation), number: 0, leg: 0 },
            origin: at(0),
            ..job(operation, ready, ready, ready + 3_000, 90_000)
        };
        let other = triggered(8, ended + 100 + delay);
        let ready = ended + 100 + delay + 3_000 + 100 + delay;
        let (mut back, mut timed) = (triggered(9, ready), job(1, 10_000, 10_000, 12_000, 90_000));
        if is_run {
            (back.start, back.end) = (at(12_000), at(15_000));
        } else {
            (timed.start, timed.end) = (at(ready + 3_000), at(ready + 5_000));
        }
        let zero = JobEnd { consumed: Span::from_micros(2_000), ..job(0, 0, 0, ended, 90_000) };
        let beside = beside.iter().map(|(simulated, run)| if is_run { *run } else { *simulated });
        ([zero, back, timed].into_iter().chain(beside).collect::<Vec<_>>(), [other])
    };
    let (simulated, run) = (ends(ended[0], 0, false), ends(ended[1], delay, true));
    let main = ProcessorEnds { simulated: &simulated.0, run: &run.0 };
    let other = ProcessorEnds { simulated: &simulated.1, run: &run.1 };
    let mut all = compare(&system, &[main, other], at(1_000_000), TOLERANCE);
    (all.remove(0), all.remove(0))
}

fn number_9() -> Option<JobId> {
    Some(JobId { operation: OperationId(9), number: 0, leg: 0 })
}

#[test]
fn a_near_tie_explains_what_its_completion_triggers_on_other_processors_and_later() {
    // Job 0 ends just before the release of a more urgent one in the simulation, and after its end in the run.
    let urgent = job(2, 6_040, 6_040, 7_040, 90_000);
    let (main, other) = chain([6_000, 7_090], 0, &[(urgent, urgent)]);
    assert_eq!((other.agreeing, other.disagreements.len()), (1, 0), "{other:?}");
    assert!(main.disagreements.is_empty(), "{main:?}");
    assert_eq!(main.near_ties.len(), 1, "{main:?}");
    assert_eq!((main.near_ties[0].completion, main.near_ties[0].timed), (at(6_000), at(6_040)));
    assert_eq!(main.near_ties[0].through, number_9());
}

#[test]
fn lost_time_explains_what_it_delays_on_other_processors_and_later() {
    let (main, _) = chain([6_000, 7_090], 0, &[]);
    assert!(main.disagreements.is_empty(), "{main:?}");
    assert_eq!((main.disturbed.len(), main.disturbed[0].lost), (1, Span::from_micros(1_090)), "{main:?}");
    assert_eq!(main.disturbed[0].through, number_9());
}

#[test]
fn an_unexplained_shift_stays_a_disagreement() {
    // In the run, job 3 goes first for no reason.
    let late = (job(3, 0, 6_000, 7_090, 90_000), job(3, 0, 0, 1_090, 90_000));
    let (main, _) = chain([6_000, 7_090], 0, &[late]);
    assert_eq!((main.near_ties.len(), main.disturbed.len(), main.disagreements.len()), (0, 0, 2), "{main:?}");
}

#[test]
fn overheads_of_a_chain_add_up() {
    // 150 us on the first processor and with each signal; job 9 is ready 300 us before job 1 and 150 after.
    let (main, _) = chain([6_500, 6_650], 150, &[]);
    assert_eq!((main.near_ties.len(), main.disagreements.len()), (1, 0), "{main:?}");
    assert_eq!(main.near_ties[0].through, number_9());
    // A signal that takes 400 us longer is no overhead.
    let (main, _) = chain([6_500, 6_500], 400, &[]);
    assert_eq!((main.near_ties.len(), main.disagreements.len()), (0, 1), "{main:?}");
}

#[test]
fn a_late_release_is_lost_time_and_an_early_one_is_no_excuse() {
    // Job 0 is released 1.5 ms late, after job 1 on the run.
    let ready = |ready: u64, mut end: JobEnd| {
        (end.release, end.ready) = (at(1_000), at(ready));
        end
    };
    let simulated = [ready(1_000, job(0, 1_000, 1_000, 3_000, 9_000)), job(1, 2_000, 3_000, 4_000, 9_000)];
    let run = [job(1, 2_000, 2_000, 3_000, 9_000), ready(2_500, job(0, 1_000, 3_000, 5_000, 9_000))];
    let agreement = compared(&simulated, &run);
    assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (1, 0), "{agreement:?}");
    assert_eq!(agreement.disturbed[0].lost, Span::from_micros(1_500));
    let agreement = compared(&run, &simulated);
    assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 1), "{agreement:?}");
}

#[test]
fn a_guard_that_opens_late_is_lost_time() {
    let system = chains();
    let held = |number, release, ready, start| JobEnd {
        job: JobId { operation: OperationId(10), number, leg: 0 },
        origin: at(0),
        release: at(release),
        ..job(10, ready, start, start + 1_000, 5_000_000)
    };
    // The period is 1 s: the second job is due at 1.001 s.
    let simulated = [
        held(0, 1_000, 1_000, 1_000),
        held(1, 900_000, 1_001_000, 1_001_000),
        job(1, 1_001_500, 1_002_000, 1_003_000, 5_000_000),
    ];
    let late = |release, ready| {
        let run = [
            held(0, 1_000, 1_000, 1_000),
            held(1, release, ready, 1_002_500),
            job(1, 1_001_500, 1_001_500, 1_002_500, 5_000_000),
        ];
        let main = ProcessorEnds { simulated: &simulated, run: &run };
        compare(&system, &[main], at(2_000_000), TOLERANCE).remove(0)
    };
    let compared = late(900_000, 1_002_000);
    assert_eq!((compared.disturbed.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
    assert_eq!(compared.disturbed[0].lost, Span::from_micros(1_000));
}

#[test]
fn signals_that_arrive_almost_together_are_a_near_tie() {
    let triggered =
        |operation, ready, start| JobEnd { origin: at(0), ..job(operation, ready, start, start + 1_000, 90_000) };
    let before = job(0, 5_000, 5_000, 7_000, 90_000);
    let simulated = [before, triggered(2, 6_000, 7_000), triggered(3, 6_010, 8_000)];
    let run = [before, triggered(3, 6_000, 7_000), triggered(2, 6_020, 8_000)];
    let renumbered = run.map(|mut end| {
        end.job.number = simulated.iter().find(|other| other.job.operation == end.job.operation).unwrap().job.number;
        end
    });
    let compared = compared(&simulated, &renumbered);
    assert_eq!((compared.near_ties.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
}

#[test]
fn a_guard_carries_a_shift_to_the_next_job() {
    let system = chains();
    let held = |number, ready, start| JobEnd {
        job: JobId { operation: OperationId(10), number, leg: 0 },
        origin: at(0),
        ..job(10, ready, start, start + 1_000, 90_000)
    };
    let other = |number, ready, end| JobEnd {
        job: JobId { operation: OperationId(8), number, leg: 0 },
        consumed: Span::from_micros(500),
        ..job(8, ready, ready, end, 90_000)
    };
    // The first trigger ends 1 ms later in the run, so the second release is held 1 ms longer.
    let simulated = [held(0, 1_000, 1_000), held(1, 21_000, 21_000), job(1, 21_500, 22_000, 23_000, 90_000)];
    let run = [held(0, 2_000, 2_000), held(1, 22_000, 22_500), job(1, 21_500, 21_500, 22_500, 90_000)];
    let others = ([other(0, 0, 1_000), other(1, 5_000, 6_000)], [other(0, 0, 2_000), other(1, 5_000, 6_000)]);
    let main = ProcessorEnds { simulated: &simulated, run: &run };
    let other = ProcessorEnds { simulated: &others.0, run: &others.1 };
    let compared = compare(&system, &[main, other], at(1_000_000), TOLERANCE).remove(0);
    assert_eq!((compared.disturbed.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
    assert_eq!(compared.disturbed[0].through, Some(JobId { operation: OperationId(10), number: 1, leg: 0 }));
}

proptest! {
    #[test]
    fn near_ties_are_those_of_a_search_of_all_pairs(
        jobs in proptest::collection::vec((0u64..40, 0u64..9, 1u64..9, 0u64..40, any::<bool>()), 1..12),
        (since, when) in (0u64..60, 0u64..60),
        (cancel, wider) in (any::<bool>(), 0u64..300),
    ) {
        let system = chains().with(|system| system.processors[0].cancel = cancel);
        let all = jobs.iter().enumerate().map(|(number, (release, wait, run, deadline, by_timer))| {
            let micros = |units: u64| units * 70;
            let (start, operation) = (release + wait, (number % 8) as u32);
            let mut end = job(operation, micros(*release), micros(start), micros(start + run), micros(deadline + 15));
            match release % 3 {
                _ if *by_timer => {}
                0 => (end.release, end.ready) = (end.origin, end.ready + Span::from_nanos(1)),
                _ => end.origin = Instant::ZERO,
            }
            end
        });
        let (all, since, when): (Vec<JobEnd>, Instant, Instant) = (all.collect(), at(since * 70), at(when * 70));
        let tolerance = TOLERANCE + Span::from_micros(wider);
        let mut pairs = Vec::new();
        for completed in &all {
            let triggered = (completed.release > completed.origin).then_some(completed.ready);
            for completion in [completed.start, completed.end].into_iter().chain(triggered) {
                for timed in &all {
                    let by_timer = timed.ready == timed.release || timed.release > timed.origin;
                    if by_timer && timed.ready != completion {
                        pairs.push((completion, timed.ready));
                    }
                }
            }
            pairs.push((completed.end, completed.deadline));
            if cancel {
                // The worst case is 1 ms.
                pairs.push((completed.start, completed.deadline.saturating_sub(Span::from_millis(1))));
            }
        }
        pairs.retain(|(completion, time)| {
            distance(*time, *completion) <= tolerance && *completion <= when + tolerance && *completion >= since
        });
        let best = pairs.iter().map(|(completion, _)| distance(*completion, when)).min();
        let found = near_tie(&near_ties(&system, &all, TOLERANCE + Span::from_micros(300)), since, when, tolerance);
        prop_assert_eq!(found.map(|(completion, _)| distance(completion, when)), best);
        if let Some(found) = found {
            prop_assert!(pairs.contains(&found), "{:?} is not near", found);
            let nearest = pairs.iter().filter(|pair| pair.0 == found.0).map(|pair| distance(pair.0, pair.1)).min();
            prop_assert_eq!(Some(distance(found.0, found.1)), nearest);
        }
    }
}

#[test]
fn only_its_own_deadline_is_a_near_tie_of_a_completion() {
    // In the run, job 1 goes first for no reason.
    let compared = |deadline| {
        let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000), job(2, 0, 5_000, 6_000, deadline)];
        let run = [job(1, 0, 0, 3_000, 9_000), job(0, 0, 3_000, 5_000, 9_000), job(2, 0, 5_000, 6_000, deadline)];
        compared(&simulated, &run)
    };
    // The deadline of job 2 is close to the first completion, which does not concern it.
    assert_eq!(compared(2_050).disagreements.len(), 1);
    // The overhead of the run makes the job late that has no slack.
    for slack in [0, 50] {
        let simulated = job(0, 0, 0, 2_000, 2_000 + slack);
        let run = JobEnd { end: at(2_060), outcome: JobOutcome::Missed, ..simulated };
        let compared = super::tests::compared(&[simulated], &[run]);
        assert_eq!((compared.near_ties.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
    }
}

#[test]
fn the_last_start_by_the_worst_case_is_a_near_tie_if_the_processor_cancels() {
    // The worst case is 1 ms, the jobs consume less: job 1 can start until 500 us.
    let simulated = [job(0, 0, 0, 480, 9_000), job(1, 0, 480, 700, 1_500)];
    let cancelled = JobEnd {
        outcome: JobOutcome::Cancelled,
        start: Instant::NEVER,
        end: at(510),
        consumed: Span::ZERO,
        ..simulated[1]
    };
    for (cancel, expected) in [(true, (1, 0)), (false, (0, 1))] {
        let system = chains().with(|system| system.processors[0].cancel = cancel);
        let run = [job(0, 0, 0, 510, 9_000), cancelled];
        let both = ProcessorEnds { simulated: &simulated, run: &run };
        let compared = compare(&system, &[both], at(1_000_000), TOLERANCE).remove(0);
        assert_eq!((compared.near_ties.len(), compared.disagreements.len()), expected, "{compared:?}");
        let both = ProcessorEnds { simulated: &run, run: &simulated };
        let compared = compare(&system, &[both], at(1_000_000), TOLERANCE).remove(0);
        assert_eq!((compared.near_ties.len(), compared.disagreements.len()), expected, "{compared:?}");
    }
}

#[test]
fn the_last_start_of_a_job_is_that_of_its_service_level() {
    let level = |micros| ServiceLevel { name: alloc::format!("{micros}"), wcet: Span::from_micros(micros), value: 1 };
    let system = chains().with(|system| {
        system.processors[0].cancel = true;
        system.operations[1].levels = alloc::vec![level(600), level(1_000)];
    });
    // Job 1 can start until 500 us at the level of 600 us, and until 100 us at that of 1 ms.
    for (level, expected) in [(0, (1, 0)), (1, (0, 1))] {
        let of_level = JobEnd { service: JobService { level, demoted: false }, ..job(1, 0, 480, 700, 1_100) };
        let simulated = [job(0, 0, 0, 480, 9_000), of_level];
        let run = [
            job(0, 0, 0, 510, 9_000),
            JobEnd {
                outcome: JobOutcome::Cancelled,
                start: Instant::NEVER,
                end: at(510),
                consumed: Span::ZERO,
                ..of_level
            },
        ];
        let both = ProcessorEnds { simulated: &simulated, run: &run };
        let compared = compare(&system, &[both], at(1_000_000), TOLERANCE).remove(0);
        assert_eq!((compared.near_ties.len(), compared.disagreements.len()), expected, "{compared:?}");
    }
}

/// Job 2 is before job 0 by a near-tie in the simulation only, and job 0 triggers job 8 on the other processor: it is
/// ready earlier in the run. The comparison of that processor with these job ends of job 8 and of job 4.
fn earlier_in_the_run(length: u64, simulated: &[JobEnd], run: &[JobEnd]) -> RunComparison {
    let system = chains();
    let (two, zero) =
        (job(2, 1_000, 1_000, 1_000 + length, 90_000), job(0, 1_020, 1_000 + length, 2_000 + length, 90_000));
    let first = [two, zero];
    let in_run = [
        JobEnd { start: at(1_020), end: at(2_020), ..zero },
        JobEnd { start: at(2_020), end: at(2_020 + length), ..two },
    ];
    let number = |ends: &[JobEnd]| -> Vec<JobEnd> {
        let is_triggered = |end: &JobEnd| end.job.operation == OperationId(8);
        let numbered = |end: &JobEnd| JobEnd { job: JobId { number: 1_020, ..end.job }, origin: at(1_020), ..*end };
        ends.iter().map(|end| if is_triggered(end) { numbered(end) } else { *end }).collect()
    };
    let (simulated, run) = (number(simulated), number(run));
    let main = ProcessorEnds { simulated: &first, run: &in_run };
    let other = ProcessorEnds { simulated: &simulated, run: &run };
    compare(&system, &[main, other], at(1_000_000), TOLERANCE).remove(1)
}

#[test]
fn a_job_that_is_ready_earlier_in_the_run_explains_differences_from_then_on() {
    // Job 4 starts in the simulation when job 8 is not yet ready.
    let before = job(5, 1_500, 1_500, 3_000, 90_000);
    let simulated = [before, job(4, 2_500, 3_000, 5_000, 90_000), job(8, 4_100, 5_000, 6_000, 90_000)];
    let run = [before, job(8, 2_120, 3_000, 4_000, 90_000), job(4, 2_500, 4_000, 6_000, 90_000)];
    let compared = earlier_in_the_run(2_000, &simulated, &run);
    assert_eq!((compared.near_ties.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
    assert_eq!(compared.near_ties[0].through.unwrap().operation, OperationId(8));
}

#[test]
fn a_job_that_is_in_another_busy_period_of_the_run_explains_differences_in_both() {
    // Job 8 delays job 4 in the run, and is in a later busy period of the simulation.
    let simulated = [job(4, 2_500, 2_500, 4_500, 4_900), job(8, 7_100, 7_100, 8_100, 90_000)];
    let run = [job(8, 2_120, 2_120, 3_120, 90_000), job(4, 2_500, 3_120, 5_120, 4_900)];
    let compared = earlier_in_the_run(5_000, &simulated, &run);
    assert_eq!((compared.agreeing, compared.near_ties.len(), compared.disagreements.len()), (1, 1, 0), "{compared:?}");
    assert_eq!(compared.near_ties[0].through.unwrap().operation, OperationId(8));
}

/// A run that is never idle for a minute, with the greatest number of differences: each job misses, each was shifted by
/// overheads, and the near-ties lie between the tolerance of nearly all and that of the last.
#[test]
fn a_long_busy_group_is_compared_in_time() {
    const JOBS: u64 = 60_000;
    let ends = |overhead: fn(u64) -> u64, length: u64| -> (Vec<JobEnd>, Vec<JobEnd>) {
        let both = (0..JOBS).map(|number| {
            let (begin, overhead) = (number * 1_000, overhead(number));
            let (deadline, ready) = (begin + 1_100, begin + 100 + 2 * overhead);
            let triggering = job(0, begin, begin, begin + 100 + overhead, deadline);
            let mut triggered = job(8, ready, ready, ready + length, deadline);
            (triggered.job.number, triggered.origin) = (begin, at(begin));
            (triggering, triggered)
        });
        both.unzip()
    };
    let overhead = |number| if number + 1 < JOBS { 125 } else { 200 };
    let (simulated, run) = (ends(|_| 0, 500), ends(overhead, 1_000));
    let main = ProcessorEnds { simulated: &simulated.0, run: &run.0 };
    let other = ProcessorEnds { simulated: &simulated.1, run: &run.1 };
    let begin = std::time::Instant::now();
    let compared = compare(&chains(), &[main, other], at(70_000_000), TOLERANCE).remove(1);
    assert_eq!(compared.disagreements.len() as u64, JOBS - 1);
    assert_eq!(compared.near_ties.len(), 1);
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn a_stolen_processor_is_not_held_against_the_run() {
    let simulated = [job(0, 0, 0, 2_000, 9_000)];
    let mut late = job(0, 0, 0, 12_000, 9_000);
    late.consumed = Span::from_micros(2_000);
    let mut other = job(1, 0, 12_000, 13_000, 20_000);
    other.consumed = Span::from_micros(1_000);
    let agreement = compared(&[simulated[0], job(1, 0, 2_000, 3_000, 20_000)], &[late, other]);
    assert_eq!(agreement.disturbed.len(), 1, "{agreement:?}");
    assert_eq!(agreement.disturbed[0].lost, Span::from_millis(10));
}

/// A job that waited, `lost` of the time from its start on.
fn interrupted(operation: u32, release: u64, start: u64, end: u64, lost: u64) -> JobEnd {
    let whole = job(operation, release, start, end, release + 90_000);
    JobEnd { consumed: whole.consumed.saturating_sub(Span::from_micros(lost)), ..whole }
}

#[test]
fn a_job_that_only_the_run_has_is_a_disagreement_and_hides_none() {
    let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000)];
    // In between ran a job that the simulation does not have: its time was not lost.
    let run = [job(1, 0, 0, 3_000, 9_000), job(7, 3_000, 3_000, 5_000, 9_000), job(0, 0, 5_000, 7_000, 9_000)];
    let agreement = compared(&simulated, &run);
    assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 2), "{agreement:?}");
    let extra = agreement.disagreements.iter().find(|difference| difference.simulated.is_none()).unwrap();
    assert_eq!(extra.run.unwrap().0.operation, OperationId(7));
    // The simulation was idle.
    let agreement = compared(&simulated, &[simulated[0], simulated[1], job(7, 50_000, 50_000, 51_000, 90_000)]);
    assert_eq!((agreement.agreeing, agreement.disagreements.len()), (1, 1), "{agreement:?}");
}

#[test]
fn a_job_of_another_busy_period_that_ran_meanwhile_is_no_lost_time() {
    // The first job lasts longer, so that one of the next busy period runs before the second.
    let simulated = [job(0, 0, 0, 2_000, 90_000), job(1, 0, 2_000, 3_000, 4_000), job(2, 4_000, 4_000, 6_000, 90_000)];
    let run = [job(0, 0, 0, 5_000, 90_000), job(2, 4_000, 5_000, 7_000, 90_000), job(1, 0, 7_000, 8_000, 4_000)];
    let agreement = compared(&simulated, &run);
    assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 1), "{agreement:?}");
}

#[test]
fn the_backlog_of_a_disturbance_is_disturbed_until_the_run_is_idle() {
    let simulated = [
        job(0, 0, 0, 2_000, 9_000),
        job(1, 10_000, 10_000, 12_000, 19_000),
        job(2, 12_500, 12_500, 13_000, 14_000),
        job(0, 40_000, 40_000, 42_000, 49_000),
        job(1, 40_000, 42_000, 43_000, 49_000),
    ];
    // 15 ms were lost in the first job; what follows is late, and the job that misses has lost nothing itself.
    let first = JobEnd { outcome: JobOutcome::Missed, ..interrupted(0, 0, 0, 17_000, 15_000) };
    let run = [
        first,
        job(1, 10_000, 17_000, 19_000, 19_000),
        job(2, 12_500, 19_000, 19_500, 14_000),
        job(1, 40_000, 40_000, 41_000, 49_000),
        job(0, 40_000, 41_000, 43_000, 49_000),
    ];
    let agreement = compared(&simulated, &run);
    assert_eq!((agreement.agreeing, agreement.disturbed.len()), (1, 2), "{agreement:?}");
    assert!(agreement.disturbed.iter().all(|disturbed| disturbed.lost == Span::from_millis(15)));
    // After idle time nothing excuses the run.
    assert_eq!(agreement.disagreements.len(), 1, "{agreement:?}");
    assert_eq!(agreement.disagreements[0].at, at(40_000));
}

#[test]
fn a_job_that_the_run_has_not_finished_at_the_end_is_compared_if_the_simulation_has() {
    let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 500_000, 500_000, 501_000, 510_000)];
    let unfinished = JobEnd { outcome: JobOutcome::Missed, ..interrupted(1, 500_000, 500_000, 1_000_000, 499_500) };
    let agreement = compared(&simulated, &[simulated[0], unfinished]);
    assert_eq!((agreement.agreeing, agreement.disturbed.len()), (1, 1), "{agreement:?}");
    let busy = JobEnd { outcome: JobOutcome::Missed, ..interrupted(1, 500_000, 500_000, 1_000_000, 0) };
    assert_eq!(compared(&simulated, &[simulated[0], busy]).disagreements.len(), 1);
}

#[test]
fn a_job_that_the_processor_was_kept_from_until_it_was_too_late_is_not_held_against_the_run() {
    let simulated = job(0, 0, 0, 2_000, 9_000);
    let (start, consumed) = (Instant::NEVER, Span::ZERO);
    let cancelled = JobEnd { outcome: JobOutcome::Cancelled, start, end: at(7_000), consumed, ..simulated };
    let agreement = compared(&[simulated], &[cancelled]);
    assert_eq!(agreement.disturbed.len(), 1, "{agreement:?}");
    assert_eq!(agreement.disturbed[0].lost, Span::from_millis(7));
    // If the processor was busy all that time, no other thread may have had it.
    let other = job(1, 0, 0, 7_000, 20_000);
    let alone = job(1, 0, 2_000, 9_000, 20_000);
    assert_eq!(compared(&[simulated, alone], &[cancelled, other]).disagreements.len(), 1);
}

/// Jobs 0 and 1 on the main processor, just before the end of a run at 1 s, and job 8 after 0 on the other: simulated
/// until `last`, and in the run until `ended`, if it has finished 0. It has never finished 8.
fn at_the_end(last: u64, ended: Option<u64>) -> [usize; 2] {
    let system = chains();
    let trigger = job(0, 990_000, 990_000, 995_000, 1_090_000);
    let behind = job(1, 990_000, 995_000, last, 1_090_000);
    let id = JobId { operation: OperationId(8), ..trigger.job };
    let triggered = JobEnd { job: id, origin: trigger.origin, ..job(8, 995_100, 995_100, 998_100, 1_090_000) };
    let finished = ended.map(|end| [JobEnd { end: at(end), ..trigger }, JobEnd { start: at(end), ..behind }]);
    let main = ProcessorEnds { simulated: &[trigger, behind], run: finished.as_ref().map_or(&[], |finished| finished) };
    let other = ProcessorEnds { simulated: &[triggered], run: &[] };
    let compared = compare(&system, &[main, other], at(1_000_000), TOLERANCE);
    [compared[0].disagreements.len(), compared[1].disagreements.len()]
}

#[test]
fn what_an_unfinished_job_would_trigger_is_not_held_against_the_run() {
    // The trigger's busy period ends after the run, or just before its end.
    assert_eq!(at_the_end(999_900, None), [0, 0]);
    assert_eq!(at_the_end(999_700, None), [1, 1]);
    // The run has finished the trigger in time: what it triggers is lost.
    assert_eq!(at_the_end(999_900, Some(995_000)), [0, 1]);
}

#[test]
fn what_a_late_job_triggers_at_the_end_is_not_held_against_the_run() {
    assert_eq!(at_the_end(999_700, Some(996_800)), [0, 0]);
    assert_eq!(at_the_end(999_700, Some(996_600)), [0, 1]);
}
