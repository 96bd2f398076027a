//! A device belongs to one run at a time: two would remove each other's classes.
//!
//! The lock is on a file in a directory of this user, and ends with the process. Other users cannot open the file, so
//! they cannot block a run.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_os::file;
use hyoshi_os::trusted::{Folder, OpenMode};

use crate::error::NetworkError;

/// How long the guard of a killed run may need to remove its classes.
const PATIENCE: Duration = Duration::from_millis(500);

/// A lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct DeviceClaim(#[allow(dead_code, reason = "it is held, not read")] Option<File>);

impl DeviceClaim {
    /// Claims a device of this network namespace. Without a directory for claims, it succeeds without a lock.
    pub fn take(device: &str) -> Result<DeviceClaim, NetworkError> {
        let Some(mut file) = folder().and_then(|folder| open(&folder, device)) else { return Ok(DeviceClaim(None)) };
        let until = Instant::now() + PATIENCE;
        loop {
            match file::lock(&file) {
                Ok(true) => break,
                Ok(false) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                Ok(false) => return Err(NetworkError::InUse { device: device.to_owned(), pid: read_pid(&mut file) }),
                // The file system does not support locks.
                Err(_) => return Ok(DeviceClaim(None)),
            }
        }
        // A second run names this process in its error.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DeviceClaim(Some(file)))
    }
}

/// The directory of this user's claims.
fn folder() -> Option<PathBuf> {
    if file::own_user() == 0 {
        return Some(PathBuf::from("/run/hyoshi/network"));
    }
    let runtime = hyoshi_os::secure_var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_absolute())?;
    Some(Path::new(&runtime).join("hyoshi/network"))
}

/// The file of a device. Devices of other network namespaces may have the same name.
fn open(folder: &Path, device: &str) -> Option<File> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let name = OsString::from(format!("{namespace}-{device}"));
    Folder::make(folder, 0o755).ok()?.file(&name, OpenMode::Changing).ok()
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
