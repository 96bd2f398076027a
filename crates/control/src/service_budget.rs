//! The broker's own CPU time as a budget: the cost of serving each task, and which tasks fit.
//!
//! A task costs the broker a fixed part in each of its periods (a check of its window, a report) and a part for each
//! thread (raised and lowered once). [`ServiceBudget`] adds these costs up by user and divides the budget by max-min
//! fairness (Bertsekas and Gallager, *Data Networks*, section 6.5.2), weighted by the users' shares: a user who needs
//! less than the equal part leaves the rest to the others. Of each user's tasks, those that joined first are served as
//! long as they fit the user's part.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hyoshi_model::{Share, Span};

use crate::task::TaskId;

/// The cost of serving a task, before measurements correct it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceDemand {
    /// The task's period.
    pub period: Span,
    /// Its threads.
    pub threads: usize,
}

impl ServiceDemand {
    /// Once a period: the check of the window, the report, and a part of the wake-up.
    pub const LOOK: Span = Span::from_micros(16);
    /// For each thread: raised and lowered once a period.
    pub const THREAD: Span = Span::from_micros(6);

    /// Its part of one CPU; at most a thousand CPUs.
    pub fn share(self) -> Share {
        let each = ServiceDemand::LOOK.as_nanos() + ServiceDemand::THREAD.as_nanos() * self.threads.min(1 << 20) as u64;
        let millionths = u128::from(each) * u128::from(Share::CPU.as_millionths());
        let millionths = millionths.div_ceil(u128::from(self.period.as_nanos().max(1)));
        Share::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX).min(MOST))
    }
}

/// A thousand CPUs, in millionths of one.
const MOST: u64 = 1_000_000_000;

/// A user, by number.
pub type User = u32;

#[derive(Clone, Copy, Debug)]
struct ServedTask {
    user: User,
    demand: ServiceDemand,
    served: bool,
    /// It is always served, and uses nothing of users' parts.
    exempt: bool,
}

/// Why a task is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// The user with a part that is used up.
    pub user: User,
    /// That part of a CPU.
    pub part: Share,
    /// The cost of the user's tasks that are served.
    pub taken: Share,
    /// The cost of this task.
    pub needs: Share,
    /// The budget of all users together.
    pub budget: Share,
}

impl core::fmt::Display for Unserved {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Unserved { user, part, taken: used, needs, budget } = self;
        write!(
            f,
            "serving it would need {needs} of a CPU of the broker's own time; user {user} has {part} of the {budget} \
                budget, and uses {used} of that"
        )
    }
}

impl core::error::Error for Unserved {}

/// The broker's own time, and the tasks that use it.
///
/// It reads no clock: the caller measures what the broker consumed and calls [`ServiceBudget::measured`].
#[derive(Clone, Debug)]
pub struct ServiceBudget {
    budget: Share,
    /// Parts of users that differ from [`Share::CPU`]; only their proportions matter.
    shares: BTreeMap<User, Share>,
    /// By number, which is the order in which they joined.
    tasks: BTreeMap<TaskId, ServedTask>,
    /// Each user's part, and how much of it is used.
    parts: BTreeMap<User, (Share, Share)>,
    /// The measured cost, in hundredths of the model's; never below a hundred.
    scale: u64,
}

impl ServiceBudget {
    /// The default budget: a tenth of one CPU.
    pub const BUDGET: Share = Share::from_percent(10);
    /// Measurements scale the model by at most this: tasks of one user that cost more than the model make others' no
    /// costlier than that.
    const MOST_SCALE: u64 = 300;
    /// The model is not corrected below this value, because wake-ups of the process itself dominate there.
    const LEAST_MODEL: Share = Share::from_percent(1);

    /// Without tasks.
    pub fn new(budget: Share) -> Self {
        ServiceBudget { budget, shares: BTreeMap::new(), tasks: BTreeMap::new(), parts: BTreeMap::new(), scale: 100 }
    }

    /// The users' shares; users that are not named have [`Share::CPU`] each.
    pub fn set_shares(&mut self, shares: BTreeMap<User, Share>) -> Vec<TaskId> {
        self.shares = shares;
        self.settle()
    }

    /// All users together.
    pub fn budget(&self) -> Share {
        self.budget
    }

    /// The cost of all served tasks, with corrections.
    pub fn taken(&self) -> Share {
        self.tasks.values().filter(|entry| entry.served).map(|entry| self.cost(entry.demand)).sum()
    }

    /// From now on a task has this cost. An `exempt` one, of root's or an operator's, is always served, and uses
    /// nothing of users' parts. Returns the tasks that are no longer served or are served again, perhaps this one among
    /// them.
    pub fn set(&mut self, task: TaskId, user: User, demand: ServiceDemand, exempt: bool) -> Vec<TaskId> {
        let before = self.tasks.get(&task).copied();
        if before.is_some_and(|before| (before.user, before.demand) == (user, demand)) {
            return Vec::new();
        }
        let served = before.is_none_or(|before| before.served);
        self.tasks.insert(task, ServedTask { user, demand, served, exempt });
        self.settle()
    }

    /// A task no longer costs anything. Returns the tasks that are served now, and those that no longer are: an earlier
    /// task that fits now may need their part.
    pub fn remove(&mut self, task: TaskId) -> Vec<TaskId> {
        if self.tasks.remove(&task).is_some() { self.settle() } else { Vec::new() }
    }

    /// Why a task is not served; `None` if it is, or is not known.
    pub fn unserved(&self, task: TaskId) -> Option<Unserved> {
        let entry = self.tasks.get(&task).filter(|entry| !entry.served)?;
        let (part, taken) = self.parts.get(&entry.user).copied().unwrap_or_default();
        Some(Unserved { user: entry.user, part, taken, needs: self.cost(entry.demand), budget: self.budget })
    }

    /// The part of a CPU that the broker used lately. If the model's value is smaller, all costs are scaled up, by a
    /// quarter of the difference each time; if it is larger, they return to the model at the same rate. Returns the
    /// same tasks as [`ServiceBudget::set`].
    ///
    /// The `demands` are those of tasks at present: their number of threads changes.
    pub fn measured(
        &mut self,
        share: Share,
        demands: impl IntoIterator<Item = (TaskId, ServiceDemand)>,
    ) -> Vec<TaskId> {
        for (task, demand) in demands {
            if let Some(entry) = self.tasks.get_mut(&task) {
                entry.demand = demand;
            }
        }
        let model: Share = self.tasks.values().filter(|entry| entry.served).map(|entry| entry.demand.share()).sum();
        if model < ServiceBudget::LEAST_MODEL {
            return self.settle();
        }
        let seen = share.as_millionths().saturating_mul(100) / model.as_millionths().max(1);
        let seen = seen.clamp(100, ServiceBudget::MOST_SCALE);
        self.scale = if seen > self.scale {
            self.scale + (seen - self.scale).div_ceil(4)
        } else {
            self.scale - (self.scale - seen).div_ceil(4)
        };
        self.settle()
    }

    fn cost(&self, demand: ServiceDemand) -> Share {
        Share::from_millionths(demand.share().as_millionths().saturating_mul(self.scale) / 100)
    }

    /// Each user's part: max-min by the needs of their tasks, weighted by the shares.
    fn divide(&self) -> BTreeMap<User, Share> {
        let mut needs: BTreeMap<User, u64> = BTreeMap::new();
        for entry in self.tasks.values().filter(|entry| !entry.exempt) {
            let need = needs.entry(entry.user).or_default();
            *need = need.saturating_add(self.cost(entry.demand).as_millionths());
        }
        let weight = |user: &User| self.shares.get(user).copied().unwrap_or(Share::CPU).as_millionths().clamp(1, MOST);
        // The smallest need for its weight first: its unused part is divided among the others.
        let mut users: Vec<(User, u64, u64)> = needs.iter().map(|(user, need)| (*user, *need, weight(user))).collect();
        users.sort_by(|(_, need, weight), (_, other, heavier)| {
            (u128::from(*need) * u128::from(*heavier)).cmp(&(u128::from(*other) * u128::from(*weight)))
        });
        let (mut left, mut weights) =
            (self.budget.as_millionths(), users.iter().map(|(_, _, weight)| u128::from(*weight)).sum::<u128>());
        let mut parts = BTreeMap::new();
        for (user, need, weight) in users {
            let fair = u128::from(left) * u128::from(weight) / weights.max(1);
            let part = need.min(u64::try_from(fair).unwrap_or(u64::MAX));
            (left, weights) = (left - part, weights - u128::from(weight));
            parts.insert(user, Share::from_millionths(part));
        }
        parts
    }

    /// Decides again which tasks are served. Returns those for which that changed.
    fn settle(&mut self) -> Vec<TaskId> {
        let (scale, parts) = (self.scale, self.divide());
        self.parts = parts.into_iter().map(|(user, part)| (user, (part, Share::ZERO))).collect();
        let mut changed = Vec::new();
        for (task, entry) in self.tasks.iter_mut().filter(|(_, entry)| !entry.exempt) {
            let cost = Share::from_millionths(entry.demand.share().as_millionths().saturating_mul(scale) / 100);
            let (part, taken) = self.parts.entry(entry.user).or_default();
            let fits = taken.saturating_add(cost) <= *part;
            if fits {
                *taken = taken.saturating_add(cost);
            }
            if core::mem::replace(&mut entry.served, fits) != fits {
                changed.push(*task);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn demand(millis: u64, threads: usize) -> ServiceDemand {
        ServiceDemand { period: Span::from_millis(millis), threads }
    }

    #[test]
    fn a_hundred_tasks_at_33_ms_fit_and_a_thousand_at_1_ms_do_not() {
        let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
        for task in 0..100 {
            assert_eq!(service_budget.set(TaskId(task), 1000, demand(33, 1), false), []);
        }
        assert!(service_budget.taken() < ServiceBudget::BUDGET);
        let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
        let served =
            (0..1_000).filter(|task| service_budget.set(TaskId(*task), 1000, demand(1, 1), false).is_empty()).count();
        assert_eq!(served, 4, "22 us of each ms are 2.2 %");
        let why = service_budget.unserved(TaskId(999)).unwrap();
        assert_eq!(
            alloc::format!("{why}"),
            "serving it would need 2.2% of a CPU of the broker's own time; user 1000 has 10% of the 10% budget, and uses 8.8% of that"
        );
        // Another user's task joins later and is served all the same.
        assert_eq!(service_budget.set(TaskId(2_000), 1001, demand(10, 1), false), []);
        assert!(service_budget.unserved(TaskId(2_000)).is_none());
    }

    #[test]
    fn a_later_user_gets_the_equal_part_from_those_that_have_more() {
        let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
        (0..4).for_each(|task| drop(service_budget.set(TaskId(task), 1, demand(1, 1), false)));
        let lost: Vec<TaskId> =
            (4..8).flat_map(|task| service_budget.set(TaskId(task), 2, demand(1, 1), false)).collect();
        assert_eq!(lost, vec![TaskId(3), TaskId(2), TaskId(6), TaskId(7)]);
        service_budget.set_shares([(1, Share::from_percent(300))].into());
        assert!(service_budget.unserved(TaskId(2)).is_none() && service_budget.unserved(TaskId(4)).is_none());
        assert!(service_budget.unserved(TaskId(5)).is_some());
    }

    #[test]
    fn what_is_measured_corrects_the_model_upwards_and_back() {
        let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
        (0..100).for_each(|task| drop(service_budget.set(TaskId(task), 1, demand(33, 1), false)));
        let modelled = service_budget.taken();
        (0..20).for_each(|_| drop(service_budget.measured(Share::from_percent(20), [])));
        assert!(service_budget.taken() <= ServiceBudget::BUDGET && service_budget.unserved(TaskId(99)).is_some());
        (0..60).for_each(|_| drop(service_budget.measured(Share::from_percent(1), [])));
        assert_eq!((service_budget.taken(), service_budget.unserved(TaskId(99))), (modelled, None));
    }

    #[test]
    fn an_exempt_task_is_always_served_and_uses_no_users_part() {
        let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
        assert_eq!(service_budget.set(TaskId(1), 0, demand(1, 50), true), []);
        (2..6).for_each(|task| assert_eq!(service_budget.set(TaskId(task), 1, demand(1, 1), false), []));
        assert!((1..6).all(|task| service_budget.unserved(TaskId(task)).is_none()));
        assert!(
            service_budget.set(TaskId(6), 1, demand(1, 1), false) == [TaskId(6)]
                && service_budget.unserved(TaskId(1)).is_none()
        );
    }

    proptest! {
        /// Served tasks always fit the budget. A user who needs no more than the equal part has all tasks served. No
        /// user exceeds budget and shares while another lacks time.
        #[test]
        fn users_have_their_parts_whatever_others_ask(
            tasks in prop::collection::vec((0u32..5, 1u64..200, 0usize..50), 1..60),
            shares in prop::collection::btree_map(0u32..5, 1u64..400, 0..5),
        ) {
            let mut service_budget = ServiceBudget::new(ServiceBudget::BUDGET);
            service_budget.set_shares(shares.iter().map(|(user, share)| (*user, Share::from_percent(*share))).collect());
            for (task, (user, period, threads)) in (0..).zip(&tasks) {
                service_budget.set(TaskId(task), *user, demand(*period, *threads), false);
            }
            prop_assert!(service_budget.taken() <= ServiceBudget::BUDGET);
            let weight = |user: &u32| shares.get(user).copied().unwrap_or(100);
            let users: alloc::collections::BTreeSet<u32> = tasks.iter().map(|(user, ..)| *user).collect();
            let weights: u64 = users.iter().map(weight).sum();
            for user in &users {
                let of = || (0..).zip(&tasks).filter(|(_, (owner, ..))| owner == user);
                let needs: u64 = of().map(|(_, (_, period, threads))| demand(*period, *threads).share().as_millionths()).sum();
                let part = ServiceBudget::BUDGET.as_millionths() * weight(user) / weights;
                if needs <= part {
                    prop_assert!(of().all(|(task, _)| service_budget.unserved(TaskId(task)).is_none()), "user {}", user);
                }
            }
        }
    }
}
