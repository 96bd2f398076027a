//! Accepts connections, and closes others if there are too many.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyoshi_os::MissingResource;

use super::Lane;
use super::connection::Connection;
use super::source::ClientSource;
use crate::failure::CallFailure;
use crate::rt::threads;
use crate::stream::MaybeTlsStream;

/// Connections that a thread accepts before it looks at others again.
const ACCEPTS: usize = 64;
/// How long a thread waits for a client to take a reply.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// A new connection has this long for its first message, even if file descriptors run out; milliseconds.
const FIRST_MESSAGE: u64 = 2_000;

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
                    let _ = self.take_in(stream.into());
                }
                Ok(None) => break,
                Err(error) => match MissingResource::of(&error) {
                    None => {}
                    // Closing one makes room. If that does not help, the process lacks descriptors for other reasons.
                    Some(MissingResource::Descriptors) if !made_room && self.make_room() => made_room = true,
                    Some(_) => {
                        self.resting.lock().push(number);
                        return self.wake_housekeeping();
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

    pub(super) fn take_in(&self, mut link: MaybeTlsStream) -> io::Result<()> {
        link.read_timeout(Some(self.linger))?;
        link.write_timeout(Some(PATIENCE))?;
        if let (Some(place), Some(orb)) = (self.pool, self.orb.upgrade())
            && let Some(dscp) = orb.rt.dscp(place.priority)
        {
            link.set_dscp(dscp)?;
        }
        let now = self.clock();
        if self.worker.is_some() {
            // Its owner handles arriving data only: the housekeeping thread closes silent connections.
            self.wake_housekeeping();
        }
        let source = ClientSource::of(&link);
        loop {
            match self.table.add(self.this.clone(), link, now, Some(source)) {
                Ok(connection) => {
                    match self.welcome(&connection) {
                        true => self.arm(&connection),
                        false => self.close(&connection),
                    }
                    return Ok(());
                }
                Err(back) => {
                    let Some(worst) = self.table.worst(source, now.saturating_sub(FIRST_MESSAGE)) else {
                        self.count_refused();
                        return Ok(());
                    };
                    self.displace(&worst);
                    link = back;
                }
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

    /// Closes a connection whose file descriptor is needed. False if there is none.
    pub(super) fn make_room(&self) -> bool {
        let dispensable = self.table.dispensable(self.clock().saturating_sub(FIRST_MESSAGE));
        dispensable.inspect(|connection| self.displace(connection)).is_some()
    }

    /// Closes a connection for another one. A client that has sent something may send it again.
    fn displace(&self, connection: &Arc<Connection>) {
        self.count_refused();
        match connection.is_silent() {
            true => self.close(connection),
            false => drop(self.part_with(connection, false)),
        }
    }

    fn count_refused(&self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn secure_connections(&self) -> Vec<Arc<Connection>> {
        self.table.all().into_iter().filter(|connection| connection.link().is_secure()).collect()
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
        // First: its callers must not find the outbox empty and take that for sent.
        if let Some(duplex) = connection.duplex.get() {
            duplex.over(CallFailure::Lost);
        }
        connection.link().close();
        connection.socket.outbox.clear();
        connection.unseat();
        // No client waits for the outcome of its distributable threads.
        threads::cancel_arrived(&**connection, None);
        self.table.remove(connection.number);
    }

    /// Closes it in an orderly way. The client takes that as a promise that nothing runs which it has no reply to.
    pub(super) fn end(&self, connection: &Arc<Connection>) {
        connection.send_close();
        self.close(connection);
    }
}
