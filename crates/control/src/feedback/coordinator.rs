//! The coordinator of a group of processors under EUCON or DEUCON: it collects their samples and sets rates.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Contents, ControlGroup, ControlNode, FeedbackAlgorithm, Instant, OperationId, ProcessorId, Span};

/// Why a group has no coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorError {
    /// `EUCON` or `DEUCON`.
    pub algorithm: &'static str,
    /// The reason.
    pub reason: String,
    /// The remedy.
    pub remedy: &'static str,
}

impl fmt::Display for CoordinatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot start: {}", self.algorithm, self.reason)
    }
}

impl core::error::Error for CoordinatorError {}

/// How often a coordinator has decided on the rates of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSteps {
    /// `EUCON` or `DEUCON`.
    pub algorithm: FeedbackAlgorithm,
    /// Sampling periods with a decision; includes unsolved and skipped steps.
    pub steps: u64,
    /// Steps in which at least one controller had no solution: it could only lower rates.
    pub unsolved: u64,
    /// Steps without the controllers, because an earlier step needed too much time.
    pub skipped: u64,
}

/// The controllers of one group, and the samples since their last step.
///
/// ```text
///            collect                    collect: all members, or half a period has passed
///   Empty ─────────────► Collecting ────────────────────────────────────────────────────► due ──step──► Empty
/// ```
///
/// It has no clock: the caller passes the time, and calls [`step`](Coordinator::step) when it is
/// [`due`](Coordinator::due). A stalled monitor delays a step by at most half a sampling period. The step then treats
/// its processor as one at its set point.
///
/// It contains all controllers of DEUCON, but each uses only the samples of its neighbours. A step allocates and
/// solves optimisation problems, so it must not run on the path of a job.
#[derive(Debug)]
pub struct Coordinator {
    group: ControlGroup,
    period: Span,
    processors: Vec<ProcessorId>,
    member_of: BTreeMap<ProcessorId, usize>,
    controllers: Vec<Controller>,
    /// By task: its present period, and the processors with its operations.
    periods: Vec<Span>,
    receivers: Vec<Vec<ProcessorId>>,
    /// By member: whether it has sampled since the last step, and the utilisation in parts per million.
    samples: Vec<(bool, Option<u32>)>,
    missing: usize,
    /// When the first of these samples was collected.
    opened: Option<Instant>,
    epoch: usize,
    counts: GroupSteps,
}

/// One controller of a group.
#[derive(Debug)]
struct Controller {
    node: ControlNode,
    /// The tasks of the node that are enabled in the present epoch.
    enabled: Vec<usize>,
    law: Law,
    /// False if there is no law for the present epoch: the earlier one then only lowers rates.
    fits: bool,
}

impl Coordinator {
    /// The coordinator of each group of a system. It fails if the problem of a controller is too large, or if this
    /// build lacks the feature `eucon`.
    pub fn of(contents: &Contents) -> Result<Vec<Coordinator>, CoordinatorError> {
        contents.control_groups().into_iter().map(|group| Coordinator::new(contents, group)).collect()
    }

    fn new(contents: &Contents, group: ControlGroup) -> Result<Coordinator, CoordinatorError> {
        let loops: Vec<_> = group.loops.iter().map(|place| &contents.feedback[*place]).collect();
        let processors: Vec<ProcessorId> = loops.iter().map(|one| one.processor).collect();
        let receivers = group.tasks.iter().map(|task| {
            let mut receivers: Vec<ProcessorId> = task.operations().map(|id| contents.operation(id).on).collect();
            receivers.sort_unstable();
            receivers.dedup();
            receivers
        });
        let receivers = receivers.collect();
        let periods: Vec<Span> = group.tasks.iter().map(|task| loops[0].start_of(contents, task.root)).collect();
        let nodes = group.nodes();
        let shares = super::deucon::shares(contents, 0, &group, &nodes);
        let controllers: Result<Vec<Controller>, _> = (nodes.into_iter().zip(shares))
            .map(|(node, shares)| {
                let (enabled, law) = law(contents, &group, &node, shares, 0, &periods)?;
                Ok(Controller { node, enabled, law, fits: true })
            })
            .collect();
        Ok(Coordinator {
            period: loops[0].period,
            member_of: processors.iter().enumerate().map(|(member, processor)| (*processor, member)).collect(),
            samples: vec![(false, None); processors.len()],
            missing: processors.len(),
            processors,
            controllers: controllers?,
            periods,
            receivers,
            opened: None,
            epoch: 0,
            counts: GroupSteps { algorithm: group.algorithm, steps: 0, unsolved: 0, skipped: 0 },
            group,
        })
    }

    /// The processors of the group, by member.
    pub fn processors(&self) -> &[ProcessorId] {
        &self.processors
    }

    /// The group.
    pub fn group(&self) -> &ControlGroup {
        &self.group
    }

    /// The tasks and neighbours of each controller: the size of its problem.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.controllers.iter().map(|one| (one.enabled.len(), one.node.members.len()))
    }

    /// The present period of each task of the group.
    pub fn periods(&self) -> &[Span] {
        &self.periods
    }

    /// How often it has decided so far.
    pub fn counts(&self) -> GroupSteps {
        self.counts
    }

    /// Collects a processor's sample: its utilisation in parts per million of its hard cap; `None` if it was not
    /// measured. It ignores a processor that is not a member.
    pub fn collect(&mut self, now: Instant, processor: ProcessorId, utilisation: Option<u32>) {
        let Some(member) = self.member_of.get(&processor) else { return };
        let sample = &mut self.samples[*member];
        self.missing -= usize::from(!sample.0);
        *sample = (true, utilisation);
        self.opened.get_or_insert(now);
    }

    /// When the next step is due: with the last missing sample, or half a period after the first one. Never before that.
    pub fn due(&self) -> Instant {
        match self.opened {
            None => Instant::NEVER,
            Some(opened) if self.missing == 0 => opened,
            Some(opened) => opened.saturating_add(Span::from_nanos(self.period.as_nanos() / 2)),
        }
    }

    /// Decides on new rates. For each changed rate and each processor with operations of it, calls `each` with the
    /// processor, the root and the period. If a controller finds no solution, it only lowers rates (see `Eucon`), and
    /// the result is false.
    pub fn step(
        &mut self,
        contents: &Contents,
        now: Instant,
        each: impl FnMut(ProcessorId, OperationId, Span),
    ) -> bool {
        self.begin(contents, now);
        let mut solved: Vec<bool> = self.controllers.iter().map(|one| one.fits).collect();
        let rounds = if self.controllers.len() > 1 { super::deucon::ROUNDS } else { 1 };
        (0..rounds).for_each(|_| self.plan(&mut solved));
        self.carry_out(&solved, each);
        let solved = !solved.contains(&false);
        self.counts.unsolved += u64::from(!solved);
        solved
    }

    /// As [`step`](Coordinator::step), but no controller plans: all only lower rates. It needs little time.
    pub fn skip(&mut self, contents: &Contents, now: Instant, each: impl FnMut(ProcessorId, OperationId, Span)) {
        self.begin(contents, now);
        self.carry_out(&vec![false; self.controllers.len()], each);
        self.counts.skipped += 1;
    }

    /// Passes the samples to the controllers.
    fn begin(&mut self, contents: &Contents, now: Instant) {
        self.enter(contents, contents.epoch_at(now));
        for controller in &mut self.controllers {
            let utilisation = |member: &usize| self.samples[*member].1.map(|ppm| f64::from(ppm.min(1_000_000)) / 1e6);
            let utilisations: Vec<Option<f64>> = controller.node.members.iter().map(utilisation).collect();
            controller.law.begin(&utilisations);
        }
    }

    /// Carries out the plans of controllers with a solution.
    fn carry_out(&mut self, solved: &[bool], mut each: impl FnMut(ProcessorId, OperationId, Span)) {
        for (controller, solved) in self.controllers.iter_mut().zip(solved) {
            if !solved {
                controller.law.plan_without_solution();
            }
            controller.law.carry_out();
            for (task, period) in controller.enabled.iter().zip(controller.law.periods()) {
                if self.periods[*task] != *period {
                    self.periods[*task] = *period;
                    let root = self.group.tasks[*task].root;
                    self.receivers[*task].iter().for_each(|to| each(*to, root, *period));
                }
            }
        }
        self.samples.fill((false, None));
        (self.missing, self.opened) = (self.samples.len(), None);
        self.counts.steps += 1;
    }

    /// Each controller plans, and uses the plans of all controllers so far. `solved` becomes false for one that finds
    /// no solution.
    fn plan(&mut self, solved: &mut [bool]) {
        let mut changes = vec![0.0; self.samples.len()];
        for controller in &self.controllers {
            for (place, member) in controller.node.members.iter().enumerate() {
                changes[*member] += controller.law.planned_change(place);
            }
        }
        for (controller, solved) in self.controllers.iter_mut().zip(solved) {
            let near: Vec<f64> = controller.node.members.iter().map(|member| changes[*member]).collect();
            *solved &= controller.law.plan(&near);
        }
    }

    /// An epoch may change execution times and ranges, and enable operations. Periods move into the ranges.
    fn enter(&mut self, contents: &Contents, epoch: usize) {
        if core::mem::replace(&mut self.epoch, epoch) == epoch {
            return;
        }
        let nodes: Vec<ControlNode> = self.controllers.iter().map(|one| one.node.clone()).collect();
        let shares = super::deucon::shares(contents, epoch, &self.group, &nodes);
        for (controller, shares) in self.controllers.iter_mut().zip(shares) {
            let found = law(contents, &self.group, &controller.node, shares, epoch, &self.periods);
            controller.fits = found.is_ok();
            if let Ok((enabled, law)) = found {
                (controller.enabled, controller.law) = (enabled, law);
            }
        }
    }
}

#[cfg(feature = "eucon")]
#[cfg(test)]
mod tests;

#[cfg(feature = "eucon")]
use super::Eucon as Law;
#[cfg(feature = "eucon")]
use with_solver::law;
#[cfg(not(feature = "eucon"))]
use without_solver::{NoSolver as Law, law};

#[cfg(feature = "eucon")]
mod with_solver {
    use super::*;
    use crate::feedback::{EndToEndTask, Eucon, EuconError, EuconSettings};
    use hyoshi_model::{Share, StartRates};

    /// The law of a node in an epoch, and its tasks that are enabled there.
    pub(super) fn law(
        contents: &Contents,
        group: &ControlGroup,
        node: &ControlNode,
        shares: Option<Vec<f64>>,
        epoch: usize,
        periods: &[Span],
    ) -> Result<(Vec<usize>, Law), CoordinatorError> {
        let loops = node.members.iter().map(|member| &contents.feedback[group.loops[*member]]);
        let utilisations = loops.map(|one| Share::from_millionths(one.utilisation_ppm.into())).collect();
        let (mut enabled, mut tasks, mut start) = (Vec::new(), Vec::new(), Vec::new());
        for place in &node.tasks {
            let task = &group.tasks[*place];
            let setting = contents.setting(epoch, task.root);
            let demand = node.members.iter().map(|member| demand(contents, group, *member, epoch, *place)).collect();
            let (shortest, longest) = (setting.period, setting.slowest.max(setting.period));
            let Ok(declared) = EndToEndTask::new(demand, shortest, longest) else { continue };
            if setting.enabled {
                enabled.push(*place);
                tasks.push(declared);
                start.push(periods[*place].clamp(shortest, longest));
            }
        }
        let settings = EuconSettings { shares, ..EuconSettings::new(utilisations) };
        let law =
            Eucon::new(settings, &tasks, StartRates::Given(start)).map_err(|error: EuconError| CoordinatorError {
                algorithm: group.algorithm.name(),
                reason: alloc::format!("{error}"),
                remedy: error.remedy(),
            })?;
        Ok((enabled, law))
    }

    /// The demands are parts of the hard cap, as utilisations are.
    fn demand(contents: &Contents, group: &ControlGroup, member: usize, epoch: usize, task: usize) -> Span {
        let processor = contents.feedback[group.loops[member]].processor;
        let cap = u128::from(contents.processor(processor).hard_cap.ppm.max(1));
        let work = u128::from(group.tasks[task].demand(contents, epoch, member).as_nanos());
        Span::from_nanos(u64::try_from(work * 1_000_000 / cap).unwrap_or(u64::MAX))
    }
}

#[cfg(not(feature = "eucon"))]
mod without_solver {
    use super::*;

    /// There is none.
    #[derive(Debug)]
    pub(super) enum NoSolver {}

    impl NoSolver {
        pub fn begin(&mut self, _: &[Option<f64>]) {
            match *self {}
        }

        pub fn plan(&mut self, _: &[f64]) -> bool {
            match *self {}
        }

        pub fn planned_change(&self, _: usize) -> f64 {
            match *self {}
        }

        pub fn plan_without_solution(&mut self) {
            match *self {}
        }

        pub fn carry_out(&mut self) {
            match *self {}
        }

        pub fn periods(&self) -> &[Span] {
            match *self {}
        }
    }

    pub(super) fn law(
        _: &Contents,
        group: &ControlGroup,
        _: &ControlNode,
        _: Option<Vec<f64>>,
        _: usize,
        _: &[Span],
    ) -> Result<(Vec<usize>, NoSolver), CoordinatorError> {
        Err(CoordinatorError {
            algorithm: group.algorithm.name(),
            reason: "this build lacks the feature `eucon`".into(),
            remedy: "build hyoshi with the feature `eucon`; it is a default feature",
        })
    }
}
