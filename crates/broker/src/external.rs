//! Advocates in other processes, in whatever language: called by object reference, timed out, passed over.
//!
//! Nothing of the broker waits for them. A report leaves a question; a thread of these asks it, and when the answer has come
//! the task's chain is gone through again ([`Status::demand`] is none then: nobody learns twice from one report).
//! Until then the answer to the report before counts, and after a failure the request goes on as it came:
//!
//! ```text
//!              a report                     answered in time: the chain again
//!   Quiet ─────────────────► Asked ───────────────────────────────────────────────► Quiet, with an answer
//!     ▲                        │ late, or failed: the request passes as it came
//!     │ rested                 ▼
//!     └──────────────────── Passed over (after three in a row it rests 1 s, then 2 s, ... 32 s)
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_control::{Advice, Advocate, Grant, Status, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_orb::{Orb, OrbError, SystemException, Timeouts};
use hyoshi_os::{PiMutex, Policy, Spawn, Thread, Wake, priority};

use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Advocate as _, AdvocateStub};
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Threads that ask: as many stalled advocates as that keep others waiting, for their timeouts.
const THREADS: usize = 4;
/// Questions that wait; beyond, requests go on as they came.
const QUESTIONS: usize = 1_024;
/// Failures in a row before it is left alone for a while.
const PATIENT: u32 = 3;
const DEFAULT_TIMEOUT: Span = Span::from_millis(5);
const TIMEOUTS: std::ops::RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(1_000);

/// What asks.
pub(crate) struct Externals {
    orb: Orb,
    queue: PiMutex<VecDeque<Arc<Exchange>>>,
    wake: Wake,
    ends: AtomicBool,
    threads: PiMutex<Vec<Thread<()>>>,
    told: Box<dyn Fn(TaskId, Option<String>) + Send + Sync>,
}

impl Externals {
    /// None asked as yet. `told` hears of tasks for which an answer has come, and of what the operator should know.
    pub fn new(told: impl Fn(TaskId, Option<String>) + Send + Sync + 'static) -> Result<Arc<Externals>, OrbError> {
        let timeouts = Timeouts { connect: Span::from_millis(100), ..Timeouts::default() };
        Ok(Arc::new(Externals {
            orb: Orb::builder().timeouts(timeouts).build()?,
            queue: PiMutex::new(VecDeque::new()),
            wake: Wake::new(),
            ends: AtomicBool::new(false),
            threads: PiMutex::new(Vec::new()),
            told: Box::new(told),
        }))
    }

    /// An advocate of a task.
    ///
    /// # Errors
    ///
    /// Of settings that name no object, or cannot be read.
    pub fn advocate(
        self: &Arc<Self>,
        setting: &Setting,
        task: TaskId,
        name: &str,
    ) -> Result<Box<dyn Advocate>, Trouble> {
        let (mut object, mut timeout) = (None, DEFAULT_TIMEOUT);
        for (parameter, value) in &setting.parameters {
            match parameter.as_str() {
                "object" => object = Some(value),
                "timeout" => {
                    let given = value.parse::<Span>().ok().filter(|given| TIMEOUTS.contains(given));
                    timeout = given.ok_or_else(|| {
                        let (least, most) = (TIMEOUTS.start(), TIMEOUTS.end());
                        let what = format!("`timeout` of `external`: `{value}` is no time that can be waited for");
                        Trouble::refused(what, format!("give {least} to {most}"))
                    })?;
                }
                other => {
                    let what = format!("`external` has no parameter `{}`", other.escape_debug());
                    return Err(Trouble::refused(what, "its parameters are object, timeout"));
                }
            }
        }
        let remedy = "give the object's reference: --object IOR:... or corbaloc:iiop:1.2@HOST:PORT/KEY";
        let object = object.ok_or_else(|| Trouble::refused("`external` needs its `object`", remedy))?;
        // Nothing that would be looked up, here or elsewhere.
        if !object.starts_with("IOR:") && !object.starts_with("corbaloc:") {
            return Err(Trouble::refused("`object` of `external` is no reference", remedy));
        }
        let stub = self.orb.resolve_unchecked::<dyn wire::Advocate>(object).map_err(|error| {
            Trouble::refused(format!("`object` of `external` is no reference that can be read: {error}"), remedy)
        })?;
        self.start()?;
        let exchange =
            Exchange { task, name: name.to_owned(), stub: stub.within(timeout), timeout, talk: PiMutex::default() };
        Ok(Box::new(External { externals: self.clone(), exchange: Arc::new(exchange) }))
    }

    /// Starts the threads, if they do not run.
    fn start(self: &Arc<Self>) -> Result<(), Trouble> {
        let mut threads = self.threads.lock();
        while threads.len() < THREADS {
            let externals = self.clone();
            // As urgent as the broker: an answer that is late for want of the CPU helps nobody.
            let spawn = Spawn::new(format!("external-{}", threads.len())).policy(Policy::Fifo(priority::BROKER));
            let thread = spawn.spawn(move || externals.work());
            threads.push(thread.map_err(|error| {
                Trouble::refused(
                    format!("no thread for external advocates: {error}"),
                    "end some of the system's threads",
                )
            })?);
        }
        Ok(())
    }

    fn ask(&self, exchange: &Arc<Exchange>) -> bool {
        let mut queue = self.queue.lock();
        if queue.len() >= QUESTIONS {
            return false;
        }
        queue.push_back(exchange.clone());
        drop(queue);
        self.wake.post();
        true
    }

    fn work(&self) {
        loop {
            self.wake.wait();
            if self.ends.load(Ordering::Acquire) {
                // The next thread shall see that it is over, too.
                self.wake.post();
                return;
            }
            let (exchange, more) = {
                let mut queue = self.queue.lock();
                (queue.pop_front(), !queue.is_empty())
            };
            // Posts coalesce: others look for what is left.
            if more {
                self.wake.post();
            }
            let Some(exchange) = exchange else { continue };
            if let Some(notice) = exchange.talk_once() {
                (self.told)(exchange.task, notice);
            }
            if !exchange.is_over() && !self.ask(&exchange) {
                exchange.give_up();
            }
        }
    }

    /// Asks nobody any more.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake.post();
        self.orb.shutdown();
    }
}

/// One advocate in another process, between the broker's thread and those that ask.
struct Exchange {
    task: TaskId,
    name: String,
    stub: AdvocateStub,
    timeout: Span,
    talk: PiMutex<Talk>,
}

#[derive(Default)]
struct Talk {
    question: Option<(Status, Reservation)>,
    grant: Option<wire::Outcome>,
    /// Somebody has it in the queue, or is asking.
    busy: bool,
    answer: Option<Reservation>,
    /// What it says of itself.
    words: Option<String>,
    failed: Option<String>,
    failures: u32,
    /// Until then it is not asked.
    rests: Instant,
}

impl Exchange {
    /// Asks what there is to ask. Some if the task's chain is to be gone through again, perhaps with a notice.
    fn talk_once(&self) -> Option<Option<String>> {
        let (question, grant, introduced) = {
            let mut talk = self.talk.lock();
            (talk.question.take(), talk.grant.take(), talk.words.is_some())
        };
        if let Some(grant) = grant {
            // Told, not asked: what becomes of it is the advocate's.
            let _ = self.stub.granted(&self.name, &grant);
        }
        let (status, asked) = question?;
        let answered = self.stub.advise(&self.name, &to_wire(&status), &reservation(asked));
        let words = match answered.is_ok() && !introduced {
            true => {
                self.stub.describe().ok().map(|words| words.chars().filter(|c| !c.is_control()).take(200).collect())
            }
            false => None,
        };
        let mut talk = self.talk.lock();
        if words.is_some() {
            talk.words = words;
        }
        match answered.map_err(|error| self.why(&error)).and_then(|answer| read(&answer, asked)) {
            Ok(answer) => {
                let again = talk.failed.take().is_some();
                (talk.answer, talk.failures) = (Some(answer), 0);
                Some(again.then(|| format!("the external advocate of `{}` answers again", self.name)))
            }
            Err(why) => {
                let first = talk.failed.is_none();
                talk.answer = None;
                talk.failures += 1;
                if talk.failures >= PATIENT {
                    talk.rests = status.at + Span::from_secs(1 << (talk.failures - PATIENT).min(5));
                }
                let notice = format!("the external advocate of `{}` is passed over: {why}", self.name);
                talk.failed = Some(why);
                Some(first.then_some(notice))
            }
        }
    }

    /// Nothing came while it was asked. One thread at a time asks one advocate, so that a slow one has no more than that.
    fn is_over(&self) -> bool {
        let mut talk = self.talk.lock();
        talk.busy = talk.question.is_some() || talk.grant.is_some();
        !talk.busy
    }

    /// There is no room for its question.
    fn give_up(&self) {
        let mut talk = self.talk.lock();
        (talk.busy, talk.question, talk.answer) = (false, None, None);
    }

    fn why(&self, error: &SystemException) -> String {
        match error.kind {
            hyoshi_orb::SystemKind::Timeout => format!("no answer within {}", self.timeout),
            _ => error.to_string(),
        }
    }
}

/// What it advises, if it is a request for the same period.
fn read(answer: &wire::Reservation, asked: Reservation) -> Result<Reservation, String> {
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

fn to_wire(status: &Status) -> wire::Status {
    let nothing = wire::Reservation { budget: 0, period: 0, deadline: 0 };
    wire::Status {
        at: status.at.as_nanos(),
        consumed: status.consumed.as_nanos(),
        cycles: status.cycles,
        held: status.held.map_or(nothing, reservation),
        mode: status.mode.map_or(-1, i64::from),
        numbers: status.values.as_slice().to_vec(),
    }
}

/// Its place in a chain.
struct External {
    externals: Arc<Externals>,
    exchange: Arc<Exchange>,
}

impl Advocate for External {
    fn name(&self) -> &'static str {
        "external"
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        let mut talk = self.exchange.talk.lock();
        let answer = talk.answer.filter(|answer| answer.period() == asked.period());
        if status.demand().is_some() && talk.rests <= status.at {
            talk.question = Some((*status, asked));
            if !talk.busy {
                talk.busy = true;
                drop(talk);
                if !self.externals.ask(&self.exchange) {
                    self.exchange.give_up();
                    return asked.into();
                }
            }
        }
        answer.unwrap_or(asked).into()
    }

    fn granted(&mut self, grant: &Grant) {
        let mut talk = self.exchange.talk.lock();
        let held =
            grant.reservation.map_or_else(|| wire::Reservation { budget: 0, ..reservation(grant.asked) }, reservation);
        talk.grant = Some(wire::Outcome { asked: reservation(grant.asked), held, because: String::new() });
        if !talk.busy {
            talk.busy = true;
            drop(talk);
            if !self.externals.ask(&self.exchange) {
                self.exchange.give_up();
            }
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let talk = self.exchange.talk.lock();
        match (&talk.failed, &talk.words, talk.answer) {
            (Some(why), ..) => write!(f, "passed over, {why}"),
            (None, Some(words), _) => f.write_str(words),
            (None, None, Some(_)) => f.write_str("another process answers"),
            (None, None, None) => f.write_str("asked, no answer yet"),
        }
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("task", &self.exchange.name).finish_non_exhaustive()
    }
}
