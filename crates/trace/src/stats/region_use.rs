//! CPU time of jobs by region and processor: where it was used, not where the job was released.

use hyoshi_model::{Instant, ProcessorId, Span, System};

use crate::event::JobEnd;

/// CPU time of jobs by region and processor. If a job spans several regions, its time is divided in proportion to its
/// time in each.
#[derive(Clone, Debug)]
pub(super) struct RegionUse {
    /// The beginning of each region.
    begins: Vec<Instant>,
    processors: usize,
    /// By region, then by processor.
    spans: Vec<Span>,
}

impl RegionUse {
    pub fn new(system: &System) -> Self {
        let begins: Vec<Instant> = system.epochs.iter().map(|epoch| epoch.at).collect();
        let processors = system.processors.len();
        RegionUse { spans: vec![Span::ZERO; begins.len().max(1) * processors], begins, processors }
    }

    #[inline]
    pub fn record(&mut self, processor: ProcessorId, end: &JobEnd) {
        if self.begins.len() <= 1 {
            return self.add(0, processor, end.consumed);
        }
        let start = end.start.min(end.end);
        let (first, last) = (self.at(start), self.at(end.end));
        if first == last {
            return self.add(last, processor, end.consumed);
        }
        self.share(first..last + 1, processor, start, end);
    }

    #[cold]
    fn share(&mut self, regions: core::ops::Range<usize>, processor: ProcessorId, start: Instant, end: &JobEnd) {
        let whole = u128::from(end.end.since(start).as_nanos()).max(1);
        let mut rest = end.consumed;
        for region in regions.start..regions.end - 1 {
            let lived = self.begins[region + 1].since(start.max(self.begins[region]));
            let share = u128::from(end.consumed.as_nanos()) * u128::from(lived.as_nanos()) / whole;
            let share = Span::from_nanos(share as u64).min(rest);
            rest = rest.saturating_sub(share);
            self.add(region, processor, share);
        }
        self.add(regions.end - 1, processor, rest);
    }

    fn at(&self, instant: Instant) -> usize {
        self.begins.partition_point(|begin| *begin <= instant).max(1) - 1
    }

    fn add(&mut self, region: usize, processor: ProcessorId, used: Span) {
        if let Some(span) = self.spans.get_mut(region * self.processors + processor.index()) {
            // Times are from a file: sums stop at the greatest span.
            *span = span.checked_add(used).unwrap_or(Span::from_nanos(u64::MAX));
        }
    }

    pub fn of(&self, region: usize, processor: ProcessorId) -> Span {
        self.spans.get(region * self.processors + processor.index()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::JobOutcome;
    use hyoshi_model::{JobId, OperationId};

    fn system() -> System {
        let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n[[epoch]]\nname = 'a'\nat = '0s'\n\
                    [[epoch]]\nname = 'b'\nat = '1s'\n[[epoch]]\nname = 'c'\nat = '2s'\n";
        hyoshi_model::read(text, "one.toml", None).unwrap().system
    }

    fn used(start: u64, end: u64, consumed: u64) -> [u64; 3] {
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let mut used = RegionUse::new(&system());
        let end = JobEnd {
            job: JobId { operation: OperationId(0), number: 0, leg: 0 },
            outcome: JobOutcome::Missed,
            critical: false,
            overran: false,
            service: Default::default(),
            epoch: 0,
            origin: at(0),
            release: at(0),
            ready: at(0),
            start: if start == u64::MAX { Instant::NEVER } else { at(start) },
            end: at(end),
            deadline: at(10),
            consumed: Span::from_millis(consumed),
        };
        used.record(ProcessorId(0), &end);
        [0, 1, 2].map(|region| used.of(region, ProcessorId(0)).as_nanos() / 1_000_000)
    }

    #[test]
    fn what_was_released_in_one_region_and_ran_in_the_next_was_used_there() {
        assert_eq!(used(1_500, 1_700, 150), [0, 150, 0]);
        assert_eq!(used(900, 2_100, 600), [50, 500, 50]);
        assert_eq!(used(u64::MAX, 1_700, 0), [0, 0, 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_made_up(start in 0u64..4_000, lived in 0u64..4_000, consumed in 0u64..4_000) {
            prop_assert!(used(start, start + lived, consumed).iter().sum::<u64>().abs_diff(consumed) <= 3);
        }
    }
}
