//! The reader returns a result for every file: it never panics, and is never slow.

use crate::invariants;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hyoshi_model::{read, read_file};
use proptest::prelude::*;

/// A path in the build's directory for temporary files.
fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn refusal(path: &Path) -> String {
    let errors = read_file(path).unwrap_err();
    assert_eq!((errors.errors[0].line, errors.errors[0].column), (0, 0));
    errors.to_string().replace(&path.display().to_string(), "FILE")
}

#[test]
fn a_file_of_a_hundred_megabytes_is_refused_unread() {
    let path = temporary("large.toml");
    fs::File::create(&path).unwrap().set_len(100_000_000).unwrap();
    assert!(refusal(&path).starts_with("error: FILE is larger than 16 MiB"), "{}", refusal(&path));
    fs::remove_file(path).unwrap();
}

#[test]
fn a_text_too_large_is_refused_as_well() {
    let text = " ".repeat((16 << 20) + 1);
    assert!(read(&text, "text", None).unwrap_err().to_string().contains("larger than 16 MiB"));
}

#[test]
fn a_directory_is_refused() {
    assert!(refusal(Path::new(env!("CARGO_MANIFEST_DIR"))).starts_with("error: FILE is a directory"));
}

#[test]
fn a_missing_file_is_refused() {
    assert!(refusal(&temporary("missing.toml")).starts_with("error: FILE cannot be read: No such file"));
}

#[test]
fn binary_data_is_refused_with_the_first_bad_byte() {
    let path = temporary("binary.toml");
    fs::write(&path, b"name = \"x\"\n\x7fELF\xff\x00").unwrap();
    assert!(
        refusal(&path).starts_with("error: FILE is not text: byte 15, in line 2, is not UTF-8"),
        "{}",
        refusal(&path)
    );
    fs::write(&path, [0; 4_096]).unwrap();
    assert!(read_file(&path).is_err());
    fs::remove_file(path).unwrap();
}

#[test]
fn an_endless_device_is_refused() {
    if Path::new("/dev/zero").exists() {
        assert!(refusal(Path::new("/dev/zero")).starts_with("error: FILE is larger than 16 MiB"));
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_do_no_harm() {
    let text = "\u{feff}name = \"x\"\r\n\r\n[operation.a]\r\nevery = \"1s\"\r\nwcet = \"1ms\"\r\n";
    assert_eq!(read(text, "x", None).unwrap().system.name, "x");
    let errors = read(&text.replace("1ms", "1"), "x", None).unwrap_err();
    assert_eq!((errors.errors[0].line, errors.errors[0].column), (5, 8));
    assert!(!errors.to_string().contains('\r'));
}

#[test]
fn deep_nesting_needs_no_stack() {
    for open in ["a=", "a=[", "a={b=", "[a.", "a.", "[[", "set={"] {
        let text = format!("name = \"x\"\n{}", open.repeat(100_000));
        assert!(read(&text, "x", None).is_err());
    }
}

#[test]
fn a_long_line_is_reported_by_its_number() {
    let text = format!("name = \"x\"\nseed = \"{}\"\n", "y".repeat(100_000));
    let errors = read(&text, "x", None).unwrap_err().to_string();
    assert!(errors.len() < 1_000 && errors.contains("--> x:2:8"), "{errors}");
}

#[test]
fn at_most_a_hundred_errors_are_listed_and_the_rest_counted() {
    let operations: String = (0..1_000).map(|n| format!("[operation.o{n}]\nevery = \"1s\"\nwcet = 1\n")).collect();
    let errors = read(&format!("name = \"x\"\n{operations}"), "x", None).unwrap_err();
    assert_eq!((errors.errors.len(), errors.more), (100, 900));
    assert!(errors.to_string().ends_with("x: 1000 errors, the first 100 are shown\n"));
}

/// Files to corrupt: valid ones, and invalid ones of all known kinds.
static SEEDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |dir: &str| {
        let mut files: Vec<_> = fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        files
    };
    let mut seeds: Vec<_> = ["../../examples", "tests/refused", "tests/warned"].into_iter().flat_map(files).collect();
    // These are rejected for their size: corrupting them is slow and shows little.
    seeds.retain(|path| !path.ends_with("too-many.toml") && !path.ends_with("tangled.toml"));
    seeds.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
});

/// One way to corrupt a text.
#[derive(Clone, Debug)]
enum Spoil {
    Cut { at: usize, len: usize },
    Insert { at: usize, text: String },
    Copy { from: usize, len: usize, to: usize },
    SwapLines { one: usize, other: usize },
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let pieces =
        "[a-z\"\\[\\]{}=.,0-9µ\n# -]{1,6}|\"0s\"|\"1ns\"|\"87600h\"|\"3000000kHz\"|100000|-1|count = 70|\\{\\}|\\[\\]";
    prop_oneof![
        (any::<usize>(), 0..40usize).prop_map(|(at, len)| Spoil::Cut { at, len }),
        (any::<usize>(), pieces).prop_map(|(at, text)| Spoil::Insert { at, text }),
        (any::<usize>(), 0..80usize, any::<usize>()).prop_map(|(from, len, to)| Spoil::Copy { from, len, to }),
        (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Spoil::SwapLines { one, other }),
    ]
}

fn apply(text: &str, spoil: &Spoil) -> String {
    let characters: Vec<char> = text.chars().collect();
    let place = |at: usize| at % (characters.len() + 1);
    let text = |characters: &[char]| characters.iter().collect::<String>();
    match spoil {
        Spoil::Cut { at, len } => {
            let at = place(*at);
            text(&characters[..at]) + &text(&characters[(at + len).min(characters.len())..])
        }
        Spoil::Insert { at, text: piece } => text(&characters[..place(*at)]) + piece + &text(&characters[place(*at)..]),
        Spoil::Copy { from, len, to } => {
            let from = place(*from);
            let piece = text(&characters[from..(from + len).min(characters.len())]);
            text(&characters[..place(*to)]) + &piece + &text(&characters[place(*to)..])
        }
        Spoil::SwapLines { one, other } => {
            let whole = text(&characters);
            let mut lines: Vec<_> = whole.lines().collect();
            let count = lines.len().max(1);
            if !lines.is_empty() {
                lines.swap(one % count, other % count);
            }
            lines.join("\n")
        }
    }
}

/// The answer is a sound system or readable errors.
fn answer(text: &str) {
    match read(text, "spoilt.toml", None) {
        Ok(loaded) => {
            invariants::check(&loaded.system);
            assert!(loaded.warnings.iter().all(|warning| !warning.to_string().is_empty()));
        }
        Err(errors) => {
            let lines = text.split('\n').count();
            assert!(!errors.errors.is_empty());
            for error in &errors.errors {
                // It may be in the text of a qosket that the file uses.
                let is_within = (1..=lines).contains(&error.line) || error.file.starts_with("qosket ");
                assert!(is_within && error.line >= 1 && error.column >= 1, "{error}");
                assert!(
                    !error.message.is_empty() && error.help.as_ref().is_some_and(|help| !help.is_empty()),
                    "{error}"
                );
                let place = format!("{}:{}:{}", error.file, error.line, error.column);
                assert!(error.to_string().contains(&place), "{error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoilt_files_are_answered(seed in any::<prop::sample::Index>(), spoils in prop::collection::vec(spoil(), 1..4)) {
        let text = spoils.iter().fold(SEEDS[seed.index(SEEDS.len())].clone(), |text, spoil| apply(&text, spoil));
        answer(&text);
    }

    #[test]
    fn any_text_at_all_is_answered(text in "(\\PC|\n|\r|\t){0,200}") {
        answer(&text);
    }
}

#[test]
fn events_are_limited_in_number_connections_and_patterns() {
    let refusal = |text: String| {
        let errors = read(&format!("name = 'many'\n{text}"), "many.toml", None).unwrap_err();
        errors.errors[0].message.clone()
    };
    let events = |count: usize| (0..count).map(|n| format!("[event.'e/{n}']\n")).collect::<String>();
    let supplier = |count: usize| {
        let names: Vec<_> = (0..count).map(|n| format!("'e/{n}'")).collect();
        format!("[operation.a]\nevery = '1s'\nwcet = '1ms'\nsupplies = [{}]\n", names.join(", "))
    };
    let consumer =
        |n: usize, pattern: &str| format!("[operation.c{n}]\nafter = {{ event = '{pattern}' }}\nwcet = '1us'\n");
    let consumers =
        |pattern: &dyn Fn(usize) -> String| (0..2_000).map(|n| consumer(n, &pattern(n))).collect::<String>();
    assert_eq!(refusal(events(10_001) + &supplier(1)), "too many events");
    let all = consumers(&|_| "**".to_string());
    assert_eq!(refusal(events(1_000) + &supplier(1_000) + &all), "too many connections between operations");
    let each = consumers(&|n| format!("e/**/{}", n % 1_001));
    assert_eq!(refusal(events(1_001) + &supplier(1_001) + &each), "too many patterns of events");
    let instances = supplier(1_000).replace("wcet", "count = 1001\nwcet");
    assert_eq!(refusal(events(1_000) + &instances), "too many connections of operations and events");
}
