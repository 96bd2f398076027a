//! Conditions with values from outside: `[condition.NAME]`, and in `watch` of contracts `host.NAME.QUANTITY`,
//! `link.A-B.QUANTITY`, `reservation.NAME.QUANTITY` and `delegate.NAME.QUANTITY`.

use toml::de::DeValue;

use super::environment::LinkNames;
use super::log::Log;
use super::qoskets::UsedQosket;
use super::table::{Table, in_order};
use crate::delegate::DeclaredDelegate;
use crate::ids::{HostId, ProgramId};
use crate::outside::{
    DelegateMeasure, DelegateQuantity, HostMeasure, HostQuantity, LinkMeasure, LinkQuantity, OutsideCondition,
    OutsideMeasure, ReservationMeasure, ReservationQuantity,
};
use crate::program::Program;
use crate::system::{Host, Link};

/// What can be measured.
#[derive(Clone, Copy)]
pub(super) struct MeasuredParts<'a> {
    pub hosts: &'a [Host],
    pub links: &'a [Link],
    pub programs: &'a [Program],
    pub delegates: &'a [DeclaredDelegate],
}

/// The declared ones in the file's order, then measured ones, by their first use. Contracts are read later: epochs set
/// these conditions.
pub(super) fn read((top, qoskets): (&Table<'_>, &[UsedQosket<'_>]), parts: MeasuredParts<'_>) -> Vec<OutsideCondition> {
    // These tables are checked when their values are read.
    let declared = top.named(&mut Log::default(), "condition");
    let declared = declared.iter().map(|(name, _)| OutsideCondition { name: name.value.to_string(), measure: None });
    let mut all: Vec<OutsideCondition> = declared.collect();
    let tables = top.named(&mut Log::default(), "contract");
    let declared_ones = tables.iter().filter_map(|(_, table)| table.get("watch"));
    let expanded: Vec<_> = qoskets.iter().filter_map(|qosket| qosket.expand(&mut Log::default())).collect();
    let of_qoskets = expanded.iter().filter_map(|one| one.contract.get("watch"));
    for watch in declared_ones.chain(of_qoskets).filter_map(|watch| watch.get_ref().as_table()) {
        for (_, condition) in in_order(watch) {
            let of = condition.get_ref().as_table().and_then(|one| one.get("of")).and_then(|of| match of.get_ref() {
                DeValue::Array(several) if several.len() == 1 => several[0].get_ref().as_str(),
                one => one.as_str(),
            });
            let Some(measure) = of.and_then(|name| measure(name, parts)) else { continue };
            if all.iter().all(|one| one.measure != Some(measure)) {
                all.push(OutsideCondition { name: name(measure, parts), measure: Some(measure) });
            }
        }
    }
    all
}

/// What `host.NAME.QUANTITY` and similar measure.
pub(super) fn measure(text: &str, parts: MeasuredParts<'_>) -> Option<OutsideMeasure> {
    let (section, rest) = text.split_once('.')?;
    match section {
        "host" => {
            let (host, quantity) = rest.split_once('.')?;
            let place = parts.hosts.iter().position(|one| one.name == host)?;
            let quantity = HostQuantity::of_name(quantity)?;
            Some(OutsideMeasure::Host(HostMeasure { host: HostId(place as u32), quantity }))
        }
        "link" => {
            let (link, quantity) = rest.rsplit_once('.')?;
            let link = LinkNames::new(parts.links, parts.hosts).position(link)?;
            let quantity = LinkQuantity::of_name(quantity)?;
            Some(OutsideMeasure::Link(LinkMeasure { link: link.try_into().ok()?, quantity }))
        }
        "reservation" => {
            let (program, quantity) = rest.rsplit_once('.')?;
            let place = parts.programs.iter().position(|one| one.name == program)?;
            let quantity = ReservationQuantity::of_name(quantity)?;
            Some(OutsideMeasure::Reservation(ReservationMeasure { program: ProgramId(place as u32), quantity }))
        }
        "delegate" => {
            let (delegate, quantity) = rest.split_once('.')?;
            let place = parts.delegates.iter().position(|one| one.name == delegate)?;
            let quantity = DelegateQuantity::of_name(quantity)?;
            Some(OutsideMeasure::Delegate(DelegateMeasure { delegate: place.try_into().ok()?, quantity }))
        }
        _ => None,
    }
}

/// As written in files. A link has the order of its hosts in `between`.
fn name(measure: OutsideMeasure, parts: MeasuredParts<'_>) -> String {
    let host = |host: HostId| &parts.hosts[host.index()].name;
    match measure {
        OutsideMeasure::Host(HostMeasure { host: of, quantity }) => format!("host.{}.{}", host(of), quantity.name()),
        OutsideMeasure::Link(LinkMeasure { link, quantity }) => {
            let (one, other) = parts.links[usize::from(link)].between;
            format!("link.{}-{}.{}", host(one), host(other), quantity.name())
        }
        OutsideMeasure::Reservation(ReservationMeasure { program, quantity }) => {
            format!("reservation.{}.{}", parts.programs[program.index()].name, quantity.name())
        }
        OutsideMeasure::Delegate(DelegateMeasure { delegate, quantity }) => {
            format!("delegate.{}.{}", parts.delegates[usize::from(delegate)].name, quantity.name())
        }
    }
}
