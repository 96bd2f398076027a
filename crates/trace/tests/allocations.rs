//! The path of an event allocates nothing after the start.

use crate::systems;

use hyoshi_model::{Chain, Guard, Instant, JobId, OperationId, System, Trigger};
use hyoshi_trace::ring::ring;
use hyoshi_trace::{Input, Probe, Stats, TraceEvent};
use systems::{at, job, millis, operation, periodic};

fn allocations(path: impl FnOnce()) -> u64 {
    allocation_counter::measure(path).count_total
}

#[test]
fn counting_a_job_end_does_not_allocate() {
    let mut system = periodic(10).into_contents();
    let path = vec![OperationId(0), OperationId(1)];
    system.operations[1].reads = vec![OperationId(0)];
    system.chains.push(Chain {
        name: "see".into(),
        path,
        deadline: Some(millis(9)),
        max_age: None,
        max_reaction: Some(millis(20)),
    });
    system.operations[3] = operation(3, Trigger::All(vec![OperationId(2)]), false);
    (system.operations[3].roots, system.operations[3].guard) = (vec![OperationId(2)], Guard::On);
    let path = vec![OperationId(2), OperationId(3)];
    system.chains.push(Chain { path, name: "do".into(), ..system.chains[0].clone() });
    let mut stats = Stats::new(&System::new(system));
    let counted = allocations(|| {
        for number in 0..10_000u64 {
            stats.held(JobId { operation: OperationId(3), number: number / 10, leg: 0 }, at(number));
            // Some are far beyond every range, and most are missed at some time.
            let response = 1 + number * number % 100_000;
            stats.record(&job((number % 10) as u32, number / 10, at(number), at(number + response)));
        }
    });
    assert_eq!(counted, 0);
    assert!(stats.counts(None, |_| true).missed() > 1_000);
    assert!(stats.chains().iter().all(|chain| chain.stages[1].by.extent().count() > 900));
}

#[test]
fn neither_a_push_nor_a_loss_nor_a_drain_of_the_ring_allocates() {
    let (mut probe, mut drain) = ring(100);
    let counted = allocations(|| {
        for at in 0..150 {
            probe.event(Instant::from_nanos(at), TraceEvent::Input(Input::Tick));
        }
        assert_eq!(drain.drain(|_, _| ()), 100);
    });
    assert_eq!((counted, drain.lost()), (0, 50));
}
