//! Which payloads belong to which job. The dispatcher joins completions by number and knows
//! nothing of bytes; an inbox makes the same joins over the payloads and keeps each set under the
//! number of the job that it triggers, until that job ends.

use std::collections::VecDeque;
use std::sync::Arc;

use hyoshi_model::{OperationId, System, Trigger};

use crate::payload::Payload;

/// What one predecessor handed on: its release number, and its bytes if it emitted some.
type Part = (u64, Option<Arc<Payload>>);

/// The payloads on their way to one triggered operation.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Takes the trigger's number over; else it counts for itself.
    inherits_number: bool,
    next_number: u64,
    join: Option<Join>,
    /// By number of the job that they trigger.
    sets: Vec<(u64, Vec<Option<Arc<Payload>>>)>,
    /// How many of `sets` are in use; the rest keep their memory.
    used: usize,
    /// Scratch: one set.
    joined: Vec<Option<Arc<Payload>>>,
}

/// The mirror of the dispatcher's join.
#[derive(Debug)]
struct Join {
    by_number: bool,
    limit: usize,
    waiting: Vec<VecDeque<Part>>,
}

impl Inbox {
    /// The inbox of an operation, if anything that triggers it hands bytes on.
    pub fn of(system: &System, id: OperationId) -> Option<Inbox> {
        let operation = system.operation(id);
        let predecessors = operation.trigger.predecessors();
        if predecessors.iter().all(|from| system.operation(*from).payload == 0) {
            return None;
        }
        let by_number = system.numbered_by_root(id);
        let limit = operation.queue.limit as usize;
        let queue = || VecDeque::with_capacity(limit.max(1) + 1);
        let (join, inherits_number) = match &operation.trigger {
            Trigger::Periodic => (None, false),
            Trigger::All(all) if all.len() > 1 => {
                let waiting = (0..all.len()).map(|_| queue()).collect();
                (Some(Join { by_number, limit: limit.max(1), waiting }), by_number)
            }
            Trigger::All(_) => (None, true),
            Trigger::Any(any) => (None, any.len() == 1),
        };
        // As many as there can be jobs of it at a time, and one that is on its way to being dropped.
        let sets = (0..operation.queue.most_jobs() + 1).map(|_| (0, vec![None; predecessors.len()])).collect();
        let joined = vec![None; predecessors.len()];
        Some(Inbox { inherits_number, next_number: 0, join, sets, used: 0, joined })
    }

    /// The predecessor at `position` has completed its job `number`. To be told in the order in
    /// which the dispatcher is; `enabled` as the dispatcher sees it.
    pub fn arrive(&mut self, position: usize, number: u64, payload: Option<Arc<Payload>>, enabled: bool) {
        self.joined.fill(None);
        let number = match &mut self.join {
            Some(join) => match join.arrive(position, (number, payload), &mut self.joined) {
                Some(number) => number,
                None => return,
            },
            None => {
                self.joined[position] = payload;
                number
            }
        };
        if !enabled {
            return;
        }
        let number = if self.inherits_number { number } else { self.next_number };
        self.next_number += 1;
        if self.used == self.sets.len() {
            // Jobs ended unseen: give the oldest set up.
            self.free_place(0);
        }
        let (of, set) = &mut self.sets[self.used];
        *of = number;
        core::mem::swap(set, &mut self.joined);
        self.used += 1;
    }

    /// The payloads of a job, by position of the predecessor.
    pub fn get(&self, number: u64) -> Option<&[Option<Arc<Payload>>]> {
        self.sets[..self.used].iter().find(|(of, _)| *of == number).map(|(_, set)| &set[..])
    }

    /// The job has ended.
    pub fn free(&mut self, number: u64) {
        if let Some(place) = self.sets[..self.used].iter().position(|(of, _)| *of == number) {
            self.free_place(place);
        }
    }

    fn free_place(&mut self, place: usize) {
        self.sets[place].1.fill(None);
        self.used -= 1;
        self.sets[place..=self.used].rotate_left(1);
    }
}

impl Join {
    fn arrive(&mut self, position: usize, part: Part, joined: &mut [Option<Arc<Payload>>]) -> Option<u64> {
        let queue = &mut self.waiting[position];
        queue.push_back(part);
        if queue.len() > self.limit {
            queue.pop_front();
        }
        if self.by_number {
            let newest =
                |waiting: &[VecDeque<Part>]| waiting.iter().filter_map(|queue| queue.front()).map(|p| p.0).max();
            while let Some(newest) = newest(&self.waiting) {
                let mut passed = false;
                for queue in &mut self.waiting {
                    while queue.front().is_some_and(|(number, _)| *number < newest) {
                        queue.pop_front();
                        passed = true;
                    }
                }
                if !passed {
                    break;
                }
            }
        }
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let parts = self.waiting.iter_mut().filter_map(VecDeque::pop_front).zip(joined);
        parts
            .map(|((number, payload), place)| {
                *place = payload;
                number
            })
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_dispatch::join::{Join as Reference, Token};
    use hyoshi_model::{Instant, Span};
    use proptest::prelude::*;

    proptest! {
        /// The inbox pairs what the dispatcher pairs, whatever arrives in whatever order.
        #[test]
        fn an_inbox_joins_as_the_dispatcher_does(
            by_number: bool, limit in 1usize..4, arrivals in prop::collection::vec((0usize..3, 0u64..3), 0..200)
        ) {
            let mut reference = Reference::new(3, by_number, limit);
            let waiting = (0..3).map(|_| VecDeque::new()).collect();
            let mut join = Join { by_number, limit, waiting };
            let mut numbers = [0u64; 3];
            for (position, step) in arrivals {
                numbers[position] += step;
                let token = Token { number: numbers[position], origin: Instant::ZERO, period: Span::ZERO };
                let expected = reference.arrive(position, token).map(|token| token.number);
                prop_assert_eq!(join.arrive(position, (numbers[position], None), &mut vec![None; 3]), expected);
            }
        }
    }

    #[test]
    fn sets_are_found_by_number_and_freed_in_any_order() {
        let sets = (0..3).map(|_| (0, vec![None])).collect();
        let mut inbox = Inbox { inherits_number: true, next_number: 0, join: None, sets, used: 0, joined: vec![None] };
        for number in [4, 7, 9] {
            inbox.arrive(0, number, None, true);
        }
        inbox.free(7);
        assert!(inbox.get(4).is_some() && inbox.get(7).is_none() && inbox.get(9).is_some());
        inbox.arrive(0, 11, None, true);
        // Full: the oldest gives way.
        inbox.arrive(0, 12, None, true);
        assert!(inbox.get(4).is_none() && inbox.get(12).is_some());
        inbox.arrive(0, 13, None, false);
        assert!(inbox.get(13).is_none());
    }
}
