//! Lines appended to a file by a thread of its own: a disk that takes its time holds up nobody else.
//!
//! A file grows to [`LARGEST`] octets; then it is renamed to `NAME.1`, in place of an earlier one, and begun anew. Lines that
//! cannot be written are lost; that is told once, and again after a line could be written in between.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_os::{PiMutex, Spawn, Thread, Wake};

/// When a file is begun anew, in octets.
pub const LARGEST: u64 = 16 << 20;
/// Lines that wait to be written; further ones are lost.
const WAITING: usize = 4_096;

/// See the module. When it goes, all that waits is written first.
#[derive(Debug)]
pub struct Lines {
    desk: Arc<Desk>,
    thread: Option<Thread<()>>,
}

#[derive(Debug, Default)]
struct Desk {
    tray: PiMutex<Tray>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct Tray {
    lines: VecDeque<String>,
    lost: u64,
    trouble: Option<String>,
    ends: bool,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    /// Whether the last line was written.
    whole: bool,
}

impl Lines {
    /// Appends to a file, which only the broker's user may read.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or there is no thread to be had.
    pub fn to(path: &Path) -> io::Result<Lines> {
        let mut log = Log::open(path)?;
        let desk = Arc::new(Desk::default());
        let own = desk.clone();
        let thread = Spawn::new("lines").spawn(move || own.write(&mut log))?;
        Ok(Lines { desk, thread: Some(thread) })
    }

    /// A line without its end. Waits for nothing.
    pub fn push(&self, line: String) {
        let mut tray = self.desk.tray.lock();
        match tray.lines.len() < WAITING {
            true => tray.lines.push_back(line),
            false => tray.lost += 1,
        }
        drop(tray);
        self.desk.wake.post();
    }

    /// Why lines were lost, if that has not been told yet.
    pub fn trouble(&self) -> Option<String> {
        self.desk.tray.lock().trouble.take()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.desk.tray.lock().ends = true;
        self.desk.wake.post();
        // A panic of the thread would have been told by itself.
        let _ = self.thread.take().map(Thread::join);
    }
}

impl Desk {
    fn write(&self, log: &mut Log) {
        loop {
            let (lines, lost, ends) = {
                let mut tray = self.tray.lock();
                (std::mem::take(&mut tray.lines), std::mem::take(&mut tray.lost), tray.ends)
            };
            if lines.is_empty() && lost == 0 {
                if ends {
                    return;
                }
                self.wake.wait();
                continue;
            }
            let written = lines.into_iter().filter_map(|line| log.append(line)).last();
            let lost = (lost > 0).then(|| format!("{lost} lines came faster than the disk takes them"));
            if let Some(trouble) = written.or(lost) {
                self.tray.lock().trouble = Some(trouble);
            }
        }
    }
}

impl Log {
    fn open(path: &Path) -> io::Result<Log> {
        let file = open(path)?;
        let size = file.metadata()?.len();
        Ok(Log { path: path.to_owned(), file, size, whole: true })
    }

    /// Says what is wrong, if it was not wrong before.
    fn append(&mut self, mut line: String) -> Option<String> {
        line.push('\n');
        let written = self.write(&line);
        let was_whole = std::mem::replace(&mut self.whole, written.is_ok());
        written.err().filter(|_| was_whole).map(|error| error.to_string())
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.size + line.len() as u64 > LARGEST {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            std::fs::rename(&self.path, before)?;
            self.file = open(&self.path)?;
            self.size = 0;
        }
        // One write: lines of a broker that is killed are whole.
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_once_and_the_log_goes_on_when_there_is_space() {
        let mut log = Log::open(Path::new("/dev/full")).unwrap();
        assert!(log.append("a".into()).is_some());
        assert!(log.append("b".into()).is_none(), "told already");
        log.file = open(Path::new("/dev/null")).unwrap();
        assert!(log.append("c".into()).is_none());
        log.file = open(Path::new("/dev/full")).unwrap();
        assert!(log.append("d".into()).is_some(), "incomplete again");
    }

    #[test]
    fn a_file_that_has_grown_is_begun_anew() {
        let path = std::env::temp_dir().join(format!("hyoshi-lines-{}", std::process::id()));
        let before = path.with_file_name(format!("hyoshi-lines-{}.1", std::process::id()));
        let mut log = Log::open(&path).unwrap();
        log.size = LARGEST;
        assert!(log.append("a".into()).is_none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
        assert!(before.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&before).unwrap();
    }

    #[test]
    fn all_that_waits_is_written_before_the_end_and_what_is_lost_is_told() {
        let path = std::env::temp_dir().join(format!("hyoshi-lines-all-{}", std::process::id()));
        let lines = Lines::to(&path).unwrap();
        (0..1_000).for_each(|number| lines.push(number.to_string()));
        assert_eq!(lines.trouble(), None);
        drop(lines);
        let wanted: String = (0..1_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
        std::fs::remove_file(&path).unwrap();

        let lines = Lines::to(Path::new("/dev/full")).unwrap();
        let desk = lines.desk.clone();
        lines.push("a".into());
        drop(lines);
        assert!(desk.tray.lock().trouble.as_deref().is_some_and(|trouble| trouble.contains("No space left")));
    }
}
