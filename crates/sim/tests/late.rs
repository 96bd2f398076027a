//! A dispatcher that begins late has the same releases from then on as one that ran from the start.

use std::collections::BTreeMap;

use hyoshi_dispatch::Dispatcher;
use hyoshi_model::{Instant, OperationId, Span, read};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};
use proptest::prelude::*;

const TEXT: &str = r#"
name = "late"
duration = "2s"
[operation.plain]
every = "7ms"
wcet = "0.1ms"
[operation.phased]
every = "11ms"
phase = "3ms"
wcet = "0.1ms"
[operation.shaken]
every = "13ms"
jitter = "5ms"
wcet = "0.1ms"
[operation.three]
count = 3
every = "20ms"
stagger = "even"
wcet = "0.1ms"
[operation.resting]
every = "9ms"
wcet = "0.1ms"
[operation.after]
after = { any = ["plain"] }
wcet = "0.1ms"
[[epoch]]
at = "500ms"
set = { "operation.plain.every" = "5ms", "operation.resting.enabled" = false }
[[epoch]]
at = "1s"
set = { "operation.resting.enabled" = true }
"#;

/// The first job of each operation that becomes ready at or after an instant: its number, release and that time.
fn firsts(
    events: &[(Instant, TraceEvent)],
    from: Instant,
    of: impl Fn(OperationId) -> bool,
) -> BTreeMap<u32, (u64, Instant, Instant)> {
    let mut firsts = BTreeMap::new();
    for (at, event) in events {
        if let TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) = event
            && *at >= from
            && of(job.operation)
        {
            firsts.entry(job.operation.0).or_insert((job.number, *release, *at));
        }
    }
    firsts
}

proptest! {
    #[test]
    fn a_dispatcher_that_starts_late_continues_as_if_it_had_run(start in 0u64..1_900_000_000) {
        let system = read(TEXT, "late.toml", None).unwrap().system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let (start, end) = (Instant::from_nanos(start), Instant::ZERO + system.duration);
        let all = simulate(&system, &plan, end, |_| Vec::new(), |_| true);
        let mut late = Dispatcher::new(&system, &plan.processors[0], Vec::new());
        let mut effects = late.effects();
        prop_assert!(late.accepts(&system, start, &Input::Begin));
        late.handle(start, Input::Begin, &mut effects);
        late.handle(start, Input::Tick, &mut effects);
        while effects.timer < end {
            let at = effects.timer;
            late.handle(at, Input::Tick, &mut effects);
        }
        prop_assert!(!late.accepts(&system, end, &Input::Begin) || start + Span::from_millis(40) > end);
        let periodic = |id: OperationId| system.operation(id).trigger.predecessors().is_empty();
        let expected = firsts(&all.processors[0].probe, start, periodic);
        prop_assert_eq!(firsts(&late.into_probe(), start, periodic), expected);
    }
}
