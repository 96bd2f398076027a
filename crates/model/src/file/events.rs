//! `[event.NAME]` and `after = { event = ... }`: an operation after an event is an operation after the event's suppliers,
//! which every later crate understands.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::declared::{After, DeclaredOperation, SelectedEvents};
use super::expand::Operations;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::machines::endpoints;
use super::names::Names;
use super::operation::{read_payload, refuse_twice};
use super::table::Table;
use super::value::{InputValue, shortened};
use crate::endpoint::Endpoint;
use crate::event::{Event, matches};
use crate::ids::OperationId;

/// `[event.NAME]` as written.
pub(super) struct DeclaredEvent<'a> {
    pub name: AtPlace<&'a str>,
    payload: u32,
    keep: u32,
    pub endpoints: Vec<AtPlace<Endpoint>>,
    pub insecure: bool,
}

pub(super) fn read<'a>(log: &mut Log, top: &Table<'a>) -> Vec<DeclaredEvent<'a>> {
    let mut tables = top.named(log, "event");
    if let Some((name, _)) = tables.get(limits::EVENTS) {
        log.error(name.place, "too many events").help(format!("a system has at most {} of them", limits::EVENTS));
        tables.truncate(limits::EVENTS);
    }
    let event = |(name, table): (AtPlace<&'a str>, Table<'a>)| {
        let keep = table.whole(log, "keep").map_or(0, |keep| keep.value as u32);
        let insecure = table.read(log, "insecure", InputValue::truth).is_some_and(|insecure| insecure.value);
        let (payload, endpoints) = (read_payload(log, &table), endpoints(log, &table));
        DeclaredEvent { name, payload, keep, endpoints, insecure }
    };
    tables.into_iter().map(event).collect()
}

/// Replaces the events of triggers by their suppliers. An operation with a wrong selection is marked as malformed.
/// `None`, logged, when there are too many connections.
pub(super) fn resolve<'a>(
    log: &mut Log,
    events: &[DeclaredEvent<'a>],
    declared: &mut [DeclaredOperation<'a>],
) -> Option<()> {
    let mut suppliers = vec![Vec::new(); events.len()];
    for (position, one) in declared.iter_mut().enumerate() {
        for event in &one.supplies {
            suppliers[*event as usize].push(position);
            one.payload = one.payload.max(events[*event as usize].payload);
        }
    }
    let counts: Vec<usize> = declared.iter().map(|one| one.count.map_or(1, |count| count.value as usize)).collect();
    let mut resolver = EventResolver {
        events,
        names: Names::new("event", events.iter().map(|one| one.name.value)),
        operations: declared.iter().map(|one| one.name.value).collect(),
        operation_names: Names::new("operation", declared.iter().map(|one| one.name.value)),
        connections: suppliers.iter().map(|all| all.iter().map(|one| counts[*one]).sum()).collect(),
        suppliers,
        // A malformed operation may be the supplier.
        complete: declared.iter().all(|one| !one.misread),
        matched: HashMap::new(),
        consumed: vec![false; events.len()],
        edges: 0,
        compared: 0,
    };
    for (one, count) in declared.iter_mut().zip(counts) {
        let Some(After { names, events: Some(selected), .. }) = &mut one.after else { continue };
        if !resolver.select(log, names, selected, count)? {
            (one.after, one.misread) = (None, true);
        }
    }
    resolver.warn_of_unused(log);
    Some(())
}

struct EventResolver<'e, 'a> {
    events: &'e [DeclaredEvent<'a>],
    names: Names<'a>,
    operations: Vec<&'a str>,
    operation_names: Names<'a>,
    /// The suppliers of each event, by their positions among the declared operations.
    suppliers: Vec<Vec<usize>>,
    /// How many operations supply each event, templates expanded.
    connections: Vec<usize>,
    /// All operations are well formed: an event without a supplier has none.
    complete: bool,
    /// The events of each pattern.
    matched: HashMap<&'a str, Vec<u32>>,
    consumed: Vec<bool>,
    /// Connections so far.
    edges: usize,
    /// Names that were compared with patterns so far.
    compared: usize,
}

impl<'a> EventResolver<'_, 'a> {
    /// Finds the events of a selection, and the names of their suppliers. False, logged, when it is wrong; `None`,
    /// logged, when there are too many connections.
    fn select(
        &mut self,
        log: &mut Log,
        names: &mut AtPlace<Vec<AtPlace<&'a str>>>,
        selected: &mut SelectedEvents<'a>,
        count: usize,
    ) -> Option<bool> {
        // The first pattern of each event.
        let mut events: Vec<(u32, AtPlace<&'a str>)> = Vec::new();
        let mut sound = true;
        for pattern in &selected.patterns {
            sound &= self.find(log, *pattern)?;
            let Some(found) = self.matched.get(pattern.value) else { continue };
            let edges = found.iter().map(|event| self.connections[*event as usize].max(1)).sum::<usize>();
            self.edges = self.edges.saturating_add(edges.saturating_mul(count));
            if self.edges > limits::EDGES {
                log.error(names.place, "too many connections between operations")
                    .label(format!("{} with these", self.edges))
                    .help(format!("a system has at most {}; insert an operation between them", limits::EDGES));
                return None;
            }
            events.extend(found.iter().map(|event| (*event, *pattern)));
        }
        events.sort_by_key(|(event, _)| *event);
        events.dedup_by_key(|(event, _)| *event);
        // With the place of the first pattern.
        let mut suppliers = BTreeMap::new();
        for (event, pattern) in &events {
            self.consumed[*event as usize] = true;
            sound &= self.has_supplier(log, *event, *pattern);
            for supplier in &self.suppliers[*event as usize] {
                suppliers.entry(*supplier).or_insert(pattern.place);
            }
        }
        let Some(from) = &selected.from else {
            let name = |(one, place): (usize, Place)| AtPlace::new(self.operations[one], place);
            names.value = suppliers.into_iter().map(name).collect();
            selected.positions = events.into_iter().map(|(event, _)| event).collect();
            return Some(sound);
        };
        if !sound {
            return Some(false);
        }
        let mut chosen = BTreeSet::new();
        for name in from {
            match self.supplier(*name).filter(|supplier| suppliers.contains_key(supplier)) {
                Some(supplier) => _ = chosen.insert(supplier),
                None => {
                    self.refuse_supplier(log, *name, names.place, suppliers.keys());
                    sound = false;
                }
            }
        }
        let follows = |event: u32| self.suppliers[event as usize].iter().any(|one| chosen.contains(one));
        names.value = from.clone();
        selected.positions = events.into_iter().map(|(event, _)| event).filter(|event| follows(*event)).collect();
        Some(sound)
    }

    /// Finds the events of a pattern. False, logged, when there are none; `None`, logged, when there are too many
    /// comparisons.
    fn find(&mut self, log: &mut Log, pattern: AtPlace<&'a str>) -> Option<bool> {
        let mut refuse = |message: String, help: &str| {
            log.error(pattern.place, message).help(help);
            Some(false)
        };
        let shown = shortened(pattern.value);
        if pattern.value.split('/').any(str::is_empty) {
            return refuse(format!("`{shown}` has an empty part"), "write names between the slashes");
        }
        if pattern.value.split('/').any(|part| part.contains('*') && part != "*" && part != "**") {
            let help = "write `*` for one whole part between slashes, `**` for any number of parts";
            return refuse(format!("`{shown}` has an asterisk beside other characters"), help);
        }
        if pattern.value.chars().count() > limits::NAME {
            let message = format!("`{shown}` is longer than {} characters", limits::NAME);
            return refuse(message, "write a shorter pattern: no name is longer");
        }
        if let Some(found) = self.matched.get(pattern.value) {
            if found.is_empty() {
                self.unknown(log, pattern);
            }
            return Some(!found.is_empty());
        }
        let found: Vec<u32> = if pattern.value.contains('*') {
            self.compared += self.events.len();
            if self.compared > limits::EDGES {
                log.error(pattern.place, "too many patterns of events").help(format!(
                    "the number of different patterns times the events is at most {}; write names",
                    limits::EDGES
                ));
                return None;
            }
            let events = self.events.iter().zip(0..);
            events.filter(|(event, _)| matches(pattern.value, event.name.value)).map(|(_, event)| event).collect()
        } else {
            self.names.get(pattern.value).into_iter().collect()
        };
        let known = !found.is_empty();
        self.matched.insert(pattern.value, found);
        if !known {
            self.unknown(log, pattern);
        }
        Some(known)
    }

    fn unknown(&self, log: &mut Log, pattern: AtPlace<&str>) {
        if !pattern.value.contains('*') {
            return self.names.unknown(log, pattern);
        }
        log.error(pattern.place, format!("no declared event matches `{}`", shortened(pattern.value)))
            .help("declare one, [event.NAME], or correct the pattern");
    }

    fn has_supplier(&self, log: &mut Log, event: u32, pattern: AtPlace<&str>) -> bool {
        let name = self.events[event as usize].name;
        let supplied = !self.suppliers[event as usize].is_empty();
        if !supplied && self.complete {
            log.error(name.place, format!("no operation supplies event `{}`", shortened(name.value)))
                .also(pattern.place, "an operation runs after it")
                .help(format!("add `supplies = [\"{}\"]` to an operation", shortened(name.value)));
        }
        supplied
    }

    /// The declared operation of a name, of an instance of a template, or of a method for a caller.
    fn supplier(&self, name: AtPlace<&str>) -> Option<usize> {
        let whole = || name.value.rsplit_once('.').or(name.value.split_once('@')).map(|(whole, _)| whole);
        let found = self.operation_names.get(name.value).or_else(|| self.operation_names.get(whole()?));
        found.map(|position| position as usize)
    }

    fn refuse_supplier<'s>(
        &self,
        log: &mut Log,
        name: AtPlace<&str>,
        events: Place,
        suppliers: impl ExactSizeIterator<Item = &'s usize>,
    ) {
        if self.supplier(name).is_none() {
            return self.operation_names.unknown(log, name);
        }
        let more = if suppliers.len() > 12 { ", ..." } else { "" };
        let known: Vec<_> = suppliers.take(12).map(|one| shortened(self.operations[*one])).collect();
        log.error(name.place, format!("`{}` supplies none of these events", shortened(name.value)))
            .also(events, "these")
            .help(format!("suppliers: {}{more}", known.join(", ")));
    }

    fn warn_of_unused(&self, log: &mut Log) {
        let unused = self.events.iter().zip(&self.suppliers).zip(&self.consumed);
        for ((event, _), _) in unused.filter(|((_, suppliers), consumed)| suppliers.is_empty() && !**consumed) {
            log.warn(event.name.place, format!("no operation uses event `{}`", shortened(event.name.value)))
                .help("remove it, or add it to the `supplies` of an operation");
        }
    }
}

/// `supplies`: the positions of the events. `None`, logged, when one is unknown.
pub(super) fn read_supplies(log: &mut Log, table: &Table<'_>, events: &Names<'_>) -> Option<Vec<u32>> {
    let supplies = table.read(log, "supplies", InputValue::texts)?;
    refuse_twice(log, &supplies.value);
    let found: Vec<_> = supplies.value.iter().map(|name| events.find(log, *name)).collect();
    found.into_iter().collect()
}

/// The events of the system. `None`, logged, when there are too many suppliers.
pub(super) fn connect(
    log: &mut Log,
    declared: &[DeclaredEvent<'_>],
    operations: &Operations<'_>,
) -> Option<Vec<Event>> {
    let event = |one: &DeclaredEvent<'_>| Event {
        name: one.name.value.to_string(),
        suppliers: Vec::new(),
        consumers: Vec::new(),
        payload: one.payload,
        keep: one.keep,
        endpoints: one.endpoints.iter().map(|endpoint| endpoint.value.clone()).collect(),
        insecure: one.insecure,
    };
    let mut events: Vec<Event> = declared.iter().map(event).collect();
    let mut connections = 0;
    for id in (0..operations.len() as u32).map(OperationId) {
        let one = operations.of(id);
        let selected = one.after.as_ref().and_then(|after| after.events.as_ref());
        let consumed = selected.map_or(&[][..], |selected| &selected.positions);
        let supplied = if one.is_before_call() { &[] } else { &one.supplies[..] };
        connections += supplied.len() + consumed.len();
        if connections > limits::EDGES {
            log.error(one.name.place, "too many connections of operations and events")
                .label(format!("{connections} with these"))
                .help(format!("a system has at most {}; use fewer events", limits::EDGES));
            return None;
        }
        consumed.iter().for_each(|event| events[*event as usize].consumers.push(id));
        supplied.iter().for_each(|event| events[*event as usize].suppliers.push(id));
    }
    Some(events)
}
