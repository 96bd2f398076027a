//! Locks on files: only one process at a time uses the data of a directory.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Flags to open a file without following a link in its place, and without blocking on a pipe (open(2)).
pub const NOT_FOLLOWED: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// The effective user of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Locks the file for this process until it is closed, however the process ends (flock(2)). False if another process
/// holds the lock.
///
/// # Errors
///
/// From file systems without locks.
pub fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether another process holds the lock. Concurrent callers of this function do not see each other.
///
/// # Errors
///
/// As for [`lock`].
pub fn is_locked(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(flock(file, FlockOperation::Unlock).map(|()| false)?),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_once_until_it_is_closed() {
        let path = std::env::temp_dir().join(format!("hyoshi-os-lock-{}", std::process::id()));
        let open = || File::options().write(true).create(true).truncate(false).open(&path).unwrap();
        let first = open();
        assert!(lock(&first).unwrap());
        assert!(!lock(&open()).unwrap());
        assert!(is_locked(&open()).unwrap());
        drop(first);
        assert!(!is_locked(&open()).unwrap());
        assert!(lock(&open()).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
}
