//! The laws of policies, for every one of them.

use hyoshi_control::policy::POLICIES;
use hyoshi_control::{Ask, Grant, GroupId, Limit, PolicySpec, TaskId};
use hyoshi_model::{Reservation, Share, Span};
use proptest::prelude::*;

/// Every policy, partitions of several shapes among them.
const ALL: [&str; 7] = [
    "fair",
    "strict",
    "weighted",
    "partition(a 30% strict, b 45% weighted)",
    "partition(a 35% fair, b 20% fair)",
    "partition(a 50% weighted, b 100% strict, c 10% weighted)",
    "partition(a 40% partition(aa 10% strict, ab 20% weighted), b 20% strict)",
];

fn ask() -> impl Strategy<Value = Ask> {
    let period = prop_oneof![Just(10_000u64), Just(33_000), Just(250_000), 1_000u64..1_000_000];
    let least = prop_oneof![3 => Just(0u64), 1 => 0u64..500_000];
    (period, 1u64..=1_000, 0u32..4, prop_oneof![1u32..5, 1u32..10_001], 0u32..4, least).prop_map(
        |(micros, thousandths, importance, weight, group, least)| {
            let period = Span::from_micros(micros);
            let asked = Reservation::new(Span::from_nanos(micros * thousandths), period).unwrap();
            let least = Share::from_millionths(least);
            Ask { task: TaskId(0), importance, weight, group: GroupId(group), asked, least }
        },
    )
}

/// Sorted as the arbiter passes them.
fn asks() -> impl Strategy<Value = Vec<Ask>> {
    prop::collection::vec(ask(), 0..12).prop_map(|mut asks| {
        asks.sort_by_key(|ask| core::cmp::Reverse(ask.importance));
        for (number, ask) in asks.iter_mut().enumerate() {
            ask.task = TaskId(number as u32);
        }
        asks
    })
}

fn settle(policy: &str, asks: &[Ask], cap: Share) -> Vec<Grant> {
    let mut grants = Vec::new();
    policy.parse::<PolicySpec>().unwrap().build().arbitrate(asks, Limit::Cap(cap), &mut grants);
    grants
}

fn sum(grants: &[Grant]) -> u64 {
    grants.iter().map(Grant::share).sum::<Share>().as_millionths()
}

#[test]
fn every_policy_of_the_table_is_tested() {
    for (name, _) in POLICIES {
        assert!(ALL.iter().any(|text| text.starts_with(name)), "{name}");
    }
}

proptest! {
    #[test]
    fn a_grant_never_exceeds_the_ask_nor_all_of_them_the_cap(asks in asks(), cap in 0u64..2_000_000) {
        for policy in ALL {
            let grants = settle(policy, &asks, Share::from_millionths(cap));
            prop_assert_eq!(grants.len(), asks.len());
            prop_assert!(sum(&grants) <= cap, "{}: {} of {}", policy, sum(&grants), cap);
            for (ask, grant) in asks.iter().zip(&grants) {
                prop_assert_eq!((grant.task, grant.asked), (ask.task, ask.asked));
                if let Some(granted) = grant.reservation {
                    prop_assert!(granted.budget() <= ask.asked.budget());
                    prop_assert_eq!((granted.period(), granted.deadline()), (ask.asked.period(), ask.asked.deadline()));
                    prop_assert!(granted.share() >= ask.least.min(ask.asked.share()).saturating_sub(Share::from_millionths(1)));
                }
            }
        }
    }

    #[test]
    fn the_same_asks_get_the_same_grants(asks in asks(), other in asks(), cap in 0u64..2_000_000) {
        let cap = Share::from_millionths(cap);
        for text in ALL {
            let mut policy = text.parse::<PolicySpec>().unwrap().build();
            let (mut once, mut between, mut again) = (vec![], vec![], vec![]);
            policy.arbitrate(&asks, Limit::Cap(cap), &mut once);
            policy.arbitrate(&other, Limit::Cap(cap), &mut between);
            policy.arbitrate(&asks, Limit::Cap(cap), &mut again);
            prop_assert_eq!(&once, &again, "{}", text);
            prop_assert_eq!(&once, &settle(text, &asks, cap), "{}", text);
        }
    }

    #[test]
    fn whatever_fits_is_granted_and_whatever_does_not_fills_the_cap(mut asks in asks(), cap in 0u64..2_000_000) {
        for ask in &mut asks {
            ask.least = Share::ZERO;
        }
        let asked: u64 = asks.iter().map(|ask| ask.asked.share().as_millionths()).sum();
        for policy in ["fair", "strict", "weighted"] {
            let grants = settle(policy, &asks, Share::from_millionths(cap));
            if asked <= cap {
                prop_assert!(asks.iter().zip(&grants).all(|(ask, grant)| grant.reservation == Some(ask.asked)));
            } else {
                // A budget is whole nanoseconds: each grant can fall short by one, which is at most a
                // thousandth of a period of 1 ms in millionths.
                prop_assert!(sum(&grants) + asks.len() as u64 >= cap, "{}: {} of {}", policy, sum(&grants), cap);
            }
        }
    }

    #[test]
    fn strict_never_reduces_the_more_important(asks in asks(), cap in 0u64..2_000_000, keep in 0usize..12) {
        let cap = Share::from_millionths(cap);
        let keep = keep.min(asks.len());
        let (alone, all) = (settle("strict", &asks[..keep], cap), settle("strict", &asks, cap));
        prop_assert_eq!(&alone[..], &all[..keep]);
    }

    #[test]
    fn fair_never_reduces_the_more_important(asks in asks(), cap in 0u64..2_000_000, keep in 0usize..12) {
        let cap = Share::from_millionths(cap);
        let level = asks.get(keep).map(|ask| ask.importance);
        let keep = asks.iter().take_while(|ask| Some(ask.importance) != level).count();
        let (alone, all) = (settle("fair", &asks[..keep], cap), settle("fair", &asks, cap));
        prop_assert_eq!(&alone[..], &all[..keep]);
    }

    /// No task envies an equal: it got its whole request, or no equal gets more (max-min fairness). If tasks have
    /// leasts, that holds against tasks of larger demands, except for a task with a least that did not fit.
    #[test]
    fn fair_grants_no_equal_more_than_a_task_that_lacks_something(asks in asks(), cap in 0u64..2_000_000) {
        let grants = settle("fair", &asks, Share::from_millionths(cap));
        for (one, grant) in asks.iter().zip(&grants) {
            for (other, others) in asks.iter().zip(&grants).filter(|(other, _)| other.importance == one.importance) {
                let smaller = one.asked.share() < other.asked.share();
                let comparable = smaller || asks.iter().all(|ask| ask.importance != one.importance || ask.least.is_zero());
                let left_out = grant.reservation.is_none() && !one.least.is_zero();
                if comparable && !left_out {
                    let (has, theirs) = (grant.share().as_millionths(), others.share().as_millionths());
                    let wanted = one.asked.share().as_millionths().min(theirs);
                    // Budgets are whole nanoseconds: a grant is rounded down by less than two millionths.
                    prop_assert!(has + 2 >= wanted, "{:?} has {} and {:?} {}", one, has, other, theirs);
                }
            }
        }
    }

    #[test]
    fn fair_does_not_depend_on_who_joined_first(asks in asks(), cap in 0u64..2_000_000) {
        let mut other_way: Vec<Ask> = asks.iter().rev().copied().collect();
        other_way.sort_by_key(|ask| core::cmp::Reverse(ask.importance));
        let (grants, turned) = (settle("fair", &asks, Share::from_millionths(cap)), settle("fair", &other_way, Share::from_millionths(cap)));
        for grant in &grants {
            let other = turned.iter().find(|other| other.task == grant.task).unwrap();
            prop_assert!(grant.share().as_millionths().abs_diff(other.share().as_millionths()) <= 2 + asks.len() as u64);
        }
    }

    #[test]
    fn fair_is_monotone_in_the_cap_and_in_what_others_ask(mut asks in asks(), cap in 0u64..2_000_000, more in 0u64..500_000, who in 0usize..12) {
        for ask in &mut asks {
            ask.least = Share::ZERO;
        }
        let shares = |grants: &[Grant]| grants.iter().map(|grant| grant.share().as_millionths()).collect::<Vec<_>>();
        let rounding = 2 + asks.len() as u64;
        let before = shares(&settle("fair", &asks, Share::from_millionths(cap)));
        let larger = shares(&settle("fair", &asks, Share::from_millionths(cap + more)));
        for (before, larger) in before.iter().zip(&larger) {
            prop_assert!(larger + rounding >= *before);
        }
        if who < asks.len() {
            let mut fewer = asks.clone();
            fewer.remove(who);
            let mut without = shares(&settle("fair", &fewer, Share::from_millionths(cap)));
            without.insert(who, u64::MAX - rounding);
            for (before, without) in before.iter().zip(&without) {
                prop_assert!(without + rounding >= *before);
            }
            // Requesting more never gets a task less.
            let asked = asks[who].asked;
            asks[who].asked = asked.with_budget(asked.period());
            let greedy = shares(&settle("fair", &asks, Share::from_millionths(cap)));
            prop_assert!(greedy[who] + rounding >= before[who]);
            // Nor an equal less than the equal share of the greedy one.
            for (index, ask) in asks.iter().enumerate().filter(|(index, ask)| *index != who && ask.importance == asks[who].importance) {
                prop_assert!(greedy[index] + rounding >= greedy[who].min(ask.asked.share().as_millionths()));
            }
        }
    }

    #[test]
    fn fair_grants_a_least_or_nothing(asks in asks(), cap in 0u64..2_000_000) {
        for (ask, grant) in asks.iter().zip(settle("fair", &asks, Share::from_millionths(cap))) {
            if let Some(granted) = grant.reservation {
                prop_assert!(granted.share() >= ask.least.min(ask.asked.share()).saturating_sub(Share::from_millionths(1)));
            }
        }
    }

    #[test]
    fn weighted_degrades_in_inverse_proportion_to_weight(mut asks in asks(), percent in 1u64..100) {
        for ask in &mut asks {
            ask.least = Share::ZERO;
        }
        let asked: u64 = asks.iter().map(|ask| ask.asked.share().as_millionths()).sum();
        let grants = settle("weighted", &asks, Share::from_millionths(asked * percent / 100));
        let lost = |index: usize| asks[index].asked.share().as_millionths() - grants[index].share().as_millionths();
        for one in 0..asks.len() {
            for other in 0..asks.len() {
                let (light, heavy) = (u64::from(asks[one].weight), u64::from(asks[other].weight));
                if grants[other].reservation.is_none() {
                    continue; // it granted all that it had, which `one` below tests
                }
                // The rest of rounding is less than a millionth for each task, and one may get all of it.
                let slack = (asks.len() as u64 + 2) * (light + heavy);
                if grants[one].reservation.is_none() {
                    prop_assert!(lost(other) * heavy + slack >= lost(one) * light);
                } else {
                    prop_assert!((lost(one) * light).abs_diff(lost(other) * heavy) <= slack);
                }
            }
        }
    }

    #[test]
    fn a_group_gets_its_part_whatever_others_ask(asks in asks(), others in asks()) {
        let policy = "partition(a 30% strict, b 45% weighted)";
        let of_a = |asks: &[Ask]| asks.iter().copied().filter(|ask| ask.group == GroupId(0)).collect::<Vec<_>>();
        let alone = of_a(&asks);
        let mut all = alone.clone();
        all.extend(others.into_iter().filter(|ask| ask.group != GroupId(0)));
        let cap = Share::from_percent(75);
        prop_assert_eq!(&settle(policy, &alone, cap)[..], &settle(policy, &all, cap)[..alone.len()]);
    }

    #[test]
    fn blamed_tasks_hold_the_amount_in_the_explanation(asks in asks(), cap in 0u64..1_000_000) {
        for text in ALL {
            let policy = text.parse::<PolicySpec>().unwrap();
            let grants = settle(text, &asks, Share::from_millionths(cap));
            for index in 0..asks.len() {
                policy.build().blame(&asks, &grants, index, &mut |task, share| {
                    let holder = grants.iter().find(|grant| grant.task == task).unwrap();
                    assert!(task != asks[index].task && holder.share() == share && !share.is_zero());
                });
            }
        }
    }
}
