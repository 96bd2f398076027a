//! Generates Rust from IDL in a crate's build script.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;

use crate::rust::{self, generate};
use crate::tree::DefinitionKind;
use crate::{Diagnostics, IdlDiagnostic, ReadOptions, Specification, read};

/// Writes `OUT_DIR/tracker.rs` from `tracker.idl`; a simple `build.rs` needs only this in `main`:
///
/// ```no_run
/// hyoshi_idl::build("tracker.idl");
/// ```
///
/// The crate then includes it with
///
/// ```ignore
/// include!(concat!(env!("OUT_DIR"), "/tracker.rs"));
/// ```
///
/// Cargo builds again when the file, or one that it includes, has changed. Errors in the file are printed on standard
/// error, and end the build.
pub fn build(file: impl Into<PathBuf>) {
    Build::new(file).run();
}

/// As [`build`], with options.
///
/// ```no_run
/// hyoshi_idl::Build::new("idl/tracker.idl").include("idl").define("REMOTE", "1").root("::hyoshi_orb").run();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is written before `run`"]
pub struct Build {
    file: PathBuf,
    reading: ReadOptions,
    writing: rust::Options,
}

impl Build {
    /// For a file, relative to the crate's directory.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Build { file: file.into(), reading: ReadOptions::default(), writing: rust::Options::default() }
    }

    /// Also searches a directory for included files.
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Self {
        self.reading.includes.push(directory.into());
        self
    }

    /// Defines a macro before the file begins.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.reading.defines.push((name.into(), value.into()));
        self
    }

    /// The path at which generated code finds the ORB; `::hyoshi::orb` by default.
    pub fn root(mut self, path: impl Into<String>) -> Self {
        self.writing.root = path.into();
        self
    }

    /// The Rust of an outermost module of included files is at `path`: generated code refers to it.
    pub fn external(mut self, module: impl Into<String>, path: impl Into<String>) -> Self {
        self.writing.externals.insert(module.into(), path.into());
        self
    }

    /// The Rust, and its source files.
    ///
    /// # Errors
    ///
    /// All errors in the file; invalid macros, directories and external modules.
    pub fn generate(&self) -> Result<Generated, Diagnostics> {
        self.check_options()?;
        let specification = read(&self.file, &self.reading)?;
        self.check_externals(&specification)?;
        let mut writing = self.writing.clone();
        if writing.source.is_empty() {
            writing.source = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        let rust = generate(&specification, &writing)?;
        let sources = specification.sources.paths().map(Path::to_path_buf).collect();
        Ok(Generated { rust, sources, warnings: specification.warnings })
    }

    /// Checks names of macros, and directories: invalid ones would silently have no effect.
    fn check_options(&self) -> Result<(), Diagnostics> {
        let refused = |error| Err(Diagnostics::one(error, Arc::default()));
        for (name, _) in &self.reading.defines {
            let mut characters = name.chars();
            let begins = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
            if !begins || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
                let error = IdlDiagnostic::whole(format!("`{}` is not a valid macro name", name.escape_debug()));
                return refused(
                    error.help("define NAME or NAME=VALUE, a name of letters, digits and _, such as LEVEL=2"),
                );
            }
        }
        for directory in &self.reading.includes {
            if !directory.is_dir() {
                let what = if directory.exists() { "is not a directory" } else { "does not exist" };
                let error =
                    IdlDiagnostic::whole(format!("{} {what}: no file can be included from it", directory.display()));
                return refused(error.help("use the directory of the included files"));
            }
        }
        Ok(())
    }

    fn check_externals(&self, all: &Specification) -> Result<(), Diagnostics> {
        let outermost = |included: bool| {
            let modules = all.definitions.iter().filter(move |one| one.included == included && one.scope.is_empty());
            modules.filter(|one| matches!(one.kind, DefinitionKind::Module(_))).map(|one| one.name.as_str())
        };
        for module in self.writing.externals.keys() {
            if outermost(true).any(|name| name == module) {
                continue;
            }
            let module = module.escape_debug();
            let error = match outermost(false).any(|name| name == module.to_string()) {
                true => format!("`{module}` is declared by the file itself, which is generated here"),
                false => format!("no included file has an outermost module `{module}` that could be external"),
            };
            let known: BTreeSet<_> = outermost(true).collect();
            let help = match known.is_empty() {
                true => "there is none: the file includes no module".to_owned(),
                false => format!("they have {}", known.into_iter().collect::<Vec<_>>().join(", ")),
            };
            return Err(Diagnostics::one(IdlDiagnostic::whole(error).help(help), all.sources.clone()));
        }
        Ok(())
    }

    /// Writes into `OUT_DIR`, under the file's name with `.rs`. If there are errors, prints them and ends the process.
    pub fn run(self) {
        let Some(directory) = std::env::var_os("OUT_DIR") else {
            fail(
                "OUT_DIR is not set: call this in build.rs, where cargo sets it; elsewhere use `hyoshi idl FILE -o \
                    OUT`",
            );
        };
        // Even if the file does not exist yet: it may be created.
        println!("cargo::rerun-if-changed={}", self.file.display());
        let generated = match self.generate() {
            Ok(generated) => generated,
            Err(diagnostics) => fail(&diagnostics.to_string()),
        };
        for source in &generated.sources {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        for warning in generated.warnings.iter().flat_map(|warning| warning.lines()) {
            println!("cargo::warning={warning}");
        }
        let to = Path::new(&directory).join(self.file.file_stem().unwrap_or_default()).with_extension("rs");
        if let Err(error) = std::fs::write(&to, generated.rust) {
            fail(&format!("cannot write {}: {error}", to.display()));
        }
    }
}

/// The result of [`Build::generate`].
#[derive(Clone, Debug)]
pub struct Generated {
    /// The contents of a module.
    pub rust: String,
    /// The file and all its includes.
    pub sources: Vec<PathBuf>,
    /// Probable mistakes, each as readable text.
    pub warnings: Vec<String>,
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    exit(1)
}
