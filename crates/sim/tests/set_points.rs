//! The utilisation that analysis proves to be free of misses, against simulated jobs.

use std::fmt::Write;

use crate::common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::set_points;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};
use proptest::prelude::*;

/// An operation with a rate in a range, and a follower on its processor or a stage on another.
#[derive(Clone, Debug)]
struct Task {
    shortest: u64,
    /// The present period and the longest one, of the shortest, in percent.
    present: u64,
    longest: u64,
    critical: bool,
    fixed: bool,
    /// Parts of the utilisation: of the operation and of its follower.
    weights: (u64, u64),
    /// The declared time, of the needed one, in percent.
    declared: u64,
    phase: u64,
}

fn task() -> impl Strategy<Value = Task> {
    let rates = (6u64..200, 100u64..300, 0u64..200, any::<bool>(), prop::bool::weighted(0.3));
    let works = (1u64..100, prop::sample::select(vec![0u64, 0, 5, 50]), 40u64..200, 0u64..200);
    (rates, works).prop_map(|((shortest, present, more, critical, fixed), (own, follower, declared, phase))| Task {
        shortest,
        present: if fixed { 100 } else { present },
        longest: if fixed { 100 } else { present + more },
        critical,
        fixed,
        weights: (own, follower),
        declared,
        phase,
    })
}

#[derive(Clone, Debug)]
struct Draw {
    edf: bool,
    caps: &'static str,
    /// 0: no critical task, 1: as drawn, 2: all.
    critical: u8,
    tasks: Vec<Task>,
}

fn draw() -> impl Strategy<Value = Draw> {
    let caps = vec![
        "cap = '100%'\nhard_cap = '100%'",
        "",
        "cap = '100%'",
        "cap = '100%'\nhard_cap = '90%'",
        "cap = '85%'",
        "cap = '90%'\ncap_window = '40ms'",
        "cap = '80%'\nhard_cap = '100%'",
    ];
    (any::<bool>(), prop::sample::select(caps), 0u8..3, prop::collection::vec(task(), 1..6))
        .prop_map(|(edf, caps, critical, tasks)| Draw { edf, caps, critical, tasks })
}

/// The system at rates within their ranges, with this utilisation of the CPU. The loop never samples.
fn text(draw: &Draw, utilisation: f64, rates_vary: bool) -> String {
    let strategy = if draw.edf { "strategy = 'EDF'\npreemption = 'full'" } else { "strategy = 'RMS'" };
    let mut text = format!(
        "name = 'drawn'\nduration = '20s'\n[processor.main]\n{strategy}\n{}\n\
         [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '100%'\nperiod = '1h'\nSTART\n",
        draw.caps
    );
    let sum: u64 = draw.tasks.iter().map(|task| task.weights.0 + task.weights.1).sum();
    let mut start = Vec::new();
    for (place, task) in draw.tasks.iter().enumerate() {
        let (present, longest) = (task.shortest * 10 * task.present, task.shortest * 10 * task.longest);
        let needs = |weight: u64| ((present as f64) * utilisation * weight as f64 / sum as f64).floor().max(1.0) as u64;
        let critical = draw.critical == 2 || draw.critical == 1 && task.critical;
        // Critical jobs keep within their declared times.
        let wcet = |needs: u64| if critical { needs } else { (needs * task.declared / 100).max(1) };
        let own = needs(task.weights.0);
        let every = match task.fixed || !rates_vary {
            true => format!("'{present}us'"),
            false => {
                start.push(format!("t{place} = '{present}us'"));
                format!("['{}ms', '{longest}us']", task.shortest)
            }
        };
        let _ = write!(
            text,
            "[operation.t{place}]\nevery = {every}\nphase = '{}ms'\ncritical = {critical}\nwcet = '{}us'\n\
             takes = {{ uniform = ['{own}us', '{own}us'] }}\n",
            task.phase,
            wcet(own)
        );
        if task.weights.1 > 0 {
            let own = needs(task.weights.1);
            let _ = write!(
                text,
                "[operation.f{place}]\nafter = {{ all = ['t{place}'] }}\ncritical = {critical}\nwcet = '{}us'\n\
                 takes = {{ uniform = ['{own}us', '{own}us'] }}\n",
                wcet(own)
            );
        }
    }
    // One more, so that there is something to adapt.
    text.push_str("[operation.last]\nevery = ['10s', '20s']\nwcet = '1us'\ncritical = LAST\n");
    let last = if draw.critical == 2 { "true" } else { "false" };
    text.replace("START", &format!("start = {{ {} }}", start.join(", "))).replace("LAST", last)
}

fn system(text: &str) -> Option<System> {
    read(text, "drawn.toml", None).ok().map(|loaded| loaded.system)
}

/// While ordinary threads use all time that lanes leave.
fn misses(system: &System) -> usize {
    let all = events_beside(system, Instant::ZERO + Span::from_secs(3), true);
    let missed = |event: &TraceEvent| matches!(event, TraceEvent::Decision(DispatchDecision::End(end)) if end.outcome != JobOutcome::Made);
    all.iter().filter(|(.., event)| missed(event)).count()
}

proptest! {
    /// Rates within their ranges, declared times below and above the needed ones, caps that act.
    #[test]
    fn no_job_is_late_at_the_bound(draw in draw()) {
        let Some(first) = system(&text(&draw, 0.01, true)) else { return Ok(()) };
        let bound = |system: &System| {
            let plan = Plan::new(system, &Strategies::built_in()).unwrap();
            set_points(system, &plan).swap_remove(0)
        };
        let Ok(ppm) = bound(&first) else { return Ok(()) };
        // `last` needs next to nothing.
        let text = text(&draw, ppm as f64 / 1e6 - 1e-5, true);
        let Some(at_bound) = system(&text) else { return Ok(()) };
        // Declared times of critical work count.
        if bound(&at_bound).is_ok_and(|found| found == ppm) {
            prop_assert_eq!(misses(&at_bound), 0, "at {} ppm of\n{}", ppm, text);
        }
    }
}

/// Two tasks at Liu and Layland's bound: with a little more, the less urgent one is late.
#[test]
fn a_set_of_tasks_misses_just_above_the_bound() {
    // Liu and Layland's worst case for two tasks: periods of 1 and sqrt 2.
    let text = |more: u64| {
        format!(
            "name = 'two'\n[processor.main]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
             [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '100%'\nperiod = '1h'\nstart = 'highest'\n\
             [operation.a]\nevery = ['100ms', '200ms']\nwcet = '41421us'\n\
             [operation.b]\nevery = ['141421us', '200ms']\nwcet = '{}us'\n",
            58_579 + more
        )
    };
    assert_eq!(misses(&system(&text(0)).unwrap()), 0);
    assert!(misses(&system(&text(30)).unwrap()) > 0);
}

/// Declared times above the cap, because jobs need less: a reserve for them must not stop the least urgent lane.
#[test]
fn jobs_shorter_than_declared_do_not_starve_the_least_urgent_lane() {
    let text = "name = 'short'\nduration = '40s'\n[processor.main]\nstrategy = 'RMS'\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\nperiod = '1s'\n\
        [operation.a]\nrate = ['20Hz', '50Hz']\nwcet = '10ms'\ntakes = { uniform = ['4ms', '4ms'] }\n\
        [operation.b]\nrate = ['10Hz', '40Hz']\nwcet = '10ms'\ntakes = { uniform = ['4ms', '4ms'] }\n\
        [operation.c]\nrate = ['5Hz', '75Hz']\nwcet = '10ms'\ntakes = { uniform = ['4ms', '4ms'] }\n";
    let system = system(text).unwrap();
    let all = events(&system, Instant::ZERO + system.duration);
    let ended = all.iter().filter_map(|(.., event)| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) => Some(end.outcome == JobOutcome::Made),
        _ => None,
    });
    let (made, late): (Vec<bool>, Vec<bool>) = ended.partition(|made| *made);
    assert!(made.len() > 2_000 && late.is_empty(), "{} in time, {} late", made.len(), late.len());
}
