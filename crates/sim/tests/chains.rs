//! Soundness end to end: on random chains over several processors, with links, guards, joins and reads, no simulated
//! latency, age or reaction exceeds its bound.

use crate::common;

use common::random::Choices;
use common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::Requirement;
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_trace::stats::{ChainStats, StagePart};
use hyoshi_trace::{Probe, Stats};

const SYSTEMS: u64 = 1_000;

/// A chain of one to three segments of triggers, each sampling the one before, among other work.
/// Processors 0 and 1 are on one machine, 2 on another.
fn system(seed: u64) -> System {
    let mut choose = Choices::new(seed ^ 0xc4a1);
    let us = |micros: u64| micros as f64 / 1e3;
    let processors = 2 + choose.below(2) as usize;
    let mut build = Build::new("DM", processors);
    for processor in &mut build.0.processors {
        processor.strategy = choose.of(&["RMS", "DM", "DM", "RMS+EDF", "EDF"]).into();
        processor.preemption = choose.of(&[Preemption::None, Preemption::Levels, Preemption::Full]);
    }
    if processors == 3 {
        build.0.hosts.push(Host::named("far"));
        build.0.processors[2].host = HostId(1);
        let least = choose.below(1_500);
        let delay = (Span::from_micros(least), Span::from_micros(least + choose.below(1_500)));
        build.0.links.push(Link::new((HostId(0), HostId(1)), delay));
    }
    let mut path: Vec<OperationId> = Vec::new();
    let segments = 1 + choose.below(3);
    for segment in 0..segments {
        // Reads over a link are measured only through a replica.
        let on = choose.below(2 + u64::from(processors == 3)) as u32;
        let odd = us(5_003 + choose.below(30_000));
        let period = choose.of(&[us(10_000), us(20_000), odd]);
        let wcet = us(100 + choose.below(900));
        build = build.periodic(&format!("s{segment}"), on, period, wcet);
        let root = OperationId(build.0.operations.len() as u32 - 1);
        if let Some(read) = path.last().copied() {
            build = build.with(|operation| operation.reads = vec![read]);
            replicate(&mut build.0, read, root, choose.of(&[FlushPoint::Deadline, FlushPoint::Completion]));
        }
        let jitter = if choose.one_in(3) { Span::from_micros(choose.below(2_000)) } else { Span::ZERO };
        let phase = Span::from_micros(choose.below(20_000));
        build = build.set(|setting| (setting.jitter, setting.phase) = (jitter, phase));
        // Not always from its periodic operation on.
        if !(segment == 0 && choose.one_in(4)) {
            path.push(root);
        }
        let (mut last, hops) = (root, choose.below(3) + u64::from(path.is_empty()));
        for hop in 0..hops {
            let to = choose.below(processors as u64) as u32;
            let guard = choose.of(&[Guard::Off, Guard::Off, Guard::On, Guard::Idle]);
            let mut predecessors = vec![last.0];
            if hop > 0 && choose.one_in(3) {
                predecessors.push(root.0);
            }
            build = build
                .after(&format!("s{segment}t{hop}"), to, &predecessors, us(100 + choose.below(900)))
                .with(|operation| operation.guard = guard);
            last = OperationId(build.0.operations.len() as u32 - 1);
            path.push(last);
        }
    }
    if path.len() < 2 {
        let from = path.last().map_or(0, |id| id.0);
        build = build.after("end", 0, &[from], 0.3);
        path.push(OperationId(build.0.operations.len() as u32 - 1));
    }
    for other in 0..choose.below(4) * choose.below(2) {
        let on = choose.below(processors as u64) as u32;
        build =
            build.periodic(&format!("o{other}"), on, us(4_000 + choose.below(30_000)), us(100 + choose.below(1_500)));
    }
    let mut settings = build.0.epochs[0].settings.to_vec();
    for setting in &mut settings {
        let least = Span::from_nanos(setting.wcet.as_nanos() / (1 + choose.below(4)));
        setting.bcet = least;
        setting.execution_time = if choose.one_in(2) {
            ExecutionTime::Uniform(least, setting.wcet)
        } else {
            ExecutionTime::Fixed(setting.wcet)
        };
        if let Deadline::Origin(_) = setting.deadline {
            setting.deadline = Deadline::Origin(setting.period * 3);
        }
    }
    build.0.epochs[0].settings = settings.into();
    for operation in &mut build.0.operations {
        operation.queue.limit = 8;
    }
    let limit = Some(Span::from_secs(10));
    build.0.chains.push(Chain {
        name: "c".into(),
        path,
        deadline: limit,
        max_age: limit,
        max_reaction: limit,
        carried_by: Default::default(),
    });
    build.0.seed = seed;
    System::new(build.0)
}

/// The greatest time of each part in any stage. Every output is divided, and the slowest exactly.
fn parts(chain: &ChainStats) -> [Span; 5] {
    let latency = chain.latency.extent();
    let counts: Vec<u64> = chain.stages.iter().map(|stage| stage.by.extent().count()).collect();
    assert!(counts.iter().all(|count| *count == latency.count()), "{counts:?} of {}", latency.count());
    let slowest = chain.stages.iter().flat_map(|stage| StagePart::ALL.map(|part| stage.slowest(part)));
    let slowest = slowest.fold(Span::ZERO, |sum, part| sum + part);
    assert!(chain.stages.is_empty() || Some(slowest) == latency.most(), "{slowest:?} of {latency:?}");
    assert_eq!(chain.stages.last().and_then(|last| last.by.extent().most()), latency.most());
    StagePart::ALL.map(|part| {
        let all = chain.stages.iter().filter_map(|stage| stage.part(part)?.extent().most());
        all.max().unwrap_or_default()
    })
}

/// Makes a replica on the reader's host, if that is another one.
fn replicate(system: &mut Contents, read: OperationId, reader: OperationId, flush: FlushPoint) {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    let (own, there) = (host(read), host(reader));
    if own != there {
        system.operations[read.index()].payload = 8;
        system.operations[read.index()].replication = Some(Replication { to: vec![there], flush });
    }
}

#[test]
fn nothing_observed_of_a_chain_exceeds_its_bound() {
    let (mut bounds, mut met, mut close, mut sampling) = (0u64, 0u64, 0u64, 0u64);
    let (mut staged, mut flushed) = ([0u64; 5], [0u64; 2]);
    for seed in 0..SYSTEMS {
        let system = system(seed);
        let report = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
        let mut stats = Stats::new(&system);
        let all = events(&system, Instant::from_nanos(1_500_000_000));
        all.into_iter().for_each(|(_, now, event)| stats.event(now, event));
        let observed = &stats.chains()[0];
        assert_eq!(observed.unmeasured, None, "seed {seed}");
        let parts = parts(observed);
        staged.iter_mut().zip(parts).for_each(|(all, one)| *all += u64::from(one > Span::ZERO));
        let hops = system.chains[0].path.windows(2);
        let flushes: Vec<FlushPoint> = hops
            .filter(|pair| !system.operation(pair[1]).trigger.predecessors().contains(&pair[0]))
            .filter_map(|pair| system.replica_on(pair[0], system.processor(system.operation(pair[1]).on).host))
            .collect();
        for chain in &report.scenes[0].chains {
            let most = match chain.requirement {
                Requirement::Deadline | Requirement::MaxAge => observed.latency.extent().most(),
                Requirement::MaxReaction => observed.reaction.most(),
            };
            let (Some(bound), Some(most)) = (chain.bound_ns, most) else { continue };
            if chain.requirement != Requirement::MaxReaction {
                for (stage, bound) in observed.stages.iter().zip(&chain.stages) {
                    let by = stage.by.extent().most().unwrap().as_nanos();
                    assert!(by <= bound.by_ns, "seed {seed}: {by} exceeds {bound:?}\n{system:#?}");
                }
            }
            let most = most.as_nanos();
            assert!(most <= bound, "seed {seed}: {most} exceeds {bound}\n{chain:#?}\n{system:#?}");
            bounds += 1;
            // The worst case of sampling is approached, period by period, to the finest step in the system.
            met += u64::from(most + 2_000 >= bound);
            close += u64::from(most * 10 >= bound * 9);
            flushed[0] += u64::from(flushes.contains(&FlushPoint::Deadline));
            flushed[1] += u64::from(flushes.contains(&FlushPoint::Completion));
            sampling += u64::from(chain.method == hyoshi_sched::analysis::AnalysisMethod::Sampling);
        }
    }
    let [at_deadlines, at_completions] = flushed;
    println!("{at_deadlines} through replicas flushed at deadlines, {at_completions} at completions");
    assert!(at_deadlines > SYSTEMS / 20 && at_completions > SYSTEMS / 20, "few bounds through replicas: {flushed:?}");
    println!("{bounds} bounds ({sampling} through reads): {met} met to 2 us, {close} within 10 %");
    println!("systems with time in each of {:?}: {staged:?}", StagePart::ALL);
    assert!(staged.iter().all(|systems| *systems > SYSTEMS / 50), "{staged:?}");
    assert!(bounds > SYSTEMS && sampling > SYSTEMS / 2, "only {bounds} bounds, {sampling} through reads");
    assert!(met > bounds / 50 && close > bounds / 5, "{met} of {bounds} met, {close} nearly: loose bounds show little");
}
