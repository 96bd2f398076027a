//! `clients` of `[operation.NAME]`: clients of an object, or publishers of an event, with rates that the loop of the
//! processor sets.

use super::expand::Operations;
use super::log::{AtPlace, Log};
use super::operation::read_period;
use super::table::Table;
use super::value::shortened;
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::feedback::FeedbackLoop;
use crate::ids::OperationId;
use crate::object::ClientRates;
use crate::system::Contents;

/// `None` without valid clients; logged if the operation has the key.
pub(super) fn read(log: &mut Log, table: &Table<'_>) -> Option<AtPlace<ClientRates>> {
    let inner = table.inner(log, "clients")?;
    let most = inner.whole(log, "most");
    let period = read_period(log, &inner);
    match ["rate", "every"].map(|key| inner.get(key).is_some()) {
        [true, true] => {
            log.error(inner.place, "`clients` has both `rate` and `every`").help("keep one of them");
            return None;
        }
        [false, false] if !inner.misread => {
            log.error(inner.place, "`clients` has no range of rates")
                .help("for example, write clients = { rate = [\"1Hz\", \"10Hz\"], most = 8 }");
        }
        _ => {}
    }
    let (shortest, longest) = period?.value;
    Some(AtPlace::new(ClientRates { most: most?.value as u16, shortest, longest }, inner.place))
}

/// False, logged, if an operation with clients has no loop with endpoints, or neither serves one object nor supplies an
/// event. Publishers of events can register without endpoints.
pub(super) fn check(
    log: &mut Log,
    contents: &Contents,
    operations: &Operations<'_>,
    loops: &[(AtPlace<&str>, FeedbackLoop)],
) -> bool {
    let mut sound = true;
    for (position, operation) in contents.operations.iter().enumerate() {
        let id = OperationId(position as u32);
        let Some(clients) = operations.of(id).clients else { continue };
        let (name, processor) = (shortened(&operation.name), &contents.processor(operation.on).name);
        let objects = contents.objects.iter().filter(|object| object.all_operations().any(|one| one == id));
        let objects: Vec<&str> = objects.map(|object| object.name.as_str()).collect();
        let mut supplied = contents.events.iter().filter(|event| event.suppliers.contains(&id)).peekable();
        let publishes = objects.is_empty() && supplied.peek().is_some();
        match loops.iter().find(|(_, one)| one.processor == operation.on) {
            None => {
                log.error(clients.place, format!("no feedback loop sets the rates of the clients of `{name}`"))
                    .help(format!("add [feedback.{processor}] with `endpoints`"));
                sound = false;
            }
            Some((at, one)) if one.algorithm.is_of_group() => {
                let algorithm = one.algorithm.name();
                log.error(at.place, format!("{algorithm} cannot set the rates of the clients of `{name}`"))
                    .also(clients.place, "the clients")
                    .help(format!("use FC-U, FC-M, FC-UM or FC-UM-fast in [feedback.{processor}]"));
                sound = false;
            }
            Some((at, one)) if one.endpoints.is_empty() && !publishes => {
                log.error(at.place, format!("the clients of `{name}` cannot register"))
                    .label("`endpoints` is missing")
                    .also(clients.place, "the clients")
                    .help("add an endpoint where they register: endpoints = [\"tcp/127.0.0.1:7465\"]");
                sound = false;
            }
            Some(_) => {}
        }
        if objects.is_empty() && !publishes {
            log.error(clients.place, format!("no object has the operation `{name}`, and it supplies no event")).help(
                format!("name `{name}` in one [object.NAME], which clients call, or let it supply an event, which clients publish"),
            );
            sound = false;
        }
        if objects.len() > 1 {
            log.error(clients.place, format!("several objects have the operation `{name}`: {}", objects.join(", ")))
                .help(format!("name `{name}` in one [object.NAME]: registered clients call that object"));
            sound = false;
        }
        if let Some(event) = supplied.find(|event| is_of_node(contents, event)) {
            let event = shortened(&event.name);
            log.error(clients.place, format!("the node itself publishes `{event}`, without a registration"))
                .help(format!("remove `clients`, or let an operation with `min_interval` supply `{event}`"));
            sound = false;
        }
    }
    sound
}

/// Whether nodes publish an event when they lose a host, or when it joins.
fn is_of_node(contents: &Contents, event: &Event) -> bool {
    let parts: Vec<&str> = event.name.split('/').collect();
    let ["host", host, "lost" | "joined"] = parts[..] else { return false };
    contents.hosts.iter().any(|one| one.name == host)
}

/// Whether CORBA programs can reach an operation: an object has it, or it supplies an event with endpoints.
fn has_endpoints(contents: &Contents, id: OperationId) -> bool {
    let has_object = contents.objects.iter().any(|object| object.all_operations().any(|one| one == id));
    has_object || contents.events.iter().any(|event| event.suppliers.contains(&id) && !event.endpoints.is_empty())
}

/// False, logged, if a loop has endpoints without need, or endpoints that are already in use or not protected.
pub(super) fn check_endpoints(
    log: &mut Log,
    (name, table): (AtPlace<&str>, &Table<'_>),
    contents: &Contents,
    (one, loops): (&FeedbackLoop, &[(AtPlace<&str>, FeedbackLoop)]),
) -> bool {
    let place = table.place_of("endpoints");
    let mut sound = true;
    let mut refuse = |message: String, help: String| {
        log.error(place, message).help(help);
        sound = false;
    };
    let mut with_clients = contents.with_clients_on(one.processor).peekable();
    if !one.endpoints.is_empty() && with_clients.peek().is_none() {
        let help = "remove `endpoints`, or add `clients` to an operation with `called = true`";
        refuse(format!("no operation on processor `{}` has `clients`", name.value), help.to_owned());
    } else if !one.endpoints.is_empty() && !with_clients.any(|id| has_endpoints(contents, id)) {
        let help = "add `endpoints` to [event.NAME], or remove these: `hyoshi events publish --rate` needs none";
        let processor = shortened(name.value);
        refuse(format!("no event that clients on processor `{processor}` publish has `endpoints`"), help.to_owned());
    }
    let of_hosts = contents.hosts.iter().flat_map(|host| &host.endpoints);
    let of_objects = contents.objects.iter().flat_map(|object| &object.endpoints);
    let of_events = contents.events.iter().flat_map(|event| &event.endpoints);
    let of_loops = loops.iter().flat_map(|(_, other)| &other.endpoints);
    let taken: Vec<&Endpoint> = of_hosts.chain(of_objects).chain(of_events).chain(of_loops).collect();
    for (at, endpoint) in one.endpoints.iter().enumerate() {
        if taken.contains(&endpoint) || one.endpoints[..at].contains(endpoint) {
            let help = "use another port or path: each loop needs endpoints of its own";
            refuse(format!("the endpoint `{endpoint}` is already in use"), help.to_owned());
        }
        if endpoint.is_exposed() && !one.insecure {
            let secure = endpoint.to_string().replacen("tcp/", "tls/", 1);
            let loop_name = shortened(name.value);
            let help =
                format!("write \"{secure}\", or `insecure = true` in [feedback.{loop_name}] if the network is trusted");
            refuse(format!("`{endpoint}` is not encrypted and not on loopback"), help);
        }
    }
    sound
}
