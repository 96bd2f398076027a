//! When to check the users of processes again. A member may run a setuid program at any time, and the broker must not
//! raise or cap that program for the user who started it.
//!
//! ```text
//!             begin            slice, time left          last process
//!   Resting ─────────► Checking ───────► Checking ─────────────────────► Resting until begin + ROUND
//! ```
//!
//! It polls. Process events (netlink's proc connector) report every fork and exec of the whole machine, which any user
//! can flood, and need CAP_NET_ADMIN in the first network namespace.

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Span};

/// From the start of one round to the next: two rounds are shorter than the second in which a change must be detected.
const ROUND: Span = Span::from_millis(400);
/// Length of a slice, because windows wait meanwhile: some 250 processes, or 25 without PIDFD_GET_INFO.
pub(crate) const SLICE: Span = Span::from_micros(300);
/// Slices use at most this part of the time.
const SHARE: u64 = 50;
/// The shortest time between slices with findings, which also limits the audit log.
const FOUND: Span = Span::from_millis(50);

/// The progress of the checks; see the module.
#[derive(Debug, Default)]
pub(crate) struct OwnerChecks {
    begun: Instant,
    next: Instant,
    /// The present task and the number of its remaining processes. They are checked from last to first, so that none is
    /// skipped when another ends.
    at: Option<(TaskId, Option<usize>)>,
}

impl OwnerChecks {
    /// When to continue.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The next task and its number of remaining processes (`None`: all); `tasks` are sorted. `None` at the end of a
    /// round.
    pub fn place(&mut self, now: Instant, tasks: impl IntoIterator<Item = TaskId>) -> Option<(TaskId, Option<usize>)> {
        let mut tasks = tasks.into_iter();
        let found = match self.at {
            None => {
                self.begun = now;
                tasks.next().map(|task| (task, None))
            }
            Some((at, left)) => tasks.find(|task| *task >= at).map(|task| (task, left.filter(|_| task == at))),
        };
        self.at = found;
        found
    }

    /// This many processes of the task remain; after the last one the next task follows.
    pub fn left(&mut self, task: TaskId, left: usize) {
        self.at = Some(match left {
            0 => (TaskId(task.0.saturating_add(1)), None),
            left => (task, Some(left)),
        });
    }

    /// A slice took `spent`.
    pub fn took(&mut self, now: Instant, spent: Span, whole: bool, found: bool) {
        let rest = now.saturating_add((spent * SHARE).max(if found { FOUND } else { Span::ZERO }));
        self.next = if whole { rest.max(self.begun.saturating_add(ROUND)) } else { rest };
        if whole {
            self.at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks until the end of a round; returns the checked processes as (task, position).
    fn round(
        rounds: &mut OwnerChecks,
        counts: &mut [usize],
        at_once: usize,
        mut each: impl FnMut(&mut [usize]),
    ) -> Vec<(u32, usize)> {
        let mut seen = Vec::new();
        let now = Instant::ZERO;
        for _ in 0..10_000 {
            let mut whole = false;
            for _ in 0..at_once {
                let tasks = (0..counts.len() as u32).map(TaskId);
                let Some((task, left)) = rounds.place(now, tasks) else {
                    whole = true;
                    break;
                };
                let there = counts[task.0 as usize];
                let left = left.unwrap_or(there).min(there);
                if left > 0 {
                    seen.push((task.0, left - 1));
                }
                rounds.left(task, left.saturating_sub(1));
            }
            rounds.took(now, Span::ZERO, whole, false);
            if whole {
                return seen;
            }
            each(counts);
        }
        panic!("the round has no end");
    }

    #[test]
    fn each_process_is_checked_once_a_round_also_in_slices() {
        for at_once in [1, 2, 3, 100] {
            let mut rounds = OwnerChecks::default();
            for _ in 0..2 {
                let seen = round(&mut rounds, &mut [2, 0, 3], at_once, |_| ());
                assert_eq!(seen, [(0, 1), (0, 0), (2, 2), (2, 1), (2, 0)], "{at_once} at once");
            }
        }
    }

    #[test]
    fn a_round_ends_while_processes_come_and_go() {
        let mut rounds = OwnerChecks::default();
        let seen = round(&mut rounds, &mut [3, 3], 1, |counts| counts[0] = counts[0].saturating_sub(1));
        assert!(seen.contains(&(1, 0)) && seen.contains(&(1, 2)), "{seen:?}");
    }

    #[test]
    fn checks_take_a_fiftieth_of_the_time_and_rounds_begin_every_400_ms() {
        let mut rounds = OwnerChecks::default();
        let at = |micros: u64| Instant::from_nanos(micros * 1_000);
        assert_eq!(rounds.place(at(0), [TaskId(1)]), Some((TaskId(1), None)));
        rounds.took(at(300), Span::from_micros(300), false, false);
        assert_eq!(rounds.next(), at(15_300));
        rounds.took(at(15_400), Span::from_micros(100), true, false);
        assert_eq!(rounds.next(), at(400_000));
        rounds.took(at(500_000), Span::from_micros(10), false, true);
        assert_eq!(rounds.next(), at(550_000));
    }
}
