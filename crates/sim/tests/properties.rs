//! Properties of every simulation, on random systems with all features of the model. A failure names the seed:
//! `common::random::system(seed)` is the system.

use crate::common;

use std::collections::HashMap;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, TraceEvent};

const SYSTEMS: u64 = 2_000;
const UNTIL: Instant = Instant::from_nanos(300_000_000);

fn plan(system: &System) -> Plan {
    Plan::new(system, &Strategies::built_in()).unwrap()
}

#[test]
fn a_recording_fed_back_leads_to_identical_decisions() {
    for seed in 0..SYSTEMS {
        let system = random::system(seed);
        let all = events(&system, UNTIL);
        for plan in &plan(&system).processors {
            let own =
                all.iter().filter(|(processor, ..)| *processor == plan.processor).map(|(_, at, event)| (*at, *event));
            let replayed = replay(&system, plan, own).unwrap_or_else(|divergence| panic!("seed {seed}: {divergence}"));
            assert!(replayed.decisions > 0);
        }
    }
}

#[test]
fn the_same_seed_leads_to_the_same_events_to_the_nanosecond() {
    for seed in 0..200 {
        let system = random::system(seed);
        assert_eq!(events(&system, UNTIL), events(&system, UNTIL), "seed {seed}");
    }
}

#[test]
fn every_released_job_ends_once_after_its_execution_time() {
    for seed in 0..SYSTEMS {
        let system = random::system(seed);
        let all = events(&system, UNTIL);
        let mut seen = HashMap::new();
        for end in ends(&all) {
            let setting = system.setting(usize::from(end.epoch), end.job.operation);
            assert!(seen.insert((end.job, end.release), *end).is_none(), "seed {seed}: {end:?} ended twice");
            if end.start == Instant::NEVER {
                assert!(end.consumed.is_zero() && !end.outcome.finished() || end.end == UNTIL, "seed {seed}: {end:?}");
                continue;
            }
            assert!(end.ready >= end.release && end.start >= end.ready && end.end >= end.start, "seed {seed}: {end:?}");
            if end.outcome.finished() && end.end < UNTIL {
                assert_eq!(end.consumed, setting.execution_time.draw(system.seed, end.job), "seed {seed}: {end:?}");
                assert_eq!(end.outcome == JobOutcome::Made, end.end <= end.deadline, "seed {seed}: {end:?}");
            }
        }
    }
}

#[test]
fn critical_jobs_are_never_cancelled_and_cancelled_ones_never_start() {
    for seed in 0..SYSTEMS {
        let system = random::system(seed);
        for end in ends(&events(&system, UNTIL)).filter(|end| end.outcome == JobOutcome::Cancelled) {
            let setting = system.setting(usize::from(end.epoch), end.job.operation);
            assert!(!end.critical && end.start == Instant::NEVER, "seed {seed}: {end:?}");
            // Strictly: a job that just fits runs.
            assert!(end.end.saturating_add(setting.wcet) > end.deadline, "seed {seed}: {end:?}");
        }
    }
}

#[test]
fn one_processor_runs_one_job_at_a_time() {
    for seed in 0..SYSTEMS {
        let system = random::system(seed);
        let plan = plan(&system);
        let simulated = hyoshi_sim::simulate(&system, &plan, UNTIL, |_| Vec::new(), |_| true);
        for processor in simulated.processors {
            let consumed: Span = processor
                .probe
                .iter()
                .filter_map(|(_, event): &(Instant, TraceEvent)| match event {
                    TraceEvent::Decision(DispatchDecision::End(end)) => Some(end.consumed),
                    _ => None,
                })
                .sum();
            assert!(processor.busy <= UNTIL.since(Instant::ZERO), "seed {seed}");
            assert!(consumed <= processor.busy, "seed {seed}: more was consumed than run");
        }
    }
}

#[test]
fn a_lane_that_can_start_something_never_waits_behind_a_less_urgent_one() {
    // If nothing is held, capped or demoted: the start of a job means that no more urgent lane had a ready one.
    for seed in 0..SYSTEMS {
        let mut system = random::system(seed).into_contents();
        for processor in &mut system.processors {
            (processor.cap_ppm, processor.hard_cap) = (1_000_000, HardCap::OFF);
        }
        for operation in &mut system.operations {
            operation.uses.clear();
            operation.on_overrun = OnOverrun::Report;
        }
        let system = System::new(system);
        let mut ready: HashMap<(ProcessorId, u8), i64> = HashMap::new();
        let mut lane_of: HashMap<(ProcessorId, JobId), u8> = HashMap::new();
        let all = events(&system, UNTIL);
        for (processor, at, event) in &all {
            let lane_at = |job: &JobId| lane_of.get(&(*processor, *job)).copied();
            match event {
                TraceEvent::Decision(DispatchDecision::Ready { job, lane, .. }) => {
                    lane_of.insert((*processor, *job), *lane);
                    *ready.entry((*processor, *lane)).or_default() += 1;
                }
                TraceEvent::Decision(DispatchDecision::End(end)) => {
                    if let Some(lane) = lane_at(&end.job) {
                        *ready.entry((*processor, lane)).or_default() -= 1;
                    }
                }
                TraceEvent::Input(Input::LaneRuns { lane, .. }) => {
                    let urgent = (0..*lane).find(|more| ready.get(&(*processor, *more)).copied().unwrap_or(0) > 0);
                    assert_eq!(urgent, None, "seed {seed}: at {at} lane {lane} decides on {processor:?}");
                }
                _ => {}
            }
        }
    }
}
