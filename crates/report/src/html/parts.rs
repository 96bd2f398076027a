//! The operations of each processor, instances of a template together, and the worst that happened to their jobs.

use hyoshi_model::{OperationId, ProcessorId};
use hyoshi_trace::Counts;

use crate::figures::count;
use crate::input::ReportInput;
use crate::names;

/// The worst that happened to some jobs, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// No job ended.
    Idle,
    /// All were in time.
    Made,
    /// Some were cancelled, stopped or dropped.
    Lost,
    /// Some finished after their deadlines.
    Missed,
}

impl State {
    /// The states that have a colour: the class of the style sheet, a sign and words.
    pub const SHOWN: [(State, &'static str); 3] = [
        (State::Made, "in time"),
        (State::Missed, "late: after the deadline"),
        (State::Lost, "not finished: cancelled, stopped or dropped"),
    ];

    pub const fn class(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Made => "made",
            State::Lost => "lost",
            State::Missed => "missed",
        }
    }

    pub const fn sign(self) -> &'static str {
        match self {
            State::Idle => "",
            State::Made => "✓",
            State::Lost => "×",
            State::Missed => "▲",
        }
    }

    pub fn of(made: u64, lost: u64, missed: u64) -> State {
        match () {
            () if missed > 0 => State::Missed,
            () if lost > 0 => State::Lost,
            () if made > 0 => State::Made,
            () => State::Idle,
        }
    }
}

/// One operation, or the instances of a template on one processor.
pub(super) struct Part {
    pub processor: ProcessorId,
    pub operations: Vec<OperationId>,
    pub label: String,
    pub critical: bool,
    pub released: u64,
    pub missed: u64,
    pub lost: u64,
}

impl Part {
    pub fn state(&self) -> State {
        State::of(self.released - self.missed - self.lost, self.lost, self.missed)
    }

    /// What happened, in a few words.
    pub fn words(&self) -> String {
        let (released, state) = (count(self.released), self.state());
        let sign = state.sign();
        match state {
            State::Idle => "no jobs".into(),
            State::Made => format!("{sign} all {released} in time"),
            State::Lost => format!("{sign} {} not finished", count(self.lost)),
            State::Missed => format!("{sign} {} of {released} late", count(self.missed)),
        }
    }
}

/// All of them, by processor and then in the system's order.
pub(super) fn parts(account: &ReportInput<'_>) -> Vec<Part> {
    let (system, stats) = (account.system, account.figures.stats);
    let of = |processor: ProcessorId| {
        names::groups(system, system.operations_on(processor)).into_iter().map(move |group| {
            let rows = || group.operations.iter().flat_map(|id| stats.rows_of(*id));
            let mut counts = Counts::default();
            rows().for_each(|row| counts += &stats.row_counts(row));
            let (released, missed) = (counts.released(), counts.missed());
            Part {
                processor,
                label: names::label(&group.name, group.operations.len()),
                critical: rows().any(|row| row.critical()),
                released,
                missed,
                lost: released - missed - counts.made(),
                operations: group.operations,
            }
        })
    };
    system.processor_ids().flat_map(of).collect()
}

/// At most `most` of them in their order: the `first` ones, late critical ones, late ones, critical ones. How many are
/// left out.
pub(super) fn chosen(mut parts: Vec<Part>, most: usize, first: impl Fn(&Part) -> bool) -> (Vec<Part>, usize) {
    let all = parts.len();
    if all > most {
        let rank = |part: &Part| (!first(part), std::cmp::Reverse((part.state() > State::Made, part.critical)));
        let mut ranks: Vec<_> = parts.iter().map(rank).enumerate().map(|(place, rank)| (rank, place)).collect();
        ranks.sort();
        let mut keep = vec![false; all];
        ranks.iter().take(most).for_each(|(_, place)| keep[*place] = true);
        let mut keep = keep.into_iter();
        parts.retain(|_| keep.next().unwrap_or(false));
    }
    (parts, all.saturating_sub(most))
}
