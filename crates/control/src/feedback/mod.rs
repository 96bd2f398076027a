//! Feedback control of rates and service levels: a law, a rate assigner and the tasks, as one state machine.
//!
//! After FCS/nORB (Lu, Wang and Gill, "Feedback Control Real-Time Scheduling in ORB Middleware", RTAS 2003, pages
//! 37-48). Every sampling period has four stages. The middle two are here:
//!
//! ```text
//! monitors ─U, M, L─► FeedbackLaw ──B(k+1)──► RateAssigner ──periods──► rate modulators
//! ```
//!
//! - [`settings`]: the table of algorithms: FC-U, FC-M, FC-UM, a form of FC-UM that rises fast, FC-UL; set points,
//!   gains.
//! - [`law`]: the law itself.
//! - [`assign`]: the tasks, and the table of rate assigners; [`proportional`] and [`value`] are two of them.
//! - [`analysis`]: stability, settling time and limits of a loop, before it runs.
//! - `eucon`, with the feature of that name: EUCON, for several processors that end-to-end tasks couple.
//! - [`deucon`]: its decentralised form. [`coordinator`] runs both for the groups of a system.
//! - [`reallocation`]: moves operations away from saturated processors.
//!
//! ```
//! use hyoshi_control::feedback::{
//!     ASSIGNERS, AdaptiveTask, ControllerGains, Feedback, FeedbackSample, FeedbackSettings,
//! };
//! use hyoshi_model::{FeedbackAlgorithm, Share, Span, StartRates};
//!
//! let settings = FeedbackSettings {
//!     algorithm: FeedbackAlgorithm::FcU,
//!     utilisation: Share::from_percent(70),
//!     miss_ratio: Share::ZERO,
//!     gains: ControllerGains::placed(2.0, 0.447)?,
//!     unlimited: false,
//! };
//! let task = AdaptiveTask::new(Span::from_millis(10), Span::from_millis(20), Span::from_millis(1_000), 1)?;
//! let mut feedback = Feedback::new(settings, (ASSIGNERS[0].build)(), vec![task], StartRates::Lowest)?;
//! // The jobs run twice as long as estimated.
//! for _ in 0..20 {
//!     let utilisation = 0.020 / feedback.periods()[0].as_secs_f64();
//!     feedback.sample(FeedbackSample { utilisation: Some(utilisation), ..FeedbackSample::default() });
//! }
//! assert!((0.020 / feedback.periods()[0].as_secs_f64() - 0.70).abs() < 0.001);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analysis;
pub mod assign;
pub mod coordinator;
pub mod deucon;
#[cfg(feature = "eucon")]
pub mod eucon;
pub mod law;
pub mod level_hold;
pub mod proportional;
pub mod reallocation;
pub mod settings;
pub mod value;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{FeedbackLoop, Share, Span, StartRates};

use level_hold::LevelHold;
use settings::number;

pub use analysis::{LoopModel, PlantModel};
pub use assign::{
    ASSIGNERS, AdaptiveTask, AdaptiveTaskError, AnyRateAssigner, AssignedTotals, RateAssigner, RateAssignerKind,
};
pub use coordinator::{Coordinator, CoordinatorError, GroupSteps};
#[cfg(feature = "eucon")]
pub use eucon::{EndToEndTask, Eucon, EuconError, EuconSettings, EuconStep};
pub use law::{FeedbackLaw, FeedbackSample, LawStep, MeasuredVariable, MonitorFault, RateLimit};
pub use proportional::Proportional;
pub use reallocation::{MoveOrder, ProcessorLoad, ProposedMove, Reallocation, Reallocator};
pub use settings::{ControllerGains, FeedbackSettings, FeedbackSettingsError};
pub use value::ByValue;

/// Why a loop cannot begin, or a task cannot join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedbackError {
    /// Invalid settings.
    Settings(FeedbackSettingsError),
    /// The number of given periods is not that of the tasks.
    PeriodCount {
        /// The given periods.
        periods: usize,
        /// The tasks.
        tasks: usize,
    },
    /// A given period that is outside its task's range.
    PeriodOutOfRange {
        /// The task's position.
        task: usize,
        /// The given period.
        period: Span,
        /// The task's shortest and longest period.
        range: (Span, Span),
    },
}

impl FeedbackError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            FeedbackError::Settings(error) => error.remedy(),
            FeedbackError::PeriodCount { .. } => "use one period for each task",
            FeedbackError::PeriodOutOfRange { .. } => "use a period within the range",
        }
    }
}

impl fmt::Display for FeedbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedbackError::Settings(error) => error.fmt(f),
            FeedbackError::PeriodCount { periods, tasks } => write!(f, "{periods} periods for {tasks} tasks"),
            FeedbackError::PeriodOutOfRange { task, period, range } => {
                write!(f, "task {task} has the period {period}, outside {} to {}", range.0, range.1)
            }
        }
    }
}

impl core::error::Error for FeedbackError {}

impl From<FeedbackSettingsError> for FeedbackError {
    fn from(error: FeedbackSettingsError) -> Self {
        FeedbackError::Settings(error)
    }
}

/// One sampling period of a loop, for reports and recordings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackRecord {
    /// k, the number of the period that has ended: 1 is the first.
    pub number: u64,
    /// U(k), M(k) and L(k), as the monitors reported them.
    pub sample: FeedbackSample,
    /// B(k), the total estimated utilisation of the period that has ended.
    pub total: f64,
    /// B(k+1), the limit that it has reached, and what was not measured.
    pub next: LawStep,
}

/// The loop of one processor: law, assigner, and tasks with their periods.
///
/// ```text
///        sample                      join, leave, change
///  ┌───────────────┐              ┌──────────────────────┐
///  ▼               │              ▼                      │
/// B(k) ─► B(k+1) ─► periods      ranges, base rates ─► B ─► periods
/// ```
///
/// It has no clock: the caller invokes [`sample`](Feedback::sample) at the end of each sampling period and passes the
/// new [`periods`](Feedback::periods) on. A sample does not allocate.
///
/// When tasks change between samples, present rates become the base of later ratios, and `B` becomes the smaller of
/// its value and the sum of `EE / period`. So a new task lowers the rates of the other tasks at once, and the processor
/// is not overloaded. When a task leaves, the total of the other tasks rises at most to its value before the join.
/// Later samples distribute the rest: if its jobs ran shorter than estimated, a distribution at once would overload the
/// processor.
///
/// # Service levels
///
/// A level changes the load in a step. Without further rules, a total between two steps would grow until the next
/// level fits, overload the processor, and fall again. So with levels there is a band of 5 % of the set point `Us`:
///
/// - A level rises only if the total exceeds its need by the band, and the utilisation will surely be below `Us` by the
///   band. The expected utilisation is `U + g (A' - A)`: `A` is the assigned part of the total, `A'` the part up to
///   this level. The ratio `g` of actual to estimated times is unknown, but at most `ga` by design, and at most
///   `U / A`.
/// - An unassigned part of the total does not delay a reduction: if the law lowers the total, it starts from at most
///   `A` plus the band. So a level falls when the excess of several samples, each times `Ku`, is above the band.
/// - Without a measured utilisation no level rises.
/// - A level that falls soon after its rise delays further rises: see [`LevelHold`].
#[derive(Debug)]
pub struct Feedback {
    law: FeedbackLaw,
    assigner: AnyRateAssigner,
    tasks: Vec<AdaptiveTask>,
    periods: Vec<Span>,
    /// The total of the other tasks when each task joined; 0 for the tasks at the start.
    before: Vec<f64>,
    levels: Vec<u8>,
    /// The levels before the last sample.
    old_levels: Vec<u8>,
    hold: LevelHold,
    samples: u64,
}

/// The band around the set point in which levels stay, as a part of the set point.
const LEVEL_BAND: f64 = 0.05;

/// At most this much declared utilisation is no load: that of tasks that wait for their admission.
const NO_LOAD: f64 = 1e-6;

impl Feedback {
    /// A loop over these tasks, which may be none at first.
    pub fn new(
        settings: FeedbackSettings,
        mut assigner: AnyRateAssigner,
        tasks: Vec<AdaptiveTask>,
        start: StartRates,
    ) -> Result<Feedback, FeedbackError> {
        let levels: Vec<u8> = tasks.iter().map(|task| start.level_of(task.levels().len()) as u8).collect();
        let periods = start_periods(&tasks, start)?;
        let law = FeedbackLaw::new(settings, sum(&tasks, &periods, &levels))?;
        assigner.restart(&tasks, &periods);
        let before = vec![0.0; tasks.len()];
        let (old_levels, hold) = (levels.clone(), LevelHold::default());
        Ok(Feedback { law, assigner, tasks, periods, before, levels, old_levels, hold, samples: 0 })
    }

    /// The loop of a file over these tasks. Tasks beyond the list of start rates have one rate.
    pub fn of(declared: &FeedbackLoop, tasks: Vec<AdaptiveTask>) -> Result<Feedback, FeedbackError> {
        let kind = RateAssignerKind::named(declared.divide.name()).unwrap_or(&ASSIGNERS[0]);
        let mut start = declared.start.clone();
        if let StartRates::Given(periods) = &mut start {
            periods.extend(tasks.iter().skip(periods.len()).map(AdaptiveTask::longest));
        }
        Feedback::new(FeedbackSettings::of(declared)?, (kind.build)(), tasks, start)
    }

    /// Reserves memory for this number of further tasks. For these, [`join`](Feedback::join) does not allocate.
    pub fn reserve(&mut self, further: usize) {
        self.tasks.reserve(further);
        self.periods.reserve(further);
        self.before.reserve(further);
        self.levels.reserve(further);
        self.old_levels.reserve(further);
        let placeholder = AdaptiveTask::PLACEHOLDER;
        let all: Vec<_> = self.tasks.iter().copied().chain(core::iter::repeat_n(placeholder, further)).collect();
        let periods: Vec<_> = all.iter().map(AdaptiveTask::longest).collect();
        self.assigner.restart(&all, &periods);
        self.assigner.restart(&self.tasks, &self.periods);
    }

    /// The tasks, in the order of [`periods`](Feedback::periods).
    pub fn tasks(&self) -> &[AdaptiveTask] {
        &self.tasks
    }

    /// The present period of each task.
    pub fn periods(&self) -> &[Span] {
        &self.periods
    }

    /// The present service level of each task.
    pub fn levels(&self) -> &[u8] {
        &self.levels
    }

    /// Its law, with settings and B.
    pub fn law(&self) -> &FeedbackLaw {
        &self.law
    }

    /// From the next sample on, the utilisation has this set point, above 0 and at most 100 %.
    pub fn set_utilisation(&mut self, to: Share) {
        self.law.set_utilisation(to);
    }

    /// From the next sample on, the miss ratio has this set point, above 0 and at most 100 %.
    pub fn set_miss_ratio(&mut self, to: Share) {
        self.law.set_miss_ratio(to);
    }

    /// The totals at which all tasks are at their lowest and at their highest rates.
    pub fn range(&self) -> [f64; 2] {
        self.assigner.range()
    }

    /// Ends a sampling period: decides on the periods of the next.
    pub fn sample(&mut self, sample: FeedbackSample) -> FeedbackRecord {
        self.samples += 1;
        let total = self.law.total();
        let ([least, most], band, assigned) = (self.assigner.range(), self.band(), self.assigned());
        let mut next = self.law.step(sample, [least, most + band]);
        if band > 0.0 && next.total < total && total > assigned + band {
            next.total = (next.total - (total - assigned - band)).max(least);
            self.law.restart(next.total);
        }
        let may_rise = self.hold.allows(self.samples);
        let raise = if may_rise { (next.total - band).min(self.supported(sample, assigned, band)) } else { 0.0 };
        self.old_levels.clone_from(&self.levels);
        let totals = AssignedTotals { all: next.total, raise };
        self.assigner.assign(&self.tasks, totals, &mut self.periods, &mut self.levels);
        let changed =
            |by: fn(&u8, &u8) -> bool| self.levels.iter().zip(&self.old_levels).any(|(now, old)| by(now, old));
        self.hold.note(self.samples, changed(u8::gt), changed(u8::lt));
        FeedbackRecord { number: self.samples, sample, total, next }
    }

    /// The estimated utilisation of the present rates and levels.
    pub fn assigned(&self) -> f64 {
        sum(&self.tasks, &self.periods, &self.levels)
    }

    /// The greatest total at which the utilisation is surely below the set point by the band.
    fn supported(&self, sample: FeedbackSample, assigned: f64, band: f64) -> f64 {
        let Some(measured) = sample.utilisation.filter(|value| (0.0..=1.0).contains(value)) else { return 0.0 };
        let FeedbackSettings { utilisation, gains, .. } = self.law.settings();
        let gain = ((1.0 - ControllerGains::POLE) / gains.utilisation).min(measured / assigned);
        assigned + (number(*utilisation) - band - measured) / gain
    }

    /// Half the width of the band in which levels stay; 0 if there is nothing to choose.
    fn band(&self) -> f64 {
        let chooses = self.tasks.iter().any(|task| task.levels().len() > 1);
        if chooses { LEVEL_BAND * number(self.law.settings().utilisation) } else { 0.0 }
    }

    /// Adds a task, the last from now on, and makes room for it. Ratios of rates begin from this `period` of it.
    pub fn join(&mut self, task: AdaptiveTask, period: Span) -> Result<(), FeedbackError> {
        is_within(self.tasks.len(), &task, period)?;
        self.before.push(self.assigned());
        self.tasks.push(task);
        self.periods.push(period);
        self.levels.push(0);
        self.restart(self.assigned());
        Ok(())
    }

    /// As [`join`](Self::join), but the task gets the place of one without load. [`end`](Self::end) removes it.
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn begin(&mut self, place: usize, task: AdaptiveTask, period: Span) -> Result<(), FeedbackError> {
        is_within(place, &task, period)?;
        self.before[place] = self.assigned();
        self.set(place, task, period);
        self.restart(self.assigned());
        Ok(())
    }

    /// As [`leave`](Self::leave), but `idle`, a task without load, keeps the place.
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn end(&mut self, place: usize, idle: AdaptiveTask) {
        let before = core::mem::take(&mut self.before[place]);
        self.set(place, idle, idle.longest());
        self.restart(self.assigned().max(before));
    }

    fn set(&mut self, place: usize, task: AdaptiveTask, period: Span) {
        (self.tasks[place], self.periods[place], self.levels[place]) = (task, period, 0);
    }

    /// The period with which a new task should [`join`](Feedback::join). Its rate is then as far below its highest rate
    /// as those of the other tasks are on average, by utilisation. `None` if the other tasks have no load.
    pub fn fair_period(&self, task: &AdaptiveTask) -> Option<Span> {
        let most: f64 = self.tasks.iter().map(AdaptiveTask::most).sum();
        let present = self.assigned();
        (present > NO_LOAD).then(|| task.clip(task.shortest().as_nanos() as f64 * (most / present)))
    }

    /// Removes the task at this place; those behind it move up. The other tasks regain the utilisation that they lost
    /// when it joined, up to the total `B`.
    ///
    /// # Panics
    ///
    /// If there is no such task.
    pub fn leave(&mut self, place: usize) {
        self.tasks.remove(place);
        self.periods.remove(place);
        self.levels.remove(place);
        let before = self.before.remove(place);
        self.restart(self.assigned().max(before));
    }

    /// Replaces the tasks whose estimate, range or value has changed; `tasks` has all, in their order. Periods move into
    /// the ranges. If some become shorter, the other tasks make room. A new estimate alone changes `B`, but no rate.
    ///
    /// # Panics
    ///
    /// If `tasks` has more tasks than the loop.
    pub fn change(&mut self, tasks: impl Iterator<Item = AdaptiveTask>) {
        let mut total = self.law.total();
        let mut changed = false;
        for (place, task) in tasks.enumerate() {
            if task == self.tasks[place] {
                continue;
            }
            let (period, before) = (self.periods[place], self.levels[place]);
            let level = before.min(task.levels().len() as u8 - 1);
            total += task.utilisation_at(level.into(), period);
            total -= self.tasks[place].utilisation_at(before.into(), period);
            self.levels[place] = level;
            self.tasks[place] = task;
            self.periods[place] = period.clamp(task.shortest(), task.longest());
            changed = true;
        }
        if changed {
            self.law.restart(total);
            self.restart(self.assigned());
        }
    }

    /// `B` is at most `limit` from now on.
    fn restart(&mut self, limit: f64) {
        self.assigner.restart(&self.tasks, &self.periods);
        let ([least, most], band) = (self.assigner.range(), self.band());
        let total = self.law.total().min(limit + band).min(most + band).max(least);
        self.law.restart(total);
        // Only a sample measures what a level that rises would need.
        let totals = AssignedTotals { all: total, raise: 0.0 };
        self.assigner.assign(&self.tasks, totals, &mut self.periods, &mut self.levels);
    }
}

/// The periods before the first sample.
fn start_periods(tasks: &[AdaptiveTask], start: StartRates) -> Result<Vec<Span>, FeedbackError> {
    let periods: Vec<Span> = match start {
        StartRates::Lowest => tasks.iter().map(AdaptiveTask::longest).collect(),
        StartRates::Highest => tasks.iter().map(AdaptiveTask::shortest).collect(),
        StartRates::Given(periods) => periods,
    };
    if periods.len() != tasks.len() {
        return Err(FeedbackError::PeriodCount { periods: periods.len(), tasks: tasks.len() });
    }
    for (place, (task, period)) in tasks.iter().zip(&periods).enumerate() {
        is_within(place, task, *period)?;
    }
    Ok(periods)
}

fn sum(tasks: &[AdaptiveTask], periods: &[Span], levels: &[u8]) -> f64 {
    let of = |((task, period), level): ((&AdaptiveTask, &Span), &u8)| task.utilisation_at((*level).into(), *period);
    tasks.iter().zip(periods).zip(levels).map(of).sum()
}

fn is_within(place: usize, task: &AdaptiveTask, period: Span) -> Result<(), FeedbackError> {
    if period >= task.shortest() && period <= task.longest() {
        return Ok(());
    }
    Err(FeedbackError::PeriodOutOfRange { task: place, period, range: (task.shortest(), task.longest()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use hyoshi_model::{FeedbackAlgorithm, Share};
    use proptest::prelude::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn task(estimate: u64, shortest: u64, longest: u64) -> AdaptiveTask {
        AdaptiveTask::new(MS(estimate), MS(shortest), MS(longest), 1).unwrap()
    }

    fn feedback(tasks: &[AdaptiveTask], start: StartRates) -> Result<Feedback, FeedbackError> {
        divided("proportional", tasks, start)
    }

    fn divided(divide: &str, tasks: &[AdaptiveTask], start: StartRates) -> Result<Feedback, FeedbackError> {
        let settings = FeedbackSettings {
            algorithm: FeedbackAlgorithm::FcU,
            utilisation: Share::from_percent(70),
            miss_ratio: Share::ZERO,
            gains: ControllerGains::placed(2.0, 0.447).unwrap(),
            unlimited: false,
        };
        let assigner = (RateAssignerKind::named(divide).unwrap().build)();
        Feedback::new(settings, assigner, tasks.to_vec(), start)
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }

    #[test]
    fn it_starts_at_the_lowest_the_highest_or_the_given_rates() {
        let tasks = [task(10, 50, 1_000), task(10, 50, 500)];
        for (start, expected) in [
            (StartRates::Lowest, [1_000, 500]),
            (StartRates::Highest, [50, 50]),
            (StartRates::Given(vec![MS(100), MS(200)]), [100, 200]),
        ] {
            let feedback = feedback(&tasks, start).unwrap();
            assert_eq!(feedback.periods(), expected.map(MS));
            near(feedback.law().total(), expected.iter().map(|period| 10.0 / *period as f64).sum());
        }
        let refused = |periods: &[u64]| {
            let given = StartRates::Given(periods.iter().map(|period| MS(*period)).collect());
            feedback(&tasks, given).unwrap_err().to_string()
        };
        assert_eq!(refused(&[100]), "1 periods for 2 tasks");
        assert_eq!(refused(&[100, 501]), "task 1 has the period 501ms, outside 50ms to 500ms");
        assert_eq!(refused(&[49, 500]), "task 0 has the period 49ms, outside 50ms to 1s");
    }

    #[test]
    fn a_record_has_both_totals_and_the_sample() {
        let mut feedback = feedback(&[task(10, 20, 100)], StartRates::Lowest).unwrap();
        let sample = FeedbackSample { utilisation: Some(0.2), ..FeedbackSample::default() };
        let record = feedback.sample(sample);
        assert_eq!((record.number, record.sample), (1, sample));
        near(record.total, 0.1);
        near(record.next.total, 0.1 + 0.185 * 0.5);
        near(10.0 / (feedback.periods()[0].as_nanos() as f64 / 1e6), record.next.total);
        let stalled = feedback.sample(FeedbackSample::default());
        assert_eq!((stalled.number, stalled.next.total), (2, record.next.total));
        assert!(stalled.next.fault.is_some());
    }

    #[test]
    fn for_a_new_task_the_others_make_room() {
        let tasks = [task(10, 20, 1_000), task(10, 20, 1_000)];
        let mut feedback = feedback(&tasks, StartRates::Given(vec![MS(50), MS(100)])).unwrap();
        near(feedback.law().total(), 0.3);
        feedback.join(task(10, 20, 1_000), MS(100)).unwrap();
        near(feedback.law().total(), 0.3);
        // 0.2 : 0.1 : 0.1 of 0.3.
        let expected = [0.15, 0.075, 0.075];
        for (period, expected) in feedback.periods().iter().zip(expected) {
            near(10.0 / (period.as_nanos() as f64 / 1e6), expected);
        }
        assert!(feedback.join(task(10, 20, 100), MS(101)).is_err());
        assert_eq!(feedback.tasks().len(), 3);
    }

    #[test]
    fn a_new_task_joins_as_far_below_its_highest_rate_as_the_others() {
        let new = task(10, 40, 1_000);
        assert_eq!(feedback(&[], StartRates::Lowest).unwrap().fair_period(&new), None);
        let tasks = [task(10, 20, 1_000), task(10, 20, 1_000)];
        for (periods, expected) in [([20, 20], 40), ([40, 40], 80), ([1_000, 1_000], 1_000)] {
            let feedback = feedback(&tasks, StartRates::Given(periods.map(MS).to_vec())).unwrap();
            let fair = feedback.fair_period(&new).unwrap();
            assert!(fair.as_nanos().abs_diff(MS(expected).as_nanos()) <= 1, "{fair}");
        }
        // It is fair from then on.
        let mut feedback = feedback(&tasks[..1], StartRates::Given(vec![MS(20)])).unwrap();
        feedback.reserve(1);
        feedback.join(tasks[0], feedback.fair_period(&tasks[0]).unwrap()).unwrap();
        assert_eq!(feedback.periods(), [MS(40), MS(40)]);
    }

    #[test]
    fn if_a_task_leaves_the_others_keep_their_rates_until_the_next_sample() {
        let tasks = [task(10, 20, 1_000), task(10, 20, 1_000)];
        let mut feedback = feedback(&tasks, StartRates::Given(vec![MS(50), MS(100)])).unwrap();
        feedback.leave(0);
        near(feedback.law().total(), 0.1);
        near(feedback.periods()[0].as_nanos() as f64, 1e8);
        feedback.sample(FeedbackSample { utilisation: Some(0.1), ..FeedbackSample::default() });
        near(feedback.law().total(), 0.1 + 0.185 * 0.6);
        feedback.leave(0);
        assert_eq!((feedback.law().total(), feedback.range()), (0.0, [0.0, 0.0]));
        // Without tasks a sample does nothing, and a new task begins at its lowest rate.
        feedback.sample(FeedbackSample { utilisation: Some(0.0), ..FeedbackSample::default() });
        feedback.join(task(10, 20, 1_000), MS(50)).unwrap();
        assert_eq!(feedback.periods(), [MS(1_000)]);
    }

    proptest! {
        /// Otherwise a client that joins and leaves repeatedly could lower the rates of all other clients.
        #[test]
        fn a_task_that_joins_and_leaves_costs_other_tasks_nothing(
            first in prop::collection::vec((1u64..20, 20u64..60, 100u64..1_000, 0u32..100), 1..6),
            joins in prop::collection::vec((1u64..20, 20u64..60, 100u64..1_000), 1..20),
            by_value in any::<bool>(),
        ) {
            let tasks: Vec<_> =
                first.iter().map(|(estimate, shortest, longest, _)| task(*estimate, *shortest, *longest)).collect();
            let within = |(_, shortest, longest, at): &(u64, u64, u64, u32)| {
                MS(shortest + (longest - shortest) * u64::from(*at) / 100)
            };
            let start = StartRates::Given(first.iter().map(within).collect());
            let divide = if by_value { "value" } else { "proportional" };
            let mut feedback = divided(divide, &tasks, start).unwrap();
            let total = feedback.assigned();
            for (estimate, shortest, longest) in joins {
                let new = task(estimate, shortest, longest);
                feedback.join(new, feedback.fair_period(&new).unwrap()).unwrap();
                let least: f64 = feedback.tasks().iter().map(AdaptiveTask::least).sum();
                prop_assert!(feedback.assigned() <= total.max(least) + 1e-6);
                feedback.leave(first.len());
                let now = feedback.assigned();
                prop_assert!((now - total).abs() < 1e-6, "{now} instead of {total}");
            }
        }

        #[test]
        fn a_task_that_begins_and_ends_at_a_place_costs_other_tasks_nothing(
            first in prop::collection::vec((1u64..20, 20u64..60, 100u64..1_000, 0u32..100), 1..6),
            begins in prop::collection::vec((1u64..20, 20u64..60, 100u64..1_000), 1..20),
            place in any::<prop::sample::Index>(),
            by_value in any::<bool>(),
        ) {
            let idle = AdaptiveTask::new(Span::from_nanos(1), MS(1_000), MS(1_000), 0).unwrap();
            let place = place.index(first.len() + 1);
            let mut tasks: Vec<_> =
                first.iter().map(|(estimate, shortest, longest, _)| task(*estimate, *shortest, *longest)).collect();
            let mut start: Vec<_> = first
                .iter()
                .map(|(_, shortest, longest, at)| MS(shortest + (longest - shortest) * u64::from(*at) / 100))
                .collect();
            tasks.insert(place, idle);
            start.insert(place, MS(1_000));
            let divide = if by_value { "value" } else { "proportional" };
            let mut feedback = divided(divide, &tasks, StartRates::Given(start)).unwrap();
            let total = feedback.assigned();
            for (estimate, shortest, longest) in begins {
                let new = task(estimate, shortest, longest);
                feedback.begin(place, new, feedback.fair_period(&new).unwrap()).unwrap();
                prop_assert_eq!(feedback.tasks()[place], new);
                let least: f64 = feedback.tasks().iter().map(AdaptiveTask::least).sum();
                prop_assert!(feedback.assigned() <= total.max(least) + 1e-6);
                feedback.end(place, idle);
                let now = feedback.assigned();
                prop_assert!((now - total).abs() < 1e-6, "{now} instead of {total}");
            }
        }
    }

    #[test]
    fn a_changed_estimate_changes_no_rate() {
        let tasks = [task(10, 20, 1_000), task(10, 20, 1_000)];
        for (estimate, total) in [(20, 0.5), (5, 0.2)] {
            let mut feedback = feedback(&tasks, StartRates::Given(vec![MS(50), MS(100)])).unwrap();
            feedback.change([task(estimate, 20, 1_000), tasks[1]].into_iter());
            near(feedback.law().total(), total);
            for (period, expected) in feedback.periods().iter().zip([50, 100]) {
                near(period.as_nanos() as f64 / 1e6, f64::from(expected));
            }
        }
    }

    #[test]
    fn a_changed_range_moves_its_task_and_raises_no_other() {
        let tasks = [task(10, 20, 1_000), task(10, 20, 1_000)];
        let given = StartRates::Given(vec![MS(50), MS(100)]);
        let mut lower = feedback(&tasks, given.clone()).unwrap();
        lower.change([task(10, 200, 1_000), tasks[1]].into_iter());
        near(lower.law().total(), 0.15);
        near(lower.periods()[1].as_nanos() as f64 / 1e6, 100.0);
        let mut higher = feedback(&tasks, given).unwrap();
        higher.change([task(10, 20, 40), tasks[1]].into_iter());
        near(higher.law().total(), 0.3);
        assert!(higher.periods()[0] <= MS(40) && higher.periods()[1] > MS(100));
    }
}
