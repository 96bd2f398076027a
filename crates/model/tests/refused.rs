//! Every file in `tests/refused` is refused with exactly the words beside it. After a change of
//! wording: `BLESS=1 cargo test -p hyoshi-model --test refused`, then read the diff by eye.

use std::fs;
use std::path::Path;

#[test]
fn each_bad_file_is_refused_in_the_words_beside_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let bless = std::env::var_os("BLESS").is_some();
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "the bad files are missing");
    let mut differing = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let said = match hyoshi_model::read(&text, &name, Some(Path::new("tests/refused"))) {
            Ok(loaded) => loaded.warnings.iter().map(|warning| format!("{warning}\n\n")).collect(),
            Err(errors) => errors.to_string(),
        };
        let expected = path.with_extension("expected");
        if bless {
            fs::write(&expected, &said).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != said {
            differing.push(format!("{name} is answered:\n{said}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
