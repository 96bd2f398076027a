//! A message from a client, carried out: the hot path of the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hyoshi_wire::giop::{
    Addressing, CONTEXT_CODE_SETS, LocateReplyHeader, LocateRequest, LocateStatus, Message, MessageKind, Received,
    ReplyHeader, ReplyStatus, Request, Response, Transmission, message_error,
};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{CharSet, Decode, DecodeError, Decoder, Encode, Encoder, SystemException, SystemKind, Version};

use super::prioritize;
use crate::call::Call;
use crate::channel::Negotiated;
use crate::objects::{Elsewhere, Located, Servant, special};
use crate::rt::AdapterRt;
use crate::rt::threads::{self, QueuedPart};
use crate::shared::Shared;
use crate::{current, minor};

/// What happens to the connection after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterMessage {
    /// It does.
    Go,
    /// It ends.
    Close,
}

/// Handles a message; `thread` is the distributable thread of one that waited for its turn. Afterwards `to` has what
/// the caller sends; `early` sends at once what cannot wait.
#[inline]
pub(crate) fn message(
    orb: &Shared,
    terms: &Negotiated,
    received: &Received<'_>,
    thread: Option<QueuedPart>,
    to: &mut Encoder,
    early: &mut dyn FnMut(&[u8]) -> bool,
) -> AfterMessage {
    let header = received.header();
    if header.kind != MessageKind::Request {
        return decoded(orb, terms, received, &mut decode(terms, received), thread, to, early);
    }
    prepare(terms, header.version, to);
    let mut request = Request::unread(received.body_in(chars(terms, header.version)));
    match request.read() {
        Ok(()) => answer(orb, terms, &mut request, thread, to, early),
        Err(error) => broken(received, error.into(), to),
    }
}

/// Before a message of this version is answered.
#[inline]
fn prepare(terms: &Negotiated, version: Version, to: &mut Encoder) {
    terms.hear(version);
    to.clear();
    to.speak(version, chars(terms, version));
}

/// Answers a request.
#[inline]
fn answer(
    orb: &Shared,
    terms: &Negotiated,
    request: &mut Request<'_>,
    thread: Option<QueuedPart>,
    to: &mut Encoder,
    early: &mut dyn FnMut(&[u8]) -> bool,
) -> AfterMessage {
    if !terms.is_agreed()
        && let Err(exception) = first_words(terms, request, to)
    {
        Call::new(request, to).raise(exception);
    } else {
        run(orb, request, thread, to, early);
    }
    AfterMessage::Go
}

/// Decodes a message in the code set of its connection.
#[inline]
pub(crate) fn decode<'a>(terms: &Negotiated, received: &Received<'a>) -> Result<Message<'a>, DecodeError> {
    received.decode_in(chars(terms, received.header().version))
}

fn chars(terms: &Negotiated, version: Version) -> CharSet {
    if version == Version::V1_0 { CharSet::Latin1 } else { terms.chars() }
}

/// [`message`], of one that has been decoded.
pub(crate) fn decoded(
    orb: &Shared,
    terms: &Negotiated,
    received: &Received<'_>,
    message: &mut Result<Message<'_>, DecodeError>,
    thread: Option<QueuedPart>,
    to: &mut Encoder,
    early: &mut dyn FnMut(&[u8]) -> bool,
) -> AfterMessage {
    let version = received.header().version;
    prepare(terms, version, to);
    match message {
        Ok(Message::Request(request)) => answer(orb, terms, request, thread, to, early),
        Ok(Message::LocateRequest(request)) => {
            locate(orb, request, to);
            AfterMessage::Go
        }
        // Of a request that runs: its distributable thread is cancelled. Any other request is answered all the same.
        Ok(Message::CancelRequest(id)) => {
            threads::cancel_request(*id);
            AfterMessage::Go
        }
        Ok(Message::CloseConnection | Message::MessageError) => AfterMessage::Close,
        // A client that sends replies: it was not asked anything.
        Ok(Message::Reply(_) | Message::LocateReply(_)) => {
            to.raw(&message_error(version));
            AfterMessage::Close
        }
        Err(error) => broken(received, error.clone().into(), to),
    }
}

/// [`first_words`] of a request that other requests may overtake.
pub(super) fn greet(
    terms: &Negotiated,
    received: &Received<'_>,
    request: &mut Request<'_>,
    to: &mut Encoder,
) -> Result<(), SystemException> {
    let version = received.header().version;
    terms.hear(version);
    if terms.is_agreed() {
        return Ok(());
    }
    to.clear();
    to.speak(version, chars(terms, version));
    first_words(terms, request, to)
}

/// The first request of a connection announces the code sets (CORBA 3.3 part 2, 7.10.2.5); in GIOP 1.0, and in a locate
/// request, nothing does. If they are not supported, the client gets an exception for each request until it announces
/// others: its texts would be misread.
#[cold]
fn first_words(terms: &Negotiated, request: &mut Request<'_>, to: &mut Encoder) -> Result<(), SystemException> {
    if to.version() == Version::V1_0 {
        return Ok(());
    }
    let Some(octets) = request.contexts.get(CONTEXT_CODE_SETS) else {
        return if terms.is_refused() { Err(FOREIGN) } else { Ok(()) };
    };
    let sets = Decoder::encapsulated(octets).and_then(|mut from| Transmission::decode(&mut from))?;
    let chars = sets.chars().map_err(|_| {
        terms.refuse();
        FOREIGN
    });
    terms.agree(chars?);
    to.speak(to.version(), terms.chars());
    request.arguments.speak(to.version(), terms.chars());
    Ok(())
}

/// To a client that chose a code set which no reference of ours offers.
const FOREIGN: SystemException = SystemKind::CodesetIncompatible.not_done(minor::CODE_SET_REFUSED);

/// A request: its object is found, its operation carried out, its reply written.
#[inline]
fn run(
    orb: &Shared,
    request: &Request<'_>,
    mut thread: Option<QueuedPart>,
    to: &mut Encoder,
    early: &mut dyn FnMut(&[u8]) -> bool,
) {
    let Ok(key) = request.target.key() else { return ask_for_key(request, to) };
    let mut call = Call::new(request, to);
    let carried = |servant: &Servant, key: &[u8], rt: Option<&Arc<AdapterRt>>| -> Result<(), Elsewhere> {
        let _priority = match rt {
            Some(rt) => Some(prioritize::begin(orb, rt, key, servant, request, &mut call)?),
            None => None,
        };
        if request.response == Response::Server && servant.is_oneway(request.operation) {
            call.answer_early(early);
        }
        let _within = current::within(key);
        let visit = threads::visit(request, thread.take(), orb.tracks_threads)?;
        let done = carry_out(orb, servant, &mut call);
        Ok(visit.leave(done)?)
    };
    let version = request.arguments.version();
    let done = guarded(|| orb.adapters.find(key, request.operation, version, carried));
    match done.unwrap_or_else(|panicked| Err(panicked.into())) {
        Ok(Ok(())) => {}
        Ok(Err(Elsewhere::Raise(exception))) | Err(Elsewhere::Raise(exception)) => call.raise(exception),
        Ok(Err(Elsewhere::Forward(ior))) | Err(Elsewhere::Forward(ior)) => call.forward(|to| ior.encode(to)),
    }
    if !orb.server_interceptors.is_empty()
        && let Err(panicked) = guarded(|| after(orb, &mut call))
    {
        call.raise(panicked);
    }
}

/// Runs code of the user's: servants, activators, locators and interceptors. A panic there is the request's end, not
/// the thread's.
#[inline]
pub(super) fn guarded<R>(run: impl FnOnce() -> R) -> Result<R, SystemException> {
    // The panic itself was reported by the panic hook.
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| SystemKind::Unknown.maybe_done(minor::PANICKED))
}

#[inline]
fn carry_out(orb: &Shared, servant: &Servant, call: &mut Call<'_>) -> Result<(), SystemException> {
    for interceptor in &orb.server_interceptors {
        interceptor.before(call)?;
    }
    match servant.operation(call.operation()) {
        Some(operation) => servant.dispatch(operation, call)?,
        None => match special(servant, call) {
            Some(done) => done?,
            None => return Err(SystemKind::BadOperation.not_done(minor::NO_OPERATION)),
        },
    }
    if call.replied().is_none() {
        return Err(SystemKind::Internal.maybe_done(minor::NO_REPLY));
    }
    Ok(())
}

#[cold]
fn after(orb: &Shared, call: &mut Call<'_>) {
    let before = call.sent_contexts();
    for interceptor in orb.server_interceptors.iter().rev() {
        interceptor.after(call);
    }
    if call.sent_contexts() > before {
        call.add_contexts();
    }
}

/// The client chose a form of target without the object's key.
#[cold]
fn ask_for_key(request: &Request<'_>, to: &mut Encoder) {
    if request.response.expected() {
        let header = ReplyHeader { id: request.id, status: ReplyStatus::NeedsAddressingMode, contexts: &[] };
        // Only 1.2 has other forms, and it has this answer.
        drop(header.begin(to).and_then(|begun| {
            Addressing::Key.encode(to)?;
            begun.end(to)
        }));
    }
}

fn locate(orb: &Shared, request: &LocateRequest<'_>, to: &mut Encoder) {
    let (status, forward) = match request.target.key() {
        Err(_) => (LocateStatus::NeedsAddressingMode, None),
        Ok(key) => match orb.adapters.locate(key) {
            Located::Here => (LocateStatus::ObjectHere, None),
            Located::Nowhere => (LocateStatus::UnknownObject, None),
            Located::Elsewhere(ior) => (LocateStatus::ObjectForward, Some(ior)),
        },
    };
    // Cannot fail: statuses that 1.0 and 1.1 lack answer targets that they lack too.
    drop(LocateReplyHeader { id: request.id, status }.begin(to).and_then(|begun| {
        match forward {
            Some(ior) => ior.encode(to)?,
            None if status == LocateStatus::NeedsAddressingMode => Addressing::Key.encode(to)?,
            None => {}
        }
        begun.end(to)
    }));
}

/// A message that cannot be decoded. A request with an id gets an exception; after any other message the stream is
/// lost.
#[cold]
pub(super) fn broken(received: &Received<'_>, exception: SystemException, to: &mut Encoder) -> AfterMessage {
    match received.id() {
        Some(id) if received.header().kind == MessageKind::Request => {
            let header = ReplyHeader { id, status: ReplyStatus::SystemException, contexts: &[] };
            drop(header.begin(to).and_then(|begun| {
                exception.encode(to)?;
                begun.end(to)
            }));
            AfterMessage::Go
        }
        _ => {
            to.raw(&message_error(received.header().version));
            AfterMessage::Close
        }
    }
}

/// The reply that sends a request's client to another object.
pub(super) fn forwarded(received: &Received<'_>, ior: &Ior, to: &mut Encoder) {
    let Some(id) = received.id() else { return };
    let header = ReplyHeader { id, status: ReplyStatus::LocationForward, contexts: &[] };
    drop(header.begin(to).and_then(|begun| {
        ior.encode(to)?;
        begun.end(to)
    }));
}

#[cfg(test)]
mod tests {
    use std::any::{Any, TypeId};

    use hyoshi_wire::giop::{CONTEXT_RT_PRIORITY, Reassembler, RequestHeader, ServiceContext, Target};
    use hyoshi_wire::{ByteOrder, Limits};

    use super::*;
    use crate::rt::{Priority, PriorityModel};
    use crate::{AdapterBuilder, Interface, Object, ObjectRef, Orb, Reference};

    /// Adds one to what it is given.
    trait Adder: Send + Sync {}
    struct One;
    impl Adder for One {}
    struct Stub(Reference<dyn Adder>);
    impl From<Reference<dyn Adder>> for Stub {
        fn from(reference: Reference<dyn Adder>) -> Self {
            Stub(reference)
        }
    }
    impl AsRef<Reference<dyn Adder>> for Stub {
        fn as_ref(&self) -> &Reference<dyn Adder> {
            &self.0
        }
    }
    impl Interface for dyn Adder {
        type Stub = Stub;
        const ID: &'static str = "IDL:Adder:1.0";
        const BASES: &'static [&'static str] = &[];
        const OPERATIONS: &'static [&'static str] = &["add"];
        fn dispatch(&self, _: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
            let number = u32::decode(&mut call.arguments())?;
            call.reply::<_, SystemException>(Ok(number + 1), |sum, to| sum.encode(to))
        }
        fn upcast(_: Arc<Self>, _: TypeId) -> Option<Box<dyn Any>> {
            None
        }
    }

    #[test]
    fn a_request_of_fixed_size_is_carried_out_without_allocating() {
        assert_eq!(allocations(|adapter| adapter, &[]), 0);
    }

    #[test]
    fn neither_does_a_request_with_a_priority_allocate() {
        let context = ServiceContext { tag: CONTEXT_RT_PRIORITY, data: &[0, 0, 0, 7] };
        let model = PriorityModel::ClientPropagated { default: Priority::MIN };
        assert_eq!(allocations(|adapter| adapter.priority_model(model), &[context]), 0);
    }

    /// Of 100 requests to an adapter with these settings.
    fn allocations(set: impl FnOnce(AdapterBuilder) -> AdapterBuilder, contexts: &[ServiceContext<'_>]) -> u64 {
        let orb = Orb::client().unwrap();
        let adapter = set(orb.adapter("a")).build().unwrap();
        let stub = adapter.activate_as::<dyn Adder>("x", Arc::new(One)).unwrap();
        let object: ObjectRef = stub.0.widen::<dyn Object>().into();
        let key = object.as_ref().ior().iiop().next().unwrap().unwrap().key;
        let mut asked = Encoder::new(ByteOrder::Big);
        let target = Target::Key(key);
        let header = RequestHeader { id: 2, response: Response::Target, target, operation: "add", contexts };
        let begun = header.begin(&mut asked).unwrap();
        7u32.encode(&mut asked).unwrap();
        begun.end(&mut asked).unwrap();

        let shared = orb.shared();
        let (terms, mut to) = (Negotiated::default(), Encoder::new(ByteOrder::NATIVE));
        let mut messages = Reassembler::new(Limits::default());
        let mut serve = || {
            let mut octets = asked.bytes();
            let received = messages.next(&mut octets).unwrap().unwrap();
            message(shared, &terms, &received, None, &mut to, &mut |_| true)
        };
        assert_eq!(serve(), AfterMessage::Go);
        let counted = allocation_counter::measure(|| {
            (0..100).for_each(|_| assert_eq!(serve(), AfterMessage::Go));
        });
        assert_eq!(to.bytes().last_chunk(), Some(&8u32.to_ne_bytes()));
        counted.count_total
    }
}
