//! The connection of a client: a thread reads its messages and passes them on, or answers them.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Dscp, Instant};
use hyoshi_os::{May, PiMutex, Spawn};
use hyoshi_wire::giop::{
    Answer, CONTEXT_CODE_SETS, LocateReplyHeader, LocateStatus, Message, Received, ReplyHeader, ReplyStatus, Request,
    ServiceContext, close_connection, message_error,
};
use hyoshi_wire::{ByteOrder, Encode, Encoder, Limits, SystemException, Version};

use super::ProxyShared;
use super::registry::ClientLink;
use super::route::{ProxiedServer, Redirection};
use super::upstream::{self, Upstream};
use crate::behaviour::{Behaviour, DelegateDecision, DelegateId, DelegateOutcome};
use crate::channel::{Incoming, Parked, ReadBudget, ReceiveError, Receiver, Tally, TurnEnd, Whole, receive};
use crate::failure::CallFailure;
use crate::limits::duration;
use crate::server::ClientSource;
use crate::socket::BUFFER;
use crate::stream::MaybeTlsStream;

/// Octets of a code set context at most; the standard's has 12.
const MOST_CODE_SETS: usize = 64;

/// The most octets of a request's arguments and names with which its reply is cached.
const CACHE_KEY: usize = 4_096;

/// A client, for all threads of its connection.
pub(super) struct ProxyClient {
    pub(super) shared: Arc<ProxyShared>,
    pub(super) link: Arc<ClientLink>,
    /// Held for one message to the client.
    writes: PiMutex<()>,
    /// Requests that wait for a reply, by their ids.
    pub(super) pending: PiMutex<HashMap<u32, PendingRequest, foldhash::fast::RandomState>>,
}

/// A request that waits for a reply.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The number of the connection that it was sent over.
    pub(super) upstream: u64,
    pub(super) version: Version,
    pub(super) order: ByteOrder,
    /// `None` for a request for an object's location.
    pub(super) delegate: Option<(DelegateId, Instant)>,
    /// What its reply is cached under.
    pub(super) cached: Option<Box<[u8]>>,
}

impl ProxyClient {
    /// Sends whole messages. A client that does not read them is disconnected.
    pub(super) fn send(&self, octets: &[u8]) -> bool {
        let _one = self.writes.lock();
        let sent = write_all(&self.link.stream, octets);
        if !sent {
            self.link.close();
        }
        sent
    }

    /// Answers a request that gets no reply from a server.
    pub(super) fn fail(&self, id: u32, pending: &PendingRequest, exception: &SystemException) {
        let octets = match pending.delegate {
            Some((delegate, began)) => {
                let now = self.shared.now();
                self.shared.delegates.lock().replied(delegate, began, now, DelegateOutcome::Failed);
                raised(id, pending.version, pending.order, exception)
            }
            // The client sends its request next, and gets the exception.
            None => located_here(id, pending.version, pending.order),
        };
        self.send(&octets);
    }
}

pub(super) fn write_all(link: &MaybeTlsStream, octets: &[u8]) -> bool {
    let mut rest = octets;
    while !rest.is_empty() {
        match link.write(rest, May::Wait) {
            Ok(sent) => rest = &rest[sent..],
            Err(_) => return false,
        }
    }
    true
}

fn encoder(version: Version, order: ByteOrder) -> Encoder {
    let mut to = Encoder::new(order);
    to.speak(version, Default::default());
    to
}

fn raised(id: u32, version: Version, order: ByteOrder, exception: &SystemException) -> Vec<u8> {
    let mut to = encoder(version, order);
    let header = ReplyHeader { id, status: ReplyStatus::SystemException, contexts: &[] };
    // Cannot fail: each version has this status.
    drop(header.begin(&mut to).and_then(|begun| {
        exception.encode(&mut to)?;
        begun.end(&mut to)
    }));
    to.into_bytes()
}

fn located_here(id: u32, version: Version, order: ByteOrder) -> Vec<u8> {
    let mut to = encoder(version, order);
    let header = LocateReplyHeader { id, status: LocateStatus::ObjectHere };
    // Cannot fail, as above.
    drop(header.begin(&mut to).and_then(|begun| begun.end(&mut to)));
    to.into_bytes()
}

/// Begins to serve a client.
pub(super) fn begin(shared: &Arc<ProxyShared>, link: MaybeTlsStream, server: &Arc<ProxiedServer>) {
    let limits = &shared.limits;
    let set = link
        .read_timeout(Some(duration(limits.silent)))
        .and_then(|()| link.write_timeout(Some(duration(limits.stalled))));
    if set.is_err() {
        return;
    }
    shared.count(|counts| &counts.clients);
    let link = Arc::new(ClientLink::new(link));
    let Some(place) = shared.registry.add(ClientSource::of(&link.stream), &link) else {
        shared.count(|counts| &counts.displaced);
        return link.close();
    };
    if let Some(displaced) = place.displaced {
        shared.count(|counts| &counts.displaced);
        displaced.close();
    }
    let (writes, pending) = (PiMutex::default(), PiMutex::default());
    let client = Arc::new(ProxyClient { shared: shared.clone(), link: link.clone(), writes, pending });
    let (own, server) = (shared.clone(), server.clone());
    let started = Spawn::new("proxy-client").spawn(move || {
        let reader = ClientReader { client, server, upstreams: Vec::new(), code_sets: None, scratch: Vec::new() };
        reader.run();
        own.registry.remove(place.number);
    });
    if started.is_err() {
        link.close();
        shared.registry.remove(place.number);
    }
}

/// A way to a server. A client's connection has one for each that it uses.
#[derive(Clone, Debug)]
struct ServerRoute {
    server: Arc<ProxiedServer>,
    dscp: Option<Dscp>,
}

impl PartialEq for ServerRoute {
    fn eq(&self, other: &ServerRoute) -> bool {
        Arc::ptr_eq(&self.server, &other.server) && self.dscp == other.dscp
    }
}

struct ClientReader {
    client: Arc<ProxyClient>,
    /// The server of the port that the client has connected to.
    server: Arc<ProxiedServer>,
    /// At most one for each way: as many as behaviours have.
    upstreams: Vec<(ServerRoute, Arc<Upstream>)>,
    /// The context by which the client has announced its code sets.
    code_sets: Option<Box<[u8]>>,
    /// Messages that are not sent as received.
    scratch: Vec<u8>,
}

/// Where a request goes.
struct Passed<'a> {
    way: ServerRoute,
    /// The key of another object, and the highest version of its server.
    object: Option<&'a Redirection>,
    pending: Option<(DelegateId, Instant)>,
    cached: Option<Box<[u8]>>,
}

impl ClientReader {
    fn run(mut self) {
        let limits = Limits { message: self.client.shared.limits.message, ..Limits::default() };
        let mut incoming = Incoming::new(limits);
        let mut buffer = vec![0; BUFFER];
        let mut version = Version::V1_0;
        let tally = Tally::new(self.client.shared.unfinished.clone());
        loop {
            let mut receiver = FromClient { reader: &mut self, version: &mut version, tally: &tally };
            let end = receive(&mut receiver, &mut incoming, &mut buffer, &mut ReadBudget::unbounded());
            match end {
                // A client that waits for replies may be silent, but not within a message.
                Ok(TurnEnd::Idle) if !incoming.has_begun() && !self.client.pending.lock().is_empty() => continue,
                Ok(TurnEnd::Idle | TurnEnd::Spent) => {
                    self.client.send(&close_connection(version));
                }
                Ok(TurnEnd::Stopped(())) => {}
                Err(ReceiveError::Stream(fault)) => {
                    if let Answer::MessageError(version) = fault.answer(version) {
                        self.client.send(&message_error(version));
                    }
                }
                Err(ReceiveError::Ended | ReceiveError::Tls | ReceiveError::Socket(_)) => {}
            }
            break;
        }
        self.client.link.close();
        // They end uncounted: the client no longer waits.
        self.client.pending.lock().clear();
        self.upstreams.iter().for_each(|(_, upstream)| upstream.link.close());
    }

    fn primary(&self) -> ServerRoute {
        ServerRoute { server: self.server.clone(), dscp: None }
    }

    /// A message of the client.
    fn message(&mut self, received: &Received<'_>) -> ControlFlow<()> {
        if self.client.link.is_closed() {
            return ControlFlow::Break(());
        }
        let version = received.header().version;
        match received.decode() {
            Ok(Message::Request(request)) => return self.request(received, &request),
            Ok(Message::LocateRequest(request)) => {
                self.client.shared.count(|counts| &counts.located);
                let passed = Passed { way: self.primary(), object: None, pending: None, cached: None };
                return self.pass(received, None, request.id, true, passed);
            }
            Ok(Message::CancelRequest(id)) => self.cancel(received, id),
            // To a request of the server, on a connection for calls in both directions.
            Ok(Message::Reply(_) | Message::LocateReply(_)) => {
                let way = self.primary();
                if let Some((_, upstream)) = self.upstreams.iter().find(|(known, _)| *known == way) {
                    upstream.send(received, &mut self.scratch);
                }
            }
            Ok(Message::CloseConnection | Message::MessageError) => return ControlFlow::Break(()),
            Err(error) => {
                let id = received.id().filter(|_| received.header().kind == hyoshi_wire::giop::MessageKind::Request);
                let Some(id) = id else {
                    self.client.send(&message_error(version));
                    return ControlFlow::Break(());
                };
                let exception = SystemException::from(error);
                self.client.send(&raised(id, version, received.header().order, &exception));
            }
        }
        ControlFlow::Continue(())
    }

    fn request(&mut self, received: &Received<'_>, request: &Request<'_>) -> ControlFlow<()> {
        let client = self.client.clone();
        let shared = &client.shared;
        let header = received.header();
        if self.code_sets.is_none() && header.version != Version::V1_0 {
            let announced = request.contexts.get(CONTEXT_CODE_SETS).filter(|data| data.len() <= MOST_CODE_SETS);
            self.code_sets = announced.map(Into::into);
        }
        let expects = request.response.expected();
        let now = shared.now();
        let (delegate, decision, redirection) = {
            let mut delegates = shared.delegates.lock();
            let (id, decision) = delegates.request(now, request.operation, !expects);
            let redirection = match (decision, delegates.of(id).behaviour()) {
                (DelegateDecision::Redirect, Behaviour::Redirect(to)) => shared.redirections.get(to),
                _ => None,
            };
            (id, decision, redirection)
        };
        let pending = expects.then_some((delegate, now));
        let mut passed = Passed { way: self.primary(), object: None, pending, cached: None };
        match decision {
            DelegateDecision::Pass => {}
            DelegateDecision::Refuse(exception) => {
                client.send(&raised(request.id, header.version, header.order, &exception));
                return ControlFlow::Continue(());
            }
            DelegateDecision::Drop => return ControlFlow::Continue(()),
            DelegateDecision::Delay(span) => {
                client.link.sleep_until(&shared.clock, now.saturating_add(span));
                if client.link.is_closed() {
                    return ControlFlow::Break(());
                }
            }
            DelegateDecision::Mark(dscp) => passed.way.dscp = Some(dscp),
            DelegateDecision::Redirect => {
                // Each behaviour's redirection was resolved at the start.
                if let Some(object) = redirection {
                    passed.way.server = object.server.clone();
                    passed.object = Some(object);
                }
            }
            DelegateDecision::Cached(age) => {
                let key = self.cache_key(received, request);
                let reply = key.as_deref().and_then(|key| shared.cache.lock().get(key, now, age));
                if let Some(reply) = reply {
                    shared.delegates.lock().answered(delegate);
                    client.send(&upstream::with_id(&reply, request.id));
                    return ControlFlow::Continue(());
                }
                shared.delegates.lock().missed(delegate);
                passed.cached = key;
            }
        }
        self.pass(received, Some(request), request.id, expects, passed)
    }

    /// All that the octets of a reply can depend on; `None` if that is too much to keep for each waiting request.
    fn cache_key(&self, received: &Received<'_>, request: &Request<'_>) -> Option<Box<[u8]>> {
        let header = received.header();
        let mut to = Encoder::new(ByteOrder::NATIVE);
        let (version, order) = (header.version.octets()[1], header.order == ByteOrder::Big);
        to.raw(&[version, u8::from(order), request.response as u8, (request.arguments.at() % 8) as u8]);
        let server = Arc::as_ptr(&self.server) as usize;
        to.raw(&server.to_ne_bytes());
        let key = request.target.key().unwrap_or_default();
        for part in [key, request.operation.as_bytes(), self.code_sets.as_deref().unwrap_or_default()] {
            to.raw(&part.len().to_ne_bytes());
            to.raw(part);
        }
        // With the headers of fragments, if the alignment depends on those.
        let rest = match received.is_one_piece() {
            true => request.arguments.rest(),
            false => received.octets(),
        };
        if rest.len() > CACHE_KEY {
            return None;
        }
        to.raw(rest);
        let key = to.into_bytes();
        (key.len() <= CACHE_KEY).then(|| key.into())
    }

    /// Sends a request on its way.
    fn pass(
        &mut self,
        received: &Received<'_>,
        request: Option<&Request<'_>>,
        id: u32,
        expects: bool,
        passed: Passed<'_>,
    ) -> ControlFlow<()> {
        let Passed { way, object, pending: delegate, cached } = passed;
        let header = received.header();
        let (version, order) = (header.version, header.order);
        let client = self.client.clone();
        let mut pending = PendingRequest { upstream: 0, version, order, delegate, cached };
        // A connection may be found closed once.
        for _ in 0..3 {
            let found = match object {
                Some(object) if object.version < version => Err(CallFailure::Raised(
                    hyoshi_wire::SystemKind::Transient.not_done(crate::minor::NO_USABLE_PROFILE),
                )),
                _ => self.upstream(&way),
            };
            let upstream = match found {
                Ok(upstream) => upstream,
                Err(failure) => {
                    if expects {
                        client.fail(id, &pending, &failure.exception());
                    }
                    return ControlFlow::Continue(());
                }
            };
            let adds = match (request, &self.code_sets) {
                (Some(request), Some(_)) if version != Version::V1_0 => {
                    !upstream.announced.swap(true, Ordering::Relaxed)
                        && request.contexts.get(CONTEXT_CODE_SETS).is_none()
                }
                _ => false,
            };
            let copied = match request {
                Some(request) if adds || object.is_some() => match self.copy(request, version, order, object, adds) {
                    Ok(octets) => Some(octets),
                    Err(failure) => {
                        if expects {
                            client.fail(id, &pending, &failure.exception());
                        }
                        return ControlFlow::Continue(());
                    }
                },
                _ => None,
            };
            if expects {
                pending.upstream = upstream.number;
                let mut all = client.pending.lock();
                if all.contains_key(&id) {
                    drop(all);
                    client.send(&message_error(version));
                    return ControlFlow::Break(());
                }
                if all.len() >= client.shared.limits.in_flight {
                    drop(all);
                    client.fail(id, &pending, &CallFailure::InFlight.exception());
                    return ControlFlow::Continue(());
                }
                all.insert(id, pending);
            }
            // Its reader answers what is pending when it ends, before or after this.
            if upstream.over.load(Ordering::Acquire) {
                if !expects {
                    pending = PendingRequest { upstream: 0, version, order, delegate, cached: None };
                    continue;
                }
                match client.pending.lock().remove(&id) {
                    Some(back) => pending = back,
                    None => return ControlFlow::Continue(()),
                }
                continue;
            }
            let sent = match &copied {
                Some(octets) => write_all(&upstream.link, octets),
                None => upstream.send(received, &mut self.scratch),
            };
            if !sent {
                upstream.link.close();
            }
            return ControlFlow::Continue(());
        }
        if expects {
            client.fail(id, &pending, &CallFailure::Closed.exception());
        }
        ControlFlow::Continue(())
    }

    /// A request to another object, or with the client's code sets.
    fn copy(
        &self,
        request: &Request<'_>,
        version: Version,
        order: ByteOrder,
        object: Option<&Redirection>,
        adds: bool,
    ) -> Result<Vec<u8>, CallFailure> {
        let mut to = encoder(version, order);
        let key = match object {
            Some(object) => &object.key,
            None => request.target.key().map_err(|error| CallFailure::Raised(error.into()))?,
        };
        let sets = self.code_sets.as_deref().filter(|_| adds);
        let extra: Vec<_> = sets.map(|data| ServiceContext { tag: CONTEXT_CODE_SETS, data }).into_iter().collect();
        request.readdress(key, &extra, &mut to).map_err(CallFailure::Encode)?;
        Ok(to.into_bytes())
    }

    /// The connection for a way, which is made if there is none.
    fn upstream(&mut self, way: &ServerRoute) -> Result<Arc<Upstream>, CallFailure> {
        if let Some(at) = self.upstreams.iter().position(|(known, _)| known == way) {
            let upstream = &self.upstreams[at].1;
            if !upstream.over.load(Ordering::Acquire) {
                return Ok(upstream.clone());
            }
            self.upstreams.swap_remove(at);
        }
        let link = way.server.connect(way.dscp, &self.client.shared)?;
        let is_primary = *way == self.primary();
        let upstream = upstream::begin(&self.client, link, is_primary)?;
        self.upstreams.push((way.clone(), upstream.clone()));
        Ok(upstream)
    }

    /// The client no longer waits for a reply, which is dropped if it arrives.
    fn cancel(&mut self, received: &Received<'_>, id: u32) {
        let Some(pending) = self.client.pending.lock().remove(&id) else { return };
        if let Some((delegate, began)) = pending.delegate {
            let shared = &self.client.shared;
            shared.delegates.lock().replied(delegate, began, shared.now(), DelegateOutcome::Cancelled);
        }
        let sent_over = self.upstreams.iter().find(|(_, upstream)| upstream.number == pending.upstream);
        if let Some((_, upstream)) = sent_over {
            upstream.send(received, &mut self.scratch);
        }
    }
}

struct FromClient<'a> {
    reader: &'a mut ClientReader,
    /// That of the last message.
    version: &'a mut Version,
    tally: &'a Tally,
}

impl Receiver for FromClient<'_> {
    type Stop = ();

    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize> {
        self.reader.client.link.stream.read(place, if more { May::Never } else { May::Wait })
    }

    fn message(&mut self, Whole { received, .. }: Whole<'_>) -> ControlFlow<(), Option<Parked>> {
        *self.version = received.header().version;
        match self.reader.message(&received) {
            ControlFlow::Continue(()) => ControlFlow::Continue(None),
            ControlFlow::Break(()) => ControlFlow::Break(()),
        }
    }

    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<()> {
        (!self.reader.client.shared.holds(self.tally, incoming.held())).then_some(())
    }
}
