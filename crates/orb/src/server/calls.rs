//! The calls of this side over a connection of a lane.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyoshi_wire::CharSet;

use super::connection::Connection;
use super::lane::Lane;
use crate::client::{BothWays, Mux, Outlet, TakeIn};
use crate::link::Link;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LaneCalls {
    pub(super) lane: Weak<Lane>,
    pub(super) connection: Weak<Connection>,
    /// Whether this side opened it.
    pub(super) opened: bool,
}

impl LaneCalls {
    fn both(&self) -> io::Result<(Arc<Lane>, Arc<Connection>)> {
        self.lane.upgrade().zip(self.connection.upgrade()).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl BothWays for LaneCalls {
    fn send(&self, octets: &[u8]) -> io::Result<()> {
        let (lane, connection) = self.both()?;
        lane.send_call(&connection, octets)
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let (lane, connection) = self.both()?;
        lane.wait_to_send(&connection, left)
    }

    fn close(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.close_stream();
        }
    }

    fn chars(&self) -> Option<CharSet> {
        let connection = self.connection.upgrade()?;
        let terms = connection.terms();
        (terms.is_agreed() || !self.opened).then(|| terms.chars())
    }

    fn agree(&self, chars: CharSet) {
        if let Some(connection) = self.connection.upgrade() {
            connection.terms().agree(chars);
        }
    }

    fn expect(&self) {
        if let Ok((lane, connection)) = self.both() {
            lane.read_on(&connection);
        }
    }
}

impl TakeIn for Arc<Lane> {
    fn take_in(&self, stream: Link, most: usize, calls: &dyn Fn(Outlet) -> Mux) -> io::Result<Arc<Mux>> {
        self.take_in_both(stream, most, calls)
    }
}
