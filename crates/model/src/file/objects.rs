//! `[object.NAME]`: objects whose requests are jobs.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::DeValue;

use super::expand::Operations;
use super::log::{AtPlace, Log, Place};
use super::machines::endpoints;
use super::table::{Table, in_order, log_complaint};
use super::value::{InputValue, complain, shortened};
use crate::endpoint::Endpoint;
use crate::ids::{OperationId, ProcessorId};
use crate::object::{ClientCeiling, ClientName, ServedObject};
use crate::system::Host;

pub(super) fn read(log: &mut Log, top: &Table<'_>, hosts: &[Host], operations: &Operations<'_>) -> Vec<ServedObject> {
    let of_nodes = |endpoint: &Endpoint| {
        hosts.iter().any(|host| host.endpoints.iter().chain(&host.zenoh).any(|own| own == endpoint))
    };
    let mut taken: HashMap<Endpoint, (Place, ProcessorId)> = HashMap::new();
    let mut objects = Vec::new();
    for (name, table) in top.named(log, "object") {
        let named = table.read(log, "operation", InputValue::one_or_several);
        let served = named.map(|named| named.value.into_iter().filter_map(|name| served(log, operations, name)));
        let served: Option<Vec<OperationId>> = served.map(|served| served.flatten().collect());
        let methods = methods(log, &table, operations);
        let insecure = table.read(log, "insecure", InputValue::truth).is_some_and(|insecure| insecure.value);
        let requests = table.whole(log, "requests").map_or(0, |requests| requests.value as u32);
        let clients = clients(log, &table);
        let written = endpoints(log, &table, "endpoints");
        let none_written = |given: InputValue<'_>| given.texts().is_ok_and(|texts| texts.is_empty());
        if table.get("endpoints").is_some_and(|value| none_written(InputValue::of(value.get_ref()))) {
            log.error(table.place_of("endpoints"), format!("`{}` has no endpoints", shortened(name.value)))
                .help("add where clients call it: \"tcp/127.0.0.1:7463\"");
        }
        let Some(first) = served.as_ref().and_then(|served| served.first().copied()) else { continue };
        let on = operations.of(first).on;
        let place = table.place_of("operation");
        let own_operations = served.iter().flatten().map(|id| AtPlace::new(*id, place));
        let all = own_operations
            .chain(methods.iter().flat_map(|(_, ids)| ids.value.iter().map(|id| AtPlace::new(*id, ids.place))));
        if let Some(other) = all.into_iter().find(|one| operations.of(one.value).on != on) {
            log.error(other.place, format!("`{}` is on another processor", operations.name(other.value)))
                .help(format!("all requests to an object are jobs of the processor of `{}`", operations.name(first)));
        }
        let mut own = Vec::new();
        for endpoint in written {
            let shown = &endpoint.value;
            let (first, with) = *taken.entry(shown.clone()).or_insert((endpoint.place, on));
            let own_endpoint = "set another endpoint: the threads of one processor read each endpoint";
            if of_nodes(shown) {
                log.error(endpoint.place, format!("`{shown}` is the endpoint of a host's node"))
                    .label("taken")
                    .help(own_endpoint);
            } else if with != on {
                log.error(endpoint.place, format!("`{shown}` belongs to an object of another processor"))
                    .label("taken")
                    .also(first, "by this one")
                    .help(own_endpoint);
            }
            if shown.is_exposed() && !insecure {
                log.error(endpoint.place, format!("`{shown}` is not encrypted and not on loopback"))
                    .label("other machines can read and forge its requests")
                    .help(format!(
                        "write \"{}\", or `insecure = true` in [object.{}] if the network is trusted",
                        shown.to_string().replacen("tcp/", "tls/", 1),
                        shortened(name.value)
                    ));
            }
            own.push(endpoint.value);
        }
        let methods = methods.into_iter().map(|(idl, operations)| (idl, operations.value)).collect();
        let (name, served) = (name.value.to_string(), served.unwrap_or_default());
        objects.push(ServedObject { name, operations: served, methods, endpoints: own, insecure, requests, clients });
    }
    objects
}

/// The operations of a name, if requests can release them: one with `called` that no operation calls, or a method's
/// instances for callers on other processors.
fn served(log: &mut Log, operations: &Operations<'_>, name: AtPlace<&str>) -> Option<Vec<OperationId>> {
    let found: Vec<_> = operations.find(log, name)?.into_iter().flatten().map(OperationId).collect();
    for id in &found {
        let declared = operations.of(*id);
        if declared.requested() {
            continue;
        }
        let caller = operations.caller(*id);
        if caller.is_some_and(|caller| operations.of(caller).on != declared.on) {
            continue;
        }
        let shown = shortened(name.value);
        let log = log.error(name.place, format!("requests do not release `{shown}`"));
        let log = log.also(declared.name.place, "declared here");
        log.help(match caller {
            Some(_) => {
                "its caller is on the same processor: move the method, or declare another operation for requests"
            }
            None => "write `called = true` in place of `rate`, `every` or `after`",
        });
        return None;
    }
    Some(found)
}

/// `methods = { reset = "reset" }`: operations of the interface and of the file.
fn methods(log: &mut Log, table: &Table<'_>, operations: &Operations<'_>) -> Vec<(String, AtPlace<Vec<OperationId>>)> {
    let given = table.given(log, "methods", |given| given.table("methods = { reset = \"reset\" }"));
    let mut methods = Vec::new();
    for (idl, value) in given.map_or(Vec::new(), |given| in_order(given.value)) {
        let place = Place::from(value.span());
        match InputValue::of(value.get_ref()).one_or_several() {
            Ok(names) => {
                let at = |name: AtPlace<&'_ str>| if name.place == Place::default() { place } else { name.place };
                let found =
                    names.into_iter().filter_map(|name| served(log, operations, AtPlace::new(name.value, at(name))));
                let found: Vec<OperationId> = found.flatten().collect();
                if !found.is_empty() {
                    methods.push((idl.get_ref().to_string(), AtPlace::new(found, place)));
                }
            }
            Err(complaint) => log_complaint(log, idl.get_ref(), place, complaint),
        }
    }
    methods
}

fn clients(log: &mut Log, table: &Table<'_>) -> Vec<ClientCeiling> {
    let given = table.given(log, "clients", InputValue::list);
    let (mut clients, mut first_of) = (Vec::new(), HashMap::new());
    for item in given.map_or(&[][..], |given| given.value) {
        let Some((ceiling, place)) = client(log, item) else { continue };
        if let Some(first) = first_of.insert(ceiling.client.clone(), place) {
            log.error(place, "this client has an entry already").also(first, "here").help("keep one");
        }
        clients.push(ceiling);
    }
    clients
}

fn client(log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<(ClientCeiling, Place)> {
    let place = Place::from(item.span());
    let example = "clients = [{ certificate = \"drone\", importance = 5 }]";
    let table = match InputValue::of(item.get_ref()).table(example) {
        Ok(table) => Table::open(log, "object.clients", "", place, table)?,
        Err(complaint) => {
            log_complaint(log, "clients", place, complaint);
            return None;
        }
    };
    let network = |given: InputValue<'_>| match ClientName::address(given.text()?) {
        Some(name) => Ok(name),
        None => complain("is not an IP address", "write \"10.0.0.7\", or a network such as \"10.0.0.0/24\""),
    };
    let certificate = table.given(log, "certificate", InputValue::text);
    let user = table.given(log, "user", InputValue::text);
    let address = table.given(log, "address", network).map(|address| address.value);
    let importance = table.whole(log, "importance").map(|importance| importance.value as u32);
    let critical = table.read(log, "critical", InputValue::truth).is_none_or(|critical| critical.value);
    let min_interval = table.given(log, "min_interval", InputValue::positive_time).map(|time| time.value);
    let refuses = table.choice(log, "excess").is_some_and(|choice| choice.value == 1);
    let names: Vec<ClientName> = [
        certificate.map(|name| ClientName::Certificate(name.value.to_string())),
        user.map(|name| ClientName::User(name.value.to_string())),
        address,
    ]
    .into_iter()
    .flatten()
    .collect();
    let [client] = &names[..] else {
        let written = ["certificate", "user", "address"].iter().filter(|key| table.get(key).is_some()).count();
        if !table.misread && written != 1 {
            log.error(place, "a client has exactly one of `certificate`, `user` and `address`")
                .help("write { user = \"pilot\" }, { certificate = \"drone\" } or { address = \"10.0.0.0/24\" }");
        }
        return None;
    };
    Some((ClientCeiling { client: client.clone(), importance, critical, min_interval, refuses }, place))
}
