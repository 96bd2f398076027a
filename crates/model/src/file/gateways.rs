//! `[host.NAME.gateway]`: a session of Zenoh for programs outside the system.

use std::collections::{BTreeMap, HashMap};

use super::events::{is_pattern, unknown};
use super::expand::Operations;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::machines;
use super::names::Names;
use super::operation::refuse_twice;
use super::table::Table;
use super::value::{InputValue, complain, shortened};
use crate::endpoint::Endpoint;
use crate::event::{Event, matches};
use crate::gateway::{Gateway, GatewayMode};
use crate::ids::{HostId, OperationId};
use crate::object::ServedObject;
use crate::system::{Host, Processor};

/// Reads the gateways of the hosts, which have none yet.
pub(super) fn resolve(
    log: &mut Log,
    tables: &[(HostId, Table<'_>)],
    hosts: &mut [Host],
    (processors, events, objects): (&[Processor], &[Event], &[ServedObject]),
    operations: &Operations<'_>,
) {
    let mut patterns = PatternResolver {
        events,
        names: Names::new("event", events.iter().map(|event| event.name.as_str())),
        // Otherwise a malformed operation may be the supplier.
        complete: !log.has_errors(),
        compared: 0,
    };
    let of_hosts = hosts.iter().flat_map(|host| host.endpoints.iter().chain(&host.zenoh));
    let of_objects = objects.iter().flat_map(|object| &object.endpoints);
    let others = of_hosts.chain(of_objects).chain(events.iter().flat_map(|event| &event.endpoints));
    let mut taken: HashMap<Endpoint, Option<Place>> = others.map(|endpoint| (endpoint.clone(), None)).collect();
    let mut gateway_of: HashMap<u32, Place> = HashMap::new();
    for (id, table) in tables {
        let host = &hosts[id.index()];
        let (mode, [listen, connect]) = connections(log, table, host);
        for endpoint in &listen {
            if let Some(first) = taken.insert(endpoint.value.clone(), Some(endpoint.place)) {
                let log = log.error(endpoint.place, format!("`{}` is used already", endpoint.value)).label("taken");
                let log = if let Some(first) = first { log.also(first, "by this gateway") } else { log };
                log.help("set another endpoint: a host, an object, an event or a gateway listens there");
            }
        }
        if !has_entries(table, "events") && !has_entries(table, "publish") {
            log.error(table.place, "the gateway has neither `events` nor `publish`")
                .help("add events = [\"**\"]: programs then read all events of this host");
        }
        let named = ["readers", "publishers"].map(|key| certificates(log, table, key, mode, [&listen, &connect]));
        let [readers, publishers] = named;
        let is_here = |supplier: &OperationId| processors[operations.of(*supplier).on.index()].host == *id;
        // Programs of Zenoh cannot register for a rate.
        let is_open = |supplier: &OperationId| {
            let one = operations.of(*supplier);
            is_here(supplier) && one.requested() && one.clients.is_none()
        };
        let read = patterns.select(log, (table, "events"), &is_here, &host.name);
        let published = patterns.select(log, (table, "publish"), &is_open, &host.name);
        for (event, place) in &published {
            if let Some(first) = gateway_of.insert(*event, *place) {
                let name = shortened(&events[*event as usize].name);
                log.error(*place, format!("two gateways publish event `{name}`"))
                    .also(first, "first here")
                    .help("keep one: each publication would be two events");
            }
        }
        hosts[id.index()].gateway = Some(Gateway {
            mode,
            listen: listen.into_iter().map(|endpoint| endpoint.value).collect(),
            connect: connect.into_iter().map(|endpoint| endpoint.value).collect(),
            events: read.into_keys().collect(),
            publish: published.into_keys().collect(),
            readers,
            publishers,
        });
    }
}

/// Whether a key is given, and is not an empty list.
fn has_entries(table: &Table<'_>, key: &str) -> bool {
    table.get(key).is_some_and(|value| value.get_ref().as_array().is_none_or(|all| !all.is_empty()))
}

/// The mode of a gateway, and its endpoints of `listen` and `connect`.
fn connections(log: &mut Log, table: &Table<'_>, host: &Host) -> (GatewayMode, [Vec<AtPlace<Endpoint>>; 2]) {
    let mode = table.choice(log, "mode").map_or(0, |choice| choice.value);
    let mode = [GatewayMode::Peer, GatewayMode::Client, GatewayMode::Router][mode];
    let endpoints = ["listen", "connect"].map(|key| endpoints(log, table, key, host));
    let mut own = HashMap::new();
    for endpoint in endpoints.iter().flatten() {
        if let Some(first) = own.insert(&endpoint.value, endpoint.place) {
            log.error(endpoint.place, format!("the gateway has the endpoint `{}` twice", endpoint.value))
                .also(first, "first here")
                .help("keep one");
        }
    }
    let (listens, connects) = (has_entries(table, "listen"), has_entries(table, "connect"));
    if mode == GatewayMode::Client && listens {
        log.error(table.place_of("listen"), "a gateway with mode = \"client\" does not listen")
            .help("remove `listen`, or write mode = \"peer\"");
    } else if mode == GatewayMode::Client && !connects {
        log.error(table.place, "the gateway has no router to connect to")
            .label("`connect` is missing")
            .help("add connect = [\"tcp/127.0.0.1:7447\"], with the address of a router");
    } else if !listens && !connects {
        log.error(table.place, "the gateway has no endpoint")
            .label("`listen` is missing")
            .help("add listen = [\"tcp/127.0.0.1:7460\"], or `connect` with the address of a router");
    }
    (mode, endpoints)
}

/// Endpoints that Zenoh can use; others are logged and omitted.
fn endpoints(log: &mut Log, table: &Table<'_>, key: &str, host: &Host) -> Vec<AtPlace<Endpoint>> {
    let mut endpoints = machines::endpoints(log, table, key);
    endpoints.retain(|endpoint| machines::is_for_zenoh(log, key, endpoint, ""));
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.value.is_exposed() && !host.insecure) {
        let text = endpoint.value.to_string();
        log.error(endpoint.place, format!("`{text}` is not encrypted and not on loopback"))
            .label("other machines can read and forge its events")
            .help(format!(
                "write \"{}\", or `insecure = true` in [host.{}] if the network is trusted",
                text.replacen("tcp/", "tls/", 1),
                shortened(&host.name)
            ));
    }
    endpoints
}

/// The names of certificates of a key; `None` if it is not there.
fn certificates(
    log: &mut Log,
    table: &Table<'_>,
    key: &str,
    mode: GatewayMode,
    endpoints: [&[AtPlace<Endpoint>]; 2],
) -> Option<Vec<String>> {
    let names = table.given(log, key, |given| match given.texts()? {
        names if names.is_empty() => complain("is empty", "name certificates, or remove it: then all may"),
        names => Ok(names),
    })?;
    refuse_twice(log, &names.value);
    for name in names.value.iter().filter(|name| name.value.is_empty() || name.value.chars().any(char::is_control)) {
        log.error(name.place, "no certificate has this name").help("write the common name of a certificate");
    }
    if mode == GatewayMode::Router {
        log.error(table.place_of(key), format!("`{key}` does not restrict a router"))
            .help("remove it, or write mode = \"peer\": a router forwards for all that can connect");
    }
    let mut endpoints = endpoints.into_iter().flatten();
    if let Some(endpoint) = endpoints.find(|endpoint| !matches!(endpoint.value, Endpoint::Tls(_))) {
        log.error(endpoint.place, format!("`{}` has no certificates", endpoint.value))
            .also(table.place_of(key), "required here")
            .help("write `tls/` endpoints only");
    }
    Some(names.value.into_iter().map(|name| name.value.to_string()).collect())
}

struct PatternResolver<'e> {
    events: &'e [Event],
    names: Names<'e>,
    /// All operations are well formed: an event without a supplier has none.
    complete: bool,
    /// Names that were compared with patterns so far.
    compared: usize,
}

impl PatternResolver<'_> {
    /// The events of a key that have such a supplier, with the places of their first patterns.
    fn select(
        &mut self,
        log: &mut Log,
        (table, key): (&Table<'_>, &str),
        is_supplier: &dyn Fn(&OperationId) -> bool,
        host: &str,
    ) -> BTreeMap<u32, Place> {
        let mut selected = BTreeMap::new();
        for pattern in table.given(log, key, InputValue::texts).map_or(Vec::new(), |patterns| patterns.value) {
            if !is_pattern(log, pattern) {
                continue;
            }
            let is_name = !pattern.value.contains('*');
            self.compared += if is_name { 1 } else { self.events.len() };
            if self.compared > limits::EDGES {
                log.error(pattern.place, "too many patterns of events")
                    .help(format!("the number of patterns times the events is at most {}", limits::EDGES));
                break;
            }
            let found: Vec<u32> = if is_name {
                self.names.get(pattern.value).into_iter().collect()
            } else {
                let all = self.events.iter().zip(0..);
                all.filter(|(event, _)| matches(pattern.value, &event.name)).map(|(_, event)| event).collect()
            };
            if found.is_empty() {
                unknown(log, &self.names, pattern);
                continue;
            }
            let mut fitting = found
                .into_iter()
                .filter(|event| self.events[*event as usize].suppliers.iter().any(is_supplier))
                .peekable();
            if fitting.peek().is_none() && self.complete {
                let (shown, how) = match key {
                    "publish" => (shortened(pattern.value), " with `called = true` and without `clients`"),
                    _ => (shortened(pattern.value), ""),
                };
                log.error(pattern.place, format!("no operation of host `{host}` supplies `{shown}`{how}"))
                    .help("remove it, or add such an operation; a gateway is for the events of its own host");
            }
            for event in fitting {
                selected.entry(event).or_insert(pattern.place);
            }
        }
        selected
    }
}
