//! Changes of links and hosts by epochs: `"link.drone-station.loss" = "5%"`, `"host.drone.enabled" = false`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use super::epochs::{DeclaredEpoch, NamedChange};
use super::limits;
use super::log::{AtPlace, Log};
use super::machines::link_delay;
use super::names::Names;
use super::table::Table;
use super::value::{InputValue, shortened};
use crate::ids::HostId;
use crate::outside::{OutsideCondition, OutsideMeasure};
use crate::system::{Environment, Host, Link, LinkSetting};
use crate::time::Span;

/// The state of links and hosts in each epoch: changes add up from epoch to epoch.
pub(super) fn accumulate(
    log: &mut Log,
    top: &Table<'_>,
    (epochs, outside): (&[DeclaredEpoch<'_>], &[OutsideCondition]),
    hosts: &[Host],
    links: &[Link],
    duration: Option<Span>,
) -> Vec<Arc<Environment>> {
    // Host tables were checked when they were read.
    let tables = top.named(&mut Log::default(), "host");
    let is_off =
        |table: &Table<'_>| table.read(log, "enabled", InputValue::truth).is_some_and(|enabled| !enabled.value);
    let off = tables.iter().map(|(_, table)| table).map(is_off).collect::<Vec<_>>();
    let disabled = (0u32..).zip(off).filter(|(_, off)| *off).map(|(host, _)| HostId(host)).collect();
    let names = LinkNames::new(links, hosts);
    let declared = top.named(&mut Log::default(), "condition");
    let conditions = outside.iter().enumerate().map(|(place, condition)| {
        let table = declared.get(place).map(|(_, table)| table);
        let value = table.and_then(|table| table.given(log, "value", InputValue::number));
        (condition.name.clone(), value.map(|value| millionths(value.value)))
    });
    let conditions = conditions.collect();
    let mut now = EnvironmentState { hosts, links, names, disabled, outside, conditions, changed: BTreeMap::new() };
    let mut all: Vec<Arc<Environment>> = Vec::with_capacity(epochs.len());
    let mut held = 0;
    for epoch in epochs {
        log.silence(!epoch.is_within(duration));
        let changes = epoch.of_environment();
        changes.iter().for_each(|change| now.apply(log, change));
        match all.last().filter(|_| changes.is_empty()) {
            Some(last) => all.push(last.clone()),
            None => {
                held += now.changed.len() + now.disabled.len() + now.conditions.len();
                if held > limits::SETTINGS {
                    log.error(epoch.place(), "too many epochs for the number of links, hosts and conditions")
                        .help(format!("use fewer epochs, or change fewer links, hosts and conditions: at most {} values may change", limits::SETTINGS));
                    break;
                }
                all.push(Arc::new(now.environment()));
            }
        }
    }
    log.silence(false);
    all
}

/// The state after the changes so far.
struct EnvironmentState<'a> {
    hosts: &'a [Host],
    links: &'a [Link],
    names: LinkNames,
    disabled: BTreeSet<HostId>,
    outside: &'a [OutsideCondition],
    /// With their values in millionths.
    conditions: Vec<(String, Option<i64>)>,
    changed: BTreeMap<u32, LinkSetting>,
}

fn millionths(value: f64) -> i64 {
    (value * 1e6).round() as i64
}

impl EnvironmentState<'_> {
    fn apply(&mut self, log: &mut Log, change: &NamedChange<'_>) {
        let NamedChange { section, name, key, value } = change;
        // Read the value as if it were in the table of the host or link.
        let mut table = DeTable::new();
        table.insert(Spanned::new(value.span(), (*key).into()), (*value).clone());
        let Some(table) = Table::open(log, section, "", name.place, &table) else { return };
        if *section == "condition" {
            let is_known = |condition: &(String, Option<i64>)| condition.0 == name.value;
            if name.value.contains('.') && !self.conditions.iter().any(is_known) {
                log.error(name.place, format!("no contract watches `{}`", shortened(&name.value)))
                    .help("watch it in a contract, or remove it");
                return;
            }
            let names = Names::new("condition", self.conditions.iter().map(|(name, _)| name.as_str()));
            let place = names.find(log, AtPlace::new(name.value.as_str(), name.place));
            if let (Some(place), Some(value)) = (place, table.given(log, key, InputValue::number)) {
                let measure = self.outside[place as usize].measure;
                match measure.map(OutsideMeasure::domain) {
                    Some((least, most)) if !(least..=most).contains(&value.value) => {
                        log.error(value.place, format!("`{}` cannot be {}", shortened(&name.value), value.value))
                            .help(format!("write a number from {least} to {most}"));
                    }
                    _ => self.conditions[place as usize].1 = Some(millionths(value.value)),
                }
            }
            return;
        }
        if *section == "host" {
            let hosts = Names::new("host", self.hosts.iter().map(|host| host.name.as_str()));
            let host = hosts.find(log, AtPlace::new(name.value.as_str(), name.place)).map(HostId);
            match (host, table.given(log, key, InputValue::truth)) {
                (Some(host), Some(AtPlace { value: true, .. })) => self.disabled.remove(&host),
                (Some(host), Some(AtPlace { value: false, .. })) => self.disabled.insert(host),
                _ => false,
            };
            return;
        }
        let Some(link) = self.names.find(log, AtPlace::new(name.value.as_str(), name.place)) else { return };
        let declared = self.links[link as usize].setting();
        let mut setting = self.changed.get(&link).copied().unwrap_or(declared);
        if *key == "loss" {
            setting.loss_ppm = table.given(log, key, InputValue::share_ppm).map_or(0, |loss| loss.value);
        } else if let Some(delay) = table.given(log, key, link_delay) {
            setting.delay = delay.value;
        }
        self.changed.insert(link, setting);
    }

    fn environment(&self) -> Environment {
        let differs = |(link, setting): &(&u32, &LinkSetting)| self.links[**link as usize].setting() != **setting;
        Environment {
            links: self.changed.iter().filter(differs).map(|(link, setting)| (*link, *setting)).collect(),
            disabled: self.disabled.iter().copied().collect(),
            conditions: self.conditions.iter().map(|(_, value)| *value).collect(),
        }
    }
}

/// Links by their names, `A-B` and `B-A`.
#[derive(Default)]
pub(super) struct LinkNames {
    /// `None` for a name of two links: names of hosts may have dashes.
    positions: HashMap<String, Option<u32>>,
    in_order: Vec<String>,
}

impl LinkNames {
    pub fn new(links: &[Link], hosts: &[Host]) -> LinkNames {
        let mut names = LinkNames::default();
        (0u32..).zip(links).for_each(|(position, link)| names.add(position, link, hosts));
        names
    }

    /// The link of this name, if there is exactly one.
    pub fn position(&self, name: &str) -> Option<u32> {
        self.positions.get(name).copied().flatten()
    }

    fn add(&mut self, position: u32, link: &Link, hosts: &[Host]) {
        let [one, other] = [link.between.0, link.between.1].map(|host| hosts[host.index()].name.as_str());
        for name in [format!("{one}-{other}"), format!("{other}-{one}")] {
            self.positions
                .entry(name)
                .and_modify(|known| *known = known.filter(|known| *known == position))
                .or_insert(Some(position));
        }
        self.in_order.push(format!("{one}-{other}"));
    }

    pub fn find(&self, log: &mut Log, name: AtPlace<&str>) -> Option<u32> {
        let written = shortened(name.value);
        match self.positions.get(name.value) {
            Some(Some(position)) => return Some(*position),
            Some(None) => {
                log.error(name.place, format!("`{written}` is the name of two links"))
                    .help("rename a host: dashes in host names make this ambiguous");
            }
            None => {
                let nearest = log.nearest(name.value, self.in_order.iter().map(String::as_str));
                let help = match (nearest, &self.in_order[..]) {
                    (Some(nearest), _) => format!("did you mean `{nearest}`?"),
                    (None, []) => "declare it: [[link]] with `between` and `delay`".to_string(),
                    (None, names) if names.len() <= 12 => format!("declared: {}", names.join(", ")),
                    (None, _) => "write the names of its two hosts with a dash between them".to_string(),
                };
                log.error(name.place, format!("there is no link `{written}`")).label("not declared").help(help);
            }
        }
        None
    }
}
