//! An external policy, of another process or a library: its grants are held to the laws of all policies.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use hyoshi_model::{Reservation, Share, Span};

use super::{AnyPolicy, Ask};
use crate::task::{Grant, Limit, Reason, TaskId};

/// Grants by the last answer of an external policy.
///
/// ```text
///              answered                     failed
///   Unasked ─────────────► By its answer ────────────► Passed over
///      │                     ▲   │ answered                │
///      │ failed              └───┴─────────────────────────┘ answered
///      └────────────────────────────────────────────────► Passed over
/// ```
///
/// By its answer, each task gets the granted budget, at most its present request; a task that joined since gets nothing
/// until the next answer. Before the first answer and after a failure, the declared fallback decides.
#[derive(Debug)]
pub struct ExternalPolicy {
    /// Decides as long as there is no answer.
    pub fallback: AnyPolicy,
    answer: Option<BTreeMap<TaskId, BudgetGrant>>,
    failed: Option<String>,
    exceeded: Option<LawViolation>,
}

/// The grant of an answer to one task.
#[derive(Clone, Copy, Debug)]
struct BudgetGrant {
    /// In each of its periods.
    budget: Span,
    /// Of the request.
    period: Span,
}

/// How an answer broke the laws, before it was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawViolation {
    /// It granted a task more than it requests.
    Ask(TaskId),
    /// It granted more than the limit, up to this task.
    Limit(TaskId),
}

impl ExternalPolicy {
    /// Without an answer.
    pub fn new(fallback: AnyPolicy) -> Self {
        ExternalPolicy { fallback, answer: None, failed: None, exceeded: None }
    }

    /// Its grants for each of the asks, in their order. False, and nothing is used, if the number differs.
    pub fn answered(&mut self, asks: &[Ask], budgets: &[Span]) -> bool {
        (self.exceeded, self.failed) = (None, None);
        if asks.len() != budgets.len() {
            self.answer = None;
            return false;
        }
        let given = asks.iter().zip(budgets).map(|(ask, budget)| {
            if *budget > ask.asked.budget() {
                self.exceeded.get_or_insert(LawViolation::Ask(ask.task));
            }
            (ask.task, BudgetGrant { budget: *budget, period: ask.asked.period() })
        });
        self.answer = Some(given.collect());
        true
    }

    /// It is bypassed from now on.
    pub fn failed(&mut self, why: String) {
        (self.answer, self.failed) = (None, Some(why));
    }

    /// Why it is bypassed, if it is.
    pub fn why(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether it decides, not its fallback.
    pub fn decides(&self) -> bool {
        self.answer.is_some()
    }

    /// How its last answer broke the laws, as far as known.
    pub fn exceeded(&self) -> Option<LawViolation> {
        self.exceeded
    }

    /// Like [`Policy::arbitrate`](super::Policy::arbitrate).
    pub fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        let Some(answer) = &self.answer else { return self.fallback.arbitrate(asks, limit, grants) };
        let mut left = limit.share();
        for ask in asks {
            let grant = match answer.get(&ask.task) {
                None => ask.granted(None, Reason::Unanswered),
                Some(given) => {
                    let wanted = given.of(ask);
                    let share = wanted.map_or(Share::ZERO, Reservation::share);
                    if share > left {
                        self.exceeded.get_or_insert(LawViolation::Limit(ask.task));
                        ask.grant(left, limit)
                    } else {
                        kept(ask, wanted, limit)
                    }
                }
            };
            left = left.saturating_sub(grant.share());
            grants.push(grant);
        }
    }
}

impl BudgetGrant {
    /// The part of the present request.
    fn of(&self, ask: &Ask) -> Option<Reservation> {
        let budget = match ask.asked.period() == self.period {
            true => self.budget,
            // The same part of the CPU in the new period.
            false => Reservation::new(self.budget.min(self.period), self.period)
                .map_or(Span::ZERO, |given| given.share().of(ask.asked.period())),
        };
        let budget = budget.min(ask.asked.budget());
        (budget > Span::ZERO).then(|| ask.asked.with_budget(budget))
    }
}

/// The rest of the limit is enough for it.
fn kept(ask: &Ask, given: Option<Reservation>, limit: Limit) -> Grant {
    match given {
        Some(all) if all.budget() == ask.asked.budget() => ask.granted(given, Reason::Granted),
        Some(less) if less.share() < ask.least.min(ask.asked.share()) => {
            ask.granted(None, Reason::BelowLeast(limit, less.share()))
        }
        _ => ask.granted(given, Reason::Policy),
    }
}
