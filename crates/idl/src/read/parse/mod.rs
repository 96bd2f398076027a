//! The grammar of OMG IDL 4.2 (chapter 7.4: core data types, any, interfaces, CORBA-specific building blocks),
//! by recursive descent: the token at hand always tells what comes.

mod cursor;
mod definitions;
mod expressions;
mod interfaces;
mod types;

use super::diagnostic::Findings;
use super::preprocess::Preprocessed;
use super::source::Sources;
use super::syntax::SyntaxItem;

/// Types, modules and parentheses may stand in one another this deep.
pub(crate) const DEEPEST: usize = 64;

/// Reads all definitions; what could not be read was reported and is left out.
pub(crate) fn parse(stream: &Preprocessed, sources: &Sources, findings: &mut Findings) -> Vec<SyntaxItem> {
    cursor::Cursor::new(stream, sources, findings).specification()
}
