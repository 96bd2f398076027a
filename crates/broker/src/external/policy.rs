//! A policy in another process.

use std::fmt;
use std::sync::Arc;

use hyoshi_control::Ask;
use hyoshi_control::policy::{AnyPolicy, ExternalPolicy};
use hyoshi_model::{Share, Span};
use hyoshi_os::PiMutex;

use super::call_pool::{NextCall, RemoteCall};
use super::{
    DEFAULT_TIMEOUT, ExternalEvent, ExternalEvents, Externals, OperatorNotice, failure_reason, printable, reservation,
};
use crate::component::ComponentSpec;
use crate::foreign_policy::{ForeignPolicy, PolicySource};
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Policy as _, PolicyStub};
use crate::request_error::RequestError;

/// The pause before the second and third attempt.
const BRIEF: Span = Span::from_millis(100);

impl Externals {
    /// The policy of a specification; `fallback` decides while it does not answer.
    ///
    /// # Errors
    ///
    /// If the specification has no valid object.
    pub(crate) fn policy(
        self: &Arc<Self>,
        setting: &ComponentSpec,
        fallback: AnyPolicy,
    ) -> Result<AnyPolicy, RequestError> {
        let (stub, timeout) = self.object::<dyn wire::Policy>(setting, DEFAULT_TIMEOUT)?;
        self.policies.start()?;
        let call =
            PolicyCall { stub: stub.within(timeout), timeout, events: self.events.clone(), state: PiMutex::default() };
        let (externals, call) = (self.clone(), Arc::new(call));
        Ok(Box::new(ForeignPolicy::new(ObjectPolicy { externals, call, last: None }, fallback)))
    }
}

/// The requests and the cap of one call.
type PolicyInput = (Vec<Ask>, Share);
/// The requests and a budget for each, or the reason of the failure.
type PolicyAnswer = Result<(Vec<Ask>, Vec<Span>), String>;

/// The calls to the policy, shared by the broker and the pool.
struct PolicyCall {
    stub: PolicyStub,
    timeout: Span,
    events: Arc<ExternalEvents>,
    state: PiMutex<PolicyCallState>,
}

#[derive(Default)]
struct PolicyCallState {
    question: Option<PolicyInput>,
    /// It is queued or being called.
    busy: bool,
    /// The last result, until the broker reads it.
    outcome: Option<PolicyAnswer>,
    /// Its description.
    description: Option<String>,
    failed: bool,
    failures: u32,
    /// Another policy has replaced it.
    gone: bool,
}

impl PolicyCall {
    fn ask(&self, asks: &[Ask], cap: Share) -> Result<Vec<Span>, String> {
        let asks: Vec<wire::TaskRequest> = asks.iter().map(|ask| to_wire(ask, self.events.name_of(ask.task))).collect();
        let budgets =
            self.stub.arbitrate(cap.as_millionths(), &asks).map_err(|error| failure_reason(&error, self.timeout))?;
        match budgets.len() == asks.len() {
            true => Ok(budgets.into_iter().map(Span::from_nanos).collect()),
            false => Err(format!("it returned {} budgets for {} requests", budgets.len(), asks.len())),
        }
    }
}

impl RemoteCall for PolicyCall {
    fn call_once(&self) -> Option<ExternalEvent> {
        let (question, introduced) = {
            let mut state = self.state.lock();
            (state.question.take()?, state.description.is_some())
        };
        let answered = self.ask(&question.0, question.1);
        let description = match answered.is_ok() && !introduced {
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut state = self.state.lock();
        state.description = description.or(state.description.take());
        match answered {
            Ok(budgets) => {
                state.failures = 0;
                state.outcome = Some(Ok((question.0, budgets)));
                if std::mem::take(&mut state.failed) {
                    self.events.add_notice(OperatorNotice::of_policy(ObjectPolicy::LABEL, None));
                }
            }
            Err(reason) => {
                state.failures += 1;
                if !std::mem::replace(&mut state.failed, true) {
                    self.events.add_notice(OperatorNotice::of_policy(ObjectPolicy::LABEL, Some(&reason)));
                }
                // Repeated after the pause, unless a newer request replaces it.
                state.question.get_or_insert(question);
                state.outcome = Some(Err(reason));
            }
        }
        Some(ExternalEvent::Policy)
    }

    fn next_call(&self) -> NextCall {
        let mut state = self.state.lock();
        state.busy = state.question.is_some() && !state.gone;
        match (state.busy, state.failed) {
            (false, _) => NextCall::Over,
            (true, false) => NextCall::Again,
            (true, true) if state.failures < 3 => NextCall::Later(BRIEF),
            (true, true) => NextCall::Later(Span::from_secs(1 << (state.failures - 3).min(5))),
        }
    }

    fn give_up(&self) {
        self.state.lock().busy = false;
    }
}

fn to_wire(ask: &Ask, name: String) -> wire::TaskRequest {
    wire::TaskRequest {
        number: ask.task.0,
        name,
        importance: ask.importance,
        weight: ask.weight,
        requested: reservation(ask.asked),
        min_share: ask.least.as_millionths(),
    }
}

/// The policy that the arbiter uses.
struct ObjectPolicy {
    externals: Arc<Externals>,
    call: Arc<PolicyCall>,
    /// The last request.
    last: Option<PolicyInput>,
}

impl PolicySource for ObjectPolicy {
    const NAME: &'static str = "external";
    const LABEL: &'static str = "the external policy";

    fn fetch(&mut self, foreign: &mut ExternalPolicy, _: &[Ask], _: Share) {
        match self.call.state.lock().outcome.take() {
            None => (),
            Some(Ok((asks, budgets))) => {
                foreign.answered(&asks, &budgets);
            }
            Some(Err(reason)) => foreign.failed(reason),
        }
    }

    fn ask(&mut self, asks: &[Ask], cap: Share) {
        if self.last.as_ref().is_some_and(|(before, limit)| before == asks && *limit == cap) {
            return;
        }
        self.last = Some((asks.to_vec(), cap));
        let mut state = self.call.state.lock();
        state.question = self.last.clone();
        if !std::mem::replace(&mut state.busy, true) {
            drop(state);
            if !self.externals.policies.ask(self.call.clone()) {
                self.call.give_up();
            }
        }
    }

    fn description(&self) -> Option<String> {
        self.call.state.lock().description.clone()
    }

    fn events(&self) -> &ExternalEvents {
        &self.call.events
    }
}

impl Drop for ObjectPolicy {
    fn drop(&mut self) {
        let mut state = self.call.state.lock();
        (state.gone, state.question) = (true, None);
    }
}

impl fmt::Debug for ObjectPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").finish_non_exhaustive()
    }
}
