//! Contracts before they run: which regions can begin and end.

use hyoshi_contract::SettingLimits;
use hyoshi_contract::reach::{Reachability, RegionReach, domain, reach};
use hyoshi_model::predicate::{ConditionReading, Predicate};
use hyoshi_model::{ConditionSource, Contract, System};
use serde::Serialize;

use crate::figures::nanos;
use crate::terminal::grid::{CellValue, Tone, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle};

/// A region before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionCheck {
    /// Its contract.
    pub contract: String,
    /// Its name.
    pub region: String,
    /// `reachable`, `never`, `hidden` by earlier regions, or `unknown`.
    pub begins: &'static str,
    /// Values with which it begins, if they last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Whether it can end; `None` for the last region of a level, and if it is not known.
    pub ends: Option<bool>,
}

/// The regions of all contracts.
pub(super) fn regions(system: &System) -> Vec<RegionCheck> {
    system.contracts.iter().flat_map(of_contract).collect()
}

fn of_contract(contract: &Contract) -> Vec<RegionCheck> {
    let domains: Vec<SettingLimits> = contract.conditions.iter().map(|one| domain(&one.of)).collect();
    let mut found: Vec<Option<(RegionReach, Vec<u16>)>> = vec![None; contract.regions.len()];
    let parents = std::iter::once(None).chain((0..contract.regions.len() as u16).map(Some));
    for parent in parents {
        let of = |place: &usize| contract.regions[*place].rules.parent == parent;
        let places: Vec<usize> = (0..contract.regions.len()).filter(of).collect();
        let rules: Vec<_> = places.iter().map(|place| &contract.regions[*place].rules).collect();
        let uses = rules.iter().flat_map(|rules| rules.enter.iter().chain(&rules.leave));
        let uses: Vec<u16> = uses.flat_map(Predicate::conditions).collect();
        for (place, one) in places.into_iter().zip(reach(&rules, &domains)) {
            found[place] = Some((one, uses.clone()));
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
        let (contract, region) = (contract.name.clone(), region.name.clone());
        Some(RegionCheck { contract, region, begins, example: example.filter(|text| !text.is_empty()), ends })
    });
    checks.collect()
}

/// `late 0.03, load stale`, without the conditions that the region's level does not use.
fn example(contract: &Contract, readings: &[ConditionReading], uses: &[u16]) -> String {
    let of_level = |place: &u16| uses.contains(place);
    let texts = (0..).zip(&contract.conditions).zip(readings).filter(|((place, _), _)| of_level(place));
    let texts = texts.map(|((_, condition), reading)| {
        let value = match (reading, &condition.of) {
            (ConditionReading::Stale, _) => "stale".to_string(),
            (ConditionReading::Fresh(seconds), ConditionSource::Latency(_)) => nanos((seconds * 1e9) as u64),
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
        column("begins"),
        column("for example with").if_any().spare(1),
        column("ends by itself"),
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
            CellValue::words(one.begins).in_tone(tone),
            CellValue::words(one.example.unwrap_or_default()),
            CellValue::words(ends),
        ]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
}
