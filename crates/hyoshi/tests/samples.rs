//! What the documentation shows of a terminal is what the command prints.
//!
//! Blocks of the language `text` with lines that begin with `$ hyoshi` are run one after the other, in a
//! folder in which `examples` is the repository's. Of what follows a command, a line `...` stands for any
//! number of lines, and one that ends with ` ...` for any line that begins so.

use crate::common;

use std::path::Path;

use common::{Place, example};

/// Whether lines are as shown; if not, the first line shown that is not there.
fn is_shown<'a>(shown: &[&'a str], printed: &[&str]) -> Result<(), &'a str> {
    let Some((first, rest)) = shown.split_first() else {
        return if printed.is_empty() { Ok(()) } else { Err("(the end)") };
    };
    if first.trim() == "..." {
        let found = (0..=printed.len()).find(|from| is_shown(rest, &printed[*from..]).is_ok());
        return found.map(drop).ok_or(rest.first().unwrap_or(first));
    }
    let alike = |line: &&str| match first.strip_suffix(" ...") {
        Some(begin) => line.starts_with(begin),
        None => line.trim_end() == first.trim_end(),
    };
    if printed.first().is_some_and(alike) { is_shown(rest, &printed[1..]) } else { Err(first) }
}

/// Runs the commands of a document: how many showed what they print.
fn hold(document: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let place = Place::new();
    std::os::unix::fs::symlink(example(""), place.path().join("examples")).unwrap();
    let mut compared = 0;
    for block in text.split("\n```text\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        for sample in block.split("$ hyoshi ").skip(1) {
            let (words, shown) = sample.split_once('\n').unwrap_or((sample, ""));
            // What stands behind a command is a remark.
            let words = words.split("  #").next().unwrap_or(words);
            let ended = place.hyoshi(words);
            assert!(ended.code < 2, "{document}: hyoshi {words}: {}", ended.err);
            let shown: Vec<&str> = shown.trim_matches('\n').lines().collect();
            if !shown.is_empty() {
                compared += 1;
                let printed: Vec<&str> = ended.out.trim_matches('\n').lines().collect();
                if let Err(line) = is_shown(&shown, &printed) {
                    panic!("{document}: `hyoshi {words}` does not print\n{line}\nbut\n{}", ended.out);
                }
            }
        }
    }
    compared
}

#[test]
fn the_page_on_why_shows_what_is_printed() {
    assert!(hold("docs/why.md") >= 3);
}

#[test]
fn the_page_on_checking_shows_what_is_printed() {
    assert!(hold("docs/checking.md") >= 4);
}

#[test]
fn the_first_page_shows_what_is_printed() {
    assert!(hold("README.md") >= 3);
}

#[test]
fn the_first_tutorial_shows_what_is_printed() {
    assert!(hold("docs/first-system.md") >= 3);
}
