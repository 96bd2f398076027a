//! A server as its clients see it: an endpoint, and the connections to it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hyoshi_os::clock::coarse;
use hyoshi_os::{Address, PiMutex};
use hyoshi_wire::giop::Transmission;
use hyoshi_wire::ior::Endpoint;
use hyoshi_wire::{CharSet, Version};

use super::back::WaysBack;
use super::crowd::{Crowd, Guest};
use super::invoke::Failure;
use super::line::{Line, Place};
use super::lookup::Lookups;
use super::mux::Mux;
use super::names;
use crate::bidir::{Offer, Outlet, Whose, is_way_back};
use crate::care::Care;
use crate::intake::BUFFER;
use crate::limits::ClientLimits;
use crate::link::Link;
use crate::promise::Promise;
use crate::tls::{Dial, Dialler, Distrust};
use crate::transport::{Transport, TransportRules};

/// How often the end of the ORB looks whether servers take more of what was put off.
const AGAIN: Duration = Duration::from_millis(5);

/// All endpoints that were called.
#[derive(Debug)]
pub(crate) struct Peers {
    limits: ClientLimits,
    care: Arc<Care>,
    tls: Option<Dialler>,
    /// Never over plain TCP.
    tls_only: bool,
    rules: Arc<TransportRules>,
    /// Set if connections are to carry calls both ways.
    offer: Arc<OnceLock<Offer>>,
    all: papaya::HashMap<Way, Arc<Peer>>,
    /// Connections that were opened from the other side, by what it announced.
    back: papaya::HashMap<Endpoint, Arc<WaysBack>>,
    lookups: Arc<Lookups>,
    /// Held while one is handed out or forgotten.
    changing: PiMutex<()>,
}

/// An endpoint, and the code sets that its connections agree upon: what characters are there holds for each request
/// on a connection, so that references which say otherwise, or nothing, need connections of their own.
type Way = (Endpoint, Option<Transmission>);

/// Connections to one endpoint.
#[derive(Debug)]
pub(crate) struct Peer {
    endpoint: Endpoint,
    sets: Option<Transmission>,
    limits: ClientLimits,
    care: Arc<Care>,
    dial: Option<Dial>,
    rules: Arc<TransportRules>,
    /// Lines that exist.
    open: Arc<AtomicUsize>,
    /// The connections of them, for the end of the ORB.
    links: PiMutex<Vec<Weak<Link>>>,
    /// Those that nobody uses, the one used last at the end. Boxed: they are handed about.
    #[allow(clippy::vec_box)]
    idle: PiMutex<Vec<Box<Line>>>,
    /// The first carries delayed oneways, asynchronous calls, and calls both ways.
    shared: Box<[PiMutex<Shared>]>,
    crowd: Crowd,
    lookups: Arc<Lookups>,
    offer: Arc<OnceLock<Offer>>,
    /// Connections that it opened itself.
    back: Arc<WaysBack>,
    name: OnceLock<Option<&'static str>>,
    name_without_plain: OnceLock<Option<&'static str>>,
}

/// A shared connection. One caller connects without the lock; the others wait, each up to its own deadline.
///
/// ```text
///           mux                  connected
///   None ───────► Connecting ───────────────► Open
///    ▲                │ refused                │ it ended, or nobody used it
///    └────────────────┴────────────────────────┘        close, from each: Ended
/// ```
#[derive(Debug)]
enum Shared {
    None,
    Connecting(Arc<Promise<Result<Arc<Mux>, Failure>>>),
    Open(Arc<Mux>),
    Ended,
}

/// How long connecting may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// To find the host's addresses, and for each of them.
    pub(super) each: Duration,
    /// For all that the call needs.
    pub(super) until: Option<Instant>,
}

impl Patience {
    /// What is left for one step.
    fn left(&self) -> Result<Duration, Failure> {
        let left = self.until.map_or(self.each, |until| self.each.min(until.saturating_duration_since(Instant::now())));
        if left.is_zero() { Err(Failure::ConnectTimedOut) } else { Ok(left) }
    }
}

/// What a call goes over.
pub(super) enum Over<'a> {
    /// A connection of its own.
    Line(Box<Line>),
    /// A shared connection, and the call's place there.
    Mux(Arc<Mux>, Option<Guest<'a>>),
}

impl Peers {
    pub(crate) fn new(
        limits: ClientLimits,
        care: Arc<Care>,
        tls: Option<Dialler>,
        tls_only: bool,
        rules: TransportRules,
    ) -> Self {
        let tls_only = tls_only || tls.as_ref().is_some_and(|tls| tls.only);
        let rules = Arc::new(rules);
        let (all, back) = (papaya::HashMap::new(), papaya::HashMap::new());
        let (offer, lookups, changing) = (Arc::default(), Lookups::new(), PiMutex::new(()));
        Peers { limits, care, tls, tls_only, rules, offer, all, back, lookups, changing }
    }

    /// Connections carry calls both ways from now on.
    pub(crate) fn offer(&self, offer: Offer) {
        // Cannot be set already: the ORB is just being built.
        let _ = self.offer.set(offer);
    }

    /// For calls over a connection that the other side opened.
    pub(crate) fn calls_back(&self, outlet: Outlet) -> Mux {
        Mux::over_outlet(outlet, &self.limits, &self.care, 1, None)
    }

    /// Calls to this endpoint may go over a connection that was opened from there. None if it is known, there are too many,
    /// or this ORB calls nobody there.
    pub(crate) fn add_way_back(&self, endpoint: &Endpoint, mux: &Arc<Mux>, whose: &Whose) -> Option<Arc<WaysBack>> {
        match endpoint {
            Endpoint::Tls { .. } if self.tls.is_none() => return None,
            Endpoint::Tcp { .. } if self.tls_only => return None,
            _ => {}
        }
        let _changing = self.changing.lock();
        let ways = self.back.pin().get_or_insert_with(endpoint.clone(), Arc::default).clone();
        ways.add(mux, whose.for_address(endpoint)).then_some(ways)
    }

    /// The peer at this endpoint, with which these code sets are agreed upon; none if this ORB cannot connect to such.
    pub(crate) fn at(&self, endpoint: &Endpoint, sets: Option<Transmission>) -> Option<Arc<Peer>> {
        let same;
        let (endpoint, dial) = match endpoint {
            Endpoint::Tls { host, port, .. } => {
                // What it insists on is told by the handshake: one server, whatever the reference says.
                same = Endpoint::Tls { host: host.clone(), port: *port, requires: 0 };
                (&same, Some(self.tls.as_ref()?.dial(&same)?))
            }
            // A corbaloc names no machine: it means this one.
            Endpoint::Unix { host, path } => {
                let here = hyoshi_os::host_name();
                if !host.is_empty() && *host != here {
                    return None;
                }
                same = Endpoint::Unix { host: here, path: path.clone() };
                (&same, None)
            }
            Endpoint::Tcp { .. } if self.tls_only => return None,
            _ => (endpoint, None),
        };
        let peer = || {
            let back = self.back.pin().get_or_insert_with(endpoint.clone(), Arc::default).clone();
            back.use_it();
            let crowd = Crowd::new(self.limits.connections);
            Arc::new(Peer {
                endpoint: endpoint.clone(),
                sets,
                limits: self.limits.clone(),
                care: self.care.clone(),
                dial: dial.clone(),
                rules: self.rules.clone(),
                open: Arc::new(AtomicUsize::new(0)),
                links: PiMutex::new(Vec::new()),
                idle: PiMutex::new(Vec::new()),
                shared: (0..crowd.connections()).map(|_| PiMutex::new(Shared::None)).collect(),
                crowd,
                lookups: self.lookups.clone(),
                offer: self.offer.clone(),
                back,
                name: OnceLock::new(),
                name_without_plain: OnceLock::new(),
            })
        };
        let _changing = self.changing.lock();
        Some(self.all.pin().get_or_insert_with((endpoint.clone(), sets), peer).clone())
    }

    /// Whether this ORB speaks TLS as a client.
    pub(crate) fn speak_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Closes what was not used for long, and forgets endpoints to which no reference leads any more, so that a server
    /// which calls its clients back remembers only those there are. Returns whether anything is open.
    pub(crate) fn tend(&self) -> bool {
        let (mut open, mut unused) = (false, Vec::new());
        self.each(|peer| {
            let own = peer.tend();
            open |= own;
            if !own && Arc::strong_count(peer) == 1 {
                unused.push((peer.endpoint.clone(), peer.sets));
            }
        });
        if !unused.is_empty() {
            let (_changing, all) = (self.changing.lock(), self.all.pin());
            for way in unused {
                // Nobody else has it, and while it is locked nobody gets it.
                if all.get(&way).is_some_and(|peer| Arc::strong_count(peer) == 1 && !peer.tend()) {
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

    /// Closes all that is idle, for good. What was put off is sent before, as far as servers take it until then: one that
    /// takes nothing costs the others nothing.
    pub(crate) fn close(&self, until: Instant) {
        while self.try_flush() && Instant::now() < until {
            std::thread::sleep(AGAIN);
        }
        self.each(|peer| peer.close());
    }

    /// Sends the oneways that were put off, without waiting for anybody. True if some is left.
    pub(crate) fn try_flush(&self) -> bool {
        let mut left = false;
        self.each(|peer| left |= peer.try_flush());
        left
    }

    pub(crate) fn each(&self, with: impl FnMut(&Arc<Peer>)) {
        self.all.pin().values().for_each(with);
    }
}

impl Peer {
    /// Its address, for exceptions.
    #[cold]
    pub(super) fn name(&self) -> Option<&'static str> {
        *self.name.get_or_init(|| names::of(&self.endpoint, false))
    }

    /// The same if the reference also has plain addresses, which are not used.
    #[cold]
    pub(super) fn name_without_plain(&self) -> Option<&'static str> {
        *self.name_without_plain.get_or_init(|| names::of(&self.endpoint, true))
    }

    pub(super) fn is_unix(&self) -> bool {
        matches!(self.endpoint, Endpoint::Unix { .. })
    }

    /// The connection that carries calls both ways, if calls to this peer go over one: one that it opened itself, or, where
    /// that is offered, one to it.
    #[inline]
    pub(super) fn both_ways(
        &self,
        version: Version,
        chars: CharSet,
        patience: &Patience,
    ) -> Result<Option<Arc<Mux>>, Failure> {
        let offers = self.offer.get().is_some();
        if (!self.has_way_back() && !offers) || version < Version::V1_2 {
            return Ok(None);
        }
        match self.back.way(chars) {
            None if offers => self.mux(patience).map(Some),
            way => Ok(way),
        }
    }

    #[inline]
    pub(super) fn has_way_back(&self) -> bool {
        self.back.is_there()
    }

    /// A connection for a call.
    #[inline]
    pub(super) fn take(&self, patience: &Patience) -> Result<Over<'_>, Failure> {
        if self.crowd.is_crowded() {
            return self.join(patience);
        }
        let now = coarse();
        loop {
            let Some(mut line) = self.idle.lock().pop() else { break };
            if !line.is_late() && line.is_usable(now) {
                line.used = now;
                line.doubted = false;
                return Ok(Over::Line(line));
            }
            if line.is_late() {
                match self.try_late(line) {
                    Some(line) => return Ok(Over::Line(line)),
                    None => break,
                }
            }
            self.drop_line(line);
        }
        self.connect(patience)
    }

    /// All idle ones wait for late replies, for those stand at the front: perhaps this one's has come.
    #[cold]
    fn try_late(&self, mut line: Box<Line>) -> Option<Box<Line>> {
        if !line.drain(&mut vec![0; BUFFER]) {
            self.drop_line(line);
            return None;
        }
        if line.is_late() {
            self.idle.lock().insert(0, line);
            return None;
        }
        Some(line)
    }

    #[cold]
    fn connect(&self, patience: &Patience) -> Result<Over<'_>, Failure> {
        let Some(place) = Place::take(&self.open, self.limits.connections) else {
            return self.join(patience);
        };
        let (dial, most) = (self.dial.as_ref(), self.limits.message);
        let mut line = self.try_addresses(patience, |address, left| Line::connect(address, left, dial, most))?;
        line.place = Some(place);
        let mut links = self.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(line.link());
        drop(links);
        Ok(Over::Line(Box::new(line)))
    }

    /// The call shares a connection.
    #[cold]
    fn join(&self, patience: &Patience) -> Result<Over<'_>, Failure> {
        let guest = self.crowd.join();
        let mux = self.mux_at(guest.at(), patience)?;
        Ok(Over::Mux(mux, Some(guest)))
    }

    /// Tries all addresses of the host.
    fn try_addresses<T>(
        &self,
        patience: &Patience,
        mut connect: impl FnMut(&Address, Duration) -> io::Result<T>,
    ) -> Result<T, Failure> {
        if matches!(&self.endpoint, Endpoint::Tcp { host, .. } if is_way_back(host)) {
            return Err(Failure::NoWayBack);
        }
        // It is to be closed when nobody uses it any more.
        self.care.stir(false);
        match &self.endpoint {
            Endpoint::Unix { .. } if !self.rules.allow(Transport::Unix, None) => Err(Failure::Forbidden),
            Endpoint::Unix { path, .. } => {
                connect(&Address::Unix(path.into()), patience.left()?).map_err(|error| no_connection(&error))
            }
            Endpoint::Tcp { host, port, .. } | Endpoint::Tls { host, port, .. } => {
                let mut last = Failure::HostUnknown;
                let transport = if self.dial.is_some() { Transport::Tls } else { Transport::Tcp };
                for address in self.lookups.find(host, *port, Instant::now() + patience.left()?)? {
                    if !self.rules.allow(transport, Some(address.ip())) {
                        last = Failure::Forbidden;
                        continue;
                    }
                    match connect(&Address::Tcp(address), patience.left()?) {
                        Ok(connected) => return Ok(connected),
                        Err(error) => last = no_connection(&error),
                    }
                }
                Err(last)
            }
        }
    }

    /// The first connection that calls share.
    pub(super) fn mux(&self, patience: &Patience) -> Result<Arc<Mux>, Failure> {
        self.mux_at(0, patience)
    }

    fn mux_at(&self, at: usize, patience: &Patience) -> Result<Arc<Mux>, Failure> {
        loop {
            let promise = {
                let mut shared = self.shared[at].lock();
                match &*shared {
                    Shared::Open(mux) if mux.is_alive() => return Ok(mux.clone()),
                    Shared::Connecting(promise) => promise.clone(),
                    Shared::Ended => return Err(Failure::ShutDown),
                    Shared::None | Shared::Open(_) => {
                        let promise = Arc::new(Promise::new());
                        *shared = Shared::Connecting(promise.clone());
                        drop(shared);
                        return self.connect_shared(at, &promise, patience);
                    }
                }
            };
            match promise.wait(patience.until) {
                // Whoever connected had less time than is left here.
                Some(Err(Failure::ConnectTimedOut)) if patience.left().is_ok() => {}
                Some(outcome) => return outcome,
                None => return Err(Failure::ConnectTimedOut),
            }
        }
    }

    #[cold]
    fn connect_shared(
        &self,
        at: usize,
        promise: &Promise<Result<Arc<Mux>, Failure>>,
        patience: &Patience,
    ) -> Result<Arc<Mux>, Failure> {
        let connect = |address: &Address, left| Link::connect(address, left, self.dial.as_ref());
        let stream = self.try_addresses(patience, connect);
        let start = |stream| self.start_shared(stream).map_err(|error| no_connection(&error));
        let mut outcome = stream.and_then(start);
        {
            let mut shared = self.shared[at].lock();
            match &outcome {
                Ok(mux) if matches!(*shared, Shared::Ended) => {
                    mux.close();
                    outcome = Err(Failure::ShutDown);
                }
                Ok(mux) => *shared = Shared::Open(mux.clone()),
                Err(_) if matches!(*shared, Shared::Ended) => {}
                Err(_) => *shared = Shared::None,
            }
        }
        promise.keep(outcome.clone());
        outcome
    }

    fn start_shared(&self, stream: Link) -> io::Result<Arc<Mux>> {
        let Some(Offer { lane, context }) = self.offer.get() else {
            return Mux::start(stream, &self.limits, &self.care);
        };
        let calls = |outlet| Mux::over_outlet(outlet, &self.limits, &self.care, 0, Some(context.clone()));
        lane.take_in_both(stream, self.limits.message, calls)
    }

    /// The existing shared connections.
    fn open_muxes(&self) -> impl Iterator<Item = Arc<Mux>> {
        self.shared.iter().filter_map(|shared| match &*shared.lock() {
            Shared::Open(mux) => Some(mux.clone()),
            _ => None,
        })
    }

    /// The call is over, and the connection as good as before.
    #[inline]
    pub(super) fn give_back(&self, line: Box<Line>) {
        if !line.is_clean() {
            return self.drop_line(line);
        }
        self.idle.lock().push(line);
    }

    /// The call is over, but its reply is still to come.
    pub(super) fn give_back_late(&self, line: Box<Line>) {
        self.idle.lock().insert(0, line);
    }

    #[allow(clippy::boxed_local)]
    pub(super) fn drop_line(&self, line: Box<Line>) {
        line.close();
    }

    /// A connection has ended: others may have too, and are to be looked at before they are used.
    #[cold]
    pub(super) fn doubt(&self) {
        self.idle.lock().iter_mut().for_each(|line| line.doubted = true);
    }

    /// Closes what was not used for long, sends what was put off. Returns whether anything is open.
    pub(crate) fn tend(&self) -> bool {
        let (now, idle) = (coarse(), self.limits.idle);
        let mut old = Vec::new();
        {
            let mut lines = self.idle.lock();
            let mut at = 0;
            while at < lines.len() {
                let is_old = now.saturating_sub(lines[at].used) > idle || lines[at].has_expired();
                if is_old { old.push(lines.remove(at)) } else { at += 1 }
            }
        }
        old.into_iter().for_each(|line| self.drop_line(line));
        let mut open = self.open.load(Ordering::Relaxed) > 0;
        for shared in &self.shared {
            let mut shared = shared.lock();
            if let Shared::Open(mux) = &*shared
                && (!mux.is_alive() || mux.retire(now))
            {
                mux.close();
                *shared = Shared::None;
            }
            open |= matches!(*shared, Shared::Open(_) | Shared::Connecting(_));
        }
        open
    }

    /// Sends the oneways that were put off.
    pub(crate) fn flush(&self) {
        self.open_muxes().for_each(|mux| mux.flush());
        self.back.all().iter().for_each(|mux| mux.flush());
    }

    /// The same without waiting for anybody. True if some is left.
    fn try_flush(&self) -> bool {
        let back = self.back.all();
        back.iter().cloned().chain(self.open_muxes()).fold(false, |left, mux| mux.try_flush() | left)
    }

    /// Closes what calls are waiting on.
    pub(crate) fn abandon(&self) {
        let links: Vec<_> = self.links.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| link.close());
    }

    /// Closes all that is idle, for good.
    fn close(&self) {
        let lines = std::mem::take(&mut *self.idle.lock());
        lines.into_iter().for_each(|line| self.drop_line(line));
        for shared in &self.shared {
            let shared = std::mem::replace(&mut *shared.lock(), Shared::Ended);
            if let Shared::Open(mux) = shared {
                // Another call may have delayed a oneway just now.
                mux.try_flush();
                mux.end();
            }
        }
        self.back.all().iter().for_each(|mux| mux.end());
    }
}

fn no_connection(error: &io::Error) -> Failure {
    if let Some(why) = Distrust::of(error) {
        return Failure::Tls(why);
    }
    match error.kind() {
        // The server ended within the handshake.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Failure::Tls(Distrust::Handshake),
        // Of a Unix socket the file may be missing.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Refused,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::ConnectTimedOut,
        _ => Failure::NotConnected,
    }
}
