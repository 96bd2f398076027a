//! Operations on standby: declared in the file, but without jobs until the feedback loop of their processor admits them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::OperationId;
use crate::system::{Contents, Trigger};

/// The requests of an epoch at its begin. It withdraws operations before it admits others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admissions {
    /// The operations that are withdrawn, in order.
    pub withdraw: Vec<OperationId>,
    /// The operations that begin if the loops of their processors accept them, in order.
    pub admit: Vec<OperationId>,
}

impl Admissions {
    /// True without a request.
    pub fn is_empty(&self) -> bool {
        self.withdraw.is_empty() && self.admit.is_empty()
    }

    /// All operations with a request.
    pub fn operations(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.withdraw.iter().chain(&self.admit).copied()
    }
}

impl Contents {
    /// The operation on standby with which this one waits and begins: itself, or its only root.
    pub fn standby_root(&self, id: OperationId) -> Option<OperationId> {
        let [root] = self.operation(id).roots[..] else { return None };
        self.operation(root).standby.then_some(root)
    }

    /// Why an operation cannot be on standby; `None` if it can. Only a periodic operation can whose rate the loop of its
    /// processor sets, with followers that depend on it alone.
    pub fn obstacle_to_standby(&self, id: OperationId) -> Option<String> {
        let one = self.operation(id);
        let own = [
            (one.trigger != Trigger::Periodic, "it is not periodic"),
            (one.name.contains('.'), "it is an instance of a template"),
            (one.name.contains(':'), "it calls objects"),
            (self.moves(id), "it has several processors"),
            (self.adapted_by(id).is_none(), "its rate is fixed"),
        ];
        if let Some((_, why)) = own.into_iter().find(|(is, _)| *is) {
            return Some(why.into());
        }
        let Some(of) = self.feedback.iter().find(|other| other.processor == one.on) else {
            return Some(format!("no feedback loop adapts rates on `{}`", self.processor(one.on).name));
        };
        if of.algorithm.is_of_group() {
            return Some(format!("{} admits no operations", of.algorithm.name()));
        }
        let measured: BTreeSet<OperationId> = of.latency.iter().flat_map(|one| one.ends(self)).copied().collect();
        let parts = (0..).map(OperationId).zip(&self.operations).filter(|(_, part)| part.roots.contains(&id));
        let mut obstacles = parts.filter_map(|(part_id, part)| {
            let why = [
                (part.roots.len() > 1, "follows also another operation"),
                (part.on != one.on, "runs on another processor"),
                (part.timeout.is_some(), "has a timeout"),
                (!part.levels.is_empty(), "has service levels"),
                (measured.contains(&part_id), "has a latency that a loop holds"),
            ];
            let (_, why) = why.into_iter().find(|(is, _)| *is)?;
            Some(if part_id == id { format!("it {why}") } else { format!("`{}` {why}", part.name) })
        });
        obstacles.next()
    }
}
