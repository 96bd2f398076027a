//! Feedback control of a latency, on executed jobs.

use std::collections::BTreeMap;

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::{Observer, replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, FeedbackHistory, TraceEvent};

/// `track` waits for two others with random arrivals. From 200 s to 400 s those of `camera` need twice as long.
const LATENCY: &str = "name = 'latency'\n[processor.main]\nstrategy = 'RMS'\n\
    [feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '85%'\n\
    latency = { of = 'track', quantile = '90%', at = '20ms' }\nperiod = '2s'\n\
    [operation.camera]\nrate = ['10Hz', '300Hz']\njitter = '5ms'\nwcet = '2ms'\n\
    takes = { uniform = ['0.5ms', '2ms'] }\n\
    [operation.radar]\nrate = ['10Hz', '250Hz']\njitter = '6ms'\nwcet = '3ms'\n\
    takes = { uniform = ['0.5ms', '4ms'] }\n\
    [operation.track]\nrate = ['5Hz', '20Hz']\nwcet = '5ms'\ntakes = { uniform = ['4ms', '9ms'] }\n\
    [[epoch]]\nat = '200s'\nset = { 'operation.camera.takes' = { uniform = ['1ms', '4ms'] } }\n\
    [[epoch]]\nat = '400s'\nset = { 'operation.camera.takes' = { uniform = ['0.5ms', '2ms'] } }\n";

fn latency(change: impl FnOnce(String) -> String) -> System {
    let text = change(LATENCY.into());
    read(&text, "latency.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

type Events = Vec<(ProcessorId, Instant, TraceEvent)>;

/// The samples of the only loop, and the events.
fn run(system: &System, seconds: u64) -> (FeedbackHistory, Events) {
    let all = events(system, Instant::ZERO + Span::from_secs(seconds));
    let mut observer = Observer::new(system);
    all.iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    let figures = observer.figures(Instant::ZERO + Span::from_secs(seconds));
    (figures.feedback[system.feedback[0].processor.index()].clone(), all)
}

/// The means of the latency in milliseconds and of the utilisation, after one instant and up to another, in seconds.
fn means(history: &FeedbackHistory, from: u64, to: u64) -> (f64, f64) {
    let within = |at: Instant| at > Instant::ZERO + Span::from_secs(from) && at <= Instant::ZERO + Span::from_secs(to);
    let points = history.points().iter().filter(|point| within(point.at));
    let of = |point: &hyoshi_trace::FeedbackPoint| {
        (point.latency().unwrap().as_nanos() as f64 / 1e6, point.utilisation().unwrap())
    };
    let (latencies, utilisations): (Vec<_>, Vec<_>) = points.map(of).unzip();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    (mean(latencies), mean(utilisations))
}

#[test]
fn the_latency_settles_within_a_tenth_of_its_set_point_and_a_step_is_absorbed() {
    let (history, _) = run(&latency(|text| text), 600);
    for (from, to) in [(150, 200), (300, 400), (500, 600)] {
        let (latency, utilisation) = means(&history, from, to);
        assert!((18.0..22.0).contains(&latency), "{latency} ms from {from} s");
        assert!(utilisation < 0.8, "{utilisation} from {from} s");
    }
    let step = means(&history, 200, 204).0;
    assert!(step > 24.0, "the step is visible: {step} ms");
    // Totals are 23 % lower with execution times of `camera` that are twice as long.
    let total = |at: u64| {
        let at = Instant::ZERO + Span::from_secs(at);
        history.points().iter().rev().find(|point| point.at <= at).unwrap().total()
    };
    assert!(total(390) < 0.85 * total(190) && total(590) > 1.15 * total(390));
}

#[test]
fn the_lower_set_point_holds() {
    let (history, _) = run(&latency(|text| text.replace("'85%'", "'50%'")), 200);
    let (latency, utilisation) = means(&history, 100, 200);
    assert!((utilisation - 0.5).abs() < 0.01 && latency < 16.0, "{utilisation} {latency}");
}

/// Each measured latency is the quantile of the ends of its sampling period, and of jobs that are older than the set
/// point and have not ended. Written from the events alone.
#[test]
fn measured_latencies_are_the_quantiles_of_the_recorded_jobs_and_a_replay_repeats_them() {
    // In overload jobs of `track` are cancelled, or wait for the next sampling period.
    let cancelled = LATENCY.replace("'RMS'", "'RMS'\ncancel = true");
    // Critical jobs are not cancelled.
    let cancelled = ["camera", "radar"].iter().fold(cancelled, |text, name| {
        text.replace(&format!("[operation.{name}]"), &format!("[operation.{name}]\ncritical = true"))
    });
    for text in [LATENCY.into(), cancelled] {
        let text = text.replace("utilisation", "start = 'highest'\nutilisation");
        let system =
            latency(|_| text.replacen("'0.5ms', '2ms'", "'1.5ms', '2ms'", 1).replace("'0.5ms', '4ms'", "'3ms', '4ms'"));
        let (_, all) = run(&system, 60);
        let own = all.iter().map(|(_, at, event)| (*at, *event));
        replay(&system, &Plan::new(&system, &Strategies::built_in()).unwrap().processors[0], own)
            .unwrap_or_else(|divergence| panic!("{divergence}"));
        let track = system.operation_ids().find(|id| system.operation(*id).name == "track").unwrap();
        let set_point = Span::from_millis(20);
        let (mut live, mut times, mut measured, mut unfinished) = (BTreeMap::new(), Vec::new(), 0, 0);
        for (_, at, event) in &all {
            match event {
                TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) if job.operation == track => {
                    live.insert(*job, *release);
                }
                TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == track => {
                    live.remove(&end.job);
                    let time = end.end.since(end.release);
                    let least = if end.outcome.finished() { Span::ZERO } else { set_point + set_point };
                    unfinished += u32::from(!end.outcome.finished());
                    times.push(time.max(least));
                }
                TraceEvent::Decision(DispatchDecision::Latency { quantile, jobs }) => {
                    times.extend(live.values().map(|release| at.since(*release)).filter(|age| *age > set_point));
                    times.sort_unstable();
                    let rank = (times.len() * 9).div_ceil(10) - 1;
                    let (found, expected) = (quantile.as_nanos() as f64, times[rank].as_nanos() as f64);
                    assert!((0.999..1.02).contains(&(found / expected)), "{at}: {found} instead of {expected}");
                    assert_eq!(*jobs as usize, times.len());
                    times.clear();
                    measured += 1;
                }
                _ => {}
            }
        }
        assert!(measured >= 29, "{measured}");
        assert!(unfinished > 0, "{}", system.processors[0].cancel);
    }
}

#[test]
fn without_a_job_that_ends_no_rate_rises() {
    let off = "[[epoch]]\nat = '20s'\nset = { 'operation.track.enabled' = false }\n";
    let system = latency(|text| text[..text.find("[[epoch]]").unwrap()].to_string() + off);
    let (history, _) = run(&system, 60);
    let totals: Vec<_> = history.points().iter().map(|point| (point.latency(), point.total())).collect();
    assert!(totals[..10].windows(2).all(|pair| pair[1].1 > pair[0].1), "{totals:?}");
    // A job that was released before the epoch may end in the eleventh period.
    assert!(totals[11..].iter().all(|(latency, total)| latency.is_none() && *total == totals[11].1), "{totals:?}");
}

#[test]
fn the_latency_of_a_chain_counts_from_its_first_release() {
    let text = "name = 'chain'\n[host.client]\n[host.server]\n\
        [[link]]\nbetween = ['client', 'server']\ndelay = ['3ms', '9ms']\n\
        [processor.client]\nhost = 'client'\n[processor.server]\nhost = 'server'\nstrategy = 'EDF'\n\
        [feedback.server]\nalgorithm = 'FC-UL'\nutilisation = '95%'\nperiod = '2s'\n\
        latency = { of = 'answer', quantile = '90%', at = '24ms' }\n\
        [operation.poll]\non = 'client'\nrate = ['5Hz', '100Hz']\nwcet = '2ms'\n\
        [operation.serve]\non = 'server'\nafter = { all = ['poll'] }\nwcet = '5ms'\n\
        takes = { uniform = ['2ms', '9ms'] }\n\
        [operation.scan]\non = 'server'\nrate = ['5Hz', '100Hz']\nwcet = '5ms'\njitter = '9ms'\n\
        takes = { uniform = ['2ms', '9ms'] }\n\
        [chain.answer]\npath = ['poll', 'serve']\ndeadline = '100ms'\n";
    let system = read(text, "chain.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let (history, all) = run(&system, 300);
    let serve = system.operation_ids().find(|id| system.operation(*id).name == "serve").unwrap();
    let from = Instant::ZERO + Span::from_secs(200);
    let ends = ends(&all).filter(|end| end.job.operation == serve && end.end > from);
    let mut times: Vec<_> = ends.map(|end| end.end.since(end.origin)).collect();
    times.sort_unstable();
    let quantile = times[times.len() * 9 / 10].as_nanos() as f64 / 1e6;
    assert!((21.6..26.4).contains(&quantile), "{quantile} ms");
    let (latency, _) = means(&history, 200, 300);
    assert!((21.6..26.4).contains(&latency), "{latency} ms");
}

#[test]
fn a_level_falls_if_the_latency_is_too_long_and_rises_again() {
    let text = "name = 'levels'\n[processor.main]\nstrategy = 'RMS'\n\
        [feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '85%'\ndivide = 'value'\nperiod = '2s'\ngains = { ga = 1 }\n\
        latency = { of = 'track', quantile = '90%', at = '20ms' }\n\
        [operation.camera]\nrate = '150Hz'\njitter = '5ms'\nwcet = '2ms'\ntakes = { uniform = ['0.5ms', '2ms'] }\n\
        [operation.radar]\nrate = '100Hz'\njitter = '6ms'\nwcet = '3ms'\ntakes = { uniform = ['0.5ms', '4ms'] }\n\
        [operation.track]\nrate = '20Hz'\n\
        levels = [{ name = 'coarse', wcet = '3ms', value = 1 }, { name = 'full', wcet = '8ms', value = 2 }]\n";
    let fog = &LATENCY[LATENCY.find("[[epoch]]").unwrap()..];
    let system = read(&format!("{text}{fog}"), "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let (history, all) = run(&system, 600);
    let changes: Vec<_> = all
        .iter()
        .filter_map(|(_, at, event)| match event {
            TraceEvent::Decision(DispatchDecision::Level { level, .. }) => {
                Some((at.as_nanos() / 1_000_000_000, *level))
            }
            _ => None,
        })
        .collect();
    let within =
        |from: u64, to: u64| changes.iter().filter(move |(at, _)| (from..to).contains(at)).map(|(_, level)| *level);
    assert_eq!(within(0, 200).collect::<Vec<_>>(), [1]);
    // Tries to rise are ever less frequent.
    assert_eq!(within(200, 210).next(), Some(0), "{changes:?}");
    assert!(within(210, 400).count() <= 10, "{changes:?}");
    assert_eq!(changes.last().unwrap().1, 1, "{changes:?}");
    for (from, to) in [(100, 200), (300, 400), (500, 600)] {
        let (latency, _) = means(&history, from, to);
        assert!(latency < 20.0, "{latency} ms from {from} s");
    }
}

#[test]
fn a_load_chain_counts_once_when_its_last_leg_ends() {
    let text = "name = 'legs'\n[processor.main]\n\
        [feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '85%'\nperiod = '2s'\n\
        latency = { of = 'track', quantile = '50%', at = '20ms' }\n\
        [operation.camera]\nrate = ['5Hz', '10Hz']\nwcet = '1ms'\n\
        [operation.track]\nrate = '10Hz'\nwcet = '2ms'\ntakes = '2ms'\nrepeat = { legs = 4 }\n";
    let (_, all) = run(&latency(|_| text.into()), 7);
    let found = all.iter().filter_map(|(.., event)| match event {
        TraceEvent::Decision(DispatchDecision::Latency { jobs, quantile }) => Some((*jobs, *quantile)),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    assert!(found.len() >= 3, "{found:?}");
    for (jobs, quantile) in found {
        assert!((19..=21).contains(&jobs), "{jobs}");
        assert!((Span::from_millis(8)..Span::from_millis(10)).contains(&quantile), "{quantile}");
    }
}
