//! Groups and users by their names.

use hyoshi_broker::limits::names;

use crate::cli::Failure;

/// A group's number (group(5)).
pub(super) fn group(name: &str) -> Result<u32, Failure> {
    names::group(name).ok_or_else(|| {
        Failure::new(format_args!("there is no group `{name}`"))
            .help("/etc/group has those that are known by name; a number will do, too")
    })
}

/// A user's number (passwd(5)).
pub(super) fn user(name: &str) -> Result<u32, Failure> {
    names::user(name).ok_or_else(|| {
        Failure::new(format_args!("there is no user `{name}`"))
            .help("/etc/passwd has those that are known by name; a number will do, too")
    })
}
