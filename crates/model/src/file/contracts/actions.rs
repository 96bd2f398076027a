//! `do` of a region: its actions.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::DeValue;

use super::{ContractReader, addressed, open};
use crate::contract::{ContractAction, ContractSetting, ExternalAction};
use crate::file::limits;
use crate::file::log::{AtPlace, Log, Place};
use crate::file::table::Table;
use crate::file::value::{InputValue, shortened};
use crate::ids::OperationId;
use crate::program::ReservationSetting;
use crate::system::Trigger;
use crate::time::Span;

/// The keys of an action.
const KEYS: [&str; 10] = ["set", "to", "least", "most", "report", "call", "run", "mode", "admit", "withdraw"];

impl ContractReader<'_, '_> {
    /// `None`, logged, if one is wrong.
    pub(super) fn actions(&mut self, log: &mut Log, table: &Table<'_>) -> Option<Vec<ContractAction>> {
        let Some(given) = table.given(log, "do", InputValue::list) else {
            return table.get("do").is_none().then(Vec::new);
        };
        let mut actions = Vec::new();
        let mut places: HashMap<(&'static str, u32), Place> = HashMap::new();
        let mut sound = true;
        for item in given.value {
            let place = Place::from(item.span());
            let Some(found) = self.action(log, item) else {
                sound = false;
                continue;
            };
            for (order, action) in (0..).zip(&found) {
                if let ContractAction::External(ExternalAction::Behave { delegate, operation, .. }) = action {
                    let before = |one: &ContractAction| {
                        matches!(one, ContractAction::External(ExternalAction::Behave { delegate: of, operation: name, .. })
                            if (of, name) == (delegate, operation))
                    };
                    if actions.iter().chain(&found[..order]).any(before) {
                        log.error(place, "the region sets the behaviour of this operation twice").help("keep one");
                        sound = false;
                    }
                    continue;
                }
                let Some(key) = setting_of(action) else { continue };
                if let Some(first) = places.insert(key, place) {
                    log.error(place, format!("the region sets {} twice", key.0)).also(first, "here").help("keep one");
                    sound = false;
                }
            }
            actions.extend(found);
            if actions.len() > limits::ACTIONS {
                log.error(given.place, format!("`do` has more than {} actions", limits::ACTIONS))
                    .help("distribute them over several contracts");
                return None;
            }
        }
        sound.then_some(actions)
    }

    /// One entry of `do`: an action for each operation that it names.
    fn action(&mut self, log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<Vec<ContractAction>> {
        const KNOWN: &str = "write { set = \"operation.NAME.rate\", most = \"10Hz\" }, \
                             { set = \"operation.NAME.enabled\", to = false }, { mode = \"NAME\" }, { admit = \"NAME\" }, { call = \"...\" }, \
                             { run = [\"...\"] } or { report = \"...\" }; further settings: \
                             operation.NAME.repeat.legs, operation.NAME.level, operation.NAME.importance, \
                             reservation.NAME.importance, reservation.NAME.cap, feedback.NAME.utilisation, feedback.NAME.miss_ratio, processor.NAME.strategy, link.A-B.dscp, \
                             delegate.NAME.OPERATION";
        let table = open(log, "contract.region.do", "do", item)?;
        let keys = |keys: &[&str]| keys.iter().any(|key| table.get(key).is_some());
        if table.misread {
            return None;
        }
        let only = ["call", "run", "mode", "admit", "withdraw"].into_iter().find(|key| table.get(key).is_some());
        if let Some(key) = only.filter(|only| KEYS.iter().any(|key| key != only && table.get(key).is_some())) {
            log.error(table.place_of(key), format!("`{key}` must be the only key of its action"))
                .help("write each action in its own braces");
            return None;
        }
        if only == Some("mode") {
            let name = table.given(log, "mode", InputValue::text)?;
            return self.mode(log, name);
        }
        if let Some(key) = only.filter(|key| matches!(*key, "admit" | "withdraw")) {
            let name = table.given(log, key, InputValue::text)?;
            return self.admissions(log, name, key == "admit");
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
                log.error(
                    table.place,
                    "the action has no `set`, `admit`, `withdraw`, `mode`, `report`, `call` or `run`",
                )
                .help(KNOWN);
            }
            return None;
        };
        let address = addressed(set).filter(|one| match one.section {
            "operation" => matches!(one.key, "rate" | "repeat.legs" | "level" | "enabled" | "importance"),
            "feedback" => matches!(one.key, "utilisation" | "miss_ratio"),
            "processor" => one.key == "strategy",
            _ => false,
        });
        let Some(address) = address else {
            log.error(set.place, format!("a contract cannot set `{}`", shortened(set.value))).help(KNOWN);
            return None;
        };
        if address.section != "operation" {
            must_set(log, &table)?;
            let action = match address.section {
                "feedback" => self.set_point(log, &table, &address),
                _ => self.strategy(log, &table, &address),
            };
            return action.map(|action| vec![action]);
        }
        let found = self.operations(log, AtPlace::new(address.name, set.place))?;
        match address.key {
            "rate" => self.limit_rate(log, &table, set, found),
            "repeat.legs" => self.limit_legs(log, &table, found),
            "level" => self.limit_level(log, &table, set, found),
            "importance" => {
                must_set(log, &table)?;
                let to = table.required(log, "to", |given| given.whole(0, u32::MAX.into()))?.value as u32;
                let set = |operation| ContractAction::Set { setting: ContractSetting::Importance(operation), to };
                Some(found.into_iter().map(set).collect())
            }
            _ => {
                let to = table.required(log, "to", InputValue::truth)?;
                must_set(log, &table)?;
                let action = |operation| match to.value {
                    true => ContractAction::Enable { operation },
                    false => ContractAction::Disable { operation },
                };
                Some(found.into_iter().map(action).collect())
            }
        }
    }

    fn admissions(&mut self, log: &mut Log, name: AtPlace<&str>, admit: bool) -> Option<Vec<ContractAction>> {
        let found = self.operations(log, name)?;
        if found.iter().any(|id| self.operations.of(*id).standby.is_none()) {
            let shown = shortened(name.value);
            log.error(name.place, format!("`{shown}` is not on standby: it releases jobs from the start"))
                .help("write `standby = true` in its table, or set \"operation.NAME.enabled\"");
            return None;
        }
        Some(found.into_iter().map(|operation| ContractAction::Admission { operation, admit }).collect())
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

    fn limit_level(
        &self,
        log: &mut Log,
        table: &Table<'_>,
        set: AtPlace<&str>,
        found: Vec<OperationId>,
    ) -> Option<Vec<ContractAction>> {
        if let Some(key) = ["least", "to"].into_iter().find(|key| table.get(key).is_some()) {
            log.error(table.place_of(key), format!("`{key}` cannot limit a level"))
                .help("write the name of a level: `most = ...`");
            return None;
        }
        let most = table.required(log, "most", InputValue::text)?;
        let mut actions = Vec::new();
        for id in found {
            let operation = self.contents.operation(id);
            let name = shortened(&operation.name);
            let place = operation.levels.iter().position(|level| level.name == most.value);
            let Some(place) = place.filter(|place| place + 1 < operation.levels.len()) else {
                let names: Vec<_> =
                    operation.levels.iter().rev().skip(1).rev().map(|level| shortened(&level.name)).collect();
                let (message, at, help) = match (place, names.is_empty()) {
                    (_, true) => {
                        let help = "write several `levels` for the operation, or limit its rate".to_string();
                        (format!("`{name}` has no service levels"), set.place, help)
                    }
                    (None, _) => {
                        let level = shortened(most.value);
                        (
                            format!("`{name}` has no level `{level}`"),
                            most.place,
                            format!("write one of: {}", names.join(", ")),
                        )
                    }
                    (Some(_), _) => {
                        let level = shortened(most.value);
                        let help = format!("nothing to limit; write one of: {}", names.join(", "));
                        (format!("`{level}` is the greatest level of `{name}`"), most.place, help)
                    }
                };
                log.error(at, message).help(help);
                return None;
            };
            actions.push(ContractAction::LimitLevel { operation: id, most: place as u8 });
        }
        Some(actions)
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
                log.error(set.place, format!("cannot limit the rate of `{name}`: it follows another operation"))
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

/// The setting of an action: its description in errors, and its position.
fn setting_of(action: &ContractAction) -> Option<(&'static str, u32)> {
    Some(match action {
        ContractAction::LimitPeriod { operation, .. } => ("`rate` of this operation", operation.0),
        ContractAction::LimitLegs { operation, .. } => ("`repeat.legs` of this operation", operation.0),
        ContractAction::LimitLevel { operation, .. } => ("`level` of this operation", operation.0),
        ContractAction::Disable { operation } | ContractAction::Enable { operation } => {
            ("`enabled` of this operation", operation.0)
        }
        ContractAction::Admission { operation, .. } => ("the admission of this operation", operation.0),
        ContractAction::Set { setting, .. } => match setting {
            ContractSetting::Importance(operation) => ("`importance` of this operation", operation.0),
            ContractSetting::Utilisation(processor) => ("`utilisation` of this loop", processor.0),
            ContractSetting::MissRatio(processor) => ("`miss_ratio` of this loop", processor.0),
            ContractSetting::Strategy(processor) => ("`strategy` of this processor", processor.0),
        },
        ContractAction::External(ExternalAction::Reserve { program, setting, .. }) => {
            let key = match setting {
                ReservationSetting::Importance => "`importance` of this reservation",
                ReservationSetting::Weight => "`weight` of this reservation",
                ReservationSetting::Least => "`least` of this reservation",
                ReservationSetting::Rate => "`rate` of this reservation",
                ReservationSetting::Cap => "`cap` of this reservation",
                ReservationSetting::Floor => "`floor` of this reservation",
            };
            (key, program.0)
        }
        ContractAction::External(ExternalAction::MarkLink { link, .. }) => ("`dscp` of this link", (*link).into()),
        ContractAction::Report { .. } | ContractAction::External(_) => return None,
    })
}

/// An action with a value has no limits.
fn must_set(log: &mut Log, table: &Table<'_>) -> Option<()> {
    let Some(key) = ["least", "most"].into_iter().find(|key| table.get(key).is_some()) else { return Some(()) };
    log.error(table.place_of(key), format!("`{key}` cannot limit this setting")).help("write its value: `to = ...`");
    None
}
