//! Regions that begin and end in a cycle: an action cures the condition that began it.

use alloc::vec::Vec;

use hyoshi_model::{Instant, RegionRules, Span, Stay};

/// Finds flapping regions in the changes of a contract.
///
/// A region *flaps* if it begins again soon after its end, [`FlapDetector::TIMES`] times in succession, and its `stay`
/// does not grow meanwhile. *Soon* is as for its [`Stay`], or within [`FlapDetector::EVALUATIONS`] evaluations if these
/// last longer. Only an end by `leave` counts, as for the growth of `stay`.
#[derive(Debug)]
pub struct FlapDetector {
    shortest: Span,
    regions: Vec<RegionHistory>,
}

#[derive(Clone, Copy, Debug)]
struct RegionHistory {
    rule: Stay,
    /// Its last `stay`, begin, and end by `leave`.
    stay: Span,
    begun: Option<Instant>,
    left: Option<Instant>,
    /// Its present succession, and the longest one with the time between its last two begins.
    times: u32,
    most: (u32, Span),
}

/// A region that flaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlappingRegion {
    /// The region.
    pub region: u16,
    /// How often it began again in succession.
    pub times: u32,
    /// The time between its last two begins.
    pub cycle: Span,
}

impl FlapDetector {
    /// So many begins in succession are flapping.
    pub const TIMES: u32 = 3;
    /// A region without `stay` flaps if it begins again within so many evaluations.
    pub const EVALUATIONS: u64 = 10;

    /// Without changes. `period` is that of the contract's evaluations.
    pub fn new<'a>(rules: impl IntoIterator<Item = &'a RegionRules>, period: Span) -> FlapDetector {
        let history = |rules: &RegionRules| RegionHistory {
            rule: rules.stay,
            stay: rules.stay.first,
            begun: None,
            left: None,
            times: 0,
            most: (0, Span::ZERO),
        };
        let shortest = period.checked_mul(FlapDetector::EVALUATIONS).unwrap_or(period);
        FlapDetector { shortest, regions: rules.into_iter().map(history).collect() }
    }

    /// A level changes its region; changes come in the order of time.
    pub fn change(&mut self, now: Instant, from: Option<u16>, to: Option<u16>) {
        if let Some(from) = from {
            // A later region follows only by `leave`, or by a command.
            self.regions[usize::from(from)].left = to.is_some_and(|to| to > from).then_some(now);
        }
        let Some(to) = to else { return };
        let region = &mut self.regions[usize::from(to)];
        let gap = region.left.map(|left| now.since(left));
        let stay = region.rule.next(region.stay, gap);
        let soon = gap.is_some_and(|gap| gap < self.shortest || region.rule.is_soon(region.stay, gap));
        region.times = if soon && stay <= region.stay { region.times + 1 } else { 0 };
        if region.times > region.most.0 {
            region.most = (region.times, region.begun.map_or(Span::ZERO, |begun| now.since(begun)));
        }
        (region.stay, region.begun) = (stay, Some(now));
    }

    /// The regions that flap.
    pub fn found(&self) -> impl Iterator<Item = FlappingRegion> + '_ {
        let all = (0..).zip(&self.regions).filter(|(_, one)| one.most.0 >= FlapDetector::TIMES);
        all.map(|(region, one)| FlappingRegion { region, times: one.most.0, cycle: one.most.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChangeCause, RegionMachine};
    use hyoshi_model::predicate::{ConditionReading, Predicate};
    use proptest::prelude::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    /// The machine and the detector together: `late` is 1 unless the region has been active for `cured`, and 1 again
    /// `worse` after its end.
    fn flapping(stay: Stay, (cured, worse): (u64, u64), millis: u64) -> Vec<FlappingRegion> {
        let enter = Predicate::read("late > 0.5", &["late"]).ok();
        let rules = |enter| RegionRules { parent: None, enter, leave: None, hold: Span::ZERO, stay, latch: false };
        let rules = alloc::vec![rules(enter), RegionRules { stay: Stay::default(), ..rules(None) }];
        let mut detector = FlapDetector::new(&rules, MS(1));
        let mut machine = RegionMachine::new(rules);
        let (mut since, mut active) = (0, false);
        for now in 0..millis {
            let late = if active { now - since < cured } else { now - since >= worse };
            let reading = ConditionReading::Fresh(if late { 1.0 } else { 0.0 });
            machine.step(Instant::ZERO + MS(now), &[reading], |change| {
                assert_ne!(change.cause, ChangeCause::Command);
                detector.change(Instant::ZERO + MS(now), change.from, change.to);
                (since, active) = (now, change.to == Some(0));
            });
        }
        detector.found().collect()
    }

    #[test]
    fn a_region_that_cures_its_condition_flaps_unless_its_stay_grows() {
        let found = flapping(Stay::constant(MS(100)), (10, 5), 1_000);
        assert_eq!(found, [FlappingRegion { region: 0, times: 9, cycle: MS(105) }]);
        assert_eq!(
            flapping(Stay { first: MS(100), grow: 2, most: MS(10_000), settling: Span::ZERO }, (10, 5), 2_000),
            []
        );
        // At its longest time it does not grow any more.
        assert_eq!(
            flapping(Stay { first: MS(50), grow: 2, most: MS(100), settling: Span::ZERO }, (10, 5), 1_000).len(),
            1
        );
        // Without `stay`, ten evaluations count.
        assert_eq!(flapping(Stay::default(), (3, 8), 100)[0].cycle, MS(11));
        assert_eq!(flapping(Stay::default(), (3, 12), 1_000), []);
    }

    proptest! {
        #[test]
        fn a_region_that_begins_again_later_than_its_stay_never_flaps(
            stay in 0..200u64, cured in 1..50u64, more in 0..100u64,
        ) {
            prop_assert_eq!(flapping(Stay::constant(MS(stay)), (cured, stay.max(10) + more), 5_000), []);
        }
    }
}
