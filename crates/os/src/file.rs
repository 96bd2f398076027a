//! Locks on files: one process at a time works with what is kept in a directory.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Takes the file for this process until it is closed, however the process ends (flock(2)). False if another has it.
///
/// # Errors
///
/// Of file systems without locks.
pub fn take(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
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
        assert!(take(&first).unwrap());
        assert!(!take(&open()).unwrap());
        drop(first);
        assert!(take(&open()).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
}
