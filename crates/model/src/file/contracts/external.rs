//! What contracts measure and do outside of the dispatcher: quantities of hosts; `call`, `run`, the importance of a
//! reservation, and behaviours of delegates.

use super::{Addressed, ContractReader, addressed};
use crate::contract::{ConditionSource, ExternalAction};
use crate::file::log::{AtPlace, Log, Place};
use crate::file::names::Names;
use crate::file::table::Table;
use crate::file::value::{InputValue, shortened};
use crate::file::{delegates, limits};
use crate::ids::{HostId, ProcessorId, ProgramId};
use crate::outside::{DelegateQuantity, HostQuantity};

impl ContractReader<'_, '_> {
    /// `None` if the entry of `do` is another action; `Some(None)`, logged, if it is wrong. `has` is true if one of the
    /// keys is there.
    pub(super) fn external(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        has: impl Fn(&[&str]) -> bool,
    ) -> Option<Option<ExternalAction>> {
        let alone = |log: &mut Log, key: &str, others: &[&str]| {
            if has(others) {
                log.error(table.place_of(key), format!("`{key}` must be the only key of its action"))
                    .help("write each action in its own braces");
            }
            !has(others)
        };
        if has(&["call"]) {
            let is_alone = alone(log, "call", &["set", "to", "least", "most", "report", "run"]);
            return Some(callback(log, table).filter(|_| is_alone));
        }
        if has(&["run"]) {
            let is_alone = alone(log, "run", &["set", "to", "least", "most", "report", "call"]);
            return Some(command(log, table).filter(|_| is_alone));
        }
        let set = table.get("set").and_then(|value| value.get_ref().as_str())?;
        let address = addressed(AtPlace::new(set, table.place_of("set")))?;
        if address.section == "delegate" {
            if has(&["least", "most", "report"]) || table.get("to").is_none() {
                log.error(address.place, format!("the action sets no behaviour of `{}`", shortened(set)))
                    .help("write { set = \"delegate.NAME.OPERATION\", to = \"refuse\" }");
                return Some(None);
            }
            return Some(self.behave(log, table, &address));
        }
        if address.section != "reservation" {
            return None;
        }
        if address.key != "importance" || has(&["least", "most", "report"]) {
            log.error(address.place, format!("a contract cannot set `{}`", shortened(set)))
                .help("write { set = \"reservation.NAME.importance\", to = 9 }");
            return Some(None);
        }
        Some(self.importance(log, table, AtPlace::new(address.name, address.place)))
    }

    fn importance(&mut self, log: &mut Log, table: &Table<'_>, name: AtPlace<&str>) -> Option<ExternalAction> {
        let names = Names::new("reservation", self.contents.brokered.programs.iter().map(|one| one.name.as_str()));
        let program = names.find(log, name)?;
        let to = table.required(log, "to", |given| given.whole(0, u32::MAX.into()))?;
        let host = self.contents.brokered.programs[program as usize].host;
        self.must_have_processor(log, host, name.place)?;
        Some(ExternalAction::Importance { program: ProgramId(program), importance: to.value as u32 })
    }

    fn behave(&mut self, log: &mut Log, table: &Table<'_>, address: &Addressed<'_>) -> Option<ExternalAction> {
        let names = Names::new("delegate", self.contents.delegates.iter().map(|one| one.name.as_str()));
        let delegate = names.find(log, AtPlace::new(address.name, address.place))?;
        if !delegates::operation_name(log, AtPlace::new(address.key, address.place)) {
            return None;
        }
        let to = table.required(log, "to", InputValue::text)?;
        let behaviour = delegates::behaviour(log, to)?;
        let processor = self.contents.delegates[delegate as usize].processor(self.contents);
        self.processor = self.processor.or(Some(processor));
        Some(ExternalAction::Behave { delegate: delegate as u16, operation: address.key.into(), behaviour })
    }

    /// `delegate.NAME.QUANTITY`.
    pub(super) fn measured_by_delegate(&mut self, log: &mut Log, of: AtPlace<&str>) -> Option<ConditionSource> {
        let conditions = &self.contents.conditions;
        let found = conditions.iter().position(|one| one.measure.is_some() && one.name == of.value);
        if let Some(place) = found {
            let host = conditions[place].measure?.host(self.contents);
            self.must_have_processor(log, host, of.place)?;
            return Some(ConditionSource::Set(place as u16));
        }
        let rest = of.value.strip_prefix("delegate.")?;
        let (name, quantity) = rest.split_once('.').unwrap_or((rest, ""));
        if DelegateQuantity::of_name(quantity).is_none() {
            let known = DelegateQuantity::ALL.map(|(_, name)| name).join(", ");
            log.error(of.place, format!("unknown quantity `{}` of a delegate", shortened(quantity)))
                .help(format!("write \"delegate.NAME.QUANTITY\" with one of: {known}"));
            return None;
        }
        let names = Names::new("delegate", self.contents.delegates.iter().map(|one| one.name.as_str()));
        names.find(log, AtPlace::new(name, of.place))?;
        None
    }

    /// `host.NAME.QUANTITY`.
    pub(super) fn measured_by_host(&mut self, log: &mut Log, of: AtPlace<&str>) -> Option<ConditionSource> {
        let conditions = &self.contents.conditions;
        let found = conditions.iter().position(|one| one.measure.is_some() && one.name == of.value);
        if let Some(place) = found {
            let host = conditions[place].measure?.host(self.contents);
            self.must_have_processor(log, host, of.place)?;
            return Some(ConditionSource::Set(place as u16));
        }
        let (host, quantity) = of.value.strip_prefix("host.")?.split_once('.').unwrap_or((&of.value[5..], ""));
        if HostQuantity::of_name(quantity).is_none() {
            let known = HostQuantity::ALL.map(|(_, name)| name).join(", ");
            log.error(of.place, format!("unknown quantity `{}` of a host", shortened(quantity)))
                .help(format!("write \"host.NAME.QUANTITY\" with one of: {known}"));
            return None;
        }
        let names = Names::new("host", self.contents.hosts.iter().map(|one| one.name.as_str()));
        names.find(log, AtPlace::new(host, of.place))?;
        None
    }

    /// A processor of the host measures or applies it.
    fn must_have_processor(&mut self, log: &mut Log, host: HostId, place: Place) -> Option<()> {
        let found = (0..).zip(&self.contents.processors).find(|(_, one)| one.host == host);
        let Some((processor, _)) = found else {
            let name = shortened(&self.contents.hosts[host.index()].name);
            log.error(place, format!("host `{name}` has no processor")).help("write [processor.NAME] with this host");
            return None;
        };
        self.processor = self.processor.or(Some(ProcessorId(processor)));
        Some(())
    }
}

fn callback(log: &mut Log, table: &Table<'_>) -> Option<ExternalAction> {
    let name = table.given(log, "call", InputValue::text)?;
    if name.value.trim().is_empty() || name.value.len() > limits::NAME {
        log.error(name.place, format!("`call` must have 1 to {} bytes", limits::NAME))
            .help("write the name of a callback, as in Bodies::on_region");
        return None;
    }
    Some(ExternalAction::Call { callback: name.value.into() })
}

fn command(log: &mut Log, table: &Table<'_>) -> Option<ExternalAction> {
    let words = table.given(log, "run", InputValue::texts)?;
    let Some(program) = words.value.first() else {
        log.error(words.place, "`run` names no program").help("write run = [\"PROGRAM\", \"ARGUMENT\"]");
        return None;
    };
    let bytes: usize = words.value.iter().map(|word| word.value.len()).sum();
    if words.value.len() > limits::COMMAND_WORDS || bytes > limits::COMMAND_BYTES {
        log.error(words.place, format!("the command has {} words and {bytes} bytes", words.value.len()))
            .label(format!("at most {} words and {} bytes", limits::COMMAND_WORDS, limits::COMMAND_BYTES))
            .help("write a script, and run it");
        return None;
    }
    if let Some(word) = words.value.iter().find(|word| word.value.contains('\0')) {
        log.error(word.place, "a word of the command contains a zero byte").help("remove it");
        return None;
    }
    let is_name = !program.value.is_empty() && !program.value.contains('/');
    if !is_name && !program.value.starts_with('/') {
        log.error(program.place, format!("`{}` is a relative path", shortened(program.value)))
            .label("it depends on the working directory")
            .help("write an absolute path, or a name in PATH");
        return None;
    }
    Some(ExternalAction::Run { command: words.value.iter().map(|word| word.value.into()).collect() })
}
