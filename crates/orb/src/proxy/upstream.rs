//! A connection to a server, for one connection of a client: a thread reads its replies and passes them on.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_os::{May, Spawn};
use hyoshi_wire::giop::{
    LocateReply, LocateReplyHeader, LocateStatus, Message, Received, Reply, ReplyHeader, ReplyStatus, ServiceContext,
    ServiceContexts, close_connection,
};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{Decode, Decoder, Encode, EncodeError, Encoder, Limits, SystemKind, Version};

use super::client::{PendingRequest, ProxyClient, write_all};
use super::route::ForwardPath;
use crate::behaviour::DelegateOutcome;
use crate::channel::{Incoming, Parked, ReadBudget, ReceiveError, Receiver, Tally, TurnEnd, Whole, receive};
use crate::failure::CallFailure;
use crate::minor;
use crate::socket::BUFFER;
use crate::stream::MaybeTlsStream;

/// See the module.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) link: MaybeTlsStream,
    /// No other connection of the proxy has it.
    pub(super) number: u64,
    /// A request has announced the client's code sets.
    pub(super) announced: AtomicBool,
    /// Set before its pending requests are answered: none may be sent over it any more.
    pub(super) over: AtomicBool,
}

impl Upstream {
    /// Sends a message as received.
    pub(super) fn send(&self, received: &Received<'_>, scratch: &mut Vec<u8>) -> bool {
        let sent = write_all(&self.link, wire(received, scratch));
        keep_small(scratch);
        sent
    }
}

/// A message as it is sent on.
fn wire<'a>(received: &Received<'a>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if received.is_one_piece() {
        return received.octets();
    }
    scratch.clear();
    received.send_to(scratch);
    scratch
}

/// A large message must not hold memory while its connection is idle.
fn keep_small(scratch: &mut Vec<u8>) {
    if scratch.capacity() > BUFFER {
        *scratch = Vec::new();
    }
}

/// Begins to read a new connection.
pub(super) fn begin(
    client: &Arc<ProxyClient>,
    link: MaybeTlsStream,
    is_primary: bool,
) -> Result<Arc<Upstream>, CallFailure> {
    let number = client.shared.numbers.fetch_add(1, Ordering::Relaxed) + 1;
    let (announced, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let upstream = Arc::new(Upstream { link, number, announced, over });
    let tally = Tally::new(client.shared.unfinished.clone());
    let (client, scratch) = (client.clone(), Vec::new());
    let reader = ServerReader { client, upstream: upstream.clone(), is_primary, scratch, tally };
    Spawn::new("proxy-server").spawn(move || reader.run()).map_err(|_| CallFailure::NotConnected)?;
    Ok(upstream)
}

struct ServerReader {
    client: Arc<ProxyClient>,
    upstream: Arc<Upstream>,
    /// It may carry requests of the server.
    is_primary: bool,
    scratch: Vec<u8>,
    tally: Tally,
}

impl ServerReader {
    fn run(mut self) {
        let limits = Limits { message: self.client.shared.limits.message, ..Limits::default() };
        let mut incoming = Incoming::new(limits);
        let mut buffer = vec![0; BUFFER];
        let failure = loop {
            match receive(&mut self, &mut incoming, &mut buffer, &mut ReadBudget::unbounded()) {
                Ok(TurnEnd::Idle | TurnEnd::Spent) => {}
                Ok(TurnEnd::Stopped(failure)) => break failure,
                Err(ReceiveError::Stream(_)) => break CallFailure::Garbled,
                Err(ReceiveError::Ended | ReceiveError::Tls | ReceiveError::Socket(_)) => break CallFailure::Lost,
            }
        };
        self.end(&failure);
    }

    /// Answers the pending requests.
    fn end(&self, failure: &CallFailure) {
        let ProxyClient { link, pending, shared, .. } = &*self.client;
        self.upstream.over.store(true, Ordering::Release);
        self.upstream.link.close();
        let (own, others) = {
            let mut pending = pending.lock();
            let own: Vec<_> = pending.extract_if(|_, one| one.upstream == self.upstream.number).collect();
            (own, !pending.is_empty())
        };
        if own.is_empty() {
            return;
        }
        shared.count(|counts| &counts.lost);
        if *failure == CallFailure::Closed && !others {
            // The server has carried none of them out. The client sends them again, over a new connection.
            let version = own.iter().map(|(_, pending)| pending.version).max().unwrap_or_default();
            let mut delegates = shared.delegates.lock();
            for (delegate, began) in own.iter().filter_map(|(_, pending)| pending.delegate) {
                delegates.replied(delegate, began, shared.now(), DelegateOutcome::Failed);
            }
            drop(delegates);
            self.client.send(&close_connection(version));
            return link.close();
        }
        for (id, pending) in &own {
            self.client.fail(*id, pending, &failure.exception());
        }
    }

    /// The request of a reply, if it still waits.
    fn pending(&self, id: u32) -> Option<PendingRequest> {
        let mut pending = self.client.pending.lock();
        match pending.get(&id) {
            Some(one) if one.upstream == self.upstream.number => pending.remove(&id),
            _ => None,
        }
    }

    fn reply(&mut self, received: &Received<'_>, reply: &Reply<'_>) {
        let Some(pending) = self.pending(reply.id) else { return };
        let shared = &self.client.shared;
        if let Some((delegate, began)) = pending.delegate {
            let outcome = match reply.status {
                ReplyStatus::SystemException => DelegateOutcome::Failed,
                _ => DelegateOutcome::Answered,
            };
            let now = shared.now();
            shared.delegates.lock().replied(delegate, began, now, outcome);
            if let (Some(request), ReplyStatus::NoException, true) =
                (&pending.cached, reply.status, received.is_one_piece())
            {
                shared.cache.lock().store(request, received.octets(), now);
            }
        }
        if matches!(reply.status, ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm)
            && let Some(ior) = self.forwarded(&reply.body)
        {
            let contexts: Vec<ServiceContext<'_>> = reply.contexts.clone().collect();
            let header = ReplyHeader { id: reply.id, status: reply.status, contexts: &contexts };
            let octets = built(received, |to| {
                let begun = header.begin(to)?;
                ior.encode(to)?;
                begun.end(to)
            });
            if let Ok(octets) = octets {
                self.client.send(&octets);
                return;
            }
        }
        self.client.send(wire(received, &mut self.scratch));
        keep_small(&mut self.scratch);
    }

    fn located(&mut self, received: &Received<'_>, reply: &LocateReply<'_>) {
        if self.pending(reply.id).is_none() {
            return;
        }
        if matches!(reply.status, LocateStatus::ObjectForward | LocateStatus::ObjectForwardPerm)
            && let Some(ior) = self.forwarded(&reply.body)
        {
            let octets = built(received, |to| {
                let begun = LocateReplyHeader { id: reply.id, status: reply.status }.begin(to)?;
                ior.encode(to)?;
                begun.end(to)
            });
            if let Ok(octets) = octets {
                self.client.send(&octets);
                return;
            }
        }
        self.client.send(wire(received, &mut self.scratch));
        keep_small(&mut self.scratch);
    }

    /// The reference of a forwarding reply, through the proxy.
    fn forwarded(&self, body: &Decoder<'_>) -> Option<Ior> {
        let shared = &self.client.shared;
        let ior = Ior::decode(&mut body.clone()).ok()?;
        let (ior, passage) = shared.through(&ior).ok()?;
        match passage {
            ForwardPath::Through => shared.count(|counts| &counts.forwarded),
            ForwardPath::Past => shared.count(|counts| &counts.bypassed),
        }
        Some(ior)
    }
}

/// A message in the version and order of another.
fn built(
    like: &Received<'_>,
    build: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut to = Encoder::new(like.header().order);
    to.speak(like.header().version, Default::default());
    build(&mut to)?;
    Ok(to.into_bytes())
}

impl Receiver for ServerReader {
    type Stop = CallFailure;

    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize> {
        self.upstream.link.read(place, if more { May::Never } else { May::Wait })
    }

    fn message(&mut self, Whole { received, .. }: Whole<'_>) -> ControlFlow<CallFailure, Option<Parked>> {
        match received.decode() {
            Ok(Message::Reply(reply)) => self.reply(&received, &reply),
            Ok(Message::LocateReply(reply)) => self.located(&received, &reply),
            // A call back over the connection, if client and server have agreed on that.
            Ok(Message::Request(_) | Message::LocateRequest(_) | Message::CancelRequest(_)) if self.is_primary => {
                self.client.send(wire(&received, &mut self.scratch));
                keep_small(&mut self.scratch);
            }
            Ok(Message::CloseConnection) => return ControlFlow::Break(CallFailure::Closed),
            Ok(Message::MessageError) => return ControlFlow::Break(CallFailure::NotUnderstood),
            _ => return ControlFlow::Break(CallFailure::Garbled),
        }
        ControlFlow::Continue(None)
    }

    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<CallFailure> {
        let too_many = SystemKind::ImpLimit.maybe_done(minor::NO_MEMORY_LIMIT);
        (!self.client.shared.holds(&self.tally, incoming.held())).then_some(CallFailure::Raised(too_many))
    }
}

/// A stored reply, for another request.
pub(super) fn with_id(reply: &[u8], id: u32) -> Vec<u8> {
    let mut octets = reply.to_vec();
    if let Some(at) = id_at(reply)
        && let Some(place) = octets.get_mut(at..at + 4)
    {
        let is_little = reply.get(6).is_some_and(|flags| flags & 1 == 1);
        place.copy_from_slice(&if is_little { id.to_le_bytes() } else { id.to_be_bytes() });
    }
    octets
}

/// Where the id of a reply is: after the contexts, up to GIOP 1.1.
fn id_at(reply: &[u8]) -> Option<usize> {
    let header = hyoshi_wire::giop::Header::decode(reply.first_chunk()?).ok()?;
    if header.version == Version::V1_2 {
        return Some(hyoshi_wire::giop::Header::LEN);
    }
    let mut from = Decoder::new(reply, header.order);
    from.speak(header.version, Default::default());
    from.raw(hyoshi_wire::giop::Header::LEN).ok()?;
    ServiceContexts::decode(&mut from).ok()?;
    from.align(4).ok()?;
    Some(from.at())
}

#[cfg(test)]
mod tests {
    use hyoshi_wire::ByteOrder;

    use super::*;

    #[test]
    fn a_stored_reply_gets_the_id_of_another_request_in_each_version() {
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            for order in [ByteOrder::Big, ByteOrder::Little] {
                let context = ServiceContext { tag: 9, data: b"abc" };
                let reply = |id| {
                    let mut to = Encoder::new(order);
                    to.speak(version, Default::default());
                    let header = ReplyHeader { id, status: ReplyStatus::NoException, contexts: &[context] };
                    let begun = header.begin(&mut to).unwrap();
                    7.5f64.encode(&mut to).unwrap();
                    begun.end(&mut to).unwrap();
                    to.into_bytes()
                };
                assert_eq!(with_id(&reply(5), 0x0102_0304), reply(0x0102_0304));
            }
        }
    }
}
