//! Behaviours that the file allows and that are likely to miss a deadline: a simulator tries them if no analysis
//! decides.
//!
//! A behaviour keeps the file's phases. An operation without one may begin at any time: proofs assume no phase, so any
//! alignment is allowed. The execution time of a job is its worst case, or between best and worst case. Releases are
//! late by at most the declared jitter.
//!
//! Under preemptive fixed priorities without jitter a common release is the worst alignment (Liu and Layland 1973),
//! and the first miss by deadline follows one (Baruah, Mok and Rosier 1990). Without preemption the worst is a
//! common release just after some other job has started (George, Rivierre and Spuri, INRIA RR-2966, 1996; Jeffay,
//! Stanat and Martel, RTSS 1991), so each operation is tried as the first one.

use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};

use hyoshi_model::execution_time::{self, Stream};
use hyoshi_model::{
    Contents, ContractAction, Environment, Epoch, ExecutionTime, Instant, JobId, Link, OperationId, Setting, Span,
    System, Trigger,
};

use super::judge;
use super::method::AnalysisMethod;
use super::report::Report;
use super::verdict::{FailureReason, Verdict};

/// Jobs simulated of the file itself, and of each other alignment.
const MANY: u64 = 100_000;
const SOME: u64 = 20_000;
/// Alignments drawn at random.
const DRAWN: u32 = 16;

/// A job that misses in a behaviour that the file allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The region, by its index.
    pub region: usize,
    /// The operation.
    pub operation: OperationId,
    /// Whether the job is critical.
    pub critical: bool,
    /// Its release number.
    pub job: u64,
    /// When it ended, from the start of the behaviour.
    pub at: Span,
    /// By how much it was late; `None` if it was dropped or stopped.
    pub late: Option<Span>,
    /// The behaviour's number: see [`behaviour`].
    pub behaviour: u32,
}

/// The operations of a region that are neither proved nor known to fail, without jobs that can be cancelled.
pub fn undecided(system: &System, report: &Report, region: usize) -> Vec<(OperationId, bool)> {
    let scenes = report.scenes.iter().filter(|scene| !scene.change && scene.epoch == region);
    let processors = scenes.flat_map(|scene| &scene.processors);
    let operations = processors.flat_map(|one| {
        let cancels = system.processor(one.processor).cancel;
        one.operations.iter().filter(move |operation| operation.critical || !cancels)
    });
    let unknown = operations.filter(|one| matches!(one.verdict, Verdict::Unknown { .. }));
    unknown.map(|one| (one.operation, one.critical)).collect()
}

/// The numbers of the behaviours of a region, the most promising first: the file itself, the region's worst cases with
/// the file's alignment, a common release, a common release just after each operation (long ones first), and some
/// random ones.
pub fn numbers(system: &System, region: usize) -> Vec<u32> {
    let count = system.operations.len() as u32;
    let aligned = longest(system, region).into_iter().flat_map(|id| [FIRST + 2 * id.0, FIRST + 2 * id.0 + 1]);
    let file = if region == 0 { vec![FILE] } else { Vec::new() };
    file.into_iter()
        .chain([AS_IT_IS, TOGETHER])
        .chain(aligned)
        .chain((0..DRAWN).map(|k| FIRST + 2 * count + k))
        .collect()
}

const FILE: u32 = 0;
const AS_IT_IS: u32 = 1;
const TOGETHER: u32 = 2;
const FIRST: u32 = 3;

/// A behaviour by its number, with a duration that can be simulated quickly; `None` if there is no such behaviour, or
/// if it equals an earlier one.
pub fn behaviour(system: &System, region: usize, number: u32) -> Option<System> {
    let settings = &system.epochs.get(region)?.settings;
    if number == FILE {
        let overruns = |one: &Setting| one.execution_time.longest() > one.wcet;
        let overrun = system.epochs.iter().any(|epoch| epoch.settings.iter().any(overruns));
        let shorter = system.duration.min(window(settings, MANY));
        return (!overrun).then(|| system.clone().with(|file| file.duration = shorter));
    }
    let free = |id: OperationId| {
        let operation = system.operation(id);
        operation.trigger == Trigger::Periodic && !operation.phase_given && settings[id.index()].enabled
    };
    let any_free = system.operation_ids().any(free);
    let count = system.operations.len() as u32;
    let latest_offset = settings.iter().map(|one| one.offset).max().unwrap_or_default();
    let mut changed: Vec<Setting> = settings.to_vec();
    for setting in &mut changed {
        (setting.execution_time, setting.jitter) = (ExecutionTime::Fixed(setting.wcet), Span::ZERO);
    }
    let mut align = |to: Span, but: Option<OperationId>| {
        for id in system.operation_ids().filter(|id| free(*id) && Some(*id) != but) {
            changed[id.index()].phase = to.saturating_sub(changed[id.index()].offset);
        }
    };
    let mut seed = system.seed;
    match number {
        AS_IT_IS => {}
        TOGETHER => {
            align(latest_offset, None);
            if !any_free || changed.iter().zip(settings.iter()).all(|(one, other)| one.phase == other.phase) {
                return None;
            }
        }
        _ if number < FIRST + 2 * count => {
            let (id, after) = (OperationId((number - FIRST) / 2), (number - FIRST).is_multiple_of(2));
            let setting = &settings[id.index()];
            let periodic = system.operation(id).trigger == Trigger::Periodic && setting.enabled;
            // Operations without a phase already coincide with the others.
            if !any_free || !periodic || (free(id) && !after) {
                return None;
            }
            let first = match free(id) {
                true => latest_offset,
                false => setting.phase.checked_add(setting.offset)?.max(latest_offset),
            };
            align(first.checked_add(Span::from_nanos(u64::from(after)))?, Some(id));
            if free(id) {
                changed[id.index()].phase = first.saturating_sub(setting.offset);
            }
        }
        _ => {
            let draw = number - FIRST - 2 * count;
            let varies = settings.iter().any(|one| !one.jitter.is_zero() || one.bcet < one.wcet);
            if draw >= DRAWN || !(any_free || varies) {
                return None;
            }
            seed = system.seed.wrapping_add(u64::from(draw) + 1);
            for id in system.operation_ids() {
                let (was, now) = (&settings[id.index()], &mut changed[id.index()]);
                now.jitter = was.jitter;
                if draw % 2 == 1 {
                    // The best case is that of the lowest service level, and drawn times are those of the highest.
                    let levels = !system.operation(id).levels.is_empty();
                    let least = if levels { was.execution_time.shortest() } else { was.bcet };
                    now.execution_time = ExecutionTime::Uniform(least.max(Span::from_nanos(1)).min(was.wcet), was.wcet);
                }
                if free(id) && !draw.is_multiple_of(4) {
                    let job = JobId { operation: id, number: u64::from(draw), leg: 0 };
                    let last = was.period.saturating_sub(Span::from_nanos(1));
                    now.phase =
                        execution_time::uniform(execution_time::bits(seed, job, Stream::Other), Span::ZERO, last);
                }
            }
            if draw.is_multiple_of(4) {
                // Late releases coincide, early ones follow; every second time just after a long job began.
                let before = (draw % 8 == 4).then(|| longest(system, region).get(draw as usize / 8).copied()).flatten();
                let late: Vec<(OperationId, Span)> = system
                    .operation_ids()
                    .filter(|id| free(*id))
                    .map(|id| (id, latest(seed, id, &changed[id.index()])))
                    .collect();
                let all = late.iter().map(|(_, late)| *late).max().unwrap_or_default();
                for (id, late) in late {
                    let behind = Span::from_nanos(u64::from(before.is_some() && before != Some(id)));
                    changed[id.index()].phase = all.saturating_sub(late).checked_add(behind)?;
                }
            }
        }
    }
    let duration = window(&changed, if number == AS_IT_IS { MANY } else { SOME });
    Some(system.clone().with(|alone| {
        only_region(alone, region, changed);
        (alone.duration, alone.seed) = (duration, seed);
    }))
}

/// Leaves one region, with these settings and its conditions. Links are as slow as there, and all operations run, also
/// those on standby.
pub(super) fn only_region(contents: &mut Contents, region: usize, settings: Vec<Setting>) {
    slowest_links(contents, region);
    contents.operations.iter_mut().for_each(|one| one.standby = false);
    for region in contents.contracts.iter_mut().flat_map(|one| &mut one.regions) {
        region.actions.retain(|action| !matches!(action, ContractAction::Admission { .. }));
    }
    let Epoch { name, environment, .. } = &contents.epochs[region];
    contents.epochs = vec![Epoch {
        name: name.clone(),
        at: Instant::ZERO,
        settings: settings.into(),
        environment: Environment { conditions: environment.conditions.clone(), ..Environment::default() }.into(),
        admissions: Default::default(),
    }];
}

/// Sets the delay of each link to its longest in a region; no signal is lost.
fn slowest_links(contents: &mut Contents, region: usize) {
    let environment = contents.epochs[region].environment.clone();
    for (position, link) in contents.links.iter_mut().enumerate() {
        let longest = environment.link(position, link).delay.1;
        *link = Link::new(link.between, (longest, longest));
    }
}

/// Operations by their worst cases, longest first.
fn longest(system: &System, region: usize) -> Vec<OperationId> {
    let mut longest: Vec<OperationId> = system.operation_ids().collect();
    longest.sort_by_key(|id| core::cmp::Reverse(system.epochs[region].settings[id.index()].wcet));
    longest
}

/// The time from the phase to a release that is much later than nominal while the next one is not, among the first few.
fn latest(seed: u64, operation: OperationId, setting: &Setting) -> Span {
    /// How many releases are searched.
    const FEW: u64 = 16;
    let jitter = |number| {
        let job = JobId { operation, number, leg: 0 };
        execution_time::uniform(execution_time::bits(seed, job, Stream::Jitter), Span::ZERO, setting.jitter).as_nanos()
    };
    let few = if setting.jitter.is_zero() { 1 } else { FEW };
    let best = (0..few).max_by_key(|number| (jitter(*number).saturating_sub(jitter(number + 1)), FEW - number));
    let number = best.unwrap_or_default();
    let nominal = setting.period.checked_mul(number).and_then(|after| after.checked_add(setting.offset));
    nominal.and_then(|nominal| nominal.checked_add(Span::from_nanos(jitter(number)))).unwrap_or_default()
}

/// Two hyperperiods after the last first release, or less if those have more than about `jobs` releases.
fn window(settings: &[Setting], jobs: u64) -> Span {
    let running = || settings.iter().filter(|one| one.enabled && !one.period.is_zero());
    let start = running().filter_map(|one| one.phase.checked_add(one.offset)).max().unwrap_or_default();
    let hyperperiod = running().try_fold(1u64, |multiple, one| {
        let (period, mut a, mut b) = (one.period.as_nanos(), multiple, one.period.as_nanos());
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (multiple / a).checked_mul(period)
    });
    // Releases within a second, in millionths.
    let rate =
        running().map(|one| 1_000_000_000_000_000u128 * u128::from(one.legs) / u128::from(one.period.as_nanos()));
    let affordable = u128::from(jobs) * 1_000_000_000_000_000 / rate.sum::<u128>().max(1);
    let affordable = u64::try_from(affordable).unwrap_or(u64::MAX / 8);
    // An operation that can be late at all is late within its deadline.
    let least = running().map(|one| one.deadline.span().max(one.period).as_nanos()).max().unwrap_or_default();
    let twice = hyperperiod.and_then(|one| one.checked_mul(2)).unwrap_or(u64::MAX);
    let lasts = affordable.min(twice).max(least).min(u64::MAX / 8);
    start.checked_add(Span::from_nanos(lasts)).unwrap_or(Span::from_secs(86_400))
}

impl Report {
    /// Changes unknown verdicts of operations that missed to *fails*.
    pub fn refute(&mut self, system: &System, misses: &[Miss]) {
        let mut scenes = core::mem::take(&mut self.scenes);
        for scene in scenes.iter_mut().filter(|scene| !scene.change) {
            let own = misses.iter().filter(|miss| miss.region == scene.epoch);
            let own: BTreeMap<(OperationId, bool), Miss> =
                own.map(|miss| ((miss.operation, miss.critical), *miss)).collect();
            let of = |operation, critical| own.get(&(operation, critical)).copied();
            for processor in &mut scene.processors {
                for one in &mut processor.operations {
                    let (Some(miss), Verdict::Unknown { .. }) = (of(one.operation, one.critical), &one.verdict) else {
                        continue;
                    };
                    let Miss { job, at, late, behaviour, .. } = miss;
                    one.verdict = Verdict::Fails { why: FailureReason::Seen { job, at, late, behaviour } };
                    one.method = AnalysisMethod::Simulation;
                }
                let failing = processor.operations.iter().filter(|one| one.verdict.fails());
                let first: Option<String> = failing.min_by_key(|one| one.level).map(|one| one.name.clone());
                if let (Some(name), false) = (first, processor.verdict.fails()) {
                    processor.verdict = Verdict::Fails { why: FailureReason::Operation { name: name.clone() } };
                    processor.first = Some(name);
                }
            }
        }
        *self = judge::report(system, scenes);
    }
}
