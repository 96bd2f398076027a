//! `[[epoch]]`: times and new values of keys of operations, programs, links, hosts and conditions.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::calls::Cuts;
use super::declared::{CallPhase, Written};
use super::expand::Operations;
use super::keys::{self, Key};
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::operation::{read_deadline, read_period};
use super::settings::SettingInputs;
use super::table::{Table, in_order};
use super::times::{TimesFiles, takes};
use super::value::{InputValue, shortened};
use crate::ids::{OperationId, ProcessorId};
use crate::outside::{DelegateQuantity, HostQuantity, ReservationQuantity};
use crate::standby::Admissions;
use crate::system::{Deadline, Environment, Epoch};
use crate::time::{Instant, Span};

/// An epoch as written.
pub(super) struct DeclaredEpoch<'a> {
    name: String,
    at: Span,
    place: Place,
    changes: Vec<Change<'a>>,
    programs: Vec<NamedChange<'a>>,
    environment: Vec<NamedChange<'a>>,
    withdraw: Vec<AtPlace<&'a str>>,
    admit: Vec<AtPlace<&'a str>>,
}

/// A new value of a key of a program, a link, a host or a condition: its section and name, the key, and the place of the value.
pub(super) struct NamedChange<'a> {
    pub section: &'static str,
    pub name: AtPlace<String>,
    pub key: &'static str,
    pub value: &'a Spanned<DeValue<'a>>,
}

impl<'a> DeclaredEpoch<'a> {
    fn at_start(place: Place) -> Self {
        DeclaredEpoch::new("0".to_string(), Span::ZERO, place)
    }

    fn new(name: String, at: Span, place: Place) -> Self {
        DeclaredEpoch {
            name,
            at,
            place,
            changes: Vec::new(),
            programs: Vec::new(),
            environment: Vec::new(),
            withdraw: Vec::new(),
            admit: Vec::new(),
        }
    }

    /// Whether it begins within the duration from the command line.
    pub fn is_within(&self, duration: Option<Span>) -> bool {
        duration.is_none_or(|duration| self.at < duration)
    }

    /// When it begins, and its changes of programs.
    pub fn of_programs(&self) -> (Instant, &[NamedChange<'a>]) {
        (Instant::from_nanos(self.at.as_nanos()), &self.programs)
    }

    /// Its changes of links, hosts and conditions.
    pub fn of_environment(&self) -> &[NamedChange<'a>] {
        &self.environment
    }

    /// The operations that it withdraws and admits.
    pub fn admissions(&self) -> (&[AtPlace<&'a str>], &[AtPlace<&'a str>]) {
        (&self.withdraw, &self.admit)
    }

    /// For error messages.
    pub fn place(&self) -> Place {
        self.place
    }
}

/// A new value: the address as written, and a table in which the key has that value.
struct Change<'a> {
    address: EntryPath<'a>,
    entries: &'a DeTable<'a>,
    place: Place,
}

/// `operation.NAME.KEY`, `operation.NAME.INSTANCE.KEY`, and for parts of a table `...KEY.PART`.
struct EntryPath<'a> {
    operation: AtPlace<String>,
    key: &'static Key,
    part: Option<&'static Key>,
    /// As written in `entries`.
    written: &'a str,
}

/// Reads the epochs in the file's order, which must be that of time.
pub(super) fn read<'a>(log: &mut Log, top: &Table<'a>, duration: Span) -> Vec<DeclaredEpoch<'a>> {
    let mut epochs: Vec<DeclaredEpoch<'a>> = Vec::new();
    let mut names = HashMap::new();
    let tables = top.list(log, "epoch");
    for table in tables {
        let at = table.read(log, "at", InputValue::time);
        let (at, place) = at.map_or((Span::ZERO, table.place), |at| (at.value, at.place));
        if let Some(last) = epochs.last() {
            if at <= last.at && table.get("at").is_some() {
                log.error(place, format!("this epoch begins at {at}, not after the one before, at {}", last.at))
                    .also(last.place, "the one before")
                    .help("list epochs in order of time");
            }
        } else if at > Span::ZERO {
            epochs.push(DeclaredEpoch::at_start(place));
        }
        if at >= duration {
            log.warn(place, format!("this epoch begins at {at}, after the end of the run of {duration}"))
                .help("raise `duration` at the top of the file, or set a longer one on the command line");
        }
        let name = table.given(log, "name", InputValue::text);
        if let Some(name) = name
            && let Some(first) = names.insert(name.value, name.place)
        {
            log.error(name.place, "two epochs have the same name").also(first, "the first").help("rename one");
        }
        let name = name.map_or_else(|| epochs.len().to_string(), |name| name.value.to_string());
        let set = table.given(log, "set", |given| given.table("set = { \"operation.NAME.KEY\" = ... }"));
        let mut epoch = DeclaredEpoch::new(name, at, place);
        let mut names = |key| table.read(log, key, InputValue::texts).map_or(Vec::new(), |names| names.value);
        (epoch.withdraw, epoch.admit) = (names("withdraw"), names("admit"));
        if let Some(set) = set {
            collect(log, &mut Vec::new(), set.value, &mut epoch);
        }
        if epochs.len() == limits::EPOCHS {
            log.error(epoch.place, "too many epochs")
                .label(format!("number {}", epochs.len() + 1))
                .help(format!("a system has at most {}; split it into several", limits::EPOCHS));
            break;
        }
        epochs.push(epoch);
    }
    if epochs.is_empty() {
        epochs.push(DeclaredEpoch::at_start(Place::default()));
    }
    epochs
}

/// Follows keys to the values: quoted keys with dots in them, and tables within tables.
fn collect<'a>(log: &mut Log, path: &mut Vec<String>, table: &'a DeTable<'a>, epoch: &mut DeclaredEpoch<'a>) {
    for (written, value) in in_order(table) {
        let place = Place::from(written.span());
        let depth = path.len();
        path.extend(written.get_ref().split('.').map(str::to_string));
        match (address(path), value.get_ref().as_table()) {
            (EntryLookup::Complete(operation, key, part), _) => {
                let operation = AtPlace::new(operation, place);
                let address = EntryPath { operation, key, part, written: written.get_ref() };
                epoch.changes.push(Change { address, entries: table, place });
            }
            (EntryLookup::OfNamed(section, name, key), _) => {
                let change = NamedChange { section, name: AtPlace::new(name, place), key, value };
                if section == "reservation" { epoch.programs.push(change) } else { epoch.environment.push(change) }
            }
            (EntryLookup::Incomplete, Some(inner)) => collect(log, path, inner, epoch),
            (EntryLookup::Incomplete, None) => refuse(log, place, path, None),
            (EntryLookup::Wrong(segment), _) => refuse(log, place, path, Some(segment)),
        }
        path.truncate(depth);
    }
}

enum EntryLookup {
    Complete(String, &'static Key, Option<&'static Key>),
    /// `reservation.NAME.KEY`, `link.A-B.KEY` or `host.NAME.KEY`: the section, the name and the key.
    OfNamed(&'static str, String, &'static str),
    /// No error so far.
    Incomplete,
    /// The index of the wrong segment.
    Wrong(usize),
}

fn address(path: &[String]) -> EntryLookup {
    match path[0].as_str() {
        "operation" => {}
        "reservation" => return measured(path).unwrap_or_else(|| of_named("reservation", path)),
        "link" => return of_named("link", path),
        "host" => return measured(path).unwrap_or_else(|| of_named("host", path)),
        "delegate" => return measured(path).unwrap_or(EntryLookup::Wrong(path.len().min(3) - 1)),
        "condition" => return of_named("condition", path),
        _ => return EntryLookup::Wrong(0),
    }
    let Some(name) = path.get(1) else { return EntryLookup::Incomplete };
    // No key is a number: a number here is that of an instance.
    let is_number = |segment: &String| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let instance = path.get(2).filter(|segment| is_number(segment));
    let at = if instance.is_some() { 3 } else { 2 };
    let operation = instance.map_or(name.clone(), |instance| format!("{name}.{instance}"));
    let Some(segment) = path.get(at) else { return EntryLookup::Incomplete };
    let Some(key) = settable("operation", segment) else { return EntryLookup::Wrong(at) };
    match path.get(at + 1) {
        None => EntryLookup::Complete(operation, key, None),
        Some(part) => match (key.name, settable("operation.repeat", part), path.len() - at) {
            ("repeat", Some(part), 2) => EntryLookup::Complete(operation, key, Some(part)),
            _ => EntryLookup::Wrong(at + 1),
        },
    }
}

/// `host.NAME.temperature`, `reservation.NAME.asked` or `delegate.NAME.rate`: a measured condition with that name.
fn measured(path: &[String]) -> Option<EntryLookup> {
    let (section, quantity) = (path[0].as_str(), path.get(2..)?.join("."));
    let is_measured = match section {
        "host" => HostQuantity::of_name(&quantity).is_some(),
        "delegate" => DelegateQuantity::of_name(&quantity).is_some(),
        _ => ReservationQuantity::of_name(&quantity).is_some(),
    };
    if is_measured {
        return Some(EntryLookup::OfNamed("condition", path.join("."), "value"));
    }
    (section == "host" && quantity == "broker").then_some(EntryLookup::Incomplete)
}

fn of_named(section: &'static str, path: &[String]) -> EntryLookup {
    match path {
        [_] | [_, _] => EntryLookup::Incomplete,
        [_, name, key] => match settable(section, key) {
            Some(key) => EntryLookup::OfNamed(section, name.clone(), key.name),
            None => EntryLookup::Wrong(2),
        },
        [..] => EntryLookup::Wrong(3),
    }
}

fn settable(section: &str, name: &str) -> Option<&'static Key> {
    keys::section(section)?.key(name).filter(|key| key.settable)
}

fn settable_names(section: &str) -> impl Iterator<Item = &'static str> + use<> {
    keys::section(section).into_iter().flat_map(|section| section.keys).filter(|key| key.settable).map(|key| key.name)
}

fn refuse(log: &mut Log, place: Place, path: &[String], wrong: Option<usize>) {
    let written = shortened(&path.join("."));
    let like = "write \"operation.NAME.KEY\" = value";
    let (message, help) = match wrong {
        None => (format!("`{written}` does not name a setting"), like.to_string()),
        Some(0) => (
            format!("`{written}` cannot be set: epochs change operations, reservations, links, hosts and conditions"),
            like.to_string(),
        ),
        Some(at) => {
            let segment = &path[at];
            let section = path[0].as_str();
            let known = keys::section(section).and_then(|section| section.key(segment)).is_some();
            let what =
                if known { "cannot change over time".to_string() } else { format!("is not a key of {section}s") };
            let all = settable_names(section).collect::<Vec<_>>().join(", ");
            let nearest = log.nearest(segment, settable_names(section)).filter(|_| !known);
            let help = nearest.map_or(format!("epochs set {all}"), |nearest| format!("did you mean `{nearest}`?"));
            (format!("`{}` {what}", shortened(segment)), help)
        }
    };
    log.error(place, message).label("cannot be set").help(help);
}

/// All values set in each epoch, checked: changes add up from epoch to epoch. The second part is true if anything
/// changed.
pub(super) fn accumulate(
    log: &mut Log,
    epochs: &[DeclaredEpoch<'_>],
    operations: &Operations<'_>,
    edges: usize,
    files: &mut TimesFiles<'_>,
    delay: &dyn Fn(ProcessorId, ProcessorId) -> Span,
    duration: Option<Span>,
) -> Option<Vec<Option<Vec<Arc<Written>>>>> {
    let of_declaration: Vec<_> = operations.declared.iter().map(|one| Arc::new(one.written.clone())).collect();
    for (operation, written) in operations.declared.iter().zip(&of_declaration) {
        written.check(log, operation);
    }
    let mut now: Vec<_> = operations.declaration.iter().map(|declared| of_declaration[*declared].clone()).collect();
    let mut all = Vec::with_capacity(epochs.len());
    let (mut held, mut cuts) = (0, Cuts::default());
    for (index, epoch) in epochs.iter().enumerate() {
        log.silence(!epoch.is_within(duration));
        let mut touched: Vec<Range<u32>> = Vec::new();
        for change in &epoch.changes {
            let name = AtPlace::new(change.address.operation.value.as_str(), change.address.operation.place);
            for range in operations.find(log, name).unwrap_or_default() {
                change.apply(log, operations, &mut now[range.start as usize..range.end as usize], range.start, files);
                touched.push(range);
            }
        }
        check_touched(log, operations, &now, touched);
        if index > 0 && epoch.changes.is_empty() {
            all.push(None);
            continue;
        }
        held += operations.len() + edges;
        if held > limits::SETTINGS && index > 0 {
            log.error(epoch.place, "too many epochs for the number of operations")
                .help(format!("operations and connections times epochs are at most {}", limits::SETTINGS));
            return None;
        }
        let mut parts = now.clone();
        cuts.cut(log, &operations.declared, operations.first(), delay, &mut parts);
        all.push(Some(parts));
    }
    log.silence(false);
    Some(all)
}

/// Checks the changes of an epoch, once for all instances that share them.
fn check_touched(log: &mut Log, operations: &Operations<'_>, now: &[Arc<Written>], touched: Vec<Range<u32>>) {
    let mut checked = HashSet::new();
    for operation in touched.into_iter().flatten().map(OperationId) {
        let written = &now[operation.index()];
        if checked.insert(Arc::as_ptr(written)) {
            written.check(log, operations.of(operation));
        }
    }
}

impl Change<'_> {
    /// Writes the new value over the old one of these instances.
    fn apply(
        &self,
        log: &mut Log,
        operations: &Operations<'_>,
        instances: &mut [Arc<Written>],
        first: u32,
        files: &mut TimesFiles<'_>,
    ) {
        let key = self.address.key.name;
        if matches!(key, "rate" | "every" | "jitter" | "repeat") && !operations.of(OperationId(first)).periodic() {
            let help = match operations.of(OperationId(first)).requested() {
                true => "requests release this one",
                false => "other operations trigger this one: change them",
            };
            log.error(self.place, format!("`{key}` is for periodic operations")).help(help);
            return;
        }
        let operation = operations.of(OperationId(first));
        if let CallPhase::Before { rest, .. } = operation.part {
            let whole = operations.declared[rest].name.value;
            log.error(self.place, format!("`{}` is part of `{whole}`", operation.name.value))
                .label("cannot be set by itself")
                .help(format!("set \"operation.{whole}.{key}\": the part before the call follows from the whole"));
            return;
        }
        if key == "repeat" && operation.calls.is_some() {
            log.error(self.place, "`repeat` is not for operations that call")
                .help("move the load chain to an operation that this one triggers");
            return;
        }
        // The value is stored under its path in a table of the file: read it as if it were stored under its key.
        let Some(value) = self.entries.get(self.address.written) else { return };
        let mut table = DeTable::new();
        let name = self.address.part.map_or(key, |part| part.name);
        table.insert(toml::Spanned::new(value.span(), name.into()), value.clone());
        let section = if self.address.part.is_some() { "operation.repeat" } else { "operation" };
        let Some(table) = Table::open(log, section, "", self.place, &table) else { return };
        let Some(edit) = edit(log, &table, name, files) else { return };
        if let ("rate" | "every", Some(range)) = (key, operation.written.period)
            && range.value.0 < range.value.1
        {
            let mut changed = Written::clone(&operation.written);
            edit(&mut changed);
            let within = |period: Span| (range.value.0..=range.value.1).contains(&period);
            if !changed.period.is_some_and(|new| within(new.value.0) && within(new.value.1)) {
                let (shortest, longest) = range.value;
                log.error(self.place, format!("`{key}` is beyond the range of `{}`", operation.name.value))
                    .label(format!("not between every {shortest} and every {longest}"))
                    .also(range.place, "the range")
                    .help("change it within the range, or widen the range");
                return;
            }
        }
        let own =
            || read_deadline(&mut Log::default(), &table).is_some_and(|one| matches!(one.value, Deadline::Own(_)));
        if key == "deadline" && operation.calls.is_some() && !operation.periodic() && own() {
            log.error(self.place, "`deadline` counts from its own release, which ends at the call")
                .help("write `deadline = { end_to_end = ... }`");
            return;
        }
        // Instances that shared one text before share the changed one. The old ones are kept until the end: otherwise
        // new ones could reuse their addresses.
        let mut changed: HashMap<*const Written, (Arc<Written>, Arc<Written>)> = HashMap::new();
        for instance in instances {
            let (_, new) = changed.entry(Arc::as_ptr(instance)).or_insert_with(|| {
                let mut written = Written::clone(instance);
                edit(&mut written);
                (instance.clone(), Arc::new(written))
            });
            *instance = new.clone();
        }
    }
}

type Edit = Box<dyn Fn(&mut Written)>;

/// Applies the value of a key to the written operation.
fn edit(log: &mut Log, table: &Table<'_>, key: &str, files: &mut TimesFiles<'_>) -> Option<Edit> {
    let time = |log: &mut Log| table.given(log, key, InputValue::positive_time);
    let whole16 = |log: &mut Log, table: &Table<'_>, key| {
        let given = table.get(key).is_some();
        table.whole(log, key).filter(|_| given).map(|whole| whole.map(|whole| whole as u16))
    };
    Some(match key {
        "rate" | "every" => {
            let period = read_period(log, table)?;
            Box::new(move |written| written.period = Some(period))
        }
        "jitter" => {
            let jitter = table.given(log, key, InputValue::time)?;
            Box::new(move |written| written.jitter = Some(jitter))
        }
        "wcet" => {
            let wcet = time(log)?;
            Box::new(move |written| written.wcet = Some(wcet))
        }
        "bcet" => {
            let bcet = time(log)?;
            Box::new(move |written| written.bcet = Some(bcet))
        }
        "takes" => {
            let takes = takes(log, table, files)?;
            Box::new(move |written| written.execution_time = Some(takes.clone()))
        }
        "deadline" => {
            let deadline = read_deadline(log, table)?;
            Box::new(move |written| written.deadline = Some(deadline))
        }
        "enabled" => {
            let enabled = table.given(log, key, InputValue::truth)?.value;
            Box::new(move |written| written.enabled = enabled)
        }
        "legs" => {
            let legs = whole16(log, table, key)?;
            Box::new(move |written| written.legs = Some(legs))
        }
        "critical" => {
            let critical = whole16(log, table, key)?;
            Box::new(move |written| written.critical_legs = Some(critical))
        }
        _ => {
            let repeat = table.inner(log, "repeat")?;
            let (legs, critical) = (whole16(log, &repeat, "legs"), whole16(log, &repeat, "critical"));
            // Keys that the table omits stay: `repeat = { legs = 2 }` and `repeat.legs = 2` are the same in TOML.
            Box::new(move |written| {
                written.legs = legs.or(written.legs);
                written.critical_legs = critical.or(written.critical_legs);
            })
        }
    })
}

/// The epochs with the settings of every operation.
pub(super) fn settle(
    log: &mut Log,
    ground: &SettingInputs<'_>,
    epochs: Vec<DeclaredEpoch<'_>>,
    written: &[Option<Vec<Arc<Written>>>],
    (environments, admissions): (Vec<Arc<Environment>>, Vec<Admissions>),
    duration: Option<Span>,
) -> Vec<Epoch> {
    let mut settled: Vec<Epoch> = Vec::with_capacity(epochs.len());
    let states = environments.into_iter().zip(admissions);
    for ((epoch, written), (environment, admissions)) in epochs.into_iter().zip(written).zip(states) {
        log.silence(!epoch.is_within(duration));
        let settings = match (written, settled.last()) {
            (None, Some(last)) => last.settings.clone(),
            (Some(written), _) => ground.settle(log, written),
            (None, None) => Arc::from([]),
        };
        let at = Instant::from_nanos(epoch.at.as_nanos());
        settled.push(Epoch { name: epoch.name, at, settings, environment, admissions });
    }
    log.silence(false);
    settled
}
