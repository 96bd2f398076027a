//! Figure 4: a reservation follows a changing demand. A task with a period of 300 ms has phases of low, medium and high
//! demand; MaxDecay requests the greatest of the last reports.

use hyoshi_control::{AdvocateChain, Arbiter, Joining, Spec, Status, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use serde::Serialize;

/// The task's period.
pub const PERIOD: Span = Span::from_millis(300);
/// Its demand, by phase.
pub const PHASES: [Span; 3] = [Span::from_millis(100), Span::from_millis(150), Span::from_millis(200)];
/// The periods of a phase in the paper.
pub const PAPER_PHASE: u64 = 10;
/// The advocate of the task.
pub const ADVOCATE: &str = "max-decay --reports 3 --headroom 5%";
/// The request before the first report.
pub const FIRST: Span = Span::from_millis(110);
/// The periods at the beginning of a phase in which the reservation may be too small: the broker learns a demand from
/// the next report.
pub const LEARNING: u64 = 2;

/// One period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrackedCycle {
    /// Its demand for CPU time.
    pub demand_ns: u64,
    /// Its reservation at its beginning.
    pub held_ns: u64,
    /// Whether it met its deadline; in virtual time: whether the reservation sufficed.
    pub met: bool,
}

/// The task's periods, from the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tracked {
    /// Periods in a phase.
    pub phase: u64,
    /// All periods.
    pub cycles: Vec<TrackedCycle>,
}

/// The demand of a period.
pub fn demand(cycle: u64, phase: u64) -> Span {
    PHASES[(cycle / phase % PHASES.len() as u64) as usize]
}

/// The experiment in virtual time.
pub fn play(phase: u64, cycles: u64) -> Tracked {
    const TASK: TaskId = TaskId(1);
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::from_percent(95));
    let declared = Reservation::new(FIRST, PERIOD).expect("a budget within its period");
    let joining = Joining::new("hourglass", declared, chain(ADVOCATE));
    arbiter.join(TASK, joining, Instant::ZERO).expect("the first task joins");
    let period = |number: u64| {
        let (demand, held) = (demand(number, phase), arbiter.held(TASK).map_or(0, |held| held.budget().as_nanos()));
        let end = Instant::ZERO + Span::from_nanos(PERIOD.as_nanos() * (number + 1));
        arbiter.report(TASK, Status::of_cycle(end, demand)).expect("it has joined");
        TrackedCycle { demand_ns: demand.as_nanos(), held_ns: held, met: held >= demand.as_nanos() }
    };
    Tracked { phase, cycles: (0..cycles).map(period).collect() }
}

/// A chain of one advocate, from its text.
pub(super) fn chain(words: &str) -> AdvocateChain {
    let spec = Spec::from_words(words.split_whitespace()).expect("a kind and parameters that there are");
    Spec::chain(&[spec]).expect("a chain of one")
}

impl Tracked {
    /// Deadlines missed in the first periods of a phase, and later.
    pub fn missed(&self) -> (usize, usize) {
        let missed = self.cycles.iter().enumerate().filter(|(_, cycle)| !cycle.met);
        let (early, late): (Vec<_>, Vec<_>) = missed.partition(|(number, _)| *number as u64 % self.phase < LEARNING);
        (early.len(), late.len())
    }

    /// Time reserved beyond the demand, in parts per million of the demand.
    pub fn over_ppm(&self) -> u64 {
        let over: u64 = self.cycles.iter().map(|cycle| cycle.held_ns.saturating_sub(cycle.demand_ns)).sum();
        let demanded: u64 = self.cycles.iter().map(|cycle| cycle.demand_ns).sum();
        (u128::from(over) * 1_000_000 / u128::from(demanded.max(1))) as u64
    }

    /// The number of phases with a lower demand than the previous one. First: those in which the reservation was
    /// unchanged at the beginning and lower at the end; second: all.
    pub fn anticipated(&self) -> (usize, usize) {
        let phase = self.phase as usize;
        let falls = (1..).map(|number| number * phase).take_while(|begin| begin + phase <= self.cycles.len());
        let falls = falls.filter(|begin| self.cycles[*begin].demand_ns < self.cycles[begin - 1].demand_ns);
        let (mut anticipated, mut all) = (0, 0);
        for begin in falls {
            let (before, first) = (self.cycles[begin - 1], self.cycles[begin]);
            let last = self.cycles[begin + phase - 1];
            all += 1;
            anticipated += usize::from(first.held_ns >= before.demand_ns && last.held_ns < before.demand_ns);
        }
        (anticipated, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_track_a_changing_demand() {
        let tracked = play(PAPER_PHASE, 120);
        assert_eq!(tracked.missed().1, 0, "{tracked:?}");
        assert!(tracked.over_ppm() < 150_000, "{}", tracked.over_ppm());
        assert_eq!(tracked.anticipated(), (3, 3));
    }

    #[test]
    fn what_is_missed_late_and_reserved_beyond_the_demand_is_counted() {
        let cycle = |held_ns, met| TrackedCycle { demand_ns: 100, held_ns, met };
        let cycles = vec![cycle(90, false), cycle(110, true), cycle(150, false), cycle(100, true)];
        let tracked = Tracked { phase: 4, cycles };
        assert_eq!(tracked.missed(), (1, 1));
        assert_eq!(tracked.over_ppm(), 150_000);
        assert_eq!(tracked.anticipated(), (0, 0));
    }
}
