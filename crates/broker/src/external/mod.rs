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
mod orders;
mod policy;
mod pool;
mod scheduler;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, OnceLock};

use hyoshi_control::TaskId;
use hyoshi_model::{Reservation, Span};
use hyoshi_orb::{Interface, Orb, OrbError, SystemException, Timeouts};
use hyoshi_os::{PiGuard, PiMutex};

use crate::idl::cpu_broker as wire;
use crate::setting::Setting;
use crate::trouble::Trouble;
use pool::Pool;

/// Threads that ask advocates: as many stalled ones as that keep others waiting, for their timeouts.
const THREADS: usize = 4;
const DEFAULT_TIMEOUT: Span = Span::from_millis(5);
const TIMEOUTS: std::ops::RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(1_000);
/// Of what is told and waits to be printed; later notes are dropped.
const NOTES: usize = 64;
const REFERENCE: &str = "give the object's reference: --object IOR:... or corbaloc:iiop:1.2@HOST:PORT/KEY";

/// What all that comes from elsewhere shares.
pub struct Externals {
    orb: Orb,
    advocates: Arc<Pool>,
    policies: Arc<Pool>,
    schedulers: Arc<Pool>,
    bulletin: Arc<Bulletin>,
}

/// What the broker and its threads tell each other.
#[derive(Default)]
pub(crate) struct Bulletin {
    told: OnceLock<Box<dyn Fn(About) + Send + Sync>>,
    notes: PiMutex<Vec<Note>>,
    names: PiMutex<BTreeMap<TaskId, CString>>,
}

/// What there is news of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// One of this task's advocates.
    Task(TaskId),
    /// The policy.
    Policy,
    /// The scheduler.
    Scheduler,
}

/// What the operator should know, and the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// For the log: what has changed.
    pub change: &'static str,
    /// Whose.
    pub task: Option<String>,
    /// For the log: why.
    pub why: String,
    /// For the operator.
    pub text: String,
}

impl Note {
    /// An advocate is passed over, or answers again.
    pub fn of_advocate(kind: &str, task: &str, why: Option<&str>) -> Note {
        let (change, text) = match why {
            Some(why) => ("advocate-passed-over", format!("the {kind} advocate of `{task}` is passed over: {why}")),
            None => ("advocate-answers", format!("the {kind} advocate of `{task}` answers again")),
        };
        Note { change, task: Some(task.to_owned()), why: why.unwrap_or_default().to_owned(), text }
    }

    /// A policy, such as `the external policy`, is passed over, or answers again.
    pub fn of_policy(which: &str, why: Option<&str>) -> Note {
        let (change, text) = match why {
            Some(why) => ("policy-passed-over", format!("{which} is passed over: {why}")),
            None => ("policy-answers", format!("{which} answers again")),
        };
        Note { change, task: None, why: why.unwrap_or_default().to_owned(), text }
    }
}

impl Bulletin {
    /// The broker is driven when there are news.
    pub fn listen(&self, told: impl Fn(About) + Send + Sync + 'static) {
        // One broker listens; a second would be a slip that nobody notices.
        let _ = self.told.set(Box::new(told));
    }

    fn tell(&self, about: About) {
        if let Some(told) = self.told.get() {
            told(about);
        }
    }

    pub fn note(&self, note: Note) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES {
            notes.push(note);
        }
    }

    /// All that was noted since.
    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes.lock())
    }

    /// A task has come.
    pub fn name(&self, task: TaskId, name: &str) {
        // Names of tasks have no zeros.
        self.names.lock().insert(task, CString::new(name).unwrap_or_default());
    }

    /// A task has left.
    pub fn forget(&self, task: TaskId) {
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
        let bulletin = Arc::new(Bulletin::default());
        Ok(Arc::new(Externals {
            orb: Orb::builder().timeouts(timeouts).build()?,
            advocates: Pool::new("advocates", THREADS, &bulletin),
            policies: Pool::new("policy", 1, &bulletin),
            schedulers: Pool::new("scheduler", 1, &bulletin),
            bulletin,
        }))
    }

    pub(crate) fn bulletin(&self) -> &Arc<Bulletin> {
        &self.bulletin
    }

    /// The object of a setting, and how long it is waited for: so long, unless the setting says otherwise.
    fn object<T: Interface + ?Sized>(&self, setting: &Setting, unless: Span) -> Result<(T::Stub, Span), Trouble> {
        let (mut object, mut timeout) = (None, unless);
        for (parameter, value) in &setting.parameters {
            match parameter.as_str() {
                "object" | "" => object = Some(value),
                "timeout" => timeout = waiting(value)?,
                other => {
                    let what = format!("`external` has no parameter `{}`", other.escape_debug());
                    return Err(Trouble::refused(what, "its parameters are object, timeout"));
                }
            }
        }
        let object = object.ok_or_else(|| Trouble::refused("`external` needs its `object`", REFERENCE))?;
        Ok((self.reference::<T>(object)?, timeout))
    }

    fn reference<T: Interface + ?Sized>(&self, object: &str) -> Result<T::Stub, Trouble> {
        // Nothing that would be looked up, here or elsewhere.
        if !object.starts_with("IOR:") && !object.starts_with("corbaloc:") {
            return Err(Trouble::refused("`object` of `external` is no reference", REFERENCE));
        }
        self.orb.resolve_unchecked::<T>(object).map_err(|error| {
            Trouble::refused(format!("`object` of `external` is no reference that can be read: {error}"), REFERENCE)
        })
    }

    /// Asks nobody any more. What schedulers have to be told yet they are told first, if they still listen.
    pub fn end(&self) {
        [&self.advocates, &self.policies].into_iter().for_each(|pool| pool.end());
        self.schedulers.end();
        self.schedulers.join();
        self.orb.shutdown();
    }
}

impl fmt::Debug for Bulletin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulletin").finish_non_exhaustive()
    }
}

impl fmt::Debug for Externals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Externals").finish_non_exhaustive()
    }
}

fn waiting(value: &str) -> Result<Span, Trouble> {
    let given = value.parse::<Span>().ok().filter(|given| TIMEOUTS.contains(given));
    given.ok_or_else(|| {
        let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
        let what = format!("`timeout` of `external`: `{value}` is no time that can be waited for");
        Trouble::refused(what, format!("give {least} to {most}"))
    })
}

/// Why there is no answer.
fn why(error: &SystemException, timeout: Span) -> String {
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
        return Err(format!("it asks for a period of {}, not {}", Span::from_nanos(period), asked.period()));
    }
    let read = Reservation::new(Span::from_nanos(budget), asked.period());
    let read = read.and_then(|read| if deadline == 0 { Ok(read) } else { read.within(Span::from_nanos(deadline)) });
    read.map_err(|error| format!("it asks for what cannot be reserved: {error}"))
}

pub(crate) fn reservation(one: Reservation) -> wire::Reservation {
    let nanos = Span::as_nanos;
    wire::Reservation { budget: nanos(one.budget()), period: nanos(one.period()), deadline: nanos(one.deadline()) }
}
