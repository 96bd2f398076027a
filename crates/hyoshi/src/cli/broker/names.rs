//! Groups and users by their names.

use std::fs;

use crate::cli::Failure;

/// A group's number (group(5)).
pub(super) fn group(name: &str) -> Result<u32, Failure> {
    number("/etc/group", name).ok_or_else(|| {
        Failure::new(format_args!("there is no group `{name}`"))
            .help("/etc/group has those that are known by name; a number will do, too")
    })
}

/// A user's number (passwd(5)).
pub(super) fn user(name: &str) -> Result<u32, Failure> {
    number("/etc/passwd", name).ok_or_else(|| {
        Failure::new(format_args!("there is no user `{name}`"))
            .help("/etc/passwd has those that are known by name; a number will do, too")
    })
}

/// The third field of a name's line, unless the name is a number.
fn number(file: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let lines = fs::read_to_string(file).unwrap_or_default();
    lines.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok()).flatten()
    })
}
