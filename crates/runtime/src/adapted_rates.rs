//! The latest rate of each operation that a loop sets on other processors, or that the coordinator of a group sets on
//! its processors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyoshi_model::{OperationId, ProcessorId, Span, System};

/// The latest adapted periods. Only the loop or coordinator of an operation writes its period. The release thread of
/// each processor reads those of its operations. A newer period replaces an older one, so nothing waits and nothing
/// grows.
#[derive(Debug)]
pub(crate) struct AdaptedRates {
    /// By root, in nanoseconds; at first the start periods, 0 without a loop.
    periods: Vec<AtomicU64>,
    /// The same as sent to other hosts.
    sent: Vec<AtomicU64>,
    /// By processor: some of its periods are new.
    changed: Vec<AtomicBool>,
    /// By processor: the roots of its operations that a loop elsewhere or a coordinator adapts, in order.
    roots: Vec<Vec<OperationId>>,
}

impl AdaptedRates {
    pub fn new(system: &System) -> Self {
        let mut roots = vec![Vec::new(); system.processors.len()];
        let loops = system.feedback.iter().filter(|one| !one.algorithm.is_of_group());
        for adapted in loops.flat_map(|one| system.adapted_on(one.processor)) {
            adapted.elsewhere.iter().for_each(|id| roots[system.operation(*id).on.index()].push(adapted.root));
        }
        for task in system.control_groups().iter().flat_map(|group| &group.tasks) {
            task.operations().for_each(|id| roots[system.operation(id).on.index()].push(task.root));
        }
        for roots in &mut roots {
            roots.sort_unstable();
            roots.dedup();
        }
        let mut starts = vec![0; system.operations.len()];
        system.adapted_roots().into_iter().for_each(|(root, _, start)| starts[root.index()] = start.as_nanos());
        let [periods, sent] = [(); 2].map(|()| starts.iter().map(|start| AtomicU64::new(*start)).collect());
        AdaptedRates { periods, sent, changed: roots.iter().map(|_| AtomicBool::new(false)).collect(), roots }
    }

    /// Sets a period for the operations of a processor. False if they do not follow this root.
    pub fn set(&self, to: ProcessorId, root: OperationId, period: Span) -> bool {
        if self.roots.get(to.index()).is_none_or(|roots| roots.binary_search(&root).is_err()) {
            return false;
        }
        self.periods[root.index()].store(period.as_nanos(), Ordering::Relaxed);
        self.changed[to.index()].store(true, Ordering::Release);
        true
    }

    /// The latest period of a root.
    pub fn latest(&self, root: OperationId) -> Span {
        Span::from_nanos(self.periods[root.index()].load(Ordering::Relaxed))
    }

    /// The period of a root that its host knows.
    pub fn sent(&self, root: OperationId) -> Span {
        Span::from_nanos(self.sent[root.index()].load(Ordering::Relaxed))
    }

    /// A period was sent to the host of a root.
    pub fn set_sent(&self, root: OperationId, period: Span) {
        self.sent[root.index()].store(period.as_nanos(), Ordering::Relaxed);
    }

    /// All periods of a processor are new again.
    pub fn renew(&self, processor: ProcessorId) {
        self.changed[processor.index()].store(true, Ordering::Release);
    }

    /// If some periods of a processor are new: passes all of them to `each`. True if there were some.
    pub fn take(&self, processor: ProcessorId, mut each: impl FnMut(OperationId, Span)) -> bool {
        let changed = &self.changed[processor.index()];
        if !changed.load(Ordering::Relaxed) || !changed.swap(false, Ordering::Acquire) {
            return false;
        }
        for root in &self.roots[processor.index()] {
            let period = self.periods[root.index()].load(Ordering::Relaxed);
            if period > 0 {
                each(*root, Span::from_nanos(period));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_takes_the_latest_rate_once() {
        let text = "name = 'two'\n[processor.client]\n[processor.server]\n\
            [feedback.server]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
            [operation.poll]\non = 'client'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.fixed]\non = 'client'\nrate = '1Hz'\nwcet = '1ms'\n\
            [operation.serve]\non = 'server'\nafter = { all = ['poll'] }\nwcet = '10ms'\n";
        let system = hyoshi_model::read(text, "two.toml", None).unwrap().system;
        let rates = AdaptedRates::new(&system);
        let [client, server] = [ProcessorId(0), ProcessorId(1)];
        let poll = OperationId(0);
        assert!(rates.set(client, poll, Span::from_millis(200)));
        assert!(rates.set(client, poll, Span::from_millis(300)));
        assert!(!rates.set(server, poll, Span::from_millis(300)));
        assert!(!rates.set(client, OperationId(1), Span::from_millis(300)));
        let mut taken = Vec::new();
        assert!(rates.take(client, |root, period| taken.push((root, period))));
        assert_eq!(taken, [(poll, Span::from_millis(300))]);
        assert!(!rates.take(client, |_, _| panic!("nothing is new")));
    }

    #[test]
    fn the_coordinator_of_a_group_sets_rates_on_every_processor_of_a_chain() {
        let text = "name = 'three'\n[processor.one]\n[processor.two]\n[processor.outside]\n\
            [feedback.one]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [feedback.two]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [operation.poll]\non = 'one'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.serve]\non = 'two'\nafter = { all = ['poll'] }\nwcet = '10ms'\n\
            [operation.log]\non = 'outside'\nafter = { all = ['serve'] }\nwcet = '1ms'\n\
            [operation.own]\non = 'two'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n";
        let system = hyoshi_model::read(text, "three.toml", None).unwrap().system;
        let rates = AdaptedRates::new(&system);
        let (poll, own) = (OperationId(0), OperationId(3));
        for processor in [0, 1, 2].map(ProcessorId) {
            assert!(rates.set(processor, poll, Span::from_millis(200)));
            assert_eq!(rates.set(processor, own, Span::from_millis(300)), processor == ProcessorId(1));
        }
    }
}
