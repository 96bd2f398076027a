//! The results of a program, period by period, in memory that does not grow with time.

use hyoshi_model::{Instant, ProgramId, Span};

/// The results of a program in a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramResults {
    /// The program.
    pub program: ProgramId,
    /// All its periods.
    pub all: PeriodSums,
    /// The same in the order of time, in ranges of equally many periods; single ones while there are few.
    pub stretches: Vec<PeriodRange>,
    /// How many periods a range has.
    width: u64,
}

/// Sums over periods that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodSums {
    /// How many periods.
    pub periods: u64,
    /// Of them, those with a cycle that ended within its deadline.
    pub met: u64,
    /// Those with a cycle that ended later or not at all.
    pub missed: u64,
    /// Those in which less was held than requested.
    pub cut: u64,
    /// The requests of advocates.
    pub asked: Span,
    /// The reservations held.
    pub held: Span,
    /// CPU time that it used, reserved or not.
    pub consumed: Span,
    /// Reserved time that was not consumed, in periods that had more than they used.
    pub over: Span,
}

/// Consecutive periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodRange {
    /// When the first begins.
    pub at: Instant,
    /// When the last ends.
    pub until: Instant,
    /// Their sums.
    pub sums: PeriodSums,
}

/// A period that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// When it began.
    pub at: Instant,
    /// When it ended.
    pub until: Instant,
    /// Whether its cycle ended in time; `None`: there was none, or it is unknown.
    pub met: Option<bool>,
    /// The requests of advocates.
    pub asked: Span,
    /// The reservation held.
    pub held: Span,
    /// CPU time that the program used.
    pub consumed: Span,
}

impl PeriodSums {
    fn add(&mut self, other: PeriodSums) {
        self.periods += other.periods;
        self.met += other.met;
        self.missed += other.missed;
        self.cut += other.cut;
        self.asked += other.asked;
        self.held += other.held;
        self.consumed += other.consumed;
        self.over += other.over;
    }
}

impl ProgramResults {
    /// The most ranges.
    pub const MOST: usize = 400;

    /// Without periods.
    pub fn new(program: ProgramId) -> Self {
        ProgramResults { program, all: PeriodSums::default(), stretches: Vec::new(), width: 1 }
    }

    /// Adds a period.
    pub fn add(&mut self, period: Period) {
        let Period { at, until, met, asked, held, consumed } = period;
        let sums = PeriodSums {
            periods: 1,
            met: u64::from(met == Some(true)),
            missed: u64::from(met == Some(false)),
            cut: u64::from(held < asked),
            asked,
            held,
            consumed,
            over: held.saturating_sub(consumed),
        };
        self.all.add(sums);
        let full = self.stretches.last().is_some_and(|last| last.sums.periods >= self.width);
        if full && self.stretches.len() == ProgramResults::MOST {
            self.halve();
        }
        match self.stretches.last_mut() {
            Some(last) if last.sums.periods < self.width => {
                last.until = until;
                last.sums.add(sums);
            }
            _ => self.stretches.push(PeriodRange { at, until, sums }),
        }
    }

    /// Merges pairs.
    fn halve(&mut self) {
        let pairs = self.stretches.chunks(2).map(|pair| {
            let mut one = pair[0];
            if let Some(other) = pair.get(1) {
                one.until = other.until;
                one.sums.add(other.sums);
            }
            one
        });
        self.stretches = pairs.collect();
        self.width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_stay_few_and_lose_nothing() {
        let mut played = ProgramResults::new(ProgramId(0));
        let ms = |count| Instant::ZERO + Span::from_millis(count);
        for number in 0..5_000 {
            played.add(Period {
                at: ms(number),
                until: ms(number + 1),
                met: Some(number % 3 > 0),
                asked: Span::from_micros(5),
                held: Span::from_micros(4),
                consumed: Span::from_micros(number % 7),
            });
            assert!(played.stretches.len() <= ProgramResults::MOST);
            let mut sum = PeriodSums::default();
            played.stretches.iter().for_each(|stretch| sum.add(stretch.sums));
            assert_eq!(sum, played.all);
        }
        assert!(played.stretches.windows(2).all(|pair| pair[0].until == pair[1].at));
        assert_eq!((played.all.periods, played.all.cut), (5_000, 5_000));
    }
}
