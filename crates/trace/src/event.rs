//! A dispatcher's inputs and decisions, and observations of its CPU.
//!
//! A recording of the inputs and their times suffices to repeat the decisions with a new dispatcher.

use core::num::NonZeroU32;

use hyoshi_model::{HostId, Instant, JobId, MOST_SERVICE_LEVELS, OperationId, ResourceId, Span, System, at_level};
use serde::{Deserialize, Serialize};

use crate::admission::AdmissionOutcome;
use crate::rated_client::RatedClient;

/// A position in a dispatcher's table of jobs. It is reused after the job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u32);

/// Connects a completion with its caller's data until the triggered jobs start. The dispatcher passes it on unread;
/// recordings do not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub NonZeroU32);

/// An event of one dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceEvent {
    /// An input of the dispatcher.
    Input(Input),
    /// A decision of the dispatcher.
    Decision(DispatchDecision),
    /// An observation of the CPU. A replay ignores it.
    Cpu(CpuEvent),
}

/// An input of a dispatcher. Each has a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A timer has expired: the dispatcher releases what is due.
    Tick,
    /// A completion on another processor has arrived. A `Tick` follows.
    Signal(Signal),
    /// A lane has the CPU: the dispatcher decides which job it runs.
    LaneRuns {
        /// The lane.
        lane: u8,
        /// CPU time used by the lane's current job; zero without one.
        #[serde(with = "span")]
        executed: Span,
    },
    /// A job's body has returned.
    Complete {
        /// The job.
        slot: Slot,
        /// Total CPU time of the job.
        #[serde(with = "span")]
        consumed: Span,
        /// Passed to the jobs that it triggers.
        #[serde(skip)]
        ticket: Option<Ticket>,
    },
    /// Reports the CPU time of a monitored job, for the rules `on_overrun` and `on_miss`.
    Observe {
        /// The job.
        slot: Slot,
        /// CPU time used so far.
        #[serde(with = "span")]
        consumed: Span,
    },
    /// A job blocks and releases its lane's run token.
    Suspend {
        /// The job.
        slot: Slot,
    },
    /// A blocked job can continue.
    Resume {
        /// The job.
        slot: Slot,
        /// CPU time used so far.
        #[serde(with = "span")]
        consumed: Span,
    },
    /// A job acquires a declared resource.
    Acquire {
        /// The job.
        slot: Slot,
        /// The resource.
        #[serde(with = "resource")]
        resource: ResourceId,
    },
    /// A job releases a declared resource.
    Release {
        /// The job.
        slot: Slot,
        /// The resource.
        #[serde(with = "resource")]
        resource: ResourceId,
    },
    /// The run ends: the dispatcher ends unfinished jobs.
    Close,
    /// An external request releases a job. A `Tick` follows.
    Invoke(JobRequest),
    /// Sets the period of a periodic operation, within its range in the file. An armed timer keeps its expiry. A `Tick`
    /// follows.
    Retime {
        /// The operation. Operations with only this root follow, on the processor that receives this input.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The period.
        #[serde(with = "span")]
        period: Span,
    },
    /// An operating region begins, in any order. A `Tick` follows.
    Enter {
        /// Its index in the system.
        index: u16,
    },
    /// Cancels a job. If it has started, the caller must complete it. A `Tick` follows.
    Cancel {
        /// The job with all its legs.
        #[serde(with = "job")]
        job: JobId,
        /// Also cancels each job of this processor with the same release number. Completions in flight still release
        /// jobs.
        chain: bool,
    },
    /// The processor starts after instant 0. Earlier releases are omitted; job numbers continue as if they had
    /// happened. Only the first input can be `Begin`.
    Begin,
    /// Suspends a triggered operation, or resumes it. While it is suspended, its triggers are dropped, and its timeout
    /// does not release it. Released jobs continue. A `Tick` follows.
    SuspendTriggers {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
        /// True to suspend it.
        on: bool,
    },
    /// A job chooses these hops for its completion, which follows. Without this input it chooses none.
    Choose {
        /// The job.
        slot: Slot,
        /// Bit i stands for the i-th operation that completions of the job's operation release only if they choose it.
        hops: u64,
    },
    /// A sampling period of the processor's feedback loop ends. A `Tick` follows.
    Sample {
        /// The utilisation of the CPU, in parts per million of the hard cap; `None` if it was not measured.
        utilisation: Option<u32>,
    },
    /// A client of an object has registered with the processor's feedback loop. A `Tick` follows.
    Join {
        /// Its place among the loop's clients, which is free.
        client: u16,
        /// The task that it becomes.
        task: RatedClient,
    },
    /// A registered client leaves the processor's feedback loop. A `Tick` follows.
    Leave {
        /// Its place.
        client: u16,
    },
    /// Sets a period as `Retime` does, but does not rank the lanes again. The `Tick` that follows ranks them once for
    /// all such inputs before it.
    Adapt {
        /// The operation, as for `Retime`.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The period.
        #[serde(with = "span")]
        period: Span,
    },
    /// An operation with several processors leaves this one: it releases no further job here. When its last job has
    /// ended, the caller passes `Arrive` to the other processor.
    Depart {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// An operation that leaves stays on this processor after all, because its jobs here have not ended. A `Tick`
    /// follows.
    Stay {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// An operation with several processors has left another one: its jobs are released here from now on. A `Tick`
    /// follows.
    Arrive {
        /// The operation on this processor.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The same operation on the processor that it has left; `operation` itself if it comes back.
        #[serde(with = "operation")]
        from: OperationId,
        /// Begin of its next period. If it is past, the jobs due since then are released at once.
        #[serde(with = "instant")]
        nominal: Instant,
        /// The number of its next job.
        number: u64,
    },
    /// An operator or a program sets a condition of contracts.
    Condition {
        /// Its position in the system.
        condition: u16,
        /// The value in millionths.
        value: i64,
    },
    /// An operator sets a region of a contract, or lets conditions decide again.
    Force {
        /// The contract's position in the system.
        contract: u16,
        /// The region's position in the contract; `None`: conditions decide.
        region: Option<u16>,
        /// When conditions decide again; [`Instant::NEVER`]: at the next such input.
        #[serde(with = "instant")]
        until: Instant,
    },
    /// Requests the admission of an operation on standby. The dispatcher decides, as for the `admit` of an epoch. A
    /// `Tick` follows.
    Admit {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// Requests the withdrawal of an admitted operation, as the `withdraw` of an epoch. A `Tick` follows.
    Withdraw {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// A value of a contract from another processor.
    ContractUpdate {
        /// The route's position in the system.
        route: u16,
        /// A condition in millionths, the least value if it is stale; or the active regions.
        value: i64,
    },
    /// A completion on another processor has arrived, but it moves a cancelled thread: it releases no job.
    DropHop(Signal),
}

impl Input {
    /// The completion of another processor that arrives.
    pub const fn arrival(&self) -> Option<&Signal> {
        match self {
            Input::Signal(signal) | Input::DropHop(signal) => Some(signal),
            _ => None,
        }
    }

    /// Whether other processors, a feedback loop, its coordinator or its clients cause it. Simulated processors cause
    /// such inputs themselves.
    pub const fn is_of_loop(&self) -> bool {
        matches!(
            self,
            Input::Sample { .. }
                | Input::Join { .. }
                | Input::Leave { .. }
                | Input::Retime { .. }
                | Input::Adapt { .. }
                | Input::Depart { .. }
                | Input::Stay { .. }
                | Input::Arrive { .. }
                | Input::ContractUpdate { .. }
        )
    }
}

/// An external request: a job with its own deadline, importance and criticality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The operation that serves it.
    #[serde(with = "operation")]
    pub operation: OperationId,
    /// Nominal release of the root: end-to-end latency starts here.
    #[serde(with = "instant")]
    pub origin: Instant,
    /// When the client sent it; when it was read, if that is unknown.
    #[serde(with = "instant")]
    pub sent: Instant,
    /// Its absolute deadline.
    #[serde(with = "instant")]
    pub deadline: Instant,
    /// Rank among other requests and operations; higher is more important.
    pub importance: u32,
    /// Whether the job is critical; ignored if the operation is not.
    pub critical: bool,
    /// The caller's data: the job's only ticket.
    #[serde(skip)]
    pub ticket: Option<Ticket>,
}

/// A decision of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DispatchDecision {
    /// An operating region begins.
    Epoch {
        /// Its index in the system.
        index: u16,
    },
    /// A release guard delays a job.
    Hold {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// The end of the delay.
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
    /// A lane starts or continues a job.
    Run {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// The lane.
        lane: u8,
        /// Its position in the dispatcher's table.
        slot: Slot,
        /// False at the first dispatch, true after a preemption or a wait.
        resumed: bool,
    },
    /// A job returns to its queue, because a better job of the lane runs or because it waits.
    Yield {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
    },
    /// A job beyond its worst case continues below every lane.
    Demote {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
    },
    /// Lanes from this one on must not start non-critical jobs until the cap's next window. 255 opens all lanes.
    Gate {
        /// The most urgent gated lane.
        lane: u8,
    },
    /// A completion leaves for another processor.
    Send(Signal),
    /// A job has ended.
    End(JobEnd),
    /// The processor switches to its other strategy, which orders the waiting jobs again.
    Switch {
        /// True for the second strategy, which applies in overload.
        second: bool,
    },
    /// A waiting job changes its lane because the strategy changed.
    Move {
        /// The job.
        #[serde(with = "job")]
        job: JobId,
        /// Its new lane.
        lane: u8,
    },
    /// The hard cap pauses all lanes or opens them again.
    Pause {
        /// True at the beginning of the pause.
        on: bool,
    },
    /// The hard cap has paused the lanes repeatedly: critical work is in lasting overload.
    Overload,
    /// In a lasting overload, later jobs of this operation are not critical.
    Relegate {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// A completion is dropped and releases no job of the operation that it triggers.
    Discard {
        /// The operation that it triggers.
        #[serde(with = "operation")]
        to: OperationId,
        /// The index of the completed operation among that operation's predecessors.
        position: u16,
        /// The release number of the job that completed.
        number: u64,
        /// The reason.
        reason: DiscardReason,
    },
    /// No trigger has released the operation within its timeout, so the timeout releases it now.
    TimeOut {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
    },
    /// A feedback loop has sampled.
    Sample {
        /// The utilisation of the CPU, in parts per million of the hard cap; `None` if it was not measured.
        utilisation: Option<u32>,
        /// The jobs that ended since the last sample.
        ended: u32,
        /// Those of them that missed their deadline, were cancelled or dropped.
        missed: u32,
        /// The new total of the adapted operations' declared utilisation, in parts per million.
        total: u32,
    },
    /// A feedback loop sets the period of a periodic operation, and of those that follow only it.
    Retime {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The period.
        #[serde(with = "span")]
        period: Span,
    },
    /// A feedback loop sets the period of a registered client.
    Pace {
        /// Its place among the loop's clients.
        client: u16,
        /// The operation that serves its requests.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The period.
        #[serde(with = "span")]
        period: Span,
    },
    /// A feedback loop chooses the service level of later jobs of an operation.
    Level {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
        /// Its place among the operation's levels.
        level: u8,
    },
    /// A feedback loop has measured a latency. Its `Sample` follows.
    Latency {
        /// The quantile of the sampling period's latencies.
        #[serde(with = "span")]
        quantile: Span,
        /// The number of latencies.
        jobs: u32,
    },
    /// The value of a contract's condition. The `Region`s of the contract follow.
    Condition {
        /// The contract's position in the system.
        contract: u16,
        /// The condition's position in the contract.
        condition: u16,
        /// In millionths; `None` if it is stale.
        value: Option<i64>,
    },
    /// A contract's region ends, another one of its level begins, or both.
    Region {
        /// The contract's position in the system.
        contract: u16,
        /// The region that ends, by its position in the contract.
        from: Option<u16>,
        /// The region that begins.
        to: Option<u16>,
    },
    /// A feedback loop has decided on an operation on standby.
    Admission {
        /// The operation.
        #[serde(with = "operation")]
        operation: OperationId,
        /// The decision.
        outcome: AdmissionOutcome,
    },
}

/// The reason why a completion is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiscardReason {
    /// It is older than the correlation window (`within`) allows.
    TooOld,
    /// The operation that it triggers is suspended.
    Suspended,
    /// It waited for the other groups of a join until newer ones exceeded the limit of the operation's queue.
    QueueFull,
    /// Another copy of the same release was first (`first`), or it is too many releases behind the newest one.
    LaterCopy,
    /// It moves a thread that was cancelled.
    Cancelled,
}

impl DiscardReason {
    /// All reasons, in the order of reports.
    pub const ALL: [DiscardReason; 5] = [
        DiscardReason::TooOld,
        DiscardReason::Suspended,
        DiscardReason::QueueFull,
        DiscardReason::LaterCopy,
        DiscardReason::Cancelled,
    ];
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
    /// The index of `from` among that operation's predecessors.
    pub position: u16,
    /// The release number of the job that completed.
    pub number: u64,
    /// Nominal release of the root job.
    #[serde(with = "instant")]
    pub origin: Instant,
    /// The root's current period; release guards use it.
    #[serde(with = "span")]
    pub period: Span,
    /// The time of sending and, after the transport, the time of arrival.
    #[serde(with = "instant")]
    pub due: Instant,
    /// The caller's data of the completion.
    #[serde(skip)]
    pub ticket: Option<Ticket>,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    #[serde(with = "job")]
    pub job: JobId,
    /// How it ended.
    pub outcome: JobOutcome,
    /// Whether the job was critical. In a load chain only the first legs may be.
    pub critical: bool,
    /// True if it used more CPU time than declared for its service level.
    pub overran: bool,
    /// How it was served.
    #[serde(with = "service")]
    pub service: JobService,
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
    /// The declared worst case of the job, at its service level.
    pub fn wcet(&self, system: &System) -> Span {
        let epoch = usize::from(self.epoch).min(system.epochs.len().saturating_sub(1));
        let levels = &system.operation(self.job.operation).levels;
        at_level(levels, self.service.level.into(), system.setting(epoch, self.job.operation).wcet)
    }

    /// The same job on a clock that is ahead by `nanos`.
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

/// How a job was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobService {
    /// The place of its service level among its operation's levels; 0 without levels.
    pub level: u8,
    /// True if it was moved below the lanes.
    pub demoted: bool,
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobOutcome {
    /// Finished at or before its deadline.
    Made,
    /// Finished after its deadline, or unfinished after it when the run ended.
    Missed,
    /// Cancelled: at its first dispatch, because it could not finish in time, or by an external request.
    Cancelled,
    /// Stopped because it exceeded its declared worst case (`on_overrun = "stop"`), or stopped or not started because
    /// its deadline was over (`on_miss = "stop"`).
    Stopped,
    /// Rejected: the operation's previous job was unfinished (`on_busy = "skip"`).
    DroppedBusy,
    /// Rejected or removed, because the operation's queue was full.
    DroppedFull,
    /// Dropped at its first dispatch, because its origin was older than the operation's lifespan.
    Expired,
    /// Rejected: an earlier job of the operation missed its deadline (`on_miss = "skip-next"`).
    Skipped,
}

impl JobOutcome {
    /// All outcomes, in the order of reports.
    pub const ALL: [JobOutcome; 8] = [
        JobOutcome::Made,
        JobOutcome::Missed,
        JobOutcome::Cancelled,
        JobOutcome::Stopped,
        JobOutcome::DroppedBusy,
        JobOutcome::DroppedFull,
        JobOutcome::Expired,
        JobOutcome::Skipped,
    ];

    /// True if the body ran to its end.
    pub const fn finished(self) -> bool {
        matches!(self, JobOutcome::Made | JobOutcome::Missed)
    }
}

/// Observations of a processor's CPU and its host's clock. They show in one pass over a recording which thread had the
/// CPU at each instant.
///
/// If the kernel permits it, a run records context switches. A simulation records the cost of scheduling. Without
/// switches, readers infer the missing time of a job from its CPU time; recordings contain no inferred values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuEvent {
    /// The CPU changes to another user, until the next switch.
    Switch {
        /// The new user of the CPU.
        to: CpuUser,
        /// True if the previous thread was preempted, false if it blocked.
        preempted: bool,
    },
    /// Scheduling used the CPU for this time until now. Only a simulation with costs records it.
    Overhead {
        /// The thread. [`CpuUser::Release`] and [`CpuUser::Watchdog`] are above every lane, [`CpuUser::Lane`] has its
        /// lane's priority.
        who: CpuUser,
        /// CPU time.
        #[serde(with = "span")]
        span: Span,
    },
    /// CPU time of the threads of `who` since the previous such event, by their own clocks. It includes the bodies of
    /// jobs.
    Used {
        /// The threads.
        who: CpuUser,
        /// CPU time.
        #[serde(with = "span")]
        span: Span,
    },
    /// Time that a hypervisor used since the previous such event, in steps of the kernel's tick (10 ms).
    Stolen {
        /// Wall time.
        #[serde(with = "span")]
        span: Span,
    },
    /// Switches were lost: the user of the CPU since the previous switch is unknown.
    Gap,
    /// At the next switch the current thread blocks for this reason.
    Waits(Wait),
    /// At this instant of the recording's clock, another host's clock was ahead. Any processor of the measuring host
    /// can record it. Only merging uses it.
    Clock {
        /// The other host.
        #[serde(with = "host")]
        host: HostId,
        /// The offset in nanoseconds; negative if the other clock was behind.
        offset: i64,
        /// The error bound of the offset.
        #[serde(with = "span")]
        error: Span,
    },
}

/// The reason why a thread blocks, derived from its kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Sleeps for a time.
    Sleep,
    /// Waits for a lock that the file does not declare, or for another thread.
    Lock,
    /// Waits for a page of memory.
    Page,
    /// Waits for disk input or output.
    Io,
}

/// A user of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuUser {
    /// The CPU is idle.
    Idle,
    /// A thread of this lane of this processor. It runs the job of the lane's last `Run` decision.
    Lane(u8),
    /// This processor's release thread, above its lanes.
    Release,
    /// Jobs of this processor that run below the lanes.
    Below,
    /// The watchdog, above everything.
    Watchdog,
    /// A thread outside this processor, by the number of its name in the recording.
    Other(u32),
    /// An unknown thread: a privilege is missing, or records were lost.
    Unknown,
}

/// Receives the events of a dispatcher in order. Simulator and runtime use the same dispatcher with different probes.
pub trait Probe {
    /// `event` happened at `now`.
    fn event(&mut self, now: Instant, event: TraceEvent);
}

/// Ignores all events at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn event(&mut self, _: Instant, _: TraceEvent) {}
}

impl<P: Probe + ?Sized> Probe for &mut P {
    #[inline(always)]
    fn event(&mut self, now: Instant, event: TraceEvent) {
        (**self).event(now, event);
    }
}

impl Probe for alloc::vec::Vec<(Instant, TraceEvent)> {
    fn event(&mut self, now: Instant, event: TraceEvent) {
        self.push((now, event));
    }
}

// The model's types do not depend on serde: these modules write them as plain integers.
macro_rules! as_integer {
    ($module:ident, $type:ty, $integer:ty, $to:expr, $from:expr) => {
        pub(crate) mod $module {
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
// One byte. Formats before 12 had no levels, and wrote `demoted` alone as 0 or 1.
as_integer!(service, JobService, u8, |service| service.level << 1 | u8::from(service.demoted), |byte| JobService {
    level: byte >> 1,
    demoted: byte & 1 == 1
});
const _: () = assert!(MOST_SERVICE_LEVELS <= 1 << 7, "a level has seven bits");
