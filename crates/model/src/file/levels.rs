//! `levels` of `[operation.NAME]`: service levels, among which the loop of the processor chooses.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use super::expand::Operations;
use super::log::{AtPlace, Log, Place};
use super::table::{Table, check_name, log_complaint};
use super::value::{InputValue, shortened};
use crate::feedback::{FeedbackAlgorithm, FeedbackLoop, MOST_SERVICE_LEVELS, RateDivision, ServiceLevel};
use crate::ids::OperationId;
use crate::system::{Contents, Trigger};
use crate::time::Span;

/// The levels, the shortest worst case first. `None` without valid ones; logged if the operation has the key.
pub(super) fn read(log: &mut Log, table: &Table<'_>) -> Option<AtPlace<Vec<ServiceLevel>>> {
    let list = table.given(log, "levels", InputValue::list)?;
    let place = table.place_of("levels");
    if !(2..=MOST_SERVICE_LEVELS).contains(&list.value.len()) {
        let levels = if list.value.len() == 1 { "level" } else { "levels" };
        log.error(place, format!("`levels` has {} {levels}", list.value.len()))
            .help(format!("write 2 to {MOST_SERVICE_LEVELS} levels, or set `wcet` alone"));
        return None;
    }
    let read: Vec<_> = list.value.iter().filter_map(|item| read_level(log, item)).collect();
    if read.len() < list.value.len() {
        return None;
    }
    let mut levels: Vec<_> = read.iter().collect();
    levels.sort_by_key(|level| level.value.wcet);
    let mut sound = true;
    for (at, level) in read.iter().enumerate() {
        if let Some(first) = read[..at].iter().find(|first| first.value.name == level.value.name) {
            log.error(level.place, format!("two levels are named `{}`", level.value.name))
                .also(first.place, "the other")
                .help("rename one: the body of a job reads the name of its level");
            sound = false;
        }
    }
    for (cheaper, level) in levels.iter().zip(&levels[1..]) {
        if level.value.wcet == cheaper.value.wcet {
            log.error(level.place, format!("two levels have a `wcet` of {}", level.value.wcet))
                .also(cheaper.place, "the other")
                .help("keep the one with the higher value");
            sound = false;
        } else if level.value.value < cheaper.value.value {
            let (name, other) = (&level.value.name, &cheaper.value.name);
            log.error(level.place, format!("the level `{name}` needs more time than `{other}`, and is worth less"))
                .also(cheaper.place, format!("worth {}", cheaper.value.value))
                .help("remove it, or raise its value");
            sound = false;
        }
    }
    sound.then(|| AtPlace::new(levels.into_iter().map(|level| level.value.clone()).collect(), place))
}

fn read_level(log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<AtPlace<ServiceLevel>> {
    let place = Place::from(item.span());
    let table = match InputValue::of(item.get_ref()).table("levels = [{ name = \"full\", wcet = \"4ms\", value = 10 }]")
    {
        Ok(entries) => Table::open(log, "operation.levels", "", place, entries)?,
        Err(complaint) => {
            log_complaint(log, "levels", place, complaint);
            return None;
        }
    };
    let name = table.read(log, "name", InputValue::text);
    let wcet = table.read(log, "wcet", InputValue::positive_time);
    let value = table.whole(log, "value");
    let name = name?;
    check_name(log, "level", name);
    let level = ServiceLevel { name: name.value.into(), wcet: wcet?.value, value: value?.value as u32 };
    (!table.misread).then(|| AtPlace::new(level, place))
}

/// The worst case of an operation with these levels.
pub(super) fn largest(levels: &AtPlace<Vec<ServiceLevel>>) -> Option<AtPlace<Span>> {
    levels.value.last().map(|level| AtPlace::new(level.wcet, levels.place))
}

/// Rejects times that differ from those of the levels.
pub(super) fn check_times(
    log: &mut Log,
    levels: &AtPlace<Vec<ServiceLevel>>,
    wcet: AtPlace<Span>,
    bcet: Option<AtPlace<Span>>,
) {
    let Some(last) = levels.value.last() else { return };
    if wcet.value != last.wcet {
        log.error(wcet.place, format!("`wcet` is {}, and that of the largest level {}", wcet.value, last.wcet))
            .also(levels.place, "the levels")
            .help("remove `wcet`: the largest level has the worst case");
    }
    if let Some(bcet) = bcet {
        log.error(bcet.place, "`bcet` cannot be combined with `levels`")
            .also(levels.place, "the levels")
            .help("remove it: the best case follows from `takes` and the lowest level");
    }
}

/// False, logged, if no loop can choose the levels of an operation.
pub(super) fn check(
    log: &mut Log,
    contents: &Contents,
    operations: &Operations<'_>,
    loops: &[(AtPlace<&str>, FeedbackLoop)],
) -> bool {
    let mut sound = true;
    let mut of_rate = BTreeMap::new();
    for (position, operation) in contents.operations.iter().enumerate().filter(|(_, one)| !one.levels.is_empty()) {
        let id = OperationId(position as u32);
        let (place, name) = (operations.of(id).levels.place, shortened(&operation.name));
        let mut refuse = |message: String, help: String| {
            log.error(place, message).help(help);
            sound = false;
        };
        let processor = &contents.processor(operation.on).name;
        let Some((_, one)) = loops.iter().find(|(_, one)| one.processor == operation.on) else {
            let help = format!("add [feedback.{processor}] with `divide = \"value\"`, or remove `levels`");
            refuse(format!("no loop chooses the levels of `{name}`"), help);
            continue;
        };
        let algorithm = one.algorithm.name();
        if one.algorithm.is_of_group() {
            let help = format!("use FC-U or FC-UM in [feedback.{processor}], or remove `levels`");
            refuse(format!("{algorithm} does not choose the levels of `{name}`"), help);
        } else if one.algorithm == FeedbackAlgorithm::FcM {
            let help =
                format!("use FC-U or FC-UM in [feedback.{processor}]: levels need a set point of the utilisation");
            refuse(format!("{algorithm} does not choose the levels of `{name}`"), help);
        } else if one.divide != RateDivision::Value {
            let help = format!("write divide = \"value\" in [feedback.{processor}]: levels have values");
            refuse(format!("divide = \"{}\" does not choose the levels of `{name}`", one.divide.name()), help);
        }
        if contents.with_clients_on(operation.on).next().is_some() {
            let help = "move one of them to another processor, or remove `levels`";
            refuse(
                format!("the loop of `{processor}` cannot set the rates of clients and the levels of `{name}`"),
                help.into(),
            );
        }
        match operation.roots[..] {
            [root] if contents.operation(root).trigger == Trigger::Periodic => {
                let adapted = contents.adapted_by(id).map(|root| (root, operation.on));
                if let Some(other) = adapted.and_then(|root| of_rate.insert(root, id)) {
                    let other = operations.name(other);
                    let help = "keep the levels of one of them, or use a fixed rate";
                    refuse(format!("`{other}` and `{name}` have levels and one adapted rate"), help.into());
                }
            }
            _ => {
                let help = "set levels on periodic operations, or on those that follow one periodic operation only";
                refuse(format!("the rate of `{name}` is unknown, so no loop can choose its levels"), help.into());
            }
        }
    }
    sound
}
