//! `docs/json.md` names every key that is written.

use std::collections::BTreeSet;
use std::path::Path;

use hyoshi_model::Span;
use hyoshi_reproduce::kokyu::{Reproduced, Setup, Watch, kernel, run};
use serde_json::Value;

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[test]
fn every_key_is_documented() {
    let watch = Watch { step: &|_| (), stop: &|| false };
    let mut figures = run(Setup { region: Span::from_secs(1), seed: 1 }, watch).unwrap();
    // What a run on the kernel would add, without one.
    figures.kernel = Some(kernel::Kernel {
        region_ns: 1,
        cap_ppm: 1,
        real_time: true,
        offered: Vec::new(),
        rows: figures.simulated.clone(),
        simulated: Vec::new(),
        queueing: figures.queueing.clone(),
        notes: Vec::new(),
    });
    let mut written = BTreeSet::new();
    keys(&serde_json::to_value(Reproduced::judge(figures)).unwrap(), &mut written);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let documented = |key: &&String| doc.lines().any(|line| line.starts_with(&format!("| `{key}` ")));
    let missing: Vec<&String> = written.iter().filter(|key| !documented(key)).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
}
