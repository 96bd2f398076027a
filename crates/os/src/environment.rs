//! The environment of a process that may have more rights than its caller.

use std::env::VarError;
use std::ffi::{OsStr, OsString};

/// True if this process has rights that its caller lacks: it is setuid, setgid, or has file capabilities (AT_SECURE,
/// getauxval(3)).
pub fn is_privileged_by_file() -> bool {
    // SAFETY: the call has one integer as argument and reads the process's own auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable of the environment. `None` in a program that [`is_privileged_by_file`], as secure_getenv(3) does: there
/// a caller with fewer rights controls the environment.
pub fn secure_var_os(name: impl AsRef<OsStr>) -> Option<OsString> {
    if is_privileged_by_file() { None } else { std::env::var_os(name) }
}

/// The same as text.
///
/// # Errors
///
/// As for [`std::env::var`].
pub fn secure_var(name: impl AsRef<OsStr>) -> Result<String, VarError> {
    secure_var_os(name).ok_or(VarError::NotPresent)?.into_string().map_err(VarError::NotUnicode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_reads_its_environment() {
        assert!(!is_privileged_by_file());
        assert!(secure_var_os("PATH").is_some() && secure_var("PATH").is_ok());
        assert!(secure_var_os("HYOSHI_NO_SUCH_VARIABLE").is_none());
    }
}
