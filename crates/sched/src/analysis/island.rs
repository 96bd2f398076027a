//! Processors that depend on each other, as separate systems: a change on one affects no processor of another.

use alloc::{vec, vec::Vec};

use hyoshi_model::{
    Chain, ChosenHops, Contents, Correlation, Epoch, Operation, OperationId, ProcessorId, Setting, System, Trigger,
};

/// Some processors with all their operations.
pub(super) struct Island {
    pub system: System,
    /// For each of its operations, its id in the whole system.
    pub operations: Vec<OperationId>,
}

/// Processors that triggers, chains and resources connect belong to one island.
pub(super) fn islands(system: &System) -> Vec<Island> {
    let mut joined = DisjointSets((0..system.processors.len()).collect());
    let on = |id: &OperationId| system.operation(*id).on.index();
    for operation in &system.operations {
        operation.trigger.predecessors().iter().for_each(|from| joined.join(on(from), operation.on.index()));
    }
    for chain in &system.chains {
        chain.path.windows(2).for_each(|pair| joined.join(on(&pair[0]), on(&pair[1])));
    }
    let mut user = vec![None; system.resources.len()];
    for operation in &system.operations {
        for (resource, _) in &operation.uses {
            let first = *user[resource.index()].get_or_insert(operation.on.index());
            joined.join(first, operation.on.index());
        }
    }
    let roots: Vec<usize> = (0..system.processors.len()).map(|one| joined.find(one)).collect();
    let islands = (0..roots.len()).filter(|root| roots[*root] == *root).map(|root| Island::new(system, &roots, root));
    islands.filter(|island| !island.operations.is_empty()).collect()
}

struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn find(&mut self, mut one: usize) -> usize {
        while self.0[one] != one {
            self.0[one] = self.0[self.0[one]];
            one = self.0[one];
        }
        one
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other)] = one.min(other);
    }
}

impl Island {
    fn new(system: &System, roots: &[usize], root: usize) -> Island {
        let here = |processor: ProcessorId| roots[processor.index()] == root;
        let processors: Vec<ProcessorId> = system.processor_ids().filter(|id| here(*id)).collect();
        let operations: Vec<OperationId> = system.operation_ids().filter(|id| here(system.operation(*id).on)).collect();
        let mut place = vec![OperationId(0); system.operations.len()];
        operations.iter().zip(0..).for_each(|(id, new)| place[id.index()] = OperationId(new));
        let moved = |ids: &[OperationId]| -> Vec<OperationId> { ids.iter().map(|id| place[id.index()]).collect() };
        let operation = |id: &OperationId| {
            let operation = system.operation(*id);
            let on = processors.iter().zip(0..).find(|(old, _)| **old == operation.on).map_or(0, |(_, new)| new);
            Operation {
                on: ProcessorId(on),
                trigger: match &operation.trigger {
                    Trigger::Periodic => Trigger::Periodic,
                    Trigger::All(all) => Trigger::All(moved(all)),
                    Trigger::Any(any) => Trigger::Any(moved(any)),
                    Trigger::First(copies) => Trigger::First(moved(copies)),
                    Trigger::Chosen(chosen) => Trigger::Chosen(ChosenHops {
                        predecessors: moved(&chosen.predecessors),
                        probability_ppm: chosen.probability_ppm,
                    }),
                    Trigger::Correlated(correlation) => Trigger::Correlated(Correlation {
                        predecessors: moved(&correlation.predecessors),
                        ..correlation.clone()
                    }),
                },
                // An operation that is read may be on another island; it matters only along chains, which are within
                // one.
                reads: Vec::new(),
                roots: moved(&operation.roots),
                // It may be admitted: then it releases jobs.
                standby: false,
                ..operation.clone()
            }
        };
        let chains = (0..system.chains.len())
            .filter(|chain| system.chains[*chain].path.first().is_some_and(|first| here(system.operation(*first).on)));
        let chains: Vec<usize> = chains.collect();
        let chain = |index: &usize| Chain { path: moved(&system.chains[*index].path), ..system.chains[*index].clone() };
        let mut epochs: Vec<Epoch> = Vec::new();
        for epoch in &system.epochs {
            let settings: Vec<Setting> = operations.iter().map(|id| epoch.settings[id.index()].clone()).collect();
            // Merge regions that are the same here.
            if epochs.last().is_none_or(|last| *last.settings != *settings || last.environment != epoch.environment) {
                epochs.push(Epoch {
                    name: epoch.name.clone(),
                    at: epoch.at,
                    settings: settings.into(),
                    environment: epoch.environment.clone(),
                    admissions: Default::default(),
                });
            }
        }
        let system = System::new(Contents {
            name: system.name.clone(),
            seed: system.seed,
            duration: system.duration,
            hosts: system.hosts.clone(),
            processors: processors.iter().map(|id| system.processor(*id).clone()).collect(),
            operations: operations.iter().map(operation).collect(),
            resources: system.resources.clone(),
            chains: chains.iter().map(chain).collect(),
            links: system.links.clone(),
            epochs,
            feedback: Vec::new(),
            conditions: Vec::new(),
            contracts: Vec::new(),
            brokered: hyoshi_model::Brokered::default(),
            objects: Vec::new(),
            delegates: Vec::new(),
            events: Vec::new(),
            idle_states: system.idle_states,
        });
        Island { system, operations }
    }
}
