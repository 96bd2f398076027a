//! `docs/json.md` names every key that is written, and no other.

use crate::flight;

use std::collections::BTreeSet;
use std::path::Path;

use flight::flight;
use hyoshi_model::{Instant, OperationId, ProcessorId, Span};
use hyoshi_report::Checked;
use hyoshi_sched::Strategies;
use hyoshi_trace::{
    AdmissionOutcome, AdmissionRefusal, ClientLabel, ContractHistories, DiscardReason, DispatchDecision, ExcessLoad,
    FeedbackHistories, Input, RatedClient, StrategyHistories, TimeSplit, TraceEvent,
};
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

/// The first words in backticks of the lines of tables.
fn documented(part: &str) -> BTreeSet<String> {
    let cells = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_string).collect()
}

fn doc() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    std::fs::read_to_string(path).unwrap()
}

/// The processor of a report with two strategies that took turns.
fn switching() -> Value {
    let mut flight = flight();
    flight.plan.processors[0].overload = Some(Box::new(flight.plan.processors[0].clone()));
    let mut reigns = StrategyHistories::new(&flight.system);
    let switch = |second| TraceEvent::Decision(DispatchDecision::Switch { second });
    reigns.event(ProcessorId(0), Instant::from_nanos(1_000), &switch(true));
    reigns.event(ProcessorId(0), Instant::from_nanos(975_001_000), &switch(false));
    let mut account = flight.account();
    account.figures.strategies = reigns.until(Instant::ZERO + account.duration);
    let summary = account.summary();
    assert_eq!(summary.processors[0].strategies(), "RMS+MLF, RMS+MLF in overload: 2 switches, 25.0 % of the time");
    serde_json::from_str::<Value>(&summary.json()).unwrap()["processors"][0].clone()
}

const LOOP: &str = "name = 'loop'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-UM'\nutilisation = '70%'\n\
    miss_ratio = '1%'\n[operation.track]\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n";

/// A feedback loop after two samples.
fn feedback() -> Value {
    let system = hyoshi_model::read(LOOP, "loop.toml", None).unwrap().system;
    let mut histories = FeedbackHistories::new(&system);
    for second in [4, 8] {
        let sample = DispatchDecision::Sample { utilisation: Some(700_000), ended: 10, missed: 1, total: 300_000 };
        let at = Instant::ZERO + Span::from_secs(second);
        histories.event(ProcessorId(0), at, &TraceEvent::Decision(sample));
    }
    let task = RatedClient {
        operation: OperationId(0),
        estimate: Span::from_millis(2),
        shortest: Span::from_millis(100),
        longest: Span::from_millis(1_000),
        value: 1,
        label: ClientLabel::new("pilot"),
    };
    let pace = DispatchDecision::Pace { client: 3, operation: OperationId(0), period: Span::from_millis(250) };
    let joins = [
        TraceEvent::Input(Input::Join { client: 3, task }),
        TraceEvent::Decision(pace),
        TraceEvent::Input(Input::Leave { client: 3 }),
        TraceEvent::Input(Input::Join { client: 3, task }),
    ];
    for (second, event) in (4..).zip(joins) {
        histories.event(ProcessorId(0), Instant::ZERO + Span::from_secs(second), &event);
    }
    let duration = Span::from_secs(8);
    let one = hyoshi_report::FeedbackSummary::new(
        &system,
        &system.feedback[0],
        (&histories.all()[0], &hyoshi_trace::Stats::new(&system)),
        duration,
    );
    assert_eq!((one.settled_after, one.steady.map(|steady| steady.samples)), (Some(1), Some(1)));
    assert_eq!(one.rates[0].period_ns, 1_000_000_000);
    let clients: Vec<_> =
        one.rates[1..].iter().map(|one| (one.client.as_deref(), one.period_ns, one.left_ns)).collect();
    assert_eq!(clients, [(Some("pilot"), 250_000_000, Some(6_000_000_000)), (Some("pilot"), 1_000_000_000, None)]);
    // Both samples came before the clients.
    let over_time: Vec<_> = one.rates.iter().map(|rate| &rate.periods_ns[..]).collect();
    let second = Some(1_000_000_000);
    assert_eq!(over_time, [&[second, second], &[None, None], &[None, None]]);
    serde_json::to_value(one).unwrap()
}

const MOVES: &str = "name = 'moves'\n[processor.front]\n[processor.rear]\n\
    [feedback.front]\nalgorithm = 'FC-U'\nutilisation = '60%'\n[feedback.rear]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
    [operation.track]\non = ['front', 'rear']\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n";

/// The loops of two processors between which an operation has moved 65 times.
fn moves() -> [Value; 2] {
    let system = hyoshi_model::read(MOVES, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let mut histories = FeedbackHistories::new(&system);
    for number in 0..131u64 {
        let (from, to) = ((number % 2) as u32, ((number + 1) % 2) as u32);
        let at = Instant::ZERO + Span::from_secs(number);
        let depart = Input::Depart { operation: OperationId(from) };
        histories.event(ProcessorId(from), at, &TraceEvent::Input(depart));
        let arrive = Input::Arrive { operation: OperationId(to), from: OperationId(from), nominal: at, number };
        histories.event(ProcessorId(to), at, &TraceEvent::Input(arrive));
    }
    [0, 1].map(|place| {
        let of = (&histories.all()[place], &hyoshi_trace::Stats::new(&system));
        let one = hyoshi_report::FeedbackSummary::new(&system, &system.feedback[place], of, Span::from_secs(140));
        serde_json::to_value(one).unwrap()
    })
}

const STANDBY: &str = "name = 'standby'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
    [operation.track]\nstandby = true\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n\
    [operation.zoom]\nstandby = true\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n";

/// A loop with 65 decisions on operations on standby.
fn admissions() -> Value {
    let system = hyoshi_model::read(STANDBY, "standby.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let mut histories = FeedbackHistories::new(&system);
    let excess = ExcessLoad { least_ppm: 700_000, most_ppm: 600_000 };
    let admitted = |millis| AdmissionOutcome::Admitted { period: Span::from_millis(millis), highest: millis == 100 };
    let outcomes = [
        admitted(100),
        AdmissionOutcome::Withdrawn,
        AdmissionOutcome::Refused(AdmissionRefusal::Load(excess)),
        admitted(500),
    ];
    for number in 0..65 {
        let outcome = if number < 62 { outcomes[number % 2] } else { outcomes[number - 61] };
        let operation = OperationId(u32::from(number == 64));
        let decision = DispatchDecision::Admission { operation, outcome };
        let at = Instant::ZERO + Span::from_secs(number as u64);
        histories.event(ProcessorId(0), at, &TraceEvent::Decision(decision));
    }
    let of = (&histories.all()[0], &hyoshi_trace::Stats::new(&system));
    let one = hyoshi_report::FeedbackSummary::new(&system, &system.feedback[0], of, Span::from_secs(70));
    serde_json::to_value(one).unwrap()
}

#[test]
fn admissions_are_listed_with_their_reasons() {
    let found = admissions();
    let all = found["admissions"].as_array().unwrap();
    assert_eq!((all.len(), &found["admissions_omitted"]), (64, &serde_json::json!(1)));
    let reason = "with this operation, the load at the lowest rates would be 70.0%, above the loop's limit of 60.0%";
    let expected = serde_json::json!([
        { "at_ns": 62_000_000_000u64, "operation": "track", "outcome": "withdrawn" },
        { "at_ns": 63_000_000_000u64, "operation": "track", "outcome": "refused", "reason": reason },
        { "at_ns": 64_000_000_000u64, "operation": "zoom", "outcome": "admitted", "period_ns": 500_000_000,
          "reason": "other tasks use the rest of the set point" },
    ]);
    assert_eq!(Value::from(all[61..].to_vec()), expected);
    let standby = |place: usize| found["rates"][place]["standby"].clone();
    assert_eq!((standby(0), standby(1)), (Value::Bool(true), Value::Null));
}

#[test]
fn moves_are_listed_where_they_end() {
    let [front, rear] = moves();
    assert_eq!(rear["moves"].as_array().unwrap().len(), 64);
    let last = serde_json::json!({ "at_ns": 130_000_000_000u64, "operation": "track" });
    assert_eq!((&rear["moves"][63], &rear["moves_omitted"]), (&last, &serde_json::json!(2)));
    assert_eq!((&front["rates"][0]["away"], &rear["rates"][0]["away"]), (&Value::Bool(true), &Value::Null));
}

/// Two operations with levels: one has a fixed rate, the other follows an adapted one.
const LEVELS: &str = "name = 'levels'\n[processor.main]\nhard_cap = '100%'\n\
    [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '50%'\ndivide = 'value'\n\
    [operation.track]\nrate = '10Hz'\n\
    levels = [{ name = 'coarse', wcet = '20ms', value = 1 }, { name = 'full', wcet = '60ms', value = 2 }]\n\
    [operation.grab]\nrate = ['1Hz', '5Hz']\nwcet = '10ms'\n\
    [operation.show]\nafter = { all = ['grab'] }\n\
    levels = [{ name = 'grid', wcet = '10ms', value = 3 }, { name = 'mesh', wcet = '30ms', value = 5 }]\n";

const LATENCY: &str = "name = 'latency'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '70%'\n\
    latency = { of = 'show', at = '20ms' }\n[operation.track]\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n\
    [operation.show]\nrate = '5Hz'\nwcet = '30ms'\n";

/// A loop that holds a latency, after three samples; in the second one it was not measured.
fn latency() -> Value {
    let system = hyoshi_model::read(LATENCY, "latency.toml", None).unwrap().system;
    let mut histories = FeedbackHistories::new(&system);
    let sample = DispatchDecision::Sample { utilisation: Some(300_000), ended: 10, missed: 1, total: 300_000 };
    let latency = |ms| DispatchDecision::Latency { quantile: Span::from_millis(ms), jobs: 10 };
    for (second, decision) in [(4, latency(12)), (4, sample), (8, sample), (12, latency(24)), (12, sample)] {
        let at = Instant::ZERO + Span::from_secs(second);
        histories.event(ProcessorId(0), at, &TraceEvent::Decision(decision));
    }
    let stats = hyoshi_trace::Stats::new(&system);
    let of = (&histories.all()[0], &stats);
    let one = hyoshi_report::FeedbackSummary::new(&system, &system.feedback[0], of, Span::from_secs(12));
    let over_time: Vec<_> = one.over_time.iter().map(|point| point.latency_ns).collect();
    assert_eq!(over_time, [Some(12_000_000), None, Some(24_000_000)]);
    assert_eq!(one.steady.unwrap().latency_ns, Some(24_000_000));
    // The utilisation stays below its set point, the latency reaches its own.
    assert_eq!(one.settled_after, Some(3));
    serde_json::to_value(one).unwrap()
}

const CONTRACT: &str = "name = 'contract'\n[processor.main]\nhard_cap = '100%'\ncap = '100%'\n\
    [operation.track]\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n[operation.show]\nevery = '50ms'\nwcet = '5ms'\n\
    [contract.load]\nwatch = { late = { of = 'operation.show.miss_ratio', over = '2s' }, \
    slow = { of = 'operation.show.latency' } }\n\
    [[contract.load.region]]\nname = 'thin'\nenter = \"late > 0.5 || slow > duration('20ms')\"\nleave = 'late < 0.4'\n\
    do = [{ set = 'operation.track.rate', most = '5Hz' }, { report = 'show is late' }]\n\
    region = [{ name = 'worst', enter = 'late > 0.9', latch = true }, { name = 'bad' }]\n\
    [[contract.load.region]]\nname = 'hidden'\nenter = 'late > 0.7'\n\
    [[contract.load.region]]\nname = 'never'\nenter = 'late > 1'\n\
    [[contract.load.region]]\nname = 'normal'\n";

/// A contract after three changes.
fn contract() -> Value {
    let system = hyoshi_model::read(CONTRACT, "contract.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let mut histories = ContractHistories::new(&system);
    let mut decide = |second, decision| {
        histories.event(Instant::ZERO + Span::from_secs(second), &TraceEvent::Decision(decision));
    };
    let region = |from, to| DispatchDecision::Region { contract: 0, from, to };
    decide(1, region(None, Some(5)));
    decide(2, DispatchDecision::Condition { contract: 0, condition: 0, value: Some(600_000) });
    decide(2, DispatchDecision::Condition { contract: 0, condition: 1, value: Some(21_500) });
    decide(2, region(Some(5), Some(0)));
    decide(2, region(None, Some(2)));
    let mut flight = flight();
    flight.system = flight.system.with(|contents| contents.contracts = system.contracts.clone());
    let mut account = flight.account();
    account.figures.contracts = histories.until(Instant::ZERO + account.duration);
    let text = account.summary().terminal(hyoshi_report::TerminalStyle::PLAIN, hyoshi_report::Detail::Brief);
    assert!(text.contains("late 0.600, slow 21.5ms  show is late"), "{text}");
    serde_json::from_str::<Value>(&account.summary().json()).unwrap()["contracts"].clone()
}

#[test]
fn a_check_shows_which_regions_can_begin_and_end() {
    let system = hyoshi_model::read(CONTRACT, "contract.toml", None).unwrap().system;
    let plan = hyoshi_sched::Plan::new(&system, &Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let checked = Checked::new("hyoshi check", &system, &report);
    let json: Value = serde_json::from_str(&checked.json()).unwrap();
    let (mut written, documented) = (BTreeSet::new(), documented(&doc()));
    keys(&json, &mut written);
    assert!(written.is_subset(&documented), "{:?}", written.difference(&documented));
    let regions: Vec<_> =
        json["contract_regions"].as_array().unwrap().iter().map(|one| (&one["begins"], &one["ends"])).collect();
    let next: Vec<_> = json["contract_regions"].as_array().unwrap().iter().map(|one| one["next"].to_string()).collect();
    assert_eq!(next.join(" "), r#"["normal"] [] ["worst"] [] [] ["thin"]"#);
    let words = |begins: &'static str, ends: Value| (Value::from(begins), ends);
    let expected = [
        words("reachable", true.into()),
        words("reachable", false.into()),
        words("reachable", Value::Null),
        words("hidden", true.into()),
        words("never", true.into()),
        words("reachable", Value::Null),
    ];
    let expected: Vec<_> = expected.iter().map(|(begins, ends)| (begins, ends)).collect();
    assert_eq!(regions, expected, "{json}");
    let text = checked.terminal(hyoshi_report::TerminalStyle::PLAIN);
    assert!(text.contains("Regions of contracts") && text.contains("hidden"), "{text}");
}

#[test]
fn a_check_says_what_is_known_of_a_latency() {
    let system = hyoshi_model::read(LATENCY, "latency.toml", None).unwrap().system;
    let plan = hyoshi_sched::Plan::new(&system, &Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let checked = Checked::new("hyoshi check", &system, &report);
    let json: Value = serde_json::from_str(&checked.json()).unwrap();
    let mut written = BTreeSet::new();
    keys(&json, &mut written);
    let documented = documented(&doc());
    assert!(written.is_subset(&documented), "{:?}", written.difference(&documented));
    let one = &json["feedback"][0];
    assert_eq!((&one["settles_after"], &one["latency"]["of"]), (&Value::Null, &"show".into()));
    // 0.37 / (2 * 4), and five jobs a second for 4 s.
    assert_eq!((&one["latency"]["largest_change_ppm"], &one["latency"]["least_jobs"]), (&46_250.into(), &20.into()));
    let text = checked.terminal(hyoshi_report::TerminalStyle::PLAIN).replace("\n        ", " ");
    for remark in [
        "the utilisation is lower if the quantile 99 % of show is above 20ms; analysis does not know at which load",
        "the total changes by at most 4.6 % in a sample",
        "at the lowest rates 20 jobs end in a sampling period: then the quantile is the longest latency",
        "a worst case of 30ms is above the latency 20ms: raise `at`",
    ] {
        assert!(text.contains(remark), "{remark} is not in {text}");
    }
}

#[test]
fn service_levels_are_in_reports_and_checks() {
    let system = hyoshi_model::read(LEVELS, "levels.toml", None).unwrap().system;
    let mut histories = FeedbackHistories::new(&system);
    let sample = DispatchDecision::Sample { utilisation: Some(300_000), ended: 1, missed: 0, total: 300_000 };
    let level = |level| DispatchDecision::Level { operation: OperationId(2), level };
    for (second, decision) in (4..).zip([sample, level(1), level(0), level(1)]) {
        let at = Instant::ZERO + Span::from_secs(second);
        histories.event(ProcessorId(0), at, &TraceEvent::Decision(decision));
    }
    let stats = hyoshi_trace::Stats::new(&system);
    let of = (&histories.all()[0], &stats);
    let one = hyoshi_report::FeedbackSummary::new(&system, &system.feedback[0], of, Span::from_secs(8));
    let levels = one.rates.iter().map(|rate| {
        let level = rate.level.as_ref().unwrap();
        (&*rate.operation, &*level.operation, &*level.name, level.changes)
    });
    assert_eq!(levels.collect::<Vec<_>>(), [("grab", "show", "mesh", 3), ("track", "track", "coarse", 0)]);

    let plan = hyoshi_sched::Plan::new(&system, &Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let checked = Checked::new("hyoshi check", &system, &report);
    let json: Value = serde_json::from_str(&checked.json()).unwrap();
    let (mut written, documented) = (BTreeSet::new(), documented(&doc()));
    keys(&json, &mut written);
    assert!(written.is_subset(&documented), "{:?}", written.difference(&documented));
    assert_eq!(json["feedback"][0]["lowest_ppm"], 220_000);
    assert_eq!(json["feedback"][0]["levels"][1], serde_json::json!({ "operation": "track", "level": "coarse" }));
    let text = checked.terminal(hyoshi_report::TerminalStyle::PLAIN);
    assert!(text.contains("levels that fit if jobs need their worst case: show mesh, track coarse"), "{text}");
    assert!(text.contains("22.0 % at the lowest levels and rates"), "{text}");
}

#[test]
fn every_key_of_a_loop_in_a_check_is_documented() {
    let system = hyoshi_model::read(LOOP, "loop.toml", None).unwrap().system;
    let plan = hyoshi_sched::Plan::new(&system, &Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let checked = Checked::new("hyoshi check", &system, &report);
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&checked.json()).unwrap(), &mut written);
    assert!(written.contains("stable_below"));
    let documented = documented(&doc());
    let missing: Vec<_> = written.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
    let text = checked.terminal(hyoshi_report::TerminalStyle::PLAIN);
    assert!(text.contains("Feedback loops") && text.contains("main: settles within"), "{text}");
}

#[test]
fn every_key_of_a_run_is_documented_and_every_documented_key_is_written() {
    let mut flight = flight();
    flight.stats.discard(OperationId(0), DiscardReason::TooOld);
    let mut account = flight.account();
    account.started_unix_ns = Some(1);
    let time = TimeSplit { by_other: vec![(0, Span::from_millis(1), 2)], ..TimeSplit::default() };
    let threads = ["kworker/1:2".to_owned()];
    (account.figures.time, account.threads) = (vec![time], &threads);
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&account.summary().json()).unwrap(), &mut written);
    keys(&switching(), &mut written);
    keys(&feedback(), &mut written);
    moves().iter().for_each(|one| keys(one, &mut written));
    keys(&admissions(), &mut written);
    keys(&latency(), &mut written);
    keys(&contract(), &mut written);
    let doc = doc();
    let (run, _) = doc.split_once("## `check`").unwrap();
    assert_eq!(documented(run), written);
}

#[test]
fn every_key_of_a_check_is_documented() {
    let flight = flight();
    let report = hyoshi_sched::analyse(&flight.system, &flight.plan);
    let margins = hyoshi_sched::analysis::sensitivity(&flight.system, &Strategies::built_in(), &report, &|_, _| true);
    let seen = hyoshi_report::CounterexampleSummary {
        of: "nav".into(),
        kind: "operation",
        region: "0".into(),
        reason: "late".into(),
        duration_ns: 1,
        file: None,
        job: None,
        at_ns: None,
    };
    let checked = Checked::new("hyoshi check", &flight.system, &report);
    let json = Checked { sensitivity: Some(&margins), counterexample: Some(&seen), ..checked }.json();
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&json).unwrap(), &mut written);
    let documented = documented(&doc());
    let missing: Vec<_> = written.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
}

#[test]
fn every_key_of_programs_is_documented() {
    let text = "name = 'film'\n[reservation.player]\nprogram = ['player']\nperiod = '33ms'\ntakes = '30ms'\n\
                [reservation.other]\nprogram = ['other']\nperiod = '33ms'\ntakes = '30ms'\n";
    let system = hyoshi_model::read(text, "film.toml", None).unwrap().system;
    let plan = hyoshi_sched::Plan::new(&system, &Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let admissions: Vec<_> = hyoshi_control::file::admit(&system, hyoshi_model::HostId(0)).into_iter().collect();
    let checked = Checked { admissions: &admissions, ..Checked::new("hyoshi check", &system, &report) };
    assert!(!checked.holds(), "both do not fit");
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&checked.json()).unwrap(), &mut written);
    let stretch = hyoshi_report::ProgramStretch {
        at_ns: 0,
        until_ns: 1,
        periods: 1,
        missed: None,
        asked_ns: 1,
        held_ns: 1,
        consumed_ns: 1,
    };
    let one = hyoshi_report::ProgramSummary::of(&system, hyoshi_model::ProgramId(0));
    let one = hyoshi_report::ProgramSummary { over_time: vec![stretch], ..one };
    keys(&serde_json::to_value(one).unwrap(), &mut written);
    let documented = documented(&doc());
    let missing: Vec<_> = written.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
}
