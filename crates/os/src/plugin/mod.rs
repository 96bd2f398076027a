//! Plug-ins: advocates and policies of the CPU broker from shared libraries, behind a small C interface
//! (`crates/broker/include/hyoshi-plugin.h`; [`abi`] in Rust).
//!
//! The contract. A library is loaded only from an absolute path to which only root and this process's user can write,
//! along with all directories above it: a user who can change those files could run code as the broker anyway. Before
//! any other call, its table must have [`abi::VERSION`]. Its functions are called as the header defines: never two at
//! once for one instance, with pointers that hold during the call. Their results are only numbers and text, which the
//! caller checks; that they return, and write nowhere else, is trusted. A library that crashes takes the broker with
//! it.

pub mod abi;
mod advocate;
mod library;
mod policy;

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;

pub use advocate::AdvocatePlugin;
pub use policy::{NamedAsk, PolicyPlugin};

/// Why a library is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// Its path does not begin with a slash.
    Relative(PathBuf),
    /// It is not found or cannot be read.
    Missing(PathBuf, io::Error),
    /// It is not a file.
    NoFile(PathBuf),
    /// Others could have written or replaced it.
    Open {
        /// The file or a directory above it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The system's loader refuses it.
    Loader {
        /// The library.
        path: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// It does not export the function that returns its table.
    NoFunction {
        /// The library.
        path: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// Its table is missing, too short, or lacks a required function.
    NoTable {
        /// The library.
        path: PathBuf,
    },
    /// It was built for another version of the interface.
    Version {
        /// The library.
        path: PathBuf,
        /// That version.
        version: u32,
    },
    /// It refuses its parameters.
    Unwilling {
        /// The library.
        path: PathBuf,
        /// Its message; may be empty.
        why: String,
    },
    /// A zero byte inside a text.
    Nul,
}

impl LoadError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            LoadError::Relative(_) | LoadError::Missing(..) | LoadError::NoFile(_) | LoadError::Nul => {
                "use the library's absolute path: --path /usr/local/lib/hyoshi/NAME.so".to_owned()
            }
            LoadError::Open { path, .. } => {
                format!("chown root {0} and chmod go-w {0}, or store it where only root can write", path.display())
            }
            LoadError::Loader { .. } => "build it as a shared library for this machine: cc -shared -fPIC".to_owned(),
            LoadError::NoFunction { .. } | LoadError::NoTable { .. } => {
                "export it as hyoshi-plugin.h declares".to_owned()
            }
            LoadError::Version { .. } => "rebuild it with this version's hyoshi-plugin.h".to_owned(),
            LoadError::Unwilling { .. } => "add its parameters: --NAME VALUE".to_owned(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Relative(path) => write!(f, "the library's path must begin with /: {}", path.display()),
            LoadError::Missing(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            LoadError::NoFile(path) => write!(f, "{} is not a file", path.display()),
            LoadError::Open { path, owner, mode } => write!(
                f,
                "other users could have changed the library: {} belongs to user {owner} and has mode {mode:o}",
                path.display()
            ),
            LoadError::Loader { path, why } => write!(f, "{} cannot be loaded: {why}", path.display()),
            LoadError::NoFunction { path, function } => write!(f, "{} has no function {function}", path.display()),
            LoadError::NoTable { path } => write!(f, "{} has an incomplete table of functions", path.display()),
            LoadError::Version { path, version } => write!(
                f,
                "{} was built for version {version} of the interface, this broker has version {}",
                path.display(),
                abi::VERSION
            ),
            LoadError::Unwilling { path, why } if why.is_empty() => write!(f, "{} refuses", path.display()),
            LoadError::Unwilling { path, why } => write!(f, "{} refuses: {why}", path.display()),
            LoadError::Nul => f.write_str("a path or a parameter contains a zero byte"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Room for a plug-in's text, in octets with the zero at its end.
const ROOM: usize = 256;

/// The text that one function of a plug-in wrote into its buffer.
fn words(write: impl FnOnce(*mut c_char, usize)) -> String {
    let mut room = [0_u8; ROOM];
    write(room.as_mut_ptr().cast(), ROOM - 1);
    let end = room.iter().position(|octet| *octet == 0).unwrap_or(ROOM);
    String::from_utf8_lossy(&room[..end]).chars().filter(|c| !c.is_control()).collect()
}

/// Parameters for C; the texts must outlive the created instance.
struct Parameters(Vec<(CString, CString)>);

impl Parameters {
    fn new(all: &[(String, String)]) -> Result<Parameters, LoadError> {
        let text = |text: &String| CString::new(text.as_str()).map_err(|_| LoadError::Nul);
        Ok(Parameters(all.iter().map(|(name, value)| Ok((text(name)?, text(value)?))).collect::<Result<_, _>>()?))
    }

    fn table(&self) -> Vec<abi::PluginParameter> {
        self.0.iter().map(|(name, value)| abi::PluginParameter { name: name.as_ptr(), value: value.as_ptr() }).collect()
    }
}

/// An instance of a library, with its description of itself.
#[derive(Debug)]
struct Instance {
    state: NonNull<c_void>,
    describe: Option<abi::Describe>,
    destroy: Option<abi::Destroy>,
    // Dropped after the instance was destroyed.
    _library: library::Library,
}

// SAFETY: the header requires that calls may be from different threads, one at a time.
unsafe impl Send for Instance {}

impl Instance {
    fn words(&self) -> Option<String> {
        // SAFETY: it exists, and the room is as long as passed.
        self.describe.map(|describe| words(|into, room| unsafe { describe(self.state.as_ptr(), into, room) }))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: it is not used afterwards.
            unsafe { destroy(self.state.as_ptr()) };
        }
    }
}
