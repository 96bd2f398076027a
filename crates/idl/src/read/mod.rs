//! Reads IDL: files, tokens, grammar, meaning.

mod condition;
mod constant;
mod diagnostic;
mod lexeme;
mod macros;
mod parse;
mod preprocess;
mod resolve;
mod source;
mod syntax;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::tree::Specification;
use diagnostic::Findings;
pub use diagnostic::{Diagnostics, IdlDiagnostic, render};
pub use source::{SourcePosition, SourceSpan, Sources};

/// The search path of included files, and predefined macros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Directories to search for included files, in order; a quoted name is first looked up beside its file.
    pub includes: Vec<PathBuf>,
    /// Macros and their values.
    pub defines: Vec<(String, String)>,
}

/// Reads a file and all its includes.
///
/// # Errors
///
/// All its errors, each with its place and a remedy; or that it cannot be read.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    let name = path.display().to_string();
    match preprocess::read(path) {
        Ok(octets) => {
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            sources.add(name, Some(whole), octets);
            read_all(sources, options)
        }
        Err(why) => {
            let error = IdlDiagnostic::whole(why).help("check the name; relative names start at the current directory");
            Err(Diagnostics::one(error, Arc::new(sources)))
        }
    }
}

/// Reads a text as if it were a file of that name; quoted includes are looked up only along the search path.
///
/// # Errors
///
/// As [`read`].
pub fn read_text(text: &str, name: &str, options: &ReadOptions) -> Result<Specification, Diagnostics> {
    let mut sources = Sources::default();
    if let Err(why) = preprocess::fits(text.as_bytes()) {
        return Err(Diagnostics::one(IdlDiagnostic::whole(format!("{name} {why}")), Arc::new(sources)));
    }
    sources.add(name.to_string(), None, text.as_bytes().to_vec());
    read_all(sources, options)
}

fn read_all(mut sources: Sources, options: &ReadOptions) -> Result<Specification, Diagnostics> {
    let mut findings = Findings::default();
    let stream = preprocess::preprocess(0, options, &mut sources, &mut findings);
    let items = parse::parse(&stream, &sources, &mut findings);
    let (definitions, root) = resolve::resolve(items, &sources, &mut findings);
    let Findings { mut errors, more, warnings } = findings;
    for error in errors.iter_mut().filter(|error| error.at.is_some_and(|at| stream.macros.contains(&at))) {
        error.label += if error.label.is_empty() { "out of this macro" } else { ", out of this macro" };
    }
    errors.sort_by_key(|error| error.at.map(|at| (at.file, at.start)));
    let sources = Arc::new(sources);
    if !errors.is_empty() {
        return Err(Diagnostics { errors, more, warnings, sources });
    }
    let warnings = warnings.iter().map(|warning| render(warning, &sources, true, false)).collect();
    Ok(Specification { definitions, root, warnings, sources })
}

/// The known word that is most similar to a misspelt one.
fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison needs memory in proportion to the product of the lengths.
    if word.len() > LONGEST_COMPARED {
        return None;
    }
    let wanted = word.to_ascii_lowercase();
    let most = (word.chars().count() / 3).min(3);
    let near = known.into_iter().filter(|known| known.len().abs_diff(word.len()) <= most && *known != word);
    let near = near.map(|known| (strsim::damerau_levenshtein(&wanted, &known.to_ascii_lowercase()), known));
    near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Longer words get no suggestion.
const LONGEST_COMPARED: usize = 256;
