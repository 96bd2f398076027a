//! The state file: what was changed of whose threads, written before it is changed, so that all of it is put back also
//! when the broker did not come to do it: by the next one, at its start.
//!
//! Only root and the broker's user can write to the file and to all directories above it ([`hyoshi_os::trusted`]).
//! Lines that no broker can have written are ignored. A damaged file is set aside, and its other lines count.
//!
//! A line that was cut off is one whose change was never made, for lines come first. The page cache holds what a killed
//! process has written; after a crash of the machine there is nothing to put back.

mod back;
mod lines;

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
pub use back::put_back_unnoted;
use back::{kin, restore, unbind_born};
use lines::Line;

/// A thread as it was before the broker's first change to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Its process.
    pub process: ProcessIdentity,
    /// Itself.
    pub thread: ProcessIdentity,
    /// How it was scheduled.
    pub scheduling: Scheduling,
    /// Where it could run.
    pub affinity: Affinity,
    /// The CPU of its window, to which whoever it starts there is bound.
    pub window: Option<u32>,
}

impl Before {
    /// Whether the thread has ended. A list of threads that was read while some ended can lack others that live.
    pub fn has_ended(&self) -> bool {
        identity_of_thread(self.process.number, self.thread.number) != Some(self.thread)
    }
}

/// What is changed at present. One broker at a time has the file.
#[derive(Debug)]
pub struct Touched {
    journal: Journal,
    /// Held for as long as this lives; also through renames of the file.
    _lock: File,
    threads: BTreeMap<ProcessIdentity, Before>,
    moved: BTreeMap<ProcessIdentity, PathBuf>,
    /// With where whoever is left in it goes.
    groups: BTreeMap<PathBuf, PathBuf>,
}

/// What the last broker had left changed, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// Threads that were at a window's priority or had bandwidth, and have not now.
    pub threads: usize,
    /// Control groups that were removed.
    pub groups: usize,
    /// What could not be put back, with the reason.
    pub failed: Vec<String>,
    /// The state file is damaged; where the damaged copy is.
    pub damaged: Option<String>,
}

/// How many lines of a state file's text are readable, for tests. Restores nothing.
pub fn understood(text: &str) -> usize {
    lines::read(text, &is_group_path).map_or(0, |said| said.lines.len())
}

/// Why there is no state file to work with. Nothing has been changed on the machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// Another broker has it.
    Taken(PathBuf),
    /// Another version of the broker has written it.
    Version {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u32,
    },
    /// It cannot be made, read or written.
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Touched {
    /// Takes the directory's state file, and puts back what another broker left there.
    ///
    /// # Errors
    ///
    /// If another broker works with it, if it cannot be written, or if another user could replace it.
    pub fn open(directory: &Path) -> Result<(Touched, PutBack), StateError> {
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
        let said = lines::read(&text, &is_group_path);
        let said = said.map_err(|version| StateError::Version { path: path.clone(), version })?;
        let mut touched =
            Touched { journal, _lock: lock, threads: BTreeMap::new(), moved: BTreeMap::new(), groups: BTreeMap::new() };
        let damaged = (said.unreadable > 0).then(|| {
            let (lines, kept) = (said.unreadable, touched.journal.set_aside(&text));
            format!("{lines} lines of {} cannot be read; {kept}", path.display())
        });
        touched.take(said.lines);
        let report = PutBack { damaged, ..touched.put_all_back() };
        // What could not be put back stays in the file, for another start to try.
        touched.compact().map_err(unusable(&path))?;
        Ok((touched, report))
    }

    /// A thread is about to be changed. A second record of the same thread replaces the first: the program itself has
    /// changed what it is to be put back to.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then the thread must be left alone.
    pub fn thread(&mut self, before: Before) -> io::Result<()> {
        if self.threads.get(&before.thread) == Some(&before) {
            return Ok(());
        }
        self.append(&lines::thread(&before))?;
        self.threads.insert(before.thread, before);
        Ok(())
    }

    /// A process is about to be moved out of a control group.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then it must stay where it is.
    pub fn moved(&mut self, process: ProcessIdentity, from: &Path) -> io::Result<()> {
        self.append(&lines::moved(process, from))?;
        self.moved.insert(process, from.to_owned());
        Ok(())
    }

    /// A control group is about to be made; whoever is left in it when it is removed goes to `home`.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then it must not be made.
    pub fn group(&mut self, path: &Path, home: &Path) -> io::Result<()> {
        self.append(&lines::group(path, home))?;
        self.groups.insert(path.to_owned(), home.to_owned());
        Ok(())
    }

    /// Where whoever is left in a group goes.
    pub fn home_of(&self, group: &Path) -> Option<&Path> {
        self.groups.get(group).map(PathBuf::as_path)
    }

    /// The group that a process came from.
    pub fn came_from(&self, process: ProcessIdentity) -> Option<&Path> {
        self.moved.get(&process).map(PathBuf::as_path)
    }

    /// A thread or process is as it was, or has ended.
    pub fn done(&mut self, whose: ProcessIdentity) {
        let known = self.threads.remove(&whose).is_some() | self.moved.remove(&whose).is_some();
        if known {
            // A line too few does no harm: what is as it was is found to be so.
            let _ = self.append(&lines::done(whose));
        }
    }

    /// A control group is gone.
    pub fn group_done(&mut self, path: &Path) {
        self.groups.remove(path);
    }

    /// Threads that are not as they were.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Puts everything back as it was: the last act of a broker, and the first of the next.
    pub fn put_all_back(&mut self) -> PutBack {
        let mut report = PutBack::default();
        let failed = &mut report.failed;
        let noted = self.threads.keys().map(|thread| thread.number).collect();
        let kin = kin(self.threads.values());
        self.threads.retain(|_, before| match restore(before) {
            Ok(changed) => {
                report.threads += usize::from(changed);
                false
            }
            Err(why) => {
                failed.push(format!("thread {} of process {}: {why}", before.thread, before.process));
                true
            }
        });
        // Nobody is born bound any more.
        unbind_born(&noted, kin);
        self.moved.retain(|process, from| {
            if !is_same(*process) {
                return false;
            }
            move_back(process.number, from)
                .map_err(|error| failed.push(format!("process {process} to {}: {error}", from.display())))
                .is_err()
        });
        self.groups.retain(|group, home| match remove(group, Some(home)) {
            Ok(()) => {
                report.groups += 1;
                false
            }
            Err(error) => {
                failed.push(format!("control group {}: {error}", group.display()));
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

    /// Writes the file anew with what is true.
    fn compact(&mut self) -> io::Result<()> {
        let mut text = lines::head();
        self.threads.values().for_each(|before| text.push_str(&lines::thread(before)));
        self.moved.iter().for_each(|(process, from)| text.push_str(&lines::moved(*process, from)));
        self.groups.iter().for_each(|(group, home)| text.push_str(&lines::group(group, home)));
        self.journal.replace(&text)
    }

    fn take(&mut self, lines: Vec<Line>) {
        for line in lines {
            if self.threads.len() + self.moved.len() + self.groups.len() > 1_000_000 {
                return;
            }
            match line {
                Line::Thread(before) => {
                    self.threads.insert(before.thread, before);
                }
                Line::Moved(process, from) => {
                    self.moved.insert(process, from);
                }
                Line::Group(group, home) => {
                    self.groups.insert(group, home);
                }
                Line::Done(whose) => {
                    self.threads.remove(&whose);
                    self.moved.remove(&whose);
                }
            }
        }
    }
}

impl StateError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            StateError::Taken(_) => {
                "end the other broker first (`hyoshi broker list` asks it), or give this one a state directory of its own".into()
            }
            StateError::Unusable { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                format!("make room on the file system of {}", path.display())
            }
            StateError::Version { path, .. } => {
                format!("start and end a broker of that version once, which puts back what it changed; or remove {}", path.display())
            }
            StateError::Unusable { error, .. } if UntrustedPath::of(error).is_some() => {
                UntrustedPath::of(error).map(UntrustedPath::remedy).unwrap_or_default()
            }
            StateError::Unusable { .. } => "name a directory that the broker can write to, such as /run/hyoshi".into(),
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Taken(path) => write!(f, "another broker works with {}", path.display()),
            StateError::Version { path, version } => {
                write!(
                    f,
                    "{} was written by a broker with version {version} of it, unknown to this one",
                    path.display()
                )
            }
            StateError::Unusable { path, error } => write!(
                f,
                "what is changed of programs cannot be noted in {}: {error}; so nothing is changed",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StateError {}

impl fmt::Display for PutBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "put back {} threads, removed {} control groups", self.threads, self.groups)?;
        self.failed.iter().try_for_each(|why| write!(f, "; not put back: {why}"))?;
        self.damaged.as_ref().map_or(Ok(()), |damaged| write!(f, "; {damaged}"))
    }
}

#[cfg(test)]
mod tests;
