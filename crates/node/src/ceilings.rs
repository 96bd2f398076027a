//! The endpoints at which an object is served, and the limits of its clients: `endpoints` and `clients` of
//! `[object.NAME]`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{Address, ClientCeiling, ClientName, Endpoint, ServedObject};
use hyoshi_orb::rt::RequestTiming;
use hyoshi_orb::{OrderedRequest, RequestClient, SystemException, SystemKind, certificate_names, minor};
use hyoshi_os::file::own_user;
use hyoshi_os::{PiMutex, users};

/// Requests above its rate that a client may send at once.
const BURST: u64 = 8;

/// The endpoints of one object, and the ceilings of its clients.
#[derive(Debug)]
pub(crate) struct Ceilings {
    /// All objects of a processor share its connections.
    /// Its addresses, and whether they are over TLS. Names as the system resolves them at the start.
    addresses: Vec<(SocketAddr, bool)>,
    /// Whether it is served at a Unix socket.
    has_socket: bool,
    /// Whether the file names users among its clients: then its Unix sockets are open to all users.
    has_users: bool,
    entries: Vec<CeilingEntry>,
    /// Requests that asked for more than they got.
    clamped: AtomicU64,
    /// Requests that were refused.
    refused: AtomicU64,
}

#[derive(Debug)]
struct CeilingEntry {
    ceiling: ClientCeiling,
    /// The number of its user.
    uid: Option<u32>,
    /// When the client's next request is due, in ns of CLOCK_MONOTONIC, if all earlier ones had come one interval apart
    /// (the generic cell rate algorithm, ITU-T I.371). A network has one entry for each address with a next request that is not due yet.
    due: PiMutex<HashMap<Option<IpAddr>, u64>>,
}

/// Addresses of a network with separate limits. All others share one limit.
const ADDRESSES: usize = 256;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedClaims {
    /// The highest importance; `None`: that of the operation.
    pub importance: Option<u32>,
    pub critical: bool,
}

/// Of a client without an entry, and beyond its rate.
const LOWEST: AllowedClaims = AllowedClaims { importance: Some(0), critical: false };

/// The mark of a connection if its client has no entry.
const UNNAMED: u32 = 0xffff;

/// The mark of a connection that does not lead to the object.
const ELSEWHERE: u32 = 0xfffe;

impl Ceilings {
    pub fn new(object: &ServedObject) -> Ceilings {
        let entry = |ceiling: &ClientCeiling| CeilingEntry {
            uid: match &ceiling.client {
                ClientName::User(name) => users::user(name),
                _ => None,
            },
            ceiling: ceiling.clone(),
            due: PiMutex::new(HashMap::with_capacity(ADDRESSES + 1)),
        };
        let entries = object.clients.iter().map(entry).collect();
        let of_endpoint = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp(address) => addresses_of(address, false),
            Endpoint::Tls(address) => addresses_of(address, true),
            Endpoint::Unix(_) => Vec::new(),
        };
        Ceilings {
            addresses: object.endpoints.iter().flat_map(of_endpoint).collect(),
            has_socket: object.endpoints.iter().any(|one| matches!(one, Endpoint::Unix(_))),
            has_users: object.has_users(),
            entries,
            clamped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub fn clamped(&self) -> u64 {
        self.clamped.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a request arrived where the file offers the object. `binding` is the object's.
    pub fn is_reached(&self, request: &OrderedRequest, binding: u32) -> bool {
        self.entry_at(request, binding) != ELSEWHERE
    }

    /// What a request that asks for `timing` gets. It was read at `now`. `None`: the file has no ceilings.
    ///
    /// # Errors
    ///
    /// The exception of a request that is refused.
    pub fn admit(
        &self,
        request: &OrderedRequest,
        binding: u32,
        timing: Option<&RequestTiming>,
        now: u64,
    ) -> Result<Option<AllowedClaims>, SystemException> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let Some(entry) = self.entries.get(self.entry_at(request, binding) as usize) else {
            let asks = timing.is_some_and(|timing| timing.importance > 0 || timing.critical);
            self.clamped.fetch_add(u64::from(asks), Ordering::Relaxed);
            return Ok(Some(LOWEST));
        };
        let ceiling = &entry.ceiling;
        let allowed = AllowedClaims { importance: ceiling.importance, critical: ceiling.critical };
        let above = |timing: &RequestTiming| {
            ceiling.importance.is_some_and(|most| timing.importance > most) || (timing.critical && !ceiling.critical)
        };
        let (too_often, too_much) = (!entry.is_due(request, now), timing.is_some_and(above));
        if !too_often && !too_much {
            return Ok(Some(allowed));
        }
        if ceiling.refuses {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(match too_much {
                true => SystemKind::NoPermission.not_done(minor::CEILING),
                false => SystemKind::Transient.not_done(minor::TOO_OFTEN),
            });
        }
        self.clamped.fetch_add(1, Ordering::Relaxed);
        Ok(Some(if too_often { LOWEST } else { allowed }))
    }

    /// The client's entry: the first that names it, or one of the marks. It is looked up once for each connection.
    fn entry_at(&self, request: &OrderedRequest, binding: u32) -> u32 {
        let (mark, own) = (request.mark(), (binding + 1) << 16);
        let known = mark.load(Ordering::Relaxed);
        if known & !0xffff == own {
            known & 0xffff
        } else {
            let client = request.client();
            let at = if self.leads_here(&client) { self.find(&client).unwrap_or(UNNAMED) } else { ELSEWHERE };
            mark.store(own | at, Ordering::Relaxed);
            at
        }
    }

    fn leads_here(&self, client: &RequestClient) -> bool {
        let Some(reached) = client.reached() else {
            // A socket of another object may be open to all users.
            let is_own = client.credentials().is_some_and(|client| client.uid == 0 || client.uid == own_user());
            return self.has_socket && (self.has_users || is_own);
        };
        let reached = (canonical(reached), client.is_secure());
        self.addresses.contains(&reached)
    }

    fn find(&self, client: &RequestClient) -> Option<u32> {
        let names = client.certificate().and_then(|octets| certificate_names(&octets).ok()).unwrap_or_default();
        let uid = client.credentials().map(|client| client.uid);
        let address = client.address();
        let is_client = |entry: &CeilingEntry| match &entry.ceiling.client {
            ClientName::Certificate(name) => names.contains(name),
            ClientName::User(_) => uid.is_some() && entry.uid == uid,
            network => address.is_some_and(|address| network.has_address(address)),
        };
        self.entries.iter().position(is_client).map(|at| at as u32)
    }
}

impl CeilingEntry {
    /// Whether a request at `now` keeps its client's rate; counts it if so.
    fn is_due(&self, request: &OrderedRequest, now: u64) -> bool {
        let Some(interval) = self.ceiling.min_interval else { return true };
        let address = match self.ceiling.client {
            ClientName::Certificate(_) | ClientName::User(_) => None,
            _ => request.client().address().map(network_of),
        };
        self.keeps_rate(address, interval.as_nanos(), now)
    }

    fn keeps_rate(&self, address: Option<IpAddr>, interval: u64, now: u64) -> bool {
        let mut all = self.due.lock();
        if all.len() >= ADDRESSES && !all.contains_key(&address) {
            // An entry that is due already holds no information.
            all.retain(|_, due| *due > now);
        }
        let is_full = all.len() >= ADDRESSES && !all.contains_key(&address);
        let due = all.entry(address.filter(|_| !is_full)).or_default();
        if due.saturating_sub(now) > interval.saturating_mul(BURST - 1) {
            return false;
        }
        *due = (*due).max(now).saturating_add(interval);
        true
    }
}

fn addresses_of(address: &Address, secure: bool) -> Vec<(SocketAddr, bool)> {
    let all = match address {
        Address::Ip(address) => vec![*address],
        // The first, as the ORB binds it.
        Address::Name(host, port) => match (host.as_str(), *port).to_socket_addrs() {
            Ok(mut all) => all.next().into_iter().collect(),
            Err(_) => Vec::new(),
        },
    };
    all.into_iter().map(|address| (canonical(address), secure)).collect()
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address, or of IPv6 the network of one client, which has more addresses than can be kept.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::Span;
    use proptest::prelude::*;

    use super::*;

    fn entry(min_interval: Span) -> CeilingEntry {
        let client = ClientName::User("0".into());
        let ceiling = ClientCeiling {
            client,
            importance: None,
            critical: true,
            min_interval: Some(min_interval),
            refuses: false,
        };
        CeilingEntry { ceiling, uid: Some(0), due: PiMutex::default() }
    }

    proptest! {
        #[test]
        fn a_client_that_keeps_its_rate_is_never_limited_and_no_client_exceeds_it(
            gaps in prop::collection::vec(0u64..3_000, 1..200),
        ) {
            let entry = entry(Span::from_nanos(1_000));
            let (mut now, mut admitted) = (1, 0);
            for gap in &gaps {
                now += gap;
                let keeps = gaps.iter().all(|gap| *gap >= 1_000);
                let due = entry.keeps_rate(None, 1_000, now);
                prop_assert!(due || !keeps);
                admitted += u64::from(due);
                prop_assert!(admitted <= now / 1_000 + BURST + 1);
            }
        }

        #[test]
        fn each_address_has_a_rate_of_its_own_and_no_number_of_them_grows_the_table(
            requests in prop::collection::vec((0u16..600, 0u64..50), 1..2_000),
        ) {
            let entry = entry(Span::from_nanos(1_000));
            // Keeps its rate, whatever the others do.
            let quiet = Some(IpAddr::from([10, 0, 0, 1]));
            let (mut now, mut next) = (1, 0);
            for (host, gap) in requests {
                now += gap;
                let [high, low] = host.to_be_bytes();
                entry.keeps_rate(Some(IpAddr::from([10, 1, high, low])), 1_000, now);
                if now >= next {
                    prop_assert!(entry.keeps_rate(quiet, 1_000, now) || entry.due.lock().len() >= ADDRESSES);
                    next = now + 1_000;
                }
                prop_assert!(entry.due.lock().len() <= ADDRESSES + 1);
            }
        }
    }
}
