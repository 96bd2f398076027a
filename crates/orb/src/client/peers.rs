//! All endpoints that were called, and the connections that were opened from the other side.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_os::PiMutex;
use hyoshi_wire::giop::Transmission;
use hyoshi_wire::ior::IorEndpoint;

use super::back::WaysBack;
use super::dial::{Common, ConnectionSettings, Dialling};
use super::lookup::Lookups;
use super::mux::{BidirOffer, BothWays, DuplexLane, Mux};
use super::peer::{Peer, PeerKey};
use super::sockets::OpenedSockets;
use crate::bidir::PeerIdentity;
use crate::housekeeping::Housekeeping;
use crate::limits::ClientLimits;
use crate::socket::Socket;
use crate::tls::TlsClient;
use crate::transport::TransportRules;

/// The period for retrying delayed oneways at the end of the ORB.
const AGAIN: Duration = Duration::from_millis(5);

/// All endpoints that were called.
#[derive(Debug)]
pub(crate) struct Peers {
    common: Arc<Common>,
    tls: Option<TlsClient>,
    /// Never over plain TCP.
    tls_only: bool,
    all: papaya::HashMap<PeerKey, Arc<Peer>>,
    /// Connections that were opened from the other side, by what it announced.
    back: papaya::HashMap<IorEndpoint, Arc<WaysBack>>,
    /// Held while one is handed out or forgotten.
    changing: PiMutex<()>,
}

impl Peers {
    pub(crate) fn new(
        limits: ClientLimits,
        housekeeping: Arc<Housekeeping>,
        tls: Option<TlsClient>,
        tls_only: bool,
        rules: TransportRules,
    ) -> Self {
        let tls_only = tls_only || tls.as_ref().is_some_and(|tls| tls.only);
        let (lookups, sockets, offer) = (Lookups::new(), OpenedSockets::default(), OnceLock::new());
        let common = Arc::new(Common { limits, housekeeping, rules, lookups, sockets, offer });
        let (all, back, changing) = (papaya::HashMap::new(), papaya::HashMap::new(), PiMutex::new(()));
        Peers { common, tls, tls_only, all, back, changing }
    }

    /// The connections that were opened from here.
    pub(crate) fn sockets(&self) -> &OpenedSockets {
        &self.common.sockets
    }

    /// Connections carry calls both ways from now on.
    pub(crate) fn offer(&self, offer: BidirOffer) {
        // Cannot be set already: the ORB is just being built.
        let _ = self.common.offer.set(offer);
    }

    /// For calls over a connection that the other side opened.
    pub(crate) fn calls_back(&self, socket: Arc<Socket>, lane: Box<dyn DuplexLane>) -> Mux {
        let both = BothWays { lane, offer: None };
        Mux::new(socket, Some(both), &self.common.limits, &self.common.housekeeping)
    }

    /// Calls to this endpoint may go over a connection that was opened from there. None if it is known, there are too many,
    /// or this ORB makes no calls to that endpoint.
    pub(crate) fn add_way_back(
        &self,
        endpoint: &IorEndpoint,
        mux: &Arc<Mux>,
        identity: &PeerIdentity,
    ) -> Option<Arc<WaysBack>> {
        match endpoint {
            IorEndpoint::Tls { .. } if self.tls.is_none() => return None,
            IorEndpoint::Tcp { .. } if self.tls_only => return None,
            _ => {}
        }
        let _changing = self.changing.lock();
        let ways = self.back.pin().get_or_insert_with(endpoint.clone(), Arc::default).clone();
        ways.add(mux, identity.for_address(endpoint)).then_some(ways)
    }

    /// The peer at this endpoint, with which these code sets are agreed upon; none if this ORB cannot connect to such.
    pub(crate) fn at(
        &self,
        endpoint: &IorEndpoint,
        sets: Option<Transmission>,
        settings: &ConnectionSettings,
    ) -> Option<Arc<Peer>> {
        let same;
        let (endpoint, tls) = match endpoint {
            IorEndpoint::Tls { host, port, .. } => {
                // The handshake shows what the server requires: one server, with any requirement in its reference.
                same = IorEndpoint::Tls { host: host.clone(), port: *port, requires: 0 };
                (&same, Some(self.tls.as_ref()?.dial(&same)?))
            }
            // A corbaloc names no machine: it means this one.
            IorEndpoint::Unix { host, path } => {
                let here = hyoshi_os::host_name();
                if !host.is_empty() && *host != here {
                    return None;
                }
                same = IorEndpoint::Unix { host: here, path: path.clone() };
                (&same, None)
            }
            IorEndpoint::Tcp { .. } if self.tls_only => return None,
            // One server, whether the reference shows the priority of its lane or not.
            IorEndpoint::Tcp { host, port, .. } => {
                same = IorEndpoint::Tcp { host: host.clone(), port: *port, priority: None };
                (&same, None)
            }
        };
        let peer = || {
            let back = self.back.pin().get_or_insert_with(endpoint.clone(), Arc::default).clone();
            back.use_it();
            let (tls, settings, common) = (tls.clone(), settings.clone(), self.common.clone());
            let dialling = Dialling { endpoint: endpoint.clone(), tls, settings, common };
            Arc::new(Peer::new(dialling, sets, back))
        };
        let _changing = self.changing.lock();
        Some(self.all.pin().get_or_insert_with((endpoint.clone(), sets, settings.clone()), peer).clone())
    }

    /// Whether this ORB speaks TLS as a client.
    pub(crate) fn speak_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Closes what was not used for long, and forgets endpoints to which no reference leads any more, so that a server
    /// which calls its clients back remembers only those there are. Returns whether anything is open.
    pub(crate) fn close_idle(&self) -> bool {
        let (mut open, mut unused) = (false, Vec::new());
        self.each(|peer| {
            let own = peer.close_idle();
            open |= own;
            if !own && Arc::strong_count(peer) == 1 {
                unused.push(peer.way());
            }
        });
        if !unused.is_empty() {
            let (_changing, all) = (self.changing.lock(), self.all.pin());
            for way in unused {
                // No other thread has it, and none can get it while it is locked.
                if all.get(&way).is_some_and(|peer| Arc::strong_count(peer) == 1 && !peer.close_idle()) {
                    // Here, for the table keeps it for a while.
                    all.remove(&way).inspect(|peer| peer.back.leave_it());
                }
            }
        }
        self.forget_ways_back();
        open
    }

    /// Forgets addresses to which neither a connection nor a reference leads.
    fn forget_ways_back(&self) {
        let (_changing, back) = (self.changing.lock(), self.back.pin());
        back.retain(|_, ways| {
            ways.forget_dead();
            ways.is_there() || ways.is_used()
        });
    }

    /// Closes all idle connections for good. Delayed oneways are sent before, as far as servers accept them until then.
    /// A server that accepts nothing does not delay the others.
    pub(crate) fn close(&self, until: Instant) {
        while self.try_flush() && Instant::now() < until {
            std::thread::sleep(AGAIN);
        }
        self.each(|peer| peer.close());
    }

    /// Sends delayed oneways without waiting for any server. True if some are left.
    pub(crate) fn try_flush(&self) -> bool {
        let mut left = false;
        self.each(|peer| left |= peer.try_flush());
        left
    }

    pub(crate) fn each(&self, with: impl FnMut(&Arc<Peer>)) {
        self.all.pin().values().for_each(with);
    }
}
