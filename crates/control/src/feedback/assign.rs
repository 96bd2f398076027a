//! From a total estimated utilisation to the rate of each task.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::Span;
use hyoshi_model::time::LONGEST_SPAN;

use super::proportional::Proportional;
use super::value::ByValue;

/// A task with an adjustable rate (FCS/nORB, section 2.1): an operation that is released by time, a client's requests,
/// or a supplier's events.
///
/// Its deadline equals its period. For aperiodic requests (footnote 1) the period is the least time between two of
/// them, which the client's rate modulator enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveTask {
    estimate: Span,
    shortest: Span,
    longest: Span,
    value: u32,
}

/// Why a task is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptiveTaskError {
    /// An estimate of 0, or above [`LONGEST_SPAN`].
    Estimate(Span),
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
        }
    }
}

impl core::error::Error for AdaptiveTaskError {}

impl AdaptiveTaskError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            AdaptiveTaskError::Estimate(_) => "use a time above 0, at most ten years",
            AdaptiveTaskError::Range { .. } => "use periods above 0, at most ten years, the shortest first",
        }
    }
}

impl AdaptiveTask {
    pub(super) const PLACEHOLDER: AdaptiveTask = AdaptiveTask {
        estimate: Span::from_nanos(1),
        shortest: Span::from_nanos(1),
        longest: Span::from_nanos(1),
        value: 0,
    };

    /// A task that is estimated to run for `estimate` per job, with periods from `shortest` to `longest`. `value` is
    /// the worth of one job to the application; only [`ByValue`] uses it.
    pub const fn new(
        estimate: Span,
        shortest: Span,
        longest: Span,
        value: u32,
    ) -> Result<AdaptiveTask, AdaptiveTaskError> {
        let most = LONGEST_SPAN.as_nanos();
        if estimate.is_zero() || estimate.as_nanos() > most {
            return Err(AdaptiveTaskError::Estimate(estimate));
        }
        if shortest.is_zero() || shortest.as_nanos() > longest.as_nanos() || longest.as_nanos() > most {
            return Err(AdaptiveTaskError::Range { shortest, longest });
        }
        Ok(AdaptiveTask { estimate, shortest, longest, value })
    }

    /// EE, the estimated execution time of one job.
    pub const fn estimate(&self) -> Span {
        self.estimate
    }

    /// The period at the highest rate.
    pub const fn shortest(&self) -> Span {
        self.shortest
    }

    /// The period at the lowest rate.
    pub const fn longest(&self) -> Span {
        self.longest
    }

    /// The worth of one job.
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// The estimated utilisation with this period, which is above 0: EE / period, 1 is one CPU.
    pub fn utilisation(&self, period: Span) -> f64 {
        self.estimate.as_nanos() as f64 / period.as_nanos() as f64
    }

    /// The estimated utilisation at the lowest rate.
    pub fn least(&self) -> f64 {
        self.utilisation(self.longest)
    }

    /// The estimated utilisation at the highest rate.
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

    /// Writes the periods for this total. `tasks` are those of the last restart, `periods` has one place for each.
    /// Does not allocate.
    fn assign(&self, tasks: &[AdaptiveTask], total: f64, periods: &mut [Span]);
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
        about: "raises the tasks with the most value per execution time first, from the lowest rates",
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
