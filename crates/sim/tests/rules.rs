//! The rules of the dispatcher, each on the smallest system that shows it. Times in milliseconds.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, TraceEvent};

#[test]
fn a_job_that_just_fits_is_not_cancelled_and_one_that_does_not_is() {
    // `late` starts behind 4 ms of work and has 10 - 4 = 6 ms left.
    let build = |wcet| {
        Build::new("RMS", 1)
            .processors(|processor| processor.cancel = true)
            .periodic("first", 0, 9.0, 4.0)
            .periodic("late", 0, 10.0, wcet)
            .set(|setting| setting.execution_time = ExecutionTime::Fixed(ms(1.0)))
    };
    assert_eq!(build(6.0).count("late", 9.0, JobOutcome::Cancelled), 0);
    assert_eq!(build(6.000001).count("late", 9.0, JobOutcome::Cancelled), 1);
    assert_eq!(build(6.000001).critical().count("late", 9.0, JobOutcome::Cancelled), 0);
}

#[test]
fn cancelling_a_leg_sheds_the_rest_of_its_chain() {
    // Frames of 10 ms, legs of 4 ms: the third would end at 12.
    let build = Build::new("RMS", 1)
        .processors(|processor| processor.cancel = true)
        .periodic("leg", 0, 10.0, 4.0)
        .set(|setting| setting.legs = 5);
    assert_eq!(build.schedule("leg", 9.9), [(0., 4.), (4., 8.)]);
    assert_eq!(build.count("leg", 9.9, JobOutcome::Cancelled), 1);
    let without = build.processors(|processor| processor.cancel = false);
    assert_eq!(without.schedule("leg", 21.0), [(0., 4.), (4., 8.), (8., 12.), (12., 16.), (16., 20.)]);
}

#[test]
fn the_first_legs_can_be_critical_and_then_run_above_the_others() {
    let build = Build::new("MUF", 1)
        .periodic("leg", 0, 20.0, 2.0)
        .set(|setting| (setting.legs, setting.critical_legs) = (3, 1))
        .periodic("other", 0, 19.0, 3.0);
    // Laxities at 2: leg 20 - 2 - 2, other 19 - 2 - 3.
    assert_eq!(build.schedule("leg", 10.0), [(0., 2.), (5., 7.), (7., 9.)]);
}

#[test]
fn levels_interrupt_each_other_and_jobs_of_one_level_do_not() {
    let build = Build::new("MUF", 1)
        .periodic("long", 0, 100.0, 10.0)
        .periodic("critical", 0, 20.0, 1.0)
        .critical()
        .set(|setting| setting.phase = ms(2.0))
        .periodic("urgent", 0, 8.0, 1.0)
        .set(|setting| setting.phase = ms(3.0));
    assert_eq!(build.schedule("critical", 15.0), [(2., 3.)]);
    assert_eq!(build.schedule("urgent", 12.0), [(11., 12.)]);
    assert_eq!(build.schedule("long", 15.0), [(0., 11.)]);
    let full = build.processors(|processor| processor.preemption = Preemption::Full);
    assert_eq!(full.schedule("urgent", 10.0), [(3., 4.)]);
    let none = full.processors(|processor| processor.preemption = Preemption::None);
    assert_eq!(none.schedule("critical", 15.0), [(10., 11.)]);
}

#[test]
fn fully_preemptive_deadline_order_is_the_textbook_schedule() {
    // (T, C) = (5, 2), (7, 4): U = 34/35, schedulable by EDF only.
    let build = Build::new("EDF", 1)
        .processors(|processor| processor.preemption = Preemption::Full)
        .periodic("short", 0, 5.0, 2.0)
        .periodic("long", 0, 7.0, 4.0);
    let events = build.run(35.0 * 20.0);
    assert!(ends(&events).all(|end| end.outcome == JobOutcome::Made));
    let rms = Build::new("RMS", 1).periodic("short", 0, 5.0, 2.0).periodic("long", 0, 7.0, 4.0);
    assert!(rms.count("long", 35.0, JobOutcome::Missed) > 0);
}

#[test]
fn fully_preemptive_laxity_misses_at_less_than_full_load_as_known() {
    // decisions.md: (20, 11), (10, 1), (12, 1) misses at U = 0.73 when decided only at releases and completions.
    let build = Build::new("MLF", 1)
        .processors(|processor| processor.preemption = Preemption::Full)
        .periodic("a", 0, 20.0, 11.0)
        .periodic("b", 0, 10.0, 1.0)
        .periodic("c", 0, 12.0, 1.0);
    let events = build.run(60.0 * 50.0);
    assert!(ends(&events).any(|end| end.outcome == JobOutcome::Missed));
}

#[test]
fn a_full_queue_drops_the_newest_or_the_oldest() {
    let build = |when_full| {
        Build::new("RMS", 1).periodic("busy", 0, 10.0, 35.0).with(|operation| {
            operation.queue = QueueLimit { limit: 1, when_full };
        })
    };
    let numbers = |build: &Build| -> Vec<u64> {
        ends(&build.run(75.0))
            .filter(|end| end.outcome.finished() && end.end < Instant::ZERO + ms(75.0))
            .map(|end| end.job.number)
            .collect()
    };
    assert_eq!(numbers(&build(WhenFull::DropNewest)), [0, 1]);
    assert_eq!(numbers(&build(WhenFull::DropOldest)), [0, 3]);
}

#[test]
fn a_busy_operation_skips_its_release_under_on_busy_skip() {
    let build = Build::new("RMS", 1).periodic("slow", 0, 10.0, 15.0).with(|operation| operation.on_busy = OnBusy::Skip);
    assert_eq!(build.schedule("slow", 60.0), [(0., 15.), (20., 35.), (40., 55.)]);
    assert_eq!(build.count("slow", 60.0, JobOutcome::DroppedBusy), 3);
}

#[test]
fn a_job_beyond_its_worst_case_is_stopped_or_demoted_by_on_overrun() {
    let build = |on_overrun| {
        Build::new("RMS", 1)
            .periodic("wild", 0, 20.0, 2.0)
            .set(|setting| setting.execution_time = ExecutionTime::Fixed(ms(6.0)))
            .with(|operation| operation.on_overrun = on_overrun)
            .periodic("tame", 0, 40.0, 3.0)
    };
    assert_eq!(build(OnOverrun::Report).schedule("tame", 15.0), [(6., 9.)]);
    let stop = build(OnOverrun::Stop);
    assert_eq!(stop.schedule("tame", 15.0), [(2., 5.)]);
    assert_eq!(stop.count("wild", 15.0, JobOutcome::Stopped), 1);
    let demote = build(OnOverrun::Demote);
    assert_eq!(demote.schedule("tame", 15.0), [(2., 5.)]);
    assert_eq!(demote.schedule("wild", 15.0), [(0., 9.)]);
    assert!(ends(&demote.run(15.0)).any(|end| end.service.demoted && end.overran));
}

/// Start and end of the stopped jobs of an operation, in milliseconds.
fn stopped(build: &Build, name: &str, millis: f64) -> Vec<(f64, f64)> {
    let id = build.0.operations.iter().position(|operation| operation.name == name).unwrap();
    let at = |instant: Instant| instant.as_nanos() as f64 / 1e6;
    ends(&build.run(millis))
        .filter(|end| end.job.operation.index() == id && end.outcome == JobOutcome::Stopped)
        .map(|end| (at(end.start), at(end.end)))
        .collect()
}

#[test]
fn on_miss_stops_a_late_job_or_skips_the_next_release() {
    let build = |on_miss, deadline: f64, takes: f64| {
        let times = (ExecutionTime::Fixed(ms(takes)), Deadline::Own(ms(deadline)));
        Build::new("RMS", 1)
            .periodic("late", 0, 10.0, 4.0)
            .set(|setting| (setting.execution_time, setting.deadline) = times.clone())
            .with(|operation| operation.on_miss = on_miss)
            .after("next", 0, &[0], 0.5)
    };
    let schedule = |on_miss, deadline, takes| build(on_miss, deadline, takes).schedule("late", 75.0);
    assert_eq!(schedule(OnMiss::Continue, 10.0, 13.0)[..2], [(0., 13.), (13., 26.)]);
    // The release at the missed deadline is skipped, and no other for the same job.
    assert_eq!(schedule(OnMiss::SkipNext, 10.0, 13.0), [(0., 13.), (20., 33.), (40., 53.), (60., 73.)]);
    // It ends late, but before the next release.
    assert_eq!(schedule(OnMiss::SkipNext, 5.0, 7.0), [(0., 7.), (20., 27.), (40., 47.), (60., 67.)]);
    // The release at 10 ms is before the missed deadline; those at 20 ms, 30 ms and 40 ms find a late job.
    assert_eq!(schedule(OnMiss::SkipNext, 15.0, 23.0), [(0., 23.), (23., 46.), (50., 73.)]);
    // Without a miss all rules are equal.
    for on_miss in [OnMiss::Stop, OnMiss::SkipNext] {
        assert_eq!(schedule(on_miss, 4.0, 4.0), schedule(OnMiss::Continue, 4.0, 4.0));
    }
    let stop = build(OnMiss::Stop, 10.0, 13.0);
    assert_eq!(stopped(&stop, "late", 35.0), [(0., 10.), (10., 20.), (20., 30.)]);
    assert_eq!((stop.schedule("late", 35.0), stop.schedule("next", 35.0)), (vec![], vec![]));
    let skip = build(OnMiss::SkipNext, 10.0, 13.0);
    assert_eq!((skip.count("late", 55.0, JobOutcome::Missed), skip.count("late", 55.0, JobOutcome::Skipped)), (3, 3));
    assert_eq!(skip.schedule("next", 55.0).len(), 3);
    // Late legs that are not critical skip no release of critical ones.
    for (critical, skipped) in [(0, 3), (1, 0), (2, 3)] {
        let legs = Build::new("MUF", 1).periodic("legs", 0, 10.0, 6.0).set(|setting| {
            (setting.legs, setting.critical_legs) = (2, critical);
        });
        let legs = legs.with(|operation| operation.on_miss = OnMiss::SkipNext);
        assert_eq!(legs.count("legs", 55.0, JobOutcome::Skipped), skipped, "{critical} critical");
    }
}

#[test]
fn on_miss_stop_ends_jobs_that_do_not_run() {
    // `waits` needs the map that `holds` has; `late` is preempted; `never` has not started.
    let late = |build: Build, deadline: f64| {
        let build = build.set(|setting| setting.deadline = Deadline::Own(ms(deadline)));
        build.with(|operation| operation.on_miss = OnMiss::Stop)
    };
    let build = Build::new("RMS", 3)
        .periodic("short", 0, 10.0, 6.0)
        .set(|setting| setting.phase = ms(1.0))
        .periodic("late", 0, 20.0, 4.0);
    let build = late(build, 5.0).periodic("never", 0, 40.0, 1.0);
    let build = late(build, 5.0).periodic("holds", 1, 20.0, 8.0).with(|one| one.uses = vec![(ResourceId(0), ms(8.0))]);
    let build = build.periodic("waits", 2, 20.0, 4.0).with(|one| one.uses = vec![(ResourceId(0), ms(1.0))]);
    let mut build = late(build.set(|setting| setting.phase = ms(1.0)), 3.0);
    build.0.resources.push(Resource { name: "map".into() });
    assert_eq!(stopped(&build, "late", 20.0), [(0., 5.)]);
    assert_eq!(stopped(&build, "waits", 20.0), [(1., 4.)]);
    assert_eq!(build.schedule("holds", 20.0), [(0., 8.)]);
    assert_eq!((build.count("never", 20.0, JobOutcome::Stopped), build.schedule("never", 20.0)), (1, vec![]));
}

#[test]
fn a_holder_of_a_resource_runs_at_its_ceiling() {
    // `low` holds the map that `high` uses for 3 ms; `middle` must wait, as `high` must.
    let build = |uses: bool| {
        let map = (ResourceId(0), ms(3.0));
        let mut build = Build::new("DM", 1)
            .periodic("low", 0, 100.0, 5.0)
            .with(|operation| operation.uses = if uses { vec![map] } else { vec![] })
            .periodic("middle", 0, 50.0, 4.0)
            .set(|setting| setting.phase = ms(1.0))
            .periodic("high", 0, 20.0, 1.0)
            .set(|setting| setting.phase = ms(2.0))
            .with(|operation| operation.uses = vec![(ResourceId(0), ms(0.5))]);
        build.0.resources.push(Resource { name: "map".into() });
        build
    };
    assert_eq!(build(false).schedule("middle", 10.0), [(1., 6.)]);
    let build = build(true);
    assert_eq!(build.schedule("high", 10.0), [(3., 4.)]);
    assert_eq!(build.schedule("middle", 10.0), [(4., 8.)]);
    assert_eq!(build.schedule("low", 20.0), [(0., 10.)]);
}

#[test]
fn a_resource_shared_across_processors_is_waited_for() {
    let mut build = Build::new("RMS", 2)
        .periodic("here", 0, 100.0, 5.0)
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(4.0))])
        .periodic("there", 1, 100.0, 3.0)
        .set(|setting| setting.phase = ms(1.0))
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(1.0))]);
    build.0.resources.push(Resource { name: "map".into() });
    assert_eq!(build.schedule("here", 20.0), [(0., 5.)]);
    assert_eq!(build.schedule("there", 20.0), [(1., 7.)]);
}

#[test]
fn the_cap_delays_non_critical_work_and_never_critical_work() {
    let build = Build::new("MUF", 1)
        .processors(|processor| processor.cap_ppm = 900_000)
        .periodic("critical", 0, 10.0, 5.0)
        .critical()
        .periodic("greedy", 0, 10.0, 9.0)
        .with(|operation| operation.queue.limit = 2);
    let events = build.run(5_000.0);
    assert!(ends(&events).filter(|end| end.critical).all(|end| end.outcome == JobOutcome::Made));
    let busy: Span = ends(&events).filter(|end| !end.critical).map(|end| end.consumed).sum();
    // 40 % of the time is left under the cap; paused jobs continue as ordinary threads.
    assert!(ms(1_950.0) < busy && busy <= ms(2_500.0), "{busy}");
    assert!(
        events.iter().any(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Gate { lane: 0 | 1 })))
    );
}

#[test]
fn an_epoch_changes_settings_and_armed_timers_keep_their_expiry() {
    let mut build = Build::new("RMS", 1).periodic("p", 0, 10.0, 1.0);
    let mut faster = build.0.epochs[0].settings.to_vec();
    faster[0].period = ms(4.0);
    faster[0].execution_time = ExecutionTime::Fixed(ms(2.0));
    build.0.epochs.push(Epoch {
        name: "1".into(),
        at: Instant::ZERO + ms(15.0),
        settings: faster.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    assert_eq!(build.schedule("p", 30.0), [(0., 1.), (10., 11.), (20., 22.), (24., 26.), (28., 30.)]);
}

#[test]
fn a_disabled_operation_releases_nothing_and_keeps_its_grid() {
    let mut build = Build::new("RMS", 1).periodic("p", 0, 10.0, 1.0);
    let mut off = build.0.epochs[0].settings.to_vec();
    let on = off.clone();
    off[0].enabled = false;
    build.0.epochs.push(Epoch {
        name: "1".into(),
        at: Instant::ZERO + ms(5.0),
        settings: off.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    build.0.epochs.push(Epoch {
        name: "2".into(),
        at: Instant::ZERO + ms(35.0),
        settings: on.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    assert_eq!(build.schedule("p", 51.0), [(0., 1.), (40., 41.), (50., 51.)]);
}

#[test]
fn a_join_runs_when_all_of_its_predecessors_have_and_links_delay() {
    let mut build = Build::new("RMS", 2)
        .periodic("a", 0, 20.0, 1.0)
        .after("b", 0, &[0], 2.0)
        .after("c", 1, &[0], 4.0)
        .after("d", 1, &[1, 2], 1.0);
    build.0.hosts.push(Host::named("far"));
    build.0.processors[1].host = HostId(1);
    build.0.links.push(Link::new((HostId(0), HostId(1)), (ms(0.5), ms(0.5))));
    assert_eq!(build.schedule("c", 20.0), [(1.5, 5.5)]);
    assert_eq!(build.schedule("d", 20.0), [(5.5, 6.5)]);
}

#[test]
fn jitter_delays_releases_but_not_deadlines() {
    let build = Build::new("RMS", 1).periodic("p", 0, 10.0, 1.0).set(|setting| setting.jitter = ms(4.0));
    let events = build.run(2_000.0);
    let late: Vec<Span> = ends(&events).map(|end| end.ready.since(end.release)).collect();
    assert!(late.iter().all(|late| *late <= ms(4.0)) && late.iter().any(|late| *late > ms(3.5)));
    assert!(ends(&events).all(|end| end.deadline == Instant::ZERO + ms(10.0) * (end.job.number + 1)));
}

#[test]
fn under_full_preemption_a_holder_yields_only_to_what_never_needs_its_resource() {
    // Stack resource policy: `middle` could need no resource of `low`, but would delay `high`.
    let build = |uses: bool| {
        let mut build = Build::new("EDF", 1)
            .processors(|processor| processor.preemption = Preemption::Full)
            .periodic("low", 0, 100.0, 5.0)
            .with(|operation| operation.uses = if uses { vec![(ResourceId(0), ms(3.0))] } else { vec![] })
            .periodic("middle", 0, 50.0, 4.0)
            .set(|setting| setting.phase = ms(1.0))
            .periodic("high", 0, 20.0, 1.0)
            .set(|setting| setting.phase = ms(15.0))
            .with(|operation| operation.uses = vec![(ResourceId(0), ms(0.5))])
            .periodic("highest", 0, 10.0, 0.5)
            .set(|setting| (setting.phase, setting.deadline) = (ms(2.0), Deadline::Own(ms(5.0))));
        build.0.resources.push(Resource { name: "map".into() });
        build
    };
    assert_eq!(build(false).schedule("middle", 9.0), [(1., 5.5)]);
    assert_eq!(build(true).schedule("highest", 9.0), [(2., 2.5)]);
    assert_eq!(build(true).schedule("middle", 9.0), [(3.5, 7.5)]);
}

#[test]
fn a_job_kept_from_the_cpu_just_short_of_its_worst_case_costs_no_storm_of_observations() {
    let build = Build::new("DM", 1)
        .periodic("short", 0, 1_000.0, 1.0)
        .set(|setting| setting.execution_time = ExecutionTime::Fixed(ms(2.0)))
        .with(|operation| operation.on_overrun = OnOverrun::Stop)
        .periodic("urgent", 0, 900.0, 50.0)
        .set(|setting| setting.phase = ms(0.999999));
    let events = build.run(100.0);
    let observed =
        events.iter().filter(|(.., event)| matches!(event, TraceEvent::Input(Input::Observe { .. }))).count();
    assert!((1..5_000).contains(&observed), "{observed}");
    assert_eq!(build.count("short", 100.0, JobOutcome::Stopped), 1);
}

#[test]
fn a_preempted_lane_decides_anew_when_it_has_the_cpu_again() {
    // While `critical` runs, `sooner` arrives in the lane of `later`, which has a later deadline.
    let build = Build::new("RMS+EDF", 1)
        .processors(|processor| processor.preemption = Preemption::Full)
        .periodic("later", 0, 100.0, 10.0)
        .periodic("critical", 0, 50.0, 2.0)
        .critical()
        .set(|setting| setting.phase = ms(1.0))
        .periodic("sooner", 0, 20.0, 3.0)
        .set(|setting| setting.phase = ms(1.0));
    assert_eq!(build.schedule("critical", 15.0), [(1., 3.)]);
    assert_eq!(build.schedule("sooner", 15.0), [(3., 6.)]);
    assert_eq!(build.schedule("later", 20.0), [(0., 15.)]);
}

#[test]
fn the_cap_pauses_a_long_job_though_nothing_else_happens() {
    let build =
        Build::new("RMS", 1).processors(|processor| processor.cap_ppm = 900_000).periodic("long", 0, 1_000.0, 500.0);
    let gates: Vec<f64> = build
        .run(400.0)
        .iter()
        .filter(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Gate { lane: 0 })))
        .map(|(_, now, _)| now.as_nanos() as f64 / 1e6)
        .collect();
    assert_eq!(gates, [90., 190., 290., 390.]);
}

#[test]
fn an_operation_that_leaves_jobs_behind_costs_others_none_of_theirs() {
    let build = Build::new("MUF", 1)
        .periodic("wild", 0, 10.0, 2.0)
        .set(|setting| setting.execution_time = ExecutionTime::Fixed(ms(30.0)))
        .with(|operation| operation.on_overrun = OnOverrun::Demote)
        .periodic("critical", 0, 10.0, 6.0)
        .critical();
    assert_eq!(build.count("critical", 2_000.0, JobOutcome::DroppedFull), 0);
    assert!(build.count("wild", 2_000.0, JobOutcome::DroppedFull) > 0);
}

#[test]
fn under_full_preemption_a_holder_at_a_ceiling_above_its_lane_yields_to_no_lane_mate() {
    let mut build = Build::new("MUF", 1)
        .processors(|processor| processor.preemption = Preemption::Full)
        .periodic("holder", 0, 100.0, 5.0)
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(3.0))])
        .periodic("middle", 0, 10.0, 4.0)
        .set(|setting| setting.phase = ms(1.0))
        .periodic("critical", 0, 50.0, 1.0)
        .critical()
        .set(|setting| setting.phase = ms(2.0))
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(0.5))]);
    build.0.resources.push(Resource { name: "map".into() });
    assert_eq!(build.schedule("critical", 20.0), [(3., 4.)]);
}

#[test]
fn under_full_preemption_by_laxity_holders_do_not_lock_each_other_out() {
    let mut build = Build::new("MLF", 1)
        .processors(|processor| processor.preemption = Preemption::Full)
        .periodic("j", 0, 100.0, 30.0)
        .with(|operation| operation.uses = vec![(ResourceId(0), ms(2.0)), (ResourceId(1), ms(2.0))])
        .periodic("h", 0, 90.0, 25.0)
        .set(|setting| setting.phase = ms(1.0))
        .with(|operation| operation.uses = vec![(ResourceId(1), ms(20.0))])
        .periodic("k", 0, 95.0, 1.0)
        .set(|setting| setting.phase = ms(8.0));
    for name in ["r0", "r1"] {
        build.0.resources.push(Resource { name: name.into() });
    }
    assert_eq!(build.count("j", 390.0, JobOutcome::Made), 4);
    assert!(build.count("h", 390.0, JobOutcome::Made) >= 4);
}

#[test]
fn a_join_behind_a_merge_never_stops() {
    let build = Build::new("RMS", 1)
        .periodic("r", 0, 20.0, 0.1)
        .after("a", 0, &[0], 0.1)
        .after("b", 0, &[0], 0.1)
        .after("c", 0, &[0], 0.1)
        .after("x", 0, &[2, 3], 0.1)
        .with(|operation| operation.trigger = Trigger::Any(vec![OperationId(2), OperationId(3)]))
        .after("j", 0, &[1, 4], 0.1);
    // Late, because it joins with the older of two merged completions; but it never starves.
    assert!(build.schedule("j", 2_000.0).len() >= 95);
}

#[test]
fn legs_of_a_frame_that_has_begun_are_not_cut_off_by_the_queue() {
    let build = Build::new("RMS", 1)
        .periodic("leg", 0, 10.0, 6.0)
        .set(|setting| setting.legs = 3)
        .with(|operation| operation.queue.limit = 1);
    let events = build.run(200.0);
    assert!(ends(&events).filter(|end| end.outcome == JobOutcome::DroppedFull).all(|end| end.job.leg == 0));
}

#[test]
fn a_burst_arrives_within_its_time_in_each_period_and_its_bounds_hold() {
    let text = "name = 'burst'\n[processor.main]\nstrategy = 'RMS'\n[operation.event]\nevery = '20ms'\n\
                burst = { jobs = 3, within = '4ms' }\nwcet = '1ms'\n[operation.low]\nevery = '100ms'\nwcet = '2ms'";
    let system = read(text, "burst.toml", None).unwrap().system;
    let plan = hyoshi_sched::Plan::new(&system, &hyoshi_sched::Strategies::built_in()).unwrap();
    let report = hyoshi_sched::analyse(&system, &plan);
    let bound = |id: OperationId| {
        let (.., one) = report.operations().find(|(.., one)| one.operation == id).unwrap();
        assert!(one.verdict.is_proved(), "{:?}", one.verdict);
        Span::from_nanos(one.bound_ns.unwrap())
    };
    // In the worst case all three jobs arrive at once, before it begins.
    assert_eq!(bound(OperationId(3)), ms(5.0));
    let events = events(&system, Instant::ZERO + Span::from_secs(20));
    let mut periods = std::collections::BTreeMap::<u64, (u64, Span)>::new();
    for end in ends(&events) {
        assert!(end.end.since(end.release) <= bound(end.job.operation), "{end:?}");
        if end.job.operation != OperationId(3) {
            let period = end.release.as_nanos() / ms(20.0).as_nanos();
            let (jobs, latest) = periods.entry(period).or_default();
            (*jobs, *latest) = (*jobs + 1, (*latest).max(end.ready.since(end.release)));
        }
    }
    assert!(periods.len() >= 999 && periods.values().all(|(jobs, _)| *jobs == 3));
    let latest = periods.values().map(|(_, latest)| *latest).max().unwrap();
    assert!(latest <= ms(4.0) && latest > ms(3.5), "{latest}");
}
