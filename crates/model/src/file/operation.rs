//! `[operation.NAME]` as written: names not resolved, templates not expanded.

use super::declared::{After, CallPhase, DeclaredCall, DeclaredOperation, DeclaredStagger, SelectedEvents, Written};
use super::events;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::replicas;
use super::table::{Table, in_order, log_complaint};
use super::times::{TimesFiles, takes};
use super::value::{InputValue, complain};
use crate::ids::{ProcessorId, ResourceId};
use crate::system::{Deadline, Guard, OnBusy, OnOverrun, QueueLimit, WhenFull};
use crate::time::Span;

impl<'a> DeclaredOperation<'a> {
    pub fn read(
        log: &mut Log,
        (name, table): (AtPlace<&'a str>, &Table<'a>),
        (processors, resources, event_names): (&Names<'_>, &Names<'_>, &Names<'_>),
        files: &mut TimesFiles<'_>,
    ) -> DeclaredOperation<'a> {
        let on = table.given(log, "on", InputValue::text);
        let on = processors.find_or_only(log, on, name);
        let after = table.inner(log, "after").and_then(|after| read_after(log, &after));
        one_release(log, name, table);
        let reads = table.read(log, "reads", InputValue::texts);
        refuse_twice(log, reads.as_ref().map_or(&[], |reads| &reads.value));
        let (queue, uses) = (read_queue(log, table), read_uses(log, table, resources));
        let on_overrun = table.choice(log, "on_overrun").map_or(0, |choice| choice.value);
        let on_busy = table.choice(log, "on_busy").map_or(0, |choice| choice.value);
        let guard = table.choice(log, "guard");
        let guard = guard.map(|guard| guard.map(|choice| [Guard::Off, Guard::On, Guard::Idle][choice]));
        let payload = read_payload(log, table);
        let supplies = events::read_supplies(log, table, event_names);
        let time = |log: &mut Log, key| table.read(log, key, InputValue::time).map_or(Span::ZERO, |time| time.value);
        let burst = read_burst(log, table);
        let declared = DeclaredOperation {
            name,
            on: ProcessorId(on.unwrap_or(0)),
            called: read_called(log, table),
            min_interval: table.given(log, "min_interval", InputValue::positive_time),
            calls: read_calls(log, table),
            part: CallPhase::Whole,
            method: None,
            within: None,
            misread: table.misread
                || (after.is_none() && table.get("after").is_some())
                || reads.is_none()
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
            guard,
            payload,
            replicate: replicas::read(log, table),
            written: read_written(log, table, files, burst.map(|(_, within)| within)),
        };
        declared.refuse_misplaced(log, table);
        // If one call is malformed, the set of calls is unknown.
        DeclaredOperation {
            misread: declared.misread || (table.get("calls").is_some() && declared.calls.is_none()),
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
        let (calls, triggered) = (table.get("calls").is_some(), table.get("after").is_some());
        let called = table.get("called").is_some();
        if !called {
            refuse("min_interval", "is for operations that requests release", "add `called = true`, or remove it");
        }
        if called || calls {
            let many = if called { "is not for methods" } else { "is not for operations that call" };
            refuse("count", many, "declare them one by one");
        }
        if calls {
            let chain = "move the load chain to an operation that this one triggers";
            refuse("repeat", "is not for operations that call", chain);
        }
        if let (true, OnBusy::Skip) = (calls, self.on_busy) {
            let queue = "remove it: `queue` limits the waiting jobs";
            refuse("on_busy", "cannot see a job that waits in a call", queue);
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
        if table.get("count").is_none() {
            refuse("stagger", "is for templates", "add `count`, or use `phase`");
        }
    }
}

/// The settings that an epoch can change, at the start.
fn read_written(
    log: &mut Log,
    table: &Table<'_>,
    files: &mut TimesFiles<'_>,
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
        wcet: table.read(log, "wcet", InputValue::positive_time),
        bcet: table.given(log, "bcet", InputValue::positive_time),
        execution_time: takes(log, table, files),
        deadline: read_deadline(log, table),
        legs: whole16(log, "legs"),
        critical_legs: whole16(log, "critical"),
        enabled: table.read(log, "enabled", InputValue::truth).is_none_or(|enabled| enabled.value),
    }
}

fn read_calls<'a>(log: &mut Log, table: &Table<'a>) -> Option<DeclaredCall<'a>> {
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
    let key = match ["all", "any", "event"].into_iter().filter(|key| table.get(key).is_some()).collect::<Vec<_>>()[..] {
        [key] => key,
        [first, second, ..] => {
            let place = table.get(second).map_or(table.place, |value| value.span().into());
            log.error(place, format!("`after` has both `{first}` and `{second}`"))
                .help("keep one; to combine them, insert an operation");
            return None;
        }
        [] => {
            log.error(table.place, "`after` names no operation")
                .help("write after = { all = [\"...\"] }, { any = [\"...\"] } or { event = \"...\" }");
            return None;
        }
    };
    let mut names = table.given(log, key, |given| match key {
        "event" => given.one_or_several(),
        _ => given.texts(),
    });
    let from = table.given(log, "from", InputValue::texts);
    if key != "event" && table.get("from").is_some() {
        log.error(table.place_of("from"), "`from` is for events").help("remove it, or use `event`");
        names = None;
    }
    let mut names = names?;
    let what = if key == "event" { "event" } else { "operation" };
    let lists = [("after", what, Some(&names)), ("from", "supplier", from.as_ref())];
    for (key, what, list) in lists.into_iter().filter_map(|(key, what, list)| Some((key, what, list?))) {
        if list.value.is_empty() {
            log.error(list.place, format!("`{key}` names no {what}")).help("name at least one");
            return None;
        }
        refuse_twice(log, &list.value);
    }
    if key != "event" {
        return Some(After { all: key == "all", names, events: None });
    }
    if table.get("from").is_some() && from.is_none() {
        return None;
    }
    let whole = names.place;
    let placed =
        |name: AtPlace<&'a str>| if name.place == Place::default() { AtPlace::new(name.value, whole) } else { name };
    let patterns = std::mem::take(&mut names.value).into_iter().map(placed).collect();
    let events = SelectedEvents { patterns, from: from.map(|from| from.value), positions: Vec::new() };
    Some(After { all: false, names, events: Some(events) })
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
