//! The regions of a contract, and which of them are active.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Instant, RegionRules, Span};

/// A change of the active region of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionChange {
    /// The region that ends; `None` if its level was not active.
    pub from: Option<u16>,
    /// The region that begins; `None` if the region around the level ends.
    pub to: Option<u16>,
    /// The reason.
    pub cause: ChangeCause,
}

/// Why a region begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeCause {
    /// The contract, or the region around it, begins or ends.
    Outer,
    /// Its `enter` holds, and it precedes the active region.
    Enter,
    /// The active region's `leave` holds.
    Leave,
    /// A command.
    Command,
}

/// The active regions of a contract: one in each active level.
///
/// ```text
///          the `enter` of an earlier region has held for `hold`
///   ┌──────────────────────────────────────────────────────────────┐
///   │                                                              ▼
/// later region ◄───────────────────────────────────────────────── earlier region
///          after `stay`, if `leave` holds, `enter` does not, and no latch
/// ```
///
/// A region precedes all later ones in file order if its `enter` has held long enough. The region that follows
/// another is the first of the rest. If no `enter` holds, it is the last one of the level. A level within a
/// region begins with that region, in its last region.
///
/// It has no clock: the caller calls [`step`](RegionMachine::step) with the time and the readings. A step does not
/// allocate. It evaluates each `enter` of an active level once, and at most one `leave` of each.
#[derive(Debug)]
pub struct RegionMachine {
    rules: Box<[RegionRules]>,
    /// A level follows the level that contains its parent.
    levels: Box<[RegionLevel]>,
    regions: Box<[RegionState]>,
    /// When a command ends.
    forced_until: Instant,
}

#[derive(Debug)]
struct RegionLevel {
    parent: Option<u16>,
    /// In file order; not empty.
    regions: Box<[u16]>,
    active: Option<ActiveRegion>,
    /// The region that a command has set.
    forced: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct ActiveRegion {
    region: u16,
    since: Instant,
    /// A command has opened its latch.
    unlatched: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RegionState {
    /// Since when `enter` holds without interruption.
    holds_since: Option<Instant>,
    /// Its last `stay`, and its last end, if that was by `leave`.
    stay: Span,
    left: Option<Instant>,
}

impl RegionMachine {
    /// The machine of these regions, in file order. Nothing is active before the first step.
    ///
    /// # Panics
    ///
    /// If a parent is not earlier in the list, or the last region of a level has an `enter`, or another one has none.
    pub fn new(rules: Vec<RegionRules>) -> RegionMachine {
        // The order of parents: so a level follows the level that contains its parent.
        let parents = core::iter::once(None).chain((0..rules.len() as u16).map(Some));
        let levels = parents.filter_map(|parent| {
            let regions: Box<[u16]> = (0..).zip(&rules).filter(|one| one.1.parent == parent).map(|one| one.0).collect();
            let last = *regions.last()?;
            for region in &regions {
                assert!(parent.is_none_or(|parent| parent < *region), "a parent is earlier");
                let is_last = *region == last;
                assert!(rules[usize::from(*region)].enter.is_none() == is_last, "only the last region has no `enter`");
            }
            Some(RegionLevel { parent, regions, active: None, forced: None })
        });
        let levels = levels.collect();
        let regions = rules.iter().map(|_| RegionState::default()).collect();
        RegionMachine { rules: rules.into(), levels, regions, forced_until: Instant::NEVER }
    }

    /// Whether a region is active.
    pub fn is_active(&self, region: u16) -> bool {
        self.active().any(|active| active == region)
    }

    /// The active region of each active level, outer levels first.
    pub fn active(&self) -> impl Iterator<Item = u16> + '_ {
        self.levels.iter().filter_map(|level| Some(level.active?.region))
    }

    /// The innermost region that a command has set.
    pub fn forced(&self) -> Option<u16> {
        self.levels.iter().rev().find_map(|level| level.forced)
    }

    /// When conditions decide again after a [`force`](RegionMachine::force); never, if that has no end.
    pub fn forced_until(&self) -> Instant {
        self.forced_until
    }

    /// From the next step on, a region and the regions around it are active, whatever the conditions are. From the first
    /// step at or after `until`, conditions decide again, as after [`release`](RegionMachine::release).
    ///
    /// # Panics
    ///
    /// If there is no such region.
    pub fn force(&mut self, region: u16, until: Instant) {
        self.forced_until = until;
        self.levels.iter_mut().for_each(|level| level.forced = None);
        let mut path = Some(region);
        while let Some(region) = path {
            for level in self.levels.iter_mut().filter(|level| level.regions.contains(&region)) {
                level.forced = Some(region);
            }
            path = self.rules[usize::from(region)].parent;
        }
    }

    /// From the next step on, conditions decide again. The latches of active regions open.
    pub fn release(&mut self) {
        self.forced_until = Instant::NEVER;
        for level in &mut self.levels {
            level.forced = None;
            level.active = level.active.map(|active| ActiveRegion { unlatched: true, ..active });
        }
    }

    /// Decides with these readings, and reports each change in order, from outer levels to inner ones.
    pub fn step(&mut self, now: Instant, readings: &[ConditionReading], mut each: impl FnMut(RegionChange)) {
        if now >= self.forced_until {
            self.release();
        }
        for place in 0..self.levels.len() {
            if let Some(change) = self.step_level(place, now, readings) {
                each(change);
            }
        }
    }

    fn step_level(&mut self, place: usize, now: Instant, readings: &[ConditionReading]) -> Option<RegionChange> {
        let RegionLevel { parent, active, forced, .. } = self.levels[place];
        if !parent.is_none_or(|parent| self.is_active(parent)) {
            let active = active?;
            self.end_level(place);
            return Some(RegionChange { from: Some(active.region), to: None, cause: ChangeCause::Outer });
        }
        let wanted = self.wanted(place, now, readings);
        let (to, cause) = match (forced, active) {
            (Some(forced), Some(active)) if active.region == forced => return None,
            (Some(forced), _) => (forced, ChangeCause::Command),
            (None, None) => (wanted, ChangeCause::Outer),
            (None, Some(active)) if wanted < active.region => (wanted, ChangeCause::Enter),
            (None, Some(active)) if wanted > active.region && self.may_leave(active, now, readings) => {
                (wanted, ChangeCause::Leave)
            }
            (None, Some(_)) => return None,
        };
        self.begin(place, to, cause, now);
        Some(RegionChange { from: active.map(|active| active.region), to: Some(to), cause })
    }

    /// The first region of a level with an `enter` that has held long enough. It evaluates all.
    fn wanted(&mut self, place: usize, now: Instant, readings: &[ConditionReading]) -> u16 {
        let mut wanted = None;
        for region in &self.levels[place].regions {
            let (rules, state) = (&self.rules[usize::from(*region)], &mut self.regions[usize::from(*region)]);
            let Some(enter) = &rules.enter else {
                wanted = wanted.or(Some(*region));
                continue;
            };
            state.holds_since = enter.holds(readings).then(|| state.holds_since.unwrap_or(now));
            if state.holds_since.is_some_and(|since| now.since(since) >= rules.hold) {
                wanted = wanted.or(Some(*region));
            }
        }
        wanted.unwrap_or(self.levels[place].regions[0])
    }

    fn may_leave(&self, active: ActiveRegion, now: Instant, readings: &[ConditionReading]) -> bool {
        let (rules, state) = (&self.rules[usize::from(active.region)], self.regions[usize::from(active.region)]);
        let held = rules.latch && !active.unlatched || state.holds_since.is_some();
        if held || now.since(active.since) < state.stay {
            return false;
        }
        rules.leave.as_ref().is_none_or(|leave| leave.holds(readings))
    }

    /// A region begins, and the present one of its level ends. Only an end by `leave` is a probe.
    fn begin(&mut self, place: usize, region: u16, cause: ChangeCause, now: Instant) {
        if let Some(before) = self.levels[place].active {
            self.regions[usize::from(before.region)].left = (cause == ChangeCause::Leave).then_some(now);
        }
        let (stay, state) = (self.rules[usize::from(region)].stay, &mut self.regions[usize::from(region)]);
        state.stay = stay.next(state.stay, state.left.map(|left| now.since(left)));
        self.levels[place].active = Some(ActiveRegion { region, since: now, unlatched: false });
    }

    /// Ends all regions, inner levels first, and forgets commands. The next step begins anew.
    pub fn end(&mut self, mut each: impl FnMut(RegionChange)) {
        self.forced_until = Instant::NEVER;
        for place in (0..self.levels.len()).rev() {
            if let Some(active) = self.levels[place].active {
                each(RegionChange { from: Some(active.region), to: None, cause: ChangeCause::Outer });
            }
            self.end_level(place);
            self.levels[place].forced = None;
        }
    }

    /// `hold` counts again from the next begin of the region around the level.
    fn end_level(&mut self, place: usize) {
        let level = &mut self.levels[place];
        for region in &level.regions {
            let state = &mut self.regions[usize::from(*region)];
            (state.holds_since, state.left) = (None, None);
        }
        level.active = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use hyoshi_model::Stay;
    use hyoshi_model::predicate::Predicate;
    use proptest::prelude::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + MS(millis)
    }

    fn rules(enter: &str, leave: &str) -> RegionRules {
        let read = |text: &str| {
            (!text.is_empty())
                .then(|| Predicate::read(text, &["load", "loss"]).unwrap_or_else(|error| panic!("{error}")))
        };
        let (enter, leave) = (read(enter), read(leave));
        RegionRules { parent: None, enter, leave, hold: Span::ZERO, stay: Stay::default(), latch: false }
    }

    fn step(machine: &mut RegionMachine, millis: u64, load: f64) -> Vec<RegionChange> {
        let mut changes = Vec::new();
        machine
            .step(at(millis), &[ConditionReading::Fresh(load), ConditionReading::Stale], |change| changes.push(change));
        changes
    }

    /// The active region of the outer level after each load, 1 ms apart.
    fn run(machine: &mut RegionMachine, loads: &[f64]) -> Vec<u16> {
        let step = |(millis, load): (u64, &f64)| {
            step(machine, millis, *load);
            machine.active().next().expect("one is active")
        };
        (0..).zip(loads).map(step).collect()
    }

    #[test]
    fn a_region_stays_between_its_thresholds() {
        let mut machine = RegionMachine::new(vec![rules("load > 8", "load < 4"), rules("", "")]);
        assert_eq!(run(&mut machine, &[5.0, 9.0, 5.0, 4.0, 3.0, 5.0]), [1, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn the_first_region_in_file_order_precedes() {
        let mut machine = RegionMachine::new(vec![rules("load > 8", ""), rules("load > 4", ""), rules("", "")]);
        assert_eq!(run(&mut machine, &[5.0, 9.0, 5.0, 9.0, 1.0]), [1, 0, 1, 0, 2]);
    }

    #[test]
    fn enter_must_hold_without_interruption() {
        let mut machine = RegionMachine::new(vec![RegionRules { hold: MS(2), ..rules("load > 8", "") }, rules("", "")]);
        assert_eq!(run(&mut machine, &[9.0, 9.0, 1.0, 9.0, 9.0, 9.0, 1.0]), [1, 1, 1, 1, 1, 0, 1]);
    }

    #[test]
    fn stay_delays_only_regions_below() {
        let stay = Stay::constant(MS(3));
        let mut machine = RegionMachine::new(vec![
            rules("load > 8", ""),
            RegionRules { stay, ..rules("load > 4", "") },
            rules("", ""),
        ]);
        assert_eq!(run(&mut machine, &[5.0, 1.0, 1.0, 1.0, 5.0, 9.0, 1.0]), [1, 1, 1, 2, 1, 0, 2]);
    }

    #[test]
    fn stay_grows_while_leaving_fails() {
        let stay = Stay { first: MS(2), grow: 2, most: MS(5), settling: Span::ZERO };
        let mut machine =
            RegionMachine::new(vec![RegionRules { stay, ..rules("load > 8", "load < 9") }, rules("", "")]);
        let mut lengths = Vec::new();
        let (mut since, mut now) = (0, 0);
        step(&mut machine, 0, 9.0);
        while lengths.len() < 4 {
            now += 1;
            // The action of the region cures the load, so each end is a probe. It fails at once.
            let load = if machine.is_active(0) { 5.0 } else { 9.0 };
            for change in step(&mut machine, now, load) {
                match change.to {
                    Some(0) => since = now,
                    _ => lengths.push(now - since),
                }
            }
        }
        assert_eq!(lengths, [2, 4, 5, 5]);
        // After a long pause it is the first time again.
        step(&mut machine, now + 100, 9.0);
        assert!(step(&mut machine, now + 101, 5.0).is_empty());
        assert_eq!(step(&mut machine, now + 102, 5.0)[0].to, Some(1));
    }

    #[test]
    fn only_a_command_opens_a_latch() {
        let mut machine = RegionMachine::new(vec![
            rules("load > 8", ""),
            RegionRules { latch: true, ..rules("load > 4", "") },
            rules("", ""),
        ]);
        assert_eq!(run(&mut machine, &[5.0, 1.0, 9.0, 5.0, 1.0]), [1, 1, 0, 1, 1]);
        machine.release();
        let change = RegionChange { from: Some(1), to: Some(2), cause: ChangeCause::Leave };
        assert_eq!(step(&mut machine, 9, 1.0), [change]);
    }

    #[test]
    fn a_command_sets_a_region_until_its_release() {
        let inner = |enter: &str| RegionRules { parent: Some(0), ..rules(enter, "") };
        let mut machine = RegionMachine::new(vec![rules("load > 8", ""), inner("load > 9"), inner(""), rules("", "")]);
        assert_eq!(step(&mut machine, 0, 1.0).len(), 1);
        machine.force(1, Instant::NEVER);
        let begun = |from, to| RegionChange { from, to: Some(to), cause: ChangeCause::Command };
        assert_eq!(step(&mut machine, 1, 1.0), [begun(Some(3), 0), begun(None, 1)]);
        assert_eq!(step(&mut machine, 2, 1.0), []);
        machine.release();
        let ended = RegionChange { from: Some(1), to: None, cause: ChangeCause::Outer };
        assert_eq!(
            step(&mut machine, 3, 1.0),
            [RegionChange { from: Some(0), to: Some(3), cause: ChangeCause::Leave }, ended]
        );
    }

    #[test]
    fn a_command_with_an_end_lets_conditions_decide_from_then_on() {
        let latch = RegionRules { latch: true, ..rules("load > 8", "") };
        let mut machine = RegionMachine::new(vec![latch, rules("", "")]);
        machine.force(0, at(5));
        let active = |machine: &mut RegionMachine, millis| {
            step(machine, millis, 1.0);
            (machine.active().next(), machine.forced())
        };
        assert_eq!(active(&mut machine, 0), (Some(0), Some(0)));
        assert_eq!(active(&mut machine, 4), (Some(0), Some(0)));
        assert_eq!(active(&mut machine, 5), (Some(1), None));
        // A later command replaces the end of an earlier one, and a release removes it.
        machine.force(0, at(7));
        machine.force(0, Instant::NEVER);
        assert_eq!(active(&mut machine, 9), (Some(0), Some(0)));
        machine.force(0, at(20));
        machine.release();
        machine.force(1, Instant::NEVER);
        assert_eq!(active(&mut machine, 21), (Some(1), Some(1)));
    }

    /// Regions with constant thresholds, and a level within the second one.
    fn any_rules() -> impl Strategy<Value = Vec<RegionRules>> {
        let one = || (1..10u32, 0..4u32, 0..4u64, 0..6u64, 1..3u32, any::<bool>());
        (prop::collection::vec(one(), 2..5), prop::collection::vec(one(), 0..3)).prop_map(|(outer, inner)| {
            let rules =
                |(enter, below, hold, stay, grow, latch): (u32, u32, u64, u64, u32, bool), parent| RegionRules {
                    parent,
                    hold: MS(hold),
                    stay: Stay { first: MS(stay), grow, most: MS(stay * 3), settling: Span::ZERO },
                    latch: latch && enter % 3 == 0,
                    ..rules(&format!("load > {enter}"), &format!("load < {}", enter.saturating_sub(below)))
                };
            let mut all: Vec<_> = outer.into_iter().map(|one| rules(one, None)).collect();
            all.push(super::tests::rules("", ""));
            if !inner.is_empty() {
                all.extend(inner.into_iter().map(|one| rules(one, Some(1))));
                all.push(RegionRules { parent: Some(1), ..super::tests::rules("", "") });
            }
            all
        })
    }

    proptest! {
        #[test]
        fn each_level_has_one_active_region_and_keeps_its_times(
            rules in any_rules(), loads in prop::collection::vec(0..12u32, 1..200),
        ) {
            let mut machine = RegionMachine::new(rules.clone());
            let mut begun: Vec<Option<(u64, u64)>> = vec![None; rules.len()];
            let mut held = vec![0u64; rules.len()];
            for (now, load) in (0..).zip(loads) {
                let readings = [ConditionReading::Fresh(load.into())];
                let before: Vec<u16> = machine.active().collect();
                let mut changes = Vec::new();
                machine.step(at(now), &readings, |change| changes.push(change));
                for change in &changes {
                    let parent = |region: u16| rules[usize::from(region)].parent;
                    if let (Some(from), Some(to)) = (change.from, change.to) {
                        prop_assert_eq!(parent(from), parent(to));
                        prop_assert_ne!(from, to);
                        let least = rules[usize::from(from)].stay.first.as_nanos() / 1_000_000;
                        // Not within the least time, unless an earlier region begins.
                        prop_assert!(to < from || now - begun[usize::from(from)].unwrap().0 >= least);
                    }
                    if let Some(region) = change.from {
                        prop_assert!(before.contains(&region));
                        begun[usize::from(region)] = None;
                    }
                    if let Some(region) = change.to {
                        prop_assert!(begun[usize::from(region)].is_none());
                        begun[usize::from(region)] = Some((now, 0));
                        let rules = &rules[usize::from(region)];
                        if change.cause == ChangeCause::Enter {
                            let hold = rules.hold.as_nanos() / 1_000_000;
                            prop_assert!(rules.enter.as_ref().unwrap().holds(&readings));
                            prop_assert!(held[usize::from(region)] >= hold);
                        }
                    }
                }
                for (held, rules) in held.iter_mut().zip(&rules) {
                    let holds = rules.enter.as_ref().is_some_and(|enter| enter.holds(&readings));
                    *held = if holds { *held + 1 } else { 0 };
                }
                // Exactly one in the outer level, and one in the inner one while region 1 is active.
                let levels = [None, Some(1)].map(|parent| {
                    machine.active().filter(|region| rules[usize::from(*region)].parent == parent).count()
                });
                let inner = machine.is_active(1) && rules.iter().any(|one| one.parent == Some(1));
                prop_assert_eq!(levels, [1, usize::from(inner)]);
                prop_assert_eq!(machine.active().count(), levels[0] + levels[1]);
                prop_assert!(changes.len() <= 2);
            }
        }
    }
}
