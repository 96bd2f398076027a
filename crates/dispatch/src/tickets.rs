//! The tickets of jobs: callers attached them to the completions that triggered them.

use alloc::{vec, vec::Vec};

use hyoshi_trace::Ticket;

/// The tickets of one operation's jobs, a set for each: one ticket for each predecessor.
#[derive(Debug)]
pub(crate) struct Tickets {
    width: usize,
    slots: Vec<Option<Ticket>>,
    free: Vec<u32>,
}

/// A job's set; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TicketSet(Option<core::num::NonZeroU32>);

impl Tickets {
    /// Sets for `jobs` jobs that live at a time, each triggered by `width` predecessors.
    pub fn new(jobs: usize, width: usize) -> Self {
        // One more: a new job exists before the oldest one that it replaces ends.
        let sets = jobs as u32 + 1;
        Tickets { width, slots: vec![None; sets as usize * width], free: (1..=sets).rev().collect() }
    }

    /// How many tickets all sets hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// An empty set.
    pub fn take(&mut self) -> TicketSet {
        TicketSet(self.free.pop().and_then(core::num::NonZeroU32::new))
    }

    /// The tickets of a set, by position of the predecessor; none for no set.
    pub fn of(&self, set: TicketSet) -> &[Option<Ticket>] {
        set.0.map_or(&[], |set| &self.slots[(set.get() as usize - 1) * self.width..][..self.width])
    }

    pub fn of_mut(&mut self, set: TicketSet) -> &mut [Option<Ticket>] {
        set.0.map_or(&mut [], |set| &mut self.slots[(set.get() as usize - 1) * self.width..][..self.width])
    }

    /// Frees a set: its tickets are added to `returned`.
    pub fn release(&mut self, set: TicketSet, returned: &mut Vec<Ticket>) {
        returned.extend(self.of_mut(set).iter_mut().filter_map(Option::take));
        self.free.extend(set.0.map(core::num::NonZeroU32::get));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU32;

    #[test]
    fn sets_keep_their_tickets_until_they_are_released() {
        let ticket = |number| NonZeroU32::new(number).map(Ticket);
        let mut tickets = Tickets::new(1, 2);
        let (one, two) = (tickets.take(), tickets.take());
        assert_eq!(tickets.take(), TicketSet::default());
        tickets.of_mut(one)[1] = ticket(7);
        tickets.of_mut(two).copy_from_slice(&[ticket(8), ticket(9)]);
        assert_eq!(tickets.of(one), [None, ticket(7)]);
        let mut returned = Vec::new();
        tickets.release(two, &mut returned);
        assert_eq!(returned, [ticket(8).unwrap(), ticket(9).unwrap()]);
        assert_eq!(tickets.take(), two);
        assert_eq!(tickets.of(two), [None, None]);
        assert!(tickets.of(TicketSet::default()).is_empty());
    }
}
