//! Reports of a run or simulation: tables for the terminal, a live table, JSON, and one self-contained HTML file.
//!
//! All of them derive from one [`ReportInput`], through its [`Summary`], and therefore agree.
//!
//! ```
//! use hyoshi_model::{Instant, Span, read};
//! use hyoshi_report::{ReportInput, Analysis};
//! use hyoshi_sched::{Plan, Strategies};
//! use hyoshi_replay::Observer;
//!
//! let text = "name = 'one'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\n";
//! let system = read(text, "one.toml", None).unwrap().system;
//! let plan = Plan::new(&system, &Strategies::default()).unwrap();
//! let mut observer = Observer::new(&system); // a simulation would feed it
//! let account = ReportInput {
//!     verb: "sim",
//!     command: "hyoshi sim one.toml".into(),
//!     file: "one.toml",
//!     source: text,
//!     system: &system,
//!     host: None,
//!     plan: &plan,
//!     figures: observer.figures(Instant::ZERO + Span::from_secs(1)),
//!     analysis: Analysis::LeftOut("not requested"),
//!     queueing: Vec::new(),
//!     groups: Vec::new(),
//!     machine_ppm: None,
//!     duration: Span::from_secs(1),
//!     asked: Span::from_secs(1),
//!     interrupted: false,
//!     took: Span::from_millis(3),
//!     started_unix_ns: None,
//!     threads: &[],
//!     lost_events: 0,
//!     notes: Vec::new(),
//!     programs: Vec::new(),
//! };
//! let summary = account.summary();
//! assert!(summary.verdict.holds);
//! assert!(summary.json().contains("\"schema\": 3"));
//! ```

#![forbid(unsafe_code)]

pub mod blamed;
mod bounds;
mod causes;
pub mod chart;
pub mod check;
pub mod contracts;
mod exceeded;
pub mod feedback;
pub mod figures;
pub mod file;
mod gather;
pub mod html;
pub mod input;
mod json;
pub mod lateness;
pub mod live;
pub mod names;
pub mod programs;
pub mod stages;
pub mod summary;
pub mod terminal;
pub mod time;
mod verdict;

pub use check::{Checked, CounterexampleSummary};
pub use feedback::FeedbackSummary;
pub use file::{SaveError, save};
pub use input::{Analysis, LATE_RELEASES, NoteLevel, ReportInput, ReportNote, RunVerdict};
pub use live::LiveTable;
pub use programs::{ProgramStretch, ProgramSummary};
pub use summary::Summary;
pub use terminal::{ColourChoice, Detail, TerminalStyle};
