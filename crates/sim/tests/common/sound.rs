//! Compares the results of an analysis with simulations of the system.

use std::collections::BTreeMap;

use hyoshi_model::*;
use hyoshi_sched::analysis::{
    AnalysisMethod, CountedFrom, FailureReason, OperationReport, Requirement, Subject, counterexamples,
};
use hyoshi_sched::{AnalysisOptions, Bounds, Plan, Report, Strategies, analyse, analyse_with};
use hyoshi_sim::simulate;
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, Probe, TraceEvent};

/// How long each system is simulated, unless the test says otherwise.
const HORIZON: Span = Span::from_millis(360);

/// The number of comparisons, by method.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Entries with a bound or a proof, with observed jobs.
    pub bounds: u64,
    /// Of these, those with a worst observed response equal to the bound, to the nanosecond.
    pub exact: u64,
    /// Sum of the worst response over the bound, in thousandths.
    pub closeness: u64,
    /// Entries that are proved.
    pub proved: u64,
    /// Entries that fail, of which a behaviour was found that misses.
    pub failing: u64,
    /// Observed jobs.
    pub jobs: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.bounds += other.bounds;
        self.exact += other.exact;
        self.closeness += other.closeness;
        self.proved += other.proved;
        self.failing += other.failing;
        self.jobs += other.jobs;
    }
}

/// By kind of entry: a method, and in addition joins of several roots, and bounds from a triggered job's own release.
pub type Account = BTreeMap<Judged, Tally>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judged {
    By(AnalysisMethod),
    /// Also counted by their method.
    Joins,
    /// Also counted by their method.
    FromOwnRelease,
    /// Also counted by their method: with groups, a window, a timeout or a lifespan.
    Filters,
    /// Also counted by their method: chosen, or after the first of several copies.
    Dynamic,
    /// Also counted by their method: contracts limit or disable them, or operations before them.
    Limited,
    /// Also counted by their method: contracts change the order of rates on their processor.
    Reordered,
}

/// The kinds of an entry.
fn kinds(system: &System, entry: &OperationReport) -> Vec<Judged> {
    let operation = system.operation(entry.operation);
    let triggered = operation.trigger != Trigger::Periodic;
    let joins = joins(operation).then_some(Judged::Joins);
    let own = (triggered && entry.method == AnalysisMethod::Chain && entry.counted_from == CountedFrom::Release)
        .then_some(Judged::FromOwnRelease);
    let filters =
        matches!(operation.trigger, Trigger::Correlated(_)) || operation.timeout.or(operation.lifespan).is_some();
    let filters = filters.then_some(Judged::Filters);
    let dynamic = matches!(operation.trigger, Trigger::First(_) | Trigger::Chosen(_)).then_some(Judged::Dynamic);
    let contracts = !system.contracts.is_empty();
    let limited = (contracts && system.follow_contracts()[entry.operation.index()]).then_some(Judged::Limited);
    let any_order = entry.method == AnalysisMethod::AnyOrder;
    let reordered = any_order && contracts && system.processor(operation.on).overload.is_none();
    let reordered = reordered.then_some(Judged::Reordered);
    [Some(Judged::By(entry.method)), joins, own, filters, dynamic, limited, reordered].into_iter().flatten().collect()
}

/// True of a join of several roots.
fn joins(operation: &Operation) -> bool {
    let several = match &operation.trigger {
        Trigger::All(all) => all.len() > 1,
        Trigger::Correlated(correlation) => correlation.is_plain(),
        Trigger::Any(_) | Trigger::First(_) | Trigger::Chosen(_) | Trigger::Periodic => false,
    };
    several && operation.roots.len() > 1
}

/// The worst of an operation's jobs in one region.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    jobs: u64,
    /// From the nominal release.
    own: Span,
    /// From the origin's release.
    end_to_end: Span,
    missed: Option<JobEnd>,
}

/// Keeps only the worst values.
struct Watch {
    operations: usize,
    worst: Vec<Worst>,
}

impl Watch {
    fn of(system: &System) -> Watch {
        let operations = system.operations.len();
        Watch { operations, worst: vec![Worst::default(); operations * 2 * system.epochs.len()] }
    }

    fn place(&self, epoch: usize, operation: OperationId, critical: bool) -> usize {
        (epoch * self.operations + operation.index()) * 2 + usize::from(critical)
    }
}

impl Probe for Watch {
    fn event(&mut self, _: Instant, event: TraceEvent) {
        let TraceEvent::Decision(DispatchDecision::End(end)) = event else { return };
        let place = self.place(usize::from(end.epoch), end.job.operation, end.critical);
        let worst = &mut self.worst[place];
        worst.jobs += 1;
        if end.outcome != JobOutcome::Made {
            worst.missed = worst.missed.or(Some(end));
        }
        if end.outcome.finished() {
            worst.own = worst.own.max(end.end.since(end.release));
            worst.end_to_end = worst.end_to_end.max(end.end.since(end.origin));
        }
    }
}

fn watch(system: &System, until: Span) -> Watch {
    let plan = Plan::new(system, &Strategies::built_in()).expect("built-in strategies");
    let simulated = simulate(system, &plan, Instant::ZERO + until, |_| Watch::of(system), |_| true);
    let mut all = Watch::of(system);
    for processor in simulated.processors {
        for (sum, one) in all.worst.iter_mut().zip(processor.probe.worst) {
            sum.jobs += one.jobs;
            sum.own = sum.own.max(one.own);
            sum.end_to_end = sum.end_to_end.max(one.end_to_end);
            sum.missed = sum.missed.or(one.missed);
        }
    }
    all
}

/// Behaviours that the file allows, for verdicts that count any alignment of releases as possible; only predecessors of
/// joins of several roots keep their phases, on which their bounds rely.
fn behaviours(system: &System) -> Vec<System> {
    let with = |change: &dyn Fn(usize, &mut Setting)| {
        system.clone().with(|other| {
            for epoch in &mut other.epochs {
                let mut settings = epoch.settings.to_vec();
                settings.iter_mut().enumerate().for_each(|(index, setting)| change(index, setting));
                epoch.settings = settings.into();
            }
        })
    };
    let kept: Vec<OperationId> = system
        .operations
        .iter()
        .filter(|operation| joins(operation))
        .flat_map(|operation| operation.roots.iter().copied())
        .collect();
    let free = |index: usize| !kept.contains(&OperationId(index as u32));
    let periodic = |index: usize| system.operations[index].trigger == Trigger::Periodic;
    let mut all = vec![system.clone()];
    let shift =
        |index: usize, setting: &mut Setting, to: Span| setting.phase = if free(index) { to } else { setting.phase };
    all.push(with(&|index, setting| {
        shift(index, setting, Span::ZERO);
        setting.execution_time = ExecutionTime::Fixed(setting.wcet);
    }));
    // One job begins just before all others are released: the longest one, or one by the seed.
    let settings = &system.epochs[0].settings;
    let longest = (0..settings.len()).max_by_key(|index| settings[*index].wcet).unwrap_or(0);
    for before in [longest, system.seed as usize % settings.len().max(1)] {
        all.push(with(&|index, setting| {
            shift(index, setting, Span::from_nanos(u64::from(periodic(index) && index != before)));
            setting.execution_time = ExecutionTime::Fixed(setting.wcet);
        }));
    }
    all.push(with(&|index, setting| {
        let odd = (system.seed.wrapping_mul(0x9e37_79b9).wrapping_add(index as u64 * 7_919)) % 1_000;
        let phase = Span::from_nanos(setting.period.as_nanos() / 1_000 * odd);
        shift(index, setting, if periodic(index) { phase } else { Span::ZERO });
        setting.execution_time = ExecutionTime::Uniform(setting.bcet, setting.wcet);
    }));
    all
}

/// All results of the report for an operation's jobs of one region: in it, and in its changes.
struct RegionResult<'a> {
    /// The loosest bound, if all have one.
    bound: Option<u64>,
    proved: bool,
    entry: &'a OperationReport,
}

fn results(report: &Report, last: usize) -> Vec<(usize, RegionResult<'_>)> {
    let mut results: Vec<(usize, RegionResult<'_>)> = Vec::new();
    for epoch in 0..=last {
        for (_, _, entry) in report.operations().filter(|(scene, ..)| !scene.change && scene.epoch == epoch) {
            let alike =
                |other: &&OperationReport| other.operation == entry.operation && other.critical == entry.critical;
            // A job of this region may meet jobs of the region before, and may still run in the next one.
            let around = report
                .operations()
                .filter(|(scene, ..)| scene.epoch == epoch || (scene.change && scene.epoch + 1 == epoch));
            let around: Vec<_> = around.map(|(.., other)| other).filter(alike).collect();
            let bound = around.iter().map(|other| other.bound_ns).collect::<Option<Vec<_>>>();
            let proved = around.iter().all(|other| other.verdict.is_proved());
            results.push((epoch, RegionResult { bound: bound.and_then(|all| all.into_iter().max()), proved, entry }));
        }
    }
    results
}

/// The errors in the results of `check` for a system, if any, and the comparisons.
pub fn check(system: &System, account: &mut Account) -> Result<(), String> {
    check_until(system, HORIZON, account)
}

/// The same, in simulations of this length.
pub fn check_until(system: &System, until: Span, account: &mut Account) -> Result<(), String> {
    let plan = Plan::new(system, &Strategies::built_in()).expect("built-in strategies");
    let report = analyse(system, &plan);
    // If there is time, bounds decide; verdicts without them have to hold, too.
    let verdicts = analyse_with(system, &plan, AnalysisOptions { bounds: Bounds::None, progress: &|_| true });
    let last = system.epochs.len() - 1;
    let results: Vec<(usize, RegionResult<'_>)> =
        [&report, &verdicts].into_iter().flat_map(|one| results(one, last)).collect();
    let behaviours = behaviours(system);
    let seen: Vec<Watch> = behaviours.iter().map(|behaviour| watch(behaviour, until)).collect();
    for (epoch, result) in &results {
        let mut tally = Tally::default();
        let mut worst = Span::ZERO;
        let mut jobs = 0;
        for (which, seen) in seen.iter().enumerate() {
            let one = seen.worst[seen.place(*epoch, result.entry.operation, result.entry.critical)];
            let response = match system.setting(*epoch, result.entry.operation).deadline {
                Deadline::Own(_) => one.own,
                Deadline::Origin(_) => one.end_to_end,
            };
            jobs += one.jobs;
            worst = worst.max(response);
            if result.bound.is_some_and(|bound| response.as_nanos() > bound) {
                return Err(format!("behaviour {which}: a job took {response} in region {epoch}\n{:#?}", result.entry));
            }
            if let (true, Some(missed)) = (result.proved, one.missed) {
                return Err(format!("behaviour {which}: {missed:#?}\n{:#?}", result.entry));
            }
        }
        tally.jobs += jobs;
        tally.proved += u64::from(result.proved);
        if let (Some(bound), true) = (result.bound, jobs > 0) {
            tally.bounds += 1;
            tally.exact += u64::from(worst.as_nanos() == bound);
            tally.closeness += worst.as_nanos() * 1000 / bound.max(1);
        }
        kinds(system, result.entry).into_iter().for_each(|kind| account.entry(kind).or_default().add(&tally));
    }
    if last == 0 {
        for chain in report.scenes.iter().flat_map(|scene| &scene.chains) {
            let ends = system.chains[chain.chain.index()].path[..]
                .split_first()
                .zip(system.chains[chain.chain.index()].path.last());
            let Some(((first, _), end)) = ends else { continue };
            if chain.requirement != Requirement::Deadline || system.operation(*end).roots != [*first] {
                continue;
            }
            let tally = account.entry(Judged::By(chain.method)).or_default();
            let took =
                |seen: &Watch| [false, true].map(|critical| seen.worst[seen.place(0, *end, critical)].end_to_end);
            let worst = seen.iter().flat_map(took).max().unwrap_or_default();
            if let Some(bound) = chain.bound_ns {
                if worst.as_nanos() > bound {
                    return Err(format!("a chain took {worst}\n{chain:#?}"));
                }
                tally.bounds += 1;
                tally.exact += u64::from(worst.as_nanos() == bound);
                tally.closeness += worst.as_nanos() * 1000 / bound.max(1);
            }
        }
    }
    failing(system, &report, account)
}

/// A failure is confirmed: its counterexample misses.
fn failing(system: &System, report: &Report, account: &mut Account) -> Result<(), String> {
    for mut example in counterexamples(system, report) {
        // Chains are tested in `counterexamples.rs`.
        let subjects: Vec<(OperationId, Vec<bool>)> = match &example.subject {
            Subject::Operation { operation, critical, .. } => vec![(*operation, vec![*critical])],
            Subject::Processor { critical, operations, .. } => {
                let kinds = if *critical { vec![true] } else { vec![true, false] };
                operations.iter().map(|id| (*id, kinds.clone())).collect()
            }
            Subject::Chain { .. } => continue,
        };
        let mut tries = 0;
        loop {
            let seen = watch(&example.system, example.system.duration);
            let misses = |id: OperationId, critical: &bool| seen.worst[seen.place(0, id, *critical)].missed.is_some();
            if subjects.iter().any(|(id, kinds)| kinds.iter().any(|critical| misses(*id, critical))) {
                break;
            }
            tries += 1;
            if tries >= 12 || !example.lengthen() {
                let (name, why) = (example.subject.name(), &example.why);
                return Err(format!("{name} is said to fail, and its counterexample misses nothing: {why}"));
            }
        }
        let method = match example.why {
            FailureReason::FirstJobLate { .. } | FailureReason::Demand { .. } => AnalysisMethod::CommonRelease,
            _ => AnalysisMethod::Necessity,
        };
        account.entry(Judged::By(method)).or_default().failing += 1;
    }
    Ok(())
}

/// The smallest system with the same error, found by removing parts.
pub fn smallest(system: &System) -> System {
    let wrong = |system: &System| {
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(system, &mut Account::new())));
        !matches!(judged, Ok(Ok(())))
    };
    let mut least = system.clone();
    loop {
        let smaller = lesser(&least).into_iter().find(|candidate| *candidate != least && wrong(candidate));
        match smaller {
            Some(smaller) => least = smaller,
            None => return least,
        }
    }
}

/// Systems with one part less.
fn lesser(system: &System) -> Vec<System> {
    let mut all: Vec<System> = (0..system.operations.len()).rev().filter_map(|index| without(system, index)).collect();
    all.extend(super::limited::lesser(system));
    let mut with = |change: &dyn Fn(&mut Contents)| all.push(system.clone().with(change));
    with(&|system| system.epochs.truncate(1));
    with(&|system| system.chains.clear());
    with(&|system| system.links.clear());
    for index in 0..system.processors.len() {
        with(&|system| system.processors[index].costs = Costs::NONE);
        for (name, _) in Costs::NONE.named() {
            with(&|system| zero(&mut system.processors[index].costs, name));
        }
        with(&|system| system.processors[index].cap_ppm = 1_000_000);
        with(&|system| system.processors[index].hard_cap = HardCap::OFF);
        with(&|system| system.processors[index].cancel = false);
        with(&|system| system.processors[index].overload = None);
    }
    for index in 0..system.operations.len() {
        with(&|system| system.operations[index].uses.clear());
        with(&|system| system.operations[index].critical = false);
        with(&|system| system.operations[index].guard = Guard::Off);
        with(&|system| system.operations[index].on_busy = OnBusy::Queue);
        with(&|system| system.operations[index].on_miss = OnMiss::Continue);
        with(&|system| system.operations[index].queue.limit = 8);
        with(&|system| system.operations[index].importance = 0);
        with(&|system| system.operations[index].timeout = None);
        with(&|system| system.operations[index].lifespan = None);
        with(&|system| {
            if let Trigger::Chosen(chosen) = &mut system.operations[index].trigger {
                chosen.probability_ppm = 1_000_000;
            }
        });
        with(&|system| {
            if let Trigger::Correlated(correlation) = &mut system.operations[index].trigger {
                correlation.within = Some(Span::ZERO);
            }
        });
        let mut set = |change: &dyn Fn(&mut Setting)| {
            with(&|system| {
                for epoch in &mut system.epochs {
                    let mut settings = epoch.settings.to_vec();
                    change(&mut settings[index]);
                    epoch.settings = settings.into();
                }
            });
        };
        set(&|setting| setting.jitter = Span::ZERO);
        set(&|setting| setting.offset = Span::ZERO);
        set(&|setting| setting.phase = Span::ZERO);
        set(&|setting| (setting.execution_time, setting.bcet) = (ExecutionTime::Fixed(setting.wcet), setting.wcet));
        set(&|setting| (setting.legs, setting.critical_legs) = (1, setting.critical_legs.min(1)));
    }
    all
}

fn zero(costs: &mut Costs, name: &str) {
    let cost = match name {
        "timer" => &mut costs.timer,
        "enqueue" => &mut costs.enqueue,
        "dequeue" => &mut costs.dequeue,
        "cancel" => &mut costs.cancel,
        "switch" => &mut costs.switch,
        _ => &mut costs.watchdog,
    };
    *cost = Span::ZERO;
}

/// The system without one of its operations that triggers no other.
fn without(system: &System, index: usize) -> Option<System> {
    let id = OperationId(index as u32);
    let needed =
        |operation: &Operation| operation.trigger.predecessors().contains(&id) || operation.reads.contains(&id);
    if system.operations.len() < 2 || system.operations.iter().any(needed) {
        return None;
    }
    let mut less = system.clone().into_contents();
    if !super::limited::forget(&mut less, id) {
        return None;
    }
    less.operations.remove(index);
    less.chains.retain(|chain| !chain.path.contains(&id));
    let moved = |of: &mut OperationId| of.0 -= u32::from(of.0 > id.0);
    for operation in &mut less.operations {
        match &mut operation.trigger {
            Trigger::Periodic => {}
            Trigger::All(from) | Trigger::Any(from) | Trigger::First(from) => from.iter_mut().for_each(moved),
            Trigger::Chosen(chosen) => chosen.predecessors.iter_mut().for_each(moved),
            Trigger::Correlated(correlation) => correlation.predecessors.iter_mut().for_each(moved),
        }
        operation.roots.iter_mut().for_each(moved);
    }
    less.chains.iter_mut().for_each(|chain| chain.path.iter_mut().for_each(moved));
    for epoch in &mut less.epochs {
        let mut settings = epoch.settings.to_vec();
        settings.remove(index);
        epoch.settings = settings.into();
    }
    Some(System::new(less))
}
