//! Two strategies on one processor: no job is lost, whenever they change.

use crate::common;

use std::collections::{HashMap, HashSet};

use common::random::Choices;
use common::*;
use hyoshi_dispatch::lanes_of;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::analysis::OperationReport;
use hyoshi_sched::{Discipline, Plan, Strategies, analyse};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, TraceEvent};

const SYSTEMS: u64 = 1_500;
const UNTIL: Instant = Instant::from_nanos(300_000_000);

/// A random system of which every processor has two strategies.
fn switching(seed: u64) -> System {
    let mut system = random::system(seed).into_contents();
    let mut choose = Choices::new(seed ^ 0x5717c4);
    for processor in &mut system.processors {
        let strategy = choose.of(&["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]);
        let margin = Span::from_micros(choose.below(3) * 2_000);
        let calm = Span::from_micros(choose.of(&[1, 1_000, 10_000, 100_000]));
        processor.overload = Some(Overload { strategy: strategy.into(), margin, calm });
    }
    System::new(system)
}

fn plan(system: &System) -> Plan {
    Plan::new(system, &Strategies::built_in()).unwrap()
}

#[test]
fn a_recording_fed_back_switches_at_the_same_events() {
    let mut switches = 0;
    for seed in 0..SYSTEMS {
        let system = switching(seed);
        let all = events(&system, UNTIL);
        switches += all
            .iter()
            .filter(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Switch { .. })))
            .count();
        for plan in &plan(&system).processors {
            let own = all.iter().filter(|(processor, ..)| *processor == plan.processor);
            let own = own.map(|(_, at, event)| (*at, *event));
            replay(&system, plan, own).unwrap_or_else(|divergence| panic!("seed {seed}: {divergence}"));
        }
    }
    assert!(switches > SYSTEMS as usize, "{switches} switches");
}

#[test]
fn every_job_ends_once_and_limits_hold_across_switches() {
    for seed in 0..SYSTEMS {
        let system = switching(seed);
        let all = events(&system, UNTIL);
        let (mut ended, mut ready) = (HashSet::new(), HashMap::new());
        for (processor, _, event) in &all {
            match event {
                TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) => {
                    assert!(ready.insert((*processor, *job, *release), ()).is_none(), "seed {seed}: {job:?} twice");
                }
                TraceEvent::Decision(DispatchDecision::End(end)) => {
                    assert!(ended.insert((end.job, end.release)), "seed {seed}: {end:?} ended twice");
                    let setting = system.setting(usize::from(end.epoch), end.job.operation);
                    if end.outcome.finished() && end.start != Instant::NEVER && end.end < UNTIL {
                        assert_eq!(
                            end.consumed,
                            setting.execution_time.draw(system.seed, end.job),
                            "seed {seed}: {end:?}"
                        );
                    }
                    assert!(end.outcome != JobOutcome::Cancelled || !end.critical, "seed {seed}: {end:?}");
                }
                _ => {}
            }
        }
        // Released jobs that have not ended could still be in time at the end of the simulation.
        for (_, job, release) in ready.keys().filter(|(_, job, release)| !ended.contains(&(*job, *release))) {
            let setting = system.epochs.iter().map(|epoch| &epoch.settings[job.operation.index()]);
            let longest = setting.map(|setting| setting.deadline.span()).max().unwrap();
            assert!(release.saturating_add(longest) >= UNTIL, "seed {seed}: {job:?} of {release} was lost");
        }
    }
}

#[test]
fn started_jobs_finish_in_their_lane_and_waiting_ones_start_where_the_ruling_strategy_puts_them() {
    for seed in 0..SYSTEMS {
        let system = switching(seed);
        let plans = plan(&system);
        let mut second: HashMap<ProcessorId, bool> = HashMap::new();
        let mut started: HashMap<(ProcessorId, JobId), u8> = HashMap::new();
        let mut lanes: HashMap<(ProcessorId, JobId), u8> = HashMap::new();
        let mut epoch: HashMap<(ProcessorId, JobId), usize> = HashMap::new();
        let mut now_in: HashMap<ProcessorId, usize> = HashMap::new();
        for (processor, at, event) in &events(&system, UNTIL) {
            let plan = &plans.processors[processor.index()];
            match event {
                TraceEvent::Decision(DispatchDecision::Epoch { index }) => {
                    now_in.insert(*processor, usize::from(*index));
                }
                TraceEvent::Decision(DispatchDecision::Switch { second: now }) => {
                    assert_ne!(second.insert(*processor, *now).unwrap_or(false), *now, "seed {seed}");
                }
                TraceEvent::Decision(DispatchDecision::Ready { job, lane, .. }) => {
                    lanes.insert((*processor, *job), *lane);
                    epoch.insert((*processor, *job), now_in[processor]);
                }
                TraceEvent::Decision(DispatchDecision::Move { job, lane }) => {
                    assert!(!started.contains_key(&(*processor, *job)), "seed {seed}: {job:?} had started");
                    lanes.insert((*processor, *job), *lane);
                }
                TraceEvent::Decision(DispatchDecision::Run { job, lane, resumed, .. }) => {
                    assert_eq!(lanes[&(*processor, *job)], *lane, "seed {seed}: {job:?} at {at}");
                    if *resumed {
                        assert_eq!(started[&(*processor, *job)], *lane, "seed {seed}: {job:?} changed lanes");
                        continue;
                    }
                    started.insert((*processor, *job), *lane);
                    let rules =
                        if second.get(processor) == Some(&true) { plan.overload.as_ref().unwrap() } else { plan };
                    let operation = system.operation(job.operation);
                    // Held jobs get their position at their release, an epoch earlier perhaps.
                    if plan.preemption != Preemption::None && operation.guard == Guard::Off && system.epochs.len() == 1
                    {
                        let place = rules.placement(epoch[&(*processor, *job)], job.operation).unwrap();
                        let critical = operation.critical || job.leg < system.setting(0, job.operation).critical_legs;
                        let place = if critical { place.critical } else { place.other };
                        assert_eq!(place.level, *lane, "seed {seed}: {job:?} at {at}");
                    }
                }
                TraceEvent::Decision(DispatchDecision::End(end)) => {
                    started.remove(&(*processor, end.job));
                }
                TraceEvent::Input(Input::LaneRuns { lane, .. }) => {
                    assert!(usize::from(*lane) < lanes_of(plan).len(), "seed {seed}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn after_a_switch_waiting_jobs_of_a_deadline_level_start_in_its_order() {
    let build = |second: Option<Overload>| {
        let mut build = Build::new("RMS", 1)
            .periodic("long", 0, 10.0, 6.0)
            .periodic("late", 0, 40.0, 2.0)
            .critical()
            .set(|setting| setting.deadline = Deadline::Own(ms(39.0)))
            .periodic("soon", 0, 40.0, 2.0)
            .critical()
            .set(|setting| setting.deadline = Deadline::Own(ms(12.0)));
        build.0.processors[0].overload = second;
        build
    };
    // Under rate monotonic `soon` waits behind `long` and, by arrival, behind `late`.
    assert_eq!(build(None).schedule("soon", 20.0), [(8.0, 10.0)]);
    let edf = Overload { strategy: "EDF".into(), margin: ms(0.0), calm: ms(100.0) };
    let switched = build(Some(edf));
    let plan = plan(&switched.system());
    assert_eq!(plan.processors[0].overload.as_ref().unwrap().levels[0].discipline, Discipline::Deadline);
    // The trigger is met at once: by deadline `soon` precedes `late`.
    assert_eq!(switched.schedule("soon", 20.0), [(6.0, 8.0)]);
    assert_eq!(switched.count("late", 39.0, JobOutcome::Missed), 0);
}

/// The proofs of `check` across any sequence of switches hold in each actual one.
#[test]
fn no_response_exceeds_what_is_proved_across_switches() {
    let (mut proved, mut switches) = (0, 0);
    for seed in 0..2 * SYSTEMS {
        let mut system = switching(seed).into_contents();
        system.epochs.truncate(1);
        let shrink = 1 + seed % 6;
        let mut settings = system.epochs[0].settings.to_vec();
        for setting in &mut settings {
            setting.wcet = Span::from_nanos((setting.wcet.as_nanos() / shrink).max(1_000));
            setting.bcet = setting.bcet.min(setting.wcet);
            setting.execution_time =
                ExecutionTime::Uniform(Span::from_nanos(setting.wcet.as_nanos() / 2), setting.wcet);
        }
        system.epochs[0].settings = settings.into();
        for (_, span) in system.operations.iter_mut().flat_map(|operation| &mut operation.uses) {
            *span = Span::from_nanos(span.as_nanos() / shrink / 8 + 1);
        }
        let system = System::new(system);
        let report = analyse(&system, &plan(&system));
        let all = events(&system, UNTIL);
        switches += all
            .iter()
            .filter(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Switch { .. })))
            .count();
        for (index, operation) in system.operations.iter().enumerate() {
            for critical in [false, true] {
                let same = |one: &OperationReport| one.operation.index() == index && one.critical == critical;
                let scenes: Vec<_> = report.operations().map(|found| found.2).filter(|one| same(one)).collect();
                if scenes.is_empty() || !scenes.iter().all(|one| one.verdict.is_proved()) {
                    continue;
                }
                proved += 1;
                let longest = scenes.iter().map(|one| one.bound_ns).try_fold(0, |most, one| Some(most.max(one?)));
                for end in ends(&all).filter(|end| end.job.operation.index() == index && end.critical == critical) {
                    assert!(end.outcome != JobOutcome::Missed, "seed {seed}: {} {end:?} {scenes:#?}", operation.name);
                    let from = match system.setting(0, end.job.operation).deadline {
                        Deadline::Own(_) => end.release,
                        Deadline::Origin(_) => end.origin,
                    };
                    let took = end.end.since(from).as_nanos();
                    let within = !end.outcome.finished() || longest.is_none_or(|bound| took <= bound);
                    assert!(within, "seed {seed}: {} {end:?}, bound {longest:?} {scenes:#?}", operation.name);
                }
            }
        }
    }
    assert!(proved > 1_000 && switches > 500, "{proved} proved, {switches} switches");
}

/// RMS starts `control` in lane 2, where it stays. From then on non-critical work, which overloads the processor, has
/// lane 3.
#[test]
fn a_critical_job_that_started_under_the_first_strategy_precedes_all_other_work_of_the_second() {
    let mut build = Build::new("RMS", 1)
        .periodic("route", 0, 20.0, 4.0)
        .set(|setting| (setting.legs, setting.phase) = (6, Span::from_nanos(1)))
        .periodic("display", 0, 50.0, 1.0)
        .set(|setting| setting.phase = Span::from_nanos(1))
        .periodic("control", 0, 100.0, 6.0)
        .critical();
    build.0.processors[0].overload =
        Some(Overload { strategy: "RMS+MLF".into(), margin: Span::ZERO, calm: Span::from_secs(1) });
    assert_eq!(build.count("control", 500.0, JobOutcome::Missed), 0);
    let (system, control) = (build.system(), OperationId(2));
    let plan = plan(&system);
    let second = plan.processors[0].overload.as_ref().unwrap();
    let lanes = (0..3).map(|id| second.placement(0, OperationId(id)).unwrap().other.level).collect::<Vec<_>>();
    assert_eq!((lanes, plan.processors[0].placement(0, control).unwrap().critical.level), (vec![3, 3, 0], 2));
    // Across any switches, there is no proof: legs that the first strategy has begun precede it.
    let report = analyse(&system, &plan);
    let control = report.operations().map(|found| found.2).find(|one| one.operation == control).unwrap();
    assert!(!control.verdict.is_proved() && control.bound_ns.is_none(), "{control:#?}");
    assert!(matches!(&control.alone[..], [_, last] if last.verdict.is_proved()), "{control:#?}");
}
