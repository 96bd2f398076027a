//! What is proved of a system that is simulated or run, for its report.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use hyoshi_model::System;
use hyoshi_report::Analysis;
use hyoshi_sched::{Plan, Report, analyse};

/// A report waits for an analysis so long.
const PATIENCE: Duration = Duration::from_secs(5);

const LONG: &str = "the analysis needs more than 5 s; `hyoshi check` waits for it";

const NONE: &str = "the analysis failed; run `hyoshi check`";

/// An analysis that goes on while something else is done.
pub(super) struct Analysing {
    report: Receiver<Report>,
}

impl Analysing {
    /// Starts it, on a thread that ends with the process if nobody waits for it.
    pub fn begin(system: &Arc<System>, plan: &Arc<Plan>) -> Analysing {
        let (system, plan) = (system.clone(), plan.clone());
        let (sender, report) = channel();
        let analysis = move || drop(sender.send(analyse(&system, &plan)));
        // Where no thread can be had, the channel closes and there is no analysis.
        drop(thread::Builder::new().name("analysis".into()).spawn(analysis));
        Analysing { report }
    }

    /// Waits for it, but not for long.
    pub fn end(self) -> AnalysisResult {
        AnalysisResult(self.report.recv_timeout(PATIENCE))
    }
}

/// What it found, if it was quick enough.
pub(super) struct AnalysisResult(Result<Report, RecvTimeoutError>);

impl AnalysisResult {
    pub fn analysis(&self) -> Analysis<'_> {
        match &self.0 {
            Ok(report) => Analysis::Done(report),
            Err(RecvTimeoutError::Timeout) => Analysis::LeftOut(LONG),
            Err(RecvTimeoutError::Disconnected) => Analysis::LeftOut(NONE),
        }
    }
}
