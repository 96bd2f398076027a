//! Loads a shared library: dlopen(3), after a check who could have written it.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::LoadError;
use super::abi;
use crate::trusted::{self, UntrustedPath};

/// A library that is loaded until this is dropped.
#[derive(Debug)]
pub(super) struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: a handle is a number to the loader, and any thread may call the loader's functions (dlsym(3), attributes).
unsafe impl Send for Library {}

impl Library {
    /// Loads it, which runs its initialisers.
    pub fn open(path: &Path) -> Result<Library, LoadError> {
        let path = trusted(path, rustix::process::geteuid().as_raw())?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| LoadError::Nul)?;
        // SAFETY: the name ends with a zero. The library's initialisers are trusted like the broker itself: only root
        // and the broker's user could have written it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, path }),
            None => Err(LoadError::Loader { path, why: last_error() }),
        }
    }

    /// The table that a function of this name returns, if its head has this version: the version and the size are the
    /// first two words of every table, of whatever version.
    pub fn table<T: Copy>(&self, function: &'static CStr) -> Result<T, LoadError> {
        // SAFETY: the handle is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), function.as_ptr()) };
        let path = || self.path.clone();
        if found.is_null() {
            return Err(LoadError::NoFunction { path: path(), function: function.to_str().unwrap_or_default() });
        }
        // SAFETY: the header declares the type of the function of this name; a pointer to it has the size of one to
        // data (POSIX).
        let function = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const T>(found) };
        // SAFETY: it has no arguments.
        let table = unsafe { function() };
        if table.is_null() || !table.is_aligned() {
            return Err(LoadError::NoTable { path: path() });
        }
        // SAFETY: tables of all versions begin with these two words.
        let [version, size] = unsafe { table.cast::<[u32; 2]>().read() };
        if version != abi::VERSION {
            return Err(LoadError::Version { path: path(), version });
        }
        if (size as usize) < size_of::<T>() {
            return Err(LoadError::NoTable { path: path() });
        }
        // SAFETY: its head has this length and version.
        Ok(unsafe { table.read() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: it is open, and all its instances have been destroyed: their owners hold the library.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

fn last_error() -> String {
    // SAFETY: the text is this thread's own until its next call of the loader (dlerror(3)).
    let text: *const c_char = unsafe { libc::dlerror() };
    match text.is_null() {
        true => "the loader reports no reason".to_owned(),
        // SAFETY: as above, and it ends with a zero.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

/// The path without links, if only root and `user` can have written the file or can replace it.
pub(super) fn trusted(path: &Path, user: u32) -> Result<PathBuf, LoadError> {
    if !path.is_absolute() {
        return Err(LoadError::Relative(path.to_owned()));
    }
    trusted::file_of(path, user).map_err(|mistrust| match mistrust {
        UntrustedPath::System { error, .. } => LoadError::Missing(path.to_owned(), error),
        UntrustedPath::Kind(path) => LoadError::NoFile(path),
        UntrustedPath::Open { path, owner, mode } => LoadError::Open { path, owner, mode },
        UntrustedPath::Link(path) => LoadError::NoFile(path),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_files_that_no_other_user_could_have_written_are_trusted() {
        let user = rustix::process::geteuid().as_raw();
        let place = std::env::temp_dir().join(format!("hyoshi-trusted-{}", std::process::id()));
        let (inner, file) = (place.join("inner"), place.join("inner/a.so"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(&file, "").unwrap();
        let modes = |directory: u32, mode: u32| {
            fs::set_permissions(&inner, fs::Permissions::from_mode(directory)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            trusted(&file, user)
        };
        assert_eq!(modes(0o755, 0o644).unwrap(), file.canonicalize().unwrap());
        assert!(matches!(modes(0o755, 0o664), Err(LoadError::Open { mode: 0o664, .. })));
        assert!(matches!(modes(0o777, 0o644), Err(LoadError::Open { mode: 0o777, .. })));
        assert!(modes(0o1777, 0o644).is_ok(), "no user can replace files of other users there");
        assert!(matches!(modes(0o755, 0o646), Err(LoadError::Open { .. })));
        assert!(modes(0o755, 0o644).is_ok());
        // Another user's view: it belongs neither to them nor, unless root runs this test, to root.
        assert_eq!(trusted(&file, user + 1).is_ok(), user == 0);
        let link = place.join("link.so");
        symlink(&file, &link).unwrap();
        assert_eq!(trusted(&link, user).unwrap(), file.canonicalize().unwrap());
        assert!(matches!(trusted(&inner, user), Err(LoadError::NoFile(_))));
        assert!(matches!(trusted(Path::new("a.so"), user), Err(LoadError::Relative(_))));
        assert!(matches!(trusted(&inner.join("b.so"), user), Err(LoadError::Missing(..))));
        fs::remove_dir_all(&place).unwrap();
    }
}
