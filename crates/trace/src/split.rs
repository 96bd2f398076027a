//! Where a processor's time went: into jobs, into scheduling them, to others, or nowhere.
//!
//! ```text
//! duration = execution + overhead + held + others + idle + unknown
//! ```
//!
//! Where every switch of the CPU was seen, each part is observed. Where only this process's threads
//! were, or nothing, their clocks tell what they used, and the rest is idling or others' (`unknown`).
//! The parts always sum to the duration; what they err by is what jobs that were unfinished at the
//! end had used (they count as overhead), and the steps of a running thread's clock (4 ms at most).

use alloc::{collections::BTreeMap, vec::Vec};

use hyoshi_model::{Instant, ProcessorId, Span};

use crate::event::{Decision, Event, Seen, Who};

/// Where the time of one processor went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// What the parts sum to.
    pub duration: Span,
    /// CPU time of jobs.
    pub execution: Span,
    /// CPU time of release, lane and watchdog threads outside jobs; a simulation's costs.
    pub overhead: Span,
    /// Threads of the processor had the CPU, and their clocks stood: interrupts, the hypervisor.
    pub held: Span,
    /// Threads of others had the CPU, or the kernel's.
    pub others: Span,
    /// Nobody had it.
    pub idle: Span,
    /// Nobody knows: switches were not seen.
    pub unknown: Span,
    /// What a hypervisor took, by the kernel's account in steps of 10 ms. It is part of the others.
    pub stolen: Span,
    /// How it is known.
    pub basis: Basis,
    /// Who of the others had the CPU, by the number of the name: how long, how often.
    pub by_other: Vec<(u32, Span, u64)>,
    /// How often a lane lost the CPU while it could have gone on.
    pub preemptions: u64,
    /// How often records of switches were lost.
    pub gaps: u64,
}

/// What a [`TimeSplit`] is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// Every instant of virtual time is accounted for.
    #[default]
    Simulated,
    /// The kernel told of every switch.
    Switches,
    /// The clocks of the processor's threads.
    Clocks,
}

/// Accounts for the time of every processor, event by event, in memory that does not grow with them.
#[derive(Clone, Debug)]
pub struct Splits {
    processors: Vec<Account>,
}

#[derive(Clone, Debug, Default)]
struct Account {
    split: TimeSplit,
    /// Who has the CPU, and since when.
    has: Option<Who>,
    since: Instant,
    /// On the CPU by switches: threads of the processor.
    on: Span,
    /// By the threads' clocks.
    used: Span,
    others: BTreeMap<u32, (Span, u64)>,
    /// Whether somebody had the CPU of whom nobody knows: then not everybody is seen.
    unknowns: bool,
}

impl Splits {
    /// Of so many processors; nothing has happened.
    pub fn new(processors: usize) -> Self {
        Splits { processors: alloc::vec![Account::default(); processors] }
    }

    /// Something happened on a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) {
        let Some(account) = self.processors.get_mut(processor.index()) else { return };
        match event {
            Event::Decision(Decision::End(end)) => {
                account.split.execution = plus(account.split.execution, end.consumed);
            }
            Event::Seen(seen) => account.see(now, seen),
            _ => {}
        }
    }

    /// Where the time until `end` went, by processor; no event may be later.
    pub fn until(&self, end: Instant) -> Vec<TimeSplit> {
        self.processors.iter().map(|account| account.clone().close(end)).collect()
    }
}

impl Account {
    fn see(&mut self, now: Instant, seen: &Seen) {
        match seen {
            Seen::Switch { to, preempted } => {
                let had = self.account(now);
                self.split.preemptions += u64::from(*preempted && matches!(had, Some(Who::Lane(_))));
                if let Who::Other(number) = to {
                    self.count(*number, Span::ZERO, 1);
                }
                self.unknowns |= *to == Who::Unknown;
                self.has = Some(*to);
            }
            Seen::Gap => {
                // What was there before the lost records is not known to have gone on.
                self.account(now);
                self.has = None;
                self.split.gaps += 1;
            }
            Seen::Overhead { span, .. } => self.split.overhead = plus(self.split.overhead, *span),
            Seen::Used { span, .. } => self.used = plus(self.used, *span),
            Seen::Stolen { span } => self.split.stolen = plus(self.split.stolen, *span),
            Seen::Waits(_) | Seen::Clock { .. } => {}
        }
    }

    /// The time until `now` goes to whoever had the CPU.
    fn account(&mut self, now: Instant) -> Option<Who> {
        let span = now.since(self.since);
        self.since = self.since.max(now);
        match self.has {
            Some(Who::Lane(_) | Who::Release | Who::Below | Who::Watchdog) => self.on = plus(self.on, span),
            Some(Who::Other(number)) => {
                self.split.others = plus(self.split.others, span);
                self.count(number, span, 0);
            }
            Some(Who::Idle) => self.split.idle = plus(self.split.idle, span),
            Some(Who::Unknown) | None => self.split.unknown = plus(self.split.unknown, span),
        }
        self.has
    }

    fn count(&mut self, number: u32, span: Span, times: u64) {
        // Numbers come from a file: a forged one may name more threads than there can be.
        if self.others.len() < MOST_OTHERS || self.others.contains_key(&number) {
            let (sum, count) = self.others.entry(number).or_default();
            (*sum, *count) = (plus(*sum, span), *count + times);
        }
    }

    fn close(mut self, end: Instant) -> TimeSplit {
        let seen = self.has.is_some() || self.split.gaps > 0;
        // Times come from a file: what lies after the end is not of the run.
        self.since = self.since.min(end);
        self.account(end);
        let Account { mut split, on, used, others, unknowns, .. } = self;
        split.duration = end.since(Instant::ZERO);
        let TimeSplit { execution, overhead, .. } = split;
        // Parts are taken from the duration, whatever a file says: they sum to it.
        let mut rest = split.duration;
        let mut take = |wanted: Span| {
            let taken = wanted.min(rest);
            rest = rest.saturating_sub(taken);
            taken
        };
        if seen || !used.is_zero() {
            let observed = seen && !unknowns;
            // The clocks know exactly what was used, the switches for how long it took.
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

/// As many as a recording has names.
const MOST_OTHERS: usize = crate::recording::MOST_NAMES;

/// A recording may have been edited: sums stop at the greatest span.
fn plus(sum: Span, more: Span) -> Span {
    sum.checked_add(more).unwrap_or(Span::from_nanos(u64::MAX))
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{JobId, OperationId};
    use proptest::prelude::*;

    use super::*;
    use crate::event::{JobEnd, Outcome};

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    fn switch(to: Who, preempted: bool) -> Event {
        Event::Seen(Seen::Switch { to, preempted })
    }

    fn used(who: Who, micros: u64) -> Event {
        Event::Seen(Seen::Used { who, span: Span::from_micros(micros) })
    }

    fn end(micros: u64) -> Event {
        let job = JobId { operation: OperationId(0), number: 0, leg: 0 };
        Event::Decision(Decision::End(JobEnd {
            job,
            outcome: Outcome::Made,
            critical: true,
            overran: false,
            demoted: false,
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

    fn split(events: &[(u64, Event)], until: u64) -> TimeSplit {
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
            (10, switch(Who::Release, false)),
            (20, switch(Who::Lane(0), false)),
            (50, switch(Who::Other(3), true)),
            (70, switch(Who::Lane(0), false)),
            (80, end(35)),
            (90, switch(Who::Idle, false)),
            (95, used(Who::Release, 9)),
            (95, used(Who::Lane(0), 48)),
        ];
        let split = split(&events, 100);
        // Lanes and the release thread had 60 us of wall time, in which their clocks went 57 us.
        assert_eq!(parts(&split), [35, 22, 3, 20, 10, 10]);
        assert_eq!((split.basis, split.preemptions), (Basis::Switches, 1));
        assert_eq!(split.by_other, [(3, Span::from_micros(20), 1)]);
    }

    #[test]
    fn without_switches_clocks_tell_and_the_rest_is_unknown() {
        let split = split(&[(50, used(Who::Lane(0), 48)), (60, end(35)), (90, used(Who::Release, 9))], 100);
        assert_eq!(parts(&split), [35, 22, 0, 0, 0, 43]);
        assert_eq!(split.basis, Basis::Clocks);
    }

    #[test]
    fn where_only_own_threads_are_seen_others_and_idling_are_one() {
        let events = [
            (10, switch(Who::Lane(0), false)),
            (40, switch(Who::Unknown, true)),
            (45, switch(Who::Lane(0), false)),
            (60, end(40)),
            (60, switch(Who::Unknown, false)),
            (90, used(Who::Lane(0), 44)),
        ];
        let split = split(&events, 100);
        assert_eq!(parts(&split), [40, 4, 1, 0, 0, 55]);
        assert_eq!((split.basis, split.preemptions), (Basis::Clocks, 1));
    }

    #[test]
    fn a_simulation_spends_costs_and_idles() {
        let cost = Event::Seen(Seen::Overhead { who: Who::Release, span: Span::from_micros(7) });
        let split = split(&[(10, cost), (60, end(40))], 100);
        assert_eq!((parts(&split), split.basis), ([40, 7, 0, 0, 53, 0], Basis::Simulated));
    }

    proptest! {
        /// Whatever a file says: the parts sum to the duration.
        #[test]
        fn the_parts_always_sum_to_the_duration(
            events in proptest::collection::vec((any::<u64>(), 0u8..9, any::<u64>(), any::<u32>()), 0..60),
            until in any::<u64>(),
        ) {
            let mut splits = Splits::new(1);
            for (now, kind, nanos, number) in events {
                let (now, span) = (Instant::from_nanos(now), Span::from_nanos(nanos));
                let who = [Who::Idle, Who::Lane(0), Who::Release, Who::Other(number), Who::Unknown][number as usize % 5];
                let event = match kind {
                    0..4 => switch(who, number % 2 == 0),
                    4 => Event::Seen(Seen::Gap),
                    5 => Event::Seen(Seen::Used { who, span }),
                    6 => Event::Seen(Seen::Overhead { who, span }),
                    7 => Event::Seen(Seen::Stolen { span }),
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
