//! Contracts before they run: which regions can begin and end.

use std::collections::BTreeMap;

use hyoshi_contract::reach::{ConditionDomain, Reachability, RegionReach, domain, reach};
use hyoshi_model::predicate::{ConditionReading, Predicate};
use hyoshi_model::{
    ConditionSource, Contract, ContractAction, ContractSetting, OperationId, ProcessorId, RegionRules, Span, System,
    at_level,
};
use serde::Serialize;

use crate::figures::{nanos, signed};
use crate::terminal::grid::{CellValue, Tone, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle};
use crate::{NoteLevel, ReportNote};

/// More notes of a kind are omitted.
const MOST_NOTES: usize = 16;

/// A region before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionCheck {
    /// Its contract.
    pub contract: String,
    /// Its name.
    pub region: String,
    /// The region around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// `reachable`, `never`, `hidden` by earlier regions, or `unknown`.
    pub begins: &'static str,
    /// Values with which it begins, if they last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Whether it can end; `None` for the last region of a level, and if it is not known.
    pub ends: Option<bool>,
    /// The regions of its level that can follow it without a command.
    pub next: Vec<String>,
}

/// The regions of all contracts.
pub(super) fn regions(system: &System) -> Vec<RegionCheck> {
    system.contracts.iter().flat_map(|contract| of_contract(system, contract)).collect()
}

fn of_contract(system: &System, contract: &Contract) -> Vec<RegionCheck> {
    let domains: Vec<ConditionDomain> = contract.conditions.iter().map(|one| domain(one, system)).collect();
    let mut found: Vec<Option<(RegionReach, Vec<u16>)>> = vec![None; contract.regions.len()];
    let parents = std::iter::once(None).chain((0..contract.regions.len() as u16).map(Some));
    for parent in parents {
        let of = |place: &usize| contract.regions[*place].rules.parent == parent;
        let places: Vec<usize> = (0..contract.regions.len()).filter(of).collect();
        let rules: Vec<_> = places.iter().map(|place| &contract.regions[*place].rules).collect();
        let around = |inner: &RegionRules| Some(&contract.regions[usize::from(inner.parent?)].rules);
        let outer = parent.map(|place| &contract.regions[usize::from(place)].rules);
        let outer: Vec<_> = std::iter::successors(outer, |inner| around(inner)).collect();
        let uses = rules.iter().chain(&outer).flat_map(|rules| rules.enter.iter().chain(&rules.leave));
        let uses: Vec<u16> = uses.flat_map(Predicate::conditions).collect();
        // Outer regions precede their inner ones.
        let begins = parent.and_then(|place| found[usize::from(place)].as_ref()).map(|(outer, _)| &outer.reach);
        let is_possible = !matches!(begins, Some(Reachability::Never | Reachability::Hidden));
        for (place, one) in places.into_iter().zip(reach(&rules, &outer, &domains)) {
            let never = || RegionReach { reach: Reachability::Never, ends: None };
            found[place] = Some((if is_possible { one } else { never() }, uses.clone()));
        }
    }
    let checks = contract.regions.iter().zip(found).filter_map(|(region, found)| {
        let (RegionReach { reach, ends }, uses) = found?;
        let (begins, example) = match &reach {
            Reachability::Reachable { readings } => ("reachable", Some(example(contract, readings, &uses))),
            Reachability::Never => ("never", None),
            Reachability::Hidden => ("hidden", None),
            Reachability::Unknown => ("unknown", None),
        };
        let ends = match region.rules.enter {
            None => None,
            Some(_) if region.rules.latch => Some(false),
            Some(_) if reach == Reachability::Unknown => None,
            Some(_) => Some(ends.is_some()),
        };
        let within = region.rules.parent.map(|outer| contract.regions[usize::from(outer)].name.clone());
        let (contract, region) = (contract.name.clone(), region.name.clone());
        let example = example.filter(|text| !text.is_empty());
        Some(RegionCheck { contract, region, within, begins, example, ends, next: Vec::new() })
    });
    let mut checks: Vec<RegionCheck> = checks.collect();
    let begins = |one: &RegionCheck| !matches!(one.begins, "never" | "hidden");
    for place in 0..checks.len() {
        let parent = contract.regions[place].rules.parent;
        let follows = |(other, check): &(usize, &RegionCheck)| {
            // An earlier one begins at any time, a later one after its end.
            let in_time = *other < place || *other > place && checks[place].ends != Some(false);
            in_time && contract.regions[*other].rules.parent == parent && begins(check)
        };
        let next = checks.iter().enumerate().filter(|_| begins(&checks[place])).filter(follows);
        checks[place].next = next.map(|(_, check)| check.region.clone()).collect();
    }
    checks
}

/// Regions that cannot begin, settings of two contracts that contradict each other, and limits with which a feedback loop cannot hold its set point.
pub fn contract_notes(system: &System) -> Vec<ReportNote> {
    let all = limiting_regions(system);
    let mut notes = without_begin(system);
    notes.extend(contradictions(system, &all));
    notes.extend(different_values(system, &all));
    notes.extend(floors(system, &all));
    notes
}

/// At most [`MOST_NOTES`]: regions that never begin.
fn without_begin(system: &System) -> Vec<ReportNote> {
    let note = |one: RegionCheck| {
        let (why, remedy) = match one.begins {
            "never" if one.within.is_some() => {
                ("its `enter` is never true while the region around it is active", "correct its `enter`, or remove it")
            }
            "never" => ("its `enter` is never true", "correct its `enter`, or remove the region"),
            // The last one of a level has no `enter`.
            "hidden" if one.ends.is_none() => {
                ("one of the regions before it is always active", "remove it, or change the `enter` of those")
            }
            "hidden" => {
                ("whenever its `enter` holds, an earlier region begins first", "move it before the earlier region")
            }
            _ => return None,
        };
        Some(ReportNote {
            level: NoteLevel::Info,
            topic: "contract".into(),
            text: format!("region `{}` of `{}` cannot begin: {why}", one.region, one.contract),
            remedy: Some(remedy.into()),
        })
    };
    regions(system).into_iter().filter_map(note).take(MOST_NOTES).collect()
}

/// A region that can begin, with its limits and those of the region around it.
struct LimitingRegion<'a> {
    /// The position of its contract.
    place: usize,
    contract: &'a Contract,
    region: &'a str,
    /// Operations with their shortest and longest periods.
    limits: Vec<(OperationId, Span, Span)>,
    /// Settings with one value.
    settings: Vec<(ContractSetting, u32)>,
    /// It also disables operations, which lowers the load.
    disables: bool,
}

impl LimitingRegion<'_> {
    /// The processors with loops that it may overload, with the set points of the utilisation that it sets.
    fn loops(&self) -> Vec<(&Self, (ProcessorId, Option<u32>))> {
        let set = self.settings.iter().filter_map(|(setting, to)| match setting {
            ContractSetting::Utilisation(processor) => Some((*processor, Some(*to))),
            _ => None,
        });
        let mut found: Vec<_> = set.collect();
        let own = self.contract.processor;
        if !self.limits.is_empty() && found.iter().all(|(processor, _)| *processor != own) {
            found.push((own, None));
        }
        found.into_iter().map(|one| (self, one)).collect()
    }
}

fn limiting_regions(system: &System) -> Vec<LimitingRegion<'_>> {
    let mut all = Vec::new();
    for (place, contract) in system.contracts.iter().enumerate() {
        for (check, region) in of_contract(system, contract).into_iter().zip(&contract.regions) {
            let outer = region.rules.parent.map(|outer| &contract.regions[usize::from(outer)]);
            let mut limits: Vec<(OperationId, Span, Span)> = Vec::new();
            let (mut settings, mut disables) = (Vec::new(), false);
            for action in outer.into_iter().chain([region]).flat_map(|region| &region.actions) {
                match action {
                    ContractAction::LimitPeriod { operation, shortest, longest } => {
                        let outer = limits.iter().find(|(id, ..)| id == operation);
                        let (least, most) = outer.map_or((Span::ZERO, LONGEST), |(_, least, most)| (*least, *most));
                        let within = |period: Span| period.clamp(least, most);
                        let limit = (*operation, within(*shortest), within(*longest));
                        limits.retain(|(id, ..)| id != operation);
                        limits.push(limit);
                    }
                    ContractAction::Set { setting, to } => {
                        settings.retain(|(outer, _)| outer != setting);
                        settings.push((*setting, *to));
                    }
                    ContractAction::Disable { .. } => disables = true,
                    _ => {}
                }
            }
            let sets_any = !limits.is_empty() || !settings.is_empty();
            if sets_any && !matches!(check.begins, "never" | "hidden") {
                all.push(LimitingRegion { place, contract, region: &region.name, limits, settings, disables });
            }
        }
    }
    all
}

const LONGEST: Span = Span::from_nanos(u64::MAX);

fn hertz(period: Span) -> String {
    format!("{}Hz", (1e13 / period.as_nanos().max(1) as f64).round() / 1e4)
}

/// At most [`MOST_NOTES`]: one for each pair of contracts and operation.
fn contradictions(system: &System, all: &[LimitingRegion<'_>]) -> Vec<ReportNote> {
    // By operation and contract: the greatest shortest period, and the least longest one, with their regions. A limit of
    // another region contradicts another contract only if these do.
    let mut strictest: BTreeMap<OperationId, BTreeMap<usize, _>> = BTreeMap::new();
    for one in all {
        for (operation, shortest, longest) in &one.limits {
            let own = ((*shortest, one), (*longest, one));
            let (short, long) = strictest.entry(*operation).or_default().entry(one.place).or_insert(own);
            if *shortest > short.0 {
                *short = own.0;
            }
            if *longest < long.0 {
                *long = own.1;
            }
        }
    }
    let mut notes: Vec<ReportNote> = Vec::new();
    for (operation, contracts) in strictest {
        for ((shortest, one), _) in contracts.values() {
            for (_, (longest, other)) in contracts.values() {
                if longest >= shortest || one.place == other.place {
                    continue;
                }
                if notes.len() == MOST_NOTES {
                    return notes;
                }
                let first = preceding(one, other);
                notes.push(ReportNote {
                    level: NoteLevel::Info,
                    topic: "contract".into(),
                    text: format!(
                        "region `{}` of `{}` limits `{}` to at most {}, region `{}` of `{}` to at least {}: if both are active, \
                         the limit of `{}` applies",
                        one.region,
                        one.contract.name,
                        system.operation(operation).name,
                        hertz(*shortest),
                        other.region,
                        other.contract.name,
                        hertz(*longest),
                        first.contract.name,
                    ),
                    remedy: Some("choose limits that overlap".into()),
                });
            }
        }
    }
    notes
}

/// The one with the higher precedence. Contracts that set the same have different ones.
fn preceding<'a>(one: &'a LimitingRegion<'a>, other: &'a LimitingRegion<'a>) -> &'a LimitingRegion<'a> {
    if one.contract.precedence > other.contract.precedence { one } else { other }
}

/// At most [`MOST_NOTES`]: one for each pair of contracts and setting.
fn different_values(system: &System, all: &[LimitingRegion<'_>]) -> Vec<ReportNote> {
    // By setting and contract: two different values with their regions, or one. Each value of another contract differs
    // from one of two.
    let mut values: BTreeMap<ContractSetting, BTreeMap<usize, Vec<_>>> = BTreeMap::new();
    for one in all {
        for (setting, to) in &one.settings {
            let own = values.entry(*setting).or_default().entry(one.place).or_default();
            if own.len() < 2 && own.iter().all(|(known, _): &(u32, &LimitingRegion<'_>)| known != to) {
                own.push((*to, one));
            }
        }
    }
    let mut notes: Vec<ReportNote> = Vec::new();
    for (setting, contracts) in values {
        let contracts: Vec<_> = contracts.into_values().collect();
        for (place, own) in contracts.iter().enumerate() {
            for others in &contracts[place + 1..] {
                let mut pairs = own.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
                let Some(((to, one), (value, other))) = pairs.find(|(one, other)| one.0 != other.0) else { continue };
                if notes.len() == MOST_NOTES {
                    return notes;
                }
                notes.push(ReportNote {
                    level: NoteLevel::Info,
                    topic: "contract".into(),
                    text: format!(
                        "region `{}` of `{}` sets `{}` to {}, region `{}` of `{}` to {}: if both are active, the value of `{}` \
                         applies",
                        one.region,
                        one.contract.name,
                        setting.address(system),
                        setting.text(system, *to),
                        other.region,
                        other.contract.name,
                        setting.text(system, *value),
                        preceding(one, other).contract.name,
                    ),
                    remedy: Some("set it in one contract, unless this is intended".into()),
                });
            }
        }
    }
    notes
}

/// The load at the lowest rates that a region permits must not be above what the loop may hold.
fn floors(system: &System, all: &[LimitingRegion<'_>]) -> Vec<ReportNote> {
    let mut notes = Vec::new();
    for (one, (processor, point)) in all.iter().filter(|one| !one.disables).flat_map(LimitingRegion::loops) {
        let loops = system.feedback.iter().find(|adapted| adapted.processor == processor);
        let Some(mut held) = loops.cloned() else { continue };
        held.utilisation_ppm = point.unwrap_or(held.utilisation_ppm);
        let most = held.most_load_ppm(system.processor(processor).hard_cap.ppm);
        let adapted = system.adapted_on(processor);
        let load = |epoch: usize| {
            let mut load = system.least_load_ppm(epoch, processor);
            for (operation, _, longest) in &one.limits {
                let followers = adapted.iter().filter(|adapted| adapted.root == *operation).flat_map(|one| &one.here);
                for id in followers {
                    let setting = system.setting(epoch, *id);
                    let longest = (*longest).clamp(setting.period, setting.slowest.max(setting.period));
                    let wcet = at_level(&system.operation(*id).levels, 0, setting.wcet);
                    let work = u128::from(wcet.as_nanos()) * u128::from(setting.legs) * 1_000_000;
                    let part = |period: Span| (work / u128::from(period.as_nanos().max(1))) as u64;
                    if setting.enabled {
                        load += part(longest).saturating_sub(part(setting.slowest));
                    }
                }
            }
            load
        };
        let greatest = (0..system.epochs.len().max(1)).map(load).max().unwrap_or(0);
        // A load is rounded down to parts per million for each operation.
        if greatest > most + 10 {
            let percent = |ppm: u64| format!("{}.{}%", ppm / 10_000, ppm / 1_000 % 10);
            notes.push(ReportNote {
                level: NoteLevel::Info,
                topic: "contract".into(),
                text: format!(
                    "with the settings of region `{}` of `{}`, the load of `{}` is at least {}: its feedback loop cannot hold \
                     its set point, {}",
                    one.region,
                    one.contract.name,
                    system.processor(processor).name,
                    percent(greatest),
                    percent(most),
                ),
                remedy: Some(match point {
                    Some(_) => "raise the set point of the region".into(),
                    None => "lower `least` in the region".into(),
                }),
            });
        }
    }
    notes.truncate(MOST_NOTES);
    notes
}

/// `late 0.03, load stale`, without the conditions that the region's level does not use.
fn example(contract: &Contract, readings: &[ConditionReading], uses: &[u16]) -> String {
    let of_level = |place: &u16| uses.contains(place);
    let texts = (0..).zip(&contract.conditions).zip(readings).filter(|((place, _), _)| of_level(place));
    let texts = texts.map(|((_, condition), reading)| {
        let value = match (reading, &condition.of) {
            (ConditionReading::Stale, _) => "stale".to_string(),
            (ConditionReading::Fresh(seconds), ConditionSource::Latency(_)) => nanos((seconds * 1e9) as u64),
            (ConditionReading::Fresh(seconds), ConditionSource::Lateness(_)) => signed((seconds * 1e9) as i64),
            (ConditionReading::Fresh(value), _) => format!("{value:.3}"),
        };
        format!("{} {value}", condition.name)
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The section of a terminal; `None` without contracts.
pub(super) fn table(system: &System, look: TerminalStyle) -> Option<String> {
    let columns = [
        column("contract"),
        column("region"),
        column("within").if_any(),
        column("begins"),
        column("for example with").if_any().spare(1),
        column("ends by itself"),
        column("then").if_any(),
    ];
    let rows = regions(system).into_iter().map(|one| {
        let tone = if matches!(one.begins, "never" | "hidden") { Tone::Worry } else { Tone::Plain };
        let ends = match one.ends {
            Some(true) => "yes",
            Some(false) => "never",
            None => "",
        };
        vec![
            CellValue::words(one.contract),
            CellValue::words(one.region),
            CellValue::words(one.within.unwrap_or_default()),
            CellValue::words(one.begins).in_tone(tone),
            CellValue::words(one.example.unwrap_or_default()),
            CellValue::words(ends),
            CellValue::words(one.next.join(", ")),
        ]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: &str = "name = 'limits'\n[processor.main]\nhard_cap = '100%'\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '50%'\n\
        [operation.track]\nrate = ['1Hz', '50Hz']\nwcet = '10ms'\n[operation.draw]\nafter = { all = ['track'] }\nwcet = '5ms'\n\
        [operation.log]\nevery = '100ms'\nwcet = '10ms'\n[condition.load]\n";

    fn notes(rest: &str) -> Vec<String> {
        let read = hyoshi_model::read(&format!("{SYSTEM}{rest}"), "x.toml", None);
        let system = read.unwrap_or_else(|errors| panic!("{errors}")).system;
        contract_notes(&system).into_iter().map(|note| note.text).collect()
    }

    /// A contract with a limit of `track` in its first region.
    fn contract(name: &str, precedence: u32, limit: &str) -> String {
        format!(
            "[contract.{name}]\nprecedence = {precedence}\nwatch = {{ load = {{ of = 'condition.load' }} }}\n\
             [[contract.{name}.region]]\nname = 'high'\nenter = 'load > 1'\n\
             do = [{{ set = 'operation.track.rate', {limit} }}]\n[[contract.{name}.region]]\nname = 'normal'\n"
        )
    }

    #[test]
    fn examples_are_possible_values() {
        let begin = |of: &str, enter: &str| {
            let text = format!(
                "{SYSTEM}[host.h]\n[contract.c]\nwatch = {{ x = {{ {of} }} }}\n\
                 [[contract.c.region]]\nname = 'r'\nenter = '{enter}'\n[[contract.c.region]]\nname = 'n'\n"
            );
            let read = hyoshi_model::read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
            let one = regions(&read.system).swap_remove(0);
            (one.begins, one.example.unwrap_or_default())
        };
        let never = ("never", String::new());
        let cpu = "of = 'host.h.cpu'";
        assert_eq!(begin(cpu, "x > 0.96"), ("reachable", "x 0.980".into()));
        assert_eq!(begin(cpu, "x > 1"), never);
        assert_eq!(begin(cpu, "x < 0"), never);
        assert_eq!(begin("of = 'host.h.temperature'", "x < -274"), never);
        assert_eq!(begin("of = 'condition.load'", "x < -274").0, "reachable");
        let spread = "of = 'condition.load', as = 'spread', over = '1s'";
        assert_eq!((begin(spread, "x < 0"), begin(spread, "x > 1e9").0), (never, "reachable"));
    }

    #[test]
    fn limits_that_exclude_each_other_are_named_with_the_one_that_applies() {
        let both = |second: u32| {
            notes(&format!("{}{}", contract("slow", 1, "most = '5Hz'"), contract("fast", second, "least = '20Hz'")))
        };
        let text = "region `high` of `slow` limits `track` to at most 5Hz, region `high` of `fast` to at least 20Hz: if \
                    both are active, the limit of";
        assert_eq!(both(0), [format!("{text} `slow` applies")]);
        assert_eq!(both(2), [format!("{text} `fast` applies")]);
        let overlap = format!("{}{}", contract("a", 0, "most = '20Hz'"), contract("b", 1, "least = '20Hz'"));
        assert_eq!(notes(&overlap), [""; 0]);
        // A region that cannot begin contradicts nothing.
        let never = contract("slow", 1, "most = '5Hz'").replace("load > 1", "load > 2 && load < 1");
        assert_eq!(
            notes(&format!("{never}{}", contract("fast", 0, "least = '20Hz'"))),
            ["region `high` of `slow` cannot begin: its `enter` is never true"]
        );
    }

    #[test]
    fn different_values_of_one_setting_are_named_with_the_one_that_applies() {
        let set = |name: &str, precedence: u32, to: u32| {
            let text = contract(name, precedence, "most = '5Hz'");
            text.replace("track.rate', most = '5Hz'", &format!("track.importance', to = {to}"))
        };
        let both = |precedence: u32, to: u32| notes(&format!("{}{}", set("a", 1, 1), set("b", precedence, to)));
        let text = "region `high` of `a` sets `operation.track.importance` to 1, region `high` of `b` to 9: if both are \
                    active, the value of";
        assert_eq!(both(0, 9), [format!("{text} `a` applies")]);
        assert_eq!(both(2, 9), [format!("{text} `b` applies")]);
        assert_eq!(both(2, 1), [""; 0]);
    }

    #[test]
    fn a_least_rate_above_the_set_point_of_the_loop_is_named() {
        // `track` and `draw` need 15 ms, `log` 10 % of the processor.
        assert_eq!(notes(&contract("demand", 0, "least = '26Hz'")), [""; 0]);
        assert_eq!(
            notes(&contract("demand", 0, "least = '27Hz'")),
            [
                "with the settings of region `high` of `demand`, the load of `main` is at least 50.5%: its feedback loop cannot \
              hold its set point, 50.0%"
            ]
        );
        let paused = contract("demand", 0, "least = '27Hz'")
            .replace("do = [", "do = [{ set = 'operation.log.enabled', to = false }, ");
        assert_eq!(notes(&paused), [""; 0]);
        let set_point = |to: &str| {
            contract("low", 0, "most = '5Hz'").replace(
                "set = 'operation.track.rate', most = '5Hz'",
                &format!("set = 'feedback.main.utilisation', to = '{to}'"),
            )
        };
        // `log` and the lowest rates need 11.5 %.
        assert_eq!(notes(&set_point("12%")), [""; 0]);
        let text = notes(&set_point("11%")).concat();
        assert!(
            text.contains("`main` is at least 11.5%: its feedback loop cannot hold its set point, 11.0%"),
            "{text}"
        );
        // The limit of an inner region stays within that of the outer one.
        let inner = contract("demand", 0, "most = '26Hz', least = '10Hz'").replace(
            "enter = 'load > 1'\n",
            "enter = 'load > 1'\nregion = [{ name = 'in', do = [{ set = 'operation.track.rate', least = '40Hz' }] }]\n",
        );
        assert_eq!(notes(&inner), [""; 0]);
    }
}
