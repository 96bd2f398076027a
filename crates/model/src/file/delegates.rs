//! `[delegate.NAME]`: delegates around the servants of objects, and in front of objects of other programs.

use super::limits;
use super::log::{AtPlace, Log, Place};
use super::machines;
use super::names::Names;
use super::table::{Table, in_order, log_complaint};
use super::value::{InputValue, shortened};
use crate::delegate::{ALL_OPERATIONS, DeclaredBehaviour, DeclaredDelegate, DeclaredProxy, DelegatePlace};
use crate::endpoint::Endpoint;
use crate::ids::HostId;
use crate::object::ServedObject;
use crate::system::Host;

const SUCH_AS: &str = "behaviour = { \"*\" = \"pass\", zoom = \"thin:10Hz\" }";

pub(super) fn read(log: &mut Log, top: &Table<'_>, hosts: &[Host], objects: &[ServedObject]) -> Vec<DeclaredDelegate> {
    let names = Names::new("object", objects.iter().map(|object| object.name.as_str()));
    let hosts = Names::new("host", hosts.iter().map(|host| host.name.as_str()));
    let tables = top.named(log, "delegate");
    if let Some((name, _)) = tables.get(limits::DELEGATES) {
        log.error(name.place, "too many delegates").help(format!("a system has at most {}", limits::DELEGATES));
    }
    let mut delegates: Vec<(DeclaredDelegate, Place)> = Vec::new();
    for (name, table) in tables {
        let object = table.given(log, "object", InputValue::text);
        let to = reference(log, &table, "to");
        if to.is_none() && table.get("to").is_some() {
            continue;
        }
        let redirect = reference(log, &table, "redirect");
        let shape = DelegateShape { is_proxy: to.is_some(), redirects: redirect.is_some() };
        let behaviours = behaviours(log, &table, shape);
        if let (Some(object), Some(to)) = (&object, &to) {
            log.error(to.place, format!("`{}` has both `object` and `to`", shortened(name.value)))
                .also(object.place, "`object` is here")
                .help("keep `object` for an object of the file, or `to` for that of another program");
            continue;
        }
        let place = match (object, to) {
            (_, Some(to)) => proxy(log, name, &table, &hosts, to.value.into()).map(DelegatePlace::Proxy),
            (Some(object), None) => {
                only_of_proxies(log, &table);
                names.find(log, object).map(|object| DelegatePlace::Servant(object as u16))
            }
            (None, None) => {
                log.error(name.place, format!("`{}` has no object", shortened(name.value)))
                    .help("write `object = \"NAME\"` for an object of the file, or `to = \"corbaloc:...\"` for that of another program");
                None
            }
        };
        let Some(place) = place else { continue };
        let at = object.map_or(name.place, |object| object.place);
        let is_same = |one: &DeclaredDelegate| match (&one.place, &place) {
            (DelegatePlace::Servant(_), _) => one.place == place,
            (DelegatePlace::Proxy(one), DelegatePlace::Proxy(own)) => one.host == own.host && one.listen == own.listen,
            _ => false,
        };
        if let Some((_, first)) = delegates.iter().find(|(one, _)| is_same(one)) {
            let (message, help) = match object {
                Some(object) => {
                    let message = format!("`{}` has two delegates", shortened(object.value));
                    (message, "write the behaviours of all its operations in one delegate")
                }
                None => ("two proxies have the same `listen`".to_owned(), "set another port for each proxy"),
            };
            log.error(at, message).also(*first, "here").help(help);
            continue;
        }
        let redirect = redirect.map(|given| Box::from(given.value));
        delegates.push((DeclaredDelegate { name: name.value.into(), place, behaviours, redirect }, at));
    }
    delegates.into_iter().map(|(delegate, _)| delegate).collect()
}

/// A reference of bounded length; a longer one is logged and omitted.
fn reference<'a>(log: &mut Log, table: &Table<'a>, key: &str) -> Option<AtPlace<&'a str>> {
    let given = table.given(log, key, InputValue::text)?;
    if given.value.len() <= limits::REFERENCE {
        return Some(given);
    }
    log.error(given.place, format!("the reference has {} bytes", given.value.len()))
        .help(format!("write one of at most {}, such as a corbaloc:", limits::REFERENCE));
    None
}

fn proxy(
    log: &mut Log,
    name: AtPlace<&str>,
    table: &Table<'_>,
    hosts: &Names<'_>,
    to: Box<str>,
) -> Option<DeclaredProxy> {
    let host = table.given(log, "host", InputValue::text);
    let host = hosts.find_or_only(log, host, name);
    let insecure = table.given(log, "insecure", InputValue::truth).is_some_and(|insecure| insecure.value);
    let Some(written) = table.given(log, "listen", InputValue::text) else {
        log.error(name.place, format!("`{}` has no `listen`", shortened(name.value)))
            .help("add where clients connect: listen = \"tcp/127.0.0.1:2810\"");
        return None;
    };
    let endpoint = machines::parsed(log, written)?;
    let is_exposed = endpoint.value.is_exposed();
    let Endpoint::Tcp(listen) = endpoint.value else {
        log.error(endpoint.place, format!("a proxy cannot listen at `{}`", endpoint.value))
            .help("write \"tcp/ADDRESS:PORT\"");
        return None;
    };
    if is_exposed && !insecure {
        log.error(endpoint.place, "the endpoint is not encrypted and not on loopback")
            .label("other machines can read and forge its requests")
            .help("write `insecure = true` if the network is trusted: a proxy cannot use TLS");
    }
    Some(DeclaredProxy { host: HostId(host?), to, listen })
}

/// Logs keys that only a proxy has.
fn only_of_proxies(log: &mut Log, table: &Table<'_>) {
    for key in ["host", "listen", "insecure"].into_iter().filter(|key| table.get(key).is_some()) {
        log.error(table.place_of(key), format!("`{key}` is only for proxies"))
            .help("remove it, or write `to` in place of `object` for an object of another program");
    }
}

/// What limits the behaviours of a delegate.
#[derive(Clone, Copy)]
pub(super) struct DelegateShape {
    is_proxy: bool,
    /// It has a reference for `redirect`.
    redirects: bool,
}

impl DelegateShape {
    pub(super) fn of(delegate: &DeclaredDelegate) -> DelegateShape {
        DelegateShape { is_proxy: delegate.object().is_none(), redirects: delegate.redirect.is_some() }
    }
}

fn behaviours(log: &mut Log, table: &Table<'_>, shape: DelegateShape) -> Vec<(Box<str>, DeclaredBehaviour)> {
    let given = table.given(log, "behaviour", |given| given.table(SUCH_AS));
    let Some(given) = given else { return Vec::new() };
    if given.value.len() > limits::BEHAVIOURS {
        log.error(given.place, format!("`behaviour` has {} operations", given.value.len()))
            .help(format!("write at most {}, and \"*\" for all other operations", limits::BEHAVIOURS));
        return Vec::new();
    }
    let mut behaviours = Vec::new();
    for (operation, value) in in_order(given.value) {
        let name = operation.get_ref();
        let place = Place::from(value.span());
        match InputValue::of(value.get_ref()).text() {
            Ok(text) => {
                let is_known = operation_name(log, AtPlace::new(name, operation.span().into()));
                let behaviour = behaviour(log, AtPlace::new(text, place), shape);
                behaviours.extend(behaviour.filter(|_| is_known).map(|behaviour| (Box::from(&**name), behaviour)));
            }
            Err(complaint) => log_complaint(log, name, place, complaint),
        }
    }
    behaviours
}

/// Whether an operation of an interface can have this name; otherwise it is logged.
pub(super) fn operation_name(log: &mut Log, name: AtPlace<&str>) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = !name.value.is_empty() && name.value.len() <= limits::NAME && name.value.chars().all(is_word);
    if !is_name && name.value != ALL_OPERATIONS {
        log.error(name.place, format!("`{}` cannot be an operation of an interface", shortened(name.value)))
            .help("write its name in IDL (an attribute is _get_NAME and _set_NAME), or \"*\" for all other operations");
    }
    is_name || name.value == ALL_OPERATIONS
}

/// `"thin:10Hz"`; `None`, logged, if the delegate cannot have it.
pub(super) fn behaviour(log: &mut Log, text: AtPlace<&str>, shape: DelegateShape) -> Option<DeclaredBehaviour> {
    let error = match text.value.parse::<DeclaredBehaviour>() {
        Ok(DeclaredBehaviour::Redirect) if !shape.redirects => {
            "the delegate has no reference to redirect to; write redirect = \"corbaloc::HOST:PORT/KEY\" in its table"
                .into()
        }
        Ok(behaviour) if behaviour.is_of_proxies() && !shape.is_proxy => {
            let text = shortened(text.value);
            format!(
                "`{text}` is only for proxies; write another behaviour, or `to` in place of `object` for an object of another program"
            )
        }
        Ok(behaviour) => return Some(behaviour),
        Err(error) => error,
    };
    let (what, help): (&str, &str) = match error.split_once("; ") {
        Some(parts) => parts,
        None => (&error, SUCH_AS),
    };
    log.error(text.place, what.to_owned()).help(help.to_owned());
    None
}
