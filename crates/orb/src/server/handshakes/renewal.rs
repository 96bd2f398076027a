//! Closes connections whose client's certificate has expired, or is revoked by new settings; checked periodically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::Lane;
use crate::server::connection::Connection;
use crate::tls::{ServerSettings, TlsServer};

/// Connections checked at a time; each may cost some signatures.
const SOME: usize = 64;
/// Retries of a busy connection before it is closed during a request.
const TRIES: u32 = 20;

/// See the module.
pub(super) struct Renewal {
    every: Duration,
    next: Instant,
    /// The settings for the last complete check.
    settings: Arc<ServerSettings>,
    /// New lists of revoked certificates must be checked, too.
    fresh: bool,
    unseen: Vec<Arc<Connection>>,
    /// Connections to close, and how often they were busy.
    leaving: Vec<(Arc<Connection>, u32)>,
}

impl Renewal {
    pub(super) fn new(tls: &TlsServer, every: Duration) -> Renewal {
        let (unseen, leaving) = (Vec::new(), Vec::new());
        Renewal { every, next: Instant::now() + every, settings: tls.settings(), fresh: false, unseen, leaving }
    }

    pub(super) fn is_at_work(&self) -> bool {
        !self.unseen.is_empty() || !self.leaving.is_empty()
    }

    /// How long until it begins again.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    pub(super) fn go_on(&mut self, lane: &Lane, tls: &TlsServer, now: Instant) {
        if !self.is_at_work() && now >= self.next {
            self.next = now + self.every;
            let settings = tls.settings();
            self.fresh = !Arc::ptr_eq(&settings, &self.settings);
            self.settings = settings;
            self.unseen = lane.secure_connections();
        }
        let rest = self.unseen.len().saturating_sub(SOME);
        for connection in self.unseen.drain(rest..) {
            let link = connection.link();
            if link.has_expired() || (self.fresh && self.settings.revokes(&link.chain())) {
                self.leaving.push((connection, 0));
            }
        }
        self.leaving.retain_mut(|(connection, tries)| {
            *tries += 1;
            !lane.part_with(connection, *tries < TRIES)
        });
    }
}
