//! What the clients of an object may ask for: `clients` of `[object.NAME]`.

use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{ClientCeiling, ClientName};
use hyoshi_orb::rt::RequestTiming;
use hyoshi_orb::{OrderedRequest, SystemException, SystemKind, certificate_names, minor};
use hyoshi_os::users;

/// Requests above its rate that a client may send at once.
const BURST: u64 = 8;

/// The ceilings of one object's clients.
#[derive(Debug)]
pub(crate) struct Ceilings {
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
    /// (the generic cell rate algorithm, ITU-T I.371).
    due: AtomicU64,
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedClaims {
    /// The highest importance; `None`: that of the operation.
    pub importance: Option<u32>,
    pub critical: bool,
}

/// Of a client without an entry, and beyond its rate.
const LOWEST: AllowedClaims = AllowedClaims { importance: Some(0), critical: false };

/// The mark of a connection whose client has no entry.
const UNNAMED: u32 = 0xffff;

impl Ceilings {
    /// None if the file has no ceilings.
    pub fn new(clients: &[ClientCeiling]) -> Option<Ceilings> {
        let entry = |ceiling: &ClientCeiling| CeilingEntry {
            uid: match &ceiling.client {
                ClientName::User(name) => users::user(name),
                _ => None,
            },
            ceiling: ceiling.clone(),
            due: AtomicU64::new(0),
        };
        let entries: Vec<CeilingEntry> = clients.iter().map(entry).collect();
        (!entries.is_empty()).then(|| Ceilings { entries, clamped: AtomicU64::new(0), refused: AtomicU64::new(0) })
    }

    pub fn clamped(&self) -> u64 {
        self.clamped.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// What a request gets that asks for `timing`, read at `now`. `binding` is the object's.
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
    ) -> Result<AllowedClaims, SystemException> {
        let Some(entry) = self.entry_of(request, binding) else {
            let asks = timing.is_some_and(|timing| timing.importance > 0 || timing.critical);
            self.clamped.fetch_add(u64::from(asks), Ordering::Relaxed);
            return Ok(LOWEST);
        };
        let ceiling = &entry.ceiling;
        let allowed = AllowedClaims { importance: ceiling.importance, critical: ceiling.critical };
        let above = |timing: &RequestTiming| {
            ceiling.importance.is_some_and(|most| timing.importance > most) || (timing.critical && !ceiling.critical)
        };
        let (too_often, too_much) = (!entry.is_due(now), timing.is_some_and(above));
        if !too_often && !too_much {
            return Ok(allowed);
        }
        if ceiling.refuses {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(match too_much {
                true => SystemKind::NoPermission.not_done(minor::CEILING),
                false => SystemKind::Transient.not_done(minor::TOO_OFTEN),
            });
        }
        self.clamped.fetch_add(1, Ordering::Relaxed);
        Ok(if too_often { LOWEST } else { allowed })
    }

    /// The client's entry: the first that names it. It is looked up once for each connection.
    fn entry_of(&self, request: &OrderedRequest, binding: u32) -> Option<&CeilingEntry> {
        let (mark, own) = (request.mark(), (binding + 1) << 16);
        let known = mark.load(Ordering::Relaxed);
        let at = if known & !0xffff == own {
            known & 0xffff
        } else {
            let at = self.find(request).unwrap_or(UNNAMED);
            mark.store(own | at, Ordering::Relaxed);
            at
        };
        self.entries.get(at as usize)
    }

    fn find(&self, request: &OrderedRequest) -> Option<u32> {
        let client = request.client();
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
    /// Whether a request at `now` keeps the client's rate; counts it if so.
    fn is_due(&self, now: u64) -> bool {
        let Some(interval) = self.ceiling.min_interval else { return true };
        let interval = interval.as_nanos();
        let next = |due: u64| {
            let early = due.saturating_sub(now);
            (early <= interval.saturating_mul(BURST)).then(|| due.max(now).saturating_add(interval))
        };
        self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
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
        CeilingEntry { ceiling, uid: Some(0), due: AtomicU64::new(0) }
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
                let due = entry.is_due(now);
                prop_assert!(due || !keeps);
                admitted += u64::from(due);
                prop_assert!(admitted <= now / 1_000 + BURST + 2);
            }
        }
    }
}
