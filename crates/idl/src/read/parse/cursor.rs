//! The parser's position in the tokens, and its errors for unexpected tokens.

use crate::read::diagnostic::{Findings, IdlDiagnostic};
use crate::read::lexeme::Lexeme;
use crate::read::preprocess::{Preprocessed, PreprocessorEvent, Token};
use crate::read::similar;
use crate::read::source::{SourceSpan, Sources};
use crate::read::syntax::{Name, ScopedName};

use super::DEEPEST;

/// An error was reported; a caller that can skips to the next place to continue.
pub(crate) struct ParseFailure;

/// The result of parsing.
pub(crate) type ParseResult<T> = Result<T, ParseFailure>;

/// The words of IDL 4.2, table 7-6, that cannot be names without an underscore before them, except for those reserved
/// only by 4.x (`bitfield`, `map`, `int8`...), because older files use them as names.
const KEYWORDS: [&str; 73] = [
    "abstract",
    "any",
    "alias",
    "attribute",
    "boolean",
    "case",
    "char",
    "component",
    "connector",
    "const",
    "consumes",
    "context",
    "custom",
    "default",
    "double",
    "emits",
    "enum",
    "eventtype",
    "exception",
    "factory",
    "FALSE",
    "finder",
    "fixed",
    "float",
    "getraises",
    "getter",
    "home",
    "import",
    "in",
    "inout",
    "interface",
    "local",
    "long",
    "manages",
    "mirrorport",
    "module",
    "multiple",
    "native",
    "Object",
    "octet",
    "oneway",
    "out",
    "port",
    "porttype",
    "primarykey",
    "private",
    "provides",
    "public",
    "publishes",
    "raises",
    "readonly",
    "sequence",
    "setraises",
    "setter",
    "short",
    "string",
    "struct",
    "supports",
    "switch",
    "TRUE",
    "truncatable",
    "typedef",
    "typeid",
    "typename",
    "typeprefix",
    "union",
    "unsigned",
    "uses",
    "ValueBase",
    "valuetype",
    "void",
    "wchar",
    "wstring",
];

/// Keywords of components and templates (CORBA 3 and later): old files use them as names, and this parser does not need
/// them.
const UNUSED: [&str; 20] = [
    "alias",
    "component",
    "connector",
    "consumes",
    "emits",
    "eventtype",
    "finder",
    "getter",
    "home",
    "manages",
    "mirrorport",
    "multiple",
    "port",
    "porttype",
    "primarykey",
    "provides",
    "publishes",
    "setter",
    "typename",
    "uses",
];

/// The keyword that a name equals, or from which it differs only in case.
pub(crate) fn is_keyword(name: &str) -> Option<&'static str> {
    KEYWORDS.iter().find(|keyword| keyword.eq_ignore_ascii_case(name)).copied()
}

/// Of a name, in characters.
const LONGEST_NAME: usize = 256;

pub(crate) struct Cursor<'a> {
    pub stream: &'a Preprocessed,
    pub sources: &'a Sources,
    pub findings: &'a mut Findings,
    pub next: usize,
    /// The next unread event.
    pub event: usize,
    pub depth: usize,
    /// The first half of a `>>` was read.
    half: bool,
    /// An early end of the file was reported.
    pub ended: bool,
    /// Within `<` and `>`.
    pub angles: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(stream: &'a Preprocessed, sources: &'a Sources, findings: &'a mut Findings) -> Self {
        Cursor { stream, sources, findings, next: 0, event: 0, depth: 0, half: false, ended: false, angles: false }
    }

    /// The preprocessor's events before the next token.
    pub fn events(&mut self) -> Vec<PreprocessorEvent> {
        let events = self.stream.events[self.event..].iter().take_while(|(before, _)| *before <= self.next);
        let events: Vec<PreprocessorEvent> = events.map(|(_, event)| event.clone()).collect();
        self.event += events.len();
        events
    }

    pub fn token(&self) -> Token {
        self.ahead(0)
    }

    pub fn ahead(&self, by: usize) -> Token {
        let tokens = &self.stream.tokens;
        tokens.get(self.next + by).copied().unwrap_or_else(|| {
            let at = tokens.last().map_or(SourceSpan::default(), |last| SourceSpan { start: last.at.end, ..last.at });
            Token { kind: Lexeme::End, at, text: SourceSpan { end: at.start, ..at } }
        })
    }

    pub fn kind(&self) -> Lexeme {
        self.token().kind
    }

    pub fn at(&self) -> SourceSpan {
        self.token().at
    }

    /// The place of the last token read.
    pub fn last(&self) -> SourceSpan {
        match self.next.checked_sub(1) {
            Some(last) => self.stream.tokens[last].at,
            None => self.at(),
        }
    }

    pub fn text(&self) -> &'a str {
        self.sources.text(self.token().text)
    }

    /// True if the next word is that keyword.
    pub fn is(&self, keyword: &str) -> bool {
        self.kind() == Lexeme::Word && self.text() == keyword
    }

    pub fn bump(&mut self) -> Token {
        let token = self.token();
        if token.kind != Lexeme::End {
            self.next += 1;
        }
        token
    }

    /// Reads the keyword if it is next.
    pub fn word(&mut self, keyword: &str) -> Option<SourceSpan> {
        self.is(keyword).then(|| self.bump().at)
    }

    /// Reads the sign if it is next.
    pub fn sign(&mut self, sign: Lexeme) -> Option<SourceSpan> {
        (self.kind() == sign).then(|| self.bump().at)
    }

    pub fn expect(&mut self, sign: Lexeme, wanted: &str) -> ParseResult<SourceSpan> {
        match self.sign(sign) {
            Some(at) => Ok(at),
            None => Err(self.unexpected(wanted)),
        }
    }

    /// Reads `>`, or the first half of `>>`.
    pub fn close_angle(&mut self) -> ParseResult<SourceSpan> {
        if self.half || self.kind() == Lexeme::Greater {
            self.half = false;
            return Ok(self.bump().at);
        }
        if self.kind() == Lexeme::ShiftRight {
            self.half = true;
            return Ok(self.at());
        }
        Err(self.unexpected("`>`"))
    }

    /// The `;` after a declaration; one that is missing at a line's end is reported there.
    pub fn semicolon(&mut self) -> ParseResult<()> {
        if self.sign(Lexeme::Semicolon).is_some() {
            return Ok(());
        }
        let (last, next) = (self.last(), self.at());
        let line = |at: SourceSpan| (at.file, self.sources.line(at.file, at.start));
        let behind = SourceSpan { start: last.end, end: last.end, ..last };
        if self.ended && self.kind() == Lexeme::End {
            return Ok(());
        }
        if matches!(self.kind(), Lexeme::End | Lexeme::Close) || line(last) != line(next) {
            let error = IdlDiagnostic::at(behind, "expected `;`").label("here").help("end the declaration with `;`");
            self.findings.error(error);
            // Continue as if it were there, to find further errors.
            return Ok(());
        }
        Err(self.unexpected("`;`"))
    }

    /// Reports that the next token is unexpected.
    pub fn unexpected(&mut self, wanted: &str) -> ParseFailure {
        let found = match self.kind() {
            Lexeme::End if self.ended => return ParseFailure,
            Lexeme::End => {
                self.ended = true;
                "the file ends".to_string()
            }
            Lexeme::Word if is_keyword(self.text()) == Some(self.text()) => {
                format!("found the keyword `{}`", self.text())
            }
            _ => format!("found `{}`", shorten(self.text())),
        };
        let error = IdlDiagnostic::at(self.at(), format!("expected {wanted}, {found}")).label("unexpected");
        self.findings.error(error);
        ParseFailure
    }

    /// Reports that the next token is none of the expected ones, with the nearest if it is similar.
    pub fn unexpected_among(&mut self, wanted: &str, known: &[&str]) -> ParseFailure {
        let near = Some(self.text()).filter(|_| self.kind() == Lexeme::Word);
        let near = near.and_then(|text| similar(text, known.iter().copied()));
        match near {
            Some(near) => {
                let error = IdlDiagnostic::at(self.at(), format!("expected {wanted}, found `{}`", self.text()));
                self.findings.error(error.label("unknown word").help(format!("did you mean `{near}`?")));
                ParseFailure
            }
            None => self.unexpected(wanted),
        }
    }

    /// Rejects a part of IDL that is not supported.
    pub fn refuse(&mut self, at: SourceSpan, message: &str, help: &str) -> ParseFailure {
        let label = if message.contains("not supported") { "not supported" } else { "" };
        self.findings.error(IdlDiagnostic::at(at, message).label(label).help(help));
        ParseFailure
    }

    /// Reads a name that is being declared.
    pub fn name(&mut self, of: &str) -> ParseResult<Name> {
        if self.kind() != Lexeme::Word {
            return Err(self.unexpected(&format!("the name of {of}")));
        }
        let (text, at) = (self.text(), self.at());
        if text.len() > LONGEST_NAME {
            let error = IdlDiagnostic::at(at, format!("this name has more than {LONGEST_NAME} characters"));
            self.findings.error(error);
            return Err(ParseFailure);
        }
        let Some(escaped) = text.strip_prefix('_') else {
            if let Some(keyword) = is_keyword(text).filter(|keyword| !UNUSED.contains(keyword)) {
                let how = if keyword == text {
                    "is a keyword".into()
                } else {
                    format!("differs from the keyword `{keyword}` only in case")
                };
                let error = IdlDiagnostic::at(at, format!("`{text}` cannot be the name of {of}: it {how}"));
                self.findings.error(error.help(format!("write `_{text}`: the name is `{text}` everywhere else")));
                // A name was meant if a declaration follows.
                let declares = matches!(
                    self.ahead(1).kind,
                    Lexeme::Semicolon
                        | Lexeme::Comma
                        | Lexeme::Open
                        | Lexeme::Close
                        | Lexeme::Left
                        | Lexeme::Right
                        | Lexeme::Colon
                        | Lexeme::Equals
                        | Lexeme::LeftSquare
                );
                if !declares {
                    return Err(ParseFailure);
                }
            }
            self.bump();
            return Ok(Name { text: text.to_string(), at });
        };
        if !escaped.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let error = IdlDiagnostic::at(
                at,
                format!(
                    "`{text}` is not a name: only one underscore is allowed, before a \
                letter"
                ),
            );
            self.findings.error(error.help("names begin with a letter; `_name` means `name`, but never a keyword"));
        }
        self.bump();
        Ok(Name { text: escaped.to_string(), at })
    }

    /// Reads a name that is used, `A::B` or `::A::B`.
    pub fn scoped_name(&mut self, of: &str) -> ParseResult<ScopedName> {
        let start = self.at();
        let absolute = self.sign(Lexeme::Scope).is_some();
        let mut parts = Vec::new();
        loop {
            if self.kind() != Lexeme::Word {
                return Err(self.unexpected(of));
            }
            let (text, at) = (self.text(), self.at());
            if text.len() > LONGEST_NAME {
                let error = IdlDiagnostic::at(at, format!("this name has more than {LONGEST_NAME} characters"));
                self.findings.error(error);
                return Err(ParseFailure);
            }
            let plain = text.strip_prefix('_');
            if plain.is_none()
                && is_keyword(text).is_some_and(|keyword| keyword == text && !UNUSED.contains(&keyword))
                && text != "Object"
            {
                return Err(self.unexpected(of));
            }
            self.bump();
            parts.push(Name { text: plain.unwrap_or(text).to_string(), at });
            if self.sign(Lexeme::Scope).is_none() {
                break;
            }
        }
        let at = start.to(self.last());
        Ok(ScopedName { absolute, parts, at })
    }

    /// Skips to after the `}` of a body with an error.
    pub fn skip_body(&mut self) {
        let mut open = 1_usize;
        while open > 0 && self.kind() != Lexeme::End {
            match self.bump().kind {
                Lexeme::Open => open += 1,
                Lexeme::Close => open -= 1,
                _ => {}
            }
        }
    }

    /// Enters one more level; rejected beyond the limit.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= DEEPEST {
            let error = IdlDiagnostic::at(self.at(), format!("this is nested more than {DEEPEST} deep"));
            self.findings.error(error.help("name the inner parts"));
            return Err(ParseFailure);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips to after the end of a declaration with an error: `;` or the brace that closes it.
    pub fn skip(&mut self) {
        self.half = false;
        let mut open = 0_usize;
        loop {
            match self.kind() {
                Lexeme::End => return,
                Lexeme::Open => open += 1,
                Lexeme::Close if open == 0 => return,
                Lexeme::Close => {
                    open -= 1;
                    if open == 0 {
                        self.bump();
                        self.sign(Lexeme::Semicolon);
                        return;
                    }
                }
                Lexeme::Semicolon if open == 0 => {
                    self.bump();
                    return;
                }
                _ => {}
            }
            self.bump();
        }
    }

    /// The comment before the word at `token`: the last block that touches it, without comment signs.
    pub fn docs_before(&self, token: usize) -> Vec<String> {
        let Some(here) = self.stream.tokens.get(token) else { return Vec::new() };
        let comments = &self.stream.comments;
        let end = comments.partition_point(|comment| comment.before <= token);
        let mut wanted = self.sources.line(here.at.file, here.at.start);
        let mut lines = Vec::new();
        let previous = token.checked_sub(1).map(|index| self.stream.tokens[index].at);
        for comment in comments[..end].iter().rev() {
            if comment.before != token || comment.at.file != here.at.file {
                break;
            }
            let (first, last) = self.lines(comment.at);
            let beside = previous.is_some_and(|at| at.file == comment.at.file && self.lines(at).1 == first);
            if last + 1 < wanted || (beside && last != wanted) {
                break;
            }
            lines.extend(plain(self.sources.text(comment.at)).into_iter().rev());
            wanted = first;
        }
        lines.reverse();
        lines
    }

    /// The comment after the last token, on its line.
    pub fn docs_after(&self) -> Vec<String> {
        let (last, next) = (self.last(), self.at());
        let comments = &self.stream.comments;
        let start = comments.partition_point(|comment| comment.before < self.next);
        let Some(comment) = comments.get(start).filter(|comment| comment.before == self.next) else {
            return Vec::new();
        };
        let line = self.lines(last).1;
        let beside = comment.at.file == last.file && self.lines(comment.at).0 == line;
        // If another token follows on the line, it belongs to that.
        let alone = self.kind() == Lexeme::End || next.file != last.file || self.lines(next).0 != line;
        if beside && alone { plain(self.sources.text(comment.at)) } else { Vec::new() }
    }

    fn lines(&self, at: SourceSpan) -> (usize, usize) {
        (self.sources.line(at.file, at.start), self.sources.line(at.file, at.end.saturating_sub(1).max(at.start)))
    }
}

/// The lines of a comment without its signs.
fn plain(comment: &str) -> Vec<String> {
    if let Some(line) = comment.strip_prefix("//") {
        let line = line.trim_start_matches(['/', '!', '<']);
        return vec![line.strip_prefix(' ').unwrap_or(line).trim_end().to_string()];
    }
    let inside = comment.trim_start_matches("/*").trim_start_matches(['*', '!', '<']).trim_end_matches("*/");
    let inside = inside.trim_end_matches('*');
    let mut lines: Vec<String> = inside
        .lines()
        .map(|line| {
            let line = line.trim();
            let line = line.strip_prefix('*').unwrap_or(line);
            line.strip_prefix(' ').unwrap_or(line).to_string()
        })
        .collect();
    let blank = lines.iter().take_while(|line| line.trim().is_empty()).count();
    lines.drain(..blank);
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    lines
}

/// The beginning of a long text.
fn shorten(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_string() } else { text.chars().take(37).chain("...".chars()).collect() }
}
