//! `watch` of a contract: its conditions.

use toml::Spanned;
use toml::de::DeValue;

use super::{Addressed, ContractReader, addressed, open};
use crate::contract::{Condition, ConditionSource, JobScope, WindowSummary};
use crate::feedback::LatencyScope;
use crate::file::latency::ends_here;
use crate::file::limits;
use crate::file::log::{AtPlace, Log, Place};
use crate::file::names::Names;
use crate::file::table::{Table, in_order};
use crate::file::value::{InputValue, shortened};
use crate::ids::{OperationId, ProcessorId};

/// What a condition can measure of a processor.
const OF_PROCESSORS: [&str; 9] =
    ["utilisation", "demand", "critical_demand", "wasted", "usage", "rate", "queue", "strategy", "endangered"];

/// What it can measure of operations: of their responses, and of all their jobs.
const OF_RESPONSES: [&str; 3] = ["miss_ratio", "latency", "lateness"];
const OF_JOBS: [&str; 5] = ["demand", "wasted", "usage", "rate", "queue"];

impl ContractReader<'_, '_> {
    pub(super) fn conditions(&mut self, log: &mut Log, table: &Table<'_>) -> Vec<Condition> {
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
                .help("use letters, digits and `_`, and begin with a letter; reserved: true, false, stale, duration");
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
        let given = of?;
        let of = self.measured(log, &given)?;
        if of.is_sum() && over.is_none() {
            log.error(given.place, "this condition is a sum over a window")
                .label("it has no window")
                .help("add a window, such as `over = \"2s\"`");
            return None;
        }
        if of.is_sum() && table.get("as").is_some() {
            log.error(table.place_of("as"), "`as` does not apply to a sum over a window").help("remove it");
            return None;
        }
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
        const KNOWN: &str = "write \"operation.NAME.KEY\" (miss_ratio, latency, lateness, demand, wasted, usage, rate or queue), \
                             \"chain.NAME.KEY\" (miss_ratio, latency, lateness or rate), \"processor.NAME.KEY\" \
                             (utilisation, demand, critical_demand, wasted, usage, rate, queue, strategy or \
                             endangered), \"host.NAME.temperature\", \
                             \"link.A-B.loss\", \"reservation.NAME.asked\", \"delegate.NAME.latency\" or \"condition.NAME\"";
        // A single text has no place of its own.
        let several = of.value.len() > 1;
        let at = |text: &AtPlace<_>| AtPlace::new(text.value, if several { text.place } else { of.place });
        let mut all: Vec<OperationId> = Vec::new();
        let mut first = None;
        for text in of.value.iter().map(at) {
            if let Some(name) = text.value.strip_prefix("condition.").filter(|_| !several) {
                let declared = self.contents.conditions.iter().filter(|one| one.measure.is_none());
                let names = Names::new("condition", declared.map(|one| one.name.as_str()));
                return names.find(log, AtPlace::new(name, text.place)).map(|place| ConditionSource::Set(place as u16));
            }
            let sections = ["host.", "link.", "reservation.", "delegate."];
            if sections.iter().any(|section| text.value.starts_with(section)) && !several {
                return self.measured_outside(log, text);
            }
            let address = addressed(text).filter(|one| match one.section {
                "operation" => OF_RESPONSES.contains(&one.key) || OF_JOBS.contains(&one.key),
                "chain" => (OF_RESPONSES.contains(&one.key) || one.key == "rate") && !several,
                "processor" => OF_PROCESSORS.contains(&one.key) && !several,
                _ => false,
            });
            let Some(address) = address.filter(|one| *first.get_or_insert(one.key) == one.key) else {
                let label =
                    if several { "a list contains only operations with the same measure" } else { "not measured" };
                let message = format!("`{}` is not a condition", shortened(text.value));
                log.error(text.place, message).label(label).help(KNOWN);
                return None;
            };
            match address.section {
                "operation" => all.extend(self.operations(log, AtPlace::new(address.name, address.place))?),
                "chain" => return self.measured_chain(log, &address),
                _ => return self.measured_processor(log, &address),
            }
        }
        all.sort_unstable();
        all.dedup();
        let on = |id: &OperationId| self.contents.operation(*id).on;
        if let Some(other) = all.iter().find(|id| on(id) != on(&all[0])) {
            let [first, other] = [all[0], *other].map(|id| shortened(&self.operations.name(id)));
            log.error(of.place, format!("`{first}` and `{other}` are on different processors"))
                .label("one processor measures a condition")
                .help("write a condition for each processor");
            return None;
        }
        let key = first.filter(|_| !all.is_empty());
        if key.is_none() {
            log.error(of.place, "`of` is empty").help(KNOWN);
        }
        let key = key?;
        Some(match OF_RESPONSES.contains(&key) {
            true => measured(key, LatencyScope::Operations(all)),
            false => counted(key, JobScope::Operations(all)),
        })
    }

    fn measured_chain(&mut self, log: &mut Log, address: &Addressed<'_>) -> Option<ConditionSource> {
        let names = Names::new("chain", self.contents.chains.iter().map(|chain| chain.name.as_str()));
        let name = AtPlace::new(address.name, address.place);
        let place = names.find(log, name)?;
        let chain = &self.contents.chains[place as usize];
        let last = *chain.path.last()?;
        let on = self.contents.operation(last).on;
        if matches!(address.key, "miss_ratio" | "lateness") && chain.deadline.is_none() {
            log.error(address.place, format!("chain `{}` has no deadline", shortened(&chain.name)))
                .label("its instances cannot miss one")
                .help("add a `deadline` to the chain, or watch its `latency`");
            return None;
        }
        self.processor = self.processor.or(Some(on));
        ends_here(log, self.contents, on, (name, chain)).then(|| match address.key {
            // An instance is complete if its last operation is.
            "rate" => ConditionSource::Rate(JobScope::Operations(vec![last])),
            key => measured(key, LatencyScope::Chain(place)),
        })
    }

    fn measured_processor(&mut self, log: &mut Log, address: &Addressed<'_>) -> Option<ConditionSource> {
        let names = Names::new("processor", self.contents.processors.iter().map(|one| one.name.as_str()));
        let processor = ProcessorId(names.find(log, AtPlace::new(address.name, address.place))?);
        if address.key == "utilisation" && self.contents.feedback.iter().all(|one| one.processor != processor) {
            log.error(address.place, format!("nothing measures the utilisation of `{}`", shortened(address.name)))
                .label("it has no feedback loop")
                .help("watch its `usage`, or write a [feedback] section for the processor");
            return None;
        }
        if matches!(address.key, "strategy" | "endangered") && self.contents.processor(processor).overload.is_none() {
            log.error(address.place, format!("`{}` has one strategy", shortened(address.name)))
                .label("it never changes")
                .help("write two for the processor, such as strategy = [\"RMS\", \"RMS+MLF\"]");
            return None;
        }
        self.processor = self.processor.or(Some(processor));
        Some(match address.key {
            "utilisation" => ConditionSource::Utilisation(processor),
            "strategy" => ConditionSource::Strategy(processor),
            "endangered" => ConditionSource::Endangered(processor),
            key => counted(key, JobScope::Processor { processor, critical: key == "critical_demand" }),
        })
    }
}

fn measured(key: &str, scope: LatencyScope) -> ConditionSource {
    match key {
        "latency" => ConditionSource::Latency(scope),
        "lateness" => ConditionSource::Lateness(scope),
        _ => ConditionSource::MissRatio(scope),
    }
}

fn counted(key: &str, scope: JobScope) -> ConditionSource {
    match key {
        "wasted" => ConditionSource::Wasted(scope),
        "usage" => ConditionSource::Usage(scope),
        "rate" => ConditionSource::Rate(scope),
        "queue" => ConditionSource::Queue(scope),
        _ => ConditionSource::Demand(scope),
    }
}
