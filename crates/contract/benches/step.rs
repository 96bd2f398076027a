//! A step of a contract with ten regions over ten conditions: `cargo bench -p hyoshi-contract`.

use hyoshi_contract::{ConditionWindow, RegionMachine, WindowSample};
use hyoshi_model::predicate::{ConditionReading, Predicate};
use hyoshi_model::{Instant, RegionRules, Span, Stay, WindowSummary};

fn main() {
    divan::main();
}

const REGIONS: usize = 10;

fn machine() -> RegionMachine {
    let names: Vec<String> = (0..REGIONS).map(|place| format!("value{place}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let read = |text: String| Some(Predicate::read(&text, &names).expect("an expression"));
    let rules = |place: usize| {
        let other = (place + 1) % REGIONS;
        let last = place + 1 == REGIONS;
        RegionRules {
            parent: None,
            enter: if last {
                None
            } else {
                read(format!("stale(value{place}) || value{place} > 0.5 && value{other} < 0.2"))
            },
            leave: if last { None } else { read(format!("value{place} < 0.4 && !stale(value{other})")) },
            hold: Span::from_millis(5),
            stay: Stay::constant(Span::from_millis(20)),
            latch: false,
        }
    };
    RegionMachine::new((0..REGIONS).map(rules).collect())
}

/// Ten samples, ten readings and one step of the machine.
#[divan::bench]
fn ten_regions_over_ten_conditions(bencher: divan::Bencher) {
    let (mut machine, mut now) = (machine(), Instant::ZERO);
    let watch = || ConditionWindow::new(WindowSummary::Mean, Some(Span::from_secs(2)), Some(Span::from_secs(1)));
    let mut watches: Vec<ConditionWindow> = (0..REGIONS).map(|_| watch()).collect();
    let mut readings = [ConditionReading::Stale; REGIONS];
    let (mut seed, mut changes) = (1u64, 0u64);
    bencher.bench_local(|| {
        now += Span::from_millis(10);
        for (watch, reading) in watches.iter_mut().zip(&mut readings) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            watch.add(WindowSample { at: now, value: (seed >> 40) as f64 / (1u64 << 24) as f64, weight: 1.0 });
            *reading = watch.reading(now);
        }
        machine.step(now, &readings, |_| changes += 1);
        changes
    });
}
