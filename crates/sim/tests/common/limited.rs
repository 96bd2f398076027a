//! Random systems with contracts that change regions often: they limit rates and legs, and disable operations.

use hyoshi_model::predicate::Predicate;
use hyoshi_model::*;

use super::drawn;
use super::random::Choices;

/// A system of the row with ranges of rates and contracts, from a seed: the same on every machine.
pub fn system(row: usize, seed: u64) -> System {
    let mut choose = Choices::new(seed.wrapping_mul(drawn::ROWS.len() as u64).wrapping_add(row as u64) ^ 0xc047);
    let mut system = drawn::system(row, seed).into_contents();
    let (mut roots, all): (Vec<OperationId>, Vec<OperationId>) =
        (Vec::new(), (0..system.operations.len() as u32).map(OperationId).collect());
    // Contracts cannot limit the rate of a fixed one.
    let chosen: Vec<bool> =
        system.operations.iter().map(|one| one.trigger == Trigger::Periodic && choose.one_in(2)).collect();
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        for (index, operation) in system.operations.iter().enumerate() {
            let own: Vec<Span> = operation.roots.iter().map(|root| settings[root.index()].slowest).collect();
            let setting = &mut settings[index];
            if chosen[index] {
                setting.slowest = setting.period * choose.of(&[2, 3, 4, 8]);
                if choose.one_in(2) {
                    setting.deadline = Deadline::Own(setting.period);
                }
            } else if operation.trigger != Trigger::Periodic {
                // Enough for the reader's rule: the range of a single root.
                setting.slowest = if let [slowest] = own[..] { slowest.max(setting.period) } else { setting.period };
            }
        }
        epoch.settings = settings.into();
    }
    roots.extend(all.iter().filter(|id| chosen[id.index()]));
    let (from, count) = (system.contracts.len(), 1 + choose.below(3));
    for place in 0..count {
        let one = contract(&mut choose, &system, (&roots, &all), place);
        system.contracts.push(one);
    }
    debug_assert_eq!(system.contracts.len(), from + count as usize);
    system.name = format!("limited-{}", system.name);
    System::new(system)
}

fn contract(
    choose: &mut Choices,
    system: &Contents,
    (roots, all): (&[OperationId], &[OperationId]),
    place: u64,
) -> Contract {
    let watched = choose.of(all);
    let wcet = system.epochs[0].settings[watched.index()].wcet.as_nanos();
    let operations = LatencyScope::Operations(vec![watched]);
    let (on, whole) = (system.operation(watched).on, choose.one_in(3));
    let over = choose.one_in(3).then(|| Span::from_micros(1_000 + choose.below(20_000)));
    let (of, threshold) = match choose.below(4) {
        0 => (ConditionSource::MissRatio(operations), 0.2),
        1 => {
            let scope = JobScope::Processor { processor: on, critical: false };
            (ConditionSource::Queue(if whole { scope } else { JobScope::Operations(vec![watched]) }), 0.5)
        }
        _ => (ConditionSource::Latency(operations), (wcet + choose.below(3 * wcet)) as f64 / 1e9),
    };
    let condition = Condition { name: "x".into(), of, summary: WindowSummary::Mean, over, max_age: None };
    let read = |text: String| Some(Predicate::read(&text, &["x"]).unwrap_or_else(|error| panic!("{text}: {error}")));
    let stay = Stay::constant(Span::from_micros(choose.below(30_000)));
    let hold = Span::from_micros(if choose.one_in(3) { choose.below(5_000) } else { 0 });
    let rules = |parent, enter: Option<String>| RegionRules {
        parent,
        enter: enter.and_then(read),
        leave: None,
        hold,
        stay,
        latch: false,
    };
    let ramp = if choose.one_in(3) { Span::from_micros(choose.below(60_000)) } else { Span::ZERO };
    let region = |name: &str, rules, actions| ContractRegion { name: name.into(), rules, ramp, actions };
    let nested = choose.one_in(3);
    let mut regions =
        vec![region("thin", rules(None, Some(format!("x > {threshold:.9}"))), actions(choose, system, (roots, all)))];
    if nested {
        let inner = Some(format!("x > {:.9}", threshold * 1.5));
        regions.push(region("inner", rules(Some(0), inner), actions(choose, system, (roots, all))));
        regions.push(region("rest", rules(Some(0), None), vec![]));
    }
    // Now and then the last region has limits, too.
    let last = if choose.one_in(4) { actions(choose, system, (roots, all)) } else { vec![] };
    regions.push(region("normal", rules(None, None), last));
    let processor = if choose.one_in(3) { choose.below(system.processors.len() as u64) as u32 } else { on.0 };
    Contract {
        name: format!("k{place}"),
        processor: ProcessorId(processor),
        // Different: they may set the same.
        precedence: choose.below(3) as u32 * 64 + place as u32,
        period: Span::from_micros(300 + choose.below(6_000)),
        conditions: vec![condition],
        regions,
    }
}

fn actions(
    choose: &mut Choices,
    system: &Contents,
    (roots, all): (&[OperationId], &[OperationId]),
) -> Vec<ContractAction> {
    let mut actions = Vec::new();
    for _ in 0..1 + choose.below(2) {
        let legs = |id: &OperationId| system.epochs[0].settings[id.index()].legs;
        let several: Vec<OperationId> = all.iter().copied().filter(|id| legs(id) > 1).collect();
        match choose.below(6) {
            0 if choose.one_in(4) => actions.push(ContractAction::Enable { operation: choose.of(all) }),
            0 => actions.push(ContractAction::Disable { operation: choose.of(all) }),
            1 | 2 if !several.is_empty() => {
                let operation = choose.of(&several);
                let most = 1 + choose.below(u64::from(legs(&operation)) - 1) as u16;
                actions.push(ContractAction::LimitLegs { operation, most });
            }
            _ if !roots.is_empty() => {
                let operation = choose.of(roots);
                let setting = &system.epochs[0].settings[operation.index()];
                let (fastest, slowest) = (setting.period.as_nanos(), setting.slowest.as_nanos());
                let mut within = || Span::from_nanos(fastest + choose.below(slowest - fastest + 1) / 1_000 * 1_000);
                let (one, other) = (within(), within());
                let longest = if choose.one_in(3) { one.max(other) } else { Span::from_nanos(u64::MAX) };
                actions.push(ContractAction::LimitPeriod { operation, shortest: one.min(other), longest });
            }
            _ => {}
        }
    }
    actions
}

/// The system without one of its parts of contracts, in all ways.
pub fn lesser(system: &System) -> Vec<System> {
    let mut all = Vec::new();
    for (place, contract) in system.contracts.iter().enumerate() {
        all.push(system.clone().with(|contents| drop(contents.contracts.remove(place))));
        for (region, one) in contract.regions.iter().enumerate() {
            for action in 0..one.actions.len() {
                let less = |contents: &mut Contents| {
                    contents.contracts[place].regions[region].actions.remove(action);
                };
                all.push(system.clone().with(less));
            }
        }
    }
    all
}

/// Renumbers the operations of contracts after one has been removed; false if a contract needs it.
pub fn forget(contents: &mut Contents, id: OperationId) -> bool {
    let moved = |of: &mut OperationId| of.0 -= u32::from(of.0 > id.0);
    for contract in &mut contents.contracts {
        for condition in &mut contract.conditions {
            match &mut condition.of {
                ConditionSource::MissRatio(LatencyScope::Operations(ids))
                | ConditionSource::Latency(LatencyScope::Operations(ids))
                | ConditionSource::Queue(JobScope::Operations(ids)) => {
                    if ids.contains(&id) {
                        return false;
                    }
                    ids.iter_mut().for_each(moved);
                }
                _ => {}
            }
        }
        for action in contract.regions.iter_mut().flat_map(|region| &mut region.actions) {
            match action {
                ContractAction::LimitPeriod { operation, .. }
                | ContractAction::LimitLegs { operation, .. }
                | ContractAction::Disable { operation }
                | ContractAction::Enable { operation } => {
                    if *operation == id {
                        return false;
                    }
                    moved(operation);
                }
                _ => {}
            }
        }
    }
    true
}
