//! The content of a report. The terminal, JSON and HTML all derive from an [`ReportInput`], and therefore agree.

use std::cmp::Reverse;

use hyoshi_control::feedback::GroupSteps;
use hyoshi_model::{HostId, Span, System};
use hyoshi_replay::Figures;
use hyoshi_replay::timeline::TimelineWindow;
use hyoshi_sched::{Plan, Report};
use hyoshi_trace::stats::Queueing;
use serde::Serialize;

use crate::programs::ProgramSummary;

/// A run or simulation: its input, and what was observed.
#[derive(Clone, Debug)]
pub struct ReportInput<'a> {
    /// What was done: `sim` or `run`.
    pub verb: &'a str,
    /// The command line, to do it again.
    pub command: String,
    /// The system's file as the user named it.
    pub file: &'a str,
    /// The text of that file.
    pub source: &'a str,
    /// The system, with whatever the command line changed in it.
    pub system: &'a System,
    /// The only host that ran or was recorded; `None` for all. Operations of other hosts are not listed.
    pub host: Option<HostId>,
    /// How its processors ordered their work.
    pub plan: &'a Plan,
    /// The observed figures.
    pub figures: Figures<'a>,
    /// The analysis, for comparison with the observed figures.
    pub analysis: Analysis<'a>,
    /// The measured cost of queueing on each processor, in their order; empty if not measured.
    pub queueing: Vec<Queueing>,
    /// How often the coordinator of each group of feedback loops has decided; empty if not known, as from a recording.
    pub groups: Vec<GroupSteps>,
    /// The utilisation of all CPUs of the machine during a run, in parts per million; `None` if not measured.
    pub machine_ppm: Option<u32>,
    /// How long it ran: virtual time in a simulation.
    pub duration: Span,
    /// The requested duration.
    pub asked: Span,
    /// Whether the user ended it before.
    pub interrupted: bool,
    /// Its duration by the wall clock.
    pub took: Span,
    /// When it started, in nanoseconds since 1970; `None` keeps it out, for output that can be compared.
    pub started_unix_ns: Option<u64>,
    /// The names of other threads, by the numbers that the figures use.
    pub threads: &'a [String],
    /// Events that were lost, because a ring was full.
    pub lost_events: u64,
    /// Notes: privileges that were not granted, warnings.
    pub notes: Vec<ReportNote>,
    /// Programs under the CPU broker, in the file's order.
    pub programs: Vec<ProgramSummary>,
}

/// The result of an analysis.
#[derive(Clone, Copy, Debug)]
pub enum Analysis<'a> {
    /// Its report.
    Done(&'a Report),
    /// None, for this reason.
    LeftOut(&'a str),
}

/// Information that qualifies the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportNote {
    /// How much it matters.
    pub level: NoteLevel,
    /// The topic, such as `real-time priority`.
    pub topic: String,
    /// The information.
    pub text: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl ReportNote {
    /// Notes, the most important first. What the machine does for every run is last: a verdict can refer to another
    /// one.
    pub(crate) fn sorted(notes: &[ReportNote]) -> Vec<&ReportNote> {
        let mut sorted: Vec<&ReportNote> = notes.iter().collect();
        let is_usual = |topic: &str| ["costs", "idle states", "switches"].contains(&topic);
        sorted.sort_by_key(|note| (Reverse(note.level), is_usual(&note.topic)));
        sorted
    }
}

/// The topic of releases in a recording that are later than declared: a proof assumes that there are none.
pub const LATE_RELEASES: &str = "late releases";

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteLevel {
    /// Worth knowing.
    Info,
    /// The figures are worse or less precise than possible, and the user can change that.
    Degraded,
    /// A request was not granted.
    Refused,
    /// The run ended with an error.
    Failed,
}

/// Whether a run or simulation met the requirements of its file.
///
/// It *holds* if every critical job met its deadline and every chain its requirements, as far as
/// was seen: an observation, not a proof. A critical job that was stopped or dropped met no
/// deadline. If nothing is critical and there is no chain, every operation counts. When events
/// were lost it does not hold, because their content is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunVerdict {
    /// Whether it holds; the exit code is 0 or 1 accordingly.
    pub holds: bool,
    /// In one sentence.
    #[serde(rename = "verdict")]
    pub sentence: String,
    /// Each requirement that was not met.
    pub reasons: Vec<String>,
}

impl ReportInput<'_> {
    /// Windows to draw.
    pub(crate) fn windows(&self) -> &[TimelineWindow] {
        self.figures.causes.map_or(&[], |causes| &causes.windows)
    }
}
