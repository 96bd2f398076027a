//! Expands templates to instances, and resolves names to operations.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::declared::{AfterKind, CallPhase, DeclaredOperation, DeclaredStagger};
use super::limits;
use super::log::{AtPlace, Log};
use super::names::Names;
use super::value::shortened;
use crate::ids::{OperationId, ProcessorId};
use crate::system::{ChosenHops, Correlation, Trigger};
use crate::time::{LONGEST_SPAN, Span};

/// All operations, with their names resolved.
pub(super) struct Operations<'a> {
    pub declared: Vec<DeclaredOperation<'a>>,
    /// The declaration of each operation.
    pub declaration: Vec<usize>,
    /// The first instance of each declaration.
    first: Vec<u32>,
    names: Names<'a>,
    /// Instances of methods by the method's name; their positions are after those of the declared operations.
    methods: Vec<Vec<usize>>,
}

/// The triggers of each operation, and the operations that it reads.
pub(super) struct OperationEdges {
    pub triggers: Vec<Trigger>,
    pub reads: Vec<Vec<OperationId>>,
    /// Operations with a malformed connection, which was already reported.
    pub misread: Vec<bool>,
}

impl OperationEdges {
    /// Whether the second is triggered by the first, or reads it.
    pub fn connect(&self, from: OperationId, to: OperationId) -> bool {
        let (trigger, reads) = (&self.triggers[to.index()], &self.reads[to.index()]);
        trigger.predecessors().contains(&from) || reads.contains(&from) || self.misread[to.index()]
    }
}

impl<'a> Operations<'a> {
    /// `None`, logged, when there are too many.
    pub fn expand(log: &mut Log, declared: Vec<DeclaredOperation<'a>>) -> Option<Self> {
        let mut seen = HashMap::new();
        let (mut methods, mut of_name) = (Vec::new(), HashMap::new());
        let mut all: Vec<&'a str> = declared.iter().map(|operation| operation.name.value).collect();
        for (position, name) in declared.iter().enumerate().filter_map(|(position, one)| Some((position, one.method?)))
        {
            let method = *of_name.entry(name).or_insert_with(|| {
                all.push(name);
                methods.push(Vec::new());
                methods.len() - 1
            });
            methods[method].push(position);
        }
        for (position, name) in all.iter().enumerate().take(declared.len()) {
            if let Some(first) = seen.insert(*name, position) {
                let (one, other) = (&declared[first], &declared[position]);
                log.error(other.name.place, format!("two operations are named `{}`", shortened(name)))
                    .also(one.name.place, "the other")
                    .help("a call creates an operation of this name: rename yours");
            }
        }
        let names = Names::new("operation", all);
        let (mut first, mut declaration, mut total) = (Vec::new(), Vec::new(), 0u64);
        for (position, operation) in declared.iter().enumerate() {
            let count = operation.instances();
            first.push(total as u32);
            total += u64::from(count);
            if total > limits::OPERATIONS {
                log.error(operation.count.map_or(operation.name.place, |count| count.place), "too many operations")
                    .label(format!("{total} with these"))
                    .help(format!("a system has at most {} of them", limits::OPERATIONS));
                return None;
            }
            declaration.extend((0..count).map(|_| position));
        }
        Some(Operations { declared, declaration, first, names, methods })
    }

    pub fn len(&self) -> usize {
        self.declaration.len()
    }

    pub fn of(&self, operation: OperationId) -> &DeclaredOperation<'a> {
        &self.declared[self.declaration[operation.index()]]
    }

    /// The name in reports: the declaration's, with the number of the instance from 1.
    pub fn name(&self, operation: OperationId) -> String {
        let position = self.declaration[operation.index()];
        let name = self.declared[position].name.value;
        match self.declared[position].count {
            Some(_) => format!("{name}.{}", operation.0 - self.first[position] + 1),
            None => match self.further(operation) {
                Some((_, processor)) => format!("{name}@{processor}"),
                None => name.to_string(),
            },
        }
    }

    /// The processor of an operation.
    pub fn on(&self, operation: OperationId) -> ProcessorId {
        self.further(operation).map_or(self.of(operation).on, |(processor, _)| processor)
    }

    /// If this is an operation at a further processor: the same one at its first processor.
    pub fn home(&self, operation: OperationId) -> Option<OperationId> {
        self.further(operation).map(|_| OperationId(self.first[self.position(operation)]))
    }

    /// If this is an operation at a further processor: that processor, with its name.
    fn further(&self, operation: OperationId) -> Option<(ProcessorId, &'a str)> {
        let position = self.position(operation);
        let place = (operation.0 - self.first[position]).checked_sub(1)?;
        self.declared[position].further.get(place as usize).map(|place| place.value)
    }

    /// The first instance of each declaration.
    pub fn first(&self) -> &[u32] {
        &self.first
    }

    /// The declared operation of an operation, by its position.
    pub fn position(&self, operation: OperationId) -> usize {
        self.declaration[operation.index()]
    }

    /// The part before the call, of an operation that calls.
    pub fn before(&self, operation: OperationId) -> Option<OperationId> {
        match self.of(operation).part {
            CallPhase::Rest { before, .. } => Some(OperationId(self.first[before])),
            _ => None,
        }
    }

    /// The whole operation, if it is the part before a call; else itself.
    pub fn whole(&self, operation: OperationId) -> OperationId {
        match self.of(operation).part {
            CallPhase::Before { rest, .. } => OperationId(self.first[rest]),
            _ => operation,
        }
    }

    /// The part before the call of the operation that calls this method. By their names, because a system that was
    /// written has the parts of calls as operations.
    pub fn caller(&self, operation: OperationId) -> Option<OperationId> {
        let own = self.of(operation);
        let first = self.names.get(&format!("{}:call", own.name.value)).map(|position| position as usize);
        let first = first.and_then(|position| self.declared.get(position)).unwrap_or(own);
        let [before] = &first.after.as_ref()?.names.value[..] else { return None };
        let position = before.value.ends_with(":call").then(|| self.names.get(before.value)).flatten()?;
        self.first.get(position as usize).copied().map(OperationId)
    }

    /// Whether the first calls the second.
    pub fn calls(&self, caller: OperationId, method: OperationId) -> bool {
        let end = self.of(caller).calls.is_some().then(|| self.position(caller).checked_sub(1)).flatten();
        self.before(caller).is_some() && end.is_some_and(|end| self.first[end] == method.0)
    }

    /// Whether an operation, a template or a method has the name.
    pub fn has(&self, name: &str) -> bool {
        self.names.get(name).is_some()
    }

    /// All operations with the name: every instance of a template or a method, or the one with a number.
    pub fn find(&self, log: &mut Log, name: AtPlace<&str>) -> Option<Vec<Range<u32>>> {
        let (template, number) = match name.value.rsplit_once('.') {
            Some((template, number)) => (template, Some(number)),
            None => (name.value, None),
        };
        let Some(position) = self.names.get(template) else {
            let whole = if number.is_some() { AtPlace::new(template, name.place) } else { name };
            self.names.unknown(log, whole);
            return None;
        };
        if let Some(instances) = (position as usize).checked_sub(self.declared.len()) {
            if number.is_some() {
                log.error(name.place, format!("there is no operation `{}`", shortened(name.value)))
                    .help(format!("`{template}` is a method: write `{template}`, or `{template}@CALLER`"));
                return None;
            }
            let first = |position: &usize| self.first[*position];
            return Some(self.methods[instances].iter().map(|one| first(one)..first(one) + 1).collect());
        }
        let single = |range| Some(std::iter::once(range).collect());
        let first = self.first[position as usize];
        let count = self.declared[position as usize].count.map(|count| count.value);
        match (number, count) {
            (None, _) => single(first..first + self.declared[position as usize].instances()),
            (Some(number), Some(count)) => match number.parse::<u32>() {
                Ok(number) if (1..=count).contains(&number) => single(first + number - 1..first + number),
                _ => {
                    let message = format!("there is no operation `{}`", shortened(name.value));
                    log.error(name.place, message)
                        .help(format!("`{template}` has {count} instances, `{template}.1` to `{template}.{count}`"));
                    None
                }
            },
            (Some(_), None) => {
                log.error(name.place, format!("there is no operation `{}`", shortened(name.value)))
                    .help(format!("`{template}` is not a template: write `{template}`, or set its `count`"));
                None
            }
        }
    }

    /// Resolves all names. `None`, logged, when there are too many connections.
    pub fn connect(&self, log: &mut Log) -> Option<OperationEdges> {
        let (mut triggers, mut reads) = (Vec::with_capacity(self.len()), Vec::with_capacity(self.len()));
        let (mut misread, mut edges) = (Vec::with_capacity(self.len()), 0);
        for operation in &self.declared {
            let count = operation.instances() as usize;
            let mut lost = operation.misread;
            let mut follow = |names| self.follow(log, names, count, &mut edges, &mut lost);
            let trigger = match &operation.after {
                None if operation.requested() => Trigger::Any(Vec::new()),
                None => Trigger::Periodic,
                Some(after) => {
                    let named = follow(&after.names)?;
                    let groups = after.groups.iter().map(|group| {
                        let mut all = follow(&group.names)?;
                        for selected in &group.events {
                            let omitted: HashSet<_> = follow(&selected.except)?.into_iter().collect();
                            all.extend(follow(&selected.suppliers)?.into_iter().filter(|one| !omitted.contains(one)));
                        }
                        all.sort_unstable();
                        all.dedup();
                        Some(all)
                    });
                    let groups = groups.collect::<Option<Vec<_>>>()?;
                    trigger(log, operation, named, groups, &mut lost)?
                }
            };
            let read = self.follow(log, &operation.reads, count, &mut edges, &mut lost)?;
            triggers.extend(std::iter::repeat_n(trigger, count));
            reads.extend(std::iter::repeat_n(read, count));
            misread.extend(std::iter::repeat_n(lost, count));
        }
        Some(OperationEdges { triggers, reads, misread })
    }

    /// The operations with these names, to which `count` others are connected. It counts the connections before it
    /// makes them. `None`, logged, when these are too many.
    fn follow(
        &self,
        log: &mut Log,
        names: &AtPlace<Vec<AtPlace<&str>>>,
        count: usize,
        edges: &mut usize,
        lost: &mut bool,
    ) -> Option<Vec<OperationId>> {
        let ranges: Vec<_> = names.value.iter().filter_map(|name| self.find(log, *name)).collect();
        *lost |= ranges.len() < names.value.len();
        *edges = edges.saturating_add(ranges.iter().flatten().map(Range::len).sum::<usize>().saturating_mul(count));
        if *edges > limits::EDGES {
            log.error(names.place, "too many connections between operations")
                .label(format!("{edges} with these"))
                .help(format!("a system has at most {}; insert an operation between them", limits::EDGES));
            return None;
        }
        // A template and one of its instances may both be named.
        let mut seen = HashSet::new();
        let operations = ranges.into_iter().flatten().flatten().map(OperationId);
        let operations: Vec<OperationId> = operations.filter(|operation| seen.insert(*operation)).collect();
        if operations.len() > limits::PREDECESSORS {
            too_many(log, names, operations.len());
            return None;
        }
        Some(operations)
    }

    /// The start of the first period of each operation.
    pub fn phases(&self, log: &mut Log) -> Vec<Span> {
        let mut phases = Vec::with_capacity(self.len());
        for operation in &self.declared {
            // The same for all processors of an operation.
            let count = u64::from(operation.count.map_or(1, |count| count.value));
            let copies = operation.instances() as usize / count as usize;
            let period = operation.written.period.map_or(Span::ZERO, |period| period.value.0);
            for instance in 0..count {
                let later = match operation.stagger {
                    // In 128 bits: a period of ten years times 100,000 instances.
                    DeclaredStagger::Even => {
                        let nanos = u128::from(period.as_nanos()) * u128::from(instance) / u128::from(count);
                        Some(Span::from_nanos(nanos as u64))
                    }
                    DeclaredStagger::By(span) => span.value.checked_mul(instance),
                };
                let phase = later.and_then(|later| operation.phase.checked_add(later));
                match phase.filter(|phase| *phase <= LONGEST_SPAN) {
                    Some(phase) => phases.extend(std::iter::repeat_n(phase, copies)),
                    None => {
                        let DeclaredStagger::By(span) = operation.stagger else { break };
                        log.error(span.place, "the last instance would begin after more than ten years")
                            .help("shorten the stagger, or write \"even\"");
                        break;
                    }
                }
            }
        }
        phases
    }
}

/// The trigger by operations that an operation names, and by groups. `None`, logged, when it follows too many.
fn trigger(
    log: &mut Log,
    operation: &DeclaredOperation<'_>,
    named: Vec<OperationId>,
    groups: Vec<Vec<OperationId>>,
    misread: &mut bool,
) -> Option<Trigger> {
    let Some(after) = &operation.after else { return Some(Trigger::Periodic) };
    if let Some((_, group)) = groups.iter().zip(&after.groups).find(|(found, _)| found.is_empty()) {
        if !std::mem::replace(misread, true) {
            let selected = group.events.iter().find(|selected| !selected.except.value.is_empty());
            log.error(
                selected.map_or(group.names.place, |selected| selected.except.place),
                "`except` omits all suppliers",
            )
            .help("omit fewer, or remove `except`");
        }
        return Some(Trigger::Any(named));
    }
    let count = named.len() + groups.iter().map(Vec::len).sum::<usize>();
    if count > limits::PREDECESSORS {
        too_many(log, &after.names, count);
        return None;
    }
    if after.kind == AfterKind::First {
        if named.len() < 2 && !*misread {
            log.error(after.names.place, "`first` needs at least two copies")
                .label("one operation")
                .help("name the other copies, or use `all`");
            *misread = true;
        }
        return Some(Trigger::First(named));
    }
    if let AfterKind::Chosen(probability_ppm) = after.kind {
        return Some(Trigger::Chosen(ChosenHops { predecessors: named, probability_ppm }));
    }
    if after.kind == AfterKind::Any {
        let events_only = named.is_empty();
        let mut suppliers: Vec<OperationId> = groups.into_iter().flatten().filter(|one| !named.contains(one)).collect();
        suppliers.sort_unstable();
        suppliers.dedup();
        let all = [named, suppliers].concat();
        return Some(if events_only && all.len() == 1 { Trigger::All(all) } else { Trigger::Any(all) });
    }
    if let (Some(within), 0..=1) = (after.within, named.len() + groups.len()) {
        log.error(within.place, "`within` needs at least two entries in `all`").help("remove it, or add an entry");
        *misread = true;
    }
    let mut all: Vec<Vec<OperationId>> = named.into_iter().map(|one| vec![one]).collect();
    for group in groups {
        if !all.contains(&group) {
            all.push(group);
        }
    }
    let within = after.within.map(|within| within.value);
    Some(match &all[..] {
        [one] if one.len() > 1 => Trigger::Any(all.concat()),
        [_] => Trigger::All(all.concat()),
        several if within.is_none() && several.iter().all(|group| group.len() == 1) => Trigger::All(all.concat()),
        _ => Trigger::Correlated(Correlation::new(&all, within)),
    })
}

fn too_many(log: &mut Log, names: &AtPlace<Vec<AtPlace<&str>>>, count: usize) {
    log.error(names.place, "too many operations trigger this one")
        .label(format!("{count} operations"))
        .help(format!("use at most {}; insert operations between them", limits::PREDECESSORS));
}
