//! The arbiter's laws, over random histories.

use std::collections::BTreeMap;

use hyoshi_control::{AdvocateChain, Ask, Grant};
use hyoshi_control::{
    Arbiter, Decision, Joining, Limit, Policy, PolicySpec, Reason, Refusal, Spec, Status, Strict, TaskId,
};
use hyoshi_model::{Instant, Reservation, Share, Span};
use proptest::prelude::*;

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn of(budget: u64, period: u64) -> Reservation {
    Reservation::new(ms(budget), ms(period)).unwrap()
}

#[derive(Clone, Debug)]
enum Event {
    Join { task: u32, budget: u64, period: u64, importance: u32, weight: u32, chain: &'static str },
    Leave(u32),
    Report(u32, u64),
    Importance(u32, u32),
    Weight(u32, u32),
    Declare(u32, u64, u64),
    Policy(&'static str),
    Cap(u64),
    Refused(u32, Option<u64>),
    KeepOut(u32, bool),
    Answered,
}

fn event() -> impl Strategy<Value = Event> {
    let task = 0u32..6;
    let period = prop_oneof![Just(100u64), Just(250), 10u64..400];
    let chains = prop::sample::select(vec!["max-decay 2", "glacial", "rate 30%", "proactive", "watchdog", "cap 20%"]);
    let policies = prop::sample::select(vec!["fair", "strict", "weighted", "partition(a 40% strict, b 30% weighted)"]);
    prop_oneof![
        3 => (task.clone(), 1u64..=100, period.clone(), 0u32..4, 1u32..5, chains).prop_map(
            |(task, percent, period, importance, weight, chain)| {
                Event::Join { task, budget: (period * percent / 100).max(1), period, importance, weight, chain }
            }
        ),
        1 => task.clone().prop_map(Event::Leave),
        8 => (task.clone(), 0u64..120).prop_map(|(task, millis)| Event::Report(task, millis)),
        1 => (task.clone(), 0u32..4).prop_map(|(task, importance)| Event::Importance(task, importance)),
        1 => (task.clone(), 1u32..5).prop_map(|(task, weight)| Event::Weight(task, weight)),
        1 => (task.clone(), 1u64..=10, 10u64..400).prop_map(|(task, budget, period)| Event::Declare(task, budget, period)),
        1 => policies.prop_map(Event::Policy),
        1 => (0u64..1_000_000).prop_map(Event::Cap),
        1 => Just(Event::Answered),
        1 => (task.clone(), prop::bool::ANY).prop_map(|(task, out)| Event::KeepOut(task, out)),
        2 => (task, prop::option::of(1u64..10)).prop_map(|(task, most)| Event::Refused(task, most)),
    ]
}

fn happen<'a>(arbiter: &'a mut Arbiter, event: &Event, now: Instant) -> Result<Decision<'a>, Refusal> {
    match event {
        Event::Join { task, budget, period, importance, weight, chain } => {
            let chain = Spec::chain(&[Spec::from_words(chain.split_whitespace()).unwrap()]).unwrap();
            let joining = Joining::new("x", of(*budget, *period), chain);
            let (importance, weight) = (*importance, *weight);
            arbiter.join(TaskId(*task), Joining { importance, weight, ..joining }, now)
        }
        Event::Leave(task) => arbiter.leave(TaskId(*task)),
        Event::Report(task, millis) => arbiter.report(TaskId(*task), Status::of_cycle(now, ms(*millis))),
        Event::Importance(task, importance) => arbiter.set_importance(TaskId(*task), *importance),
        Event::Weight(task, weight) => arbiter.set_weight(TaskId(*task), *weight),
        Event::Declare(task, budget, period) => arbiter.declare(TaskId(*task), of(*budget, *period), now),
        Event::Policy(policy) => Ok(arbiter.set_policy(policy.parse::<PolicySpec>().unwrap().build())),
        Event::Cap(cap) => Ok(arbiter.set_cap(Share::from_millionths(*cap))),
        Event::Answered => Ok(arbiter.answered()),
        Event::KeepOut(task, true) => arbiter.keep_out(TaskId(*task)),
        Event::KeepOut(task, false) => arbiter.let_in(TaskId(*task)),
        Event::Refused(task, most) => {
            let held = arbiter.held(TaskId(*task));
            let most = most.and_then(|tenths| {
                held.map(|held| held.with_budget(Span::from_nanos(held.budget().as_nanos() * tenths / 10)))
            });
            arbiter.refused(TaskId(*task), most)
        }
    }
}

fn new() -> Arbiter {
    Arbiter::new(Box::new(Strict), Share::from_percent(75))
}

proptest! {
    #[test]
    fn changes_lead_from_what_was_held_to_what_is_and_never_beyond_the_cap(events in prop::collection::vec(event(), 1..60)) {
        let mut arbiter = new();
        // The reservations of a scheduler that carries every change out.
        let mut carried: BTreeMap<TaskId, Reservation> = BTreeMap::new();
        let sum = |carried: &BTreeMap<TaskId, Reservation>| carried.values().map(|held| held.share()).sum::<Share>();
        for (step, event) in events.iter().enumerate() {
            let now = Instant::ZERO + ms(100 * step as u64);
            let before = sum(&carried);
            let changes = match happen(&mut arbiter, event, now) {
                Ok(decision) => decision.changes.to_vec(),
                Err(_) => continue,
            };
            let most = before.max(arbiter.cap());
            for change in changes {
                prop_assert_eq!(carried.get(&change.task).copied(), change.from, "{:?}", event);
                prop_assert!(change.from != change.to);
                match change.to {
                    Some(to) => carried.insert(change.task, to),
                    None => carried.remove(&change.task),
                };
                prop_assert!(sum(&carried) <= most, "{:?}: what makes room comes first", event);
            }
            prop_assert!(arbiter.reserved() <= arbiter.cap());
            prop_assert_eq!(arbiter.reserved(), sum(&carried));
            for (task, _) in arbiter.tasks() {
                let grant = arbiter.grant(task).unwrap();
                prop_assert_eq!(carried.get(&task).copied(), grant.reservation, "{:?}", event);
                if let Some(held) = grant.reservation {
                    prop_assert!(held.share() <= grant.asked.share());
                }
                prop_assert_eq!(grant.reason == Reason::Granted, grant.reservation == Some(grant.asked));
                let explanation = arbiter.explain(task, Instant::ZERO).unwrap();
                prop_assert_eq!(explanation.grant, grant);
                for holder in &explanation.because {
                    prop_assert_eq!(carried[&holder.task].share(), holder.share);
                }
            }
            if let Event::KeepOut(task, true) = event {
                prop_assert_eq!(arbiter.held(TaskId(*task)), None);
            }
            if let Event::Refused(task, most) = event
                && let Some(held) = arbiter.held(TaskId(*task))
            {
                prop_assert!(most.is_some(), "{} although nothing is taken", held);
            }
        }
    }

    #[test]
    fn what_a_history_led_to_a_repetition_leads_to_as_well(events in prop::collection::vec(event(), 1..60)) {
        let play = || {
            let mut arbiter = new();
            let mut printed = Vec::new();
            for (step, event) in events.iter().enumerate() {
                let now = Instant::ZERO + ms(100 * step as u64);
                printed.push(format!("{:?}", happen(&mut arbiter, event, now)));
            }
            printed
        };
        prop_assert_eq!(play(), play());
    }

    /// The shortcut for reports without contention decides as the policy would.
    #[test]
    fn a_report_leads_where_settling_everything_again_leads(events in prop::collection::vec(event(), 1..60)) {
        let mut arbiter = new();
        for (step, event) in events.iter().enumerate() {
            let now = Instant::ZERO + ms(100 * step as u64);
            if matches!(event, Event::Refused(..)) || happen(&mut arbiter, event, now).is_err() {
                continue; // settling again would try refused ones again
            }
            let again = arbiter.reconsider(|_| ());
            prop_assert_eq!(again.changes, &[], "{:?}", event);
        }
    }
}

#[test]
fn a_refused_amount_is_granted_to_other_tasks_until_room_appears() {
    let mut arbiter = new();
    let joining = |name: &str, budget, importance| Joining {
        importance,
        ..Joining::new(name, of(budget, 100), AdvocateChain::default())
    };
    let budgets = |arbiter: &Arbiter| {
        [1, 2, 3].map(|task| arbiter.held(TaskId(task)).map_or(0, |held| held.budget().as_nanos() / 1_000_000))
    };
    arbiter.join(TaskId(1), joining("one", 50, 3), Instant::ZERO).unwrap();
    arbiter.join(TaskId(2), joining("two", 50, 2), Instant::ZERO).unwrap();
    arbiter.join(TaskId(3), joining("three", 10, 1), Instant::ZERO).unwrap();
    assert_eq!(budgets(&arbiter), [50, 25, 0]);
    arbiter.refused(TaskId(1), Some(of(40, 100))).unwrap();
    assert_eq!(budgets(&arbiter), [40, 35, 0]);
    assert_eq!(arbiter.grant(TaskId(1)).unwrap().reason, Reason::Scheduler);
    arbiter.refused(TaskId(2), None).unwrap();
    assert_eq!(budgets(&arbiter), [40, 0, 10], "what two cannot have three gets");
    // A report that changes nothing does not try again, nor does a policy's late answer; a task that leaves does.
    assert_eq!(arbiter.answered().changes, &[]);
    arbiter.report(TaskId(3), Status::of_cycle(Instant::ZERO, ms(10))).unwrap();
    assert_eq!(budgets(&arbiter), [40, 0, 10]);
    arbiter.leave(TaskId(3)).unwrap();
    assert_eq!(budgets(&arbiter), [50, 25, 0]);
}

#[test]
fn a_task_that_is_kept_out_holds_nothing_for_any_request_and_any_departure() {
    let mut arbiter = new();
    for task in 1..=2 {
        arbiter.join(TaskId(task), Joining::new("x", of(60, 100), AdvocateChain::default()), Instant::ZERO).unwrap();
    }
    let held = |arbiter: &Arbiter| [1, 2].map(|task| arbiter.held(TaskId(task)).is_some());
    assert_eq!(held(&arbiter), [true, true]);
    arbiter.keep_out(TaskId(1)).unwrap();
    assert_eq!((held(&arbiter), arbiter.held(TaskId(2))), ([false, true], Some(of(60, 100))));
    arbiter.set_importance(TaskId(1), 9).unwrap();
    arbiter.declare(TaskId(1), of(5, 100), Instant::ZERO).unwrap();
    arbiter.report(TaskId(1), Status::of_cycle(Instant::ZERO, ms(10))).unwrap();
    arbiter.reconsider(|_| ());
    arbiter.leave(TaskId(2)).unwrap();
    assert_eq!(held(&arbiter), [false, false]);
    arbiter.let_in(TaskId(1)).unwrap();
    assert_eq!(arbiter.held(TaskId(1)), Some(of(5, 100)));
}

#[test]
fn a_watchdog_is_due_when_reports_stay_away() {
    let mut arbiter = new();
    let chain = Spec::chain(&[Spec::from_words(["watchdog", "--periods", "2"]).unwrap()]).unwrap();
    arbiter.join(TaskId(1), Joining::new("one", of(10, 100), chain), Instant::ZERO).unwrap();
    let plain = Spec::chain(&[Spec::from_words(["max-decay"]).unwrap()]).unwrap();
    arbiter.join(TaskId(2), Joining::new("two", of(10, 100), plain), Instant::ZERO).unwrap();
    assert_eq!([1, 2, 3].map(|task| arbiter.has_checks(TaskId(task))), [true, false, false]);
    let at = |millis| Instant::ZERO + ms(millis);
    assert_eq!((arbiter.next_check(), arbiter.due(at(199)), arbiter.due(at(200))), (at(200), None, Some(TaskId(1))));
    let decision = arbiter.report(TaskId(1), Status::overdue(at(200), ms(20))).unwrap();
    assert_eq!(decision.changes[0].to, Some(of(15, 100)));
    assert_eq!(arbiter.next_check(), at(300));
    arbiter.leave(TaskId(1)).unwrap();
    assert_eq!(arbiter.next_check(), Instant::NEVER);
}

/// An external policy that keeps no law.
#[derive(Debug)]
struct Lawless(u32);

impl Policy for Lawless {
    fn name(&self) -> &'static str {
        "lawless"
    }

    fn arbitrate(&mut self, asks: &[Ask], _: Limit, grants: &mut Vec<Grant>) {
        match self.0 {
            0 => (),
            1 => grants.extend(asks.iter().map(|ask| ask.granted(Some(of(90, 100)), Reason::Granted))),
            2 => grants.extend(asks.iter().rev().map(|ask| ask.granted(Some(ask.asked), Reason::Granted))),
            _ => grants.extend((0..99).map(|_| asks[0].granted(Some(asks[0].asked), Reason::Granted))),
        }
    }
}

#[test]
fn a_policy_that_keeps_no_law_is_held_to_it() {
    for lawless in 0..4 {
        let mut arbiter = Arbiter::new(Box::new(Lawless(lawless)), Share::from_percent(75));
        for task in 0..4 {
            arbiter
                .join(TaskId(task), Joining::new("x", of(30, 100), AdvocateChain::default()), Instant::ZERO)
                .unwrap();
            assert!(arbiter.reserved() <= arbiter.cap());
            for (task, _) in arbiter.tasks() {
                let grant = arbiter.grant(task).unwrap();
                assert!(grant.task == task && grant.share() <= Share::from_percent(30));
            }
        }
        assert_eq!(
            lawless == 0 || lawless == 2,
            arbiter.reserved().is_zero(),
            "an answer without a request has no effect"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut arbiter = new();
    let joining = |name: &str| Joining::new(name, of(30, 100), AdvocateChain::default());
    arbiter.join(TaskId(1), joining("one"), Instant::ZERO).unwrap();
    let mut refused = |task, joining| arbiter.join(TaskId(task), joining, Instant::ZERO).unwrap_err().to_string();
    assert_eq!(refused(1, joining("again")), "task 1 is under the broker already");
    assert_eq!(refused(2, joining("")), "the task has no name: set one");
    assert_eq!(refused(2, joining(&"x".repeat(65))), "the task's name has 65 characters: at most 64 are allowed");
    assert_eq!(refused(2, joining("a\u{1b}[2J")), "the task's name has control characters: use letters and digits");
    assert_eq!(refused(2, Joining { weight: 0, ..joining("two") }), "a weight of 0: the minimum is 1");
    assert_eq!(
        arbiter.report(TaskId(9), Status::of_cycle(Instant::ZERO, ms(1))).unwrap_err().to_string(),
        "no task 9 is under the broker: it has left, or never joined"
    );
    assert_eq!(arbiter.tasks().count(), 1);
    for task in 2..=Arbiter::MOST_TASKS as u32 {
        arbiter.join(TaskId(task), joining("x"), Instant::ZERO).unwrap();
    }
    let full = arbiter.join(TaskId(9_999), joining("x"), Instant::ZERO).unwrap_err();
    assert_eq!(full.to_string(), "4096 tasks are under the broker, which is its limit: detach one first");
}
