//! Notices edits of the system's files during a run, which keeps what it has read at its start.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as WallClock};

use hyoshi_report::{NoteLevel, ReportNote, TerminalStyle};

use super::super::load::LoadedSystem;
use super::super::streams;

/// The files are looked at this often.
const LOOK: Duration = Duration::from_secs(1);

/// Time of the last change, size and inode.
type Stamp = (i64, i64, u64, u64);

/// The files of a run. Each edited one is reported once.
pub(super) struct EditWatch {
    /// With the stamps at the start.
    files: Vec<(PathBuf, Stamp)>,
    edited: Vec<PathBuf>,
    looked: WallClock,
}

impl EditWatch {
    /// The system's file and those that it refers to; pipes are not watched.
    pub fn of(ready: &LoadedSystem) -> EditWatch {
        let file = Path::new(&ready.file);
        let folder = file.parent().unwrap_or(Path::new(""));
        let others = ready.files.iter().map(|(name, _)| folder.join(name));
        let files = std::iter::once(file.to_path_buf()).chain(others);
        let files = files.filter_map(|path| stamp(&path).map(|stamp| (path, stamp))).collect();
        EditWatch { files, edited: Vec::new(), looked: WallClock::now() }
    }

    /// Reports edits since the last call. `say`: print them on standard error.
    pub fn report(&mut self, say: bool) {
        if self.looked.elapsed() >= LOOK {
            self.look(say);
        }
    }

    fn look(&mut self, say: bool) {
        self.looked = WallClock::now();
        let edited = |(path, before): &(PathBuf, Stamp)| stamp(path).is_some_and(|now| now != *before);
        let (edited, rest) = std::mem::take(&mut self.files).into_iter().partition(edited);
        self.files = rest;
        for (path, _) in edited {
            if say {
                let text = format!("hyoshi run: {}; {REMEDY}\n", text(&path));
                streams::err(TerminalStyle::of_stderr().wrap(&text));
            }
            self.edited.push(path);
        }
    }

    /// Notes for the report.
    pub fn end(mut self) -> Vec<ReportNote> {
        self.look(false);
        let note = |path: &PathBuf| ReportNote {
            level: NoteLevel::Info,
            topic: "file".into(),
            text: text(path),
            remedy: Some(REMEDY.into()),
        };
        self.edited.iter().map(note).collect()
    }
}

const REMEDY: &str = "start it again to apply the changes";

fn text(path: &Path) -> String {
    format!("{} was edited during the run: the run keeps what it has read at its start", path.display())
}

/// `None` if it is not a regular file, or is missing: an editor may be replacing it.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
}
