//! The path of an event allocates nothing after the start.

use crate::systems;

use hyoshi_model::{Chain, Deadline, Guard, Instant, JobId, OperationId, Setting, Span, System, Trigger};
use hyoshi_trace::ring::ring;
use hyoshi_trace::stats::ChainStats;
use hyoshi_trace::{Input, Probe, Stats, TraceEvent};
use systems::{at, job, millis, operation, periodic, setting, uniform};

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
        carried_by: Default::default(),
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

/// A chain of triggers every `period` through all operations but the last, as often as fits into `stages`. The first
/// operation is off in every other region.
fn many_stages(operations: usize, epochs: usize, period: Span, stages: usize) -> System {
    let mut system = periodic(operations).into_contents();
    let often = Setting { deadline: Deadline::Own(millis(1)), ..setting(period, Span::from_nanos(1)) };
    uniform(&mut system, often);
    for id in 1..operations as u32 - 1 {
        system.operations[id as usize] = operation(id, Trigger::All(vec![OperationId(id - 1)]), false);
        system.operations[id as usize].roots = vec![OperationId(0)];
    }
    let path: Vec<_> = (0..operations as u32 - 1).map(OperationId).collect();
    let chain = |index| Chain {
        name: format!("c{index}"),
        path: path.clone(),
        deadline: Some(millis(9)),
        max_age: None,
        max_reaction: None,
        carried_by: Default::default(),
    };
    system.chains = (0..stages / path.len()).map(chain).collect();
    let epoch = |index: usize| {
        let mut epoch = system.epochs[0].clone();
        epoch.at = at(index as u64);
        if index % 2 == 1 {
            let mut settings = epoch.settings.to_vec();
            settings[0].enabled = false;
            epoch.settings = settings.into();
        }
        epoch
    };
    system.epochs = (0..epochs).map(epoch).collect();
    System::new(system)
}

/// The stages of all chains may need at most so many bytes beyond what their operations need.
const OF_STAGES: u64 = 160 << 20;

#[test]
fn a_hundred_thousand_stages_need_bounded_memory() {
    let often = Span::from_micros(100);
    for (operations, epochs, period, recorded) in
        [(401, 1, often, 3), (51, 500, often, 26), (11, 1_000, millis(10), 500)]
    {
        let system = many_stages(operations, epochs, period, 100_000);
        let mut without = System::clone(&system).into_contents();
        without.chains.clear();
        let without = System::new(without);
        let of_operations = allocation_counter::measure(|| drop(Stats::new(&without))).bytes_max;
        let mut stats = None;
        let all = allocation_counter::measure(|| stats = Some(Stats::new(&system))).bytes_max;
        assert!(all < of_operations + OF_STAGES, "{all} bytes, {of_operations} of them without chains");
        let mut stats = stats.unwrap();
        assert_eq!(stats.chains().iter().filter(|chain| !chain.stages_omitted).count(), recorded);
        assert!(stats.chains().iter().all(|chain| chain.stages_omitted == chain.stages.is_empty()));
        let counted = allocations(|| {
            for number in 0..10 {
                (0..operations as u32 - 1).for_each(|id| stats.record(&job(id, number, at(number), at(number + 1))));
            }
        });
        assert_eq!(counted, 0);
        let counts = |chain: &ChainStats| (chain.latency.extent().count(), chain.unmeasured);
        assert!(stats.chains().iter().all(|chain| counts(chain) == (10, None)));
        assert_eq!(stats.chains()[0].stages[0].by.extent().count(), 10);
    }
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
