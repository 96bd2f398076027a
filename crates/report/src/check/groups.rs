//! Groups of feedback loops (EUCON, DEUCON) before they run: set points, reachable utilisations and their limits.

use std::collections::BTreeMap;

use hyoshi_model::{ControlGroup, ProcessorId, System};
use hyoshi_sched::analysis::Report;
use serde::Serialize;

use super::feedback::bound;
use crate::figures::{counted, nanos, percent};
use crate::terminal::TerminalStyle;
use crate::terminal::grid::{CellValue, Tone, column, grid};

/// A group before it runs. Utilisations are parts of each processor's hard cap, at the declared execution times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCheck {
    /// Its algorithm.
    pub algorithm: &'static str,
    /// The rates that it sets.
    pub rates: u64,
    /// Its controllers.
    pub controllers: u64,
    /// The estimated CPU time of a step of all controllers.
    pub step_ns: u64,
    /// The processor on which they compute.
    pub computed_on: String,
    /// Its processors.
    pub members: Vec<MemberCheck>,
    /// Processors with operations of these rates, but without a loop: their load is not controlled.
    pub outside: Vec<OutsideCheck>,
}

/// A processor of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberCheck {
    /// Its name.
    pub processor: String,
    /// The set point of its utilisation.
    pub target_ppm: u64,
    /// Whether analysis determined the set point.
    pub set_by_analysis: bool,
    /// Its utilisation at the lowest rates.
    pub least_ppm: u64,
    /// Its utilisation at the highest rates.
    pub most_ppm: u64,
    /// The utilisation up to which analysis excludes misses at every rate; `None` if no bound applies.
    pub bound_ppm: Option<u64>,
    /// Why no bound applies.
    #[serde(skip)]
    unbounded: Option<String>,
    /// `highest` if the highest rates stay below the set point, `lowest` if the lowest rates are above it.
    pub unreachable: Option<&'static str>,
}

/// A processor outside a group that its rates load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutsideCheck {
    /// Its name.
    pub processor: String,
    /// Its operations with a rate of the group.
    pub operations: Vec<String>,
}

/// All groups of a system.
pub(super) fn groups(system: &System, report: &Report) -> Vec<GroupCheck> {
    system.control_groups().iter().map(|group| check(system, report, group)).collect()
}

fn check(system: &System, report: &Report, group: &ControlGroup) -> GroupCheck {
    let mut outside: BTreeMap<ProcessorId, Vec<String>> = BTreeMap::new();
    for operation in group.tasks.iter().flat_map(|task| &task.outside).map(|id| system.operation(*id)) {
        outside.entry(operation.on).or_default().push(operation.name.clone());
    }
    let outside = outside.into_iter().map(|(processor, operations)| OutsideCheck {
        processor: system.processor(processor).name.clone(),
        operations,
    });
    GroupCheck {
        algorithm: group.algorithm.name(),
        rates: group.tasks.len() as u64,
        controllers: group.nodes().len() as u64,
        step_ns: group.step_cost().as_nanos(),
        computed_on: system.processor(computed_on(system, group)).name.clone(),
        members: group.loops.iter().map(|place| member(system, report, *place)).collect(),
        outside: outside.collect(),
    }
}

/// The processor on which the controllers of a group compute. The thread of a host's first group computes the rates of
/// all its groups.
fn computed_on(system: &System, group: &ControlGroup) -> ProcessorId {
    let first = |group: &ControlGroup| system.feedback[group.loops[0]].processor;
    let host = |group: &ControlGroup| system.processor(first(group)).host;
    let groups = system.control_groups();
    first(groups.iter().find(|other| host(other) == host(group)).unwrap_or(group))
}

fn member(system: &System, report: &Report, place: usize) -> MemberCheck {
    let one = &system.feedback[place];
    let processor = system.processor(one.processor);
    let of_cap = |ppm: u64| ppm.saturating_mul(1_000_000) / u64::from(processor.hard_cap.ppm.max(1));
    let bounded = bound(system, report, one.processor);
    let target = u64::from(one.utilisation_ppm);
    let least = of_cap(system.least_load_ppm(0, one.processor));
    let most = of_cap(system.utilisation_ppm(0, one.processor));
    MemberCheck {
        processor: processor.name.clone(),
        target_ppm: target,
        least_ppm: least,
        most_ppm: most,
        set_by_analysis: one.utilisation_analysed,
        bound_ppm: bounded.as_ref().ok().copied(),
        unbounded: bounded.err(),
        unreachable: match () {
            () if most < target => Some("highest"),
            () if least > target => Some("lowest"),
            () => None,
        },
    }
}

/// The table of groups, and remarks on it.
pub(super) fn table(system: &System, report: &Report, look: TerminalStyle) -> Option<String> {
    let groups = groups(system, report);
    if groups.is_empty() {
        return None;
    }
    let columns = [
        column("processor"),
        column("algorithm"),
        column("set point"),
        column("at the lowest rates"),
        column("at the highest rates"),
        column("no miss up to").spare(1),
    ];
    let row = |algorithm: &'static str, one: &MemberCheck| {
        let above = one.bound_ppm.is_none_or(|bound| one.target_ppm > bound);
        let tone = |worry: bool| if worry { Tone::Worry } else { Tone::Plain };
        vec![
            CellValue::words(&one.processor),
            CellValue::words(algorithm),
            CellValue::figure(percent(one.target_ppm)).in_tone(tone(above)),
            CellValue::figure(percent(one.least_ppm)).in_tone(tone(one.unreachable == Some("lowest"))),
            CellValue::figure(percent(one.most_ppm)).in_tone(tone(one.unreachable == Some("highest"))),
            CellValue::figure(one.bound_ppm.map_or("unknown".into(), percent)),
        ]
    };
    let rows = groups.iter().flat_map(|group| group.members.iter().map(|one| row(group.algorithm, one)));
    let rows: Vec<_> = rows.collect();
    let mut text = grid(look, &columns, &rows, crate::terminal::MOST_ROWS);
    for line in groups.iter().flat_map(remarks).take(crate::terminal::MOST_ROWS) {
        text.push_str(&look.wrap(&format!("  {line}\n")));
    }
    Some(text)
}

/// The remarks on a group.
fn remarks(group: &GroupCheck) -> Vec<String> {
    let mut remarks = vec![format!(
        "{}: {} {}",
        group.algorithm,
        counted(group.controllers, "controller sets", "controllers set"),
        counted(group.rates, "rate", "rates")
    )];
    remarks.push(format!(
        "{}: computes these rates above its lanes, for about {} in each sampling period; no bound includes this",
        group.computed_on,
        nanos(group.step_ns)
    ));
    for one in &group.members {
        let processor = &one.processor;
        if one.set_by_analysis {
            remarks.push(format!("{processor}: the set point of {} is from this analysis", percent(one.target_ppm)));
        }
        match one.bound_ppm {
            Some(bound) if one.target_ppm > bound => remarks.push(format!(
                "{processor}: misses are possible at its set point of {}; analysis excludes them up to {}",
                percent(one.target_ppm),
                percent(bound)
            )),
            Some(_) => {}
            None => remarks.push(format!(
                "{processor}: no utilisation bound applies, so analysis cannot exclude misses: {}",
                one.unbounded.as_deref().unwrap_or_default()
            )),
        }
        match one.unreachable {
            Some("lowest") => {
                remarks.push(format!("{processor}: above its set point even at the lowest rates: allow lower rates"))
            }
            Some(_) => {
                remarks.push(format!("{processor}: below its set point even at the highest rates: allow higher rates"))
            }
            None => {}
        }
    }
    for OutsideCheck { processor, operations } in &group.outside {
        let what = counted(operations.len() as u64, "operation", "operations");
        remarks.push(format!(
            "{processor}: {} sets the rates of {what} here, but no loop controls the load: add [feedback.{processor}]",
            group.algorithm
        ));
    }
    remarks
}
