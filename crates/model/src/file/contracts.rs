//! `[contract.NAME]`: conditions, regions and actions.

use std::collections::{HashMap, HashSet};

use toml::Spanned;
use toml::de::DeValue;

use super::declared::CallPhase;
use super::expand::Operations;
use super::latency::ends_here;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::table::{Table, check_name, in_order, log_complaint};
use super::value::{InputValue, shortened};
use crate::contract::{
    Condition, ConditionSource, Contract, ContractAction, ContractRegion, RegionRules, Stay, WindowSummary,
};
use crate::feedback::LatencyScope;
use crate::ids::{OperationId, ProcessorId};
use crate::predicate::Predicate;
use crate::system::{Contents, Trigger};
use crate::time::Span;

/// The contracts of a file, in its order. `None`, logged, if one of them is wrong.
pub(super) fn read(
    log: &mut Log,
    top: &Table<'_>,
    contents: &Contents,
    operations: &Operations<'_>,
) -> Option<Vec<Contract>> {
    let set = top.named(log, "condition");
    if let Some((name, _)) = set.get(limits::SET_CONDITIONS) {
        log.error(name.place, "too many conditions").help(format!("a system has at most {}", limits::SET_CONDITIONS));
        return None;
    }
    let tables = top.named(log, "contract");
    if let Some((name, _)) = tables.get(limits::CONTRACTS) {
        log.error(name.place, "too many contracts").help(format!("a system has at most {}", limits::CONTRACTS));
        return None;
    }
    let mut sound = true;
    let mut contracts = Vec::new();
    for (name, table) in tables {
        let mut reader = ContractReader { contents, operations, processor: None, sound: true };
        match reader.contract(log, name, &table) {
            Some(contract) if reader.sound => contracts.push(contract),
            _ => sound = false,
        }
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
    /// The processor of what has been read so far, and where it was named.
    processor: Option<AtPlace<ProcessorId>>,
    sound: bool,
}

impl ContractReader<'_, '_> {
    fn contract(&mut self, log: &mut Log, name: AtPlace<&str>, table: &Table<'_>) -> Option<Contract> {
        let precedence = table.whole(log, "precedence");
        let period = table.read(log, "period", InputValue::positive_time);
        let conditions = self.conditions(log, table);
        let names: Vec<&str> = conditions.iter().map(|one| one.name.as_str()).collect();
        let mut regions = Vec::new();
        self.level(log, table, "contract.region", None, &names, &mut regions);
        if table.misread || !self.sound {
            return None;
        }
        let processor = match self.processor {
            Some(processor) => processor.value,
            // Only reports: any processor can evaluate it.
            None => ProcessorId(0),
        };
        let period = period?;
        if period.value < limits::CONTRACT_PERIOD {
            log.error(period.place, format!("a period of {} is too short", period.value))
                .label(format!("at least {}", limits::CONTRACT_PERIOD))
                .help("the processor evaluates the contract above all its lanes");
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

    fn conditions(&mut self, log: &mut Log, table: &Table<'_>) -> Vec<Condition> {
        let such_as = "watch = { late = { of = \"operation.NAME.miss_ratio\", over = \"2s\" } }";
        let Some(given) = table.given(log, "watch", |given| given.table(such_as)) else {
            self.sound &= table.get("watch").is_none();
            return Vec::new();
        };
        let mut conditions = Vec::new();
        for (key, value) in in_order(given.value) {
            let name = AtPlace::new(&**key.get_ref(), Place::from(key.span()));
            let condition = self.condition(log, name, value);
            self.sound &= condition.is_some();
            conditions.extend(condition);
        }
        if conditions.len() > limits::CONDITIONS {
            log.error(given.place, format!("`watch` has {} conditions", conditions.len()))
                .help(format!("write at most {}, or split the contract", limits::CONDITIONS));
            self.sound = false;
        }
        conditions
    }

    fn condition(&mut self, log: &mut Log, name: AtPlace<&str>, value: &Spanned<DeValue<'_>>) -> Option<Condition> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = name.value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !name.value.chars().all(is_word) || matches!(name.value, "true" | "false" | "stale" | "duration")
        {
            log.error(name.place, format!("`{}` cannot be the name of a condition", shortened(name.value)))
                .label("expressions cannot contain it")
                .help("use letters, digits and `_`, but no word of the language of expressions");
            return None;
        }
        let table = open(log, "contract.watch", name.value, value)?;
        let of = table.read(log, "of", InputValue::one_or_several);
        let over = table.read(log, "over", InputValue::positive_time);
        let max_age = table.read(log, "max_age", InputValue::positive_time);
        let summary = table.choice(log, "as");
        if table.misread || (table.get("over").is_some() && over.is_none()) {
            return None;
        }
        if table.get("max_age").is_some() && max_age.is_none() {
            return None;
        }
        let of = of?;
        let of = self.measured(log, &of)?;
        Some(Condition {
            name: name.value.to_string(),
            of,
            summary: WindowSummary::ALL[summary?.value],
            over: over.map(|one| one.value),
            max_age: max_age.map(|one| one.value),
        })
    }

    /// What one or several texts address: jobs of several operations count together.
    fn measured(&mut self, log: &mut Log, of: &AtPlace<Vec<AtPlace<&str>>>) -> Option<ConditionSource> {
        const KNOWN: &str = "write \"operation.NAME.miss_ratio\", \"operation.NAME.latency\", \"chain.NAME.miss_ratio\", \
                             \"chain.NAME.latency\", \"processor.NAME.utilisation\" or \"condition.NAME\"";
        // A single text has no place of its own.
        let several = of.value.len() > 1;
        let at = |text: &AtPlace<_>| AtPlace::new(text.value, if several { text.place } else { of.place });
        let mut all: Vec<OperationId> = Vec::new();
        let mut first = None;
        for text in of.value.iter().map(at) {
            if let Some(name) = text.value.strip_prefix("condition.").filter(|_| !several) {
                let names = Names::new("condition", self.contents.conditions.iter().map(String::as_str));
                return names.find(log, AtPlace::new(name, text.place)).map(|place| ConditionSource::Set(place as u16));
            }
            let address = addressed(text).filter(|one| match one.section {
                "operation" => matches!(one.key, "miss_ratio" | "latency"),
                "chain" => matches!(one.key, "miss_ratio" | "latency") && !several,
                "processor" => one.key == "utilisation" && !several,
                _ => false,
            });
            let Some(address) = address.filter(|one| *first.get_or_insert(one.key) == one.key) else {
                let label = if several { "several are operations with the same measure" } else { "not measured" };
                let message = format!("`{}` cannot be a condition here", shortened(text.value));
                log.error(text.place, message).label(label).help(KNOWN);
                return None;
            };
            match address.section {
                "operation" => all.extend(self.operations(log, AtPlace::new(address.name, address.place))?),
                "chain" => return Some(measured(address.key, self.measured_chain(log, &address)?)),
                _ => return self.utilisation(log, &address),
            }
        }
        all.sort_unstable();
        all.dedup();
        let key = first.filter(|_| !all.is_empty());
        if key.is_none() {
            log.error(of.place, "`of` names nothing").help(KNOWN);
        }
        key.map(|key| measured(key, LatencyScope::Operations(all)))
    }

    fn measured_chain(&mut self, log: &mut Log, address: &Addressed<'_>) -> Option<LatencyScope> {
        let names = Names::new("chain", self.contents.chains.iter().map(|chain| chain.name.as_str()));
        let name = AtPlace::new(address.name, address.place);
        let place = names.find(log, name)?;
        let chain = &self.contents.chains[place as usize];
        let last = chain.path.last()?;
        let on = self.contents.operation(*last).on;
        if address.key == "miss_ratio" && chain.deadline.is_none() {
            log.error(address.place, format!("chain `{}` has no deadline", shortened(&chain.name)))
                .label("its instances cannot miss one")
                .help("add a `deadline` to the chain, or watch its `latency`");
            return None;
        }
        self.must_be_on(log, on, address.place)?;
        ends_here(log, self.contents, on, (name, chain)).then_some(LatencyScope::Chain(place))
    }

    fn utilisation(&mut self, log: &mut Log, address: &Addressed<'_>) -> Option<ConditionSource> {
        let names = Names::new("processor", self.contents.processors.iter().map(|one| one.name.as_str()));
        let processor = ProcessorId(names.find(log, AtPlace::new(address.name, address.place))?);
        if self.contents.feedback.iter().all(|one| one.processor != processor) {
            log.error(address.place, format!("nothing measures the utilisation of `{}`", shortened(address.name)))
                .label("it has no feedback loop")
                .help("watch a miss ratio or a latency, or write a [feedback] section for the processor");
            return None;
        }
        self.must_be_on(log, processor, address.place)?;
        Some(ConditionSource::Utilisation(processor))
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
        for id in &found {
            self.must_be_on(log, self.contents.operation(*id).on, name.place)?;
        }
        Some(found)
    }

    /// All parts of a contract concern one processor.
    fn must_be_on(&mut self, log: &mut Log, processor: ProcessorId, place: Place) -> Option<()> {
        let first = *self.processor.get_or_insert(AtPlace::new(processor, place));
        if first.value == processor {
            return Some(());
        }
        let name = |id: ProcessorId| shortened(&self.contents.processor(id).name);
        log.error(place, format!("this is on `{}`", name(processor)))
            .also(first.place, format!("the contract is on `{}`", name(first.value)))
            .help("write a contract for each processor");
        None
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
        let rules = RegionRules { parent, enter, leave, hold: hold?.value, stay: stay?, latch: latch?.value };
        Some(ContractRegion { name: name.value.to_string(), rules, actions })
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

    /// `None`, logged, if one is wrong.
    fn actions(&mut self, log: &mut Log, table: &Table<'_>) -> Option<Vec<ContractAction>> {
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
                    ContractAction::Disable { operation } => ("enabled", *operation),
                    ContractAction::Report { .. } => continue,
                };
                if let Some(first) = places.insert(key, place) {
                    log.error(place, format!("the region sets `{}` of this operation already", key.0))
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
                             { set = \"operation.NAME.enabled\", to = false } or { report = \"...\" }";
        let table = open(log, "contract.region.do", "do", item)?;
        let keys = |keys: &[&str]| keys.iter().any(|key| table.get(key).is_some());
        if table.misread {
            return None;
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
                log.error(table.place, "the action has no `set` and no `report`").help(KNOWN);
            }
            return None;
        };
        let address = addressed(set).filter(|address| address.section == "operation");
        let Some(address) = address.filter(|one| matches!(one.key, "rate" | "enabled")) else {
            log.error(set.place, format!("a contract cannot set `{}`", shortened(set.value))).help(KNOWN);
            return None;
        };
        let found = self.operations(log, AtPlace::new(address.name, set.place))?;
        match address.key {
            "rate" => self.limit_rate(log, &table, set, found),
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

    fn limit_rate(
        &self,
        log: &mut Log,
        table: &Table<'_>,
        set: AtPlace<&str>,
        found: Vec<OperationId>,
    ) -> Option<Vec<ContractAction>> {
        let contents = self.contents;
        if table.get("to").is_some() {
            log.error(table.place_of("to"), "`to` is not for rates")
                .help("write `least`, `most` or both: a loop chooses within these limits");
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
                log.error(set.place, format!("`{name}` has no rate of its own"))
                    .help("limit the rate of the periodic operation that leads to it");
                return None;
            }
            let settings = || (0..contents.epochs.len()).map(|epoch| contents.setting(epoch, id));
            let range = |(fastest, slowest): (Span, Span), setting: &crate::system::Setting| {
                (fastest.min(setting.period), slowest.max(setting.slowest))
            };
            let (fastest, slowest) = settings().fold((Span::from_nanos(u64::MAX), Span::ZERO), range);
            if fastest == slowest {
                log.error(set.place, format!("`{name}` has one rate"))
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

    /// The operations that follow the rate are on this processor, and no group sets it.
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
        let followers = contents.operations.iter().filter(|one| one.roots.contains(&root));
        let elsewhere: HashSet<ProcessorId> = followers.map(|one| one.on).filter(|other| *other != on).collect();
        if let Some(other) = elsewhere.iter().min() {
            let other = shortened(&contents.processor(*other).name);
            log.error(set.place, format!("`{name}` leads to operations on `{other}`"))
                .label("their periods would not follow")
                .help("limit an operation that has all its followers on its own processor");
            return None;
        }
        Some(())
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
            let growing = Stay { first, grow: grow?.value as u32, most: most.value };
            (!inner.misread).then_some(if growing.most > first { growing } else { Stay::constant(first) })
        }
        _ => table.read(log, "stay", InputValue::time).map(|stay| Stay::constant(stay.value)),
    }
}

fn measured(key: &str, scope: LatencyScope) -> ConditionSource {
    if key == "latency" { ConditionSource::Latency(scope) } else { ConditionSource::MissRatio(scope) }
}

fn addressed(of: AtPlace<&str>) -> Option<Addressed<'_>> {
    let (section, rest) = of.value.split_once('.')?;
    let (name, key) = rest.rsplit_once('.')?;
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
