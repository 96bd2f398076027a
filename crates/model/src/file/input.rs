//! Reads text from a file, of bounded size: large files, directories and binary files are rejected with a reason before
//! they fill the memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a file could not be read as text.
#[derive(Debug)]
pub(super) struct InputError {
    pub path: PathBuf,
    pub cause: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    Directory,
    TooLarge(usize),
    NotText { byte: usize, line: usize },
    System(io::Error),
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Directory => write!(f, "{path} is a directory"),
            Cause::TooLarge(most) => write!(f, "{path} is larger than {} MiB", most >> 20),
            Cause::NotText { byte, line } => write!(f, "{path} is not text: byte {byte}, in line {line}, is not UTF-8"),
            Cause::System(error) => write!(f, "{path} cannot be read: {error}"),
        }
    }
}

impl InputError {
    pub fn remedy(&self) -> String {
        match &self.cause {
            Cause::Directory => "name a file in it".to_string(),
            Cause::TooLarge(_) => {
                "describe many alike with `count`, and split long lists of times into several files".to_string()
            }
            Cause::NotText { .. } => "save it as UTF-8 text".to_string(),
            Cause::System(error) if error.kind() == io::ErrorKind::NotFound => {
                "check the name; relative names start at the current directory, or at the file that contains them"
                    .to_string()
            }
            Cause::System(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "make it readable for this user: chmod +r".to_string()
            }
            Cause::System(_) => "check that it can be read: cat".to_string(),
        }
    }
}

/// Reads at most `most` bytes of UTF-8.
pub(super) fn read_text(path: &Path, most: usize) -> Result<String, InputError> {
    let fail = |cause| InputError { path: path.to_path_buf(), cause };
    let metadata = std::fs::metadata(path).map_err(|error| fail(Cause::System(error)))?;
    if metadata.is_dir() {
        return Err(fail(Cause::Directory));
    }
    if metadata.len() > most as u64 {
        return Err(fail(Cause::TooLarge(most)));
    }
    // A pipe or a device has no known length, and a file may grow meanwhile.
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| fail(Cause::System(error)))?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| fail(Cause::System(error)))?;
    if bytes.len() > most {
        return Err(fail(Cause::TooLarge(most)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1;
        fail(Cause::NotText { byte, line })
    })
}
