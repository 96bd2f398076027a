//! CancelRequests of distributable threads, read while a lane's threads are busy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_os::May;

use super::Lane;
use super::connection::Connection;
use crate::channel::{Incoming, extract_cancels};
use crate::rt::threads;

/// Octets of a connection that may wait for a lane's thread, for CancelRequests behind them to be read.
const MOST_WAITING: usize = 64 << 10;

/// Reads of one connection before the others have their turn.
const READS: usize = 8;

/// CancelRequests of one connection that are served at once, above the lanes. Further ones wait for a lane's thread.
const CANCELS: usize = 32;

impl Lane {
    /// Reads what has arrived, and cancels the threads that it names. A thread of the lane reads the other messages. True
    /// if a request still runs, and the connection should be watched on.
    pub(super) fn read_cancels(self: &Arc<Self>, connection: &Arc<Connection>, buffer: &mut [u8]) -> bool {
        let is_full = || connection.incoming.lock().as_ref().is_some_and(|own| own.held() >= MOST_WAITING);
        let Some(epoch) = connection.own() else { return false };
        if is_full() {
            connection.release(epoch);
            self.make_ready(connection);
            return false;
        }
        let mut incoming = connection.incoming.lock().take().unwrap_or_else(|| Incoming::new(self.limits));
        connection.unfinished.take();
        // `None` if the lane's thread has read a part of a message: only that thread can read the rest.
        let octets = incoming.take_octets().map(|octets| self.find_cancels(connection, octets, buffer));
        let waits = match octets {
            Some(Ok(octets)) if octets.is_empty() => false,
            Some(Ok(octets)) => {
                incoming.resume_octets(octets);
                true
            }
            Some(Err(_)) => {
                self.close(connection);
                return false;
            }
            None => true,
        };
        if !self.release(connection, epoch, incoming, &[]) {
            return false;
        }
        let runs = connection.is_running();
        if waits {
            self.make_ready(connection);
        } else if !runs {
            self.arm(connection);
        }
        runs
    }

    /// Messages of the connection wait for a thread: it is among those that do, once.
    fn make_ready(&self, connection: &Arc<Connection>) {
        if !connection.socket.outbox.may_arm() {
            return;
        }
        let mut ready = self.ready.lock();
        if !ready.iter().any(|one| Arc::ptr_eq(one, connection)) {
            ready.push_back(connection.clone());
            drop(ready);
            self.poller.poke();
        }
    }

    fn find_cancels(
        &self,
        connection: &Arc<Connection>,
        mut octets: Vec<u8>,
        buffer: &mut [u8],
    ) -> io::Result<Vec<u8>> {
        for _ in 0..READS {
            if octets.len() >= MOST_WAITING {
                break;
            }
            match connection.link().read(buffer, May::Never) {
                // Whole messages before the end are served first; the lane's thread finds the end again.
                Ok(0) | Err(_) if !octets.is_empty() => break,
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => octets.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            connection.heard.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut left = CANCELS;
        extract_cancels(&mut octets, |request| {
            let serves = left > 0 && threads::cancel_arrived(&**connection, Some(request));
            left -= usize::from(serves);
            serves
        });
        Ok(octets)
    }
}
