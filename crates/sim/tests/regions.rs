//! The bounds of a region hold for its jobs, whatever the adjacent regions leave behind or release.

use crate::common;

use common::sound::{Account, check};
use hyoshi_model::System;
use hyoshi_sched::{Plan, Report, Strategies, analyse};

fn read(text: &str) -> System {
    hyoshi_model::read(text, "regions.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn analysed(system: &System) -> Report {
    analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap())
}

/// Bounds of an operation in the scenes that concern jobs of a region: the region and the changes around it.
fn bounds(report: &Report, name: &str, region: usize) -> Vec<Option<u64>> {
    let concerns = |epoch: usize, change: bool| epoch == region || (change && epoch + 1 == region);
    let all = report.operations().filter(|(scene, _, one)| concerns(scene.epoch, scene.change) && one.name == name);
    all.map(|(.., one)| one.bound_ns).collect()
}

const LEAVER: &str = r#"
name = "leaver"
duration = "400ms"
[processor.cpu]
strategy = "RMS"
cap = "100%"
[operation.o1]
every = "9ms"
wcet = "2ms"
deadline = "2400us"
phase = "2ms"
critical = true
[operation.o3]
every = "9ms"
wcet = "3ms"
phase = "8500us"
critical = true
[[epoch]]
at = "200ms"
set = { "operation.o3.enabled" = false }
"#;

const NEWCOMER: &str = r#"
name = "newcomer"
duration = "400ms"
[processor.cpu]
strategy = "RMS"
cap = "100%"
[operation.low]
every = "10ms"
wcet = "2ms"
deadline = "6ms"
phase = "9ms"
critical = true
[operation.high]
every = "8ms"
wcet = "3ms"
critical = true
enabled = false
[[epoch]]
at = "200ms"
set = { "operation.high.enabled" = true }
"#;

#[test]
fn a_region_waits_for_what_a_switched_off_operation_leaves_behind() {
    let system = read(LEAVER);
    check(&system, &mut Account::new()).unwrap();
    let found = bounds(&analysed(&system), "o1", 1);
    assert!(found.contains(&Some(2_000_000)) && found.contains(&Some(5_000_000)), "{found:?}");
}

#[test]
fn the_last_jobs_of_a_region_wait_for_an_operation_that_is_switched_on() {
    let system = read(NEWCOMER);
    check(&system, &mut Account::new()).unwrap();
    let found = bounds(&analysed(&system), "low", 0);
    assert!(found.contains(&Some(2_000_000)) && found.contains(&Some(5_000_000)), "{found:?}");
}
