//! The rates and service levels with the greatest value.

use alloc::vec::Vec;

use hyoshi_model::{MOST_SERVICE_LEVELS, Span};

use super::assign::{AdaptiveTask, AssignedTotals, RateAssigner};

/// Maximises the value of all jobs per second, `sum of value R`, within `sum of EE R <= B` and the ranges.
///
/// Without service levels this is the fractional knapsack problem: with all tasks at their lowest rates, the rest of
/// the total raises the task with the most value per execution time to its highest rate, then the next (Dantzig,
/// "Discrete-Variable Extremum Problems", Operations Research 5(2), 1957). Ties keep the order of tasks.
///
/// With levels it is the multiple-choice knapsack problem (Sinha and Zoltners, "The Multiple-Choice Knapsack Problem",
/// Operations Research 27(3), 1979). The choices of a task are points of utilisation and value per second. Only those
/// on the upper convex hull count:
///
/// ```text
/// value/s                    ,--- level 2, highest rate
///                      ,----'
///                  _,-'  levels rise at the highest rate
///              _,-'<- level 1, highest rate
///          _,-'   the rate rises, at the level with the most value per execution time
///        /'<- level 1, lowest rate
///       /   levels rise at the lowest rate
///      /<- level 0, lowest rate
/// ```
///
/// The steps of all hulls are made in the order of value per utilisation. The first rise of a level that does not fit
/// is the last one that is tried. What it leaves raises the rates of other tasks. So the value is below the optimum by
/// less than the value of that one rise: the optimum is at most that of the problem in which levels may rise in part.
/// No level falls when the total rises; a rate may fall when a level rises.
///
/// Proportional adjustment assumes that values are proportional to execution times, and leaves other values to such an
/// assigner (FCS/nORB, section 3.3). Here at most one task is between its limits, and only its rate follows small
/// changes of the total. Ratios of rates change, so the order of rate monotonic priorities may. Of start rates only the
/// sum counts: the first sample distributes it anew.
#[derive(Clone, Debug, Default)]
pub struct ByValue {
    /// The steps of all tasks, the most value per execution time first.
    steps: Vec<HullStep>,
    range: [f64; 2],
}

/// From one corner of a task's hull to the next.
#[derive(Clone, Copy, Debug)]
struct HullStep {
    task: u32,
    /// The level before and after; the same if the rate rises.
    levels: [u8; 2],
    /// The additional value and execution time of a job. If the rate rises: those of the whole job.
    value: u32,
    work: Span,
    /// The utilisation that it adds.
    width: f64,
}

/// Rounding of a sum of utilisations must not lower a level.
const ROUNDING: f64 = 1e-9;

impl HullStep {
    /// The order of steps: the most value per utilisation first.
    fn rank(&self, other: &HullStep) -> core::cmp::Ordering {
        // value / work, without a division: a / b > c / d is a * d > c * b.
        let against = |one: &HullStep, other: &HullStep| u128::from(one.value) * u128::from(other.work.as_nanos());
        against(other, self).cmp(&against(self, other)).then((self.task, self.levels).cmp(&(other.task, other.levels)))
    }
}

impl ByValue {
    /// The steps of a task between two levels, at this period.
    fn rise(&mut self, task: u32, of: &AdaptiveTask, [from, to]: [usize; 2], period: Span) {
        let levels = of.levels();
        let (mut corners, mut count) = ([from; MOST_SERVICE_LEVELS], 1);
        let slope = |one: usize, next: usize| {
            let (one, next) = (levels[one], levels[next]);
            (u128::from(next.1 - one.1), u128::from(next.0.as_nanos() - one.0.as_nanos()))
        };
        for level in from + 1..=to {
            while let [.., one, last] = corners[..count] {
                let (before, after) = (slope(one, last), slope(last, level));
                if before.0 * after.1 >= after.0 * before.1 {
                    break;
                }
                count -= 1;
            }
            corners[count] = level;
            count += 1;
        }
        for pair in corners[..count].windows(2) {
            let (low, high) = (levels[pair[0]], levels[pair[1]]);
            self.steps.push(HullStep {
                task,
                levels: [pair[0] as u8, pair[1] as u8],
                value: high.1 - low.1,
                work: high.0.saturating_sub(low.0),
                width: of.utilisation_at(pair[1], period) - of.utilisation_at(pair[0], period),
            });
        }
    }
}

impl RateAssigner for ByValue {
    fn name(&self) -> &'static str {
        "value"
    }

    fn restart(&mut self, tasks: &[AdaptiveTask], _: &[Span]) {
        self.steps.clear();
        // At most: later restarts with these numbers of levels do not allocate.
        self.steps.reserve(tasks.iter().map(|task| task.levels().len()).sum());
        for (number, task) in (0..).zip(tasks) {
            let levels = task.levels();
            let dense = |one: &(Span, u32), best: &(Span, u32)| {
                u128::from(one.1) * u128::from(best.0.as_nanos()) > u128::from(best.1) * u128::from(one.0.as_nanos())
            };
            let best = (1..levels.len()).fold(0, |best, at| if dense(&levels[at], &levels[best]) { at } else { best });
            self.rise(number, task, [0, best], task.longest());
            let (work, value) = levels[best];
            let width = task.utilisation_at(best, task.shortest()) - task.utilisation_at(best, task.longest());
            self.steps.push(HullStep { task: number, levels: [best as u8; 2], value, work, width });
            self.rise(number, task, [best, levels.len() - 1], task.shortest());
        }
        // The stable sort allocates.
        self.steps.sort_unstable_by(HullStep::rank);
        self.range = [tasks.iter().map(AdaptiveTask::least).sum(), tasks.iter().map(AdaptiveTask::most).sum()];
    }

    fn range(&self) -> [f64; 2] {
        self.range
    }

    fn assign(&self, tasks: &[AdaptiveTask], totals: AssignedTotals, periods: &mut [Span], levels: &mut [u8]) {
        // At the upper end, rounding must not leave a task one nanosecond short.
        let rest = |total: f64| if total >= self.range[1] { f64::INFINITY } else { total - self.range[0] };
        let (mut left, mut to_raise) = (rest(totals.all), rest(totals.raise.min(totals.all)));
        // A rise that is not permitted lowers no other level, but one that no longer fits does.
        let (mut full, mut blocked) = (false, false);
        for step in &self.steps {
            let place = step.task as usize;
            let (task, level, [before, after]) = (&tasks[place], &mut levels[place], step.levels);
            if before < after {
                let stays = after <= *level;
                full |= stays && step.width > left + ROUNDING;
                blocked |= full || !stays && step.width > to_raise + ROUNDING;
                if full || blocked && !stays {
                    *level = before.min(*level);
                    continue;
                }
                *level = after.max(*level);
            } else {
                let lowest = task.utilisation_at(after.into(), task.longest());
                if *level < after {
                    periods[place] = task.longest();
                    continue;
                }
                periods[place] = if left >= step.width {
                    task.shortest()
                } else if left > 0.0 {
                    task.clip(task.levels()[usize::from(after)].0.as_nanos() as f64 / (lowest + left))
                } else {
                    task.longest()
                };
            }
            left -= step.width;
            to_raise -= step.width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn task(estimate: u64, shortest: u64, longest: u64, value: u32) -> AdaptiveTask {
        let ms = Span::from_millis;
        AdaptiveTask::new(ms(estimate), ms(shortest), ms(longest), value).unwrap()
    }

    fn assigned(tasks: &[AdaptiveTask], total: f64) -> Vec<u64> {
        let mut assigner = ByValue::default();
        let mut periods: Vec<Span> = tasks.iter().map(AdaptiveTask::longest).collect();
        assigner.restart(tasks, &periods);
        assigner.assign(tasks, total.into(), &mut periods, &mut vec![0; tasks.len()]);
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
