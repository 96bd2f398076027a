//! Conditions with values from outside: `[condition.NAME]`, and `host.NAME.QUANTITY` in `watch` of contracts.

use super::log::Log;
use super::table::{Table, in_order};
use crate::ids::HostId;
use crate::outside::{HostMeasure, HostQuantity, OutsideCondition};
use crate::system::Host;

/// The declared ones in the file's order, then measured ones, by their first use. Contracts are read later: epochs set
/// these conditions.
pub(super) fn read(top: &Table<'_>, hosts: &[Host]) -> Vec<OutsideCondition> {
    // These tables are checked when their values are read.
    let declared = top.named(&mut Log::default(), "condition");
    let declared = declared.iter().map(|(name, _)| OutsideCondition { name: name.value.to_string(), measure: None });
    let mut all: Vec<OutsideCondition> = declared.collect();
    let declared = all.len();
    for (_, table) in top.named(&mut Log::default(), "contract") {
        let Some(watch) = table.get("watch").and_then(|watch| watch.get_ref().as_table()) else { continue };
        for (_, condition) in in_order(watch) {
            let of = condition.get_ref().as_table().and_then(|one| one.get("of")?.get_ref().as_str());
            let Some((name, measure)) = of.and_then(|name| Some((name, measure(name, hosts)?))) else { continue };
            if all[declared..].iter().all(|one| one.name != name) {
                all.push(OutsideCondition { name: name.to_string(), measure: Some(measure) });
            }
        }
    }
    all
}

/// What `host.NAME.QUANTITY` measures.
fn measure(text: &str, hosts: &[Host]) -> Option<HostMeasure> {
    let (host, quantity) = text.strip_prefix("host.")?.split_once('.')?;
    let place = hosts.iter().position(|one| one.name == host)?;
    Some(HostMeasure { host: HostId(place as u32), quantity: HostQuantity::of_name(quantity)? })
}
