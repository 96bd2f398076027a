//! What can be observed of a dispatcher: what it was told, and what it decided.
//!
//! A recording of these events is enough to run the dispatcher again: fed the same inputs at the
//! same times it takes the same decisions.

use core::num::NonZeroU32;

use hyoshi_model::{HostId, Instant, JobId, OperationId, ResourceId, Span};
use serde::{Deserialize, Serialize};

/// A position in a dispatcher's table of jobs; used again once the job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u32);

/// What a caller attaches to a completion, so that it finds the data of that completion again when a job that it triggered
/// starts. The dispatcher passes it on and never looks into it; recordings leave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub NonZeroU32);

/// Something happened at a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The dispatcher was told something.
    Input(Input),
    /// The dispatcher decided something.
    Decision(Decision),
    /// Something was seen of the CPU: neither an input nor a decision, a replay passes over it.
    Seen(Seen),
}

/// What a dispatcher is told; each comes with the time at which it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Time has passed: release what is due.
    Tick,
    /// A completion on another processor has arrived here. A `Tick` follows.
    Signal(Signal),
    /// A lane has the CPU: what does it run? `executed` is what its present job has used, if it has one.
    LaneRuns {
        /// The lane.
        lane: u8,
        /// CPU time used by the job that the lane runs; zero without one.
        #[serde(with = "span")]
        executed: Span,
    },
    /// A job's body has returned.
    Complete {
        /// The job.
        slot: Slot,
        /// CPU time it used in all.
        #[serde(with = "span")]
        consumed: Span,
        /// Passed on to the jobs that it triggers.
        #[serde(skip)]
        ticket: Option<Ticket>,
    },
    /// A watched job has used this much CPU time so far.
    Observe {
        /// The job.
        slot: Slot,
        /// CPU time used so far.
        #[serde(with = "span")]
        consumed: Span,
    },
    /// A job blocks and gives its lane's run token up.
    Suspend {
        /// The job.
        slot: Slot,
    },
    /// A blocked job can go on.
    Resume {
        /// The job.
        slot: Slot,
        /// CPU time used so far.
        #[serde(with = "span")]
        consumed: Span,
    },
    /// A job takes a declared resource.
    Acquire {
        /// The job.
        slot: Slot,
        /// The resource.
        #[serde(with = "resource")]
        resource: ResourceId,
    },
    /// A job lets a declared resource go.
    Release {
        /// The job.
        slot: Slot,
        /// The resource.
        #[serde(with = "resource")]
        resource: ResourceId,
    },
    /// The run ends: account for what is unfinished.
    Close,
    /// A request from outside releases a job. A `Tick` follows.
    Invoke(Request),
    /// Sets the period of a periodic operation, within its range in the file. An armed timer keeps its expiry. A `Tick`
    /// follows.
    Retime {
        /// The operation. Those with only this root follow, on the processor that gets this input.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The period.
        #[serde(with = "span")]
        period: Span,
    },
    /// An operating region begins, in whatever order. A `Tick` follows.
    Enter {
        /// Its index in the system.
        index: u16,
    },
    /// Cancels a job. If it has started, the caller must complete it. A `Tick` follows.
    Cancel {
        /// The job; with all its legs.
        #[serde(with = "job")]
        job: JobId,
        /// Also cancels each job of this processor that is numbered by the same release. Completions in flight still release
        /// jobs.
        chain: bool,
    },
    /// The processor starts now, after instant 0. Earlier releases are left out; job numbers continue as if they had
    /// happened. Present only as the first input.
    Begin,
}

/// A request from outside: a job with a deadline, an importance and a criticality of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The operation that serves it.
    #[serde(with = "operation")]
    pub operation: OperationId,
    /// The nominal release of what led to it, from which end-to-end latency counts.
    #[serde(with = "instant")]
    pub origin: Instant,
    /// Its absolute deadline.
    #[serde(with = "instant")]
    pub deadline: Instant,
    /// Rank among other requests and operations; higher is more important.
    pub importance: u32,
    /// Whether the job is critical; ignored if the operation is not.
    pub critical: bool,
    /// What the caller attached to it: the job's one ticket.
    #[serde(skip)]
    pub ticket: Option<Ticket>,
}

/// What a dispatcher decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// An operating region begins.
    Epoch {
        /// Its index in the system.
        index: u16,
    },
    /// A release guard holds a job back.
    Hold {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// Until then.
        #[serde(with = "instant")]
        until: Instant,
    },
    /// A job enters the queue of its lane.
    Ready {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// Its nominal release.
        #[serde(with = "instant")]
        release: Instant,
        /// Its absolute deadline.
        #[serde(with = "instant")]
        deadline: Instant,
        /// Its lane.
        lane: u8,
    },
    /// A lane starts, or goes on with, a job.
    Run {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// The lane.
        lane: u8,
        /// Where its state is kept.
        slot: Slot,
        /// False at the first dispatch, true when it goes on after a preemption or a wait.
        resumed: bool,
    },
    /// A job is put back into its queue, for a better one in the same lane or because it waits.
    Yield {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
    },
    /// A job beyond its worst case goes on below every lane.
    Demote {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
    },
    /// Lanes from this one on may start no non-critical job until the cap's next window; 255 opens all.
    Gate {
        /// The most urgent gated lane.
        lane: u8,
    },
    /// A completion leaves for another processor.
    Send(Signal),
    /// A job is over, in whatever way.
    End(JobEnd),
    /// From now on the processor's other strategy rules: waiting jobs are keyed anew by it.
    Switch {
        /// True for the second, which rules in overload.
        second: bool,
    },
    /// A waiting job changes its lane, for the strategy has.
    Move {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// Its lane from now on.
        lane: u8,
    },
    /// The hard cap pauses every lane, or opens them again.
    Pause {
        /// True while they pause.
        on: bool,
    },
    /// The hard cap has paused lanes again and again: critical work is overloaded, and that lasts.
    Overload,
    /// In a lasting overload an operation's later jobs are no longer critical.
    Relegate {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
}

/// A completion that triggers an operation on another processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The operation that completed.
    #[serde(with = "operation")]
    pub from: OperationId,
    /// The operation that it triggers.
    #[serde(with = "operation")]
    pub to: OperationId,
    /// Which of that operation's predecessors `from` is.
    pub position: u16,
    /// The release number of the job that completed.
    pub number: u64,
    /// Nominal release of the root job.
    #[serde(with = "instant")]
    pub origin: Instant,
    /// The root's present period, which release guards use.
    #[serde(with = "span")]
    pub period: Span,
    /// When it leaves and, after its transport, when it arrives.
    #[serde(with = "instant")]
    pub due: Instant,
    /// What the caller attached to the completion.
    #[serde(skip)]
    pub ticket: Option<Ticket>,
}

/// Everything that is known of a job when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    #[serde(with = "job")]
    pub job: JobId,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the job was critical (of a load chain the first legs may be).
    pub critical: bool,
    /// True if it used more CPU time than declared.
    pub overran: bool,
    /// True if it was moved below the lanes.
    pub demoted: bool,
    /// Index of the epoch it was released in.
    pub epoch: u16,
    /// Nominal release of the root job, from which end-to-end latency counts.
    #[serde(with = "instant")]
    pub origin: Instant,
    /// Nominal release.
    #[serde(with = "instant")]
    pub release: Instant,
    /// When it entered its lane's queue; `NEVER` if it did not.
    #[serde(with = "instant")]
    pub ready: Instant,
    /// When it started; `NEVER` if it did not.
    #[serde(with = "instant")]
    pub start: Instant,
    /// When it ended.
    #[serde(with = "instant")]
    pub end: Instant,
    /// Its absolute deadline.
    #[serde(with = "instant")]
    pub deadline: Instant,
    /// CPU time it used.
    #[serde(with = "span")]
    pub consumed: Span,
}

impl JobEnd {
    /// The same on a clock that is ahead by `nanos`.
    pub fn by_clock_ahead(self, nanos: i64) -> JobEnd {
        let shift = |instant: Instant| match instant {
            Instant::NEVER => instant,
            instant => instant.by_clock_ahead(nanos),
        };
        JobEnd {
            origin: shift(self.origin),
            release: shift(self.release),
            ready: shift(self.ready),
            start: shift(self.start),
            end: shift(self.end),
            deadline: shift(self.deadline),
            ..self
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Finished at or before its deadline.
    Made,
    /// Finished after its deadline, or unfinished after it when the run ended.
    Missed,
    /// Cancelled: at its first dispatch, because it could no longer finish in time, or from outside.
    Cancelled,
    /// Stopped because it exceeded its declared worst case.
    Stopped,
    /// Not admitted: the operation's previous job was unfinished (`on_busy = "skip"`).
    DroppedBusy,
    /// Not admitted, or pushed out, because the operation's queue was full.
    DroppedFull,
}

impl Outcome {
    /// Every outcome, in the order of reports.
    pub const ALL: [Outcome; 6] = [
        Outcome::Made,
        Outcome::Missed,
        Outcome::Cancelled,
        Outcome::Stopped,
        Outcome::DroppedBusy,
        Outcome::DroppedFull,
    ];

    /// True if the body ran to its end.
    pub const fn finished(self) -> bool {
        matches!(self, Outcome::Made | Outcome::Missed)
    }
}

/// Observations of a processor's CPU and its host's clock, outside the dispatcher: enough to say, in one pass over a
/// recording, who had the CPU at each instant.
///
/// A run tells switches as the kernel saw them, where that is allowed; a simulation tells what it
/// spends on scheduling. Where there are no switches, what a job lacks between its start and its
/// end is inferred from its CPU time when the recording is read: nothing inferred is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// From now on this one has the CPU, until the next switch; whoever had it before has it no more.
    Switch {
        /// Who has it.
        to: Who,
        /// Whoever had it before could have gone on: it was preempted, it did not sleep.
        preempted: bool,
    },
    /// Scheduling itself has used the CPU for so long until now (a simulation that spends costs).
    Overhead {
        /// On whose thread, which tells its priority: [`Who::Release`] and [`Who::Watchdog`] are
        /// above every lane, [`Who::Lane`] is at that lane's.
        who: Who,
        /// CPU time.
        #[serde(with = "span")]
        span: Span,
    },
    /// The threads of `who` used so much CPU time since this was last told of them, by their own
    /// clocks; the bodies of jobs included.
    Used {
        /// Whose threads.
        who: Who,
        /// CPU time.
        #[serde(with = "span")]
        span: Span,
    },
    /// A hypervisor took the CPU for so long, at some time since this was last told (in steps of
    /// the kernel's clock tick, 10 ms).
    Stolen {
        /// Wall time.
        #[serde(with = "span")]
        span: Span,
    },
    /// Switches were lost before this one: who had the CPU since the last is not known.
    Gap,
    /// The thread that has the CPU gives it up, with the switch that follows, to wait for this.
    Waits(Wait),
    /// At this instant of the recording's clock, another host's clock was ahead of it. Recorded under any processor of
    /// the measuring host. Only merging of recordings uses it.
    Clock {
        /// The other host.
        #[serde(with = "host")]
        host: HostId,
        /// By how many nanoseconds it was ahead; negative if it was behind.
        offset: i64,
        /// The error bound of the offset.
        #[serde(with = "span")]
        error: Span,
    },
}

/// What a thread waits for, as the kernel functions that it is in say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// For time to pass.
    Sleep,
    /// For a lock that the file does not declare, or for another thread.
    Lock,
    /// For a page of memory that is not there.
    Page,
    /// For input or output of a disk.
    Io,
}

/// Who can have a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Nobody: it idles.
    Idle,
    /// A thread of this lane of this processor. Its job is the one that the lane was last told to run.
    Lane(u8),
    /// This processor's release thread, above its lanes.
    Release,
    /// Jobs of this processor that go on below the lanes.
    Below,
    /// The watchdog, above everything.
    Watchdog,
    /// A thread that is none of this processor's; the recording has its name under this number.
    Other(u32),
    /// Somebody: the kernel did not say who, for want of a privilege or because records were lost.
    Unknown,
}

/// Receives what happens at a dispatcher, in its order. The simulator's and the runtime's probes
/// differ; the dispatcher does not.
pub trait Probe {
    /// `event` happened at `now`.
    fn event(&mut self, now: Instant, event: Event);
}

/// Observes nothing and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn event(&mut self, _: Instant, _: Event) {}
}

impl<P: Probe + ?Sized> Probe for &mut P {
    #[inline(always)]
    fn event(&mut self, now: Instant, event: Event) {
        (**self).event(now, event);
    }
}

impl Probe for alloc::vec::Vec<(Instant, Event)> {
    fn event(&mut self, now: Instant, event: Event) {
        self.push((now, event));
    }
}

// The model's types know nothing of recordings: these write them as plain integers.
macro_rules! as_integer {
    ($module:ident, $type:ty, $integer:ty, $to:expr, $from:expr) => {
        mod $module {
            use super::*;
            pub fn serialize<S: serde::Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                let to: fn(&$type) -> $integer = $to;
                serde::Serialize::serialize(&to(value), serializer)
            }
            pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let from: fn($integer) -> $type = $from;
                Ok(from(<$integer as serde::Deserialize>::deserialize(deserializer)?))
            }
        }
    };
}

as_integer!(instant, Instant, u64, |instant| instant.as_nanos(), Instant::from_nanos);
as_integer!(span, Span, u64, |span| span.as_nanos(), Span::from_nanos);
as_integer!(host, HostId, u32, |host| host.0, HostId);
as_integer!(resource, ResourceId, u32, |resource| resource.0, ResourceId);
as_integer!(operation, OperationId, u32, |operation| operation.0, OperationId);
as_integer!(job, JobId, (u32, u64, u16), |job| (job.operation.0, job.number, job.leg), |(operation, number, leg)| {
    JobId { operation: OperationId(operation), number, leg }
});
