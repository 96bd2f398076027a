//! Every file in `tests/bad` is rejected with exactly the messages beside it. After a change of wording: `BLESS=1 cargo
//! test -p hyoshi-idl --test suite refused::`, then read the diff: an error should be clear without knowledge of
//! the code.

use std::fs;
use std::path::{Path, PathBuf};

use hyoshi_idl::{ReadOptions, read};

/// The IDL files of a directory beside this one, in order.
fn files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(dir);
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    files.sort();
    assert!(!files.is_empty(), "the files are missing");
    files
}

#[test]
fn each_bad_file_is_refused_in_the_words_beside_it() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut differing = Vec::new();
    let files = files("bad");
    assert!(files.len() >= 60);
    for path in files {
        let Err(errors) = read(&path, &ReadOptions::default()) else { panic!("{} is taken", path.display()) };
        assert!(!errors.errors.is_empty());
        // Remove the repository's path.
        let dir = format!("{}/", path.parent().unwrap().display());
        let printed = errors.to_string().replace(&dir, "");
        let expected = path.with_extension("expected");
        if bless {
            fs::write(&expected, &printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            differing.push(format!("{} is answered:\n{printed}", path.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn each_good_file_is_taken() {
    let includes = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good")];
    let options = ReadOptions { includes, ..ReadOptions::default() };
    for path in files("good") {
        if let Err(errors) = read(&path, &options) {
            panic!("{errors}");
        }
    }
}
