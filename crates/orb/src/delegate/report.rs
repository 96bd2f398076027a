//! The reporting thread, a client of the broker's operations `own_task` and `report` (`crates/broker/idl/broker.idl`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Spawn};
use hyoshi_wire::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException, SystemKind};

use super::Counters;
use crate::interface::{ObjectRef, StubOperation};
use crate::limits::Timeouts;
use crate::raises::Raises;

/// The time limit for an answer of the broker.
const PATIENCE: Span = Span::from_secs(5);
/// The shortest time between reports, so that brief invocations do not load the broker.
const BETWEEN: Span = Span::from_millis(1);
/// The longest time between retries.
const LONGEST: Span = Span::from_secs(32);

const OWN_TASK: StubOperation = StubOperation::new("own_task");
const REPORT: StubOperation = StubOperation::new("report");

/// The reason why the broker does not accept reports.
#[derive(Debug)]
struct Failed(String);

impl From<SystemException> for Failed {
    fn from(exception: SystemException) -> Self {
        Failed(exception.to_string())
    }
}

/// The first member of NoSuchTask, NotAllowed and Refused is the reason.
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

/// Resolves an address, by an ORB with these time limits.
pub(super) type Resolve = dyn FnMut(&str, Timeouts) -> Result<ObjectRef, String> + Send;

pub(super) fn start(counters: Arc<Counters>, resolve: Box<Resolve>) -> io::Result<()> {
    let clock = MonotonicClock::start();
    let reporter = Reporter { counters, clock, resolve, rest: Span::ZERO, warned: None };
    Spawn::new("orb-delegate").spawn(move || reporter.run()).map(drop)
}

struct Reporter {
    counters: Arc<Counters>,
    clock: MonotonicClock,
    resolve: Box<Resolve>,
    /// The wait after the last failure.
    rest: Span,
    /// The last failure, of which standard error has a warning.
    warned: Option<String>,
}

impl Reporter {
    fn run(mut self) {
        while !self.ends() {
            if let Err(Failed(why)) = self.report() {
                if self.warned.as_ref() != Some(&why) {
                    let task = &self.counters.settings.task;
                    eprintln!("hyoshi: the broker does not accept reports of `{task}`: {why}");
                    self.warned = Some(why);
                }
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
        let broker = (self.resolve)(&settings.broker(), timeouts).map_err(Failed)?;
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
        if self.warned.take().is_some() {
            eprintln!("hyoshi: the broker accepts reports of `{}` again", settings.task);
        }
        // CPU time before the broker answered is too old to report.
        self.counters.take();
        self.rest = Span::ZERO;
        while !self.ends() {
            self.counters.wake.wait();
            let (consumed, cycles) = self.counters.take();
            if cycles > 0 {
                let arguments = |to: &mut Encoder| {
                    consumed.encode(to)?;
                    cycles.encode(to)?;
                    // No mode, no numbers.
                    (-1i64).encode(to)?;
                    to.length(0)
                };
                // The granted reservation, its result, is not read.
                task.as_ref().call::<_, Failed>(&REPORT, arguments, |_| Ok(()))?;
                self.clock.sleep_until(self.clock.now() + BETWEEN);
            }
        }
        Ok(())
    }
}

fn nilable(from: &mut Decoder<'_>) -> Result<Option<ObjectRef>, DecodeError> {
    Option::decode(from)
}
