//! Rates under feedback control: for every algorithm and every rate assigner of the tables.

use hyoshi_control::feedback::{
    ASSIGNERS, AdaptiveTask, AnyRateAssigner, Feedback, FeedbackSample, FeedbackSettings, RateAssigner,
    RateAssignerKind,
};
use hyoshi_model::{ALGORITHMS, Span, StartRates};
use proptest::prelude::*;

use crate::feedback_laws::settings;

fn task() -> impl Strategy<Value = AdaptiveTask> {
    (1u64..20_000_000, 1u64..1_000_000_000, 0u64..2_000_000_000, 0u32..10).prop_map(
        |(estimate, shortest, more, value)| {
            let nanos = Span::from_nanos;
            AdaptiveTask::new(nanos(estimate), nanos(shortest), nanos(shortest + more), value).unwrap()
        },
    )
}

/// Tasks with start periods within their ranges.
fn tasks() -> impl Strategy<Value = Vec<(AdaptiveTask, Span)>> {
    prop::collection::vec((task(), 0.0..1.0f64), 1..10).prop_map(|drawn| {
        let period = |task: &AdaptiveTask, part: f64| {
            let width = (task.longest().as_nanos() - task.shortest().as_nanos()) as f64;
            task.shortest() + Span::from_nanos((part * width) as u64)
        };
        drawn.into_iter().map(|(task, part)| (task, period(&task, part))).collect()
    })
}

fn sum(tasks: &[AdaptiveTask], periods: &[Span]) -> f64 {
    tasks.iter().zip(periods).map(|(task, period)| task.utilisation(*period)).sum()
}

/// The most that rounding each period up by one nanosecond takes from the sum, and the error of `f64`.
fn rounding(tasks: &[AdaptiveTask], periods: &[Span]) -> f64 {
    let of = |(task, period): (&AdaptiveTask, &Span)| {
        let shorter = period.as_nanos().saturating_sub(1).max(task.shortest().as_nanos());
        task.utilisation(Span::from_nanos(shorter)) - task.utilisation(*period)
    };
    tasks.iter().zip(periods).map(of).sum::<f64>() + 1e-9 * (1.0 + sum(tasks, periods))
}

fn restarted(kind: &RateAssignerKind, tasks: &[AdaptiveTask], base: &[Span]) -> AnyRateAssigner {
    let mut assigner = (kind.build)();
    assigner.restart(tasks, base);
    assigner
}

fn assigned(assigner: &dyn RateAssigner, tasks: &[AdaptiveTask], total: f64) -> Vec<Span> {
    let mut periods = vec![Span::ZERO; tasks.len()];
    assigner.assign(tasks, total.into(), &mut periods, &mut vec![0; tasks.len()]);
    periods
}

fn within(range: [f64; 2], part: f64) -> f64 {
    range[0] + part * (range[1] - range[0])
}

/// A sample of any quality.
fn sample() -> impl Strategy<Value = FeedbackSample> {
    let value = || {
        let faulty = prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -2.0..3.0f64];
        prop_oneof![8 => (0.0..=1.0f64).prop_map(Some), 1 => Just(None), 1 => faulty.prop_map(Some)]
    };
    let latency = prop_oneof![value(), (0.0..=f64::MAX).prop_map(Some)];
    (value(), value(), latency).prop_map(|(utilisation, miss_ratio, latency)| FeedbackSample {
        utilisation,
        miss_ratio,
        latency,
    })
}

proptest! {
    #[test]
    fn a_period_is_always_within_its_range(drawn in tasks(), samples in prop::collection::vec(sample(), 1..40), unlimited: bool) {
        let (tasks, periods): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for ((algorithm, ..), kind) in ALGORITHMS.iter().flat_map(|one| ASSIGNERS.iter().map(move |kind| (one, kind))) {
            let settings = FeedbackSettings { unlimited, ..settings(*algorithm) };
            let start = StartRates::Given(periods.clone());
            let mut feedback = Feedback::new(settings, (kind.build)(), tasks.clone(), start).unwrap();
            for sample in &samples {
                let record = feedback.sample(*sample);
                prop_assert!(record.next.total.is_finite());
                if !unlimited {
                    let [least, most] = feedback.range();
                    prop_assert!((least..=most).contains(&record.next.total), "{} {:?}", kind.name, record);
                }
                for (task, period) in tasks.iter().zip(feedback.periods()) {
                    prop_assert!((task.shortest()..=task.longest()).contains(period), "{} {:?}", kind.name, record);
                }
            }
        }
    }

    #[test]
    fn the_same_samples_give_the_same_rates(drawn in tasks(), samples in prop::collection::vec(sample(), 1..40)) {
        let (tasks, periods): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for (algorithm, ..) in ALGORITHMS {
            let run = || {
                let start = StartRates::Given(periods.clone());
                let mut feedback = Feedback::new(settings(algorithm), (ASSIGNERS[0].build)(), tasks.clone(), start).unwrap();
                samples.iter().map(|sample| (feedback.sample(*sample).next.total.to_bits(), feedback.periods().to_vec())).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
        }
    }

    #[test]
    fn values_that_lower_rates_raise_no_total(drawn in tasks(), samples in prop::collection::vec((sample(), any::<bool>()), 1..40)) {
        let (tasks, periods): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for (algorithm, ..) in ALGORITHMS {
            let (settings, start) = (settings(algorithm), StartRates::Given(periods.clone()));
            let mut feedback = Feedback::new(settings, (ASSIGNERS[0].build)(), tasks.clone(), start).unwrap();
            for (sample, late) in &samples {
                let before = feedback.law().total().max(feedback.range()[0]);
                let sample = if *late { sample.lowering(&settings) } else { *sample };
                let record = feedback.sample(sample);
                prop_assert!(!late || record.next.total <= before, "{}: {:?}", algorithm.name(), record);
            }
        }
    }

    #[test]
    fn assigned_rates_sum_up_to_the_total(drawn in tasks(), part in 0.0..=1.0f64) {
        let (tasks, base): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for kind in ASSIGNERS.iter().filter(|kind| kind.name != "proportional-clipped") {
            let assigner = restarted(kind, &tasks, &base);
            let total = within(assigner.range(), part);
            let periods = assigned(&*assigner, &tasks, total);
            let (sum, rounding) = (sum(&tasks, &periods), rounding(&tasks, &periods));
            prop_assert!(sum <= total * (1.0 + 1e-12) && sum >= total - rounding, "{}: {} of {}, {}", kind.name, sum, total, rounding);
        }
    }

    #[test]
    fn a_greater_total_makes_no_period_longer(drawn in tasks(), one in -0.2..1.2f64, other in -0.2..1.2f64) {
        let (tasks, base): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for kind in &ASSIGNERS {
            let assigner = restarted(kind, &tasks, &base);
            let [low, high] = [one.min(other), one.max(other)].map(|part| assigned(&*assigner, &tasks, within(assigner.range(), part)));
            for (low, high) in low.iter().zip(&high) {
                prop_assert!(high <= low, "{}: {:?} after {:?}", kind.name, high, low);
            }
            let ends = assigner.range().map(|end| assigned(&*assigner, &tasks, end));
            for (place, task) in tasks.iter().enumerate() {
                prop_assert_eq!([ends[0][place], ends[1][place]], [task.longest(), task.shortest()], "{}", kind.name);
            }
        }
    }

    #[test]
    fn proportional_rates_keep_their_ratios_off_the_limits(drawn in tasks(), part in 0.0..=1.0f64) {
        let (tasks, base): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        for kind in ASSIGNERS.iter().filter(|kind| kind.name != "value") {
            let assigner = restarted(kind, &tasks, &base);
            let total = within(assigner.range(), part);
            let periods = assigned(&*assigner, &tasks, total);
            let is_free = |place: &usize| periods[*place] > tasks[*place].shortest() && periods[*place] < tasks[*place].longest();
            let free: Vec<usize> = (0..tasks.len()).filter(is_free).collect();
            // Each period is the base's times one factor, rounded up: the factor is within these two.
            let factors = free.iter().map(|place| {
                let (period, base) = (periods[*place].as_nanos() as f64, base[*place].as_nanos() as f64);
                ((period - 1.0) / base, period / base)
            });
            let above = factors.clone().map(|(low, _)| low).fold(0.0, f64::max);
            let below = factors.map(|(_, high)| high).fold(f64::INFINITY, f64::min);
            prop_assert!(above <= below * (1.0 + 1e-12), "{}: {} {}", kind.name, above, below);
            // While no limit binds, both forms are the paper's.
            if free.len() == tasks.len() {
                let factor = sum(&tasks, &base) / total;
                prop_assert!((above..=below * (1.0 + 1e-9)).contains(&(factor * (1.0 + 1e-12))), "{}: {}", kind.name, factor);
            }
        }
    }

    #[test]
    fn no_exchange_of_time_adds_value(drawn in tasks(), part in 0.0..=1.0f64) {
        let (tasks, base): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        let assigner = restarted(RateAssignerKind::named("value").unwrap(), &tasks, &base);
        let periods = assigned(&*assigner, &tasks, within(assigner.range(), part));
        let worth = |task: &AdaptiveTask| f64::from(task.value()) / task.estimate().as_nanos() as f64;
        for (one, slower) in tasks.iter().zip(&periods) {
            for (other, faster) in tasks.iter().zip(&periods) {
                let could_rise = slower.as_nanos() > one.shortest().as_nanos() + 1;
                let could_fall = faster < &other.longest();
                prop_assert!(!(could_rise && could_fall && worth(one) > worth(other) * (1.0 + 1e-12)));
            }
        }
    }
}

#[test]
fn a_sample_does_not_allocate() {
    let ms = Span::from_millis;
    let tasks = vec![AdaptiveTask::new(ms(1), ms(5), ms(1_000), 1).unwrap(); 1_000];
    for kind in &ASSIGNERS {
        let settings = settings(ALGORITHMS[3].0);
        let mut feedback = Feedback::new(settings, (kind.build)(), tasks.clone(), StartRates::Lowest).unwrap();
        let sample = FeedbackSample { utilisation: Some(0.3), miss_ratio: Some(0.0), latency: Some(0.5) };
        let counted = allocation_counter::measure(|| _ = std::hint::black_box(feedback.sample(sample)));
        assert_eq!(counted.count_total, 0, "{}", kind.name);
    }
}
