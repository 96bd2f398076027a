//! Joins: an operation with an `all` trigger runs when each of its predecessors has completed.

use alloc::{collections::VecDeque, vec::Vec};

use hyoshi_model::{Instant, Span};
use hyoshi_trace::{DiscardReason, Ticket};

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

/// Collects the completions of several groups of predecessors; one of each group is joined.
///
/// If all have the numbers of one root, tokens of one release number are joined, and a number that one predecessor
/// never completes (cancelled, dropped) is skipped. With several roots, or after a merge that counts independently, the
/// oldest unused completions are joined. With a window, one whose origin is further than that before the origin of
/// another group's oldest is dropped: it could only be joined with earlier ones.
#[derive(Debug)]
pub struct JoinState {
    by_number: bool,
    within: Option<Span>,
    limit: usize,
    /// The group of each predecessor.
    groups: Vec<u16>,
    /// By group: the position of the predecessor, and its completion.
    waiting: Vec<VecDeque<(u16, CompletionToken)>>,
    /// The tickets of the last complete set.
    joined: Vec<Option<Ticket>>,
    /// The completions that the window or the limit dropped at the last arrival.
    dropped: Vec<DroppedCompletion>,
}

/// A completion that a join dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedCompletion {
    /// The position of the predecessor.
    pub position: u16,
    /// Its release number.
    pub number: u64,
    /// Why.
    pub reason: DiscardReason,
}

impl JoinState {
    /// A join of predecessors in these groups, which are numbered from 0. Each group may be ahead of the others by
    /// `limit` completions; beyond that its oldest is dropped.
    pub fn new(groups: Vec<u16>, by_number: bool, within: Option<Span>, limit: usize) -> Self {
        let (limit, count) = (limit.max(1), groups.iter().max().map_or(0, |last| usize::from(*last) + 1));
        let waiting = (0..count).map(|_| VecDeque::with_capacity(limit + 1)).collect();
        let joined = alloc::vec![None; groups.len()];
        // The limit drops one at most, the window all others.
        let dropped = Vec::with_capacity(1 + within.map_or(0, |_| limit * count));
        JoinState { by_number, within, limit, groups, waiting, joined, dropped }
    }

    /// How many completions can wait.
    pub fn capacity(&self) -> usize {
        self.limit * self.waiting.len()
    }

    /// The tickets of the last complete set, by position of the predecessor.
    pub fn joined(&self) -> &[Option<Ticket>] {
        &self.joined
    }

    /// The completions that the window or the limit dropped at the last arrival.
    pub fn dropped(&self) -> &[DroppedCompletion] {
        &self.dropped
    }

    /// The predecessor at `position` has completed. Returns the joined token if that completes a set. The tickets of
    /// dropped completions are added to `returned`.
    pub fn arrive(
        &mut self,
        position: u16,
        token: CompletionToken,
        returned: &mut Vec<Ticket>,
    ) -> Option<CompletionToken> {
        self.dropped.clear();
        let queue = &mut self.waiting[usize::from(self.groups[usize::from(position)])];
        queue.push_back((position, token));
        if queue.len() > self.limit
            && let Some((position, token)) = queue.pop_front()
        {
            returned.extend(token.ticket);
            let reason = DiscardReason::QueueFull;
            self.dropped.push(DroppedCompletion { position, number: token.number, reason });
        }
        if self.by_number || self.within.is_some() {
            self.pass_over(returned);
        }
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        self.joined.fill(None);
        let tokens = self.waiting.iter_mut().filter_map(VecDeque::pop_front).map(|(position, token)| {
            self.joined[usize::from(position)] = token.ticket;
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

    /// The completions that wait: the position of the predecessor, and its number.
    pub fn waiting(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.waiting.iter().flatten().map(|(position, token)| (*position, token.number))
    }

    /// Drops every completion that waits.
    pub fn clear(&mut self, returned: &mut Vec<Ticket>) {
        returned
            .extend(self.waiting.iter_mut().flat_map(|queue| queue.drain(..)).filter_map(|(_, token)| token.ticket));
    }

    /// Drops the completions with this number, if all have the numbers of one root.
    pub fn forget(&mut self, number: u64, returned: &mut Vec<Ticket>) {
        for queue in self.waiting.iter_mut().filter(|_| self.by_number) {
            if let Some(position) = queue.iter().position(|(_, token)| token.number == number) {
                returned.extend(queue.remove(position).and_then(|(_, token)| token.ticket));
            }
        }
    }

    /// Drops tokens with a number that some predecessor has already passed, and those too old for another group.
    fn pass_over(&mut self, returned: &mut Vec<Ticket>) {
        loop {
            let fronts = || self.waiting.iter().filter_map(|queue| queue.front()).map(|(_, token)| token);
            let number = fronts().map(|token| token.number).max().filter(|_| self.by_number).unwrap_or_default();
            let newest = fronts().map(|token| token.origin).max().unwrap_or_default();
            let too_old =
                |token: &CompletionToken| self.within.is_some_and(|within| newest.since(token.origin) > within);
            let mut passed = false;
            for queue in &mut self.waiting {
                while let Some((position, token)) =
                    queue.front().copied().filter(|(_, token)| token.number < number || too_old(token))
                {
                    queue.pop_front();
                    returned.extend(token.ticket);
                    if token.number >= number {
                        let reason = DiscardReason::TooOld;
                        self.dropped.push(DroppedCompletion { position, number: token.number, reason });
                    }
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
    use proptest::prelude::*;

    fn ticket(number: u64) -> Option<Ticket> {
        core::num::NonZeroU32::new(number as u32).map(Ticket)
    }

    fn token(number: u64) -> CompletionToken {
        let (origin, period) = (Instant::from_nanos(number * 10), Span::from_nanos(10));
        CompletionToken { number, origin, period, ticket: ticket(number) }
    }

    /// The joined number, and the tickets that the join dropped.
    fn arrive(join: &mut JoinState, position: u16, number: u64) -> (Option<u64>, Vec<Ticket>) {
        let mut returned = Vec::new();
        let joined = join.arrive(position, token(number), &mut returned);
        (joined.map(|token| token.number), returned)
    }

    #[test]
    fn a_number_that_one_predecessor_lost_is_passed_over() {
        let mut join = JoinState::new(vec![0, 1], true, None, 4);
        assert_eq!(arrive(&mut join, 0, 1), (None, vec![]));
        assert_eq!(arrive(&mut join, 0, 2), (None, vec![]));
        assert_eq!(arrive(&mut join, 1, 2), (Some(2), vec![ticket(1).unwrap()]));
        assert_eq!(join.joined(), [ticket(2), ticket(2)]);
        assert_eq!(arrive(&mut join, 1, 3), (None, vec![]));
        assert_eq!(arrive(&mut join, 0, 3).0, Some(3));
    }

    #[test]
    fn several_roots_pair_their_oldest_completions() {
        let mut join = JoinState::new(vec![0, 1], false, None, 4);
        assert_eq!(arrive(&mut join, 0, 5).0, None);
        let joined = join.arrive(1, token(2), &mut Vec::new()).unwrap();
        assert_eq!((joined.number, joined.origin), (5, Instant::from_nanos(20)));
        assert_eq!(join.joined(), [ticket(5), ticket(2)]);
    }

    /// The completions that the join dropped for a reason.
    fn dropped(join: &JoinState, reason: DiscardReason) -> Vec<(u16, u64)> {
        let dropped = join.dropped().iter().filter(|dropped| dropped.reason == reason);
        dropped.map(|dropped| (dropped.position, dropped.number)).collect()
    }

    #[test]
    fn a_predecessor_too_far_ahead_loses_its_oldest_completion() {
        let mut join = JoinState::new(vec![0, 1], false, None, 2);
        let lost: Vec<Ticket> = (1..=3).flat_map(|number| arrive(&mut join, 0, number).1).collect();
        assert_eq!(lost, [ticket(1).unwrap()]);
        assert_eq!(dropped(&join, DiscardReason::QueueFull), [(0, 1)]);
        assert_eq!(join.arrive(1, token(9), &mut Vec::new()).unwrap().origin, Instant::from_nanos(20));
    }

    fn at(origin: u64) -> CompletionToken {
        CompletionToken { origin: Instant::from_nanos(origin), ..token(origin) }
    }

    #[test]
    fn any_completion_of_a_group_is_sufficient() {
        // The predecessor at 0 is in both groups.
        let mut join = JoinState::new(vec![0, 0, 1, 1], false, None, 4);
        assert_eq!(arrive(&mut join, 1, 3), (None, vec![]));
        assert_eq!(arrive(&mut join, 0, 4), (None, vec![]));
        assert_eq!(arrive(&mut join, 2, 4).0, Some(4));
        assert_eq!(join.joined(), [None, ticket(3), ticket(4), None]);
        assert_eq!(arrive(&mut join, 3, 1).0, Some(4));
        assert_eq!(join.joined(), [ticket(4), None, None, ticket(1)]);
    }

    #[test]
    fn a_window_drops_what_is_too_old_for_another_group() {
        let mut join = JoinState::new(vec![0, 1], false, Some(Span::from_nanos(10)), 4);
        let returned = &mut Vec::new();
        for origin in [10, 20, 30] {
            assert_eq!(join.arrive(0, at(origin), returned), None);
        }
        assert_eq!(join.arrive(1, at(31), returned).map(|joined| joined.origin), Some(Instant::from_nanos(30)));
        assert_eq!((dropped(&join, DiscardReason::TooOld), returned.len()), (vec![(0, 10), (0, 20)], 2));
        // As far apart as allowed.
        assert_eq!(join.arrive(1, at(40), returned), None);
        assert_eq!(join.arrive(0, at(50), returned).map(|joined| joined.number), Some(50));
        assert!(join.dropped().is_empty());
    }

    proptest! {
        /// By the definition, with all completions kept: the oldest of each group, unless one of them is too old.
        #[test]
        fn joined_origins_are_within_the_window_and_each_completion_is_used_at_most_once(
            arrivals in prop::collection::vec((0u16..3, 0u64..12), 1..60), within in 0u64..20,
        ) {
            let (groups, limit) = (vec![0u16, 0, 1], 64);
            let mut join = JoinState::new(groups.clone(), false, Some(Span::from_nanos(within)), limit);
            let mut kept = [Vec::new(), Vec::new()];
            let mut now = 0;
            for (position, gap) in arrivals {
                now += gap;
                kept[usize::from(groups[usize::from(position)])].push(now);
                let joined = join.arrive(position, at(now), &mut Vec::new()).map(|joined| joined.origin.as_nanos());
                let mut dropped = 0;
                let expected = loop {
                    let (Some(one), Some(other)) = (kept[0].first(), kept[1].first()) else { break None };
                    let (one, other) = (*one, *other);
                    if one.abs_diff(other) <= within {
                        kept.iter_mut().for_each(|queue| _ = queue.remove(0));
                        break Some(one.min(other));
                    }
                    kept[usize::from(other < one)].remove(0);
                    dropped += 1;
                };
                prop_assert_eq!(joined, expected);
                prop_assert_eq!(join.dropped().len(), dropped);
            }
        }
    }
}
