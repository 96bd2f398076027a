//! Interrupts a thread's wait in the kernel, with a signal without effect (signal(7)).
//!
//! SIGURG, because programs that do not handle it ignore it, and those that do must expect one at any time; other
//! handlers of it are called too. The kernel restarts most system calls: only waits with a timeout of a socket
//! ([`May::Linger`](crate::May::Linger)) and a few others return (signal(7), "Interruption of system calls").

use std::io;
use std::sync::OnceLock;

use signal_hook::consts::SIGURG;
use signal_hook::low_level;

use crate::thread::ThreadHandle;

/// From now on threads of this process can be kicked. Call it once.
///
/// # Errors
///
/// If the system does not let the signal be handled: then kicks are ignored.
pub fn allow_kicks() -> io::Result<()> {
    static ALLOWED: OnceLock<Option<i32>> = OnceLock::new();
    // SAFETY: the handler does nothing.
    let refused = ALLOWED.get_or_init(|| match unsafe { low_level::register(SIGURG, || {}) } {
        Ok(_) => None,
        Err(error) => Some(error.raw_os_error().unwrap_or(0)),
    });
    refused.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

/// Handles the signals already sent to the calling thread: the kernel delivers them on return from a system call
/// (signal(7)). None of them interrupts a later call of the thread.
pub fn handle_signals() {
    // The cheapest call that always enters the kernel, and that is never restarted or interrupted.
    rustix::thread::sched_yield();
}

impl ThreadHandle {
    /// Ends a wait of the thread that can be interrupted ([`May::Linger`](crate::May::Linger)), if it is in one now. A
    /// wait that it is just about to begin is not ended: repeat the call to be sure. No effect on a thread that has
    /// ended.
    pub fn kick(&self) {
        self.with_live_thread(|tid| {
            let signal = libc::c_long::from(SIGURG);
            // SAFETY: no memory is passed; the number is that of a thread of this process, which has not ended.
            unsafe {
                libc::syscall(libc::SYS_tgkill, libc::c_long::from(libc::getpid()), libc::c_long::from(tid), signal)
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::{Listener, May, SocketAddress, SocketStream};
    use crate::thread::Spawn;

    #[test]
    fn a_kick_ends_a_read_that_lingers_and_no_other() {
        allow_kicks().unwrap();
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let server = listener.accept().unwrap().unwrap();
        server.read_timeout(Some(Duration::from_secs(60))).unwrap();
        let thread = Spawn::new("lingers")
            .spawn(move || {
                let lingered = server.read(&mut [0], May::Linger).unwrap_err().kind();
                (lingered, server.read(&mut [0], May::Wait).unwrap(), server)
            })
            .unwrap();
        // The first may be too early.
        for _ in 0..10 {
            thread.handle.kick();
            std::thread::sleep(Duration::from_millis(5));
        }
        client.write_all(b"x").unwrap();
        let handle = thread.handle.clone();
        let (lingered, came, _server) = thread.join().unwrap();
        assert_eq!((lingered, came), (io::ErrorKind::WouldBlock, 1));
        handle.kick();
    }
}
