//! The settings of operations in one epoch: those that the file sets, and the inherited periods, deadlines and
//! execution times.

use std::sync::Arc;

use super::declared::{DeclaredOperation, Written};
use super::levels;
use super::log::{AtPlace, Log, Place};
use crate::execution_time::ExecutionTime;
use crate::feedback::{ServiceLevel, at_level};
use crate::ids::OperationId;
use crate::system::{Deadline, Setting, Trigger};
use crate::time::Span;

impl Written {
    /// Rejects contradictions, and warns of probable ones.
    pub fn check(&self, log: &mut Log, operation: &DeclaredOperation<'_>) {
        self.check_legs(log, operation);
        let Some(wcet) = self.wcet else { return };
        if let Some(bcet) = self.bcet
            && bcet.value > wcet.value
        {
            log.error(bcet.place, format!("the best case is longer than the worst case, {}", wcet.value))
                .also(wcet.place, "the worst case")
                .help("swap them, or remove `bcet`");
        }
        let levels = &operation.levels;
        let least = levels.value.first().map_or(wcet, |level| AtPlace::new(level.wcet, levels.place));
        levels::check_times(log, levels, wcet, self.bcet);
        let held: Span = operation.uses.iter().fold(Span::ZERO, |sum, (_, span)| sum.checked_add(*span).unwrap_or(sum));
        if held > least.value {
            log.error(operation.uses_place, format!("resources are held for {held}, longer than the worst case"))
                .also(least.place, format!("the worst case, {}", least.value))
                .help("they are held one after another, within the worst case: shorten them or raise `wcet`");
        }
        let Some(takes) = &self.execution_time else { return };
        if takes.value.longest > wcet.value {
            log.warn(takes.place, format!("jobs may need {}, longer than the worst case", takes.value.longest))
                .also(wcet.place, format!("the worst case, {}", wcet.value))
                .help("such a job is an overrun (see `on_overrun`); the proofs of `check` exclude it");
        }
        if let Some(bcet) = self.bcet
            && takes.value.shortest < bcet.value
        {
            log.warn(takes.place, format!("jobs may need {}, less than the best case", takes.value.shortest))
                .also(bcet.place, format!("the best case, {}", bcet.value))
                .help("the proofs of `check` exclude such a job: lower or remove `bcet`");
        }
    }

    fn check_legs(&self, log: &mut Log, operation: &DeclaredOperation<'_>) {
        let Some(critical) = self.critical_legs else { return };
        let legs = self.legs.map_or(1, |legs| legs.value);
        if critical.value > legs {
            let finding = log.error(critical.place, format!("{} legs cannot be critical", critical.value));
            finding.label(format!("of {legs}")).help(format!("write a number from 0 to {legs}, or raise `legs`"));
            if let Some(legs) = self.legs {
                finding.also(legs.place, "the legs");
            }
        } else if operation.critical && critical.value < legs {
            log.error(critical.place, "all legs of a critical operation are critical")
                .also(operation.name.place, "`critical = true`")
                .help("remove it, or make the operation not critical");
        }
    }

    /// The place to mark for a deadline that cannot be met.
    fn wcet_place(&self) -> Place {
        self.wcet.map_or(Place::default(), |wcet| wcet.place)
    }
}

/// Inputs of the settings that do not change between epochs.
pub(super) struct SettingInputs<'a> {
    pub triggers: &'a [Trigger],
    /// Causes first.
    pub order: &'a [OperationId],
    pub phases: &'a [Span],
    pub offsets: Vec<Span>,
    /// For operations that requests release: the least time between two requests of a client.
    pub intervals: &'a [Option<Span>],
    pub critical: Vec<bool>,
    pub levels: Vec<&'a [ServiceLevel]>,
    /// The tightest deadline of a chain of triggers from an untriggered first operation.
    pub chains: Vec<Option<Span>>,
}

impl SettingInputs<'_> {
    /// The settings of one epoch. All inherited values are computed again from the written ones.
    pub fn settle(&self, log: &mut Log, written: &[Arc<Written>]) -> Arc<[Setting]> {
        // Period, longest period and the deadline of the slowest root, for those that follow.
        let mut inherited = vec![(Span::ZERO, Span::ZERO, Span::ZERO); written.len()];
        for operation in self.order {
            let one = &written[operation.index()];
            let from = |predecessors: &[OperationId]| -> Vec<_> {
                predecessors.iter().map(|predecessor| inherited[predecessor.index()]).collect()
            };
            let longest_deadline = |from: &[(Span, Span, Span)]| from.iter().map(|one| one.2).max().unwrap_or_default();
            inherited[operation.index()] = match &self.triggers[operation.index()] {
                Trigger::Periodic => {
                    let (period, slowest) = one.period.map_or((Span::ZERO, Span::ZERO), |period| period.value);
                    (period, slowest, one.deadline.map_or(period, |deadline| deadline.value.span()))
                }
                Trigger::Any(any) if any.is_empty() => {
                    let interval = self.intervals[operation.index()];
                    let deadline = one.deadline.map(|deadline| deadline.value.span()).or(interval).unwrap_or_default();
                    let period = interval.unwrap_or(deadline);
                    (period, period, deadline)
                }
                Trigger::All(predecessors) | Trigger::First(predecessors) => {
                    let from = from(predecessors);
                    let period = from.iter().map(|one| one.0).max().unwrap_or_default();
                    let slowest = from.iter().map(|one| one.1).max().unwrap_or_default();
                    (period, slowest, longest_deadline(&from))
                }
                Trigger::Correlated(correlation) => {
                    let groups: Vec<_> = correlation.groups().map(from).collect();
                    let shortest = |of: fn(&(Span, Span, Span)) -> Span| {
                        groups.iter().filter_map(|group| group.iter().map(of).min()).max().unwrap_or_default()
                    };
                    (shortest(|one| one.0), shortest(|one| one.1), longest_deadline(&groups.concat()))
                }
                Trigger::Any(_) | Trigger::Chosen(_) => {
                    let from = from(self.triggers[operation.index()].predecessors());
                    let period = from.iter().map(|one| one.0).min().unwrap_or_default();
                    let slowest = from.iter().map(|one| one.1).min().unwrap_or_default();
                    (period, slowest, longest_deadline(&from))
                }
            };
        }
        let settings = written.iter().zip(inherited).enumerate().map(|(operation, (one, inherited))| {
            let setting = self.setting(operation, one, inherited);
            if setting.enabled && setting.wcet > setting.deadline.span() {
                let deadline = setting.deadline.span();
                let finding =
                    log.warn(one.wcet_place(), format!("the worst case is longer than the deadline, {deadline}"));
                finding.help("such a job misses its deadline even on an idle processor");
                if let Some(deadline) = one.deadline {
                    finding.also(deadline.place, "the deadline");
                }
            }
            setting
        });
        settings.collect()
    }

    fn setting(
        &self,
        operation: usize,
        one: &Written,
        (period, slowest, root_deadline): (Span, Span, Span),
    ) -> Setting {
        let wcet = one.wcet.map_or(Span::ZERO, |wcet| wcet.value);
        let drawn = one.execution_time.as_ref().map(|takes| &takes.value);
        let legs = one.legs.map_or(1, |legs| legs.value);
        let shortest = drawn.map_or(wcet, |drawn| drawn.shortest.min(wcet));
        // Time or a request releases it: it is its own origin.
        let source = self.triggers[operation].predecessors().is_empty();
        Setting {
            enabled: one.enabled,
            period,
            slowest,
            phase: self.phases[operation],
            offset: self.offsets[operation],
            jitter: one.jitter.map_or(Span::ZERO, |jitter| jitter.value),
            wcet,
            bcet: one.bcet.map_or(at_level(self.levels[operation], 0, shortest), |bcet| bcet.value),
            execution_time: drawn.map_or(ExecutionTime::Fixed(wcet), |drawn| drawn.execution_time.clone()),
            deadline: match one.deadline {
                Some(deadline) if source => Deadline::Own(deadline.value.span()),
                Some(deadline) => deadline.value,
                None if source => Deadline::Own(period),
                None => Deadline::Origin(self.chains[operation].unwrap_or(root_deadline)),
            },
            legs,
            critical_legs: match (self.critical[operation], one.critical_legs) {
                (true, _) => legs,
                (false, critical) => critical.map_or(0, |critical| critical.value),
            },
        }
    }
}
