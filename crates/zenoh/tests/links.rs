//! Priorities and links by the triggered operations, and key expressions.

use hyoshi_model::{Dscp, HostId};
use hyoshi_zenoh::{ZenohLink, key_expression, priority_of, remote_targets};
use zenoh::qos::Priority;

use crate::common::system;

#[test]
fn critical_targets_have_a_link_and_the_highest_priorities_and_importance_orders_the_rest() {
    let target = |name: &str, critical: bool, importance: u32| {
        format!(
            "[operation.{name}]\non = 'ground'\nafter = {{ all = ['sense'] }}\nwcet = '0.1ms'\ncritical = {critical}\n\
             importance = {importance}\n"
        )
    };
    let mut text = String::from(
        "name = 'a b'\n[host.drone]\n[host.'ground 1']\n[processor.air]\nhost = 'drone'\n[processor.ground]\n\
         host = 'ground 1'\n[operation.sense]\non = 'air'\nevery = '100ms'\nwcet = '0.1ms'\n\
         [operation.local]\non = 'air'\nafter = { all = ['sense'] }\nwcet = '0.1ms'\n",
    );
    let critical = [("c0", 1), ("c1", 9), ("c2", 0)].map(|(name, importance)| target(name, true, importance));
    let rest = [("r0", 5), ("r1", 4), ("r2", 3), ("r3", 2), ("r4", 1), ("r5", 5)];
    text.extend(critical);
    text.extend(rest.map(|(name, importance)| target(name, false, importance)));
    let system = system(&text);
    let targets = remote_targets(&system, HostId(0));
    assert!(targets.iter().all(|target| target.host == HostId(1)));
    let found: Vec<Priority> = targets.iter().map(|target| target.priority).collect();
    use Priority::*;
    let expected =
        [InteractiveHigh, RealTime, InteractiveHigh, InteractiveLow, DataHigh, Data, DataLow, DataLow, InteractiveLow];
    assert_eq!(found, expected);
    let links = found.into_iter().map(ZenohLink::of);
    assert!(links.enumerate().all(|(at, link)| (link == ZenohLink::Critical) == (at < 3)));
    assert!(remote_targets(&system, HostId(1)).is_empty());
    assert_eq!(key_expression(&system, HostId(0), HostId(1)), "hyoshi/a%20b/completions/drone/ground%201");
}

#[test]
fn a_dscp_has_a_priority_that_no_critical_completion_has() {
    use Priority::*;
    let named = ["LE", "CS0", "CS1", "AF11", "AF13", "CS2", "AF21", "CS3", "AF41", "EF", "CS6", "63"];
    let found = named.map(|name| priority_of(name.parse().unwrap()));
    let most = InteractiveLow;
    assert_eq!(found, [Background, DataLow, Background, Data, Data, DataHigh, DataHigh, most, most, most, most, most]);
    let all = (0..64).filter_map(Dscp::new).map(priority_of);
    assert!(all.clone().count() == 64 && all.map(ZenohLink::of).all(|link| link == ZenohLink::Other));
}
