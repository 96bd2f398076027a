//! Asynchronous calls.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use hyoshi_model::Span;
use hyoshi_wire::giop::{Kept, Response};
use hyoshi_wire::{ByteOrder, DecodeError, Decoder, EncodeError, Encoder, SystemException, Version};

use super::invoke::CallerPriority::OfThread;
use super::invoke::{self, CallerPriority, Invocation, RequestMessage, understand_message};
use super::itinerary::{AGAIN, ReplyContent};
use super::remote::RemoteObject;
use super::route::{self, Route};
use crate::client::{Mux, Patience, PendingReply, wait_for};
use crate::failure::CallFailure;
use crate::intercept::Outgoing;
use crate::limits::{Timeouts, duration};
use crate::outcome::CallOutcome;
use crate::raises::Raises;
use crate::rt::threads::{self, ThreadCall};
use crate::rt::{self, ClientPolicies, Priority, TimingContext};

type Results<R> = Box<dyn for<'a, 'b> Fn(&'a mut Decoder<'b>) -> Result<R, DecodeError> + Send>;

/// A call under way. Dropped, it is cancelled.
#[must_use = "a call that is dropped is cancelled"]
pub struct Pending<R, E>(PendingState<R, E>);

enum PendingState<R, E> {
    /// The reply has not been used.
    Sent(Box<SentCall>, Results<R>),
    /// It ended at once, or has been waited for: then the outcome is gone.
    Over(Option<Result<R, E>>),
}

struct SentCall {
    object: Arc<RemoteObject>,
    operation: &'static str,
    /// The arguments as they were sent: for another place, should it be sent on.
    body: Vec<u8>,
    timeouts: Timeouts,
    policies: Option<Arc<ClientPolicies>>,
    /// The CORBA priority of the thread that called.
    caller: Result<Option<Priority>, SystemException>,
    /// The end of the round trip.
    end: Option<Instant>,
    /// The same, or the end of the wait for a reply.
    until: Option<Instant>,
    route: Route,
    mux: Arc<Mux>,
    id: u32,
    reply: Arc<PendingReply>,
    /// Of a distributable thread.
    thread: Option<ThreadCall>,
    /// The number of its request.
    hop: Option<u32>,
}

impl<R, E: Raises> Pending<R, E> {
    pub(crate) fn over(outcome: Result<R, E>) -> Self {
        Pending(PendingState::Over(Some(outcome)))
    }

    /// Sends the request. Only in GIOP 1.2 can what was encoded be sent elsewhere, should that be asked for: for older
    /// servers none is returned, and nothing sent.
    pub(crate) fn send(
        object: &Arc<RemoteObject>,
        timeouts: &Timeouts,
        policies: Option<Cow<'_, Arc<ClientPolicies>>>,
        operation: &'static str,
        arguments: &dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
        results: Results<R>,
    ) -> Result<Result<Self, Results<R>>, SystemException> {
        let orb = object.orb()?;
        let thread = threads::begin_call(true)?;
        let target = object.target();
        let mut request =
            Invocation { operation, response: Response::Target, put_off: false, arguments, policies, caller: OfThread };
        let bound = target.bind(&orb, &request).inspect_err(|_| object.forget_target())?;
        let propagated = bound.propagated;
        let Some(route) =
            route::back(&bound.routes).or(bound.routes.first()).filter(|route| route.version == Version::V1_2)
        else {
            return Ok(Err(results));
        };
        if !orb.client_interceptors.is_empty() {
            return Ok(Err(results));
        }
        let here = |failure: CallFailure| failure.exception().at(route.peer.name(false));
        let end = timeouts.round_trip.map(invoke::after_now);
        let patience = Patience { each: duration(timeouts.connect), until: end };
        let shared = || match route.peer.both_ways(route.version, route.chars, &patience)? {
            Some(mux) => Ok(mux),
            None => route.peer.mux(&patience),
        };
        let mut mux = match shared() {
            Ok(mux) => mux,
            Err(CallFailure::ConnectTimedOut) if end.is_some() => return Err(here(CallFailure::ConnectTimedOut)),
            Err(_) => return Ok(Err(results)),
        };
        let route = &*route.over(mux.chars());
        let mut to = Encoder::new(ByteOrder::NATIVE);
        to.speak(route.version, route.chars);
        arguments(&mut to).map_err(|error| CallFailure::Encode(error).exception())?;
        let body = to.into_bytes();
        let again = |to: &mut Encoder| {
            to.raw(&body);
            Ok(())
        };
        request.arguments = &again;
        let out = Outgoing { operation, key: &route.key, contexts: Vec::new() };
        let timing = rt::timing().map(|timing| TimingContext::new(&timing, orb.kokyu_timing)).transpose()?;
        let (timing, request) = (timing.as_ref(), &request);
        let message = RequestMessage { route, request, timing, part: None, propagated, out: &out };
        let mut repeats = 0;
        let (id, reply) = loop {
            match mux.request(end, |id, opening, to| message.put(id, opening, to)) {
                Ok(sent) => break sent,
                // The connection ended before anything was sent.
                Err(failure) if failure.may_repeat() && repeats < AGAIN => repeats += 1,
                Err(failure) => return Err(here(failure)),
            }
            mux = match shared() {
                Ok(mux) if mux.chars().is_none_or(|chars| chars == route.chars) => mux,
                Err(CallFailure::ConnectTimedOut) if end.is_some() => return Err(here(CallFailure::ConnectTimedOut)),
                // What is encoded is not for this one; or there is none: a call like any other finds out why.
                _ => return Ok(Err(results)),
            };
        };
        let hop = thread.as_ref().map(|thread| thread.part().sent(mux.clone(), id, route.version));
        let until = invoke::sooner(end, timeouts.reply);
        let caller = rt::outgoing(&orb.rt);
        let policies = request.policies.as_deref().cloned();
        let (object, timeouts, route) = (object.clone(), *timeouts, route.clone());
        let sent = SentCall {
            object,
            operation,
            body,
            timeouts,
            policies,
            caller,
            end,
            until,
            route,
            mux,
            id,
            reply,
            thread,
            hop,
        };
        Ok(Ok(Pending(PendingState::Sent(Box::new(sent), results))))
    }

    /// True once [`wait`](Self::wait) would not wait. (If the request has to be forwarded, it still may.)
    pub fn is_over(&self) -> bool {
        match &self.0 {
            PendingState::Sent(sent, _) => sent.reply.is_kept(),
            PendingState::Over(_) => true,
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    ///
    /// What the operation raised, or why there is no reply.
    pub fn wait(mut self) -> Result<R, E> {
        self.finish(None).unwrap_or_else(|| Err(CallFailure::Lost.exception().into()))
    }

    /// Waits at most this long. `None` if the call has not ended: it continues, and can be waited for again.
    pub fn wait_for(&mut self, span: Span) -> Option<Result<R, E>> {
        self.finish(Some(invoke::after_now(span)))
    }

    /// The outcome; `None` if it is gone, or has not arrived within the patience.
    fn finish(&mut self, patience: Option<Instant>) -> Option<Result<R, E>> {
        if let PendingState::Sent(sent, _) = &self.0 {
            let until = [sent.until, patience].into_iter().flatten().min();
            let timed_out = matches!(wait_for(&sent.reply, until), Err(CallFailure::TimedOut));
            if timed_out && patience.is_some() && until != sent.until {
                return None;
            }
        }
        match std::mem::replace(&mut self.0, PendingState::Over(None)) {
            PendingState::Sent(mut sent, results) => {
                sent.forget_hop();
                let outcome = sent.conclude(wait_for(&sent.reply, Some(Instant::now())), results);
                match &sent.thread {
                    Some(thread) => Some(thread.outcome(outcome)),
                    None => Some(outcome),
                }
            }
            PendingState::Over(outcome) => outcome,
        }
    }
}

impl SentCall {
    /// A cancel of its thread does not follow it any more.
    fn forget_hop(&mut self) {
        if let (Some(thread), Some(number)) = (&self.thread, self.hop.take()) {
            thread.part().replied(number);
        }
    }

    fn conclude<R, E: Raises>(&self, arrived: Result<&Kept, CallFailure>, results: Results<R>) -> Result<R, E> {
        let orb = self.object.orb()?;
        crate::shared::use_orb(&orb);
        let mut outcome = CallOutcome::new(results);
        let out = Outgoing { operation: self.operation, key: &self.route.key, contexts: Vec::new() };
        let content = match arrived {
            Ok(message) => {
                understand_message(&orb, &out, message, self.route.chars, &mut |reply| outcome.accept(reply))
            }
            Err(failure) => Err(failure),
        };
        match content {
            Ok(ReplyContent::Outcome) => outcome.take(),
            Ok(ReplyContent::Raise(exception)) => Err(exception.at(self.route.peer.name(false)).into()),
            Ok(ReplyContent::Forward(_) | ReplyContent::NeedsKey) | Err(CallFailure::Closed) => {
                // From here on it is a call like any other, with the rest of the time.
                let left = self.end.map(|end| end.saturating_duration_since(Instant::now()).as_nanos());
                let left = left.map(|left| Span::from_nanos(u64::try_from(left).unwrap_or(u64::MAX).max(1)));
                let timeouts = Timeouts { round_trip: left, ..self.timeouts };
                let body = |to: &mut Encoder| {
                    to.raw(&self.body);
                    Ok(())
                };
                let (operation, response) = (self.operation, Response::Target);
                let policies = self.policies.as_ref().map(Cow::Borrowed);
                let caller = CallerPriority::Known(self.caller?);
                let request = Invocation { operation, response, put_off: false, arguments: &body, policies, caller };
                invoke::invoke(&orb, &self.object, &timeouts, &request, &mut |reply| outcome.accept(reply))?;
                outcome.take()
            }
            Err(failure) => {
                if failure == CallFailure::TimedOut {
                    self.mux.cancel(self.id, self.route.version);
                }
                Err(failure.exception().at(self.route.peer.name(false)).into())
            }
        }
    }
}

impl<R, E> Drop for Pending<R, E> {
    fn drop(&mut self) {
        if let PendingState::Sent(sent, _) = &mut self.0 {
            sent.forget_hop();
            sent.mux.cancel(sent.id, sent.route.version);
        }
    }
}

impl<R, E> fmt::Debug for Pending<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if matches!(self.0, PendingState::Sent(..)) { "sent" } else { "over" };
        f.debug_tuple("Pending").field(&state).finish()
    }
}
