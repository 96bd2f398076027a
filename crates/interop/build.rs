//! Generates Rust from this crate's IDL, as a user's build does, and from every valid file of the compiler's tests.

use std::path::PathBuf;

use hyoshi_idl::Build;

/// The compiler's test files that compile to Rust.
const GOOD: &str = "../idl/tests/good";

/// Has an interface that inherits an abstract one: refused.
const REFUSED: &str = "interfaces";

fn main() {
    for name in ["peers", "ping"] {
        Build::new(format!("idl/{name}.idl")).root("::hyoshi_orb").run();
    }
    println!("cargo::rerun-if-changed={GOOD}");
    let files = std::fs::read_dir(GOOD).expect(GOOD).map(|entry| entry.expect(GOOD).path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "idl"))
        .map(|path| path.file_stem().and_then(|name| name.to_str()).expect("a name in ASCII").to_owned())
        .filter(|name| name != REFUSED)
        .collect();
    names.sort();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut modules = String::new();
    for name in names {
        // Not `run`: some files cause warnings, which cargo would print.
        let build = Build::new(format!("{GOOD}/{name}.idl")).include(GOOD).root("::hyoshi_orb");
        let generated = build.generate().unwrap_or_else(|errors| panic!("{errors}"));
        let file = out.join(format!("good-{name}.rs"));
        std::fs::write(&file, generated.rust).expect("OUT_DIR can be written");
        modules += &format!("mod {name} {{ include!({file:?}); }}\n");
    }
    std::fs::write(out.join("good.rs"), modules).expect("OUT_DIR can be written");
}
