//! Reads the workspace's sources as token streams: the strings that a user can see, and the names of types.
//!
//! Tokens suffice: macros keep their arguments, which a syntax tree would not open, and doc comments become attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Macros whose strings only a developer sees: failed assertions, generated code, names of files.
const INTERNAL_MACROS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "prop_assert",
    "prop_assert_eq",
    "panic",
    "unreachable",
    "cfg",
    "env",
    "include",
    "include_str",
    "include_bytes",
    "parse_quote",
    "quote",
];
/// Attributes whose strings nobody sees at run time.
const INTERNAL_ATTRIBUTES: &[&str] = &["allow", "cfg", "cfg_attr", "deny", "expect", "must_use", "path", "serde"];
/// Methods whose string is a developer's: `.expect("...")`.
const INTERNAL_METHODS: &[&str] = &["expect", "expect_err"];
/// Derived traits by which clap prints doc comments as help.
const CLAP: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// What one source file holds, apart from tests.
#[derive(Default)]
pub struct Source {
    /// Strings of at least two words, each once, in the order of the file.
    pub strings: Vec<String>,
    /// Names of the types that it defines.
    pub types: BTreeSet<String>,
    /// Files and directories that hold its `#[cfg(test)]` modules.
    tests: Vec<PathBuf>,
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", root.display()))
}

/// Every source file of `crates/*/src` without its tests, by its path below `crates`.
pub fn sources(root: &Path) -> BTreeMap<String, Source> {
    let crates = root.join("crates");
    let mut files = Vec::new();
    for entry in entries(&crates) {
        let src = entry.join("src");
        if src.is_dir() {
            rust_files(&src, &mut files);
        }
    }
    let read: BTreeMap<PathBuf, Source> = files.into_iter().map(|file| (file.clone(), Source::read(&file))).collect();
    let tests: Vec<PathBuf> = read.values().flat_map(|source| source.tests.iter().cloned()).collect();
    let of_tests = |file: &Path| tests.iter().any(|test| file == test || file.starts_with(test));
    let kept = read.into_iter().filter(|(file, _)| !of_tests(file));
    let named = kept.map(|(file, source)| {
        let below = file.strip_prefix(&crates).unwrap_or(&file);
        (below.display().to_string().replacen("/src/", "/", 1), source)
    });
    named.collect()
}

/// The entries of a directory, sorted.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut all: Vec<PathBuf> = read.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for path in entries(directory) {
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

impl Source {
    fn read(file: &Path) -> Source {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut source = Source::default();
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        source.walk(tokens, file, false);
        let mut seen = BTreeSet::new();
        source.strings.retain(|string| seen.insert(string.clone()));
        source
    }

    /// Reads items, statements or arguments; `help` within a type whose doc comments clap prints.
    fn walk(&mut self, tokens: TokenStream, file: &Path, help: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        // Of an item: whether clap prints the docs within it, and its own docs, which come before the derive.
        let (mut derived, mut docs) = (false, Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens, at) {
                let is_inner = is_punct(tokens.get(at + 1), '!');
                at += if is_inner { 3 } else { 2 };
                match self.attribute(&attribute, &mut docs) {
                    Attribute::Test => at = self.skip_item(&tokens, at, file),
                    Attribute::Clap => derived = true,
                    Attribute::Other => {}
                }
                continue;
            }
            if help {
                self.keep_paragraphs(&mut docs);
            }
            match &tokens[at] {
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    if let Some(name) = defined(&word, &tokens[at..]) {
                        self.types.insert(name);
                        if derived {
                            self.keep_paragraphs(&mut docs);
                        }
                    }
                    if word != "pub" {
                        docs.clear();
                    }
                    if is_punct(tokens.get(at + 1), '!') && INTERNAL_MACROS.contains(&word.as_str()) {
                        at += 2;
                    } else if at > 0 && is_punct(tokens.get(at - 1), '.') && INTERNAL_METHODS.contains(&word.as_str()) {
                        at += 1;
                    }
                }
                TokenTree::Punct(punct) => derived &= punct.as_char() != ';',
                TokenTree::Literal(literal) => {
                    if let Some(text) = string(&literal.to_string()) {
                        self.keep(&text);
                    }
                }
                TokenTree::Group(group) => {
                    self.walk(group.stream(), file, help || derived);
                    derived &= group.delimiter() != Delimiter::Brace;
                }
            }
            at += 1;
        }
    }

    fn attribute(&mut self, attribute: &Group, docs: &mut Vec<String>) -> Attribute {
        let text = attribute.stream().to_string();
        let mut tokens = attribute.stream().into_iter();
        let Some(TokenTree::Ident(name)) = tokens.next() else { return Attribute::Other };
        match name.to_string().as_str() {
            "test" => return Attribute::Test,
            "cfg" if text.replace(' ', "").starts_with("cfg(test") => return Attribute::Test,
            "derive" => {
                if text.split(|sign: char| !sign.is_alphanumeric()).any(|derived| CLAP.contains(&derived)) {
                    return Attribute::Clap;
                }
            }
            "doc" => {
                let line = tokens.nth(1).and_then(|line| string(&line.to_string()));
                docs.extend(line.map(|line| line.trim().to_owned()));
            }
            name if INTERNAL_ATTRIBUTES.contains(&name) => {}
            _ => self.walk(tokens.collect(), Path::new(""), false),
        }
        Attribute::Other
    }

    fn keep_paragraphs(&mut self, docs: &mut Vec<String>) {
        for paragraph in docs.split(String::is_empty) {
            self.keep(&paragraph.join(" "));
        }
        docs.clear();
    }

    fn keep(&mut self, text: &str) {
        if words(text) >= 2 {
            self.strings.push(text.to_owned());
        }
    }

    /// Skips the item after `#[cfg(test)]`; remembers the file of a module that has its own.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize, file: &Path) -> usize {
        let mut module = None;
        let mut own_path = None;
        while at < tokens.len() {
            if let Some(attribute) = attribute(tokens, at) {
                let mut within = attribute.stream().into_iter();
                if within.next().is_some_and(|name| name.to_string() == "path") {
                    own_path = within.nth(1).and_then(|path| string(&path.to_string()));
                }
                at += 2;
                continue;
            }
            match &tokens[at] {
                TokenTree::Ident(word) if word == "mod" => module = tokens.get(at + 1).map(ToString::to_string),
                TokenTree::Punct(punct) if punct.as_char() == ';' || punct.as_char() == ',' => {
                    if let Some(module) = module {
                        self.test_module(file, &module, own_path);
                    }
                    return at + 1;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at + 1,
                _ => {}
            }
            at += 1;
        }
        at
    }

    fn test_module(&mut self, file: &Path, module: &str, own_path: Option<String>) {
        let directory = file.parent().unwrap_or(file);
        if let Some(path) = own_path {
            return self.tests.push(directory.join(path));
        }
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let directory =
            if ["lib", "main", "mod"].contains(&stem) { directory.to_owned() } else { directory.join(stem) };
        self.tests.push(directory.join(module));
        self.tests.push(directory.join(format!("{module}.rs")));
    }
}

enum Attribute {
    /// The item is a test, or only tests use it.
    Test,
    /// Its doc comments are help.
    Clap,
    Other,
}

/// The attribute that begins at a token: `#[...]` or `#![...]`.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<Group> {
    if !is_punct(tokens.get(at), '#') {
        return None;
    }
    let next = if is_punct(tokens.get(at + 1), '!') { at + 2 } else { at + 1 };
    match tokens.get(next) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => Some(group.clone()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// The name of the type whose definition begins here.
fn defined(word: &str, tokens: &[TokenTree]) -> Option<String> {
    let is_definition = match word {
        "struct" | "enum" | "trait" => true,
        "union" => matches!(tokens.get(2), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace),
        _ => false,
    };
    match tokens.get(1) {
        Some(TokenTree::Ident(name)) if is_definition => Some(name.to_string()),
        _ => None,
    }
}

/// The value of a string literal; `None` for other literals, bytes and C strings.
fn string(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        let raw = raw.trim_matches('#');
        return Some(raw.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(inner.len());
    let mut signs = inner.chars().peekable();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            text.push(sign);
            continue;
        }
        match signs.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '0' => text.push('\0'),
            'x' => {
                let code: String = signs.by_ref().take(2).collect();
                text.push(char::from(u8::from_str_radix(&code, 16).ok()?));
            }
            'u' => {
                let code: String = signs.by_ref().skip(1).take_while(|sign| *sign != '}').collect();
                text.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
            }
            '\n' => while signs.next_if(|sign| sign.is_whitespace()).is_some() {},
            other => text.push(other),
        }
    }
    Some(text)
}

/// How many words a string has, apart from `{placeholders}`.
fn words(text: &str) -> usize {
    let mut depth = 0;
    let prose: String = text
        .chars()
        .filter(|sign| {
            depth += i32::from(*sign == '{');
            let keep = depth == 0;
            depth -= i32::from(*sign == '}' && depth > 0);
            keep
        })
        .collect();
    let is_word = |word: &&str| word.chars().filter(|sign| sign.is_alphabetic()).count() >= 2;
    prose.split_whitespace().filter(is_word).count()
}
