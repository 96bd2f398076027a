//! Every file in `tests/refused` and `tests/warned` produces exactly the messages beside it. After a change of wording:
//! `BLESS=1 cargo test -p hyoshi-model --test suite diagnostics::`, then read the diff: an error should be clear
//! without knowledge of the code.

use std::fs;
use std::path::Path;

/// The differences from the messages beside the files.
fn differing(dir: &str, refused: bool) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(dir);
    let bless = std::env::var_os("BLESS").is_some();
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "the files are missing");
    let mut differing = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let result = hyoshi_model::read(&text, &name, Some(&dir));
        assert_eq!(result.is_err(), refused, "{name}");
        let printed = match result {
            Ok(loaded) => loaded.warnings.iter().map(|warning| format!("{warning}\n\n")).collect(),
            Err(errors) => errors.to_string(),
        };
        // Remove the repository's path.
        let printed = printed.replace(&dir.display().to_string(), "DIR");
        let expected = path.with_extension("expected");
        if bless {
            fs::write(&expected, &printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            differing.push(format!("{name} is answered:\n{printed}"));
        }
    }
    differing
}

#[test]
fn each_bad_file_is_refused_in_the_words_beside_it() {
    let differing = differing("refused", true);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn each_doubtful_file_is_taken_with_the_words_beside_it() {
    let differing = differing("warned", false);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
