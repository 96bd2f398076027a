//! `[delegate.NAME]`: delegates around the servants of objects.

use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::table::{Table, in_order, log_complaint};
use super::value::{InputValue, shortened};
use crate::delegate::{ALL_OPERATIONS, ServantBehaviour, ServantDelegate};
use crate::object::ServedObject;

const SUCH_AS: &str = "behaviour = { \"*\" = \"pass\", zoom = \"thin:10Hz\" }";

pub(super) fn read(log: &mut Log, top: &Table<'_>, objects: &[ServedObject]) -> Vec<ServantDelegate> {
    let names = Names::new("object", objects.iter().map(|object| object.name.as_str()));
    let tables = top.named(log, "delegate");
    if let Some((name, _)) = tables.get(limits::DELEGATES) {
        log.error(name.place, "too many delegates").help(format!("a system has at most {}", limits::DELEGATES));
    }
    let mut delegates: Vec<(ServantDelegate, Place)> = Vec::new();
    for (name, table) in tables {
        let redirect = table.given(log, "redirect", InputValue::text);
        if let Some(long) = redirect.as_ref().filter(|given| given.value.len() > limits::REFERENCE) {
            log.error(long.place, format!("the reference has {} bytes", long.value.len()))
                .help(format!("write one of at most {}, such as a corbaloc:", limits::REFERENCE));
            continue;
        }
        let redirect = redirect.map(|given| Box::from(given.value));
        let behaviours = behaviours(log, &table, redirect.is_some());
        let Some(given) = table.read(log, "object", InputValue::text) else { continue };
        let Some(object) = names.find(log, given) else { continue };
        let object = object as u16;
        if let Some((_, first)) = delegates.iter().find(|(one, _)| one.object == object) {
            log.error(given.place, format!("`{}` has two delegates", shortened(given.value)))
                .also(*first, "here")
                .help("write the behaviours of all its operations in one delegate");
            continue;
        }
        delegates.push((ServantDelegate { name: name.value.into(), object, behaviours, redirect }, given.place));
    }
    delegates.into_iter().map(|(delegate, _)| delegate).collect()
}

fn behaviours(log: &mut Log, table: &Table<'_>, redirects: bool) -> Vec<(Box<str>, ServantBehaviour)> {
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
                let behaviour = behaviour(log, AtPlace::new(text, place), redirects);
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

/// `"thin:10Hz"`; `None`, logged, if it is wrong. `redirects`: the delegate has a reference for it.
pub(super) fn behaviour(log: &mut Log, text: AtPlace<&str>, redirects: bool) -> Option<ServantBehaviour> {
    let error = match text.value.parse() {
        Ok(ServantBehaviour::Redirect) if !redirects => {
            "the delegate has no reference to redirect to; write redirect = \"corbaloc::HOST:PORT/KEY\" in its table"
                .into()
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
