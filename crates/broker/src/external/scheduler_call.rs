//! The calls to a scheduler proxy in another process.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_model::{Reservation, Span};
use hyoshi_os::PiMutex;

use super::call_pool::{NextCall, RemoteCall};
use super::scheduler::{ExternalScheduler, ProxyCommand, ProxyReport, RemoteScheduler};
use super::{ExternalEvent, ExternalEvents, Externals, OperatorNotice, failure_reason, printable, reservation};
use crate::component::ComponentSpec;
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{ReserveError, SchedulerProxy as _, SchedulerProxyStub};
use crate::platform::NotReserved;
use crate::proxy::SchedulerProxy;
use crate::request_error::RequestError;

/// The default: changing the scheduling of processes may last long.
const TIMEOUT: Span = Span::from_millis(50);

impl Externals {
    /// The scheduler proxy of `external --object REFERENCE --timeout 20ms`; `own` reserves while it does not answer.
    ///
    /// # Errors
    ///
    /// If the specification has no valid object.
    pub fn scheduler(
        self: &Arc<Self>,
        setting: &ComponentSpec,
        own: Box<dyn SchedulerProxy>,
    ) -> Result<Box<dyn SchedulerProxy>, RequestError> {
        let (stub, timeout) = self.object::<dyn wire::SchedulerProxy>(setting, TIMEOUT)?;
        self.schedulers.start()?;
        let call = Arc::new(SchedulerCall {
            stub: stub.within(timeout),
            timeout,
            events: self.events.clone(),
            state: PiMutex::default(),
        });
        Ok(Box::new(ExternalScheduler::new(own, CorbaScheduler { externals: self.clone(), call })))
    }
}

/// The connection to the scheduler.
struct CorbaScheduler {
    externals: Arc<Externals>,
    call: Arc<SchedulerCall>,
}

impl RemoteScheduler for CorbaScheduler {
    fn order(&mut self, task: TaskId, order: ProxyCommand) {
        let mut state = self.call.state.lock();
        state.orders.insert(task, order);
        if !std::mem::replace(&mut state.busy, true) {
            drop(state);
            // There is room: this pool has only one object.
            self.externals.schedulers.ask(self.call.clone());
        }
    }

    fn reports(&mut self) -> Vec<ProxyReport> {
        std::mem::take(&mut self.call.state.lock().reports)
    }

    fn description(&self) -> Option<String> {
        self.call.state.lock().description.clone()
    }
}

/// The scheduler, shared by the broker and the pool.
struct SchedulerCall {
    stub: SchedulerProxyStub,
    timeout: Span,
    events: Arc<ExternalEvents>,
    state: PiMutex<SchedulerCallState>,
}

#[derive(Default)]
struct SchedulerCallState {
    /// At most one command for each task.
    orders: BTreeMap<TaskId, ProxyCommand>,
    reports: Vec<ProxyReport>,
    busy: bool,
    description: Option<String>,
    /// Consecutive failures.
    failures: u32,
}

impl SchedulerCall {
    /// Calls `describe` until it succeeds.
    fn probe(&self) -> Option<ExternalEvent> {
        let answered = self.stub.describe();
        let mut state = self.state.lock();
        match answered {
            Ok(words) => {
                state.failures = 0;
                state.description = Some(printable(&words));
                state.reports.push(ProxyReport::Again);
                let text = "the external scheduler answers again".to_owned();
                self.events.add_notice(OperatorNotice {
                    change: "scheduler-answers",
                    task: None,
                    reason: String::new(),
                    text,
                });
                Some(ExternalEvent::Scheduler)
            }
            Err(_) => {
                state.failures = state.failures.saturating_add(1);
                None
            }
        }
    }

    fn send(&self, task: TaskId, order: &ProxyCommand) -> Result<ProxyReport, String> {
        let Some((what, processes)) = &order.reservation else {
            let released = self.stub.release(task.0);
            return released
                .map(|()| ProxyReport::Released(task, order.number))
                .map_err(|error| failure_reason(&error, self.timeout));
        };
        let name = self.events.name_of(task);
        let done = match self.stub.reserve(task.0, &name, processes, &reservation(*what)) {
            Ok(()) => Ok(()),
            Err(ReserveError::NotReserved(refused)) => Err(not_reserved(&refused, *what)),
            Err(ReserveError::System(error)) => return Err(failure_reason(&error, self.timeout)),
        };
        Ok(ProxyReport::Done(task, *what, done))
    }
}

/// A refusal must leave less than it refused, otherwise the loop would not end.
fn not_reserved(refused: &wire::NotReserved, what: Reservation) -> NotReserved {
    let most = Span::from_nanos(refused.max.budget);
    let most = (most > Span::ZERO && most < what.budget()).then(|| what.with_budget(most));
    let reason = printable(&refused.reason);
    NotReserved {
        most,
        reason: if reason.is_empty() { "the external scheduler rejected it".to_owned() } else { reason },
    }
}

impl RemoteCall for SchedulerCall {
    fn call_once(&self) -> Option<ExternalEvent> {
        let (order, introduced) = {
            let mut state = self.state.lock();
            if state.failures > 0 {
                drop(state);
                return self.probe();
            }
            (state.orders.pop_first(), state.description.is_some())
        };
        let (task, order) = order?;
        let result = self.send(task, &order);
        let description = match result.is_ok() && !introduced {
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut state = self.state.lock();
        state.description = description.or(state.description.take());
        match result {
            Ok(report) => state.reports.push(report),
            Err(reason) => {
                state.failures = 1;
                state.orders.clear();
                let text = format!("the external scheduler is bypassed: {reason}");
                self.events.add_notice(OperatorNotice {
                    change: "scheduler-bypassed",
                    task: None,
                    reason: reason.clone(),
                    text,
                });
                state.reports.push(ProxyReport::Failed(reason));
            }
        }
        Some(ExternalEvent::Scheduler)
    }

    fn next_call(&self) -> NextCall {
        let mut state = self.state.lock();
        if state.failures > 0 {
            return NextCall::Later(Span::from_secs(1 << (state.failures - 1).min(5)));
        }
        state.busy = !state.orders.is_empty();
        if state.busy { NextCall::Again } else { NextCall::Over }
    }

    fn give_up(&self) {
        self.state.lock().busy = false;
    }
}
