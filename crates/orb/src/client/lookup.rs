//! Addresses of host names, found while the caller waits no longer than it can.
//!
//! getaddrinfo(3) can be given no deadline, and waits for name servers as resolv.conf(5) says: 10 s for each that is
//! silent. So it runs on a thread of its own at normal priority, which outlasts callers that give up; all that ask for
//! one name meanwhile share it. A bounded number of names is looked up at once. Numeric addresses take no thread.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use hyoshi_os::{PiMutex, Spawn};

use crate::failure::CallFailure;
use crate::promise::Promise;

/// Names that are looked up at once.
const MOST: usize = 32;

/// How names become addresses.
type Resolve = fn(&str) -> io::Result<Vec<SocketAddr>>;
/// None: no such host, or none of the name servers answers.
type Found = Option<Arc<[SocketAddr]>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Lookups {
    resolve: Resolve,
    under_way: PiMutex<HashMap<String, Arc<Promise<Found>>>>,
}

impl Lookups {
    pub(super) fn new() -> Arc<Lookups> {
        Lookups::by(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }

    fn by(resolve: Resolve) -> Arc<Lookups> {
        Arc::new(Lookups { resolve, under_way: PiMutex::new(HashMap::new()) })
    }

    /// All addresses of a host, at this port.
    pub(super) fn find(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        until: Instant,
    ) -> Result<Vec<SocketAddr>, CallFailure> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let promise = self.ask(host)?;
        match promise.wait(Some(until)) {
            None => Err(CallFailure::ConnectTimedOut),
            Some(Some(found)) if !found.is_empty() => {
                let at_port = |mut address: SocketAddr| {
                    address.set_port(port);
                    address
                };
                Ok(found.iter().copied().map(at_port).collect())
            }
            Some(_) => Err(CallFailure::HostUnknown),
        }
    }

    /// What will be known of a name, by a thread that looks it up already or from now on.
    fn ask(self: &Arc<Self>, host: &str) -> Result<Arc<Promise<Found>>, CallFailure> {
        let promise = Arc::new(Promise::new());
        {
            let mut under_way = self.under_way.lock();
            if let Some(known) = under_way.get(host) {
                return Ok(known.clone());
            }
            if under_way.len() >= MOST {
                return Err(CallFailure::HostUnknown);
            }
            under_way.insert(host.to_owned(), promise.clone());
        }
        let (lookups, name, kept) = (self.clone(), host.to_owned(), promise.clone());
        let look = move || {
            let found = (lookups.resolve)(&name).ok().map(Into::into);
            // First: later callers get changed addresses.
            lookups.under_way.lock().remove(&name);
            kept.keep(found);
        };
        // More stack than threads of ours need: what looks names up is whatever nsswitch.conf(5) names.
        if Spawn::new("orb-lookup").stack(512 << 10).spawn(look).is_err() {
            self.under_way.lock().remove(host);
            promise.keep(None);
        }
        Ok(promise)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static ANSWER: Promise<()> = Promise::new();

    #[test]
    fn a_silent_name_server_delays_no_caller_beyond_the_deadline_and_keeps_one_thread() {
        let lookups = Lookups::by(|_| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            ANSWER.wait(None);
            Ok(vec![([10, 0, 0, 1], 0).into()])
        });
        for _ in 0..3 {
            let soon = Instant::now() + Duration::from_millis(5);
            assert_eq!(lookups.find("yard.plant", 1, soon), Err(CallFailure::ConnectTimedOut));
        }
        let other = lookups.clone();
        let patient = thread::spawn(move || other.find("yard.plant", 2, Instant::now() + Duration::from_secs(60)));
        ANSWER.keep(());
        assert_eq!(patient.join().unwrap(), Ok(vec![([10, 0, 0, 1], 2).into()]));
        assert!(ASKED.load(Ordering::Relaxed) <= 2, "once, unless it was answered before the patient one asked");
        assert_eq!(lookups.find("10.0.0.2", 3, Instant::now()), Ok(vec![([10, 0, 0, 2], 3).into()]));
    }

    #[test]
    fn unknown_names_and_silent_hosts_give_different_errors() {
        let lookups = Lookups::by(|_| Err(io::ErrorKind::NotFound.into()));
        let until = Instant::now() + Duration::from_secs(60);
        assert_eq!(lookups.find("nowhere.invalid", 1, until), Err(CallFailure::HostUnknown));
        assert!(lookups.under_way.lock().is_empty());
    }
}
