//! The grammar of OMG IDL 4.2 (chapter 7.4: core data types, any, interfaces, CORBA-specific building blocks), by
//! recursive descent: the next token always decides.

mod cursor;
mod definitions;
mod expressions;
mod interfaces;
mod types;

use super::diagnostic::Findings;
use super::preprocess::Preprocessed;
use super::source::Sources;
use super::syntax::SyntaxItem;

/// The deepest nesting of types, modules and parentheses.
pub(crate) const DEEPEST: usize = 64;

/// Reads all definitions; those with errors were reported and are omitted.
pub(crate) fn parse(stream: &Preprocessed, sources: &Sources, findings: &mut Findings) -> Vec<SyntaxItem> {
    cursor::Cursor::new(stream, sources, findings).specification()
}
