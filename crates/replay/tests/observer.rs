//! The observer's statistics, compared with statistics computed without it.

use crate::systems;

use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_replay::Observer;
use hyoshi_trace::{CpuEvent, CpuUser, DispatchDecision, JobEnd, Stats, TraceEvent};
use proptest::prelude::*;
use systems::{at, job, periodic};

const PROCESSOR: ProcessorId = ProcessorId(0);

fn feed(observer: &mut Observer<'_>, ends: &[JobEnd]) {
    for end in ends {
        let overhead = CpuEvent::Overhead { who: CpuUser::Release, span: Span::from_nanos(1) };
        observer.event(PROCESSOR, end.end, &TraceEvent::Cpu(overhead));
        observer.event(PROCESSOR, end.end, &TraceEvent::Decision(DispatchDecision::End(*end)));
    }
}

/// All counts as text.
fn shown(stats: &Stats) -> String {
    let rows = stats.rows().iter().map(|row| {
        let quantiles = [0.5, 0.9, 1.0].map(|share| (row.response().quantile(share), row.lateness().quantile(share)));
        format!("{:?} {quantiles:?} {:?} {:?}", stats.row_counts(row), row.execution(), row.response().extent())
    });
    let first = [true, false].map(|critical| stats.first_not_made(critical).copied());
    format!("{:?} {first:?} {:?}", rows.collect::<Vec<_>>(), stats.service(0, |_| true))
}

proptest! {
    #[test]
    fn it_can_be_read_at_any_time_and_counts_what_statistics_do(
        operations in prop_oneof![Just(3usize), Just(200)],
        ends in proptest::collection::vec((0u32..200, 0u64..50, 1u64..40), 0..300),
        read in 0usize..300,
    ) {
        let system = periodic(operations);
        let job = |(operation, release, response): (u32, u64, u64)| {
            job(operation % operations as u32, release, at(release), at(release + response))
        };
        let ends: Vec<JobEnd> = ends.into_iter().map(job).collect();
        let (before, after) = ends.split_at(read.min(ends.len()));
        let mut observer = Observer::new(&system).keeping_ends(true);
        let mut stats = Stats::new(&system);
        for part in [before, after] {
            feed(&mut observer, part);
            part.iter().for_each(|end| stats.record(end));
            let figures = observer.figures(at(1_000_000));
            prop_assert_eq!(shown(figures.stats), shown(&stats));
            let counted = figures.stats.counts(None, |_| true);
            prop_assert_eq!(figures.time[0].execution, counted.consumed);
            prop_assert_eq!(figures.time[0].overhead, Span::from_nanos(counted.released()));
            prop_assert_eq!(figures.ends[0].len() as u64, counted.released());
        }
    }
}

#[test]
fn an_event_allocates_nothing() {
    let mut observer = Observer::new(&periodic(200));
    let counted = allocation_counter::measure(|| {
        for number in 0..10_000u64 {
            let end = job((number % 200) as u32, number, at(number), at(number + number * number % 100_000));
            observer.event(PROCESSOR, Instant::ZERO, &TraceEvent::Decision(DispatchDecision::End(end)));
            observer.event(PROCESSOR, Instant::ZERO, &TraceEvent::Decision(DispatchDecision::Switch { second: false }));
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(observer.stats().counts(None, |_| true).released(), 10_000);
}
