//! `[event.NAME]` and `after = { event = ... }`: an operation after an event is an operation after the event's suppliers,
//! which every later crate understands.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::declared::{DeclaredOperation, SelectedEvents};
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
use crate::system::Trigger;

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
        let (payload, endpoints) = (read_payload(log, &table), endpoints(log, &table, "endpoints"));
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
    let counts: Vec<usize> = declared.iter().map(|one| one.instances() as usize).collect();
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
        let Some(after) = &mut one.after else { continue };
        let mut sound = true;
        for selected in after.groups.iter_mut().flat_map(|group| &mut group.events) {
            sound &= resolver.select(log, selected, count)?;
        }
        if !sound {
            (one.after, one.misread) = (None, true);
        }
    }
    resolver.warn_of_unused(log);
    Some(())
}

/// Whether a pattern of events is well formed; if not, it is logged.
pub(super) fn is_pattern(log: &mut Log, pattern: AtPlace<&str>) -> bool {
    let shown = shortened(pattern.value);
    let (message, help) = if pattern.value.split('/').any(str::is_empty) {
        (format!("`{shown}` has an empty part"), "write names between the slashes")
    } else if pattern.value.split('/').any(|part| part.contains('*') && part != "*" && part != "**") {
        let help = "write `*` for one whole part between slashes, `**` for any number of parts";
        (format!("`{shown}` has an asterisk beside other characters"), help)
    } else if pattern.value.chars().count() > limits::NAME {
        (format!("`{shown}` is longer than {} characters", limits::NAME), "write a shorter pattern: no name is longer")
    } else {
        return true;
    };
    log.error(pattern.place, message).help(help);
    false
}

/// Logs that a pattern matches no event.
pub(super) fn unknown(log: &mut Log, names: &Names<'_>, pattern: AtPlace<&str>) {
    if !pattern.value.contains('*') {
        return names.unknown(log, pattern);
    }
    log.error(pattern.place, format!("no declared event matches `{}`", shortened(pattern.value)))
        .help("declare one, [event.NAME], or correct the pattern");
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
    fn select(&mut self, log: &mut Log, selected: &mut SelectedEvents<'a>, count: usize) -> Option<bool> {
        // The first pattern of each event.
        let mut events: Vec<(u32, AtPlace<&'a str>)> = Vec::new();
        let mut sound = true;
        for pattern in &selected.patterns.value {
            sound &= self.find(log, *pattern)?;
            let Some(found) = self.matched.get(pattern.value) else { continue };
            let edges = found.iter().map(|event| self.connections[*event as usize].max(1)).sum::<usize>();
            self.edges = self.edges.saturating_add(edges.saturating_mul(count));
            if self.edges > limits::EDGES {
                log.error(selected.patterns.place, "too many connections between operations")
                    .label(format!("{} with these", self.edges))
                    .help(format!("a system has at most {}; insert an operation between them", limits::EDGES));
                return None;
            }
            events.extend(found.iter().map(|event| (*event, *pattern)));
        }
        events.sort_by_key(|(event, _)| *event);
        events.dedup_by_key(|(event, _)| *event);
        // If an event is unknown, the effect of `except` is unknown, too.
        if sound {
            sound = self.omit(log, selected, &mut events)?;
        }
        // With the place of the first pattern.
        let mut suppliers = BTreeMap::new();
        for (event, pattern) in &events {
            self.consumed[*event as usize] = true;
            sound &= self.has_supplier(log, *event, *pattern);
            for supplier in &self.suppliers[*event as usize] {
                suppliers.entry(*supplier).or_insert(pattern.place);
            }
        }
        if sound {
            let known = selected.except.value.iter().map(|name| self.is_supplier(log, *name, selected, &suppliers));
            sound = known.fold(true, |sound, known| sound & known.is_some());
        }
        let Some(from) = &selected.from else {
            let name = |(one, place): (usize, Place)| AtPlace::new(self.operations[one], place);
            selected.suppliers.value = suppliers.into_iter().map(name).collect();
            selected.positions = events.into_iter().map(|(event, _)| event).collect();
            return Some(sound);
        };
        if !sound {
            return Some(false);
        }
        let mut chosen = BTreeSet::new();
        for name in from {
            let supplier = self.is_supplier(log, *name, selected, &suppliers);
            sound &= supplier.is_some();
            chosen.extend(supplier);
        }
        let follows = |event: u32| self.suppliers[event as usize].iter().any(|one| chosen.contains(one));
        selected.suppliers.value = from.clone();
        selected.positions = events.into_iter().map(|(event, _)| event).filter(|event| follows(*event)).collect();
        Some(sound)
    }

    /// Removes the events that `except` omits. Only suppliers stay in `except`; an entry that matches an event is not a
    /// supplier. False, logged, if an entry omits no event, or all events are omitted. `None`, logged, if this needs
    /// too many comparisons.
    fn omit(
        &mut self,
        log: &mut Log,
        selected: &mut SelectedEvents<'a>,
        events: &mut Vec<(u32, AtPlace<&'a str>)>,
    ) -> Option<bool> {
        let is_operation = |resolver: &Self, name: &str| {
            !name.contains('*') && resolver.names.get(name).is_none() && resolver.position(name).is_some()
        };
        let (suppliers, patterns): (Vec<_>, Vec<_>) =
            selected.except.value.iter().partition(|name| is_operation(self, name.value));
        selected.except.value = suppliers;
        let (mut omitted, mut sound) = (BTreeSet::<u32>::new(), true);
        for pattern in patterns {
            sound &= self.find(log, pattern)?;
            let Some(found) = self.matched.get(pattern.value).filter(|found| !found.is_empty()) else { continue };
            let selects = |event: &&u32| events.binary_search_by_key(*event, |(event, _)| *event).is_ok();
            let before = omitted.len();
            let selects_any = found.iter().any(|event| selects(&event));
            omitted.extend(found.iter().filter(selects));
            if !selects_any {
                log.error(pattern.place, format!("`{}` omits none of these events", shortened(pattern.value)))
                    .also(selected.patterns.place, "these")
                    .help("remove it, or name an event that `event` selects");
                sound = false;
            } else if omitted.len() == events.len() && before < events.len() {
                log.error(pattern.place, "`except` omits all events")
                    .also(selected.patterns.place, "these")
                    .help("omit fewer, or remove `except`");
                sound = false;
            }
        }
        events.retain(|(event, _)| !omitted.contains(event));
        Some(sound)
    }

    /// Finds the events of a pattern. False, logged, when there are none; `None`, logged, when there are too many
    /// comparisons.
    fn find(&mut self, log: &mut Log, pattern: AtPlace<&'a str>) -> Option<bool> {
        if !is_pattern(log, pattern) {
            return Some(false);
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
        unknown(log, &self.names, pattern);
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
    fn position(&self, name: &str) -> Option<usize> {
        let whole = || name.rsplit_once('.').or(name.split_once('@')).map(|(whole, _)| whole);
        let found = self.operation_names.get(name).or_else(|| self.operation_names.get(whole()?));
        found.map(|position| position as usize)
    }

    /// The position of one of these suppliers by its name. `None`, logged, if it is another one.
    fn is_supplier(
        &self,
        log: &mut Log,
        name: AtPlace<&str>,
        selected: &SelectedEvents<'_>,
        suppliers: &BTreeMap<usize, Place>,
    ) -> Option<usize> {
        let Some(position) = self.position(name.value) else {
            self.operation_names.unknown(log, name);
            return None;
        };
        if suppliers.contains_key(&position) {
            return Some(position);
        }
        let more = if suppliers.len() > 12 { ", ..." } else { "" };
        let known: Vec<_> = suppliers.keys().take(12).map(|one| shortened(self.operations[*one])).collect();
        log.error(name.place, format!("`{}` supplies none of these events", shortened(name.value)))
            .also(selected.patterns.place, "these")
            .help(format!("suppliers: {}{more}", known.join(", ")));
        None
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
    triggers: &[Trigger],
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
    let ids = || (0..operations.len() as u32).map(OperationId);
    let consumed = |id: OperationId| {
        let after = operations.of(id).after.iter();
        let events: BTreeSet<u32> =
            after.flat_map(|after| after.events()).flat_map(|selected| &selected.positions).copied().collect();
        events
    };
    for id in ids() {
        let one = operations.of(id);
        let supplied = if one.is_before_call() { &[] } else { &one.supplies[..] };
        connections += supplied.len() + consumed(id).len();
        if connections > limits::EDGES {
            log.error(one.name.place, "too many connections of operations and events")
                .label(format!("{connections} with these"))
                .help(format!("a system has at most {}; use fewer events", limits::EDGES));
            return None;
        }
        supplied.iter().for_each(|event| events[*event as usize].suppliers.push(id));
    }
    for id in ids() {
        // Of an event with suppliers that are all omitted, none is left.
        let predecessors: BTreeSet<OperationId> = triggers[id.index()].predecessors().iter().copied().collect();
        for event in consumed(id) {
            let event = &mut events[event as usize];
            if event.suppliers.iter().any(|supplier| predecessors.contains(supplier)) {
                event.consumers.push(id);
            }
        }
    }
    Some(events)
}
