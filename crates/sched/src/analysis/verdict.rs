//! The verdicts: proved, fails, or unknown. An unanalysed case is never proved.

use alloc::string::String;
use core::fmt;

use hyoshi_model::{COPIES_APART, Span};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The verdict on an operation, a processor or a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Every job meets its deadline, under the assumptions that the report lists.
    Proved,
    /// Some behaviour that the file allows misses a deadline.
    Fails {
        /// How.
        why: FailureReason,
    },
    /// Neither was shown.
    Unknown {
        /// The missing part of the proof.
        missing: Missing,
    },
}

impl Verdict {
    /// True for [`Verdict::Proved`].
    pub fn is_proved(&self) -> bool {
        *self == Verdict::Proved
    }

    /// True for [`Verdict::Fails`].
    pub fn fails(&self) -> bool {
        matches!(self, Verdict::Fails { .. })
    }

    pub(super) fn unknown(missing: Missing) -> Verdict {
        Verdict::Unknown { missing }
    }

    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Proved => "proved",
            Verdict::Fails { .. } => "fails",
            Verdict::Unknown { .. } => "unknown",
        }
    }
}

/// Writes `verdict` and `reason`, if there is one, into the object around it.
pub(super) fn serialise_verdict<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("verdict", verdict.word())?;
    match verdict {
        Verdict::Proved => {}
        Verdict::Fails { why } => map.serialize_entry("reason", &format_args!("{why}"))?,
        Verdict::Unknown { missing } => map.serialize_entry("reason", &format_args!("{missing}"))?,
    }
    map.end()
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialise_verdict(self, serializer)
    }
}

/// Why a verdict is *fails*.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// The worst case alone, with its predecessors, does not fit.
    LongerThanDeadline {
        /// The least time that a job of the worst case needs.
        needs: Span,
        /// The deadline.
        deadline: Span,
    },
    /// All releases coincide at the start, and its first job is late.
    FirstJobLate {
        /// A lower bound on when its first job finishes, counted from the common release.
        finish: Span,
        /// The deadline.
        deadline: Span,
    },
    /// The worst cases need more than the CPU, if the epoch lasts.
    Overload {
        /// Of worst cases, in parts per million.
        utilisation_ppm: u64,
        /// True if those of critical jobs alone do.
        critical: bool,
    },
    /// All releases coincide at the start, and more work must be done within a window than fits.
    Demand {
        /// The work.
        demand: Span,
        /// Within this.
        window: Span,
    },
    /// A job was late, dropped or stopped in a simulation of a behaviour that the file allows.
    Seen {
        /// Its release number.
        job: u64,
        /// When it ended, from the start of the behaviour.
        at: Span,
        /// By how much it was late; `None` if it was dropped or stopped.
        late: Option<Span>,
        /// The behaviour's number: see [`behaviour`](super::behaviour()).
        behaviour: u32,
    },
    /// An operation fails.
    Operation {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureReason::LongerThanDeadline { needs, deadline } => {
                write!(f, "needs {needs} by itself, the deadline is {deadline}")
            }
            FailureReason::FirstJobLate { finish, deadline } => {
                write!(
                    f,
                    "its first job finishes at {finish} or later after the common release, the deadline is {deadline}"
                )
            }
            FailureReason::Overload { utilisation_ppm, critical } => {
                let worst_cases = if *critical { "worst cases of critical jobs alone" } else { "worst cases" };
                write!(
                    f,
                    "{worst_cases} need {}.{:02} % of the CPU",
                    utilisation_ppm / 10_000,
                    utilisation_ppm / 100 % 100
                )
            }
            FailureReason::Demand { demand, window } => {
                write!(f, "{demand} must be done within {window} of the common release")
            }
            FailureReason::Seen { job, late: Some(late), .. } => {
                write!(
                    f,
                    "its job {job} finishes {late} after its deadline in a simulated behaviour that the file allows"
                )
            }
            FailureReason::Seen { job, late: None, .. } => {
                write!(f, "its job {job} is dropped or stopped in a simulated behaviour that the file allows")
            }
            FailureReason::Operation { name } => write!(f, "{name} fails"),
        }
    }
}

/// The missing part of the proof.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The analysis is only sufficient, and its bound exceeds the deadline.
    BoundExceedsDeadline,
    /// There may be more work than fits into some window, in a behaviour that may not occur.
    DemandExceedsWindow {
        /// The window.
        window: Span,
    },
    /// Operations that are at least as urgent need more than the CPU.
    Overload,
    /// Operations that may be at least as urgent on either side of a switch or change need more than the CPU.
    OverloadAcross,
    /// Utilisation is exactly 1 (or too close to decide), with jitter or blocking: the busy window has no bound.
    FullLoad,
    /// A busy window too long to search.
    LongWindow,
    /// A level with so many operations that analysing each separately is too slow.
    LargeLevel {
        /// Their number.
        operations: usize,
    },
    /// Sums leave 64 bits.
    Overflow,
    /// An operation that interferes has no bound on its releases.
    Interference {
        /// Its name.
        name: String,
    },
    /// Nothing bounds how often requests release an operation.
    Requests {
        /// Its name.
        name: String,
    },
    /// The body of an operation calls objects that the file does not name.
    Calls {
        /// Its name.
        name: String,
    },
    /// A feedback loop adapts rates, and with them the order of priorities.
    Rates,
    /// It fails at the highest rates, which a contract limits.
    HighestRates,
    /// A contract limits a rate, and with it changes the order of priorities.
    ChangedOrder {
        /// The operation with this rate.
        name: String,
        /// What no analysis of this order covers.
        why: &'static str,
    },
    /// A contract changes the rate of an operation on the way to one that samples values.
    LimitedSamples {
        /// The operation.
        name: String,
    },
    /// A contract disables an operation on the way, so some inputs lead to no output.
    Disabled {
        /// The operation.
        name: String,
    },
    /// It fails at the largest service levels, which a feedback loop lowers under load.
    Levels,
    /// A feedback loop sets the rate of each registered client of an operation, and several may send at once.
    Clients {
        /// Its name.
        name: String,
    },
    /// An operation may move between processors. On arrival, several of its jobs may be released at once.
    Moves {
        /// Its name.
        name: String,
        /// Its name in the file.
        declared: String,
    },
    /// Nothing bounds the time between requests that lead to an operation.
    RareRequests {
        /// Its name.
        name: String,
    },
    /// With exact clocks it would be proved.
    ClockErrors,
    /// A predecessor has no bound on its response.
    Predecessor {
        /// Its name.
        name: String,
    },
    /// A trigger with a rate that no analysis here bounds.
    Trigger {
        /// The operation.
        name: String,
    },
    /// A join of operations with different roots, without a bound on how long they wait for each other.
    Join {
        /// The operation.
        name: String,
        /// The missing part.
        why: String,
    },
    /// A guard behind an `any` trigger, or merges of merges with very many paths.
    Streams,
    /// Fully preemptive laxity, without a tested bound.
    PreemptiveLaxity,
    /// The bound is within the deadline and held in tests, but we know of no proof.
    TestedOnly,
    /// Waiting for a resource of another processor.
    RemoteResource {
        /// The resource.
        name: String,
    },
    /// A job may start after the end of its lifespan, and is then dropped.
    Expires {
        /// The operation.
        name: String,
        /// The latest finish of a job, from its origin.
        finish: Span,
        /// The lifespan.
        lifespan: Span,
    },
    /// A release may find the last job unfinished, and the operation then skips it.
    Busy {
        /// The operation.
        name: String,
        /// This many jobs before it may be unfinished.
        unfinished: u64,
        /// From the origin to the finish of a job at the latest.
        finish: Span,
    },
    /// More jobs may be pending than the operation's queue holds.
    Full {
        /// The operation.
        name: String,
        /// At most this many.
        at_once: u64,
        /// Its `queue.limit`.
        limit: u64,
    },
    /// A join may skip completions that arrive out of order.
    PassedOver {
        /// The operation.
        name: String,
    },
    /// A copy may arrive so late that its release number is forgotten.
    CopiesApart {
        /// The operation after the copies.
        name: String,
        /// The first and the last copy may arrive this many periods apart.
        apart: u64,
    },
    /// A body may choose not to release an operation, so the time between its releases has no bound.
    Chosen {
        /// The operation.
        name: String,
    },
    /// An operation's response has no bound.
    Unbounded {
        /// Its name.
        name: String,
    },
    /// A predecessor's jobs may be cancelled.
    CancelledBefore {
        /// Its name.
        name: String,
    },
    /// A predecessor's jobs may miss their deadlines, and then its `on_miss` stops or skips jobs.
    LateBefore {
        /// Its name.
        name: String,
    },
    /// The cap may delay jobs.
    Cap {
        /// The processor.
        processor: String,
        /// The non-critical operation that it may delay, and that delays this one; `None` if it is this one.
        held: Option<String>,
        /// The resource by which it delays this one, if it is less urgent.
        resource: Option<String>,
        /// The smallest cap, in percent, that never acts.
        enough: u32,
        /// The keys that must be raised to it.
        keys: &'static str,
    },
    /// Critical work may use up the hard cap for so long that the processor's `on_hard_cap` demotes some of it.
    HardCap {
        /// The processor.
        processor: String,
    },
    /// The cap leaves too little for critical work alone.
    CapTooSmall {
        /// The processor.
        processor: String,
    },
    /// Its non-critical legs are more urgent than its critical ones.
    LegOrder,
    /// The jobs may be cancelled; for a non-critical operation this is not a failure.
    Cancelled,
    /// A change of epoch that alters this.
    Change {
        /// The change.
        what: &'static str,
    },
    /// A region shorter than the pending work of the one before it: jobs of three regions may meet.
    ShortRegion {
        /// Its name.
        name: String,
    },
    /// An operation is not proved.
    Operation {
        /// Its name.
        name: String,
    },
    /// Values of an operation that is read may arrive in another order than their inputs.
    Overtaking {
        /// The operation.
        name: String,
    },
    /// Late outputs are not flushed to the replica that is read.
    LateOutput {
        /// The operation.
        name: String,
    },
    /// The deadline at which outputs are flushed does not count from the release that led to them.
    FlushPoint {
        /// The operation.
        name: String,
    },
    /// Its last value ages while it is switched off.
    SwitchedOff {
        /// The operation.
        name: String,
    },
    /// A period of zero.
    NoPeriod,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::BoundExceedsDeadline => f.write_str("the bound exceeds the deadline, but may not be reached"),
            Missing::DemandExceedsWindow { window } => {
                let micros = window.as_nanos().div_ceil(1_000);
                let window = hyoshi_model::Span::from_micros(micros);
                write!(f, "could overload a window of {window}; not shown to happen")
            }
            Missing::Overload => f.write_str("it and more urgent operations need more than the CPU"),
            Missing::OverloadAcross => f.write_str(
                "operations that may be as urgent on either side of a switch or change need more than the \
                    CPU",
            ),
            Missing::FullLoad => {
                f.write_str("utilisation of exactly 1 with jitter or blocking: no bound on the busy window")
            }
            Missing::LongWindow => f.write_str("the busy window is too long to search: utilisation is very close to 1"),
            Missing::LargeLevel { operations } => {
                write!(f, "its level has {operations} operations, too many to search one by one")
            }
            Missing::Overflow => f.write_str("times too long for 64 bits of nanoseconds"),
            Missing::Interference { name } => write!(f, "no bound on how often {name} interferes"),
            Missing::Requests { name } => {
                write!(f, "no bound on how often requests release {name}: add `min_interval` to it")
            }
            Missing::Calls { name } => {
                write!(f, "{name} may call any object and wait for it: name the method in its `calls`")
            }
            Missing::Rates => f.write_str(
                "a feedback loop changes its rate, or that of a more urgent operation: fix the rates, for example with \
                 `hyoshi run --freeze`, to check the result",
            ),
            Missing::HighestRates => f.write_str(
                "late at the highest rates, which a contract limits; no analysis shows that it limits them in time",
            ),
            Missing::ChangedOrder { name, why } => write!(
                f,
                "a contract limits the rate of {name}, and so changes the order of priorities: no analysis covers {why}"
            ),
            Missing::LimitedSamples { name } => {
                write!(f, "a contract limits or disables {name}: no analysis of sampled values covers this")
            }
            Missing::Disabled { name } => {
                write!(f, "a contract disables {name}, or an operation before it: not every input has an output")
            }
            Missing::Levels => {
                f.write_str("not proved for the largest service levels, which a feedback loop lowers under load")
            }
            Missing::Clients { name } => {
                write!(
                    f,
                    "a feedback loop sets the rates of the clients of {name}: replace `clients` by `min_interval` to check it"
                )
            }
            Missing::Moves { name, declared } => {
                write!(
                    f,
                    "{name} may move to another processor: name one processor in `on` of {declared} to check this"
                )
            }
            Missing::RareRequests { name } => {
                write!(f, "no bound on the time between requests that lead to {name}: its values are sampled")
            }
            Missing::ClockErrors => f.write_str(
                "the bound exceeds the deadline only because hosts' clocks may differ: lower their `clock_error`",
            ),
            Missing::Predecessor { name } => write!(f, "no bound on the response of {name}, which precedes it"),
            Missing::Trigger { name } => write!(f, "no analysis of how {name} is triggered"),
            Missing::Join { name, why } => write!(f, "no bound on how long {name} waits for its predecessors: {why}"),
            Missing::Streams => f.write_str("no analysis of a guard, or of very many paths, behind an `any` trigger"),
            Missing::TestedOnly => {
                f.write_str("tested, not proved: the bound is within the deadline and held in every simulation")
            }
            Missing::PreemptiveLaxity => f.write_str("fully preemptive laxity has no proved analysis here"),
            Missing::RemoteResource { name } => {
                write!(f, "no analysis of waiting for {name}, which other processors use too")
            }
            Missing::Expires { name, finish, lifespan } => write!(
                f,
                "a job of {name} may be dropped: it may finish {finish} after its origin, and its lifespan is {lifespan}"
            ),
            Missing::Busy { name, unfinished, finish } => {
                let jobs = if *unfinished == 1 { "the job".into() } else { alloc::format!("{unfinished} jobs") };
                write!(
                    f,
                    "{jobs} of {name} before may be unfinished at a release, which on_busy = \"skip\" then drops: a job may \
                     finish {finish} after its root's release; shorten that, or write on_busy = \"queue\""
                )
            }
            Missing::Full { name, at_once, limit } => {
                write!(
                    f,
                    "{at_once} jobs of {name} may be pending, but its queue.limit is {limit}, so one is dropped: raise \
                        it to {at_once}"
                )
            }
            Missing::PassedOver { name } => {
                write!(
                    f,
                    "completions for {name} may arrive out of order over a link, and late numbers are skipped: its \
                        delay must vary by less than a period"
                )
            }
            Missing::CopiesApart { name, apart } => {
                write!(
                    f,
                    "copies for {name} may arrive {apart} periods apart, and one that is {COPIES_APART} releases \
                        behind the newest may be skipped: make the slower copy faster"
                )
            }
            Missing::Chosen { name } => {
                write!(
                    f,
                    "{name} runs only if it is chosen, so the time between its jobs has no bound: write `all` instead of \
                        `chosen`, or lead the chain through another operation"
                )
            }
            Missing::Unbounded { name } => {
                write!(f, "some jobs of {name} have no bound: they may pile up, fill its queue and drop releases")
            }
            Missing::LateBefore { name } => {
                write!(f, "jobs of {name} may miss their deadlines, and its on_miss then stops or skips jobs")
            }
            Missing::CancelledBefore { name } => {
                write!(f, "jobs of {name} may be cancelled, so not every release completes")
            }
            Missing::Cap { processor, held: None, enough, keys, .. } => {
                write!(f, "the cap of {processor} may delay its jobs: raise {keys} to {enough} %")
            }
            Missing::Cap { processor, held: Some(held), resource: Some(resource), enough, keys } => {
                write!(
                    f,
                    "the cap of {processor} may delay {held} while it holds {resource}: raise {keys} to {enough} %, or \
                        make {held} critical"
                )
            }
            Missing::Cap { processor, held: Some(held), resource: None, enough, keys } => {
                write!(
                    f,
                    "the cap of {processor} may delay {held}, which is as urgent or more: raise {keys} to {enough} %, \
                        or make {held} critical"
                )
            }
            Missing::HardCap { processor } => write!(
                f,
                "critical work may exceed the hard cap of {processor}, which then demotes some of it: lower the critical load"
            ),
            Missing::CapTooSmall { processor } => {
                write!(f, "critical work alone needs the whole cap of {processor} or more: raise the cap")
            }
            Missing::LegOrder => f.write_str("its non-critical legs are more urgent than its critical ones"),
            Missing::Cancelled => {
                f.write_str("late jobs are cancelled; for a non-critical operation this is not a failure")
            }
            Missing::Change { what } => write!(f, "no analysis of an epoch that changes {what}"),
            Missing::ShortRegion { name } => {
                write!(f, "region {name} is so short that jobs of the one before it may meet those of the next")
            }
            Missing::Operation { name } => write!(f, "{name} is not proved"),
            Missing::Overtaking { name } => {
                write!(f, "jobs of {name} may overtake each other, so that its latest value is not the newest")
            }
            Missing::LateOutput { name } => {
                write!(f, "outputs of {name} may be late, and late ones are not flushed to their replica")
            }
            Missing::FlushPoint { name } => write!(
                f,
                "outputs of {name} are flushed at a deadline that counts from its own release: use a chain's deadline, \
                    or `flush = \"completion\"`"
            ),
            Missing::SwitchedOff { name } => {
                write!(f, "{name} is switched off, and its last value ages")
            }
            Missing::NoPeriod => f.write_str("a period of zero"),
        }
    }
}
