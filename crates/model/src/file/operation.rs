//! `[operation.NAME]` as written: names not resolved, templates not expanded.

use super::clients;
use super::declared::{
    After, AfterKind, CallPhase, DeclaredCall, DeclaredOperation, DeclaredStagger, SelectedEvents, TriggerGroup,
    Written,
};
use super::events;
use super::levels;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::replicas;
use super::table::{Table, in_order, log_complaint};
use super::times::{TimesFiles, takes};
use super::value::{InputValue, complain, shortened};
use crate::feedback::ServiceLevel;
use crate::ids::{ProcessorId, ResourceId};
use crate::system::{Deadline, Guard, OnBusy, OnMiss, OnOverrun, QueueLimit, WhenFull};
use crate::time::Span;

impl<'a> DeclaredOperation<'a> {
    pub fn read(
        log: &mut Log,
        (name, table): (AtPlace<&'a str>, &Table<'a>),
        (processors, resources, event_names): (&Names<'_>, &Names<'_>, &Names<'_>),
        files: &mut TimesFiles<'_>,
    ) -> DeclaredOperation<'a> {
        let (on, further) = read_places(log, (name, table), processors);
        let after = table.inner(log, "after").and_then(|after| read_after(log, &after));
        one_release(log, name, table);
        let reads = table.read(log, "reads", InputValue::texts);
        refuse_twice(log, reads.as_ref().map_or(&[], |reads| &reads.value));
        let (queue, uses) = (read_queue(log, table), read_uses(log, table, resources));
        let on_overrun = table.choice(log, "on_overrun").map_or(0, |choice| choice.value);
        let on_busy = table.choice(log, "on_busy").map_or(0, |choice| choice.value);
        let on_miss = table.choice(log, "on_miss").map_or(0, |choice| choice.value);
        let guard = table.choice(log, "guard");
        let guard = guard.map(|guard| guard.map(|choice| [Guard::Off, Guard::On, Guard::Idle][choice]));
        let payload = read_payload(log, table);
        let supplies = events::read_supplies(log, table, event_names);
        let time = |log: &mut Log, key| table.read(log, key, InputValue::time).map_or(Span::ZERO, |time| time.value);
        let (burst, clients) = (read_burst(log, table), clients::read(log, table));
        let levels = levels::read(log, table);
        let declared = DeclaredOperation {
            name,
            on,
            further,
            called: read_called(log, table),
            min_interval: table.given(log, "min_interval", InputValue::positive_time),
            clients,
            written: read_written(log, table, (files, levels.as_ref()), burst.map(|(_, within)| within)),
            standby: table
                .given(log, "standby", InputValue::truth)
                .filter(|given| given.value)
                .map(|given| given.place),
            calls: read_calls(log, table),
            calls_any: read_calls_any(log, table),
            part: CallPhase::Whole,
            method: None,
            within: None,
            misread: table.misread
                || (after.is_none() && table.get("after").is_some())
                || reads.is_none()
                || (table.get("clients").is_some() && clients.is_none())
                || (table.get("levels").is_some() && levels.is_none())
                || supplies.is_none(),
            after,
            supplies: supplies.unwrap_or_default(),
            reads: reads.unwrap_or(AtPlace::new(Vec::new(), name.place)),
            phase: time(log, "phase"),
            // The jobs of a burst arrive in any order.
            phase_given: table.get("phase").is_some() || table.get("count").is_some(),
            offset: time(log, "offset"),
            stagger: read_stagger(log, table),
            count: burst
                .map(|(jobs, _)| jobs)
                .or(table.whole(log, "count").map(|count| count.map(|count| count as u32))),
            critical: table.read(log, "critical", InputValue::truth).is_some_and(|critical| critical.value),
            importance: table.whole(log, "importance").map_or(0, |importance| importance.value as u32),
            uses,
            uses_place: table.place_of("uses"),
            queue,
            on_overrun: [OnOverrun::Report, OnOverrun::Demote, OnOverrun::Stop][on_overrun],
            on_busy: [OnBusy::Queue, OnBusy::Skip][on_busy],
            on_miss: [OnMiss::Continue, OnMiss::Stop, OnMiss::SkipNext][on_miss],
            guard,
            timeout: table.given(log, "timeout", InputValue::positive_time).map(|timeout| timeout.value),
            lifespan: table.given(log, "lifespan", InputValue::positive_time).map(|lifespan| lifespan.value),
            payload,
            replicate: replicas::read(log, table),
            levels: levels.unwrap_or(AtPlace::new(Vec::new(), name.place)),
        };
        declared.refuse_misplaced(log, table);
        // If one call is malformed, the set of calls is unknown.
        DeclaredOperation {
            misread: declared.misread
                || (table.get("calls").is_some() && declared.calls.is_none() && !declared.calls_any),
            ..declared
        }
    }

    /// Rejects keys that have no meaning for an operation of this kind: ignoring them would mislead.
    fn refuse_misplaced(&self, log: &mut Log, table: &Table<'a>) {
        let is_first = table.get("after").is_none() && table.get("called").is_none();
        if let (false, Some(place)) = (is_first, self.calls.and_then(|call| call.divide)) {
            log.error(place, "`divide` is for periodic operations")
                .help("remove it, or set it on the periodic operation that starts the calls");
        }
        let mut refuse = |key: &str, why: &str, help: &str| {
            if table.get(key).is_some() {
                log.error(table.place_of(key), format!("`{key}` {why}")).help(help);
            }
        };
        let calls = table.get("calls").is_some() && !self.calls_any;
        let triggered = table.get("after").is_some();
        let called = table.get("called").is_some();
        if !called {
            for key in ["min_interval", "clients"] {
                refuse(key, "is for operations that requests release", "add `called = true`, or remove it");
            }
        }
        if called || calls {
            refuse(
                "levels",
                if called { "is not for methods" } else { "is not for operations that call" },
                "remove it",
            );
            let many = if called { "is not for methods" } else { "is not for operations that call" };
            refuse("count", many, "declare them one by one");
        }
        if calls {
            let chain = "move the load chain to an operation that this one triggers";
            refuse("repeat", "is not for operations that call", chain);
            refuse("standby", "is not for operations that call", "remove it, or remove `calls`");
            let caller = "set it on an operation that triggers this one";
            refuse("timeout", "is not for operations that call", caller);
            refuse("lifespan", "is not for operations that call", caller);
        }
        if let (true, OnBusy::Skip) = (calls, self.on_busy) {
            let queue = "remove it: `queue` limits the waiting jobs";
            refuse("on_busy", "cannot see a job that waits in a call", queue);
        }
        if calls && self.on_miss != OnMiss::Continue {
            refuse("on_miss", "cannot see a job that waits in a call", "remove it, or set it on the method");
        }
        if calls && (triggered || called) {
            let limit = "remove it, or use a chain's deadline or `deadline = { end_to_end = ... }`";
            if self.written.deadline.is_some_and(|deadline| matches!(deadline.value, Deadline::Own(_))) {
                refuse("deadline", "counts from its own release, which ends at the call", limit);
            }
        }
        if triggered || called {
            refuse("phase", "is for periodic operations", "use `offset` for a fixed time after the trigger");
            refuse(
                "jitter",
                "is for periodic operations",
                "set it on the operations that trigger this one, or on a \
                [[link]]",
            );
            refuse("stagger", "is for periodic operations", "stagger those that trigger this one");
            refuse("repeat", "is for periodic operations", "release the load chain with `every`");
        } else if !calls {
            refuse("guard", "is for triggered operations", "remove it: periodic releases need no guard");
        }
        if !triggered && !calls {
            for key in ["timeout", "lifespan"] {
                refuse(key, "is for triggered operations", "remove it, or add `after`");
            }
        }
        if table.get("burst").is_some() {
            if triggered || called || calls {
                refuse(
                    "burst",
                    "is for periodic operations without calls",
                    "set it on the operation that triggers this one",
                );
            }
            refuse(
                "count",
                "cannot be combined with `burst`",
                "keep one: `burst` makes as many instances as it has jobs",
            );
            refuse(
                "jitter",
                "cannot be combined with `burst`",
                "remove it: `within` limits how late a job of the burst arrives",
            );
        }
        if self.calls_any {
            refuse(
                "uses",
                "is not for operations that call any object",
                "remove it: a job must not hold resources during a call",
            );
        }
        if !self.further.is_empty() {
            let why = "cannot be combined with several processors in `on`";
            refuse("count", why, "name one processor, or declare each operation separately");
            refuse("burst", why, "name one processor, or remove `burst`");
        }
        if table.get("count").is_none() {
            refuse("stagger", "is for templates", "add `count`, or use `phase`");
        }
    }
}

/// The processor of `on`, or the first one, and the further ones.
fn read_places<'a>(
    log: &mut Log,
    (name, table): (AtPlace<&'a str>, &Table<'a>),
    processors: &Names<'_>,
) -> (ProcessorId, Vec<AtPlace<(ProcessorId, &'a str)>>) {
    let given = table.given(log, "on", |given| match given.one_or_several()? {
        places if places.is_empty() => complain("is empty", "name at least one processor"),
        places => Ok(places),
    });
    let Some(AtPlace { value: names, place }) = given else {
        let only = if table.get("on").is_none() { processors.find_or_only(log, None, name) } else { None };
        return (ProcessorId(only.unwrap_or(0)), Vec::new());
    };
    let own_place = |one: &AtPlace<&'a str>| if names.len() == 1 { AtPlace::new(one.value, place) } else { *one };
    let mut places: Vec<AtPlace<(ProcessorId, &'a str)>> = Vec::new();
    for one in names.iter().map(own_place) {
        let Some(found) = processors.find(log, one).map(ProcessorId) else { continue };
        if let Some(first) = places.iter().find(|place| place.value.0 == found) {
            log.error(one.place, format!("`{}` is repeated", shortened(one.value)))
                .also(first.place, "the first time")
                .help("name each processor once");
            continue;
        }
        places.push(one.map(|name| (found, name)));
    }
    match places.is_empty() {
        true => (ProcessorId(0), places),
        false => (places.remove(0).value.0, places),
    }
}

/// The settings that an epoch can change, at the start.
fn read_written(
    log: &mut Log,
    table: &Table<'_>,
    (files, levels): (&mut TimesFiles<'_>, Option<&AtPlace<Vec<ServiceLevel>>>),
    within: Option<AtPlace<Span>>,
) -> Written {
    let repeat = table.inner(log, "repeat");
    let whole16 = |log: &mut Log, key| {
        let whole =
            repeat.as_ref().filter(|repeat| repeat.get(key).is_some()).and_then(|repeat| repeat.whole(log, key));
        whole.map(|whole| whole.map(|whole| whole as u16))
    };
    Written {
        period: read_period(log, table),
        jitter: within.or(table.read(log, "jitter", InputValue::time)),
        wcet: match levels {
            Some(levels) if table.get("wcet").is_none() => levels::largest(levels),
            _ if table.get("levels").is_some() => table.given(log, "wcet", InputValue::positive_time),
            _ => table.required(log, "wcet", InputValue::positive_time),
        },
        bcet: table.given(log, "bcet", InputValue::positive_time),
        execution_time: takes(log, table, files),
        deadline: read_deadline(log, table),
        legs: whole16(log, "legs"),
        critical_legs: whole16(log, "critical"),
        enabled: table.read(log, "enabled", InputValue::truth).is_none_or(|enabled| enabled.value),
    }
}

/// The word in place of a call.
const ANY: &str = "any";

/// Whether `calls` is a word, not a table.
fn calls_by_word(table: &Table<'_>) -> bool {
    table.get("calls").is_some_and(|value| value.get_ref().is_str())
}

fn read_calls_any(log: &mut Log, table: &Table<'_>) -> bool {
    let any = |given: InputValue<'_>| match given.text()? {
        ANY => Ok(()),
        other => {
            let other = shortened(other);
            complain(format!("cannot be `{other}`"), "write `{ method = \"a\", after = \"1ms\" }`, or \"any\"")
        }
    };
    calls_by_word(table) && table.given(log, "calls", any).is_some()
}

fn read_calls<'a>(log: &mut Log, table: &Table<'a>) -> Option<DeclaredCall<'a>> {
    if calls_by_word(table) {
        return None;
    }
    let calls = table.inner(log, "calls")?;
    let (method, after) =
        (calls.read(log, "method", InputValue::text), calls.read(log, "after", InputValue::positive_time));
    let oneway = calls.read(log, "oneway", InputValue::truth).is_some_and(|oneway| oneway.value);
    let divide = calls.read(log, "divide", InputValue::truth).filter(|divide| divide.value).map(|divide| divide.place);
    Some(DeclaredCall { method: method?, after: after?, oneway, divide })
}

/// Whether calls or requests release the operation.
fn read_called(log: &mut Log, table: &Table<'_>) -> bool {
    let called = table.given(log, "called", |given| match given.truth()? {
        true => Ok(true),
        false => complain("is false", "remove it: false is implied"),
    });
    called.is_some()
}

/// The deadline of a job: a time from its own release, or in a table one from its origin.
pub(super) fn read_deadline(log: &mut Log, table: &Table<'_>) -> Option<AtPlace<Deadline>> {
    if !table.get("deadline")?.get_ref().is_table() {
        return table.given(log, "deadline", |given| given.positive_time().map(Deadline::Own));
    }
    let inner = table.inner(log, "deadline")?;
    if inner.get("end_to_end").is_none() && !inner.misread {
        log.error(inner.place, "`deadline` has no time")
            .help("write deadline = \"25ms\", or { end_to_end = \"25ms\" } from the release that led to it");
    }
    inner.given(log, "end_to_end", |given| given.positive_time().map(Deadline::Origin))
}

/// The shortest and the longest period, from `rate` or `every`.
pub(super) fn read_period(log: &mut Log, table: &Table<'_>) -> Option<AtPlace<(Span, Span)>> {
    let every = |given: InputValue<'_>| given.one_or_pair("times", InputValue::positive_time);
    table.given(log, "rate", InputValue::periods_of_rates).or(table.given(log, "every", every))
}

/// Exactly one of `rate`, `every`, `after` and `called` releases an operation.
fn one_release(log: &mut Log, name: AtPlace<&str>, table: &Table<'_>) {
    let given: Vec<_> =
        ["rate", "every", "after", "called"].into_iter().filter(|key| table.get(key).is_some()).collect();
    match given[..] {
        [_] => {}
        [] if table.misread => {}
        [] => {
            log.error(name.place, format!("nothing releases `{}`", super::value::shortened(name.value)))
                .label("`rate`, `every`, `after` or `called` is missing")
                .help("add `rate = \"10Hz\"`, `every = \"100ms\"`, `after = { all = [\"...\"] }` or `called = true`");
        }
        [first, second, ..] => {
            log.error(table.place_of(second), format!("`{first}` and `{second}` both release it"))
                .also(table.place_of(first), "released by this")
                .help("keep one; if the latest value of an operation is enough, list it in `reads`");
        }
    }
}

fn read_after<'a>(log: &mut Log, table: &Table<'a>) -> Option<After<'a>> {
    let kinds = ["all", "any", "first", "chosen", "event"];
    let key = match kinds.into_iter().filter(|key| table.get(key).is_some()).collect::<Vec<_>>()[..] {
        [key] => key,
        [first, second, ..] => {
            let place = table.get(second).map_or(table.place, |value| value.span().into());
            log.error(place, format!("`after` has both `{first}` and `{second}`"))
                .help("keep one; the lists of `all` and `any` may contain { event = \"...\" }");
            return None;
        }
        [] => {
            log.error(table.place, "`after` names no operation")
                .help("write after = { all = [\"...\"] }, { any = [\"...\"] } or { event = \"...\" }");
            return None;
        }
    };
    let mut misplaced = false;
    for (only, wanted) in [("from", "event"), ("except", "event"), ("within", "all"), ("probability", "chosen")] {
        if key != wanted && table.get(only).is_some() {
            let what = if wanted == "event" { "events".into() } else { format!("`{wanted}`") };
            log.error(table.place_of(only), format!("`{only}` is for {what}"))
                .help(format!("remove it, or use `{wanted}`"));
            misplaced = true;
        }
    }
    let within = table.given(log, "within", InputValue::time);
    let after = match key {
        "event" => {
            let events = read_selection(log, table)?;
            let names = AtPlace::new(Vec::new(), events.patterns.place);
            let group = TriggerGroup { names: names.clone(), events: vec![events] };
            After { groups: vec![group], ..After::operations(AfterKind::Any, names) }
        }
        "first" => After::operations(AfterKind::First, read_names(log, table, key)?),
        "chosen" => {
            let probability = table.read(log, "probability", InputValue::share_ppm)?.value;
            After::operations(AfterKind::Chosen(probability), read_names(log, table, key)?)
        }
        _ => {
            let conditions = read_conditions(log, table, key)?;
            After { within, ..conditions }
        }
    };
    Some(after).filter(|_| !misplaced && (table.get("within").is_some() == within.is_some()))
}

/// The list of `first` or `chosen`: names of operations.
fn read_names<'a>(log: &mut Log, table: &Table<'a>, key: &str) -> Option<AtPlace<Vec<AtPlace<&'a str>>>> {
    let names = table.given(log, key, InputValue::texts)?;
    if names.value.is_empty() {
        log.error(names.place, "`after` names no operation").help("name at least one");
        return None;
    }
    refuse_twice(log, &names.value);
    Some(names)
}

/// The list of `all` or `any`: names of operations, and tables.
fn read_conditions<'a>(log: &mut Log, table: &Table<'a>, key: &str) -> Option<After<'a>> {
    let (section, kind) = match key {
        "all" => ("operation.after.all", AfterKind::All),
        _ => ("operation.after.any", AfterKind::Any),
    };
    let list = table.given(log, key, InputValue::list)?;
    if list.value.is_empty() {
        log.error(list.place, "`after` names no operation").help("name at least one");
        return None;
    }
    let (mut names, mut groups, mut sound) = (AtPlace::new(Vec::new(), list.place), Vec::new(), true);
    for item in list.value {
        let place = Place::from(item.span());
        match InputValue::of(item.get_ref()) {
            InputValue::Table(entries) => {
                let inner = Table::open(log, section, "", place, entries);
                let group = inner.and_then(|inner| read_group(log, &inner, place));
                sound &= group.is_some();
                groups.extend(group);
            }
            given => match given.text() {
                Ok(name) => names.value.push(AtPlace::new(name, place)),
                Err(complaint) => {
                    log_complaint(log, key, list.place, complaint.within(place));
                    return None;
                }
            },
        }
    }
    refuse_twice(log, &names.value);
    sound.then(|| After { groups, ..After::operations(kind, names) })
}

/// A table in the list of `all` or `any`.
fn read_group<'a>(log: &mut Log, table: &Table<'a>, place: Place) -> Option<TriggerGroup<'a>> {
    if table.get("any").is_none() {
        let events = read_selection(log, table)?;
        return Some(TriggerGroup { names: AtPlace::new(Vec::new(), place), events: vec![events] });
    }
    if let Some(second) = ["event", "from", "except"].into_iter().find(|key| table.get(key).is_some()) {
        log.error(table.place_of(second), format!("a group has both `any` and `{second}`"))
            .help("write any = [\"...\", { event = \"...\" }]");
        return None;
    }
    let After { names, groups, .. } = read_conditions(log, table, "any")?;
    Some(TriggerGroup { names, events: groups.into_iter().flat_map(|group| group.events).collect() })
}

/// `event`, `from` and `except`.
fn read_selection<'a>(log: &mut Log, table: &Table<'a>) -> Option<SelectedEvents<'a>> {
    if table.get("event").is_none() {
        if !table.misread {
            log.error(table.place, "this names no event").help("write { event = \"...\" }");
        }
        return None;
    }
    let patterns = table.given(log, "event", InputValue::one_or_several);
    let from = table.given(log, "from", InputValue::texts);
    let except = table.given(log, "except", InputValue::one_or_several);
    let mut patterns = patterns?;
    let lists = [
        ("after", "event", Some(&patterns)),
        ("from", "supplier", from.as_ref()),
        ("except", "event", except.as_ref()),
    ];
    for (key, what, list) in lists.into_iter().filter_map(|(key, what, list)| Some((key, what, list?))) {
        if list.value.is_empty() {
            log.error(list.place, format!("`{key}` names no {what}")).help("name at least one");
            return None;
        }
        refuse_twice(log, &list.value);
    }
    let misread = |key: &str, read: bool| table.get(key).is_some() && !read;
    if misread("from", from.is_some()) || misread("except", except.is_some()) {
        return None;
    }
    // A single text has no place of its own.
    let place = |names: &mut AtPlace<Vec<AtPlace<&'a str>>>| {
        let whole = names.place;
        names.value.iter_mut().filter(|name| name.place == Place::default()).for_each(|name| name.place = whole);
    };
    let mut except = except.unwrap_or(AtPlace::new(Vec::new(), patterns.place));
    place(&mut patterns);
    place(&mut except);
    let (from, suppliers) = (from.map(|from| from.value), AtPlace::new(Vec::new(), patterns.place));
    Some(SelectedEvents { patterns, from, except, suppliers, positions: Vec::new() })
}

/// Bytes that a job may pass on.
pub(super) fn read_payload(log: &mut Log, table: &Table<'_>) -> u32 {
    let payload = table.read(log, "payload", |given| match given.size()? {
        0..=65_536 => given.size(),
        _ => complain("is too large", "the limit is \"64KiB\": hand over a reference to what is larger"),
    });
    payload.map_or(0, |payload| payload.value as u32)
}

/// Rejects a list that names one thing twice.
pub(super) fn refuse_twice(log: &mut Log, names: &[AtPlace<&str>]) {
    let mut first_of = std::collections::HashMap::new();
    for name in names {
        if let Some(first) = first_of.insert(name.value, name.place) {
            log.error(name.place, format!("`{}` is named twice", super::value::shortened(name.value)))
                .also(first, "here first")
                .help("remove one");
        }
    }
}

/// A burst, as a template: this many instances with one phase, each late by up to `within`. No window has more jobs
/// than that of a stream with bursts at least a period apart.
fn read_burst(log: &mut Log, table: &Table<'_>) -> Option<(AtPlace<u32>, AtPlace<Span>)> {
    let burst = table.inner(log, "burst")?;
    let jobs = burst.whole(log, "jobs")?.map(|jobs| jobs as u32);
    Some((jobs, burst.read(log, "within", InputValue::time)?))
}

fn read_queue(log: &mut Log, table: &Table<'_>) -> QueueLimit {
    // Without the key, an empty table supplies the defaults of its keys.
    let empty = toml::de::DeTable::new();
    let given = table.inner(log, "queue");
    let inner = match given {
        Some(inner) => Some(inner),
        None => Table::open(log, "operation.queue", "", table.place, &empty),
    };
    let limit = inner.as_ref().and_then(|inner| inner.whole(log, "limit"));
    let when_full = inner.as_ref().and_then(|inner| inner.choice(log, "when_full"));
    QueueLimit {
        limit: limit.map_or(1, |limit| limit.value as u32),
        when_full: [WhenFull::DropNewest, WhenFull::DropOldest][when_full.map_or(0, |choice| choice.value)],
    }
}

fn read_uses(log: &mut Log, table: &Table<'_>, resources: &Names<'_>) -> Vec<(ResourceId, Span)> {
    let held = table.given(log, "uses", |given| given.table("uses = { resource = \"0.3ms\" }"));
    let mut uses = Vec::new();
    for (name, value) in held.map_or(Vec::new(), |held| in_order(held.value)) {
        let resource = resources.find(log, AtPlace::new(&**name.get_ref(), name.span().into()));
        match InputValue::of(value.get_ref()).positive_time() {
            Ok(span) => uses.extend(resource.map(|resource| (ResourceId(resource), span))),
            Err(complaint) => log_complaint(log, name.get_ref(), value.span().into(), complaint),
        }
    }
    uses
}

fn read_stagger(log: &mut Log, table: &Table<'_>) -> DeclaredStagger {
    let place = table.place_of("stagger");
    let stagger = table.read(log, "stagger", |given| match given {
        InputValue::Text("even") => Ok(DeclaredStagger::Even),
        given => given.time().map(|span| DeclaredStagger::By(AtPlace::new(span, place))).map_err(|mut complaint| {
            complaint.help = "write \"even\", or the time between two instances such as \"1ms\"".to_string();
            complaint
        }),
    });
    stagger.map_or(DeclaredStagger::By(AtPlace::new(Span::ZERO, place)), |stagger| stagger.value)
}
