//! The coordinator's thread of groups of processors under EUCON or DEUCON. Release threads store samples here, and the
//! thread sets rates. Other hosts send samples of their processors. Samples that another host needs are sent to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_control::feedback::{Coordinator, GroupSteps};
use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System};
use hyoshi_os::{Clock, Wake, own_cpu_time};

use crate::common::CommonState;
use crate::remote_samples::{GroupSample, MOST_UTILISATION};

/// The latest sample of each processor in a group. A newer one replaces an older one, so nothing waits and nothing grows.
#[derive(Debug)]
pub(crate) struct GroupSamples {
    /// By processor; `None` outside groups.
    latest: Vec<Option<LatestSample>>,
    /// Wakes the coordinator's thread.
    pub wake: Arc<Wake>,
}

#[derive(Debug)]
struct LatestSample {
    /// The number of its sampling period, above [`NUMBER`] bits of its utilisation.
    sample: AtomicU64,
    /// Wakes its reader.
    reader: Arc<Wake>,
}

/// No sample.
const NOTHING: u64 = u64::MAX;
/// A sample without a measured utilisation.
const UNMEASURED: u64 = (1 << NUMBER) - 1;
/// The position of the number. 2^44 sampling periods of 10 ms are 5,000 years.
const NUMBER: u32 = 20;

impl GroupSamples {
    /// `elsewhere` returns the wake-up of the thread that sends samples to the host of a processor; `None` if the
    /// coordinator on that processor is here.
    pub fn new(system: &System, elsewhere: impl Fn(ProcessorId) -> Option<Arc<Wake>>) -> Self {
        let wake = Arc::new(Wake::new());
        let mut latest: Vec<_> = system.processors.iter().map(|_| None).collect();
        for one in system.feedback.iter().filter(|one| one.algorithm.is_of_group()) {
            let reader = elsewhere(system.computed_on(one)).unwrap_or_else(|| wake.clone());
            latest[one.processor.index()] = Some(LatestSample { sample: AtomicU64::new(NOTHING), reader });
        }
        GroupSamples { latest, wake }
    }

    /// A processor has sampled. It does nothing outside groups.
    pub fn offer(&self, GroupSample { processor, number, utilisation }: GroupSample) {
        let Some(latest) = &self.latest[processor.index()] else { return };
        let utilisation = utilisation.map_or(UNMEASURED, |ppm| ppm.min(MOST_UTILISATION).into());
        latest.sample.store(number << NUMBER | utilisation, Ordering::Release);
        latest.reader.post();
    }

    /// Returns a new sample of a processor once.
    pub fn take(&self, processor: ProcessorId) -> Option<GroupSample> {
        let sample = self.latest[processor.index()].as_ref()?.sample.swap(NOTHING, Ordering::Acquire);
        let utilisation = Some(sample & UNMEASURED).filter(|ppm| *ppm != UNMEASURED).map(|ppm| ppm as u32);
        (sample != NOTHING).then_some(GroupSample { processor, number: sample >> NUMBER, utilisation })
    }
}

/// Steps of a group use at most one part in this number of the CPU time. The checker permits an estimate of a tenth of
/// each sampling period.
const BUSY_PART: u64 = 4;

/// Limits the CPU time of a group's steps, whatever the group's size: after a step that used `t` of CPU time, the next
/// one begins at least `4 t` after the start of this step.
#[derive(Clone, Copy, Debug, Default)]
struct StepPause {
    until: Instant,
}

impl StepPause {
    /// A step that began at `began` has used this CPU time.
    fn used(&mut self, began: Instant, used: Span) {
        let rest = Span::from_nanos(used.as_nanos().saturating_mul(BUSY_PART));
        self.until = self.until.max(began.saturating_add(rest));
    }

    /// Whether a step at `now` is too early.
    fn skips(&self, now: Instant) -> bool {
        now < self.until
    }
}

/// Sets rates until the run ends, and returns the counts of each group. The calling thread runs above the lanes. A step
/// solves optimisation problems of limited size. It is skipped if an earlier one needed too much time: then rates only
/// fall.
pub(crate) fn coordinate(common: &Arc<CommonState>, coordinators: Vec<Coordinator>) -> Vec<GroupSteps> {
    let clock = *common.clock();
    let mut coordinators: Vec<_> = coordinators.into_iter().map(|one| (one, StepPause::default())).collect();
    let mut retimed = vec![false; common.system.processors.len()];
    while !common.stopping.load(Ordering::Acquire) {
        let now = clock.now();
        for (coordinator, _) in &mut coordinators {
            for member in 0..coordinator.processors().len() {
                if let Some(sample) = common.groups.take(coordinator.processors()[member]) {
                    coordinator.collect(now, sample.processor, sample.utilisation);
                }
            }
        }
        for (coordinator, pause) in coordinators.iter_mut().filter(|(one, _)| one.due() <= now) {
            let (began, before) = (clock.now(), own_cpu_time());
            let mut each = |to: ProcessorId, root: OperationId, period: Span| {
                retimed[to.index()] |= common.rates.set(to, root, period);
            };
            if pause.skips(began) {
                coordinator.skip(&common.system, now, &mut each);
            } else {
                coordinator.step(&common.system, now, &mut each);
            }
            pause.used(began, own_cpu_time().saturating_sub(before));
        }
        for (to, retimed) in (0..).map(ProcessorId).zip(&mut retimed) {
            if std::mem::take(retimed) {
                common.release_of(to).post();
            }
        }
        let due = coordinators.iter().map(|(one, _)| one.due()).min().unwrap_or(Instant::NEVER);
        common.groups.wake.wait_until(&clock, due);
    }
    coordinators.iter().map(|(one, _)| one.counts()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Samples arrive at any time, and a step may last longer than the time between two samples.
        #[test]
        fn steps_use_at_most_a_quarter_of_the_time(steps in prop::collection::vec((0u64..2_000, 0u64..5_000), 1..100)) {
            let mut pause = StepPause::default();
            let (mut now, mut used, mut last, mut free) = (Instant::ZERO, 0, 0, Instant::ZERO);
            for (after, needed) in steps {
                now += Span::from_micros(after);
                prop_assert_eq!(pause.skips(now), now < free);
                if pause.skips(now) {
                    continue;
                }
                prop_assert!((used + last) * BUSY_PART <= now.as_nanos(), "{} and {} until {}", used, last, now);
                used += last;
                last = Span::from_micros(needed).as_nanos();
                pause.used(now, Span::from_micros(needed));
                free = now + Span::from_micros(needed * BUSY_PART);
                now += Span::from_micros(needed);
            }
        }
    }

    #[test]
    fn a_sample_is_taken_once_and_only_from_groups() {
        let text = "name = 'two'\n[processor.one]\n[processor.two]\n[processor.three]\n\
            [feedback.one]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [feedback.two]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
            [operation.poll]\non = 'one'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.serve]\non = 'two'\nafter = { all = ['poll'] }\nwcet = '10ms'\n";
        let system = hyoshi_model::read(text, "two.toml", None).unwrap().system;
        let samples = GroupSamples::new(&system, |_| None);
        let sample = |processor, number, utilisation| GroupSample { processor, number, utilisation };
        let [one, two, three] = [0, 1, 2].map(ProcessorId);
        samples.offer(sample(one, 1, Some(1)));
        samples.offer(sample(one, 1 << 40, Some(2_000_000)));
        samples.offer(sample(two, 0, None));
        samples.offer(sample(three, 2, Some(5)));
        let taken = || [one, two, three].map(|processor| samples.take(processor));
        assert_eq!(taken(), [Some(sample(one, 1 << 40, Some(1_000_000))), Some(sample(two, 0, None)), None]);
        assert_eq!(taken(), [None; 3]);
    }
}
