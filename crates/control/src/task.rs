//! The data of a task: its status as input, its grant as output.

use hyoshi_model::{Instant, Reservation, Share, Span};

use crate::accounts::AccountId;

/// A task under the broker: a process with its threads and children, a cgroup, or the work of an object.
///
/// The caller of the arbiter numbers them; a number must not be reused while its task exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// A part of a [partition](crate::policy::Partition), numbered by it; 0 is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Numbers that an application sends with a report, in the order in which it declared them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    numbers: [i64; Values::MOST],
    len: u8,
}

impl Values {
    /// The most numbers of a report.
    pub const MOST: usize = 8;

    /// These numbers; `None` if there are more than [`Values::MOST`].
    pub fn new(numbers: &[i64]) -> Option<Self> {
        let mut values = Values { len: u8::try_from(numbers.len()).ok()?, ..Values::default() };
        values.numbers.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(values)
    }

    /// The number at `index`, if the report has as many.
    pub fn get(&self, index: usize) -> Option<i64> {
        self.as_slice().get(index).copied()
    }

    /// All of them.
    pub fn as_slice(&self) -> &[i64] {
        &self.numbers[..usize::from(self.len)]
    }
}

/// The last cycles of a task: the input of its advocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// When it was measured.
    pub at: Instant,
    /// CPU time since the report before, all threads together.
    pub consumed: Span,
    /// How many of the task's cycles that time covers. 0: no report arrived; a check of the task
    /// ([`Advocate::next_check`](crate::Advocate::next_check)) found it in the middle of a cycle.
    pub cycles: u32,
    /// The task's present reservation; the arbiter fills it in.
    pub held: Option<Reservation>,
    /// The application's mode, if it reports one.
    pub mode: Option<u32>,
    /// The application's own numbers.
    pub values: Values,
}

impl Status {
    /// A report of one cycle.
    pub fn of_cycle(at: Instant, consumed: Span) -> Self {
        Status { at, consumed, cycles: 1, held: None, mode: None, values: Values::default() }
    }

    /// A check of a task with a missing report.
    pub fn overdue(at: Instant, consumed: Span) -> Self {
        Status { cycles: 0, ..Status::of_cycle(at, consumed) }
    }

    /// The consumption of one cycle, rounded up; `None` if no cycle ended.
    pub fn demand(&self) -> Option<Span> {
        if self.cycles == 0 {
            return None;
        }
        Some(Span::from_nanos(self.consumed.as_nanos().div_ceil(u64::from(self.cycles))))
    }
}

/// The limit that left less than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The cap on everything that is reserved.
    Cap(Share),
    /// The part of one group.
    Group(GroupId, Share),
    /// The part of one account.
    Account(AccountId, Share),
}

impl Limit {
    /// The most that may be reserved under it.
    pub const fn share(self) -> Share {
        match self {
            Limit::Cap(share) | Limit::Group(_, share) | Limit::Account(_, share) => share,
        }
    }
}

/// The reason for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The whole request.
    Granted,
    /// Less than requested: others use the same limit.
    Cut(Limit),
    /// Nothing: others use the whole limit.
    NothingLeft(Limit),
    /// Nothing: the rest, which is included, is below the task's least useful share.
    BelowLeast(Limit, Share),
    /// Nothing: the task belongs to no group of the policy, so to no part of the CPU.
    NoGroup(GroupId),
    /// Less than the policy granted: the scheduler accepted no more, or nothing.
    Scheduler,
    /// Less than requested, or nothing: the policy, an external one without reasons, grants no more.
    Policy,
    /// Nothing: the policy itself, a remote one or a plug-in, returned no grant for this task.
    Unanswered,
}

impl Reason {
    /// The limit that left too little.
    pub const fn limit(self) -> Option<Limit> {
        match self {
            Reason::Cut(limit) | Reason::NothingLeft(limit) | Reason::BelowLeast(limit, _) => Some(limit),
            _ => None,
        }
    }
}

/// A task's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The task.
    pub task: TaskId,
    /// The request of its advocates.
    pub asked: Reservation,
    /// The reservation, never more than the request; `None`: nothing.
    pub reservation: Option<Reservation>,
    /// The reason.
    pub reason: Reason,
}

impl Grant {
    /// The granted share of a CPU.
    pub fn share(&self) -> Share {
        self.reservation.map_or(Share::ZERO, Reservation::share)
    }
}

/// The scheduler's confirmation of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// When.
    pub at: Instant,
    /// The scheduler proxy.
    pub proxy: &'static str,
    /// The reservation of the task.
    pub held: Option<Reservation>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_for_one_cycle_and_rounded_up() {
        let status = Status { cycles: 3, ..Status::of_cycle(Instant::ZERO, Span::from_nanos(100)) };
        assert_eq!(status.demand(), Some(Span::from_nanos(34)));
        assert_eq!(Status::overdue(Instant::ZERO, Span::from_nanos(100)).demand(), None);
    }

    #[test]
    fn a_report_carries_at_most_eight_numbers() {
        assert_eq!(Values::new(&[1, -2]).unwrap().as_slice(), &[1, -2]);
        assert_eq!(Values::new(&[1, -2]).unwrap().get(2), None);
        assert!(Values::new(&[0; 8]).is_some() && Values::new(&[0; 9]).is_none() && Values::new(&[0; 300]).is_none());
    }
}
