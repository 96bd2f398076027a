//! `hyoshi new`: a system to begin from, and a Rust program with the bodies of its operations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Format, Held, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory to make; its last part is the system's name
    name: PathBuf,
}

pub(super) fn new(arguments: &Arguments, format: Format) -> Result<Held, Failure> {
    let directory = &arguments.name;
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(valid) {
        return Err(Failure::new(format!("`{}` is no name for a system", directory.display()))
            .help("use letters, digits, `-` and `_`, with a letter first, such as `hyoshi new drone`"));
    }
    if TAKEN.contains(&name) {
        return Err(Failure::new(format!("`{name}` is a name that Rust programs cannot have"))
            .help("nothing was made; choose another name, such as `hyoshi new drone`"));
    }
    // A link that leads nowhere is there, too.
    if directory.symlink_metadata().is_ok() {
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
    let at = directory.display();
    match format {
        Format::Text => streams::out(format_args!(
            "made {at}/system.toml, {at}/Cargo.toml and {at}/src/main.rs\n\n  \
             hyoshi check {at}/system.toml    what can be proved\n  \
             hyoshi run {at}/system.toml      with built-in work\n  \
             cd {at} && cargo run --release -- run system.toml    with the bodies in src/main.rs\n"
        ))?,
        Format::Json => {
            let made = files.map(|(file, _)| directory.join(file));
            streams::out(format_args!("{:#}\n", serde_json::json!({ "hyoshi": head("new"), "made": made })))?;
        }
    }
    Ok(Held::Yes)
}

/// Names that mean something else to cargo or to the program.
const TAKEN: [&str; 9] = ["hyoshi", "std", "core", "alloc", "test", "build", "deps", "examples", "incremental"];

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
