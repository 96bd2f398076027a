//! The end of a run: its reason, refusals and losses.

use std::collections::BTreeMap;
use std::fmt;

use hyoshi_control::feedback::{GroupSteps, ProposedMove};
use hyoshi_model::{OperationId, OutsideMeasure, ProcessorId, Span, System};
use hyoshi_os::Refused;
use hyoshi_os::priority::RELEASE;
use hyoshi_trace::stats::Queueing;

use crate::region_actions::ActionOutcome;

/// The reason for the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its duration has elapsed.
    Duration,
    /// [`RunningNode::stop`](crate::RunningNode::stop) was called before.
    Stopped,
    /// SIGINT or SIGTERM.
    Interrupted,
    /// The watchdog found a body that did not return. Its thread was abandoned at normal priority.
    Runaway {
        /// The operation.
        operation: String,
        /// CPU time of the job.
        consumed: Span,
        /// The watchdog's limit: one second, or twenty times the declared worst case.
        limit: Span,
    },
    /// The hard cap paused a processor's lanes repeatedly, and the file has `on_hard_cap = "stop"`.
    Overloaded {
        /// The processor.
        processor: String,
    },
    /// The dispatcher of a processor panicked: a bug of Hyoshi.
    Broken {
        /// The processor.
        processor: String,
        /// The panic's message.
        message: String,
    },
    /// A body panicked.
    Panicked {
        /// The operation.
        operation: String,
        /// The panic's message.
        message: String,
    },
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndedBy::Duration => f.write_str("the duration is over"),
            EndedBy::Stopped => f.write_str("stopped by the program"),
            EndedBy::Interrupted => f.write_str("interrupted"),
            EndedBy::Runaway { operation, consumed, limit } => write!(
                f,
                "operation `{operation}` ran away: a job used {consumed:.3} of CPU time without returning (watchdog \
                 limit {limit}); its thread was abandoned at normal priority"
            ),
            EndedBy::Overloaded { processor } => write!(
                f,
                "critical overload of processor `{processor}` lasted more than a second: the hard cap paused its \
                 lanes repeatedly, and `on_hard_cap = \"stop\"` ended the run"
            ),
            EndedBy::Broken { processor, message } => write!(
                f,
                "the dispatcher of processor `{processor}` failed: {message}; this is a bug in hyoshi: report it \
                 with the recording"
            ),
            EndedBy::Panicked { operation, message } => {
                write!(f, "the body of operation `{operation}` panicked: {message}")
            }
        }
    }
}

/// A body that has used less CPU time than this at the end of the run is waiting.
const BUSY: Span = Span::from_millis(100);

/// A note about a run for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunNote {
    /// The kernel refused a privilege.
    Refused {
        /// The first thread.
        thread: String,
        /// The number of threads.
        threads: usize,
        /// The privilege, and the kernel's error.
        refused: Refused,
    },
    /// Two processors share a CPU: their lanes compete by priority.
    SharedCpu {
        /// The processors.
        processors: Vec<String>,
        /// The CPU.
        cpu: u32,
    },
    /// A release thread woke up very late: a thread above it, or a hypervisor, had the CPU.
    LateRelease {
        /// The processor.
        processor: String,
        /// The largest lateness.
        by: Span,
        /// How often the watchdog observed it.
        times: u64,
    },
    /// A body had not returned at the end of the run; its thread was abandoned.
    NotReturned {
        /// The operation.
        operation: String,
        /// CPU time of its job. A waiting body has used almost none.
        consumed: Span,
    },
    /// The hard cap paused a processor's lanes.
    HardCapped {
        /// The processor.
        processor: String,
        /// How often.
        times: u64,
        /// Their total length.
        paused: Span,
        /// Operations that are no longer critical for it (`on_hard_cap = "demote"`).
        demoted: Vec<String>,
    },
    /// A processor with critical work has no hard cap.
    NoHardCap {
        /// The processors.
        processors: Vec<String>,
    },
    /// The kernel reports the load of a CPU in steps that are coarse for a feedback loop.
    CoarseLoad {
        /// The processor.
        processor: String,
        /// The step.
        step: Span,
        /// The sampling period.
        period: Span,
    },
    /// `/dev/cpu_dma_latency` is held: the CPUs of the machine enter no deep idle states.
    Awake,
    /// CPUs may enter deep idle states, which delay wake-ups: the kernel does not permit this run to forbid them.
    MaySleep {
        /// The kernel's error.
        error: String,
    },
    /// The kernel's throttle stopped all real-time threads of a CPU.
    Throttled {
        /// The CPU.
        cpu: u32,
        /// The total time.
        stopped: Span,
    },
    /// Jobs blocked their lane, because no other thread was left in its pool.
    PoolExhausted {
        /// How often.
        times: u64,
    },
    /// The kernel refused a policy to a thread during the run.
    RefusedLater {
        /// How often.
        times: u64,
    },
    /// Controllers of a group found no solution.
    UnsolvedSteps(GroupSteps),
    /// A processor was saturated, and another one had room for an operation that the file does not permit to move.
    ProposedMove {
        /// The operation.
        operation: String,
        /// Its expected utilisation at its lowest rate, in percent.
        utilisation: u32,
        /// The measured utilisation of the saturated processor, in percent.
        measured: u32,
        /// The saturated processor.
        from: String,
        /// The processor with room.
        to: String,
    },
    /// Steps of a group were skipped, because earlier ones needed too much time.
    SkippedSteps(GroupSteps),
    /// The results of an action of a contract's region.
    RegionAction(ActionOutcome),
    /// A condition was not measured, or not always.
    Unmeasured {
        /// Its name.
        condition: String,
        /// What it measures.
        measure: OutsideMeasure,
        /// The samples that failed.
        failed: u64,
        /// All samples.
        samples: u64,
    },
    /// Changes of regions came too fast for their actions.
    LostRegions {
        /// How many.
        times: u64,
    },
    /// A callback of a region did not return; its thread was abandoned.
    ActionsBlocked,
    /// The coordinators' thread panicked: a bug of Hyoshi.
    GroupControlFailed {
        /// The panic's message.
        message: String,
    },
}

impl RunNote {
    /// The note about a move that the file does not permit.
    pub fn of_proposal(system: &System, proposed: &ProposedMove) -> RunNote {
        let [from, to] = [proposed.from, proposed.to].map(|id| system.processor(id).name.clone());
        let percent = |part: f64| (part * 100.0).round() as u32;
        RunNote::ProposedMove {
            operation: system.operation(proposed.operation).name.clone(),
            utilisation: percent(proposed.utilisation),
            measured: percent(proposed.measured),
            from,
            to,
        }
    }

    /// The notes about the steps of a group.
    pub fn of_group(steps: &GroupSteps) -> impl Iterator<Item = RunNote> + use<> {
        let unsolved = (steps.unsolved > 0).then_some(RunNote::UnsolvedSteps(*steps));
        unsolved.into_iter().chain((steps.skipped > 0).then_some(RunNote::SkippedSteps(*steps)))
    }
}

impl fmt::Display for RunNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunNote::Refused { thread, threads: 1, refused } => write!(f, "{refused} (thread {thread})"),
            RunNote::Refused { thread, threads, refused } => {
                write!(f, "{refused} (thread {thread} and {} more)", threads - 1)
            }
            RunNote::SharedCpu { processors, cpu } => write!(
                f,
                "processors {} share CPU {cpu}: their lanes delay each other; no analysis includes that delay",
                processors.join(", ")
            ),
            RunNote::LateRelease { processor, by, times } => write!(
                f,
                "the release thread of processor `{processor}` was late by up to {by:.3} ({times} times): a thread \
                 of a higher priority, or a hypervisor, had the CPU"
            ),
            RunNote::NotReturned { operation, consumed } if *consumed < BUSY => write!(
                f,
                "the body of operation `{operation}` blocks: it had used {consumed:.3} of CPU time and had not returned \
                 when the run ended; its thread was abandoned"
            ),
            RunNote::NotReturned { operation, consumed } => write!(
                f,
                "the body of operation `{operation}` does not return: it had used {consumed:.3} of CPU time and still \
                 ran when the run ended; its thread was abandoned"
            ),
            RunNote::HardCapped { processor, times, paused, demoted } => {
                write!(
                    f,
                    "critical work of processor `{processor}` reached the hard cap: its lanes were paused {times} \
                     times, {paused:.3} in total"
                )?;
                match &demoted[..] {
                    [] => Ok(()),
                    demoted => write!(f, "; no longer critical since: {}", demoted.join(", ")),
                }
            }
            RunNote::NoHardCap { processors } => write!(
                f,
                "no hard cap on processor {}: critical overload starves all ordinary threads",
                processors.join(", ")
            ),
            RunNote::CoarseLoad { processor, step, period } => write!(
                f,
                "processor `{processor}`: the kernel measures its utilisation in steps of {step}, too coarse for a \
                 sampling period of {period}: set a longer `period`, or `measure = \"lanes\"`"
            ),
            RunNote::Awake => f.write_str(
                "/dev/cpu_dma_latency is held at 0 us: the CPUs of this machine enter no \
                                           deep idle states",
            ),
            RunNote::MaySleep { error } => {
                write!(
                    f,
                    "CPUs may enter deep idle states, which delay wake-ups: cannot hold {}: {error}",
                    hyoshi_os::idle::CPU_DMA_LATENCY
                )
            }
            RunNote::Throttled { cpu, stopped } => write!(
                f,
                "the release thread of CPU {cpu} waited {stopped:.3} for its CPU: the kernel's throttle \
                 (sched_rt_runtime_us) stopped all real-time threads, or a thread above priority {RELEASE} had the \
                 CPU"
            ),
            RunNote::PoolExhausted { times } => {
                write!(
                    f,
                    "jobs blocked {times} times without another thread in their lane: raise the processor's \
                           `pool`"
                )
            }
            RunNote::RefusedLater { times } => write!(f, "the kernel refused a change of priority {times} times"),
            RunNote::UnsolvedSteps(GroupSteps { algorithm, steps, unsolved, .. }) => write!(
                f,
                "{} found no solution in {unsolved} of {steps} steps: these steps only lowered rates on processors \
                 above their set points; use fewer operations, or report the file",
                algorithm.name()
            ),
            RunNote::ProposedMove { operation, utilisation, measured, from, to } => write!(
                f,
                "processor `{from}` was above its set point at the lowest rates ({measured} % of the CPU); `{to}` has \
                 room for `{operation}` ({utilisation} %): write on = [\"{from}\", \"{to}\"] in its table"
            ),
            RunNote::SkippedSteps(GroupSteps { algorithm, steps, skipped, .. }) => write!(
                f,
                "{skipped} of {steps} steps of {} were skipped, because earlier ones used more than a quarter of their \
                 sampling period: use a longer `period`",
                algorithm.name()
            ),
            RunNote::RegionAction(outcome) => {
                write!(f, "contract `{}`, region `{}`: {outcome}", outcome.contract, outcome.region)
            }
            RunNote::Unmeasured { condition, measure, failed, samples } if failed == samples => {
                let why = match measure {
                    OutsideMeasure::Host(_) => "this machine has no such sensor, or no broker answered",
                    OutsideMeasure::Link(_) => {
                        "no node of the other host was connected; start a node for each host (`--host`)"
                    }
                    OutsideMeasure::Reservation(_) => "no broker answered, or it has no such task",
                    OutsideMeasure::Delegate(_) => "the program has no servant for the object",
                };
                write!(f, "condition `{condition}` had no samples: {why}")
            }
            RunNote::Unmeasured { condition, failed, samples, .. } => {
                write!(f, "{failed} of {samples} samples of condition `{condition}` failed")
            }
            RunNote::LostRegions { times } => write!(
                f,
                "{times} changes of regions were dropped: too many waited for earlier actions; shorten the callbacks"
            ),
            RunNote::ActionsBlocked => f.write_str(
                "a callback of a region did not return before the end of the run; later actions were skipped",
            ),
            RunNote::GroupControlFailed { message } => write!(
                f,
                "the thread that sets the rates of groups failed: {message}; rates then stayed the same; this is a bug \
                 in hyoshi: report it with the recording"
            ),
        }
    }
}

/// Events, completions and switches that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRecords {
    /// Events that found their ring full: statistics and recordings lack them.
    pub events: u64,
    /// Completions that found a link full: the jobs that they trigger were not released.
    pub signals: u64,
    /// Context switches that found the kernel's ring full: the user of a CPU is unknown for a while.
    pub switches: u64,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The reason for its end.
    pub ended_by: EndedBy,
    /// Time from the common start to the end.
    pub elapsed: Span,
    /// Notes for its report.
    pub notes: Vec<RunNote>,
    /// The losses.
    pub lost: LostRecords,
    /// For each processor: its CPU, and the time for which a hypervisor stopped it during the run, if the kernel
    /// reports it.
    pub stolen: Vec<(ProcessorId, u32, Option<Span>)>,
    /// The utilisation of all CPUs of the machine during the run, in parts per million; `None` if the kernel does not
    /// report it.
    pub machine: Option<u32>,
    /// For each processor: the costs of queueing.
    pub queueing: Vec<(ProcessorId, Queueing)>,
    /// The last periods that feedback loops have set for operations here, or for groups whose rates this process
    /// computes, by root.
    pub periods: BTreeMap<OperationId, Span>,
    /// How often the coordinator of each group has decided.
    pub groups: Vec<GroupSteps>,
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
