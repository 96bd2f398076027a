//! Where the calls of a shared connection go out.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use hyoshi_os::May;
use hyoshi_wire::CharSet;

use crate::link::Link;
use crate::server::{Connection, Lane};

/// See the module.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// A connection for calls of this side only.
    Own(Link),
    /// One that carries calls both ways, and belongs to a lane.
    Both {
        /// The lane.
        lane: Weak<Lane>,
        /// The connection.
        connection: Weak<Connection>,
        /// Whether this side opened it.
        opened: bool,
    },
}

impl Outlet {
    /// Whether what was offered to be written, and not taken, must be what is written next.
    pub(crate) fn is_sticky(&self) -> bool {
        matches!(self, Outlet::Own(link) if link.is_secure())
    }

    /// Sends a first part without waiting, and says how much: all or nothing where others send over it too.
    pub(crate) fn write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Outlet::Own(link) => link.write(octets, May::Never),
            Outlet::Both { lane, connection, .. } => match (lane.upgrade(), connection.upgrade()) {
                (Some(lane), Some(connection)) => lane.send_call(&connection, octets).map(|()| octets.len()),
                _ => Err(io::ErrorKind::NotConnected.into()),
            },
        }
    }

    /// Waits until the socket takes something, or time is over.
    pub(crate) fn wait(&self, left: Duration) -> io::Result<()> {
        match self {
            Outlet::Own(link) => link.ready(true, Some(left)).map(drop),
            Outlet::Both { lane, connection, .. } => match (lane.upgrade(), connection.upgrade()) {
                (Some(lane), Some(connection)) => lane.wait_to_send(&connection, left),
                _ => Err(io::ErrorKind::NotConnected.into()),
            },
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        match self {
            Outlet::Own(link) => link.close(),
            Outlet::Both { connection, .. } => {
                if let Some(connection) = connection.upgrade() {
                    connection.close_stream();
                }
            }
        }
    }

    /// What narrow characters are on a connection that carries calls both ways: its opener says so, for both directions
    /// (as omniORB and JacORB have it), or they are Latin-1. None if this side may still say.
    pub(crate) fn chars(&self) -> Option<CharSet> {
        let Outlet::Both { connection, opened, .. } = self else { return None };
        let connection = connection.upgrade()?;
        let talk = connection.talk();
        (talk.is_agreed() || !opened).then(|| talk.chars())
    }

    /// This side told of its code sets.
    pub(crate) fn agree(&self, chars: CharSet) {
        if let Outlet::Both { connection, .. } = self
            && let Some(connection) = connection.upgrade()
        {
            connection.talk().agree(chars);
        }
    }

    /// A reply is to come: the connection must be read, however much waits to be carried out.
    pub(crate) fn expect(&self) {
        if let Outlet::Both { lane, connection, .. } = self
            && let (Some(lane), Some(connection)) = (lane.upgrade(), connection.upgrade())
        {
            lane.read_on(&connection);
        }
    }
}
