//! The broker's socket: its path, and that no other user can replace it. [`hyoshi_orb::cpu_broker`] has the paths that
//! clients use.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hyoshi_orb::cpu_broker::{MACHINE, own};
use hyoshi_os::trusted::{Folder, UntrustedPath};

/// The longest path of a Unix socket, in octets (unix(7): 108 with the final zero).
pub const LONGEST_PATH: usize = 107;

/// Why the socket cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketError {
    /// Neither root nor XDG_RUNTIME_DIR.
    Nowhere,
    /// The path is too long.
    TooLong(PathBuf),
    /// The path is not absolute.
    Relative(PathBuf),
    /// The directory cannot be created or opened.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Another user could replace the socket.
    Open {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::Nowhere => f.write_str("no path for the broker's socket: XDG_RUNTIME_DIR is not set"),
            SocketError::TooLong(path) => {
                let octets = path.as_os_str().len();
                write!(f, "the socket path has {octets} octets, the limit is {LONGEST_PATH}: {}", path.display())
            }
            SocketError::Relative(path) => write!(f, "the socket path is not absolute: {}", path.display()),
            SocketError::Directory { path, error } => {
                write!(f, "cannot use the socket directory {}: {error}", path.display())
            }
            SocketError::Open { path, owner, mode } => write!(
                f,
                "another user could replace the broker's socket: {} belongs to user {owner} and has mode {mode:o}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SocketError {}

impl SocketError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            SocketError::Nowhere => "use --socket PATH in a directory that only you can write to".to_owned(),
            SocketError::TooLong(_) | SocketError::Relative(_) => format!("use --socket PATH, such as {MACHINE}"),
            SocketError::Directory { .. } => "use --socket PATH in a directory that you can write to".to_owned(),
            SocketError::Open { path, .. } => {
                format!("run `chmod go-w {0}`, or use --socket PATH in another directory", path.display())
            }
        }
    }
}

/// The default path for this user's broker.
///
/// # Errors
///
/// If there is none.
pub fn to_serve(uid: u32, runtime: Option<&Path>) -> Result<PathBuf, SocketError> {
    own(uid, runtime).ok_or(SocketError::Nowhere)
}

/// Creates the socket's directory, and checks that no other user can replace it or a directory above it
/// ([`hyoshi_os::trusted`]).
///
/// # Errors
///
/// If the path is not valid for a socket, or another user controls a directory.
pub fn prepare(socket: &Path, uid: u32) -> Result<(), SocketError> {
    if !socket.is_absolute() {
        return Err(SocketError::Relative(socket.to_owned()));
    }
    if socket.as_os_str().len() > LONGEST_PATH {
        return Err(SocketError::TooLong(socket.to_owned()));
    }
    let Some(directory) = socket.parent() else { return Err(SocketError::Relative(socket.to_owned())) };
    // All users reach the machine's broker, only one user that user's broker.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    match Folder::make(directory, mode) {
        Ok(_) => Ok(()),
        Err(UntrustedPath::Open { path, owner, mode }) => Err(SocketError::Open { path, owner, mode }),
        Err(mistrust) => Err(SocketError::Directory { path: directory.to_owned(), error: mistrust.into() }),
    }
}

/// Lets all users connect to root's socket, and only its user to another: the kernel identifies the caller.
///
/// # Errors
///
/// The error of the file system.
pub fn open_to_clients(socket: &Path, uid: u32) -> io::Result<()> {
    fs::set_permissions(socket, fs::Permissions::from_mode(if uid == 0 { 0o666 } else { 0o600 }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn root_serves_the_machine_and_others_themselves() {
        let runtime = Path::new("/run/user/1000");
        assert_eq!(to_serve(0, Some(runtime)).unwrap(), Path::new(MACHINE));
        assert_eq!(to_serve(1000, Some(runtime)).unwrap(), Path::new("/run/user/1000/hyoshi/broker.sock"));
        assert!(matches!(to_serve(1000, None), Err(SocketError::Nowhere)));
        assert!(matches!(to_serve(1000, Some(Path::new("here"))), Err(SocketError::Nowhere)));
    }

    #[test]
    fn a_directory_that_others_write_to_is_refused() {
        let uid = fs::metadata("/proc/self").unwrap().uid();
        let directory = std::env::temp_dir().join(format!("hyoshi-place-{}", std::process::id()));
        let socket = directory.join("run/broker.sock");
        prepare(&socket, uid).unwrap();
        let run = directory.join("run");
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, if uid == 0 { 0o755 } else { 0o700 });
        fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
        let error = prepare(&socket, uid).unwrap_err();
        assert!(matches!(error, SocketError::Open { mode: 0o777, .. }), "{error}");
        assert!(error.remedy().contains("chmod go-w"));
        // In a sticky directory other users could create the files beside the socket.
        fs::set_permissions(&run, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(matches!(prepare(&socket, uid), Err(SocketError::Open { mode: 0o1777, .. })));
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        prepare(&socket, uid).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(prepare(&socket, uid), Err(SocketError::Open { mode: 0o777, .. })), "a directory above it");
        fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(prepare(Path::new("run/broker.sock"), uid), Err(SocketError::Relative(_))));
        let long = format!("/{}", "x".repeat(LONGEST_PATH));
        assert!(matches!(prepare(Path::new(&long), uid), Err(SocketError::TooLong(_))));
    }
}
