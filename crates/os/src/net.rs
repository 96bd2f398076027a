//! Stream sockets, TCP and Unix, for an ORB: the same socket is read and written with blocking by the thread that
//! serves it, and without blocking by one that must not wait.
//!
//! Sockets stay in blocking mode; a call that must not wait uses `MSG_DONTWAIT` (recv(2), send(2)), which needs no
//! further system call. Timeouts are those of the socket (`SO_RCVTIMEO`, `SO_SNDTIMEO`, socket(7)): set once, they cost
//! nothing for each message.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Dscp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    shutdown, socket_with,
};
use rustix::time::Timespec;

use crate::tcp_counts::TcpCounts;

/// Connections that the kernel queues until they are accepted, at most net.core.somaxconn (4,096 since Linux 5.4).
pub(crate) const BACKLOG: i32 = 4096;

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SocketAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
}

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Up to the socket's timeout; then [`io::ErrorKind::WouldBlock`].
    Wait,
    /// The same, but also until the thread is kicked ([`ThreadHandle::kick`](crate::ThreadHandle::kick)): then
    /// [`io::ErrorKind::WouldBlock`] too.
    Linger,
    /// [`io::ErrorKind::WouldBlock`] rather than wait.
    Never,
}

/// A connected stream socket.
#[derive(Debug)]
pub struct SocketStream {
    socket: Arc<OwnedFd>,
    tcp: bool,
    /// The DSCP that was set; above 63 if none was set.
    dscp: Arc<AtomicU8>,
}

/// A connected stream socket that its owner may close at any time.
#[derive(Clone, Debug)]
pub struct WeakSocketStream {
    socket: Weak<OwnedFd>,
    tcp: bool,
    dscp: Arc<AtomicU8>,
}

impl WeakSocketStream {
    /// The socket, if it is open. Do not keep it: it stays open until then.
    pub fn upgrade(&self) -> Option<SocketStream> {
        let WeakSocketStream { socket, tcp, dscp } = self;
        Some(SocketStream { socket: socket.upgrade()?, tcp: *tcp, dscp: dscp.clone() })
    }
}

/// The process at the other end of a Unix socket, from the kernel (unix(7), SO_PEERCRED, SO_PEERGROUPS): the one that
/// connected, at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its process; 0 if that is in a namespace that is not visible from here.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Those of this process, as visible at the other end of a socket.
    pub fn own() -> Credentials {
        use rustix::process::{getegid, geteuid, getgroups, getpid};
        let groups = getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw()).collect();
        let pid = getpid().as_raw_nonzero().get().unsigned_abs();
        Credentials { pid, uid: geteuid().as_raw(), gid: getegid().as_raw(), groups }
    }
}

/// The octet of the IP header with this DSCP, and the lower two bits of `octet`, which belong to ECN (RFC 3168).
fn octet_of(dscp: Dscp, octet: u8) -> u8 {
    dscp.number() << 2 | octet & 0b11
}

/// Properties of a TCP connection (tcp(7), socket(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpProperties {
    /// Octets of the kernel's buffer for sending, which the kernel doubles and bounds (net.core.wmem_max). `None`: the
    /// kernel chooses.
    pub send_buffer: Option<u32>,
    /// The same for receiving (net.core.rmem_max).
    pub receive_buffer: Option<u32>,
    /// The kernel probes a silent peer, and closes the connection if it does not answer. Default: true.
    pub keep_alive: bool,
    /// Small messages are sent at once. Default: true.
    pub no_delay: bool,
    /// Packets go only to hosts of directly connected networks, not through a router (SO_DONTROUTE). Default: false.
    pub dont_route: bool,
}

impl Default for TcpProperties {
    fn default() -> Self {
        TcpProperties { send_buffer: None, receive_buffer: None, keep_alive: true, no_delay: true, dont_route: false }
    }
}

/// How long a peer that does not answer at all keeps a TCP connection: probes after 10 s of silence, every 5 s, three
/// of them; and 30 s for unacknowledged data (tcp(7)).
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const UNACKNOWLEDGED_MS: u32 = 30_000;

impl SocketStream {
    pub(crate) fn new(socket: OwnedFd, tcp: bool) -> SocketStream {
        SocketStream { socket: Arc::new(socket), tcp, dscp: Arc::new(AtomicU8::new(u8::MAX)) }
    }

    /// For observers that do not keep it open.
    pub fn downgrade(&self) -> WeakSocketStream {
        WeakSocketStream { socket: Arc::downgrade(&self.socket), tcp: self.tcp, dscp: self.dscp.clone() }
    }

    /// Its segments and octets so far; `None` for a Unix socket, and if the kernel does not count them.
    pub fn tcp_counts(&self) -> Option<TcpCounts> {
        if self.tcp { TcpCounts::of(self.socket.as_fd()) } else { None }
    }

    /// Connects within `timeout`.
    pub fn connect(to: &SocketAddress, timeout: Duration) -> io::Result<SocketStream> {
        SocketStream::connect_with(to, timeout, None, &TcpProperties::default())
    }

    /// The same; over TCP with these properties, and with the class `dscp` from the first packet on.
    pub fn connect_with(
        to: &SocketAddress,
        timeout: Duration,
        dscp: Option<Dscp>,
        properties: &TcpProperties,
    ) -> io::Result<SocketStream> {
        match to {
            SocketAddress::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                let stream = SocketStream::new(socket, true);
                // Before connecting: the first packets announce the window, and have the class.
                stream.tune(properties)?;
                dscp.map_or(Ok(()), |dscp| stream.set_dscp(dscp))?;
                match connect(&stream.socket, address) {
                    Err(Errno::INPROGRESS) if !stream.ready(true, Some(timeout))? => {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "the connection timed out"));
                    }
                    Err(Errno::INPROGRESS) => sockopt::socket_error(&stream.socket)??,
                    done => done?,
                }
                rustix::io::ioctl_fionbio(&stream.socket, false)?;
                Ok(stream)
            }
            SocketAddress::Unix(path) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
                // A full backlog makes connect(2) wait, up to the timeout of sending.
                sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
                connect(&socket, &SocketAddrUnix::new(path)?)?;
                Ok(SocketStream::new(socket, false))
            }
        }
    }

    /// By default small messages leave at once, and a dead peer is detected.
    fn tune(&self, properties: &TcpProperties) -> io::Result<()> {
        if self.tcp {
            let &TcpProperties { send_buffer, receive_buffer, keep_alive, no_delay, dont_route } = properties;
            sockopt::set_tcp_nodelay(&self.socket, no_delay)?;
            sockopt::set_socket_keepalive(&self.socket, keep_alive)?;
            sockopt::set_tcp_keepidle(&self.socket, PROBE_AFTER)?;
            sockopt::set_tcp_keepintvl(&self.socket, PROBE_EVERY)?;
            sockopt::set_tcp_keepcnt(&self.socket, PROBES)?;
            sockopt::set_tcp_user_timeout(&self.socket, UNACKNOWLEDGED_MS)?;
            if dont_route {
                set_socket_option(&self.socket, libc::SO_DONTROUTE, 1)?;
            }
            if let Some(octets) = send_buffer {
                sockopt::set_socket_send_buffer_size(&self.socket, octets as usize)?;
            }
            if let Some(octets) = receive_buffer {
                sockopt::set_socket_recv_buffer_size(&self.socket, octets as usize)?;
            }
        }
        Ok(())
    }

    /// Sets the class of sent packets (ip(7), IP_TOS; ipv6(7), IPV6_TCLASS), and leaves the bits of ECN. Nothing changes
    /// for a Unix socket.
    pub fn set_dscp(&self, dscp: Dscp) -> io::Result<()> {
        if !self.tcp || self.dscp.load(Ordering::Relaxed) == dscp.number() {
            return Ok(());
        }
        if self.is_ipv6()? {
            let class = sockopt::ipv6_tclass(&self.socket)? as u8;
            sockopt::set_ipv6_tclass(&self.socket, octet_of(dscp, class).into())?;
        }
        // Also of IPv6: its packets to an IPv4 address have an IPv4 header.
        let octet = sockopt::ip_tos(&self.socket)?;
        sockopt::set_ip_tos(&self.socket, octet_of(dscp, octet))?;
        self.dscp.store(dscp.number(), Ordering::Relaxed);
        Ok(())
    }

    /// The class of sent packets; `None` for a Unix socket.
    pub fn dscp(&self) -> io::Result<Option<Dscp>> {
        let octet = match self.tcp {
            false => return Ok(None),
            true if self.is_ipv6()? => sockopt::ipv6_tclass(&self.socket)? as u8,
            true => sockopt::ip_tos(&self.socket)?,
        };
        Ok(Dscp::new(octet >> 2))
    }

    fn is_ipv6(&self) -> io::Result<bool> {
        Ok(sockopt::socket_domain(&self.socket)? == AddressFamily::INET6)
    }

    /// Reads available data, at least an octet; 0 when the peer has ended.
    #[inline]
    pub fn read(&self, into: &mut [u8], wait: May) -> io::Result<usize> {
        let flags = if wait == May::Never { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        loop {
            match recv(&self.socket, &mut *into, flags) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) if wait == May::Linger => return Err(io::ErrorKind::WouldBlock.into()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends a first part of `octets`, and returns its length.
    #[inline]
    pub fn write(&self, octets: &[u8], wait: May) -> io::Result<usize> {
        let wait = if wait == May::Never { SendFlags::DONTWAIT } else { SendFlags::empty() };
        loop {
            match send(&self.socket, octets, wait | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// Sends everything; each part of it within the socket's timeout. An error contains how much was sent.
    pub fn write_all(&self, octets: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut sent = 0;
        while sent < octets.len() {
            sent += self.write(&octets[sent..], May::Wait).map_err(|error| (sent, error))?;
        }
        Ok(())
    }

    /// How long a read waits; `None` for ever.
    pub fn read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Recv, nonzero_timeout(timeout))?)
    }

    /// How long a write waits for room; `None` for ever.
    pub fn write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Send, nonzero_timeout(timeout))?)
    }

    /// Waits until data has arrived or the peer has ended, or with `output` until there is room to write. False after
    /// `timeout`; without one it waits for ever (poll(2)).
    pub fn ready(&self, output: bool, timeout: Option<Duration>) -> io::Result<bool> {
        self.poll(output, timeout, false)
    }

    /// The same; also false if the thread is kicked meanwhile ([`May::Linger`]).
    pub fn ready_or_kicked(&self, output: bool, timeout: Option<Duration>) -> io::Result<bool> {
        self.poll(output, timeout, true)
    }

    fn poll(&self, output: bool, timeout: Option<Duration>, kicks: bool) -> io::Result<bool> {
        let wanted = if output { PollFlags::OUT } else { PollFlags::IN };
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(&self.socket, wanted)], left.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) if kicks => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// True when the peer will send nothing more, even if some of its octets are unread (poll(2), POLLRDHUP).
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&now)), Ok(1..))
    }

    /// True if no data has arrived and the peer has not ended.
    pub fn is_quiet(&self) -> bool {
        let mut one = [0];
        matches!(recv(&self.socket, &mut one[..], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }

    /// Ends both directions: threads that wait in a read or write return.
    pub fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends sending; data from the peer can still be read.
    pub fn close_writing(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// The peer's address, for messages.
    pub fn peer(&self) -> String {
        let address = rustix::net::getpeername(&self.socket).ok().flatten();
        match address.and_then(|address| SocketAddr::try_from(address).ok()) {
            Some(address) => address.to_string(),
            None => "a Unix socket".to_owned(),
        }
    }

    /// The process that connected, if it is a Unix socket. Two system calls.
    pub fn credentials(&self) -> Option<Credentials> {
        if self.tcp {
            return None;
        }
        let mut found = [libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX }];
        (socket_option(&self.socket, libc::SO_PEERCRED, &mut found).ok()? == 1).then_some(())?;
        let [found] = found;
        // Most users have a few groups; ERANGE means more room, which the kernel bounds (NGROUPS_MAX).
        let mut groups = vec![0u32; 64];
        let count = socket_option(&self.socket, libc::SO_PEERGROUPS, &mut groups).or_else(|_| {
            groups.resize(1 << 16, 0);
            socket_option(&self.socket, libc::SO_PEERGROUPS, &mut groups)
        });
        groups.truncate(count.unwrap_or(0));
        Some(Credentials { pid: found.pid.try_into().unwrap_or(0), uid: found.uid, gid: found.gid, groups })
    }

    /// The peer's address, if it is of TCP.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getpeername(&self.socket).ok()??).ok()
    }

    /// This end's address, if it is of TCP.
    pub fn own_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&self.socket).ok()?).ok()
    }
}

/// Values of a socket's option (getsockopt(2)).
fn socket_option<T: Copy>(socket: &OwnedFd, option: libc::c_int, into: &mut [T]) -> io::Result<usize> {
    let mut size = size_of_val(into) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` octets, those of `into`; both kinds of option that are asked for, ucred
    // and gid_t, consist of integers, for which all octets are good.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, into.as_mut_ptr().cast(), &mut size) };
    if done == 0 { Ok(size as usize / size_of::<T>()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an integer option of a socket (setsockopt(2)).
fn set_socket_option(socket: &OwnedFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads `size` octets, those of `value`.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// This machine's name (uname(2)).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Raises the process's limit of open files to its hard limit; returns it (getrlimit(2)). Many systems start programs
/// with 1,024.
pub fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        return if raised.is_ok() { limit.maximum } else { limit.current };
    }
    limit.current
}

/// A timeout of zero means none to the kernel.
fn nonzero_timeout(timeout: Option<Duration>) -> Option<Duration> {
    timeout.map(|timeout| timeout.max(Duration::from_micros(1)))
}

impl AsFd for SocketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that accepts connections; never waits for one.
#[derive(Debug)]
pub struct Listener {
    socket: ListeningSocket,
    address: SocketAddress,
    /// Of the connections that it accepts.
    properties: TcpProperties,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens; port 0 lets the kernel choose. A Unix socket that an ended program left is replaced, one that answers
    /// is not.
    pub fn bind(address: &SocketAddress) -> io::Result<Listener> {
        Listener::bind_with(address, &TcpProperties::default())
    }

    /// The same; connections over TCP have these properties.
    pub fn bind_with(address: &SocketAddress, properties: &TcpProperties) -> io::Result<Listener> {
        let properties = *properties;
        match address {
            SocketAddress::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = SocketStream::new(socket_with(family, SocketType::STREAM, flags, None)?, true);
                sockopt::set_socket_reuseaddr(&socket, true)?;
                // Before it listens: the scale of the window is chosen for the buffer at the handshake (tcp(7)).
                socket.tune(&properties)?;
                rustix::net::bind(&socket, address)?;
                rustix::net::listen(&socket, BACKLOG)?;
                let socket = Arc::into_inner(socket.socket).expect("a new socket has one owner");
                let socket = TcpListener::from(socket);
                let address = SocketAddress::Tcp(socket.local_addr()?);
                Ok(Listener { socket: ListeningSocket::Tcp(socket), address, properties })
            }
            SocketAddress::Unix(path) => {
                remove_stale_socket(path)?;
                let socket = UnixListener::bind(path)?;
                socket.set_nonblocking(true)?;
                Ok(Listener { socket: ListeningSocket::Unix(socket), address: address.clone(), properties })
            }
        }
    }

    /// Its address, with the port that the kernel chose.
    pub fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// The next connection, if there is one.
    pub fn accept(&self) -> io::Result<Option<SocketStream>> {
        let accepted = match &self.socket {
            ListeningSocket::Tcp(socket) => socket.accept().map(|(socket, _)| SocketStream::new(socket.into(), true)),
            ListeningSocket::Unix(socket) => socket.accept().map(|(socket, _)| SocketStream::new(socket.into(), false)),
        };
        match accepted {
            Ok(stream) => {
                stream.tune(&self.properties)?;
                Ok(Some(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What the system lacks to accept another connection. Any other error of [`Listener::accept`] is that of one client,
/// which has disconnected: the next one may succeed (accept(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingResource {
    /// The process or the system has no file descriptor left.
    Descriptors,
    /// The kernel has no memory for it.
    Memory,
}

impl MissingResource {
    /// None if it lacks nothing.
    pub fn of(error: &io::Error) -> Option<MissingResource> {
        match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::NFILE => Some(MissingResource::Descriptors),
            Errno::NOMEM | Errno::NOBUFS => Some(MissingResource::Memory),
            _ => None,
        }
    }
}

/// Removes the file of a Unix socket on which no process listens any more (unix(7)).
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() => {
            match SocketStream::connect(&SocketAddress::Unix(path.to_owned()), Duration::from_secs(1)) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
                _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program already listens at this address")),
            }
        }
        _ => Ok(()),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A child that another thread just forks has a copy of the descriptor until it executes its program: closing
        // alone would leave the port open for as long, and new clients would wait without an answer.
        let _ = rustix::net::shutdown(&*self, rustix::net::Shutdown::Read);
        if let SocketAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListeningSocket::Tcp(socket) => socket.as_fd(),
            ListeningSocket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketAddress::Tcp(address) => address.fmt(f),
            SocketAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (SocketStream, SocketStream) {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        (client, listener.accept().unwrap().unwrap())
    }

    #[test]
    fn octets_arrive_and_a_read_that_must_not_wait_does_not() {
        let (client, server) = pair();
        assert_eq!(server.credentials(), None, "TCP has no credentials");
        let mut into = [0; 8];
        assert_eq!(server.read(&mut into, May::Never).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(server.is_quiet());
        assert!(!server.ready(false, Some(Duration::from_millis(1))).unwrap());
        assert!(server.ready(true, None).unwrap());
        client.write_all(b"GIOP").unwrap();
        assert!(server.ready(false, None).unwrap());
        assert_eq!(server.read(&mut into, May::Wait).unwrap(), 4);
        drop(client);
        assert_eq!(server.read(&mut into, May::Wait).unwrap(), 0);
        assert!(!server.is_quiet());
    }

    #[test]
    fn a_read_ends_at_its_timeout_and_when_the_socket_is_closed_under_it() {
        let (_client, server) = pair();
        server.read_timeout(Some(Duration::from_millis(2))).unwrap();
        assert_eq!(server.read(&mut [0], May::Wait).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.read_timeout(None).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| server.read(&mut [0], May::Wait));
            server.close();
            assert_eq!(reading.join().unwrap().unwrap(), 0);
        });
    }

    #[test]
    fn a_unix_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("hyoshi-net-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        drop(UnixListener::bind(&path).unwrap());
        let address = SocketAddress::Unix(path.clone());
        let listener = Listener::bind(&address).unwrap();
        assert_eq!(Listener::bind(&address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = SocketStream::connect(&address, Duration::from_secs(5)).unwrap();
        client.write_all(b"x").unwrap();
        let mut accepted = listener.accept().unwrap();
        while accepted
            .as_ref()
            .is_some_and(|stream| !stream.is_quiet() && stream.read(&mut [0], May::Wait).unwrap() == 0)
        {
            accepted = listener.accept().unwrap(); // the probe for life came first
        }
        let accepted = accepted.unwrap();
        assert_eq!(accepted.credentials(), Some(Credentials::own()));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn both_ends_have_their_own_class_and_the_bits_of_ecn_stay() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = Listener::bind(&SocketAddress::Tcp(host.parse().unwrap())).unwrap();
            let class = Dscp::new(46);
            let connect = |class| {
                let properties = TcpProperties::default();
                SocketStream::connect_with(listener.address(), Duration::from_secs(5), class, &properties).unwrap()
            };
            let client = connect(class);
            let server = listener.accept().unwrap().unwrap();
            assert_eq!((client.dscp().unwrap(), server.dscp().unwrap()), (class, Dscp::new(0)));
            server.set_dscp(Dscp::new(26).unwrap()).unwrap();
            client.set_dscp(Dscp::new(63).unwrap()).unwrap();
            assert_eq!((client.dscp().unwrap(), server.dscp().unwrap()), (Dscp::new(63), Dscp::new(26)));
            client.write_all(b"x").unwrap();
            assert_eq!(server.read(&mut [0], May::Wait).unwrap(), 1);
            assert_eq!(connect(None).dscp().unwrap(), Dscp::new(0));
        }
        assert_eq!((octet_of(Dscp::EF, 0b1010_1001), octet_of(Dscp::default(), 0xff)), (0b1011_1001, 0b11));
    }

    #[test]
    fn both_ends_of_a_connection_have_their_own_properties() {
        let (send_buffer, receive_buffer) = (Some(20_000), Some(30_000));
        let set = TcpProperties { send_buffer, receive_buffer, keep_alive: false, no_delay: false, dont_route: true };
        let routed = |stream: &SocketStream| {
            let mut dont_route = [0];
            socket_option(&stream.socket, libc::SO_DONTROUTE, &mut dont_route).unwrap();
            dont_route == [0]
        };
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let pair = |own: TcpProperties, accepted: TcpProperties| {
                let address = SocketAddress::Tcp(host.parse().unwrap());
                let listener = Listener::bind_with(&address, &accepted).unwrap();
                let client = SocketStream::connect_with(listener.address(), Duration::from_secs(5), None, &own);
                [client.unwrap(), listener.accept().unwrap().unwrap()]
            };
            let [client, default] = pair(set, TcpProperties::default());
            let [other, server] = pair(TcpProperties::default(), set);
            for set in [client, server] {
                // The kernel doubles them, for its own data.
                assert_eq!(sockopt::socket_send_buffer_size(&set).unwrap(), 40_000);
                assert_eq!(sockopt::socket_recv_buffer_size(&set).unwrap(), 60_000);
                assert!(!sockopt::socket_keepalive(&set).unwrap() && !sockopt::tcp_nodelay(&set).unwrap());
                assert!(!routed(&set));
            }
            for default in [default, other] {
                assert!(sockopt::socket_keepalive(&default).unwrap() && sockopt::tcp_nodelay(&default).unwrap());
                assert!(routed(&default));
                let flags = rustix::fs::fcntl_getfl(&default).unwrap();
                assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
            }
        }
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = SocketAddress::Tcp(listener.local_addr().unwrap());
        drop(listener);
        let error = SocketStream::connect(&address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
