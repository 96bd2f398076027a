//! Divides a processor's time among jobs, scheduling, other threads and idling.
//!
//! ```text
//! duration = execution + overhead + held + others + idle + unknown
//! ```
//!
//! If all switches of the CPU were recorded, each part is observed. Otherwise the clocks of this process's threads
//! measure their use, and the rest (`unknown`) is idle time or time of other threads. The parts always sum to the
//! duration. Two errors remain: the CPU time of jobs unfinished at the end counts as overhead, and the clock of a
//! running thread advances in steps of at most 4 ms.

use alloc::{collections::BTreeMap, vec::Vec};

use hyoshi_model::{Instant, ProcessorId, Span};

use crate::event::{CpuEvent, CpuUser, DispatchDecision, TraceEvent};

/// How the time of one processor was used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// Sum of the parts.
    pub duration: Span,
    /// CPU time of jobs.
    pub execution: Span,
    /// CPU time of release, lane and watchdog threads outside jobs. In a simulation: the costs.
    pub overhead: Span,
    /// Time in which the processor's threads had the CPU but their clocks stood still: interrupts, the hypervisor.
    pub held: Span,
    /// Time of threads outside this processor and of kernel threads.
    pub others: Span,
    /// Idle time.
    pub idle: Span,
    /// Unknown, because switches were not recorded.
    pub unknown: Span,
    /// Time of the hypervisor as the kernel counts it, in steps of 10 ms. `others` includes it.
    pub stolen: Span,
    /// How the parts were determined.
    pub basis: Basis,
    /// For each other thread, by the number of its name: time on the CPU and number of switches to it.
    pub by_other: Vec<(u32, Span, u64)>,
    /// How often a lane was preempted.
    pub preemptions: u64,
    /// How often records of switches were lost.
    pub gaps: u64,
}

/// The source of a [`TimeSplit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// A simulation: all of virtual time is known.
    #[default]
    Simulated,
    /// The kernel's context switches.
    Switches,
    /// The CPU clocks of the processor's threads.
    Clocks,
}

/// Splits the time of every processor, event by event, in constant memory.
#[derive(Clone, Debug)]
pub struct Splits {
    processors: Vec<ProcessorTime>,
}

#[derive(Clone, Debug, Default)]
struct ProcessorTime {
    split: TimeSplit,
    /// The user of the CPU, and since when.
    has: Option<CpuUser>,
    since: Instant,
    /// Time of the processor's threads on the CPU, by switches.
    on: Span,
    /// The same by the threads' clocks.
    used: Span,
    others: BTreeMap<u32, (Span, u64)>,
    /// Whether an unknown thread had the CPU: then the switches are incomplete.
    unknowns: bool,
}

impl Splits {
    /// For `processors` processors, before the first event.
    pub fn new(processors: usize) -> Self {
        Splits { processors: alloc::vec![ProcessorTime::default(); processors] }
    }

    /// The next event of a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        let Some(processor_time) = self.processors.get_mut(processor.index()) else { return };
        match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                processor_time.split.execution = plus(processor_time.split.execution, end.consumed);
            }
            TraceEvent::Cpu(seen) => processor_time.see(now, seen),
            _ => {}
        }
    }

    /// The split of each processor until `end`. No event may be later.
    pub fn until(&self, end: Instant) -> Vec<TimeSplit> {
        self.processors.iter().map(|processor_time| processor_time.clone().close(end)).collect()
    }
}

impl ProcessorTime {
    fn see(&mut self, now: Instant, seen: &CpuEvent) {
        match seen {
            CpuEvent::Switch { to, preempted } => {
                let had = self.charge(now);
                self.split.preemptions += u64::from(*preempted && matches!(had, Some(CpuUser::Lane(_))));
                if let CpuUser::Other(number) = to {
                    self.count(*number, Span::ZERO, 1);
                }
                self.unknowns |= *to == CpuUser::Unknown;
                self.has = Some(*to);
            }
            CpuEvent::Gap => {
                // The user of the CPU during a gap is unknown.
                self.charge(now);
                self.has = None;
                self.split.gaps += 1;
            }
            CpuEvent::Overhead { span, .. } => self.split.overhead = plus(self.split.overhead, *span),
            CpuEvent::Used { span, .. } => self.used = plus(self.used, *span),
            CpuEvent::Stolen { span } => self.split.stolen = plus(self.split.stolen, *span),
            CpuEvent::Waits(_) | CpuEvent::Clock { .. } => {}
        }
    }

    /// Adds the time until `now` to the user of the CPU.
    fn charge(&mut self, now: Instant) -> Option<CpuUser> {
        let span = now.since(self.since);
        self.since = self.since.max(now);
        match self.has {
            Some(CpuUser::Lane(_) | CpuUser::Release | CpuUser::Below | CpuUser::Watchdog) => {
                self.on = plus(self.on, span)
            }
            Some(CpuUser::Other(number)) => {
                self.split.others = plus(self.split.others, span);
                self.count(number, span, 0);
            }
            Some(CpuUser::Idle) => self.split.idle = plus(self.split.idle, span),
            Some(CpuUser::Unknown) | None => self.split.unknown = plus(self.split.unknown, span),
        }
        self.has
    }

    fn count(&mut self, number: u32, span: Span, times: u64) {
        // Numbers are from a file: a forged one may name more threads than can exist.
        if self.others.len() < MOST_OTHERS || self.others.contains_key(&number) {
            let (sum, count) = self.others.entry(number).or_default();
            (*sum, *count) = (plus(*sum, span), *count + times);
        }
    }

    fn close(mut self, end: Instant) -> TimeSplit {
        let seen = self.has.is_some() || self.split.gaps > 0;
        // Times are from a file: ignore those after the end.
        self.since = self.since.min(end);
        self.charge(end);
        let ProcessorTime { mut split, on, used, others, unknowns, .. } = self;
        split.duration = end.since(Instant::ZERO);
        let TimeSplit { execution, overhead, .. } = split;
        // The parts are limited so that they sum to the duration, whatever the file contains.
        let mut rest = split.duration;
        let mut take = |wanted: Span| {
            let taken = wanted.min(rest);
            rest = rest.saturating_sub(taken);
            taken
        };
        if seen || !used.is_zero() {
            let observed = seen && !unknowns;
            // Clocks measure the CPU time exactly; switches measure the wall time on the CPU.
            let ours = match (used.is_zero(), observed) {
                (true, true) => on,
                (true, false) => execution,
                (false, true) => used.min(on),
                (false, false) => used,
            };
            split.execution = take(execution.min(ours));
            split.overhead = take(ours.saturating_sub(split.execution));
            split.held = take(on.saturating_sub(ours));
            split.others = take(if observed { split.others } else { Span::ZERO });
            split.idle = take(if observed { split.idle } else { Span::ZERO });
            (split.unknown, split.basis) = (rest, if observed { Basis::Switches } else { Basis::Clocks });
        } else {
            split.execution = take(execution);
            split.overhead = take(overhead);
            (split.idle, split.unknown) = (rest, Span::ZERO);
        }
        split.by_other = others.into_iter().map(|(number, (span, times))| (number, span, times)).collect();
        split.by_other.sort_by_key(|(number, span, _)| (core::cmp::Reverse(*span), *number));
        split
    }
}

/// The most names that a recording has.
const MOST_OTHERS: usize = crate::recording::MOST_NAMES;

/// Adds spans, up to the greatest: a recording may have been edited.
fn plus(sum: Span, more: Span) -> Span {
    sum.checked_add(more).unwrap_or(Span::from_nanos(u64::MAX))
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{JobId, OperationId};
    use proptest::prelude::*;

    use super::*;
    use crate::event::{JobEnd, JobOutcome};

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    fn switch(to: CpuUser, preempted: bool) -> TraceEvent {
        TraceEvent::Cpu(CpuEvent::Switch { to, preempted })
    }

    fn used(who: CpuUser, micros: u64) -> TraceEvent {
        TraceEvent::Cpu(CpuEvent::Used { who, span: Span::from_micros(micros) })
    }

    fn end(micros: u64) -> TraceEvent {
        let job = JobId { operation: OperationId(0), number: 0, leg: 0 };
        TraceEvent::Decision(DispatchDecision::End(JobEnd {
            job,
            outcome: JobOutcome::Made,
            critical: true,
            overran: false,
            service: Default::default(),
            epoch: 0,
            origin: at(0),
            release: at(0),
            ready: at(0),
            start: at(0),
            end: at(micros),
            deadline: at(micros),
            consumed: Span::from_micros(micros),
        }))
    }

    fn split(events: &[(u64, TraceEvent)], until: u64) -> TimeSplit {
        let mut splits = Splits::new(1);
        events.iter().for_each(|(now, event)| splits.event(ProcessorId(0), at(*now), event));
        splits.until(at(until)).remove(0)
    }

    /// Execution, overhead, held, others, idle, unknown in microseconds.
    fn parts(split: &TimeSplit) -> [u64; 6] {
        let TimeSplit { execution, overhead, held, others, idle, unknown, .. } = *split;
        [execution, overhead, held, others, idle, unknown].map(|span| span.as_nanos() / 1_000)
    }

    #[test]
    fn with_switches_every_part_is_observed() {
        let events = [
            (10, switch(CpuUser::Release, false)),
            (20, switch(CpuUser::Lane(0), false)),
            (50, switch(CpuUser::Other(3), true)),
            (70, switch(CpuUser::Lane(0), false)),
            (80, end(35)),
            (90, switch(CpuUser::Idle, false)),
            (95, used(CpuUser::Release, 9)),
            (95, used(CpuUser::Lane(0), 48)),
        ];
        let split = split(&events, 100);
        // Lanes and the release thread were on the CPU for 60 us; their clocks advanced by 57 us.
        assert_eq!(parts(&split), [35, 22, 3, 20, 10, 10]);
        assert_eq!((split.basis, split.preemptions), (Basis::Switches, 1));
        assert_eq!(split.by_other, [(3, Span::from_micros(20), 1)]);
    }

    #[test]
    fn without_switches_clocks_tell_and_the_rest_is_unknown() {
        let split = split(&[(50, used(CpuUser::Lane(0), 48)), (60, end(35)), (90, used(CpuUser::Release, 9))], 100);
        assert_eq!(parts(&split), [35, 22, 0, 0, 0, 43]);
        assert_eq!(split.basis, Basis::Clocks);
    }

    #[test]
    fn where_only_own_threads_are_seen_others_and_idling_are_one() {
        let events = [
            (10, switch(CpuUser::Lane(0), false)),
            (40, switch(CpuUser::Unknown, true)),
            (45, switch(CpuUser::Lane(0), false)),
            (60, end(40)),
            (60, switch(CpuUser::Unknown, false)),
            (90, used(CpuUser::Lane(0), 44)),
        ];
        let split = split(&events, 100);
        assert_eq!(parts(&split), [40, 4, 1, 0, 0, 55]);
        assert_eq!((split.basis, split.preemptions), (Basis::Clocks, 1));
    }

    #[test]
    fn a_simulation_spends_costs_and_idles() {
        let cost = TraceEvent::Cpu(CpuEvent::Overhead { who: CpuUser::Release, span: Span::from_micros(7) });
        let split = split(&[(10, cost), (60, end(40))], 100);
        assert_eq!((parts(&split), split.basis), ([40, 7, 0, 0, 53, 0], Basis::Simulated));
    }

    proptest! {
        /// The parts sum to the duration, whatever the file contains.
        #[test]
        fn the_parts_always_sum_to_the_duration(
            events in proptest::collection::vec((any::<u64>(), 0u8..9, any::<u64>(), any::<u32>()), 0..60),
            until in any::<u64>(),
        ) {
            let mut splits = Splits::new(1);
            for (now, kind, nanos, number) in events {
                let (now, span) = (Instant::from_nanos(now), Span::from_nanos(nanos));
                let who = [CpuUser::Idle, CpuUser::Lane(0), CpuUser::Release, CpuUser::Other(number), CpuUser::Unknown][number as usize % 5];
                let event = match kind {
                    0..4 => switch(who, number % 2 == 0),
                    4 => TraceEvent::Cpu(CpuEvent::Gap),
                    5 => TraceEvent::Cpu(CpuEvent::Used { who, span }),
                    6 => TraceEvent::Cpu(CpuEvent::Overhead { who, span }),
                    7 => TraceEvent::Cpu(CpuEvent::Stolen { span }),
                    _ => end(nanos / 1_000_000),
                };
                splits.event(ProcessorId(0), now, &event);
            }
            let split = splits.until(Instant::from_nanos(until)).remove(0);
            let TimeSplit { execution, overhead, held, others, idle, unknown, .. } = split;
            let sum: u128 = [execution, overhead, held, others, idle, unknown].iter().map(|part| u128::from(part.as_nanos())).sum();
            prop_assert_eq!(sum, u128::from(split.duration.as_nanos()));
        }
    }
}
