//! Any text as a reference: it is read, and reads the same when it is written again, or an error points into it;
//! never a panic.

#![no_main]

use hyoshi_wire::ior::{ObjectUrl, parse_name, print_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for text in [text.to_owned(), format!("corbaloc:{text}"), format!("corbaname:{text}"), format!("IOR:{text}")] {
        match text.parse::<ObjectUrl>() {
            Ok(reference) => {
                if let ObjectUrl::Corbaloc(corbaloc) = &reference {
                    corbaloc.ior("IDL:T:1.0").expect("no host holds a NUL");
                }
                let written = reference.to_string();
                assert_eq!(written.parse(), Ok(reference), "{written}");
            }
            Err(error) => {
                assert!(error.at <= text.len(), "{error}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
    if let Ok(name) = parse_name(text) {
        assert_eq!(parse_name(&print_name(&name)), Ok(name));
    }
});
