//! The preprocessor: turns a file and its includes into one stream of tokens.
//!
//! That of the C++ standard as adopted by IDL (OMG IDL 4.2, 7.3), without `#` and `##` in macros.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Findings, IdlDiagnostic};
use super::lexeme::{Lexeme, lexemes};
use super::macros::{Macro, Macros};
use super::source::{SourceSpan, Sources};
use super::{ReadOptions, condition, similar};

/// The most octets of one file.
const LARGEST_FILE: u64 = 16 << 20;
/// The most octets of all included files together.
const LARGEST_SUM: u64 = 256 << 20;
/// The deepest nesting of includes.
const DEEPEST: usize = 64;
/// The contents of `orb.idl` if it is included and not found: the sequences of the standard's module CORBA.
const ORB_IDL: &str = include_str!("orb.idl");

/// A token, its place for reports, and the place of its text: they differ for tokens from a macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: Lexeme,
    pub at: SourceSpan,
    pub text: SourceSpan,
}

/// A comment, before the token of that index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comment {
    pub before: usize,
    pub at: SourceSpan,
}

/// An event of the preprocessor for the parser, between two tokens.
#[derive(Clone, Debug)]
pub(crate) enum PreprocessorEvent {
    /// An included file begins.
    Enter,
    /// It ends.
    Leave,
    /// `#pragma prefix "omg.org"`.
    Prefix(String),
    /// `#pragma ID Name "IDL:..."`.
    Id { name: String, id: String, at: SourceSpan },
    /// `#pragma version Name 1.2`.
    Version { name: String, version: String, at: SourceSpan },
}

/// The result.
#[derive(Default)]
pub(crate) struct Preprocessed {
    pub tokens: Vec<Token>,
    pub comments: Vec<Comment>,
    /// Each before the token of that index.
    pub events: Vec<(usize, PreprocessorEvent)>,
    /// Where macros were used.
    pub macros: HashSet<SourceSpan>,
}

/// Reads a file and all its includes.
pub(crate) fn preprocess(
    main: u32,
    options: &ReadOptions,
    sources: &mut Sources,
    findings: &mut Findings,
) -> Preprocessed {
    let mut macros = Macros::default();
    for (name, value) in &options.defines {
        let file = sources.add("the command line".into(), None, value.clone().into_bytes());
        macros.define(name.clone(), Macro { parameters: None, body: words(sources, file), at: None });
    }
    let stream = Preprocessed::default();
    let (open, once) = Default::default();
    let mut state = Preprocessor { options, sources, findings, macros, stream, open, once, octets: 0 };
    state.file(main);
    Preprocessed { macros: state.macros.used, ..state.stream }
}

/// All tokens of a small text.
fn words(sources: &Sources, file: u32) -> Vec<Token> {
    let meant = |kind: &Lexeme| !matches!(kind, Lexeme::Newline | Lexeme::Comment);
    let words = lexemes(sources.whole(file)).filter(|(kind, _)| meant(kind));
    words.map(|(kind, at)| token(kind, file, &at)).collect()
}

fn token(kind: Lexeme, file: u32, at: &std::ops::Range<usize>) -> Token {
    let at = SourceSpan { file, start: at.start as u32, end: at.end as u32 };
    Token { kind, at, text: at }
}

struct Preprocessor<'a> {
    options: &'a ReadOptions,
    sources: &'a mut Sources,
    findings: &'a mut Findings,
    macros: Macros,
    stream: Preprocessed,
    /// Files being read, the innermost last.
    open: Vec<u32>,
    /// Files with `#pragma once`.
    once: HashSet<u32>,
    octets: u64,
}

/// An open `#if`.
struct Branch {
    at: SourceSpan,
    /// The tokens here are used.
    active: bool,
    /// One of its branches was used.
    taken: bool,
    /// `#else` was seen, here.
    otherwise: Option<SourceSpan>,
    /// The enclosing branch is used.
    outer: bool,
}

impl Preprocessor<'_> {
    fn file(&mut self, file: u32) {
        self.open.push(file);
        let text = Arc::clone(self.sources.whole(file));
        let mut words = lexemes(&text).map(|(kind, at)| token(kind, file, &at)).peekable();
        let mut branches: Vec<Branch> = Vec::new();
        let mut run: Vec<Token> = Vec::new();
        let mut first = true;
        while let Some(word) = words.next() {
            if let Err(error) = self.macros.spend(word.at) {
                self.findings.error(error);
                break;
            }
            match word.kind {
                Lexeme::Newline => first = true,
                Lexeme::Hash if first => {
                    self.take(&mut run);
                    let mut line = Vec::new();
                    while let Some(next) = words.next_if(|next| next.kind != Lexeme::Newline) {
                        if next.kind != Lexeme::Comment {
                            line.push(next);
                        }
                    }
                    self.directive(word, &line, &mut branches);
                }
                _ if branches.last().is_some_and(|branch| !branch.active) => first = false,
                Lexeme::Comment => run.push(word),
                _ => {
                    first = false;
                    run.push(word);
                }
            }
        }
        self.take(&mut run);
        for branch in branches {
            let error = IdlDiagnostic::at(branch.at, "this condition has no `#endif`");
            self.findings.error(error.help("add `#endif`, after the last line that depends on it"));
        }
        self.open.pop();
    }

    /// Expands the macros in a run of tokens and appends it to the result.
    fn take(&mut self, run: &mut Vec<Token>) {
        for token in &*run {
            if token.kind == Lexeme::Unknown {
                self.findings.error(unknown(self.sources.text(token.text), token.at));
            }
        }
        let sources = &*self.sources;
        let stream = &mut self.stream;
        let outcome = self.macros.expand(run, sources, &mut |token| match token.kind {
            Lexeme::Comment => stream.comments.push(Comment { before: stream.tokens.len(), at: token.at }),
            Lexeme::Unknown => {}
            _ => stream.tokens.push(token),
        });
        if let Err(error) = outcome {
            self.findings.error(error);
        }
        run.clear();
    }

    fn directive(&mut self, hash: Token, line: &[Token], branches: &mut Vec<Branch>) {
        let Some(name) = line.first() else { return };
        let active = branches.last().is_none_or(|branch| branch.active);
        let rest = &line[1..];
        let at = hash.at.to(name.at);
        match self.sources.text(name.text).to_string().as_str() {
            "if" | "ifdef" | "ifndef" if !active => {
                branches.push(Branch { at, active: false, taken: true, otherwise: None, outer: false });
            }
            "if" => {
                let taken = self.condition(at, rest);
                branches.push(Branch { at, active: taken, taken, otherwise: None, outer: true });
            }
            which @ ("ifdef" | "ifndef") => {
                let defined = match rest {
                    [name] if name.kind == Lexeme::Word => self.macros.defined(self.sources.text(name.text)),
                    _ => {
                        let error = IdlDiagnostic::at(at, format!("`#{which}` needs one name"));
                        self.findings.error(error.help(format!("write `#{which} NAME`, or `#if` for more")));
                        false
                    }
                };
                let taken = defined == (which == "ifdef");
                branches.push(Branch { at, active: taken, taken, otherwise: None, outer: true });
            }
            which @ ("elif" | "else") => {
                let Some(branch) = branches.last_mut() else {
                    return self.findings.error(IdlDiagnostic::at(at, format!("`#{which}` without `#if`")));
                };
                if let Some(other) = branch.otherwise {
                    let error = IdlDiagnostic::at(at, format!("`#{which}` after `#else`"));
                    return self.findings.error(error.other(other, "`#else` is here"));
                }
                let (open, outer) = (!branch.taken && branch.outer, branch.outer);
                if which == "else" {
                    branch.otherwise = Some(at);
                }
                let taken = open && (which == "else" || self.condition(at, rest));
                if let Some(branch) = branches.last_mut() {
                    branch.active = taken && outer;
                    branch.taken |= taken;
                }
            }
            "endif" => {
                if branches.pop().is_none() {
                    self.findings.error(IdlDiagnostic::at(at, "`#endif` without `#if`"));
                }
            }
            _ if !active => {}
            "include" => self.include(at, rest),
            "define" => self.define(at, rest),
            "undef" => match rest {
                [name] if name.kind == Lexeme::Word => self.macros.forget(self.sources.text(name.text)),
                _ => self.findings.error(IdlDiagnostic::at(at, "`#undef` needs one name")),
            },
            "pragma" => self.pragma(at, rest),
            "error" => {
                let text = self.raw(rest);
                self.findings.error(IdlDiagnostic::at(at, format!("#error {text}")).help("this line refuses the file"));
            }
            "warning" => {
                let text = self.raw(rest);
                self.findings.warn(IdlDiagnostic::at(at, format!("#warning {text}")));
            }
            // Line marks of an earlier preprocessor.
            "line" | "ident" => {}
            text if text.starts_with(|first: char| first.is_ascii_digit()) => {}
            text => {
                let known = ["include", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "pragma"];
                let error = IdlDiagnostic::at(at, format!("`#{text}` is not a preprocessor directive"));
                let near = similar(text, known).map(|known| format!("did you mean `#{known}`?"));
                self.findings.error(IdlDiagnostic { help: near, ..error });
            }
        }
    }

    fn condition(&mut self, at: SourceSpan, words: &[Token]) -> bool {
        match condition::holds(at, words, &mut self.macros, self.sources) {
            Ok(holds) => holds,
            Err(error) => {
                self.findings.error(error);
                false
            }
        }
    }

    /// The text from the first to the last of some tokens on a line.
    fn raw(&self, words: &[Token]) -> String {
        match (words.first(), words.last()) {
            (Some(first), Some(last)) => self.sources.text(first.text.to(last.text)).to_string(),
            _ => String::new(),
        }
    }

    fn define(&mut self, at: SourceSpan, words: &[Token]) {
        let Some((name, rest)) = words.split_first().filter(|(name, _)| name.kind == Lexeme::Word) else {
            return self
                .findings
                .error(IdlDiagnostic::at(at, "`#define` needs a name").help("write `#define NAME value`"));
        };
        let text = self.sources.text(name.text).to_string();
        // A parenthesis directly after the name opens parameters; one after a blank belongs to the value.
        let touches = rest.first().is_some_and(|next| next.kind == Lexeme::Left && next.at.start == name.at.end);
        let (parameters, body) = if touches {
            let Some(close) = rest.iter().position(|token| token.kind == Lexeme::Right) else {
                return self
                    .findings
                    .error(IdlDiagnostic::at(name.at, format!("the parameters of `{text}` have no `)`")));
            };
            let inside = &rest[1..close];
            let sound = inside.iter().enumerate().all(|(index, token)| match index % 2 {
                0 => token.kind == Lexeme::Word,
                _ => token.kind == Lexeme::Comma,
            });
            if !sound || (!inside.is_empty() && inside.len() % 2 == 0) {
                let error =
                    IdlDiagnostic::at(name.at, format!("the parameters of `{text}` are not names between commas"));
                return self.findings.error(error);
            }
            let names = inside.iter().step_by(2).map(|token| self.sources.text(token.text).to_string());
            (Some(names.collect()), &rest[close + 1..])
        } else {
            (None, rest)
        };
        if let Some(unexpected) = body.iter().find(|token| matches!(token.kind, Lexeme::Hash | Lexeme::Paste)) {
            let error = IdlDiagnostic::at(unexpected.at, "`#` and `##` are not supported in macros");
            return self.findings.error(error.help("write the text itself, or run the file through `cpp -P` first"));
        }
        let new = Macro { parameters, body: body.to_vec(), at: Some(name.at) };
        if let Some(old) = self.macros.get(&text).filter(|old| !old.same(&new, self.sources)) {
            let mut warning = IdlDiagnostic::at(name.at, format!("`{text}` is defined again, differently"));
            if let Some(at) = old.at {
                warning = warning.other(at, "first here");
            }
            self.findings.warn(warning.help(format!("write `#undef {text}` before it")));
        }
        self.macros.define(text, new);
    }

    fn pragma(&mut self, at: SourceSpan, words: &[Token]) {
        let text: Vec<&str> = words.iter().map(|word| self.sources.text(word.text)).collect();
        let whole = words.last().map_or(at, |last| at.to(last.at));
        let before = self.stream.tokens.len();
        let unquoted = |text: &str| text.strip_prefix('"')?.strip_suffix('"').map(str::to_string);
        let event = match text.as_slice() {
            ["once"] => {
                self.once.extend(self.open.last());
                return;
            }
            ["prefix", rest @ ..] => match rest {
                [prefix] => unquoted(prefix).map(PreprocessorEvent::Prefix),
                _ => None,
            },
            ["ID", name @ .., id] => unquoted(id)
                .map(|id| PreprocessorEvent::Id { name: name.concat(), id, at: whole })
                .filter(|_| !name.is_empty()),
            // The lexer reads 1.2 as a number; 1.10 and 1.1 differ, so the text counts.
            ["version", name @ .., version] => {
                Some(PreprocessorEvent::Version { name: name.concat(), version: version.to_string(), at: whole })
                    .filter(|_| !name.is_empty() && is_version(version))
            }
            ["ID" | "version"] => None,
            // Another compiler's.
            _ => return,
        };
        match event {
            Some(event) => self.stream.events.push((before, event)),
            None => {
                let form = match text[0] {
                    "prefix" => "#pragma prefix \"omg.org\"",
                    "ID" => "#pragma ID Name \"IDL:Module/Name:1.0\"",
                    _ => "#pragma version Name 1.0",
                };
                let error = IdlDiagnostic::at(whole, format!("`#pragma {}` has another form", text[0]));
                self.findings.error(error.help(format!("write `{form}`")));
            }
        }
    }

    fn include(&mut self, at: SourceSpan, words: &[Token]) {
        let whole = words.last().map_or(at, |last| at.to(last.at));
        let text = self.raw(words);
        let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let angled = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        let Some(name) = quoted.or(angled).filter(|name| !name.is_empty()) else {
            let error = IdlDiagnostic::at(whole, "`#include` needs a file's name");
            return self.findings.error(error.help("write `#include \"other.idl\"` or `#include <other.idl>`"));
        };
        let file = match self.find(name, quoted.is_some(), whole) {
            Ok(file) => file,
            Err(error) => return self.findings.error(error),
        };
        if self.once.contains(&file) {
            return;
        }
        // At the second time it may skip itself by its guard; at the third time it did not.
        if self.open.iter().filter(|open| **open == file).count() >= 2 {
            let way: Vec<&str> = self.open.iter().map(|open| self.sources.name(*open)).collect();
            let error = IdlDiagnostic::at(whole, format!("`{name}` includes itself"));
            let error = error.label(format!("on the way {}", way.join(" > ")));
            return self.findings.error(error.help("put `#pragma once` at its top, or guard it with `#ifndef`"));
        }
        if self.open.len() >= DEEPEST {
            let error = IdlDiagnostic::at(whole, format!("files include files more than {DEEPEST} deep"));
            return self.findings.error(error);
        }
        self.octets += self.sources.whole(file).len() as u64;
        if self.octets > LARGEST_SUM {
            let message = format!("the included files have more than {} MiB together", LARGEST_SUM >> 20);
            let error = IdlDiagnostic::at(whole, message).help("a file counts as often as it is included");
            return self.findings.error(error);
        }
        self.stream.events.push((self.stream.tokens.len(), PreprocessorEvent::Enter));
        self.file(file);
        self.stream.events.push((self.stream.tokens.len(), PreprocessorEvent::Leave));
    }

    /// Looks for an included file beside the including one (if quoted), then along the search path.
    fn find(&mut self, name: &str, quoted: bool, at: SourceSpan) -> Result<u32, IdlDiagnostic> {
        let here = self.open.last().and_then(|open| self.sources.path(*open)).and_then(Path::parent);
        let here = here.filter(|_| quoted).map(Path::to_path_buf);
        let candidates: Vec<PathBuf> = here.into_iter().chain(self.options.includes.iter().cloned()).collect();
        let found = candidates.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
        let Some(path) = found else {
            if matches!(name, "orb.idl" | "CORBA.idl") {
                let known = (0..u32::MAX).take(self.sources.len()).find(|file| self.sources.name(*file) == "<orb.idl>");
                return Ok(known.unwrap_or_else(|| self.sources.add("<orb.idl>".into(), None, ORB_IDL.into())));
            }
            let places: Vec<String> = candidates.iter().map(|dir| dir.join("").display().to_string()).collect();
            let error = IdlDiagnostic::at(at, format!("`{name}` was not found"));
            return Err(match places.is_empty() {
                true => error.help("name the directories to search with `-I`, or `Options::includes` in build.rs"),
                false => error.help(format!("looked in {}; add directories with `-I`", places.join(", "))),
            });
        };
        let path = path.canonicalize().unwrap_or(path);
        if let Some(file) = self.sources.find(&path) {
            return Ok(file);
        }
        let octets = read(&path).map_err(|why| IdlDiagnostic::at(at, why))?;
        Ok(self.sources.add(name.to_string(), Some(path), octets))
    }
}

/// Reads a file of bounded length.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let cannot = |why: std::io::Error| format!("{} cannot be read: {why}", path.display());
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut octets = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut octets).map_err(cannot)?;
    fits(&octets).map_err(|why| format!("{} {why}", path.display()))?;
    Ok(octets)
}

/// The rules for every text that is read.
pub(crate) fn fits(octets: &[u8]) -> Result<(), String> {
    if octets.len() as u64 > LARGEST_FILE {
        return Err(format!("is larger than {} MiB", LARGEST_FILE >> 20));
    }
    match octets.iter().position(|octet| *octet == 0) {
        Some(at) => Err(format!("is not text: octet {at} is zero")),
        None => Ok(()),
    }
}

fn is_version(text: &str) -> bool {
    text.split_once('.').is_some_and(|(major, minor)| major.parse::<u16>().is_ok() && minor.parse::<u16>().is_ok())
}

/// An error about text that begins no lexeme.
fn unknown(text: &str, at: SourceSpan) -> IdlDiagnostic {
    let mut at = at;
    match text.chars().next().unwrap_or(' ') {
        '"' => IdlDiagnostic::at(at, "this string does not end on its line").help("close it with `\"`"),
        '\'' => IdlDiagnostic::at(at, "this character does not end on its line").help("close it with `'`"),
        '/' => {
            at.end = at.start + 2;
            IdlDiagnostic::at(at, "this comment does not end").help("close it with `*/`")
        }
        first => IdlDiagnostic::at(at, format!("`{}` has no meaning in IDL", first.escape_debug())),
    }
}
