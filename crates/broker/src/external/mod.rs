//! Advocates, policies and schedulers in other processes, in whatever language: called by object reference, timed out,
//! passed over.
//!
//! Nothing of the broker waits for them. What happens leaves a question; a thread of a pool asks it, and when the answer
//! has come the broker is driven again. Until then the answer before counts:
//!
//! ```text
//!              a question               answered in time: the broker decides with it
//!   Quiet ─────────────────► Asked ───────────────────────────────────────────────► Quiet, with an answer
//!     ▲                        │ late, or failed: passed over, and told
//!     │ rested                 ▼
//!     └──────────────────── Passed over (it rests; the longer, the more often it failed in a row)
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

/// Threads that ask advocates: as many stalled ones as that keep others waiting, for their timeouts.
const THREADS: usize = 4;
const DEFAULT_TIMEOUT: Span = Span::from_millis(5);
const TIMEOUTS: std::ops::RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(1_000);
/// Of what is told and waits to be printed; later notes are dropped.
const NOTICES: usize = 64;
const REFERENCE: &str = "use --object IOR:... or --object corbaloc:iiop:1.2@HOST:PORT/KEY";

/// What all that comes from elsewhere shares.
pub struct Externals {
    orb: Orb,
    advocates: Arc<CallPool>,
    policies: Arc<CallPool>,
    schedulers: Arc<CallPool>,
    events: Arc<ExternalEvents>,
}

/// What the broker and its threads tell each other.
#[derive(Default)]
pub(crate) struct ExternalEvents {
    on_event: OnceLock<Box<dyn Fn(ExternalEvent) + Send + Sync>>,
    notices: PiMutex<Vec<OperatorNotice>>,
    names: PiMutex<BTreeMap<TaskId, CString>>,
}

/// What there is news of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExternalEvent {
    /// One of this task's advocates.
    Task(TaskId),
    /// The policy.
    Policy,
    /// The scheduler.
    Scheduler,
}

/// What the operator should know, and the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperatorNotice {
    /// For the log: what has changed.
    pub change: &'static str,
    /// Whose.
    pub task: Option<String>,
    /// For the log: why.
    pub reason: String,
    /// For the operator.
    pub text: String,
}

impl OperatorNotice {
    /// An advocate is passed over, or answers again.
    pub fn of_advocate(kind: &str, task: &str, reason: Option<&str>) -> OperatorNotice {
        let (change, text) = match reason {
            Some(reason) => {
                ("advocate-bypassed", format!("the {kind} advocate of task `{task}` is bypassed: {reason}"))
            }
            None => ("advocate-answers", format!("the {kind} advocate of task `{task}` answers again")),
        };
        OperatorNotice { change, task: Some(task.to_owned()), reason: reason.unwrap_or_default().to_owned(), text }
    }

    /// A policy, such as `the external policy`, is passed over, or answers again.
    pub fn of_policy(label: &str, reason: Option<&str>) -> OperatorNotice {
        let (change, text) = match reason {
            Some(reason) => ("policy-bypassed", format!("{label} is bypassed: {reason}")),
            None => ("policy-answers", format!("{label} answers again")),
        };
        OperatorNotice { change, task: None, reason: reason.unwrap_or_default().to_owned(), text }
    }
}

impl ExternalEvents {
    /// The broker is driven when there are news.
    pub fn listen(&self, on_event: impl Fn(ExternalEvent) + Send + Sync + 'static) {
        // One broker listens; a second would be a slip that nobody notices.
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

    /// All that was noted since.
    pub fn take_notices(&self) -> Vec<OperatorNotice> {
        std::mem::take(&mut *self.notices.lock())
    }

    /// A task has come.
    pub fn add_task(&self, task: TaskId, name: &str) {
        // Names of tasks have no zeros.
        self.names.lock().insert(task, CString::new(name).unwrap_or_default());
    }

    /// A task has left.
    pub fn remove_task(&self, task: TaskId) {
        self.names.lock().remove(&task);
    }

    /// All names.
    pub fn names(&self) -> PiGuard<'_, BTreeMap<TaskId, CString>> {
        self.names.lock()
    }

    /// Empty if it has left.
    pub fn name_of(&self, task: TaskId) -> String {
        let names = self.names.lock();
        names.get(&task).map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }
}

impl Externals {
    /// None asked as yet.
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

    /// The object of a setting, and how long it is waited for: so long, unless the setting says otherwise.
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
        // Nothing that would be looked up, here or elsewhere.
        if !object.starts_with("IOR:") && !object.starts_with("corbaloc:") {
            return Err(RequestError::refused("invalid `object` of `external`: not an IOR or corbaloc", REFERENCE));
        }
        self.orb
            .resolve_unchecked::<T>(object)
            .map_err(|error| RequestError::refused(format!("invalid `object` of `external`: {error}"), REFERENCE))
    }

    /// Asks nobody any more. What schedulers have to be told yet they are told first, if they still listen.
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

/// Why there is no answer.
fn failure_reason(error: &SystemException, timeout: Span) -> String {
    match error.kind {
        hyoshi_orb::SystemKind::Timeout => format!("no answer within {timeout}"),
        _ => error.to_string(),
    }
}

/// What somebody says of themselves, as far as it can be printed.
fn printable(words: &str) -> String {
    hyoshi_model::printable(&words.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
}

/// What an advocate from elsewhere advises, if it is a request for the same period.
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
