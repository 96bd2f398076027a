//! Feedback control of rates on the kernel.

use crate::common;

use common::{privileged, run, undisturbed};
use hyoshi_model::OperationId;
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
    let retimed = ran.events.iter().filter(
        |(.., event)| matches!(event, TraceEvent::Input(Input::Retime { operation, .. }) if *operation == poll),
    );
    assert!(retimed.count() > 5, "the client's processor gets its rates");
    // More than at the lowest rate.
    assert!(ran.finished_jobs("poll") > 100);
}
