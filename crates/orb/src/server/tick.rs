//! The periodic work of a lane. The housekeeping thread does it at a higher priority than the lane's threads, so it never
//! waits and does little at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::connection::Connection;
use super::{AtWork, Lane};
use crate::channel::{Incoming, slowest};

/// Connections that one step of a round checks.
const SOME: usize = 256;

impl Lane {
    /// Every 10 ms while the lane is busy: other threads may read the connections of long requests, waiting messages
    /// are sent, and paused listeners accept again.
    pub(crate) fn tick(self: &Arc<Self>) {
        let mut at_work = Vec::new();
        for slot in self.at_work.iter().chain(self.borrowing.at_work.get().into_iter().flatten()) {
            let long = slot.lock().as_mut().and_then(|AtWork { connection, epoch, seen }| {
                at_work.push(connection.number);
                if connection.pipelining.is_seen() || connection.duplex.get().is_some() {
                    connection.check_gone();
                }
                let runs = connection.latest();
                // The same request at two ticks is a long one.
                let same = runs.is_some() && std::mem::replace(seen, runs) == runs;
                same.then(|| (connection.clone(), *epoch))
            });
            if let Some((connection, epoch)) = long {
                self.let_others_read(&connection, epoch, self.may_run());
            }
        }
        at_work.sort_unstable();
        at_work.dedup();
        self.tick_fairness(at_work.len());
        let now = self.now.load(Ordering::Relaxed);
        let (count, mut at) = (self.behind.lock().len(), 0);
        // They stay in the list meanwhile: another thread may select one of them to close. Only this thread removes
        // any.
        for _ in 0..count {
            let Some(connection) = self.listed(at) else { break };
            let socket = &connection.socket;
            let flushed = socket.outbox.tick(now, self.pace, |octets| socket.write_now(octets));
            if !connection.socket.outbox.owes_replies() {
                self.read_on(&connection);
            }
            if matches!(flushed, Ok(None)) {
                at += 1;
                continue;
            }
            self.behind.lock().swap_remove(at);
            match flushed {
                Ok(Some(true)) => self.arm(&connection),
                Ok(_) => {}
                Err(_) => self.close(&connection),
            }
        }
        self.admit_waiting();
        self.tick_lingering();
        self.go_on_accepting();
    }

    fn listed(&self, at: usize) -> Option<Arc<Connection>> {
        self.behind.lock().get(at).cloned()
    }

    /// Octets wait for the connection's client. With `first` the lane's list does not contain it yet. If too many
    /// octets wait in the lane, the [slowest] connection is closed. False if it is this one.
    #[cold]
    pub(super) fn put_behind(&self, connection: &Arc<Connection>, first: bool) -> bool {
        if first {
            self.behind.lock().push(connection.clone());
            self.wake_housekeeping();
        }
        while self.table.sums.waiting.load(Ordering::Relaxed) > self.backlog {
            let behind = self.behind.lock();
            let all = [connection].into_iter().chain(behind.iter()).filter(|one| one.socket.outbox.is_behind());
            let most = slowest(all, |one| one.socket.outbox.debt()).unwrap_or(connection).clone();
            drop(behind);
            self.close(&most);
            if Arc::ptr_eq(&most, connection) {
                return false;
            }
        }
        true
    }

    /// True while threads serve connections that may need another thread, messages wait, or listeners are paused.
    pub(crate) fn is_busy(&self) -> bool {
        let idle = self.idle.load(Ordering::Relaxed);
        (idle < self.threads.lock().len() && (idle == 0 || !self.options.brief))
            || !self.behind.lock().is_empty()
            || !self.resting.lock().is_empty()
            || self.has_waiting()
    }

    pub(crate) fn connections(&self) -> usize {
        self.table.len()
    }

    /// The next step of a round that closes connections that are silent or send a message too slowly. False
    /// when the round is over; the next call begins another.
    pub(crate) fn sweep(&self, now: u64) -> bool {
        let some = self.table.some(self.swept.load(Ordering::Relaxed), SOME);
        for connection in &some {
            self.look_after(connection, now);
        }
        let next = some.last().filter(|_| some.len() == SOME).map(|last| last.number + 1);
        self.swept.store(next.unwrap_or(0), Ordering::Relaxed);
        next.is_some()
    }

    fn look_after(&self, connection: &Arc<Connection>, now: u64) {
        let heard = || connection.heard.load(Ordering::Relaxed);
        let deadline = || connection.incoming.lock().as_ref().and_then(|it| it.deadline(heard(), self.pace));
        // One that waits until its request can be handed over is not read.
        let waits = || connection.incoming.lock().as_ref().is_some_and(Incoming::holds_some);
        let overdue = || {
            let late = match deadline() {
                Some(deadline) => now > deadline,
                None => now.saturating_sub(heard()) > self.silent && !connection.is_wanted() && !waits(),
            };
            late && !connection.is_running()
                // The tick sees to those that do not take what they are sent.
                && !connection.socket.outbox.is_behind()
        };
        if !overdue() {
            return;
        }
        // From here on no other thread reads a request from it; one may have before.
        let Some(epoch) = connection.own() else { return };
        if !overdue() {
            connection.release(epoch);
            self.arm(connection);
        } else if deadline().is_some() {
            self.close(connection);
        } else {
            self.end(connection);
        }
    }
}
