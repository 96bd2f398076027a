//! Joins: an operation with an `all` trigger runs when each of its predecessors has completed.

use alloc::{collections::VecDeque, vec::Vec};

use hyoshi_model::{Instant, Span};

/// What a completion hands to the operation it triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Release number of the job that completed.
    pub number: u64,
    /// Nominal release of its root.
    pub origin: Instant,
    /// Present period of its root.
    pub period: Span,
}

/// Collects the completions of several predecessors.
///
/// If all carry the numbers of one root, tokens of one release number belong together and a number
/// that one predecessor never completes (cancelled, dropped) is passed over. With several roots, or
/// behind a merge that counts for itself, the oldest unused completions go together.
#[derive(Debug)]
pub struct Join {
    by_number: bool,
    limit: usize,
    waiting: Vec<VecDeque<Token>>,
}

impl Join {
    /// A join of `predecessors`, each of which may be ahead of the others by `limit` completions;
    /// beyond that its oldest is given up.
    pub fn new(predecessors: usize, by_number: bool, limit: usize) -> Self {
        let limit = limit.max(1);
        let waiting = (0..predecessors).map(|_| VecDeque::with_capacity(limit + 1)).collect();
        Join { by_number, limit, waiting }
    }

    /// The predecessor at `position` has completed; the joined token if that completes a set.
    pub fn arrive(&mut self, position: usize, token: Token) -> Option<Token> {
        let queue = &mut self.waiting[position];
        queue.push_back(token);
        if queue.len() > self.limit {
            queue.pop_front();
        }
        if self.by_number {
            self.pass_over();
        }
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let tokens = self.waiting.iter_mut().filter_map(VecDeque::pop_front);
        tokens.reduce(|one, other| Token {
            number: one.number.max(other.number),
            // The oldest data decides the deadline; the slowest root the pace.
            origin: one.origin.min(other.origin),
            period: one.period.max(other.period),
        })
    }

    /// Drops tokens whose number some predecessor has already passed.
    fn pass_over(&mut self) {
        loop {
            let Some(newest) = self.waiting.iter().filter_map(|queue| queue.front()).map(|token| token.number).max()
            else {
                return;
            };
            let mut passed = false;
            for queue in &mut self.waiting {
                while queue.front().is_some_and(|token| token.number < newest) {
                    queue.pop_front();
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

    fn token(number: u64) -> Token {
        Token { number, origin: Instant::from_nanos(number * 10), period: Span::from_nanos(10) }
    }

    #[test]
    fn a_number_that_one_predecessor_lost_is_passed_over() {
        let mut join = Join::new(2, true, 4);
        assert_eq!(join.arrive(0, token(0)), None);
        assert_eq!(join.arrive(0, token(1)), None);
        assert_eq!(join.arrive(1, token(1)), Some(token(1)));
        assert_eq!(join.arrive(1, token(2)), None);
        assert_eq!(join.arrive(0, token(2)), Some(token(2)));
    }

    #[test]
    fn several_roots_pair_their_oldest_completions() {
        let mut join = Join::new(2, false, 4);
        assert_eq!(join.arrive(0, token(5)), None);
        let joined = join.arrive(1, token(2)).unwrap();
        assert_eq!((joined.number, joined.origin), (5, Instant::from_nanos(20)));
    }

    #[test]
    fn a_predecessor_too_far_ahead_loses_its_oldest_completion() {
        let mut join = Join::new(2, false, 2);
        for number in 0..3 {
            assert_eq!(join.arrive(0, token(number)), None);
        }
        assert_eq!(join.arrive(1, token(9)).unwrap().origin, Instant::from_nanos(10));
    }
}
