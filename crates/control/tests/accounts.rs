//! The law of accounts: the tasks of one account never hold more than its share together, and what they hold does not
//! depend on other accounts as long as all shares fit.

use hyoshi_control::{
    AccountId, Accounts, AdvocateChain, Arbiter, Joining, Limit, PolicySpec, Reason, Spec, Status, TaskId,
};
use hyoshi_model::{Instant, Reservation, Share, Span};
use proptest::prelude::*;

const CAP: Share = Share::from_percent(150);

/// The request of one task, and its account.
#[derive(Clone, Debug)]
struct Wish {
    account: Option<u32>,
    percent: u64,
    least: u64,
    importance: u32,
    weight: u32,
}

fn wishes(accounts: u32) -> impl Strategy<Value = Vec<Wish>> {
    let account = prop::option::of(0..accounts);
    let one = (account, 1u64..=100, 0u64..40, 0u32..4, 1u32..5)
        .prop_map(|(account, percent, least, importance, weight)| Wish { account, percent, least, importance, weight });
    prop::collection::vec(one, 1..12)
}

fn policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["fair", "strict", "weighted", "partition(a 90% strict, b 40% weighted)"])
}

fn arbiter(policy: &str, parts: &[u32]) -> Arbiter {
    let accounts = parts.iter().enumerate().map(|(at, part)| (format!("user {at}"), *part));
    let policy = policy.parse::<PolicySpec>().unwrap().build();
    let mut arbiter = Arbiter::new(policy, CAP);
    arbiter.set_accounts(Accounts::new(accounts));
    arbiter
}

fn joining(wish: &Wish) -> Joining {
    let declared = Reservation::new(Span::from_millis(wish.percent), Span::from_millis(100)).unwrap();
    Joining {
        account: wish.account.map(AccountId),
        importance: wish.importance,
        weight: wish.weight,
        least: Share::from_percent(wish.least),
        ..Joining::new("x", declared, AdvocateChain::default())
    }
}

fn held(arbiter: &Arbiter, wishes: &[Wish], of: u32) -> Share {
    let theirs = wishes.iter().enumerate().filter(|(_, wish)| wish.account == Some(of));
    theirs.filter_map(|(task, _)| arbiter.held(TaskId(task as u32))).map(Reservation::share).sum()
}

proptest! {
    #[test]
    fn an_account_never_holds_more_than_its_share_whatever_happens(
        parts in prop::collection::vec(0u32..=1_000_000, 3), wishes in wishes(3), policy in policy(),
        events in prop::collection::vec((0u32..12, 0u64..120, 0u32..5), 0..40),
    ) {
        let mut arbiter = arbiter(policy, &parts);
        for (task, wish) in wishes.iter().enumerate() {
            let chain = Spec::chain(&[Spec::from_words("max-decay 2".split_whitespace()).unwrap()]).unwrap();
            arbiter.join(TaskId(task as u32), Joining { chain, ..joining(wish) }, Instant::ZERO).unwrap();
        }
        for (step, (task, millis, what)) in events.iter().enumerate() {
            let (task, now) = (TaskId(*task), Instant::ZERO + Span::from_millis(100 * step as u64));
            let _ = match what {
                0 => arbiter.set_importance(task, *millis as u32 % 4).map(drop),
                1 => arbiter.refused(task, None).map(drop),
                2 => arbiter.leave(task).map(drop),
                _ => arbiter.report(task, Status::of_cycle(now, Span::from_millis(*millis))).map(drop),
            };
            for (account, part) in parts.iter().enumerate() {
                let share = CAP.scaled((*part).into(), 1_000_000);
                prop_assert!(held(&arbiter, &wishes, account as u32) <= share);
            }
            prop_assert!(arbiter.reserved() <= arbiter.cap());
        }
        // A decision for one task alone equals the decision for all together.
        prop_assert!(arbiter.answered().changes.is_empty());
    }

    #[test]
    fn what_an_account_holds_does_not_depend_on_others_where_all_shares_fit(
        wishes in wishes(2), others in wishes(1), policy in prop::sample::select(vec!["strict", "weighted"]),
    ) {
        // All tasks have an account, and the accounts' parts make up the cap.
        let own: Vec<Wish> = wishes.iter().map(|wish| Wish { account: wish.account.or(Some(0)), ..wish.clone() }).collect();
        let hostile = others.iter().map(|wish| Wish { account: Some(2), importance: 1_000, weight: 1_000, ..wish.clone() });
        let both: Vec<Wish> = own.iter().cloned().chain(hostile).collect();
        let holds = |wishes: &[Wish]| {
            let mut arbiter = arbiter(policy, &[400_000, 300_000, 300_000]);
            for (task, wish) in wishes.iter().enumerate() {
                arbiter.join(TaskId(task as u32), joining(wish), Instant::ZERO).unwrap();
            }
            (0..own.len() as u32).map(|task| arbiter.held(TaskId(task))).collect::<Vec<_>>()
        };
        prop_assert_eq!(holds(&own), holds(&both));
    }

    #[test]
    fn an_account_is_used_up_while_its_tasks_ask_for_more(wishes in wishes(1), policy in prop::sample::select(vec!["strict", "weighted"])) {
        let own: Vec<Wish> = wishes.iter().map(|wish| Wish { account: Some(0), least: 0, ..wish.clone() }).collect();
        let mut arbiter = arbiter(policy, &[500_000]);
        for (task, wish) in own.iter().enumerate() {
            arbiter.join(TaskId(task as u32), joining(wish), Instant::ZERO).unwrap();
        }
        let share = CAP.scaled(1, 2);
        let asked: Share = own.iter().map(|wish| Share::from_percent(wish.percent)).sum();
        let lacks = asked.min(share).as_millionths() - held(&arbiter, &own, 0).as_millionths();
        prop_assert!(lacks <= own.len() as u64, "{lacks}");
    }
}

#[test]
fn two_spinners_of_a_user_leave_a_less_important_program_without_an_account_its_time() {
    let spinner = |importance| Wish { account: Some(0), percent: 100, least: 0, importance, weight: 1 };
    let all = [spinner(10), spinner(10), Wish { account: None, percent: 30, importance: 1, ..spinner(0) }];
    for (parts, roots) in [(&[][..], 30), (&[1_000_000][..], 0), (&[500_000][..], 30), (&[100_000][..], 30)] {
        let mut arbiter = arbiter("strict", parts);
        for (task, wish) in all.iter().enumerate() {
            // Without accounts no user is counted.
            let wish = Wish { account: wish.account.filter(|_| !parts.is_empty()), ..wish.clone() };
            arbiter.join(TaskId(task as u32), joining(&wish), Instant::ZERO).unwrap();
        }
        let held = arbiter.held(TaskId(2)).map_or(Share::ZERO, Reservation::share);
        let wanted = if parts.is_empty() { 0 } else { roots };
        assert_eq!(held, Share::from_percent(wanted), "{parts:?}");
    }
}

#[test]
fn a_grant_cut_by_an_account_reports_that_and_names_the_tasks_that_hold_the_rest() {
    let mut arbiter = arbiter("strict", &[100_000, 900_000]);
    let wish = |account, percent, importance| Wish { account: Some(account), percent, least: 0, importance, weight: 1 };
    for (task, wish) in [wish(0, 12, 2), wish(0, 12, 1), wish(1, 50, 3)].iter().enumerate() {
        arbiter.join(TaskId(task as u32), joining(wish), Instant::ZERO).unwrap();
    }
    let share = Share::from_percent(15);
    assert_eq!(arbiter.grant(TaskId(1)).unwrap().reason, Reason::Cut(Limit::Account(AccountId(0), share)));
    let explained = arbiter.explain(TaskId(1), Instant::ZERO).unwrap();
    assert_eq!(explained.because.iter().map(|holder| holder.task).collect::<Vec<_>>(), [TaskId(0)]);
    let words = explained.to_string();
    assert!(words.contains("less than requested: the 15% of user 0 leaves no more"), "{words}");
}
