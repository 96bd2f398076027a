//! The regions of contracts in a report: how long each was active, and when and why they changed.

use hyoshi_model::{
    ConditionSource, Contract, DelegateMeasure, DelegateQuantity, LinkMeasure, LinkQuantity, OutsideMeasure, System,
};
use hyoshi_trace::{ContractHistory, RegionStep};
use maud::{Markup, html};
use serde::Serialize;

use crate::figures::{count, nanos, share, signed, value};
use crate::summary::Summary;
use crate::terminal::grid::{CellValue, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle};

/// The regions of one contract over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContractSummary {
    /// Its name.
    pub contract: String,
    /// The processor that evaluated it.
    pub processor: String,
    /// Its regions in the file's order; those within a region follow it.
    pub regions: Vec<ContractRegionSummary>,
    /// The latest changes, in the order of time.
    pub changes: Vec<RegionChangeSummary>,
    /// The number of earlier changes.
    pub omitted: u64,
}

/// The time of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContractRegionSummary {
    /// Its name.
    pub region: String,
    /// The region that contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// How often it began.
    pub begins: u64,
    /// How long it was active in all.
    pub active_ns: u64,
}

/// A change of the active regions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionChangeSummary {
    /// When.
    pub at_ns: u64,
    /// The region that ended; `None` if its level was not active.
    pub from: Option<String>,
    /// The region that began; `None` if the region around the level ended.
    pub to: Option<String>,
    /// True if an operator has set the region that began.
    #[serde(skip_serializing_if = "is_false")]
    pub forced: bool,
    /// The values of the conditions at this time.
    pub conditions: Vec<ConditionSummary>,
    /// The texts that the region reports, its settings with one value, and its actions outside of the dispatcher.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The value of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionSummary {
    /// Its name.
    pub condition: String,
    /// Its value in millionths; a latency is in microseconds. `None` if it was stale.
    pub millionths: Option<i64>,
    #[serde(skip)]
    is_time: bool,
}

impl ConditionSummary {
    fn text(&self) -> String {
        let value = match self.millionths {
            None => "stale".into(),
            Some(micros) if self.is_time && micros < 0 => signed(micros.saturating_mul(1_000)),
            Some(micros) if self.is_time => nanos(micros.unsigned_abs().saturating_mul(1_000)),
            Some(millionths) => value(millionths as f64 / 1e6),
        };
        format!("{} {value}", self.condition)
    }
}

/// The contracts of a system with their histories. Contracts that other processes evaluated have none, and are omitted.
pub fn contracts(system: &System, histories: &[ContractHistory]) -> Vec<ContractSummary> {
    let all = system.contracts.iter().zip(histories).filter(|(_, history)| !history.steps.is_empty());
    all.map(|(contract, history)| summary(system, contract, history)).collect()
}

fn is_time(system: &System, of: &ConditionSource) -> bool {
    match of {
        ConditionSource::Latency(_) | ConditionSource::Lateness(_) => true,
        ConditionSource::Set(place) => matches!(
            system.conditions[usize::from(*place)].measure,
            Some(
                OutsideMeasure::Link(LinkMeasure { quantity: LinkQuantity::Delay, .. })
                    | OutsideMeasure::Delegate(DelegateMeasure { quantity: DelegateQuantity::Latency, .. })
            )
        ),
        _ => false,
    }
}

fn summary(system: &System, contract: &Contract, history: &ContractHistory) -> ContractSummary {
    let name = |region: u16| contract.regions.get(usize::from(region)).map(|one| one.name.clone());
    let regions = contract.regions.iter().zip(&history.regions).map(|(region, time)| ContractRegionSummary {
        region: region.name.clone(),
        within: region.rules.parent.and_then(name),
        begins: time.begins,
        active_ns: time.total.as_nanos(),
    });
    let changes = history.steps.iter().map(|step| {
        let conditions = contract.conditions.iter().zip(&step.values).map(|(condition, value)| ConditionSummary {
            condition: condition.name.clone(),
            millionths: *value,
            is_time: is_time(system, &condition.of),
        });
        RegionChangeSummary {
            at_ns: step.at.as_nanos(),
            from: step.from.and_then(name),
            to: step.to.and_then(name),
            forced: step.forced,
            conditions: conditions.collect(),
            reports: reports(system, contract, step),
        }
    });
    ContractSummary {
        contract: contract.name.clone(),
        processor: system.processor(contract.processor).name.clone(),
        regions: regions.collect(),
        changes: changes.collect(),
        omitted: history.omitted,
    }
}

fn reports(system: &System, contract: &Contract, step: &RegionStep) -> Vec<String> {
    let region = step.to.and_then(|to| contract.regions.get(usize::from(to)));
    let actions = region.into_iter().flat_map(|region| &region.actions);
    actions.filter_map(|action| action.at_begin(system)).collect()
}

impl RegionChangeSummary {
    /// The values of the conditions, for people; before them, whether an operator has set the region.
    pub fn conditions(&self) -> String {
        let forced = self.forced.then(|| "by command".to_owned());
        forced.into_iter().chain(self.conditions.iter().map(ConditionSummary::text)).collect::<Vec<_>>().join(", ")
    }
}

impl Summary {
    fn region_rows(&self) -> impl Iterator<Item = (&str, &ContractRegionSummary)> {
        self.contracts.iter().flat_map(|one| one.regions.iter().map(|region| (one.contract.as_str(), region)))
    }

    /// The changes of all contracts, in the order of time.
    fn region_changes(&self) -> Vec<(&str, &RegionChangeSummary)> {
        let mut all: Vec<(&str, &RegionChangeSummary)> = Vec::new();
        for one in &self.contracts {
            all.extend(one.changes.iter().map(|change| (one.contract.as_str(), change)));
        }
        all.sort_by_key(|(_, change)| change.at_ns);
        all
    }

    pub(crate) fn contract_table(&self, look: TerminalStyle) -> Option<String> {
        let columns =
            [column("contract"), column("region"), column("within").if_any(), column("begins"), column("active")];
        let rows = self.region_rows().map(|(contract, region)| {
            vec![
                CellValue::words(contract),
                CellValue::words(&region.region),
                CellValue::words(region.within.clone().unwrap_or_default()),
                CellValue::figure(count(region.begins)),
                CellValue::figure(share(region.active_ns, self.duration_ns)),
            ]
        });
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }

    pub(crate) fn region_change_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("at"),
            column("contract"),
            column("begins"),
            column("conditions").spare(1),
            column("report").if_any(),
        ];
        let rows = self.region_changes().into_iter().filter_map(|(contract, change)| {
            Some(vec![
                CellValue::time(change.at_ns),
                CellValue::words(contract),
                CellValue::words(change.to.clone()?),
                CellValue::words(change.conditions()),
                CellValue::words(change.reports.join("; ")),
            ])
        });
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }

    /// The section of the page.
    pub(crate) fn contract_section(&self) -> Markup {
        if self.contracts.is_empty() {
            return html! {};
        }
        html! {
            section {
                h2 { "Contracts" }
                table {
                    thead { tr { th { "contract" } th { "region" } th { "within" } th class="n" { "begins" } th class="n" { "active" } } }
                    tbody { @for (contract, region) in self.region_rows() { tr {
                        td { (contract) }
                        td { (region.region) }
                        td { (region.within.as_deref().unwrap_or_default()) }
                        td class="n" data-key=(region.begins) { (count(region.begins)) }
                        td class="n" data-key=(region.active_ns) { (share(region.active_ns, self.duration_ns)) }
                    } } }
                }
                h3 { "Changes of regions" }
                table {
                    thead { tr { th class="n" { "at" } th { "contract" } th { "ends" } th { "begins" } th { "conditions" } th { "report" } } }
                    tbody { @for (contract, change) in self.region_changes() { tr {
                        td class="n" data-key=(change.at_ns) { (nanos(change.at_ns)) }
                        td { (contract) }
                        td { (change.from.as_deref().unwrap_or_default()) }
                        td { (change.to.as_deref().unwrap_or_default()) }
                        td { (change.conditions()) }
                        td { (change.reports.join("; ")) }
                    } } }
                }
                @for one in self.contracts.iter().filter(|one| one.omitted > 0) {
                    p { (count(one.omitted)) " earlier changes of " (one.contract) " are omitted." }
                }
            }
        }
    }
}
