//! Joins: an operation with an `all` trigger runs when each of its predecessors has completed.

use alloc::{collections::VecDeque, vec::Vec};

use hyoshi_model::{Instant, Span};
use hyoshi_trace::Ticket;

/// The data that a completion passes to the operation it triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionToken {
    /// Release number of the job that completed.
    pub number: u64,
    /// Nominal release of its root.
    pub origin: Instant,
    /// Present period of its root.
    pub period: Span,
    /// The ticket that its caller attached to it.
    pub ticket: Option<Ticket>,
}

/// Collects the completions of several predecessors.
///
/// If all have the numbers of one root, tokens of one release number are joined, and a number that one predecessor
/// never completes (cancelled, dropped) is skipped. With several roots, or after a merge that counts independently, the
/// oldest unused completions are joined.
#[derive(Debug)]
pub struct JoinState {
    by_number: bool,
    limit: usize,
    waiting: Vec<VecDeque<CompletionToken>>,
    /// The tickets of the last complete set.
    joined: Vec<Option<Ticket>>,
}

impl JoinState {
    /// A join of `predecessors`. Each may be ahead of the others by `limit` completions; beyond that its oldest is
    /// dropped.
    pub fn new(predecessors: usize, by_number: bool, limit: usize) -> Self {
        let limit = limit.max(1);
        let waiting = (0..predecessors).map(|_| VecDeque::with_capacity(limit + 1)).collect();
        JoinState { by_number, limit, waiting, joined: alloc::vec![None; predecessors] }
    }

    /// How many completions can wait.
    pub fn capacity(&self) -> usize {
        self.limit * self.waiting.len()
    }

    /// The tickets of the last complete set, by position of the predecessor.
    pub fn joined(&self) -> &[Option<Ticket>] {
        &self.joined
    }

    /// The predecessor at `position` has completed. Returns the joined token if that completes a set. The tickets of
    /// dropped completions are added to `returned`.
    pub fn arrive(
        &mut self,
        position: usize,
        token: CompletionToken,
        returned: &mut Vec<Ticket>,
    ) -> Option<CompletionToken> {
        let queue = &mut self.waiting[position];
        queue.push_back(token);
        if queue.len() > self.limit {
            returned.extend(queue.pop_front().and_then(|token| token.ticket));
        }
        if self.by_number {
            self.pass_over(returned);
        }
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let tokens = self.waiting.iter_mut().filter_map(VecDeque::pop_front).zip(&mut self.joined);
        let tokens = tokens.map(|(token, ticket)| {
            *ticket = token.ticket;
            token
        });
        tokens.reduce(|one, other| CompletionToken {
            number: one.number.max(other.number),
            // The oldest data determines the deadline; the slowest root the period.
            origin: one.origin.min(other.origin),
            period: one.period.max(other.period),
            ticket: None,
        })
    }

    /// Drops every completion that waits.
    pub fn clear(&mut self, returned: &mut Vec<Ticket>) {
        returned.extend(self.waiting.iter_mut().flat_map(|queue| queue.drain(..)).filter_map(|token| token.ticket));
    }

    /// Drops the completions with this number, if all have the numbers of one root.
    pub fn forget(&mut self, number: u64, returned: &mut Vec<Ticket>) {
        for queue in self.waiting.iter_mut().filter(|_| self.by_number) {
            if let Some(position) = queue.iter().position(|token| token.number == number) {
                returned.extend(queue.remove(position).and_then(|token| token.ticket));
            }
        }
    }

    /// Drops tokens with a number that some predecessor has already passed.
    fn pass_over(&mut self, returned: &mut Vec<Ticket>) {
        loop {
            let Some(newest) = self.waiting.iter().filter_map(|queue| queue.front()).map(|token| token.number).max()
            else {
                return;
            };
            let mut passed = false;
            for queue in &mut self.waiting {
                while queue.front().is_some_and(|token| token.number < newest) {
                    returned.extend(queue.pop_front().and_then(|token| token.ticket));
                    passed = true;
                }
            }
            if !passed {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn ticket(number: u64) -> Option<Ticket> {
        core::num::NonZeroU32::new(number as u32).map(Ticket)
    }

    fn token(number: u64) -> CompletionToken {
        let (origin, period) = (Instant::from_nanos(number * 10), Span::from_nanos(10));
        CompletionToken { number, origin, period, ticket: ticket(number) }
    }

    /// The joined number, and the tickets that the join dropped.
    fn arrive(join: &mut JoinState, position: usize, number: u64) -> (Option<u64>, Vec<Ticket>) {
        let mut returned = Vec::new();
        let joined = join.arrive(position, token(number), &mut returned);
        (joined.map(|token| token.number), returned)
    }

    #[test]
    fn a_number_that_one_predecessor_lost_is_passed_over() {
        let mut join = JoinState::new(2, true, 4);
        assert_eq!(arrive(&mut join, 0, 1), (None, vec![]));
        assert_eq!(arrive(&mut join, 0, 2), (None, vec![]));
        assert_eq!(arrive(&mut join, 1, 2), (Some(2), vec![ticket(1).unwrap()]));
        assert_eq!(join.joined(), [ticket(2), ticket(2)]);
        assert_eq!(arrive(&mut join, 1, 3), (None, vec![]));
        assert_eq!(arrive(&mut join, 0, 3).0, Some(3));
    }

    #[test]
    fn several_roots_pair_their_oldest_completions() {
        let mut join = JoinState::new(2, false, 4);
        assert_eq!(arrive(&mut join, 0, 5).0, None);
        let joined = join.arrive(1, token(2), &mut Vec::new()).unwrap();
        assert_eq!((joined.number, joined.origin), (5, Instant::from_nanos(20)));
        assert_eq!(join.joined(), [ticket(5), ticket(2)]);
    }

    #[test]
    fn a_predecessor_too_far_ahead_loses_its_oldest_completion() {
        let mut join = JoinState::new(2, false, 2);
        let lost: Vec<Ticket> = (1..=3).flat_map(|number| arrive(&mut join, 0, number).1).collect();
        assert_eq!(lost, [ticket(1).unwrap()]);
        assert_eq!(join.arrive(1, token(9), &mut Vec::new()).unwrap().origin, Instant::from_nanos(20));
    }
}
