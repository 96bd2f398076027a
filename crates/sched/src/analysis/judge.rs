//! From what the analyses found to verdicts: of operations, of processors, of the system.

use alloc::{string::String, vec, vec::Vec};

use hyoshi_model::{Deadline, OnBusy, Preemption, Span, System};

use super::cap;
use super::failing;
use super::holistic::{Agreement, finish_of};
use super::method::{Assumption, Method, MethodNote};
use super::processor::{Found, Part, Response, Site};
use super::release::Release;
use super::report::{
    Counted, Load, OperationReport, Outcome, ProcessorReport, Report, SceneReport, UtilisationBound, slack,
};
use super::utilisation::{self, Inapplicable, Share};
use super::verdict::{Failure, Missing, Verdict};
use super::workload::{Scene, Source, Work};
use crate::strategy::Discipline;

/// The verdict on one processor.
pub(super) fn processor(scene: Scene, site: &Site<'_>, agreement: &Agreement) -> ProcessorReport {
    let found = &agreement.found[site.plan.processor.index()];
    let mut operations: Vec<OperationReport> =
        found.iter().map(|found| operation(scene, site, agreement, found)).collect();
    let shares = |critical_only: bool| -> Vec<Share> {
        let parts = site.parts.iter().filter(|part| part.critical || !critical_only);
        let share = |part: &Part| Share { cost: part.cost(), period: site.works[part.operation.index()].period };
        parts.map(share).collect()
    };
    let (all, critical) = (shares(false), shares(true));
    let load = utilisation::load(&all);
    let utilisation_ppm = utilisation::ppm(utilisation::sum(all.iter().copied()));
    let (verdict, first) = whole(scene, site, found, &operations, load, utilisation_ppm);
    operations.sort_by_key(|report| report.operation);
    let inapplicable = inapplicable(site, agreement);
    let bound = |test: fn(&[Share]) -> UtilisationBound| match inapplicable {
        Some(why) => UtilisationBound::No { why },
        None => test(&all),
    };
    let named = site.system.processor(site.plan.processor);
    ProcessorReport {
        processor: site.plan.processor,
        name: named.name.clone(),
        strategy: site.plan.strategy.clone(),
        utilisation_ppm,
        critical_utilisation_ppm: utilisation::ppm(utilisation::sum(critical.iter().copied())),
        load,
        liu_layland: bound(utilisation::liu_layland),
        hyperbolic: bound(utilisation::hyperbolic),
        verdict,
        first,
        assumptions: assumptions(site, agreement),
        operations,
    }
}

fn operation(scene: Scene, site: &Site<'_>, agreement: &Agreement, found: &Found) -> OperationReport {
    let part = found.part;
    let work = &site.works[part.operation.index()];
    let release = &agreement.releases[part.operation.index()];
    let deadline_ns = work.deadline.span().as_nanos();
    // Counted from where the deadline counts from.
    let bound_ns = match (&found.response, work.deadline) {
        (Response::Bound(bound), Deadline::Own(_)) => bound.checked_add(work.jitter),
        (Response::Bound(bound), Deadline::Origin(_)) => {
            release.counted.and_then(|counted| counted.checked_add(*bound))
        }
        _ => None,
    };
    let (mut verdict, mut method) = (met(site, agreement, found, bound_ns, deadline_ns), found.method);
    if !verdict.is_proved() && matches!(scene, Scene::Epoch(_)) {
        let failure = match failing::too_long(work, release.least, &part) {
            Some(why) => Some((why, Method::Necessity)),
            None => failing::first_job_late(scene, site, agreement, &part).map(|why| (why, Method::CommonRelease)),
        };
        match failure {
            Some((why, by)) if failing::stays(site, &part) => (verdict, method) = (Verdict::Fails { why }, by),
            Some((_, by)) => (verdict, method) = (Verdict::unknown(Missing::Cancelled), by),
            None => {}
        }
    }
    OperationReport {
        operation: part.operation,
        name: site.system.operation(part.operation).name.clone(),
        critical: part.critical,
        legs: part.legs,
        level: part.level,
        wcet_ns: part.leg,
        period_ns: work.period,
        deadline_ns,
        bound_ns,
        slack_ns: bound_ns.map(|bound| slack(deadline_ns, bound)),
        verdict,
        method,
    }
}

/// Whether the deadline is met, and no job is dropped before it could be.
fn met(site: &Site<'_>, agreement: &Agreement, found: &Found, bound_ns: Option<u64>, deadline_ns: u64) -> Verdict {
    let work = &site.works[found.part.operation.index()];
    match &found.response {
        Response::Unknown(missing) => return Verdict::unknown(missing.clone()),
        Response::Demand(too_much) => {
            let window = Span::from_nanos(u64::try_from(too_much.window).unwrap_or(u64::MAX));
            return Verdict::unknown(Missing::DemandExceedsWindow { window });
        }
        Response::Bound(_) if bound_ns.is_none() => return unbounded_predecessor(site, work),
        Response::Bound(_) if bound_ns.is_some_and(|bound| bound > deadline_ns) => {
            return Verdict::unknown(Missing::BoundExceedsDeadline);
        }
        Response::Bound(_) | Response::InTime => {}
    }
    let release = &agreement.releases[work.operation.index()];
    if finish_of(work, release, found).is_none() {
        return unbounded_predecessor(site, work);
    }
    // What piles up of an operation's other legs can drop the first ones, too.
    match agreement.finish[work.operation.index()] {
        Some(finish) if !drops(site.system, work, release, finish) => Verdict::Proved,
        _ => Verdict::unknown(Missing::Dropped),
    }
}

fn unbounded_predecessor(site: &Site<'_>, work: &Work) -> Verdict {
    let name = match &work.source {
        Source::After { predecessors, .. } => {
            predecessors.first().map(|hop| site.system.operations[hop.from].name.clone())
        }
        _ => None,
    };
    Verdict::unknown(Missing::Predecessor { name: name.unwrap_or_default() })
}

/// True if a release may find its predecessor unfinished where that drops it, or the queue full.
/// Origins are a period apart, so ceil((finish - least) / period) releases at most are unfinished at
/// once, the new one among them; of a load chain each of them has one leg that waits or runs.
fn drops(system: &System, work: &Work, release: &Release, finish: u64) -> bool {
    let operation = system.operation(work.operation);
    // A triggered job is there from its trigger on, while it waits for its offset.
    let offset = if matches!(work.source, Source::After { .. }) { work.offset } else { 0 };
    let arrival = release.least.saturating_sub(offset);
    let at_once = finish.saturating_sub(arrival).div_ceil(work.period);
    let room = if operation.on_busy == OnBusy::Skip { 1 } else { u64::from(operation.queue.limit) };
    // A join passes over numbers that one of its predecessors seems to have lost.
    let passed_over = release.reordered && operation.trigger.predecessors().len() > 1;
    at_once > room || passed_over
}

/// For each operation whether every one of its releases leads to a completion: none is dropped or
/// cancelled on the way to it.
pub(super) fn delivers(
    system: &System,
    works: &[Work],
    agreement: &Agreement,
    processors: &[ProcessorReport],
) -> Vec<bool> {
    let mut delivers = vec![true; works.len()];
    for (index, work) in works.iter().enumerate() {
        let finish = agreement.finish[index];
        delivers[index] = finish.is_some_and(|finish| !drops(system, work, &agreement.releases[index], finish));
    }
    for report in processors {
        let cancels = system.processor(report.processor).cancel;
        for one in report.operations.iter().filter(|one| cancels && !one.critical && !one.verdict.is_proved()) {
            delivers[one.operation.index()] = false;
        }
    }
    // What any predecessor fails to deliver is missing downstream; triggers make no cycles, so this ends.
    loop {
        let starves = |index: &usize| match &works[*index].source {
            Source::After { predecessors, .. } => {
                delivers[*index] && predecessors.iter().any(|hop| !delivers[hop.from])
            }
            _ => false,
        };
        let starved: Vec<usize> = (0..works.len()).filter(starves).collect();
        if starved.is_empty() {
            return delivers;
        }
        for index in starved {
            delivers[index] = false;
        }
    }
}

/// The verdict on all operations of a processor together, and the first that is to blame.
fn whole(
    scene: Scene,
    site: &Site<'_>,
    found: &[Found],
    operations: &[OperationReport],
    load: Load,
    utilisation_ppm: u64,
) -> (Verdict, Option<String>) {
    let failing = operations.iter().find(|one| one.verdict.fails());
    let unproved = operations.iter().find(|one| !one.verdict.is_proved());
    let first = failing.or(unproved).map(|one| one.name.clone());
    let lasting = matches!(scene, Scene::Epoch(_));
    let verdict = match (failing, unproved) {
        _ if load == Load::Above && lasting => Verdict::Fails { why: Failure::Overload { utilisation_ppm } },
        (Some(one), _) => Verdict::Fails { why: Failure::Operation { name: one.name.clone() } },
        (None, Some(one)) => match failing::demand_fails(scene, site, found) {
            Some(why) => Verdict::Fails { why },
            None => Verdict::unknown(Missing::Operation { name: one.name.clone() }),
        },
        (None, None) => Verdict::Proved,
    };
    (verdict, first)
}

/// Why the utilisation bounds of rate monotonic scheduling say nothing here.
fn inapplicable(site: &Site<'_>, agreement: &Agreement) -> Option<Inapplicable> {
    let work = |part: &Part| &site.works[part.operation.index()];
    let by_rate = site.parts.windows(2).all(|pair| {
        let (one, next) = (work(&pair[0]).period, work(&pair[1]).period);
        if pair[0].level == pair[1].level { one == next } else { one < next }
    });
    let fifo = |part: &Part| {
        site.plan.levels.get(usize::from(part.level)).is_some_and(|level| level.discipline == Discipline::Fifo)
    };
    let any = |test: &dyn Fn(&Part) -> bool| site.parts.iter().any(test);
    match () {
        () if site.parts.is_empty() => Some(Inapplicable::Idle),
        () if site.plan.preemption == Preemption::None => Some(Inapplicable::NonPreemptive),
        () if !by_rate || !site.parts.iter().all(fifo) => Some(Inapplicable::NotRateMonotonic),
        () if any(&|part| !matches!(work(part).source, Source::Periodic) || work(part).jitter > 0) => {
            Some(Inapplicable::NotPeriodic)
        }
        () if any(&|part| work(part).deadline.span().as_nanos() < work(part).period) => {
            Some(Inapplicable::ConstrainedDeadline)
        }
        () if any(&|part| !site.system.operation(part.operation).uses.is_empty()) => Some(Inapplicable::Resources),
        () if cap::may_act(site, &agreement.releases) => Some(Inapplicable::Cap),
        () => None,
    }
}

fn assumptions(site: &Site<'_>, agreement: &Agreement) -> Vec<Assumption> {
    let works = || site.parts.iter().map(|part| &site.works[part.operation.index()]);
    let phase = |work: &Work| {
        let setting = site.system.setting(0, work.operation);
        (setting.phase, setting.offset)
    };
    let processor = site.system.processor(site.plan.processor);
    let uses = |work: &Work| !site.system.operation(work.operation).uses.is_empty();
    let capped = processor.cap_ppm < 1_000_000;
    let held = [
        (Assumption::WorstCases, true),
        (Assumption::NoOverheads, true),
        (Assumption::Phases, works().any(|work| Some(phase(work)) != works().next().map(phase))),
        (Assumption::FastestRates, works().any(|work| work.slowest > work.period)),
        (Assumption::Cancellation, processor.cancel && site.parts.iter().any(|part| !part.critical)),
        (Assumption::BestCases, works().any(|work| matches!(work.source, Source::After { .. }))),
        (Assumption::Sections, works().any(uses)),
        (Assumption::CapNeverActs, capped && !cap::may_act(site, &agreement.releases)),
        (Assumption::NoThrottling, capped),
    ];
    held.into_iter().filter(|(_, holds)| *holds).map(|(assumption, _)| assumption).collect()
}

/// The report on the whole system.
pub(super) fn report(system: &System, scenes: Vec<SceneReport>) -> Report {
    let critical =
        scenes.iter().flat_map(|scene| &scene.processors).flat_map(|one| &one.operations).any(|one| one.critical);
    let counted = if critical || !system.chains.is_empty() { Counted::CriticalAndChains } else { Counted::Everything };
    let counts = |one: &&OperationReport| one.critical || counted == Counted::Everything;
    let (mut all_proved, mut one_fails) = (true, false);
    let mut methods: Vec<Method> = Vec::new();
    for scene in &scenes {
        for processor in &scene.processors {
            for one in processor.operations.iter().filter(counts) {
                all_proved &= one.verdict.is_proved();
                one_fails |= one.verdict.fails();
            }
            // Whichever operation it is that fails, it counts.
            let all_count = processor.operations.iter().all(|one| counts(&one));
            one_fails |= all_count && processor.verdict.fails();
            all_proved &= !(all_count && processor.verdict.fails());
            methods.extend(processor.operations.iter().map(|one| one.method));
        }
        for chain in &scene.chains {
            all_proved &= chain.verdict.is_proved();
            one_fails |= chain.verdict.fails();
            methods.push(chain.method);
        }
        if scene.change {
            methods.push(Method::Envelope);
        }
    }
    methods.sort_unstable();
    methods.dedup();
    Report {
        system: system.name.clone(),
        outcome: match (one_fails, all_proved) {
            (true, _) => Outcome::DoesNotHold,
            // Nothing was proved of nothing.
            (false, true) if !system.operations.is_empty() => Outcome::Holds,
            (false, _) => Outcome::Unknown,
        },
        counted,
        scenes,
        methods: methods
            .into_iter()
            .filter(|method| *method != Method::None)
            .map(Method::note)
            .collect::<Vec<MethodNote>>(),
    }
}
