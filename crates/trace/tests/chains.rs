//! End-to-end statistics of chains, against values computed by hand.

use crate::systems;

use hyoshi_model::*;
use hyoshi_trace::stats::{ChainStats, StagePart};
use hyoshi_trace::{JobEnd, JobOutcome, Signal, Stats};
use proptest::prelude::*;
use systems::{at, job, millis, operation, periodic, setting, uniform};

/// Operation 0 every 10 ms; 1 after it; 2 reads it, with a separate period of 10 ms.
fn system(chain: Chain) -> System {
    let mut system = periodic(3).into_contents();
    uniform(&mut system, setting(millis(10), millis(1)));
    system.operations[1] = operation(1, Trigger::All(vec![OperationId(0)]), false);
    system.operations[1].roots = vec![OperationId(0)];
    system.operations[2].reads = vec![OperationId(0)];
    system.chains = vec![chain];
    System::new(system)
}

fn chain(path: &[u32]) -> Chain {
    let path = path.iter().copied().map(OperationId).collect();
    Chain {
        name: "see".into(),
        path,
        deadline: Some(millis(12)),
        max_age: Some(millis(15)),
        max_reaction: Some(millis(25)),
        carried_by: Default::default(),
    }
}

fn record(system: &System, ends: &[JobEnd]) -> Stats {
    let mut stats = Stats::new(system);
    ends.iter().for_each(|end| stats.record(end));
    stats
}

#[test]
fn a_chain_of_triggers_counts_from_the_root_whatever_order_the_ends_come_in() {
    let system = system(chain(&[0, 1]));
    let output =
        |number: u64, finish| JobEnd { origin: at(number * 10), ..job(1, number, at(number * 10 + 2), at(finish)) };
    let stats = record(&system, &[output(0, 5), job(0, 0, at(0), at(2)), output(1, 24), output(3, 38)]);
    let chain = &stats.chains()[0];
    assert_eq!((chain.made, chain.missed, chain.lost, chain.unmatched), (2, 1, 0, 0));
    assert_eq!(chain.latency.extent().most(), Some(millis(14)));
    // An event just after the release at 10 ms shows at 38 ms.
    assert_eq!((chain.reaction.most(), chain.too_slow, chain.too_old), (Some(millis(28)), 1, 0));
    assert!(chain.violated());
}

#[test]
fn a_cancelled_job_loses_the_instance() {
    let system = system(chain(&[0, 1]));
    let stats = record(&system, &[JobEnd { outcome: JobOutcome::Cancelled, ..job(1, 0, at(0), at(2)) }]);
    assert_eq!((stats.chains()[0].lost, stats.chains()[0].violated()), (1, true));
}

#[test]
fn a_reader_reflects_what_was_complete_when_it_started() {
    let system = system(chain(&[0, 2]));
    let reader = |number, start, end| JobEnd { start: at(start), ..job(2, number, at(start), at(end)) };
    let ends = [
        reader(0, 0, 1),           // nothing to read yet
        job(0, 0, at(0), at(2)),   // complete at 2
        job(0, 1, at(10), at(14)), // complete at 14, while the next reader runs
        reader(1, 12, 15),         // reflects number 0: 15 ms old
        reader(2, 20, 21),         // reflects number 1: 11 ms old
        reader(3, 30, 31),         // the same again: 21 ms old
    ];
    let stats = record(&system, &ends);
    let chain = &stats.chains()[0];
    assert_eq!((chain.latency.extent().count(), chain.unmatched, chain.lost), (3, 0, 0));
    assert_eq!(chain.latency.extent().most(), Some(millis(21)));
    assert_eq!((chain.too_old, chain.missed), (1, 2));
    assert_eq!(chain.reaction.most(), Some(millis(21)));
}

/// Operation 2 is on another host, and reads a replica of operation 0 over a link of 3 ms.
fn replicated(flush: FlushPoint) -> System {
    system(chain(&[0, 2])).with(|system| {
        system.hosts.push(Host::named("far"));
        system.processors.push(Processor { name: "far".into(), host: HostId(1), ..system.processors[0].clone() });
        system.operations[2].on = ProcessorId(system.processors.len() as u32 - 1);
        system.operations[0].replication = Some(Replication { to: vec![HostId(1)], flush });
        system.links = vec![Link::new((HostId(0), HostId(1)), (millis(3), millis(3)))];
    })
}

#[test]
fn a_reader_of_a_replica_reflects_the_newest_output_that_was_flushed_in_time() {
    let reader = |number, start, end| JobEnd { start: at(start), ..job(2, number, at(start), at(end)) };
    let late = |number, release, end| JobEnd { outcome: JobOutcome::Missed, ..job(0, number, at(release), at(end)) };
    let ends = [
        job(0, 0, at(0), at(2)), // deadline 10: arrives at 13
        reader(0, 5, 6),
        reader(1, 12, 13),         // nothing yet
        reader(2, 13, 14),         // number 0: 14 ms old
        late(1, 10, 21),           // never flushed at the deadline
        job(0, 2, at(20), at(22)), // arrives at 33
        reader(3, 32, 33),         // number 0: 33 ms old
        reader(4, 33, 34),         // number 2: 14 ms old
    ];
    let system = replicated(FlushPoint::Deadline);
    let stats = record(&system, &ends);
    let seen = &stats.chains()[0];
    assert_eq!((seen.unmeasured, seen.latency.extent().count(), seen.unmatched, seen.lost), (None, 3, 0, 0));
    assert_eq!((seen.latency.extent().least(), seen.latency.extent().most()), (Some(millis(14)), Some(millis(33))));

    // At completion: at 5, 24 and 25.
    let stats = record(&replicated(FlushPoint::Completion), &ends);
    let seen = &stats.chains()[0];
    assert_eq!((seen.latency.extent().count(), seen.unmatched), (5, 0));
    assert_eq!(seen.latency.extent().most(), Some(millis(14)));

    let mut stats = record(&system, &ends[..4]);
    stats.over_networks();
    ends[4..].iter().for_each(|end| stats.record(end));
    let seen = &stats.chains()[0];
    assert!(seen.unmeasured.is_some() && seen.latency.extent().count() == 1, "the delays of a network are unknown");
    let changing = system.with(|system| system.links[0].loss_ppm = 1);
    assert!(record(&changing, &ends).chains()[0].unmeasured.is_some_and(|why| why.contains("loses")));
}

#[test]
fn a_chain_that_begins_in_the_middle_counts_from_its_own_first_release() {
    let system = system(chain(&[1, 2])).with(|system| {
        system.operations[2] = operation(2, Trigger::All(vec![OperationId(1)]), true);
        system.operations[2].roots = vec![OperationId(0)];
    });
    let first = JobEnd { origin: at(0), ..job(1, 0, at(3), at(5)) };
    let last = JobEnd { origin: at(0), ..job(2, 0, at(5), at(9)) };
    let stats = record(&system, &[first, last, JobEnd { job: JobId { number: 7, ..last.job }, ..last }]);
    let chain = &stats.chains()[0];
    assert_eq!(chain.latency.extent().most(), Some(millis(6)));
    assert_eq!(chain.unmatched, 1);
}

#[test]
fn a_chain_through_any_of_several_is_reported_as_not_measured() {
    let any = Trigger::Any(vec![OperationId(0), OperationId(2)]);
    let system = system(chain(&[0, 1])).with(|system| system.operations[1].trigger = any);
    let stats = record(&system, &[job(0, 0, at(0), at(2)), job(1, 0, at(2), at(30))]);
    let chain = &stats.chains()[0];
    assert!(chain.unmeasured.is_some() && !chain.violated());
}

#[test]
fn nothing_reacts_across_a_region_in_which_the_chain_is_switched_off() {
    let mut system = system(chain(&[0, 1])).into_contents();
    let mut settings = system.epochs[0].settings.to_vec();
    let on = system.epochs[0].settings.clone();
    settings[0].enabled = false;
    system.epochs.push(Epoch {
        name: "off".into(),
        at: at(20),
        settings: settings.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    system.epochs.push(Epoch {
        name: "on".into(),
        at: at(100),
        settings: on,
        environment: Default::default(),
        admissions: Default::default(),
    });
    let system = System::new(system);
    let output = |release| JobEnd { origin: at(release), ..job(1, release, at(release), at(release + 5)) };
    let stats = record(&system, &[output(0), output(10), output(100), output(110)]);
    let chain = &stats.chains()[0];
    assert_eq!((chain.reaction.count(), chain.reaction.most(), chain.too_slow), (2, Some(millis(15)), 0));
}

/// A guarded chain over two hosts. Operation 0 is on the first host. Operation 1 follows it on the second, with a guard
/// and an offset of 1 ms. Operation 2 follows in two legs, and 3 reads 2.
fn over_two_hosts() -> System {
    let mut system = periodic(4).into_contents();
    uniform(&mut system, setting(millis(10), millis(1)));
    system.hosts.push(Host::named("far"));
    system.processors.push(Processor { name: "far".into(), host: HostId(1), ..system.processors[0].clone() });
    for (id, before) in [(1u32, 0), (2, 1)] {
        let after = Trigger::All(vec![OperationId(before)]);
        system.operations[id as usize] = Operation { on: ProcessorId(1), ..operation(id, after, false) };
        system.operations[id as usize].roots = vec![OperationId(0)];
    }
    system.operations[1].guard = Guard::On;
    system.operations[3].reads = vec![OperationId(2)];
    system.operations[3].on = ProcessorId(1);
    let mut settings = system.epochs[0].settings.to_vec();
    settings[1].offset = millis(1);
    settings[2].legs = 2;
    system.epochs[0].settings = settings.into();
    system.chains = vec![chain(&[0, 1, 2]), chain(&[0, 1, 2, 3])];
    System::new(system)
}

/// The events of one instance. Times are in milliseconds.
fn instance(number: u64) -> (Signal, (JobId, Instant), Vec<JobEnd>) {
    let origin = at(10 * number);
    let since = |millis| origin + Span::from_millis(millis);
    let end = |operation, leg, release, ready, start, end, consumed| JobEnd {
        job: JobId { operation: OperationId(operation), number, leg },
        origin,
        release: since(release),
        ready: since(ready),
        start: since(start),
        consumed: millis(consumed),
        ..job(operation, number, origin, since(end))
    };
    let (from, to) = (OperationId(0), OperationId(1));
    let signal = Signal { from, to, position: 0, number, origin, period: millis(10), due: since(9), ticket: None };
    let ends = vec![
        // 1 ms of jitter, 2 ms in the queue, 3 ms of execution.
        end(0, 0, 0, 1, 3, 6, 3),
        // Arrives at 9, released at 10, guarded until 12; preempted for 1 ms.
        end(1, 0, 12, 12, 12, 15, 2),
        // Two legs, each behind another job for 1 ms.
        end(2, 0, 15, 15, 16, 17, 1),
        end(2, 1, 15, 17, 18, 20, 2),
        // Reads at its next release.
        end(3, 0, 24, 24, 25, 26, 1),
    ];
    (signal, (JobId { operation: to, number, leg: 0 }, since(9)), ends)
}

/// The parts of the slowest output, in milliseconds: network, release, guard, queue, execution.
fn slowest(chain: &ChainStats) -> Vec<[u64; 5]> {
    let millis = |span: Span| span.as_nanos() / 1_000_000;
    chain.stages.iter().map(|stage| StagePart::ALL.map(|part| millis(stage.slowest(part)))).collect()
}

#[test]
fn the_time_of_a_chain_is_divided_by_stage() {
    let system = over_two_hosts();
    let mut stats = Stats::new(&system);
    let (signal, (held, since), ends) = instance(0);
    stats.arrived(&signal, signal.due);
    stats.held(held, since);
    ends.iter().for_each(|end| stats.record(end));
    let stages = [[0, 1, 0, 2, 3], [3, 1, 2, 1, 2], [0, 0, 0, 2, 3], [0, 4, 0, 1, 1]];
    assert_eq!(slowest(&stats.chains()[0]), stages[..3]);
    assert_eq!(slowest(&stats.chains()[1]), stages);
    let by = stats.chains()[1].stages.iter().map(|stage| stage.by.extent().most().unwrap());
    assert_eq!(by.collect::<Vec<_>>(), [6, 15, 20, 26].map(millis));
    let first = &stats.chains()[0].stages[0];
    assert!(first.part(StagePart::Network).is_none() && first.part(StagePart::Guard).is_none());
}

#[test]
fn events_of_processors_come_one_after_the_other_and_without_a_signal_nothing_is_divided() {
    let system = over_two_hosts();
    let all: Vec<_> = (0..60).map(instance).collect();
    for signals in [true, false] {
        let mut stats = Stats::new(&system);
        for (signal, (held, since), ends) in &all {
            if signals {
                stats.arrived(signal, signal.due);
            }
            stats.held(*held, *since);
            ends[1..].iter().for_each(|end| stats.record(end));
        }
        all.iter().for_each(|(_, _, ends)| stats.record(&ends[0]));
        let chain = &stats.chains()[0];
        assert_eq!(chain.latency.extent().count(), 60);
        assert_eq!(chain.stages[0].by.extent().count(), if signals { 60 } else { 0 });
    }
}

#[test]
fn a_chain_of_one_operation_has_no_stages() {
    let system = system(chain(&[0]));
    let stats = record(&system, &[job(0, 0, at(0), at(2))]);
    assert!(stats.chains()[0].stages.is_empty() && stats.chains()[0].latency.extent().count() == 1);
}

proptest! {
    /// For all events of an instance: its parts sum to its latency, and no stage ends before the stage before it.
    #[test]
    fn the_parts_of_an_instance_sum_to_its_latency(
        times in prop::collection::vec(0u64..60_000_000, 24), number in 0u64..2_000, held: bool, order in Just([0, 1, 2, 3]).prop_shuffle()
    ) {
        let system = over_two_hosts();
        let mut stats = Stats::new(&system);
        let (signal, (job, _), mut ends) = instance(number);
        let origin = ends[0].origin;
        let since = |place: usize| origin + Span::from_nanos(times[place]);
        for (end, place) in ends.iter_mut().zip((0..).step_by(4)) {
            (end.ready, end.start, end.end) = (since(place), since(place + 1), since(place + 2));
            end.consumed = Span::from_nanos(times[place + 3]);
            end.outcome = JobOutcome::Made;
        }
        stats.arrived(&signal, since(20));
        if held {
            stats.held(job, since(21));
        }
        // The legs of a job, and a reader after what it reads, come in order.
        for part in order {
            ends[..4].iter().skip(part).take(1).filter(|end| end.job.leg == 0).for_each(|end| stats.record(end));
        }
        stats.record(&ends[3]);
        stats.record(&ends[4]);
        for chain in stats.chains() {
            let latency = chain.latency.extent();
            let divided = chain.stages[0].by.extent().count();
            prop_assert!(divided == latency.count() && (divided == 1 || chain.stages.len() == 4));
            let parts = chain.stages.iter().flat_map(|stage| StagePart::ALL.map(|part| stage.slowest(part)));
            prop_assert_eq!(parts.fold(Span::ZERO, |sum, part| sum + part), latency.most().unwrap_or_default());
            let by: Vec<_> = chain.stages.iter().map(|stage| stage.by.extent().most()).collect();
            prop_assert!(by.is_sorted(), "{:?}", by);
        }
    }
}
