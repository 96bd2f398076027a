//! A call: sends the request on its [`Itinerary`], and reads the reply.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyoshi_model::Span;
use hyoshi_wire::giop::{
    CONTEXT_BI_DIR_IIOP, CONTEXT_CODE_SETS, CONTEXT_HYOSHI_CALL, CONTEXT_RT_PRIORITY, CONTEXT_RT_SCHEDULING, Kept,
    Message, Reply, ReplyStatus, RequestHeader, Response, ServiceContext, Target,
};
use hyoshi_wire::ior::{Ior, IorEndpoint};
use hyoshi_wire::tagged::encapsulation;
use hyoshi_wire::{ByteOrder, CharSet, Decode, EncodeError, Encoder, SystemException, SystemKind, Version};

use super::buffers::{self, Buffers};
use super::itinerary::{Itinerary, NextStep, ReplyContent, Way};
use super::remote::RemoteObject;
use super::route::{self, Route, incompatible};
use crate::call::Replied;
use crate::channel::Announced;
use crate::client::{Line, Opening, Over, Patience, wait_for};
use crate::failure::CallFailure;
use crate::intercept::Outgoing;
use crate::limits::{Timeouts, duration};
use crate::rt::threads::{self, ThreadCall};
use crate::rt::{self, ClientPolicies, OnewayOverflow, OperationCall, Priority, TimingContext};
use crate::shared::{Shared, use_orb};
use crate::{current, minor, waits};

/// The most contexts that the ORB adds to a request.
const MOST_CONTEXTS: usize = 5;

/// A request to send.
pub(crate) struct Invocation<'r> {
    pub(crate) operation: &'r str,
    pub(crate) response: Response,
    /// May wait to be sent together with others.
    pub(crate) put_off: bool,
    pub(crate) arguments: &'r dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
    /// Those of the reference or the thread, if one has some.
    pub(crate) policies: Option<Cow<'r, Arc<ClientPolicies>>>,
    pub(crate) caller: CallerPriority,
}

/// Where the CORBA priority of a caller is found.
pub(crate) enum CallerPriority {
    /// It is that of this thread.
    OfThread,
    /// Another thread may have called, earlier. `None` if that thread had no priority.
    Known(Option<Priority>),
}

impl Invocation<'_> {
    /// What happens without room for it.
    fn overflow(&self, orb: &Shared) -> OnewayOverflow {
        match self.response.expected() {
            true => OnewayOverflow::Wait,
            false => self.policies(orb).oneway_overflow,
        }
    }

    /// Its policies, else those of the ORB.
    pub(super) fn policies<'a>(&'a self, orb: &'a Shared) -> &'a Arc<ClientPolicies> {
        self.policies.as_deref().unwrap_or(&orb.rt.client)
    }
}

/// Decodes a reply with the outcome.
pub(crate) type Accept<'a> = &'a mut dyn FnMut(Reply<'_>) -> Result<(), SystemException>;

/// Calls, and shows the outcome to `accept`.
pub(crate) fn invoke(
    orb: &Arc<Shared>,
    object: &Arc<RemoteObject>,
    timeouts: &Timeouts,
    request: &Invocation<'_>,
    accept: Accept<'_>,
) -> Result<(), SystemException> {
    // References in the reply, or in a connection's first words, belong to it.
    use_orb(orb);
    // It would wait for itself.
    if current::makes_some() && orb.own_key(object.ior()).is_some_and(|key| current::makes(&key)) {
        return Err(SystemKind::BadInvOrder.not_done(minor::OWN_OBJECT));
    }
    let thread = threads::begin_call(request.response.expected())?;
    current::let_others_read();
    // While it waits, the thread has no timing: its job has released the lane.
    let until = timeouts.round_trip.map(after_now);
    let mut call = CallInProgress { orb, timeouts, request, timing: None, part: None, thread, until };
    if request.response == Response::Target
        && let Some((part, timing)) = rt::operation_call(object.ior(), request.operation)
    {
        (call.part, call.timing) = (Some(part), Some(timing));
    } else if let Some(timing) = rt::timing() {
        call.timing = Some(TimingContext::new(&timing, orb.kokyu_timing)?);
    }
    let outcome = match request.response.expected() {
        true => waits::wait(|| call.follow(object, accept)),
        false => call.follow(object, accept),
    };
    match &call.thread {
        Some(thread) => thread.outcome(outcome),
        None => outcome,
    }
}

/// Connects to the object's server, if it is not yet connected, by the same ways as a request.
pub(crate) fn connect(
    orb: &Arc<Shared>,
    object: &Arc<RemoteObject>,
    timeouts: &Timeouts,
    request: &Invocation<'_>,
) -> Result<(), SystemException> {
    use_orb(orb);
    current::let_others_read();
    let target = object.target();
    let bound = target.bind(orb, request).inspect_err(|_| object.forget_target())?;
    let until = timeouts.round_trip.map(after_now);
    let patience = Patience { each: duration(timeouts.connect), until };
    let shared = request.overflow(orb) != OnewayOverflow::Wait;
    waits::wait(|| connect_one(&bound.routes, shared, &patience)).unwrap_or_else(|| Err(no_way(&target)))
}

/// Tries all routes; `None` if there is none. With `shared` also connects for oneways that do not wait.
fn connect_one(routes: &[Route], shared: bool, patience: &Patience) -> Option<Result<(), SystemException>> {
    let mut failed = None;
    for route in routes {
        let connected = match route.peer.both_ways(route.version, route.chars, patience) {
            Ok(None) => route.peer.take(patience).map(|over| match over {
                Over::Line(line) => route.peer.pool.give_back(line),
                Over::Mux(..) => {}
            }),
            both => both.map(drop),
        };
        let connected = connected.and_then(|()| if shared { route.peer.mux(patience).map(drop) } else { Ok(()) });
        match connected {
            Ok(()) => return Some(Ok(())),
            Err(failure) => failed = Some(failure.exception().at(route.peer.name(route.over_tls_alone))),
        }
    }
    failed.map(Err)
}

/// A call on its itinerary.
struct CallInProgress<'a> {
    orb: &'a Shared,
    timeouts: &'a Timeouts,
    request: &'a Invocation<'a>,
    timing: Option<TimingContext>,
    /// The call of an operation of a file.
    part: Option<[u8; OperationCall::LEN]>,
    /// Of a distributable thread.
    thread: Option<ThreadCall>,
    until: Option<Instant>,
}

impl CallInProgress<'_> {
    /// Follows the itinerary to its end.
    fn follow(&self, object: &Arc<RemoteObject>, accept: Accept<'_>) -> Result<(), SystemException> {
        let mut target = object.target();
        let mut itinerary = Itinerary::new(!Arc::ptr_eq(&target, object));
        loop {
            // Another server's reference must not contradict the policies for ever.
            let bound = target.bind(self.orb, self.request).inspect_err(|_| object.forget_target())?;
            let back = route::back(&bound.routes);
            let route = match itinerary.next(bound.routes.len(), back.is_some()) {
                Some(Way::Back) => back,
                Some(Way::Address(at)) => bound.routes.get(at),
                None => None,
            };
            let Some(route) = route else {
                // If it was forwarded to an address that this ORB cannot reach, the next call uses the original
                // reference again.
                object.forget_target();
                return Err(no_way(&target));
            };
            let was_forwarded = itinerary.is_forwarded;
            let outcome = self.attempt(route, bound.propagated, accept);
            if let Ok(ReplyContent::Outcome) = outcome {
                return Ok(());
            }
            let time_is_left = outcome.is_ok() || self.until.is_none_or(|until| Instant::now() < until);
            let step = itinerary.after(outcome, time_is_left);
            let returns = was_forwarded && !itinerary.is_forwarded;
            if returns {
                object.forget_target();
            }
            let next = match step {
                NextStep::Done => return Ok(()),
                NextStep::Raise(exception) => return Err(exception.at(route.peer.name(false))),
                NextStep::Fail(exception) => return Err(exception.at(route.peer.name(route.over_tls_alone))),
                NextStep::Forward(ior) => Some(Cow::Owned(object.send_on(*ior))),
                NextStep::Again if returns => Some(Cow::Borrowed(object)),
                NextStep::Again => None,
            };
            drop(bound);
            if let Some(next) = next {
                target = next;
            }
        }
    }

    /// Sends the request one way, and waits for the reply if it has one.
    fn attempt(
        &self,
        route: &Route,
        propagated: Option<Priority>,
        accept: Accept<'_>,
    ) -> Result<ReplyContent, CallFailure> {
        if let Some(thread) = &self.thread {
            thread.part().check().map_err(CallFailure::Raised)?;
        }
        let mut out = Outgoing { operation: self.request.operation, key: &route.key, contexts: Vec::new() };
        let all = &self.orb.client_interceptors;
        for (at, interceptor) in all.iter().enumerate() {
            if let Err(exception) = interceptor.before(&mut out) {
                all[..at].iter().rev().for_each(|earlier| earlier.failed(&out, &exception));
                return Err(CallFailure::Raised(exception));
            }
        }
        let (request, timing, part) = (self.request, self.timing.as_ref(), self.part.as_ref().map(|part| &part[..]));
        let content = self.send(&RequestMessage { route, request, timing, part, propagated, out: &out }, accept);
        if let Err(failure) = &content {
            all.iter().rev().for_each(|interceptor| interceptor.failed(&out, &failure.exception()));
        }
        match content {
            Err(CallFailure::Backlog) if request.overflow(self.orb) == OnewayOverflow::Drop => {
                self.orb.rt.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(ReplyContent::Outcome)
            }
            content => content,
        }
    }

    fn send(&self, message: &RequestMessage<'_>, accept: Accept<'_>) -> Result<ReplyContent, CallFailure> {
        let &CallInProgress { orb, timeouts, request, until, ref thread, .. } = self;
        let route = message.route;
        let patience = Patience { each: duration(timeouts.connect), until };
        let both = route.peer.both_ways(route.version, route.chars, &patience)?;
        let waits = request.overflow(orb) == OnewayOverflow::Wait;
        // A cancel may follow a oneway while other calls use the connection: only a shared one allows that.
        let may_follow = thread.is_some() && !request.response.expected();
        if request.put_off || !waits || may_follow {
            let mux = both.map_or_else(|| route.peer.mux(&patience), Ok)?;
            let message = RequestMessage { route: &route.over(mux.chars()), ..*message };
            let put = |id, opening: Opening<'_>, to: &mut Encoder| message.put(id, opening, to);
            let id = match waits {
                true => mux.post(request.put_off, until, put)?,
                false => mux.try_post(request.put_off, put)?,
            };
            if let Some(thread) = thread {
                thread.part().sent_oneway(mux.clone(), id, route.version);
            }
            // Afterwards: connecting may have taken longer than the next tick is away.
            if request.put_off {
                orb.housekeeping.wake(false);
            }
            return Ok(ReplyContent::Outcome);
        }
        let over = match both {
            Some(mux) => Over::Mux(mux, None),
            None => route.peer.take(&patience)?,
        };
        match over {
            Over::Line(mut line) => {
                let mut buffers = buffers::take();
                let done = self.over_line(message, &mut line, &mut buffers, accept);
                buffers::give_back(buffers);
                match &done {
                    Ok(_) | Err((CallFailure::Raised(_), Some(_)) | (CallFailure::Encode(_), _)) => {
                        route.peer.pool.give_back(line)
                    }
                    Err((CallFailure::TimedOut, Some(id))) if line.cancel(*id, route.version) => {
                        route.peer.pool.give_back_late(line)
                    }
                    Err((CallFailure::Closed | CallFailure::Unsent | CallFailure::Lost, _)) => {
                        line.close();
                        route.peer.pool.doubt();
                    }
                    Err(_) => line.close(),
                }
                done.map_err(|(failure, _)| failure)
            }
            // Its place is kept until the reply arrives.
            Over::Mux(mux, _place) => {
                let route = &*route.over(mux.chars());
                let message = RequestMessage { route, ..*message };
                if !request.response.expected() {
                    mux.post(false, until, |id, opening, to| message.put(id, opening, to))?;
                    return Ok(ReplyContent::Outcome);
                }
                let (id, reply) = mux.request(until, |id, opening, to| message.put(id, opening, to))?;
                let _sent = thread.as_ref().map(|thread| thread.sent(mux.clone(), id, route.version));
                let reply = wait_for(&reply, sooner(until, timeouts.reply)).inspect_err(|failure| {
                    if *failure == CallFailure::TimedOut {
                        mux.cancel(id, route.version);
                    }
                })?;
                understand_message(orb, message.out, reply, route.chars, accept)
            }
        }
    }

    /// The hot path of the client: one write, one read.
    #[inline]
    fn over_line(
        &self,
        message: &RequestMessage<'_>,
        line: &mut Line,
        Buffers { to, buffer }: &mut Buffers,
        accept: Accept<'_>,
    ) -> Result<ReplyContent, (CallFailure, Option<u32>)> {
        let id = line.next_id();
        to.clear();
        let opening = Opening { sets: !line.announced, points: None };
        message.write(id, opening, to).map_err(|error| (CallFailure::Encode(error), None))?;
        // A request to a server that offers no code sets, or in GIOP 1.0, announces none.
        line.announced |= message.route.sets.is_some();
        line.send(to.bytes(), self.until).map_err(|failure| (failure, None))?;
        if !self.request.response.expected() {
            return Ok(ReplyContent::Outcome);
        }
        let until = sooner(self.until, self.timeouts.reply);
        let _sent = self.thread.as_ref().map(|thread| thread.sent(line.stream(), id, message.route.version));
        let mut content = ReplyContent::Outcome;
        let read = |reply: Reply<'_>| {
            content = understand(self.orb, message.out, reply, accept)?;
            Ok(())
        };
        line.receive(id, until, buffer, read, message.route.chars).map_err(|failure| (failure, Some(id)))?;
        Ok(content)
    }
}

/// Why there is no route at all.
#[cold]
fn no_way(object: &RemoteObject) -> SystemException {
    if incompatible(object.ior()) {
        return SystemKind::CodesetIncompatible.not_done(minor::CODE_SETS);
    }
    let over_tcp = |endpoint: &IorEndpoint| matches!(endpoint, IorEndpoint::Tls { .. } | IorEndpoint::Tcp { .. });
    if object.ior().iiop().flatten().any(|profile| profile.endpoints().iter().any(over_tcp)) {
        return SystemKind::NoPermission.not_done(minor::TLS_NOT_SET_UP);
    }
    SystemKind::Transient.not_done(minor::NO_USABLE_PROFILE)
}

/// When the time for the reply is over.
#[inline]
pub(super) fn sooner(until: Option<Instant>, reply: Option<Span>) -> Option<Instant> {
    [until, reply.map(after_now)].into_iter().flatten().min()
}

pub(super) fn after_now(span: Span) -> Instant {
    Instant::now() + duration(span)
}

/// A request, as it is written for a route.
#[derive(Clone, Copy)]
pub(super) struct RequestMessage<'a> {
    pub(super) route: &'a Route,
    pub(super) request: &'a Invocation<'a>,
    pub(super) timing: Option<&'a TimingContext>,
    pub(super) part: Option<&'a [u8]>,
    pub(super) propagated: Option<Priority>,
    pub(super) out: &'a Outgoing<'a>,
}

impl RequestMessage<'_> {
    /// Writes it, and returns which part of the opening it announces.
    pub(super) fn put(&self, id: u32, opening: Opening<'_>, to: &mut Encoder) -> Result<Announced, EncodeError> {
        // Earlier versions have no calls in the other direction.
        let points = opening.points.filter(|_| self.route.version == Version::V1_2);
        let opening = Opening { sets: opening.sets && self.route.sets.is_some(), points };
        self.write(id, opening, to).map(|()| Announced { sets: opening.sets, points: points.is_some() })
    }

    #[inline]
    fn write(&self, id: u32, opening: Opening<'_>, to: &mut Encoder) -> Result<(), EncodeError> {
        let &RequestMessage { route, request, timing, part, propagated, out } = self;
        to.speak(route.version, route.chars);
        let mut contexts = [ServiceContext { tag: 0, data: &[] }; MOST_CONTEXTS];
        let mut count = 0;
        let mut add = |tag, data| {
            contexts[count] = ServiceContext { tag, data };
            count += 1;
        };
        let sets;
        if let (Some(agreed), true) = (route.sets, opening.sets) {
            sets = encapsulation(ByteOrder::NATIVE, |to| hyoshi_wire::Encode::encode(&agreed, to))?;
            add(CONTEXT_CODE_SETS, &sets);
        }
        if let Some(data) = opening.points {
            add(CONTEXT_BI_DIR_IIOP, data);
        }
        let priority;
        // A context of the program's interceptors replaces it.
        if let Some(propagated) = propagated
            && out.contexts.iter().all(|(tag, _)| *tag != CONTEXT_RT_PRIORITY)
        {
            let [first, second] = propagated.number().to_ne_bytes();
            priority = [u8::from(ByteOrder::NATIVE == ByteOrder::Little), 0, first, second];
            add(CONTEXT_RT_PRIORITY, &priority);
        }
        if let Some(timing) = timing {
            add(CONTEXT_RT_SCHEDULING, timing.data());
        }
        if let Some(part) = part {
            add(CONTEXT_HYOSHI_CALL, part);
        }
        let mut header = RequestHeader {
            id,
            response: request.response,
            target: Target::Key(&route.key),
            operation: request.operation,
            contexts: &contexts[..count],
        };
        let all: Vec<_>;
        if !out.contexts.is_empty() {
            let others = out.contexts.iter().map(|(tag, data)| ServiceContext { tag: *tag, data });
            all = header.contexts.iter().copied().chain(others).collect();
            header.contexts = &all;
        }
        let begun = header.begin(to)?;
        (request.arguments)(to)?;
        begun.end(to)
    }
}

/// A reply as a whole message, as the shared connection hands it out.
pub(super) fn understand_message(
    orb: &Shared,
    out: &Outgoing<'_>,
    message: &Kept,
    chars: CharSet,
    accept: Accept<'_>,
) -> Result<ReplyContent, CallFailure> {
    match message.received().decode_in(chars) {
        Ok(Message::Reply(reply)) => understand(orb, out, reply, accept),
        _ => Err(CallFailure::Garbled),
    }
}

/// Decodes a reply.
#[inline]
fn understand(
    orb: &Shared,
    out: &Outgoing<'_>,
    reply: Reply<'_>,
    accept: Accept<'_>,
) -> Result<ReplyContent, CallFailure> {
    let mut body = reply.body.clone();
    if !orb.client_interceptors.is_empty() {
        notify_interceptors(orb, out, &reply);
    }
    match reply.status {
        ReplyStatus::NoException | ReplyStatus::UserException => {
            accept(reply).map_err(CallFailure::Raised)?;
            Ok(ReplyContent::Outcome)
        }
        ReplyStatus::SystemException => {
            SystemException::decode(&mut body).map(ReplyContent::Raise).map_err(|_| CallFailure::Garbled)
        }
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
            Ior::decode(&mut body).map(|ior| ReplyContent::Forward(Box::new(ior))).map_err(|_| CallFailure::Garbled)
        }
        ReplyStatus::NeedsAddressingMode => Ok(ReplyContent::NeedsKey),
    }
}

#[cold]
fn notify_interceptors(orb: &Shared, out: &Outgoing<'_>, reply: &Reply<'_>) {
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
