//! Figure 5: three tasks want more than there is, and their importances change. Strict serves the important, and the
//! sum stays at the cap.

use hyoshi_control::{Arbiter, Joining, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use serde::Serialize;

use super::tracking::chain;

/// The tasks' period.
pub const PERIOD: Span = Span::from_millis(250);
/// What each asks for in it.
pub const BUDGETS: [Span; 3] = [Span::from_millis(95), Span::from_millis(125), Span::from_millis(40)];
/// Their advocates, one each: the paper's "continuous rate".
pub const ADVOCATES: [&str; 3] = ["rate 38%", "rate 50%", "rate 16%"];
/// The most that all have together.
pub const CAP: Share = Share::from_percent(75);
/// Importances: at first, then at 16.6 s and at 22.5 s of the paper's time.
pub const IMPORTANCES: [[u32; 3]; 3] = [[10, 5, 1], [10, 5, 7], [10, 5, 1]];
/// What follows from them.
pub const EXPECTED: [[Span; 3]; 3] = {
    let (first, second, third) = (BUDGETS[0], Span::from_micros(92_500), BUDGETS[2]);
    [[first, second, Span::ZERO], [first, Span::from_micros(52_500), third], [first, second, Span::ZERO]]
};

/// What holds from one change of importances to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// The tasks' importances.
    pub importances: [u32; 3],
    /// What is reserved for each.
    pub held_ns: [u64; 3],
    /// In which order the command changed them: what makes room goes first. Empty at the start, and where nobody
    /// could see it.
    pub changed: Vec<Changed>,
    /// From the command until all reservations were as it wants them.
    pub settled_ns: u64,
    /// How the tasks did; empty in virtual time.
    pub served: Vec<Served>,
}

/// One change of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Which task, from 1.
    pub task: u32,
    /// What it holds from then on.
    pub to_ns: u64,
}

/// How a task did during a stage, from its own view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Periods that lie in the stage.
    pub periods: u64,
    /// Of which its work was done in time.
    pub met: u64,
    /// CPU time obtained in a period, on average.
    pub mean_obtained_ns: u64,
}

/// The experiment in virtual time.
pub fn play() -> Vec<Stage> {
    let mut arbiter = Arbiter::new(Box::new(Strict), CAP);
    for (place, (budget, advocate)) in BUDGETS.into_iter().zip(ADVOCATES).enumerate() {
        let declared = Reservation::new(budget, PERIOD).expect("a budget within its period");
        let joining = Joining::new(format!("task {}", place + 1), declared, chain(advocate));
        let joining = Joining { importance: IMPORTANCES[0][place], ..joining };
        arbiter.join(TaskId(place as u32 + 1), joining, Instant::ZERO).expect("a task that has not joined yet");
    }
    let held =
        |arbiter: &Arbiter| [1, 2, 3].map(|task| arbiter.held(TaskId(task)).map_or(0, |held| held.budget().as_nanos()));
    let stage =
        |importances, held_ns, changed| Stage { importances, held_ns, changed, settled_ns: 0, served: Vec::new() };
    let mut stages = vec![stage(IMPORTANCES[0], held(&arbiter), Vec::new())];
    for importances in &IMPORTANCES[1..] {
        let decision = arbiter.set_importance(TaskId(3), importances[2]).expect("it has joined");
        let to = |to: Option<Reservation>| to.map_or(0, |to| to.budget().as_nanos());
        let changed = decision.changes.iter().map(|change| Changed { task: change.task.0, to_ns: to(change.to) });
        let changed = changed.collect();
        stages.push(stage(*importances, held(&arbiter), changed));
    }
    stages
}

impl Stage {
    /// The sum of the reservations, in parts per million of a CPU.
    pub fn sum_ppm(&self) -> u64 {
        self.held_ns.iter().sum::<u64>() * 1_000_000 / PERIOD.as_nanos()
    }

    /// Which tasks hold all that they ask for.
    pub fn fully(&self) -> impl Iterator<Item = usize> {
        let held = self.held_ns;
        (0..BUDGETS.len()).filter(move |task| held[*task] >= BUDGETS[*task].as_nanos())
    }

    /// Whether each holds what follows from the importances, to the thousandth of the period.
    pub fn is_as_expected(&self, stage: usize) -> bool {
        let near = |held: u64, expected: Span| held.abs_diff(expected.as_nanos()) <= PERIOD.as_nanos() / 1_000;
        self.held_ns.into_iter().zip(EXPECTED[stage]).all(|(held, expected)| near(held, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_important_are_served_and_the_sum_stays_at_the_cap() {
        let stages = play();
        for (number, stage) in stages.iter().enumerate() {
            assert_eq!(stage.held_ns, EXPECTED[number].map(Span::as_nanos));
            assert_eq!(stage.sum_ppm(), CAP.as_millionths());
            assert!(stage.is_as_expected(number));
        }
        // Within the same event, first what makes room, then what takes it.
        let changed: Vec<_> = stages[1].changed.iter().map(|change| (change.task, change.to_ns)).collect();
        assert_eq!(changed, [(2, 52_500_000), (3, 40_000_000)]);
        assert_eq!(stages[1].fully().collect::<Vec<_>>(), [0, 2]);
    }
}
