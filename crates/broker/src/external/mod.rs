//! Advocates, policies and schedulers in other processes and any language: called by object reference, with timeouts.
//!
//! The broker never waits for them. An event leaves a question, and a thread of a pool makes the call. When the answer
//! arrives, the broker runs again. Until then the previous answer holds:
//!
//! ```text
//!              a question               answered in time: the broker uses the answer
//!   Quiet ─────────────────► Asked ───────────────────────────────────────────────► Quiet, with an answer
//!     ▲                        │ late, or failed: bypassed, and reported
//!     │ end of the pause       ▼
//!     └──────────────────── Bypassed (the pause grows with consecutive failures)
//! ```

mod advocate;
mod call_pool;
mod policy;
mod scheduler;
mod scheduler_call;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, OnceLock};

use hyoshi_control::TaskId;
use hyoshi_model::{Reservation, Span};
use hyoshi_orb::{Interface, Orb, OrbError, SystemException, Timeouts};
use hyoshi_os::{PiGuard, PiMutex};

use crate::component::ComponentSpec;
use crate::idl::cpu_broker as wire;
use crate::request_error::RequestError;
use call_pool::CallPool;

/// Threads that call advocates: this many stalled ones delay the others by their timeouts.
const THREADS: usize = 4;
const DEFAULT_TIMEOUT: Span = Span::from_millis(5);
const TIMEOUTS: std::ops::RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(1_000);
/// Notices in the queue; later ones are dropped.
const NOTICES: usize = 64;
const REFERENCE: &str = "use --object IOR:... or --object corbaloc:iiop:1.2@HOST:PORT/KEY";

/// The shared state of all external components.
pub struct Externals {
    orb: Orb,
    advocates: Arc<CallPool>,
    policies: Arc<CallPool>,
    schedulers: Arc<CallPool>,
    events: Arc<ExternalEvents>,
}

/// What the threads of the pools report to the broker.
#[derive(Default)]
pub(crate) struct ExternalEvents {
    on_event: OnceLock<Box<dyn Fn(ExternalEvent) + Send + Sync>>,
    notices: PiMutex<Vec<OperatorNotice>>,
    names: PiMutex<BTreeMap<TaskId, CString>>,
}

/// The component with a new answer or failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExternalEvent {
    /// One of this task's advocates.
    Task(TaskId),
    /// The policy.
    Policy,
    /// The scheduler.
    Scheduler,
}

/// A notice for the operator and the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperatorNotice {
    /// For the log: the change.
    pub change: &'static str,
    /// Its task.
    pub task: Option<String>,
    /// For the log: the reason.
    pub reason: String,
    /// For the operator.
    pub text: String,
}

impl OperatorNotice {
    /// An advocate is bypassed, or answers again.
    pub fn of_advocate(kind: &str, task: &str, reason: Option<&str>) -> OperatorNotice {
        let (change, text) = match reason {
            Some(reason) => {
                ("advocate-bypassed", format!("the {kind} advocate of task `{task}` is bypassed: {reason}"))
            }
            None => ("advocate-answers", format!("the {kind} advocate of task `{task}` answers again")),
        };
        OperatorNotice { change, task: Some(task.to_owned()), reason: reason.unwrap_or_default().to_owned(), text }
    }

    /// A policy, such as `the external policy`, is bypassed, or answers again.
    pub fn of_policy(label: &str, reason: Option<&str>) -> OperatorNotice {
        let (change, text) = match reason {
            Some(reason) => ("policy-bypassed", format!("{label} is bypassed: {reason}")),
            None => ("policy-answers", format!("{label} answers again")),
        };
        OperatorNotice { change, task: None, reason: reason.unwrap_or_default().to_owned(), text }
    }
}

impl ExternalEvents {
    /// Sets the callback for events, which must run the broker.
    pub fn listen(&self, on_event: impl Fn(ExternalEvent) + Send + Sync + 'static) {
        // Only one broker sets it.
        let _ = self.on_event.set(Box::new(on_event));
    }

    fn notify(&self, about: ExternalEvent) {
        if let Some(on_event) = self.on_event.get() {
            on_event(about);
        }
    }

    pub fn add_notice(&self, note: OperatorNotice) {
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES {
            notices.push(note);
        }
    }

    /// The notices since the last call.
    pub fn take_notices(&self) -> Vec<OperatorNotice> {
        std::mem::take(&mut *self.notices.lock())
    }

    /// Adds a task that joined.
    pub fn add_task(&self, task: TaskId, name: &str) {
        // Names of tasks contain no zeros.
        self.names.lock().insert(task, CString::new(name).unwrap_or_default());
    }

    /// Removes a task that ended.
    pub fn remove_task(&self, task: TaskId) {
        self.names.lock().remove(&task);
    }

    /// All names.
    pub fn names(&self) -> PiGuard<'_, BTreeMap<TaskId, CString>> {
        self.names.lock()
    }

    /// The name of a task; empty if it has ended.
    pub fn name_of(&self, task: TaskId) -> String {
        let names = self.names.lock();
        names.get(&task).map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }
}

impl Externals {
    /// Without components.
    ///
    /// # Errors
    ///
    /// If the ORB cannot be set up.
    pub fn new() -> Result<Arc<Externals>, OrbError> {
        let timeouts = Timeouts { connect: Span::from_millis(100), ..Timeouts::default() };
        let events = Arc::new(ExternalEvents::default());
        Ok(Arc::new(Externals {
            orb: Orb::builder().timeouts(timeouts).build()?,
            advocates: CallPool::new("advocates", THREADS, &events),
            policies: CallPool::new("policy", 1, &events),
            schedulers: CallPool::new("scheduler", 1, &events),
            events,
        }))
    }

    pub(crate) fn events(&self) -> &Arc<ExternalEvents> {
        &self.events
    }

    /// The object of a specification, and its timeout, which is `unless` by default.
    fn object<T: Interface + ?Sized>(
        &self,
        setting: &ComponentSpec,
        unless: Span,
    ) -> Result<(T::Stub, Span), RequestError> {
        let (mut object, mut timeout) = (None, unless);
        for (parameter, value) in &setting.parameters {
            match parameter.as_str() {
                "object" | "" => object = Some(value),
                "timeout" => timeout = waiting(value)?,
                other => {
                    let what = format!("unknown parameter `{}` of `external`", other.escape_debug());
                    return Err(RequestError::refused(what, "use object or timeout"));
                }
            }
        }
        let object = object.ok_or_else(|| RequestError::refused("missing `object` of `external`", REFERENCE))?;
        Ok((self.reference::<T>(object)?, timeout))
    }

    fn reference<T: Interface + ?Sized>(&self, object: &str) -> Result<T::Stub, RequestError> {
        // Only references that need no lookup.
        if !object.starts_with("IOR:") && !object.starts_with("corbaloc:") {
            return Err(RequestError::refused("invalid `object` of `external`: not an IOR or corbaloc", REFERENCE));
        }
        self.orb
            .resolve_unchecked::<T>(object)
            .map_err(|error| RequestError::refused(format!("invalid `object` of `external`: {error}"), REFERENCE))
    }

    /// Ends all calls. Queued commands of schedulers are sent first.
    pub fn end(&self) {
        [&self.advocates, &self.policies].into_iter().for_each(|pool| pool.end());
        self.schedulers.end();
        self.schedulers.join();
        self.orb.shutdown();
    }
}

impl fmt::Debug for ExternalEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulletin").finish_non_exhaustive()
    }
}

impl fmt::Debug for Externals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Externals").finish_non_exhaustive()
    }
}

fn waiting(value: &str) -> Result<Span, RequestError> {
    let given = value.parse::<Span>().ok().filter(|given| TIMEOUTS.contains(given));
    given.ok_or_else(|| {
        let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
        let what = format!("invalid `timeout` of `external`: `{value}`");
        RequestError::refused(what, format!("use {least} to {most}"))
    })
}

/// The reason of a failed call.
fn failure_reason(error: &SystemException, timeout: Span) -> String {
    match error.kind {
        hyoshi_orb::SystemKind::Timeout => format!("no answer within {timeout}"),
        _ => error.to_string(),
    }
}

/// The printable start of a component's text.
fn printable(words: &str) -> String {
    hyoshi_model::printable(&words.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
}

/// Checks the answer of an external advocate: a request for the same period.
pub(crate) fn advised(answer: &wire::Reservation, asked: Reservation) -> Result<Reservation, String> {
    let wire::Reservation { budget, period, deadline } = *answer;
    if period != asked.period().as_nanos() {
        return Err(format!("it requested a period of {} instead of {}", Span::from_nanos(period), asked.period()));
    }
    let read = Reservation::new(Span::from_nanos(budget), asked.period());
    let read = read.and_then(|read| if deadline == 0 { Ok(read) } else { read.within(Span::from_nanos(deadline)) });
    read.map_err(|error| format!("it requested an invalid reservation: {error}"))
}

pub(crate) fn reservation(one: Reservation) -> wire::Reservation {
    let nanos = Span::as_nanos;
    wire::Reservation { budget: nanos(one.budget()), period: nanos(one.period()), deadline: nanos(one.deadline()) }
}
