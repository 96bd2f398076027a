//! How a run ended, what was not granted to it, and what was lost on the way.

use std::fmt;

use hyoshi_model::{ProcessorId, Span};
use hyoshi_os::Refused;
use hyoshi_os::priority::RELEASE;
use hyoshi_trace::stats::Queueing;

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its time was over.
    Duration,
    /// [`Running::stop`](crate::Running::stop) was called before.
    Stopped,
    /// SIGINT or SIGTERM.
    Interrupted,
    /// The watchdog found a body that did not return. Its thread was left behind at normal priority.
    Runaway {
        /// The operation.
        operation: String,
        /// CPU time that the job had used.
        consumed: Span,
        /// What the watchdog allows: one second, or twenty times the declared worst case.
        limit: Span,
    },
    /// The hard cap has paused a processor's lanes again and again, and the file says `on_hard_cap = "stop"`.
    Overloaded {
        /// The processor.
        processor: String,
    },
    /// The dispatcher of a processor panicked: an error of Hyoshi's own.
    Broken {
        /// The processor.
        processor: String,
        /// What the panic said.
        message: String,
    },
    /// A body panicked.
    Panicked {
        /// The operation.
        operation: String,
        /// What the panic said.
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
                "operation {operation:?} ran away: a job used {consumed:.3} of CPU time and has not returned (the watchdog \
                 allows {limit}); its thread was left behind at normal priority"
            ),
            EndedBy::Overloaded { processor } => write!(
                f,
                "critical work of processor {processor:?} was overloaded for more than a second: the hard cap paused its \
                 lanes again and again, and `on_hard_cap = \"stop\"` ends the run"
            ),
            EndedBy::Broken { processor, message } => write!(
                f,
                "the dispatcher of processor {processor:?} failed: {message}; this is an error in hyoshi, please report it \
                 with the recording"
            ),
            EndedBy::Panicked { operation, message } => {
                write!(f, "the body of operation {operation:?} panicked: {message}")
            }
        }
    }
}

/// A body that has used less CPU time than this when the run ends waits for something.
const BUSY: Span = Span::from_millis(100);

/// Something that a report says about a run beside its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The kernel refused something, to this many threads.
    Refused {
        /// The first thread.
        thread: String,
        /// How many threads in all.
        threads: usize,
        /// What, and the kernel's error.
        refused: Refused,
    },
    /// Two processors are on one CPU: their lanes compete, in the order of priorities.
    SharedCpu {
        /// The processors.
        processors: Vec<String>,
        /// The CPU.
        cpu: u32,
    },
    /// A release thread woke up much too late: something above it, or the hypervisor, had the CPU.
    LateRelease {
        /// The processor.
        processor: String,
        /// The longest.
        by: Span,
        /// How often the watchdog saw it.
        times: u64,
    },
    /// A body had not returned when the run ended; its thread was left behind.
    NotReturned {
        /// The operation.
        operation: String,
        /// CPU time that its job had used since it began: a body that waits has used almost nothing.
        consumed: Span,
    },
    /// The hard cap paused a processor's lanes.
    HardCapped {
        /// The processor.
        processor: String,
        /// How often.
        times: u64,
        /// For how long in all.
        paused: Span,
        /// Operations that are no longer critical for it (`on_hard_cap = "demote"`).
        demoted: Vec<String>,
    },
    /// A processor with critical work has no hard cap.
    NoHardCap {
        /// The processors.
        processors: Vec<String>,
    },
    /// `/dev/cpu_dma_latency` is held: no CPU of the machine sleeps deeply.
    Awake,
    /// CPUs may sleep deeply, which delays wake-ups: the kernel does not let this run forbid it.
    MaySleep {
        /// The kernel's error.
        error: String,
    },
    /// The kernel's own throttle stopped every real-time thread of a CPU.
    Throttled {
        /// The CPU.
        cpu: u32,
        /// For how long in all.
        stopped: Span,
    },
    /// Jobs blocked and kept their lane waiting, because no other thread was left in its pool.
    PoolExhausted {
        /// How often.
        times: u64,
    },
    /// A policy was refused to a thread while it ran.
    RefusedLater {
        /// How often.
        times: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Refused { thread, threads: 1, refused } => write!(f, "{refused} (thread {thread})"),
            Note::Refused { thread, threads, refused } => {
                write!(f, "{refused} (thread {thread} and {} more)", threads - 1)
            }
            Note::SharedCpu { processors, cpu } => write!(
                f,
                "processors {} share CPU {cpu}: their lanes delay each other, which no analysis of one of them knows",
                processors.join(", ")
            ),
            Note::LateRelease { processor, by, times } => write!(
                f,
                "the release thread of processor {processor:?} was late by up to {by:.3} ({times} times): something above \
                 its priority, or the hypervisor, had the CPU"
            ),
            Note::NotReturned { operation, consumed } if *consumed < BUSY => write!(
                f,
                "the body of operation {operation:?} blocks: it had used {consumed} of CPU time and had not returned when \
                 the run ended; its thread was left behind"
            ),
            Note::NotReturned { operation, consumed } => write!(
                f,
                "the body of operation {operation:?} does not return: it had used {consumed} of CPU time and still ran when \
                 the run ended; its thread was left behind"
            ),
            Note::HardCapped { processor, times, paused, demoted } => {
                write!(
                    f,
                    "critical work of processor {processor:?} reached the hard cap: its lanes were paused {times} times, \
                     {paused} in all"
                )?;
                match &demoted[..] {
                    [] => Ok(()),
                    demoted => write!(f, "; no longer critical since: {}", demoted.join(", ")),
                }
            }
            Note::NoHardCap { processors } => write!(
                f,
                "no hard cap on processor {}: critical overload takes the CPU from all ordinary threads",
                processors.join(", ")
            ),
            Note::Awake => f.write_str("/dev/cpu_dma_latency is held at 0 us: no CPU of this machine sleeps deeply"),
            Note::MaySleep { error } => {
                write!(
                    f,
                    "CPUs may sleep deeply, which delays wake-ups: {} cannot be held: {error}",
                    hyoshi_os::idle::CPU_DMA_LATENCY
                )
            }
            Note::Throttled { cpu, stopped } => write!(
                f,
                "the release thread of CPU {cpu} waited {stopped} for its CPU: the kernel's throttle (sched_rt_runtime_us) \
                 stopped all real-time threads there, or something above priority {RELEASE} had it"
            ),
            Note::PoolExhausted { times } => {
                write!(f, "jobs blocked {times} times without another thread in their lane: raise the processor's pool")
            }
            Note::RefusedLater { times } => write!(f, "the kernel refused a change of priority {times} times"),
        }
    }
}

/// What did not reach its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events that found their ring full: statistics and recordings lack them.
    pub events: u64,
    /// Completions that found a link between processors full: what they trigger was not released.
    pub signals: u64,
    /// The kernel's switches that found their ring full: who had a CPU is not known for a while.
    pub switches: u64,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Why.
    pub ended_by: EndedBy,
    /// From the common start to the end.
    pub elapsed: Span,
    /// What a report says about it.
    pub notes: Vec<Note>,
    /// What did not reach its receiver.
    pub lost: Lost,
    /// For each processor its CPU, and what a hypervisor took from that during the run, where the kernel tells.
    pub stolen: Vec<(ProcessorId, u32, Option<Span>)>,
    /// For each processor what queueing cost.
    pub queueing: Vec<(ProcessorId, Queueing)>,
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}
