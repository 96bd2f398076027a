//! Why an event is rejected.

use core::fmt;

use super::{Arbiter, Joining};
use crate::advocate::ChainError;
use crate::task::TaskId;

/// Why the arbiter rejects an event; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A task of this number exists already.
    Twice(TaskId),
    /// No task has this number.
    Unknown(TaskId),
    /// There are [`Arbiter::MOST_TASKS`] tasks.
    Full,
    /// An invalid name.
    Name {
        /// Its length in characters.
        length: usize,
    },
    /// A weight of zero: the reduction, in inverse proportion to it, would be unbounded.
    NoWeight,
    /// An advocate cannot be added or removed.
    Chain(ChainError),
}

impl From<ChainError> for Refusal {
    fn from(error: ChainError) -> Self {
        Refusal::Chain(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Twice(TaskId(id)) => write!(f, "task {id} is under the broker already"),
            Refusal::Unknown(TaskId(id)) => write!(f, "no task {id} is under the broker: it has left, or never joined"),
            Refusal::Full => {
                write!(f, "{} tasks are under the broker, which is its limit: detach one first", Arbiter::MOST_TASKS)
            }
            Refusal::Name { length: 0 } => f.write_str("the task has no name: set one"),
            Refusal::Name { length } if *length > Joining::LONGEST_NAME => {
                write!(f, "the task's name has {length} characters: at most {} are allowed", Joining::LONGEST_NAME)
            }
            Refusal::Name { .. } => f.write_str("the task's name has control characters: use letters and digits"),
            Refusal::NoWeight => f.write_str("a weight of 0: the minimum is 1"),
            Refusal::Chain(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Refusal {}
