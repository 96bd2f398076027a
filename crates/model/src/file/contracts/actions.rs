//! `do` of a region: its actions.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::DeValue;

use super::{ContractReader, addressed, open};
use crate::contract::ContractAction;
use crate::file::limits;
use crate::file::log::{AtPlace, Log, Place};
use crate::file::table::Table;
use crate::file::value::{InputValue, shortened};
use crate::ids::OperationId;
use crate::system::Trigger;
use crate::time::Span;

impl ContractReader<'_, '_> {
    /// `None`, logged, if one is wrong.
    pub(super) fn actions(&mut self, log: &mut Log, table: &Table<'_>) -> Option<Vec<ContractAction>> {
        let Some(given) = table.given(log, "do", InputValue::list) else {
            return table.get("do").is_none().then(Vec::new);
        };
        let mut actions = Vec::new();
        let mut places: HashMap<(&'static str, OperationId), Place> = HashMap::new();
        let mut sound = true;
        for item in given.value {
            let place = Place::from(item.span());
            let Some(found) = self.action(log, item) else {
                sound = false;
                continue;
            };
            for action in &found {
                let key = match action {
                    ContractAction::LimitPeriod { operation, .. } => ("rate", *operation),
                    ContractAction::LimitLegs { operation, .. } => ("repeat.legs", *operation),
                    ContractAction::Disable { operation } => ("enabled", *operation),
                    ContractAction::Report { .. } | ContractAction::External(_) => continue,
                };
                if let Some(first) = places.insert(key, place) {
                    log.error(place, format!("the region sets `{}` of this operation twice", key.0))
                        .also(first, "here")
                        .help("keep one");
                    sound = false;
                }
            }
            actions.extend(found);
        }
        if actions.len() > limits::ACTIONS {
            log.error(given.place, format!("`do` has {} actions", actions.len()))
                .help(format!("a region has at most {}", limits::ACTIONS));
            sound = false;
        }
        sound.then_some(actions)
    }

    /// One entry of `do`: an action for each operation that it names.
    fn action(&mut self, log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<Vec<ContractAction>> {
        const KNOWN: &str = "write { set = \"operation.NAME.rate\", most = \"10Hz\" }, \
                             { set = \"operation.NAME.repeat.legs\", most = 2 }, \
                             { set = \"operation.NAME.enabled\", to = false }, \
                             { set = \"reservation.NAME.importance\", to = 9 }, \
                             { set = \"delegate.NAME.OPERATION\", to = \"refuse\" }, { call = \"...\" }, \
                             { run = [\"...\"] } or { report = \"...\" }";
        let table = open(log, "contract.region.do", "do", item)?;
        let keys = |keys: &[&str]| keys.iter().any(|key| table.get(key).is_some());
        if table.misread {
            return None;
        }
        if let Some(external) = self.external(log, &table, keys) {
            return external.map(|action| vec![ContractAction::External(action)]);
        }
        if table.get("report").is_some() {
            let text = table.given(log, "report", InputValue::text)?;
            if keys(&["set", "to", "least", "most"])
                || text.value.len() > limits::REPORT
                || text.value.trim().is_empty()
            {
                log.error(text.place, format!("`report` must have 1 to {} bytes, and no other key", limits::REPORT))
                    .help(KNOWN);
                return None;
            }
            return Some(vec![ContractAction::Report { text: text.value.into() }]);
        }
        let Some(set) = table.given(log, "set", InputValue::text) else {
            if table.get("set").is_none() {
                log.error(table.place, "the action has no `set`, `report`, `call` or `run`").help(KNOWN);
            }
            return None;
        };
        let address = addressed(set).filter(|address| address.section == "operation");
        let Some(address) = address.filter(|one| matches!(one.key, "rate" | "repeat.legs" | "enabled")) else {
            log.error(set.place, format!("a contract cannot set `{}`", shortened(set.value))).help(KNOWN);
            return None;
        };
        let found = self.operations(log, AtPlace::new(address.name, set.place))?;
        match address.key {
            "rate" => self.limit_rate(log, &table, set, found),
            "repeat.legs" => self.limit_legs(log, &table, found),
            _ => {
                let to = table.required(log, "to", InputValue::truth)?;
                if keys(&["least", "most"]) || to.value {
                    log.error(set.place, "a contract can only disable an operation").help(KNOWN);
                    return None;
                }
                Some(found.into_iter().map(|operation| ContractAction::Disable { operation }).collect())
            }
        }
    }

    fn limit_legs(&self, log: &mut Log, table: &Table<'_>, found: Vec<OperationId>) -> Option<Vec<ContractAction>> {
        if let Some(key) = ["least", "to"].into_iter().find(|key| table.get(key).is_some()) {
            log.error(table.place_of(key), format!("`{key}` cannot limit legs")).help("write `most = 2`");
            return None;
        }
        let most = table.required(log, "most", |given| given.whole(1, u16::MAX.into()))?;
        let contents = self.contents;
        for id in &found {
            let legs = (0..contents.epochs.len()).map(|epoch| contents.setting(epoch, *id).legs).max().unwrap_or(1);
            if most.value >= u64::from(legs) {
                let name = shortened(&contents.operation(*id).name);
                log.error(
                    most.place,
                    format!("`{name}` never has more than {legs} {}", if legs == 1 { "leg" } else { "legs" }),
                )
                .label("nothing to limit")
                .help("write a smaller number, or more legs for the operation: repeat = { legs = 4 }");
                return None;
            }
        }
        let most = most.value as u16;
        Some(found.into_iter().map(|operation| ContractAction::LimitLegs { operation, most }).collect())
    }

    fn limit_rate(
        &self,
        log: &mut Log,
        table: &Table<'_>,
        set: AtPlace<&str>,
        found: Vec<OperationId>,
    ) -> Option<Vec<ContractAction>> {
        let contents = self.contents;
        if table.get("to").is_some() {
            log.error(table.place_of("to"), "`to` cannot limit a rate").help("write `least`, `most` or both");
            return None;
        }
        let read = |log: &mut Log, key: &str| match table.get(key) {
            Some(_) => table.given(log, key, InputValue::period).map(|period| Some(period.value)),
            None => Some(None),
        };
        let (most, least) = (read(log, "most"), read(log, "least"));
        let (most, least) = (most?, least?);
        if most.is_none() && least.is_none() {
            log.error(set.place, "the action has no limit").help("add `most = \"10Hz\"`, `least = \"5Hz\"`, or both");
            return None;
        }
        if let (Some(shortest), Some(longest)) = (most, least)
            && shortest > longest
        {
            log.error(table.place_of("least"), "`least` is above `most`").help("exchange them");
            return None;
        }
        let mut actions = Vec::new();
        for id in found {
            let operation = contents.operation(id);
            let name = shortened(&operation.name);
            if operation.trigger != Trigger::Periodic {
                log.error(set.place, format!("`{name}` follows another operation: it has no own rate"))
                    .help("limit the rate of the periodic operation that leads to it");
                return None;
            }
            let settings = || (0..contents.epochs.len()).map(|epoch| contents.setting(epoch, id));
            let range = |(fastest, slowest): (Span, Span), setting: &crate::system::Setting| {
                (fastest.min(setting.period), slowest.max(setting.slowest))
            };
            let (fastest, slowest) = settings().fold((Span::from_nanos(u64::MAX), Span::ZERO), range);
            if fastest == slowest {
                log.error(set.place, format!("`{name}` has a fixed rate"))
                    .label("nothing to limit")
                    .help("write a range for the operation: rate = [\"10Hz\", \"40Hz\"]");
                return None;
            }
            let (shortest, longest) = (most.unwrap_or(Span::ZERO), least.unwrap_or(Span::from_nanos(u64::MAX)));
            for (key, limit) in [("most", most), ("least", least)] {
                if let Some(limit) = limit.filter(|limit| !(fastest..=slowest).contains(limit)) {
                    let hertz = |period: Span| format!("{}Hz", (1e13 / period.as_nanos() as f64).round() / 1e4);
                    let message = format!("`{key}` is {}, outside the range of `{name}`", hertz(limit));
                    log.error(table.place_of(key), message)
                        .label(format!("{} to {}", hertz(slowest), hertz(fastest)))
                        .help("write a rate within the range of the operation");
                    return None;
                }
            }
            self.must_be_alone(log, set, id)?;
            actions.push(ContractAction::LimitPeriod { operation: id, shortest, longest });
        }
        Some(actions)
    }

    /// No group sets the rate.
    fn must_be_alone(&self, log: &mut Log, set: AtPlace<&str>, root: OperationId) -> Option<()> {
        let contents = self.contents;
        let on = contents.operation(root).on;
        let name = shortened(&contents.operation(root).name);
        if contents.feedback.iter().any(|one| one.processor == on && one.algorithm.is_of_group()) {
            log.error(set.place, format!("a group of processors sets the rate of `{name}`"))
                .label("a contract cannot limit it")
                .help("use a loop of one processor, or limit another operation");
            return None;
        }
        Some(())
    }
}
