//! An error or warning about a file: the cause, the place and the remedy.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::source::{SourceLine, SourcePosition, SourceSpan, Sources};

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct IdlDiagnostic {
    /// The error.
    pub message: String,
    /// Its place; `None` for a whole file.
    pub at: Option<SourceSpan>,
    /// The text at the caret.
    pub label: String,
    /// Related places, each with a text.
    pub others: Vec<(SourceSpan, String)>,
    /// The remedy.
    pub help: Option<String>,
}

impl IdlDiagnostic {
    /// A finding at a place.
    pub fn at(at: SourceSpan, message: impl Into<String>) -> Self {
        let (label, others) = Default::default();
        IdlDiagnostic { message: message.into(), at: Some(at), label, others, help: None }
    }

    /// A finding about a whole file, which the message names.
    pub fn whole(message: impl Into<String>) -> Self {
        IdlDiagnostic { at: None, ..IdlDiagnostic::at(SourceSpan::default(), message) }
    }

    /// Sets the text at the caret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a related place.
    pub fn other(mut self, at: SourceSpan, label: impl Into<String>) -> Self {
        self.others.push((at, label.into()));
        self
    }
}

/// Why a file was rejected: at least one error, and the warnings.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    /// In the order of their places, at most a hundred; never empty.
    pub errors: Vec<IdlDiagnostic>,
    /// How many more errors there are.
    pub more: usize,
    /// Probable mistakes.
    pub warnings: Vec<IdlDiagnostic>,
    /// The files of the places.
    pub sources: Arc<Sources>,
}

/// Further errors are counted, not reported.
const TOLD: usize = 100;
/// Places further apart than this are shown one after the other instead of together.
const TOGETHER: usize = 4 * 1024;
/// Longer lines are referred to only by number.
const LONGEST_LINE: usize = 1_000;

impl Diagnostics {
    /// One error, for generators of code.
    pub fn one(error: IdlDiagnostic, sources: Arc<Sources>) -> Self {
        Diagnostics { errors: vec![error], more: 0, warnings: Vec::new(), sources }
    }

    /// Writes all errors and a closing line for a terminal, with or without colours.
    pub fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        for error in &self.errors {
            text += &render(error, &self.sources, false, colours);
            text += "\n\n";
        }
        let count = self.errors.len() + self.more;
        let shown = if self.more > 0 { format!(", the first {} are shown", self.errors.len()) } else { String::new() };
        let plural = if count == 1 { "" } else { "s" };
        text + &format!("{count} error{plural}{shown}\n")
    }

    /// An error's place in readable form.
    pub fn place(&self, of: &IdlDiagnostic) -> Option<SourcePosition> {
        of.at.map(|at| self.sources.place(at))
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// Writes one finding, with the line and a caret.
pub fn render(finding: &IdlDiagnostic, sources: &Sources, warning: bool, colours: bool) -> String {
    let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
    let level = if warning { Level::WARNING } else { Level::ERROR };
    let mut group = Group::with_title(level.primary_title(finding.message.as_str()));
    if let Some(at) = finding.at {
        let primary = sources.excerpt(at);
        let mut together = vec![(AnnotationKind::Primary, primary, finding.label.as_str())];
        let mut apart = Vec::new();
        for (at, label) in &finding.others {
            let other = (AnnotationKind::Context, sources.excerpt(*at), label.as_str());
            let first = &together[0].1;
            let near = other.1.file == first.file && other.1.whole.start.abs_diff(first.whole.start) <= TOGETHER;
            if near { together.push(other) } else { apart.push(other) }
        }
        for places in std::iter::once(together).chain(apart.into_iter().map(|other| vec![other])) {
            group = match snippet(&places) {
                Some(snippet) => group.element(snippet),
                None => {
                    let SourcePosition { file, line, column } = sources.place(at);
                    group.element(Origin::path(file).line(line).char_column(column))
                }
            };
        }
    }
    if let Some(help) = &finding.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

type Marked<'a> = (AnnotationKind, SourceLine<'a>, &'a str);

/// The lines from the first to the last of interest, with the marked parts; `None` if a line is too long.
fn snippet<'a>(places: &[Marked<'a>]) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
    let first = places.iter().map(|(_, excerpt, _)| (excerpt.whole.start, excerpt.line)).min()?;
    let last = places.iter().map(|(_, excerpt, _)| excerpt.whole.end).max()?;
    if places.iter().any(|(_, excerpt, _)| excerpt.whole.len() > LONGEST_LINE) || last - first.0 > 4 * TOGETHER {
        return None;
    }
    let text = &places[0].1.text[first.0..last];
    let annotations = places.iter().map(|(kind, excerpt, label)| {
        let marked = excerpt.marked.start - first.0..excerpt.marked.end - first.0;
        kind.span(marked).label((!label.is_empty()).then_some(*label))
    });
    Some(Snippet::source(text).line_start(first.1 + 1).path(places[0].1.name).annotations(annotations))
}

/// The findings so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub errors: Vec<IdlDiagnostic>,
    pub more: usize,
    pub warnings: Vec<IdlDiagnostic>,
}

impl Findings {
    pub fn error(&mut self, error: IdlDiagnostic) {
        // Two look-ups of a name report the same error at the same place.
        let again = |known: &IdlDiagnostic| known.at == error.at && known.message == error.message;
        match self.errors.len() {
            _ if self.errors.iter().any(again) => {}
            TOLD.. => self.more += 1,
            _ => self.errors.push(error),
        }
    }

    /// True when errors are only counted.
    pub fn full(&self) -> bool {
        self.errors.len() >= TOLD
    }

    pub fn warn(&mut self, warning: IdlDiagnostic) {
        if self.warnings.len() < TOLD {
            self.warnings.push(warning);
        }
    }
}
