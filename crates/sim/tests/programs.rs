//! Programs under the CPU broker in virtual time.

use std::cell::Cell;

use hyoshi_control::file::{AdmissionVerdict, admit};
use hyoshi_model::{HostId, Instant, Span, System, read};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::programs::{ProgramResults, Programs};
use hyoshi_sim::simulate_known;
use hyoshi_trace::NoProbe;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const MS: Span = Span::from_millis(1);

fn system(text: &str) -> System {
    read(&format!("name = 'one'\n{text}"), "one.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

fn played(system: &System) -> Vec<ProgramResults> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let mut programs = Programs::new(system).unwrap();
    let until = Instant::ZERO + system.duration;
    simulate_known(system, &plan, until, None, Some(&mut programs), |_| NoProbe, |_| true);
    programs.close()
}

fn program(name: &str, period: u64, takes: u64, rest: &str) -> String {
    format!("[reservation.{name}]\nprogram = ['{name}']\nperiod = '{period}ms'\ntakes = '{takes}ms'\n{rest}\n")
}

/// Held in each period.
fn held(played: &ProgramResults) -> Vec<Span> {
    played.stretches.iter().map(|stretch| stretch.sums.held).collect()
}

#[test]
fn a_reservation_follows_the_programs_execution_time() {
    // The paper's figure 4, in short: only unpredictable cycles miss.
    let text = program("p", 100, 20, "") + &program("q", 100, 60, "");
    let text = format!(
        "duration = '6s'\nbroker = {{ cap = '95%' }}\n{text}[[epoch]]\nat = '2s'\nset = {{ 'reservation.p.takes' = '30ms' }}\n\
         [[epoch]]\nat = '4s'\nset = {{ 'reservation.p.takes' = '15ms' }}\n"
    );
    let played = played(&system(&text));
    let held = held(&played[0]);
    assert_eq!(played[0].all.periods, 60);
    assert_eq!(held[0], Span::from_micros(100), "almost nothing");
    assert!(held[1..20].iter().all(|held| *held == MS * 21), "the demand and its headroom from the first report on");
    assert!(held[21..40].iter().all(|held| *held == Span::from_micros(31_500)), "up at once");
    assert!(held[40..44].iter().all(|held| *held > MS * 30), "down only when five reports are lower");
    assert!(held[46..].iter().all(|held| *held == Span::from_micros(15_800)), "{held:?}");
    assert_eq!(played[0].all.missed, 0, "there was always enough for both");
}

#[test]
fn a_region_bounds_what_a_reservation_may_be_and_its_end_restores_the_file() {
    let regions = |actions: &str| {
        format!(
            "[contract.low]\nwatch = {{ mode = {{ of = 'condition.mode' }} }}\n[[contract.low.region]]\nname = 'low'\n\
             enter = 'mode > 0.5'\ndo = [{actions}]\n[[contract.low.region]]\nname = 'normal'\n\
             [[epoch]]\nat = '2s'\nset = {{ 'condition.mode.value' = 1 }}\n\
             [[epoch]]\nat = '4s'\nset = {{ 'condition.mode.value' = 0 }}\n"
        )
    };
    let text = |rest: &str, actions: &str| {
        let contract = regions(actions);
        let programs = program("p", 100, 40, rest) + &program("q", 100, 60, "advocate = [{ rate = '60%' }]");
        format!(
            "duration = '6s'\nbroker = {{ cap = '95%' }}\n{programs}[operation.tick]\nevery = '100ms'\nwcet = '1us'\n\
             [condition.mode]\nvalue = 0\n{contract}"
        )
    };
    // Its request is cut, although its demand stays.
    let one = held(
        &played(&system(&text(
            "advocate = [{ max_decay = 10 }, { cap = '30%' }]\n",
            "{ set = 'reservation.p.cap', to = '10%' }",
        )))[0],
    );
    let ms = |all: &[Span], at: usize| all[at].as_nanos() / 1_000_000;
    assert_eq!([15, 30, 50].map(|at| ms(&one, at)), [30, 10, 30], "{one:?}");
    let one = held(
        &played(&system(&text("advocate = [{ rate = '30%' }]\n", "{ set = 'reservation.p.rate', to = '5%' }")))[0],
    );
    assert_eq!([15, 30, 50].map(|at| ms(&one, at)), [30, 5, 30], "{one:?}");
    // 47.5 % for each: useless to it with its own least budget.
    let rest = "advocate = [{ rate = '60%' }]\nleast = '50ms'\n";
    let all = played(&system(&text(rest, "{ set = 'reservation.p.least', to = '20ms' }")));
    let (p, q) = (held(&all[0]), held(&all[1]));
    assert_eq!(([15, 30, 50].map(|at| ms(&p, at) + ms(&q, at)), ms(&p, 30)), ([60, 94, 60], 47), "{p:?} {q:?}");
}

#[test]
fn the_more_important_runs_first_and_the_other_is_late() {
    let spin = "advocate = [{ rate = '60%' }]\n";
    let text = program("low", 100, 60, &format!("{spin}importance = 1"))
        + &program("high", 100, 60, &format!("{spin}importance = 2"));
    let played = played(&system(&format!("duration = '5s'\nbroker = {{ cap = '75%' }}\n{text}")));
    let (low, high) = (&played[0].all, &played[1].all);
    assert_eq!((high.missed, high.cut), (0, 0));
    assert_eq!((low.met, low.cut, low.held), (0, 50, MS * 15 * 50));
    // The CPU is never idle: one gets the time that the other does not use.
    assert_eq!(low.consumed + high.consumed, Span::from_secs(5));
}

#[test]
fn without_a_reservation_programs_share_alike() {
    let none = "advocate = [{ cap = '0.1%' }]\n";
    let text: String = (0..4).map(|at| program(&format!("p{at}"), 100, 90, none)).collect();
    let played = played(&system(&format!("duration = '2s'\nbroker = {{ cpus = [0, 1] }}\n{text}")));
    for one in &played {
        let share = one.all.consumed.as_nanos() as f64 / 2e9;
        assert!((share - 0.5).abs() < 0.01, "half of a CPU each: {share}");
    }
}

#[test]
fn lanes_come_first() {
    let lanes = "[processor.main]\ncpu = 0\n[operation.o]\nevery = '10ms'\nwcet = '6ms'\n";
    let text = program("p", 100, 50, "");
    let played = played(&system(&format!("duration = '1s'\n{text}{lanes}")));
    assert_eq!((played[0].all.met, played[0].all.missed), (0, 10));
    assert_eq!(played[0].all.consumed, MS * 400, "what lanes leave");
}

/// Programs and operations of one CPU.
fn drawn() -> impl Strategy<Value = String> {
    let one = (1u64..15, 1u64..40, 1u32..4, any::<bool>());
    let lane = (1u64..10, 1u64..4);
    (prop::collection::vec(one, 1..5), prop::collection::vec(lane, 0..3), 1u64..1_000).prop_map(
        |(programs, lanes, seed)| {
            let mut text =
                format!("seed = {seed}\nduration = '1500ms'\nbroker = {{ cap = '100%' }}\n[processor.main]\ncpu = 0\nstrategy = 'DM'\ncap = '100%'\n");
            for (at, (period, share, importance, early)) in programs.into_iter().enumerate() {
                let (period, takes) = (period * 10, (period * 10 * share / 100).max(1));
                let deadline = if early { format!("deadline = '{}ms'\n", (period * 4 / 5).max(takes)) } else { String::new() };
                let rate = (takes * 1_000_000).div_ceil(period) + 1_000;
                let rest = format!("{deadline}importance = {importance}\nadvocate = [{{ rate = '{}.{:04}%' }}]", rate / 10_000, rate % 10_000);
                text += &program(&format!("p{at}"), period, takes, &rest);
            }
            for (at, (period, wcet)) in lanes.into_iter().enumerate() {
                text += &format!("[operation.o{at}]\nevery = '{}ms'\nwcet = '{wcet}ms'\njitter = '1ms'\ncritical = true\n", period * 10);
            }
            text
        },
    )
}

#[test]
fn what_check_admits_is_never_late() {
    let admitted = Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::default() });
    let held = runner.run(&drawn(), |text| {
        let system = system(&text);
        let admission = admit(&system, HostId(0)).unwrap();
        let played = played(&system);
        let whole = admission.programs.iter().all(|one| one.verdict() == AdmissionVerdict::Admitted);
        admitted.set(admitted.get() + u32::from(whole));
        for (one, program) in played.iter().zip(&admission.programs) {
            prop_assert_eq!(one.all.met + one.all.missed, one.all.periods);
            if whole {
                prop_assert_eq!(one.all.missed, 0, "{:?}\n{}", program, text);
            }
        }
        prop_assert_eq!(played, self::played(&system), "the same file plays alike");
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
    assert!(admitted.get() > 50, "only {} of 200 files were admitted", admitted.get());
    eprintln!("{} of 200 files were admitted", admitted.get());
}
