//! Time in which the second strategy of a processor was in force, in constant memory.

use hyoshi_model::{Instant, ProcessorId, Span, System};

use crate::event::{DispatchDecision, TraceEvent};

/// The most intervals. If they do not suffice, their width doubles.
const MOST: usize = 120;

/// The time in which one processor's second strategy was in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrategyHistory {
    switches: u64,
    since: Option<Instant>,
    total: Span,
    /// The binary logarithm of an interval's width in nanoseconds.
    shift: u32,
    stretches: Vec<Span>,
}

impl StrategyHistory {
    fn new(duration: Span) -> StrategyHistory {
        let mut shift = 20;
        while duration.as_nanos() >> shift >= MOST as u64 {
            shift += 1;
        }
        StrategyHistory { shift, ..StrategyHistory::default() }
    }

    #[cold]
    fn switch(&mut self, now: Instant, second: bool) {
        match (second, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.add(since, now);
                self.since = None;
            }
            // Events were lost: the latest one counts.
            (true, Some(_)) | (false, None) => return,
        }
        self.switches += 1;
    }

    fn add(&mut self, from: Instant, to: Instant) {
        let (mut from, to) = (from.as_nanos(), to.as_nanos());
        while to >> self.shift >= MOST as u64 {
            self.widen();
        }
        while from < to {
            let bucket = (from >> self.shift) as usize;
            let until = to.min((bucket as u64 + 1).saturating_mul(1 << self.shift));
            if self.stretches.len() <= bucket {
                self.stretches.resize(bucket + 1, Span::ZERO);
            }
            let had = Span::from_nanos(until - from);
            self.stretches[bucket] = plus(self.stretches[bucket], had);
            self.total = plus(self.total, had);
            from = until;
        }
    }

    fn widen(&mut self) {
        let pairs = self.stretches.chunks(2);
        self.stretches = pairs.map(|pair| pair.iter().copied().fold(Span::ZERO, plus)).collect();
        self.shift += 1;
    }

    /// The number of switches, in both directions.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// The total time of the second strategy.
    pub fn total(&self) -> Span {
        self.total
    }

    /// The length of an interval.
    pub fn width(&self) -> Span {
        Span::from_nanos(1 << self.shift)
    }

    /// The beginnings of the intervals in which the second strategy was in force, with its time in each.
    pub fn stretches(&self) -> impl Iterator<Item = (Instant, Span)> {
        let all = self.stretches.iter().enumerate().filter(|(_, had)| !had.is_zero());
        all.map(|(bucket, had)| (Instant::from_nanos((bucket as u64) << self.shift), *had))
    }
}

/// Adds spans, up to the greatest: an edited recording may contain centuries and decreasing times.
fn plus(sum: Span, more: Span) -> Span {
    Span::from_nanos(sum.as_nanos().saturating_add(more.as_nanos()))
}

/// The histories of all processors. It receives the events of each processor in order.
#[derive(Clone, Debug)]
pub struct StrategyHistories(Vec<StrategyHistory>);

impl StrategyHistories {
    /// At the start the first strategies are in force.
    pub fn new(system: &System) -> StrategyHistories {
        StrategyHistories(vec![StrategyHistory::new(system.duration); system.processors.len()])
    }

    /// The next event of a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        if let TraceEvent::Decision(DispatchDecision::Switch { second }) = event
            && let Some(history) = self.0.get_mut(processor.index())
        {
            history.switch(now, *second);
        }
    }

    /// The history of each processor until `end`.
    pub fn until(&self, end: Instant) -> Vec<StrategyHistory> {
        let mut histories = self.0.clone();
        for history in &mut histories {
            if let Some(since) = history.since.take() {
                history.add(since, end);
            }
        }
        histories
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn history_of(system: &System, at: &[u64], end: u64) -> StrategyHistory {
        let mut histories = StrategyHistories::new(system);
        for (bucket, at) in at.iter().enumerate() {
            let event = TraceEvent::Decision(DispatchDecision::Switch { second: bucket % 2 == 0 });
            histories.event(ProcessorId(0), Instant::from_nanos(*at), &event);
        }
        histories.until(Instant::from_nanos(end)).remove(0)
    }

    fn system() -> System {
        let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n";
        hyoshi_model::read(text, "one.toml", None).unwrap().system
    }

    #[test]
    fn the_last_use_of_a_strategy_lasts_until_the_end() {
        let ms = 1_000_000;
        let history = history_of(&system(), &[10 * ms, 30 * ms, 70 * ms], 100 * ms);
        assert_eq!((history.switches(), history.total()), (3, Span::from_millis(50)));
    }

    proptest! {
        #[test]
        fn stretches_add_up_to_the_time_in_force_however_long_it_lasts(
            mut at in proptest::collection::vec(0u64..1 << 45, 0..40),
        ) {
            at.sort_unstable();
            at.dedup();
            let end = 1u64 << 45;
            let history = history_of(&system(), &at, end);
            let expected: u64 = at.chunks(2).map(|pair| pair.get(1).unwrap_or(&end) - pair[0]).sum();
            prop_assert_eq!(history.switches(), at.len() as u64);
            prop_assert_eq!(history.total().as_nanos(), expected);
            prop_assert_eq!(history.stretches().map(|(_, had)| had.as_nanos()).sum::<u64>(), expected);
            prop_assert!(history.stretches.len() <= MOST);
            prop_assert!(history.stretches().all(|(_, had)| had <= history.width()));
        }
    }
}
