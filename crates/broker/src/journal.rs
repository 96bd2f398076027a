//! A file of appended lines that survives SIGKILL of the broker, because the page cache keeps written data. It is
//! rewritten when most lines are obsolete.
//!
//! It is opened and replaced through the descriptor of its directory, which only root and the broker's user can write
//! to ([`hyoshi_os::trusted`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hyoshi_os::trusted::{Folder, OpenMode};

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Folder,
    name: OsString,
    file: File,
    length: u64,
    lines: usize,
    /// Its length after the last rewrite.
    fresh: u64,
    /// The new file during a rewrite.
    rewrite: Option<Rewrite>,
}

#[derive(Debug)]
struct Rewrite {
    file: File,
    length: u64,
    lines: usize,
}

/// A larger file is not a journal.
const LONGEST: u64 = 64 << 20;
/// Obsolete lines allowed besides one for each current line.
const STALE: usize = 4096;
/// The same in octets.
const STALE_OCTETS: u64 = 8 << 20;

impl Journal {
    /// Opens or creates the file, and returns its text. The caller must call [`Journal::replace`] with the current
    /// lines.
    pub fn open(folder: Folder, name: &str) -> io::Result<(Journal, String)> {
        let name = OsString::from(name);
        let mut file = folder.file(&name, OpenMode::Changing)?;
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(LONGEST).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok((Journal { folder, name, file, length: 0, lines: 0, fresh: 0, rewrite: None }, text))
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Whether most of it is obsolete: `live` lines would suffice.
    pub fn is_stale(&self, live: usize) -> bool {
        self.lines > 2 * live + STALE || self.length > 2 * self.fresh + STALE_OCTETS
    }

    /// Appends a line with its end.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.length += line.len() as u64;
                self.lines += 1;
                Ok(())
            }
            Err(error) => {
                // A partial line would damage the next one.
                self.file.set_len(self.length)?;
                self.file.seek(SeekFrom::Start(self.length))?;
                Err(error)
            }
        }
    }

    /// Whether a rewrite is in progress.
    pub fn is_rewritten(&self) -> bool {
        self.rewrite.is_some()
    }

    /// Starts a rewrite into a second file. Lines appended meanwhile must also be [added](Journal::add) to that file.
    pub fn begin(&mut self, text: &str) -> io::Result<()> {
        let file = self.folder.create_empty(&self.with_extension("new"))?;
        self.rewrite = Some(Rewrite { file, length: 0, lines: 0 });
        self.add(text)
    }

    /// Adds lines to the new file. After an error the rewrite must start again.
    pub fn add(&mut self, text: &str) -> io::Result<()> {
        let Some(rewrite) = &mut self.rewrite else { return Ok(()) };
        let done = rewrite.file.write_all(text.as_bytes());
        rewrite.length += text.len() as u64;
        rewrite.lines += text.lines().count();
        if done.is_err() {
            self.rewrite = None;
        }
        done
    }

    /// Replaces the file by the new one.
    pub fn finish(&mut self) -> io::Result<()> {
        let Some(Rewrite { file, length, lines }) = self.rewrite.take() else { return Ok(()) };
        self.folder.rename(&self.with_extension("new"), &self.name)?;
        (self.file, self.length, self.lines, self.fresh) = (file, length, lines, length);
        Ok(())
    }

    /// Rewrites the file at once.
    pub fn replace(&mut self, text: &str) -> io::Result<()> {
        self.begin(text)?;
        self.finish()
    }

    /// Stores a damaged text as `NAME.damaged`, in place of an earlier one. Returns a message with the path.
    pub fn set_aside(&self, text: &str) -> String {
        let aside = self.with_extension("damaged");
        let stored = self.folder.replace(&aside, &self.with_extension("new"), text.as_bytes());
        let path = self.folder.path().join(aside);
        match stored {
            Ok(_) => format!("the file is stored as {}", path.display()),
            Err(error) => format!("the file cannot be stored as {}: {error}", path.display()),
        }
    }

    fn with_extension(&self, extension: &str) -> OsString {
        let name: &OsStr = &self.name;
        Path::new(name).with_extension(extension).into_os_string()
    }
}
