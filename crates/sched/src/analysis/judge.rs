//! Verdicts from the results of the analyses: on operations, on processors, on the system.

use alloc::{string::String, vec, vec::Vec};

use hyoshi_model::{Deadline, OnMiss, OperationId, Preemption, Span, System};

use super::cap;
use super::failures::{self, CertainJobs};
use super::hard_cap;
use super::holistic::Agreement;
use super::method::{AnalysisMethod, Assumption, MethodNote};
use super::miss_free;
use super::part::{OperationPart, PartResult, ResponseBound, counted, finish_of};
use super::processor_scene::ProcessorScene;
use super::release::dropping;
use super::report::{CountedFrom, OperationReport, Outcome, OutcomeScope, ProcessorReport, Report, SceneReport, slack};
use super::utilisation::{self, Inapplicable, Load, PeriodicDemand, UtilisationBound};
use super::verdict::{FailureReason, Missing, Verdict};
use super::work::{Adaptation, ReleaseSource, Scene, Work};
use crate::strategy::Discipline;

/// The verdict on one processor.
pub(super) fn processor(
    scene: Scene,
    site: &ProcessorScene<'_>,
    agreement: &Agreement,
    coming: &CertainJobs,
) -> ProcessorReport {
    let found = &agreement.found[site.plan.processor.index()];
    let mut operations: Vec<OperationReport> =
        found.iter().map(|found| operation(scene, site, agreement, coming, found)).collect();
    let shares = |which: &dyn Fn(&&OperationPart) -> bool| -> Vec<PeriodicDemand> {
        let each = |part: &OperationPart| {
            let (cost, streams) = (part.cost(), &site.works[part.operation.index()].streams);
            streams.iter().map(move |period| PeriodicDemand { cost, period: *period })
        };
        site.parts.iter().filter(which).flat_map(each).collect()
    };
    let (all, critical) = (shares(&|_| true), shares(&|part| part.critical));
    let load = utilisation::load(&all);
    let utilisation_ppm = utilisation::ppm(utilisation::sum(all.iter().copied()));
    // A failure needs a job that is certain to arrive, not one that a trigger may never release.
    let overload = |critical: bool| {
        let comes = if critical { &coming.each_critical } else { &coming.each };
        let sure = shares(&|part| comes[part.operation.index()] && (part.critical || !critical));
        let above = utilisation::load(&sure) == Load::Above;
        let utilisation_ppm = utilisation::ppm(utilisation::sum(sure.into_iter()));
        above.then_some(FailureReason::Overload { utilisation_ppm, critical })
    };
    let overload = overload(true).or_else(|| overload(false));
    let (verdict, first) = whole(scene, site, found, &operations, overload);
    operations.sort_by_key(|report| report.operation);
    // Not needed for verdicts alone.
    let unread = site.effort.is_for_verdicts().then_some(Inapplicable::Idle);
    let inapplicable = unread.or_else(|| inapplicable(site, agreement));
    let bound = |test: fn(&[PeriodicDemand]) -> UtilisationBound| match inapplicable {
        Some(why) => UtilisationBound::No { why },
        None => test(&all),
    };
    let miss_free_ppm = if site.effort.is_for_verdicts() { Err(Inapplicable::Idle) } else { miss_free::bound(site) };
    let named = site.system.processor(site.plan.processor);
    ProcessorReport {
        processor: site.plan.processor,
        name: named.name.clone(),
        strategy: site.plan.strategy.clone(),
        overload: site.plan.overload.as_ref().map(|second| second.strategy.clone()),
        utilisation_ppm,
        critical_utilisation_ppm: utilisation::ppm(utilisation::sum(critical.iter().copied())),
        load,
        liu_layland: bound(utilisation::liu_layland),
        hyperbolic: bound(utilisation::hyperbolic),
        miss_free_ppm,
        verdict,
        first,
        assumptions: assumptions(site, agreement),
        operations,
    }
}

fn operation(
    scene: Scene,
    site: &ProcessorScene<'_>,
    agreement: &Agreement,
    coming: &CertainJobs,
    found: &PartResult,
) -> OperationReport {
    let part = found.part;
    let work = &site.works[part.operation.index()];
    let release = &agreement.releases[part.operation.index()];
    let deadline_ns = work.deadline.span().as_nanos();
    let bound_ns = counted(work, release, found);
    let (mut verdict, mut method) = (met(site, agreement, found, bound_ns, deadline_ns), found.method);
    // The analysis is that of the highest rates. At lower ones an operation that a loop adapts may have a lower priority,
    // and a later deadline permits a later end.
    let bound_ns = bound_ns.filter(|_| work.adaptation != Adaptation::Loop && work.later == 0);
    if !verdict.is_proved() && matches!(scene, Scene::Epoch(_)) {
        let failure = match failures::too_long(work, agreement.earliest[part.operation.index()], &part) {
            Some(why) => Some((why, AnalysisMethod::Necessity)),
            None => {
                failures::first_job_late(scene, site, agreement, &part).map(|why| (why, AnalysisMethod::CommonRelease))
            }
        };
        match failure {
            Some((why, by)) if failures::stays(site, &part) && coming.once[part.operation.index()] => {
                (verdict, method) = (Verdict::Fails { why }, by)
            }
            Some((_, by)) => (verdict, method) = (Verdict::unknown(Missing::Cancelled), by),
            None => {}
        }
    }
    if work.adaptation == Adaptation::Loop || verdict.fails() && site.has_loop() {
        verdict = Verdict::unknown(match &work.source {
            ReleaseSource::Unclear(missing @ (Missing::Clients { .. } | Missing::Moves { .. })) => missing.clone(),
            _ if site.has(Adaptation::Loop) => Missing::Rates,
            _ if site.has(Adaptation::Limited) => Missing::HighestRates,
            _ => Missing::Levels,
        });
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
        counted_from: match work.deadline {
            Deadline::Own(_) => CountedFrom::Release,
            Deadline::Origin(_) => CountedFrom::Root,
        },
        bound_ns,
        slack_ns: bound_ns.map(|bound| slack(deadline_ns, bound)),
        verdict,
        method,
        alone: Vec::new(),
    }
}

/// Whether the deadline is met, and no job is dropped before.
fn met(
    site: &ProcessorScene<'_>,
    agreement: &Agreement,
    found: &PartResult,
    bound_ns: Option<u64>,
    deadline_ns: u64,
) -> Verdict {
    let work = &site.works[found.part.operation.index()];
    match &found.response {
        ResponseBound::Unknown(missing) => return Verdict::unknown(missing.clone()),
        ResponseBound::Tested(bound) if *bound > deadline_ns => return Verdict::unknown(Missing::BoundExceedsDeadline),
        ResponseBound::Tested(_) => return Verdict::unknown(Missing::TestedOnly),
        ResponseBound::Demand(too_much) | ResponseBound::Counted { too_much: Some(too_much), .. }
            if bound_ns.is_none_or(|bound| bound > deadline_ns) =>
        {
            let window = Span::from_nanos(u64::try_from(too_much.window).unwrap_or(u64::MAX));
            return Verdict::unknown(Missing::DemandExceedsWindow { window });
        }
        ResponseBound::Bound(_) if bound_ns.is_none() => return unbounded_predecessor(site, work),
        ResponseBound::Bound(_) | ResponseBound::Counted { .. }
            if bound_ns.is_some_and(|bound| bound > deadline_ns) =>
        {
            return Verdict::unknown(Missing::BoundExceedsDeadline);
        }
        ResponseBound::Bound(_) | ResponseBound::Counted { .. } | ResponseBound::InTime | ResponseBound::Demand(_) => {}
    }
    let release = &agreement.releases[work.operation.index()];
    if finish_of(work, release, found).is_none() {
        return unbounded_predecessor(site, work);
    }
    // Jobs of an operation's other legs that pile up can drop the first ones, too.
    match agreement.finish[work.operation.index()] {
        Some(finish) => dropping(site.system, work, release, finish).map_or(Verdict::Proved, Verdict::unknown),
        None => {
            let name = site.system.operation(work.operation).name.clone();
            Verdict::unknown(Missing::Unbounded { name })
        }
    }
}

fn unbounded_predecessor(site: &ProcessorScene<'_>, work: &Work) -> Verdict {
    let name = work.source.predecessors().first().map(|hop| site.system.operations[hop.from].name.clone());
    Verdict::unknown(Missing::Predecessor { name: name.unwrap_or_default() })
}

/// For each operation the reason why some releases lead to no completion, if there is one: they may be dropped,
/// cancelled or stopped before.
pub(super) fn lost(
    system: &System,
    works: &[Work],
    agreement: &Agreement,
    processors: &[ProcessorReport],
) -> Vec<Option<Missing>> {
    let name = |index: usize| system.operations[index].name.clone();
    let lost = |(index, work): (usize, &Work)| match agreement.finish[index] {
        Some(finish) => dropping(system, work, &agreement.releases[index], finish),
        None => Some(Missing::Unbounded { name: name(index) }),
    };
    let mut lost: Vec<Option<Missing>> = works.iter().enumerate().map(lost).collect();
    for report in processors {
        let cancels = system.processor(report.processor).cancel;
        for one in report.operations.iter().filter(|one| !one.verdict.is_proved()) {
            let index = one.operation.index();
            if cancels && !one.critical {
                lost[index].get_or_insert(Missing::CancelledBefore { name: name(index) });
            } else if system.operation(one.operation).on_miss != OnMiss::Continue {
                lost[index].get_or_insert(Missing::LateBefore { name: name(index) });
            }
        }
    }
    // Completions that a predecessor does not deliver are missing downstream; triggers have no cycles, so this ends.
    loop {
        let starved = |index: usize| {
            let mut before = works[index].source.predecessors().iter();
            // One copy is sufficient.
            if works[index].first && before.clone().any(|hop| lost[hop.from].is_none()) {
                return None;
            }
            let missing = before.find_map(|hop| lost[hop.from].clone())?;
            lost[index].is_none().then_some((index, missing))
        };
        let starved: Vec<(usize, Missing)> = (0..works.len()).filter_map(starved).collect();
        if starved.is_empty() {
            return lost;
        }
        for (index, missing) in starved {
            lost[index] = Some(missing);
        }
    }
}

/// For each operation whether some releases of its root may not release it, because a body does not choose it or an
/// operation before it.
pub(super) fn chosen(works: &[Work], order: &[OperationId]) -> Vec<bool> {
    let mut chosen = vec![false; works.len()];
    for id in order {
        let work = &works[id.index()];
        let mut before = work.source.predecessors().iter().map(|hop| chosen[hop.from]);
        let follows = if work.first { before.len() > 0 && before.all(|one| one) } else { before.any(|one| one) };
        chosen[id.index()] = work.chosen || follows;
    }
    chosen
}

/// The verdict on all operations of a processor together, and the first operation that causes it.
fn whole(
    scene: Scene,
    site: &ProcessorScene<'_>,
    found: &[PartResult],
    operations: &[OperationReport],
    overload: Option<FailureReason>,
) -> (Verdict, Option<String>) {
    let failing = operations.iter().find(|one| one.verdict.fails());
    let unproved = operations.iter().find(|one| !one.verdict.is_proved());
    let first = failing.or(unproved).map(|one| one.name.clone());
    let lasting = matches!(scene, Scene::Epoch(_)) && !site.has_loop();
    if let Some(why) = overload.filter(|_| lasting) {
        return (Verdict::Fails { why }, first);
    }
    let verdict = match (failing, unproved) {
        (Some(one), _) => Verdict::Fails { why: FailureReason::Operation { name: one.name.clone() } },
        (None, Some(one)) => match failures::demand_fails(scene, site, found).filter(|_| !site.has_loop()) {
            Some(why) => Verdict::Fails { why },
            None => Verdict::unknown(Missing::Operation { name: one.name.clone() }),
        },
        (None, None) => Verdict::Proved,
    };
    (verdict, first)
}

/// Why the utilisation bounds of rate monotonic scheduling do not apply here.
fn inapplicable(site: &ProcessorScene<'_>, agreement: &Agreement) -> Option<Inapplicable> {
    let work = |part: &OperationPart| &site.works[part.operation.index()];
    let by_rate = site.parts.windows(2).all(|pair| {
        let (one, next) = (work(&pair[0]).period, work(&pair[1]).period);
        if pair[0].level == pair[1].level { one == next } else { one < next }
    });
    let fifo = |part: &OperationPart| {
        site.plan.levels.get(usize::from(part.level)).is_some_and(|level| level.discipline == Discipline::Fifo)
    };
    match () {
        () if site.parts.is_empty() => Some(Inapplicable::Idle),
        () if site.plan.preemption == Preemption::None => Some(Inapplicable::NonPreemptive),
        () if !by_rate || site.is_mixed() || !site.parts.iter().all(fifo) => Some(Inapplicable::NotRateMonotonic),
        () => not_simple(site, agreement),
    }
}

/// Why the utilisation bounds for independent periodic jobs with implicit deadlines do not apply here, in any order.
fn not_simple(site: &ProcessorScene<'_>, agreement: &Agreement) -> Option<Inapplicable> {
    let work = |part: &OperationPart| &site.works[part.operation.index()];
    let any = |test: &dyn Fn(&OperationPart) -> bool| site.parts.iter().any(test);
    match () {
        () if any(&|part| !matches!(work(part).source, ReleaseSource::Periodic) || work(part).jitter > 0) => {
            Some(Inapplicable::NotPeriodic)
        }
        () if any(&|part| work(part).deadline.span().as_nanos() < work(part).period) => {
            Some(Inapplicable::ConstrainedDeadline)
        }
        () if any(&|part| !site.system.operation(part.operation).uses.is_empty()) => Some(Inapplicable::Resources),
        () if cap::may_act(site, &agreement.releases) || hard_cap::pauses(site, &agreement.releases).is_some() => {
            Some(Inapplicable::Cap)
        }
        () if !site.system.processor(site.plan.processor).costs.is_none() => Some(Inapplicable::Overheads),
        () if any(&|part| site.system.operation(part.operation).calls_any) => Some(Inapplicable::Calls),
        () => None,
    }
}

fn assumptions(site: &ProcessorScene<'_>, agreement: &Agreement) -> Vec<Assumption> {
    let works = || site.parts.iter().map(|part| &site.works[part.operation.index()]);
    let phase = |work: &Work| {
        let setting = site.system.setting(0, work.operation);
        (setting.phase, setting.offset)
    };
    let processor = site.system.processor(site.plan.processor);
    let uses = |work: &Work| !site.system.operation(work.operation).uses.is_empty();
    let hard = processor.hard_cap.is_on();
    let capped = processor.cap_ppm < 1_000_000 || hard;
    let pauses = hard_cap::pauses(site, &agreement.releases).map(|pauses| Span::from_nanos(pauses.cost));
    let held = [
        (Assumption::WorstCases, true),
        (Assumption::NoOverheads, processor.costs.is_none()),
        (Assumption::Overheads(processor.costs), !processor.costs.is_none()),
        (Assumption::Phases, works().any(|work| Some(phase(work)) != works().next().map(phase))),
        (Assumption::FastestRates, works().any(|work| work.streams.len() < 2 && work.slowest > work.period)),
        (Assumption::Regions, site.has(Adaptation::Limited)),
        (Assumption::Requests, works().any(|work| site.system.operation(work.operation).is_requested())),
        (Assumption::ClockErrors, works().any(|work| work.source.predecessors().iter().any(|hop| hop.error > 0))),
        (Assumption::NothingLost, site.system.loses()),
        (Assumption::Cancellation, processor.cancel && site.parts.iter().any(|part| !part.critical)),
        (Assumption::Switches, site.plan.overload.is_some()),
        (Assumption::Joins, works().any(Work::joins)),
        (Assumption::Chosen, works().any(|work| work.chosen)),
        (Assumption::Copies, works().any(|work| work.first)),
        (Assumption::BestCases, works().any(|work| work.source.is_triggered())),
        (Assumption::Sections, works().any(uses)),
        (Assumption::CapNeverActs, capped && !cap::may_act(site, &agreement.releases)),
        (Assumption::NoThrottling, capped && !hard),
        (Assumption::HardCapNeverActs, hard && pauses.is_none() && site.parts.iter().any(|part| part.critical)),
        (Assumption::HardCap(pauses.unwrap_or_default()), pauses.is_some()),
    ];
    held.into_iter().filter(|(_, holds)| *holds).map(|(assumption, _)| assumption).collect()
}

/// The report on the whole system.
pub(super) fn report(system: &System, scenes: Vec<SceneReport>) -> Report {
    let critical =
        scenes.iter().flat_map(|scene| &scene.processors).flat_map(|one| &one.operations).any(|one| one.critical);
    let counted =
        if critical || !system.chains.is_empty() { OutcomeScope::CriticalAndChains } else { OutcomeScope::Everything };
    let counts = |one: &&OperationReport| one.critical || counted == OutcomeScope::Everything;
    let (mut all_proved, mut one_fails) = (true, false);
    let mut methods: Vec<AnalysisMethod> = Vec::new();
    for scene in &scenes {
        for processor in &scene.processors {
            for one in processor.operations.iter().filter(counts) {
                all_proved &= one.verdict.is_proved();
                one_fails |= one.verdict.fails();
            }
            one_fails |= processor.verdict.fails() && processor.counts(counted);
            all_proved &= !(processor.verdict.fails() && processor.counts(counted));
            methods.extend(processor.operations.iter().map(|one| one.method));
            let alone = processor.operations.iter().flat_map(|one| &one.alone);
            methods.extend(alone.map(|alone| alone.method));
        }
        for chain in &scene.chains {
            all_proved &= chain.verdict.is_proved();
            one_fails |= chain.verdict.fails();
            methods.push(chain.method);
        }
        if scene.change {
            methods.push(AnalysisMethod::Envelope);
        }
    }
    methods.sort_unstable();
    methods.dedup();
    Report {
        system: system.name.clone(),
        outcome: match (one_fails, all_proved) {
            (true, _) => Outcome::DoesNotHold,
            // There was nothing to prove.
            (false, true) if !system.operations.is_empty() => Outcome::Holds,
            (false, _) => Outcome::Unknown,
        },
        counted,
        scenes,
        methods: methods
            .into_iter()
            .filter(|method| *method != AnalysisMethod::None)
            .map(AnalysisMethod::note)
            .collect::<Vec<MethodNote>>(),
    }
}
