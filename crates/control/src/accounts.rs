//! Accounts: parts of the cap, so that the tasks of one user cannot use the share of other users.
//!
//! ```text
//!   requests ──► of each account: the policy, within the account's share ──► the policy, within the cap ──► grants
//!   requests without an account ─────────────────────────────────────────────►
//! ```
//!
//! A share is hard: an account never holds more, even if the rest is free. So an account's reservations do not depend
//! on other accounts as long as the shares fit into the cap together, and a reservation is not withdrawn when
//! another user arrives. Reservations are soft: a task still uses idle CPU time beyond them.
//!
//! Hierarchical fair schedulers also divide a share for each user again (Goyal, Guo and Vin, "A hierarchical CPU
//! scheduler for multimedia operating systems", OSDI 1996).

use alloc::string::String;
use alloc::vec::Vec;

use hyoshi_model::Share;

use crate::policy::{Ask, Policy};
use crate::task::{Grant, Limit, Reason, TaskId};

/// An account, numbered by its position in [`Accounts::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u32);

/// All accounts, and the sums of their tasks' requests.
#[derive(Debug, Default)]
pub struct Accounts {
    all: Vec<Account>,
    // Buffers reused between decisions.
    cut: Vec<Grant>,
    reduced: Vec<Ask>,
    positions: Vec<u32>,
    asks: Vec<Ask>,
}

#[derive(Debug)]
struct Account {
    name: String,
    /// Its part of the cap, in millionths.
    part: u32,
    /// The sum of its tasks' requests.
    asked: Share,
}

/// The whole cap, in millionths.
pub const WHOLE: u32 = 1_000_000;

impl Accounts {
    /// Accounts by their names and their parts of the cap, in millionths. Parts may add up to more than the cap; then
    /// the policy decides between accounts.
    pub fn new(accounts: impl IntoIterator<Item = (String, u32)>) -> Accounts {
        let account = |(name, part)| Account { name, part: WHOLE.min(part), asked: Share::ZERO };
        Accounts { all: accounts.into_iter().map(account).collect(), ..Accounts::default() }
    }

    /// The account's name.
    pub fn name(&self, account: AccountId) -> Option<&str> {
        self.all.get(account.0 as usize).map(|account| account.name.as_str())
    }

    /// The most that the account's tasks hold together under this cap.
    pub fn share(&self, account: AccountId, cap: Share) -> Share {
        self.all.get(account.0 as usize).map_or(cap, |account| cap.scaled(account.part.into(), WHOLE.into()))
    }

    /// A task of the account requests `now` instead of `before`.
    pub(crate) fn count(&mut self, account: Option<AccountId>, before: Share, now: Share) {
        if let Some(account) = account.and_then(|account| self.all.get_mut(account.0 as usize)) {
            account.asked = account.asked.saturating_add(now).saturating_sub(before);
        }
    }

    /// Whether the account's tasks can all have their requests.
    pub(crate) fn fits(&self, account: Option<AccountId>, cap: Share) -> bool {
        let counted = account.and_then(|account| Some((account, self.all.get(account.0 as usize)?)));
        counted.is_none_or(|(id, account)| account.asked <= self.share(id, cap))
    }

    /// Cuts the requests of each account to its share, lets `policy` arbitrate the cut requests within `limit`, and
    /// pushes one grant for each of `asks` to `grants`. `of` is each task's account.
    pub(crate) fn arbitrate(
        &mut self,
        policy: &mut dyn Policy,
        asks: &[Ask],
        of: impl Fn(TaskId) -> Option<AccountId>,
        limit: Limit,
        grants: &mut Vec<Grant>,
    ) {
        grants.clear();
        if !self.cut_to_shares(policy, asks, of, limit.share()) {
            return settle(policy, asks, limit, grants);
        }
        self.reduced.clear();
        let reduced = asks.iter().zip(&self.cut).filter_map(|(ask, cut)| {
            let asked = cut.reservation?;
            Some(Ask { asked, ..*ask })
        });
        self.reduced.extend(reduced);
        settle(policy, &self.reduced, limit, grants);
        // If an account cut the request, that is the reason, unless the policy cut it further.
        let mut settled = core::mem::take(grants).into_iter();
        grants.extend(asks.iter().zip(&self.cut).map(
            |(ask, cut)| match cut.reservation.and_then(|_| settled.next()) {
                None => *cut,
                Some(grant) if grant.reason == Reason::Granted => ask.granted(grant.reservation, cut.reason),
                Some(grant) => ask.granted(grant.reservation, grant.reason),
            },
        ));
    }

    /// Fills `cut` with the cut requests. False if no account cuts any.
    fn cut_to_shares(
        &mut self,
        policy: &mut dyn Policy,
        asks: &[Ask],
        of: impl Fn(TaskId) -> Option<AccountId>,
        cap: Share,
    ) -> bool {
        let mut cut_any = false;
        for id in (0..self.all.len() as u32).map(AccountId) {
            if self.fits(Some(id), cap) {
                continue;
            }
            if !core::mem::replace(&mut cut_any, true) {
                self.cut.clear();
                self.cut.extend(asks.iter().map(|ask| ask.granted(Some(ask.asked), Reason::Granted)));
            }
            self.positions.clear();
            self.asks.clear();
            for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| of(ask.task) == Some(id)) {
                self.positions.push(place as u32);
                self.asks.push(*ask);
            }
            let limit = Limit::Account(id, self.share(id, cap));
            let mut grants = Vec::with_capacity(self.asks.len());
            policy.within_account(&self.asks, limit, &mut grants);
            enforce_laws(&self.asks, limit, &mut grants);
            for (place, grant) in self.positions.iter().zip(grants) {
                self.cut[*place as usize] = grant;
            }
        }
        cut_any
    }
}

fn settle(policy: &mut dyn Policy, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
    policy.arbitrate(asks, limit, grants);
    enforce_laws(asks, limit, grants);
}

/// Enforces the laws of all policies on any policy: one grant for each request, within it and within the limit.
fn enforce_laws(asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
    grants.truncate(asks.len());
    let mut left = limit.share();
    for (index, ask) in asks.iter().enumerate() {
        let grant = match grants.get(index) {
            Some(grant) if grant.task == ask.task => ask.lawful(*grant, left, limit),
            _ => ask.granted(None, Reason::Unanswered),
        };
        left = left.saturating_sub(grant.share());
        match grants.get_mut(index) {
            Some(settled) => *settled = grant,
            None => grants.push(grant),
        }
    }
}
