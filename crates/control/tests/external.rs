//! External policies are held to the laws, whatever they answer and whenever.

use hyoshi_control::policy::{ExternalPolicy, LawViolation};
use hyoshi_control::{Ask, Grant, GroupId, Limit, Policy, Reason, Strict, TaskId};
use hyoshi_model::{Reservation, Share, Span};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ask(task: u32, micros: u64, nanos: u64) -> Ask {
    let asked = Reservation::new(Span::from_nanos(nanos), Span::from_micros(micros)).unwrap();
    Ask { task: TaskId(task), importance: 1, weight: 1, group: GroupId(0), asked, least: Share::ZERO }
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let period = prop_oneof![Just(10_000u64), Just(33_000), 1_000u64..1_000_000];
    let one = (0u32..16, period, 1u64..=1_000, prop_oneof![3 => Just(0u64), 1 => 0u64..500_000]);
    prop::collection::btree_map(0u32..16, one, 0..10).prop_map(|all| {
        let one = |(task, (_, micros, part, least))| Ask {
            least: Share::from_millionths(least),
            ..ask(task, micros, micros * part)
        };
        all.into_iter().map(one).collect()
    })
}

fn settle(foreign: &mut ExternalPolicy, asks: &[Ask], cap: Share) -> Vec<Grant> {
    let mut grants = Vec::new();
    foreign.arbitrate(asks, Limit::Cap(cap), &mut grants);
    grants
}

proptest! {
    #[test]
    fn nothing_is_granted_beyond_the_ask_or_the_cap(
        before in asks(), now in asks(), budgets in prop::collection::vec(any::<u64>(), 0..12), scale in 0u32..60, cap in 0u64..2_000_000,
    ) {
        let cap = Share::from_millionths(cap);
        let mut foreign = ExternalPolicy::new(Box::new(Strict));
        let given: Vec<Span> = budgets.iter().map(|budget| Span::from_nanos(budget >> scale)).collect();
        let counts = foreign.answered(&before, &given);
        prop_assert_eq!(counts, before.len() == given.len());
        for asks in [&before, &now] {
            let grants = settle(&mut foreign, asks, cap);
            prop_assert_eq!(&grants, &settle(&mut foreign, asks, cap));
            prop_assert_eq!(grants.len(), asks.len());
            prop_assert!(grants.iter().map(Grant::share).sum::<Share>() <= cap);
            for (ask, grant) in asks.iter().zip(&grants) {
                prop_assert_eq!((grant.task, grant.asked), (ask.task, ask.asked));
                if let Some(granted) = grant.reservation {
                    prop_assert!(granted.budget() <= ask.asked.budget() && granted.budget() > Span::ZERO);
                    prop_assert_eq!((granted.period(), granted.deadline()), (ask.asked.period(), ask.asked.deadline()));
                }
            }
            if !counts {
                let mut declared = Vec::new();
                Strict.arbitrate(asks, Limit::Cap(cap), &mut declared);
                prop_assert_eq!(grants, declared, "the declared policy decides");
            }
        }
    }

    #[test]
    fn a_lawful_answer_is_granted_as_it_came(asks in asks(), parts in prop::collection::vec(0u64..=100, 10)) {
        let budget = |(ask, part): (&Ask, &u64)| Span::from_nanos(ask.asked.budget().as_nanos() * part / 100);
        let given: Vec<Span> = asks.iter().zip(&parts).map(budget).collect();
        let asks: Vec<Ask> = asks.iter().map(|ask| Ask { least: Share::ZERO, ..*ask }).collect();
        let mut foreign = ExternalPolicy::new(Box::new(Strict));
        prop_assert!(foreign.answered(&asks, &given));
        let grants = settle(&mut foreign, &asks, Share::from_percent(1_000));
        for (grant, given) in grants.iter().zip(&given) {
            prop_assert_eq!(grant.reservation.map_or(Span::ZERO, Reservation::budget), *given);
        }
        prop_assert_eq!(foreign.exceeded(), None);
    }
}

#[test]
fn between_answers_the_last_counts_and_after_a_failure_the_declared_policy() {
    let cap = Share::from_percent(50);
    let mut foreign = ExternalPolicy::new(Box::new(Strict));
    let (a, b) = (ask(1, 10_000, 4 * MS), ask(2, 10_000, 4 * MS));
    let budgets = |grants: &[Grant]| -> Vec<u64> {
        grants.iter().map(|grant| grant.reservation.map_or(0, |held| held.budget().as_nanos() / 1_000)).collect()
    };
    assert!(!foreign.decides());
    assert_eq!(budgets(&settle(&mut foreign, &[a, b], cap)), [4_000, 1_000], "strict, until it answers");
    assert!(foreign.answered(&[a, b], &[Span::from_millis(1), Span::from_millis(3)]));
    assert_eq!(budgets(&settle(&mut foreign, &[a, b], cap)), [1_000, 3_000]);
    // One asks for less, one for more in twice the period, one is new.
    let changed = [ask(1, 20_000, 16 * MS), ask(2, 10_000, 2 * MS), ask(3, 10_000, MS)];
    let grants = settle(&mut foreign, &changed, cap);
    assert_eq!(budgets(&grants), [2_000, 2_000, 0]);
    assert_eq!(grants[2].reason, Reason::Unanswered);
    assert_eq!((grants[0].reason, grants[1].reason), (Reason::Policy, Reason::Granted));
    foreign.failed("late".into());
    assert_eq!(foreign.why(), Some("late"));
    assert_eq!(budgets(&settle(&mut foreign, &[a, b], cap)), [4_000, 1_000]);
}

#[test]
fn a_grant_against_the_laws_is_cut_and_reported() {
    let cap = Share::from_percent(50);
    let mut foreign = ExternalPolicy::new(Box::new(Strict));
    let asks = [ask(1, 10_000, 4 * MS), ask(2, 10_000, 4 * MS)];
    assert!(foreign.answered(&asks, &[Span::from_millis(5), Span::ZERO]));
    assert_eq!(foreign.exceeded(), Some(LawViolation::Ask(TaskId(1))));
    assert!(foreign.answered(&asks, &[Span::from_millis(4), Span::from_millis(4)]));
    let grants = settle(&mut foreign, &asks, cap);
    assert_eq!(foreign.exceeded(), Some(LawViolation::Limit(TaskId(2))));
    assert_eq!(grants[1].share(), Share::from_percent(10));
    assert!(matches!(grants[1].reason, Reason::Cut(Limit::Cap(_))));
}
