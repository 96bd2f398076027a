//! EUCON on four processors with the random workload of the paper on distributable threads (table 6).

use hyoshi_control::feedback::{EndToEndTask, Eucon, EuconError, EuconSettings};
use hyoshi_model::{Share, Span, StartRates};
use proptest::prelude::*;

/// Execution times and processors of each task's stages, and its nominal period, in milliseconds.
pub type Row = (&'static [u64], &'static [usize], u64);
pub const WORKLOAD: [Row; 12] = [
    (&[94, 32, 122, 125], &[4, 3, 1, 2], 849),
    (&[12], &[3], 627),
    (&[3], &[1], 199),
    (&[30, 30, 17, 23], &[1, 2, 3, 4], 257),
    (&[34], &[2], 952),
    (&[3], &[1], 896),
    (&[13, 5, 12, 9], &[1, 4, 3, 2], 110),
    (&[160, 46], &[3, 4], 752),
    (&[143], &[2], 838),
    (&[64, 59, 107], &[3, 1, 4], 703),
    (&[121], &[4], 916),
    (&[15, 7, 11], &[1, 3, 4], 190),
];

const PROCESSORS: usize = 4;

/// With rates from a quarter to four times the nominal.
fn workload() -> Vec<EndToEndTask> {
    let task = |(times, places, period): &Row| {
        let mut demand = vec![Span::ZERO; PROCESSORS];
        for (time, place) in times.iter().zip(*places) {
            demand[place - 1] += Span::from_millis(*time);
        }
        EndToEndTask::new(demand, Span::from_millis(period / 4), Span::from_millis(period * 4)).unwrap()
    };
    WORKLOAD.iter().map(task).collect()
}

fn nominal() -> StartRates {
    StartRates::Given(WORKLOAD.iter().map(|(.., period)| Span::from_millis(*period)).collect())
}

/// The utilisation of each processor, at most 1, with execution times of `gains` times the estimates.
fn measure(tasks: &[EndToEndTask], periods: &[Span], gains: [f64; PROCESSORS]) -> [f64; PROCESSORS] {
    let mut utilisations = [0.0; PROCESSORS];
    for (place, utilisation) in utilisations.iter_mut().enumerate() {
        let of =
            |(task, period): (&EndToEndTask, &Span)| task.demand(place).as_nanos() as f64 / period.as_nanos() as f64;
        *utilisation = (gains[place] * tasks.iter().zip(periods).map(of).sum::<f64>()).min(1.0);
    }
    utilisations
}

/// Runs this many samples and returns the utilisations of the last.
fn run(eucon: &mut Eucon, gains: [f64; PROCESSORS], samples: usize) -> [f64; PROCESSORS] {
    let tasks = workload();
    for _ in 0..samples {
        let step = eucon.sample(&measure(&tasks, eucon.periods(), gains).map(Some));
        assert!(step.solved && step.fault.is_none());
        for (task, period) in tasks.iter().zip(eucon.periods()) {
            assert!((task.task().shortest()..=task.task().longest()).contains(period));
        }
    }
    measure(&tasks, eucon.periods(), gains)
}

fn eucon(start: StartRates) -> Eucon {
    let settings = EuconSettings::new(vec![Share::from_percent(70); PROCESSORS]);
    Eucon::new(settings, &workload(), start).unwrap()
}

/// The utilisations nearest to the set point within the ranges of rates and not above it, by projected gradients with a
/// growing weight of the excess: slow, and another method than the controller's.
fn optimum(gains: [f64; PROCESSORS], set_point: f64) -> [f64; PROCESSORS] {
    let tasks = workload();
    let part = |place: usize, task: &EndToEndTask| {
        gains[place] * task.demand(place).as_nanos() as f64 / task.task().estimate().as_nanos() as f64
    };
    let mut rates: Vec<f64> = tasks.iter().map(|task| task.task().least()).collect();
    let mut utilisations = [0.0; PROCESSORS];
    for weight in [1.0, 10.0, 100.0, 1_000.0] {
        for _ in 0..10_000 {
            for (place, utilisation) in utilisations.iter_mut().enumerate() {
                *utilisation = tasks.iter().zip(&rates).map(|(task, rate)| part(place, task) * rate).sum();
            }
            for (task, rate) in tasks.iter().zip(&mut rates) {
                let slope = |(place, utilisation): (usize, &f64)| {
                    let error = utilisation - set_point;
                    part(place, task) * error * if error > 0.0 { weight } else { 1.0 }
                };
                let slope: f64 = utilisations.iter().enumerate().map(slope).sum();
                *rate = (*rate - 0.05 / weight * slope).clamp(task.task().least(), task.task().most());
            }
        }
    }
    utilisations
}

fn assert_near(found: [f64; PROCESSORS], expected: [f64; PROCESSORS], tolerance: f64) {
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= tolerance);
    assert!(near, "{found:?} instead of {expected:?}");
}

#[test]
fn all_processors_reach_their_set_points_from_any_start() {
    for start in [nominal(), StartRates::Lowest, StartRates::Highest] {
        assert_near(run(&mut eucon(start), [1.0; PROCESSORS], 60), [0.7; PROCESSORS], 0.005);
    }
}

#[test]
fn set_points_hold_under_doubled_execution_times_on_processor_1_2_or_3() {
    for place in 0..3 {
        let mut eucon = eucon(nominal());
        run(&mut eucon, [1.0; PROCESSORS], 60);
        let mut gains = [1.0; PROCESSORS];
        gains[place] = 2.0;
        assert_near(run(&mut eucon, gains, 100), [0.7; PROCESSORS], 0.005);
        assert_near(run(&mut eucon, [1.0; PROCESSORS], 100), [0.7; PROCESSORS], 0.005);
    }
}

#[test]
fn with_doubled_execution_times_on_processor_4_it_reaches_the_constrained_optimum() {
    let mut eucon = eucon(nominal());
    run(&mut eucon, [1.0; PROCESSORS], 60);
    let gains = [1.0, 1.0, 1.0, 2.0];
    let best = optimum(gains, 0.7);
    assert!(best[0] < 0.68, "the set points cannot all be reached: {best:?}");
    assert_near(run(&mut eucon, gains, 200), best, 0.02);
}

#[test]
fn a_processor_without_a_valid_sample_is_reported_and_its_rates_do_not_run_away() {
    let mut eucon = eucon(nominal());
    run(&mut eucon, [1.0; PROCESSORS], 60);
    let before = measure(&workload(), eucon.periods(), [1.0; PROCESSORS]);
    for value in [None, Some(f64::NAN), Some(-1.0), Some(2.0)] {
        for _ in 0..20 {
            let utilisations = measure(&workload(), eucon.periods(), [1.0; PROCESSORS]);
            let step = eucon.sample(&[Some(utilisations[0]), value, Some(utilisations[2]), Some(utilisations[3])]);
            assert!(step.solved);
            assert_eq!(step.fault.map(|(processor, _)| processor), Some(1));
        }
    }
    assert_near(measure(&workload(), eucon.periods(), [1.0; PROCESSORS]), before, 0.005);
    let missing = eucon.sample(&[]).fault.unwrap();
    assert_eq!((missing.0, missing.1.value), (0, None));
}

#[test]
fn the_same_samples_give_the_same_rates() {
    let rates = || {
        let mut eucon = eucon(StartRates::Lowest);
        run(&mut eucon, [0.5, 1.0, 1.5, 2.0], 50);
        eucon.periods().to_vec()
    };
    assert_eq!(rates(), rates());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let with = |change: fn(&mut EuconSettings)| {
        let mut settings = EuconSettings::new(vec![Share::from_percent(70); PROCESSORS]);
        change(&mut settings);
        Eucon::new(settings, &workload(), nominal()).unwrap_err().to_string()
    };
    assert_eq!(with(|settings| settings.control = 5), "the prediction horizon is 4 periods, the control horizon is 5");
    assert_eq!(with(|settings| settings.control = 0), "the prediction horizon is 4 periods, the control horizon is 0");
    assert_eq!(with(|settings| settings.decay = 1.0), "`decay` is 1");
    assert_eq!(with(|settings| settings.decay = f64::NAN), "`decay` is NaN");
    assert_eq!(with(|settings| settings.smoothing = 0.0), "`smoothing` is 0");
    assert_eq!(with(|settings| settings.utilisations[2] = Share::ZERO), "the set point of processor 2 is 0%");
    let gone = with(|settings| settings.utilisations.truncate(3));
    assert_eq!(gone, "task 0 has a stage on processor 3, which has no set point");
    let settings = EuconSettings::new(vec![Share::CPU; PROCESSORS]);
    assert!(matches!(Eucon::new(settings, &workload(), StartRates::Given(vec![])), Err(EuconError::Start(_))));
}

#[test]
fn a_controller_may_move_to_another_thread_and_may_have_no_tasks() {
    fn is_send<T: Send>(_: &T) {}
    let mut none = Eucon::new(EuconSettings::new(vec![Share::CPU; 2]), &[], StartRates::Lowest).unwrap();
    is_send(&none);
    assert!(none.sample(&[Some(0.0), Some(0.5)]).solved && none.periods().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    // Gains up to 2 on every processor: from anywhere, no utilisation stays above its set point where rates can lower it.
    #[test]
    fn with_any_gains_it_comes_to_rest_at_or_below_its_set_points(
        gains in prop::array::uniform4(0.4..2.0f64), lowest: bool, set_point in 50u64..=90,
    ) {
        let settings = EuconSettings::new(vec![Share::from_percent(set_point); PROCESSORS]);
        let start = if lowest { StartRates::Lowest } else { StartRates::Highest };
        let mut eucon = Eucon::new(settings, &workload(), start).unwrap();
        let before = run(&mut eucon, gains, 200);
        let after = run(&mut eucon, gains, 1);
        for (before, after) in before.iter().zip(after) {
            prop_assert!((before - after).abs() < 0.01, "{} after {}", after, before);
            prop_assert!(after < set_point as f64 / 100.0 + 0.01, "{}", after);
        }
    }
}
