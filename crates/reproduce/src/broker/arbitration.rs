//! Figure 5: three tasks request more than the cap, and their importances change. Strict serves the important tasks
//! first, and the sum stays at the cap.

use hyoshi_control::{Arbiter, Joining, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use serde::Serialize;

use super::tracking::chain;

/// The tasks' period.
pub const PERIOD: Span = Span::from_millis(250);
/// The budget that each requests.
pub const BUDGETS: [Span; 3] = [Span::from_millis(95), Span::from_millis(125), Span::from_millis(40)];
/// Their advocates, one each: the paper's "continuous rate".
pub const ADVOCATES: [&str; 3] = ["rate 38%", "rate 50%", "rate 16%"];
/// The cap on their sum.
pub const CAP: Share = Share::from_percent(75);
/// Importances: first, then at 16.6 s and at 22.5 s of the paper's time.
pub const IMPORTANCES: [[u32; 3]; 3] = [[10, 5, 1], [10, 5, 7], [10, 5, 1]];
/// The expected reservations.
pub const EXPECTED: [[Span; 3]; 3] = {
    let (first, second, third) = (BUDGETS[0], Span::from_micros(92_500), BUDGETS[2]);
    [[first, second, Span::ZERO], [first, Span::from_micros(52_500), third], [first, second, Span::ZERO]]
};

/// The interval between two changes of importances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportanceStage {
    /// The tasks' importances.
    pub importances: [u32; 3],
    /// The reservation of each task.
    pub held_ns: [u64; 3],
    /// The changes that the command made, in order: reductions first. Empty at the start, and on the kernel, where they
    /// are not observable.
    pub changed: Vec<ReservationChangeRecord>,
    /// Time from the command until all reservations had their new values.
    pub settled_ns: u64,
    /// The periods of the tasks; empty in virtual time.
    pub served: Vec<ServedPeriods>,
}

/// One change of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationChangeRecord {
    /// The number of the task, from 1.
    pub task: u32,
    /// Its new reservation.
    pub to_ns: u64,
}

/// A task's own measurements during a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedPeriods {
    /// The number of periods within the stage.
    pub periods: u64,
    /// How many of them met their deadlines.
    pub met: u64,
    /// Mean CPU time obtained in a period.
    pub mean_obtained_ns: u64,
}

/// The experiment in virtual time.
pub fn play() -> Vec<ImportanceStage> {
    let mut arbiter = Arbiter::new(Box::new(Strict), CAP);
    for (place, (budget, advocate)) in BUDGETS.into_iter().zip(ADVOCATES).enumerate() {
        let declared = Reservation::new(budget, PERIOD).expect("a budget within its period");
        let joining = Joining::new(format!("task {}", place + 1), declared, chain(advocate));
        let joining = Joining { importance: IMPORTANCES[0][place], ..joining };
        arbiter.join(TaskId(place as u32 + 1), joining, Instant::ZERO).expect("a task that has not joined yet");
    }
    let held =
        |arbiter: &Arbiter| [1, 2, 3].map(|task| arbiter.held(TaskId(task)).map_or(0, |held| held.budget().as_nanos()));
    let stage = |importances, held_ns, changed| ImportanceStage {
        importances,
        held_ns,
        changed,
        settled_ns: 0,
        served: Vec::new(),
    };
    let mut stages = vec![stage(IMPORTANCES[0], held(&arbiter), Vec::new())];
    for importances in &IMPORTANCES[1..] {
        let decision = arbiter.set_importance(TaskId(3), importances[2]).expect("it has joined");
        let to = |to: Option<Reservation>| to.map_or(0, |to| to.budget().as_nanos());
        let changed =
            decision.changes.iter().map(|change| ReservationChangeRecord { task: change.task.0, to_ns: to(change.to) });
        let changed = changed.collect();
        stages.push(stage(*importances, held(&arbiter), changed));
    }
    stages
}

impl ImportanceStage {
    /// The sum of the reservations, in parts per million of a CPU.
    pub fn sum_ppm(&self) -> u64 {
        self.held_ns.iter().sum::<u64>() * 1_000_000 / PERIOD.as_nanos()
    }

    /// The tasks that hold all that they request.
    pub fn fully(&self) -> impl Iterator<Item = usize> {
        let held = self.held_ns;
        (0..BUDGETS.len()).filter(move |task| held[*task] >= BUDGETS[*task].as_nanos())
    }

    /// Whether the reservations are as expected, to a thousandth of the period.
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
        // At the same instant, reductions precede increases.
        let changed: Vec<_> = stages[1].changed.iter().map(|change| (change.task, change.to_ns)).collect();
        assert_eq!(changed, [(2, 52_500_000), (3, 40_000_000)]);
        assert_eq!(stages[1].fully().collect::<Vec<_>>(), [0, 2]);
    }
}
