//! The state file: the broker records each change to a thread or process before it makes it, so that the next start can
//! restore everything if this broker is killed.
//!
//! Only root and the broker's user can write to the file and to all directories above it ([`hyoshi_os::trusted`]).
//! Lines that no broker can have written are ignored. A damaged file is stored aside, and its readable lines count.
//!
//! A truncated last line records a change that was never made, because lines precede changes. The page cache keeps what
//! a killed process has written; after a crash of the machine there is nothing to restore.

mod records;
mod restore;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hyoshi_os::cgroup::is_group_path;
use hyoshi_os::cgroup::own::{move_back, remove};
use hyoshi_os::process::{ProcessIdentity, identity_of_thread, is_same};
use hyoshi_os::scheduling::{Affinity, Scheduling};
use hyoshi_os::trusted::{Folder, OpenMode, UntrustedPath};

use crate::journal::Journal;
use records::StateRecord;
pub use restore::restore_unrecorded;
use restore::{restore, siblings, unbind_started};

/// A thread before the broker's first change to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedThread {
    /// Its process.
    pub process: ProcessIdentity,
    /// The thread.
    pub thread: ProcessIdentity,
    /// Its scheduling.
    pub scheduling: Scheduling,
    /// Its affinity.
    pub affinity: Affinity,
    /// The CPU of its window, to which threads that it starts there are bound.
    pub window: Option<u32>,
}

impl SavedThread {
    /// Whether the thread has ended. A list of threads that was read while some ended can lack live ones.
    pub fn has_ended(&self) -> bool {
        identity_of_thread(self.process.number, self.thread.number) != Some(self.thread)
    }
}

/// All present changes. Only one broker can open the file.
#[derive(Debug)]
pub struct StateFile {
    journal: Journal,
    /// Held until this is dropped, also while the file is replaced.
    _lock: File,
    threads: BTreeMap<ProcessIdentity, SavedThread>,
    moved: BTreeMap<ProcessIdentity, PathBuf>,
    /// With the group that remaining processes move to.
    groups: BTreeMap<PathBuf, PathBuf>,
}

/// What a broker restored of its predecessor's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Threads that had a window's priority or bandwidth.
    pub threads: usize,
    /// Removed control groups.
    pub groups: usize,
    /// Failures with their reasons.
    pub failed: Vec<String>,
    /// The state file is damaged; a message with the path of its copy.
    pub damaged: Option<String>,
}

/// The number of readable lines of a state file, for tests.
pub fn understood(text: &str) -> usize {
    records::read(text, &is_group_path).map_or(0, |parsed_records| parsed_records.lines.len())
}

/// Why the state file cannot be used. Nothing has been changed on the machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// Another broker uses it.
    Taken(PathBuf),
    /// A broker of another version has written it.
    Version {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u32,
    },
    /// It cannot be created, read or written.
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl StateFile {
    /// Locks the directory's state file, and restores what another broker left changed.
    ///
    /// # Errors
    ///
    /// If another broker uses it, it cannot be written, or another user could replace it.
    pub fn open(directory: &Path) -> Result<(StateFile, RestoreReport), StateError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| StateError::Unusable { path, error }
        };
        let folder = Folder::make(directory, 0o700).map_err(|error| unusable(directory)(error.into()))?;
        let lock_path = directory.join("touched.lock");
        let lock = folder.file("touched.lock".as_ref(), OpenMode::Changing);
        let lock = lock.map_err(|error| unusable(&lock_path)(error.into()))?;
        if !hyoshi_os::file::lock(&lock).map_err(unusable(&lock_path))? {
            return Err(StateError::Taken(directory.to_owned()));
        }
        let path = directory.join("touched");
        let (journal, text) = Journal::open(folder, "touched").map_err(unusable(&path))?;
        let parsed_records = records::read(&text, &is_group_path);
        let parsed_records = parsed_records.map_err(|version| StateError::Version { path: path.clone(), version })?;
        let mut state_file = StateFile {
            journal,
            _lock: lock,
            threads: BTreeMap::new(),
            moved: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        let damaged = (parsed_records.unreadable > 0).then(|| {
            let (lines, kept) = (parsed_records.unreadable, state_file.journal.set_aside(&text));
            format!("{lines} lines of {} are unreadable; {kept}", path.display())
        });
        state_file.take(parsed_records.lines);
        let report = RestoreReport { damaged, ..state_file.restore_all() };
        // Failures stay in the file for another start.
        state_file.compact().map_err(unusable(&path))?;
        Ok((state_file, report))
    }

    /// Records a thread before a change. A second record of the same thread replaces the first, because the program has
    /// changed what to restore.
    ///
    /// # Errors
    ///
    /// If it cannot be written; then the thread must not be changed.
    pub fn thread(&mut self, before: SavedThread) -> io::Result<()> {
        if self.threads.get(&before.thread) == Some(&before) {
            return Ok(());
        }
        self.append(&records::thread(&before))?;
        self.threads.insert(before.thread, before);
        Ok(())
    }

    /// Records that a process leaves a control group.
    ///
    /// # Errors
    ///
    /// If it cannot be written; then the process must stay.
    pub fn moved(&mut self, process: ProcessIdentity, from: &Path) -> io::Result<()> {
        self.append(&records::moved(process, from))?;
        self.moved.insert(process, from.to_owned());
        Ok(())
    }

    /// Records a new control group; processes that remain in it at its end move to `home`.
    ///
    /// # Errors
    ///
    /// If it cannot be written; then the group must not be created.
    pub fn group(&mut self, path: &Path, home: &Path) -> io::Result<()> {
        self.append(&records::group(path, home))?;
        self.groups.insert(path.to_owned(), home.to_owned());
        Ok(())
    }

    /// The group that remaining processes of `group` move to.
    pub fn home_of(&self, group: &Path) -> Option<&Path> {
        self.groups.get(group).map(PathBuf::as_path)
    }

    /// The previous group of a process.
    pub fn came_from(&self, process: ProcessIdentity) -> Option<&Path> {
        self.moved.get(&process).map(PathBuf::as_path)
    }

    /// A thread or process is restored, or has ended.
    pub fn done(&mut self, identity: ProcessIdentity) {
        let known = self.threads.remove(&identity).is_some() | self.moved.remove(&identity).is_some();
        if known {
            // A missing line is harmless: restoring again changes nothing.
            let _ = self.append(&records::done(identity));
        }
    }

    /// A control group is removed.
    pub fn group_done(&mut self, path: &Path) {
        self.groups.remove(path);
    }

    /// Number of changed threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Restores everything: at the end of a broker, and at the start of the next.
    pub fn restore_all(&mut self) -> RestoreReport {
        let mut report = RestoreReport::default();
        let failed = &mut report.failed;
        let recorded = self.threads.keys().map(|thread| thread.number).collect();
        let siblings = siblings(self.threads.values());
        self.threads.retain(|_, before| match restore(before) {
            Ok(changed) => {
                report.threads += usize::from(changed);
                false
            }
            Err(reason) => {
                failed.push(format!("thread {} of process {}: {reason}", before.thread, before.process));
                true
            }
        });
        // No new thread is bound from here on.
        unbind_started(&recorded, siblings);
        self.moved.retain(|process, from| {
            if !is_same(*process) {
                return false;
            }
            move_back(process.number, from)
                .map_err(|error| failed.push(format!("cannot move process {process} to {}: {error}", from.display())))
                .is_err()
        });
        self.groups.retain(|group, home| match remove(group, Some(home)) {
            Ok(()) => {
                report.groups += 1;
                false
            }
            Err(error) => {
                failed.push(format!("cannot remove control group {}: {error}", group.display()));
                true
            }
        });
        let _ = self.compact();
        report
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.journal.is_stale(self.threads.len() + self.moved.len() + self.groups.len()) {
            self.compact()?;
        }
        self.journal.append(line)
    }

    /// Rewrites the file with the present changes.
    fn compact(&mut self) -> io::Result<()> {
        let mut text = records::head();
        self.threads.values().for_each(|before| text.push_str(&records::thread(before)));
        self.moved.iter().for_each(|(process, from)| text.push_str(&records::moved(*process, from)));
        self.groups.iter().for_each(|(group, home)| text.push_str(&records::group(group, home)));
        self.journal.replace(&text)
    }

    fn take(&mut self, lines: Vec<StateRecord>) {
        for line in lines {
            if self.threads.len() + self.moved.len() + self.groups.len() > 1_000_000 {
                return;
            }
            match line {
                StateRecord::Thread(before) => {
                    self.threads.insert(before.thread, before);
                }
                StateRecord::Moved(process, from) => {
                    self.moved.insert(process, from);
                }
                StateRecord::Group(group, home) => {
                    self.groups.insert(group, home);
                }
                StateRecord::Done(identity) => {
                    self.threads.remove(&identity);
                    self.moved.remove(&identity);
                }
            }
        }
    }
}

impl StateError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            StateError::Taken(_) => "end the other broker, or use another state directory with --state".into(),
            StateError::Unusable { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                format!("free space on the file system of {}", path.display())
            }
            StateError::Version { path, .. } => {
                format!(
                    "start and end a broker of that version, which restores its changes, or remove {}",
                    path.display()
                )
            }
            StateError::Unusable { error, .. } if UntrustedPath::of(error).is_some() => {
                UntrustedPath::of(error).map(UntrustedPath::remedy).unwrap_or_default()
            }
            StateError::Unusable { .. } => "use a directory that the broker can write to, such as /run/hyoshi".into(),
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Taken(path) => write!(f, "another broker uses {}", path.display()),
            StateError::Version { path, version } => {
                write!(f, "{} has format {version}, which this broker cannot read", path.display())
            }
            StateError::Unusable { path, error } => {
                write!(f, "cannot use {}: {error}; nothing is changed", path.display())
            }
        }
    }
}

impl std::error::Error for StateError {}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "restored {} threads, removed {} control groups", self.threads, self.groups)?;
        self.failed.iter().try_for_each(|reason| write!(f, "; not restored: {reason}"))?;
        self.damaged.as_ref().map_or(Ok(()), |damaged| write!(f, "; {damaged}"))
    }
}

#[cfg(test)]
mod tests;
