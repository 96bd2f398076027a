//! The regions of contracts over time, in bounded memory.

use std::collections::VecDeque;

use hyoshi_model::{Instant, Span, System};

use crate::event::{DispatchDecision, Input, TraceEvent};

/// The most changes of a history. Earlier ones are omitted.
const MOST: usize = 256;

/// A change of the active regions of a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStep {
    /// When.
    pub at: Instant,
    /// The region that ends, by its position in the contract.
    pub from: Option<u16>,
    /// The region that begins.
    pub to: Option<u16>,
    /// The values of the contract's conditions at this time, in millionths; `None` for a stale one.
    pub values: Vec<Option<i64>>,
    /// An operator has set the region that begins.
    pub forced: bool,
}

/// How often and how long a region was active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionTime {
    /// How often it began.
    pub begins: u64,
    /// Its total time.
    pub total: Span,
    /// When it began last, if it is active.
    pub since: Option<Instant>,
}

/// The regions of one contract over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractHistory {
    /// By region.
    pub regions: Vec<RegionTime>,
    /// The latest changes.
    pub steps: VecDeque<RegionStep>,
    /// The number of earlier ones.
    pub omitted: u64,
    /// The latest values of its conditions.
    values: Vec<Option<i64>>,
    /// The region that an operator has set, and the end of that.
    forced: Option<(u16, Instant)>,
}

impl ContractHistory {
    fn change(&mut self, now: Instant, from: Option<u16>, to: Option<u16>) {
        if let Some(region) = from.and_then(|from| self.regions.get_mut(usize::from(from)))
            && let Some(since) = region.since.take()
        {
            region.total = region.total.checked_add(now.since(since)).unwrap_or(region.total);
        }
        if let Some(region) = to.and_then(|to| self.regions.get_mut(usize::from(to))) {
            (region.begins, region.since) = (region.begins + 1, Some(now));
        }
        if self.steps.len() == MOST {
            self.steps.pop_front();
            self.omitted += 1;
        }
        let forced = to.zip(self.forced).is_some_and(|(to, (region, until))| to == region && now < until);
        self.steps.push_back(RegionStep { at: now, from, to, values: self.values.clone(), forced });
    }
}

/// The histories of all contracts. It receives the events of each processor in order.
#[derive(Clone, Debug)]
pub struct ContractHistories(Vec<ContractHistory>);

impl ContractHistories {
    /// Without changes.
    pub fn new(system: &System) -> ContractHistories {
        let history = |contract: &hyoshi_model::Contract| ContractHistory {
            regions: vec![RegionTime::default(); contract.regions.len()],
            values: vec![None; contract.conditions.len()],
            ..ContractHistory::default()
        };
        ContractHistories(system.contracts.iter().map(history).collect())
    }

    /// The next event of a processor.
    pub fn event(&mut self, now: Instant, event: &TraceEvent) {
        match event {
            TraceEvent::Decision(DispatchDecision::Condition { contract, condition, value }) => {
                let history = self.0.get_mut(usize::from(*contract));
                let place = history.and_then(|history| history.values.get_mut(usize::from(*condition)));
                place.into_iter().for_each(|place| *place = *value);
            }
            TraceEvent::Input(Input::Force { contract, region, until }) => {
                if let Some(history) = self.0.get_mut(usize::from(*contract)) {
                    history.forced = region.map(|region| (region, *until));
                }
            }
            TraceEvent::Decision(DispatchDecision::Region { contract, from, to }) => {
                if let Some(history) = self.0.get_mut(usize::from(*contract)) {
                    history.change(now, *from, *to);
                }
            }
            _ => {}
        }
    }

    /// The history of each contract until `end`, in the order of the system.
    pub fn until(&self, end: Instant) -> Vec<ContractHistory> {
        let mut all = self.0.clone();
        for region in all.iter_mut().flat_map(|history| &mut history.regions) {
            if let Some(since) = region.since {
                region.total = region.total.checked_add(end.since(since)).unwrap_or(region.total);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_values_are_those_of_the_changes() {
        let mut history = ContractHistories(vec![ContractHistory {
            regions: vec![RegionTime::default(); 2],
            values: vec![None],
            ..ContractHistory::default()
        }]);
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let mut decide = |millis, decision| history.event(at(millis), &TraceEvent::Decision(decision));
        let region = |from, to| DispatchDecision::Region { contract: 0, from, to };
        decide(10, region(None, Some(1)));
        decide(30, DispatchDecision::Condition { contract: 0, condition: 0, value: Some(5) });
        decide(30, region(Some(1), Some(0)));
        // Of another system.
        decide(31, DispatchDecision::Condition { contract: 0, condition: 7, value: Some(5) });
        decide(31, DispatchDecision::Region { contract: 7, from: None, to: Some(0) });
        let found = &history.until(at(35))[0];
        let times: Vec<_> = found.regions.iter().map(|one| (one.begins, one.total)).collect();
        assert_eq!(times, [(1, Span::from_millis(5)), (1, Span::from_millis(20))]);
        let values: Vec<_> = found.steps.iter().map(|step| step.values.clone()).collect();
        assert_eq!(values, [vec![None], vec![Some(5)]]);
    }

    #[test]
    fn a_region_that_an_operator_has_set_is_marked_until_the_end_of_that() {
        let mut histories = ContractHistories(vec![ContractHistory {
            regions: vec![RegionTime::default(); 2],
            ..ContractHistory::default()
        }]);
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let force = |contract, region, until| TraceEvent::Input(Input::Force { contract, region, until: at(until) });
        let change = |to: u16| {
            let region = DispatchDecision::Region { contract: 0, from: Some(1 - to), to: Some(to) };
            TraceEvent::Decision(region)
        };
        let events = [
            (1, force(7, Some(1), 99)),
            (2, change(1)),
            (3, change(0)),
            (4, force(0, Some(1), 7)),
            (4, change(1)),
            (5, change(0)),
            (7, change(1)),
            (8, force(0, Some(0), 99)),
            (8, change(0)),
            (9, force(0, None, 9)),
            (9, change(1)),
            (10, change(0)),
        ];
        events.iter().for_each(|(millis, event)| histories.event(at(*millis), event));
        let forced: Vec<bool> = histories.0[0].steps.iter().map(|step| step.forced).collect();
        assert_eq!(forced, [false, false, true, false, false, true, false, false]);
    }

    #[test]
    fn the_latest_changes_are_kept() {
        let mut history = ContractHistory { regions: vec![RegionTime::default(); 2], ..ContractHistory::default() };
        for number in 0..MOST as u64 + 3 {
            history.change(Instant::from_nanos(number), Some((number % 2) as u16), Some(((number + 1) % 2) as u16));
        }
        assert_eq!((history.steps.len(), history.omitted, history.steps[0].at), (MOST, 3, Instant::from_nanos(3)));
    }
}
