//! Statistics of job ends with known values.

use crate::systems;

use hyoshi_model::*;
use hyoshi_trace::stats::{Phase, Phases};
use hyoshi_trace::{JobEnd, JobOutcome, JobService, Stats};
use systems::{at, job, millis, periodic, setting, uniform};

#[test]
fn each_outcome_is_counted_for_its_class_and_epoch() {
    let system = periodic(2);
    let second = Epoch {
        name: "1".into(),
        at: at(100),
        settings: system.epochs[0].settings.clone(),
        environment: Default::default(),
        admissions: Default::default(),
    };
    let system = system.with(|system| system.epochs.push(second));
    let mut stats = Stats::new(&system);
    for (number, outcome) in JobOutcome::ALL.into_iter().enumerate() {
        stats.record(&JobEnd { outcome, epoch: 1, ..job(1, number as u64, at(0), at(5)) });
    }
    stats.record(&JobEnd { overran: true, ..job(0, 0, at(0), at(5)) });

    let other = stats.counts(Some(1), |row| !row.critical());
    assert_eq!((other.released(), other.made(), other.missed()), (8, 1, 1));
    assert_eq!((other.cancelled(), other.stopped(), other.dropped()), (1, 1, 4));
    assert_eq!(stats.counts(Some(0), |row| !row.critical()).released(), 0);
    let critical = stats.counts(None, |row| row.critical());
    assert_eq!((critical.made(), critical.overran, critical.consumed), (1, 1, millis(1)));
}

#[test]
fn response_and_lateness_keep_their_extremes() {
    let mut stats = Stats::new(&periodic(1));
    stats.record(&job(0, 0, at(0), at(4)));
    stats.record(&job(0, 1, at(10), at(23)));
    let row = &stats.rows()[0];
    assert_eq!(row.response().extent().most(), Some(millis(13)));
    assert_eq!(row.lateness().extent().least(), Some(Lateness::from_nanos(-6_000_000)));
    assert_eq!(row.lateness().quantile(1.0), Some(Lateness::from_nanos(3_000_000)));
    assert_eq!(row.start_latency().most(), Some(millis(12)));
}

#[test]
fn a_load_chain_counts_its_critical_and_its_other_legs_apart() {
    let mut system = periodic(2).into_contents();
    let legs = Setting { legs: 4, critical_legs: 1, ..setting(millis(10), millis(1)) };
    uniform(&mut system, legs);
    system.operations.iter_mut().for_each(|operation| operation.critical = false);
    let mut stats = Stats::new(&System::new(system));
    assert_eq!(stats.rows().len(), 4);
    stats.record(&JobEnd { critical: true, ..job(1, 0, at(0), at(2)) });
    stats.record(&JobEnd { critical: false, outcome: JobOutcome::Cancelled, ..job(1, 0, at(0), at(2)) });
    assert_eq!(stats.counts(None, |row| row.critical()).made(), 1);
    assert_eq!(stats.counts(None, |row| !row.critical()).cancelled(), 1);
}

#[test]
fn the_latest_three_misses_of_each_operation_are_kept_worst_first() {
    let mut stats = Stats::new(&periodic(3));
    for (number, late) in [3, 9, 1, 7, 5].into_iter().enumerate() {
        stats.record(&job(0, number as u64, at(0), at(10 + late)));
    }
    stats.record(&job(2, 0, at(0), at(16)));
    let worst = stats.worst(true, 20);
    let numbers: Vec<(u32, u64)> = worst.iter().map(|end| (end.job.operation.0, end.job.number)).collect();
    assert_eq!(numbers, [(0, 1), (0, 3), (2, 0), (0, 4)]);
    assert_eq!(stats.worst(true, 2).len(), 2);
    assert!(stats.worst(false, 20).is_empty());
}

#[test]
fn the_phases_of_a_miss_add_up_to_its_response_time() {
    let setting = Setting { deadline: Deadline::Origin(millis(10)), ..setting(millis(10), millis(3)) };
    let system = periodic(1).with(|system| uniform(system, setting));
    let late = JobEnd {
        origin: at(0),
        release: at(2),
        ready: at(3),
        start: at(8),
        end: at(14),
        consumed: millis(5),
        ..job(0, 0, at(2), at(14))
    };
    let phases = Phases::of(&system, &late);
    let expected = Phases {
        upstream: millis(2),
        released_late: millis(1),
        waited: millis(5),
        executed: millis(3),
        overran: millis(2),
        held: millis(1),
    };
    assert_eq!(phases, expected);
    assert_eq!(phases.longest(), Phase::Waited);
    assert_eq!(Phases { executed: millis(11), ..Phases::default() }.longest(), Phase::TooShort);
    let never_started = JobEnd { start: Instant::NEVER, consumed: Span::ZERO, ..late };
    assert_eq!(Phases::of(&system, &never_started).waited, millis(11));
}

#[test]
fn a_job_overruns_the_worst_case_of_its_service_level() {
    let system = systems::with_levels();
    let late = |level, leg| JobEnd {
        job: JobId { leg, ..job(0, 0, at(0), at(11)).job },
        service: JobService { level, demoted: false },
        start: at(0),
        consumed: millis(4),
        ..job(0, 0, at(0), at(11))
    };
    // The levels have 1 and 4 ms. The jobs used 4 ms and were held for 7 ms.
    for leg in [0, 1] {
        let phases = [0, 1].map(|level| Phases::of(&system, &late(level, leg)));
        assert_eq!(phases.map(|one| (one.executed, one.overran)), [(millis(1), millis(3)), (millis(4), Span::ZERO)]);
        assert!(phases.iter().all(|one| one.held == millis(7)));
    }
}
