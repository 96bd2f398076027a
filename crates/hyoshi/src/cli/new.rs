//! `hyoshi new`: creates a system's file, and a Rust program with the bodies of its operations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory to create; its last part is the system's name
    name: PathBuf,
    /// Where the program finds the library: path (the sources this command was built from), git=URL, or version (the
    /// published one) [default: path, or version without the sources]
    #[arg(long, value_name = "path|git=URL|version", value_parser = source)]
    source: Option<LibrarySource>,
}

/// Where a new program finds the library.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LibrarySource {
    Path,
    Git(String),
    Version,
}

fn source(text: &str) -> Result<LibrarySource, String> {
    match text.split_once('=').unwrap_or((text, "")) {
        ("path", "") => Ok(LibrarySource::Path),
        ("version", "") => Ok(LibrarySource::Version),
        ("git", "") if env!("CARGO_PKG_REPOSITORY").is_empty() => {
            Err("`git` needs the repository; write git=URL".to_owned())
        }
        ("git", "") => Ok(LibrarySource::Git(env!("CARGO_PKG_REPOSITORY").to_owned())),
        ("git", url) if !url.contains(char::is_control) => Ok(LibrarySource::Git(url.to_owned())),
        _ => Err(format!("{text:?} is unknown; known: path, git=URL, version")),
    }
}

pub(super) fn new(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let directory = &arguments.name;
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(valid) {
        return Err(CliError::new(format!("invalid name of a system: `{}`", directory.display()))
            .help("use letters, digits, `-` and `_`, a letter first, such as `hyoshi new drone`"));
    }
    if TAKEN.contains(&name) {
        return Err(CliError::new(format!("cargo does not permit a program with the name `{name}`"))
            .help("choose another name, such as `hyoshi new drone`"));
    }
    // A broken link exists, too.
    if directory.symlink_metadata().is_ok() {
        return Err(CliError::new(format!("`{}` exists already", directory.display()))
            .help("choose another name, or remove it first"));
    }
    let dependency = dependency(arguments.source.as_ref())?;
    let files = [
        ("system.toml", include_str!("template/system.toml")),
        ("Cargo.toml", include_str!("template/Cargo.toml.in")),
        ("src/main.rs", include_str!("template/main.rs.in")),
    ];
    for (file, template) in files {
        let text = template.replace("{name}", name).replace("{dependency}", &dependency);
        write(&directory.join(file), &text).map_err(|error| {
            CliError::new(format!("cannot write `{}`: {error}", directory.join(file).display()))
                .help("choose a directory that you may write to")
        })?;
    }
    let at = directory.display();
    match format {
        Format::Text => streams::out(format_args!(
            "created {at}/system.toml, {at}/Cargo.toml and {at}/src/main.rs\n\n  \
             hyoshi check {at}/system.toml    what can be proved\n  \
             hyoshi run {at}/system.toml      with built-in work\n  \
             cd {at} && cargo run --release -- run system.toml    with src/main.rs\n"
        ))?,
        Format::Json => {
            let made = files.map(|(file, _)| directory.join(file));
            streams::out(format_args!("{:#}\n", serde_json::json!({ "hyoshi": head("new"), "made": made })))?;
        }
    }
    Ok(VerbOutcome::Success)
}

/// Names that mean something else to cargo or to the program.
const TAKEN: [&str; 9] = ["hyoshi", "std", "core", "alloc", "test", "build", "deps", "examples", "incremental"];

/// The line of the manifest that names the library, with a comment where it is only good on this machine.
fn dependency(source: Option<&LibrarySource>) -> Result<String, CliError> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let there = sources.join("Cargo.toml").exists();
    let from = match source {
        None | Some(LibrarySource::Path) if there => format!("path = {sources:?}"),
        None | Some(LibrarySource::Version) => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
        Some(LibrarySource::Git(url)) => format!("git = {url:?}"),
        Some(LibrarySource::Path) => {
            return Err(CliError::new("the sources of this command no longer exist")
                .help("name another source: --source version, or --source git=URL"));
        }
    };
    let comment = match from.starts_with("path") {
        true => "# Until a release: the sources on this machine. `hyoshi new --source git=URL` names a repository.\n",
        false => "",
    };
    Ok(format!("{comment}hyoshi = {{ {from}, default-features = false }}"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}
