//! What contracts measure and do outside of the dispatcher: quantities of hosts, links, reservations and delegates;
//! `call`, `run`, settings of a reservation, the DSCP of a link, and behaviours of delegates.

use super::{Addressed, ContractReader, addressed};
use crate::contract::{ConditionSource, ExternalAction};
use crate::file::delegates::{self, DelegateShape};
use crate::file::environment::LinkNames;
use crate::file::limits;
use crate::file::log::{AtPlace, Log, Place};
use crate::file::names::Names;
use crate::file::outside::{self, MeasuredParts};
use crate::file::table::Table;
use crate::file::value::{InputValue, shortened};
use crate::ids::{HostId, ProcessorId, ProgramId};
use crate::outside::{DelegateQuantity, HostQuantity, LinkQuantity, ReservationQuantity};
use crate::program::ReservationSetting;
use crate::system::Contents;

impl ContractReader<'_, '_> {
    /// `None` if the entry of `do` is another action; `Some(None)`, logged, if it is wrong. `has` is true if one of the
    /// keys is there.
    pub(super) fn external(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        has: impl Fn(&[&str]) -> bool,
    ) -> Option<Option<ExternalAction>> {
        if has(&["call"]) {
            return Some(callback(log, table));
        }
        if has(&["run"]) {
            return Some(command(log, table));
        }
        let set = table.get("set").and_then(|value| value.get_ref().as_str())?;
        let address = addressed(AtPlace::new(set, table.place_of("set")))?;
        let is_limit = has(&["least", "most", "report"]);
        match address.section {
            "reservation" => {
                let setting = ReservationSetting::of_key(address.key).filter(|_| !is_limit);
                if let Some(setting) = setting {
                    return Some(self.reserve(log, table, &address, setting));
                }
                let keys = ReservationSetting::ALL.map(ReservationSetting::key).join(", ");
                log.error(address.place, format!("a contract cannot set `{}`", shortened(set)))
                    .help(format!("write {{ set = \"reservation.NAME.importance\", to = 9 }}, or one of: {keys}"));
                return Some(None);
            }
            "link" => {}
            "delegate" if is_limit || table.get("to").is_none() => {
                log.error(address.place, format!("the action sets no behaviour of `{}`", shortened(set)))
                    .help("write { set = \"delegate.NAME.OPERATION\", to = \"refuse\" }");
                return Some(None);
            }
            "delegate" => return Some(self.behave(log, table, &address)),
            _ => return None,
        };
        if address.key != "dscp" || is_limit {
            log.error(address.place, format!("a contract cannot set `{}`", shortened(set)))
                .help("write { set = \"link.A-B.dscp\", to = \"AF41\" }");
            return Some(None);
        }
        Some(self.mark_link(log, table, AtPlace::new(address.name, address.place)))
    }

    fn mark_link(&mut self, log: &mut Log, table: &Table<'_>, name: AtPlace<&str>) -> Option<ExternalAction> {
        let Contents { hosts, links, .. } = self.contents;
        let link = LinkNames::new(links, hosts).find(log, name)?;
        let to = table.required(log, "to", InputValue::text)?;
        let Ok(dscp) = to.value.parse() else {
            log.error(to.place, format!("`{}` is not a DSCP", shortened(to.value)))
                .help("write a name of RFC 4594, such as \"AF41\", or a number, such as \"34\"");
            return None;
        };
        self.must_have_processor(log, self.contents.first_end(link as usize), name.place)?;
        Some(ExternalAction::MarkLink { link: link as u16, dscp })
    }

    fn reserve(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        address: &Addressed<'_>,
        setting: ReservationSetting,
    ) -> Option<ExternalAction> {
        let programs = &self.contents.brokered.programs;
        let names = Names::new("reservation", programs.iter().map(|one| one.name.as_str()));
        let id = names.find(log, AtPlace::new(address.name, address.place))?;
        let program = &programs[id as usize];
        let to = match setting {
            ReservationSetting::Importance => table.required(log, "to", |given| given.whole(0, u32::MAX.into()))?,
            ReservationSetting::Weight => table.required(log, "to", |given| given.whole(1, 1_000_000))?,
            ReservationSetting::Least => {
                let to = table.required(log, "to", InputValue::positive_time)?;
                AtPlace::new(to.value.as_nanos(), to.place)
            }
            ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor => {
                let to = table.required(log, "to", InputValue::share_ppm)?;
                if to.value == 0 {
                    log.error(to.place, "`to` is zero").help("write a share of one CPU, such as \"40%\"");
                    return None;
                }
                AtPlace::new(to.value.into(), to.place)
            }
        };
        if setting.is_bounded() {
            let (name, key) = (shortened(&program.name), setting.key());
            let Some(most) = setting.declared(program) else {
                let log = log.error(
                    address.place,
                    match setting.is_advocate() {
                        true => format!("`{name}` must have exactly one advocate `{key}`"),
                        false => format!("`{name}` has no `{key}`"),
                    },
                );
                log.help(match setting.is_advocate() {
                    true => format!("write one {{ {key} = \"...\" }} in its `advocate`, with the greatest share"),
                    false => format!("write `{key}` in its table, with the greatest value"),
                });
                return None;
            };
            if to.value > most {
                log.error(to.place, format!("`to` is above the `{key}` of `{name}`"))
                    .label(format!("at most {}", setting.text(most)))
                    .help(format!("write a smaller value, or raise `{key}` in [reservation.{name}]"));
                return None;
            }
        }
        let host = program.host;
        self.must_have_processor(log, host, address.place)?;
        Some(ExternalAction::Reserve { program: ProgramId(id), setting, to: to.value })
    }

    fn behave(&mut self, log: &mut Log, table: &Table<'_>, address: &Addressed<'_>) -> Option<ExternalAction> {
        let names = Names::new("delegate", self.contents.delegates.iter().map(|one| one.name.as_str()));
        let delegate = names.find(log, AtPlace::new(address.name, address.place))?;
        if !delegates::operation_name(log, AtPlace::new(address.key, address.place)) {
            return None;
        }
        let to = table.required(log, "to", InputValue::text)?;
        let around = &self.contents.delegates[delegate as usize];
        let behaviour = delegates::behaviour(log, to, DelegateShape::of(around))?;
        self.must_have_processor(log, around.host(self.contents), address.place)?;
        let processor = around.processor(self.contents);
        self.processor = self.processor.or(Some(processor));
        Some(ExternalAction::Behave { delegate: delegate as u16, operation: address.key.into(), behaviour })
    }

    /// `host.NAME.QUANTITY`, and the same of links, reservations and delegates.
    pub(super) fn measured_outside(&mut self, log: &mut Log, of: AtPlace<&str>) -> Option<ConditionSource> {
        let Contents { hosts, links, brokered, delegates, conditions, .. } = self.contents;
        let parts = MeasuredParts { hosts, links, programs: &brokered.programs, delegates };
        if let Some(measure) = outside::measure(of.value, parts) {
            let place = conditions.iter().position(|one| one.measure == Some(measure))?;
            let host = measure.host(self.contents);
            self.must_have_processor(log, host, of.place)?;
            return Some(ConditionSource::Set(place as u16));
        }
        let (section, rest) = of.value.split_once('.')?;
        // The quantity `broker.asked` has a dot; names have none.
        let (name, quantity) = rest.split_once('.').unwrap_or((rest, ""));
        let (name_as, known, is_known) = match section {
            "host" => {
                let known = HostQuantity::ALL.map(|(_, name)| name).join(", ");
                ("NAME", known, HostQuantity::of_name(quantity).is_some())
            }
            "link" => {
                let known = LinkQuantity::ALL.map(|(_, name)| name).join(", ");
                ("A-B", known, LinkQuantity::of_name(quantity).is_some())
            }
            "delegate" => {
                let known = DelegateQuantity::ALL.map(|(_, name)| name).join(", ");
                ("NAME", known, DelegateQuantity::of_name(quantity).is_some())
            }
            _ => {
                let known = ReservationQuantity::ALL.map(|(_, name)| name).join(", ");
                ("NAME", known, ReservationQuantity::of_name(quantity).is_some())
            }
        };
        if !is_known {
            log.error(of.place, format!("unknown quantity `{}` of a {section}", shortened(quantity)))
                .help(format!("write \"{section}.{name_as}.QUANTITY\" with one of: {known}"));
            return None;
        }
        let name = AtPlace::new(name, of.place);
        match section {
            "host" => _ = Names::new("host", hosts.iter().map(|one| one.name.as_str())).find(log, name),
            "link" => _ = LinkNames::new(links, hosts).find(log, name),
            "delegate" => _ = Names::new("delegate", delegates.iter().map(|one| one.name.as_str())).find(log, name),
            _ => _ = Names::new("reservation", brokered.programs.iter().map(|one| one.name.as_str())).find(log, name),
        }
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
