//! Tests that need privileges. Other crates' tests include this file.

use std::fmt::Display;

/// Skips a part of a test that lacks a privilege: prints it, or fails if `HYOSHI_PRIVILEGES=required` is set.
#[track_caller]
pub fn missing(privilege: impl Display) {
    let required = std::env::var_os("HYOSHI_PRIVILEGES").is_some_and(|value| value == "required");
    assert!(!required, "HYOSHI_PRIVILEGES=required, but this test lacks {privilege}");
    println!("skipped: needs {privilege}");
}
