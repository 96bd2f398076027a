//! What the kernel counts of a TCP connection (tcp(7), `TCP_INFO`).

use std::mem::offset_of;
use std::ops::{Add, Sub};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The segments and octets of TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Sent segments with data, with those that were sent again.
    pub segments: u64,
    /// Segments that were sent again, because the network or the peer seemed to have lost them.
    pub repeated: u64,
    /// Acknowledged octets of data, and received ones.
    pub octets: u64,
}

/// The begin of `struct tcp_info` (linux/tcp.h). Its fields are never moved; later kernels add more at the end.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    states: [u8; 8],
    times: [u32; 23],
    total_retrans: u32,
    pacing_rates: [u64; 2],
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
}

impl TcpCounts {
    /// Of an open connection; `None` if the kernel does not count them.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Option<TcpCounts> {
        let mut size = size_of::<TcpInfo>() as libc::socklen_t;
        // SAFETY: integers, of which all bit patterns are valid.
        let mut info: TcpInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most `size` octets, which `info` has.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut size,
            )
        };
        // An old kernel writes less (before Linux 4.6).
        let needed = offset_of!(TcpInfo, data_segs_out) + size_of::<u32>();
        (done == 0 && size as usize >= needed).then(|| TcpCounts {
            segments: info.data_segs_out.into(),
            repeated: info.total_retrans.into(),
            octets: info.bytes_acked.saturating_add(info.bytes_received),
        })
    }
}

impl Add for TcpCounts {
    type Output = TcpCounts;

    fn add(self, other: TcpCounts) -> TcpCounts {
        TcpCounts {
            segments: self.segments.saturating_add(other.segments),
            repeated: self.repeated.saturating_add(other.repeated),
            octets: self.octets.saturating_add(other.octets),
        }
    }
}

impl Sub for TcpCounts {
    type Output = TcpCounts;

    fn sub(self, other: TcpCounts) -> TcpCounts {
        TcpCounts {
            segments: self.segments.saturating_sub(other.segments),
            repeated: self.repeated.saturating_sub(other.repeated),
            octets: self.octets.saturating_sub(other.octets),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn octets_and_segments_of_a_connection_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let before = TcpCounts::of(here.as_fd()).unwrap();
        here.write_all(&[1; 1000]).unwrap();
        there.read_exact(&mut [0; 1000]).unwrap();
        there.write_all(&[2; 50]).unwrap();
        here.read_exact(&mut [0; 50]).unwrap();
        let since = TcpCounts::of(here.as_fd()).unwrap() - before;
        assert!(since.octets >= 1050 && since.segments >= 1 && since.repeated == 0, "{since:?}");
    }
}
