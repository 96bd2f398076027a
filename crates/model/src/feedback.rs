//! Feedback control of rates: the loops that adapt operations with a range of rates.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::endpoint::Endpoint;
use crate::ids::{OperationId, ProcessorId};
use crate::system::{Contents, Deadline, Setting};
use crate::time::Span;

/// A feedback loop on one processor, after FCS/nORB (section 2.2). At the end of each sampling period it sets the
/// rates of [`Contents::adapted_on`].
#[derive(Clone, Debug, PartialEq)]
pub struct FeedbackLoop {
    /// The processor whose load it controls.
    pub processor: ProcessorId,
    /// What it controls.
    pub algorithm: FeedbackAlgorithm,
    /// The set point of the utilisation, in parts per million of the processor's hard cap.
    pub utilisation_ppm: u32,
    /// Whether analysis determined it (`utilisation = "analysis"`).
    pub utilisation_analysed: bool,
    /// The set point of the miss ratio, in parts per million.
    pub miss_ratio_ppm: u32,
    /// The set point of a latency; `None` if the algorithm does not control it.
    pub latency: Option<LatencySetPoint>,
    /// The sampling period.
    pub period: Span,
    /// What counts as utilisation.
    pub measure: LoadMeasure,
    /// The gains that the controllers are designed for.
    pub gains: DesignGains,
    /// The rates before the first sample.
    pub start: StartRates,
    /// How a total utilisation is divided among operations.
    pub divide: RateDivision,
    /// False: the total may leave the limits of the rates, as in the paper.
    pub anti_windup: bool,
    /// Where clients of objects register. Not empty if operations of the processor have such clients.
    pub endpoints: Vec<Endpoint>,
    /// True if other machines may register without encryption.
    pub insecure: bool,
}

/// A control algorithm: which measured variables decide, and how.
///
/// Each adds its step: `B(k+1) = B(k) + step`. They are the same for rate monotonic lanes and for EDF;
/// with EDF the authors called FC-M *FC-EDF* and FC-UM *FC-EDF2* (FCS/nORB, footnotes 2 and 3). The scheduler matters
/// only for the greatest set point without misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackAlgorithm {
    /// Holds the utilisation: `step = Ku (Us - U)`.
    FcU,
    /// Holds the miss ratio: `step = Km (Ms - M)`. Without a miss it adds `Km Ms`, the same small step at every
    /// utilisation.
    FcM,
    /// Holds the lower of both: `step = min(Ku (Us - U), Km (Ms - M))`. With low rates it rises by `Km Ms` as FC-M
    /// does.
    FcUm,
    /// FC-UM that rises as fast as FC-U; not in the paper.
    ///
    /// A sample without a miss does not show the distance to the first miss: FC-UM's controller of misses is saturated,
    /// and slows the rise for no reason. This form remembers the *free* utilisation `F` instead, up to which it has seen
    /// no miss. While `M = 0`,
    ///
    /// ```text
    /// step = min(Ku (Us - U), max(Km Ms, Ku (F - U)))
    /// ```
    ///
    /// With a miss, its step is FC-UM's. `F` is `Us` at first. A sample with misses lowers it to `U`, one without raises
    /// it to `U`. So the rise is fast up to where misses occurred, and FC-UM's above: as TCP's slow start up to its
    /// threshold (Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988). If `Us` is above the utilisation at which
    /// misses begin, the first rise may pass that utilisation by one of FC-U's steps; later rises do not unless
    /// the gain is so high that FC-U overshoots.
    FcUmFast,
    /// Holds the utilisation, or a latency where that is lower: `step = min(Ku (Us - U), Kl max(1 - L / Ls, -1))`, with
    /// the measured quantile `L` of response times and its set point `Ls`; not in the paper.
    ///
    /// FCS/nORB names delays as future work (section 6). The error is relative, so `Kl` does not depend on the unit. It
    /// is limited to twice the set point: in overload a latency grows without a limit, and one sample must not empty
    /// the processor.
    FcUl,
    /// Holds the utilisations of a [group](crate::ControlGroup) of processors that end-to-end tasks couple, by one
    /// model-predictive controller.
    Eucon,
    /// As EUCON, but each processor has a controller, which uses only the processors of its own tasks.
    Deucon,
}

/// The algorithms of one processor and their descriptions: the table for files and docs.
pub static ALGORITHMS: [(FeedbackAlgorithm, &str, &str); 5] = [
    (FeedbackAlgorithm::FcU, "FC-U", "holds the utilisation"),
    (FeedbackAlgorithm::FcM, "FC-M", "holds the miss ratio, at almost full utilisation"),
    (FeedbackAlgorithm::FcUm, "FC-UM", "holds the utilisation; with too many misses, the miss ratio"),
    (FeedbackAlgorithm::FcUmFast, "FC-UM-fast", "as FC-UM, but without misses it rises as fast as FC-U"),
    (FeedbackAlgorithm::FcUl, "FC-UL", "holds the utilisation; with too long response times, the latency"),
];

/// The algorithms of a group of processors, in the order after [`ALGORITHMS`].
pub static GROUP_ALGORITHMS: [(FeedbackAlgorithm, &str, &str); 2] = [
    (FeedbackAlgorithm::Eucon, "EUCON", "holds the utilisations of several processors with one controller"),
    (FeedbackAlgorithm::Deucon, "DEUCON", "holds the utilisations of many processors with a controller for each"),
];

impl FeedbackAlgorithm {
    /// All, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = FeedbackAlgorithm> {
        ALGORITHMS.iter().chain(&GROUP_ALGORITHMS).map(|(algorithm, ..)| *algorithm)
    }

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<FeedbackAlgorithm> {
        FeedbackAlgorithm::all().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        let place = self as usize;
        ALGORITHMS.get(place).unwrap_or_else(|| &GROUP_ALGORITHMS[place - ALGORITHMS.len()]).1
    }

    /// Whether it controls a [group](crate::ControlGroup) of processors.
    pub const fn is_of_group(self) -> bool {
        matches!(self, FeedbackAlgorithm::Eucon | FeedbackAlgorithm::Deucon)
    }

    /// Whether it measures the utilisation.
    pub const fn uses_utilisation(self) -> bool {
        !matches!(self, FeedbackAlgorithm::FcM)
    }

    /// Whether it measures the miss ratio.
    pub const fn uses_miss_ratio(self) -> bool {
        matches!(self, FeedbackAlgorithm::FcM | FeedbackAlgorithm::FcUm | FeedbackAlgorithm::FcUmFast)
    }

    /// Whether it measures a latency.
    pub const fn uses_latency(self) -> bool {
        matches!(self, FeedbackAlgorithm::FcUl)
    }
}

/// The gains of the controlled system for which a loop is designed (FCS/nORB, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DesignGains {
    /// G_A: actual over estimated execution time, above 0.
    pub ga: f64,
    /// G_M: rise of the miss ratio for each unit of utilisation above the bound, above 0.
    pub gm: f64,
    /// G_L: rise of the latency, as a part of its set point, for each unit of utilisation near the set point, above 0.
    pub gl: f64,
}

impl DesignGains {
    /// The range of each.
    pub const RANGE: core::ops::RangeInclusive<f64> = 1e-6..=1e6;
}

impl Default for DesignGains {
    /// Those of FCS/nORB. For latencies, that of an M/M/1 queue at a utilisation of 75 %: `1 / (1 - U)`.
    fn default() -> Self {
        DesignGains { ga: 2.0, gm: 0.447, gl: 4.0 }
    }
}

/// The latency that a loop holds: a quantile of the response times of jobs in a sampling period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencySetPoint {
    /// Where it begins and ends.
    pub of: LatencyScope,
    /// The quantile, in parts per million, between 0 and 1,000,000, both excluded.
    pub quantile_ppm: u32,
    /// The set point, above 0.
    pub at: Span,
}

/// The jobs with a controlled latency. They end on the loop's processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatencyScope {
    /// Jobs of these operations, in the file's order, from where their deadlines count to their ends.
    Operations(Vec<OperationId>),
    /// A chain, by its place among the chains: from the release of its first operation, which is the only root of its
    /// last one, to the end of that.
    Chain(u32),
}

impl LatencySetPoint {
    /// The operations with the jobs that end it.
    pub fn ends<'a>(&'a self, contents: &'a Contents) -> &'a [OperationId] {
        match &self.of {
            LatencyScope::Operations(operations) => operations,
            LatencyScope::Chain(place) => contents
                .chains
                .get(*place as usize)
                .and_then(|chain| chain.path.last())
                .map_or(&[], core::slice::from_ref),
        }
    }

    /// Whether the latency of a job of `operation` begins at the release of its root.
    pub fn is_from_root(&self, contents: &Contents, operation: OperationId) -> bool {
        matches!(self.of, LatencyScope::Chain(_))
            || matches!(contents.setting(0, operation).deadline, Deadline::Origin(_))
    }

    /// The name of the chain or of the operation; of several operations the first one, and the number of further ones.
    pub fn name(&self, contents: &Contents) -> String {
        match &self.of {
            LatencyScope::Operations(operations) => {
                let first = operations.first().map_or("", |first| &contents.operation(*first).name);
                match operations.len() {
                    0 | 1 => first.into(),
                    all => format!("{first} and {} more", all - 1),
                }
            }
            LatencyScope::Chain(place) => contents.chains.get(*place as usize).map_or("", |chain| &chain.name).into(),
        }
    }
}

/// What counts as the utilisation of a processor in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoadMeasure {
    /// All time in which its CPU is not idle (FCS/nORB, section 3.2).
    #[default]
    Cpu,
    /// The CPU time of its own threads. Ordinary threads on the CPU do not count: lanes preempt them.
    Lanes,
}

/// The rates before the first sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartRates {
    /// All at their lowest, as in the paper's experiments.
    #[default]
    Lowest,
    /// All at their highest.
    Highest,
    /// These periods, one for each task, such as those that an earlier run has found.
    Given(Vec<Span>),
}

impl StartRates {
    /// The period of the task at `place` with this setting.
    pub fn period_of(&self, place: usize, setting: &Setting) -> Span {
        match self {
            StartRates::Lowest => setting.slowest,
            StartRates::Highest => setting.period,
            StartRates::Given(periods) => periods.get(place).copied().unwrap_or(setting.slowest),
        }
    }

    /// The level of a task with this number of service levels: the lowest, or the last with the highest rates.
    pub fn level_of(&self, levels: usize) -> usize {
        if *self == StartRates::Highest { levels.saturating_sub(1) } else { 0 }
    }
}

/// How a total utilisation is divided among operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RateDivision {
    /// In proportion; if one is at a limit, the rest absorbs the difference.
    #[default]
    Proportional,
    /// In proportion, clipped to the ranges: FCS/nORB's PRA.
    Clipped,
    /// The operations with the most importance for their execution time first.
    Value,
}

impl RateDivision {
    /// All of them.
    pub const ALL: [RateDivision; 3] = [RateDivision::Proportional, RateDivision::Clipped, RateDivision::Value];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            RateDivision::Proportional => "proportional",
            RateDivision::Clipped => "proportional-clipped",
            RateDivision::Value => "value",
        }
    }
}

impl FeedbackLoop {
    /// The period before the first sample of a root that it adapts.
    pub fn start_of(&self, contents: &Contents, root: OperationId) -> Span {
        if contents.operation(root).home.is_some() || contents.operation(root).standby {
            return contents.setting(0, root).slowest;
        }
        let place = match self.start {
            StartRates::Lowest | StartRates::Highest => 0,
            StartRates::Given(_) => {
                let place = contents.adapted_on(self.processor).iter().position(|one| one.root == root);
                place.unwrap_or(usize::MAX)
            }
        };
        self.start.period_of(place, contents.setting(0, root))
    }
}

/// The most service levels of an operation.
pub const MOST_SERVICE_LEVELS: usize = 8;

/// One of several ways to do the jobs of an operation, as in imprecise computation (Liu et al., "Algorithms for
/// Scheduling Imprecise Computations", IEEE Computer 24(5), 1991).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLevel {
    /// Its name: the body of a job reads it.
    pub name: String,
    /// The worst-case execution time of a job.
    pub wcet: Span,
    /// The worth of one job.
    pub value: u32,
}

/// A time that is declared for jobs of the last of these levels, at the level at `place`: in proportion to the worst
/// cases. The same without levels.
pub fn at_level(levels: &[ServiceLevel], place: usize, time: Span) -> Span {
    let (Some(level), Some(last)) = (levels.get(place), levels.last()) else { return time };
    let nanos = u128::from(time.as_nanos()) * u128::from(level.wcet.as_nanos());
    Span::from_nanos(u64::try_from(nanos / u128::from(last.wcet.as_nanos().max(1))).unwrap_or(u64::MAX))
}

impl FeedbackLoop {
    /// The level before the first sample of an operation with these levels: the lowest, or the last one if the loop
    /// starts at the highest rates.
    pub fn start_level(&self, levels: &[ServiceLevel]) -> usize {
        self.start.level_of(levels.len())
    }
}

/// Operations with one rate, which a loop sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptedOperations {
    /// The periodic operation with the range.
    pub root: OperationId,
    /// Itself and those that follow only it, as far as they are on the loop's processor.
    pub here: Vec<OperationId>,
    /// Those on other processors.
    pub elsewhere: Vec<OperationId>,
}

impl FeedbackLoop {
    /// The utilisation that it may hold, in parts per million of the CPU: its set point of the hard cap, or the whole
    /// hard cap if it does not control the utilisation.
    pub fn most_load_ppm(&self, hard_cap_ppm: u32) -> u64 {
        let set = if self.algorithm.uses_utilisation() { self.utilisation_ppm } else { 1_000_000 };
        u64::from(set) * u64::from(hard_cap_ppm) / 1_000_000
    }
}

impl Contents {
    /// The declared load of a processor in an epoch at the lowest rates and levels, in parts per million, rounded down.
    /// It includes as many registered clients as the file allows, and no operation that can only move here later, or
    /// that is on standby.
    pub fn least_load_ppm(&self, epoch: usize, processor: ProcessorId) -> u64 {
        let of_clients = self.with_clients_on(processor).filter_map(|id| {
            let clients = self.operation(id).clients.filter(|_| self.setting(epoch, id).enabled)?;
            let work = self.work_of_request(epoch, id).saturating_mul(u128::from(clients.most) * 1_000_000);
            u64::try_from(work / u128::from(clients.longest.as_nanos().max(1))).ok()
        });
        of_clients.fold(self.least_own_load_ppm(epoch, processor), u64::saturating_add)
    }

    /// The same without registered clients.
    pub fn least_own_load_ppm(&self, epoch: usize, processor: ProcessorId) -> u64 {
        let mut load = u128::from(self.utilisation_ppm(epoch, processor));
        let is_later = |id: OperationId| self.operation(id).home.is_some() || self.standby_root(id).is_some();
        let later = (0..self.operations.len() as u32)
            .map(OperationId)
            .filter(|id| self.operation(*id).on == processor && self.setting(epoch, *id).enabled && is_later(*id));
        for id in later {
            let setting = self.setting(epoch, id);
            let work = u128::from(setting.wcet.as_nanos()) * u128::from(setting.legs) * 1_000_000;
            load = load.saturating_sub(work / u128::from(setting.period.as_nanos().max(1)));
        }
        let adapted = self.adapted_on(processor).into_iter().flat_map(|one| one.here);
        for id in adapted.chain(self.with_levels_on(processor)) {
            let (setting, levels) = (self.setting(epoch, id), &self.operation(id).levels);
            if !setting.enabled || is_later(id) {
                continue;
            }
            let part = |wcet: Span, period: Span| {
                let work = u128::from(wcet.as_nanos()) * u128::from(setting.legs) * 1_000_000;
                work / u128::from(period.as_nanos().max(1))
            };
            let lowest = part(at_level(levels, 0, setting.wcet), setting.slowest);
            load = load.saturating_sub(part(setting.wcet, setting.period)) + lowest;
        }
        u64::try_from(load).unwrap_or(u64::MAX)
    }

    /// The roots that loops adapt, with the processor of their loop and the period before its first sample.
    pub fn adapted_roots(&self) -> Vec<(OperationId, ProcessorId, Span)> {
        let of_loop = |(root, place): (OperationId, usize)| {
            let one = &self.feedback[place];
            (root, one.processor, one.start_of(self, root))
        };
        self.rate_setters().into_iter().map(of_loop).collect()
    }

    /// The operations of a processor with clients that have adapted rates.
    pub fn with_clients_on(&self, processor: ProcessorId) -> impl Iterator<Item = OperationId> + '_ {
        let ids = (0..self.operations.len() as u32).map(OperationId);
        ids.filter(move |id| self.operation(*id).on == processor && self.operation(*id).clients.is_some())
    }

    /// The operations on its processor that each request of a client of this operation releases: itself, and those that
    /// follow only it.
    pub fn released_by_request(&self, id: OperationId) -> impl Iterator<Item = OperationId> + '_ {
        let ids = (0..self.operations.len() as u32).map(OperationId);
        ids.filter(move |one| self.operation(*one).on == self.operation(id).on && self.operation(*one).roots == [id])
    }

    /// The sum of their worst cases in an epoch, in nanoseconds.
    pub fn work_of_request(&self, epoch: usize, id: OperationId) -> u128 {
        let released = self.released_by_request(id).map(|one| self.setting(epoch, one));
        let work = |one: &Setting| u128::from(one.wcet.as_nanos()) * u128::from(one.legs);
        released.filter(|one| one.enabled).map(work).sum()
    }

    /// The operations of a processor with service levels and a fixed rate.
    pub fn with_levels_on(&self, processor: ProcessorId) -> impl Iterator<Item = OperationId> + '_ {
        let ids = (0..self.operations.len() as u32).map(OperationId);
        let chosen = move |id: &OperationId| {
            let one = self.operation(*id);
            one.on == processor && !one.levels.is_empty() && self.adapted_by(*id).is_none()
        };
        ids.filter(chosen)
    }

    /// Whether the loop of a processor has nothing to adapt.
    pub fn has_no_adapted_work(&self, processor: ProcessorId) -> bool {
        let mut others = self.with_clients_on(processor).chain(self.with_levels_on(processor));
        self.adapted_on(processor).is_empty() && others.next().is_none()
    }

    /// For each operation, whether a loop adapts the rate of one of its roots, or of a root's clients.
    pub fn follow_loops(&self) -> Vec<bool> {
        let setters = self.rate_setters();
        let follows = |root: &OperationId| setters.contains_key(root) || self.operation(*root).clients.is_some();
        self.operations.iter().map(|one| one.roots.iter().any(follows)).collect()
    }

    /// By root with an adapted rate: the position in `feedback` of the loop that sets it. In a group this is the loop
    /// of the root's processor. If that has none, it is the first loop with a part of the task, in the file's order of
    /// operations.
    pub fn rate_setters(&self) -> BTreeMap<OperationId, usize> {
        let mut loops = alloc::vec![None; self.processors.len()];
        self.feedback.iter().enumerate().for_each(|(place, one)| loops[one.processor.index()] = Some(place));
        let mut setters = BTreeMap::new();
        for id in (0..self.operations.len() as u32).map(OperationId) {
            let Some(place) = loops[self.operation(id).on.index()] else { continue };
            let Some(root) = self.adapted_by(id) else { continue };
            let setter = setters.entry(root).or_insert(place);
            if id == root {
                *setter = place;
            }
        }
        setters
    }

    /// The operations that a loop on `processor` adapts: periodic ones with a range of rates that run there, or lead to
    /// operations there that have no other root. In the file's order of roots.
    pub fn adapted_on(&self, processor: ProcessorId) -> Vec<AdaptedOperations> {
        let mut by_root: BTreeMap<OperationId, AdaptedOperations> = BTreeMap::new();
        for id in (0..self.operations.len() as u32).map(OperationId) {
            let Some(root) = self.adapted_by(id) else { continue };
            let new = || AdaptedOperations { root, here: Vec::new(), elsewhere: Vec::new() };
            let one = by_root.entry(root).or_insert_with(new);
            let is_here = self.operation(id).on == processor;
            if is_here { &mut one.here } else { &mut one.elsewhere }.push(id);
        }
        by_root.into_values().filter(|one| !one.here.is_empty()).collect()
    }
}
