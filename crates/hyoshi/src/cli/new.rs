//! `hyoshi new`: a system to begin from, and a Rust program with the bodies of its operations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Held};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory to make; its last part is the system's name
    name: PathBuf,
}

pub(super) fn new(arguments: &Arguments) -> Result<Held, Failure> {
    let directory = &arguments.name;
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(valid) {
        return Err(Failure::new(format!("`{}` is no name for a system", directory.display()))
            .help("use letters, digits, `-` and `_`, with a letter first, such as `hyoshi new drone`"));
    }
    if directory.exists() {
        return Err(Failure::new(format!("`{}` is there already", directory.display()))
            .help("nothing was changed; choose another name, or remove it first"));
    }
    let files = [
        ("system.toml", include_str!("template/system.toml")),
        ("Cargo.toml", include_str!("template/Cargo.toml.in")),
        ("src/main.rs", include_str!("template/main.rs.in")),
    ];
    for (file, template) in files {
        let text = template.replace("{name}", name).replace("{dependency}", &dependency());
        write(&directory.join(file), &text).map_err(|error| {
            Failure::new(format!("cannot write `{}`: {error}", directory.join(file).display()))
                .help("choose a directory that you may write to")
        })?;
    }
    let name = directory.display();
    println!("made {name}/system.toml, {name}/Cargo.toml and {name}/src/main.rs");
    println!("  hyoshi check {name}/system.toml            what can be proved");
    println!("  hyoshi run {name}/system.toml              with built-in work");
    println!("  cd {name} && cargo run --release -- run system.toml    with the bodies in src/main.rs");
    Ok(Held::Yes)
}

/// How the new program finds the library: beside the sources this command was built from, if they
/// are still there, else the published one.
fn dependency() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    if source.join("Cargo.toml").exists() {
        format!("{{ path = {:?} }}", source)
    } else {
        format!("{:?}", env!("CARGO_PKG_VERSION"))
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}
