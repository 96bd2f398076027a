//! Contracts: conditions, operating regions over them, and what to do in each region.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::feedback::LatencyScope;
use crate::ids::{OperationId, ProcessorId};
use crate::predicate::Predicate;
use crate::system::Contents;
use crate::time::Span;

/// A contract, as QuO has them: regions over conditions, which the dispatcher of one processor evaluates.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// Its name.
    pub name: String,
    /// Where it is evaluated: its conditions and settings are those of this processor.
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

/// What a condition measures on its processor.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionSource {
    /// 1 for each job that ended late, was cancelled or dropped, and 0 for each one in time.
    MissRatio(LatencyScope),
    /// Response times in seconds.
    Latency(LatencyScope),
    /// A value from outside, by its position in [`Contents::conditions`].
    Set(u16),
    /// The utilisation that the processor's feedback loop measures, as a part of the hard cap.
    Utilisation(ProcessorId),
    /// The execution time of released jobs, as a part of the window.
    Demand(JobScope),
    /// The execution time of jobs that ended late, as a part of the window.
    Wasted(JobScope),
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
        matches!(self, ConditionSource::Demand(_) | ConditionSource::Wasted(_) | ConditionSource::Rate(_))
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
    /// Nothing releases the operation.
    Disable {
        /// The operation.
        operation: OperationId,
    },
    /// Reports have this text with the begin of the region.
    Report {
        /// The text.
        text: Box<str>,
    },
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
/// that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// The time at first.
    pub first: Span,
    /// The factor, at least 1, if the region begins again within its last `stay` after its end.
    pub grow: u32,
    /// The longest time.
    pub most: Span,
}

impl Stay {
    /// Always the same time.
    pub const fn constant(stay: Span) -> Stay {
        Stay { first: stay, grow: 1, most: stay }
    }

    /// The next time, if the region begins again soon after its end.
    pub fn grown(&self, last: Span) -> Span {
        last.checked_mul(self.grow.into()).unwrap_or(self.most).min(self.most).max(self.first)
    }
}

impl Contents {
    /// The contracts that a processor evaluates, by their positions, from the highest precedence to the lowest. Of
    /// equal ones, the first in the file precedes.
    pub fn contracts_on(&self, processor: ProcessorId) -> Vec<u16> {
        let here = (0..).zip(&self.contracts).filter(|(_, one)| one.processor == processor);
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
                ContractAction::Report { .. } => {}
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
