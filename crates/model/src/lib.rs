//! What a distributed real-time system is: time, operations and what triggers them, chains,
//! shared resources and operating regions, and the file that describes them.
//!
//! The file's reader turns text into a [`System`] in which an unknown name, a trigger cycle or a
//! period of zero cannot exist; every other room takes a `System` and never checks again.

#![cfg_attr(not(any(feature = "toml", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "toml")]
pub mod file;
pub mod quantity;
pub mod system;
pub mod takes;
pub mod time;

#[cfg(feature = "toml")]
pub use file::{Diagnostic, FileErrors, Loaded, Severity, read, read_file, schema};
pub use system::*;
pub use takes::Takes;
pub use time::{Instant, Lateness, Span};
