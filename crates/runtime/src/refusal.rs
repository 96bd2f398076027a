//! Why a run does not start.

use std::fmt;
use std::io;

use crate::claim::Occupied;
use crate::ended::Note;

/// Releases a second on one processor. Each costs up to 10 us of timer and switch, so this many take a fifth of a CPU.
pub(crate) const MOST_RELEASES: u64 = 20_000;

/// Why a run did not start. Nothing of it is left behind.
#[derive(Debug)]
pub enum StartError {
    /// A body was given for an operation that the system does not have.
    NoSuchOperation {
        /// The name.
        operation: String,
    },
    /// A processor names a CPU that this process cannot use.
    NoSuchCpu {
        /// The processor.
        processor: String,
        /// The CPU that the file names.
        cpu: u32,
        /// Those that there are.
        allowed: Vec<u32>,
    },
    /// Another program has a CPU that the system needs.
    Occupied {
        /// The processor.
        processor: String,
        /// Who has it.
        by: Occupied,
    },
    /// The kernel refused something, and the run is strict.
    Refused(Vec<Note>),
    /// A processor is to release more than a thread can: it would do nothing else.
    TooManyReleases {
        /// The processor.
        processor: String,
        /// Releases a second.
        releases: u64,
    },
    /// The node runs one host, but operations of several hosts share a resource or value.
    NeedsOneProcess {
        /// The operation.
        operation: String,
        /// Its use of that resource or value.
        does: String,
    },
    /// A lane would need more threads than one processor may have.
    TooManyThreads {
        /// The processor.
        processor: String,
        /// How many.
        threads: usize,
    },
    /// No further thread could be made.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoSuchOperation { operation } => {
                write!(f, "a body was given for the operation {operation:?}, which the system does not have")
            }
            StartError::NoSuchCpu { processor, cpu, allowed } => write!(
                f,
                "processor {processor:?} asks for CPU {cpu}, but this process may use CPU {}: change `cpu` in the \
                 system file or leave it out",
                hyoshi_os::cpu::cpu_list(allowed)
            ),
            StartError::Occupied { processor, by } => {
                let pid = by.pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                write!(
                    f,
                    "processor {processor:?} would share CPU {} with {pid} ({}): they would delay each other; end that \
                     process, name another `cpu` in the system file, or allow it with --share-cpu",
                    by.cpu, by.by
                )
            }
            StartError::Refused(notes) => {
                f.write_str("a strict run was not granted everything:")?;
                notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
            }
            StartError::TooManyReleases { processor, releases } => write!(
                f,
                "processor {processor:?} is to release {releases} jobs a second, and this runtime takes at most \
                 {MOST_RELEASES}: more would leave the CPU to nothing but timers; give the shortest operations longer periods, \
                 or spread them over more processors"
            ),
            StartError::NeedsOneProcess { operation, does } => write!(
                f,
                "operation {operation:?} {does} of another host, which needs all hosts in one process: trigger it with \
                 `after` instead, or run without --host"
            ),
            StartError::TooManyThreads { processor, threads } => write!(
                f,
                "processor {processor:?} would need {threads} threads: lower its `pool`, or let jobs preempt between \
                 levels only"
            ),
            StartError::Thread(error) => write!(f, "no further thread could be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
