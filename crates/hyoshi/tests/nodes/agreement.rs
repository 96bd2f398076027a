//! Random systems of two hosts: two processes run them, and a simulation of the merged recording agrees.

use std::collections::HashMap;

use hyoshi_model::{HostId, Instant};
use hyoshi_trace::{CpuEvent, DispatchDecision, Input, RecordingReader, TraceEvent};

use super::{count, second_cpu, show, start, until, unused_address};
use crate::common::steal::interruptions;
use crate::common::{Place, alone};

/// Two hosts with 2 to 4 periodic operations each, and 1 to 3 operations that the other host triggers. Each CPU is used less
/// than 40 %: 30 % by periodic operations, and at most three times 3 % by triggered ones.
fn random(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut text = format!("name = 'random {seed}'\nseed = {seed}\n");
    for (host, cpu) in [("A", 0), ("B", second_cpu())] {
        let strategy = ["RMS", "EDF", "MUF", "RMS+MLF"][below(4) as usize];
        let preemption = ["levels", "full", "none"][below(3) as usize];
        text += &format!(
            "[host.{host}]\nendpoints = ['tcp/{}']\n\
             [processor.{host}]\nhost = '{host}'\ncpu = {cpu}\nstrategy = '{strategy}'\npreemption = '{preemption}'\n",
            unused_address()
        );
    }
    // Name, position of its host and period in milliseconds of all that may trigger something.
    let mut roots: Vec<(String, usize, u64)> = Vec::new();
    let times = |wcet: u64, constant: bool| match constant {
        true => format!("wcet = '{wcet}us'\n"),
        false => format!("wcet = '{wcet}us'\ntakes = {{ uniform = ['{}us', '{wcet}us'] }}\n", wcet / 4),
    };
    for (position, host) in ["A", "B"].into_iter().enumerate() {
        let operations = 2 + below(3);
        for number in 0..operations {
            let (name, period) = (format!("periodic-{host}{number}"), 10 + below(91));
            let percent = 2 + below(30 / operations - 1);
            text += &format!(
                "[operation.{name}]\non = '{host}'\nevery = '{period}ms'\nphase = '{}ms'\ncritical = {}\n{}",
                below(20),
                below(2) == 0,
                times(period * 10 * percent, below(2) == 0)
            );
            roots.push((name, position, period));
        }
    }
    for number in 0..1 + below(3) {
        let (root, position, period) = roots[below(roots.len() as u64) as usize].clone();
        let (name, position) = (format!("triggered-{number}"), 1 - position);
        text += &format!(
            "[operation.{name}]\non = '{}'\nafter = {{ all = ['{root}'] }}\nguard = '{}'\ncritical = {}\n{}",
            ["A", "B"][position],
            ["off", "on", "idle"][below(3) as usize],
            below(2) == 0,
            times(period * 10 * (1 + below(3)), below(2) == 0)
        );
        roots.push((name, position, period));
    }
    text
}

/// What runs and their simulations have in common.
#[derive(Default)]
struct Agreement {
    periods: u64,
    jobs: u64,
    signals: u64,
    near_ties: Vec<String>,
    disturbed: Vec<String>,
    disagreements: Vec<String>,
}

impl Agreement {
    fn add(&mut self, other: Agreement) {
        self.periods += other.periods;
        self.jobs += other.jobs;
        self.signals += other.signals;
        self.near_ties.extend(other.near_ties);
        self.disturbed.extend(other.disturbed);
        self.disagreements.extend(other.disagreements);
    }
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Agreement { periods, jobs, signals, near_ties, disturbed, disagreements } = self;
        write!(
            out,
            "{periods} busy periods ({jobs} jobs) agree, {} near-ties, {} disturbed, {} disagreements; {signals} signals",
            near_ties.len(),
            disturbed.len(),
            disagreements.len()
        )
    }
}

/// Runs a system in two processes, checks the merged recording, and compares it with its simulation. The second host joins
/// `late`, or both start together.
fn run(seed: u64, late: bool) -> Agreement {
    let place = Place::new();
    // The second process must start within the time of the first one, on a slow machine too.
    let duration = if late { "3s" } else { "600ms" };
    place.write("system.toml", random(seed));
    let words = |host: &str| {
        let control = place.path().display();
        let wait = if late && host == "A" { "0s" } else { "30s" };
        format!(
            "run system.toml --host {host} --duration {duration} --wait {wait} --record {host}.hyo --no-report \
             --control {control}/{host}.sock"
        )
    };
    let first = start(&place, &words("A"));
    if late {
        until("it runs", || show(&place, "A.sock").filter(|node| count(node, "running_ns") > 100_000_000));
    }
    let running = [(first, words("A")), (start(&place, &words("B")), words("B"))];
    for (running, words) in running {
        let ended = running.end(&words);
        assert!([0, 1].contains(&ended.code), "system {seed}: {}", ended.err);
    }
    place.hyoshi("trace merge A.hyo B.hyo -o merged.hyo").exits(0);
    place.hyoshi("trace replay merged.hyo").exits(0);
    let mut agreement = Agreement { signals: received_after_sending(&place, seed), ..Agreement::default() };
    let again = place.hyoshi("sim --from merged.hyo --links recorded --format json").json()["again"].take();
    for processor in again["agreement"].as_array().unwrap() {
        let count = |what: &str| processor[what].as_u64().unwrap();
        let name = processor["name"].as_str().unwrap();
        let printed = |one: &serde_json::Value| format!("system {seed}, {name}: {one}");
        let list = |what: &str| processor[what].as_array().unwrap().iter().map(printed).collect();
        agreement.add(Agreement {
            periods: count("agreeing"),
            jobs: count("jobs"),
            signals: 0,
            near_ties: list("near_ties"),
            disturbed: list("disturbed"),
            disagreements: list("disagreements"),
        });
    }
    println!("system {seed}: {agreement}, {} as declared", again["signals_as_declared"]);
    if !agreement.disagreements.is_empty() {
        println!("its recordings are kept in {}", place.path().display());
        std::mem::forget(place);
    }
    agreement
}

/// Attempts for a quiet run: a busy disk interrupts for some seconds.
const ATTEMPTS: u32 = 12;

/// Runs a system, and again if it disagrees while interrupts, a hypervisor or another program took CPU time: jobs that are
/// unfinished at the end are not in disturbed periods, nor are those that interrupts delay. The last disagreement counts in any
/// case.
fn agreement(seed: u64, late: bool) -> Agreement {
    for attempt in 1.. {
        let before = interruptions();
        let agreement = run(seed, late);
        let undisturbed = interruptions() == before && agreement.disturbed.is_empty();
        if agreement.disagreements.is_empty() || attempt == ATTEMPTS || undisturbed {
            return agreement;
        }
        println!("attempt {attempt}: something else took CPU time; {:?}", agreement.disagreements);
    }
    unreachable!("the last attempt returns")
}

/// Asserts that no signal between hosts arrived before it was sent, by the clock of the first host; how many arrived.
fn received_after_sending(place: &Place, seed: u64) -> u64 {
    let reader = RecordingReader::new(std::fs::File::open(place.path().join("merged.hyo")).unwrap()).unwrap();
    let mut ahead = [0; 2];
    let (mut sent, mut received) = (HashMap::new(), HashMap::new());
    for entry in reader.map(Result::unwrap) {
        let processor = entry.processor.index();
        let now = |ahead: &[i64; 2]| entry.now.by_clock_ahead(ahead[processor]);
        let key = |signal: hyoshi_trace::Signal| (signal.to, signal.position, signal.number);
        let first: Option<Instant> = match entry.event {
            TraceEvent::Cpu(CpuEvent::Clock { host: HostId(0), offset, .. }) => {
                ahead[processor] = offset;
                None
            }
            TraceEvent::Decision(DispatchDecision::Send(signal)) => sent.insert(key(signal), now(&ahead)),
            TraceEvent::Input(Input::Signal(signal)) => received.insert(key(signal), now(&ahead)),
            _ => None,
        };
        assert_eq!(first, None, "system {seed}: a signal was sent or received twice: {:?}", entry.event);
    }
    for (signal, received) in &received {
        let sent = sent.get(signal).unwrap_or_else(|| panic!("system {seed}: {signal:?} was received, never sent"));
        assert!(received >= sent, "system {seed}: {signal:?} was sent at {sent} and received at {received}");
    }
    received.len() as u64
}

/// Runs the first systems.
fn agreements(systems: u64) {
    let _alone = alone();
    let mut all = Agreement::default();
    for seed in 1..=systems {
        all.add(agreement(seed, false));
    }
    for tie in &all.near_ties {
        println!("near-tie: {tie}");
    }
    for disturbed in &all.disturbed {
        println!("disturbed: {disturbed}");
    }
    println!("{systems} systems: {all}");
    assert!(all.disagreements.is_empty(), "{:#?}", all.disagreements);
    assert!(all.jobs > 20 * systems && all.signals > 3 * systems, "{all}");
}

#[test]
fn two_processes_run_random_systems_as_their_simulations_do() {
    agreements(3);
}

#[test]
fn a_host_that_joins_late_agrees_with_its_simulation() {
    let _alone = alone();
    let all = agreement(1, true);
    assert!(all.disagreements.is_empty() && all.jobs > 100 && all.signals > 10, "{all}: {:#?}", all.disagreements);
}

/// `.ci/long`.
#[test]
#[ignore = "takes minutes"]
fn two_processes_run_200_random_systems_as_their_simulations_do() {
    agreements(std::env::var("NODES_SYSTEMS").map_or(200, |systems| systems.parse().unwrap()));
}
