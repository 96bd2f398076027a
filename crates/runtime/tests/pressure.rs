//! More critical work than fits: the machine stays usable, and the report has a note.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as WallClock};

use common::{Ran, privileged, run_on};
use hyoshi_model::Span;
use hyoshi_os::{Spawn, ThreadPolicy};
use hyoshi_runtime::{EndedBy, Node, RunNote};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, JobOutcome};

const OVERLOAD: &str = "
    [operation.fast]
    every = \"10ms\"
    wcet = \"8ms\"
    critical = true
    importance = 1
    [operation.slow]
    every = \"40ms\"
    wcet = \"28ms\"
    critical = true
";

fn hard_capped(ran: &Ran) -> Option<(u64, Span, Vec<String>)> {
    ran.finished.notes.iter().find_map(|note| match note {
        RunNote::HardCapped { times, paused, demoted, .. } => Some((*times, *paused, demoted.clone())),
        _ => None,
    })
}

#[test]
fn critical_overload_pauses_the_lanes_and_the_run_reports_that() {
    let ran = run_on("RMS", "1200ms", OVERLOAD);
    let pauses =
        ran.decisions().filter(|(_, decision)| matches!(decision, DispatchDecision::Pause { on: true })).count();
    let (times, paused, _) = hard_capped(&ran).expect("it is paused");
    assert_eq!(times, pauses as u64);
    ran.replay();
    if privileged(&ran) {
        // One pause of at most 6.7 ms in each 100 ms; the release thread may see the end late.
        assert!((8..=16).contains(&times), "{times}");
        assert!(paused >= Span::from_millis(5) * times && paused <= Span::from_millis(9) * times, "{paused}");
    }
}

#[test]
fn lasting_overload_ends_the_run_under_on_hard_cap_stop() {
    let stop = format!("[processor.main]\nstrategy = \"RMS\"\non_hard_cap = \"stop\"\n{OVERLOAD}");
    let ran = common::run(&format!("duration = \"4s\"\n{stop}"));
    assert_eq!(ran.finished.ended_by, EndedBy::Overloaded { processor: "main".into() });
    assert!(ran.finished.elapsed < Span::from_secs(3), "{}", ran.finished.elapsed);
    ran.replay();
}

#[test]
fn lasting_overload_demotes_the_least_important_critical_operation_under_on_hard_cap_demote() {
    let demote = format!("[processor.main]\nstrategy = \"RMS\"\non_hard_cap = \"demote\"\n{OVERLOAD}");
    let ran = common::run(&format!("duration = \"2500ms\"\n{demote}"));
    assert_eq!(hard_capped(&ran).map(|(.., demoted)| demoted), Some(vec!["slow".to_owned()]));
    ran.replay();
}

#[test]
fn a_run_without_a_hard_cap_reports_that() {
    let off =
        "[processor.main]\nstrategy = \"RMS\"\nhard_cap = \"100%\"\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\n";
    let noted = |critical: &str| {
        let ran = common::run(&format!("duration = \"100ms\"\n{off}{critical}"));
        ran.finished.notes.contains(&RunNote::NoHardCap { processors: vec!["main".into()] })
    };
    assert!(noted("critical = true"));
    assert!(!noted(""), "nothing there is critical");
}

#[test]
fn a_job_is_at_its_ceiling_while_it_waits_for_a_resource_of_another_cpu() {
    if hyoshi_os::allowed_cpus().len() < 2 {
        println!("skipped: this machine has one CPU");
        return;
    }
    let ran = common::run(
        "duration = \"700ms\"\n[processor.p]\nstrategy = \"RMS\"\n[processor.q]\nstrategy = \"RMS\"\n\
         [resource.map]\n[operation.holder]\non = \"p\"\nevery = \"100ms\"\nwcet = \"30ms\"\nuses = { map = \"29ms\" }\n\
         [operation.other]\non = \"q\"\nevery = \"100ms\"\nphase = \"10ms\"\nwcet = \"2ms\"\nuses = { map = \"1ms\" }\n",
    );
    let inputs = |processor: u32| {
        ran.events.iter().filter_map(move |(of, at, event)| match event {
            hyoshi_trace::TraceEvent::Input(input) if of.0 == processor => Some((*at, *input)),
            _ => None,
        })
    };
    use hyoshi_trace::Input::{Acquire, Release};
    let held: Vec<_> = inputs(0).filter(|(_, input)| matches!(input, Acquire { .. } | Release { .. })).collect();
    let raised = |pair: &[(hyoshi_model::Instant, hyoshi_trace::Input)]| {
        inputs(1).any(|(at, input)| matches!(input, Acquire { .. }) && (pair[0].0..pair[1].0).contains(&at))
    };
    let while_held = held.chunks_exact(2).filter(|pair| raised(pair)).count();
    assert!(while_held >= 4, "the ceiling was raised after the lock was taken: {while_held} of {}", held.len() / 2);
    assert!(ran.count("other", JobOutcome::Made) >= 4);
    ran.replay();
}

/// The time that an ordinary thread on a lane's CPU waits for it, for `seconds` of this load.
fn waits(load: &str, hard_cap: &str, seconds: u64) -> (Vec<Duration>, Vec<RunNote>) {
    let text = format!(
        "name = \"t\"\nduration = \"{seconds}s\"\n[processor.main]\nstrategy = \"RMS\"\nhard_cap = \"{hard_cap}\"\n{load}"
    );
    let system = Arc::new(hyoshi_model::read(&text, "t", None).unwrap().system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut node = Node::new(system, plan).strict(true);
    let (_, cpu) = node.cpus().unwrap()[0];
    let running = node.start().unwrap_or_else(|error| panic!("this trial needs real-time priorities: {error}"));
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let ordinary = Spawn::new("ordinary").policy(ThreadPolicy::Other).cpu(cpu).spawn(move || {
        let (mut waits, mut seed) = (Vec::new(), 7u64);
        while !stop.load(Ordering::Relaxed) {
            // Without a fixed phase to the windows: 20 to 60 ms.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let due = WallClock::now() + Duration::from_micros(20_000 + (seed >> 33) % 40_000);
            std::thread::sleep(due.saturating_duration_since(WallClock::now()));
            waits.push(due.elapsed());
        }
        waits
    });
    let notes = running.wait(&mut |_, _, _| ()).notes;
    over.store(true, Ordering::Relaxed);
    let mut waits = ordinary.unwrap().join().unwrap();
    waits.sort();
    (waits, notes)
}

#[test]
#[ignore = "a trial of two minutes that uses a CPU wholly: see docs/benchmarks.md"]
fn an_ordinary_thread_beside_overload() {
    let seconds = std::env::var("PRESSURE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let half = OVERLOAD.replacen("critical = true", "", 1).replace("8ms", "7500us").replace("28ms", "30ms");
    for (load, name) in [(OVERLOAD, "150 % critical load"), (&half, "75 % critical load, 75 % other")] {
        println!("{name}\nhard_cap  waits      p50      p99      max  (ms)");
        let mut p99 = Vec::new();
        for hard_cap in ["100%", "94%"] {
            let (waits, notes) = waits(load, hard_cap, seconds);
            let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
            println!("{hard_cap:>8} {:>6} {:>8.1} {:>8.1} {:>8.1}", waits.len(), at(0.5), at(0.99), at(1.0));
            notes.iter().for_each(|note| println!("    {note}"));
            p99.push(at(0.99));
        }
        // The goal is 110 ms; other ordinary threads on the CPU share the pauses.
        assert!(p99[1] * 2.0 < p99[0], "the hard cap does not protect ordinary threads: {p99:?}");
    }
}
