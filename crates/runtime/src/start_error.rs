//! The reasons why a run does not start.

use std::fmt;
use std::io;

use hyoshi_control::feedback::CoordinatorError;

use crate::claim::OccupiedCpu;
use crate::ended::RunNote;

/// The most releases per second of one processor. Each costs up to 10 us of timer and switch, so these use a fifth of a
/// CPU.
pub(crate) const MOST_RELEASES: u64 = 20_000;

/// The reason why a run did not start. Everything that it had started has ended.
#[derive(Debug)]
pub enum StartError {
    /// A body for an operation that the system does not have.
    NoSuchOperation {
        /// The operation.
        operation: String,
    },
    /// A callback for regions that no region calls.
    UncalledCallback {
        /// Its name.
        callback: String,
    },
    /// A region calls a callback that the program does not have.
    NoCallback {
        /// Its name.
        callback: String,
        /// The contract and the region.
        region: String,
    },
    /// A region runs a command, and the run does not permit commands.
    CommandsRefused {
        /// The action.
        action: String,
        /// The contract and the region.
        region: String,
    },
    /// The program of a command is not used.
    NoCommand {
        /// The program.
        program: String,
        /// The contract and the region.
        region: String,
        /// The reason.
        reason: String,
    },
    /// A processor names a CPU that this process cannot use.
    NoSuchCpu {
        /// The processor.
        processor: String,
        /// The CPU of the file.
        cpu: u32,
        /// The CPUs of this process.
        allowed: Vec<u32>,
    },
    /// Another program uses a CPU that the system needs.
    Occupied {
        /// The processor.
        processor: String,
        /// The other program.
        by: OccupiedCpu,
    },
    /// The kernel refused a privilege, and the run is strict.
    Refused(Vec<RunNote>),
    /// A processor has more releases than one thread can handle.
    TooManyReleases {
        /// The processor.
        processor: String,
        /// Releases per second.
        releases: u64,
    },
    /// The node runs one host, but operations of several hosts share a resource or value.
    NeedsOneProcess {
        /// The operation.
        operation: String,
        /// Its use of that resource or value.
        does: String,
        /// The remedy.
        instead: String,
    },
    /// A group of processors cannot be controlled.
    Group(CoordinatorError),
    /// A processor would need too many threads.
    TooManyThreads {
        /// The processor.
        processor: String,
        /// Their number.
        threads: usize,
    },
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoSuchOperation { operation } => {
                write!(f, "a body is set for operation `{operation}`, but the system has no such operation")
            }
            StartError::UncalledCallback { callback } => {
                write!(f, "a callback `{callback}` is set, but no region calls it")
            }
            StartError::NoCallback { callback, region } => {
                write!(f, "region `{region}` calls `{callback}`, but the program has no such callback")
            }
            StartError::CommandsRefused { action, region } => {
                write!(f, "region `{region}` has the action `{action}`, but this run permits no commands")
            }
            StartError::NoCommand { program, region, reason } => {
                write!(f, "cannot run `{program}`, a command of region `{region}`: {reason}")
            }
            StartError::NoSuchCpu { processor, cpu, allowed } => write!(
                f,
                "processor `{processor}` requests CPU {cpu}, but this process may use CPU {}",
                hyoshi_os::cpu::cpu_list(allowed)
            ),
            StartError::Occupied { processor, by } => {
                let pid = by.pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                write!(
                    f,
                    "processor `{processor}` would share CPU {} with {pid} ({}), and they would delay each other",
                    by.cpu, by.by
                )
            }
            StartError::Refused(notes) => {
                f.write_str("the kernel refused what a strict run requires:")?;
                notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
            }
            StartError::TooManyReleases { processor, releases } => write!(
                f,
                "processor `{processor}` would release {releases} jobs per second, more than the limit of {MOST_RELEASES}"
            ),
            StartError::NeedsOneProcess { operation, does, .. } => {
                write!(
                    f,
                    "operation `{operation}` {does} of another host, which works only with all hosts in one process"
                )
            }
            StartError::Group(error) => error.fmt(f),
            StartError::TooManyThreads { processor, threads } => {
                write!(f, "processor `{processor}` would need {threads} threads")
            }
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl StartError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            StartError::NoSuchOperation { operation } => {
                format!("add [operation.{operation}] to the system's file, or remove the body")
            }
            StartError::UncalledCallback { callback } => {
                format!("add {{ call = \"{callback}\" }} to a region, or remove the callback")
            }
            StartError::NoCallback { callback, .. } => {
                format!("run a program with Bodies::new().on_region(\"{callback}\", ...), or remove the action")
            }
            StartError::CommandsRefused { .. } => {
                "if you trust the commands of the file, start the run with --commands".to_owned()
            }
            StartError::NoCommand { .. } => "name a program in PATH, or an absolute path".to_owned(),
            StartError::NoSuchCpu { .. } => "change or remove `cpu` in the system's file".to_owned(),
            StartError::Occupied { by, .. } => match by.pid {
                Some(pid) => format!("end process {pid}, or accept the delays with --share-cpu"),
                None => "end that process, or accept the delays with --share-cpu".to_owned(),
            },
            StartError::Refused(_) => {
                "`hyoshi doctor` lists what this machine permits, with a remedy for each refusal".to_owned()
            }
            StartError::TooManyReleases { .. } => {
                "lengthen the shortest periods, or spread the operations over more processors".to_owned()
            }
            StartError::NeedsOneProcess { instead, .. } => format!("{instead}, or run without --host"),
            StartError::Group(error) => error.remedy.to_owned(),
            StartError::TooManyThreads { .. } => "lower its `pool`".to_owned(),
            StartError::Thread(_) => "raise the limit of threads: `ulimit -u`".to_owned(),
        }
    }
}

impl std::error::Error for StartError {}
