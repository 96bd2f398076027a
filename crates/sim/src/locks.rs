//! Shared resources across processors: one holder each; of the waiters the one with the best level is first, of equal
//! ones the earlier. On one processor the priority ceiling prevents waiting.

use hyoshi_model::{ProcessorId, ResourceId};
use hyoshi_trace::Slot;

/// The holder and the waiters of each resource.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Vec<bool>,
    waiting: Vec<Vec<(u8, ProcessorId, Slot)>>,
    granted: Vec<(ResourceId, ProcessorId, Slot)>,
}

impl Locks {
    pub fn new(resources: usize) -> Self {
        Locks { held: vec![false; resources], waiting: vec![Vec::new(); resources], granted: Vec::new() }
    }

    /// True if the job has the resource now, false if it waits.
    pub fn acquire(&mut self, resource: ResourceId, processor: ProcessorId, slot: Slot, level: u8) -> bool {
        let free = !core::mem::replace(&mut self.held[resource.index()], true);
        if !free {
            self.waiting[resource.index()].push((level, processor, slot));
        }
        free
    }

    /// The holder releases it; the best waiter, if there is one, gets it.
    pub fn release(&mut self, resource: ResourceId) {
        let waiting = &mut self.waiting[resource.index()];
        match waiting.iter().enumerate().min_by_key(|(position, (level, ..))| (*level, *position)) {
            Some((position, _)) => {
                let (_, processor, slot) = waiting.remove(position);
                self.granted.push((resource, processor, slot));
            }
            None => self.held[resource.index()] = false,
        }
    }

    /// Removes a waiting job.
    pub fn forget(&mut self, processor: ProcessorId, slot: Slot) {
        self.waiting.iter_mut().for_each(|waiting| waiting.retain(|(_, at, waits)| (*at, *waits) != (processor, slot)));
    }

    /// A resource that changed its holder since the last call.
    pub fn take_granted(&mut self) -> Option<(ResourceId, ProcessorId, Slot)> {
        self.granted.pop()
    }
}
