//! Groups and users by name.

use hyoshi_broker::limits::names;

use crate::cli::Failure;

/// A group's number (group(5)).
pub(super) fn group(name: &str) -> Result<u32, Failure> {
    names::group(name).ok_or_else(|| {
        Failure::new(format_args!("there is no group `{name}`")).help("use a group of /etc/group, or a number")
    })
}

/// A user's number (passwd(5)).
pub(super) fn user(name: &str) -> Result<u32, Failure> {
    names::user(name).ok_or_else(|| {
        Failure::new(format_args!("there is no user `{name}`")).help("use a user of /etc/passwd, or a number")
    })
}
