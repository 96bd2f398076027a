//! The forms of a report against kept ones. `BLESS=1 cargo test -p hyoshi-report` writes them anew.

use crate::flight;

use std::path::Path;

use flight::{Flight, flight};
use hyoshi_model::Instant;
use hyoshi_report::{Detail, LiveTable, TerminalStyle};
use serde_json::Value;

fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == found, "{name} differs; BLESS=1 writes it anew, and git shows what changed:\n{found}");
}

#[test]
fn the_final_table() {
    compare("report.txt", &flight().account().summary().terminal(TerminalStyle::PLAIN, Detail::Verbose));
}

#[test]
fn the_final_table_of_a_narrow_coloured_terminal() {
    let look = TerminalStyle { colour: true, width: Some(80) };
    compare("report-80.ansi", &flight().account().summary().terminal(look, Detail::Brief));
}

/// Of each list the first element, and how many more there are: the rest has the same fields.
fn shortened(value: &mut Value) {
    match value {
        Value::Array(values) => {
            let more = values.len().saturating_sub(1);
            values.truncate(1);
            values.iter_mut().for_each(shortened);
            values.extend((more > 0).then(|| format!("... and {more} more").into()));
        }
        Value::Object(fields) => fields.values_mut().for_each(shortened),
        _ => {}
    }
}

#[test]
fn json() {
    let text = flight().account().summary().json();
    let mut object = serde_json::from_str(&text).unwrap();
    shortened(&mut object);
    compare("report.json", &format!("{object:#}\n"));
}

#[test]
fn lines_while_a_run_goes_on() {
    let Flight { system, stats, .. } = flight();
    let mut lines = Vec::new();
    let mut live = LiveTable::new(&mut lines, TerminalStyle::PLAIN, false, &system, system.duration);
    for millis in [0, 400, 1_000, 2_000] {
        let now = Instant::from_nanos(millis * 1_000_000);
        if live.is_due(now) {
            live.show(now, &system, ((&stats, &[]), None), millis / 1_000).unwrap();
        }
    }
    live.finish().unwrap();
    compare("live.txt", &String::from_utf8(lines).unwrap());
}

#[test]
fn a_table_that_redraws_while_a_run_goes_on() {
    let Flight { system, stats, .. } = flight();
    let mut screen = Vec::new();
    let mut live =
        LiveTable::new(&mut screen, TerminalStyle { colour: true, width: Some(60) }, true, &system, system.duration);
    live.show(Instant::from_nanos(500_000_000), &system, ((&stats, &[]), Some(120_000)), 0).unwrap();
    live.show(Instant::from_nanos(2_000_000_000), &system, ((&stats, &[]), Some(431_000)), 3).unwrap();
    live.finish().unwrap();
    compare("live.ansi", &String::from_utf8(screen).unwrap());
}
