//! Everything that a report tells, from one place: the terminal, JSON and HTML all derive from an
//! [`ReportInput`], so that they cannot disagree.

use hyoshi_model::{Span, System};
use hyoshi_replay::Figures;
use hyoshi_replay::timeline::TimelineWindow;
use hyoshi_sched::{Plan, Report};
use hyoshi_trace::stats::Queueing;
use serde::Serialize;

use crate::programs::ProgramSummary;

/// What was done, with what, and what was seen.
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
    /// How its processors ordered their work.
    pub plan: &'a Plan,
    /// What was observed of it.
    pub figures: Figures<'a>,
    /// What is proved of it, to stand beside what was seen.
    pub analysis: Analysis<'a>,
    /// What queueing cost on each processor, in their order, if that was measured; empty if not.
    pub queueing: Vec<Queueing>,
    /// How long it ran: virtual time in a simulation.
    pub duration: Span,
    /// How long it was to run.
    pub asked: Span,
    /// Whether the user ended it before.
    pub interrupted: bool,
    /// How long it took by the wall clock.
    pub took: Span,
    /// When it started, in nanoseconds since 1970; `None` keeps it out, for output that can be compared.
    pub started_unix_ns: Option<u64>,
    /// The names of other threads, by the numbers that the figures use.
    pub threads: &'a [String],
    /// Events that were seen by nobody, because a ring was full.
    pub lost_events: u64,
    /// What else a reader must know: privileges that were not granted, warnings.
    pub notes: Vec<ReportNote>,
    /// What became of programs under the CPU broker, in the file's order.
    pub programs: Vec<ProgramSummary>,
}

/// What an analysis says of the system.
#[derive(Clone, Copy, Debug)]
pub enum Analysis<'a> {
    /// This.
    Done(&'a Report),
    /// Nothing, for this reason.
    LeftOut(&'a str),
}

/// Something that a reader must know to judge the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportNote {
    /// How much it matters.
    pub level: NoteLevel,
    /// What it is about, such as `real-time priority`.
    pub topic: String,
    /// What is so.
    pub text: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// The topic of releases that a simulation of a recording takes from it, later than declared: a
/// proof assumes that there are none.
pub const LATE_RELEASES: &str = "late releases";

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteLevel {
    /// Worth knowing.
    Info,
    /// The figures are worse than they could be, or say less, and the user can do something about it.
    Degraded,
    /// Something was asked for and not granted.
    Refused,
    /// The run ended with an error.
    Failed,
}

/// What a run or simulation says of the requirements of its file.
///
/// It *holds* if every critical job met its deadline and every chain its requirements, as far as
/// was seen: an observation, not a proof. A critical job that was stopped or dropped met no
/// deadline. If nothing is critical and there is no chain, every operation counts. When events
/// were lost it does not hold, because what they said is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunVerdict {
    /// Whether it holds; the exit code is 0 or 1 accordingly.
    pub holds: bool,
    /// In one sentence.
    #[serde(rename = "verdict")]
    pub sentence: String,
    /// Each thing that was not kept.
    pub reasons: Vec<String>,
}

impl ReportInput<'_> {
    /// Windows to draw.
    pub(crate) fn windows(&self) -> &[TimelineWindow] {
        self.figures.causes.map_or(&[], |causes| &causes.windows)
    }
}
