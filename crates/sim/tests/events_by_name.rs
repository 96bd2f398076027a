//! Events by name: a file with them behaves as the file that names the suppliers.

use crate::common;

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System, read, write};
use hyoshi_replay::replay;
use hyoshi_sched::analysis::Verdict;
use hyoshi_sched::{Plan, Report, Strategies, analyse};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::{DiscardReason, DispatchDecision, Input, JobEnd, Stats, TraceEvent};

const FILE: &str = r#"
name = "events"
[event."sensor/gps/left"]
[event."sensor/gps/right"]
payload = "16B"
[event."sensor/imu"]
payload = "16B"
[event.alarm]
[host.drone]
[host.station]
[[link]]
between = ["drone", "station"]
delay   = ["1ms", "3ms"]
loss    = "10%"
[processor.air]
host     = "drone"
strategy = "RMS+MLF"
[processor.ground]
host = "station"
[operation.left]
on       = "air"
every    = "10ms"
wcet     = "1ms"
takes    = { uniform = ["0.2ms", "1ms"] }
supplies = ["sensor/gps/left"]
[operation.right]
on       = "air"
every    = "15ms"
wcet     = "1ms"
count    = 2
supplies = ["sensor/gps/right", "sensor/imu"]
[operation.watch]
on       = "ground"
after    = { event = "sensor/imu" }
wcet     = "1ms"
supplies = ["alarm"]
[operation.fuse]
on    = "ground"
after = { event = "sensor/gps/**" }
wcet  = "0.5ms"
[operation.one]
on    = "ground"
after = { event = "sensor/*/*", from = ["left"] }
wcet  = "0.5ms"
[operation.log]
on    = "air"
after = { event = ["**", "alarm"] }
wcet  = "0.1ms"
takes = { uniform = ["0.05ms", "0.1ms"] }
"#;

fn system(text: &str) -> System {
    read(text, "events.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

#[test]
fn a_file_with_events_behaves_as_one_that_names_the_suppliers() {
    let mut plain = FILE.replace("supplies = [\"sensor/gps/right\", \"sensor/imu\"]", "payload = '16B'");
    for (event, names) in [
        ("event = \"sensor/imu\"", "any = ['right']"),
        ("event = \"sensor/gps/**\"", "any = ['left', 'right']"),
        ("event = \"sensor/*/*\", from = [\"left\"]", "all = ['left']"),
        ("event = [\"**\", \"alarm\"]", "any = ['left', 'right', 'watch']"),
    ] {
        plain = plain.replace(event, names);
    }
    let plain: Vec<_> =
        plain.lines().filter(|line| !line.starts_with("supplies") && !line.starts_with("[event")).collect();
    let plain = system(&plain.join("\n").replacen("payload = \"16B\"\n", "", 2));
    let with_events = system(FILE);
    assert!(plain.events.is_empty() && with_events.events.iter().all(|event| !event.suppliers.is_empty()));
    assert!(with_events.clone().with(|contents| contents.events.clear()) == plain);

    let until = Instant::ZERO + Span::from_secs(2);
    let events = common::events(&with_events, until);
    assert!(events.len() > 1_000);
    assert!(events == common::events(&plain, until));
    assert!(events == common::events(&system(&write(&with_events)), until));
}

/// Two sensors with different rates, and what correlates them.
const SENSORS: &str = r#"
name = "correlated"
[event.gps]
[event."imu/left"]
[event."imu/right"]
[operation.gps]
every    = "40ms"
wcet     = "0.1ms"
phase    = "3ms"
supplies = ["gps"]
[operation.left]
every    = "10ms"
wcet     = "0.1ms"
phase    = "0ms"
supplies = ["imu/left"]
[operation.right]
every    = "25ms"
wcet     = "0.1ms"
phase    = "1ms"
supplies = ["imu/right"]
[operation.fuse]
wcet     = "0.1ms"
deadline = "5ms"
"#;

/// The events of the one processor, which must replay exactly.
fn play(system: &System, until: Instant, inputs: &[(Instant, Input)]) -> Vec<TraceEvent> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(at, input)| (*at, ProcessorId(0), *input)).collect();
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &inputs,
        requests: true,
        samples: true,
        links: None,
        hops: None,
    };
    let simulated = simulate_known(system, &plan, until, Some(given), None, |_| Vec::new(), |_| true);
    let events: Vec<(Instant, TraceEvent)> = simulated.processors.into_iter().next().unwrap().probe;
    replay(system, &plan.processors[0], events.iter().copied()).unwrap_or_else(|divergence| panic!("{divergence}"));
    events.into_iter().map(|(_, event)| event).collect()
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

fn ends(events: &[TraceEvent]) -> Vec<JobEnd> {
    let end = |event: &TraceEvent| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == FUSE => Some(*end),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

const FUSE: OperationId = OperationId(3);

fn discarded(system: &System, events: &[TraceEvent], reason: DiscardReason) -> u64 {
    let mut stats = Stats::new(system);
    events.iter().for_each(|event| hyoshi_trace::Probe::event(&mut stats, Instant::ZERO, *event));
    stats.discarded(FUSE, reason)
}

fn report(system: &System) -> Report {
    analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap())
}

fn verdict(system: &System) -> (Verdict, Option<u64>) {
    let report = report(system);
    let (.., fuse) = report.operations().find(|(.., one)| one.operation == FUSE).unwrap();
    (fuse.verdict.clone(), fuse.bound_ns)
}

#[test]
fn one_event_of_each_group_releases_a_job_if_their_origins_are_close() {
    let file = format!("{SENSORS}after = {{ all = [{{ event = 'gps' }}, {{ event = 'imu/**' }}], within = '4ms' }}");
    let system = system(&file);
    let events = play(&system, at(1_000), &[]);
    let ends = ends(&events);
    assert!(ends.len() > 20, "{}", ends.len());
    let mut used = std::collections::BTreeSet::new();
    for end in &ends {
        // The older of the two: of `gps` at 3 ms modulo 40, or of an IMU at most 4 ms before.
        let origin = end.origin.as_nanos() / 1_000_000;
        let gps = if origin % 40 == 3 { origin } else { (origin + 39 - 3) / 40 * 40 + 3 };
        assert!(gps - origin <= 4 && (origin % 40 == 3 || origin % 10 == 0 || origin % 25 == 1), "{end:?}");
        assert!(used.insert(origin), "used twice: {end:?}");
    }
    // Each of 25 + 100 + 40 completions is used, dropped, or waits; and every release uses two.
    let dropped = discarded(&system, &events, DiscardReason::TooOld);
    assert!((165 - 2 * ends.len() as u64 - 8..=165 - 2 * ends.len() as u64).contains(&dropped), "{dropped}");
    assert_eq!(discarded(&system, &events, DiscardReason::QueueFull), 0);
    // A bound despite the drops; without a window there is none.
    let (proved, bound) = verdict(&system);
    assert!(proved.is_proved() && bound.is_some(), "{proved:?}");
    let (unknown, bound) = verdict(&self::system(&file.replace(", within = '4ms'", "")));
    assert!(bound.is_none() && format!("{unknown:?}").contains("set `within`"), "{unknown:?}");
}

#[test]
fn origins_further_apart_than_the_window_are_never_joined() {
    let after = "after = { all = ['gps', { event = 'imu/left' }], within = ";
    // The roots are in step, 3 ms apart.
    let file = SENSORS.replace("every    = \"10ms\"", "every    = \"40ms\"");
    for (within, released, verdict_of) in [("'3ms' }", 25, true), ("'2.999ms' }", 0, false)] {
        let system = system(&format!("{file}{after}{within}"));
        let events = play(&system, at(1_000), &[]);
        assert_eq!(ends(&events).len(), released, "{within}");
        assert_eq!(discarded(&system, &events, DiscardReason::TooOld) > 0, released == 0);
        let (verdict, bound) = verdict(&system);
        assert!(verdict.is_proved(), "{verdict:?}");
        // In step there are no more releases than of one root.
        let utilisation = report(&system).scenes[0].processors[0].utilisation_ppm;
        assert_eq!((utilisation < 14_000, bound.is_some()), (verdict_of, true), "{utilisation}");
    }
}

#[test]
fn a_timeout_releases_an_operation_that_nothing_else_has_released_for_so_long() {
    let system = system(&format!("{SENSORS}after = {{ event = 'gps' }}\ntimeout = '15ms'"));
    let events = play(&system, at(100), &[]);
    // Nothing at first; `gps` completes at 3.1, 43.1 and 83.1 ms.
    let releases: Vec<u64> = ends(&events).iter().map(|end| end.release.as_nanos() / 100_000).collect();
    assert_eq!(releases, [31, 181, 331, 431, 581, 731, 831, 981]);
    let timed_out = |event: &&TraceEvent| matches!(event, TraceEvent::Decision(DispatchDecision::TimeOut { .. }));
    assert_eq!(events.iter().filter(timed_out).count(), 5);
    for end in ends(&events).iter().filter(|end| !(end.release.as_nanos() / 100_000 % 400).is_multiple_of(31)) {
        assert_eq!(end.origin, end.release);
    }
    assert!(verdict(&system).0.is_proved());
    // At the very instant of an event it is not over: the event releases one job.
    let exact = self::system(&format!("{SENSORS}after = {{ event = 'gps' }}\ntimeout = '40ms'"));
    let events = play(&exact, at(1_000), &[]);
    assert_eq!(events.iter().filter(timed_out).count(), 0);
    assert_eq!(ends(&events).len(), 25);
}

#[test]
fn a_suspended_operation_drops_its_triggers_and_counts_them() {
    let after = "after = { all = ['gps', { event = 'imu/right' }], within = '30ms' }\ntimeout = '20ms'";
    let system = system(&format!("{SENSORS}{after}"));
    let input = |on| Input::SuspendTriggers { operation: FUSE, on };
    let events = play(&system, at(300), &[(at(100), input(true)), (at(150), input(true)), (at(200), input(false))]);
    let releases: Vec<u64> = ends(&events).iter().map(|end| end.release.as_nanos() / 1_000_000).collect();
    assert!(releases.iter().all(|release| !(100..200).contains(release)), "{releases:?}");
    assert!(releases.iter().any(|release| *release < 100) && releases.iter().any(|release| *release > 210));
    // `gps` at 123 and 163, `right` at 101, 126, 151 and 176; and those that wait for the others when it is suspended.
    let dropped = discarded(&system, &events, DiscardReason::Suspended);
    assert!((6..=8).contains(&dropped), "{dropped}");
    // Nothing is released in 200 to 220 ms but by an event: the timeout counts from the resumption.
    let next = releases.iter().find(|release| **release >= 200).unwrap();
    assert!((203..=220).contains(next), "{releases:?}");
}

#[test]
fn completions_beyond_the_queue_of_a_join_are_counted() {
    let system = system(&format!("{SENSORS}after = {{ all = ['gps', 'left'] }}"));
    let events = play(&system, at(1_000), &[]);
    // Of 100 completions of `left`, 25 are used, 8 wait, and newer ones push out the others.
    assert_eq!((ends(&events).len(), discarded(&system, &events, DiscardReason::QueueFull)), (25, 67));
}

#[test]
fn a_job_with_an_older_origin_than_its_lifespan_does_not_start() {
    // `gps` finishes 0.1 ms after its release, the origin, and nothing else runs at these times.
    for (lifespan, expired, proved) in [("0.099ms", 25, false), ("0.1ms", 0, false), ("50ms", 0, true)] {
        let system = system(&format!("{SENSORS}after = {{ event = 'gps' }}\nlifespan = '{lifespan}'"));
        let ends = ends(&play(&system, at(1_000), &[]));
        let count = ends.iter().filter(|end| end.outcome == hyoshi_trace::JobOutcome::Expired).count();
        assert_eq!((ends.len(), count), (25, expired), "{lifespan}");
        let (verdict, bound) = verdict(&system);
        assert!(verdict.is_proved() == proved && bound.is_some(), "{lifespan}: {verdict:?}");
        assert!(proved || format!("{verdict:?}").contains("Expires"), "{verdict:?}");
    }
}
