//! The events of a recording in the order of time, over all its processors.

use std::collections::VecDeque;

use super::{ReadError, RecordedEvent};

/// The maximum number of waiting events. Beyond that the order is by processor.
const MOST: usize = 1 << 18;

/// Puts the blocks of several processors in the order of time. A writer writes the blocks of all processors together, so
/// one block of each processor is enough. The events of a processor stay in their order.
#[derive(Debug)]
pub struct InTimeOrder<I> {
    events: I,
    /// The present blocks, one for each processor.
    blocks: Vec<VecDeque<RecordedEvent>>,
    waiting: usize,
    /// The first event of the next blocks, or the end.
    next: Option<Result<RecordedEvent, ReadError>>,
}

impl<I: Iterator<Item = Result<RecordedEvent, ReadError>>> InTimeOrder<I> {
    /// The events of a reader.
    pub fn new(events: I) -> Self {
        InTimeOrder { events, blocks: Vec::new(), waiting: 0, next: None }
    }

    /// Reads one block of each processor.
    fn fill(&mut self) {
        self.blocks.clear();
        while self.waiting < MOST {
            let event = match self.next.take().or_else(|| self.events.next()) {
                Some(Ok(event)) => event,
                end => {
                    self.next = end;
                    return;
                }
            };
            let is_of = |block: &VecDeque<RecordedEvent>| block[0].processor == event.processor;
            match self.blocks.iter().position(is_of) {
                Some(block) if block + 1 == self.blocks.len() => self.blocks[block].push_back(event),
                // The processor already has a block, so the next blocks begin here.
                Some(_) => {
                    self.next = Some(Ok(event));
                    return;
                }
                None => self.blocks.push(VecDeque::from([event])),
            }
            self.waiting += 1;
        }
    }
}

impl<I: Iterator<Item = Result<RecordedEvent, ReadError>>> Iterator for InTimeOrder<I> {
    type Item = Result<RecordedEvent, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.waiting == 0 {
            self.fill();
        }
        let first = self.blocks.iter_mut().filter(|block| !block.is_empty()).min_by_key(|block| block[0].now);
        match first.and_then(VecDeque::pop_front) {
            Some(event) => {
                self.waiting -= 1;
                Some(Ok(event))
            }
            // The end, or an error after the events before it.
            None => self.next.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{Instant, ProcessorId};
    use proptest::prelude::*;

    use super::*;
    use crate::{Input, TraceEvent};

    fn event(processor: u32, now: u64) -> RecordedEvent {
        let (processor, now) = (ProcessorId(processor), Instant::from_nanos(now));
        RecordedEvent { processor, now, event: TraceEvent::Input(Input::Tick) }
    }

    fn ordered(events: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let events = events.iter().map(|(processor, now)| Ok(event(*processor, *now)));
        let ordered = InTimeOrder::new(events).map(|event| event.unwrap());
        ordered.map(|event| (event.processor.0, event.now.as_nanos())).collect()
    }

    #[test]
    fn the_blocks_of_several_processors_are_joined_by_time() {
        let blocks = [(1, 10), (1, 30), (0, 5), (0, 20), (1, 40), (0, 25), (0, 50)];
        assert_eq!(ordered(&blocks), [(0, 5), (1, 10), (0, 20), (1, 30), (0, 25), (1, 40), (0, 50)]);
    }

    #[test]
    fn an_error_follows_the_events_before_it() {
        let broken = ReadError::CorruptBlock { at: 7, what: "test" };
        let events = [Ok(event(1, 2)), Ok(event(0, 1)), Err(broken)];
        let mut ordered = InTimeOrder::new(events.into_iter());
        assert_eq!([0, 1].map(|_| ordered.next().unwrap().unwrap().now.as_nanos()), [1, 2]);
        assert!(ordered.next().unwrap().is_err() && ordered.next().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Nothing is lost, and the events of each processor stay in their order.
        #[test]
        fn each_processor_keeps_its_events(events in prop::collection::vec((0u32..4, 0u64..100), 0..200)) {
            let ordered = ordered(&events);
            for processor in 0..4 {
                let of = |all: &[(u32, u64)]| all.iter().copied().filter(|one| one.0 == processor).collect::<Vec<_>>();
                prop_assert_eq!(of(&ordered), of(&events));
            }
        }
    }
}
