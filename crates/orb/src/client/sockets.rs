//! The connections that an ORB has opened: what the kernel counts of them, and the class of their packets.

use std::io;

use hyoshi_os::{Dscp, PiMutex, SocketStream, TcpCounts, WeakSocketStream};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OpenedSockets(PiMutex<SocketList>);

#[derive(Debug, Default)]
struct SocketList {
    /// With some that have closed since the last reading.
    sockets: Vec<OpenedSocket>,
    /// The last counts of those that have closed.
    closed: TcpCounts,
    /// Instead of their own class.
    dscp: Option<Dscp>,
}

#[derive(Debug)]
struct OpenedSocket {
    socket: WeakSocketStream,
    /// Its own class.
    dscp: Option<Dscp>,
    counts: TcpCounts,
}

impl OpenedSocket {
    fn set_dscp(&self, dscp: Option<Dscp>) -> io::Result<()> {
        let dscp = dscp.or(self.dscp).unwrap_or(Dscp::CS0);
        self.socket.upgrade().map_or(Ok(()), |socket| socket.set_dscp(dscp))
    }
}

impl SocketList {
    /// Reads the counts, and forgets closed connections.
    fn read(&mut self) -> TcpCounts {
        let (mut open, mut closed) = (TcpCounts::default(), self.closed);
        self.sockets.retain_mut(|one| match one.socket.upgrade() {
            Some(socket) => {
                one.counts = socket.tcp_counts().unwrap_or(one.counts);
                open = open + one.counts;
                true
            }
            None => {
                closed = closed + one.counts;
                false
            }
        });
        self.closed = closed;
        open + closed
    }
}

impl OpenedSockets {
    /// A connection has been opened, with this class of its own.
    pub(super) fn add(&self, socket: &SocketStream, dscp: Option<Dscp>) {
        let mut list = self.0.lock();
        if list.sockets.len() == list.sockets.capacity() {
            list.read();
        }
        let opened = OpenedSocket { socket: socket.downgrade(), dscp, counts: TcpCounts::default() };
        if list.dscp.is_some() {
            // Without the class, the connection works all the same.
            let _ = opened.set_dscp(list.dscp);
        }
        list.sockets.push(opened);
    }

    /// Of all connections so far. What a connection counted between the last reading and its end is missing.
    pub(crate) fn counts(&self) -> TcpCounts {
        self.0.lock().read()
    }

    /// All connections have this class from now on, or their own one.
    pub(crate) fn set_dscp(&self, dscp: Option<Dscp>) -> io::Result<()> {
        let mut list = self.0.lock();
        list.dscp = dscp;
        // Each one, also after a refusal.
        list.sockets.iter().map(|one| one.set_dscp(dscp)).fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyoshi_os::{Listener, SocketAddress};

    use super::*;

    #[test]
    fn connections_have_the_class_that_is_set_before_and_after_they_open_and_their_counts_stay() {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let connect = || SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let sockets = OpenedSockets::default();
        let (one, two) = (connect(), connect());
        one.set_dscp(Dscp::EF).unwrap();
        sockets.add(&one, Some(Dscp::EF));
        let class = Dscp::new(34);
        sockets.set_dscp(class).unwrap();
        sockets.add(&two, None);
        assert_eq!([&one, &two].map(|one| one.dscp().unwrap()), [class; 2]);
        one.write_all(&[1; 100]).unwrap();
        let counts = sockets.counts();
        assert!(counts.segments >= 1, "{counts:?}");
        drop(one);
        assert!(sockets.counts().segments >= counts.segments);
        assert_eq!(sockets.0.lock().sockets.len(), 1);
        sockets.set_dscp(None).unwrap();
        assert_eq!(two.dscp().unwrap(), Dscp::new(0));
    }
}
