//! Collects the errors and warnings while a file is read, so one run reports them all.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::diagnostic::{Diagnostic, FileErrors, Severity, Source};

/// Some bytes of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    from: u32,
    to: u32,
}

impl From<Range<usize>> for Place {
    fn from(range: Range<usize>) -> Self {
        // Texts are at most `limits::FILE_BYTES` long.
        Place { from: range.start as u32, to: range.end as u32 }
    }
}

impl Place {
    /// A part of this text, whose value is `text`. If the file has escapes in it, all of it.
    pub fn of_text(self, text: &str, part: Range<usize>) -> Place {
        let Range { start, end } = self.range();
        let (start, is_plain) = (start + 1, end - start == text.len() + 2);
        if is_plain { Place::from(start + part.start..start + part.end) } else { self }
    }

    fn range(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// A value and its place in the file, or the place where it would be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AtPlace<T> {
    pub value: T,
    pub place: Place,
}

impl<T> AtPlace<T> {
    pub fn new(value: T, place: Place) -> Self {
        AtPlace { value, place }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> AtPlace<U> {
        AtPlace { value: change(self.value), place: self.place }
    }
}

/// One finding, while it is being written.
#[derive(Debug, Default)]
pub(super) struct Finding {
    warning: bool,
    place: Place,
    message: String,
    label: String,
    help: Option<String>,
    context: Vec<(Place, String)>,
}

impl Finding {
    /// Sets the text at the caret.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Sets the remedy.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a related place.
    pub fn also(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.context.push((place, label.into()));
        self
    }
}

/// Further errors are counted, not reported.
const MOST_ERRORS: usize = 100;
const MOST_WARNINGS: usize = 50;
/// Names compared for suggestions, over the whole file: a file of a hundred thousand wrong names must be rejected as
/// fast as any other.
const MOST_COMPARISONS: usize = 500_000;

/// All findings so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    findings: Vec<Finding>,
    other_file: Vec<Diagnostic>,
    seen: HashSet<(Place, String)>,
    errors: usize,
    warnings: usize,
    comparisons: usize,
    /// Warnings are being dropped.
    silent: bool,
    /// Receives the parts of a finding that is dropped.
    unkept: Finding,
    /// Texts that other files contribute: the places of their first bytes, after the system's text, in order.
    sources: Vec<(usize, String, Arc<str>)>,
    /// A related place of all findings from now on.
    within: Option<(Place, &'static str)>,
}

impl Log {
    /// Places from `base` on are in this text.
    pub fn add_source(&mut self, base: usize, file: String, text: Arc<str>) {
        self.sources.push((base, file, text));
    }

    /// Sets a related place of all findings from now on.
    pub fn within(&mut self, related: Option<(Place, &'static str)>) {
        self.within = related;
    }

    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Finding {
        self.push(false, place, message.into())
    }

    /// Whether to drop warnings from now on: they are about a region that is not reached.
    pub fn silence(&mut self, silent: bool) {
        self.silent = silent;
    }

    pub fn warn(&mut self, place: Place, message: impl Into<String>) -> &mut Finding {
        self.push(true, place, message.into())
    }

    /// Adds an error about another file.
    pub fn other_file(&mut self, diagnostic: Diagnostic) {
        self.errors += 1;
        if self.other_file.len() < MOST_ERRORS {
            self.other_file.push(diagnostic);
        }
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The candidate nearest to the written name, if one is near enough.
    pub fn nearest<'a>(&mut self, written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        if written.len() > 64 || self.errors >= MOST_ERRORS {
            return None;
        }
        // At most a third of the letters may be wrong: otherwise the suggestion confuses.
        let most = (written.chars().count() / 3).max(1);
        let mut best: Option<(usize, &str)> = None;
        for candidate in candidates {
            self.comparisons += 1;
            if self.comparisons > MOST_COMPARISONS {
                break;
            }
            if candidate.eq_ignore_ascii_case(written) {
                return Some(candidate);
            }
            if candidate.len().abs_diff(written.len()) > 2 * most {
                continue;
            }
            let distance = strsim::damerau_levenshtein(written, candidate);
            if distance <= most && best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn push(&mut self, warning: bool, place: Place, message: String) -> &mut Finding {
        let (count, most) = if warning { (&mut self.warnings, MOST_WARNINGS) } else { (&mut self.errors, MOST_ERRORS) };
        // The instances of a template share one text: report its errors once.
        let kept = !(warning && self.silent) && *count < most && self.seen.insert((place, message.clone()));
        if kept || *count >= most {
            *count += 1;
        }
        let within = self.within.filter(|(related, _)| *related != place);
        let context = within.map(|(place, label)| (place, label.to_owned())).into_iter().collect();
        let finding = Finding { warning, place, message, context, ..Finding::default() };
        if !kept {
            self.unkept = finding;
            return &mut self.unkept;
        }
        self.findings.push(finding);
        let last = self.findings.len() - 1;
        &mut self.findings[last]
    }

    /// The warnings if there is no error, and everything otherwise.
    pub fn finish(mut self, file: &str, text: &str) -> Result<Vec<Diagnostic>, FileErrors> {
        if self.findings.is_empty() && self.other_file.is_empty() {
            return Ok(Vec::new());
        }
        let mut sources = vec![(0, Source::new(file, text))];
        sources.extend(self.sources.iter().map(|(base, file, text)| (*base, Source::new(file, text))));
        let local = |place: Place| {
            let number = sources.partition_point(|(base, _)| *base <= place.from as usize).max(1) - 1;
            let (base, range) = (sources[number].0, place.range());
            (number, range.start - base..range.end.max(range.start) - base)
        };
        self.findings.sort_by_key(|finding| finding.place);
        let diagnose = |finding: Finding| {
            let severity = if finding.warning { Severity::Warning } else { Severity::Error };
            let (number, range) = local(finding.place);
            let (mut context, mut elsewhere) = (Vec::new(), Vec::new());
            for (place, label) in finding.context {
                match local(place) {
                    (here, range) if here == number => context.push((range, label)),
                    (other, range) => elsewhere.push((&sources[other].1, range, label)),
                }
            }
            let texts = (finding.message, finding.label, finding.help);
            let mut diagnostic = sources[number].1.diagnose(severity, range, texts, &context);
            elsewhere.into_iter().for_each(|(source, range, label)| diagnostic.also(source, range, label));
            diagnostic
        };
        let (warnings, mut errors): (Vec<_>, Vec<_>) =
            self.findings.into_iter().map(diagnose).partition(|found| found.severity == Severity::Warning);
        errors.append(&mut self.other_file);
        if errors.is_empty() {
            return Ok(warnings);
        }
        let more = self.errors - errors.len().min(self.errors);
        Err(FileErrors { errors, more, warnings })
    }
}
