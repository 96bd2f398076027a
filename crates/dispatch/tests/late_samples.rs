//! Samples that are late: the process was stopped, or the virtual machine paused, and its clock has jumped.

use std::cmp::Ordering;

use hyoshi_dispatch::Dispatcher;
use hyoshi_model::{ALGORITHMS, FeedbackAlgorithm, Instant, Span, read};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use crate::Keep;

/// A sample after one second, and one at this time, with one job in each period: whether the second raises the total.
fn change_by_second(algorithm: FeedbackAlgorithm, at_ms: u64, completed_ms: u64, utilisation: u32) -> Ordering {
    let set_points = match algorithm {
        FeedbackAlgorithm::FcU => "utilisation = '70%'",
        FeedbackAlgorithm::FcM => "miss_ratio = '1.5%'",
        FeedbackAlgorithm::FcUl => "utilisation = '70%'\nlatency = { of = 'track', at = '900ms' }",
        _ => "utilisation = '70%'\nmiss_ratio = '1.5%'",
    };
    let text = format!(
        "name = 'late'\n[processor.main]\n[feedback.main]\nalgorithm = '{}'\n{set_points}\nperiod = '1s'\ngains = {{ ga = 100, gm = 0.447 }}\n\
         [operation.track]\nrate = ['1Hz', '40Hz']\nwcet = '10ms'\n",
        algorithm.name()
    );
    let system = read(&text, "late.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let mut dispatcher = Dispatcher::new(&system, &plan.processors[0], Keep::default());
    let mut effects = dispatcher.effects();
    let at = |ms: u64| Instant::ZERO + Span::from_millis(ms);
    for (released, completed, sampled, utilisation) in
        [(0, 10, 1_000, 100_000), (1_000, completed_ms, at_ms, utilisation)]
    {
        dispatcher.handle(at(released), Input::Tick, &mut effects);
        dispatcher.handle(at(released), Input::LaneRuns { lane: 0, executed: Span::ZERO }, &mut effects);
        let slot = effects.run.expect("a job starts").slot;
        let consumed = Span::from_millis(10);
        dispatcher.handle(at(completed), Input::Complete { slot, consumed, ticket: None }, &mut effects);
        dispatcher.handle(at(sampled), Input::Sample { utilisation: Some(utilisation) }, &mut effects);
    }
    let totals = dispatcher.probe().0.iter().filter_map(|(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::Sample { total, .. }) => Some(*total),
        _ => None,
    });
    let [first, second] = totals.collect::<Vec<_>>()[..] else { panic!("two samples") };
    second.cmp(&first)
}

#[test]
fn a_late_sample_may_lower_rates_but_raises_none() {
    for (algorithm, name, _) in ALGORITHMS {
        let light = |at| change_by_second(algorithm, at, 1_010, 100_000);
        let overloaded = |at| change_by_second(algorithm, at, 1_999, 1_000_000);
        for in_time in [2_000, 2_400] {
            assert_eq!(light(in_time), Ordering::Greater, "{name} after {in_time} ms");
        }
        for late in [2_600, 5_000, 100_000] {
            assert_ne!(light(late), Ordering::Greater, "{name} after {late} ms");
            assert_eq!(overloaded(late), Ordering::Less, "{name} after {late} ms");
        }
    }
}
