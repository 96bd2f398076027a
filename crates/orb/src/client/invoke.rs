//! A call: where it goes, what comes back, and when it is tried again.
//!
//! GIOP's rules (CORBA 3.3 part 2, 9.5.1 and 9.6): a request may be sent again when it cannot have been carried out,
//! that is, when it could not be sent whole or the server closed the connection in the orderly way; never when the
//! connection was just lost. A reference's profiles are tried in order until one can be connected to. A request that is
//! sent on goes there from then on, until that fails: then back to where the reference says.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_wire::giop::{
    CONTEXT_BI_DIR_IIOP, CONTEXT_CODE_SETS, Kept, Message, Reply, ReplyStatus, RequestHeader, Response, ServiceContext,
    Target,
};
use hyoshi_wire::ior::{Endpoint, Ior};
use hyoshi_wire::tagged::encapsulation;
use hyoshi_wire::{ByteOrder, CharSet, Decode, EncodeError, Encoder, SystemException, SystemKind, Version};

use super::desk::{self, Desk};
use super::line::Line;
use super::mux::{Opening, Told};
use super::peer::{Over, Patience};
use super::route::{self, Route, incompatible};
use crate::call::Replied;
use crate::intercept::Outgoing;
use crate::limits::Timeouts;
use crate::orb::Shared;
use crate::reference::{Object, use_orb};
use crate::tls::Distrust;
use crate::{current, minor};

/// How often a request is sent on at most.
const FORWARDS: u32 = 8;
/// How often it is sent again to a server that closed the connection.
pub(super) const AGAIN: u32 = 3;

/// What is to be called.
pub(crate) struct Request<'r> {
    pub(crate) operation: &'r str,
    pub(crate) response: Response,
    /// May wait to be sent together with others.
    pub(crate) put_off: bool,
    pub(crate) arguments: &'r dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The host's name cannot be resolved.
    HostUnknown,
    /// Nobody listens there.
    Refused,
    /// No connection for other reasons.
    NotConnected,
    ConnectTimedOut,
    /// It listens nowhere, and the connection that it opened is gone.
    NoWayBack,
    /// The transport rules forbid it.
    Forbidden,
    /// It did not get through whole.
    Unsent,
    /// The server closed the connection in the orderly way: it was not carried out.
    Closed,
    /// The connection was lost.
    Lost,
    /// Time was over before any of it was sent, or before all was and the rest never will be.
    SendTimedOut,
    TimedOut,
    /// What came cannot be understood.
    Garbled,
    /// What was sent could not.
    NotUnderstood,
    InFlight,
    ShutDown,
    Tls(Distrust),
    Encode(EncodeError),
    /// An interceptor's veto, or a result that cannot be read.
    Raised(SystemException),
}

impl Failure {
    pub(crate) fn exception(&self) -> SystemException {
        match self {
            Failure::HostUnknown => SystemKind::Transient.not_done(minor::HOST_UNKNOWN),
            Failure::Refused => SystemKind::Transient.not_done(minor::REFUSED),
            Failure::NotConnected => SystemKind::Transient.not_done(minor::CONNECT),
            Failure::ConnectTimedOut => SystemKind::Timeout.not_done(minor::CONNECT_TIMEOUT),
            Failure::NoWayBack => SystemKind::Transient.not_done(minor::NO_WAY_BACK),
            Failure::Forbidden => SystemKind::NoPermission.not_done(minor::TRANSPORT_RULE),
            Failure::Unsent => SystemKind::CommFailure.not_done(minor::SEND),
            Failure::Closed => SystemKind::Transient.not_done(minor::CLOSED),
            Failure::Lost => SystemKind::CommFailure.maybe_done(minor::LOST),
            Failure::SendTimedOut => SystemKind::Timeout.not_done(minor::SEND_TIMEOUT),
            Failure::ShutDown => SystemKind::BadInvOrder.not_done(minor::SHUT_DOWN),
            Failure::TimedOut => SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT),
            Failure::Garbled => SystemKind::Marshal.maybe_done(minor::BAD_REPLY),
            Failure::NotUnderstood => SystemKind::CommFailure.not_done(minor::NOT_UNDERSTOOD),
            Failure::InFlight => SystemKind::Transient.not_done(minor::IN_FLIGHT),
            Failure::Tls(why) => why.exception(),
            Failure::Encode(EncodeError::NotInCharSet(_)) => SystemKind::DataConversion.not_done(minor::CHARACTER),
            Failure::Encode(EncodeError::TooLong(_)) => SystemKind::ImpLimit.not_done(minor::NO_MEMORY_LIMIT),
            Failure::Encode(_) => SystemKind::BadParam.not_done(minor::ENCODE),
            Failure::Raised(exception) => *exception,
        }
    }

    /// Whether it may be sent another way: it was not carried out.
    fn may_go_elsewhere(&self) -> bool {
        let unreached = matches!(
            self,
            Failure::HostUnknown
                | Failure::Refused
                | Failure::NotConnected
                | Failure::ConnectTimedOut
                | Failure::NoWayBack
                | Failure::Forbidden
                | Failure::Tls(_)
        );
        unreached || self.may_repeat()
    }

    /// Whether it may be sent again as it is.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(self, Failure::Unsent | Failure::Closed)
    }
}

/// What a reply says, if it is not the outcome.
pub(super) enum Said {
    Outcome,
    Raise(SystemException),
    Forward(Box<Ior>),
    NeedsKey,
}

/// What is done with a reply that tells the outcome.
pub(crate) type Accept<'a> = &'a mut dyn FnMut(Reply<'_>) -> Result<(), SystemException>;

/// Calls, and shows the outcome to `accept`.
pub(crate) fn invoke(
    orb: &Arc<Shared>,
    object: &Arc<Object>,
    timeouts: &Timeouts,
    request: &Request<'_>,
    accept: Accept<'_>,
) -> Result<(), SystemException> {
    // References in the reply, or in a connection's first words, belong to it.
    use_orb(orb);
    // It would wait for itself.
    if current::makes_some() && orb.own_key(object.ior()).is_some_and(|key| current::makes(&key)) {
        return Err(SystemKind::BadInvOrder.not_done(minor::OWN_OBJECT));
    }
    current::let_others_read();
    let until = timeouts.round_trip.map(|span| Instant::now() + duration(span));
    let (mut target, mut at, mut forwards, mut again, mut backs) = (object.target(), 0, 0, 0, 0);
    loop {
        let routes = target.routes(orb);
        let Some(route) = routes.get(at) else {
            // If it was sent on to where this ORB cannot go, the next call asks again.
            object.forget_target();
            return Err(no_way(&target));
        };
        let sent_on = !Arc::ptr_eq(&target, object);
        // Over a connection that the object's own ORB opened, if there is one.
        let back = if backs < AGAIN { route::back(routes) } else { None };
        let route = back.unwrap_or(route);
        let here = |exception: SystemException| exception.at(route.peer.name());
        let failed = |failure: &Failure| match route.over_tls_alone {
            true => failure.exception().at(route.peer.name_without_plain()),
            false => here(failure.exception()),
        };
        match attempt(orb, route, timeouts, until, request, accept) {
            Ok(Said::Outcome) => return Ok(()),
            Ok(Said::Raise(exception)) if sent_on && exception.is_of_absence() => {
                // It is no longer there where it was sent on to.
                object.forget_target();
                forwards += 1;
                if forwards > FORWARDS {
                    return Err(here(exception));
                }
                (target, at) = (Cow::Borrowed(object), 0);
            }
            Ok(Said::Raise(exception)) => return Err(here(exception)),
            Ok(Said::NeedsKey) => return Err(here(SystemKind::Transient.not_done(minor::ADDRESSING))),
            Ok(Said::Forward(ior)) => {
                forwards += 1;
                if forwards > FORWARDS {
                    return Err(here(SystemKind::Transient.not_done(minor::FORWARD_LOOP)));
                }
                target = Cow::Owned(object.send_on(*ior));
                at = 0;
            }
            Err(failure) if back.is_some() && failure.may_go_elsewhere() => backs += 1,
            Err(failure) if failure.may_repeat() && again < AGAIN => again += 1,
            Err(failure) if failure.may_go_elsewhere() => {
                again = 0;
                at += 1;
                if at >= routes.len() {
                    if !sent_on {
                        return Err(failed(&failure));
                    }
                    object.forget_target();
                    forwards += 1;
                    if forwards > FORWARDS {
                        return Err(failed(&failure));
                    }
                    (target, at) = (Cow::Borrowed(object), 0);
                }
            }
            Err(failure) => return Err(failed(&failure)),
        }
    }
}

/// Why there is no route at all.
#[cold]
fn no_way(object: &Object) -> SystemException {
    if incompatible(object.ior()) {
        return SystemKind::CodesetIncompatible.not_done(minor::CODE_SETS);
    }
    let over_tcp = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Tls { .. } | Endpoint::Tcp { .. });
    if object.ior().iiop().flatten().any(|profile| profile.endpoints().iter().any(over_tcp)) {
        return SystemKind::NoPermission.not_done(minor::TLS_NOT_SET_UP);
    }
    SystemKind::Transient.not_done(minor::NO_USABLE_PROFILE)
}

/// Exceptions that say: the object is not here.
trait Absence {
    fn is_of_absence(&self) -> bool;
}

impl Absence for SystemException {
    fn is_of_absence(&self) -> bool {
        self.kind == SystemKind::ObjectNotExist
    }
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

/// Sends the request one way, and waits for the reply if there is to be one.
fn attempt(
    orb: &Shared,
    route: &Route,
    timeouts: &Timeouts,
    until: Option<Instant>,
    request: &Request<'_>,
    accept: Accept<'_>,
) -> Result<Said, Failure> {
    let mut out = Outgoing { operation: request.operation, key: &route.key, contexts: Vec::new() };
    let all = &orb.client_interceptors;
    for (at, interceptor) in all.iter().enumerate() {
        if let Err(exception) = interceptor.before(&mut out) {
            all[..at].iter().rev().for_each(|earlier| earlier.failed(&out, &exception));
            return Err(Failure::Raised(exception));
        }
    }
    let said = carry(orb, route, timeouts, until, request, &out, accept);
    if let Err(failure) = &said {
        all.iter().rev().for_each(|interceptor| interceptor.failed(&out, &failure.exception()));
    }
    said
}

fn carry(
    orb: &Shared,
    route: &Route,
    timeouts: &Timeouts,
    until: Option<Instant>,
    request: &Request<'_>,
    out: &Outgoing<'_>,
    accept: Accept<'_>,
) -> Result<Said, Failure> {
    let patience = Patience { each: duration(timeouts.connect), until };
    let both = route.peer.both_ways(route.version, route.chars, &patience)?;
    if request.put_off {
        let mux = both.map_or_else(|| route.peer.mux(&patience), Ok)?;
        let route = &*route.over(mux.chars());
        mux.post(true, until, |id, tell, to| put(route, request, out, id, tell, to))?;
        // Afterwards: connecting may have taken longer than the next tick is away.
        orb.care.stir(false);
        return Ok(Said::Outcome);
    }
    match both.map_or_else(|| route.peer.take(&patience), |mux| Ok(Over::Mux(mux, None)))? {
        Over::Line(mut line) => desk::with(|desk| {
            let done = over_line(orb, route, timeouts, until, request, out, &mut line, desk, accept);
            match &done {
                Ok(_) => route.peer.give_back(line),
                Err((Failure::TimedOut, Some(id))) if line.cancel(*id, route.version) => {
                    route.peer.give_back_late(line)
                }
                Err((Failure::Raised(_), Some(_))) => route.peer.give_back(line),
                Err((Failure::Encode(_), _)) => route.peer.give_back(line),
                Err((Failure::Closed | Failure::Unsent | Failure::Lost, _)) => {
                    route.peer.drop_line(line);
                    route.peer.doubt();
                }
                Err(_) => route.peer.drop_line(line),
            }
            done.map_err(|(failure, _)| failure)
        }),
        // Its place is kept until the reply arrives.
        Over::Mux(mux, _place) => {
            let route = &*route.over(mux.chars());
            if !request.response.expected() {
                mux.post(false, until, |id, tell, to| put(route, request, out, id, tell, to))?;
                return Ok(Said::Outcome);
            }
            let (id, waiter) = mux.request(until, |id, tell, to| put(route, request, out, id, tell, to))?;
            let message = waiter.wait(sooner(until, timeouts.reply)).inspect_err(|failure| {
                if *failure == Failure::TimedOut {
                    mux.cancel(id, route.version);
                }
            })?;
            understand_message(orb, out, &message, route.chars, accept)
        }
    }
}

/// The hot path of the client: one write, one read.
#[allow(clippy::too_many_arguments)]
#[inline]
fn over_line(
    orb: &Shared,
    route: &Route,
    timeouts: &Timeouts,
    until: Option<Instant>,
    request: &Request<'_>,
    out: &Outgoing<'_>,
    line: &mut Line,
    Desk { to, buffer }: &mut Desk,
    accept: Accept<'_>,
) -> Result<Said, (Failure, Option<u32>)> {
    let id = line.next_id();
    to.clear();
    let tell = Opening { sets: !line.told, offer: None };
    write(route, request, out, id, tell, to).map_err(|error| (Failure::Encode(error), None))?;
    // A request to a server that offers no code sets, or in GIOP 1.0, tells none.
    line.told |= route.sets.is_some();
    line.send(to.bytes(), until).map_err(|failure| (failure, None))?;
    if !request.response.expected() {
        return Ok(Said::Outcome);
    }
    let until = sooner(until, timeouts.reply);
    let mut said = Said::Outcome;
    let read = |reply: Reply<'_>| {
        said = understand(orb, out, reply, accept)?;
        Ok(())
    };
    line.receive(id, until, buffer, read, route.chars).map_err(|failure| (failure, Some(id)))?;
    Ok(said)
}

/// When the time for the reply is over.
#[inline]
pub(super) fn sooner(until: Option<Instant>, reply: Option<Span>) -> Option<Instant> {
    match reply {
        None => until,
        Some(span) => {
            let reply = Instant::now() + duration(span);
            Some(until.map_or(reply, |until| until.min(reply)))
        }
    }
}

/// Writes a request, and says what it tells of what it is to.
pub(super) fn put(
    route: &Route,
    request: &Request<'_>,
    out: &Outgoing<'_>,
    id: u32,
    tell: Opening<'_>,
    to: &mut Encoder,
) -> Result<Told, EncodeError> {
    // Earlier versions have no calls in the other direction.
    let offer = tell.offer.filter(|_| route.version == Version::V1_2);
    let tell = Opening { sets: tell.sets && route.sets.is_some(), offer };
    write(route, request, out, id, tell, to).map(|()| Told { sets: tell.sets, offer: offer.is_some() })
}

/// Writes a request.
#[inline]
fn write(
    route: &Route,
    request: &Request<'_>,
    out: &Outgoing<'_>,
    id: u32,
    tell: Opening<'_>,
    to: &mut Encoder,
) -> Result<(), EncodeError> {
    to.speak(route.version, route.chars);
    let mut header = RequestHeader {
        id,
        response: request.response,
        target: Target::Key(&route.key),
        operation: request.operation,
        contexts: &[],
    };
    let sets;
    let mut contexts;
    if (tell.sets && route.sets.is_some()) || tell.offer.is_some() || !out.contexts.is_empty() {
        contexts = Vec::with_capacity(out.contexts.len() + 2);
        if let (Some(agreed), true) = (route.sets, tell.sets) {
            sets = encapsulation(ByteOrder::NATIVE, |to| hyoshi_wire::Encode::encode(&agreed, to))?;
            contexts.push(ServiceContext { tag: CONTEXT_CODE_SETS, data: &sets });
        }
        if let Some(data) = tell.offer {
            contexts.push(ServiceContext { tag: CONTEXT_BI_DIR_IIOP, data });
        }
        contexts.extend(out.contexts.iter().map(|(tag, data)| ServiceContext { tag: *tag, data }));
        header.contexts = &contexts;
    }
    let begun = header.begin(to)?;
    (request.arguments)(to)?;
    begun.end(to)
}

/// A reply as a whole message, as the shared connection hands it out.
pub(super) fn understand_message(
    orb: &Shared,
    out: &Outgoing<'_>,
    message: &Kept,
    chars: CharSet,
    accept: Accept<'_>,
) -> Result<Said, Failure> {
    match message.received().decode_in(chars) {
        Ok(Message::Reply(reply)) => understand(orb, out, reply, accept),
        _ => Err(Failure::Garbled),
    }
}

/// What a reply says.
#[inline]
fn understand(orb: &Shared, out: &Outgoing<'_>, reply: Reply<'_>, accept: Accept<'_>) -> Result<Said, Failure> {
    let mut body = reply.body.clone();
    if !orb.client_interceptors.is_empty() {
        tell_interceptors(orb, out, &reply);
    }
    match reply.status {
        ReplyStatus::NoException | ReplyStatus::UserException => {
            accept(reply).map_err(Failure::Raised)?;
            Ok(Said::Outcome)
        }
        ReplyStatus::SystemException => {
            SystemException::decode(&mut body).map(Said::Raise).map_err(|_| Failure::Garbled)
        }
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
            Ior::decode(&mut body).map(|ior| Said::Forward(Box::new(ior))).map_err(|_| Failure::Garbled)
        }
        ReplyStatus::NeedsAddressingMode => Ok(Said::NeedsKey),
    }
}

#[cold]
fn tell_interceptors(orb: &Shared, out: &Outgoing<'_>, reply: &Reply<'_>) {
    let mut body = reply.body.clone();
    let replied = match reply.status {
        ReplyStatus::SystemException => match SystemException::decode(&mut body) {
            Ok(exception) => Replied::System(exception),
            Err(_) => return,
        },
        ReplyStatus::UserException => match String::decode(&mut body) {
            Ok(id) => Replied::User(id.into()),
            Err(_) => return,
        },
        ReplyStatus::NoException => Replied::Well,
        _ => return,
    };
    for interceptor in orb.client_interceptors.iter().rev() {
        interceptor.after(out, &replied, &reply.contexts);
    }
}
