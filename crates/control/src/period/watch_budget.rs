//! Which threads are watched if not all can be: users have equal parts of the budget, and so have the tasks of a user
//! (max-min fairness; Bertsekas and Gallager, Data Networks, 1992, 6.5.2).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// The threads of a task that could be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchDemand {
    /// The task's user.
    pub user: u32,
    /// How many threads.
    pub threads: usize,
    /// The cost of each.
    pub cost: usize,
}

/// How many threads of each task are watched, for at most `limit` in total. The next thread is always of the user with
/// the least spent, and of that user's task with the least; of several the first. A thread that does not fit the rest
/// is skipped.
pub fn share_out(limit: usize, wishes: &[WatchDemand]) -> Vec<usize> {
    let (mut given, mut left) = (vec![0; wishes.len()], limit);
    // By the amount spent: tasks of each user, and users.
    let mut tasks: BTreeMap<u32, BTreeSet<(usize, usize)>> = BTreeMap::new();
    for (index, wish) in wishes.iter().enumerate().filter(|(_, wish)| wish.threads > 0) {
        tasks.entry(wish.user).or_default().insert((0, index));
    }
    let mut users: BTreeSet<(usize, u32)> = tasks.keys().map(|user| (0, *user)).collect();
    while left > 0
        && let Some((spent, user)) = users.pop_first()
    {
        let Some(own) = tasks.get_mut(&user) else { continue };
        let Some((on_task, index)) = own.pop_first() else { continue };
        let WatchDemand { threads, cost, .. } = wishes[index];
        if cost > left {
            users.insert((spent, user));
            continue;
        }
        left -= cost;
        given[index] += 1;
        if given[index] < threads {
            own.insert((on_task + cost, index));
        }
        users.insert((spent + cost, user));
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(all: &[(u32, usize)]) -> Vec<WatchDemand> {
        all.iter().map(|(user, threads)| WatchDemand { user: *user, threads: *threads, cost: 1 }).collect()
    }

    #[test]
    fn one_user_with_many_tasks_leaves_as_much_to_another_with_one() {
        let mut all = wishes(&[(7, 1); 300]);
        assert_eq!(share_out(256, &all).iter().sum::<usize>(), 256);
        all.push(WatchDemand { user: 8, threads: 32, cost: 1 });
        let given = share_out(256, &all);
        assert_eq!(
            (given[300], given[..224].iter().sum::<usize>(), given[224..300].iter().sum::<usize>()),
            (32, 224, 0)
        );
        assert_eq!(share_out(10, &wishes(&[(1, 32), (1, 2), (2, 32)])), [3, 2, 5]);
    }

    fn some() -> impl Strategy<Value = Vec<WatchDemand>> {
        let wish = (0..5_u32, 0..40_usize, prop_oneof![Just(1_usize), Just(8)]);
        proptest::collection::vec(wish.prop_map(|(user, threads, cost)| WatchDemand { user, threads, cost }), 0..40)
    }

    proptest! {
        #[test]
        fn the_whole_budget_is_used_and_users_have_equal_parts(
            wishes in some(),
            limit in 0..300_usize,
        ) {
            let given = share_out(limit, &wishes);
            let spent: usize = given.iter().zip(&wishes).map(|(threads, wish)| threads * wish.cost).sum();
            prop_assert!(spent <= limit);
            let of = |user| -> usize {
                let own = given.iter().zip(&wishes).filter(|(_, wish)| wish.user == user);
                own.map(|(threads, wish)| threads * wish.cost).sum()
            };
            for (threads, wish) in given.iter().zip(&wishes) {
                prop_assert!(*threads <= wish.threads);
                if *threads < wish.threads {
                    prop_assert!(wish.cost > limit - spent, "there is room for one more");
                    // One more thread of the dearer kind, and the ones that were too dear for the rest.
                    prop_assert!((0..5).all(|other| of(other) <= of(wish.user) + 16));
                }
            }
        }
    }
}
