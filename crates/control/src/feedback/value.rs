//! The rates with the greatest value.

use alloc::vec::Vec;

use hyoshi_model::Span;

use super::assign::{AdaptiveTask, RateAssigner};

/// Maximises the value of all jobs per second, `sum of value R`, within `sum of EE R <= B` and the ranges.
///
/// This is the fractional knapsack problem: with all tasks at their lowest rates, the rest of the total raises the task
/// with the most value per execution time to its highest rate, then the next (Dantzig, "Discrete-Variable Extremum
/// Problems", Operations Research 5(2), 1957). Ties keep the order of tasks.
///
/// Proportional adjustment assumes that values are proportional to execution times, and leaves other values to such an
/// assigner (FCS/nORB, section 3.3). Here at most one task is between its limits, and only its rate follows small
/// changes of the total. Ratios of rates change, so the order of rate monotonic priorities may. Of start rates only the
/// sum counts: the first sample distributes it anew.
#[derive(Clone, Debug, Default)]
pub struct ByValue {
    /// Positions of tasks, the most value per execution time first.
    order: Vec<u32>,
    range: [f64; 2],
}

impl RateAssigner for ByValue {
    fn name(&self) -> &'static str {
        "value"
    }

    fn restart(&mut self, tasks: &[AdaptiveTask], _: &[Span]) {
        self.order.clear();
        self.order.extend(0..tasks.len() as u32);
        // value / EE, without a division: a / b > c / d is a * d > c * b.
        let against = |one: &AdaptiveTask, other: &AdaptiveTask| {
            u128::from(one.value()) * u128::from(other.estimate().as_nanos())
        };
        // The stable sort allocates.
        self.order.sort_unstable_by(|first, second| {
            let (one, other) = (&tasks[*first as usize], &tasks[*second as usize]);
            against(other, one).cmp(&against(one, other)).then(first.cmp(second))
        });
        self.range = [tasks.iter().map(AdaptiveTask::least).sum(), tasks.iter().map(AdaptiveTask::most).sum()];
    }

    fn range(&self) -> [f64; 2] {
        self.range
    }

    fn assign(&self, tasks: &[AdaptiveTask], total: f64, periods: &mut [Span]) {
        // At the upper end, rounding must not leave a task one nanosecond short.
        let mut left = if total >= self.range[1] { f64::INFINITY } else { total - self.range[0] };
        for place in &self.order {
            let (task, period) = (&tasks[*place as usize], &mut periods[*place as usize]);
            let (least, width) = (task.least(), task.most() - task.least());
            *period = if left >= width {
                task.shortest()
            } else if left > 0.0 {
                task.clip(task.estimate().as_nanos() as f64 / (least + left))
            } else {
                task.longest()
            };
            left -= width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(estimate: u64, shortest: u64, longest: u64, value: u32) -> AdaptiveTask {
        let ms = Span::from_millis;
        AdaptiveTask::new(ms(estimate), ms(shortest), ms(longest), value).unwrap()
    }

    fn assigned(tasks: &[AdaptiveTask], total: f64) -> Vec<u64> {
        let mut assigner = ByValue::default();
        let mut periods: Vec<Span> = tasks.iter().map(AdaptiveTask::longest).collect();
        assigner.restart(tasks, &periods);
        assigner.assign(tasks, total, &mut periods);
        periods.iter().map(|period| period.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn the_most_value_per_execution_time_rises_first() {
        // Values per ms: 1, 3, 2. Each has 0.1 at its lowest rate and 0.4 at its highest.
        let tasks = [task(10, 25, 100, 10), task(10, 25, 100, 30), task(20, 50, 200, 40)];
        assert_eq!(assigned(&tasks, 0.3), [100, 100, 200]);
        assert_eq!(assigned(&tasks, 0.4), [100, 50, 200]);
        assert_eq!(assigned(&tasks, 0.6), [100, 25, 200]);
        assert_eq!(assigned(&tasks, 0.9), [100, 25, 50]);
        assert_eq!(assigned(&tasks, 1.0), [50, 25, 50]);
        assert_eq!(assigned(&tasks, 9.0), [25, 25, 50]);
        assert_eq!(assigned(&tasks, f64::NEG_INFINITY), [100, 100, 200]);
    }

    #[test]
    fn of_equal_tasks_the_first_rises_first() {
        let tasks = [task(10, 25, 100, 10), task(20, 50, 200, 20), task(10, 25, 100, 10)];
        assert_eq!(assigned(&tasks, 0.6), [25, 200, 100]);
        // Values of 0 keep the order, too.
        let tasks = [task(10, 25, 100, 0), task(20, 50, 200, 0)];
        assert_eq!(assigned(&tasks, 0.4), [33, 200]);
    }

    #[test]
    fn no_tasks_need_nothing() {
        assert_eq!(assigned(&[], 0.5), [0; 0]);
    }
}
