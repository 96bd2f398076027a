//! `endpoints` of `[event.NAME]`: where CORBA programs receive and publish an event.

use std::collections::HashMap;

use super::events::DeclaredEvent;
use super::expand::Operations;
use super::log::{Log, Place};
use super::value::shortened;
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::object::ServedObject;
use crate::system::{Host, Processor};

/// Checks that the node of one host can serve each event at its endpoints, and that no host or object uses them.
pub(super) fn check(
    log: &mut Log,
    (declared, events): (&[DeclaredEvent<'_>], &[Event]),
    (hosts, processors, objects): (&[Host], &[Processor], &[ServedObject]),
    operations: &Operations<'_>,
) {
    // Otherwise a malformed operation may be the supplier.
    let complete = !log.has_errors();
    let of_nodes = hosts.iter().flat_map(|host| &host.endpoints).map(|endpoint| (endpoint, "a host's node"));
    let of_objects = objects.iter().flat_map(|object| &object.endpoints).map(|endpoint| (endpoint, "an object"));
    let others: HashMap<&Endpoint, &str> = of_objects.chain(of_nodes).collect();
    let mut first_of: HashMap<&Endpoint, (Place, usize)> = HashMap::new();
    for (at, (one, event)) in declared.iter().zip(events).enumerate() {
        let Some(first) = one.endpoints.first() else { continue };
        let shown = shortened(one.name.value);
        let host = |id: &crate::ids::OperationId| processors[operations.of(*id).on.index()].host;
        match event.suppliers.first() {
            Some(supplier) => {
                let other = event.suppliers.iter().find(|other| host(other) != host(supplier));
                if let Some(other) = other {
                    let (supplier, other) = (operations.name(*supplier), operations.name(*other));
                    log.error(first.place, format!("the suppliers of `{shown}` are on several hosts"))
                        .label(format!("`{supplier}` and `{other}`"))
                        .help("declare an event for each host: the node of one host serves the endpoints");
                }
            }
            None if complete => {
                log.error(first.place, format!("no operation supplies event `{shown}`"))
                    .help(format!("add `supplies = [\"{shown}\"]` to an operation, or remove `endpoints`"));
            }
            None => {}
        }
        for endpoint in &one.endpoints {
            let (place, endpoint) = (endpoint.place, &endpoint.value);
            let (first, with) = *first_of.entry(endpoint).or_insert((place, at));
            if let Some(other) = others.get(endpoint) {
                log.error(place, format!("`{endpoint}` is an endpoint of {other}"))
                    .label("taken")
                    .help("set another endpoint for events");
            } else if events[with].endpoints != event.endpoints {
                log.error(place, format!("`{endpoint}` belongs to an event with other endpoints"))
                    .label("taken")
                    .also(first, "by this one")
                    .help("write the same `endpoints` for both events, or lists without a common endpoint");
            } else if with != at && events[with].suppliers.first().map(host) != event.suppliers.first().map(host) {
                log.error(place, format!("`{endpoint}` belongs to an event of another host"))
                    .label("taken")
                    .also(first, "by this one")
                    .help("set another endpoint: the node of each host listens at its own");
            }
            if endpoint.is_exposed() && !one.insecure {
                log.error(place, format!("`{endpoint}` is not encrypted and not on loopback"))
                    .label("other machines can read and forge its events")
                    .help(format!(
                        "write \"{}\", or `insecure = true` in [event.\"{shown}\"] if the network is trusted",
                        endpoint.to_string().replacen("tcp/", "tls/", 1),
                    ));
            }
        }
    }
}
