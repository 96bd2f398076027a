//! Analyses a system beside its simulation or after its run, for the report.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use hyoshi_model::System;
use hyoshi_report::Analysis;
use hyoshi_sched::{Plan, Report, analyse};

/// How long a report waits for an analysis.
const PATIENCE: Duration = Duration::from_secs(5);

const LONG: &str = "the analysis needs more than 5 s; `hyoshi check` waits for it";

const NONE: &str = "the analysis failed; run `hyoshi check`";

/// An analysis in the background.
pub(super) struct Analysing {
    report: Receiver<Report>,
}

impl Analysing {
    /// Starts it on a thread, which ends with the process at the latest.
    pub fn begin(system: &Arc<System>, plan: &Arc<Plan>) -> Analysing {
        let (system, plan) = (system.clone(), plan.clone());
        let (sender, report) = channel();
        let analysis = move || drop(sender.send(analyse(&system, &plan)));
        // Without a thread the channel closes, and there is no analysis.
        drop(thread::Builder::new().name("analysis".into()).spawn(analysis));
        Analysing { report }
    }

    /// Waits for it, up to the limit.
    pub fn end(self) -> AnalysisResult {
        AnalysisResult(self.report.recv_timeout(PATIENCE))
    }
}

/// The report of the analysis, if it was fast enough.
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
