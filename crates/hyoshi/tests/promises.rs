//! The two promises, on the examples and on random systems run by the kernel: a recording replayed
//! through the dispatcher gives the identical decisions, and a run agrees with its simulation but
//! for near-ties and for periods in which the machine did something else.

use crate::common;

use std::path::Path;
use std::sync::Arc;

use hyoshi::{
    DispatchDecision, Instant, JobEnd, Node, Plan, Probe, Span, Strategies, System, TraceEvent, read, read_file,
    simulate,
};
use hyoshi_replay::replay;
use hyoshi_trace::agreement::{ProcessorEnds, RunComparison, TOLERANCE, compare};

/// Keeps job ends.
#[derive(Default)]
struct Ends(Vec<JobEnd>);

impl Probe for Ends {
    fn event(&mut self, _: Instant, event: TraceEvent) {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
            self.0.push(end);
        }
    }
}

/// Runs a system, replays what was recorded, and compares it with a simulation.
fn hold(system: System) -> RunComparison {
    let _alone = common::alone();
    let (name, system) = (system.name.clone(), Arc::new(system));
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let running = Node::new(system.clone(), plan.clone()).ring(1 << 17).start().unwrap();
    let mut events = vec![Vec::new(); system.processors.len()];
    let finished = running.wait(&mut |processor, now, event| events[processor.index()].push((now, event)));
    assert_eq!(finished.lost.events, 0, "{name}: events were lost");

    let until = Instant::ZERO + finished.elapsed;
    let simulated = simulate(&system, &plan, until, |_| Ends::default(), |_| true);
    let mut pairs: Vec<(Vec<JobEnd>, Vec<JobEnd>)> = Vec::new();
    for ((plan, events), simulated) in plan.processors.iter().zip(events).zip(simulated.processors) {
        let replayed = replay(&system, plan, events.iter().copied());
        replayed.unwrap_or_else(|divergence| panic!("{name}: {divergence}"));
        let mut ends = Ends::default();
        events.into_iter().for_each(|(now, event)| ends.event(now, event));
        pairs.push((simulated.probe.0, ends.0));
    }
    let ends: Vec<_> = pairs.iter().map(|(simulated, run)| ProcessorEnds { simulated, run }).collect();
    let mut sum = RunComparison::default();
    for agreement in compare(&system, &ends, until, TOLERANCE) {
        sum.agreeing += agreement.agreeing;
        sum.jobs += agreement.jobs;
        sum.near_ties.extend(agreement.near_ties);
        sum.disturbed.extend(agreement.disturbed);
        sum.disagreements.extend(agreement.disagreements);
    }
    println!(
        "{name}: {} busy periods ({} jobs) agree, {} near-ties, {} disturbed, {} disagreements",
        sum.agreeing,
        sum.jobs,
        sum.near_ties.len(),
        sum.disturbed.len(),
        sum.disagreements.len()
    );
    assert!(sum.disagreements.is_empty(), "{name}: {:#?}", sum.disagreements);
    sum
}

fn example(name: &str, duration: Span) -> System {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let system = read_file(file).unwrap_or_else(|errors| panic!("{errors}")).system;
    system.with(|system| system.duration = duration)
}

#[test]
fn a_run_of_the_examples_replays_exactly_and_agrees_with_its_simulation() {
    for name in ["flight-program.toml", "uav.toml", "tracker.toml"] {
        hold(example(name, Span::from_secs(2)));
    }
}

/// A system of a few operations of some milliseconds on one processor, at 40 to 130 % load.
fn random(seed: u64) -> System {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let strategy = ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"][seed as usize % 7];
    let preemption = ["levels", "levels", "full", "none"][below(4) as usize];
    let cancel = below(2) == 0;
    let mut text = format!(
        "name = 'random {seed}'\nseed = {seed}\nduration = '1s'\n\
         [processor.main]\nstrategy = '{strategy}'\npreemption = '{preemption}'\ncancel = {cancel}\n"
    );
    for operation in 0..3 + below(4) {
        let period = 20 + below(60);
        let wcet = 1 + below(period / 4);
        let (phase, critical) = (below(20), below(2) == 0);
        text += &format!(
            "[operation.o{operation}]\nevery = '{period}ms'\nphase = '{phase}ms'\nwcet = '{wcet}ms'\n\
             takes = {{ uniform = ['0.5ms', '{wcet}ms'] }}\ncritical = {critical}\n"
        );
    }
    read(&text, "random.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

#[test]
fn runs_of_random_systems_replay_exactly_and_agree_with_their_simulations() {
    let jobs: u64 = (1..=7).map(|seed| hold(random(seed)).jobs).sum();
    assert!(jobs > 100, "only {jobs} jobs were in periods that agree");
}
