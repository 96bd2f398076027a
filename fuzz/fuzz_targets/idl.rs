//! Any text as IDL: a tree whose parts all exist, or errors, never a panic.

#![no_main]

use hyoshi_idl::{ReadOptions, read_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match read_text(text, "fuzz.idl", &ReadOptions::default()) {
        Ok(specification) => {
            assert!(specification.root.iter().all(|id| (id.0 as usize) < specification.definitions.len()));
            assert!(specification.definitions.iter().all(|each| each.repository_id.contains(':')));
        }
        Err(errors) => assert!(!errors.errors.is_empty() && !errors.to_string().is_empty()),
    }
});
