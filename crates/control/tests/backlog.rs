//! Decisions are carried out, or made again.

use std::collections::BTreeMap;

use hyoshi_control::{AdvocateChain, Arbiter, Backlog, ChangeResult, Confirmation, Joining, Status, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use proptest::prelude::*;

fn of(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
}

/// A scheduler that accepts less than the arbiter may grant.
struct Narrow {
    room: Share,
    held: BTreeMap<TaskId, Reservation>,
    refusals: usize,
}

impl Narrow {
    fn carry(&mut self, task: TaskId, to: Option<Reservation>) -> ChangeResult {
        let others = self.held.iter().filter(|(other, _)| **other != task).map(|(_, held)| held.share()).sum();
        let left = self.room.saturating_sub(others);
        match to {
            Some(wanted) if wanted.share() > left => {
                self.refusals += 1;
                let most = wanted.with_budget(left.of(wanted.period()));
                return ChangeResult::Refused((!most.budget().is_zero()).then_some(most));
            }
            Some(wanted) => drop(self.held.insert(task, wanted)),
            None => drop(self.held.remove(&task)),
        }
        ChangeResult::Held(confirmation(to))
    }

    /// It accepts less from now on, or more. A task that no longer fits keeps the most that does, or nothing, and is
    /// reported.
    fn narrow(&mut self, room: Share) -> Vec<Lost> {
        self.room = room;
        let mut lost = Vec::new();
        for (task, held) in core::mem::take(&mut self.held) {
            if let ChangeResult::Refused(most) = self.carry(task, Some(held)) {
                lost.push((task, held, most));
                self.held.extend(most.map(|most| (task, most)));
            }
        }
        lost
    }
}

/// The task, its reservation, and the most that would be accepted.
type Lost = (TaskId, Reservation, Option<Reservation>);

fn confirmation(held: Option<Reservation>) -> Confirmation {
    Confirmation { at: Instant::ZERO, proxy: "narrow", held }
}

fn confirmed(arbiter: &Arbiter, task: TaskId) -> Option<Reservation> {
    arbiter.explain(task, Instant::ZERO)?.confirmed?.held
}

proptest! {
    #[test]
    fn afterwards_the_scheduler_holds_what_the_arbiter_granted(
        room in 0u64..100,
        tasks in prop::collection::vec((1u64..60, 1u32..5, 0usize..40), 1..40),
    ) {
        let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
        let mut narrow = Narrow { room: Share::from_percent(room), held: BTreeMap::new(), refusals: 0 };
        let mut backlog = Backlog::default();
        let mut last = 0;
        for (budget, importance, leaves) in tasks {
            last += 1;
            let joining = Joining { importance, ..Joining::new("x", of(budget, 100), AdvocateChain::default()) };
            backlog.add(arbiter.join(TaskId(last), joining, Instant::ZERO).unwrap());
            if let Ok(decision) = arbiter.leave(TaskId(leaves as u32)) {
                backlog.add(decision);
            }
            narrow.refusals = 0;
            let all = backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to));
            prop_assert_eq!(all, narrow.refusals <= Backlog::MOST_REFUSALS);
            for task in (1..=last).map(TaskId) {
                prop_assert_eq!(arbiter.held(task), narrow.held.get(&task).copied());
            }
            prop_assert!(narrow.held.values().map(|held| held.share()).sum::<Share>() <= narrow.room);
        }
    }
}

proptest! {
    #[test]
    fn what_is_refused_later_is_settled_as_what_is_refused_at_once(
        room in 0u64..100,
        tasks in prop::collection::vec((1u64..60, 1u32..5), 1..20),
        lies in any::<bool>(),
    ) {
        let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
        let mut narrow = Narrow { room: Share::from_percent(room), held: BTreeMap::new(), refusals: 0 };
        let (mut backlog, mut pending) = (Backlog::default(), Vec::new());
        for ((budget, importance), task) in tasks.iter().zip(1..).map(|(task, id)| (*task, TaskId(id))) {
            let joining = Joining { importance, ..Joining::new("x", of(budget, 100), AdvocateChain::default()) };
            backlog.add(arbiter.join(task, joining, Instant::ZERO).unwrap());
            loop {
                backlog.carry_out(&mut arbiter, |change| {
                    pending.push(change);
                    ChangeResult::Pending
                });
                if pending.is_empty() {
                    break;
                }
                for change in pending.drain(..) {
                    match narrow.carry(change.task, change.to) {
                        ChangeResult::Held(confirmation) => arbiter.confirmed(change.task, confirmation),
                        ChangeResult::Refused(most) => {
                            // A faulty scheduler reports that it would accept the amount that it has just refused.
                            backlog.refused(change.task, change.to.unwrap(), if lies { change.to } else { most });
                        }
                        ChangeResult::Pending => unreachable!(),
                    }
                }
            }
        }
        for task in (1..=tasks.len() as u32).map(TaskId) {
            prop_assert_eq!(arbiter.held(task), narrow.held.get(&task).copied());
        }
    }
}

#[test]
fn many_refusals_at_once_are_all_reported_and_tried_again() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
    let mut narrow = Narrow { room: Share::from_percent(50), held: BTreeMap::new(), refusals: 0 };
    let mut backlog = Backlog::default();
    let many = 4 * Backlog::MOST_REFUSALS as u32;
    // All of them fit the cap; half of them the scheduler.
    for task in 1..=many {
        let joining = Joining::new("x", of(1, 300), AdvocateChain::default());
        backlog.add(arbiter.join(TaskId(task), joining, Instant::ZERO).unwrap());
    }
    let agree = |arbiter: &Arbiter, narrow: &Narrow| {
        (1..=many).map(TaskId).all(|task| arbiter.held(task) == narrow.held.get(&task).copied())
    };
    let all = backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to));
    assert!(!all && agree(&arbiter, &narrow));
    assert!(narrow.refusals < 3 * many as usize, "{}", narrow.refusals);
    // There is room for all: they are tried again at the next change.
    narrow.room = Share::CPU;
    backlog.add(arbiter.leave(TaskId(1)).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to)) && agree(&arbiter, &narrow));
    assert_eq!(narrow.held.len(), many as usize - 1);
}

#[test]
fn what_is_pending_is_not_confirmed() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
    let mut backlog = Backlog::default();
    backlog
        .add(arbiter.join(TaskId(1), Joining::new("x", of(1, 10), AdvocateChain::default()), Instant::ZERO).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |_| ChangeResult::Pending));
    assert!(arbiter.explain(TaskId(1), Instant::ZERO).unwrap().confirmed.is_none());
    backlog.add(arbiter.report(TaskId(1), Status::of_cycle(Instant::ZERO, Span::ZERO)).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |_| unreachable!("nothing has changed")));
}

#[test]
fn of_many_that_are_displaced_at_once_the_arbiter_and_the_scheduler_hold_the_same() {
    for room in [0, 10, 40] {
        let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
        let mut narrow = Narrow { room: Share::CPU, held: BTreeMap::new(), refusals: 0 };
        let mut backlog = Backlog::default();
        let many = 4 * Backlog::MOST_REFUSALS as u32;
        for task in 1..=many {
            let joining = Joining::new("x", of(1, 300), AdvocateChain::default());
            backlog.add(arbiter.join(TaskId(task), joining, Instant::ZERO).unwrap());
        }
        assert!(backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to)));
        assert_eq!(narrow.held.len(), many as usize);
        let agree = |arbiter: &Arbiter, narrow: &Narrow| {
            for task in (1..=many).map(TaskId) {
                let held = narrow.held.get(&task).copied();
                assert_eq!((arbiter.held(task), confirmed(arbiter, task)), (held, held), "{task:?} in {room} %");
            }
        };
        let lost = narrow.narrow(Share::from_percent(room));
        assert!(lost.len() > 2 * Backlog::MOST_REFUSALS);
        lost.into_iter().for_each(|(task, what, most)| backlog.refused(task, what, most));
        assert!(!backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to)));
        agree(&arbiter, &narrow);
        // There is room for all again.
        narrow.room = Share::CPU;
        backlog.add(arbiter.reconsider(|_| ()));
        assert!(backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to)));
        agree(&arbiter, &narrow);
        assert_eq!(narrow.held.len(), many as usize);
    }
}

#[test]
fn what_is_refused_when_something_else_is_granted_changes_nothing() {
    let (task, before, now) = (TaskId(1), of(40, 100), of(30, 50));
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
    let mut backlog = Backlog::default();
    backlog.add(arbiter.join(task, Joining::new("x", before, AdvocateChain::default()), Instant::ZERO).unwrap());
    backlog.add(arbiter.declare(task, now, Instant::ZERO).unwrap());
    // At once: the next changes are in the backlog.
    assert!(backlog.carry_out(&mut arbiter, |change| match change.to {
        Some(to) if to == before => ChangeResult::Refused(None),
        to => ChangeResult::Held(confirmation(to)),
    }));
    let holds = |arbiter: &Arbiter| {
        let explained = arbiter.explain(task, Instant::ZERO).unwrap();
        assert_eq!((explained.grant.reservation, explained.ceiling), (Some(now), None));
        assert_eq!(confirmed(arbiter, task), Some(now));
    };
    holds(&arbiter);
    // And late, for any number.
    for most in [None, Some(of(1, 100))].into_iter().cycle().take(2 * Backlog::MOST_REFUSALS) {
        backlog.refused(task, before, most);
    }
    assert!(backlog.carry_out(&mut arbiter, |_| unreachable!("nothing is to be changed")));
    holds(&arbiter);
}

#[derive(Clone, Debug)]
enum Happens {
    /// A task declares another reservation.
    Declares(usize, u64, u64),
    Leaves(usize),
    /// The scheduler's room changes; tasks that lost something must be reported.
    Room(u64),
    /// Some are reported, or all, from anywhere in the queue.
    Reported(usize, usize),
    /// The scheduler answers some of the waiting changes.
    Answers(usize, usize),
    Reconsidered,
}

/// More than there are.
const ALL: usize = 1_000;

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (any::<usize>(), 1u64..40, 0u64..3).prop_map(|(task, part, period)| Happens::Declares(task, part, period)),
        1 => any::<usize>().prop_map(Happens::Leaves),
        2 => (0u64..120).prop_map(Happens::Room),
        3 => (any::<usize>(), prop_oneof![0..4usize, Just(ALL)]).prop_map(|(from, many)| Happens::Reported(from, many)),
        3 => (any::<usize>(), prop_oneof![0..4usize, Just(ALL)]).prop_map(|(from, many)| Happens::Answers(from, many)),
        1 => Just(Happens::Reconsidered),
    ]
}

/// A scheduler that accepts what fits, at once or later.
struct Late {
    narrow: Narrow,
    /// Whether it answers later; if so, whether the former reservation is lost when it refuses more.
    later: Option<bool>,
    orders: Vec<(TaskId, Reservation)>,
    lost: Vec<Lost>,
}

impl Late {
    fn carry(&mut self, task: TaskId, to: Option<Reservation>) -> ChangeResult {
        // Earlier orders are void.
        self.orders.retain(|(other, _)| *other != task);
        match to {
            Some(to) if self.later.is_some() => {
                self.orders.push((task, to));
                ChangeResult::Pending
            }
            to => self.narrow.carry(task, to),
        }
    }

    fn answer(&mut self, at: usize, arbiter: &mut Arbiter) {
        let (task, what) = self.orders.remove(at);
        match self.narrow.carry(task, Some(what)) {
            ChangeResult::Held(confirmation) => arbiter.confirmed(task, confirmation),
            ChangeResult::Refused(most) => {
                if self.later == Some(true) {
                    self.narrow.held.remove(&task);
                }
                self.lost.push((task, what, most));
            }
            ChangeResult::Pending => unreachable!(),
        }
    }
}

proptest! {
    #[test]
    fn in_whatever_order_things_are_granted_lost_and_refused_what_is_confirmed_is_what_the_scheduler_holds(
        tasks in prop_oneof![1usize..8, 100usize..150],
        later in any::<Option<bool>>(),
        happens in prop::collection::vec(happens(), 1..30),
    ) {
        let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
        let narrow = Narrow { room: Share::CPU, held: BTreeMap::new(), refusals: 0 };
        let mut late = Late { narrow, later, orders: Vec::new(), lost: Vec::new() };
        let mut backlog = Backlog::default();
        let reservation = |part, period| {
            let (share, period) = (Share::from_millionths(part * if tasks < 8 { 10_000 } else { 500 }), 100u64 << period);
            of(1, period).with_budget(share.of(Span::from_millis(period)))
        };
        let one = |of: usize| TaskId((of % tasks) as u32);
        for task in 0..tasks {
            let importance = task as u32 % 3;
            let joining = Joining { importance, ..Joining::new("x", reservation(10, 0), AdvocateChain::default()) };
            backlog.add(arbiter.join(one(task), joining, Instant::ZERO).unwrap());
        }
        let last = [Happens::Answers(0, ALL), Happens::Reported(0, ALL)].into_iter().cycle().take(1_000);
        let many = happens.len();
        for (number, happens) in happens.into_iter().chain(last).enumerate() {
            match happens {
                Happens::Declares(task, part, period) => {
                    arbiter.declare(one(task), reservation(part, period), Instant::ZERO).into_iter().for_each(|decision| backlog.add(decision));
                }
                Happens::Leaves(task) => arbiter.leave(one(task)).into_iter().for_each(|decision| backlog.add(decision)),
                Happens::Reconsidered => backlog.add(arbiter.reconsider(|_| ())),
                Happens::Room(room) => late.lost.extend(late.narrow.narrow(Share::from_percent(room))),
                Happens::Reported(from, many) => {
                    for _ in 0..many.min(late.lost.len()) {
                        let (task, what, most) = late.lost.remove(from % late.lost.len());
                        backlog.refused(task, what, most);
                    }
                }
                Happens::Answers(from, many) => {
                    for _ in 0..many.min(late.orders.len()) {
                        late.answer(from % late.orders.len(), &mut arbiter);
                    }
                }
            }
            backlog.carry_out(&mut arbiter, |change| late.carry(change.task, change.to));
            if late.orders.is_empty() && late.lost.is_empty() {
                for task in (0..tasks).map(one) {
                    let held = late.narrow.held.get(&task).copied();
                    prop_assert_eq!((arbiter.held(task), confirmed(&arbiter, task)), (held, held), "{:?}", task);
                }
                if number >= many {
                    break;
                }
            }
        }
        prop_assert!(late.orders.is_empty() && late.lost.is_empty(), "it never comes to rest");
    }
}
