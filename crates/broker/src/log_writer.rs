//! Appends lines to a file or to standard error in a thread of its own, so that a slow disk or a stopped terminal
//! blocks no caller.
//!
//! At [`LARGEST`] octets a file is renamed to `NAME.1`, in place of an earlier one, and a new file starts. Lines that
//! cannot be written are dropped; that is reported once, and again after a successful write.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_os::trusted::{Folder, OpenMode};
use hyoshi_os::{PiMutex, Spawn, SpawnedThread, Wake};

/// The largest size of a file, in octets.
pub const LARGEST: u64 = 16 << 20;
/// The queue, in lines and octets; further lines are dropped.
const WAITING: usize = 4_096;
const WAITING_OCTETS: usize = 1 << 20;

/// Time for a reader of standard error at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module. Dropping it writes all queued lines to a file; to standard error it writes for at most a second.
#[derive(Debug)]
pub struct LogWriter {
    queue: Arc<LogQueue>,
    thread: Option<SpawnedThread<()>>,
    /// Whether dropping it writes all queued lines.
    all: bool,
}

#[derive(Debug, Default)]
struct LogQueue {
    queued: PiMutex<QueuedLines>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct QueuedLines {
    lines: VecDeque<String>,
    octets: usize,
    lost: u64,
    error: Option<String>,
    ends: bool,
}

#[derive(Debug)]
struct RotatedFile {
    folder: Folder,
    name: OsString,
    file: File,
    size: u64,
    /// Whether the last line was written.
    whole: bool,
}

impl LogWriter {
    /// Appends to a file that only the broker's user may read.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or no thread starts.
    pub fn to(path: &Path) -> io::Result<LogWriter> {
        LogWriter::through(Box::new(RotatedFile::open(path)?), true)
    }

    /// Writes to standard error through its own descriptor, so that other writers do not wait for it.
    ///
    /// # Errors
    ///
    /// If there is no descriptor, or no thread starts.
    pub fn on_standard_error() -> io::Result<LogWriter> {
        let own = io::stderr().as_fd().try_clone_to_owned()?;
        LogWriter::through(Box::new(StandardError(File::from(own))), false)
    }

    fn through(mut sink: Box<dyn LineSink>, all: bool) -> io::Result<LogWriter> {
        let queue = Arc::new(LogQueue::default());
        let own = queue.clone();
        let thread = Spawn::new("lines").spawn(move || own.write(&mut *sink))?;
        Ok(LogWriter { queue, thread: Some(thread), all })
    }

    /// Queues a line without its end. Does not block.
    pub fn push(&self, line: String) {
        let mut queued = self.queue.queued.lock();
        let octets = queued.octets.saturating_add(line.len());
        match queued.lines.len() < WAITING && octets <= WAITING_OCTETS {
            true => {
                queued.octets = octets;
                queued.lines.push_back(line);
            }
            false => queued.lost += 1,
        }
        drop(queued);
        self.queue.wake.post();
    }

    /// Why lines were dropped, once for each failure.
    pub fn take_error(&self) -> Option<String> {
        self.queue.queued.lock().error.take()
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.queue.queued.lock().ends = true;
        self.queue.wake.post();
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + PATIENCE;
        while !self.all && !thread.is_finished() {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A panic of the thread has already been reported.
        let _ = thread.join();
    }
}

impl LogQueue {
    fn write(&self, sink: &mut dyn LineSink) {
        loop {
            let (lines, lost, ends) = {
                let mut queued = self.queued.lock();
                queued.octets = 0;
                (std::mem::take(&mut queued.lines), std::mem::take(&mut queued.lost), queued.ends)
            };
            if lines.is_empty() && lost == 0 {
                if ends {
                    return;
                }
                self.wake.wait();
                continue;
            }
            let written = lines.into_iter().filter_map(|line| sink.append(line)).last();
            if let Some(error) = written.or_else(|| (lost > 0).then(|| sink.lost(lost)).flatten()) {
                self.queued.lock().error = Some(error);
            }
        }
    }
}

/// The destination of lines.
trait LineSink: Send {
    /// Returns an error if the previous line succeeded.
    fn append(&mut self, line: String) -> Option<String>;

    /// Reports dropped lines; returns an error to report elsewhere.
    fn lost(&mut self, lines: u64) -> Option<String>;
}

/// Standard error; without a reader, errors are ignored.
#[derive(Debug)]
struct StandardError(File);

impl LineSink for StandardError {
    fn append(&mut self, line: String) -> Option<String> {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
        None
    }

    fn lost(&mut self, lines: u64) -> Option<String> {
        self.append(format!("{lines} lines dropped here: the reader of standard error is too slow"))
    }
}

impl LineSink for RotatedFile {
    fn append(&mut self, mut line: String) -> Option<String> {
        line.push('\n');
        let written = self.write(&line);
        let was_whole = std::mem::replace(&mut self.whole, written.is_ok());
        written.err().filter(|_| was_whole).map(|error| error.to_string())
    }

    fn lost(&mut self, lines: u64) -> Option<String> {
        Some(format!("{lines} lines dropped: the disk is too slow"))
    }
}

impl RotatedFile {
    fn open(path: &Path) -> io::Result<RotatedFile> {
        let (folder, name) = Folder::of_file(path)?;
        let file = folder.file(&name, OpenMode::Appending)?;
        let size = file.metadata()?.len();
        Ok(RotatedFile { folder, name, file, size, whole: true })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        // A device has no size and is not renamed.
        if self.size + line.len() as u64 > LARGEST && self.file.metadata()?.is_file() {
            let mut before = self.name.clone();
            before.push(".1");
            self.folder.rename(&self.name, &before)?;
            self.file = self.folder.file(&self.name, OpenMode::Appending)?;
            self.size = 0;
        }
        // A single write, so that SIGKILL leaves only whole lines.
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own: in a shared one, another user could create the log first.
    fn place(name: &str) -> std::path::PathBuf {
        let place = std::env::temp_dir().join(format!("hyoshi-lines-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn a_full_disk_is_reported_once_and_the_log_continues_when_there_is_space() {
        let open = |path: &str| std::fs::OpenOptions::new().append(true).open(path).unwrap();
        let mut log = RotatedFile::open(Path::new("/dev/full")).unwrap();
        assert!(log.append("a".into()).is_some());
        assert!(log.append("b".into()).is_none(), "reported already");
        log.file = open("/dev/null");
        assert!(log.append("c".into()).is_none());
        log.file = open("/dev/full");
        assert!(log.append("d".into()).is_some(), "incomplete again");
    }

    #[test]
    fn a_file_that_has_grown_is_begun_anew() {
        let place = place("grown");
        let (path, before) = (place.join("log"), place.join("log.1"));
        let mut log = RotatedFile::open(&path).unwrap();
        log.size = LARGEST;
        assert!(log.append("a".into()).is_none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
        assert!(before.exists());
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn waiting_lines_are_written_before_the_end_and_lost_ones_are_counted() {
        let place = place("all");
        let path = place.join("log");
        let lines = LogWriter::to(&path).unwrap();
        (0..1_000).for_each(|number| lines.push(number.to_string()));
        assert_eq!(lines.take_error(), None);
        drop(lines);
        let wanted: String = (0..1_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
        std::fs::remove_dir_all(&place).unwrap();

        let lines = LogWriter::to(Path::new("/dev/full")).unwrap();
        let queue = lines.queue.clone();
        lines.push("a".into());
        drop(lines);
        assert!(queue.queued.lock().error.as_deref().is_some_and(|error| error.contains("No space left")));
    }

    #[test]
    fn a_reader_that_stops_delays_no_writer_and_gets_the_number_of_dropped_lines() {
        let (read, write) = io::pipe().unwrap();
        let lines =
            LogWriter::through(Box::new(StandardError(File::from(std::os::fd::OwnedFd::from(write)))), false).unwrap();
        // More than a pipe and the queue hold.
        let word = "x".repeat(1_000);
        (0..4 * WAITING).for_each(|_| lines.push(word.clone()));
        let ended = std::thread::spawn(move || drop(lines));
        let until = Instant::now() + Duration::from_secs(30);
        while !ended.is_finished() {
            assert!(Instant::now() < until, "it waits for a reader");
            std::thread::sleep(Duration::from_millis(5));
        }
        let all = io::read_to_string(read).unwrap();
        let (reports, words): (Vec<_>, Vec<_>) = all.lines().partition(|line| line.contains("dropped here"));
        assert!(words.iter().all(|line| *line == word));
        let lost: usize = reports.iter().map(|line| line.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!((words.len() + lost, lost > 0), (4 * WAITING, true));
    }

    #[test]
    fn few_long_lines_wait() {
        let (read, write) = io::pipe().unwrap();
        let lines =
            LogWriter::through(Box::new(StandardError(File::from(std::os::fd::OwnedFd::from(write)))), false).unwrap();
        let (word, all) = ("x".repeat(WAITING_OCTETS / 8), 64);
        // No pipe holds the first line: the thread has taken it, and waits until the end.
        lines.push(word.clone());
        let until = Instant::now() + Duration::from_secs(30);
        while !lines.queue.queued.lock().lines.is_empty() {
            assert!(Instant::now() < until, "the thread does not write");
            std::thread::sleep(Duration::from_millis(1));
        }
        (1..all).for_each(|_| lines.push(word.clone()));
        let queued = lines.queue.queued.lock();
        assert!(queued.octets <= WAITING_OCTETS && queued.lines.len() <= 8, "{} octets", queued.octets);
        assert_eq!(queued.lost + queued.lines.len() as u64, all - 1);
        drop((queued, read));
    }
}
