//! The promises to the lanes of a host's processors, above all windows.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hyoshi_model::{Costs, HostId, OperationId, ProcessorId, Setting, Span, System};

use crate::window::placement::CpuPromise;

/// The period of the watchdog.
const WATCHDOG: Span = Span::from_millis(50);

/// The CPU of each processor of a host: the one in the file; else, as a run places it, the last of the broker's CPUs
/// that has no processor; else the one with the fewest.
pub fn cpus(system: &System, host: HostId) -> Vec<(ProcessorId, u32)> {
    let Some(broker) = system.brokered.brokers.get(host.index()) else { return Vec::new() };
    let of_host = system.processor_ids().filter(|id| system.processor(*id).host == host);
    let mut placed: Vec<(ProcessorId, Option<u32>)> = of_host.map(|id| (id, system.processor(id).cpu)).collect();
    for place in 0..placed.len() {
        let users = |cpu: &u32| placed.iter().filter(|(_, used)| *used == Some(*cpu)).count();
        let least = broker.cpus.iter().rev().min_by_key(|cpu| users(cpu)).copied();
        placed[place].1 = placed[place].1.or(least);
    }
    placed.into_iter().map(|(id, cpu)| (id, cpu.unwrap_or(0))).collect()
}

/// The most CPU time of lanes on a CPU, operation by operation: those of the processors that name it, and of all that
/// name none, because a run may place them there.
///
/// In each period an operation's jobs need their worst case and the costs of scheduling, the largest of all regions;
/// they begin as late as their deadline allows. So it holds as long as the operations meet their deadlines.
pub fn promises(system: &System, host: HostId, cpu: u32) -> Vec<CpuPromise> {
    let here = |id: &ProcessorId| {
        let processor = system.processor(*id);
        processor.host == host && processor.cpu.is_none_or(|named| named == cpu)
    };
    let rates = rates(system);
    system.processor_ids().filter(here).flat_map(|processor| of_processor(system, processor, &rates)).collect()
}

/// The same of a run with processors on these CPUs, by CPU.
pub fn promises_of_run(system: &System, placed: &[(ProcessorId, u32)]) -> BTreeMap<u32, Vec<CpuPromise>> {
    let rates = rates(system);
    let mut promises: BTreeMap<u32, Vec<CpuPromise>> = BTreeMap::new();
    for (processor, cpu) in placed {
        let lanes = of_processor(system, *processor, &rates);
        if !lanes.is_empty() {
            promises.entry(*cpu).or_default().extend(lanes);
        }
    }
    promises
}

fn rates(system: &System) -> Vec<Vec<u64>> {
    (0..system.epochs.len()).map(|epoch| system.release_rates(epoch)).collect()
}

fn of_processor(system: &System, processor: ProcessorId, rates: &[Vec<u64>]) -> Vec<CpuPromise> {
    let costs = system.processor(processor).costs;
    let operations = system.operations_on(processor).filter_map(|id| of_operation(system, id, costs, rates));
    let mut promises: Vec<CpuPromise> = operations.collect();
    if !promises.is_empty() && !costs.watchdog.is_zero() {
        promises.push(CpuPromise { budget: costs.watchdog, period: WATCHDOG, jitter: WATCHDOG });
    }
    promises
}

fn of_operation(system: &System, id: OperationId, costs: Costs, rates: &[Vec<u64>]) -> Option<CpuPromise> {
    let runs = rates.iter().enumerate().filter(|(_, rates)| rates[id.index()] > 0);
    let each = runs.map(|(epoch, rates)| {
        let setting = system.setting(epoch, id);
        let period = Span::from_nanos((1_000_000_000_000_000_000 / rates[id.index()]).max(1));
        let budget = budget(setting, costs);
        let latest = setting.deadline.span().max(period).saturating_sub(budget);
        CpuPromise { budget, period, jitter: latest + setting.jitter }
    });
    each.reduce(|one, other| CpuPromise {
        budget: one.budget.max(other.budget),
        period: one.period.min(other.period),
        jitter: one.jitter.max(other.jitter),
    })
}

/// All legs of a release, with a release, a queue and two switches for each.
fn budget(setting: &Setting, costs: Costs) -> Span {
    let leg = setting.wcet + costs.timer + costs.enqueue + costs.dequeue + costs.cancel + costs.switch * 2;
    Span::from_nanos(leg.as_nanos().saturating_mul(u64::from(setting.legs)))
}
