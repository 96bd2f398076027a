//! Contracts: conditions, operating regions over them, and what to do in each region.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::delegate::DeclaredBehaviour;
use crate::feedback::{FeedbackAlgorithm, LatencyScope};
use crate::ids::{HostId, OperationId, ProcessorId, ProgramId};
use crate::network::Dscp;
use crate::outside::{LinkMeasure, OutsideMeasure};
use crate::predicate::Predicate;
use crate::program::ReservationSetting;
use crate::reservation::Share;
use crate::system::Contents;
use crate::time::Span;

/// A contract, as QuO has them: regions over conditions, which the dispatcher of one processor evaluates. Its
/// conditions and settings may be those of other processors.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// Its name.
    pub name: String,
    /// Where it is evaluated.
    pub processor: ProcessorId,
    /// Settings of a contract with a higher precedence restrict those of lower ones.
    pub precedence: u32,
    /// The time between two evaluations.
    pub period: Span,
    /// The conditions, by the positions in its expressions.
    pub conditions: Vec<Condition>,
    /// In file order; those within a region follow it.
    pub regions: Vec<ContractRegion>,
}

/// A measured condition of a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Its name in expressions.
    pub name: String,
    /// What is measured.
    pub of: ConditionSource,
    /// How the samples of a window become one value.
    pub summary: WindowSummary,
    /// The length of the window; `None`: the latest sample counts.
    pub over: Option<Span>,
    /// An older sample is stale; `None`: at no age.
    pub max_age: Option<Span>,
}

impl Condition {
    /// The time between two samples of a measured value: a second, or a longer period of the contract. It is shorter for
    /// a short window or a short age, but at least 100 ms.
    pub fn sampled_every(&self, period: Span) -> Span {
        let part = |of: Option<Span>, parts| of.map_or(u64::MAX, |of| of.as_nanos() / parts);
        let longest = part(self.over, 4).min(part(self.max_age, 2));
        Span::from_secs(1).max(period).min(Span::from_nanos(longest)).max(Span::from_millis(100))
    }
}

/// What a condition measures.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionSource {
    /// 1 for each job that ended late, was cancelled or dropped, and 0 for each one in time.
    MissRatio(LatencyScope),
    /// Response times in seconds.
    Latency(LatencyScope),
    /// End minus deadline in seconds; negative if a job ended early.
    Lateness(LatencyScope),
    /// A value from outside, by its position in [`Contents::conditions`].
    Set(u16),
    /// The utilisation that the processor's feedback loop measures, as a part of the hard cap.
    Utilisation(ProcessorId),
    /// The execution time of released jobs, as a part of the window.
    Demand(JobScope),
    /// The execution time of jobs that ended late, as a part of the window.
    Wasted(JobScope),
    /// The CPU time of jobs that ended, as a part of the window.
    Usage(JobScope),
    /// Completed jobs for each second of the window.
    Rate(JobScope),
    /// Released jobs that have not started.
    Queue(JobScope),
    /// 1 while the second of two strategies is in force, and 0 otherwise.
    Strategy(ProcessorId),
    /// 1 for each release and completion at which a critical job is endangered (see [`Overload`](crate::Overload)), and
    /// 0 for each other one.
    Endangered(ProcessorId),
}

/// The jobs that a condition counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobScope {
    /// Those of these operations.
    Operations(Vec<OperationId>),
    /// All jobs of the processor, or its critical ones.
    Processor {
        /// The processor.
        processor: ProcessorId,
        /// Only critical jobs.
        critical: bool,
    },
}

impl ConditionSource {
    /// True if the value is a sum over the window, so it has no least or greatest sample.
    pub fn is_sum(&self) -> bool {
        use ConditionSource::{Demand, Rate, Usage, Wasted};
        matches!(self, Demand(_) | Wasted(_) | Usage(_) | Rate(_))
    }
}

/// How the samples of a window become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSummary {
    /// The mean by weight: a ratio, such as misses by jobs.
    Mean,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
    /// The greatest value less the least one: the jitter of a latency.
    Spread,
}

impl WindowSummary {
    /// All, in the order of their names in files: `mean`, `least`, `greatest`, `spread`.
    pub const ALL: [WindowSummary; 4] =
        [WindowSummary::Mean, WindowSummary::Least, WindowSummary::Greatest, WindowSummary::Spread];
}

/// A region of a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractRegion {
    /// Its name, unique in the contract.
    pub name: String,
    /// When it begins and ends.
    pub rules: RegionRules,
    /// How long its limits of rates relax after its end, in steps of the contract's period.
    pub ramp: Span,
    /// What holds while it is active.
    pub actions: Vec<ContractAction>,
}

/// What holds while a region is active, or happens when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContractAction {
    /// The period of a periodic operation, and so of the operations that follow only it, has these limits.
    LimitPeriod {
        /// The operation.
        operation: OperationId,
        /// The shortest period.
        shortest: Span,
        /// The longest period.
        longest: Span,
    },
    /// The instances of a load chain that begin have at most this number of legs.
    LimitLegs {
        /// The operation.
        operation: OperationId,
        /// The number.
        most: u16,
    },
    /// The feedback loop chooses among the service levels of an operation up to this one.
    LimitLevel {
        /// The operation.
        operation: OperationId,
        /// The place of the greatest level.
        most: u8,
    },
    /// Nothing releases the operation.
    Disable {
        /// The operation.
        operation: OperationId,
    },
    /// The operation is not disabled by outer regions, nor by contracts with a lower precedence.
    Enable {
        /// The operation.
        operation: OperationId,
    },
    /// A setting has this value.
    Set {
        /// The setting.
        setting: ContractSetting,
        /// Its value.
        to: u32,
    },
    /// When the region begins, the feedback loop of the processor admits an operation on standby, if it can, or withdraws
    /// it.
    Admission {
        /// The operation.
        operation: OperationId,
        /// False: it is withdrawn.
        admit: bool,
    },
    /// Reports have this text with the begin of the region.
    Report {
        /// The text.
        text: Box<str>,
    },
    /// The node does this outside of the dispatcher.
    External(ExternalAction),
}

/// A setting with one value. If several regions are active, the highest precedence applies, and within a contract the
/// inner region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContractSetting {
    /// The importance of an operation, for its later jobs.
    Importance(OperationId),
    /// The set point of the utilisation of a processor's feedback loop, in parts per million of the hard cap.
    Utilisation(ProcessorId),
    /// The set point of the miss ratio of a processor's feedback loop, in parts per million.
    MissRatio(ProcessorId),
    /// The strategy in force on a processor with two: 0 is the first one, 1 the second.
    Strategy(ProcessorId),
}

impl ContractSetting {
    /// The processor that applies it.
    pub fn processor(self, contents: &Contents) -> ProcessorId {
        match self {
            ContractSetting::Importance(operation) => contents.operation(operation).on,
            ContractSetting::Utilisation(processor)
            | ContractSetting::MissRatio(processor)
            | ContractSetting::Strategy(processor) => processor,
        }
    }

    /// Whether it is a set point of a loop with this algorithm. A group of processors has its set points together.
    pub fn is_controlled_by(self, algorithm: FeedbackAlgorithm) -> bool {
        !algorithm.is_of_group()
            && match self {
                ContractSetting::Utilisation(_) => algorithm.uses_utilisation(),
                ContractSetting::MissRatio(_) => algorithm.uses_miss_ratio(),
                ContractSetting::Importance(_) | ContractSetting::Strategy(_) => false,
            }
    }

    /// As in files: `operation.track.importance`.
    pub fn address(self, contents: &Contents) -> String {
        let of = |section, processor, key| format!("{section}.{}.{key}", contents.processor(processor).name);
        match self {
            ContractSetting::Importance(operation) => {
                format!("operation.{}.importance", contents.operation(operation).name)
            }
            ContractSetting::Utilisation(processor) => of("feedback", processor, "utilisation"),
            ContractSetting::MissRatio(processor) => of("feedback", processor, "miss_ratio"),
            ContractSetting::Strategy(processor) => of("processor", processor, "strategy"),
        }
    }

    /// A value of it, as in files.
    pub fn text(self, contents: &Contents, to: u32) -> String {
        match self {
            ContractSetting::Importance(_) => to.to_string(),
            ContractSetting::Utilisation(_) | ContractSetting::MissRatio(_) => {
                Share::from_millionths(to.into()).to_string()
            }
            ContractSetting::Strategy(processor) => {
                let processor = contents.processor(processor);
                let second = processor.overload.as_ref().filter(|_| to > 0);
                second.map_or(&processor.strategy, |second| &second.strategy).clone()
            }
        }
    }
}

/// What a node does outside of the dispatcher when a region begins. Simulations and replays only list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalAction {
    /// The program's callback of this name is called.
    Call {
        /// The name.
        callback: Box<str>,
    },
    /// An external command runs.
    Run {
        /// The program and its arguments, at least one word.
        command: Vec<Box<str>>,
    },
    /// The CPU broker uses this value for a program while the region is active.
    Reserve {
        /// The program.
        program: ProgramId,
        /// What is set.
        setting: ReservationSetting,
        /// Its value, in the unit of the setting.
        to: u64,
    },
    /// While the region is active, the nodes of a link send completions that are not critical with this class.
    MarkLink {
        /// The position of the link in [`Contents::links`].
        link: u16,
        /// The class.
        dscp: Dscp,
    },
    /// A delegate has this behaviour while the region is active.
    Behave {
        /// The delegate, by its position.
        delegate: u16,
        /// An operation of its interface, or [`ALL_OPERATIONS`](crate::ALL_OPERATIONS).
        operation: Box<str>,
        /// The behaviour.
        behaviour: DeclaredBehaviour,
    },
}

impl ExternalAction {
    /// As in reports: `call land`, `run notify-send low`, `reservation.player.importance = 9`.
    pub fn text(&self, contents: &Contents) -> String {
        match self {
            ExternalAction::Call { callback } => format!("call {callback}"),
            ExternalAction::Run { command } => format!("run {}", command.join(" ")),
            ExternalAction::Reserve { program, setting, to } => {
                let program = &contents.brokered.programs[program.index()].name;
                format!("reservation.{program}.{} = {}", setting.key(), setting.text(*to))
            }
            ExternalAction::MarkLink { link, dscp } => {
                let (one, other) = contents.links[usize::from(*link)].between;
                let [one, other] = [one, other].map(|host| &contents.hosts[host.index()].name);
                format!("link.{one}-{other}.dscp = {dscp}")
            }
            ExternalAction::Behave { delegate, operation, behaviour } => {
                let delegate = &contents.delegates[usize::from(*delegate)].name;
                format!("delegate.{delegate}.{operation} = {behaviour}")
            }
        }
    }
}

impl ContractAction {
    /// How reports name what happens when the region begins: a text that it reports, `admit zoom`, `call land`,
    /// `feedback.main.utilisation = 50%`. `None` if it limits or disables an operation.
    pub fn at_begin(&self, contents: &Contents) -> Option<String> {
        match self {
            ContractAction::Report { text } => Some(text.to_string()),
            ContractAction::External(action) => Some(action.text(contents)),
            ContractAction::Admission { operation, admit } => {
                let what = if *admit { "admit" } else { "withdraw" };
                Some(format!("{what} {}", contents.operation(*operation).name))
            }
            ContractAction::Set { setting, to } => {
                Some(format!("{} = {}", setting.address(contents), setting.text(contents, *to)))
            }
            ContractAction::LimitPeriod { .. }
            | ContractAction::LimitLegs { .. }
            | ContractAction::LimitLevel { .. }
            | ContractAction::Disable { .. }
            | ContractAction::Enable { .. } => None,
        }
    }
}

impl Contract {
    /// Its actions outside of the dispatcher, each with the position of its region.
    pub fn external_actions(&self) -> impl Iterator<Item = (u16, &ExternalAction)> {
        (0..).zip(&self.regions).flat_map(|(place, region)| {
            region.actions.iter().filter_map(move |action| match action {
                ContractAction::External(action) => Some((place, action)),
                _ => None,
            })
        })
    }
}

/// A value of a contract that one processor computes and another one needs, on the same host or on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractRoute {
    /// The contract, by its position.
    pub contract: u16,
    /// The value.
    pub content: RouteContent,
    /// The processor that sends it, each period of the contract.
    pub from: ProcessorId,
    /// The processor that needs it.
    pub to: ProcessorId,
}

/// What a [`ContractRoute`] carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteContent {
    /// A condition, by its position in the contract, to the processor that evaluates it.
    Condition(u16),
    /// The active regions, to a processor with settings, as [`value_of_regions`].
    Regions,
}

/// When a region begins and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionRules {
    /// The region that contains it, which is earlier in the list; `None` at the outer level.
    pub parent: Option<u16>,
    /// True when it begins. `None` in the last region of each level, which is active if no other is.
    pub enter: Option<Predicate>,
    /// True when it may end. `None`: as soon as `enter` is false.
    pub leave: Option<Predicate>,
    /// How long `enter` must hold.
    pub hold: Span,
    /// How long it is active at least, before a region below it follows.
    pub stay: Stay,
    /// True: only a command ends it.
    pub latch: bool,
}

/// The least time in a region. It grows if the region is entered again soon after its end: then leaving it was a probe
/// that failed. *Soon* is within its last `stay`, or within the time that a feedback loop needs to settle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// The time at first.
    pub first: Span,
    /// The factor, at least 1, if the region begins again soon.
    pub grow: u32,
    /// The longest time.
    pub most: Span,
    /// [`Stay::SETTLING`] sampling periods of the slowest loop with rates, levels or set points that the region changes.
    /// After its end, this loop raises its rates slowly.
    pub settling: Span,
}

impl Stay {
    /// Always the same time.
    pub const fn constant(stay: Span) -> Stay {
        Stay { first: stay, grow: 1, most: stay, settling: Span::ZERO }
    }

    /// The sampling periods in which a loop settles, also with jobs of a third of their worst case.
    pub const SETTLING: u64 = 50;

    /// Whether a begin is soon after the end of the last `stay`.
    pub fn is_soon(&self, last: Span, gap: Span) -> bool {
        gap < last.max(self.settling)
    }

    /// The next time after the last one, if the region ended by `leave` and begins again after this gap.
    pub fn next(&self, last: Span, gap: Option<Span>) -> Span {
        match gap {
            Some(gap) if self.is_soon(last, gap) => {
                last.checked_mul(self.grow.into()).unwrap_or(self.most).min(self.most).max(self.first)
            }
            _ => self.first,
        }
    }
}

impl Contract {
    /// Whether it watches or pins one of two strategies.
    pub fn needs_two_strategies(&self) -> bool {
        let pins = |action: &ContractAction| {
            matches!(action, ContractAction::Set { setting: ContractSetting::Strategy(_), .. })
        };
        let watches = |one: &Condition| matches!(one.of, ConditionSource::Strategy(_) | ConditionSource::Endangered(_));
        self.conditions.iter().any(watches) || self.regions.iter().flat_map(|region| &region.actions).any(pins)
    }

    /// The processor that measures one of its conditions. A value from outside is set where the contract is evaluated.
    pub fn measured_on(&self, contents: &Contents, of: &ConditionSource) -> ProcessorId {
        let last = match of {
            ConditionSource::MissRatio(scope) | ConditionSource::Latency(scope) | ConditionSource::Lateness(scope) => {
                match scope {
                    LatencyScope::Operations(ids) => ids.last(),
                    LatencyScope::Chain(place) => contents.chains[*place as usize].path.last(),
                }
            }
            ConditionSource::Demand(scope)
            | ConditionSource::Wasted(scope)
            | ConditionSource::Usage(scope)
            | ConditionSource::Rate(scope)
            | ConditionSource::Queue(scope) => match scope {
                JobScope::Operations(ids) => ids.last(),
                JobScope::Processor { processor, .. } => return *processor,
            },
            ConditionSource::Utilisation(processor)
            | ConditionSource::Strategy(processor)
            | ConditionSource::Endangered(processor) => return *processor,
            ConditionSource::Set(condition) => {
                let measure = contents.conditions[usize::from(*condition)].measure;
                return measure.map_or(self.processor, |measure| self.sampled_on(contents, measure));
            }
        };
        last.map_or(self.processor, |id| contents.operation(*id).on)
    }

    /// The processor that receives the samples of a measure. An end of a link measures it: its own host, or else the
    /// first one of the two with a processor.
    fn sampled_on(&self, contents: &Contents, measure: OutsideMeasure) -> ProcessorId {
        let host = match measure {
            OutsideMeasure::Link(LinkMeasure { link, .. }) => {
                let (one, other) = contents.links[usize::from(link)].between;
                let own = contents.processor(self.processor).host;
                if other == own || !contents.has_processor(one) { other } else { one }
            }
            _ => measure.host(contents),
        };
        self.processor_on(contents, host)
    }

    /// Its own processor, if that is on the host; otherwise the first one there.
    pub fn processor_on(&self, contents: &Contents, host: HostId) -> ProcessorId {
        let is_there = |id: &ProcessorId| contents.processor(*id).host == host;
        let all = (0..contents.processors.len() as u32).map(ProcessorId);
        core::iter::once(self.processor).chain(all).find(is_there).unwrap_or(self.processor)
    }

    /// The processors that apply its settings. Operations that follow a rate may be on other processors than its root.
    fn set_on(&self, contents: &Contents) -> BTreeSet<ProcessorId> {
        let (mut limited, mut set, mut found) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for action in self.regions.iter().flat_map(|region| &region.actions) {
            match action {
                ContractAction::LimitPeriod { operation, .. } => _ = limited.insert(*operation),
                ContractAction::Disable { operation }
                | ContractAction::Enable { operation }
                | ContractAction::LimitLegs { operation, .. }
                | ContractAction::LimitLevel { operation, .. }
                | ContractAction::Admission { operation, .. } => _ = set.insert(*operation),
                ContractAction::Set { setting, .. } => _ = found.insert(setting.processor(contents)),
                ContractAction::External(ExternalAction::Reserve { program, .. }) => {
                    let host = contents.brokered.programs[program.index()].host;
                    found.insert(self.processor_on(contents, host));
                }
                ContractAction::External(ExternalAction::MarkLink { link, .. }) => {
                    let (one, other) = contents.links[usize::from(*link)].between;
                    let hosts = [one, other].into_iter().filter(|host| contents.has_processor(*host));
                    found.extend(hosts.map(|host| self.processor_on(contents, host)));
                }
                ContractAction::External(ExternalAction::Behave { delegate, .. }) => {
                    found.insert(contents.delegates[usize::from(*delegate)].processor(contents));
                }
                ContractAction::Report { .. } | ContractAction::External(_) => {}
            }
        }
        let follows = |id: &OperationId| contents.adapted_by(*id).is_some_and(|root| limited.contains(&root));
        let all = (0..contents.operations.len() as u32).map(OperationId);
        let concerned = all.filter(|id| set.contains(id) || follows(id));
        found.extend(concerned.map(|id| contents.operation(id).on));
        found
    }
}

impl ContractRoute {
    /// Whether it can carry a value: any condition, but only regions of the contract, as [`RouteContent::Regions`] has
    /// them.
    pub fn carries(&self, contents: &Contents, value: i64) -> bool {
        let regions = contents.contracts[usize::from(self.contract)].regions.len();
        matches!(self.content, RouteContent::Condition(_)) || regions_of(value, regions).is_some()
    }
}

/// Up to two active regions as one number: of each, its position plus 1, in 16 bits; outer regions first.
pub fn value_of_regions(active: impl Iterator<Item = u16>) -> i64 {
    active.zip([0, 16]).map(|(region, shift)| (i64::from(region) + 1) << shift).sum()
}

/// The regions of such a number; `None` if a contract with `regions` regions has no such one.
pub fn regions_of(value: i64, regions: usize) -> Option<[Option<u16>; 2]> {
    let region = |shift: u32| match value >> shift & 0xffff {
        0 => Some(None),
        number => u16::try_from(number - 1).ok().filter(|one| usize::from(*one) < regions).map(Some),
    };
    let found = [region(0)?, region(16)?];
    (value >> 32 == 0).then_some(found)
}

impl Contents {
    /// The uses of a value from outside in contracts, by its position in [`Contents::conditions`].
    pub fn uses_of_condition(&self, place: u16) -> impl Iterator<Item = (&Contract, &Condition)> {
        let all = self.contracts.iter().flat_map(|one| one.conditions.iter().map(move |condition| (one, condition)));
        all.filter(move |(_, condition)| condition.of == ConditionSource::Set(place))
    }

    /// The values of contracts that one host sends to another, with their positions.
    pub fn contract_routes_between(&self, from: HostId, to: HostId) -> Vec<(u16, ContractRoute)> {
        let host = |processor: ProcessorId| self.processor(processor).host;
        let between = |route: &ContractRoute| host(route.from) == from && host(route.to) == to && from != to;
        (0..).zip(self.contract_routes()).filter(|(_, route)| between(route)).collect()
    }

    /// The values of contracts that processors send each other, in a fixed order.
    pub fn contract_routes(&self) -> Vec<ContractRoute> {
        let mut routes = Vec::new();
        for (contract, one) in (0..).zip(&self.contracts) {
            for (condition, declared) in (0..).zip(&one.conditions) {
                let (from, to) = (one.measured_on(self, &declared.of), one.processor);
                let content = RouteContent::Condition(condition);
                routes.extend((from != to).then_some(ContractRoute { contract, content, from, to }));
            }
            let to = one.set_on(self);
            let settings = to.into_iter().filter(|to| *to != one.processor);
            routes.extend(settings.map(|to| ContractRoute {
                contract,
                content: RouteContent::Regions,
                from: one.processor,
                to,
            }));
        }
        routes
    }

    /// The contracts that a processor evaluates, measures for, or has settings of: by their positions, from the highest
    /// precedence to the lowest. Contracts that set the same have different ones.
    pub fn contracts_on(&self, processor: ProcessorId) -> Vec<u16> {
        let concerned = |one: &Contract| {
            one.processor == processor
                || one.conditions.iter().any(|condition| one.measured_on(self, &condition.of) == processor)
                || one.set_on(self).contains(&processor)
        };
        let here = (0..).zip(&self.contracts).filter(|(_, one)| concerned(one));
        let mut places: Vec<u16> = here.map(|(place, _)| place).collect();
        places.sort_by_key(|place| core::cmp::Reverse(self.contracts[usize::from(*place)].precedence));
        places
    }

    /// By operation: whether a contract limits the rate of one of its roots, or disables it or limits its legs, or those of
    /// an operation before it.
    pub fn follow_contracts(&self) -> Vec<bool> {
        let (mut limited, mut follow) = (Vec::new(), alloc::vec![false; self.operations.len()]);
        let regions = self.contracts.iter().flat_map(|one| &one.regions);
        for action in regions.flat_map(|region| &region.actions) {
            match action {
                ContractAction::LimitPeriod { operation, .. } => limited.push(*operation),
                ContractAction::Disable { operation } | ContractAction::LimitLegs { operation, .. } => {
                    follow[operation.index()] = true;
                }
                ContractAction::LimitLevel { .. }
                | ContractAction::Enable { .. }
                | ContractAction::Set { .. }
                | ContractAction::Admission { .. }
                | ContractAction::Report { .. }
                | ContractAction::External(_) => {}
            }
        }
        let mut changed = follow.contains(&true);
        while core::mem::take(&mut changed) {
            for (place, operation) in self.operations.iter().enumerate() {
                if !follow[place] && operation.trigger.predecessors().iter().any(|id| follow[id.index()]) {
                    (follow[place], changed) = (true, true);
                }
            }
        }
        for (follow, operation) in follow.iter_mut().zip(&self.operations) {
            *follow |= operation.roots.iter().any(|root| limited.contains(root));
        }
        follow
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn active_regions_are_one_number() {
        for (regions, expected) in [(vec![], [None; 2]), (vec![0], [Some(0), None]), (vec![3, 63], [Some(3), Some(63)])]
        {
            assert_eq!(regions_of(value_of_regions(regions.into_iter()), 64), Some(expected));
        }
        for value in [65, 65 << 16, 1 << 32, -1, i64::MIN] {
            assert_eq!(regions_of(value, 64), None, "{value}");
        }
    }
}
