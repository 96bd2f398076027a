//! End-to-end statistics of chains, against values computed by hand.

use crate::systems;

use hyoshi_model::*;
use hyoshi_trace::{JobEnd, JobOutcome, Stats};
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
    });
    system.epochs.push(Epoch { name: "on".into(), at: at(100), settings: on, environment: Default::default() });
    let system = System::new(system);
    let output = |release| JobEnd { origin: at(release), ..job(1, release, at(release), at(release + 5)) };
    let stats = record(&system, &[output(0), output(10), output(100), output(110)]);
    let chain = &stats.chains()[0];
    assert_eq!((chain.reaction.count(), chain.reaction.most(), chain.too_slow), (2, Some(millis(15)), 0));
}
