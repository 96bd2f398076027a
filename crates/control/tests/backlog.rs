//! What is decided is carried out, or decided anew.

use std::collections::BTreeMap;

use hyoshi_control::{Arbiter, Backlog, Carried, Chain, Confirmation, Joining, Status, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use proptest::prelude::*;

fn of(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
}

/// A scheduler that takes less than the arbiter may grant.
struct Narrow {
    room: Share,
    held: BTreeMap<TaskId, Reservation>,
    refusals: usize,
}

impl Narrow {
    fn carry(&mut self, task: TaskId, to: Option<Reservation>) -> Carried {
        let others = self.held.iter().filter(|(other, _)| **other != task).map(|(_, held)| held.share()).sum();
        let left = self.room.saturating_sub(others);
        match to {
            Some(wanted) if wanted.share() > left => {
                self.refusals += 1;
                let most = wanted.with_budget(left.of(wanted.period()));
                return Carried::Refused((!most.budget().is_zero()).then_some(most));
            }
            Some(wanted) => drop(self.held.insert(task, wanted)),
            None => drop(self.held.remove(&task)),
        }
        Carried::Held(Confirmation { at: Instant::ZERO, proxy: "narrow", held: to })
    }
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
            let joining = Joining { importance, ..Joining::new("x", of(budget, 100), Chain::default()) };
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
            let joining = Joining { importance, ..Joining::new("x", of(budget, 100), Chain::default()) };
            backlog.add(arbiter.join(task, joining, Instant::ZERO).unwrap());
            loop {
                backlog.carry_out(&mut arbiter, |change| {
                    pending.push(change);
                    Carried::Pending
                });
                if pending.is_empty() {
                    break;
                }
                for change in pending.drain(..) {
                    match narrow.carry(change.task, change.to) {
                        Carried::Held(confirmation) => arbiter.confirmed(change.task, confirmation),
                        // It would take what it just refused, says one that lies.
                        Carried::Refused(_) if lies => backlog.refused(change.task, change.to),
                        Carried::Refused(most) => backlog.refused(change.task, most),
                        Carried::Pending => unreachable!(),
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
fn of_many_that_are_refused_at_once_all_are_told_and_tried_again() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
    let mut narrow = Narrow { room: Share::from_percent(50), held: BTreeMap::new(), refusals: 0 };
    let mut backlog = Backlog::default();
    let many = 4 * Backlog::MOST_REFUSALS as u32;
    // All of them fit the cap; half of them the scheduler.
    for task in 1..=many {
        let joining = Joining::new("x", of(1, 300), Chain::default());
        backlog.add(arbiter.join(TaskId(task), joining, Instant::ZERO).unwrap());
    }
    let agree = |arbiter: &Arbiter, narrow: &Narrow| {
        (1..=many).map(TaskId).all(|task| arbiter.held(task) == narrow.held.get(&task).copied())
    };
    let all = backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to));
    assert!(!all && agree(&arbiter, &narrow));
    assert!(narrow.refusals < 3 * many as usize, "{}", narrow.refusals);
    // There is room for all: they are tried again when something else changes.
    narrow.room = Share::CPU;
    backlog.add(arbiter.leave(TaskId(1)).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |change| narrow.carry(change.task, change.to)) && agree(&arbiter, &narrow));
    assert_eq!(narrow.held.len(), many as usize - 1);
}

#[test]
fn what_is_pending_is_not_confirmed() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::CPU);
    let mut backlog = Backlog::default();
    backlog.add(arbiter.join(TaskId(1), Joining::new("x", of(1, 10), Chain::default()), Instant::ZERO).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |_| Carried::Pending));
    assert!(arbiter.explain(TaskId(1), Instant::ZERO).unwrap().confirmed.is_none());
    backlog.add(arbiter.report(TaskId(1), Status::of_cycle(Instant::ZERO, Span::ZERO)).unwrap());
    assert!(backlog.carry_out(&mut arbiter, |_| unreachable!("nothing has changed")));
}
