//! Two strategies on one processor of the kernel: the same rules as in the simulator.

use crate::common;

use common::{privileged, run};
use hyoshi_trace::{DispatchDecision, JobOutcome};

/// Rate monotonic alone never lets `control` finish in time: more frequent operations use the whole CPU.
fn overloaded(strategy: &str) -> String {
    format!(
        "
        duration = \"800ms\"
        [processor.main]
        strategy = {strategy}
        switch = {{ margin = \"5ms\", calm = \"150ms\" }}
        cap = \"95%\"
        cap_window = \"2s\"
        [operation.fast]
        every = \"20ms\"
        wcet = \"11ms\"
        [operation.brisk]
        every = \"25ms\"
        wcet = \"11ms\"
        [operation.control]
        every = \"100ms\"
        wcet = \"15ms\"
        critical = true
        "
    )
}

#[test]
fn the_second_strategy_rules_in_time_and_a_replay_switches_alike() {
    let ran = run(&overloaded("[\"RMS\", \"RMS+MLF\"]"));
    ran.replay();
    let switches: Vec<bool> = ran
        .decisions()
        .filter_map(|(_, decision)| match decision {
            DispatchDecision::Switch { second } => Some(*second),
            _ => None,
        })
        .collect();
    assert_eq!(switches.first(), Some(&true), "the first strategy rules at first");
    assert!(switches.windows(2).all(|pair| pair[0] != pair[1]), "{switches:?}");
    if privileged(&ran) {
        // One may be lost to other work of the machine.
        assert!(ran.count("control", JobOutcome::Made) >= 6, "{:?}", ran.ends_of("control"));
    }
    assert!(ran.finished_jobs("fast") > 10 && ran.finished_jobs("brisk") > 0);
}

#[test]
fn jobs_change_lanes_and_each_still_ends_once() {
    for preemption in ["none", "levels", "full"] {
        let text = overloaded("[\"EDF\", \"RMS+EDF\"]")
            .replace("[operation.fast]", &format!("preemption = \"{preemption}\"\n[operation.fast]"));
        let ran = run(&text);
        ran.replay();
        let mut ends: Vec<_> = ran.ends().map(|end| end.job).collect();
        let all = ends.len();
        ends.sort_unstable();
        ends.dedup();
        assert_eq!(ends.len(), all, "{preemption}");
        assert!(ran.finished_jobs("control") > 0 && ran.finished_jobs("fast") > 0, "{preemption}");
    }
}
