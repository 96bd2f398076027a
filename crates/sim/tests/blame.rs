//! Blame: properties of every simulated job's account, on random systems with all features of the model.

use crate::common;

use std::collections::BTreeSet;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::Replay;
use hyoshi_replay::blame::{
    Blame, BreakdownBasis, CpuChange, CpuOccupant, Culprit, Interest, Rank, ResponseBreakdown, ResponsePart,
};
use hyoshi_sched::{Plan, ProcessorPlan, Strategies};
use hyoshi_trace::stats::Phases;
use hyoshi_trace::{CpuEvent, CpuUser, JobOutcome, TraceEvent};

const SYSTEMS: u64 = 1_000;
const UNTIL: Instant = Instant::from_nanos(300_000_000);

fn accounts_of(
    system: &System,
    all: &[(ProcessorId, Instant, TraceEvent)],
    interest: &Interest,
) -> Vec<ResponseBreakdown> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let of = |plan: &hyoshi_sched::ProcessorPlan| {
        let mut law = Blame::new(system, plan, true, interest.clone());
        let own = all.iter().filter(|(processor, ..)| *processor == plan.processor);
        own.filter_map(|(_, now, event)| law.event(*now, event)).collect::<Vec<_>>()
    };
    plan.processors.iter().flat_map(of).collect()
}

fn accounts(system: &System, until: Instant) -> Vec<ResponseBreakdown> {
    accounts_of(system, &events(system, until), &Interest::All)
}

fn micros(micros: u64) -> Span {
    Span::from_micros(micros)
}

#[test]
fn the_parts_add_up_and_nothing_is_unexplained() {
    let mut jobs = 0;
    for seed in 0..SYSTEMS {
        let system = random::system(seed);
        for account in accounts(&system, UNTIL) {
            jobs += 1;
            let sum: Span = account.parts.iter().map(|(_, span)| *span).sum();
            assert_eq!(sum, account.response(), "seed {seed}: {account:?}");
            assert_eq!(account.basis, BreakdownBasis::Exact);
            let unexplained = account.total(|kind| {
                matches!(
                    kind,
                    ResponsePart::Unexplained
                        | ResponsePart::Asleep(_)
                        | ResponsePart::Overhead
                        | ResponsePart::TimerLate
                        | ResponsePart::Other(_)
                )
            });
            assert!(unexplained.is_zero(), "seed {seed}: {account:?}");
            if account.end.outcome.finished() && account.end.end < UNTIL {
                let ran = account.total(|kind| matches!(kind, ResponsePart::Executed | ResponsePart::Overran));
                assert_eq!(ran, account.end.consumed, "seed {seed}: {account:?}");
            }
            assert_eq!(
                account.total(|kind| kind == ResponsePart::Overran),
                account.end.consumed.saturating_sub(account.wcet)
            );
            // No less urgent job is to blame, except for a started one where jobs finish without preemption.
            let preemption = system.processor(system.operation(account.end.job.operation).on).preemption;
            let less = |kind: ResponsePart| match kind {
                ResponsePart::Waited { rank, .. } | ResponsePart::Preempted { rank, .. } => rank == Rank::LessUrgent,
                _ => false,
            };
            assert!(preemption == Preemption::None || account.total(less).is_zero(), "seed {seed}: {account:?}");
        }
    }
    assert!(jobs > 50_000, "{jobs}");
}

#[test]
fn the_parts_of_a_job_s_time_are_its_phases() {
    let before = |kind: ResponsePart| {
        use ResponsePart::{Guard, Jitter, Legs, Link, Offset, TimerLate, Upstream};
        matches!(kind, Upstream | Legs | Link | Offset | Jitter | Guard | TimerLate)
    };
    for seed in 0..SYSTEMS / 4 {
        let system = random::system(seed);
        for account in accounts(&system, UNTIL) {
            let end = &account.end;
            // A job that has not ended has no CPU time yet, or is stopped in the middle of it.
            if !end.outcome.finished() || end.end >= UNTIL {
                continue;
            }
            let phases = Phases::of(&system, end);
            let mine = [
                account.total(before),
                account.total(|kind| kind == ResponsePart::Executed),
                account.total(|kind| kind == ResponsePart::Overran),
                account.total(|kind| !before(kind) && !matches!(kind, ResponsePart::Executed | ResponsePart::Overran)),
            ];
            let theirs =
                [phases.upstream + phases.released_late, phases.executed, phases.overran, phases.waited + phases.held];
            assert_eq!(mine, theirs, "seed {seed}: {account:?} {phases:?}");
        }
    }
}

#[test]
fn what_scheduling_costs_is_overhead_and_nothing_else_changes() {
    for seed in 0..SYSTEMS / 2 {
        let mut system = random::system(seed).into_contents();
        for processor in &mut system.processors {
            processor.costs = Costs {
                timer: micros(7),
                enqueue: micros(3),
                dequeue: micros(2),
                cancel: micros(1),
                switch: micros(5),
                watchdog: micros(20),
            };
        }
        let system = System::new(system);
        for account in accounts(&system, UNTIL) {
            let sum: Span = account.parts.iter().map(|(_, span)| *span).sum();
            assert_eq!(sum, account.response(), "seed {seed}: {account:?}");
            let unexplained = account.total(|kind| {
                matches!(kind, ResponsePart::Unexplained | ResponsePart::Asleep(_) | ResponsePart::Other(_))
            });
            assert!(unexplained.is_zero(), "seed {seed}: {account:?}");
            if account.end.outcome.finished() && account.end.end < UNTIL {
                let ran = account.total(|kind| matches!(kind, ResponsePart::Executed | ResponsePart::Overran));
                assert_eq!(ran, account.end.consumed, "seed {seed}: {account:?}");
            }
        }
    }
}

#[test]
fn no_job_is_blamed_for_a_job_alone_on_its_processor() {
    for seed in 0..200 {
        let mut system = random::system(seed).into_contents();
        // Each operation gets a separate processor, and its predecessors finish before its arrival.
        system.resources.clear();
        for index in 0..system.operations.len() {
            system.processors.push(Processor { cap_ppm: 1_000_000, ..system.processors[0].clone() });
            let operation = &mut system.operations[index];
            operation.on = ProcessorId(system.processors.len() as u32 - 1);
            operation.uses.clear();
        }
        let system = System::new(system);
        for account in accounts(&system, UNTIL) {
            let operation = account.end.job.operation;
            for (kind, _) in &account.parts {
                assert!(kind.culprit().is_none_or(|who| who.operation == operation), "seed {seed}: {account:?}");
            }
        }
    }
}

#[test]
fn a_log_that_begins_anew_changes_no_account() {
    // One low operation with a job that lasts for a whole long simulation, and many operations above it.
    let build = Build::new("RMS", 1).periodic("long", 0, 1_000.0, 400.0);
    let build = (0..4)
        .fold(build, |build, index| build.periodic(&format!("o{index}"), 0, 0.31 + f64::from(index) / 50.0, 0.04));
    let until = Instant::ZERO + ms(990.0);
    let long = accounts(&build.system(), until).into_iter().find(|account| account.end.job.operation.0 == 0).unwrap();
    assert_eq!(long.parts.iter().map(|(_, span)| *span).sum::<Span>(), long.response());
    assert_eq!(long.total(|kind| kind == ResponsePart::Executed), ms(400.0));
    let others = long.total(|kind| kind.culprit().is_some());
    assert_eq!(others, long.response().saturating_sub(ms(400.0)));
}

#[test]
fn interest_in_a_few_jobs_returns_the_same_accounts_with_timelines() {
    for seed in 0..100 {
        let system = random::system(seed);
        let all = events(&system, UNTIL);
        let every = accounts_of(&system, &all, &Interest::All);
        let jobs: BTreeSet<JobId> = every.iter().step_by(7).map(|account| account.end.job).collect();
        for account in accounts_of(&system, &all, &Interest::Jobs(jobs.clone())) {
            let same = every.iter().find(|other| other.end == account.end).unwrap();
            assert_eq!(same.parts, account.parts, "seed {seed}");
            // Each stretch follows the one before, from the release to the end.
            let mut at = account.from;
            for stretch in &account.timeline {
                assert_eq!(stretch.from, at, "seed {seed}: {account:?}");
                at = stretch.to;
            }
            assert_eq!(at, account.end.end, "seed {seed}: {account:?}");
        }
        let late = accounts_of(&system, &all, &Interest::NotMade);
        assert!(late.iter().all(|account| account.end.outcome != JobOutcome::Made));
        assert_eq!(late.len(), every.iter().filter(|account| account.end.outcome != JobOutcome::Made).count());
    }
}

/// A processor's events with its switches, as from the kernel.
fn with_switches(system: &System, plan: &ProcessorPlan, own: &[(Instant, TraceEvent)]) -> Vec<(Instant, TraceEvent)> {
    let mut law = Blame::new(system, plan, true, Interest::Jobs(BTreeSet::new()));
    let mut all = Vec::new();
    for (now, event) in own {
        law.event_watched(*now, event, |change| {
            let CpuChange::Slice { from, occupant, .. } = change else { return };
            let to = match occupant {
                CpuOccupant::Job(runner) => CpuUser::Lane(runner.lane),
                _ => CpuUser::Idle,
            };
            all.push((*from, TraceEvent::Cpu(CpuEvent::Switch { to, preempted: true })));
        });
        all.push((*now, *event));
    }
    all
}

#[test]
fn beyond_a_gap_only_jobs_in_the_way_are_blamed() {
    let mut named = 0;
    for seed in 0..SYSTEMS / 4 {
        let mut system = random::system(seed).into_contents();
        // Switches do not show which of several demoted jobs runs.
        system.operations.iter_mut().for_each(|operation| operation.on_overrun = OnOverrun::Report);
        let system = System::new(system);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let all = events(&system, UNTIL);
        for plan in &plan.processors {
            let own = all.iter().filter(|(processor, ..)| *processor == plan.processor);
            let own: Vec<_> = own.map(|(_, now, event)| (*now, *event)).collect();
            let own = with_switches(&system, plan, &own);
            let mut choose = random::Choices::new(seed);
            let first = choose.below(own.len() as u64 / 2) as usize;
            let lost = first..first + 1 + choose.below(30) as usize;
            let whole = (0..).zip(&own);
            let kept = whole.filter(|(place, (_, event))| matches!(event, TraceEvent::Cpu(_)) || !lost.contains(place));
            let kept: Vec<_> = kept.map(|(_, event)| *event).collect();
            let accounts = |events: &[(Instant, TraceEvent)]| {
                let mut law = Blame::new(&system, plan, false, Interest::All);
                events.iter().filter_map(|(now, event)| law.event(*now, event)).collect::<Vec<_>>()
            };
            let whole = accounts(&own);
            // Until the dispatcher's decision differs from the recording nothing shows that there is a gap.
            let mut replay = Replay::new(&system, plan);
            let Some((known, _)) = kept.iter().find(|(now, event)| replay.event(*now, *event).is_err()) else {
                continue;
            };
            for account in accounts(&kept).into_iter().filter(|account| account.from > *known) {
                assert_eq!(account.parts.iter().map(|(_, span)| *span).sum::<Span>(), account.response());
                let true_one = whole.iter().find(|other| other.end.job == account.end.job).unwrap();
                for who in account.parts.iter().filter_map(|(kind, _)| kind.culprit()) {
                    let blamed = |account: &ResponseBreakdown| account.total(|kind| kind.culprit() == Some(who));
                    let (found, was) = (blamed(&account), blamed(true_one));
                    assert!(found <= was, "seed {seed}, lost {lost:?}: {found} {account:?} was {was} {true_one:?}");
                    named += 1;
                }
            }
        }
    }
    assert!(named > 500, "{named}");
}

#[test]
fn the_order_of_operations_in_the_file_does_not_change_who_is_blamed() {
    let mut compared = 0;
    for seed in 0..400 {
        let mut system = random::system(seed).into_contents();
        // Draws depend on an operation's position: nothing is drawn.
        for epoch in &mut system.epochs {
            let fixed = |setting: &Setting| Setting {
                execution_time: ExecutionTime::Fixed(setting.wcet),
                jitter: Span::ZERO,
                ..setting.clone()
            };
            epoch.settings = epoch.settings.iter().map(fixed).collect::<Vec<_>>().into();
        }
        let system = System::new(system);
        let triggered = system.operations.iter().any(|operation| operation.trigger != Trigger::Periodic);
        if triggered || any_released_together(&system) {
            continue;
        }
        let mut turned = system.clone().into_contents();
        turned.operations.reverse();
        for (index, operation) in turned.operations.iter_mut().enumerate() {
            operation.roots = vec![OperationId(index as u32)];
        }
        for epoch in &mut turned.epochs {
            epoch.settings = epoch.settings.iter().rev().cloned().collect::<Vec<_>>().into();
        }
        let turned = System::new(turned);
        assert_eq!(sorted_accounts(&system), sorted_accounts(&turned), "seed {seed}");
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

/// Every account by names, sorted.
fn sorted_accounts(system: &System) -> Vec<String> {
    let name = |operation: OperationId| &system.operation(operation).name;
    let part = |(kind, span): &(ResponsePart, Span)| {
        let who = kind.culprit().map(|Culprit { operation, job }| (name(operation), job));
        format!("{who:?} {span}")
    };
    let account = |account: ResponseBreakdown| {
        let mut parts: Vec<String> = account.parts.iter().map(part).collect();
        parts.sort();
        let JobId { operation, number, leg } = account.end.job;
        format!("{}#{number}.{leg} {} {parts:?}", name(operation), account.end.end)
    };
    let mut all: Vec<String> = accounts(system, UNTIL).into_iter().map(account).collect();
    all.sort();
    all
}

/// True if two jobs are released at one instant: the file's order decides between them.
fn any_released_together(system: &System) -> bool {
    let all = events(system, UNTIL);
    let mut releases: Vec<Instant> = ends(&all).filter(|end| end.job.leg == 0).map(|end| end.release).collect();
    releases.sort_unstable();
    releases.windows(2).any(|pair| pair[0] == pair[1])
}

#[test]
fn each_cause_is_reported_by_its_name() {
    let find = |system: &System, name: &str, number: u64| {
        let id = system.operations.iter().position(|operation| operation.name == name).unwrap() as u32;
        let job = JobId { operation: OperationId(id), number, leg: 0 };
        accounts(system, Instant::ZERO + ms(200.0)).into_iter().find(|account| account.end.job == job).unwrap()
    };
    let who = |operation: u32, number: u64| Culprit { operation: OperationId(operation), job: Some((number, 0)) };

    // A more urgent job first, then a preemption by its next one.
    let two = Build::new("RMS", 1).periodic("high", 0, 10.0, 4.0).periodic("low", 0, 50.0, 10.0);
    let low = find(&two.system(), "low", 0);
    let expected = [
        (ResponsePart::Executed, ms(10.0)),
        (ResponsePart::Waited { who: who(0, 0), rank: Rank::MoreUrgent }, ms(4.0)),
        (ResponsePart::Preempted { who: who(0, 1), rank: Rank::MoreUrgent }, ms(4.0)),
    ];
    assert_eq!(low.parts, expected);

    // Without preemption, a less urgent job that has begun.
    let none = Build::new("RMS", 1)
        .periodic("high", 0, 10.0, 2.0)
        .set(|setting| setting.phase = ms(1.0))
        .periodic("low", 0, 50.0, 10.0)
        .processors(|processor| processor.preemption = Preemption::None);
    let high = find(&none.system(), "high", 0);
    assert_eq!(high.parts[0], (ResponsePart::Waited { who: who(1, 0), rank: Rank::LessUrgent }, ms(9.0)));

    // A ceiling.
    let mut lock = Build::new("RMS", 1)
        .periodic("high", 0, 10.0, 2.0)
        .set(|setting| setting.phase = ms(1.0))
        .with(|operation| operation.uses = vec![(ResourceId(0), micros(500))])
        .periodic("low", 0, 50.0, 10.0)
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(3.0))]);
    lock.0.resources.push(Resource { name: "map".into() });
    let high = find(&lock.system(), "high", 0);
    assert!(
        high.parts.contains(&(ResponsePart::Resource { resource: ResourceId(0), by: Some(who(1, 0)) }, ms(2.0))),
        "{high:?}"
    );

    // A lock on another processor.
    let mut lock = Build::new("RMS", 2)
        .periodic("here", 0, 50.0, 2.0)
        .set(|setting| setting.phase = ms(1.0))
        .with(|operation| operation.uses = vec![(ResourceId(0), micros(500))])
        .periodic("there", 1, 50.0, 10.0)
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(3.0))]);
    lock.0.resources.push(Resource { name: "map".into() });
    let here = find(&lock.system(), "here", 0);
    assert!(here.parts.contains(&(ResponsePart::Resource { resource: ResourceId(0), by: None }, ms(2.0))), "{here:?}");

    // Jitter, a link, an offset, a chain.
    let mut chain = Build::new("RMS", 2)
        .periodic("first", 0, 50.0, 2.0)
        .after("second", 1, &[0], 3.0)
        .set(|setting| setting.offset = ms(1.0));
    chain.0.hosts.push(Host::named("other"));
    chain.0.processors[1].host = HostId(1);
    chain.0.links.push(Link::new((HostId(0), HostId(1)), (ms(0.5), ms(1.5))));
    let second = find(&chain.system(), "second", 1);
    assert_eq!(second.by, Some(JobId { operation: OperationId(0), number: 1, leg: 0 }));
    assert_eq!(second.total(|kind| kind == ResponsePart::Upstream), ms(2.0));
    assert_eq!(second.total(|kind| kind == ResponsePart::Offset), ms(1.0));
    let link = second.total(|kind| kind == ResponsePart::Link);
    assert!(link >= ms(0.5) && link <= ms(1.5), "{link}");
    assert_eq!(second.response(), ms(2.0) + link + ms(1.0) + ms(3.0));

    let late = Build::new("RMS", 1).periodic("late", 0, 50.0, 2.0).set(|setting| setting.jitter = ms(5.0));
    let late = find(&late.system(), "late", 0);
    assert_eq!(late.total(|kind| kind == ResponsePart::Jitter), late.end.ready.since(late.end.release));

    // An overrun, and the cap.
    let over = Build::new("RMS", 1)
        .periodic("over", 0, 50.0, 2.0)
        .set(|setting| setting.execution_time = ExecutionTime::Fixed(ms(5.0)));
    assert_eq!(
        find(&over.system(), "over", 0).parts,
        [(ResponsePart::Overran, ms(3.0)), (ResponsePart::Executed, ms(2.0))]
    );
    let capped = Build::new("RMS", 1)
        .periodic("greedy", 0, 100.0, 90.0)
        .processors(|processor| (processor.cap_ppm, processor.cap_window) = (500_000, ms(20.0)));
    let greedy = find(&capped.system(), "greedy", 0);
    assert_eq!(greedy.parts[0].0, ResponsePart::Executed, "alone, a paused job goes on as an ordinary thread");
}
