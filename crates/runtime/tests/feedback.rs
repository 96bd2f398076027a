//! Feedback control of rates on the kernel.

use crate::common;

use common::{privileged, run, undisturbed::undisturbed};
#[cfg(feature = "eucon")]
use hyoshi_model::Span;
use hyoshi_model::{OperationId, ProcessorId};
#[cfg(feature = "eucon")]
use hyoshi_runtime::{Node, RunNote};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

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
