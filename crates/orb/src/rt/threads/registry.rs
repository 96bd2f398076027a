//! The parts of distributable threads in this process. Their number is bounded, and their memory stays. Threads share
//! no lock while fewer than [`SHARDS`] of them add and remove parts.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyoshi_os::PiMutex;
use hyoshi_wire::giop::ThreadId;
use hyoshi_wire::{SystemException, SystemKind};

use super::part::{LAST_CANCEL, ThreadPart};
use super::watch;
use crate::current::Served;
use crate::limits::millis;
use crate::minor;
use crate::server::{ClientSource, share};

const SHARDS: usize = 8;
/// Parts of a shard: [`PARTS`](super::PARTS) of all.
const MOST: usize = super::PARTS / SHARDS;
/// Those of them that threads of clients can have. The others are for threads that begin without a request.
const MOST_OF_CLIENTS: usize = MOST / 4 * 3;

static REGISTRY: [PiMutex<PartShard>; SHARDS] = [const { PiMutex::new(PartShard::new()) }; SHARDS];

thread_local! {
    /// The shard of this thread's parts.
    static OWN: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS)
    };
}

#[derive(Debug)]
struct PartShard {
    slots: Vec<PartSlot>,
    free: Vec<u16>,
    /// What each client has of them.
    of_clients: ClientParts,
}

/// The parts of each client in a shard, with at least one. Few clients have some at a time, so a search is brief.
#[derive(Debug)]
struct ClientParts {
    by_client: Vec<(Option<ClientSource>, usize)>,
    all: usize,
}

impl ClientParts {
    /// One more, if the client's share of all permits it while so many parts of the shard are free.
    fn add(&mut self, client: Option<ClientSource>, free: usize) -> bool {
        let free = free.min(MOST_OF_CLIENTS - self.all);
        let known = self.by_client.iter().position(|(known, _)| *known == client);
        let own = known.map_or(0, |at| self.by_client[at].1);
        if own >= share(own, free) {
            return false;
        }
        match known {
            Some(at) => self.by_client[at].1 += 1,
            None => self.by_client.push((client, 1)),
        }
        self.all += 1;
        true
    }

    fn remove(&mut self, client: Option<ClientSource>) {
        let Some(at) = self.by_client.iter().position(|(known, _)| *known == client) else { return };
        self.by_client[at].1 -= 1;
        if self.by_client[at].1 == 0 {
            self.by_client.swap_remove(at);
        }
        self.all -= 1;
    }
}

#[derive(Debug)]
struct PartSlot {
    part: Arc<ThreadPart>,
    is_live: bool,
    arrival: Option<HopArrival>,
}

/// The request with which a thread arrived.
#[derive(Clone, Debug)]
pub(super) struct HopArrival {
    pub(super) connection: Arc<dyn Served>,
    pub(super) request: u32,
    pub(super) wants_reply: bool,
    /// Since when its thread owns the connection, as in [`Serving`](crate::current::Serving).
    pub(super) epoch: Option<u64>,
    /// How often it was found at work.
    seen: u8,
}

impl HopArrival {
    pub(super) fn new(connection: Arc<dyn Served>, request: u32, wants_reply: bool, epoch: Option<u64>) -> HopArrival {
        HopArrival { connection, request, wants_reply, epoch, seen: 0 }
    }

    fn is_of(&self, connection: &dyn Served) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.connection), connection)
    }
}

impl PartShard {
    const fn new() -> PartShard {
        let of_clients = ClientParts { by_client: Vec::new(), all: 0 };
        PartShard { slots: Vec::new(), free: Vec::new(), of_clients }
    }

    fn add(&mut self, shard: usize, id: ThreadId, arrival: &mut Option<HopArrival>) -> Option<Arc<ThreadPart>> {
        if let Some(arrival) = arrival {
            let free = MOST - self.slots.len() + self.free.len();
            if !self.of_clients.add(arrival.connection.source(), free) {
                return None;
            }
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MOST => {
                self.slots.push(PartSlot { part: Arc::new(ThreadPart::new()), is_live: false, arrival: None });
                (self.slots.len() - 1) as u16
            }
            None => return None,
        };
        let PartSlot { part, is_live, arrival: own } = &mut self.slots[usize::from(slot)];
        if Arc::get_mut(part).is_none() {
            // The program has a handle of its former thread.
            *part = Arc::new(ThreadPart::new());
        }
        Arc::get_mut(part)?.reuse(id, (shard as u16, slot));
        (*is_live, *own) = (true, arrival.take());
        Some(part.clone())
    }

    fn live(&self) -> impl Iterator<Item = &PartSlot> {
        self.slots.iter().filter(|slot| slot.is_live)
    }
}

/// Adds a part. IMP_LIMIT if there are too many, or its client has its share of them.
#[inline]
pub(super) fn add(id: ThreadId, mut arrival: Option<HopArrival>) -> Result<Arc<ThreadPart>, SystemException> {
    let own = OWN.get();
    let is_read_here = arrival.as_ref().is_some_and(|arrival| arrival.epoch.is_some());
    let added = (0..SHARDS)
        .find_map(|step| {
            let shard = (own + step) % SHARDS;
            REGISTRY[shard].lock().add(shard, id, &mut arrival)
        })
        .ok_or(SystemKind::ImpLimit.not_done(minor::THREAD_LIMIT))?;
    if is_read_here {
        watch::wake();
    }
    Ok(added)
}

/// The part has ended here.
#[inline]
pub(super) fn remove(part: &ThreadPart) {
    part.end();
    part.drop_oneways();
    let (shard, slot) = part.place;
    let mut shard = REGISTRY[usize::from(shard)].lock();
    let PartSlot { is_live, arrival, .. } = &mut shard.slots[usize::from(slot)];
    *is_live = false;
    let gone = arrival.take();
    shard.free.push(slot);
    if let Some(arrival) = &gone {
        shard.of_clients.remove(arrival.connection.source());
    }
    drop(shard);
    // Nor is this.
    drop(gone);
}

/// The parts of a thread in this process, those that arrived last not necessarily last.
pub(super) fn parts_of(id: ThreadId) -> Vec<Arc<ThreadPart>> {
    let parts = |shard: &PiMutex<PartShard>| {
        let shard = shard.lock();
        shard.live().filter(|slot| slot.part.id == id).map(|slot| slot.part.clone()).collect::<Vec<_>>()
    };
    REGISTRY.iter().flat_map(parts).collect()
}

/// The number of all parts.
pub(super) fn count() -> usize {
    REGISTRY.iter().map(|shard| shard.lock().live().count()).sum()
}

/// Calls of parts that were cancelled long ago wait no longer for their replies.
pub(crate) fn give_up_late(now: u64) {
    let before = now.saturating_sub(millis(super::UNWINDS_WITHIN));
    // Housekeeping threads look at least once a second.
    if LAST_CANCEL.load(Ordering::Relaxed).saturating_add(2 * millis(super::UNWINDS_WITHIN)) < now {
        return;
    }
    for shard in &REGISTRY {
        let cancelled = |slot: &&PartSlot| slot.part.is_cancelled();
        let parts: Vec<_> = shard.lock().live().filter(cancelled).map(|slot| slot.part.clone()).collect();
        parts.iter().for_each(|part| part.give_up(before));
    }
}

/// Cancels the threads that arrived over the connection: with this request, or with any that waits for a reply. False
/// if there is none.
pub(crate) fn cancel(connection: &dyn Served, request: Option<u32>) -> bool {
    let mut found = false;
    for shard in &REGISTRY {
        let meant = |arrival: &HopArrival| {
            arrival.is_of(connection) && request.map_or(arrival.wants_reply, |request| arrival.request == request)
        };
        let parts: Vec<_> = {
            let shard = shard.lock();
            let meant = shard.live().filter(|slot| slot.arrival.as_ref().is_some_and(meant));
            meant.map(|slot| slot.part.clone()).collect()
        };
        found |= !parts.is_empty();
        // Not under the lock: it may send.
        parts.iter().for_each(|part| _ = part.cancel());
    }
    found
}

/// Adds to `found` the connections whose reading threads run requests of threads that this function finds for the second
/// time, or later. False if no reading thread runs such a request.
pub(super) fn find_at_work(found: &mut Vec<(Arc<dyn Served>, u64)>) -> bool {
    let mut any = false;
    for shard in &REGISTRY {
        let mut shard = shard.lock();
        for slot in shard.slots.iter_mut().filter(|slot| slot.is_live) {
            let Some(HopArrival { connection, epoch: Some(epoch), seen, .. }) = &mut slot.arrival else { continue };
            any = true;
            *seen = seen.saturating_add(1);
            if *seen >= 2 {
                found.push((connection.clone(), *epoch));
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ThreadId {
        ThreadId { origin: 1, number }
    }

    #[test]
    fn a_shard_has_so_many_parts_and_reuses_their_memory_unless_a_handle_exists() {
        let mut shard = PartShard::new();
        let parts: Vec<_> = (0..MOST as u64).map(|number| shard.add(3, id(number), &mut None).unwrap()).collect();
        assert!(shard.add(3, id(0), &mut None).is_none());
        assert_eq!((parts[7].place, shard.live().count()), ((3, 7), MOST));
        let (first, second) = (Arc::as_ptr(&parts[0]), Arc::as_ptr(&parts[1]));
        let handle = parts[1].clone();
        drop(parts);
        let mut again = |slot: u16| {
            shard.slots[usize::from(slot)].is_live = false;
            shard.free.push(slot);
            shard.add(3, id(9), &mut None).unwrap()
        };
        handle.cancel();
        let (reused, new) = (again(0), again(1));
        assert!(std::ptr::eq(Arc::as_ptr(&reused), first) && !std::ptr::eq(Arc::as_ptr(&new), second));
        assert_eq!((new.id, new.is_cancelled(), handle.id), (id(9), false, id(1)));
    }

    #[test]
    fn a_client_leaves_parts_for_others_and_all_clients_leave_some_for_roots() {
        let mut parts = PartShard::new().of_clients;
        let mut flood = |user: u32, free: usize| {
            let client = Some(ClientSource::User(user));
            (0..MOST).filter(|_| parts.add(client, free)).count()
        };
        assert_eq!(flood(0, MOST), MOST_OF_CLIENTS / 2);
        assert_eq!(flood(1, MOST), MOST_OF_CLIENTS / 4);
        assert_eq!(flood(0, MOST), 0);
        let others: usize = (2..100).map(|user| flood(user, MOST)).sum();
        assert_eq!(
            others,
            MOST_OF_CLIENTS / 4,
            "whatever there is of clients, {MOST} - {MOST_OF_CLIENTS} stay for roots"
        );
        assert_eq!(flood(100, MOST), 0);
        parts.remove(Some(ClientSource::User(0)));
        assert_eq!((parts.add(None, 0), parts.add(None, MOST), parts.add(None, MOST)), (false, true, false));
    }
}
