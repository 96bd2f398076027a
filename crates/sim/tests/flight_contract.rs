//! A contract limits the legs of a load chain by the measured demand of critical work (`examples/flight-contract.toml`),
//! beside the switch between two strategies: in the flight program, and in random systems like it.

use std::fmt::Write;

use hyoshi_model::{HardCap, System, read, read_file};

use super::common::random::Choices;
use super::common::sound::{Account, check_until};
use super::flight_program::{Region, regions_of, thousands};

fn example(name: &str) -> System {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    read_file(path).unwrap_or_else(|errors| panic!("{}", errors.render(false))).system
}

/// The contract makes more non-critical deadlines where legs cannot end, and at most 1 % fewer elsewhere.
#[test]
fn a_contract_on_demand_serves_more_legs_than_the_switch_alone() {
    let with = example("examples/flight-contract.toml");
    let alone = with.clone().with(|contents| contents.contracts.clear());
    let processor = &with.processors[0];
    assert_eq!((processor.cap_ppm, processor.hard_cap), (1_000_000, HardCap::OFF), "nothing here changes the example");
    assert_eq!(alone.epochs, example("examples/flight-program.toml").epochs, "both examples are the flight program");
    for seed in [1, 4] {
        let [alone, with] = [&alone, &with].map(|system| regions_of(system.clone().into_contents(), seed).0);
        for (region, (alone, with)) in alone.iter().zip(&with).enumerate() {
            assert_eq!(with.critical_missed, 0, "region {region}: {with:?}");
            assert!(with.other_made * 100 >= alone.other_made * 99, "region {region}: {alone:?} {with:?}");
        }
        assert!(with[10].other_made >= 20_500 && with[11].other_made >= 21_500, "{with:?}");
        if seed == 1 {
            let made =
                |regions: &[Region]| regions[6..].iter().map(|one| thousands(one.other_made)).collect::<Vec<_>>();
            let row = format!(
                "| {} |\n| RMS ⇄ RMS+MLF ©, contract | {} |",
                made(&alone).join(" | "),
                made(&with).join(" | ")
            );
            let page =
                std::fs::read_to_string(format!("{}/../../docs/benchmarks.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
            assert!(page.contains(&row), "docs/benchmarks.md has no rows\n{row}");
        }
    }
}

/// A system like the flight program: critical operations with random times, a display, and a load chain that overloads
/// the processor in some of its four epochs. No critical job is longer than a fifth of a frame of the chain. The contract
/// has the rules of the example.
fn random_system(seed: u64, frame: u64) -> String {
    let mut choose = Choices::new(seed);
    let mut text = format!(
        "name = 'random'\nseed = {seed}\nduration = '80s'\n[processor.main]\nstrategy = ['RMS', 'RMS+MLF']\n\
         cancel = true\ncap = '100%'\nhard_cap = '100%'\n"
    );
    let mut epochs: [String; 4] = Default::default();
    // In thousandths of the processor, at most.
    let shares = [0, 1, 2, 3].map(|_| 150 + choose.below(350));
    let count = 3 + choose.below(6);
    for operation in 0..count {
        let period = choose.of(&[25_000u64, 50_000, 100_000, 200_000, 1_000_000]);
        let least = 20 + choose.below(80);
        let all = |share: u64| period * share / 1_000 / count;
        let copies = all(500).div_ceil(frame / 5);
        let time = |share: u64| (all(share) / copies).max(10);
        let takes = |share: u64| format!("{{ uniform = ['{}us', '{}us'] }}", time(share) * least / 100, time(share));
        let (wcet, times, phase) = (time(500), takes(shares[0]), choose.below(period / copies));
        let _ = writeln!(text, "[operation.c{operation}]\nevery = '{period}us'\nwcet = '{wcet}us'\ntakes = {times}");
        let _ = writeln!(text, "critical = true\nphase = '{phase}us'");
        if copies > 1 {
            let _ = writeln!(text, "count = {copies}\nstagger = 'even'");
        }
        for (epoch, share) in epochs.iter_mut().zip(shares) {
            let _ = write!(epoch, "'operation.c{operation}.takes' = {}, ", takes(share));
        }
    }
    let display = 2 + choose.below(20);
    let _ = writeln!(text, "[operation.display]\nevery = '50ms'\nwcet = '{}us'", 50 * display);
    let each = 30 + choose.below(90);
    let most = (1_500 - 200) / each;
    let legs = [0, 1, 2, 3].map(|_| 1 + choose.below(most));
    let _ = writeln!(
        text,
        "[operation.route]\nevery = '{frame}us'\nphase = '1ms'\nwcet = '{}us'\nrepeat = {{ legs = {} }}",
        frame * each / 1_000,
        legs[0]
    );
    for ((place, epoch), legs) in (0..).zip(&epochs).zip(legs) {
        let _ = writeln!(
            text,
            "[[epoch]]\nat = '{}s'\nset = {{ {epoch}'operation.route.repeat.legs' = {legs} }}",
            20 * place
        );
    }
    text.push_str(
        "[contract.route]\nwatch = { critical = { of = 'processor.main.critical_demand', over = '2s' }, \
         wasted = { of = 'operation.route.wasted', over = '2s' } }\n",
    );
    let declared = legs.into_iter().max().unwrap();
    for fitting in 1..declared {
        // What the critical work must leave.
        let left = |legs: f64| 1.0 - display as f64 / 1e3 - legs * each as f64 / 1e3;
        let (enter, leave) = (left(fitting as f64), left(fitting as f64 + 0.5));
        let wasted = 0.25 * each as f64 / 1e3;
        if leave > 0.0 {
            let _ = writeln!(
                text,
                "[[contract.route.region]]\nname = 'r{fitting}'\nenter = 'critical + wasted > {enter:.4} && \
                 wasted > {wasted:.4}'\nleave = 'critical < {leave:.4}'\ndo = [{{ set = 'operation.route.repeat.legs', \
                 most = {fitting} }}]"
            );
        }
    }
    text.push_str("[[contract.route.region]]\nname = 'all'\n");
    text
}

/// The sums of a random system: critical misses, and non-critical deadlines.
fn sums(system: &System) -> (u64, u64) {
    let regions = super::flight_program::simulated(system).0;
    let sum = |of: fn(&Region) -> u64| regions.iter().map(of).sum();
    (sum(|region| region.critical_missed), sum(|region| region.other_made))
}

/// Random systems, each with and without its contract: the sums of all.
fn compare(systems: u64, frame: u64) -> [(u64, u64); 2] {
    let (mut all, mut more, mut fewer, mut worse) = ([(0, 0); 2], 0, 0, 0);
    for seed in 1..=systems {
        let text = random_system(seed, frame);
        let system = read(&text, "random.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system;
        let both = [system.clone().with(|contents| contents.contracts.clear()), system].map(|system| sums(&system));
        let [alone, with] = both;
        all.iter_mut().zip(both).for_each(|(all, one)| (all.0, all.1) = (all.0 + one.0, all.1 + one.1));
        worse += u32::from(with.0 > alone.0);
        more += u32::from(with.1 * 100 > alone.1 * 101);
        fewer += u32::from(with.1 * 100 < alone.1 * 99);
    }
    let [alone, with] = all;
    println!(
        "{systems} systems, frames of {} ms: critical misses {} and {} (more in {worse} systems), non-critical deadlines \
         {} and {} ({:+.2} %; in {more} systems more than 1 % more, in {fewer} more than 1 % fewer)",
        frame / 1_000,
        alone.0,
        with.0,
        thousands(alone.1),
        thousands(with.1),
        (with.1 as f64 / alone.1 as f64 - 1.0) * 100.0
    );
    all
}

#[test]
fn a_contract_on_demand_costs_no_critical_deadline_in_random_systems() {
    let [alone, with] = compare(20, 50_000);
    assert!(with.0 <= alone.0 && with.1 * 100 > alone.1 * 99, "{alone:?} {with:?}");
}

#[test]
#[ignore = "some minutes"]
fn a_contract_on_demand_serves_more_legs_in_a_thousand_random_systems() {
    let [alone, with] = compare(1_000, 50_000);
    assert!(with.0 <= alone.0 && with.1 > alone.1, "{alone:?} {with:?}");
    // Frames that are shorter than all periods of critical work leave different numbers of legs.
    let [alone, with] = compare(1_000, 20_000);
    assert!(with.0 <= alone.0 && with.1 * 100 > alone.1 * 99, "{alone:?} {with:?}");
}

/// Frames that are shorter than all periods of critical work: the first strategy has more levels than the second.
#[test]
fn no_critical_and_no_proved_deadline_is_missed_in_random_systems_with_a_switch() {
    let (mut account, mut missed) = (Account::new(), 0);
    for seed in (1..=20).chain([99, 162, 192, 317]) {
        let system =
            read(&random_system(seed, 20_000), "random.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
        let system = system.system.with(|contents| contents.contracts.clear());
        check_until(&system, system.duration, &mut account).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        missed += sums(&system).0;
    }
    let proved: u64 = account.values().map(|tally| tally.proved).sum();
    assert!(proved > 100 && missed == 0, "{proved} proved, {missed} critical misses");
}
