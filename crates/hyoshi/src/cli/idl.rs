//! `hyoshi idl`: generates Rust from an IDL file.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use hyoshi_idl::Build;
use hyoshi_idl::rust::HEAD;

use super::{CliError, Format, VerbOutcome, head, output, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The IDL file
    file: PathBuf,
    /// Write the Rust to this file instead of standard output
    #[arg(short, long = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also search this directory for included files
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    includes: Vec<PathBuf>,
    /// Define a macro before the file begins
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    defines: Vec<String>,
    /// Rust path of the ORB in the generated code
    #[arg(long, value_name = "PATH", default_value = "::hyoshi::orb")]
    root: String,
    /// Rust path of an included module that is generated elsewhere
    #[arg(long = "extern", value_name = "MODULE=PATH")]
    externals: Vec<String>,
    /// Write nothing; check whether the output is up to date
    #[arg(long, requires = "output")]
    check: bool,
}

pub(super) fn idl(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let generated = building(arguments)?.generate().map_err(CliError::Idl)?;
    if format == Format::Text {
        generated.warnings.iter().for_each(|warning| streams::err(format_args!("{warning}\n")));
    }
    let Some(to) = &arguments.output else {
        let rust = formatted(&generated.rust, Path::new("."));
        match format {
            Format::Text => streams::out(rust)?,
            Format::Json => {
                let answer = serde_json::json!({
                    "hyoshi": head("idl"), "rust": rust, "sources": generated.sources, "warnings": generated.warnings,
                });
                streams::out(format_args!("{answer:#}\n"))?;
            }
        }
        return Ok(VerbOutcome::Success);
    };
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let rust = formatted(&generated.rust, directory);
    let before = match fs::read_to_string(to) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(
                CliError::new(format!("cannot read {}: {error}", to.display())).help("name a text file, or a new file")
            );
        }
    };
    // An earlier call may have had `rustfmt`, or not.
    let current = before.as_deref().is_some_and(|before| before == rust || before == generated.rust);
    if !arguments.check && !current {
        if before.as_deref().is_some_and(|before| !before.starts_with(HEAD)) {
            return Err(CliError::new(format!("{} was not written by `hyoshi idl`", to.display()))
                .help("name another file, or remove this one first"));
        }
        write(to, &rust).map_err(|error| output::cannot_write("the generated Rust to", to, &error))?;
    }
    let (held, said) = match (arguments.check, current) {
        (_, true) => (VerbOutcome::Success, "up to date"),
        (false, false) => (VerbOutcome::Success, "written"),
        (true, false) if before.is_none() => (VerbOutcome::Negative, "not there"),
        (true, false) => (VerbOutcome::Negative, "out of date"),
    };
    match format {
        Format::Text => {
            let file = to.display();
            streams::out(format_args!("{file}: {said}\n"))?;
            if held == VerbOutcome::Negative {
                streams::err(format_args!("help: hyoshi idl {} -o {file}\n", arguments.file.display()));
            }
        }
        Format::Json => {
            let answer = serde_json::json!({
                "hyoshi": head("idl"), "out": to, "state": said, "sources": generated.sources,
                "warnings": generated.warnings,
            });
            streams::out(format_args!("{answer:#}\n"))?;
        }
    }
    Ok(held)
}

fn building(arguments: &Arguments) -> Result<Build, CliError> {
    let is_path = |path: &str| {
        let path = path.strip_prefix("::").unwrap_or(path);
        path.split("::").all(|part| {
            part.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
    };
    let no_path = |flag: &str, path: &str| {
        CliError::new(format!("{flag} `{path}` is not a Rust path"))
            .help("write one such as ::hyoshi::orb, ::hyoshi_orb or crate::orb")
    };
    if !is_path(&arguments.root) {
        return Err(no_path("--root", &arguments.root));
    }
    let mut build = Build::new(&arguments.file).root(&arguments.root);
    for directory in &arguments.includes {
        build = build.include(directory);
    }
    for define in &arguments.defines {
        let (name, value) = define.split_once('=').unwrap_or((define, "1"));
        build = build.define(name, value);
    }
    for external in &arguments.externals {
        let Some((module, path)) = external.split_once('=') else {
            return Err(CliError::new(format!("--extern `{external}` has no path"))
                .help("write MODULE=PATH, such as --extern Common=crate::common"));
        };
        if !is_path(path) {
            return Err(no_path("--extern", path));
        }
        if module.contains("::") {
            return Err(CliError::new(format!("--extern `{module}` is not an outermost module"))
                .help("name the outermost module; inner modules follow it"));
        }
        build = build.external(module, path);
    }
    Ok(build)
}

/// Formatted by the user's `rustfmt`, if it is installed.
fn formatted(rust: &str, directory: &Path) -> String {
    let run = || -> io::Result<Option<String>> {
        let mut child = Command::new("rustfmt")
            .args(["--edition", "2024"])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // `rustfmt` reads all input before it writes: no deadlock.
        input.write_all(rust.as_bytes())?;
        drop(input);
        let done = child.wait_with_output()?;
        Ok(String::from_utf8(done.stdout).ok().filter(|text| done.status.success() && !text.is_empty()))
    };
    run().ok().flatten().unwrap_or_else(|| rust.to_owned())
}

/// Replaces the file in one step: a build never reads half of it.
fn write(to: &Path, text: &str) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().ok_or(io::ErrorKind::IsADirectory)?);
    name.push(format!(".{}", std::process::id()));
    let beside = to.with_file_name(name);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, to));
    if written.is_err() {
        // No half-written file remains.
        drop(fs::remove_file(&beside));
    }
    written
}
