//! The costs of scheduling are spent by the rules of `hyoshi_model::Costs`.

use crate::common;

use common::random::Choices;
use common::*;
use hyoshi_model::costs::WATCHDOG_PERIOD;
use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{SimulatedProcessor, simulate};
use hyoshi_trace::{CpuEvent, CpuUser, DispatchDecision, Input, JobOutcome, TraceEvent};

const UNTIL: Instant = Instant::from_nanos(200_000_000);

fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

fn simulated(system: &System) -> Vec<SimulatedProcessor<Vec<(Instant, TraceEvent)>>> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    simulate(system, &plan, UNTIL, |_| Vec::new(), |_| true).processors
}

/// A random system with random costs; about one in six of which is larger than the work.
fn costly(seed: u64) -> System {
    let mut system = random::system(seed).into_contents();
    let mut choose = Choices::new(seed ^ 0xc057);
    let most = choose.of(&[10, 100, 100, 500, 500, 5_000]);
    for processor in &mut system.processors {
        let mut cost = || if choose.one_in(4) { Span::ZERO } else { us(1 + choose.below(most)) };
        processor.costs =
            Costs { timer: cost(), enqueue: cost(), dequeue: cost(), cancel: cost(), switch: cost(), watchdog: cost() };
    }
    System::new(system)
}

#[test]
fn the_schedule_of_two_lanes_is_as_worked_out_by_hand() {
    let costs =
        Costs { timer: us(100), enqueue: us(20), dequeue: us(30), cancel: us(7), switch: us(50), watchdog: Span::ZERO };
    let build = Build::new("RMS", 1)
        .periodic("urgent", 0, 5.0, 1.0)
        .periodic("slow", 0, 20.0, 5.0)
        .after("after", 0, &[0], 0.5)
        .set(|setting| (setting.period, setting.slowest) = (ms(10.0), ms(10.0)))
        .processors(|processor| processor.costs = costs);
    // 0      both released: timer 100, two enqueues 40
    // 140    the first thread of all: no switch; dequeue 30
    // 170    urgent, till 1170; enqueue of `after` 20; ends at 1190
    // 1190   switch 50, `after` decides at 1240: dequeue 30, 1270 to 1770, ends (its lane is less urgent)
    // 1770   switch 50, slow decides at 1820; dequeue 30; runs from 1850
    // 5000   slow has run 3150; timer 100, enqueue 20; switch 50: urgent decides at 5170, runs 5200 to 6200
    // 6220   urgent ends; switch 50; `after` 6270, 6300 to 6800
    // 6800   switch back 50; slow continues at 6850 with 1850 left: 8700
    assert_eq!(build.schedule("urgent", 10.0), [(0.14, 1.19), (5.17, 6.22)]);
    assert_eq!(build.schedule("after", 10.0), [(1.24, 1.77), (6.27, 6.8)]);
    assert_eq!(build.schedule("slow", 10.0), [(1.82, 8.7)]);
    // Two expiries, three releases, five dequeues, two triggers, four switches and one back.
    let plan = Plan::new(&build.system(), &Strategies::built_in()).unwrap();
    let until = Instant::ZERO + ms(9.9);
    let processor =
        simulate(&build.system(), &plan, until, |_| Vec::<(Instant, TraceEvent)>::new(), |_| true).processors.remove(0);
    assert_eq!(processor.overhead, us(2 * 100 + 3 * 20 + 5 * 30 + 2 * 20 + 5 * 50));
    assert_eq!(processor.busy, ms(8.0));
}

#[test]
fn releases_during_an_overhead_are_seen_together_when_it_ends() {
    let build = Build::new("RMS", 1)
        .periodic("first", 0, 50.0, 1.0)
        .periodic("second", 0, 50.0, 1.0)
        .set(|setting| setting.phase = us(10))
        .periodic("third", 0, 50.0, 1.0)
        .set(|setting| setting.phase = us(90))
        .processors(|processor| processor.costs = Costs { timer: us(100), enqueue: us(1), ..Costs::NONE });
    // 101 is paid for the first, then 102 for the other two: the second's release is at 0.01, seen at 0.101.
    let all = build.run(10.0);
    let ready: Vec<u64> = ends(&all).map(|end| end.ready.as_nanos() / 1_000).collect();
    let start: Vec<u64> = ends(&all).map(|end| end.start.as_nanos() / 1_000).collect();
    assert_eq!((ready, start), (vec![0, 101, 101], vec![203, 1_203, 2_203]));
}

#[test]
fn without_costs_nothing_is_spent_and_with_them_time_adds_up() {
    for seed in 0..600 {
        let system = costly(seed);
        for processor in simulated(&system) {
            assert!(processor.busy + processor.overhead <= UNTIL.since(Instant::ZERO), "seed {seed}");
            let seen = processor.probe.iter().filter_map(|(_, event)| match event {
                TraceEvent::Cpu(CpuEvent::Overhead { span, .. }) => Some(*span),
                _ => None,
            });
            assert_eq!(seen.sum::<Span>(), processor.overhead, "seed {seed}");
        }
        let free = |system: &mut Contents| system.processors.iter_mut().for_each(|one| one.costs = Costs::NONE);
        let system = system.with(free);
        assert!(simulated(&system).iter().all(|processor| processor.overhead.is_zero()), "seed {seed}");
    }
}

/// Costs of a nanosecond move nothing by a microsecond: the same jobs run in the same order.
#[test]
fn tiny_costs_change_no_order_where_times_are_whole_microseconds() {
    for seed in 0..300 {
        let mut system = random::system(seed).into_contents();
        for operation in &mut system.operations {
            operation.on_overrun = OnOverrun::Report;
        }
        for processor in &mut system.processors {
            (processor.cap_ppm, processor.cancel) = (1_000_000, false);
        }
        let system = System::new(system);
        let order = |system: &System| -> Vec<Vec<(JobId, u64)>> {
            let starts = |processor: &SimulatedProcessor<Vec<(Instant, TraceEvent)>>| {
                let runs = processor.probe.iter().filter_map(|(at, event)| match event {
                    TraceEvent::Decision(DispatchDecision::Run { job, .. }) => Some((*job, at.as_nanos())),
                    _ => None,
                });
                runs.collect()
            };
            simulated(system).iter().map(starts).collect()
        };
        let free = order(&system);
        // Nothing of it ties with anything else.
        let unique = |runs: &Vec<(JobId, u64)>| runs.windows(2).all(|pair| pair[1].1 > pair[0].1 + 2_000);
        let tiny = Costs { dequeue: Span::from_nanos(1), ..Costs::NONE };
        let costly = order(&system.with(|system| system.processors.iter_mut().for_each(|one| one.costs = tiny)));
        for (free, costly) in free.iter().zip(&costly).filter(|(free, _)| unique(free)) {
            let jobs = |runs: &[(JobId, u64)]| -> Vec<JobId> { runs.iter().take(20).map(|(job, _)| *job).collect() };
            assert_eq!(jobs(free), jobs(costly), "seed {seed}");
        }
    }
}

/// The costs in a recording equal those spent, except for those that the end cut off.
#[test]
fn every_cost_is_paid_once_for_what_the_trace_shows() {
    for seed in 0..600 {
        let mut system = costly(seed).into_contents();
        for processor in &mut system.processors {
            // The dispatcher's decisions do not show how often the CPU switched.
            processor.costs.switch = Span::ZERO;
        }
        // Idle points pay without a timer: omitted here.
        for operation in &mut system.operations {
            operation.guard = if operation.guard == Guard::Idle { Guard::On } else { operation.guard };
        }
        let system = System::new(system);
        for (processor, simulated) in system.processors.iter().zip(simulated(&system)) {
            let costs = processor.costs;
            let (mut ticks, mut released, mut decided, mut asked, mut triggered) = (0u64, 0u64, 0u64, 0u64, 0u64);
            let (mut in_tick, mut in_signal) = (false, false);
            let mut counted = false;
            for (_, event) in &simulated.probe {
                match event {
                    TraceEvent::Input(input) => {
                        // A tick follows signals, in the same expiry.
                        counted &= in_signal;
                        in_signal = matches!(input, Input::Signal(_));
                        in_tick = in_signal || matches!(input, Input::Tick);
                    }
                    TraceEvent::Decision(DispatchDecision::Ready { .. }) if in_tick => {
                        released += 1;
                        ticks += u64::from(!std::mem::replace(&mut counted, true));
                    }
                    TraceEvent::Decision(DispatchDecision::Run { job, resumed: false, .. }) => {
                        decided += 1;
                        let operation = system.operation(job.operation);
                        let critical = operation.critical
                            || job.leg
                                < system
                                    .epochs
                                    .iter()
                                    .map(|epoch| epoch.settings[job.operation.index()].critical_legs)
                                    .max()
                                    .unwrap();
                        asked += u64::from(processor.cancel && !critical);
                    }
                    TraceEvent::Decision(DispatchDecision::End(end)) => match end.outcome {
                        JobOutcome::DroppedBusy | JobOutcome::DroppedFull | JobOutcome::Skipped if in_tick => {
                            ticks += u64::from(!std::mem::replace(&mut counted, true));
                        }
                        JobOutcome::Cancelled => (decided, asked) = (decided + 1, asked + 1),
                        JobOutcome::Made | JobOutcome::Missed if end.end < UNTIL && !end.start.eq(&Instant::NEVER) => {
                            let setting = system.setting(usize::from(end.epoch), end.job.operation);
                            let here = system.operation_ids().filter(|to| {
                                let to = system.operation(*to);
                                to.on == system.operation(end.job.operation).on
                                    && to.trigger.predecessors().contains(&end.job.operation)
                            });
                            let legs = end.job.leg + 1 < setting.legs;
                            triggered += if legs { 1 } else { here.count() as u64 };
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
            let looks = (UNTIL.as_nanos() - 1) / WATCHDOG_PERIOD.as_nanos();
            let owed = costs.timer * ticks
                + costs.enqueue * (released + triggered)
                + costs.dequeue * decided
                + costs.cancel * asked
                + costs.watchdog * looks;
            // Unfinished at the end: an expiry and its releases, a check, each lane's decisions.
            let open = costs.timer + costs.watchdog + (costs.enqueue + costs.dequeue + costs.cancel) * 200;
            let spent = simulated.overhead;
            assert!(spent <= owed + open && owed <= spent + open, "seed {seed}: {spent} spent, {owed} owed");
        }
    }
}

#[test]
fn nothing_runs_in_a_lane_before_its_release_is_paid() {
    for seed in 0..400 {
        let system = costly(seed);
        for (processor, simulated) in system.processors.iter().zip(simulated(&system)) {
            let mut last_tick = None;
            let (mut above, mut in_tick) = (Span::ZERO, false);
            for (at, event) in &simulated.probe {
                match event {
                    TraceEvent::Cpu(CpuEvent::Overhead { who: CpuUser::Release, span }) => above += *span,
                    TraceEvent::Input(Input::Tick) => (last_tick, above, in_tick) = (None, Span::ZERO, true),
                    TraceEvent::Decision(DispatchDecision::Ready { .. }) if in_tick && last_tick.is_none() => {
                        last_tick = Some(*at)
                    }
                    TraceEvent::Input(Input::LaneRuns { .. }) => {
                        if let Some(tick) = last_tick.take() {
                            let least = processor.costs.timer.min(processor.costs.enqueue);
                            assert!(at.since(tick) >= above && at.since(tick) >= least, "seed {seed} at {at}");
                        }
                    }
                    TraceEvent::Input(_) => (last_tick, in_tick) = (None, false),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn costs_beyond_the_cpu_leave_no_time_and_no_job_ends() {
    let build = Build::new("RMS", 1)
        .periodic("starved", 0, 1.0, 0.1)
        .processors(|processor| processor.costs = Costs { timer: ms(1.0), enqueue: us(1), ..Costs::NONE });
    let processor = simulated(&build.system()).remove(0);
    assert!(processor.busy.is_zero());
    assert_eq!(processor.overhead, UNTIL.since(Instant::ZERO));
}
