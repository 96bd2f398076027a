//! Waiting for many sockets at once: epoll(7), one-shot, and an eventfd(2) to be woken by hand.
//!
//! Every source is taken out when it becomes ready and must be put back ([`arm`](Poller::arm)):
//! so exactly one of the threads that wait gets it. The kernel wakes one waiter for each event.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::Timespec;

/// The number of the eventfd among the sources.
const POKED: u64 = u64::MAX;

/// A set of sources, waited for by any number of threads.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    poke: OwnedFd,
}

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The source that was added under this number; it is out until it is armed again.
    Source(u64),
    /// Somebody poked.
    Poked,
}

impl Poller {
    /// Without sources.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // A semaphore: each poke lets one wait through.
        let poke = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?;
        epoll::add(&epoll, &poke, epoll::EventData::new_u64(POKED), epoll::EventFlags::IN)?;
        Ok(Poller { epoll, poke })
    }

    /// Waits for a source to be readable (to have ended counts), or to take output.
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

    /// No longer a source of it: another poller may have it.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// The next that is ready; `None` when `timeout` is over.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Ready>> {
        Ok(self.wait_and_see(timeout)?.map(|(ready, _)| ready))
    }

    /// The same, and whether the source's peer has closed its end: earlier octets can still be read.
    pub fn wait_and_see(&self, timeout: Option<Duration>) -> io::Result<Option<(Ready, bool)>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 1];
        loop {
            let (ready, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                done => done?,
            };
            return Ok(match ready.first() {
                None => None,
                Some(event) if event.data.u64() == POKED => {
                    // Somebody else may have been let through by it: then this one waits on.
                    let mut count = [0; 8];
                    match rustix::io::read(&self.poke, &mut count[..]) {
                        Ok(_) => Some((Ready::Poked, false)),
                        Err(_) => continue,
                    }
                }
                Some(event) => {
                    let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                    // It is packed: no reference to a field.
                    let flags = event.flags;
                    Some((Ready::Source(event.data.u64()), flags.intersects(over)))
                }
            });
        }
    }

    /// Lets one wait through, now or the next that comes.
    pub fn poke(&self) {
        let _ = rustix::io::write(&self.poke, &1u64.to_ne_bytes());
    }
}

fn flags(output: bool) -> epoll::EventFlags {
    let wanted = if output { epoll::EventFlags::OUT } else { epoll::EventFlags::IN | epoll::EventFlags::RDHUP };
    wanted | epoll::EventFlags::ONESHOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Address, Listener, Stream};

    #[test]
    fn a_source_is_told_once_until_it_is_armed_again() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&listener, 7, false).unwrap();
        let brief = Some(Duration::from_millis(1));
        assert_eq!(poller.wait(brief).unwrap(), None);
        let _client = Stream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
        assert_eq!(poller.wait(brief).unwrap(), None);
        poller.arm(&listener, 7, false).unwrap();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
        poller.remove(&listener).unwrap();
        assert!(poller.arm(&listener, 7, false).is_err());
    }

    #[test]
    fn a_source_added_unarmed_is_reported_once_it_is_armed() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        poller.add_unarmed(&listener, 7).unwrap();
        let _client = Stream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        assert_eq!(poller.wait(Some(Duration::from_millis(20))).unwrap(), None);
        poller.arm(&listener, 7, false).unwrap();
        assert_eq!(poller.wait(None).unwrap(), Some(Ready::Source(7)));
    }

    #[test]
    fn a_source_whose_other_end_has_ended_says_so_beside_what_it_sent() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let poller = Poller::new().unwrap();
        let client = Stream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let server = listener.accept().unwrap().unwrap();
        client.write_all(b"x").unwrap();
        poller.add(&server, 1, false).unwrap();
        assert_eq!(poller.wait_and_see(None).unwrap(), Some((Ready::Source(1), false)));
        assert!(!server.has_ended());
        drop(client);
        while !server.has_ended() {
            std::thread::yield_now();
        }
        poller.arm(&server, 1, false).unwrap();
        assert_eq!(poller.wait_and_see(None).unwrap(), Some((Ready::Source(1), true)));
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
