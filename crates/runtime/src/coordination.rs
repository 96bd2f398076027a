//! The coordinator's thread of groups of processors under EUCON or DEUCON. Release threads store samples here, and the
//! thread sets rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_control::feedback::Coordinator;
use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_os::{Clock, Wake};

use crate::common::CommonState;

/// The latest sample of each processor in a group. A newer one replaces an older one, so nothing waits and nothing grows.
#[derive(Debug)]
pub(crate) struct GroupSamples {
    /// By processor; `None` outside groups.
    latest: Vec<Option<AtomicU64>>,
    /// Wakes the coordinator's thread.
    pub wake: Wake,
}

/// No sample.
const NOTHING: u64 = u64::MAX;
/// A sample without a measured utilisation.
const UNMEASURED: u64 = u64::MAX - 1;

impl GroupSamples {
    pub fn new(system: &System) -> Self {
        let mut latest: Vec<_> = system.processors.iter().map(|_| None).collect();
        for one in system.feedback.iter().filter(|one| one.algorithm.is_of_group()) {
            latest[one.processor.index()] = Some(AtomicU64::new(NOTHING));
        }
        GroupSamples { latest, wake: Wake::new() }
    }

    /// A processor has sampled. It does nothing outside groups.
    pub fn offer(&self, processor: ProcessorId, utilisation: Option<u32>) {
        let Some(latest) = &self.latest[processor.index()] else { return };
        latest.store(utilisation.map_or(UNMEASURED, u64::from), Ordering::Release);
        self.wake.post();
    }

    /// Passes each new sample to `each`, once.
    pub fn take(&self, mut each: impl FnMut(ProcessorId, Option<u32>)) {
        for (processor, latest) in (0..).map(ProcessorId).zip(&self.latest) {
            let Some(latest) = latest else { continue };
            match latest.swap(NOTHING, Ordering::Acquire) {
                NOTHING => {}
                UNMEASURED => each(processor, None),
                utilisation => each(processor, u32::try_from(utilisation).ok()),
            }
        }
    }
}

/// Sets rates until the run ends. The calling thread runs above the lanes. A step solves optimisation problems of
/// limited size.
pub(crate) fn coordinate(common: &Arc<CommonState>, mut coordinators: Vec<Coordinator>) {
    let clock = *common.clock();
    let mut retimed = vec![false; common.system.processors.len()];
    while !common.stopping.load(Ordering::Acquire) {
        let now = clock.now();
        common.groups.take(|processor, utilisation| {
            coordinators.iter_mut().for_each(|one| one.collect(now, processor, utilisation));
        });
        for coordinator in coordinators.iter_mut().filter(|one| one.due() <= now) {
            coordinator.step(&common.system, now, |_, to, root, period| {
                retimed[to.index()] |= common.rates.set(to, root, period);
            });
        }
        for (to, retimed) in (0..).map(ProcessorId).zip(&mut retimed) {
            if std::mem::take(retimed) {
                common.release_of(to).post();
            }
        }
        let due = coordinators.iter().map(Coordinator::due).min().unwrap_or(Instant::NEVER);
        common.groups.wake.wait_until(&clock, due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_taken_once_and_only_from_groups() {
        let text = "name = 'two'\n[processor.one]\n[processor.two]\n[processor.three]\n\
            [feedback.one]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [feedback.two]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [operation.poll]\non = 'one'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.serve]\non = 'two'\nafter = { all = ['poll'] }\nwcet = '10ms'\n";
        let system = hyoshi_model::read(text, "two.toml", None).unwrap().system;
        let samples = GroupSamples::new(&system);
        let [one, two, three] = [0, 1, 2].map(ProcessorId);
        samples.offer(one, Some(1));
        samples.offer(one, Some(700_000));
        samples.offer(two, None);
        samples.offer(three, Some(5));
        let mut taken = Vec::new();
        samples.take(|processor, utilisation| taken.push((processor, utilisation)));
        assert_eq!(taken, [(one, Some(700_000)), (two, None)]);
        samples.take(|processor, _| panic!("{processor:?} is not new"));
    }
}
