//! Writes a report file in one step: an old one is only replaced by a complete new one.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A report could not be written; an older one in its place is untouched.
#[derive(Debug)]
pub struct SaveError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write the report {}: {}; ", self.path.display(), self.source)?;
        f.write_str(match self.source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "name a file in a directory that you may write to"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or name a file on another disk"
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                "create its directory first, or name another file"
            }
            io::ErrorKind::IsADirectory => "name a file in this directory",
            _ => "name another file",
        })
    }
}

impl std::error::Error for SaveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Writes `text` to `path`: beside it first, then in its place.
pub fn save(path: &Path, text: &str) -> Result<(), SaveError> {
    let error = |source| SaveError { path: path.into(), source };
    // A device or a pipe cannot be replaced, only written to.
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return fs::write(path, text).map_err(error);
    }
    let beside = beside(path).ok_or_else(|| error(io::ErrorKind::IsADirectory.into()))?;
    let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| {
        // The first error counts; that a half-written file stays behind would be the lesser one.
        drop(fs::remove_file(&beside));
        error(source)
    })
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    // Some file systems report a full disk only now.
    file.sync_all()
}

/// A name beside `path` that no other process uses; `None` if it names no file.
fn beside(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return None;
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}", std::process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("hyoshi-report-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_report_takes_the_place_of_an_old_one_and_leaves_nothing_beside() {
        let folder = folder("replace");
        let path = folder.join("report.html");
        save(&path, "old").unwrap();
        save(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let folder = folder("errors");
        let said = |path: &Path| save(path, "text").unwrap_err().to_string();
        let missing = said(&folder.join("no/such/report.html"));
        assert!(missing.contains("no/such/report.html") && missing.contains("create its directory"), "{missing}");
        let is_folder = said(&folder);
        assert!(is_folder.contains("name a file in this directory"), "{is_folder}");
        // Root may write anywhere but here.
        let refused = said(Path::new("/proc/report.html"));
        assert!(refused.contains("/proc/report.html") && refused.contains("directory"), "{refused}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_device_is_an_error() {
        let full = save(Path::new("/dev/full"), "text").unwrap_err().to_string();
        assert!(full.contains("free some space"), "{full}");
    }
}
