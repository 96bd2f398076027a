//! The pages under `docs/` are a book: each one is in its table of contents. Links lead to files and headings that
//! exist, and the files and tests that a page names exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pages outside the book whose links are checked as well.
const BESIDE: [&str; 4] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// A page's lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !fence && !code && !line.starts_with("    ")
    })
}

/// The code spans of a page's prose.
fn spans(text: &str) -> Vec<&str> {
    prose(text).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The targets of a page's links and pictures, without those on the web.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            if !target.contains("://") {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

/// The anchors of a page's headings, as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
        let anchor = words.chars().filter(kept).collect::<String>().replace(' ', "-");
        let again = (1..).map(|times| format!("{anchor}-{times}")).find(|name| !anchors.contains(name));
        if !anchors.insert(anchor) {
            anchors.extend(again);
        }
    }
    anchors
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = repository().join("docs");
    let listed: BTreeSet<String> = targets(&read(&docs.join("SUMMARY.md"))).into_iter().collect();
    let names = std::fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

fn pages(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let pages = std::fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain(BESIDE.map(|name| repository.join(name)))
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let repository = repository();
    let docs = repository.join("docs");
    let mut broken = Vec::new();
    for page in pages(&repository) {
        let text = read(&page);
        for target in targets(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            // mdBook makes `.html` of every `.md`: such a link would lead out of the book.
            let outside = page.starts_with(&docs) && file.starts_with("../") && file.ends_with(".md");
            let heading = || anchor.is_empty() || anchors(&read(&path)).contains(anchor);
            if outside || !path.exists() || !heading() {
                broken.push(format!("{}: {target}", page.strip_prefix(&repository).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn files_that_pages_name_exist() {
    let repository = repository();
    let folders = ["crates/", "docs/", "examples/", "packaging/", "schema/", "scripts/", ".ci/"];
    let is_path =
        |span: &&str| folders.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '{', '*']);
    for page in pages(&repository) {
        let text = read(&page);
        let missing: Vec<_> =
            spans(&text).into_iter().filter(is_path).filter(|span| !repository.join(span).exists()).collect();
        assert!(missing.is_empty(), "{} names files that do not exist: {missing:?}", page.display());
    }
}

#[test]
fn tests_that_the_page_on_security_names_exist() {
    let repository = repository();
    let mut sources = String::new();
    let mut folders = vec![repository.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &read(&path);
            }
        }
    }
    let text = read(&repository.join("docs/security.md"));
    let is_test = |span: &&str| {
        span.matches('_').count() > 2 && span.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_')
    };
    let named: Vec<_> = spans(&text).into_iter().filter(is_test).collect();
    let missing: Vec<_> = named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(named.len() > 50 && missing.is_empty(), "{} tests, of which do not exist: {missing:?}", named.len());
}
