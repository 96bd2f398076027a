//! The dispatcher in virtual time: the same decisions as on Linux, over a model of the kernel (fixed priorities between
//! lanes, budgets for capped ones), deterministic to the bit and thousands of times faster than real time.
//!
//! Time advances from event to event. At one instant, on all processors: completions, then
//! releases, signals and guards, then dispatch.

#![forbid(unsafe_code)]

mod coordination;
mod cpu;
mod flapping;
mod link_conditions;
mod links;
mod locks;
mod measured;
mod overhead;
pub mod programs;
mod refute;

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::feedback::{GroupSteps, ProposedMove};
use hyoshi_model::{ContractRoute, Instant, JobId, OperationId, ProcessorId, Span, System};
use hyoshi_sched::Plan;
use hyoshi_trace::{Input, Probe};

use coordination::Coordination;
use cpu::SimulatedCpu;
use locks::Locks;
use measured::MeasuredConditions;
use programs::{ProgramSettings, Programs};

pub use flapping::flapping;
pub use hyoshi_contract::FlappingRegion;
pub use links::{Journey, Journeys, LinkCounts};
pub use refute::refute;

/// The result of a simulation, in addition to the probes.
#[derive(Debug)]
pub struct Simulated<P> {
    /// For each processor, in their order.
    pub processors: Vec<SimulatedProcessor<P>>,
    /// Counts for each link; the last entry counts signals between processors without a link.
    pub links: Vec<LinkCounts>,
    /// How often the coordinator of each group of feedback loops has decided.
    pub groups: Vec<GroupSteps>,
    /// Moves of operations that the file does not permit, the latest of each saturated processor.
    pub proposals: Vec<ProposedMove>,
}

/// One processor after a simulation.
#[derive(Debug)]
pub struct SimulatedProcessor<P> {
    /// CPU time that jobs used.
    pub busy: Span,
    /// CPU time that scheduling used: [`hyoshi_model::Costs`], spent.
    pub overhead: Span,
    /// How often the hard cap has paused its lanes, and for how long in total.
    pub pauses: (u64, Span),
    /// Jobs lost when its host was switched off.
    pub lost_jobs: u64,
    /// Operations that are no longer critical, because critical overload lasted.
    pub relegated: Vec<OperationId>,
    /// Its probe.
    pub probe: P,
}

/// Simulates a system from its start until `until`.
///
/// `probe` creates the probe of each processor. No data of a job is kept after its end: memory does not grow with
/// simulated time. `keep_on` is called now and then with the present virtual time; false ends the simulation there.
///
/// # Panics
///
/// If the system has processors under EUCON or DEUCON, and this build lacks the feature `eucon`.
pub fn simulate<P: Probe>(
    system: &System,
    plan: &Plan,
    until: Instant,
    probe: impl FnMut(ProcessorId) -> P,
    keep_on: impl FnMut(Instant) -> bool,
) -> Simulated<P> {
    simulate_known(system, plan, until, None, None, probe, keep_on)
}

/// Known data of jobs: it replaces the values drawn from the file.
#[derive(Clone, Copy)]
pub struct KnownJobs<'a> {
    /// The execution time of a job, called once when it starts, with the drawn value.
    pub execution_time: &'a dyn Fn(JobId, Span) -> Span,
    /// How late periodic releases are, if not as drawn.
    pub late: Option<&'a Arc<BTreeMap<JobId, Span>>>,
    /// Ordinary threads use all time that lanes leave: jobs below the lanes get no CPU.
    pub crowded: bool,
    /// Inputs from outside, in the order of time: requests, rates, regions, cancellation, the late start of a
    /// processor.
    pub inputs: &'a [(Instant, ProcessorId, Input)],
    /// Whether requests arrive at the least interval of their operations, in addition to those in `inputs`.
    pub requests: bool,
    /// Whether feedback loops sample the simulation. Otherwise `inputs` has the samples, and the rates that loops of other
    /// processors set.
    pub samples: bool,
    /// Known fates of completions; unknown ones are drawn.
    pub links: Option<Journeys<'a>>,
    /// The hops that the completion of a job chose, as in [`Input::Choose`]; unknown ones are drawn.
    pub hops: Option<&'a dyn Fn(JobId) -> Option<u64>>,
}

/// Simulates as [`simulate`] does, with known data of jobs, and with programs of the system, if there are any.
pub fn simulate_known<'a, P: Probe>(
    system: &'a System,
    plan: &Plan,
    until: Instant,
    given: Option<KnownJobs<'a>>,
    mut programs: Option<&mut Programs<'_>>,
    mut probe: impl FnMut(ProcessorId) -> P,
    mut keep_on: impl FnMut(Instant) -> bool,
) -> Simulated<P> {
    let mut cpus: Vec<SimulatedCpu<'_, P>> =
        plan.processors.iter().map(|plan| SimulatedCpu::new(system, plan, given, probe(plan.processor))).collect();
    if programs.is_some() {
        cpus.iter_mut().for_each(SimulatedCpu::watch);
    }
    let mut coordination = Coordination::new(system, given.is_none_or(|given| given.samples));
    let mut conditions = MeasuredConditions::new(system, given.as_ref(), programs.is_some());
    let mut program_settings = ProgramSettings::new(system);
    let mut locks = Locks::new(system.resources.len());
    let mut sends = Vec::new();
    let routes = system.contract_routes();
    let mut end = until;
    let mut steps = 0u32;
    loop {
        let next = |cpus: &[SimulatedCpu<'_, P>]| cpus.iter().map(SimulatedCpu::next).min().unwrap_or(Instant::NEVER);
        let mut next_step = next(&cpus);
        let now = next_step.min(coordination.due()).min(conditions.due());
        if now > end {
            break;
        }
        // Before contracts are evaluated, as samples in known inputs.
        if conditions.due() <= now {
            if let Some(programs) = &mut programs
                && conditions.reads_programs()
            {
                play(&mut cpus, programs, now);
            }
            conditions.sample(&mut cpus, programs.as_deref(), now);
            next_step = next(&cpus);
        }
        if next_step <= now {
            step(&mut cpus, now, &mut locks, (&mut sends, &routes));
        }
        coordination.act(system, &mut cpus, now);
        if let Some(programs) = &mut programs
            && program_settings.changes(&mut cpus)
        {
            play(&mut cpus, programs, now);
            program_settings.apply(system, &cpus, programs);
        }
        steps = steps.wrapping_add(1);
        if let Some(programs) = &mut programs
            && steps.is_multiple_of(TOLD)
        {
            play(&mut cpus, programs, now);
        }
        if steps.is_multiple_of(1 << 16) && !keep_on(now) {
            end = now;
            break;
        }
    }
    if let Some(programs) = &mut programs {
        play(&mut cpus, programs, end);
    }
    let mut links = vec![LinkCounts::default(); system.links.len() + 1];
    let close = |mut cpu: SimulatedCpu<'_, P>| {
        cpu.stop_at(end);
        let overhead = cpu.spent();
        links.iter_mut().zip(cpu.links.close()).for_each(|(link, carried)| link.add(&carried));
        SimulatedProcessor {
            busy: cpu.busy,
            overhead,
            lost_jobs: cpu.dispatcher.lost_jobs(),
            pauses: cpu.dispatcher.hard_pauses(end),
            relegated: cpu.dispatcher.relegated().collect(),
            probe: cpu.dispatcher.into_probe(),
        }
    };
    let processors = cpus.into_iter().map(close).collect();
    Simulated { processors, links, groups: coordination.counts(), proposals: coordination.proposals() }
}

/// Steps after which programs get the use of lanes.
const TOLD: u32 = 1 << 10;

/// Simulates programs in the time that lanes left until `now`.
fn play<P: Probe>(cpus: &mut [SimulatedCpu<'_, P>], programs: &mut Programs<'_>, now: Instant) {
    for cpu in cpus {
        let processor = cpu.dispatcher.processor();
        cpu.take_busy(now, &mut |from, to| programs.taken(processor, from, to));
    }
    programs.play_until(now);
}

/// All events of one instant.
#[inline]
fn step<P: Probe>(
    cpus: &mut [SimulatedCpu<'_, P>],
    now: Instant,
    locks: &mut Locks,
    (sends, routes): (&mut Vec<(ProcessorId, hyoshi_trace::Signal)>, &[ContractRoute]),
) {
    if let [cpu] = cpus {
        cpu.completions(now, locks);
        while let Some((resource, _, slot)) = locks.take_granted() {
            cpu.granted(now, slot, resource);
        }
        cpu.tick(now, locks);
        while let Some((resource, _, slot)) = locks.take_granted() {
            cpu.granted(now, slot, resource);
        }
        cpu.dispatch(now, locks);
        return;
    }
    let mut touched = false;
    for cpu in cpus.iter_mut().filter(|cpu| cpu.next() <= now) {
        cpu.completions(now, locks);
        cpu.send(sends);
        cpu.due = true;
    }
    for (processor, signal) in sends.drain(..) {
        cpus[processor.index()].arrives(now, signal);
    }
    while let Some((resource, processor, slot)) = locks.take_granted() {
        cpus[processor.index()].granted(now, slot, resource);
        cpus[processor.index()].due = true;
    }
    for cpu in cpus.iter_mut() {
        if cpu.due || cpu.next() <= now {
            cpu.account(now);
            cpu.tick(now, locks);
            cpu.due = true;
            touched = true;
        }
    }
    // Of cancelled jobs.
    while let Some((resource, processor, slot)) = locks.take_granted() {
        cpus[processor.index()].account(now);
        cpus[processor.index()].granted(now, slot, resource);
        cpus[processor.index()].due = true;
    }
    for cpu in cpus.iter_mut().filter(|cpu| cpu.due) {
        cpu.dispatch(now, locks);
        cpu.due = false;
    }
    for from in 0..cpus.len() {
        retime(cpus, from, now);
        update_contracts(cpus, routes, from, now);
    }
    debug_assert!(touched, "an instant at which nothing happens");
}

/// Delivers the rates that the loop of a processor has set, after the longest delay of the link.
fn retime<P: Probe>(cpus: &mut [SimulatedCpu<'_, P>], from: usize, now: Instant) {
    for (to, operation, period) in cpus[from].take_retimed() {
        let at = now.saturating_add(cpus[from].delay_to(to));
        cpus[to.index()].pass(now, at, Input::Adapt { operation, period });
    }
}

/// Delivers values of contracts to other processors, after the longest delay of the link.
fn update_contracts<P: Probe>(cpus: &mut [SimulatedCpu<'_, P>], routes: &[ContractRoute], from: usize, now: Instant) {
    for (route, value) in cpus[from].take_contract_updates() {
        let to = routes[usize::from(route)].to;
        let at = now.saturating_add(cpus[from].delay_to(to));
        cpus[to.index()].pass(now, at, Input::ContractUpdate { route, value });
    }
}
