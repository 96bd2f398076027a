//! Waits for many sockets at once: epoll(7), one-shot, and an eventfd(2) to wake a waiter.
//!
//! Every source is disabled when it becomes ready and must be enabled again ([`arm`](Poller::arm)): so exactly one of
//! the waiting threads gets it. The kernel wakes one waiter for each event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// The number of the eventfd among the sources.
const POKED: u64 = u64::MAX;

/// A set of sources, for any number of waiting threads.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    poke: OwnedFd,
}

/// The ready sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The source with this number; it is disabled until it is armed again.
    Source(u64),
    /// [`Poller::poke`] was called.
    Poked,
}

impl Poller {
    /// Without sources.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // A semaphore: each poke releases one wait.
        let poke = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?;
        epoll::add(&epoll, &poke, epoll::EventData::new_u64(POKED), epoll::EventFlags::IN)?;
        Ok(Poller { epoll, poke })
    }

    /// Waits for a source to be readable (an end counts), or writable.
    pub fn add(&self, source: impl AsFd, number: u64, output: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(number), flags(output))?)
    }

    /// Registers a source, but does not wait for it before it is [armed](Poller::arm).
    pub fn add_unarmed(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(number), epoll::EventFlags::ONESHOT)?)
    }

    /// Waits for it again.
    pub fn arm(&self, source: impl AsFd, number: u64, output: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, epoll::EventData::new_u64(number), flags(output))?)
    }

    /// Removes a source: another poller may have it.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// The next ready source; `None` after `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Ready>> {
        Ok(self.wait_with_hangup(timeout)?.map(|(ready, _)| ready))
    }

    /// The same, and whether the source's peer has closed its end: earlier octets can still be read.
    pub fn wait_with_hangup(&self, timeout: Option<Duration>) -> io::Result<Option<(Ready, bool)>> {
        let mut found = [(Ready::Poked, false)];
        let count = self.wait_for_several(timeout, &mut found)?;
        Ok(found[..count].first().copied())
    }

    /// The same for several ready sources, at most 16. Returns how many were `found`; 0 after `timeout`.
    pub fn wait_for_several(&self, timeout: Option<Duration>, found: &mut [(Ready, bool)]) -> io::Result<usize> {
        let timeout = timeout.map(timespec);
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 16];
        let most = found.len().min(events.len());
        loop {
            let (ready, _) = match epoll::wait(&self.epoll, &mut events[..most], timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                done => done?,
            };
            if ready.is_empty() {
                return Ok(0);
            }
            let mut count = 0;
            for event in ready {
                // It is packed: no reference to a field.
                let (flags, number) = (event.flags, event.data.u64());
                found[count] = if number == POKED {
                    // It may have released another wait.
                    if rustix::io::read(&self.poke, &mut [0; 8][..]).is_err() {
                        continue;
                    }
                    (Ready::Poked, false)
                } else {
                    let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                    (Ready::Source(number), flags.intersects(over))
                };
                count += 1;
            }
            if count > 0 {
                return Ok(count);
            }
        }
    }

    /// Waits until a source is ready, and disables none. False after `timeout`.
    pub fn is_ready(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(timespec);
        loop {
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }

    /// Ends one wait, now or the next.
    pub fn poke(&self) {
        let _ = rustix::io::write(&self.poke, &1u64.to_ne_bytes());
    }
}

/// Readable while a source is ready: another poller may wait for it.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn timespec(timeout: Duration) -> Timespec {
    let tv_sec = timeout.as_secs().try_into().unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: timeout.subsec_nanos().into() }
}

fn flags(output: bool) -> epoll::EventFlags {
    let wanted = if output { epoll::EventFlags::OUT } else { epoll::EventFlags::IN | epoll::EventFlags::RDHUP };
    wanted | epoll::EventFlags::ONESHOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Listener, SocketAddress, SocketStream};

    #[test]
    fn a_source_is_reported_once_until_it_is_armed_again() {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&listener, 7, false).unwrap();
        let brief = Some(Duration::from_millis(1));
        assert_eq!(poller.wait(brief).unwrap(), None);
        let _client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        assert!(poller.is_ready(None).unwrap() && poller.is_ready(brief).unwrap());
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
        assert!(!poller.is_ready(brief).unwrap());
        assert_eq!(poller.wait(brief).unwrap(), None);
        poller.arm(&listener, 7, false).unwrap();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
        poller.remove(&listener).unwrap();
        assert!(poller.arm(&listener, 7, false).is_err());
    }

    #[test]
    fn a_source_added_unarmed_is_reported_once_it_is_armed() {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        poller.add_unarmed(&listener, 7).unwrap();
        let _client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        assert_eq!(poller.wait(Some(Duration::from_millis(20))).unwrap(), None);
        poller.arm(&listener, 7, false).unwrap();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
    }

    #[test]
    fn a_source_with_a_closed_peer_reports_that_and_the_received_data() {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        let client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let server = listener.accept().unwrap().unwrap();
        client.write_all(b"x").unwrap();
        poller.add(&server, 1, false).unwrap();
        assert_eq!(poller.wait_with_hangup(None).unwrap(), Some((Ready::Source(1), false)));
        assert!(!server.has_ended());
        drop(client);
        while !server.has_ended() {
            std::thread::yield_now();
        }
        poller.arm(&server, 1, false).unwrap();
        assert_eq!(poller.wait_with_hangup(None).unwrap(), Some((Ready::Source(1), true)));
    }

    #[test]
    fn several_that_are_ready_are_found_at_once() {
        let listeners = [(); 3].map(|()| Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap());
        let poller = Poller::new().unwrap();
        listeners.iter().zip(1..).for_each(|(listener, number)| poller.add(listener, number, false).unwrap());
        let address = |at: usize| listeners[at].address();
        let _clients = [0, 2].map(|at| SocketStream::connect(address(at), Duration::from_secs(5)).unwrap());
        poller.poke();
        let mut found = [(Ready::Poked, true); 4];
        assert_eq!(poller.wait_for_several(None, &mut found).unwrap(), 3);
        for ready in [Ready::Source(1), Ready::Source(3), Ready::Poked] {
            assert!(found[..3].contains(&(ready, false)), "{ready:?}");
        }
        assert_eq!(poller.wait_for_several(Some(Duration::ZERO), &mut found).unwrap(), 0);
    }

    #[test]
    fn each_poke_lets_one_wait_through() {
        let poller = Poller::new().unwrap();
        poller.poke();
        poller.poke();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Poked));
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Poked));
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap(), None);
    }
}
