//! What is said about a task: its status on the way in, its grant on the way out.

use hyoshi_model::{Instant, Reservation, Share, Span};

use crate::accounts::AccountId;

/// A task under the broker: a process with its threads and children, a cgroup, or an object's work.
///
/// Whoever drives the arbiter numbers them; a number must not come back while its task is there.
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
    /// How many numbers a report can carry.
    pub const MOST: usize = 8;

    /// These numbers; `None` if there are more than [`Values::MOST`].
    pub fn new(numbers: &[i64]) -> Option<Self> {
        let mut values = Values { len: u8::try_from(numbers.len()).ok()?, ..Values::default() };
        values.numbers.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(values)
    }

    /// The number at `index`, if the report carried as many.
    pub fn get(&self, index: usize) -> Option<i64> {
        self.as_slice().get(index).copied()
    }

    /// All of them.
    pub fn as_slice(&self) -> &[i64] {
        &self.numbers[..usize::from(self.len)]
    }
}

/// What is known of a task's last cycles: the input of its advocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// When it was seen.
    pub at: Instant,
    /// CPU time since the report before, all threads together.
    pub consumed: Span,
    /// How many of the task's cycles that time covers. 0: no report came, somebody looked after the task
    /// ([`Advocate::next_look`](crate::Advocate::next_look)) and found it in the middle of a cycle.
    pub cycles: u32,
    /// What the task holds now; the arbiter fills it in.
    pub held: Option<Reservation>,
    /// The application's mode, if it says so.
    pub mode: Option<u32>,
    /// The application's own numbers.
    pub values: Values,
}

impl Status {
    /// A report of one cycle.
    pub fn of_cycle(at: Instant, consumed: Span) -> Self {
        Status { at, consumed, cycles: 1, held: None, mode: None, values: Values::default() }
    }

    /// A look at a task whose report stays away.
    pub fn overdue(at: Instant, consumed: Span) -> Self {
        Status { cycles: 0, ..Status::of_cycle(at, consumed) }
    }

    /// What one cycle consumed, rounded up; `None` where no cycle ended.
    pub fn demand(&self) -> Option<Span> {
        if self.cycles == 0 {
            return None;
        }
        Some(Span::from_nanos(self.consumed.as_nanos().div_ceil(u64::from(self.cycles))))
    }
}

/// Whose limit it was that left less than was asked.
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

/// Why a task was granted what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All that was asked.
    Granted,
    /// Less than was asked: others take of the same limit.
    Cut(Limit),
    /// Nothing: others have taken all there is.
    NothingLeft(Limit),
    /// Nothing: what was left, as told, is below the least that is of use to the task.
    BelowLeast(Limit, Share),
    /// Nothing: the task belongs to no group of the policy, so to no part of the CPU.
    NoGroup(GroupId),
    /// Less than the policy gave: the scheduler took no more, or nothing.
    Scheduler,
    /// Less than was asked, or nothing: the policy, one from elsewhere that gives no reasons, gives no more.
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

/// What a task was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub task: TaskId,
    /// What its advocates asked.
    pub asked: Reservation,
    /// What it gets, never more; `None`: nothing.
    pub reservation: Option<Reservation>,
    /// Why.
    pub reason: Reason,
}

impl Grant {
    /// The part of a CPU that it is.
    pub fn share(&self) -> Share {
        self.reservation.map_or(Share::ZERO, Reservation::share)
    }
}

/// What the scheduler said it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// When.
    pub at: Instant,
    /// Which scheduler proxy.
    pub proxy: &'static str,
    /// What it holds for the task.
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
