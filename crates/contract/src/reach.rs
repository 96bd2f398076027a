//! Which regions can begin, decided before anything runs.
//!
//! If an expression compares conditions only with constants, its value changes only at these constants. So each
//! condition has finitely many cases: stale, each constant, and the intervals between. All combinations are tried.

use alloc::vec;
use alloc::vec::Vec;

use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Condition, ConditionSource, Contents, OutsideMeasure, RegionRules, WindowSummary, outside};

use crate::limits::SettingLimits;

/// The most combinations that are tried for one level.
pub const MOST_CASES: usize = 1 << 13;

/// Whether a region can begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Reachability {
    /// With these readings, if they last: its `enter` holds, and that of no earlier region, or only of regions with a
    /// longer `hold`, which follow it.
    Reachable {
        /// By condition.
        readings: Vec<ConditionReading>,
    },
    /// Its `enter` is never true.
    Never,
    /// Whenever its `enter` holds, an earlier region begins first.
    Hidden,
    /// It compares conditions with each other, or there are too many combinations, or an earlier region may hide it.
    Unknown,
}

/// What is known about a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionReach {
    /// Whether it can begin.
    pub reach: Reachability,
    /// Readings with which it ends, if they last; `None` if there are none. Not known with [`Reachability::Unknown`].
    pub ends: Option<Vec<ConditionReading>>,
}

/// The possible readings of a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionDomain {
    /// Its values.
    pub limits: SettingLimits,
    /// Whether it can be stale.
    pub stale: bool,
}

/// The possible readings of a condition.
pub fn domain(condition: &Condition, contents: &Contents) -> ConditionDomain {
    // A value that only epochs, operators and programs set, from the start on, lasts until the next one.
    let lasts = match condition.of {
        ConditionSource::Set(place) => {
            let is_set =
                contents.epochs.first().is_some_and(|epoch| epoch.environment.condition(place.into()).is_some());
            is_set && contents.conditions[usize::from(place)].measure.is_none()
        }
        _ => false,
    };
    let stale = !lasts || condition.over.is_some() || condition.max_age.is_some();
    ConditionDomain { limits: limits(condition, contents), stale }
}

fn limits(condition: &Condition, contents: &Contents) -> SettingLimits {
    let (least, most) = match condition.of {
        ConditionSource::MissRatio(_) | ConditionSource::Strategy(_) | ConditionSource::Endangered(_) => (0.0, 1.0),
        ConditionSource::Set(place) => {
            let measure = contents.conditions[usize::from(place)].measure;
            measure.map_or((-outside::MOST, outside::MOST), OutsideMeasure::domain)
        }
        ConditionSource::Lateness(_) => (f64::NEG_INFINITY, f64::INFINITY),
        // A processor may use more than its hard cap for a short time.
        ConditionSource::Latency(_)
        | ConditionSource::Utilisation(_)
        | ConditionSource::Demand(_)
        | ConditionSource::Wasted(_)
        | ConditionSource::Usage(_)
        | ConditionSource::Rate(_)
        | ConditionSource::Queue(_) => (0.0, f64::INFINITY),
    };
    match condition.summary {
        WindowSummary::Spread => SettingLimits { least: 0.0, most: most - least },
        _ => SettingLimits { least, most },
    }
}

/// The regions of one level, in file order. `outer` has the regions around them. `domains` has the possible readings of
/// each condition.
///
/// *Reachable* holds if the conditions do not depend on each other. In an inner level it means: if the regions around it
/// are active. *Never* and *hidden* hold as long as no operator sets a region.
pub fn reach(level: &[&RegionRules], outer: &[&RegionRules], domains: &[ConditionDomain]) -> Vec<RegionReach> {
    let unknown = RegionReach { reach: Reachability::Unknown, ends: None };
    let Some(cases) = cases(level, outer, domains) else { return vec![unknown; level.len()] };
    let mut all: Vec<_> = level.iter().map(|_| RegionReach { reach: Reachability::Never, ends: None }).collect();
    // By region: the earlier ones that hold in all of its cases, as long as there are any.
    let mut always: Vec<Vec<bool>> = (0..level.len()).map(|place| vec![true; place]).collect();
    let mut at_once = vec![true; level.len()];
    // By region: readings with which it begins before an earlier one.
    let mut at_first: Vec<Option<Vec<ConditionReading>>> = vec![None; level.len()];
    let mut case = vec![0; cases.len()];
    let mut readings = vec![ConditionReading::Stale; cases.len()];
    let mut holding = vec![false; level.len()];
    loop {
        let chosen = cases.iter().zip(&case).map(|(one, place)| one[*place]);
        readings.iter_mut().zip(chosen).for_each(|(reading, chosen)| *reading = chosen);
        for (holds, rules) in holding.iter_mut().zip(level) {
            *holds = rules.enter.as_ref().is_none_or(|enter| enter.holds(&readings));
        }
        // Else a region around them ends.
        let within = outer.iter().all(|rules| lasts(rules, &readings));
        for (place, rules) in level.iter().enumerate() {
            let found = &mut all[place];
            let leaves = |rules: &RegionRules| rules.leave.as_ref().is_none_or(|leave| leave.holds(&readings));
            if found.ends.is_none() && rules.enter.is_some() && !holding[place] && leaves(rules) {
                found.ends = Some(readings.clone());
            }
            if !holding[place] || !within {
                continue;
            }
            let earlier = &holding[..place];
            if !earlier.contains(&true) {
                if !matches!(found.reach, Reachability::Reachable { .. }) {
                    found.reach = Reachability::Reachable { readings: readings.clone() };
                }
            } else if found.reach == Reachability::Never {
                found.reach = Reachability::Hidden;
            }
            // Earlier regions with a longer `hold` begin later.
            if at_first[place].is_none()
                && !level.iter().zip(earlier).any(|(earlier, holds)| *holds && earlier.hold <= rules.hold)
            {
                at_first[place] = Some(readings.clone());
            }
            always[place].iter_mut().zip(earlier).for_each(|(always, holds)| *always &= holds);
            at_once[place] &= level.iter().zip(earlier).any(|(rules, holds)| *holds && rules.hold.is_zero());
        }
        if !next(&mut case, &cases) {
            break;
        }
    }
    for (place, found) in all.iter_mut().enumerate() {
        // An earlier region with a longer `hold` begins later.
        let one = always[place].iter().zip(level).any(|(always, rules)| *always && rules.hold <= level[place].hold);
        if found.reach != Reachability::Hidden {
            continue;
        }
        if let Some(readings) = at_first[place].take() {
            found.reach = Reachability::Reachable { readings };
        } else if !one && !at_once[place] {
            found.reach = Reachability::Unknown;
        }
    }
    all
}

/// Whether a region can stay active while these readings last.
fn lasts(rules: &RegionRules, readings: &[ConditionReading]) -> bool {
    let enters = || rules.enter.as_ref().is_none_or(|enter| enter.holds(readings));
    let remains = || rules.leave.as_ref().is_some_and(|leave| !leave.holds(readings));
    rules.latch || !rules.stay.first.is_zero() || enters() || remains()
}

/// The cases of each condition that the level uses; `None` if they are not known, or too many.
fn cases(
    level: &[&RegionRules],
    outer: &[&RegionRules],
    domains: &[ConditionDomain],
) -> Option<Vec<Vec<ConditionReading>>> {
    let regions = || level.iter().chain(outer);
    let expressions = || regions().flat_map(|rules| rules.enter.iter().chain(&rules.leave));
    let mut thresholds: Vec<Option<Vec<f64>>> = vec![None; domains.len()];
    for expression in expressions() {
        for place in expression.conditions() {
            thresholds.get_mut(usize::from(place))?.get_or_insert_default();
        }
        for (place, constant) in expression.thresholds()? {
            thresholds.get_mut(usize::from(place))?.get_or_insert_default().push(constant);
        }
    }
    let cases: Vec<_> =
        thresholds.into_iter().zip(domains).map(|(thresholds, domain)| of_condition(thresholds, *domain)).collect();
    let count = cases.iter().try_fold(1usize, |count, cases| count.checked_mul(cases.len()))?;
    (count <= MOST_CASES).then_some(cases)
}

fn of_condition(thresholds: Option<Vec<f64>>, domain: ConditionDomain) -> Vec<ConditionReading> {
    // The level does not use it.
    let Some(mut bounds) = thresholds else { return vec![ConditionReading::Stale] };
    let SettingLimits { least, most } = domain.limits;
    bounds.extend([least, most]);
    bounds.retain(|bound| (least..=most).contains(bound));
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    let between = bounds.windows(2).map(|pair| example_between(pair[0], pair[1]));
    // The first of several is an example for users.
    let all = between.chain(bounds.iter().copied()).filter(|value| value.is_finite());
    all.map(ConditionReading::Fresh).chain(domain.stale.then_some(ConditionReading::Stale)).collect()
}

/// A value between two others, near the smaller one of a huge range.
fn example_between(low: f64, high: f64) -> f64 {
    match (low <= -outside::MOST, high >= outside::MOST) {
        (true, true) => 0.0,
        (false, true) => (low + low.abs().max(1.0)).min(high.next_down()),
        (true, false) => (high - high.abs().max(1.0)).max(low.next_up()),
        (false, false) => low + (high - low) / 2.0,
    }
}

/// The next combination; false after the last.
fn next(case: &mut [usize], cases: &[Vec<ConditionReading>]) -> bool {
    for (place, cases) in case.iter_mut().zip(cases) {
        *place += 1;
        if *place < cases.len() {
            return true;
        }
        *place = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionMachine;
    use alloc::format;
    use alloc::string::String;
    use hyoshi_model::predicate::Predicate;
    use hyoshi_model::{Instant, Span, Stay};
    use proptest::prelude::*;

    const NAMES: [&str; 2] = ["a", "b"];
    const ANY: [ConditionDomain; 2] = [ConditionDomain { limits: SettingLimits::NONE, stale: true }; 2];
    const RATIOS: [ConditionDomain; 2] =
        [ConditionDomain { limits: SettingLimits { least: 0.0, most: 1.0 }, stale: true }; 2];

    fn rules((enter, leave): (&str, &str), hold: u64) -> RegionRules {
        let read = |text: &str| {
            (!text.is_empty()).then(|| Predicate::read(text, &NAMES).unwrap_or_else(|error| panic!("{text}: {error}")))
        };
        let (enter, leave, hold) = (read(enter), read(leave), Span::from_millis(hold));
        RegionRules { parent: None, enter, leave, hold, stay: Stay::default(), latch: false }
    }

    fn found(level: &[RegionRules], domains: &[ConditionDomain]) -> Vec<RegionReach> {
        reach(&level.iter().collect::<Vec<_>>(), &[], domains)
    }

    fn names(level: &[(&str, u64)], domains: &[ConditionDomain]) -> Vec<&'static str> {
        names_within(level, &[], domains)
    }

    fn names_within(level: &[(&str, u64)], outer: &[&RegionRules], domains: &[ConditionDomain]) -> Vec<&'static str> {
        let rules: Vec<_> = level.iter().map(|(enter, hold)| rules((enter, ""), *hold)).collect();
        let name = |one: RegionReach| match one.reach {
            Reachability::Reachable { .. } => "reachable",
            Reachability::Never => "never",
            Reachability::Hidden => "hidden",
            Reachability::Unknown => "unknown",
        };
        reach(&rules.iter().collect::<Vec<_>>(), outer, domains).into_iter().map(name).collect()
    }

    #[test]
    fn regions_that_cannot_begin_are_found() {
        assert_eq!(names(&[("a > 2", 0), ("a > 3", 0), ("", 0)], &ANY), ["reachable", "hidden", "reachable"]);
        assert_eq!(names(&[("a > 2 && a < 1", 0), ("", 0)], &ANY), ["never", "reachable"]);
        assert_eq!(names(&[("a > 1", 0), ("", 0)], &RATIOS), ["never", "reachable"]);
        assert_eq!(
            names(&[("a >= 1 || b > 0.5", 0), ("b > 0.6", 0), ("", 0)], &RATIOS),
            ["reachable", "hidden", "reachable"]
        );
        // Two regions together hide the third one; no region remains for the last.
        let level = [("a > 2", 0), ("a <= 2", 0), ("a > 1", 0), ("stale(a)", 0), ("", 0)];
        assert_eq!(names(&level, &ANY), ["reachable", "reachable", "hidden", "reachable", "hidden"]);
        assert_eq!(names(&[("a > b", 0), ("", 0)], &ANY), ["unknown", "unknown"]);
    }

    #[test]
    fn examples_of_huge_ranges_are_near_their_smaller_bound() {
        for (low, high, expected) in [(0.0, 1.0, 0.5), (1.0, 1e9, 2.0), (-1e9, 1e9, 0.0), (-1e9, -3.0, -6.0)] {
            assert_eq!(example_between(low, high), expected, "{low} {high}");
        }
        for (low, high) in [(0.9e9, 1e9), (1e9, 2e9), (1.5e9, f64::INFINITY), (f64::NEG_INFINITY, -1e9)] {
            let found = example_between(low, high);
            assert!(low < found && found < high, "{low} {found} {high}");
        }
    }

    #[test]
    fn a_region_with_a_longer_hold_hides_nothing() {
        assert_eq!(names(&[("a > 2", 9), ("a > 3", 9), ("", 0)], &ANY), ["reachable", "hidden", "reachable"]);
        assert_eq!(names(&[("a > 2", 9), ("a > 3", 8), ("", 0)], &ANY), ["reachable"; 3]);
    }

    #[test]
    fn an_inner_region_begins_only_while_the_outer_one_lasts() {
        let level = [("b > 25", 0), ("b > 10", 0), ("", 0)];
        let within = |outer: &RegionRules| names_within(&level, &[outer], &ANY);
        let outer = rules(("b < 20", ""), 0);
        assert_eq!(within(&outer), ["never", "reachable", "reachable"]);
        assert_eq!(within(&rules(("b < 20", "a > 1"), 0)), ["reachable"; 3], "it lasts until `leave`");
        let stay = Stay { first: Span::from_millis(1), ..Stay::default() };
        assert_eq!(within(&RegionRules { stay, ..outer.clone() }), ["reachable"; 3]);
        assert_eq!(within(&RegionRules { latch: true, ..outer }), ["reachable"; 3]);
    }

    #[test]
    fn a_condition_that_is_never_stale_has_no_such_case() {
        let lasting = ANY.map(|one| ConditionDomain { stale: false, ..one });
        assert_eq!(names(&[("stale(a)", 0), ("", 0)], &lasting), ["never", "reachable"]);
    }

    #[test]
    fn regions_that_never_end_are_found() {
        let level = [rules(("a > 2", "a > 3"), 0), rules(("a > 1", "b > 1"), 0), rules(("", ""), 0)];
        let ends: Vec<_> = found(&level, &ANY).into_iter().map(|one| one.ends.is_some()).collect();
        assert_eq!(ends, [false, true, false]);
    }

    fn any_expression() -> impl Strategy<Value = String> {
        let leaf = (0..2usize, 0..5usize, 0..4i32).prop_map(|(name, operator, constant)| match operator {
            4 => format!("stale({})", NAMES[name]),
            _ => format!("{} {} {constant}", NAMES[name], ["<", "<=", ">", "=="][operator]),
        });
        leaf.prop_recursive(3, 6, 2, |inner| {
            (inner.clone(), inner, 0..3).prop_map(|(left, right, operator)| match operator {
                0 => format!("({left} && {right})"),
                1 => format!("({left} || {right})"),
                _ => format!("!({left})"),
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_machine_does(
            regions in prop::collection::vec((any_expression(), any_expression(), 0..3u64), 1..4),
            readings in prop::collection::vec(prop::array::uniform2(prop::option::of(-1..9i32)), 1..60),
        ) {
            let mut level: Vec<_> = regions.iter().map(|(enter, leave, hold)| rules((enter, leave), *hold)).collect();
            level.push(rules(("", ""), 0));
            let found = found(&level, &ANY);
            let machine = || RegionMachine::new(level.clone());
            for (place, one) in (0..).zip(&found) {
                if let Reachability::Reachable { readings } = &one.reach {
                    let mut machine = machine();
                    let mut begun = false;
                    for now in 0..4 {
                        machine.step(Instant::from_nanos(now * 1_000_000), readings, |_| {});
                        begun |= machine.is_active(place);
                    }
                    prop_assert!(begun);
                    // From there it ends with the readings for its end.
                    if let Some(ends) = one.ends.as_ref().filter(|_| machine.is_active(place)) {
                        machine.step(Instant::from_nanos(4_000_000), ends, |_| {});
                        prop_assert!(!machine.is_active(place));
                    }
                }
            }
            let mut machine = machine();
            for (now, readings) in (0..).zip(readings) {
                let readings = readings.map(|one| one.map_or(ConditionReading::Stale, |half| ConditionReading::Fresh(f64::from(half) / 2.0)));
                machine.step(Instant::from_nanos(now * 1_000_000), &readings, |_| {});
                let active = machine.active().next().expect("one is active");
                prop_assert!(!matches!(found[usize::from(active)].reach, Reachability::Never | Reachability::Hidden), "{}", active);
            }
        }

        #[test]
        fn an_inner_region_that_never_begins_does_not(
            outer in (any_expression(), any_expression(), 0..2u64, any::<bool>()),
            regions in prop::collection::vec((any_expression(), any_expression(), 0..3u64), 1..4),
            readings in prop::collection::vec(prop::array::uniform2(prop::option::of(-1..9i32)), 1..60),
        ) {
            let (enter, leave, stay, has_leave) = outer;
            let leave = if has_leave { leave.as_str() } else { "" };
            let stay = Stay { first: Span::from_millis(stay), ..Stay::default() };
            let outer = RegionRules { stay, ..rules((&enter, leave), 0) };
            let mut level: Vec<_> = regions.iter().map(|(enter, leave, hold)| rules((enter, leave), *hold)).collect();
            level.push(rules(("", ""), 0));
            let found = reach(&level.iter().collect::<Vec<_>>(), &[&outer], &ANY);
            let inner = level.into_iter().map(|rules| RegionRules { parent: Some(0), ..rules });
            let all: Vec<_> = [outer, rules(("", ""), 0)].into_iter().chain(inner).collect();
            let mut machine = RegionMachine::new(all);
            for (now, readings) in (0..).zip(readings) {
                let readings = readings.map(|one| one.map_or(ConditionReading::Stale, |half| ConditionReading::Fresh(f64::from(half) / 2.0)));
                machine.step(Instant::from_nanos(now * 1_000_000), &readings, |_| {});
                for active in machine.active().filter(|region| *region >= 2) {
                    let reach = &found[usize::from(active) - 2].reach;
                    prop_assert!(!matches!(reach, Reachability::Never | Reachability::Hidden), "{}: {:?}", active, reach);
                }
            }
        }
    }
}
