//! The thread that reports: as a client of the broker, of which it knows two operations (`own_task` and `report` of
//! `crates/broker/idl/broker.idl`).

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Spawn};
use hyoshi_wire::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException, SystemKind};

use super::Counters;
use crate::interface::Operation;
use crate::limits::Timeouts;
use crate::object::ObjectRef;
use crate::raises::Raises;

/// How long the broker may take for an answer.
const PATIENCE: Span = Span::from_secs(5);
/// From one report to the next: brief invocations shall not keep the broker busy.
const BETWEEN: Span = Span::from_millis(1);
/// The longest wait before it is tried again.
const LONGEST: Span = Span::from_secs(32);

const OWN_TASK: Operation = Operation::new("own_task");
const REPORT: Operation = Operation::new("report");

/// Why the broker takes no report.
#[derive(Debug)]
struct Failed(String);

impl From<SystemException> for Failed {
    fn from(exception: SystemException) -> Self {
        Failed(exception.to_string())
    }
}

/// NoSuchTask, NotAllowed and Refused all begin with the text.
impl Raises for Failed {
    fn decode(_: &str, from: &mut Decoder<'_>) -> Option<Result<Self, DecodeError>> {
        Some(String::decode(from).map(Failed))
    }

    fn id(&self) -> &'static str {
        "IDL:CpuBroker/Refused:1.0"
    }

    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.0.encode(to)
    }

    fn system(&self) -> Option<&SystemException> {
        None
    }
}

/// Resolves the broker's address, with an ORB that lives as long as the first value.
pub(crate) type Resolve = fn(&str, Timeouts) -> Result<(Box<dyn Any>, ObjectRef), String>;

pub(super) fn start(counters: Arc<Counters>, resolve: Resolve) -> io::Result<()> {
    Spawn::new("orb-delegate").spawn(move || Reporter::new(counters, resolve).run()).map(drop)
}

struct Reporter {
    counters: Arc<Counters>,
    resolve: Resolve,
    clock: MonotonicClock,
    /// After the last failure.
    rest: Span,
    /// What was said of it: once for each.
    said: Option<String>,
}

impl Reporter {
    fn new(counters: Arc<Counters>, resolve: Resolve) -> Self {
        Reporter { counters, resolve, clock: MonotonicClock::start(), rest: Span::ZERO, said: None }
    }

    fn run(mut self) {
        while !self.ends() {
            if let Err(Failed(what)) = self.report() {
                self.tell(what);
                self.rest = (self.rest + self.rest).clamp(Span::from_secs(1), LONGEST);
                let again = self.clock.now() + self.rest;
                while !self.ends() && self.clock.now() < again {
                    self.counters.wake.wait_until(&self.clock, again);
                }
            }
        }
    }

    fn ends(&self) -> bool {
        self.counters.ends.load(Ordering::Acquire)
    }

    /// Reports until the delegate ends, or something fails.
    fn report(&mut self) -> Result<(), Failed> {
        let timeouts = Timeouts { connect: PATIENCE, round_trip: Some(PATIENCE), reply: None };
        let settings = &self.counters.settings;
        let (_orb, broker) = (self.resolve)(&settings.broker(), timeouts).map_err(Failed)?;
        let task = broker.as_ref().call::<_, Failed>(
            &OWN_TASK,
            |to| {
                settings.task.encode(to)?;
                settings.period.as_nanos().encode(to)?;
                settings.importance.encode(to)
            },
            nilable,
        )?;
        let task = task.ok_or_else(|| SystemKind::InvObjref.not_done(0))?;
        if self.said.take().is_some() {
            eprintln!("hyoshi: the broker takes reports of `{}` again", settings.task);
        }
        // What came meanwhile is of a time that nobody asks for any more.
        self.counters.take();
        self.rest = Span::ZERO;
        while !self.ends() {
            self.counters.wake.wait();
            let (consumed, cycles) = self.counters.take();
            if cycles > 0 {
                tell(&task, consumed, cycles)?;
                self.clock.sleep_until(self.clock.now() + BETWEEN);
            }
        }
        Ok(())
    }

    fn tell(&mut self, what: String) {
        if self.said.as_ref() != Some(&what) {
            eprintln!("hyoshi: the broker takes no reports of `{}`: {what}", self.counters.settings.task);
            self.said = Some(what);
        }
    }
}

fn nilable(from: &mut Decoder<'_>) -> Result<Option<ObjectRef>, DecodeError> {
    Option::decode(from)
}

/// `Task::report`, without what is granted.
fn tell(task: &ObjectRef, consumed: u64, cycles: u32) -> Result<(), Failed> {
    task.as_ref().call::<_, Failed>(
        &REPORT,
        |to| {
            consumed.encode(to)?;
            cycles.encode(to)?;
            // No mode, no numbers.
            (-1i64).encode(to)?;
            to.length(0)
        },
        |_| Ok(()),
    )
}
