//! The sending side of a shared connection.

use std::fmt;
use std::io;
use std::time::Duration;

use hyoshi_os::May;
use hyoshi_wire::CharSet;

use crate::link::Link;

/// See the module.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// A connection for calls of this side only.
    Own(Link),
    /// One that carries calls both ways, and belongs to a lane.
    Both(Box<dyn BothWays>),
}

/// A connection that carries calls both ways.
pub(crate) trait BothWays: fmt::Debug + Send + Sync {
    /// Sends all or nothing without waiting: other threads send over it too.
    fn send(&self, octets: &[u8]) -> io::Result<()>;

    /// Waits until the socket takes something, or time is over.
    fn wait(&self, left: Duration) -> io::Result<()>;

    /// Ends the connection.
    fn close(&self);

    /// What narrow characters are on it: its opener says so, for both directions (as omniORB and JacORB have it), or they
    /// are Latin-1. None if this side may still say.
    fn chars(&self) -> Option<CharSet>;

    /// This side has sent its code sets.
    fn agree(&self, chars: CharSet);

    /// A reply is expected: the connection must be read, even if many requests wait.
    fn expect(&self);
}

impl Outlet {
    /// The connection, if calls go both ways over it.
    pub(super) fn both(&self) -> Option<&dyn BothWays> {
        match self {
            Outlet::Own(_) => None,
            Outlet::Both(both) => Some(&**both),
        }
    }

    /// Whether what was offered to be written, and not taken, must be what is written next.
    pub(super) fn is_sticky(&self) -> bool {
        matches!(self, Outlet::Own(link) if link.is_secure())
    }

    /// Sends a first part without waiting, and says how much.
    pub(super) fn write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Outlet::Own(link) => link.write(octets, May::Never),
            Outlet::Both(both) => both.send(octets).map(|()| octets.len()),
        }
    }

    pub(super) fn wait(&self, left: Duration) -> io::Result<()> {
        match self {
            Outlet::Own(link) => link.ready(true, Some(left)).map(drop),
            Outlet::Both(both) => both.wait(left),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Outlet::Own(link) => link.close(),
            Outlet::Both(both) => both.close(),
        }
    }
}
