//! Settings with one value that regions set: they apply while the region is active, on whichever processor evaluates the
//! contract, and a replay repeats them.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, DispatchDecision, Input, TraceEvent};
use proptest::prelude::*;

type Events = Vec<(ProcessorId, Instant, TraceEvent)>;

/// `mode` is 1 from 2 s to 4 s.
const MODE: &str = "[condition.mode]\nvalue = 0\n\
    [[epoch]]\nat = '2s'\nset = { 'condition.mode.value' = 1 }\n\
    [[epoch]]\nat = '4s'\nset = { 'condition.mode.value' = 0 }\n";

/// A contract with these actions while `mode` is 1.
fn contract(name: &str, keys: &str, actions: &str) -> String {
    format!(
        "[contract.{name}]\n{keys}\nwatch = {{ mode = {{ of = 'condition.mode' }} }}\n\
         [[contract.{name}.region]]\nname = 'on'\nenter = 'mode > 0.5'\ndo = [{actions}]\n\
         [[contract.{name}.region]]\nname = 'off'\n"
    )
}

fn system(text: &str) -> System {
    read(&format!("name = 'settings'\n{text}{MODE}"), "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

/// All events of 6 s. A replay of each processor makes the same decisions.
fn run(text: &str) -> Events {
    let system = system(text);
    let all = events(&system, Instant::ZERO + Span::from_secs(6));
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    for plan in &plan.processors {
        let own = all.iter().filter(|(processor, ..)| *processor == plan.processor);
        replay(&system, plan, own.map(|(_, at, event)| (*at, *event))).unwrap_or_else(|one| panic!("{one}"));
    }
    all
}

fn seconds(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_secs_f64()
}

/// Whether `mode` is 1 at an instant; `None` within 300 ms after a change.
fn is_on(at: Instant) -> Option<bool> {
    match seconds(at) {
        at if (2.0..2.3).contains(&at) || (4.0..4.3).contains(&at) => None,
        at => Some((2.3..4.0).contains(&at)),
    }
}

/// The operations that run first after their common release, each 20 ms.
fn first_runs(all: &Events) -> Vec<(Instant, u32)> {
    let mut found: Vec<(Instant, u32)> = Vec::new();
    for (processor, at, event) in all {
        let TraceEvent::Decision(DispatchDecision::Run { job, resumed: false, .. }) = event else { continue };
        let period = |at: Instant| at.as_nanos() / 20_000_000;
        if processor.0 == 0 && found.last().is_none_or(|(last, _)| period(*last) < period(*at)) {
            found.push((*at, job.operation.0));
        }
    }
    found
}

/// Two operations that are released together, with equal deadlines.
const EQUAL: &str = "[processor.main]\nstrategy = 'EDF'\n[processor.other]\n\
    [operation.a]\non = 'main'\nevery = '20ms'\nwcet = '4ms'\nimportance = 2\n\
    [operation.b]\non = 'main'\nevery = '20ms'\nwcet = '4ms'\nimportance = 1\n\
    [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n";

#[test]
fn an_importance_orders_jobs_while_its_region_is_active() {
    let action = "{ set = 'operation.b.importance', to = 3 }";
    for on in ["main", "other"] {
        let found = first_runs(&run(&format!("{EQUAL}{}", contract("rank", &format!("on = '{on}'"), action))));
        assert!(found.len() > 290);
        for (at, first) in found {
            let expected = is_on(at).map(u32::from);
            assert!(expected.is_none_or(|expected| first == expected), "{first} at {at:?}, evaluated on {on}");
        }
    }
}

#[test]
fn an_epoch_within_the_region_keeps_the_importance() {
    let epoch = "[[epoch]]\nat = '3s'\nset = { 'operation.c.wcet' = '2ms' }\n";
    let rank = contract("rank", "", "{ set = 'operation.b.importance', to = 3 }");
    let (first, last) = MODE.split_once("[[epoch]]\nat = '4s'").unwrap();
    let text = format!("name = 'x'\n{EQUAL}{rank}{first}{epoch}[[epoch]]\nat = '4s'{last}");
    let system = read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let all = events(&system, Instant::ZERO + Span::from_secs(6));
    let after = first_runs(&all).into_iter().filter(|(at, _)| (3.0..4.0).contains(&seconds(*at)));
    assert!(
        after.clone().count() > 40 && after.clone().all(|(_, first)| first == 1),
        "{:?}",
        after.collect::<Vec<_>>()
    );
}

#[test]
fn of_two_contracts_the_higher_precedence_sets_the_importance() {
    let set = |to: u32| format!("{{ set = 'operation.b.importance', to = {to} }}");
    for (precedence, expected) in [("precedence = 2", 0), ("", 1)] {
        let (raise, lower) = (contract("raise", "precedence = 1", &set(3)), contract("lower", precedence, &set(0)));
        let found = first_runs(&run(&format!("{EQUAL}{raise}{lower}")));
        let on = found.into_iter().filter(|(at, _)| is_on(*at) == Some(true));
        assert!(on.clone().count() > 80 && on.clone().all(|(_, first)| first == expected), "{precedence}");
    }
}

#[test]
fn an_inner_region_sets_an_importance_instead_of_the_outer_one() {
    let inner = contract("rank", "", "{ set = 'operation.b.importance', to = 3 }").replace(
        "enter = 'mode > 0.5'\n",
        "enter = 'mode > 0.5'\nregion = [{ name = 'in', do = [{ set = 'operation.b.importance', to = 0 }] }]\n",
    );
    assert!(first_runs(&run(&format!("{EQUAL}{inner}"))).iter().all(|(_, first)| *first == 0));
}

#[test]
fn an_inner_region_or_a_higher_precedence_enables_what_others_disable() {
    let set = |to: bool| format!("{{ set = 'operation.a.enabled', to = {to} }}");
    let inner = format!("enter = 'mode > 0.5'\nregion = [{{ name = 'in', do = [{}] }}]\n", set(true));
    let disable = |keys: &str| contract("disable", keys, &set(false));
    let enable = |keys: &str| contract("enable", keys, &set(true));
    // Only an epoch's `enabled` stays.
    let epoch = "[[epoch]]\nat = '0s'\nset = { 'operation.a.enabled' = false }\n";
    for (contracts, first_while_on) in [
        (disable(""), 1),
        (disable("on = 'other'").replace("enter = 'mode > 0.5'\n", &inner), 0),
        (disable("") + &enable("precedence = 1"), 0),
        (disable("") + &enable("precedence = 1\non = 'other'"), 0),
        (disable("precedence = 1") + &enable(""), 1),
    ] {
        let found = first_runs(&run(&format!("{EQUAL}{contracts}")));
        let on: Vec<_> = found.iter().filter(|(at, _)| is_on(*at) == Some(true)).collect();
        let off: Vec<_> = found.iter().filter(|(at, _)| is_on(*at) == Some(false)).collect();
        assert!(on.len() > 80 && on.iter().all(|(_, first)| *first == first_while_on), "{contracts}");
        assert!(off.iter().all(|(_, first)| *first == 0), "{contracts}");
    }
    let text = format!("name = 'x'\n{EQUAL}{}{epoch}{MODE}", enable("")).replace("value = 0", "value = 1");
    let system = read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let all = events(&system, Instant::ZERO + Span::from_secs(1));
    assert!(first_runs(&all).iter().all(|(_, first)| *first == 1));
}

/// The mean rate of an operation's releases between two instants, in hertz.
fn rate(all: &Events, id: u32, from: f64, to: f64) -> f64 {
    let release = |(.., event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) if job.operation.0 == id => {
            Some(seconds(*release))
        }
        _ => None,
    };
    all.iter().filter_map(release).filter(|at| (from..to).contains(at)).count() as f64 / (to - from)
}

#[test]
fn a_loop_by_value_prefers_the_operation_that_a_region_makes_important() {
    let text = "[processor.main]\nstrategy = 'RMS'\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '40%'\nperiod = '200ms'\ndivide = 'value'\n\
        [operation.x]\nrate = ['5Hz', '50Hz']\nwcet = '8ms'\nimportance = 5\n\
        [operation.y]\nrate = ['5Hz', '50Hz']\nwcet = '8ms'\nimportance = 1\n";
    let all = run(&format!("{text}{}", contract("rank", "", "{ set = 'operation.y.importance', to = 9 }")));
    let of = |from, to| [0, 1].map(|id| rate(&all, id, from, to));
    for ([x, y], expected) in [(of(1.0, 2.0), true), (of(3.0, 4.0), false), (of(5.0, 6.0), true)] {
        assert!((x > y + 20.0) == expected && (y > x + 20.0) != expected, "{x} Hz and {y} Hz");
    }
}

/// The mean of the utilisations that the loop of the first processor has sampled between two instants.
fn mean_utilisation(all: &Events, from: f64, to: f64) -> f64 {
    let sampled = all.iter().filter_map(|(processor, at, event)| match event {
        TraceEvent::Input(Input::Sample { utilisation }) if processor.0 == 0 && (from..to).contains(&seconds(*at)) => {
            Some(f64::from((*utilisation)?) / 1e6)
        }
        _ => None,
    });
    let sampled: Vec<f64> = sampled.collect();
    sampled.iter().sum::<f64>() / sampled.len() as f64
}

#[test]
fn a_loop_holds_the_set_point_of_the_active_region() {
    let text = "[processor.main]\nstrategy = 'RMS'\n[processor.other]\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '60%'\nperiod = '100ms'\ngains = { ga = 1 }\n\
        [operation.x]\non = 'main'\nrate = ['5Hz', '900Hz']\nwcet = '1ms'\n\
        [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n";
    let low = "{ set = 'feedback.main.utilisation', to = '30%' }";
    for on in ["main", "other"] {
        let all = run(&format!("{text}{}", contract("low", &format!("on = '{on}'"), low)));
        for (from, to, set) in [(1.5, 2.0, 0.6), (3.3, 4.0, 0.3), (5.3, 6.0, 0.6)] {
            let mean = mean_utilisation(&all, from, to);
            assert!((mean - set).abs() < 0.03, "{mean} from {from} s to {to} s, evaluated on {on}");
        }
    }
}

#[test]
fn a_lower_set_point_of_misses_lowers_rates() {
    let text = "[processor.main]\nstrategy = 'EDF'\n\
        [feedback.main]\nalgorithm = 'FC-M'\nmiss_ratio = '60%'\nperiod = '100ms'\n\
        [operation.x]\nrate = ['5Hz', '500Hz']\nwcet = '4ms'\n";
    let all = run(&format!("{text}{}", contract("low", "", "{ set = 'feedback.main.miss_ratio', to = '1%' }")));
    let before = rate(&all, 0, 1.5, 2.0);
    let within = rate(&all, 0, 3.5, 4.0);
    assert!(before > within + 5.0, "{before} Hz, then {within} Hz");
}

/// When each strategy is in force on the first processor: the instants of switches, and whether to the second one.
fn switches(all: &Events) -> Vec<(f64, bool)> {
    let switch = |(processor, at, event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(DispatchDecision::Switch { second }) if processor.0 == 0 => Some((seconds(*at), *second)),
        _ => None,
    };
    all.iter().filter_map(switch).collect()
}

/// Critical jobs of `slow` are endangered all the time.
const TWO: &str = "[processor.main]\nstrategy = ['RMS', 'RMS+MLF']\n[processor.other]\n\
    [operation.fast]\non = 'main'\nevery = '10ms'\nwcet = '7ms'\n\
    [operation.slow]\non = 'main'\nevery = '30ms'\nwcet = '12ms'\ncritical = true\n\
    [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n";

#[test]
fn a_pinned_strategy_does_not_switch_until_its_region_ends() {
    for on in ["main", "other"] {
        for (pinned, second) in [("RMS", false), ("rms+mlf", true)] {
            let pin = format!("{{ set = 'processor.main.strategy', to = '{pinned}' }}");
            // With so little load, the trigger alone would never switch.
            let text = if second { TWO.replace("'7ms'", "'1ms'").replace("'12ms'", "'2ms'") } else { TWO.into() };
            let all = run(&format!("{text}{}", contract("pin", &format!("on = '{on}'"), &pin)));
            let found = switches(&all);
            let within = found.iter().filter(|(at, _)| (2.1..4.0).contains(at)).count();
            let last = found.iter().rfind(|(at, _)| *at < 2.1).is_some_and(|(_, second)| *second);
            assert_eq!((within, last), (0, second), "{pinned} on {on}: {found:?}");
            // Afterwards the trigger decides again.
            let after = found.iter().filter(|(at, _)| *at >= 4.0).collect::<Vec<_>>();
            let expected = if second { after.len() == 1 && !after[0].1 } else { after.iter().any(|(_, to)| *to) };
            assert!(expected && (second || found.iter().any(|(at, to)| *at < 2.0 && *to)), "{pinned}: {found:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// `run` replays all decisions.
    #[test]
    fn a_replay_repeats_settings_of_any_contracts(
        seed in 1..1_000_000u64, importance in 0..4u32, utilisation in 10..90u32, second: bool, precedence in 0..3u32,
        on_other: bool, busy in 1..12u64,
    ) {
        let strategy = if second { "RMS+EDF" } else { "EDF" };
        let text = format!(
            "seed = {seed}\n[processor.main]\nstrategy = ['EDF', 'RMS+EDF']\n[processor.other]\n\
             [feedback.main]\nalgorithm = 'FC-UM'\nutilisation = '60%'\nmiss_ratio = '2%'\nperiod = '100ms'\n\
             [operation.a]\non = 'main'\nrate = ['5Hz', '100Hz']\nwcet = '4ms'\ntakes = {{ uniform = ['1ms', '4ms'] }}\n\
             [operation.b]\non = 'main'\nevery = '40ms'\nwcet = '{busy}ms'\ncritical = true\nimportance = 1\n\
             [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n"
        );
        let on = if on_other { "on = 'other'\nprecedence = 2" } else { "precedence = 2" };
        let first = contract("first", on, &format!(
            "{{ set = 'operation.a.importance', to = {importance} }}, {{ set = 'operation.b.importance', to = 2 }}, \
             {{ set = 'processor.main.strategy', to = '{strategy}' }}"
        ));
        let set_points = "{ set = 'feedback.main.utilisation', to = '25%' }, { set = 'feedback.main.miss_ratio', to = '1%' }";
        let second = contract("second", "precedence = 4", set_points);
        let third = contract("third", &format!("precedence = {}", 2 * precedence + 1), &format!(
            "{{ set = 'feedback.main.utilisation', to = '{utilisation}%' }}, {{ set = 'processor.main.strategy', to = 'EDF' }}"
        ));
        run(&format!("{text}{first}{second}{third}"));
    }
}

/// `zoom` fits in the loop, `film` only without it.
const STANDBY: &str = "[processor.main]\nstrategy = 'RMS'\n[processor.other]\n\
    [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\nperiod = '200ms'\n\
    [operation.track]\non = 'main'\nrate = ['5Hz', '100Hz']\nwcet = '4ms'\n\
    [operation.zoom]\non = 'main'\nstandby = true\nrate = ['20Hz', '50Hz']\nwcet = '5ms'\n\
    [operation.film]\non = 'main'\nstandby = true\nrate = ['26Hz', '30Hz']\nwcet = '24ms'\n\
    [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n";

/// The admissions of operations, when, and whether they were refused.
fn admissions(all: &Events) -> Vec<(f64, u32, AdmissionOutcome)> {
    let admission = |(_, at, event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(DispatchDecision::Admission { operation, outcome }) => {
            Some((seconds(*at), operation.0, *outcome))
        }
        _ => None,
    };
    all.iter().filter_map(admission).collect()
}

#[test]
fn a_region_admits_an_operation_once_or_the_loop_refuses_it() {
    for on in ["main", "other"] {
        let actions = "{ admit = 'zoom' }, { admit = 'film' }";
        let contract = contract("land", &format!("on = '{on}'"), actions);
        let contract = contract.replace("name = 'off'\n", "name = 'off'\ndo = [{ withdraw = 'zoom' }]\n");
        let all = run(&format!("{STANDBY}{contract}"));
        let found = admissions(&all);
        let [first, zoom, film, last] = found[..] else { panic!("{on}: {found:?}") };
        // It was not admitted before.
        assert!(first.0 < 0.3 && first.1 == 1 && matches!(first.2, AdmissionOutcome::Refused(_)), "{first:?}");
        assert!((2.0..2.3).contains(&zoom.0) && zoom.1 == 1, "{zoom:?}");
        assert!(matches!(zoom.2, AdmissionOutcome::Admitted { .. }), "{zoom:?}");
        assert!(film.1 == 2 && matches!(film.2, AdmissionOutcome::Refused(AdmissionRefusal::Load(_))), "{film:?}");
        assert!((4.0..4.3).contains(&last.0) && (last.1, last.2) == (1, AdmissionOutcome::Withdrawn), "{last:?}");
        let rates = [(0.0, 2.0), (2.3, 4.0), (4.3, 6.0)].map(|(from, to)| rate(&all, 1, from, to));
        assert!(rates[0] == 0.0 && rates[1] >= 19.0 && rates[2] == 0.0, "{on}: {rates:?}");
    }
}

#[test]
fn a_loop_chooses_no_level_above_the_greatest_one_of_the_region() {
    let text = "[processor.main]\nstrategy = 'RMS'\n[processor.other]\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\nperiod = '100ms'\ndivide = 'value'\n\
        [operation.detect]\non = 'main'\nrate = '20Hz'\nlevels = [{ name = 'coarse', wcet = '2ms', value = 3 },\n\
        { name = 'half', wcet = '6ms', value = 7 }, { name = 'full', wcet = '12ms', value = 10 }]\n\
        [operation.show]\non = 'main'\nrate = ['5Hz', '40Hz']\nwcet = '3ms'\nimportance = 1\n\
        [operation.c]\non = 'other'\nevery = '20ms'\nwcet = '1ms'\n";
    for on in ["main", "other"] {
        let limit = "{ set = 'operation.detect.level', most = 'half' }";
        let all = run(&format!("{text}{}", contract("less", &format!("on = '{on}'"), limit)));
        let mut level = 0;
        let mut greatest = [0; 3];
        for (_, at, event) in &all {
            if let TraceEvent::Decision(DispatchDecision::Level { level: next, .. }) = event {
                level = *next;
            }
            let phase = [(0.0, 2.0), (2.3, 4.0), (4.3, 6.0)];
            if let Some(phase) = phase.iter().position(|(from, to)| (*from..*to).contains(&seconds(*at))) {
                greatest[phase] = level.max(greatest[phase]);
            }
        }
        assert_eq!(greatest, [2, 1, 2], "evaluated on {on}");
        assert_eq!(level, 2);
    }
}

#[test]
fn disabling_a_consumer_disconnects_it_from_its_events() {
    let text = "[event.image]\n[processor.main]\nstrategy = 'RMS'\n[processor.other]\n\
        [operation.camera]\non = 'main'\nevery = '20ms'\nwcet = '1ms'\nsupplies = ['image']\n\
        [operation.show]\non = 'main'\nafter = { event = 'image' }\nwcet = '1ms'\n\
        [operation.log]\non = 'other'\nafter = { event = 'image' }\nwcet = '1ms'\n";
    let all = run(&format!("{text}{}", contract("quiet", "", "{ set = 'operation.log.enabled', to = false }")));
    for (from, to, logs) in [(0.1, 2.0, true), (2.1, 4.0, false), (4.1, 6.0, true)] {
        let [camera, show, log] = [0, 1, 2].map(|id| rate(&all, id, from, to));
        assert!((camera - 50.0).abs() < 1.0 && (show - 50.0).abs() < 1.0, "{camera} Hz and {show} Hz");
        assert!(if logs { (log - 50.0).abs() < 1.0 } else { log == 0.0 }, "{log} Hz from {from} s to {to} s");
    }
}
