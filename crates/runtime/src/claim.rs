//! Claims of CPUs. Two runs with real-time priorities on one CPU delay each other, and neither detects the reason.
//!
//! A run claims each of its CPUs by a lock on a file in a directory of its user: `/run/hyoshi/cpus` for root,
//! `$XDG_RUNTIME_DIR/hyoshi/cpus` for other users. No other user can open the file, because `flock` would let them
//! block all runs. The lock ends with the process. Runs of other users, and other programs, are detected by their
//! threads: pinned to the CPU at the real-time priorities of lanes.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyoshi_os::file;
use hyoshi_os::priority::LANES;
use hyoshi_os::realtime::real_time_threads;

/// `O_NOFOLLOW` and `O_NONBLOCK` of Linux: links are not followed, and a pipe instead of the file does not block.
const SAFELY: i32 = hyoshi_os::file::NOT_FOLLOWED;

/// A CPU that another program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupiedCpu {
    /// The CPU.
    pub cpu: u32,
    /// The process; `None` if only its lock is known.
    pub pid: Option<u32>,
    /// Its description: a run of Hyoshi, or a thread's name.
    pub by: String,
}

/// The locks of a run. Drop them to release its CPUs.
#[derive(Debug, Default)]
pub(crate) struct CpuClaims(Vec<File>);

/// The CPUs that other programs use, each with one of the processes.
pub(crate) fn occupied(cpus: &[u32], folder: Option<&Path>) -> BTreeMap<u32, OccupiedCpu> {
    let mut occupied = by_threads(cpus);
    for cpu in cpus {
        let Some(Ok(mut file)) = folder.map(|folder| open(folder, *cpu)) else { continue };
        if let Ok(true) = file::is_locked(&file) {
            let pid = read_pid(&mut file);
            occupied.insert(*cpu, OccupiedCpu { cpu: *cpu, pid, by: "a run of hyoshi".to_owned() });
        }
    }
    occupied
}

/// CPUs on which other processes have threads at the priorities of lanes.
pub(crate) fn by_threads(cpus: &[u32]) -> BTreeMap<u32, OccupiedCpu> {
    let mut occupied = BTreeMap::new();
    for thread in real_time_threads(LANES).into_iter().filter(|thread| cpus.contains(&thread.cpu)) {
        let by = format!("its thread `{}` at real-time priority {}", thread.name, thread.priority);
        occupied.entry(thread.cpu).or_insert(OccupiedCpu { cpu: thread.cpu, pid: Some(thread.pid), by });
    }
    occupied
}

impl CpuClaims {
    /// Claims these CPUs, or returns the process that has claimed one in the meantime. Without a directory for claims
    /// it claims nothing: other runs then detect the threads.
    pub fn take(cpus: &[u32], folder: Option<&Path>) -> Result<CpuClaims, OccupiedCpu> {
        let mut claims = CpuClaims::default();
        for cpu in cpus {
            let Some(Ok(mut file)) = folder.map(|folder| open(folder, *cpu)) else { continue };
            match lock_with_retries(&file) {
                Ok(true) => {
                    // A second run names this process in its error.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    claims.0.push(file);
                }
                Ok(false) => {
                    let pid = read_pid(&mut file);
                    return Err(OccupiedCpu { cpu: *cpu, pid, by: "a run of hyoshi".to_owned() });
                }
                // The file system has no locks.
                Err(_) => {}
            }
        }
        Ok(claims)
    }
}

/// Acquires a lock, with retries because other runs probe it.
fn lock_with_retries(file: &File) -> io::Result<bool> {
    for _ in 0..20 {
        if file::lock(file)? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// The directory of this user's claims.
pub(crate) fn folder() -> Option<PathBuf> {
    if hyoshi_os::file::own_user() == 0 {
        return Some(PathBuf::from("/run/hyoshi/cpus"));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_absolute())?;
    Some(Path::new(&runtime).join("hyoshi/cpus"))
}

/// Opens the file of a CPU's claim, in a directory that no other user can enter.
fn open(folder: &Path, cpu: u32) -> io::Result<File> {
    let parent = folder.parent().ok_or(io::ErrorKind::InvalidInput)?;
    for (directory, mode) in [(parent, 0o755), (folder, 0o700)] {
        match DirBuilder::new().mode(mode).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check_owner(directory)?,
        }
    }
    let metadata = std::fs::symlink_metadata(folder)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users can access the directory of claims"));
    }
    let path = folder.join(format!("cpu-{cpu}"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(SAFELY)
        .open(path)?;
    let opened = file.metadata()?;
    if !opened.is_file() || opened.uid() != hyoshi_os::file::own_user() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the claim's file belongs to another user"));
    }
    Ok(file)
}

/// Checks that a directory belongs to this user and that no other user can write to it.
fn check_owner(directory: &Path) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(directory)?;
    let own = metadata.is_dir() && metadata.uid() == hyoshi_os::file::own_user() && metadata.mode() & 0o022 == 0;
    if own {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users can change the directory"))
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let base = std::env::temp_dir().join(format!("hyoshi-claims-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        DirBuilder::new().mode(0o700).create(&base).unwrap();
        base
    }

    #[test]
    fn a_cpu_is_claimed_once_and_the_second_claim_names_the_first_process() {
        let base = scratch("once");
        let folder = base.join("hyoshi/cpus");
        let first = CpuClaims::take(&[901, 902], Some(&folder)).unwrap();
        let refused = CpuClaims::take(&[900, 902], Some(&folder)).unwrap_err();
        assert_eq!((refused.cpu, refused.pid), (902, Some(std::process::id())));
        let seen = occupied(&[900, 901, 902], Some(&folder));
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [901, 902]);
        drop(first);
        assert!(occupied(&[901, 902], Some(&folder)).is_empty());
        assert!(CpuClaims::take(&[902], Some(&folder)).is_ok());
        // A shared lock of the same user counts as a claim, too.
        let shared = open(&folder, 902).unwrap();
        shared.lock_shared().unwrap();
        assert_eq!(CpuClaims::take(&[902], Some(&folder)).unwrap_err().cpu, 902);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn no_link_is_followed_and_no_directory_of_others_is_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let base = scratch("links");
        let folder = base.join("hyoshi/cpus");
        let victim = base.join("victim");
        std::fs::write(&victim, "keep").unwrap();
        drop(CpuClaims::take(&[900], Some(&folder)).unwrap());
        symlink(&victim, folder.join("cpu-903")).unwrap();
        assert!(open(&folder, 903).is_err());
        drop(CpuClaims::take(&[903], Some(&folder)).unwrap());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "keep");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open(&folder, 900).is_err(), "others could open the files and hold their locks");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::set_permissions(base.join("hyoshi"), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open(&folder, 900).is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
