//! Plain English: what users read has short sentences and the field's words, and a type's name has one meaning.
//!
//! `docs/messages.txt` lists every string that a user can see; `BLESS=1 cargo test -p hyoshi --test suite language::`
//! writes it. After a conflict in that file, take either side and write it again. The limits below may only fall: a change
//! that improves the texts lowers them.
//! `cargo test -p hyoshi --test suite language:: -- --nocapture` prints every finding.

#[path = "language/prose.rs"]
mod prose;
#[path = "language/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::Place;
use source::{Source, workspace};

/// Advised-against words in README.md, docs and messages that `ALLOWED_WORDS` does not explain. Goal: 0.
const ADVISED_AGAINST_LIMIT: usize = 0;
/// Sentences over 25 words in README.md and in the help of every verb. Goal: 0.
const LONG_SENTENCES_LIMIT: usize = 0;
/// Names that several types bear and `ALLOWED_TYPES` does not explain. Goal: 0.
const REPEATED_TYPES_LIMIT: usize = 0;

const LONGEST_SENTENCE: usize = 25;

/// Occurrences that stay: the word, a part of its sentence, the reason.
const ALLOWED_WORDS: &[(&str, &str, &str)] = &[];

/// Names of several types that mean the same, and what.
const ALLOWED_TYPES: &[(&str, &str)] = &[
    ("Arguments", "the flags and operands of a verb, in the file of that verb"),
    ("Verb", "the verbs of a verb, in the file of that verb"),
    ("HostArguments", "the flags of a host of `run`, with the feature `orb` and without"),
    ("JoinedHost", "a node that has joined the hosts of a run, with the feature `orb` and without"),
    ("NameComponent", "a step of a CosNaming name: generated from its IDL, and in the text of a `corbaname`"),
    ("RunControl", "the control object of a run, with the feature `orb` and without"),
];

/// Crates of the tests alone, whose strings no user sees.
const OF_TESTS: &[&str] = &["interop/"];

fn messages(sources: &BTreeMap<String, Source>) -> String {
    let mut text = String::from(
        "Every string of the sources that a user can see, for review. A test writes it:\n\
         BLESS=1 cargo test -p hyoshi --test suite language::\n",
    );
    for (file, source) in sources {
        if source.strings.is_empty() || OF_TESTS.iter().any(|of| file.starts_with(of)) {
            continue;
        }
        let _ = writeln!(text, "\n== {file}");
        for string in &source.strings {
            // Further lines of a string are indented.
            let lines = string.trim_end().lines().map(without_controls);
            let _ = writeln!(text, "{}", lines.collect::<Vec<_>>().join("\n    "));
        }
    }
    text
}

/// A line with escape sequences made visible.
fn without_controls(line: &str) -> String {
    let shown = |sign: char| if sign.is_control() { sign.escape_default().collect() } else { sign.to_string() };
    line.trim_end().chars().map(shown).collect()
}

/// Fails if more was found than the limit; the findings are printed either way.
fn limit(what: &str, findings: &[String], limit: usize, constant: &str, remedy: &str) {
    let count = findings.len();
    println!("{what}: {count}, limit {limit}\n{}", findings.join("\n"));
    assert!(
        count <= limit,
        "{what}: {count}, limit {limit} ({constant}). The list is above: compare it with that of the commit before. {remedy}"
    );
    if count < limit {
        println!("{constant} in crates/hyoshi/tests/language.rs can fall to {count}");
    }
}

#[test]
fn the_list_of_messages_is_current() {
    let root = workspace();
    let current = messages(&source::sources(&root));
    let path = root.join("docs/messages.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, current).unwrap();
        return;
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let of = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (new, old) = (of(&current), of(&listed));
    let changed: Vec<_> = new.difference(&old).map(|line| format!("+ {line}")).collect();
    let removed: Vec<_> = old.difference(&new).map(|line| format!("- {line}")).collect();
    assert!(
        current == listed,
        "docs/messages.txt differs from the sources. Write it with `BLESS=1 cargo test -p hyoshi --test suite \
         language::` and read its diff.\n{}",
        [changed, removed].concat().join("\n")
    );
}

#[test]
fn users_read_the_words_of_the_field() {
    let root = workspace();
    let mut pages = vec![root.join("README.md")];
    pages.extend(source::entries(&root.join("docs")).into_iter().filter(|path| is_markdown(path)));
    let mut sentences = Vec::new();
    for page in pages {
        let name = page.strip_prefix(&root).unwrap_or(&page).display().to_string();
        let text = fs::read_to_string(&page).unwrap();
        for block in prose::markdown(&text) {
            sentences.extend(prose::sentences(&block).into_iter().map(|sentence| (name.clone(), sentence.to_owned())));
        }
    }
    for (file, source) in source::sources(&root) {
        if OF_TESTS.iter().any(|of| file.starts_with(of)) {
            continue;
        }
        for string in &source.strings {
            let text = prose::without_code(string);
            let each = prose::sentences(&text).into_iter().map(str::to_owned);
            sentences.extend(each.map(|sentence| (file.clone(), sentence)));
        }
    }
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for (file, sentence) in sentences {
        for (word, remedy) in prose::advised_against(&sentence) {
            let allowed = ALLOWED_WORDS.iter().position(|(of, part, _)| *of == word && sentence.contains(part));
            match allowed {
                Some(allowed) => drop(used.insert(allowed)),
                None => findings.push(format!("{file}: \"{word}\" (rather: {remedy}) in: {sentence}")),
            }
        }
    }
    let unused: Vec<_> = (0..ALLOWED_WORDS.len()).filter(|at| !used.contains(at)).map(|at| ALLOWED_WORDS[at]).collect();
    assert!(unused.is_empty(), "remove from ALLOWED_WORDS what no sentence contains: {unused:?}");
    let remedy = "Rewrite the sentence with the verb in parentheses; then bless docs/messages.txt.";
    limit("advised-against words", &findings, ADVISED_AGAINST_LIMIT, "ADVISED_AGAINST_LIMIT", remedy);
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

#[test]
fn sentences_of_the_readme_and_of_help_are_short() {
    let mut findings = Vec::new();
    let mut check = |place: &str, blocks: Vec<prose::Block>| {
        for block in blocks {
            for sentence in prose::sentences(&block) {
                let words = prose::length(sentence);
                if words > LONGEST_SENTENCE {
                    findings.push(format!("{place}: {words} words: {sentence}"));
                }
            }
        }
    };
    check("README.md", prose::markdown(&fs::read_to_string(workspace().join("README.md")).unwrap()));
    let place = Place::new();
    let mut verbs = vec![String::new()];
    let mut seen = 0;
    while let Some(verb) = verbs.pop() {
        seen += 1;
        let text = place.hyoshi(&format!("{verb} --help")).exits(0).out;
        check(&format!("hyoshi{verb} --help"), prose::help(&text));
        verbs.extend(listed_verbs(&text).into_iter().map(|name| format!("{verb} {name}")));
    }
    assert!(seen > 30, "only {seen} verbs were found in the help");
    let remedy = "Split the sentence: one idea each, at most 25 words.";
    limit("sentences over 25 words", &findings, LONG_SENTENCES_LIMIT, "LONG_SENTENCES_LIMIT", remedy);
}

/// The verbs that a help text lists; `hyoshi` itself lists its verbs in groups.
fn listed_verbs(help: &str) -> Vec<String> {
    let from = help.lines().skip_while(|line| !["Commands:", "Describe and prove:"].contains(line));
    let listed = from.take_while(|line| *line != "Options:");
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn a_types_name_has_one_meaning() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, source) in source::sources(&workspace()) {
        for name in source.types {
            files.entry(name).or_default().push(file.clone());
        }
    }
    files.retain(|_, files| files.len() > 1);
    let stale: Vec<_> = ALLOWED_TYPES.iter().filter(|(name, _)| !files.contains_key(*name)).collect();
    assert!(stale.is_empty(), "remove from ALLOWED_TYPES what is defined once: {stale:?}");
    files.retain(|name, _| ALLOWED_TYPES.iter().all(|(allowed, _)| allowed != name));
    let findings: Vec<_> = files.iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect();
    let remedy = "Rename the type of the less central crate, reuse one, or explain it in ALLOWED_TYPES.";
    limit("type names with several definitions", &findings, REPEATED_TYPES_LIMIT, "REPEATED_TYPES_LIMIT", remedy);
}
