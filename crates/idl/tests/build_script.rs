//! A crate whose `build.rs` makes Rust of every good IDL file: it compiles without a warning.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Has an interface that inherits an abstract one: refused.
const REFUSED: &[&str] = &["interfaces"];

#[test]
fn rust_from_every_good_file_compiles_without_a_warning() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let good = crates.join("idl/tests/good");
    let mut names: Vec<String> = fs::read_dir(&good)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "idl"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !REFUSED.contains(&name.as_str()))
        .collect();
    names.sort();
    assert!(names.len() > 15, "{names:?}");

    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-script");
    fs::create_dir_all(place.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"corpus\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         hyoshi-orb = {{ path = {:?} }}\n\n[build-dependencies]\nhyoshi-idl = {{ path = {:?} }}\n\n[workspace]\n",
        crates.join("orb"),
        crates.join("idl"),
    );
    fs::write(place.join("Cargo.toml"), manifest).unwrap();
    // The workspace's own versions: no network is asked for others.
    fs::copy(crates.join("../Cargo.lock"), place.join("Cargo.lock")).unwrap();
    let mut build = "fn main() {\n".to_owned();
    let mut library = "//! Every good file.\n#![deny(warnings)]\n".to_owned();
    for name in &names {
        let file = good.join(format!("{name}.idl"));
        build += &format!("    hyoshi_idl::Build::new({file:?}).include({good:?}).root(\"::hyoshi_orb\").run();\n");
        library += &format!("pub mod {name} {{\n    include!(concat!(env!(\"OUT_DIR\"), \"/{name}.rs\"));\n}}\n");
    }
    fs::write(place.join("build.rs"), build + "}\n").unwrap();
    fs::write(place.join("src/lib.rs"), library).unwrap();
    let done = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .current_dir(&place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() && said.contains("--offline") {
        eprintln!("skipped: a dependency has not been downloaded here\n{said}");
        return;
    }
    assert!(done.status.success(), "{said}");
}
