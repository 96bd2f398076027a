//! Conditions with values from outside: `[condition.NAME]`, and `host.NAME.QUANTITY` and
//! `delegate.NAME.QUANTITY` in `watch` of contracts.

use toml::de::DeValue;

use super::log::Log;
use super::qoskets::UsedQosket;
use super::table::{Table, in_order};
use crate::delegate::ServantDelegate;
use crate::ids::HostId;
use crate::outside::{DelegateMeasure, DelegateQuantity, HostMeasure, HostQuantity, OutsideCondition, OutsideMeasure};
use crate::system::Host;

/// The declared ones in the file's order, then measured ones, by their first use. Contracts are read later: epochs set
/// these conditions.
pub(super) fn read(
    (top, qoskets): (&Table<'_>, &[UsedQosket<'_>]),
    hosts: &[Host],
    delegates: &[ServantDelegate],
) -> Vec<OutsideCondition> {
    // These tables are checked when their values are read.
    let declared = top.named(&mut Log::default(), "condition");
    let declared = declared.iter().map(|(name, _)| OutsideCondition { name: name.value.to_string(), measure: None });
    let mut all: Vec<OutsideCondition> = declared.collect();
    let declared = all.len();
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
            let Some((name, measure)) = of.and_then(|name| Some((name, measure(name, hosts, delegates)?))) else {
                continue;
            };
            if all[declared..].iter().all(|one| one.name != name) {
                all.push(OutsideCondition { name: name.to_string(), measure: Some(measure) });
            }
        }
    }
    all
}

/// What `host.NAME.QUANTITY` or `delegate.NAME.QUANTITY` measures.
fn measure(text: &str, hosts: &[Host], delegates: &[ServantDelegate]) -> Option<OutsideMeasure> {
    if let Some((delegate, quantity)) = text.strip_prefix("delegate.").and_then(|rest| rest.split_once('.')) {
        let delegate = delegates.iter().position(|one| one.name == delegate)? as u16;
        let quantity = DelegateQuantity::of_name(quantity)?;
        return Some(OutsideMeasure::Delegate(DelegateMeasure { delegate, quantity }));
    }
    let (host, quantity) = text.strip_prefix("host.")?.split_once('.')?;
    let place = hosts.iter().position(|one| one.name == host)?;
    let quantity = HostQuantity::of_name(quantity)?;
    Some(OutsideMeasure::Host(HostMeasure { host: HostId(place as u32), quantity }))
}
