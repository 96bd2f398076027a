//! Weighted: reduces all tasks, heavy ones less than light ones.

use alloc::vec::Vec;
use core::cmp::Reverse;

use hyoshi_model::Share;

use super::{Ask, Policy, PolicySpec};
use crate::task::{Grant, GroupId, Limit, Reason};

/// Reduces all requests in inverse proportion to their weights, as springs yield in inverse proportion to their
/// stiffness: `granted = asked - excess * (1 / weight) / sum of (1 / weight)`. A task that would fall below its least
/// useful share stays there, and the others yield for it (Abeni and Buttazzo, "Adaptive bandwidth reservation for
/// multimedia computing", RTCSA 1999; the compression with least values is that of Buttazzo, Lipari and Abeni, "Elastic
/// task model", RTSS 1998).
///
/// If the least values do not fit together, tasks are admitted by weight, and the others get nothing.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    /// How far each admitted task can be reduced before it is at its least, as a price, and its position.
    springs: Vec<(u64, u32)>,
    admitted: Vec<bool>,
    by_weight: Vec<u32>,
}

/// The largest weight that is distinguished from larger ones.
pub const HEAVIEST: u32 = 10_000;

/// The inverse of a weight is counted in this many parts.
const PARTS: u64 = 1 << 32;
/// A price is counted in this many parts of a millionth of a CPU, per weight.
const FINE: u32 = 16;

fn weight(ask: &Ask) -> u64 {
    u64::from(ask.weight.clamp(1, HEAVIEST))
}

/// A task is not reduced below this.
fn least(ask: &Ask) -> Share {
    ask.least.min(ask.asked.share())
}

impl Weighted {
    /// Which tasks get at least their least: all, if that fits; else the heavy ones first. Returns the rest.
    fn admit(&mut self, asks: &[Ask], limit: Share) -> Share {
        self.admitted.clear();
        self.admitted.resize(asks.len(), true);
        let together: Share = asks.iter().map(least).sum();
        if together <= limit {
            return limit.saturating_sub(together);
        }
        self.by_weight.clear();
        self.by_weight.extend(0..asks.len() as u32);
        self.by_weight.sort_by_key(|index| Reverse(weight(&asks[*index as usize])));
        let mut left = limit;
        for index in &self.by_weight {
            let index = *index as usize;
            let least = least(&asks[index]);
            self.admitted[index] = least <= left;
            if least <= left {
                left = left.saturating_sub(least);
            }
        }
        left
    }

    /// The price per weight at which all reductions make up for `excess`: a task of weight `w` yields `price / w`, or
    /// all it can.
    fn price(&mut self, asks: &[Ask], mut excess: u64) -> u64 {
        self.springs.clear();
        let mut parts = 0u64;
        for (index, ask) in asks.iter().enumerate() {
            if self.admitted[index] {
                let gives = ask.asked.share().saturating_sub(least(ask)).as_millionths();
                self.springs.push((gives * weight(ask), index as u32));
                parts += PARTS / weight(ask);
            }
        }
        // Tasks that reach their least at the lowest price do so first; the others make up for the rest.
        self.springs.sort_unstable();
        for (gives, index) in &self.springs {
            let price = price_of(excess, parts);
            if gives << FINE >= price {
                return price;
            }
            let weight = weight(&asks[*index as usize]);
            excess = excess.saturating_sub(gives / weight);
            parts -= PARTS / weight;
        }
        u64::MAX
    }
}

/// Rounded up: a task may lose slightly too much, never too little.
fn price_of(excess: u64, parts: u64) -> u64 {
    let price = ((u128::from(excess) << FINE) * u128::from(PARTS)).div_ceil(u128::from(parts.max(1)));
    u64::try_from(price).unwrap_or(u64::MAX)
}

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn manner(&self, _: GroupId) -> &str {
        "all tasks are reduced in inverse proportion to their weights"
    }

    fn spec(&self) -> Option<PolicySpec> {
        Some(PolicySpec::Weighted)
    }

    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        let asked: Share = asks.iter().map(|ask| ask.asked.share()).sum();
        if asked <= limit.share() {
            grants.extend(asks.iter().map(|ask| ask.granted(Some(ask.asked), Reason::Granted)));
            return;
        }
        let over_least = self.admit(asks, limit.share());
        let wanted = asks.iter().zip(&self.admitted).filter(|(_, admitted)| **admitted);
        let wanted: Share = wanted.map(|(ask, _)| ask.asked.share().saturating_sub(least(ask))).sum();
        let excess = wanted.saturating_sub(over_least);
        let price = if excess.is_zero() { 0 } else { self.price(asks, excess.as_millionths()) };
        let first = grants.len();
        let mut left = limit.share();
        let given = |ask: &Ask| {
            let gives = Share::from_millionths(price.div_ceil(weight(ask) << FINE));
            ask.asked.share().saturating_sub(gives).max(least(ask))
        };
        for (ask, admitted) in asks.iter().zip(&self.admitted) {
            let grant = match admitted {
                true => ask.grant(given(ask), limit),
                false => ask.granted(None, Reason::BelowLeast(limit, over_least)),
            };
            left = left.saturating_sub(grant.share());
            grants.push(grant);
        }
        // The rest of the rounding, less than a millionth of a CPU for each task, is granted to the most important of
        // the tasks that were reduced in proportion.
        for ((ask, admitted), grant) in asks.iter().zip(&self.admitted).zip(&mut grants[first..]) {
            let has = grant.share();
            if *admitted && !left.is_zero() && has > least(ask) && has < ask.asked.share() {
                *grant = ask.grant(has.saturating_add(left), limit);
                left = left.saturating_sub(grant.share().saturating_sub(has));
            }
        }
    }

    fn within_account(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        self.arbitrate(asks, limit, grants);
    }

    fn grants_all_that_fits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskId;
    use hyoshi_model::{Reservation, Span};

    fn ask(task: u32, percent: u64, weight: u32, least: u64) -> Ask {
        let asked = Reservation::new(Span::from_millis(percent), Span::from_millis(100)).unwrap();
        let least = Share::from_percent(least);
        Ask { task: TaskId(task), importance: 0, weight, group: GroupId(0), asked, least }
    }

    fn percents(asks: &[Ask], cap: u64) -> Vec<u64> {
        let mut grants = Vec::new();
        Weighted::default().arbitrate(asks, Limit::Cap(Share::from_percent(cap)), &mut grants);
        grants.iter().map(|grant| (grant.share().as_millionths() + 5_000) / 10_000).collect()
    }

    #[test]
    fn heavy_tasks_are_reduced_less_than_light_ones() {
        // 20 % too much: weight 1 yields 15, weight 3 yields 5.
        assert_eq!(percents(&[ask(1, 50, 1, 0), ask(2, 50, 3, 0)], 80), [35, 45]);
        assert_eq!(percents(&[ask(1, 50, 1, 0), ask(2, 30, 3, 0)], 80), [50, 30]);
    }

    #[test]
    fn a_task_at_its_least_is_not_reduced_further_and_others_make_up_for_it() {
        // The first would yield 15, but has only 5; the other yields 15.
        assert_eq!(percents(&[ask(1, 50, 1, 45), ask(2, 50, 3, 0)], 80), [45, 35]);
        // A light task yields all it has.
        assert_eq!(percents(&[ask(1, 10, 1, 0), ask(2, 90, 3, 0)], 60), [0, 60]);
    }

    #[test]
    fn least_values_that_do_not_fit_are_admitted_by_weight() {
        // Weights 3 and 2 are admitted; of 20 % too much they yield 20 * (1/3) / (5/6) = 8 and 12.
        assert_eq!(percents(&[ask(1, 50, 1, 40), ask(2, 50, 3, 40), ask(3, 50, 2, 30)], 80), [0, 42, 38]);
    }
}
