//! Tests that need privileges. Other crates' tests include this file.

use std::fmt::Display;

/// Ends a part of a test for want of a privilege: says so, or fails where `HYOSHI_PRIVILEGES=required` says that all
/// privileges are there.
#[track_caller]
pub fn missing(privilege: impl Display) {
    let required = std::env::var_os("HYOSHI_PRIVILEGES").is_some_and(|value| value == "required");
    assert!(!required, "HYOSHI_PRIVILEGES=required, but this test lacks {privilege}");
    println!("skipped: needs {privilege}");
}
