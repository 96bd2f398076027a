//! Any text as a system file: the reader answers with a sound system or with errors, never a panic.

#![no_main]

#[path = "../../crates/model/tests/invariants/mod.rs"]
mod invariants;

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|text: &str| -> Corpus {
    // A template of 100,000 is right, but not worth a fuzzer's time.
    if text.contains("count") && text.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() > 3) {
        return Corpus::Reject;
    }
    match hyoshi_model::read(text, "fuzz.toml", None) {
        Ok(loaded) => {
            invariants::check(&loaded.system);
            loaded.warnings.iter().for_each(|warning| assert!(warning.line > 0));
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    Corpus::Keep
});
