//! An error or warning about a file: the place, the cause and the remedy. It is printed with the line and a caret, or
//! read from its plain fields.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is accepted, but probably has a mistake.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One finding about a file. `Display` writes it with the line and a caret, without colours.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, by the name that the caller used.
    pub file: String,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// The column in characters, from 1; 0 for the whole file.
    pub column: usize,
    /// The error.
    pub message: String,
    /// The text at the caret.
    pub label: String,
    /// The remedy.
    pub help: Option<String>,
    excerpt: Option<Excerpt>,
    /// Related places in other files, with their labels.
    elsewhere: Vec<Diagnostic>,
}

/// The lines to show, and the parts of them to mark.
#[derive(Clone, Debug)]
struct Excerpt {
    first_line: usize,
    text: String,
    primary: Range<usize>,
    context: Vec<(Range<usize>, String)>,
}

/// Lines further apart than this are referred to by number, not shown together.
const LONGEST_EXCERPT: usize = 16 * 1024;
/// Longer lines are referred to only by number.
const LONGEST_LINE: usize = 1_000;

impl Diagnostic {
    /// An error at some bytes of a file with this text, for files other than a system file.
    pub fn at(file: &str, text: &str, place: Range<usize>, message: String, help: Option<String>) -> Self {
        Source::new(file, text).diagnose(Severity::Error, place, (message, String::new(), help), &[])
    }

    /// A finding about a file as a whole.
    pub fn of_file(file: &str, message: String, help: Option<String>) -> Self {
        let (file, label) = (file.to_string(), String::new());
        Diagnostic {
            severity: Severity::Error,
            file,
            line: 0,
            column: 0,
            message,
            label,
            help,
            excerpt: None,
            elsewhere: Vec::new(),
        }
    }

    /// Adds a related place in another file.
    pub(super) fn also(&mut self, source: &Source, place: Range<usize>, label: String) {
        self.elsewhere.push(source.diagnose(self.severity, place, (String::new(), label, None), &[]));
    }

    /// Adds the lines with the place.
    fn show<'a>(&'a self, group: Group<'a>, kind: AnnotationKind) -> Group<'a> {
        match &self.excerpt {
            Some(excerpt) => {
                let label = (!self.label.is_empty()).then_some(self.label.as_str());
                let context = excerpt.context.iter();
                group.element(
                    Snippet::source(excerpt.text.as_str())
                        .line_start(excerpt.first_line)
                        .path(self.file.as_str())
                        .annotation(kind.span(excerpt.primary.clone()).label(label))
                        .annotations(
                            context
                                .map(|(span, label)| AnnotationKind::Context.span(span.clone()).label(label.as_str())),
                        ),
                )
            }
            None if self.line > 0 => {
                group.element(Origin::path(self.file.as_str()).line(self.line).char_column(self.column))
            }
            None => group.element(Origin::path(self.file.as_str())),
        }
    }

    /// Writes it for a terminal, with or without colours.
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        group = self.show(group, AnnotationKind::Primary);
        for related in &self.elsewhere {
            group = related.show(group, AnnotationKind::Context);
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Why a file was rejected: at least one error, in the file's order, and the warnings found before.
#[derive(Clone, Debug)]
pub struct FileErrors {
    /// The errors, at most a hundred; never empty.
    pub errors: Vec<Diagnostic>,
    /// How many more errors there are.
    pub more: usize,
    /// The warnings.
    pub warnings: Vec<Diagnostic>,
}

impl From<Diagnostic> for FileErrors {
    fn from(error: Diagnostic) -> Self {
        FileErrors { errors: vec![error], more: 0, warnings: Vec::new() }
    }
}

impl FileErrors {
    /// Writes all errors and a closing line for a terminal, with or without colours.
    pub fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        for error in &self.errors {
            text += &error.render(colours);
            text += "\n\n";
        }
        let count = self.errors.len() + self.more;
        let file = self.errors.first().map_or("the file", |error| error.file.as_str());
        let shown = if self.more > 0 { format!(", the first {} are shown", self.errors.len()) } else { String::new() };
        let plural = if count == 1 { "" } else { "s" };
        text + &format!("{file}: {count} error{plural}{shown}\n")
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for FileErrors {}

/// A text with the starts of its lines, to find any number of places in it fast.
pub(super) struct Source {
    pub file: String,
    text: Arc<str>,
    starts: Vec<usize>,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { file: file.to_string(), text: text.into(), starts }
    }

    /// The index of the line that holds the byte, and the byte moved to a character's start.
    fn line_of(&self, byte: usize) -> (usize, usize) {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        (self.starts.partition_point(|start| *start <= byte).saturating_sub(1), byte)
    }

    /// The bytes of a line without its end.
    fn line(&self, line: usize) -> Range<usize> {
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        let start = self.starts[line];
        start..start + self.text[start..end].trim_end_matches(['\n', '\r']).len()
    }

    /// Makes a finding about the bytes at `place`.
    pub fn diagnose(
        &self,
        severity: Severity,
        place: Range<usize>,
        (message, label, help): (String, String, Option<String>),
        context: &[(Range<usize>, String)],
    ) -> Diagnostic {
        let (line, _) = self.line_of(place.start);
        let whole = self.line(line);
        // A value over several lines is marked on its first: the rest is noise.
        let marked = self.on_one_line(&place);
        let column = self.text[whole.start..marked.start].chars().count() + 1;
        let mut diagnostic = Diagnostic {
            severity,
            file: self.file.clone(),
            line: line + 1,
            column,
            message,
            label,
            help,
            excerpt: None,
            elsewhere: Vec::new(),
        };
        if whole.len() <= LONGEST_LINE {
            let (first, window) = self.window(line, context);
            let within = |range: &Range<usize>| range.start - window.start..range.end - window.start;
            let shown = context.iter().map(|(range, label)| (self.on_one_line(range), label));
            let shown = shown.filter(|(range, _)| window.start <= range.start && range.end <= window.end);
            diagnostic.excerpt = Some(Excerpt {
                first_line: first + 1,
                text: self.text[window.clone()].to_string(),
                primary: within(&marked),
                context: shown.map(|(range, label)| (within(&range), label.clone())).collect(),
            });
        }
        diagnostic
    }

    /// The lines from the first to the last of interest: the index of the first, and their bytes.
    fn window(&self, line: usize, context: &[(Range<usize>, String)]) -> (usize, Range<usize>) {
        let lines = context.iter().map(|(range, _)| self.line_of(range.start).0).chain([line]);
        let (first, last) = lines.fold((line, line), |(first, last), line| (first.min(line), last.max(line)));
        let window = self.line(first).start..self.line(last).end;
        if window.len() <= LONGEST_EXCERPT { (first, window) } else { (line, self.line(line)) }
    }

    /// The part of a range that lies on its first line.
    fn on_one_line(&self, range: &Range<usize>) -> Range<usize> {
        let (line, start) = self.line_of(range.start);
        let end = self.line(line).end;
        start.min(end)..self.line_of(range.end).1.clamp(start.min(end), end)
    }
}
