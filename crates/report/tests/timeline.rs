//! Windows of a run, from simulations of the examples: true, bounded and repeatable.

use std::cell::RefCell;
use std::path::Path;

use hyoshi_model::{Instant, ProcessorId, Span, System, read_file};
use hyoshi_replay::causes::{CauseAnalysis, CauseReport};
use hyoshi_replay::timeline::{TimelineWindow, WindowReason};
use hyoshi_replay::{Feed, Observer};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::Stats;

fn seen(system: &System) -> (CauseReport, Stats) {
    let plan = Plan::new(system, &Strategies::default()).unwrap();
    let causes = CauseAnalysis::new(system, &plan, true, true, Span::ZERO);
    let observer = RefCell::new(Observer::new(system).with_causes(Some(causes)));
    let until = Instant::ZERO + system.duration;
    simulate(system, &plan, until, |processor| Feed::new(processor, &observer), |_| true);
    let mut observer = observer.into_inner();
    observer.close(until);
    let figures = observer.figures(until);
    (figures.causes.unwrap().clone(), figures.stats.clone())
}

fn example(name: &str) -> System {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    read_file(&path).unwrap().system
}

fn pieces(windows: &[TimelineWindow]) -> usize {
    let of = |window: &TimelineWindow| {
        window.others.len() + window.jobs.iter().map(|line| line.ran.len().max(1)).sum::<usize>()
    };
    windows.iter().map(of).sum()
}

#[test]
fn jobs_that_lie_within_a_window_have_the_cpu_for_as_long_as_they_used_it() {
    for name in ["flight-program.toml", "uav.toml", "reference.toml"] {
        let system = example(name);
        let (seen, _) = seen(&system);
        let mut within = 0;
        for window in &seen.windows {
            for line in &window.jobs {
                let whole = line.ready >= window.from && line.end.is_some_and(|(_, end)| end <= window.until);
                if whole && line.ready != Instant::NEVER {
                    let ran: Span = line.ran.iter().map(|(from, to)| to.since(*from)).sum();
                    assert_eq!(ran, line.consumed, "{name}: {:?} in {:?}", line.job, window.reason);
                    within += 1;
                }
            }
        }
        assert!(within > 20, "{name}: {within}");
    }
}

#[test]
fn nobody_has_a_cpu_together_with_another() {
    let (seen, _) = seen(&example("uav.toml"));
    for window in &seen.windows {
        for processor in [ProcessorId(0), ProcessorId(1)] {
            let jobs = window.jobs.iter().filter(|line| line.processor == processor).flat_map(|line| line.ran.clone());
            let others = window.others.iter().filter(|other| other.processor == processor);
            let mut all: Vec<_> = jobs.chain(others.map(|other| (other.from, other.to))).collect();
            all.sort();
            assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", window.reason);
        }
    }
}

#[test]
fn windows_are_few_bounded_and_repeatable_and_one_has_the_latest_job() {
    let system = example("flight-program.toml");
    let (seen_once, stats) = seen(&system);
    assert_eq!(seen_once.windows, seen(&system).0.windows);
    assert!(pieces(&seen_once.windows) <= 6_000, "{}", pieces(&seen_once.windows));
    for critical in [true, false] {
        let worst = stats.lateness(|row| row.critical() == critical).extent().most().unwrap();
        let shown = seen_once.windows.iter().find_map(|window| match window.reason {
            WindowReason::Latest { critical: class, job, lateness } if class == critical => {
                Some((window, job, lateness))
            }
            _ => None,
        });
        let (window, job, lateness) = shown.unwrap();
        assert_eq!(lateness, worst);
        assert!(window.jobs.iter().any(|line| line.job == job));
    }
    let regions = seen_once.windows.iter().filter(|window| matches!(window.reason, WindowReason::Region(_))).count();
    assert_eq!(regions, system.epochs.len() - 1);
}

#[test]
fn every_late_job_that_is_shown_has_an_account_that_adds_up() {
    let system = example("flight-program.toml");
    let (seen, stats) = seen(&system);
    let late = stats.worst(false, 20);
    assert!(!late.is_empty());
    for end in late {
        let account = seen.breakdown(end.job).expect("an account");
        assert_eq!(account.total(|_| true), account.response());
    }
}
