//! Groups and users by name.

use hyoshi_os::users;

use crate::cli::CliError;

/// A group's number (group(5)).
pub(super) fn group(name: &str) -> Result<u32, CliError> {
    users::group(name).ok_or_else(|| {
        CliError::new(format_args!("there is no group `{name}`")).help("use a group of /etc/group, or a number")
    })
}

/// A user's number (passwd(5)).
pub(super) fn user(name: &str) -> Result<u32, CliError> {
    users::user(name).ok_or_else(|| {
        CliError::new(format_args!("there is no user `{name}`")).help("use a user of /etc/passwd, or a number")
    })
}
