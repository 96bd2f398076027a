//! Service levels: the value-optimal assigner against all choices, and the loop on a model of a processor.

use hyoshi_control::feedback::level_hold::LevelHold;
use hyoshi_control::feedback::{
    AdaptiveTask, AssignedTotals, ByValue, ControllerGains, Feedback, FeedbackSample, FeedbackSettings, RateAssigner,
};
use hyoshi_model::{FeedbackAlgorithm, Share, Span, StartRates};
use proptest::prelude::*;

const MS: fn(u64) -> Span = Span::from_millis;

/// Levels with rising times and values, and a fixed rate or a range.
fn task() -> impl Strategy<Value = AdaptiveTask> {
    let level = (1u64..6_000, 0u32..9);
    (prop::collection::vec(level, 1..5), 5_000u64..60_000, prop_oneof![Just(0u64), 0u64..60_000]).prop_map(
        |(steps, shortest, more)| {
            let (mut time, mut value) = (0, 0);
            let rise = |(longer, worth): (u64, u32)| {
                (time, value) = (time + longer, value + worth);
                (Span::from_micros(time), value)
            };
            let levels: Vec<_> = steps.into_iter().map(rise).collect();
            AdaptiveTask::with_levels(&levels, Span::from_micros(shortest), Span::from_micros(shortest + more)).unwrap()
        },
    )
}

#[derive(Debug)]
struct Assigned {
    periods: Vec<Span>,
    levels: Vec<u8>,
}

impl Assigned {
    fn load(&self, tasks: &[AdaptiveTask]) -> f64 {
        let of = |at: usize| tasks[at].utilisation_at(self.levels[at].into(), self.periods[at]);
        (0..tasks.len()).map(of).sum()
    }

    /// The value per second.
    fn value(&self, tasks: &[AdaptiveTask]) -> f64 {
        let of =
            |at: usize| f64::from(tasks[at].levels()[usize::from(self.levels[at])].1) / self.periods[at].as_secs_f64();
        (0..tasks.len()).map(of).sum()
    }
}

fn assigned(tasks: &[AdaptiveTask], totals: impl Into<AssignedTotals>, before: &[u8]) -> Assigned {
    let (mut assigner, mut periods) = (ByValue::default(), vec![Span::ZERO; tasks.len()]);
    let mut levels = before.to_vec();
    assigner.restart(tasks, &periods);
    assigner.assign(tasks, totals.into(), &mut periods, &mut levels);
    Assigned { periods, levels }
}

fn lowest(tasks: &[AdaptiveTask]) -> Vec<u8> {
    vec![0; tasks.len()]
}

fn range(tasks: &[AdaptiveTask]) -> [f64; 2] {
    [tasks.iter().map(AdaptiveTask::least).sum(), tasks.iter().map(AdaptiveTask::most).sum()]
}

/// The greatest value per second with fixed rates, by trying all choices.
fn best(tasks: &[AdaptiveTask], total: f64) -> f64 {
    let Some((task, rest)) = tasks.split_first() else { return 0.0 };
    let of = |place: usize| {
        let left = total - task.utilisation_at(place, task.shortest());
        let least: f64 = rest.iter().map(|one| one.utilisation_at(0, one.shortest())).sum();
        let value = f64::from(task.levels()[place].1) / task.shortest().as_secs_f64();
        (least <= left + 1e-9).then(|| value + best(rest, left))
    };
    (0..task.levels().len()).filter_map(of).fold(0.0, f64::max)
}

/// The greatest value per second that one rise of a level adds.
fn greatest_rise(tasks: &[AdaptiveTask]) -> f64 {
    let of = |task: &AdaptiveTask| {
        let [first, last] = [task.levels()[0].1, task.value()];
        f64::from(last - first) / task.shortest().as_secs_f64()
    };
    tasks.iter().map(of).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn it_exceeds_the_total_only_if_the_lowest_levels_do(tasks in prop::collection::vec(task(), 1..7), part in -0.5..1.5f64) {
        let [least, most] = range(&tasks);
        let total = least + part * (most - least);
        let found = assigned(&tasks, total, &lowest(&tasks));
        prop_assert!(found.load(&tasks) <= total.max(least) + 1e-8, "{} of {total}", found.load(&tasks));
        for (at, task) in tasks.iter().enumerate() {
            prop_assert!((task.shortest()..=task.longest()).contains(&found.periods[at]));
            prop_assert!(usize::from(found.levels[at]) < task.levels().len());
        }
        if total <= least {
            prop_assert_eq!(found.levels, lowest(&tasks));
        } else if total >= most {
            prop_assert!((found.load(&tasks) - most).abs() < 1e-8);
        }
    }

    #[test]
    fn a_greater_total_lowers_no_level_and_loses_no_value(
        tasks in prop::collection::vec(task(), 1..7), parts in (0.0..1.0f64, 0.0..1.0f64),
    ) {
        let [least, most] = range(&tasks);
        let at = |part: f64| assigned(&tasks, least + part * (most - least), &lowest(&tasks));
        let (low, high) = (at(parts.0.min(parts.1)), at(parts.0.max(parts.1)));
        prop_assert!(low.levels.iter().zip(&high.levels).all(|(low, high)| low <= high), "{low:?} {high:?}");
        // Periods are rounded up by less than 1 ns.
        prop_assert!(low.value(&tasks) <= high.value(&tasks) * (1.0 + 1e-6), "{low:?} {high:?}");
    }

    #[test]
    fn the_value_is_below_the_optimum_by_less_than_one_rise(tasks in prop::collection::vec(task(), 1..6), part in 0.0..1.0f64) {
        let fixed = |task: &AdaptiveTask| AdaptiveTask::with_levels(task.levels(), task.shortest(), task.shortest()).unwrap();
        let tasks: Vec<_> = tasks.iter().map(fixed).collect();
        let [least, most] = range(&tasks);
        let total = least + part * (most - least);
        let found = assigned(&tasks, total, &lowest(&tasks)).value(&tasks);
        let best = best(&tasks, total);
        prop_assert!(found <= best * (1.0 + 1e-9) + 1e-6, "{found} above {best}");
        prop_assert!(best <= found + greatest_rise(&tasks) + 1e-6, "{found} of {best}");
    }

    #[test]
    fn levels_stay_where_they_are_until_the_totals_leave_the_band(
        tasks in prop::collection::vec(task(), 1..7), parts in (0.0..1.0f64, 0.0..1.0f64),
    ) {
        let [least, most] = range(&tasks);
        let [raise, all] = [parts.0.min(parts.1), parts.0.max(parts.1)].map(|part| least + part * (most - least));
        let (low, high) = (assigned(&tasks, raise, &lowest(&tasks)), assigned(&tasks, all, &lowest(&tasks)));
        for before in [&low, &high] {
            let totals = AssignedTotals { all, raise };
            let kept = assigned(&tasks, totals, &before.levels);
            prop_assert_eq!(&kept.levels, &before.levels);
            prop_assert!(kept.load(&tasks) <= all + 1e-8);
        }
    }
}

#[test]
fn the_next_corner_of_the_hull_is_the_next_level() {
    // Per ms: coarse to half 4 / 4, half to full 3 / 10; show 1 / 3 for its rate.
    let detect = AdaptiveTask::with_levels(&[(MS(2), 3), (MS(6), 7), (MS(16), 10)], MS(50), MS(50)).unwrap();
    let show = AdaptiveTask::new(MS(3), MS(25), MS(200), 1).unwrap();
    let tasks = [detect, show];
    let at = |total| {
        let found = assigned(&tasks, total, &[0, 0]);
        (found.levels[0], found.periods[1].as_nanos() / 1_000_000)
    };
    // Until the rise of detect fits, show has what is left.
    assert_eq!(at(0.055), (0, 200));
    assert_eq!(at(0.1), (0, 50));
    assert_eq!(at(0.134), (0, 31));
    assert_eq!(at(0.1351), (1, 198));
    assert_eq!(at(0.2401), (1, 25));
    assert_eq!(at(0.43), (1, 25));
    assert_eq!(at(0.4401), (2, 25));
    // A level that is not on the hull is never chosen: 1 of 2 ms for 9 of 10 ms.
    let tasks = [AdaptiveTask::with_levels(&[(MS(1), 0), (MS(3), 1), (MS(10), 9)], MS(20), MS(20)).unwrap()];
    let found: Vec<u8> = (5..60).map(|total| assigned(&tasks, f64::from(total) / 100.0, &[0]).levels[0]).collect();
    assert!(found.iter().all(|level| [0, 2].contains(level)) && found.contains(&2));
}

fn feedback(tasks: &[AdaptiveTask], ga: f64) -> Feedback {
    feedback_of(FeedbackAlgorithm::FcU, tasks, ga)
}

fn feedback_of(algorithm: FeedbackAlgorithm, tasks: &[AdaptiveTask], ga: f64) -> Feedback {
    let settings = FeedbackSettings {
        algorithm,
        utilisation: Share::from_percent(70),
        miss_ratio: Share::from_millionths(15_000),
        gains: ControllerGains::placed(ga, 0.447).unwrap(),
        unlimited: false,
    };
    Feedback::new(settings, Box::new(ByValue::default()), tasks.to_vec(), StartRates::Lowest).unwrap()
}

/// The level of the first task after each sample, if jobs need `gain` times their estimates, other work needs `other`,
/// and each measurement is wrong by up to `noise`.
fn levels(feedback: &mut Feedback, samples: u64, (gain, other, noise): (f64, f64, f64), seed: u64) -> Vec<u8> {
    let mut random = seed;
    let mut each = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let error = ((random >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0) * noise;
        let of = |at: usize| feedback.tasks()[at].utilisation_at(feedback.levels()[at].into(), feedback.periods()[at]);
        let load: f64 = (0..feedback.tasks().len()).map(of).sum();
        let utilisation = (gain * load + other + error).clamp(0.0, 1.0);
        feedback.sample(FeedbackSample { utilisation: Some(utilisation), ..FeedbackSample::default() });
        feedback.levels()[0]
    };
    (0..samples).map(|_| each()).collect()
}

fn changes(levels: &[u8]) -> usize {
    levels.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Utilisations of 0.1, 0.3 and 0.8.
fn three_levels() -> AdaptiveTask {
    AdaptiveTask::with_levels(&[(MS(5), 2), (MS(15), 5), (MS(40), 9)], MS(50), MS(50)).unwrap()
}

#[test]
fn a_level_whose_next_one_does_not_fit_stays() {
    // 0.3 + 0.2 of other work is below 0.7, and 0.8 + 0.2 above it.
    let mut feedback = feedback(&[three_levels()], 1.0);
    let found = levels(&mut feedback, 1_000, (1.0, 0.2, 0.0), 1);
    assert_eq!((changes(&found), found[999]), (1, 1));
    // A total that is not assigned does not delay the reduction: the load rises to 0.3 + 0.6.
    let found = levels(&mut feedback, 3, (1.0, 0.6, 0.0), 1);
    assert_eq!(found[2], 0);
    // It rises again when there is room.
    assert_eq!(levels(&mut feedback, 50, (1.0, 0.2, 0.0), 1)[49], 1);
}

#[test]
fn one_high_sample_lowers_no_level_that_has_just_risen() {
    // The second sample raises the total by hardly more than the level needs.
    for other in (3_270..3_285).map(|part| f64::from(part) / 10_000.0) {
        let mut feedback = feedback(&[three_levels()], 1.0);
        let rises = (0..10).any(|_| levels(&mut feedback, 1, (1.0, other, 0.0), 1) == [1]);
        assert!(rises, "{other}");
        feedback.sample(FeedbackSample { utilisation: Some(0.75), ..FeedbackSample::default() });
        assert_eq!(feedback.levels(), [1], "{other}");
    }
}

#[test]
fn levels_do_not_follow_noise() {
    // The need of the second level is anywhere, also exactly at the set point.
    for other in (0..=50).map(|percent| f64::from(percent) / 100.0) {
        for seed in 0..20 {
            let mut feedback = feedback(&[three_levels()], 1.0);
            let found = levels(&mut feedback, 1_000, (1.0, other, 0.03), seed);
            assert!(changes(&found) <= 10, "{} changes with {other} of other work, seed {seed}", changes(&found));
        }
    }
}

proptest! {
    #[test]
    fn changes_of_levels_are_bounded_if_tasks_have_different_ratios(
        tasks in prop::collection::vec((task(), prop_oneof![Just(0.0), 0.3..2.0f64]), 1..5),
        other in 0.0..0.5f64,
        algorithm in prop::sample::select(vec![FeedbackAlgorithm::FcU, FeedbackAlgorithm::FcUm, FeedbackAlgorithm::FcUl]),
    ) {
        const SAMPLES: u64 = 3_000;
        let (tasks, ratios): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
        let mut feedback = feedback_of(algorithm, &tasks, 2.0);
        let mut changes = 0;
        for _ in 0..SAMPLES {
            let of = |at: usize| ratios[at] * tasks[at].utilisation_at(feedback.levels()[at].into(), feedback.periods()[at]);
            let utilisation = ((0..tasks.len()).map(of).sum::<f64>() + other).min(1.0);
            // Deadlines are missed, and latencies are too long, far below the set point.
            let late = utilisation > 0.5;
            let (miss_ratio, latency) = (Some(if late { 0.1 } else { 0.0 }), Some(if late { 2.0 } else { 0.5 }));
            let before = feedback.levels().to_vec();
            feedback.sample(FeedbackSample { utilisation: Some(utilisation), miss_ratio, latency });
            changes += before.iter().zip(feedback.levels()).filter(|(old, new)| old != new).count() as u64;
        }
        let levels: u64 = tasks.iter().map(|task| task.levels().len() as u64).sum();
        // Between holds all levels may rise and fall once; the holds double, or follow rises that lasted.
        let holds = 8 + SAMPLES / LevelHold::SOON;
        prop_assert!(changes <= 2 * levels * holds, "{changes} changes, {holds} holds of {levels} levels");
    }
}

#[test]
fn a_level_whose_jobs_run_longer_than_those_of_others_rises_ever_less_often() {
    // The large level of a costs 2 x 0.2, and b 0.25 x 0.5: U / A alone would let it rise each time.
    let a = AdaptiveTask::with_levels(&[(MS(1), 1), (MS(20), 9)], MS(100), MS(100)).unwrap();
    let b = AdaptiveTask::new(MS(50), MS(100), MS(100), 1).unwrap();
    let mut feedback = feedback_of(FeedbackAlgorithm::FcU, &[a, b], 2.0);
    let mut rises = Vec::new();
    for sample in 1..3_000u64 {
        let before = feedback.levels()[0];
        let own = feedback.tasks()[0].utilisation_at(before.into(), MS(100));
        feedback
            .sample(FeedbackSample { utilisation: Some(2.0 * own + 0.25 * 0.5 + 0.25), ..FeedbackSample::default() });
        if feedback.levels()[0] > before {
            rises.push(sample);
        }
    }
    let between: Vec<u64> = rises.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(rises.len() > 3 && rises.len() < 25 && between.is_sorted(), "{between:?}");
}

#[test]
fn with_rates_beside_it_the_utilisation_is_the_set_point() {
    // It is worth less for its time than a level.
    let show = AdaptiveTask::new(MS(10), MS(20), MS(500), 1).unwrap();
    for gain in [0.6, 0.8, 1.0, 1.5] {
        let mut feedback = feedback(&[three_levels(), show], 2.0);
        let found = levels(&mut feedback, 300, (gain, 0.0, 0.0), 1);
        assert!(changes(&found) <= 2, "{found:?}");
        let load: f64 = feedback.tasks()[0].utilisation_at(feedback.levels()[0].into(), MS(50))
            + feedback.tasks()[1].utilisation(feedback.periods()[1]);
        assert!((gain * load - 0.7).abs() < 0.001, "{gain}: {}", gain * load);
    }
}

#[test]
fn without_a_measurement_no_level_rises() {
    let mut feedback = feedback(&[three_levels()], 1.0);
    for utilisation in [None, Some(f64::NAN), Some(2.0)] {
        for _ in 0..100 {
            feedback.sample(FeedbackSample { utilisation, ..FeedbackSample::default() });
            assert_eq!(feedback.levels(), [0]);
        }
    }
}

/// An epoch changes values and times.
#[test]
fn a_change_of_tasks_raises_no_level_and_lowers_none_that_fits() {
    let levels = |value| AdaptiveTask::with_levels(&[(MS(1), 1), (MS(20), value)], MS(100), MS(100)).unwrap();
    let mut feedback = feedback(&[levels(9), levels(5)], 1.0);
    let measured = |feedback: &mut Feedback| {
        let of = |at: usize| feedback.tasks()[at].utilisation_at(feedback.levels()[at].into(), MS(100));
        let utilisation = Some(of(0) + of(1) + 0.35);
        feedback.sample(FeedbackSample { utilisation, ..FeedbackSample::default() });
    };
    // Beside the other work one of them has room: the one with the greater value.
    (0..50).for_each(|_| measured(&mut feedback));
    assert_eq!(feedback.levels(), [1, 0]);
    feedback.change([levels(5), levels(9)].into_iter());
    assert_eq!(feedback.levels(), [1, 0], "before a sample");
    // Cheaper jobs may leave room, but a sample has to show it.
    let cheap = AdaptiveTask::with_levels(&[(MS(1), 5), (MS(2), 9)], MS(100), MS(100)).unwrap();
    feedback.change([levels(5), cheap].into_iter());
    assert_eq!(feedback.levels(), [1, 0]);
    (0..50).for_each(|_| measured(&mut feedback));
    assert_eq!(feedback.levels(), [1, 1]);
}

#[test]
fn no_level_rises_between_samples() {
    // The next level needs 0.02, less than the band of 0.035.
    let small = AdaptiveTask::with_levels(&[(MS(5), 1), (MS(6), 2)], MS(50), MS(50)).unwrap();
    let mut feedback = feedback(&[small], 1.0);
    feedback.join(AdaptiveTask::new(MS(20), MS(50), MS(50), 1).unwrap(), MS(50)).unwrap();
    feedback.leave(1);
    assert_eq!(feedback.levels(), [0]);
    assert_eq!(levels(&mut feedback, 1, (1.0, 0.0, 0.0), 1), [1]);
}
