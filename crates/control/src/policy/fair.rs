//! Fair: by importance, with equal shares of the rest at the same importance (max-min fairness).

use alloc::vec::Vec;

use hyoshi_model::Share;

use super::{Ask, Policy, PolicySpec};
use crate::task::{Grant, GroupId, Limit, Reason, TaskId};

/// Serves the most important tasks first, then the next, as [`Strict`](super::Strict) does. Tasks of the same
/// importance share the rest by progressive filling: all shares rise together, and a task drops out when its demand is
/// met (max-min fairness; Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2).
///
/// A task gains nothing by requesting more than its equals, and the order of joining does not matter, so a runaway does
/// not starve a steady task.
///
/// A task that cannot use less than its *least* gets that much if only tasks with larger demands lose by it. Otherwise
/// it gets nothing, and its share is granted to the other tasks. So a large least never gains more than a smaller
/// demand.
///
/// Laws, tested by property: a task gets its whole request, or no equal gets more. With a larger cap, or with fewer or
/// smaller requests of other tasks, no task gets less (both among tasks without a least).
#[derive(Clone, Debug, Default)]
pub struct Fair {
    /// One importance level at a time, smallest demand first.
    level: Vec<Filled>,
}

/// A task of the level that is being filled.
#[derive(Clone, Copy, Debug)]
struct Filled {
    /// Its index among the asks.
    place: usize,
    demand: u64,
    least: u64,
    /// In millionths of a CPU; `None` if its least does not fit.
    share: Option<u64>,
}

/// A level is filled again after a task had to leave. After this many times, all tasks with a least above the equal
/// share leave. That bounds the work.
const REFILLS: u32 = 16;

impl Fair {
    /// Fills the level with at most `room`. Each round that fails removes one task, or at last all that fail.
    fn fill(&mut self, room: u64) {
        let mut refills = 0;
        while let Some(failed) = self.fill_once(room, refills >= REFILLS) {
            if refills < REFILLS {
                self.level[failed].share = None;
            }
            refills += 1;
        }
    }

    /// One pass of progressive filling in the order of demands. Returns the last task with a least that does not
    /// fit. With `all`, each task with a least above its equal share leaves in this pass.
    fn fill_once(&mut self, room: u64, all: bool) -> Option<usize> {
        let mut left = room;
        let mut others = self.level.iter().filter(|task| task.share.is_some()).count() as u64;
        // The smallest share so far of a task with less than its request.
        let mut smallest = u64::MAX;
        let mut failed = None;
        for (index, task) in self.level.iter_mut().enumerate() {
            if task.share.is_none() {
                continue;
            }
            // Rounded up: the rest of the rounding goes to the smaller demands.
            let equal = left.div_ceil(others.max(1));
            let most = if all { equal } else { left.min(smallest) };
            others -= 1;
            if task.least > most {
                failed = Some(index);
                if all {
                    task.share = None;
                }
                continue;
            }
            let share = task.demand.min(equal.max(task.least)).min(left);
            if share < task.demand {
                smallest = smallest.min(share);
            }
            task.share = Some(share);
            left -= share;
        }
        failed
    }
}

impl Policy for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn manner(&self, _: GroupId) -> &str {
        "more important tasks first; equals get equal shares"
    }

    fn spec(&self) -> Option<PolicySpec> {
        Some(PolicySpec::Fair)
    }

    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        let mut left = limit.share();
        for equals in asks.chunk_by(|one, next| one.importance == next.importance) {
            let together: Share = equals.iter().map(|ask| ask.asked.share()).sum();
            if together <= left {
                left = left.saturating_sub(together);
                grants.extend(equals.iter().map(|ask| ask.granted(Some(ask.asked), Reason::Granted)));
                continue;
            }
            self.level.clear();
            self.level.extend(equals.iter().enumerate().map(|(place, ask)| {
                let demand = ask.asked.share().as_millionths();
                Filled { place, demand, least: ask.least.as_millionths().min(demand), share: Some(0) }
            }));
            self.level.sort_unstable_by_key(|task| (task.demand, task.least, task.place));
            self.fill(left.as_millionths());
            let first = grants.len();
            // Reported to a task with no grant: the share that it could have had.
            let equal = left.as_millionths() / equals.len() as u64;
            grants.extend(equals.iter().map(|ask| ask.granted(None, Reason::NothingLeft(limit))));
            for task in &self.level {
                let ask = &equals[task.place];
                let grant = match task.share {
                    Some(share) => ask.grant(Share::from_millionths(share), limit),
                    None if left.is_zero() => ask.granted(None, Reason::NothingLeft(limit)),
                    None => ask.granted(None, Reason::BelowLeast(limit, Share::from_millionths(equal))),
                };
                grants[first + task.place] = grant;
            }
            let used: Share = grants[first..].iter().map(Grant::share).sum();
            left = left.saturating_sub(used);
        }
    }

    fn within_account(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        self.arbitrate(asks, limit, grants);
    }

    fn grants_all_that_fits(&self) -> bool {
        true
    }

    fn blame(&self, asks: &[Ask], grants: &[Grant], index: usize, name: &mut dyn FnMut(TaskId, Share)) {
        let Some(importance) = asks.get(index).map(|ask| ask.importance) else { return };
        let before = asks.iter().zip(grants).enumerate().filter(|(other, (ask, grant))| {
            *other != index && ask.importance >= importance && grant.reservation.is_some()
        });
        for (_, (_, grant)) in before {
            name(grant.task, grant.share());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::{Reservation, Span};

    fn ask(task: u32, percent: u64, importance: u32, least: u64) -> Ask {
        let asked = Reservation::new(Span::from_millis(percent), Span::from_millis(100)).unwrap();
        let least = Share::from_percent(least);
        Ask { task: TaskId(task), importance, weight: 1, group: GroupId(0), asked, least }
    }

    fn percents(asks: &[Ask], cap: u64) -> Vec<u64> {
        let mut grants = Vec::new();
        Fair::default().arbitrate(asks, Limit::Cap(Share::from_percent(cap)), &mut grants);
        grants.iter().map(|grant| (grant.share().as_millionths() + 5_000) / 10_000).collect()
    }

    #[test]
    fn a_runaway_that_joined_first_does_not_starve_a_steady_task_of_the_same_importance() {
        assert_eq!(percents(&[ask(1, 100, 1, 0), ask(2, 30, 1, 0)], 75), [45, 30]);
        // Progressive filling: the demands 10 and 20 are met, the other two share the rest.
        assert_eq!(
            percents(&[ask(1, 90, 1, 0), ask(2, 10, 1, 0), ask(3, 20, 1, 0), ask(4, 50, 1, 0)], 90),
            [30, 10, 20, 30]
        );
    }

    #[test]
    fn the_more_important_go_first() {
        assert_eq!(percents(&[ask(1, 60, 5, 0), ask(2, 10, 1, 0), ask(3, 90, 1, 0)], 80), [60, 10, 10]);
        assert_eq!(percents(&[ask(1, 80, 5, 0), ask(2, 10, 1, 0)], 75), [75, 0]);
    }

    #[test]
    fn a_least_reduces_larger_demands_only() {
        assert_eq!(percents(&[ask(1, 100, 1, 0), ask(2, 40, 1, 40)], 75), [35, 40]);
        // Not from the smaller one, which would have 45 of the 90.
        assert_eq!(percents(&[ask(1, 50, 1, 0), ask(2, 90, 1, 80)], 90), [50, 0]);
        // The largest demand leaves first: without it the least of the other fits.
        assert_eq!(percents(&[ask(1, 40, 1, 0), ask(2, 60, 1, 35), ask(3, 70, 1, 60)], 90), [40, 50, 0]);
    }

    #[test]
    fn many_leasts_that_do_not_fit_need_bounded_rounds() {
        let asks: Vec<Ask> = (0..200).map(|task| ask(task, 90, 1, 1 + u64::from(task) % 80)).collect();
        let percents = percents(&asks, 75);
        assert!(percents.iter().sum::<u64>() > 50, "{percents:?}");
    }
}
