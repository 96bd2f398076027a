//! Which of a processor's two strategies is in force, over time, in memory that does not grow with it.

use hyoshi_model::{Instant, ProcessorId, Span, System};

use crate::event::{Decision, Event};

/// At most so many stretches; when they do not suffice, they double in width.
const MOST: usize = 120;

/// How long the second strategy of one processor was in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reign {
    switches: u64,
    since: Option<Instant>,
    total: Span,
    /// A stretch is two to this many nanoseconds wide.
    shift: u32,
    stretches: Vec<Span>,
}

impl Reign {
    fn new(duration: Span) -> Reign {
        let mut shift = 20;
        while duration.as_nanos() >> shift >= MOST as u64 {
            shift += 1;
        }
        Reign { shift, ..Reign::default() }
    }

    #[cold]
    fn switch(&mut self, now: Instant, second: bool) {
        match (second, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.add(since, now);
                self.since = None;
            }
            // Events were lost: what is said now holds.
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
            let place = (from >> self.shift) as usize;
            let until = to.min((place as u64 + 1).saturating_mul(1 << self.shift));
            if self.stretches.len() <= place {
                self.stretches.resize(place + 1, Span::ZERO);
            }
            let had = Span::from_nanos(until - from);
            self.stretches[place] = plus(self.stretches[place], had);
            self.total = plus(self.total, had);
            from = until;
        }
    }

    fn widen(&mut self) {
        let pairs = self.stretches.chunks(2);
        self.stretches = pairs.map(|pair| pair.iter().copied().fold(Span::ZERO, plus)).collect();
        self.shift += 1;
    }

    /// How often the strategy changed, in either direction.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// How long the second was in force.
    pub fn total(&self) -> Span {
        self.total
    }

    /// How long a stretch is.
    pub fn width(&self) -> Span {
        Span::from_nanos(1 << self.shift)
    }

    /// When a stretch begins in which the second was in force, and for how long it was.
    pub fn stretches(&self) -> impl Iterator<Item = (Instant, Span)> {
        let all = self.stretches.iter().enumerate().filter(|(_, had)| !had.is_zero());
        all.map(|(place, had)| (Instant::from_nanos((place as u64) << self.shift), *had))
    }
}

/// Sums stop at the greatest span: an edited recording may tell of centuries, and go back in time.
fn plus(sum: Span, more: Span) -> Span {
    Span::from_nanos(sum.as_nanos().saturating_add(more.as_nanos()))
}

/// Fed with the events of all processors, each in their order.
#[derive(Clone, Debug)]
pub struct Reigns(Vec<Reign>);

impl Reigns {
    /// Before the start: the first strategies are in force.
    pub fn new(system: &System) -> Reigns {
        Reigns(vec![Reign::new(system.duration); system.processors.len()])
    }

    /// The next event of a processor.
    #[inline]
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) {
        if let Event::Decision(Decision::Switch { second }) = event
            && let Some(reign) = self.0.get_mut(processor.index())
        {
            reign.switch(now, *second);
        }
    }

    /// Until `end`: one for each processor, in their order.
    pub fn until(&self, end: Instant) -> Vec<Reign> {
        let mut reigns = self.0.clone();
        for reign in &mut reigns {
            if let Some(since) = reign.since.take() {
                reign.add(since, end);
            }
        }
        reigns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reigned(system: &System, at: &[u64], end: u64) -> Reign {
        let mut reigns = Reigns::new(system);
        for (place, at) in at.iter().enumerate() {
            let event = Event::Decision(Decision::Switch { second: place % 2 == 0 });
            reigns.event(ProcessorId(0), Instant::from_nanos(*at), &event);
        }
        reigns.until(Instant::from_nanos(end)).remove(0)
    }

    fn system() -> System {
        let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n";
        hyoshi_model::read(text, "one.toml", None).unwrap().system
    }

    #[test]
    fn the_last_reign_lasts_until_the_end() {
        let ms = 1_000_000;
        let reign = reigned(&system(), &[10 * ms, 30 * ms, 70 * ms], 100 * ms);
        assert_eq!((reign.switches(), reign.total()), (3, Span::from_millis(50)));
    }

    proptest! {
        #[test]
        fn stretches_add_up_to_the_time_in_force_however_long_it_lasts(
            mut at in proptest::collection::vec(0u64..1 << 45, 0..40),
        ) {
            at.sort_unstable();
            at.dedup();
            let end = 1u64 << 45;
            let reign = reigned(&system(), &at, end);
            let expected: u64 = at.chunks(2).map(|pair| pair.get(1).unwrap_or(&end) - pair[0]).sum();
            prop_assert_eq!(reign.switches(), at.len() as u64);
            prop_assert_eq!(reign.total().as_nanos(), expected);
            prop_assert_eq!(reign.stretches().map(|(_, had)| had.as_nanos()).sum::<u64>(), expected);
            prop_assert!(reign.stretches.len() <= MOST);
            prop_assert!(reign.stretches().all(|(_, had)| had <= reign.width()));
        }
    }
}
