//! A JSON schema of the file for editors, made from the table of keys.

use serde_json::{Map, Value, json};

use super::keys::{self, DefaultValue, Key, Kind, SECTIONS, Section, Shape};
use crate::outside::{DelegateQuantity, HostQuantity, ReservationQuantity};

/// The schema as a JSON text: `schema/system.schema.json` in the repository contains it, for Taplo, VS Code and similar
/// tools. It has keys and their types; only the reader checks relations between keys.
pub fn schema() -> String {
    let Some(top) = keys::section("") else { return String::new() };
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("http://json-schema.org/draft-07/schema#"));
    schema.insert("title".into(), json!("Hyoshi system"));
    let mut table = object(top);
    for section in keys::with_headers() {
        let tables = match section.shape {
            Shape::List => json!({ "type": "array", "items": object(section) }),
            _ => json!({ "type": "object", "additionalProperties": object(section) }),
        };
        let described = described(tables, section.doc);
        table["properties"][section.path] = described;
    }
    if let Value::Object(table) = table {
        schema.extend(table);
    }
    format!("{:#}\n", Value::Object(schema))
}

fn described(mut schema: Value, doc: &str) -> Value {
    schema["description"] = json!(doc);
    schema
}

/// The schema of one table.
fn object(section: &Section) -> Value {
    let mut properties = Map::new();
    for key in section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_))) {
        properties.insert(key.name.to_string(), property(key));
    }
    let required: Vec<_> =
        section.keys.iter().filter(|key| key.default == DefaultValue::Required).map(|key| key.name).collect();
    let mut object = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if let Some(one_of) = exactly_one(section.path) {
        object["oneOf"] = one_of.iter().map(|key| json!({ "required": [key] })).collect();
    }
    object
}

/// Exactly one of these keys is required.
fn exactly_one(path: &str) -> Option<&'static [&'static str]> {
    match path {
        "operation" => Some(&["rate", "every", "after", "called"]),
        "operation.after" => Some(&["all", "any", "first", "chosen", "event"]),
        "operation.after.all" => Some(&["event", "any"]),
        "operation.takes" => Some(&["uniform", "normal", "list", "file"]),
        _ => None,
    }
}

fn property(key: &Key) -> Value {
    let mut property = kind(key.kind);
    let (doc, default) = match key.default {
        DefaultValue::Required => (format!("{} Required.", key.doc), None),
        DefaultValue::Value(value) => (key.doc.to_string(), Some(value)),
        DefaultValue::Described(described) => (format!("{} Left out: {described}.", key.doc), None),
    };
    property["description"] = json!(doc);
    // The defaults in the table are simple TOML that is also JSON.
    if let Some(Ok(value)) = default.map(serde_json::from_str::<Value>) {
        property["default"] = value;
    }
    property
}

fn quantity(units: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^[0-9]+(\\.[0-9]+)? *({units})$") })
}

fn kind(kind: Kind) -> Value {
    let list = |items: Value| json!({ "type": "array", "items": items });
    let pair = |item: Value| json!({ "type": "array", "items": item, "minItems": 2, "maxItems": 2 });
    let or = |one: Value, other: Value| json!({ "anyOf": [one, other] });
    let text = || json!({ "type": "string" });
    let time = || quantity("ns|us|µs|μs|ms|s|min|h");
    let rate = || quantity("Hz|kHz");
    match kind {
        Kind::Text | Kind::Name(_) => text(),
        Kind::TextOrPair => or(text(), pair(text())),
        Kind::Names(_) | Kind::Texts => list(text()),
        Kind::Wholes(least, most) => list(json!({ "type": "integer", "minimum": least, "maximum": most })),
        Kind::Advocates => list(json!({ "type": "object", "minProperties": 1, "maxProperties": 1 })),
        Kind::Pair(_) => pair(text()),
        Kind::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Number => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Real => json!({ "type": "number", "minimum": -1e9, "maximum": 1e9 }),
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::SettingValue => {
            json!({ "anyOf": [{ "type": "boolean" }, { "type": "integer", "minimum": 0 }, { "type": "string" }] })
        }
        Kind::Time => time(),
        Kind::TimePair => pair(time()),
        Kind::TimeOrPair => or(time(), pair(time())),
        Kind::Times => list(time()),
        Kind::Rate => rate(),
        Kind::Limit(least, most) => or(text(), json!({ "type": "integer", "minimum": least, "maximum": most })),
        Kind::RateOrPair => or(rate(), pair(rate())),
        Kind::Share => quantity("%"),
        Kind::ShareOr(word) => or(quantity("%"), json!({ "enum": [word] })),
        Kind::Size => quantity("B|KiB|MiB"),
        Kind::Bandwidth => quantity("kbit/s|Mbit/s|Gbit/s"),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Stagger => or(json!({ "enum": ["even"] }), time()),
        Kind::TimeOr(path) => or(time(), table(path)),
        Kind::WordOr(word, path) => or(json!({ "enum": [word] }), table(path)),
        Kind::Table(path) => table(path),
        Kind::WordsOrRates(words, _) => {
            or(json!({ "enum": words }), json!({ "type": "object", "additionalProperties": or(rate(), time()) }))
        }
        Kind::TimeOf(_) => json!({ "type": "object", "additionalProperties": time() }),
        Kind::NameOrNames(_) => or(text(), list(text())),
        Kind::NameOf(_) => json!({ "type": "object", "additionalProperties": or(text(), list(text())) }),
        Kind::Tables(path) => list(table(path)),
        Kind::NamedTables(path) => json!({ "type": "object", "additionalProperties": table(path) }),
        Kind::NamesOr(_, path) => list(or(text(), table(path))),
        Kind::Behaviours => json!({ "type": "object", "additionalProperties": text() }),
        Kind::Values => json!({ "type": "object" }),
        Kind::AnyValue => json!({}),
        Kind::Settings => settings(),
        Kind::Later(_) => json!({}),
    }
}

fn table(path: &str) -> Value {
    keys::section(path).map_or_else(|| json!({}), object)
}

/// `"operation.NAME.KEY"`, `"link.A-B.KEY"` and similar, or nested tables with the same effect.
fn settings() -> Value {
    let mut patterns = Map::new();
    let settable = ["operation", "operation.repeat", "reservation", "link", "host", "condition"];
    let of = |section: &&Section| settable.contains(&section.path);
    for section in SECTIONS.iter().filter(of) {
        for key in section.keys.iter().filter(|key| key.settable) {
            let within = section.path.strip_prefix("operation.").map_or(String::new(), |within| format!("{within}\\."));
            let pattern = match section.path {
                path @ ("reservation" | "link" | "host" | "condition") => format!("^{path}\\.[^.]+\\.{}$", key.name),
                _ => format!("^operation\\.[^.]+(\\.[0-9]+)?\\.{within}{}$", key.name),
            };
            patterns.insert(pattern, described(kind(key.kind), key.doc));
        }
    }
    let names = HostQuantity::ALL.map(|(_, name)| name.replace('.', "\\."));
    let measured = format!("^host\\.[^.]+\\.({})$", names.join("|"));
    patterns.insert(measured, described(kind(Kind::Real), "A condition that the host measures in a run."));
    let names = ReservationQuantity::ALL.map(|(_, name)| name);
    let measured = format!("^reservation\\.[^.]+\\.({})$", names.join("|"));
    patterns.insert(measured, described(kind(Kind::Real), "A condition that the CPU broker reports in a run."));
    let names = DelegateQuantity::ALL.map(|(_, name)| name);
    let measured = format!("^delegate\\.[^.]+\\.({})$", names.join("|"));
    patterns.insert(measured, described(kind(Kind::Real), "A condition that a delegate measures in a run."));
    let sections = ["operation", "reservation", "link", "host", "delegate", "condition"]
        .map(|name| (name.to_string(), json!({ "type": "object" })));
    let sections: Map<_, _> = sections.into_iter().collect();
    json!({
        "type": "object",
        "properties": sections,
        "patternProperties": patterns,
        "additionalProperties": false,
    })
}
