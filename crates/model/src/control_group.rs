//! Groups of processors that end-to-end tasks couple, under EUCON or DEUCON.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::feedback::{FeedbackAlgorithm, FeedbackLoop};
use crate::ids::{HostId, OperationId, ProcessorId};
use crate::system::Contents;
use crate::time::Span;

/// All processors with a loop of one group algorithm. Their controllers set the rates of all tasks that have a part on
/// one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// [`Eucon`](FeedbackAlgorithm::Eucon) or [`Deucon`](FeedbackAlgorithm::Deucon).
    pub algorithm: FeedbackAlgorithm,
    /// The positions of its loops in [`Contents::feedback`], in order. A *member* is a position in this list.
    pub loops: Vec<usize>,
    /// The tasks, in the file's order of roots.
    pub tasks: Vec<GroupTask>,
}

/// A periodic operation with a range of rates, and all operations that follow only it: one rate for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTask {
    /// The periodic operation.
    pub root: OperationId,
    /// The member that sets its rate under DEUCON: the one of the root's processor, or else the first with a part.
    pub owner: usize,
    /// The operations on the processors of members.
    pub parts: Vec<(usize, OperationId)>,
    /// The operations on other processors. Nothing controls the load there.
    pub outside: Vec<OperationId>,
}

/// The inputs and outputs of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlNode {
    /// The member on whose processor it is.
    pub at: usize,
    /// The members whose utilisation it uses, in order.
    pub members: Vec<usize>,
    /// The positions of the tasks that it controls.
    pub tasks: Vec<usize>,
}

/// The most tasks that one controller can have. With these limits, a plan needs about 20 ms.
pub const MOST_CONTROLLED_TASKS: usize = 64;
/// The most processors that one controller can use.
pub const MOST_CONTROLLED_PROCESSORS: usize = 32;

/// How often each controller of DEUCON plans in a sampling period, if there are several.
pub const PLANNING_ROUNDS: usize = 4;
/// The part of a sampling period that the steps of a group may need by [`ControlGroup::step_cost`]: one tenth.
pub const STEP_PART: u64 = 10;

impl ControlNode {
    /// The estimated CPU time of one plan: `50 us + 10 us (n + m) + 2.5 us n (n + 2 m)` for `n` tasks on `m`
    /// processors. With the options of tests, our measurements of problems without zeros are 6 to 50 % shorter
    /// (`docs/benchmarks.md`).
    pub fn plan_cost(&self) -> Span {
        let [tasks, members] = [self.tasks.len(), self.members.len()].map(|count| count as u64);
        Span::from_nanos(50_000 + 10_000 * (tasks + members) + 2_500 * tasks * (tasks + 2 * members))
    }
}

impl ControlGroup {
    /// The estimated CPU time of a step of all controllers, which one thread computes.
    pub fn step_cost(&self) -> Span {
        let nodes = self.nodes();
        let rounds = if nodes.len() > 1 { PLANNING_ROUNDS as u64 } else { 1 };
        let plans = nodes.iter().map(|node| node.plan_cost().as_nanos()).fold(0, u64::saturating_add);
        Span::from_nanos(plans.saturating_mul(rounds))
    }

    /// The shortest sampling period for [`ControlGroup::step_cost`].
    pub fn shortest_period(&self) -> Span {
        Span::from_nanos(self.step_cost().as_nanos().saturating_mul(STEP_PART))
    }

    /// Its controllers: one for EUCON, and for DEUCON one for each member with tasks.
    pub fn nodes(&self) -> Vec<ControlNode> {
        let members = (0..self.loops.len()).collect();
        if self.algorithm != FeedbackAlgorithm::Deucon {
            return alloc::vec![ControlNode { at: 0, members, tasks: (0..self.tasks.len()).collect() }];
        }
        let mut nodes: BTreeMap<usize, ControlNode> = BTreeMap::new();
        for (place, task) in self.tasks.iter().enumerate() {
            let new = || ControlNode { at: task.owner, members: Vec::new(), tasks: Vec::new() };
            let node = nodes.entry(task.owner).or_insert_with(new);
            node.tasks.push(place);
            node.members.extend(task.parts.iter().map(|(member, _)| *member));
        }
        let mut nodes: Vec<ControlNode> = nodes.into_values().collect();
        for node in &mut nodes {
            node.members.sort_unstable();
            node.members.dedup();
        }
        nodes
    }
}

impl GroupTask {
    /// All its operations.
    pub fn operations(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.parts.iter().map(|(_, id)| *id).chain(self.outside.iter().copied())
    }

    /// The declared execution time of one job on the processor of a member, with all legs. 0 if nothing is enabled.
    pub fn demand(&self, contents: &Contents, epoch: usize, member: usize) -> Span {
        let here = self.parts.iter().filter(|(at, _)| *at == member);
        let work = here
            .map(|(_, id)| contents.setting(epoch, *id))
            .filter(|setting| setting.enabled)
            .map(|setting| setting.wcet.as_nanos().saturating_mul(setting.legs.into()));
        Span::from_nanos(work.fold(0, u64::saturating_add))
    }
}

impl Contents {
    /// The groups: at most one for each group algorithm.
    pub fn control_groups(&self) -> Vec<ControlGroup> {
        let group = |algorithm| {
            let loops = self.feedback.iter().enumerate().filter(|(_, one)| one.algorithm == algorithm);
            let loops: Vec<usize> = loops.map(|(place, _)| place).collect();
            (!loops.is_empty()).then(|| self.control_group(algorithm, loops))
        };
        FeedbackAlgorithm::all().filter(|one| one.is_of_group()).filter_map(group).collect()
    }

    /// The processor whose host computes the rates of a loop: its own one, or that of the first loop of its group.
    pub fn computed_on(&self, one: &FeedbackLoop) -> ProcessorId {
        let of_group = one.algorithm.is_of_group();
        let first = self.feedback.iter().find(|other| of_group && other.algorithm == one.algorithm);
        first.unwrap_or(one).processor
    }

    /// The rates that one host computes for another: by root, the processors of that host with operations of the rate.
    pub fn rates_between(&self, from: HostId, to: HostId) -> BTreeMap<OperationId, Vec<ProcessorId>> {
        let host = |processor: ProcessorId| self.processor(processor).host;
        let mut rates: BTreeMap<OperationId, Vec<ProcessorId>> = BTreeMap::new();
        let mut add = |root: OperationId, id: OperationId| {
            let on = self.operation(id).on;
            if host(on) == to {
                rates.entry(root).or_default().push(on);
            }
        };
        let computed = |one: &FeedbackLoop| from != to && host(self.computed_on(one)) == from;
        for one in self.feedback.iter().filter(|one| !one.algorithm.is_of_group() && computed(one)) {
            for adapted in self.adapted_on(one.processor) {
                adapted.elsewhere.iter().for_each(|id| add(adapted.root, *id));
            }
        }
        for group in self.control_groups().iter().filter(|group| computed(&self.feedback[group.loops[0]])) {
            for task in &group.tasks {
                task.operations().for_each(|id| add(task.root, id));
            }
        }
        for processors in rates.values_mut() {
            processors.sort_unstable();
            processors.dedup();
        }
        rates
    }

    /// The loops of one host with rates that another host computes: it needs their samples.
    pub fn samples_between(&self, from: HostId, to: HostId) -> impl Iterator<Item = &FeedbackLoop> {
        let host = |processor: ProcessorId| self.processor(processor).host;
        let sent = move |one: &&FeedbackLoop| host(one.processor) == from && host(self.computed_on(one)) == to;
        self.feedback.iter().filter(move |one| from != to && sent(one))
    }

    fn control_group(&self, algorithm: FeedbackAlgorithm, loops: Vec<usize>) -> ControlGroup {
        let mut member_of: BTreeMap<ProcessorId, usize> = BTreeMap::new();
        loops.iter().enumerate().for_each(|(member, place)| {
            member_of.insert(self.feedback[*place].processor, member);
        });
        let mut tasks: BTreeMap<OperationId, GroupTask> = BTreeMap::new();
        for id in (0..self.operations.len() as u32).map(OperationId) {
            let Some(root) = self.adapted_by(id) else { continue };
            let new = || GroupTask { root, owner: 0, parts: Vec::new(), outside: Vec::new() };
            let task = tasks.entry(root).or_insert_with(new);
            match member_of.get(&self.operation(id).on) {
                Some(member) => task.parts.push((*member, id)),
                None => task.outside.push(id),
            }
        }
        let coupled = tasks.into_values().filter(|task| !task.parts.is_empty());
        let owned = coupled.map(|task| {
            let owner = member_of.get(&self.operation(task.root).on).copied();
            GroupTask { owner: owner.unwrap_or(task.parts[0].0), ..task }
        });
        ControlGroup { algorithm, tasks: owned.collect(), loops }
    }
}

#[cfg(test)]
#[cfg(feature = "toml")]
mod tests {
    use super::*;
    use alloc::string::String;

    /// A chain from `a` over `b` to `c`, and one from `b` to `c`; all but `a` have a loop. `d` has no chain.
    fn group(algorithm: &str) -> (crate::System, ControlGroup) {
        let mut text = String::from("name = 'group'\n");
        for name in ["a", "b", "c", "d"] {
            text += &alloc::format!("[processor.{name}]\n");
            if name != "a" {
                text += &alloc::format!("[feedback.{name}]\nalgorithm = '{algorithm}'\nutilisation = '70%'\n");
            }
        }
        let operation = |name: &str, on: &str, release: &str, wcet: u64| {
            alloc::format!("[operation.{name}]\non = '{on}'\n{release}\nwcet = '{wcet}ms'\n")
        };
        text += &operation("one", "a", "rate = ['1Hz', '10Hz']", 1);
        text += &operation("two", "b", "after = { all = ['one'] }", 2);
        text += &operation("three", "c", "after = { all = ['two'] }", 3);
        text += &operation("again", "c", "after = { all = ['three'] }", 4);
        text += &operation("first", "b", "rate = ['1Hz', '10Hz']", 5);
        text += &operation("second", "c", "after = { all = ['first'] }", 6);
        text += &operation("fixed", "b", "rate = '5Hz'", 7);
        text += &operation("alone", "d", "rate = ['1Hz', '10Hz']", 8);
        let system = crate::read(&text, "group.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let group = system.control_groups().remove(0);
        (system, group)
    }

    #[test]
    fn a_task_is_a_root_with_all_that_follows_only_it() {
        let (system, group) = group("EUCON");
        let ids = |ids: &[u32]| ids.iter().copied().map(OperationId).collect::<Vec<_>>();
        assert_eq!(group.loops, [0, 1, 2]);
        let roots: Vec<OperationId> = group.tasks.iter().map(|task| task.root).collect();
        assert_eq!(roots, ids(&[0, 4, 7]));
        assert_eq!(group.tasks[0].operations().collect::<Vec<_>>(), ids(&[1, 2, 3, 0]));
        assert_eq!(group.tasks[0].outside, ids(&[0]));
        let demands = [0, 1, 2].map(|member| group.tasks[0].demand(&system, 0, member));
        assert_eq!(demands, [2, 7, 0].map(Span::from_millis));
        let [node] = &group.nodes()[..] else { panic!("EUCON has one controller") };
        assert_eq!((node.at, &node.members[..], &node.tasks[..]), (0, &[0, 1, 2][..], &[0, 1, 2][..]));
    }

    #[test]
    fn a_step_of_deucon_plans_four_times_on_each_of_several_controllers() {
        let (_, eucon) = group("EUCON");
        // Three tasks on three processors.
        assert_eq!(eucon.step_cost(), Span::from_nanos(50_000 + 60_000 + 2_500 * 27));
        let (_, deucon) = group("DEUCON");
        let [first, second] = [50_000 + 40_000 + 2_500 * 12, 50_000 + 20_000 + 2_500 * 3];
        assert_eq!(deucon.step_cost(), Span::from_nanos(4 * (first + second)));
        assert_eq!(deucon.shortest_period(), Span::from_nanos(40 * (first + second)));
    }

    #[test]
    fn under_deucon_the_processor_of_the_first_operation_has_the_controller_or_else_the_first_member() {
        let (system, group) = group("DEUCON");
        let nodes = group.nodes();
        let sizes: Vec<_> = nodes.iter().map(|node| (node.at, &node.members[..], &node.tasks[..])).collect();
        assert_eq!(sizes, [(0, &[0, 1][..], &[0, 1][..]), (2, &[2], &[2])]);
        let setters: Vec<(u32, usize)> =
            system.rate_setters().into_iter().map(|(root, place)| (root.0, place)).collect();
        assert_eq!(setters, [(0, 0), (4, 0), (7, 2)]);
    }

    /// As `group`, with `c` on a host of its own.
    #[test]
    fn the_host_of_the_first_processor_computes_all_rates_and_needs_the_samples_of_the_others() {
        for algorithm in ["EUCON", "DEUCON"] {
            let (system, _) = group(algorithm);
            let far = system.with(|contents| {
                let host = crate::Host { name: "far".into(), ..contents.hosts[0].clone() };
                contents.hosts.push(host);
                contents.processors[2].host = HostId(1);
            });
            let [near, far_host] = [0, 1].map(HostId);
            let [b, c] = [1, 2].map(ProcessorId);
            assert!(far.feedback.iter().all(|one| far.computed_on(one) == b));
            let rates = far.rates_between(near, far_host);
            assert_eq!(rates, BTreeMap::from([0, 4].map(|root| (OperationId(root), alloc::vec![c]))));
            assert!(far.rates_between(far_host, near).is_empty() && far.rates_between(near, near).is_empty());
            let samples = |from, to| far.samples_between(from, to).map(|one| one.processor).collect::<Vec<_>>();
            assert_eq!(samples(far_host, near), [c]);
            assert_eq!([samples(near, far_host), samples(near, near)], [[], []]);
        }
    }
}
