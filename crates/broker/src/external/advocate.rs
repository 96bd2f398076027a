//! Advocates in other processes. An answer runs the task's chain again, without a new report ([`Status::demand`] is
//! `None`); after a failure the request passes unchanged.

use std::fmt;
use std::sync::Arc;

use hyoshi_control::{Advice, Advocate, Grant, Status, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::PiMutex;

use super::call_pool::{NextCall, RemoteCall};
use super::{
    DEFAULT_TIMEOUT, ExternalEvent, ExternalEvents, Externals, OperatorNotice, advised, failure_reason, printable,
    reservation,
};
use crate::component::ComponentSpec;
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Advocate as _, AdvocateStub};
use crate::request_error::RequestError;

/// Consecutive failures before the first pause.
const PATIENT: u32 = 3;

impl Externals {
    /// An advocate of a task.
    ///
    /// # Errors
    ///
    /// If the specification has no valid object.
    pub(crate) fn advocate(
        self: &Arc<Self>,
        setting: &ComponentSpec,
        task: TaskId,
        name: &str,
    ) -> Result<Box<dyn Advocate>, RequestError> {
        let (stub, timeout) = self.object::<dyn wire::Advocate>(setting, DEFAULT_TIMEOUT)?;
        self.advocates.start()?;
        let call = AdvocateCall {
            task,
            name: name.to_owned(),
            stub: stub.within(timeout),
            timeout,
            events: self.events.clone(),
            state: PiMutex::default(),
        };
        Ok(Box::new(ExternalAdvocate { externals: self.clone(), call: Arc::new(call) }))
    }
}

/// The calls to one advocate, shared by the broker's thread and the pool.
struct AdvocateCall {
    task: TaskId,
    name: String,
    stub: AdvocateStub,
    timeout: Span,
    events: Arc<ExternalEvents>,
    state: PiMutex<AdvocateCallState>,
}

#[derive(Default)]
struct AdvocateCallState {
    question: Option<(Status, Reservation)>,
    grant: Option<wire::Grant>,
    /// It is queued or being called.
    busy: bool,
    answer: Option<Reservation>,
    /// Its description.
    description: Option<String>,
    failed: Option<String>,
    failures: u32,
    /// The end of its pause.
    rests: Instant,
}

impl RemoteCall for AdvocateCall {
    fn call_once(&self) -> Option<ExternalEvent> {
        let (question, grant, introduced) = {
            let mut state = self.state.lock();
            (state.question.take(), state.grant.take(), state.description.is_some())
        };
        if let Some(grant) = grant {
            // A oneway call has no result to check.
            let _ = self.stub.granted(&self.name, &grant);
        }
        let (status, asked) = question?;
        let answered = self.stub.advise(&self.name, &to_wire(&status), &reservation(asked));
        let description = match answered.is_ok() && !introduced {
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut state = self.state.lock();
        if description.is_some() {
            state.description = description;
        }
        match answered.map_err(|error| failure_reason(&error, self.timeout)).and_then(|answer| advised(&answer, asked))
        {
            Ok(answer) => {
                (state.answer, state.failures) = (Some(answer), 0);
                if state.failed.take().is_some() {
                    self.events.add_notice(OperatorNotice::of_advocate("external", &self.name, None));
                }
            }
            Err(reason) => {
                if state.failed.is_none() {
                    self.events.add_notice(OperatorNotice::of_advocate("external", &self.name, Some(&reason)));
                }
                state.answer = None;
                state.failures += 1;
                if state.failures >= PATIENT {
                    state.rests = status.at + Span::from_secs(1 << (state.failures - PATIENT).min(5));
                }
                state.failed = Some(reason);
            }
        }
        Some(ExternalEvent::Task(self.task))
    }

    fn next_call(&self) -> NextCall {
        let mut state = self.state.lock();
        state.busy = state.question.is_some() || state.grant.is_some();
        if state.busy { NextCall::Again } else { NextCall::Over }
    }

    fn give_up(&self) {
        let mut state = self.state.lock();
        (state.busy, state.question, state.answer) = (false, None, None);
    }
}

fn to_wire(status: &Status) -> wire::Status {
    let nothing = wire::Reservation { budget: 0, period: 0, deadline: 0 };
    wire::Status {
        at: status.at.as_nanos(),
        consumed: status.consumed.as_nanos(),
        cycles: status.cycles,
        reserved: status.held.map_or(nothing, reservation),
        mode: status.mode.map_or(-1, i64::from),
        numbers: status.values.as_slice().to_vec(),
    }
}

/// The advocate in a chain.
struct ExternalAdvocate {
    externals: Arc<Externals>,
    call: Arc<AdvocateCall>,
}

impl Advocate for ExternalAdvocate {
    fn name(&self) -> &'static str {
        "external"
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        let mut state = self.call.state.lock();
        let answer = state.answer.filter(|answer| answer.period() == asked.period());
        if status.demand().is_some() && state.rests <= status.at {
            state.question = Some((*status, asked));
            if !state.busy {
                state.busy = true;
                drop(state);
                if !self.externals.advocates.ask(self.call.clone()) {
                    self.call.give_up();
                    return asked.into();
                }
            }
        }
        answer.unwrap_or(asked).into()
    }

    fn granted(&mut self, grant: &Grant) {
        let mut state = self.call.state.lock();
        let reserved =
            grant.reservation.map_or_else(|| wire::Reservation { budget: 0, ..reservation(grant.asked) }, reservation);
        state.grant = Some(wire::Grant { requested: reservation(grant.asked), reserved, reason: String::new() });
        if !state.busy {
            state.busy = true;
            drop(state);
            if !self.externals.advocates.ask(self.call.clone()) {
                self.call.give_up();
            }
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.call.state.lock();
        match (&state.failed, &state.description, state.answer) {
            (Some(reason), ..) => write!(f, "bypassed: {reason}"),
            (None, Some(words), _) => f.write_str(words),
            (None, None, Some(_)) => f.write_str("answers without a description"),
            (None, None, None) => f.write_str("no answer yet"),
        }
    }
}

impl fmt::Debug for ExternalAdvocate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("task", &self.call.name).finish_non_exhaustive()
    }
}
