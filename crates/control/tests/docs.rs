//! `docs/broker-laws.md` contains the advocates and policies of their tables. After a change of a table: `BLESS=1 cargo
//! test -p hyoshi-control --test suite docs::`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use hyoshi_control::advocate::{AdvocateParameter, KINDS};
use hyoshi_control::policy::POLICIES;

const BEGIN: &str = "<!-- advocates: checked against the table in crates/control/src/advocate/table.rs -->\n";
const END: &str = "<!-- end of advocates -->\n";

fn parameter(parameter: &AdvocateParameter) -> String {
    let AdvocateParameter { name, about, measure, least, most, default } = parameter;
    let default = default.map_or("required".to_owned(), |value| measure.write(value));
    format!("`{name}`: {about} ({}-{}; {default})", measure.write(*least), measure.write(*most))
}

#[test]
fn the_docs_tell_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/broker-laws.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut table = String::from("| advocate | what it does | parameters (range; default) |\n|---|---|---|\n");
    for kind in &KINDS {
        let parameters: Vec<_> = kind.parameters.iter().map(parameter).collect();
        writeln!(table, "| `{}` | {} | {} |", kind.name, kind.about, parameters.join("; ")).unwrap();
    }
    let begin = text.find(BEGIN).unwrap() + BEGIN.len();
    let end = text.find(END).unwrap();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, format!("{}{table}{}", &text[..begin], &text[end..])).unwrap();
    } else {
        assert_eq!(&text[begin..end], table);
    }
    for (name, about) in POLICIES {
        assert!(text.contains(&format!("| `{name}` | {about} |\n")), "{name}");
    }
}
