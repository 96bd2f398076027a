//! The margins of a system: how much longer each operation could run, and how much faster it could be released, before
//! a proved deadline is no longer proved; and the same for all operations together.
//!
//! Every value is found by bisection over the analysis itself, in whole nanoseconds, with the levels that the strategy
//! would then assign: each reported value was proved. Bounds on responses only grow with worst cases and rates if
//! levels stay (Baruah and Burns, "Sustainable scheduling analysis", RTSS 2006). If a strategy reorders a changed
//! operation, or a region's change alters the analysis, there may be proved values beyond the one that is found, but
//! never unproved ones before it that were tried.
//!
//! Deadlines that equal a period change with it. In a system of several regions worst cases (periods) of an operation
//! are scaled in all of them alike; figures are of the longest (shortest).

use alloc::{string::String, vec::Vec};

use hyoshi_model::{Deadline, Operation, OperationId, Setting, Span, System, Trigger};
use serde::Serialize;

use super::effort::{Bounds, Effort, LevelCache};
use super::island::{Island, islands};
use super::report::{OutcomeScope, Report, Requirement};
use crate::plan::Plan;
use crate::strategy::Strategies;

/// The margins of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sensitivity {
    /// False if the search ended before everything was found.
    pub complete: bool,
    /// All worst cases together; `None` if it was not searched.
    pub worst_cases: Option<Scaling>,
    /// All rates together.
    pub rates: Option<Scaling>,
    /// In the system's order.
    pub operations: Vec<OperationMargin>,
}

/// The scale of all operations at which the outcome is still proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scaling {
    /// In parts per million of the present value: above one million is room, below is what must be saved.
    pub factor_ppm: u64,
    /// The first operation that is no longer proved; if no factor was found, one that is already not proved.
    pub first: Option<String>,
    /// The processor with the highest load there.
    pub processor: String,
    /// Its utilisation at that point: the breakdown utilisation.
    pub breakdown_utilisation_ppm: u64,
}

/// The margins of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationMargin {
    /// The operation.
    #[serde(skip)]
    pub operation: OperationId,
    /// Its name.
    pub name: String,
    /// True if all its jobs are critical.
    pub critical: bool,
    /// True if all its jobs are proved now; else the margins only concern others.
    pub proved: bool,
    /// Its declared worst case.
    pub wcet_ns: u64,
    /// The longest worst case with which all that is proved and decides the outcome stays proved.
    pub longest_wcet_ns: Option<u64>,
    /// The longest worst case with which its own jobs stay proved.
    pub own_longest_wcet_ns: Option<u64>,
    /// Its period.
    pub period_ns: u64,
    /// The shortest period with which all that is proved and decides the outcome stays proved; of periodic operations.
    pub shortest_period_ns: Option<u64>,
    /// The shortest period with which its own jobs stay proved.
    pub own_shortest_period_ns: Option<u64>,
    /// The first subject that is no longer proved if it runs longer.
    pub first: Option<String>,
}

/// Finds all margins. `progress` is called with the number of finished operations and of all; false ends the search.
pub fn sensitivity(
    system: &System,
    strategies: &Strategies,
    report: &Report,
    progress: &dyn Fn(usize, usize) -> bool,
) -> Sensitivity {
    let search = SensitivitySearch::new(system, strategies, report);
    let mut done = 0;
    let parts = (0..search.parts()).map(|part| {
        search.part(part, &mut || {
            done += 1;
            progress(done - 1, system.operations.len())
        })
    });
    search.join(parts.collect())
}

/// The search in independent parts, for several threads to share.
pub struct SensitivitySearch<'a> {
    system: &'a System,
    strategies: &'a Strategies,
    everything: bool,
    islands: Vec<Island>,
}

impl core::fmt::Debug for SensitivitySearch<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SensitivitySearch").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

impl<'a> SensitivitySearch<'a> {
    /// The search for a system and its `report`.
    pub fn new(system: &'a System, strategies: &'a Strategies, report: &Report) -> Self {
        let everything = report.counted == OutcomeScope::Everything;
        SensitivitySearch { system, strategies, everything, islands: islands(system) }
    }

    /// The number of parts: processors that depend on each other are one.
    pub fn parts(&self) -> usize {
        self.islands.len()
    }

    /// Searches a part; `go_on` is called before each operation.
    pub fn part(&self, part: usize, go_on: &mut dyn FnMut() -> bool) -> Sensitivity {
        let mut found = Sensitivity { complete: true, ..Sensitivity::default() };
        let Some(island) = self.islands.get(part) else { return found };
        let search = Search::new(island, self.strategies, self.everything);
        for local in island.system.operation_ids() {
            if !go_on() {
                return Sensitivity { complete: false, ..found };
            }
            found.operations.push(search.operation(self.system, local));
        }
        if search.counts() {
            found.worst_cases = search.scaling(scaled_wcets);
            found.rates = search.scaling(scaled_rates);
        }
        found
    }

    /// Combines the parts.
    pub fn join(&self, parts: Vec<Sensitivity>) -> Sensitivity {
        let mut all = Sensitivity { complete: true, ..Sensitivity::default() };
        for part in parts {
            all.complete &= part.complete;
            all.worst_cases = least(all.worst_cases, part.worst_cases);
            all.rates = least(all.rates, part.rates);
            all.operations.extend(part.operations);
        }
        if !all.complete {
            (all.worst_cases, all.rates) = (None, None);
        }
        all.operations.sort_by_key(|one| one.operation);
        all
    }
}

fn least(one: Option<Scaling>, other: Option<Scaling>) -> Option<Scaling> {
    [one, other].into_iter().flatten().min_by_key(|scaling| scaling.factor_ppm)
}

/// The proved verdicts of an island: of each operation's critical and other jobs, and of each chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Proved {
    operations: Vec<[bool; 2]>,
    chains: Vec<[bool; 3]>,
}

struct Search<'a> {
    island: &'a Island,
    strategies: &'a Strategies,
    everything: bool,
    now: Proved,
    /// Cached results of unchanged levels.
    known: LevelCache,
    /// True if a verdict on one operation is independent of others.
    apart: bool,
    /// The operations that decide the outcome by their verdicts.
    counting: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(island: &'a Island, strategies: &'a Strategies, everything: bool) -> Self {
        let nothing = Proved { operations: Vec::new(), chains: Vec::new() };
        let system = &island.system;
        let alone = |operation: &Operation| operation.trigger == Trigger::Periodic;
        let apart = system.chains.is_empty() && system.operations.iter().all(alone);
        let critical = |id: OperationId| system.epochs.iter().any(|one| one.settings[id.index()].critical_legs > 0);
        let counting = system.operation_ids().map(|id| everything || critical(id)).collect();
        let known = LevelCache::default();
        let mut search = Search { island, strategies, everything, now: nothing, known, apart, counting };
        search.now = search.proved(system, None);
        search
    }

    /// The proved verdicts; of `only` these operations, and true of the others, if that is enough.
    fn proved(&self, system: &System, only: Option<&[bool]>) -> Proved {
        let mut proved = Proved {
            operations: alloc::vec![[true; 2]; system.operations.len()],
            chains: alloc::vec![[true; 3]; system.chains.len()],
        };
        // The system was planned with these strategies, so each is known.
        let Ok(plan) = Plan::new(system, self.strategies) else { return Proved { operations: Vec::new(), ..proved } };
        // Chains use bounds; without chains verdicts are enough.
        let bounds = if system.chains.is_empty() { Bounds::None } else { Bounds::Quick };
        let effort = Effort::verdicts(bounds, only.filter(|_| self.apart), &self.known);
        for scene in &super::scenes(system, &plan, &effort) {
            let operations = scene.processors.iter().flat_map(|processor| &processor.operations);
            for one in operations.filter(|one| effort.wants(one.operation)) {
                proved.operations[one.operation.index()][usize::from(one.critical)] &= one.verdict.is_proved();
            }
            for chain in &scene.chains {
                proved.chains[chain.chain.index()][requirement(chain.requirement)] &= chain.verdict.is_proved();
            }
        }
        proved
    }

    /// True if something here decides the system's verdict.
    fn counts(&self) -> bool {
        self.everything
            || !self.now.chains.is_empty()
            || self.island.system.epochs.iter().any(|epoch| epoch.settings.iter().any(|one| one.critical_legs > 0))
    }

    /// The first relevant subject that is not proved; only of those that are proved in `only`.
    fn broken(&self, proved: &Proved, only: Option<&Proved>) -> Option<String> {
        let system = &self.island.system;
        for id in system.operation_ids() {
            let wanted = only.map_or([true; 2], |only| only.operations[id.index()]);
            let is = proved.operations.get(id.index()).copied().unwrap_or([false; 2]);
            if (wanted[1] && !is[1]) || (self.everything && wanted[0] && !is[0]) {
                return Some(system.operation(id).name.clone());
            }
        }
        let chains = proved.chains.iter().enumerate();
        let mut broken = chains.filter(|(index, is)| {
            let wanted = only.map_or([true; 3], |only| only.chains[*index]);
            wanted.iter().zip(is.iter()).any(|(wanted, is)| *wanted && !is)
        });
        broken.next().map(|(index, _)| system.chains[index].name.clone())
    }

    fn operation(&self, whole: &System, local: OperationId) -> OperationMargin {
        let (system, id) = (&self.island.system, self.island.operations[local.index()]);
        let settings = || system.epochs.iter().map(|epoch| &epoch.settings[local.index()]).filter(|one| one.enabled);
        let wcet = settings().map(|one| one.wcet.as_nanos()).max().unwrap_or(0);
        let period = settings().map(|one| one.period.as_nanos()).min().unwrap_or(0);
        let mut margin = OperationMargin {
            operation: id,
            name: whole.operation(id).name.clone(),
            critical: whole.operation(id).critical,
            proved: self.now.operations.get(local.index()) == Some(&[true; 2]),
            wcet_ns: wcet,
            longest_wcet_ns: None,
            own_longest_wcet_ns: None,
            period_ns: period,
            shortest_period_ns: None,
            own_shortest_period_ns: None,
            first: None,
        };
        if wcet == 0 || period == 0 {
            return margin;
        }
        let own = |proved: &Proved| proved.operations.get(local.index()) == Some(&[true; 2]);
        let all = |proved: &Proved| self.broken(proved, Some(&self.now)).is_none();
        let own_now = margin.proved;
        // A job longer than its deadline never fits.
        let room = settings().map(|one| one.deadline.span().as_nanos() / u64::from(one.legs.max(1)));
        let beyond = room.max().unwrap_or(0).max(wcet).saturating_add(1);
        let mut itself = alloc::vec![false; system.operations.len()];
        itself[local.index()] = true;
        let mut both = self.counting.clone();
        both[local.index()] = true;
        let wanted = [both.as_slice(), itself.as_slice()];
        let fine = |good: u64| (good / 1_000).max(1_000);
        let with = |value: u64, only: &[bool]| self.proved(&with_wcet(system, local, value, wcet), Some(only));
        let margins = bisect(wcet, beyond, own_now, &fine, wanted, &with, &own, &all);
        (margin.longest_wcet_ns, margin.own_longest_wcet_ns) = (Some(margins.all), margins.own);
        // If all operations up to its deadline were proved, it is itself that no longer fits.
        let counts = self.everything || margin.critical;
        margin.first = match margins.broken {
            Some(proved) => self.broken(&proved, Some(&self.now)),
            None => counts.then(|| margin.name.clone()),
        };
        if system.operation(local).trigger == Trigger::Periodic {
            // Downwards: the period shrinks. No operation is released more often than it can run.
            let busy = settings().map(|one| one.wcet.as_nanos().saturating_mul(u64::from(one.legs)));
            let least = busy.max().unwrap_or(1);
            let beyond = period.saturating_sub(least.min(period)).saturating_add(period).saturating_add(1);
            let back = |value: u64| period.saturating_mul(2).saturating_sub(value).max(1);
            let with =
                |value: u64, only: &[bool]| self.proved(&with_period(system, local, back(value), period), Some(only));
            let margins = bisect(period, beyond, own_now, &|value| fine(back(value)), wanted, &with, &own, &all);
            margin.shortest_period_ns = Some(back(margins.all));
            margin.own_shortest_period_ns = margins.own.map(back);
        }
        margin
    }

    /// The largest common factor with which all that counts is proved.
    fn scaling(&self, scaled: fn(&System, u64) -> System) -> Option<Scaling> {
        let system = &self.island.system;
        let holds = |ppm: u64| self.broken(&self.proved(&scaled(system, ppm), Some(&self.counting)), None);
        let as_it_is = holds(MILLION);
        let (mut good, mut bad, mut first) = match &as_it_is {
            None => (MILLION, 2 * MILLION, None),
            Some(first) => {
                // Less load can also make a result worse: data are older at lower rates. So search from the top.
                let steps = (1..STEPS).rev().map(|step| MILLION / STEPS * step);
                let found = steps.map(|ppm| (ppm, holds(ppm))).find(|(_, broken)| broken.is_none());
                match found {
                    Some((good, _)) => (good, good + MILLION / STEPS, Some(first.clone())),
                    None => (0, MILLION / STEPS, Some(first.clone())),
                }
            }
        };
        while good > 0 && first.is_none() {
            match holds(bad) {
                None if bad > 1_000 * MILLION => break,
                None => (good, bad) = (bad, bad * 2),
                broken => first = broken,
            }
        }
        while bad - good > (good / 2_000).max(10) {
            let middle = good.midpoint(bad);
            match holds(middle) {
                None => good = middle,
                broken => (bad, first) = (middle, broken),
            }
        }
        if good == 0 {
            // The operation that failed at the last try may be proved without change.
            first = as_it_is;
        }
        let at = scaled(system, good.max(1));
        let loads = at.processor_ids().flat_map(|id| (0..at.epochs.len()).map(move |epoch| (epoch, id)));
        let loads = loads.map(|(epoch, id)| (at.utilisation_ppm(epoch, id), id));
        let (breakdown_utilisation_ppm, fullest) = loads.max_by_key(|(ppm, _)| *ppm)?;
        let processor = at.processor(fullest).name.clone();
        // At zero load nothing is used.
        let breakdown_utilisation_ppm = if good > 0 { breakdown_utilisation_ppm } else { 0 };
        Some(Scaling { factor_ppm: good, first, processor, breakdown_utilisation_ppm })
    }
}

struct Margins {
    own: Option<u64>,
    all: u64,
    /// The proved verdicts just beyond `all`.
    broken: Option<Proved>,
}

/// The greatest values of `now..beyond` for which `own` and `all` hold, each to its wanted precision. Of the `wanted`
/// operations the first are tested for both, the second for `own` alone.
#[allow(clippy::too_many_arguments)]
fn bisect(
    now: u64,
    beyond: u64,
    own_now: bool,
    fine: &dyn Fn(u64) -> u64,
    [both, itself]: [&[bool]; 2],
    with: &dyn Fn(u64, &[bool]) -> Proved,
    own: &dyn Fn(&Proved) -> bool,
    all: &dyn Fn(&Proved) -> bool,
) -> Margins {
    let (mut own_good, mut own_bad) = (now, beyond);
    let (mut good, mut bad, mut broken) = (now, beyond, None);
    while bad - good > fine(good) {
        let middle = good.midpoint(bad);
        let proved = with(middle, both);
        // Each result narrows both searches.
        if own(&proved) {
            own_good = own_good.max(middle);
        } else {
            own_bad = own_bad.min(middle);
        }
        if all(&proved) {
            good = middle;
        } else {
            (bad, broken) = (middle, Some(proved));
        }
    }
    while own_now && own_bad > own_good && own_bad - own_good > fine(own_good) {
        let middle = own_good.midpoint(own_bad);
        *(if own(&with(middle, itself)) { &mut own_good } else { &mut own_bad }) = middle;
    }
    Margins { own: own_now.then_some(own_good), all: good, broken }
}

const MILLION: u64 = 1_000_000;

/// Number of evenly spaced factors below 1 to try before the search between two of them.
const STEPS: u64 = 20;

fn requirement(requirement: Requirement) -> usize {
    match requirement {
        Requirement::Deadline => 0,
        Requirement::MaxAge => 1,
        Requirement::MaxReaction => 2,
    }
}

/// `value` times `to` over `from`, towards more load.
fn scale(value: Span, to: u64, from: u64, up: bool) -> Span {
    let (product, from) = (u128::from(value.as_nanos()) * u128::from(to), u128::from(from.max(1)));
    let scaled = if up { product.div_ceil(from) } else { product / from };
    Span::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX).clamp(1, u64::MAX / 4))
}

fn changed(system: &System, change: impl Fn(&mut [Setting])) -> System {
    system.clone().with(|changed| {
        for epoch in &mut changed.epochs {
            let mut settings = epoch.settings.to_vec();
            change(&mut settings);
            epoch.settings = settings.into();
        }
    })
}

fn with_wcet(system: &System, id: OperationId, to: u64, from: u64) -> System {
    changed(system, |settings| {
        let setting = &mut settings[id.index()];
        setting.wcet = scale(setting.wcet, to, from, true);
    })
}

fn scaled_wcets(system: &System, ppm: u64) -> System {
    changed(system, |settings| {
        for setting in settings {
            setting.wcet = scale(setting.wcet, ppm, MILLION, true);
            setting.bcet = setting.bcet.min(setting.wcet);
        }
    })
}

fn with_period(system: &System, id: OperationId, to: u64, from: u64) -> System {
    changed(system, |settings| {
        set_period(&mut settings[id.index()], to, from);
        follow(system, settings, |roots| roots.contains(&id));
    })
}

fn scaled_rates(system: &System, ppm: u64) -> System {
    changed(system, |settings| {
        for id in system.operation_ids().filter(|id| system.operation(*id).trigger == Trigger::Periodic) {
            set_period(&mut settings[id.index()], MILLION, ppm);
        }
        follow(system, settings, |_| true);
    })
}

fn set_period(setting: &mut Setting, to: u64, from: u64) {
    let before = setting.period;
    setting.period = scale(before, to, from, false);
    setting.slowest = if setting.slowest == before { setting.period } else { setting.slowest.max(setting.period) };
    if setting.deadline == Deadline::Own(before) {
        setting.deadline = Deadline::Own(setting.period);
    }
}

/// Triggered operations have the period of their roots, and deadlines that equal it.
fn follow(system: &System, settings: &mut [Setting], concerns: impl Fn(&[OperationId]) -> bool) {
    for id in system.operation_ids() {
        let operation = system.operation(id);
        if operation.trigger == Trigger::Periodic || !concerns(&operation.roots) {
            continue;
        }
        let of_roots = |of: fn(&Setting) -> Span| {
            let roots = |of_one: OperationId| &system.operation(of_one).roots;
            let all = operation.roots.iter().map(|root| of(&settings[root.index()]));
            match &operation.trigger {
                Trigger::Any(_) | Trigger::Chosen(_) => all.min(),
                Trigger::All(_) | Trigger::First(_) | Trigger::Periodic => all.max(),
                Trigger::Correlated(correlation) => {
                    let group = |group: &[OperationId]| {
                        group.iter().flat_map(|from| roots(*from)).map(|root| of(&settings[root.index()])).min()
                    };
                    correlation.groups().filter_map(group).max()
                }
            }
        };
        let (period, slowest) = (of_roots(|one| one.period), of_roots(|one| one.slowest));
        let setting = &mut settings[id.index()];
        let before = setting.period;
        setting.period = period.unwrap_or(before);
        setting.slowest = slowest.unwrap_or(setting.slowest).max(setting.period);
        setting.deadline = match setting.deadline {
            Deadline::Origin(span) if span == before => Deadline::Origin(setting.period),
            other => other,
        };
    }
}
