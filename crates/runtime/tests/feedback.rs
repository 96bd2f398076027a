//! Feedback control of rates on the kernel.

use crate::common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{privileged, run, run_with, undisturbed::undisturbed};
#[cfg(feature = "eucon")]
use hyoshi_model::ProcessorId;
use hyoshi_model::{OperationId, Span};
#[cfg(feature = "eucon")]
use hyoshi_runtime::{Node, RunNote};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, TraceEvent};

/// Jobs need twice their declared time. At the lowest rates they use 8 % of the CPU.
const LOOP: &str = "
    duration = \"4s\"
    [processor.main]
    strategy = \"RMS\"
    [feedback.main]
    algorithm = \"FC-U\"
    utilisation = \"50%\"
    period = \"100ms\"
    measure = \"lanes\"
    [operation.track]
    rate = [\"20Hz\", \"1kHz\"]
    wcet = \"1ms\"
    takes = { uniform = [\"2ms\", \"2ms\"] }
    [operation.show]
    rate = [\"10Hz\", \"500Hz\"]
    wcet = \"2ms\"
    takes = { uniform = [\"4ms\", \"4ms\"] }
    ";

#[test]
fn rates_rise_to_the_set_point_and_a_replay_sets_the_same() {
    undisturbed(|| {
        let ran = run(LOOP);
        ran.replay();
        let samples: Vec<u32> = ran
            .decisions()
            .filter_map(|(_, decision)| match decision {
                DispatchDecision::Sample { utilisation, .. } => *utilisation,
                _ => None,
            })
            .collect();
        assert!(samples.len() > 20, "{samples:?}");
        assert!(ran.finished_jobs("track") > 100 && ran.finished_jobs("show") > 50);
        if privileged(&ran) {
            let last = &samples[samples.len() / 2..];
            let mean = last.iter().map(|ppm| u64::from(*ppm)).sum::<u64>() / last.len() as u64;
            assert!((440_000..560_000).contains(&mean), "{samples:?}");
        }
    });
}

/// Jobs of `track` need 2 ms, so their latency is above each shorter set point.
#[test]
fn rates_fall_while_the_latency_is_above_its_set_point_and_rise_while_it_is_below() {
    let run_at = |at: &str, start: &str| {
        let latency = format!("latency = {{ of = \"track\", quantile = \"90%\", at = \"{at}\" }}\nstart = \"{start}\"");
        let ran = run(&LOOP
            .replace("FC-U", "FC-UL")
            .replace("measure", &format!("{latency}\nmeasure"))
            .replace("[\"20Hz\", \"1kHz\"]", "[\"20Hz\", \"100Hz\"]")
            .replace("[\"10Hz\", \"500Hz\"]", "[\"10Hz\", \"50Hz\"]"));
        ran.replay();
        let mut totals = Vec::new();
        for (_, decision) in ran.decisions() {
            match decision {
                DispatchDecision::Latency { quantile, jobs } => {
                    assert!(*jobs > 0 && *quantile >= Span::from_millis(2), "{quantile} of {jobs} jobs");
                }
                DispatchDecision::Sample { total, .. } => totals.push(*total),
                _ => {}
            }
        }
        totals
    };
    // The declared load at the lowest rates is 4 %, at the highest 20 %.
    undisturbed(|| {
        let down = run_at("1ms", "highest");
        assert!(down.is_sorted_by(|one, next| one >= next) && *down.last().unwrap() < 41_000, "{down:?}");
    });
    undisturbed(|| {
        let up = run_at("10s", "lowest");
        assert!(up.is_sorted() && *up.last().unwrap() > 100_000, "{up:?}");
    });
}

#[test]
fn bodies_read_the_level_of_their_job_and_built_in_work_has_its_time() {
    let text = "
        duration = \"2s\"
        [processor.main]
        strategy = \"RMS\"
        [feedback.main]
        algorithm = \"FC-U\"
        utilisation = \"50%\"
        period = \"100ms\"
        measure = \"lanes\"
        divide = \"value\"
        [operation.read]
        rate = \"50Hz\"
        levels = [{ name = \"low\", wcet = \"0.5ms\", value = 1 }, { name = \"high\", wcet = \"1ms\", value = 3 }]
        [operation.spin]
        rate = \"50Hz\"
        levels = [{ name = \"low\", wcet = \"1ms\", value = 1 }, { name = \"high\", wcet = \"2ms\", value = 2 }]
        [operation.plain]
        rate = \"50Hz\"
        wcet = \"0.1ms\"
        ";
    let read = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&read);
    let ran = run_with(text, move |node, _| {
        let node = node.body("plain", |job| assert_eq!(job.level(), None));
        node.body("read", move |job| {
            let level = ["low", "high"].iter().position(|name| job.level() == Some(name));
            seen.lock().unwrap().insert(job.job().number, level);
        })
    });
    ran.replay();
    let (read, [of_body, built_in]) = (read.lock().unwrap(), [ran.id("read"), ran.id("spin")]);
    let (mut levels, mut released) = (BTreeMap::from([(of_body, 0u8), (built_in, 0)]), BTreeMap::new());
    for (_, decision) in ran.decisions() {
        match decision {
            DispatchDecision::Level { operation, level } => drop(levels.insert(*operation, *level)),
            DispatchDecision::Ready { job, .. } => drop(released.insert(*job, levels.get(&job.operation).copied())),
            DispatchDecision::End(end) if end.outcome == JobOutcome::Made && end.job.operation == of_body => {
                assert_eq!(read[&end.job.number], released[&end.job].map(usize::from), "{end:?}");
            }
            DispatchDecision::End(end) if end.outcome == JobOutcome::Made && end.job.operation == built_in => {
                let millis = 1 + u64::from(released[&end.job].unwrap());
                assert_eq!(end.consumed, Span::from_millis(millis), "{end:?}");
            }
            _ => {}
        }
    }
    // The load is far below the set point.
    assert_eq!(levels.into_values().collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_loop_sets_rates_of_another_processor() {
    let text = LOOP.replace("[processor.main]", "[processor.client]\n[processor.main]").replace(
        "[operation.track]",
        "[operation.poll]\non = \"client\"\nrate = [\"20Hz\", \"1kHz\"]\nwcet = \"0.1ms\"\n[operation.track]\non = \"main\"",
    );
    let text = text
        .replace("on = \"main\"\n    rate = [\"20Hz\", \"1kHz\"]", "on = \"main\"\n    after = { all = [\"poll\"] }");
    let text = text.replace("[operation.show]", "[operation.show]\n    on = \"main\"");
    let ran = run(&text);
    ran.replay();
    let poll = OperationId(0);
    let retimed = ran
        .events
        .iter()
        .filter(|(.., event)| matches!(event, TraceEvent::Input(Input::Adapt { operation, .. }) if *operation == poll));
    assert!(retimed.count() > 5, "the client's processor gets its rates");
    // More than at the lowest rate.
    assert!(ran.finished_jobs("poll") > 100);
}

/// Two processors that two chains couple. Jobs need 1.5 times their declared time.
#[cfg(feature = "eucon")]
const GROUP: &str = "
    duration = \"10s\"
    [processor.front]
    strategy = \"RMS\"
    [processor.back]
    strategy = \"RMS\"
    [feedback.front]
    algorithm = \"EUCON\"
    utilisation = \"50%\"
    period = \"200ms\"
    measure = \"lanes\"
    [feedback.back]
    algorithm = \"EUCON\"
    utilisation = \"60%\"
    period = \"200ms\"
    measure = \"lanes\"
    [operation.sense]
    on = \"front\"
    rate = [\"10Hz\", \"400Hz\"]
    wcet = \"1ms\"
    takes = { uniform = [\"1.5ms\", \"1.5ms\"] }
    [operation.fuse]
    on = \"back\"
    after = { all = [\"sense\"] }
    wcet = \"1ms\"
    takes = { uniform = [\"1.5ms\", \"1.5ms\"] }
    [operation.plan]
    on = \"back\"
    rate = [\"10Hz\", \"400Hz\"]
    wcet = \"2ms\"
    takes = { uniform = [\"3ms\", \"3ms\"] }
    [operation.show]
    on = \"front\"
    after = { all = [\"plan\"] }
    wcet = \"0.5ms\"
    takes = { uniform = [\"0.75ms\", \"0.75ms\"] }
    ";

#[cfg(feature = "eucon")]
#[test]
fn a_coordinator_holds_the_utilisation_of_two_processors_and_a_replay_sets_the_same() {
    for algorithm in ["EUCON", "DEUCON"] {
        let text = GROUP.replace("EUCON", algorithm);
        undisturbed(|| {
            let ran = run(&text);
            ran.replay();
            let rates = |processor| {
                let adapted = ran.events.iter().filter(|(at, _, event)| {
                    *at == processor && matches!(event, TraceEvent::Input(Input::Adapt { .. }))
                });
                adapted.count()
            };
            for (processor, set) in [(ProcessorId(0), 500_000), (ProcessorId(1), 600_000)] {
                let samples: Vec<u32> = ran
                    .events
                    .iter()
                    .filter(|(at, ..)| *at == processor)
                    .filter_map(|(.., event)| match event {
                        TraceEvent::Decision(DispatchDecision::Sample { utilisation, .. }) => *utilisation,
                        _ => None,
                    })
                    .collect();
                assert!(samples.len() > 20, "{samples:?}");
                assert!(rates(processor) > 20, "{} rates", rates(processor));
                // On one CPU both processors share its time.
                if privileged(&ran) && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
                    let last = &samples[samples.len() / 2..];
                    let mean = last.iter().map(|ppm| u64::from(*ppm)).sum::<u64>() / last.len() as u64;
                    eprintln!("{algorithm}, {processor:?}: {mean} of {set}");
                    assert!((set * 85 / 100..set * 115 / 100).contains(&mean), "{algorithm}: {samples:?}");
                }
            }
        });
    }
}

/// The CPU to which the thread of coordinators is pinned, as in `/proc`.
#[cfg(feature = "eucon")]
fn cpu_of_coordinator() -> Option<u32> {
    for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "hyoshi-group" {
            let status = read("status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            return list.trim().parse().ok();
        }
    }
    None
}

#[cfg(feature = "eucon")]
#[test]
fn a_coordinator_is_pinned_and_skips_steps_if_they_need_more_than_a_quarter_of_the_time() {
    // The checker would refuse this sampling period.
    let mut text = String::from("duration = \"1s\"\n[processor.front]\n[processor.back]\n");
    for processor in ["front", "back"] {
        text += &format!(
            "[feedback.{processor}]\nalgorithm = \"EUCON\"\nutilisation = \"50%\"\nmeasure = \"lanes\"\n\
             [operation.{processor}]\non = \"{processor}\"\ncount = 30\nrate = [\"0.5Hz\", \"1Hz\"]\nwcet = \"0.1ms\"\n"
        );
    }
    let (send, cpu) = std::sync::mpsc::channel();
    let ran = common::run_beside(&text, |_, system| {
        let short = system.clone().with(|contents| {
            contents.feedback.iter_mut().for_each(|one| one.period = Span::from_millis(1));
        });
        let node = Node::new(short.into(), common::plan(system));
        std::thread::spawn(move || {
            common::until("the thread of coordinators", || {
                cpu_of_coordinator().is_some_and(|cpu| send.send(cpu).is_ok())
            })
        });
        (node, ())
    });
    assert_eq!(cpu.recv().unwrap(), ran.finished.stolen[0].1);
    let [group] = ran.finished.groups[..] else { panic!("{:?}", ran.finished.groups) };
    assert!(group.skipped > 0 && group.skipped < group.steps && group.unsolved == 0, "{group:?}");
    assert!(ran.finished.notes.contains(&RunNote::SkippedSteps(group)));
}
