//! Unmodified programs beside the operations: each has a reservation of the CPU broker.
//!
//! The model stores advocates and policies as written; the broker's laws define their meaning.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::execution_time::ExecutionTime;
use crate::ids::HostId;
use crate::reservation::{Reservation, Share};
use crate::time::{Instant, Span};

/// The CPU broker's part of a system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brokered {
    /// One for each host; empty for hosts without programs.
    pub brokers: Vec<Broker>,
    /// In the file's order.
    pub programs: Vec<Program>,
}

/// The CPU broker of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// How programs share the CPU, such as `fair`.
    pub policy: String,
    /// The limit of all reservations together.
    pub cap: Share,
    /// The Linux CPUs that it reserves time on, at least one, in order.
    pub cpus: Vec<u32>,
}

/// A program under the CPU broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name in the file: letters, digits, `-` and `_`.
    pub name: String,
    /// Where it runs.
    pub host: HostId,
    /// The program and its arguments, at least one word.
    pub words: Vec<String>,
    /// The period of its work.
    pub period: Span,
    /// The deadline of its budget within each period; at most the period.
    pub deadline: Span,
    /// The budget that it requests before any measurement.
    pub budget: Option<Span>,
    /// The least useful budget in each period.
    pub least: Option<Span>,
    /// For policies fair and strict: larger is more.
    pub importance: u32,
    /// For policy weighted: a larger weight loses less.
    pub weight: u32,
    /// Its group, for policy partition; empty for the first.
    pub group: String,
    /// Its advocates, in their order; empty for the broker's default.
    pub advocates: Vec<AdvocateWords>,
    /// The actual execution times of its cycles, each with the instant from which it applies, in the order of time;
    /// none before the first.
    pub execution_times: Vec<(Instant, ExecutionTime)>,
}

/// A setting of a program at the CPU broker that regions of contracts change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationSetting {
    /// Its importance.
    Importance,
    /// Its weight.
    Weight,
    /// Its least useful budget, in nanoseconds.
    Least,
    /// The share of its advocate `rate`, in millionths of a CPU.
    Rate,
    /// The share of its advocate `cap`, in millionths of a CPU.
    Cap,
    /// The share of its advocate `floor`, in millionths of a CPU.
    Floor,
}

impl ReservationSetting {
    /// All, in the order of the variants.
    pub const ALL: [ReservationSetting; 6] = [
        ReservationSetting::Importance,
        ReservationSetting::Weight,
        ReservationSetting::Least,
        ReservationSetting::Rate,
        ReservationSetting::Cap,
        ReservationSetting::Floor,
    ];

    /// Its key in files; for an advocate the name of its kind.
    pub const fn key(self) -> &'static str {
        match self {
            ReservationSetting::Importance => "importance",
            ReservationSetting::Weight => "weight",
            ReservationSetting::Least => "least",
            ReservationSetting::Rate => "rate",
            ReservationSetting::Cap => "cap",
            ReservationSetting::Floor => "floor",
        }
    }

    /// The setting with this key.
    pub fn of_key(key: &str) -> Option<ReservationSetting> {
        ReservationSetting::ALL.into_iter().find(|one| one.key() == key)
    }

    /// Whether it is the share of an advocate.
    pub const fn is_advocate(self) -> bool {
        matches!(self, ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor)
    }

    /// Whether the file's value is the greatest one, so that the proofs of `check` hold.
    pub const fn is_bounded(self) -> bool {
        self.is_advocate() || matches!(self, ReservationSetting::Least)
    }

    /// The file's value; `None` if the program has no such key, or not exactly one such advocate.
    pub fn declared(self, program: &Program) -> Option<u64> {
        match self {
            ReservationSetting::Importance => Some(program.importance.into()),
            ReservationSetting::Weight => Some(program.weight.into()),
            ReservationSetting::Least => program.least.map(Span::as_nanos),
            ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor => {
                let mut advocates = program.advocates.iter().filter(|one| one.kind == self.key());
                let only = advocates.next().filter(|_| advocates.next().is_none())?;
                let [(_, share)] = only.parameters.as_slice() else { return None };
                Some(share.parse::<Share>().ok()?.as_millionths())
            }
        }
    }

    /// A value as in files: `9`, `2ms`, `40%`.
    pub fn text(self, to: u64) -> String {
        match self {
            ReservationSetting::Importance | ReservationSetting::Weight => to.to_string(),
            ReservationSetting::Least => Span::from_nanos(to).to_string(),
            ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor => {
                Share::from_millionths(to).to_string()
            }
        }
    }
}

/// An advocate as written, words separated by dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvocateWords {
    /// Its kind, such as `max-decay`.
    pub kind: String,
    /// Names and values; an empty name means the kind's first parameter.
    pub parameters: Vec<(String, String)>,
}

impl Program {
    /// Its request before its advocates know its demand: its budget, or almost nothing, as the paper's reservations
    /// begin.
    pub fn declared(&self) -> Option<Reservation> {
        let next_to_nothing = Span::from_nanos((self.period.as_nanos() / 1_000).max(1));
        let budget = self.budget.unwrap_or(next_to_nothing.min(self.deadline));
        Reservation::new(budget, self.period).ok()?.within(self.deadline).ok()
    }

    /// The least useful budget, as a share.
    pub fn least_share(&self) -> Share {
        let least = self.least.and_then(|least| Reservation::new(least, self.period).ok());
        least.map_or(Share::ZERO, Reservation::share)
    }

    /// The execution time of its cycles at `now`; `None`: it does nothing.
    pub fn execution_time_at(&self, now: Instant) -> Option<&ExecutionTime> {
        let begun = self.execution_times.partition_point(|(from, _)| *from <= now);
        self.execution_times[..begun].last().map(|(_, takes)| takes)
    }

    /// The longest execution time of its cycles, if known.
    pub fn longest(&self) -> Option<Span> {
        self.execution_times.iter().map(|(_, takes)| takes.longest()).max()
    }
}
