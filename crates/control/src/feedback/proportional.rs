//! Proportional rate adjustment (PRA).

use alloc::vec::Vec;

use hyoshi_model::Span;

use super::assign::{AdaptiveTask, AssignedTotals, RateAssigner};

/// Multiplies all rates by one factor, so their ratios stay, and with them the order of rate monotonic priorities
/// (FCS/nORB, section 3.3).
///
/// The paper's form is `Ri = (B / B(0)) Ri(0)`, clipped to the task's range. Once a task is at a limit, the sum of
/// `EE R` is no longer `B`: below it with a task at its highest rate, above it with one at its lowest. That is
/// [`Proportional::clipped`].
///
/// By default the others make up for tasks at a limit. The factor `s` is the one for which
///
/// ```text
/// sum of EEi clip(s Ri(0)) = B
/// ```
///
/// The sum is `B` for every `B` that the ranges allow, the ratios among tasks off their limits are those of `Ri(0)`, and
/// while no task is at a limit it is the paper's form. The left side is a rising line with a bend where a task
/// reaches a limit. A restart sorts the bends; a sample walks along them in `O(tasks)`.
#[derive(Clone, Debug, Default)]
pub struct Proportional {
    is_clipped: bool,
    /// Ri(0), as periods.
    base: Vec<Span>,
    /// B(0), the sum at the base.
    base_total: f64,
    range: [f64; 2],
    /// The factor of each bend, and the change of the slope there; sorted.
    bends: Vec<(f64, f64)>,
}

impl Proportional {
    /// The paper's form.
    pub fn clipped() -> Self {
        Proportional { is_clipped: true, ..Proportional::default() }
    }

    /// The factor of all rates for this total: 0 for the lowest rates, infinity for the highest.
    fn factor(&self, total: f64) -> f64 {
        if total <= self.range[0] {
            return 0.0;
        }
        if total >= self.range[1] {
            return f64::INFINITY;
        }
        if self.is_clipped {
            return total / self.base_total;
        }
        let (mut at, mut sum, mut slope) = (0.0, self.range[0], 0.0);
        for (bend, change) in &self.bends {
            let rise = slope * (bend - at);
            if sum + rise >= total {
                // A slope that should be 0 may be a rounding error: do not pass the bend.
                return if slope > 0.0 { (at + (total - sum) / slope).min(*bend) } else { at };
            }
            (at, sum, slope) = (*bend, sum + rise, slope + change);
        }
        f64::INFINITY // rounding left the sum slightly below the total
    }
}

impl RateAssigner for Proportional {
    fn name(&self) -> &'static str {
        if self.is_clipped { "proportional-clipped" } else { "proportional" }
    }

    fn restart(&mut self, tasks: &[AdaptiveTask], periods: &[Span]) {
        self.base.clear();
        self.base.extend_from_slice(periods);
        self.base_total = tasks.iter().zip(periods).map(|(task, period)| task.utilisation(*period)).sum();
        self.bends.clear();
        for (task, period) in tasks.iter().zip(periods) {
            let share = task.utilisation(*period);
            self.bends.push((task.least() / share, share));
            self.bends.push((task.most() / share, -share));
        }
        self.bends.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        self.range = if self.is_clipped {
            // Between the first and the last bend, a change of the total changes some rate.
            let [first, last] = [self.bends.first(), self.bends.last()].map(|bend| bend.map_or(0.0, |bend| bend.0));
            [first * self.base_total, last * self.base_total]
        } else {
            [tasks.iter().map(AdaptiveTask::least).sum(), tasks.iter().map(AdaptiveTask::most).sum()]
        };
    }

    fn range(&self) -> [f64; 2] {
        self.range
    }

    fn assign(&self, tasks: &[AdaptiveTask], totals: AssignedTotals, periods: &mut [Span], _: &mut [u8]) {
        let factor = self.factor(totals.all);
        for ((task, base), period) in tasks.iter().zip(&self.base).zip(periods) {
            *period = task.clip(base.as_nanos() as f64 / factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(estimate_us: u64, shortest: u64, longest: u64) -> AdaptiveTask {
        let ms = Span::from_millis;
        AdaptiveTask::new(Span::from_micros(estimate_us), ms(shortest), ms(longest), 1).unwrap()
    }

    /// The periods in milliseconds at this total.
    fn assigned(mut assigner: Proportional, tasks: &[AdaptiveTask], base: &[u64], total: f64) -> Vec<f64> {
        let mut periods: Vec<Span> = base.iter().map(|ms| Span::from_millis(*ms)).collect();
        assigner.restart(tasks, &periods);
        assigner.assign(tasks, total.into(), &mut periods, &mut []);
        periods.iter().map(|period| (period.as_nanos() as f64 / 1e6 * 1e3).round() / 1e3).collect()
    }

    #[test]
    fn off_the_limits_both_forms_scale_all_rates_by_one_factor() {
        let tasks = [task(8_400, 20, 900), task(1_200, 20, 900)];
        // B(0) = 0.0168 + 0.006: three times as much divides the periods by three.
        for assigner in [Proportional::default(), Proportional::clipped()] {
            assert_eq!(assigned(assigner, &tasks, &[500, 200], 3.0 * 0.0228), [166.667, 66.667]);
        }
    }

    #[test]
    fn what_a_task_at_its_limit_leaves_is_given_to_the_others() {
        // At their base both have 0.1; the first can double, the second grow by ten.
        let tasks = [task(10_000, 50, 400), task(10_000, 10, 400)];
        let base = [100, 100];
        assert_eq!(assigned(Proportional::clipped(), &tasks, &base, 0.6), [50.0, 33.333]);
        assert_eq!(assigned(Proportional::default(), &tasks, &base, 0.6), [50.0, 25.0]);
        // At the low end: the first may not fall below 0.08.
        let tasks = [task(10_000, 50, 125), task(10_000, 10, 400)];
        assert_eq!(assigned(Proportional::clipped(), &tasks, &base, 0.12), [125.0, 166.667]);
        assert_eq!(assigned(Proportional::default(), &tasks, &base, 0.12), [125.0, 250.0]);
    }

    #[test]
    fn where_no_rate_can_change_the_sum_stays() {
        // The first task ends at twice its base, the second begins to rise at four times its own: its base is outside
        // its range, as after a change of the range.
        let tasks = [task(10_000, 50, 100), task(10_000, 10, 25)];
        let base = [100, 100];
        let flat = 0.2 + 0.4;
        assert_eq!(assigned(Proportional::default(), &tasks, &base, flat), [50.0, 25.0]);
        assert_eq!(assigned(Proportional::default(), &tasks, &base, flat + 0.1), [50.0, 20.0]);
        assert_eq!(assigned(Proportional::default(), &tasks, &base, flat - 0.1), [100.0, 25.0]);
    }

    #[test]
    fn beyond_its_range_all_rates_are_at_their_limits() {
        let tasks = [task(10_000, 50, 400), task(10_000, 10, 300)];
        for assigner in [Proportional::default(), Proportional::clipped()] {
            for low in [0.0, -3.0, f64::NEG_INFINITY, 0.01] {
                assert_eq!(assigned(assigner.clone(), &tasks, &[100, 100], low), [400.0, 300.0], "{assigner:?} {low}");
            }
            for high in [10.0, f64::INFINITY] {
                assert_eq!(assigned(assigner.clone(), &tasks, &[100, 100], high), [50.0, 10.0], "{assigner:?} {high}");
            }
        }
        assert_eq!(assigned(Proportional::default(), &[], &[], 0.5), [0.0; 0]);
    }

    #[test]
    fn the_clipped_form_moves_rates_between_its_first_and_its_last_bend() {
        let tasks = [task(10_000, 50, 400), task(10_000, 10, 300)];
        let mut assigner = Proportional::clipped();
        assigner.restart(&tasks, &[Span::from_millis(100); 2]);
        // 400 ms is a quarter of the rate, 10 ms ten times; B(0) = 0.2.
        let [least, most] = assigner.range();
        assert!((least - 0.05).abs() < 1e-12 && (most - 2.0).abs() < 1e-12, "{least} {most}");
    }
}
