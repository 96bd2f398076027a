//! The report of one system as JSON, word for word: other programs read it.

use hyoshi_model::Preemption;

use crate::build::{Op, chain, on, op};

#[test]
fn a_report_serialises_as_the_golden_file_says() {
    let set = [
        op("sense", 10_000, 2_000),
        Op { after: vec![0], uses: vec![(0, 300)], ..op("fuse", 10_000, 3_000) },
        Op { critical: false, legs: 3, critical_legs: 1, ..op("route", 40_000, 4_000) },
        Op { critical: false, uses: vec![(0, 500)], ..op("log", 20_000, 9_000) },
    ];
    let mut build = on("RMS+MLF", Preemption::Levels, set);
    build.chains = vec![chain(&[0, 1], 9_000)];
    let report = serde_json::to_string_pretty(&build.report()).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/golden.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &report).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(report, golden, "set BLESS=1 if the change is meant");
}
