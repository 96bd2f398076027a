//! From a total estimated utilisation to the rate of each task.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::time::LONGEST_SPAN;
use hyoshi_model::{MOST_SERVICE_LEVELS, ServiceLevel, Span};

use super::proportional::Proportional;
use super::value::ByValue;

/// A task with an adjustable rate (FCS/nORB, section 2.1): an operation that is released by time, a client's requests,
/// or a supplier's events.
///
/// Its deadline equals its period. For aperiodic requests (footnote 1) the period is the least time between two of
/// them, which the client's rate modulator enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveTask {
    shortest: Span,
    longest: Span,
    /// The estimate and the value of a job at each service level, the shortest first.
    levels: [(Span, u32); MOST_SERVICE_LEVELS],
    /// The number of levels, at least 1.
    count: usize,
}

/// Why a task is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptiveTaskError {
    /// An estimate of 0, or above [`LONGEST_SPAN`].
    Estimate(Span),
    /// No levels or more than [`MOST_SERVICE_LEVELS`], or estimates that do not rise, or values that fall.
    Levels,
    /// A range that is empty or begins at 0, or one that ends above [`LONGEST_SPAN`].
    Range {
        /// The period at the highest rate.
        shortest: Span,
        /// The period at the lowest rate.
        longest: Span,
    },
}

impl fmt::Display for AdaptiveTaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdaptiveTaskError::Estimate(estimate) => write!(f, "the estimated execution time is {estimate}"),
            AdaptiveTaskError::Range { shortest, longest } => {
                write!(f, "the range of periods is {shortest} to {longest}")
            }
            AdaptiveTaskError::Levels => f.write_str("the service levels are not in order, or too many"),
        }
    }
}

impl core::error::Error for AdaptiveTaskError {}

impl AdaptiveTaskError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            AdaptiveTaskError::Estimate(_) => "use a time above 0, at most ten years",
            AdaptiveTaskError::Levels => "use 1 to 8 levels with rising estimates and values that do not fall",
            AdaptiveTaskError::Range { .. } => "use periods above 0, at most ten years, the shortest first",
        }
    }
}

impl AdaptiveTask {
    pub(super) const PLACEHOLDER: AdaptiveTask = AdaptiveTask {
        shortest: Span::from_nanos(1),
        longest: Span::from_nanos(1),
        levels: [(Span::from_nanos(1), 0); MOST_SERVICE_LEVELS],
        count: 1,
    };

    /// A task that is estimated to run for `estimate` per job, with periods from `shortest` to `longest`. `value` is
    /// the worth of one job to the application; only [`ByValue`] uses it.
    pub fn new(estimate: Span, shortest: Span, longest: Span, value: u32) -> Result<AdaptiveTask, AdaptiveTaskError> {
        AdaptiveTask::with_levels(&[(estimate, value)], shortest, longest)
    }

    /// A task with these service levels, each with the estimate and the value of a job, the shortest first. Only
    /// [`ByValue`] chooses among several.
    pub fn with_levels(
        levels: &[(Span, u32)],
        shortest: Span,
        longest: Span,
    ) -> Result<AdaptiveTask, AdaptiveTaskError> {
        let usable = |estimate: &Span| !estimate.is_zero() && *estimate <= LONGEST_SPAN;
        if let Some((estimate, _)) = levels.iter().find(|(estimate, _)| !usable(estimate)) {
            return Err(AdaptiveTaskError::Estimate(*estimate));
        }
        let rising = levels.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
        if !rising || !(1..=MOST_SERVICE_LEVELS).contains(&levels.len()) {
            return Err(AdaptiveTaskError::Levels);
        }
        if shortest.is_zero() || shortest > longest || longest > LONGEST_SPAN {
            return Err(AdaptiveTaskError::Range { shortest, longest });
        }
        let mut task = AdaptiveTask { shortest, longest, count: levels.len(), ..AdaptiveTask::PLACEHOLDER };
        task.levels[..levels.len()].copy_from_slice(levels);
        Ok(task)
    }

    /// The task of operations with one rate, each with its worst case, legs, importance and service levels. At most one
    /// of them has levels: then their values count. Without levels, the value is the greatest importance. Times are
    /// limited to [`LONGEST_SPAN`]. If that makes levels equally long, only the first of them stays.
    ///
    /// # Panics
    ///
    /// If the range of periods is invalid.
    pub fn of_operations<'a>(
        parts: impl Iterator<Item = (Span, u16, u32, &'a [ServiceLevel])>,
        (shortest, longest): (Span, Span),
    ) -> AdaptiveTask {
        let (mut work, mut importance, mut leveled) = (0u64, 0, None);
        let all = |wcet: Span, legs: u16| wcet.as_nanos().saturating_mul(legs.into());
        for (wcet, legs, rank, levels) in parts {
            importance = importance.max(rank);
            match levels.is_empty() {
                true => work = work.saturating_add(all(wcet, legs)),
                false => leveled = Some((levels, legs)),
            }
        }
        let total = |own: u64| Span::from_nanos(work.saturating_add(own).max(1)).min(LONGEST_SPAN);
        let (mut choices, mut count) = ([(total(0), importance); MOST_SERVICE_LEVELS], 1);
        if let Some((levels, legs)) = leveled {
            for (choice, level) in choices.iter_mut().zip(levels) {
                *choice = (total(all(level.wcet, legs)), level.value);
            }
            let rises = |pair: &&[(Span, u32)]| pair[0].0 < pair[1].0;
            count += choices[..levels.len()].windows(2).take_while(rises).count();
        }
        AdaptiveTask::with_levels(&choices[..count], shortest, longest.max(shortest))
            .expect("a checked system has periods above 0")
    }

    /// The estimate and the value of a job at each level, the shortest first; not empty.
    pub fn levels(&self) -> &[(Span, u32)] {
        &self.levels[..self.count]
    }

    /// EE, the estimated execution time of one job, at the last level.
    pub fn estimate(&self) -> Span {
        self.levels[self.count - 1].0
    }

    /// The period at the highest rate.
    pub const fn shortest(&self) -> Span {
        self.shortest
    }

    /// The period at the lowest rate.
    pub const fn longest(&self) -> Span {
        self.longest
    }

    /// The worth of one job at the last level.
    pub fn value(&self) -> u32 {
        self.levels[self.count - 1].1
    }

    /// The estimated utilisation with this period, which is above 0, at the last level: EE / period, 1 is one CPU.
    pub fn utilisation(&self, period: Span) -> f64 {
        self.utilisation_at(self.count - 1, period)
    }

    /// The same at the level of this place.
    pub fn utilisation_at(&self, level: usize, period: Span) -> f64 {
        self.levels[level].0.as_nanos() as f64 / period.as_nanos() as f64
    }

    /// The estimated utilisation at the lowest rate and level.
    pub fn least(&self) -> f64 {
        self.utilisation_at(0, self.longest)
    }

    /// The estimated utilisation at the highest rate and level.
    pub fn most(&self) -> f64 {
        self.utilisation(self.shortest)
    }

    /// The shortest period of at least so many nanoseconds that is in the range.
    pub(super) fn clip(&self, nanos: f64) -> Span {
        // The conversion saturates, and NaN (nothing per nothing) becomes 0.
        let floor = nanos as u64;
        let whole = if (floor as f64) < nanos { floor.saturating_add(1) } else { floor };
        Span::from_nanos(whole).clamp(self.shortest, self.longest)
    }
}

/// A rate assigner: distributes a total estimated utilisation over tasks (FCS/nORB, section 3.3).
///
/// Laws, tested for each line of [`ASSIGNERS`]: each period is within its task's range, and with a greater total no
/// period is longer. Within [`range`](RateAssigner::range), `sum of EE / period` is the total, less what rounding up
/// each period by less than a nanosecond costs; the paper's clipped form alone may differ.
pub trait RateAssigner: fmt::Debug + Send {
    /// Its name in files.
    fn name(&self) -> &'static str;

    /// Begins from these periods, one for each task, because the tasks or their ranges have changed. May allocate.
    fn restart(&mut self, tasks: &[AdaptiveTask], periods: &[Span]);

    /// The totals at which all tasks are at their lowest and at their highest rates.
    fn range(&self) -> [f64; 2];

    /// Writes the periods and the service levels for these totals. `tasks` are those of the last restart, `periods` has
    /// one place for each, `levels` the present level of each. Does not allocate.
    fn assign(&self, tasks: &[AdaptiveTask], totals: AssignedTotals, periods: &mut [Span], levels: &mut [u8]);
}

/// What an assigner distributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AssignedTotals {
    /// The total estimated utilisation.
    pub all: f64,
    /// At most `all`. A level rises only if the utilisation assigned so far and this level fit into it.
    pub raise: f64,
}

impl From<f64> for AssignedTotals {
    /// Levels rise as far as the total allows.
    fn from(all: f64) -> Self {
        AssignedTotals { all, raise: all }
    }
}

/// An assigner of any kind.
pub type AnyRateAssigner = Box<dyn RateAssigner>;

/// A line of [`ASSIGNERS`].
#[derive(Debug)]
pub struct RateAssignerKind {
    /// Its name in files.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// A new one.
    pub build: fn() -> AnyRateAssigner,
}

/// The rate assigners: the table for files and docs. The first is the default.
pub static ASSIGNERS: [RateAssignerKind; 3] = [
    RateAssignerKind {
        name: "proportional",
        about: "keeps the ratios of the rates; the rest of the tasks make up for those at a limit",
        build: || Box::new(Proportional::default()),
    },
    RateAssignerKind {
        name: "proportional-clipped",
        about: "keeps the ratios of the rates; clips each to its range, as FCS/nORB does",
        build: || Box::new(Proportional::clipped()),
    },
    RateAssignerKind {
        name: "value",
        about: "raises the rates and levels with the most value per execution time first, from the lowest ones",
        build: || Box::new(ByValue::default()),
    },
];

impl RateAssignerKind {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<&'static RateAssignerKind> {
        ASSIGNERS.iter().find(|kind| kind.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn a_task_without_time_or_range_is_refused() {
        let refused = |estimate, shortest, longest| {
            let error = AdaptiveTask::new(estimate, shortest, longest, 1).unwrap_err();
            alloc::format!("{error}: {}", error.remedy())
        };
        assert_eq!(
            refused(MS(0), MS(1), MS(2)),
            "the estimated execution time is 0s: use a time above 0, at most ten years"
        );
        for (shortest, longest) in [(0, 1), (2, 1)].map(|(one, other)| (MS(one), MS(other))) {
            assert!(refused(MS(1), shortest, longest).starts_with("the range of periods is"));
        }
        let forever = Span::from_nanos(u64::MAX);
        assert!(AdaptiveTask::new(forever, MS(1), MS(1), 1).is_err());
        assert!(AdaptiveTask::new(MS(1), MS(1), forever, 1).is_err());
        // More than one CPU at the highest rate: the loop never goes there, but may be asked to.
        assert_eq!(AdaptiveTask::new(MS(3), MS(1), MS(10), 1).unwrap().most(), 3.0);
    }

    #[test]
    fn periods_are_rounded_up_into_the_range() {
        let task = AdaptiveTask::new(MS(1), MS(10), MS(20), 1).unwrap();
        let clipped = |nanos: f64| task.clip(nanos).to_string();
        assert_eq!(clipped(15_000_000.0), "15ms");
        assert_eq!(clipped(15_000_000.25), "15.000001ms");
        for low in [0.0, -1.0, f64::NEG_INFINITY, f64::NAN, 1.0] {
            assert_eq!(clipped(low), "10ms");
        }
        for high in [1e9, f64::INFINITY, f64::MAX] {
            assert_eq!(clipped(high), "20ms");
        }
    }

    #[test]
    fn the_table_names_what_it_builds() {
        for kind in &ASSIGNERS {
            assert_eq!((kind.build)().name(), kind.name);
            assert!(RateAssignerKind::named(kind.name).is_some());
        }
        assert!(RateAssignerKind::named("random").is_none());
    }
}
