//! Reads `system.toml`: turns text into a [`System`] that needs no further checks.
//!
//! The steps: `input` (bounded bytes) → the `toml` crate (a tree with places) → `table` (known keys, by the table of
//! `keys`) → `machines`, `operation` (as written) → `programs` (the broker's part), `events` (an event becomes its
//! suppliers), `calls` (a call becomes a chain) → `expand` (templates, names) → `graph` (causes before effects, no
//! cycles) → `chains`, `epochs`, `environment` → `settings` (inherited values) → `hops`, `feedback`, `qoskets` (a
//! qosket becomes a contract), `contracts`. Each step logs errors
//! and continues as far as possible, so one run reports all of them.

mod calls;
mod chains;
mod clients;
mod contracts;
mod declared;
mod delegates;
mod diagnostic;
mod environment;
mod epochs;
mod events;
mod expand;
mod feedback;
mod gateways;
mod graph;
mod hops;
mod input;
pub mod keys;
mod latency;
mod levels;
mod limits;
mod log;
mod machines;
mod measured;
mod names;
mod network;
mod objects;
mod offered;
mod operation;
mod outside;
mod places;
mod programs;
mod qoskets;
mod replicas;
mod schema;
mod settings;
mod standby;
mod table;
mod times;
mod value;
mod warnings;

use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

pub use diagnostic::{Diagnostic, FileErrors, Severity};
pub use feedback::SetPointAnalysis;
pub use measured::{MeasuredCosts, read_costs, read_costs_file};
pub use programs::{LawResult, Laws};
pub use qoskets::{QosketParameter, ShippedQosket, shipped_qoskets};
pub use schema::schema;

use crate::checked::System;
use crate::ids::{OperationId, ProcessorId};
use crate::system;
use crate::system::{Contents, Guard, IdleStates, Replication, Trigger};
use crate::time::Span;
use log::{Log, Place};
use table::Table;
use value::{InputValue, complain};

/// A system, and the reader's warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The described system.
    pub system: System,
    /// The text of the file: a pipe can be read only once.
    pub text: String,
    /// The files of execution times and the qoskets that it names, with their texts.
    pub files: Vec<(String, String)>,
    /// Whether the file itself sets the costs of scheduling for each processor; otherwise [`ReadContext::costs`] apply.
    pub costs_declared: bool,
    /// Probable mistakes: overload, times beyond the declared worst case.
    pub warnings: Vec<Diagnostic>,
}

/// The inputs from the program that reads a file.
#[derive(Clone, Debug, Default)]
pub struct ReadContext<'a> {
    /// The known strategies, in any case of letters; `None` accepts every name.
    pub strategies: Option<Vec<String>>,
    /// Texts of files that the system may name: they replace the files beside it.
    pub files: Vec<(String, String)>,
    /// The costs of scheduling if the file has none.
    pub costs: Option<crate::costs::Costs>,
    /// The length of the simulation or run, if it differs from the file's: later regions cause no warnings.
    pub duration: Option<crate::time::Span>,
    /// The laws that check advocates and policies; `None` accepts all.
    pub laws: Option<Laws>,
    /// Determines set points with `utilisation = "analysis"`; `None` rejects them.
    pub set_points: Option<SetPointAnalysis<'a>>,
}

/// Reads a system from a file; files that it names are looked up beside it.
pub fn read_file(path: impl AsRef<Path>) -> Result<Loaded, FileErrors> {
    read_file_with(path, &ReadContext::default())
}

/// Like [`read_file`], but an unknown name is an error with its place.
pub fn read_file_with(path: impl AsRef<Path>, known: &ReadContext<'_>) -> Result<Loaded, FileErrors> {
    let path = path.as_ref();
    match input::read_text(path, limits::FILE_BYTES) {
        Ok(text) => read_with(&text, &path.display().to_string(), Some(path.parent().unwrap_or(Path::new(""))), known),
        Err(error) => Err(FileErrors { errors: vec![Diagnostic::from(&error)], more: 0, warnings: Vec::new() }),
    }
}

/// Reads a system from a text. Messages call it `file`; without `dir` it can name no other files.
pub fn read(text: &str, file: &str, dir: Option<&Path>) -> Result<Loaded, FileErrors> {
    read_with(text, file, dir, &ReadContext::default())
}

/// Like [`read`], but an unknown name is an error with its place.
pub fn read_with(text: &str, file: &str, dir: Option<&Path>, known: &ReadContext<'_>) -> Result<Loaded, FileErrors> {
    if text.len() > limits::FILE_BYTES {
        let error = input::InputError { path: file.into(), cause: input::Cause::TooLarge(limits::FILE_BYTES) };
        return Err(FileErrors { errors: vec![Diagnostic::from(&error)], more: 0, warnings: Vec::new() });
    }
    let mut log = Log::default();
    let mut costs_declared = false;
    let system = parse(&mut log, text).and_then(|tree| {
        costs_declared = machines::costs_declared(&tree);
        assemble(&mut log, (&tree, text.len()), dir, known)
    });
    match (log.finish(file, text), system) {
        (Ok(warnings), Some((system, files))) => {
            Ok(Loaded { system, text: text.to_string(), files, costs_declared, warnings })
        }
        (Err(errors), _) => Err(errors),
        // Each step that returned nothing has logged why; if one has not, this is better than a panic.
        (Ok(warnings), None) => {
            let error = Diagnostic::of_file(file, "the file could not be read".to_string(), None);
            Err(FileErrors { errors: vec![error], more: 0, warnings })
        }
    }
}

/// The tree of the text. With syntax errors there is none: the keys that they hide would be reported as missing.
fn parse<'a>(log: &mut Log, text: &'a str) -> Option<DeTable<'a>> {
    // Millions of errors in a large file would fill the memory: report only the first.
    let (tree, mut errors) = if text.len() <= limits::RECOVERABLE_BYTES {
        DeTable::parse_recoverable(text)
    } else {
        match DeTable::parse(text) {
            Ok(tree) => (tree, Vec::new()),
            Err(error) => (Spanned::new(0..0, DeTable::new()), vec![error]),
        }
    };
    errors.sort_by_key(|error| error.span().map_or(0, |range| range.start));
    for error in &errors {
        let range = error.span().unwrap_or(0..0);
        let written = value::shortened(text.get(range.clone()).unwrap_or("").trim());
        let message = error.message().trim_end().trim_end_matches(", expected nothing");
        let nested = message.contains("array") || message.contains("inline table");
        let help = match message {
            "duplicate key" => "each key and each table is written once: keep one of them",
            _ if nested => "a comma is missing, or the bracket that closes the list or table",
            _ if ["float", "integer", "fraction", "zero"].iter().any(|word| message.contains(word)) => {
                "write quantities in quotes: \"2.5ms\""
            }
            _ if message.contains("string") => "write text in quotes, on one line: \"2.5ms\"",
            _ if message.contains("recurs") => "tables are nested at most five deep",
            _ => "lines are `key = value`; tables begin with [name], lists of them with [[name]]",
        };
        let message = if message == "duplicate key" {
            format!("`{written}` is repeated")
        } else {
            format!("not TOML: {message}")
        };
        log.error(Place::from(range), message).help(help);
        // Errors after an open bracket follow from it: the parser continues as if it were inside.
        if nested {
            break;
        }
    }
    errors.is_empty().then(|| tree.into_inner())
}

/// The system, and the files that it names.
fn assemble(
    log: &mut Log,
    (tree, length): (&DeTable<'_>, usize),
    dir: Option<&Path>,
    known: &ReadContext<'_>,
) -> Option<(System, Vec<(String, String)>)> {
    let top = Table::open(log, "", "", Place::default(), tree)?;
    let name = top.read(log, "name", |given| match given.text()? {
        text if text.trim().is_empty() => complain("is empty", "set the name of the system"),
        text if text.contains('/') || text.starts_with('.') => complain(
            "begins with a dot, or has a slash in it",
            "use letters, digits and dashes: files are named after the system",
        ),
        text if text.chars().count() > limits::NAME || text.chars().any(char::is_control) => {
            complain("is too long or has control characters", "set a short name for the system")
        }
        text => Ok(text),
    });
    let seed = top.whole(log, "seed").map(|seed| seed.value);
    let idle_states = top.choice(log, "idle_states").map_or(0, |states| states.value);
    let idle_states = [IdleStates::Auto, IdleStates::Allow, IdleStates::Forbid][idle_states];
    let duration = top.read(log, "duration", InputValue::positive_time).map(|duration| duration.value);

    let (mut hosts, gateway_tables) = machines::hosts(log, &top);
    let links = machines::links(log, &top, &hosts);
    let costs = machines::costs(log, &top).or(known.costs).unwrap_or_default();
    let processors = machines::processors(log, &top, &hosts, costs, known);
    let resources = machines::resources(log, &top);

    let mut files = times::TimesFiles::new(dir, &known.files);
    let qoskets = qoskets::read(log, &top, length, &mut files);
    let mut brokered = programs::read(log, &top, &hosts, &processors, known.laws, &mut files);
    let processor_names = names::Names::new("processor", processors.iter().map(|one| one.name.as_str()));
    let resource_names = names::Names::new("resource", resources.iter().map(|one| one.name.as_str()));
    let declared_events = events::read(log, &top);
    let event_names = names::Names::new("event", declared_events.iter().map(|one| one.name.value));
    let declared = top.named(log, "operation").into_iter().map(|(name, table)| {
        let names = (&processor_names, &resource_names, &event_names);
        declared::DeclaredOperation::read(log, (name, &table), names, &mut files)
    });
    let mut declared: Vec<_> = declared.collect();
    events::resolve(log, &declared_events, &mut declared)?;
    replicas::resolve(log, &hosts, &processors, &mut declared);
    let call_parts = calls::call_parts(log, &declared);
    match &call_parts {
        Some(call_parts) => declared = calls::declare(declared, call_parts),
        // If there are calls, they are wrong: do not also report the keys that they omit.
        None if declared.iter().any(|one| one.calls.is_some()) => {
            declared.iter_mut().for_each(|one| one.misread |= one.called || one.calls.is_some());
        }
        None => {}
    }
    calls::check_requests(log, &declared);
    let operations = expand::Operations::expand(log, declared)?;
    let connections = operations.connect(log)?;
    let events = events::connect(log, &declared_events, &operations, &connections.triggers)?;
    let phases = operations.phases(log);
    let chains = chains::chains(log, &top, &operations, &connections);
    let objects = objects::read(log, &top, &hosts, &operations);
    let delegates = delegates::read(log, &top, &hosts, &objects);
    offered::check(log, (&declared_events, &events), (&hosts, &processors, &objects), &operations);
    gateways::resolve(log, &gateway_tables, &mut hosts, (&processors, &events, &objects), &operations);
    let expand::OperationEdges { triggers, reads, .. } = connections;
    let order = graph::order(&triggers).map_err(|cycles| report_cycles(log, &operations, cycles)).ok();

    let epochs = epochs::read(log, &top, duration.unwrap_or_default());
    let programs = &brokered.programs;
    let parts = outside::MeasuredParts { hosts: &hosts, links: &links, programs, delegates: &delegates };
    let outside = outside::read((&top, &qoskets), parts);
    let environments = environment::accumulate(log, &top, (&epochs, &outside), &hosts, &links, known.duration);
    let edges: usize = triggers.iter().map(|trigger| trigger.predecessors().len()).sum();
    programs::change(log, &epochs, &mut brokered.programs, &mut files);
    let delay = |from: ProcessorId, to: ProcessorId| {
        let [from, to] = [from, to].map(|one| processors[one.index()].host);
        links.iter().find(|link| link.joins(from, to)).map_or(Span::ZERO, |link| link.delay.1)
    };
    let written = epochs::accumulate(log, &epochs, &operations, edges, &mut files, &delay, known.duration);
    let admissions = standby::admissions(log, &epochs, &operations);
    if log.has_errors() {
        return None;
    }
    let (order, written) = (order?, written?);
    let Some(roots) = graph::roots(&triggers, &order) else {
        log.error(Place::default(), "too many pairs of operations and their periodic triggers")
            .help(format!("the number of operations times the periodic ones behind them is at most {}", limits::ROOTS));
        return None;
    };

    let interval = |id: OperationId| operations.of(id).min_interval.filter(|_| operations.of(id).requested());
    let ids = (0..triggers.len() as u32).map(OperationId);
    let of_clients = |id: OperationId| operations.of(id).clients.map(|clients| clients.value.shortest);
    let intervals: Vec<_> = ids.map(|id| interval(id).map(|interval| interval.value).or(of_clients(id))).collect();
    let ground = settings::SettingInputs {
        triggers: &triggers,
        order: &order,
        phases: &phases,
        offsets: (0..triggers.len() as u32).map(|one| operations.of(OperationId(one)).offset).collect(),
        intervals: &intervals,
        critical: (0..triggers.len() as u32).map(|one| operations.of(OperationId(one)).critical).collect(),
        levels: (0..triggers.len() as u32).map(|one| &*operations.of(OperationId(one)).levels.value).collect(),
        chains: system::tightest(&chains, &triggers),
    };
    let epochs = epochs::settle(log, &ground, epochs, &written, (environments, admissions), known.duration);
    let guards = guards(&operations, &triggers);
    let built = triggers.into_iter().zip(reads).zip(roots).zip(guards).enumerate();
    let built = built.map(|(position, (((trigger, reads), roots), guard))| {
        let id = OperationId(position as u32);
        let declared = operations.of(id);
        let periodic = trigger == system::Trigger::Periodic;
        system::Operation {
            name: operations.name(id),
            on: operations.on(id),
            home: operations.home(id),
            trigger,
            min_interval: interval(id).map(|interval| interval.value),
            clients: declared.clients.map(|clients| clients.value),
            levels: declared.levels.value.clone(),
            standby: declared.standby.is_some(),
            calls_any: declared.calls_any,
            reads,
            critical: declared.critical,
            importance: declared.importance,
            roots,
            phase_given: declared.phase_given && periodic,
            uses: declared.uses.clone(),
            queue: declared.queue,
            on_overrun: declared.on_overrun,
            on_busy: declared.on_busy,
            on_miss: declared.on_miss,
            guard,
            timeout: declared.timeout,
            lifespan: declared.lifespan,
            payload: declared.payload,
            replication: declared
                .replicate
                .as_ref()
                .map(|replicas| Replication { to: replicas.hosts.clone(), flush: replicas.flush }),
        }
    });
    let mut contents = Contents {
        name: name?.value.to_string(),
        seed: seed?,
        idle_states,
        duration: duration?,
        hosts,
        operations: built.collect(),
        events,
        resources,
        chains,
        objects,
        delegates,
        links,
        epochs,
        processors,
        feedback: Vec::new(),
        conditions: outside,
        contracts: Vec::new(),
        brokered,
    };
    if !hops::check(log, &contents, &operations) {
        return None;
    }
    contents.feedback = feedback::read(log, &top, (&contents, &operations), known.set_points)?;
    if !standby::check(log, &contents, &operations) {
        return None;
    }
    contents.contracts = contracts::read(log, (&top, &qoskets), &contents, &operations)?;
    let system = System::new(contents);
    warnings::warn(log, &system, &operations, &top, known.duration);
    Some((system, files.into_texts()))
}

fn report_cycles(log: &mut Log, operations: &expand::Operations<'_>, cycles: Vec<Vec<OperationId>>) {
    for cycle in cycles {
        let Some(first) = cycle.first().copied() else { continue };
        let shown = if cycle.len() > 8 { &cycle[..6] } else { &cycle[..] };
        let mut path: Vec<_> = shown.iter().map(|one| operations.name(*one)).collect();
        if shown.len() < cycle.len() {
            path.push("...".to_string());
        }
        path.push(operations.name(first));
        let declared = operations.of(first);
        let place = declared.after.as_ref().map_or(declared.name.place, |after| after.names.place);
        let help = if cycle.len() == 1 {
            "one that triggers itself several times a period is periodic, with `repeat = { legs = 4 }`"
        } else {
            "remove one trigger, or let one of the operations `read` the other; for a load chain, see `repeat`"
        };
        log.error(place, format!("operations trigger each other in a cycle: {}", path.join(" -> ")))
            .label("part of the cycle")
            .help(help);
    }
}

/// The release guard of each operation: by default on where a trigger is on another processor. In calls by default it
/// opens at idle points, too: with `on`, one late call would make all later ones late.
///
/// Not by default if any of several operations triggers, alone or in a group: a guard releases one in a period, and the
/// others would pile up.
fn guards(operations: &expand::Operations<'_>, triggers: &[Trigger]) -> Vec<Guard> {
    let guard = |(position, trigger): (usize, &Trigger)| {
        let declared = operations.of(OperationId(position as u32));
        let from_elsewhere =
            || trigger.predecessors().iter().any(|predecessor| operations.of(*predecessor).on != declared.on);
        let merges = match trigger {
            Trigger::Any(_) | Trigger::Chosen(_) => trigger.predecessors().len() > 1,
            Trigger::Correlated(_) => true,
            Trigger::All(_) | Trigger::First(_) | Trigger::Periodic => false,
        };
        let is_of_call = declared.called || matches!(declared.part, declared::CallPhase::Rest { .. });
        match declared.guard {
            Some(guard) => guard.value,
            None if merges || !from_elsewhere() => Guard::Off,
            None if is_of_call => Guard::Idle,
            None => Guard::On,
        }
    };
    triggers.iter().enumerate().map(guard).collect()
}
