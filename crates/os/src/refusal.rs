//! What the kernel refused, why, and what to do about it. A refusal is data: the caller goes on
//! with less, and says so.

use std::fmt;

use rustix::io::Errno;
use serde::Serialize;

use crate::thread::Policy;

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Asked {
    /// A scheduling policy (sched_setscheduler(2)).
    Policy(Policy),
    /// To run on this CPU only (sched_setaffinity(2)).
    Cpu(u32),
    /// To keep all memory resident (mlockall(2)).
    LockedMemory,
}

/// A request that the kernel turned down. Small and without heap, for it occurs on the hot path;
/// [`Refused::reason`] looks into it at leisure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The request.
    pub asked: Asked,
    /// The kernel's error number.
    pub errno: i32,
}

impl Refused {
    pub(crate) fn new(asked: Asked, errno: Errno) -> Self {
        Refused { asked, errno: errno.raw_os_error() }
    }

    /// True when the thread that was meant has ended: no privilege would help.
    pub fn is_gone(&self) -> bool {
        self.errno == Errno::SRCH.raw_os_error()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Policy(policy) => write!(f, "{policy}"),
            Asked::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Asked::LockedMemory => f.write_str("locked memory"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refused {}: {}", self.asked, Errno::from_raw_os_error(self.errno))
    }
}

impl std::error::Error for Refused {}
