//! Proactive: learns the period of spikes, and requests time for them just before.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Reservation, Span};

use super::kind::{AdvocateKind, AdvocateParameter, HEADROOM, ParameterUnit};
use super::{Advice, Advocate, with_headroom};
use crate::task::Status;

pub(super) const KIND: AdvocateKind = AdvocateKind {
    name: "proactive",
    about: "learns the period of spikes (garbage collections, key frames) and requests time for one only when it is \
        due",
    parameters: &[
        AdvocateParameter {
            name: "memory",
            about: "how many reports it learns from: at least four times the distance of two spikes",
            measure: ParameterUnit::Count,
            least: 16,
            most: Proactive::LONGEST_MEMORY as u64,
            default: Some(256),
        },
        AdvocateParameter {
            name: "spike",
            about: "how far above the usual a demand is a spike",
            measure: ParameterUnit::Share,
            least: 10_000,
            most: 10_000_000,
            default: Some(300_000),
        },
        HEADROOM,
    ],
    build: |settings| Box::new(Proactive::new(settings[0] as usize, settings[1] as u32, settings[2] as u32)),
};

/// Predicts spikes in demand from the intervals between the last ones: the paper has a similar advocate for the garbage
/// collections of one program (section V-C), with a known period.
///
/// The usual demand is the lower quartile of its memory; reports far enough above it are a spike, several in a row one
/// long spike. When the intervals between spikes are alike, it requests the usual demand until the next spike can be
/// due, then the greatest spike until it has occurred. Before that, and if spikes stop or are random, it is careful: a
/// MaxDecay over a quarter of its memory.
#[derive(Clone, Debug)]
pub struct Proactive {
    spike: u32,
    headroom: u32,
    /// The last demands in nanoseconds, a ring; `next` is the position of the next one.
    ring: Vec<u64>,
    memory: usize,
    next: usize,
    scratch: Vec<u64>,
    forecast: Option<Forecast>,
}

/// The expectation for the next report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forecast {
    demand: u64,
    usual: u64,
    why: ForecastReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForecastReason {
    /// No spikes so far.
    Steady,
    /// Spikes, but no rhythm in them.
    Careful,
    /// The next spike is due in this many reports at the earliest.
    Between { more: usize, shortest: usize, longest: usize },
    /// A spike is due, or has begun.
    Due { shortest: usize, longest: usize },
}

/// The common properties of the spikes in memory.
#[derive(Clone, Copy, Debug, Default)]
struct Spikes {
    count: usize,
    /// Reports since the last one began, 1 if it began with the last report.
    since: usize,
    shortest: usize,
    longest: usize,
    intervals: usize,
    greatest: u64,
    longest_run: usize,
    /// Length of the present spike, 0 between spikes.
    run: usize,
}

impl Proactive {
    /// The most reports in its memory.
    pub const LONGEST_MEMORY: usize = 1_024;
    /// A longer sequence is not a spike but a change of the usual demand.
    const LONGEST_SPIKE: usize = 8;
    /// How many of the latest intervals count: old ones must not widen the expectation for ever.
    const INTERVALS: usize = 12;

    /// With a memory of this many reports; a demand `spike` millionths above the usual is a spike; `headroom` in
    /// millionths of the demand.
    pub fn new(memory: usize, spike: u32, headroom: u32) -> Self {
        let memory = memory.clamp(16, Proactive::LONGEST_MEMORY);
        Proactive { spike, headroom, ring: Vec::new(), memory, next: 0, scratch: Vec::new(), forecast: None }
    }

    fn learn(&mut self, demand: Span) {
        if self.ring.len() < self.memory {
            self.ring.push(demand.as_nanos());
        } else {
            self.ring[self.next] = demand.as_nanos();
        }
        self.next = (self.next + 1) % self.memory;
        self.forecast = Some(self.forecast());
    }

    /// The remembered demands, oldest first.
    fn history(&self) -> impl DoubleEndedIterator<Item = u64> + Clone {
        let (newer, older) = self.ring.split_at(if self.ring.len() < self.memory { 0 } else { self.next });
        older.iter().chain(newer).copied()
    }

    fn forecast(&mut self) -> Forecast {
        let usual = self.usual();
        let above = u128::from(usual) * (1_000_000 + u128::from(self.spike)) / 1_000_000;
        let above = u64::try_from(above).unwrap_or(u64::MAX);
        // The greatest demand that is not a spike: the usual demand varies a little.
        let base = self.history().rev().filter(|demand| *demand <= above).take(16).max().unwrap_or(usual);
        let careful = self.memory / 4;
        let recent = self.history().rev().take(careful).max().unwrap_or(base);
        let spikes = self.spikes(above);
        let is_level = spikes.run > Proactive::LONGEST_SPIKE;
        if spikes.count == 0 || is_level {
            return Forecast { demand: recent.max(base), usual, why: ForecastReason::Steady };
        }
        let spread = spikes.longest - spikes.shortest;
        if spikes.intervals < 2 || spread > spikes.shortest.max(2) {
            return Forecast { demand: recent, usual, why: ForecastReason::Careful };
        }
        // A few intervals do not show how much they can vary.
        let margin = 1 + spread / spikes.intervals.min(4);
        let (shortest, longest) = (spikes.shortest, spikes.longest);
        let soonest = shortest.saturating_sub(margin).max(1);
        if spikes.run > 0 && spikes.run < spikes.longest_run {
            let why = ForecastReason::Due { shortest, longest };
            return Forecast { demand: spikes.greatest.max(base), usual, why };
        }
        if spikes.since < soonest {
            let why = ForecastReason::Between { more: soonest - spikes.since, shortest, longest };
            return Forecast { demand: base, usual, why };
        }
        if spikes.since <= longest + careful {
            let why = ForecastReason::Due { shortest, longest };
            return Forecast { demand: spikes.greatest.max(base), usual, why };
        }
        Forecast { demand: recent.max(base), usual, why: ForecastReason::Careful }
    }

    /// The lower quartile: spikes, even of every third report, do not move it.
    fn usual(&mut self) -> u64 {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.ring);
        if self.scratch.is_empty() {
            return 0;
        }
        let rank = self.scratch.len() / 4;
        *self.scratch.select_nth_unstable(rank).1
    }

    /// Finds the spikes above `above`, newest first, so only the latest intervals count.
    fn spikes(&self, above: u64) -> Spikes {
        let mut found = Spikes::default();
        let mut run = 0; // of the spike that the walk back is in
        let mut later: Option<usize> = None; // age of the spike found before
        let mut demands = self.history().rev().enumerate().peekable();
        while let Some((age, demand)) = demands.next() {
            if demand <= above {
                continue;
            }
            run += 1;
            found.greatest = found.greatest.max(demand);
            if demands.peek().is_some_and(|(_, earlier)| *earlier > above) {
                continue;
            }
            if demands.peek().is_none() && self.ring.len() == self.memory && found.count > 0 {
                break; // memory may have lost how this one began
            }
            // The report at `age` began a spike of `run` reports.
            if found.count == 0 {
                found.since = age + 1;
                found.run = if age + 1 == run { run } else { 0 };
            }
            found.count += 1;
            found.longest_run = found.longest_run.max(run);
            if let Some(later) = later {
                let interval = age - later;
                found.shortest = if found.intervals == 0 { interval } else { found.shortest.min(interval) };
                found.longest = found.longest.max(interval);
                found.intervals += 1;
                if found.intervals == Proactive::INTERVALS {
                    break;
                }
            }
            (later, run) = (Some(age), 0);
        }
        found
    }
}

impl Advocate for Proactive {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if let Some(demand) = status.demand() {
            self.learn(demand);
        }
        let Some(forecast) = self.forecast else { return asked.into() };
        with_headroom(Span::from_nanos(forecast.demand), self.headroom, asked).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(forecast) = self.forecast else { return f.write_str("no report yet") };
        let between = |f: &mut fmt::Formatter<'_>, shortest, longest| match shortest == longest {
            true => write!(f, "spikes occur every {shortest} reports"),
            false => write!(f, "spikes occur every {shortest} to {longest} reports"),
        };
        match forecast.why {
            ForecastReason::Steady => write!(f, "no spikes: usually {:.4}", Span::from_nanos(forecast.usual)),
            ForecastReason::Careful => {
                let demand = Span::from_nanos(forecast.demand);
                write!(f, "spikes without a rhythm: holds {demand:.4}, the greatest recent demand")
            }
            ForecastReason::Between { more, shortest, longest } => {
                between(f, shortest, longest)?;
                write!(f, ": the next in {more} at the earliest")
            }
            ForecastReason::Due { shortest, longest } => {
                between(f, shortest, longest)?;
                write!(f, ": one is due, of up to {:.4}", Span::from_nanos(forecast.demand))
            }
        }
    }
}
