//! Forged recordings.

use hyoshi_model::{Instant, Span, read};
use hyoshi_replay::{Divergence, Replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

#[test]
fn an_input_that_would_release_too_many_jobs_is_impossible() {
    for period in ["1ns", "1us"] {
        let file = format!("name = \"h\"\n[operation.o]\nevery = \"{period}\"\nwcet = \"1ns\"\n");
        let system = read(&file, "h", None).unwrap().system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let mut replay = Replay::new(&system, &plan.processors[0]);
        replay.event(Instant::ZERO, TraceEvent::Decision(DispatchDecision::Epoch { index: 0 })).unwrap();
        let late = replay.event(Instant::ZERO + Span::from_secs(59), TraceEvent::Input(Input::Tick));
        assert!(matches!(late, Err(error) if matches!(*error, Divergence::Impossible { .. })));
    }
}
