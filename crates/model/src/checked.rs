//! A system that follows the rules on which all later crates rely.

use alloc::collections::BTreeSet;
use core::ops::Deref;

use crate::contract::{
    ConditionSource, Contract, ContractAction, ContractRegion, ContractSetting, ExternalAction, JobScope,
};
use crate::delegate::DelegatePlace;
use crate::feedback::{DesignGains, FeedbackLoop, LatencyScope, LatencySetPoint, MOST_SERVICE_LEVELS, StartRates};
use crate::ids::{HostId, OperationId, ProcessorId};
use crate::predicate::Predicate;
use crate::system::{Contents, Correlation, Environment, Link, Operation, Trigger};
use crate::time::Instant;

/// The most epochs: recordings and jobs number them in 16 bits.
pub const EPOCHS: usize = u16::MAX as usize;
/// The most operations that trigger one operation: completions number them in 16 bits.
pub const PREDECESSORS: usize = u16::MAX as usize;
/// The most operations after one that its completions choose: a choice is a set of 64 bits.
pub const CHOSEN: usize = 64;

/// A whole system: the meaning of one `system.toml`. Immutable; it dereferences to [`Contents`]. [`System::with`] makes
/// a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    contents: Contents,
}

impl System {
    /// A system of these contents. It does not look for trigger cycles, which file reading refuses.
    ///
    /// # Panics
    ///
    /// If the contents break a rule that file reading ensures:
    ///
    /// - there is at least one host, one processor and one epoch;
    /// - the first epoch begins at 0, and the others follow in order of time;
    /// - each epoch has one setting for each operation;
    /// - an epoch's links and hosts are in order, each at most once;
    /// - replicas are on other hosts than their operation, each at most once, in order;
    /// - an event's suppliers and consumers are in order, each at most once;
    /// - a gateway's events are in order, each at most once, with suppliers on its host;
    /// - there are at most 65,535 epochs, and as many triggers of an operation;
    /// - groups of a correlation are numbered in order, from 0;
    /// - copies of which the first triggers an operation have the release numbers of one root;
    /// - at most 64 operations are chosen by one operation;
    /// - a processor has at most one feedback loop, with a period, set points from 0 to 1, gains from 1e-6 to 1e6,
    ///   and an operation to adapt; given start rates are one for each;
    /// - the loops of a group have one period, and start at the lowest or the highest rates;
    /// - an operation has no service level, or 2 to 8, with rising worst cases and values that do not fall;
    /// - only triggered operations have a timeout or a lifespan;
    /// - further places of an operation follow it, have time as their trigger too, and are on its host;
    /// - an operation on standby has no [obstacle](Contents::obstacle_to_standby), and starts at its lowest rate;
    /// - epochs after the first one admit and withdraw operations on standby, each at most once;
    /// - each id is in range.
    pub fn new(contents: Contents) -> System {
        check(&contents);
        System { contents }
    }

    /// The contents, to build another system from.
    pub fn into_contents(self) -> Contents {
        self.contents
    }

    /// A system that differs from this one by `change`.
    ///
    /// # Panics
    ///
    /// If the changed contents break a rule of [`System::new`].
    pub fn with(mut self, change: impl FnOnce(&mut Contents)) -> System {
        change(&mut self.contents);
        System::new(self.contents)
    }
}

impl Deref for System {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

fn is_measurable(contents: &Contents, of: &FeedbackLoop, latency: &LatencySetPoint) -> bool {
    let ends = latency.ends(contents);
    let here = |id: &OperationId| contents.operations.get(id.index()).is_some_and(|one| one.on == of.processor);
    let valid = (1..1_000_000).contains(&latency.quantile_ppm) && !latency.at.is_zero();
    valid && !ends.is_empty() && ends.iter().all(here)
}

/// Panics if a rule of [`System::new`] is broken.
fn check(contents: &Contents) {
    assert!(!contents.hosts.is_empty(), "a system needs a host");
    assert!(!contents.processors.is_empty(), "a system needs a processor");
    assert!(contents.epochs.first().is_some_and(|first| first.at == Instant::ZERO), "a system needs an epoch at 0");
    assert!(contents.epochs.is_sorted_by_key(|epoch| epoch.at), "epochs must be in order of time");
    assert!(contents.epochs.len() <= EPOCHS, "a system has at most {EPOCHS} epochs");
    let host = |id: HostId| id.index() < contents.hosts.len();
    for epoch in &contents.epochs {
        let complete = epoch.settings.len() == contents.operations.len();
        assert!(complete, "epoch `{}` must have one setting for each operation", epoch.name);
        let Environment { links, disabled, conditions } = &*epoch.environment;
        assert!(conditions.len() <= contents.conditions.len(), "epoch `{}` must set known conditions", epoch.name);
        let known = disabled.iter().all(|id| host(*id))
            && links.iter().all(|(link, _)| (*link as usize) < contents.links.len());
        assert!(known, "epoch `{}` must set links and hosts of the system", epoch.name);
        let sorted = disabled.is_sorted_by(|one, next| one < next) && links.is_sorted_by(|one, next| one.0 < next.0);
        assert!(sorted, "epoch `{}` must set links and hosts once each, in their order", epoch.name);
    }
    for (place, one) in contents.operations.iter().enumerate() {
        let Some(home) = one.home else { continue };
        let first = contents.operations[..place].get(home.index()).filter(|first| first.home.is_none());
        let host = |on: ProcessorId| contents.processors.get(on.index()).map(|one| one.host);
        let alike = |first: &Operation| host(first.on) == host(one.on) && first.trigger == Trigger::Periodic;
        let before = place.checked_sub(1).map(|before| (OperationId(before as u32), contents.operations[before].home));
        let follows = before.is_some_and(|(before, its)| before == home || its == Some(home));
        let alike = first.is_some_and(alike) && follows && one.trigger == Trigger::Periodic;
        assert!(alike, "operation `{}` must follow a periodic operation on its host as a further place", one.name);
    }
    let operations = |ids: &[OperationId]| ids.iter().all(|id| id.index() < contents.operations.len());
    for one in &contents.processors {
        assert!(host(one.host), "processor `{}` must be on a host of the system", one.name);
    }
    for one in &contents.operations {
        let Operation { name, on, trigger, reads, roots, uses, timeout, lifespan, replication, .. } = one;
        assert!(on.index() < contents.processors.len(), "operation `{name}` must be on a processor of the system");
        let known = [trigger.predecessors(), reads, roots].into_iter().all(operations);
        assert!(known, "operation `{name}` must follow and read operations of the system");
        if let Trigger::Correlated(Correlation { predecessors, groups, .. }) = trigger {
            let follows = |pair: &[u16]| pair[1] == pair[0] || pair[1] == pair[0].saturating_add(1);
            let in_order = groups.first() == Some(&0) && groups.windows(2).all(follows);
            let in_order = in_order && groups.len() == predecessors.len();
            assert!(in_order, "operation `{name}` must number its groups in order");
        }
        let triggered = !trigger.predecessors().is_empty();
        let fits = triggered || timeout.or(*lifespan).is_none();
        assert!(fits, "operation `{name}` must have a trigger for its timeout or lifespan");
        let few = trigger.predecessors().len() <= PREDECESSORS;
        assert!(few, "operation `{name}` must have at most {PREDECESSORS} triggers");
        let elsewhere = |to: &HostId| host(*to) && *to != contents.processor(*on).host;
        let replicas = replication.as_ref().is_none_or(|replication| {
            !replication.to.is_empty()
                && replication.to.iter().all(elsewhere)
                && replication.to.is_sorted_by(|one, next| one < next)
        });
        assert!(replicas, "operation `{name}` must have replicas on other hosts, once each, in their order");
        let rising = one.levels.is_sorted_by(|one, next| one.wcet < next.wcet && one.value <= next.value);
        let positive = one.levels.iter().all(|level| !level.wcet.is_zero());
        let few = one.levels.len() != 1 && one.levels.len() <= MOST_SERVICE_LEVELS;
        assert!(rising && positive && few, "operation `{name}` must have levels with rising times and values");
        let known = uses.iter().all(|(resource, _)| resource.index() < contents.resources.len());
        assert!(known, "operation `{name}` must use resources of the system");
    }
    if let Some((to, _)) = contents.not_a_copy() {
        panic!("operation `{}` must follow copies with the release numbers of one root", contents.operation(to).name);
    }
    let mut chosen = alloc::collections::BTreeMap::<OperationId, usize>::new();
    let chooses = contents.operations.iter().filter(|one| matches!(one.trigger, Trigger::Chosen(_)));
    for id in chooses.flat_map(|one| one.trigger.predecessors()) {
        let count = chosen.entry(*id).or_default();
        *count += 1;
        assert!(*count <= CHOSEN, "operation `{}` must choose among at most {CHOSEN}", contents.operation(*id).name);
    }
    for (place, one) in contents.feedback.iter().enumerate() {
        let processors = contents.feedback[..place].iter().map(|other| other.processor);
        let known =
            one.processor.index() < contents.processors.len() && processors.into_iter().all(|id| id != one.processor);
        assert!(known, "a feedback loop must have a processor of its own");
        let name = &contents.processor(one.processor).name;
        let adapted = contents.adapted_on(one.processor).len();
        let idle = contents.has_no_adapted_work(one.processor);
        assert!(!idle, "the loop of processor `{name}` must have an operation to adapt");
        let gains = [one.gains.ga, one.gains.gm, one.gains.gl].iter().all(|gain| DesignGains::RANGE.contains(gain));
        let points = [
            (one.algorithm.uses_utilisation(), one.utilisation_ppm),
            (one.algorithm.uses_miss_ratio(), one.miss_ratio_ppm),
        ];
        let points = points.iter().all(|(used, ppm)| !used || (1..=1_000_000).contains(ppm));
        let latency = one.latency.as_ref().is_none_or(|latency| is_measurable(contents, one, latency));
        let latency = latency && one.latency.is_some() == one.algorithm.uses_latency();
        assert!(latency, "the loop of processor `{name}` must have a latency of its own operations if it controls one");
        assert!(gains && points && !one.period.is_zero(), "the loop of processor `{name}` must have valid settings");
        let starts = !matches!(&one.start, StartRates::Given(periods) if periods.len() != adapted);
        assert!(starts, "the loop of processor `{name}` must start with one period for each operation");
        let group =
            contents.feedback.iter().filter(|other| one.algorithm.is_of_group() && other.algorithm == one.algorithm);
        let alike = |other: &FeedbackLoop| {
            (other.period, &other.start) == (one.period, &one.start) && !matches!(one.start, StartRates::Given(_))
        };
        assert!(group.take(1).all(alike), "the loops of {} must have one period and start", one.algorithm.name());
    }
    for one in &contents.contracts {
        let name = &one.name;
        assert!(one.processor.index() < contents.processors.len(), "contract `{name}` must have a processor");
        assert!(!one.period.is_zero(), "contract `{name}` must have a period");
        assert!(is_levelled(one), "in contract `{name}`, only the last region of each level has no `enter`");
        assert!(has_known_parts(contents, one), "contract `{name}` must concern operations of the system");
    }
    check_standby(contents);
    for one in &contents.events {
        let known = operations(&one.suppliers) && operations(&one.consumers);
        assert!(known, "event `{}` must have suppliers and consumers of the system", one.name);
        let sorted = [&one.suppliers, &one.consumers].iter().all(|ids| ids.is_sorted_by(|one, next| one < next));
        assert!(sorted, "event `{}` must name suppliers and consumers once each, in their order", one.name);
    }
    for (id, one) in (0..).map(HostId).zip(&contents.hosts) {
        let is_here = |supplier: &OperationId| contents.processor(contents.operation(*supplier).on).host == id;
        let has_supplier =
            |event: &u32| contents.events.get(*event as usize).is_some_and(|event| event.suppliers.iter().any(is_here));
        let known = one
            .gateway
            .iter()
            .flat_map(|gateway| [&gateway.events, &gateway.publish])
            .all(|events| events.iter().all(has_supplier) && events.is_sorted_by(|one, next| one < next));
        assert!(known, "the gateway of host `{}` must have events of its suppliers, once each, in order", one.name);
    }
    for one in &contents.chains {
        assert!(operations(&one.path), "chain `{}` must lead along operations of the system", one.name);
    }
    for one in &contents.objects {
        let known = one.all_operations().all(|id| id.index() < contents.operations.len());
        assert!(known, "object `{}` must have operations of the system", one.name);
    }
    for one in &contents.delegates {
        let known = match &one.place {
            DelegatePlace::Servant(object) => {
                contents.objects.get(usize::from(*object)).is_some_and(|object| !object.operations.is_empty())
            }
            DelegatePlace::Proxy(proxy) => host(proxy.host),
        };
        assert!(known, "delegate `{}` must have an object or a host of the system", one.name);
    }
    for Link { between: (one, other), .. } in &contents.links {
        assert!(host(*one) && host(*other), "a link must be between hosts of the system");
    }
    for one in &contents.brokered.programs {
        assert!(host(one.host), "program `{}` must be on a host of the system", one.name);
    }
}

/// Whether each level of regions ends with its only region without `enter`, after the region that contains it.
fn is_levelled(contract: &Contract) -> bool {
    let regions = || (0..).zip(&contract.regions);
    let is_last = |(place, one): (u16, &ContractRegion)| {
        !regions().any(|(later, other)| later > place && other.rules.parent == one.rules.parent)
    };
    let conditions = contract.conditions.len();
    !contract.regions.is_empty()
        && regions().all(|(place, one)| {
            let rules = &one.rules;
            let mut used = rules.enter.iter().chain(&rules.leave).flat_map(Predicate::conditions);
            rules.parent.is_none_or(|parent| parent < place)
                && rules.enter.is_none() == is_last((place, one))
                && used.all(|condition| usize::from(condition) < conditions)
        })
}

fn has_known_parts(contents: &Contents, contract: &Contract) -> bool {
    let is_known = |id: &OperationId| id.index() < contents.operations.len();
    let are_together = |ids: &[OperationId]| {
        let on = |id: &OperationId| contents.operation(*id).on;
        !ids.is_empty() && ids.iter().all(is_known) && ids.iter().all(|id| on(id) == on(&ids[0]))
    };
    let measures = contract.conditions.iter().all(|condition| match &condition.of {
        ConditionSource::MissRatio(LatencyScope::Operations(ids))
        | ConditionSource::Latency(LatencyScope::Operations(ids))
        | ConditionSource::Lateness(LatencyScope::Operations(ids)) => are_together(ids),
        ConditionSource::MissRatio(LatencyScope::Chain(place))
        | ConditionSource::Latency(LatencyScope::Chain(place))
        | ConditionSource::Lateness(LatencyScope::Chain(place)) => {
            let chain = contents.chains.get(*place as usize);
            chain.and_then(|chain| chain.path.last()).is_some_and(is_known)
        }
        ConditionSource::Set(condition) => usize::from(*condition) < contents.conditions.len(),
        ConditionSource::Utilisation(processor) => processor.index() < contents.processors.len(),
        ConditionSource::Strategy(processor) | ConditionSource::Endangered(processor) => {
            contents.processors.get(processor.index()).is_some_and(|one| one.overload.is_some())
        }
        ConditionSource::Demand(of)
        | ConditionSource::Wasted(of)
        | ConditionSource::Usage(of)
        | ConditionSource::Rate(of)
        | ConditionSource::Queue(of) => match of {
            JobScope::Operations(ids) => are_together(ids),
            JobScope::Processor { processor, .. } => processor.index() < contents.processors.len(),
        },
    });
    let mut actions = contract.regions.iter().flat_map(|region| &region.actions);
    measures
        && actions.all(|action| match action {
            ContractAction::LimitPeriod { operation, shortest, longest } => is_known(operation) && shortest <= longest,
            ContractAction::LimitLegs { operation, most } => is_known(operation) && *most > 0,
            ContractAction::LimitLevel { operation, most } => {
                is_known(operation) && usize::from(*most) < contents.operation(*operation).levels.len()
            }
            ContractAction::Disable { operation } | ContractAction::Enable { operation } => is_known(operation),
            ContractAction::Admission { operation, .. } => {
                is_known(operation) && contents.operation(*operation).standby
            }
            ContractAction::Set { setting, to } => match setting {
                ContractSetting::Importance(operation) => is_known(operation),
                ContractSetting::Utilisation(processor) | ContractSetting::MissRatio(processor) => {
                    let mut loops = contents.feedback.iter().filter(|one| one.processor == *processor);
                    loops.any(|one| setting.is_controlled_by(one.algorithm)) && (1..=1_000_000).contains(to)
                }
                ContractSetting::Strategy(processor) => {
                    *to <= 1 && contents.processors.get(processor.index()).is_some_and(|one| one.overload.is_some())
                }
            },
            ContractAction::Report { .. } => true,
            ContractAction::External(ExternalAction::Reserve { program, setting, to }) => {
                let program = contents.brokered.programs.get(program.index());
                let most =
                    |program| if setting.is_bounded() { setting.declared(program) } else { Some(u32::MAX.into()) };
                program.and_then(most).is_some_and(|most| *to <= most)
            }
            ContractAction::External(ExternalAction::MarkLink { link, .. }) => {
                usize::from(*link) < contents.links.len()
            }
            ContractAction::External(ExternalAction::Behave { delegate, .. }) => {
                usize::from(*delegate) < contents.delegates.len()
            }
            ContractAction::External(ExternalAction::Run { command }) => !command.is_empty(),
            ContractAction::External(ExternalAction::Call { .. }) => true,
        })
}

/// Panics if a rule for operations on standby is broken.
fn check_standby(contents: &Contents) {
    for id in (0..contents.operations.len() as u32).map(OperationId).filter(|id| contents.operation(*id).standby) {
        let name = &contents.operation(id).name;
        if let Some(why) = contents.obstacle_to_standby(id) {
            panic!("operation `{name}` cannot be on standby: {why}");
        }
        let on = contents.operation(id).on;
        let given = contents.feedback.iter().find(|one| one.processor == on).map(|one| &one.start);
        if let Some(StartRates::Given(periods)) = given {
            let place = contents.adapted_on(on).iter().position(|one| one.root == id);
            let start = place.and_then(|place| periods.get(place));
            let slowest = contents.setting(0, id).slowest;
            assert!(start == Some(&slowest), "operation `{name}` on standby must start at its lowest rate");
        }
    }
    for (place, epoch) in contents.epochs.iter().enumerate() {
        let mut named = BTreeSet::new();
        let on_standby = |id: &OperationId| contents.operations.get(id.index()).is_some_and(|one| one.standby);
        let known = epoch.admissions.operations().all(|id| place > 0 && on_standby(&id) && named.insert(id));
        assert!(known, "epoch `{}` must admit or withdraw operations on standby, once each", epoch.name);
    }
}
