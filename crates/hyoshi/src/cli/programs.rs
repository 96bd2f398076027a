//! Programs under the CPU broker, for reports.

use hyoshi_control::file::has_external_advocate;
use hyoshi_model::{Instant, Program, ProgramId, Span, System};
use hyoshi_report::{NoteLevel, ProgramStretch, ProgramSummary, ReportNote};
use hyoshi_sim::programs::{PeriodSums, ProgramResults};

use super::notes::note;

#[cfg(feature = "broker")]
mod asked;
#[cfg(feature = "broker")]
mod guard;
#[cfg(feature = "broker")]
mod shared;
#[cfg(feature = "broker")]
mod started;

#[cfg(feature = "broker")]
pub(super) use guard::watch;
#[cfg(feature = "broker")]
pub(super) use shared::SharedBroker;
#[cfg(feature = "broker")]
pub(super) use started::RunningPrograms;

/// The outcome of a run's programs.
#[derive(Default)]
pub(super) struct ProgramsOutcome {
    /// In the file's order.
    pub summaries: Vec<ProgramSummary>,
    /// Notes on them.
    pub notes: Vec<ReportNote>,
    /// Whether one ended by itself with an error.
    pub failed: bool,
}

/// Notes on programs in a simulation.
pub(super) fn notes(system: &System) -> Vec<ReportNote> {
    let of = |which: &dyn Fn(&Program) -> bool| {
        let names =
            system.brokered.programs.iter().filter(|program| which(program)).map(|program| program.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let note_on = |names: String, text: &str, remedy: &str| {
        let remedy = Some(remedy.to_owned());
        (!names.is_empty())
            .then(|| ReportNote { remedy, ..note(NoteLevel::Info, "reservations", format!("{text}: {names}")) })
    };
    let idle = of(&|program| program.execution_times.is_empty());
    let external = of(&has_external_advocate);
    let all = [
        note_on(
            idle,
            "programs without declared execution times are idle in a simulation",
            "set `takes` in their sections",
        ),
        note_on(
            external,
            "advocates in other processes and libraries are skipped in a simulation",
            "`hyoshi run` uses them",
        ),
    ];
    all.into_iter().flatten().collect()
}

/// The summary of a program in a simulation.
pub(super) fn played(system: &System, played: &ProgramResults) -> ProgramSummary {
    let all = &played.all;
    let consumed = all.consumed.as_nanos();
    let over = u128::from(all.over.as_nanos()) * 1_000_000 / u128::from(consumed.max(1));
    ProgramSummary {
        periods: all.periods,
        met: Some(all.met),
        missed: Some(all.missed),
        cut: all.cut,
        asked_ns: mean(all.asked, all),
        held_ns: mean(all.held, all),
        consumed_ns: mean(all.consumed, all),
        over_ppm: (consumed > 0).then(|| u64::try_from(over).unwrap_or(u64::MAX)),
        over_time: played
            .stretches
            .iter()
            .map(|stretch| ProgramStretch {
                at_ns: stretch.at.since(Instant::ZERO).as_nanos(),
                until_ns: stretch.until.since(Instant::ZERO).as_nanos(),
                periods: stretch.sums.periods,
                missed: Some(stretch.sums.missed),
                asked_ns: mean(stretch.sums.asked, &stretch.sums),
                held_ns: mean(stretch.sums.held, &stretch.sums),
                consumed_ns: mean(stretch.sums.consumed, &stretch.sums),
            })
            .collect(),
        ..ProgramSummary::of(system, ProgramId(played.program.0))
    }
}

fn mean(sum: Span, of: &PeriodSums) -> u64 {
    sum.as_nanos() / of.periods.max(1)
}
