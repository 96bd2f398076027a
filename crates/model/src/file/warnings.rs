//! Warnings about probable mistakes in a valid file.

use super::expand::Operations;
use super::log::Log;
use super::replicas;
use super::table::Table;
use crate::checked::System;
use crate::contract::ContractAction;
use crate::ids::OperationId;
use crate::system::{Epoch, Guard, Trigger, utilisation_ppm};
use crate::time::{Instant, Span};

/// Warns about the regions that begin within `duration`.
pub(super) fn warn(
    log: &mut Log,
    system: &System,
    operations: &Operations<'_>,
    top: &Table<'_>,
    duration: Option<Span>,
) {
    overload(log, system, top, duration);
    if system.operations.is_empty() && system.brokered.programs.is_empty() {
        log.warn(top.place, "there is no operation: nothing will run").help("add one: [operation.NAME]");
    }
    ranges(log, system, operations);
    replicas::warn(log, system, operations);
    for id in system.operation_ids() {
        merges_and_joins(log, system, operations, id);
    }
}

/// Processors with more load than they can execute, reported once with the worst epoch.
fn overload(log: &mut Log, system: &System, top: &Table<'_>, duration: Option<Span>) {
    let mut worst: Vec<(u64, usize)> = vec![(0, 0); system.processors.len()];
    let reached = |epoch: &Epoch| duration.is_none_or(|duration| epoch.at.since(Instant::ZERO) < duration);
    for (index, epoch) in system.epochs.iter().enumerate().filter(|(_, epoch)| reached(epoch)) {
        let mut ppm = vec![0u64; system.processors.len()];
        let rates = system.release_rates(index);
        for ((operation, setting), rate) in system.operations.iter().zip(epoch.settings.iter()).zip(rates) {
            ppm[operation.on.index()] += utilisation_ppm(setting.wcet, setting.legs, rate).min(1 << 32);
        }
        // A loop lowers the rates.
        for one in &system.feedback {
            ppm[one.processor.index()] = system.least_load_ppm(index, one.processor);
        }
        for (worst, ppm) in worst.iter_mut().zip(ppm).filter(|(worst, ppm)| *ppm > worst.0) {
            *worst = (ppm, index);
        }
    }
    // Each operation's share is rounded.
    let full = 1_000_000 + system.operations.len() as u64;
    for (processor, (ppm, epoch)) in system.processors.iter().zip(worst).filter(|(_, (ppm, _))| *ppm > full) {
        let when =
            if system.epochs.len() > 1 { format!(" in epoch `{}`", system.epochs[epoch].name) } else { String::new() };
        let percent = format!("{}.{}%", ppm / 10_000, ppm / 1_000 % 10);
        log.warn(
            top.place_in("processor", &processor.name),
            format!("processor `{}` has a load of {percent}{when}", processor.name),
        )
        .help("not all deadlines can be met: strategies that know criticality miss or cancel non-critical jobs first");
    }
}

/// Ranges of rates that no loop and no contract adapts.
fn ranges(log: &mut Log, system: &System, operations: &Operations<'_>) {
    let mut adapted = vec![false; operations.declared.len()];
    for one in &system.feedback {
        system.adapted_on(one.processor).iter().for_each(|one| adapted[operations.position(one.root)] = true);
    }
    let actions = system.contracts.iter().flat_map(|one| &one.regions).flat_map(|region| &region.actions);
    for action in actions {
        if let ContractAction::LimitPeriod { operation, .. } = action {
            adapted[operations.position(*operation)] = true;
        }
    }
    for (declared, adapted) in operations.declared.iter().zip(adapted) {
        if let Some(period) = declared.written.period
            && period.value.0 < period.value.1
            && !adapted
        {
            let processor = &system.processor(declared.on).name;
            log.warn(period.place, format!("nothing adapts the rate of `{}`", declared.name.value))
                .label(format!("released every {}, its fastest", period.value.0))
                .help(format!("add [feedback.{processor}], limit the rate by a contract, or set one rate"));
        }
    }
}

/// Triggers that let jobs pile up without limit.
fn merges_and_joins(log: &mut Log, system: &System, operations: &Operations<'_>, id: OperationId) {
    let declared = operations.of(id);
    let Some(after) = &declared.after else { return };
    let periods = |operations: &[OperationId]| -> (Span, Span) {
        let periods = operations.iter().map(|one| system.setting(0, *one).period);
        (periods.clone().min().unwrap_or_default(), periods.max().unwrap_or_default())
    };
    match &system.operation(id).trigger {
        Trigger::All(joined) => {
            let (shortest, longest) = periods(joined);
            if shortest != longest {
                log.warn(after.names.place, format!("this joins operations with periods of {shortest} and {longest}"))
                    .help("completions of the faster pile up: use `reads`, which samples the latest value");
            }
        }
        Trigger::Any(_) | Trigger::Chosen(_)
            if system.operation(id).trigger.predecessors().len() > 1 && system.operation(id).guard != Guard::Off =>
        {
            let place = declared.guard.map_or(after.names.place, |guard| guard.place);
            log.warn(place, "the guard lets one release through in a period, and several operations trigger this one")
                .help("remove the guard, or merge before it: releases pile up");
        }
        _ => {}
    }
}
