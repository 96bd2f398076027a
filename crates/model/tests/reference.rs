//! `examples/reference.toml` and `schema/system.schema.json` contain all of the table of keys. `BLESS=1 cargo test -p
//! hyoshi-model --test suite reference::` writes the schema again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hyoshi_model::file::keys::{DefaultValue, Kind, SECTIONS, Shape};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Every value in the file by the path of its section and its key.
fn collect<'a>(section: &str, table: &'a DeTable<'a>, found: &mut HashMap<String, Vec<&'a Spanned<DeValue<'a>>>>) {
    for (key, value) in table {
        let path = if section.is_empty() { key.get_ref().to_string() } else { format!("{section}.{}", key.get_ref()) };
        found.entry(path.clone()).or_default().push(value);
        let of_path = |section: &&hyoshi_model::file::keys::Section| section.path == path;
        let is_named = |kind: Kind| matches!(kind, Kind::NamedTables(section) if section == path);
        let by_name = SECTIONS.iter().flat_map(|section| section.keys).any(|key| is_named(key.kind));
        match (SECTIONS.iter().find(of_path).map(|section| section.shape), value.get_ref()) {
            (Some(shape), DeValue::Table(tables)) if by_name || shape == Shape::Named => {
                for inner in tables.values().filter_map(|value| value.get_ref().as_table()) {
                    collect(&path, inner, found);
                }
            }
            (Some(Shape::List | Shape::Inline), DeValue::Array(tables)) => {
                for inner in tables.iter().filter_map(|value| value.get_ref().as_table()) {
                    collect(&path, inner, found);
                }
            }
            (Some(_), DeValue::Table(inner)) => collect(&path, inner, found),
            _ => {}
        }
    }
}

#[test]
fn the_reference_is_taken_without_a_warning() {
    let loaded =
        hyoshi_model::read_file(repository("examples/reference.toml")).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings[0]);
}

#[test]
fn the_reference_has_every_key_with_its_default_and_a_comment() {
    let text = std::fs::read_to_string(repository("examples/reference.toml")).unwrap();
    let tree = DeTable::parse(&text).unwrap();
    let mut found = HashMap::new();
    collect("", tree.get_ref(), &mut found);
    let mut missing = Vec::new();
    for section in SECTIONS {
        for key in section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_))) {
            let path =
                if section.path.is_empty() { key.name.to_string() } else { format!("{}.{}", section.path, key.name) };
            let Some(values) = found.get(&path) else {
                missing.push(format!("{path} does not occur"));
                continue;
            };
            let line = |value: &Spanned<DeValue<'_>>| {
                let start = text[..value.span().start].rfind('\n').map_or(0, |at| at + 1);
                text[start..].lines().next().unwrap_or("")
            };
            let commented = values.iter().filter(|value| line(value).contains(" # "));
            let DefaultValue::Value(default) = key.default else {
                if commented.count() == 0 {
                    missing.push(format!("{path} has no comment"));
                }
                continue;
            };
            // If a key's section shows another value, its default is described in words.
            let documented = commented
                .clone()
                .any(|value| text[value.span()] == *default || line(value).contains(&format!("default {default}")));
            if !documented {
                missing.push(format!("{path} is not shown with its default, {default}"));
            }
        }
    }
    assert!(missing.is_empty(), "examples/reference.toml:\n{}", missing.join("\n"));
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let path = repository("schema/system.schema.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, hyoshi_model::schema()).unwrap();
    }
    // Compare values: whether serde_json sorts its keys depends on features of other crates.
    let kept: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default();
    let current: serde_json::Value = serde_json::from_str(&hyoshi_model::schema()).unwrap();
    assert!(kept == current, "run BLESS=1 cargo test -p hyoshi-model --test suite reference::");
}
