//! A file of lines that is appended to, and written anew when most of it is no longer true: what has to outlive a broker that
//! is killed. The page cache holds what a killed process has written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    lines: usize,
}

/// A file above this is none of ours.
const LONGEST: u64 = 64 << 20;
/// Lines that are no longer true are tolerated up to this, and up to as many as are.
const STALE: usize = 4096;

impl Journal {
    /// Opens or makes it. Whoever opens it takes from the text what is still true and begins with [`Journal::replace`].
    pub fn open(path: &Path) -> io::Result<(Journal, String)> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(LONGEST).read_to_end(&mut text)?;
        let (path, text) = (path.to_owned(), String::from_utf8_lossy(&text).into_owned());
        Ok((Journal { path, file, length: 0, lines: 0 }, text))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if most of it is no longer so: `live` lines would do.
    pub fn is_stale(&self, live: usize) -> bool {
        self.lines > 2 * live + STALE
    }

    /// Adds a line, with its end.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.length += line.len() as u64;
                self.lines += 1;
                Ok(())
            }
            Err(error) => {
                // Half a line would spoil the next one.
                self.file.set_len(self.length)?;
                self.file.seek(SeekFrom::Start(self.length))?;
                Err(error)
            }
        }
    }

    /// Writes it anew, beside it and then in its place.
    pub fn replace(&mut self, text: &str) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&beside, &self.path)?;
        (self.file, self.length, self.lines) = (file, text.len() as u64, text.lines().count());
        Ok(())
    }
}
