//! How connections come to a lane, and make room for others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyoshi_os::MissingResource;

use super::connection::Connection;
use super::lane::Lane;
use crate::failure::Failure;
use crate::link::Link;

/// Connections that a thread accepts before it looks at others again.
const ACCEPTS: usize = 64;
/// How long a thread waits for a client to take a reply.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// Seconds for which nobody has to go who said nothing yet, however few file descriptors there are.
const FIRST_WORDS: u64 = 2;

impl Lane {
    pub(super) fn accept(&self, number: u64) {
        let Some(listener) = self.listeners.lock().get(number as usize).cloned() else { return };
        let mut made_room = false;
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok(Some(stream)) => {
                    made_room = false;
                    if !self.orb.upgrade().is_some_and(|orb| orb.lets_in(&stream, false)) {
                        continue;
                    }
                    // One that cannot even be set up is dropped, and so closed.
                    let _ = self.take_in(Link::Plain(stream));
                }
                Ok(None) => break,
                Err(error) => match MissingResource::of(&error) {
                    None => {}
                    // One makes room. If that does not help, descriptors are lacking for other reasons.
                    Some(MissingResource::Descriptors) if !made_room && self.make_room() => made_room = true,
                    Some(_) => {
                        self.resting.lock().push(number);
                        return self.stir();
                    }
                },
            }
        }
        let _ = self.poller.arm(&*listener, number, false);
    }

    /// Listeners that were left alone are asked again.
    pub(super) fn go_on_accepting(&self) {
        for number in std::mem::take(&mut *self.resting.lock()) {
            let listener = self.listeners.lock().get(number as usize).cloned();
            if let Some(listener) = listener {
                let _ = self.poller.arm(&*listener, number, false);
            }
        }
    }

    pub(super) fn take_in(&self, mut stream: Link) -> io::Result<()> {
        stream.read_timeout(Some(self.linger))?;
        stream.write_timeout(Some(PATIENCE))?;
        let now = self.clock();
        if self.bench.is_some() {
            // Its owner handles arriving data only: the housekeeping thread closes silent connections.
            self.stir();
        }
        loop {
            match self.table.add(stream, now) {
                Ok(connection) => {
                    match self.welcome(&connection) {
                        true => self.arm(&connection),
                        false => self.close(&connection),
                    }
                    return Ok(());
                }
                // As many as there may be: the oldest that never said anything goes, however young.
                Err(back) if self.evict(u64::MAX) => stream = back,
                Err(_) => return Ok(()),
            }
        }
    }

    /// False if an interceptor refuses the client.
    fn welcome(&self, connection: &Connection) -> bool {
        let Some(orb) = self.orb.upgrade() else { return true };
        if orb.server_interceptors.is_empty() {
            return true;
        }
        let Some(who) = connection.client() else { return true };
        orb.server_interceptors.iter().all(|interceptor| match interceptor.connected(&who) {
            Ok(seat) => {
                seat.into_iter().for_each(|seat| connection.seat(seat));
                true
            }
            Err(_) => false,
        })
    }

    /// Closes the oldest connection that never said anything, though it had time to. False if there is none.
    pub(super) fn make_room(&self) -> bool {
        match self.clock().checked_sub(FIRST_WORDS) {
            Some(before) => self.evict(before),
            None => false,
        }
    }

    fn evict(&self, before: u64) -> bool {
        self.table.oldest_silent(before).map(|silent| self.close(&silent)).is_some()
    }

    pub(super) fn secure_connections(&self) -> Vec<Arc<Connection>> {
        self.table.all().into_iter().filter(|connection| connection.stream.is_secure()).collect()
    }

    /// Ends a connection as soon as none of its requests runs, or at once if not `patient`. True when it has.
    pub(super) fn part_with(&self, connection: &Arc<Connection>, patient: bool) -> bool {
        match connection.own() {
            Some(epoch) if connection.is_engaged() && patient => {
                connection.release(epoch);
                self.arm(connection);
                return false;
            }
            Some(_) => self.end(connection),
            None if patient => return false,
            None => self.close(connection),
        }
        true
    }

    pub(super) fn close(&self, connection: &Arc<Connection>) {
        connection.gone.store(true, Ordering::Relaxed);
        connection.stream.close();
        connection.replies.forget();
        connection.unseat();
        self.table.remove(connection.number);
        if let Some(duplex) = connection.duplex.get() {
            duplex.over(Failure::Lost);
        }
    }

    /// Closes it in an orderly way. The client takes that as a promise that nothing runs which it has no reply to.
    pub(super) fn end(&self, connection: &Arc<Connection>) {
        connection.say_goodbye();
        self.close(connection);
    }
}
