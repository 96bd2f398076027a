//! Advocates in other processes. An answer has the task's chain gone through again ([`Status::demand`] is none then: nobody
//! learns twice from one report); after a failure the request goes on as it came.

use std::fmt;
use std::sync::Arc;

use hyoshi_control::{Advice, Advocate, Grant, Status, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::PiMutex;

use super::pool::{After, Asked};
use super::{About, Bulletin, DEFAULT_TIMEOUT, Externals, Note, advised, printable, reservation, why};
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Advocate as _, AdvocateStub};
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Failures in a row before it is left alone for a while.
const PATIENT: u32 = 3;

impl Externals {
    /// An advocate of a task.
    ///
    /// # Errors
    ///
    /// Of settings that name no object, or cannot be read.
    pub(crate) fn advocate(
        self: &Arc<Self>,
        setting: &Setting,
        task: TaskId,
        name: &str,
    ) -> Result<Box<dyn Advocate>, Trouble> {
        let (stub, timeout) = self.object::<dyn wire::Advocate>(setting, DEFAULT_TIMEOUT)?;
        self.advocates.start()?;
        let exchange = Exchange {
            task,
            name: name.to_owned(),
            stub: stub.within(timeout),
            timeout,
            bulletin: self.bulletin.clone(),
            talk: PiMutex::default(),
        };
        Ok(Box::new(External { externals: self.clone(), exchange: Arc::new(exchange) }))
    }
}

/// One advocate in another process, between the broker's thread and those that ask.
struct Exchange {
    task: TaskId,
    name: String,
    stub: AdvocateStub,
    timeout: Span,
    bulletin: Arc<Bulletin>,
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

impl Asked for Exchange {
    fn talk_once(&self) -> Option<About> {
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
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut talk = self.talk.lock();
        if words.is_some() {
            talk.words = words;
        }
        match answered.map_err(|error| why(&error, self.timeout)).and_then(|answer| advised(&answer, asked)) {
            Ok(answer) => {
                (talk.answer, talk.failures) = (Some(answer), 0);
                if talk.failed.take().is_some() {
                    self.bulletin.note(Note::of_advocate("external", &self.name, None));
                }
            }
            Err(why) => {
                if talk.failed.is_none() {
                    self.bulletin.note(Note::of_advocate("external", &self.name, Some(&why)));
                }
                talk.answer = None;
                talk.failures += 1;
                if talk.failures >= PATIENT {
                    talk.rests = status.at + Span::from_secs(1 << (talk.failures - PATIENT).min(5));
                }
                talk.failed = Some(why);
            }
        }
        Some(About::Task(self.task))
    }

    fn after(&self) -> After {
        let mut talk = self.talk.lock();
        talk.busy = talk.question.is_some() || talk.grant.is_some();
        if talk.busy { After::Again } else { After::Over }
    }

    fn give_up(&self) {
        let mut talk = self.talk.lock();
        (talk.busy, talk.question, talk.answer) = (false, None, None);
    }
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
                if !self.externals.advocates.ask(self.exchange.clone()) {
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
            if !self.externals.advocates.ask(self.exchange.clone()) {
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
