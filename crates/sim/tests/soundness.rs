//! Soundness: on random systems with jobs of at most the declared times, no simulated response exceeds its proved
//! bound, no proved operation misses, and every failure is confirmed.
//!
//! A share of it runs with every `cargo test`; all of it is
//! `cargo test --release -p hyoshi-sim --test suite soundness:: -- --ignored --nocapture`, for which
//! `SOUNDNESS_SYSTEMS` (of each strategy) and `SOUNDNESS_SECONDS` can be set.

use crate::common::{self, of_environment};

use hyoshi_model::System;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::drawn::{self, ROWS};
use common::limited;
use common::sound::{Account, Judged, Tally, check, smallest};

/// The results of one strategy's systems.
#[derive(Default)]
struct Row {
    systems: u64,
    account: Account,
}

/// Checks systems of each row, in turn, on all CPUs, until there are enough or the time has passed.
fn rows(draw: fn(usize, u64) -> System, systems: u64, limit: Duration) -> Vec<Row> {
    let started = Instant::now();
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let all: Mutex<Vec<Row>> = Mutex::new(ROWS.iter().map(|_| Row::default()).collect());
    let work = || {
        let mut own: Vec<Row> = ROWS.iter().map(|_| Row::default()).collect();
        while started.elapsed() < limit && !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (seed, row) = (number / ROWS.len() as u64, number as usize % ROWS.len());
            if seed >= systems {
                break;
            }
            let system = draw(row, seed);
            let account = &mut own[row].account;
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&system, account)));
            let wrong = judged.unwrap_or_else(|_| Err("a panic, above".into())).err();
            if let Some(wrong) = wrong
                && !failed.swap(true, Ordering::Relaxed)
            {
                let least = smallest(&system);
                let again = std::panic::catch_unwind(|| check(&least, &mut Account::new()));
                println!("{}\n{again:#?}", hyoshi_model::write(&least));
                println!("\nsystem {number}: {} with seed {seed}: {wrong}", ROWS[row]);
            }
            own[row].systems += 1;
        }
        let mut all = all.lock().unwrap();
        for (sum, one) in all.iter_mut().zip(own) {
            sum.systems += one.systems;
            for (method, tally) in one.account {
                sum.account.entry(method).or_default().add(&tally);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    assert!(!failed.load(Ordering::Relaxed), "what is proved does not hold: see above");
    all.into_inner().unwrap()
}

fn print(rows: &[Row]) {
    let share = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    let line = |name: &str, systems: String, tally: &Tally| {
        println!(
            "{name:<32} {systems:>8} {:>8} {:>8} {:>7} {:>6.1} % {:>6.2} {:>9}",
            tally.bounds,
            tally.proved,
            tally.failing,
            share(tally.exact, tally.bounds),
            tally.closeness as f64 / tally.bounds.max(1) as f64 / 1000.0,
            tally.jobs,
        );
    };
    println!(
        "{:<32} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6} {:>9}",
        "", "systems", "bounds", "proved", "fails", "exact", "seen/", "jobs"
    );
    let mut methods = Account::new();
    for (name, row) in ROWS.iter().zip(rows) {
        let mut sum = Tally::default();
        for (method, tally) in &row.account {
            if matches!(method, Judged::By(_)) {
                sum.add(tally);
            }
            methods.entry(*method).or_default().add(tally);
        }
        line(name, row.systems.to_string(), &sum);
    }
    println!();
    for (method, tally) in &methods {
        let name = match method {
            Judged::By(method) => format!("{method:?}"),
            also => format!("of them {also:?}"),
        };
        line(&name, String::new(), tally);
    }
    println!("\n0 violations; exact: the worst response seen is the bound; seen/: the worst seen over the bound, mean");
}

#[test]
fn no_simulated_response_exceeds_its_proved_bound() {
    let rows = rows(drawn::system, 600, Duration::from_secs(60));
    print(&rows);
    let of = |kind: &dyn Fn(&Judged) -> bool| -> u64 {
        let all = rows.iter().flat_map(|row| &row.account).filter(|(judged, _)| kind(judged));
        all.map(|(_, tally)| tally.proved).sum()
    };
    let proved = of(&|judged| matches!(judged, Judged::By(_)));
    assert!(proved > 1_000, "only {proved} were proved: the test shows little");
}

#[test]
#[ignore = "takes long: `.ci/long soundness`"]
fn no_response_exceeds_its_bound_in_ten_thousand_systems_of_each_strategy() {
    let systems = of_environment("SOUNDNESS_SYSTEMS", 10_000);
    let rows = rows(drawn::system, systems, Duration::from_secs(of_environment("SOUNDNESS_SECONDS", 240)));
    print(&rows);
    if rows.iter().any(|row| row.systems < systems) {
        println!("the time was up before all systems were drawn");
    }
}

fn proved(rows: &[Row], kind: Judged) -> u64 {
    rows.iter().flat_map(|row| row.account.get(&kind)).map(|tally| tally.proved).sum()
}

#[test]
fn nothing_proved_misses_under_contracts_in_any_region_or_change_of_regions() {
    let rows = rows(limited::system, of_environment("SOUNDNESS_LIMITED", 400), Duration::from_secs(60));
    print(&rows);
    let [limited, reordered] = [Judged::Limited, Judged::Reordered].map(|kind| proved(&rows, kind));
    assert!(limited > 300 && reordered > 100, "only {limited} and {reordered} were proved: the test shows little");
}

#[test]
#[ignore = "takes long: `.ci/long soundness`"]
fn nothing_proved_misses_under_contracts_in_ten_thousand_systems_of_each_strategy() {
    let systems = of_environment("SOUNDNESS_SYSTEMS", 10_000);
    print(&rows(limited::system, systems, Duration::from_secs(of_environment("SOUNDNESS_SECONDS", 240))));
}
