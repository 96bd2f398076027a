//! `[contract.NAME]`: conditions, regions and actions; `[mode.NAME]`.

mod actions;
mod conditions;
mod external;
mod layers;
mod modes;
mod processors;

use toml::Spanned;
use toml::de::DeValue;

use super::declared::CallPhase;
use super::expand::Operations;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::qoskets::UsedQosket;
use super::table::{Table, check_name, log_complaint};
use super::value::{InputValue, shortened};
use crate::contract::{Contract, ContractAction, ContractRegion, ContractSetting, RegionRules, Stay};
use crate::ids::{OperationId, ProcessorId};
use crate::predicate::Predicate;
use crate::system::Contents;
use crate::time::Span;
use modes::Mode;

/// The contracts of a file, in its order. `None`, logged, if one of them is wrong.
pub(super) fn read(
    log: &mut Log,
    (top, qoskets): (&Table<'_>, &[UsedQosket<'_>]),
    contents: &Contents,
    operations: &Operations<'_>,
) -> Option<Vec<Contract>> {
    let set = top.named(log, "condition");
    if let Some((name, _)) = set.get(limits::SET_CONDITIONS) {
        log.error(name.place, "too many conditions").help(format!("a system has at most {}", limits::SET_CONDITIONS));
        return None;
    }
    let modes = modes::read(log, top, contents, operations)?;
    let expanded: Vec<_> = qoskets.iter().map(|qosket| qosket.expand(log)).collect();
    let mut sound = expanded.iter().all(Option::is_some) && modes::are_sound(&modes);
    let mut tables: Vec<_> = top.named(log, "contract").into_iter().map(|(name, table)| (name, table, None)).collect();
    for one in expanded.iter().flatten() {
        if let Some((known, ..)) = tables.iter().find(|(known, ..)| known.value == one.name.value) {
            log.error(one.name.place, format!("two contracts have the name `{}`", shortened(one.name.value)))
                .also(known.place, "here")
                .help("rename one");
            sound = false;
            continue;
        }
        log.within(Some((one.used, "uses the qosket")));
        let table = Table::open(log, "contract", one.name.value, one.place, &one.contract);
        tables.extend(table.map(|table| (one.name, table, Some(one.used))));
    }
    log.within(None);
    // In the file's order.
    tables.sort_by_key(|(name, ..)| name.place);
    if let Some((name, ..)) = tables.get(limits::CONTRACTS) {
        log.error(name.place, "too many contracts").help(format!("a system has at most {}", limits::CONTRACTS));
        return None;
    }
    let (mut contracts, mut places) = (Vec::new(), Vec::new());
    for (name, table, used) in tables {
        log.within(used.map(|place| (place, "uses the qosket")));
        let mut reader = ContractReader { contents, operations, modes: Some(&modes), processor: None, sound: true };
        match reader.contract(log, name, &table) {
            Some(contract) if reader.sound => {
                contracts.push(contract);
                places.push(name.place);
            }
            _ => sound = false,
        }
    }
    log.within(None);
    sound = sound && layers::have_one_writer(log, contents, &contracts, &places);
    if sound {
        modes::warn_unused(log, &modes);
    }
    sound.then_some(contracts)
}

/// A text of a condition or setting: `operation.NAME.KEY`, with the place of the text.
struct Addressed<'a> {
    section: &'a str,
    name: &'a str,
    key: &'a str,
    place: Place,
}

/// Reads one contract.
struct ContractReader<'r, 'a> {
    contents: &'r Contents,
    operations: &'r Operations<'a>,
    /// `None` in a mode.
    modes: Option<&'r [Mode<'r>]>,
    /// The processor of the first condition or action.
    processor: Option<ProcessorId>,
    sound: bool,
}

impl ContractReader<'_, '_> {
    fn contract(&mut self, log: &mut Log, name: AtPlace<&str>, table: &Table<'_>) -> Option<Contract> {
        let precedence = table.whole(log, "precedence");
        let period = table.read(log, "period", InputValue::positive_time);
        let on = match table.get("on") {
            Some(_) => {
                let given = table.given(log, "on", InputValue::text)?;
                let names = Names::new("processor", self.contents.processors.iter().map(|one| one.name.as_str()));
                Some(ProcessorId(names.find(log, given)?))
            }
            None => None,
        };
        let conditions = self.conditions(log, table);
        let names: Vec<&str> = conditions.iter().map(|one| one.name.as_str()).collect();
        let mut regions = Vec::new();
        self.level(log, table, "contract.region", None, &names, &mut regions);
        if table.misread || !self.sound {
            return None;
        }
        // Without both, it only reports values from outside: any processor can evaluate it.
        let processor = on.or(self.processor).unwrap_or(ProcessorId(0));
        let period = period?;
        if period.value < limits::CONTRACT_PERIOD {
            log.error(period.place, format!("a period of {} is too short", period.value))
                .label(format!("at least {}", limits::CONTRACT_PERIOD))
                .help("write a longer period: each evaluation delays all lanes of the processor");
            return None;
        }
        Some(Contract {
            name: name.value.to_string(),
            processor,
            precedence: precedence?.value as u32,
            period: period.value,
            conditions,
            regions,
        })
    }

    /// The operations of these names, if a contract can watch and set them.
    fn operations(&mut self, log: &mut Log, name: AtPlace<&str>) -> Option<Vec<OperationId>> {
        let found: Vec<OperationId> = self.operations.find(log, name)?.into_iter().flatten().map(OperationId).collect();
        if found.len() > limits::ACTIONS {
            log.error(name.place, format!("`{}` names {} operations", shortened(name.value), found.len()))
                .help(format!("a contract watches and sets at most {} at once", limits::ACTIONS));
            return None;
        }
        for id in &found {
            let of = self.operations.of(*id);
            let (why, help) = match () {
                () if self.operations.home(*id).is_some() || self.contents.moves(*id) => {
                    ("has several processors", "name one processor in its `on`")
                }
                () if of.called || of.calls.is_some() || of.calls_any || !matches!(of.part, CallPhase::Whole) => {
                    ("calls or is called", "name another operation")
                }
                () => continue,
            };
            log.error(name.place, format!("`{}` {why}", shortened(&self.operations.name(*id))))
                .label("a contract cannot watch or set it")
                .help(help);
            return None;
        }
        let on = found.first().map(|id| self.contents.operation(*id).on);
        self.processor = self.processor.or(on);
        Some(found)
    }

    /// The regions of a level, with those within them.
    fn level(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        section: &'static str,
        parent: Option<u16>,
        names: &[&str],
        regions: &mut Vec<ContractRegion>,
    ) {
        let Some(given) = table.given(log, "region", InputValue::list) else {
            if table.get("region").is_none() && parent.is_none() {
                log.error(table.place, "the contract has no region")
                    .label("`region` is missing")
                    .help("add [[contract.NAME.region]] tables; the last one has no `enter`");
            }
            self.sound &= table.get("region").is_none() && parent.is_some();
            return;
        };
        let count = given.value.len();
        if count == 0 {
            log.error(given.place, "`region` has no region").help("add one without `enter`, or remove `region`");
            self.sound = false;
        }
        for (position, item) in given.value.iter().enumerate() {
            if regions.len() == limits::REGIONS {
                log.error(Place::from(item.span()), "too many regions")
                    .help(format!("a contract has at most {}", limits::REGIONS));
                self.sound = false;
                return;
            }
            let Some(table) = open(log, section, "region", item) else {
                self.sound = false;
                continue;
            };
            let place = regions.len() as u16;
            match self.region(log, &table, (parent, position + 1 == count), names, regions) {
                Some(region) => regions.push(region),
                None => {
                    self.sound = false;
                    continue;
                }
            }
            if parent.is_none() {
                self.level(log, &table, "contract.region.region", Some(place), names, regions);
            }
        }
    }

    fn region(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        (parent, last): (Option<u16>, bool),
        names: &[&str],
        earlier: &[ContractRegion],
    ) -> Option<ContractRegion> {
        let name = table.read(log, "name", InputValue::text)?;
        check_name(log, "contract.region", name);
        if earlier.iter().any(|one| one.name == name.value) {
            log.error(name.place, format!("two regions have the name `{}`", shortened(name.value))).help("rename one");
            return None;
        }
        let enter = self.expression(log, table, "enter", names);
        let leave = self.expression(log, table, "leave", names);
        let hold = table.read(log, "for", InputValue::time);
        let stay = stay(log, table);
        let latch = table.read(log, "latch", InputValue::truth);
        let ramp = table.read(log, "ramp", InputValue::time);
        let actions = self.actions(log, table);
        let (enter, leave, actions) = (enter?, leave?, actions?);
        let of_enter = ["leave", "for", "stay", "latch"].into_iter().find(|key| table.get(key).is_some());
        match (&enter, last, of_enter) {
            (None, true, Some(key)) => {
                log.error(table.place_of(key), format!("`{key}` in a region without `enter`"))
                    .label("it is active whenever no other region is")
                    .help("remove it");
                return None;
            }
            (None, false, _) => {
                log.error(table.place, format!("region `{}` has no `enter`", shortened(name.value)))
                    .label("later regions could not begin")
                    .help("add `enter`, or move this region to the end");
                return None;
            }
            (Some(_), true, _) => {
                log.error(
                    table.place_of("enter"),
                    format!("the last region, `{}`, has `enter`", shortened(name.value)),
                )
                .label("no region would be active while it is false")
                .help("add a last region without `enter`, such as name = \"normal\"");
                return None;
            }
            _ => {}
        }
        if table.misread {
            return None;
        }
        let ramp = ramp?.value;
        if !ramp.is_zero() && !actions.iter().any(|action| matches!(action, ContractAction::LimitPeriod { .. })) {
            log.error(table.place_of("ramp"), format!("region `{}` limits no rate", shortened(name.value)))
                .label("nothing to relax after its end")
                .help("remove `ramp`, or limit a rate: do = [{ set = \"operation.NAME.rate\", most = \"10Hz\" }]");
            return None;
        }
        let stay = Stay { settling: self.settling(&actions), ..stay? };
        let rules = RegionRules { parent, enter, leave, hold: hold?.value, stay, latch: latch?.value };
        Some(ContractRegion { name: name.value.to_string(), rules, ramp, actions })
    }

    /// The time in which the loops settle whose rates, levels or set points the actions change.
    fn settling(&self, actions: &[ContractAction]) -> Span {
        let limited = actions.iter().filter_map(|action| match action {
            ContractAction::LimitPeriod { operation, .. } | ContractAction::LimitLevel { operation, .. } => {
                Some(self.contents.operation(*operation).on)
            }
            ContractAction::Set {
                setting: ContractSetting::Utilisation(on) | ContractSetting::MissRatio(on), ..
            } => Some(*on),
            _ => None,
        });
        let of_loop = |on| self.contents.feedback.iter().find(|one| one.processor == on).map(|one| one.period);
        let slowest = limited.filter_map(of_loop).max().unwrap_or_default();
        slowest.checked_mul(Stay::SETTLING).unwrap_or(slowest)
    }

    /// `Some(None)` if it is not there.
    fn expression(&self, log: &mut Log, table: &Table<'_>, key: &str, names: &[&str]) -> Option<Option<Predicate>> {
        if table.get(key).is_none() {
            return Some(None);
        }
        let text = table.given(log, key, InputValue::text)?;
        match Predicate::read(text.value, names) {
            Ok(expression) => Some(Some(expression)),
            Err(error) => {
                let place = text.place.of_text(text.value, error.from..error.to);
                log.error(place, format!("`{key}`: {error}")).help(error.remedy());
                None
            }
        }
    }
}

/// `stay = "5s"`, or `{ first = "5s", grow = 2, most = "5min" }`.
fn stay(log: &mut Log, table: &Table<'_>) -> Option<Stay> {
    match table.get("stay") {
        Some(value) if value.get_ref().is_table() => {
            let inner = table.inner(log, "stay")?;
            let first = inner.read(log, "first", InputValue::positive_time);
            let grow = inner.whole(log, "grow");
            let most = inner.read(log, "most", InputValue::positive_time);
            let (first, most) = (first?.value, most?);
            if most.value < first {
                log.error(most.place, "`most` is shorter than `first`")
                    .help("write a longer time, or `stay` as one time");
                return None;
            }
            let growing = Stay { first, grow: grow?.value as u32, most: most.value, settling: Span::ZERO };
            (!inner.misread).then_some(if growing.most > first { growing } else { Stay::constant(first) })
        }
        _ => table.read(log, "stay", InputValue::time).map(|stay| Stay::constant(stay.value)),
    }
}

fn addressed(of: AtPlace<&str>) -> Option<Addressed<'_>> {
    let (section, rest) = of.value.split_once('.')?;
    let legs = rest.strip_suffix(".repeat.legs").map(|name| (name, "repeat.legs"));
    let (name, key) = legs.or_else(|| rest.rsplit_once('.'))?;
    (!name.is_empty()).then_some(Addressed { section, name, key, place: of.place })
}

/// A table in a list, or under a name.
fn open<'a>(log: &mut Log, section: &'static str, key: &str, item: &'a Spanned<DeValue<'a>>) -> Option<Table<'a>> {
    let place = Place::from(item.span());
    let example = match section {
        "contract.watch" => "{ of = \"operation.NAME.miss_ratio\", over = \"2s\" }",
        "contract.region.do" => "{ set = \"operation.NAME.rate\", most = \"10Hz\" }",
        _ => "[[contract.NAME.region]]",
    };
    match InputValue::of(item.get_ref()).table(example) {
        Ok(entries) => Table::open(log, section, "", place, entries),
        Err(complaint) => {
            log_complaint(log, key, place, complaint);
            None
        }
    }
}
