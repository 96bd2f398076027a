//! Advocates that change nothing and report to the outside: a log, and system conditions.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::Reservation;

use super::kind::{AdvocateKind, AdvocateParameter, ParameterUnit};
use super::{Advice, Advocate, Emission};
use crate::task::Status;

pub(super) const LOG: AdvocateKind = AdvocateKind {
    name: "log",
    about: "writes status and request to the task's log file and passes both on",
    parameters: &[AdvocateParameter {
        name: "every",
        about: "writes one report of this many",
        measure: ParameterUnit::Count,
        least: 1,
        most: 1_000_000,
        default: Some(1),
    }],
    build: |settings| Box::new(LogAdvocate::new(settings[0])),
};

pub(super) const CONDITIONS: AdvocateKind = AdvocateKind {
    name: "conditions",
    about: "keeps status and request as system conditions for contracts and passes both on",
    parameters: &[],
    build: |_| Box::new(Conditions),
};

/// Emits a record of every n-th report; the caller of the arbiter writes the file.
#[derive(Clone, Copy, Debug)]
pub struct LogAdvocate {
    every: u64,
    reports: u64,
}

impl LogAdvocate {
    /// One of `every` reports, starting with the first.
    pub fn new(every: u64) -> Self {
        LogAdvocate { every: every.max(1), reports: 0 }
    }
}

impl Advocate for LogAdvocate {
    fn name(&self) -> &'static str {
        LOG.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if status.cycles == 0 {
            return asked.into();
        }
        let writes = self.reports.is_multiple_of(self.every);
        self.reports += 1;
        Advice { ask: asked, emitted: writes.then_some(Emission::Log { position: 0, status: *status, asked }) }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has written {} of {} reports", self.reports.div_ceil(self.every), self.reports)
    }
}

/// Emits status and request of every report, as the paper's advocate for QuO's system conditions does.
#[derive(Clone, Copy, Debug)]
pub struct Conditions;

impl Advocate for Conditions {
    fn name(&self) -> &'static str {
        CONDITIONS.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        Advice { ask: asked, emitted: Some(Emission::Conditions { position: 0, status: *status, asked }) }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("passes status and request to contracts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::{Instant, Span};

    #[test]
    fn a_log_writes_one_report_of_so_many() {
        let asked = Reservation::new(Span::from_millis(10), Span::from_millis(100)).unwrap();
        let mut log = LogAdvocate::new(3);
        let mut written = |status: Status| log.advise(&status, asked).emitted.is_some();
        let report = Status::of_cycle(Instant::ZERO, Span::ZERO);
        assert!(written(report) && !written(report) && !written(report) && written(report));
        assert!(!written(Status::overdue(Instant::ZERO, Span::ZERO)));
        assert_eq!(alloc::format!("{}", super::super::Words(&log)), "has written 2 of 4 reports");
    }
}
