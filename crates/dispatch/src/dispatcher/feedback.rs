//! The feedback loop of a processor: it counts deadlines and latencies, and sets rates at the end of each sampling
//! period. In a group of processors, the group's coordinator sets them ([`Input::Adapt`](hyoshi_trace::Input::Adapt)).

use alloc::{boxed::Box, vec, vec::Vec};

use hyoshi_control::feedback::{AdaptiveTask, Feedback, FeedbackSample};
use hyoshi_model::{Instant, OperationId, ProcessorId, Share, Span, System};
use hyoshi_trace::{DispatchDecision, JobOutcome, Probe};

use super::Dispatcher;
use super::clients::LoopClients;
use super::latency::{LatencyMonitor, MeasuredLatency};
use super::moves::Presence;
use crate::effects::Effects;
use crate::job::Job;
use crate::operation::OperationState;

/// A loop with the operations that it adapts.
#[derive(Debug)]
pub(super) struct RateLoop {
    /// `None` in a group.
    pub law: Option<Feedback>,
    period: Span,
    /// The set points of the file: the utilisation and the miss ratio, in parts per million.
    declared: [u32; 2],
    pub adapted: Vec<AdaptedHere>,
    /// The last tasks of the law.
    pub clients: LoopClients,
    /// By operation on the processor.
    pub times: Vec<JobTimes>,
    /// The hard cap, as a part of the CPU.
    pub cap: f64,
    /// At the last sample: the utilisation, and the declared one of the rates and levels until then.
    pub measured: Option<u32>,
    pub before: f64,
    /// Jobs that ended since the last sample, and those of them that missed their deadline.
    ended: u32,
    missed: u32,
    /// The time of the last sample.
    sampled_at: Option<Instant>,
    /// `None` if it controls no latency.
    latency: Option<LatencyMonitor>,
}

/// The operations here with the rate of one root.
#[derive(Debug)]
pub(super) struct AdaptedHere {
    pub root: OperationId,
    /// Their positions; not empty.
    pub here: Vec<u32>,
    /// The other processors with operations of this rate.
    pub elsewhere: Vec<ProcessorId>,
    /// The law counts its load, although it is on standby.
    pub is_admitted: bool,
}

/// The execution times of an operation's jobs that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobTimes {
    /// Their number and the sum of their times, actual and declared.
    all: [u64; 3],
    /// Those of the latest jobs.
    latest: [u64; 3],
}

impl JobTimes {
    /// Jobs after which the mean execution time counts as known.
    pub const KNOWN: u64 = 10;
    /// The mean covers at most about this number of jobs, and the ratio this number of the latest jobs.
    const MOST: [u64; 2] = [1 << 16, 1 << 6];

    /// A job has ended after this execution time, and with this declared one.
    #[inline]
    pub fn count(&mut self, consumed: Span, declared: Span) {
        for (sums, most) in [&mut self.all, &mut self.latest].into_iter().zip(JobTimes::MOST) {
            if sums[0] >= most {
                sums.iter_mut().for_each(|sum| *sum /= 2);
            }
            for (sum, added) in sums.iter_mut().zip([1, consumed.as_nanos(), declared.as_nanos()]) {
                *sum = sum.saturating_add(added);
            }
        }
    }

    /// The mean execution time.
    pub fn mean(&self) -> Option<Span> {
        let [finished, consumed, _] = self.all;
        (finished >= JobTimes::KNOWN).then(|| Span::from_nanos(consumed / finished))
    }

    /// The ratio of actual to declared execution times of the latest jobs.
    pub fn ratio(&self) -> Option<f64> {
        let [finished, consumed, declared] = self.latest;
        (finished >= JobTimes::KNOWN).then(|| consumed as f64 / declared.max(1) as f64)
    }
}

/// The period of each operation before the first sample of its loop; `None` without a loop.
pub(super) fn start_periods(system: &System, operations: &[OperationId]) -> Vec<Option<Span>> {
    let setters = system.rate_setters();
    let start = |id: &OperationId| {
        let root = system.adapted_by(*id)?;
        Some(system.feedback[*setters.get(&root)?].start_of(system, root))
    };
    operations.iter().map(start).collect()
}

impl RateLoop {
    pub fn new(
        system: &System,
        processor: ProcessorId,
        operations: &[OperationState],
        local_of: &[u32],
    ) -> Option<Box<Self>> {
        let settings = system.feedback.iter().find(|one| one.processor == processor)?;
        let adapted = system.adapted_on(processor).into_iter().map(|one| {
            let mut elsewhere: Vec<_> = one.elsewhere.iter().map(|id| system.operation(*id).on).collect();
            elsewhere.sort_unstable();
            elsewhere.dedup();
            let here = one.here.iter().map(|id| local_of[id.index()]).collect();
            AdaptedHere { root: one.root, here, elsewhere, is_admitted: false }
        });
        // The last ones have fixed rates.
        let leveled = system.with_levels_on(processor);
        let leveled = leveled.map(|root| AdaptedHere {
            root,
            here: vec![local_of[root.index()]],
            elsewhere: Vec::new(),
            is_admitted: false,
        });
        let adapted: Vec<_> = adapted.into_iter().chain(leveled).collect();
        let tasks = adapted.iter().map(|one| one.task(operations)).collect();
        let clients = LoopClients::new(system, processor, local_of);
        let law = (!settings.algorithm.is_of_group()).then(|| {
            let mut law = Feedback::of(settings, tasks).expect("a checked system has loops with valid settings");
            law.reserve(clients.most());
            law
        });
        let latency = settings.latency.as_ref();
        let latency = latency.map(|latency| LatencyMonitor::new(system, latency, local_of, operations.len()));
        Some(Box::new(RateLoop {
            law,
            period: settings.period,
            declared: [settings.utilisation_ppm, settings.miss_ratio_ppm],
            adapted,
            clients,
            times: vec![JobTimes::default(); operations.len()],
            cap: f64::from(system.processor(processor).hard_cap.ppm) / 1e6,
            measured: None,
            before: 0.0,
            ended: 0,
            missed: 0,
            sampled_at: None,
            latency,
        }))
    }

    /// A job has ended, or was dropped.
    #[inline]
    pub fn count(&mut self, now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) {
        if matches!(outcome, JobOutcome::Made | JobOutcome::Missed) {
            self.times[job.local as usize].count(consumed, job.wcet);
        }
        if let Some(latency) = &mut self.latency {
            latency.record(now, job, outcome);
        }
        match outcome {
            JobOutcome::Made => self.ended = self.ended.saturating_add(1),
            JobOutcome::Skipped => {}
            _ => (self.ended, self.missed) = (self.ended.saturating_add(1), self.missed.saturating_add(1)),
        }
    }

    /// Sets the set point of the utilisation, in parts per million of the hard cap; `None`: that of the file.
    pub fn set_utilisation(&mut self, to: Option<u32>) {
        let to = to.unwrap_or(self.declared[0]);
        self.law.iter_mut().for_each(|law| law.set_utilisation(Share::from_millionths(to.into())));
        self.clients.set_utilisation(to);
    }

    /// Sets the set point of the miss ratio, in parts per million; `None`: that of the file.
    pub fn set_miss_ratio(&mut self, to: Option<u32>) {
        let to = Share::from_millionths(to.unwrap_or(self.declared[1]).into());
        self.law.iter_mut().for_each(|law| law.set_miss_ratio(to));
    }

    /// A sample begins. True if it is late by more than half a period: meanwhile the process may not have run, and a low
    /// load does not show what rates allow.
    fn is_late(&mut self, now: Instant) -> bool {
        let most = self.period + Span::from_nanos(self.period.as_nanos() / 2);
        self.sampled_at.replace(now).is_some_and(|last| now.since(last) > most)
    }

    /// The most rates that one sample sets on other processors.
    pub fn most_retimed(&self) -> usize {
        self.law.iter().flat_map(|_| &self.adapted).map(|one| one.elsewhere.len()).sum()
    }
}

/// If this number of jobs was due in a sampling period and none ended, then none ran.
const EXPECTED: u64 = 4;
/// If the processor was busier than this, the jobs wait instead.
const IDLE_PPM: u32 = 50_000;

impl AdaptedHere {
    /// The jobs that are due within a sampling period.
    fn expected(&self, sampling: Span, operations: &[OperationState]) -> u64 {
        let here = self.here.iter().map(|local| &operations[*local as usize]).filter(|one| one.is_active());
        here.map(|one| sampling.as_nanos() / one.period.as_nanos().max(1)).fold(0, u64::saturating_add)
    }

    pub fn task(&self, operations: &[OperationState]) -> AdaptiveTask {
        let first = &operations[self.here[0] as usize];
        if first.presence == Presence::Away {
            // Until it arrives or is admitted: without load, and at the lowest rate, with which it will begin.
            return AdaptiveTask::of_operations([].into_iter(), (first.range.1, first.range.1));
        }
        self.task_here(operations)
    }

    /// Its task while it is here.
    pub fn task_here(&self, operations: &[OperationState]) -> AdaptiveTask {
        let range = operations[self.here[0] as usize].range;
        let here = self.here.iter().map(|local| &operations[*local as usize]);
        let parts = here.map(|one| (one.wcet, one.legs, one.importance, one.permitted_levels()));
        AdaptiveTask::of_operations(parts, range)
    }

    /// The operation with service levels.
    fn leveled(&self, operations: &[OperationState]) -> Option<u32> {
        self.here.iter().copied().find(|local| !operations[*local as usize].levels.is_empty())
    }
}

impl AdaptedHere {
    /// The declared utilisation at the present rate, 0 if it is disabled.
    fn present_utilisation(&self, operations: &[OperationState]) -> f64 {
        let here = self.here.iter().map(|local| &operations[*local as usize]).filter(|one| one.is_active());
        let part = |one: &OperationState| {
            one.wcet.as_nanos() as f64 * f64::from(one.legs) / one.period.as_nanos().max(1) as f64
        };
        here.map(part).sum()
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The periods that feedback loops have set for operations here, by root, before an epoch's limits apply.
    pub fn adapted_periods(&self) -> impl Iterator<Item = (OperationId, Span)> + '_ {
        self.operations.iter().filter_map(|one| Some((one.adapted_by?, one.adapted?)))
    }

    /// The sampling period of the loop here; `None` without one.
    pub fn sampling_period(&self) -> Option<Span> {
        self.feedback.as_ref().map(|one| one.period)
    }

    /// A sampling period ends. `utilisation` is in parts per million of the hard cap; `None` if it was not measured.
    pub(super) fn sample(&mut self, now: Instant, utilisation: Option<u32>, effects: &mut Effects) {
        self.advance_before(now, effects);
        if let (Some(contracts), Some(ppm)) = (&mut self.contracts, utilisation) {
            contracts.count_utilisation(now, ppm);
        }
        let Some(mut feedback) = self.feedback.take() else { return };
        if feedback.end_withdrawn(&self.operations) {
            self.reserve();
        }
        let late = feedback.is_late(now);
        let RateLoop { law, period, adapted, clients, ended, missed, latency, measured, before, .. } = &mut *feedback;
        *measured = utilisation.filter(|_| !late);
        let enabled = |one: &AdaptedHere| one.here.iter().any(|local| self.operations[*local as usize].is_active());
        let serves = |local: u32| self.operations[local as usize].enabled;
        // If no adapted operation runs, here or on absent hosts, a low load must not raise rates.
        let is_absent = *ended == 0
            && adapted.iter().map(|one| one.expected(*period, &self.operations)).fold(0, u64::saturating_add)
                >= EXPECTED
            && utilisation.is_some_and(|ppm| ppm < IDLE_PPM);
        let runs = adapted.iter().any(enabled) || clients.operations().any(serves);
        let counts = !self.off && runs && !is_absent;
        effects.sampled = measured.filter(|_| counts);
        let latency = latency.as_mut().and_then(|latency| latency.measure(now, &self.jobs));
        if let Some(MeasuredLatency { quantile, jobs, .. }) = latency {
            self.decision(now, DispatchDecision::Latency { quantile, jobs });
        }
        let total = match law {
            Some(law) => {
                // An epoch may have changed them.
                law.change(adapted.iter().map(|one| one.task(&self.operations)));
                *before = law.assigned();
                let sample = match counts {
                    true => FeedbackSample {
                        utilisation: utilisation.map(|ppm| f64::from(ppm.min(1_000_000)) / 1e6),
                        miss_ratio: Some(FeedbackSample::miss_ratio((*ended).into(), (*missed).into())),
                        latency: latency.map(|latency| latency.relative),
                    },
                    // Jobs that wait for a long time use no CPU, but the rates may fall.
                    false => FeedbackSample {
                        latency: latency.map(|one| one.relative).filter(|part| !self.off && *part > 1.0),
                        ..FeedbackSample::default()
                    },
                };
                let sample = if late { sample.lowering(law.law().settings()) } else { sample };
                law.sample(sample).next.total
            }
            None => adapted.iter().map(|one| one.present_utilisation(&self.operations)).sum(),
        };
        let total = (total * 1e6).clamp(0.0, f64::from(u32::MAX)) as u32;
        self.decision(now, DispatchDecision::Sample { utilisation, ended: *ended, missed: *missed, total });
        (*ended, *missed) = (0, 0);
        self.set_levels(now, &feedback);
        self.set_rates(now, feedback, effects);
    }
    /// Sets the service levels that the law has chosen, for later jobs.
    fn set_levels(&mut self, now: Instant, feedback: &RateLoop) {
        let chosen = feedback.law.iter().flat_map(Feedback::levels);
        for (one, level) in feedback.adapted.iter().zip(chosen) {
            let Some(local) = one.leveled(&self.operations) else { continue };
            let operation = &mut self.operations[local as usize];
            if core::mem::replace(&mut operation.service_level, *level) != *level {
                let operation = operation.id;
                self.decision(now, DispatchDecision::Level { operation, level: *level });
            }
        }
    }
}
