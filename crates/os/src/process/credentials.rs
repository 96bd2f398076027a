//! The users of a process (credentials(7)), and how a process gives up gaining rights.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The users of a process (credentials(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user that started it.
    pub real: u32,
    /// The user that provides its rights.
    pub effective: u32,
    /// The user with the rights that it may regain.
    pub saved: u32,
}

impl Owner {
    /// True if all three are this user: a setuid program has another user among them.
    pub fn is_only(&self, user: u32) -> bool {
        [self.real, self.effective, self.saved].iter().all(|id| *id == user)
    }
}

/// From now on this process, and all programs that it starts or executes, never gain rights by a file: setuid and
/// setgid bits and capabilities of files have no effect (PR_SET_NO_NEW_PRIVS, prctl(2)). It cannot be undone.
///
/// # Errors
///
/// The kernel's; before Linux 3.5 it fails.
pub fn set_no_new_privileges() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true).map_err(Into::into)
}

/// The kernel's data on a process by its descriptor (pidfs, `struct pidfd_info` of linux/pidfd.h, its first version).
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    euid: u32,
    egid: u32,
    suid: u32,
    sgid: u32,
    fsuid: u32,
    fsgid: u32,
    exit_code: i32,
}

const _: () = assert!(size_of::<Info>() == 64);

/// `_IOWR(0xff, 11, struct pidfd_info)`, since Linux 6.13.
const GET_INFO: libc::c_ulong = 0xc040_ff0b;
/// The request filled in users and groups.
const CREDENTIALS: u64 = 1 << 1;

/// The kernel has no such request: do not try again.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// By the descriptor, under 1 us; `None` if the process has ended or the kernel is older than 6.13.
pub(super) fn of_descriptor(process: &OwnedFd) -> Option<Owner> {
    if UNKNOWN.load(Ordering::Relaxed) {
        return None;
    }
    let mut info = Info { mask: CREDENTIALS, ..Info::default() };
    // SAFETY: the descriptor is open, and the request writes at most the 64 octets that its number names, which are
    // `info`'s.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &raw mut info) };
    if done != 0 {
        let gone = io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        UNKNOWN.fetch_or(!gone, Ordering::Relaxed);
        return None;
    }
    let known = info.mask & CREDENTIALS != 0;
    known.then_some(Owner { real: info.ruid, effective: info.euid, saved: info.suid })
}

/// By `/proc`, some 12 us: the process that has the number at present.
pub(super) fn of_number(number: u32) -> Option<Owner> {
    of_status(&fs::read_to_string(format!("/proc/{number}/status")).ok()?)
}

pub(super) fn of_status(status: &str) -> Option<Owner> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut ids = line.split_ascii_whitespace().map(|id| id.parse::<u32>());
    Some(Owner { real: ids.next()?.ok()?, effective: ids.next()?.ok()?, saved: ids.next()?.ok()? })
}
