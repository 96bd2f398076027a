//! Blocking of more urgent jobs by less urgent ones, which hold the CPU or a resource.

use alloc::{string::String, vec::Vec};

use hyoshi_model::{OperationId, Preemption, ResourceId, System};

use super::part::OperationPart;
use super::verdict::Missing;
use crate::plan::ProcessorPlan;

/// How long a job of a less urgent level (or, within a level by key, with a later key) can keep the CPU from better
/// ones: at most once per busy window, and without its first nanosecond, because it started before.
pub(super) struct Blocking<'a> {
    system: &'a System,
    plan: &'a ProcessorPlan,
}

impl<'a> Blocking<'a> {
    pub fn new(system: &'a System, plan: &'a ProcessorPlan) -> Self {
        Blocking { system, plan }
    }

    /// Blocking of a level by all less urgent ones.
    pub fn by_less_urgent(&self, parts: &[OperationPart], level: u8) -> u64 {
        let below = parts.iter().filter(|part| part.best > level);
        below.map(|part| self.kept(part, level, self.plan.preemption == Preemption::None)).max().unwrap_or(0)
    }

    /// Blocking of better jobs of its own level by a job of `part`.
    pub fn within(&self, part: &OperationPart) -> u64 {
        self.kept(part, part.level, self.plan.preemption != Preemption::Full)
    }

    fn kept(&self, part: &OperationPart, level: u8, whole_job: bool) -> u64 {
        let kept = if whole_job { part.charge } else { self.sections(part.operation, level).min(part.leg) };
        kept.saturating_sub(1)
    }

    /// Time in sections with a ceiling that reaches `level`. They follow each other from the job's start and count as
    /// one: between two of them no decision is needed.
    pub fn sections(&self, operation: OperationId, level: u8) -> u64 {
        let reaching =
            self.system.operation(operation).uses.iter().filter(|(resource, _)| self.reaches(*resource, level));
        reaching.fold(0, |sum, (_, held)| sum.saturating_add(held.as_nanos()))
    }

    /// The first resource, by name, that an operation holds and that has a ceiling at `level` or above.
    pub fn reaching(&self, operation: OperationId, level: u8) -> Option<String> {
        let mut uses = self.system.operation(operation).uses.iter();
        let (resource, _) = uses.find(|(resource, _)| self.reaches(*resource, level))?;
        Some(self.system.resources[resource.index()].name.clone())
    }

    fn reaches(&self, resource: ResourceId, level: u8) -> bool {
        self.plan.ceilings.get(resource.index()).copied().flatten().is_some_and(|ceiling| ceiling <= level)
    }

    /// A resource of this processor that another also uses, in this scene or any other.
    pub fn remote(&self) -> Option<Missing> {
        let here: Vec<_> = self.plan.operations.iter().flat_map(|id| &self.system.operation(*id).uses).collect();
        let away = |id: &OperationId| self.system.operation(*id).on != self.plan.processor;
        let shared = self.system.operation_ids().filter(away).flat_map(|id| &self.system.operation(id).uses);
        let mut shared = shared.filter(|(resource, _)| here.iter().any(|(own, _)| own == resource));
        let (resource, _) = shared.next()?;
        Some(Missing::RemoteResource { name: self.system.resources[resource.index()].name.clone() })
    }
}
