//! Writes every job as a line of CSV, in integer nanoseconds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hyoshi_model::Instant;
use hyoshi_trace::{DispatchDecision, JobEnd, TraceEvent};
use serde::Serialize;

use super::CliError;
use super::load::LoadedSystem;
use super::output::{cannot_write, open};

/// Its name in errors.
const WHAT: &str = "the list of jobs";

/// A CSV file of jobs, in the order in which they ended.
pub(super) struct Jobs<W: Write> {
    path: PathBuf,
    csv: csv::Writer<W>,
    names: Vec<String>,
    processors: Vec<String>,
}

/// One line. Fields are empty for instants that the job did not reach.
#[derive(Serialize)]
struct JobRow<'a> {
    operation: &'a str,
    number: u64,
    leg: u16,
    processor: &'a str,
    critical: bool,
    epoch: u16,
    outcome: hyoshi_trace::JobOutcome,
    origin_ns: u64,
    release_ns: u64,
    ready_ns: Option<u64>,
    start_ns: Option<u64>,
    end_ns: u64,
    deadline_ns: u64,
    consumed_ns: u64,
    lateness_ns: i64,
}

impl Jobs<BufWriter<File>> {
    pub fn create(path: &Path, ready: &LoadedSystem) -> Result<Self, CliError> {
        let file = open(path, &ready.file, WHAT)?;
        // Devices and pipes have no length to set.
        drop(file.set_len(0));
        let system = &ready.system;
        Ok(Jobs {
            path: path.into(),
            csv: csv::Writer::from_writer(BufWriter::with_capacity(1 << 20, file)),
            names: system.operations.iter().map(|operation| operation.name.clone()).collect(),
            processors: system.operations.iter().map(|operation| system.processor(operation.on).name.clone()).collect(),
        })
    }
}

impl<W: Write> Jobs<W> {
    /// Writes a line if a job has ended.
    pub fn event(&mut self, event: &TraceEvent) -> Result<(), CliError> {
        let TraceEvent::Decision(DispatchDecision::End(end)) = event else { return Ok(()) };
        let line = line(end, &self.names, &self.processors);
        self.csv.serialize(line).map_err(|error| cannot_write(WHAT, &self.path, &error.into()))
    }

    pub fn finish(mut self) -> Result<(), CliError> {
        self.csv.flush().map_err(|error| cannot_write(WHAT, &self.path, &error))
    }
}

fn line<'a>(end: &JobEnd, names: &'a [String], processors: &'a [String]) -> JobRow<'a> {
    let operation = end.job.operation.index();
    let happened = |instant: Instant| (instant != Instant::NEVER).then(|| instant.as_nanos());
    JobRow {
        operation: names.get(operation).map_or("", String::as_str),
        number: end.job.number,
        leg: end.job.leg,
        processor: processors.get(operation).map_or("", String::as_str),
        critical: end.critical,
        epoch: end.epoch,
        outcome: end.outcome,
        origin_ns: end.origin.as_nanos(),
        release_ns: end.release.as_nanos(),
        ready_ns: happened(end.ready),
        start_ns: happened(end.start),
        end_ns: end.end.as_nanos(),
        deadline_ns: end.deadline.as_nanos(),
        consumed_ns: end.consumed.as_nanos(),
        lateness_ns: end.end.lateness(end.deadline).as_nanos(),
    }
}
