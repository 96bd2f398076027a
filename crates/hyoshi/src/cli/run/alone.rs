//! A run without the feature `orb`: all hosts in one process.

use std::sync::Arc;

use clap::Args;
use hyoshi_events::EventChannel;
use hyoshi_model::{HostId, ProcessorId, System};
use hyoshi_os::{Interrupt, MonotonicClock};
use hyoshi_report::ReportNote;
use hyoshi_runtime::Prepared;
use hyoshi_trace::TraceEvent;

use crate::cli::CliError;

#[derive(Debug, Args)]
pub(in crate::cli) struct HostArguments {}

/// Fails if an event has endpoints for CORBA programs.
pub(super) fn offer_no_events(system: &System) -> Result<(), CliError> {
    match system.events.iter().find(|event| !event.endpoints.is_empty()) {
        None => Ok(()),
        Some(event) => Err(CliError::new(format!("event `{}` has endpoints, but this program has no ORB", event.name))
            .help("build it with the feature `orb` of the crate hyoshi, or remove `endpoints`")),
    }
}

/// The control object of a run: none without `orb`.
#[derive(Default)]
pub(super) struct RunControl {}

impl RunControl {
    pub fn begin(&self, _: MonotonicClock, _: [u8; 16]) {}

    pub fn end(self) -> Option<ReportNote> {
        None
    }
}

/// A node that has joined other hosts: impossible without `orb`.
pub(super) enum JoinedHost {}

impl HostArguments {
    pub fn host(&self, _: &System) -> Result<Option<HostId>, CliError> {
        Ok(None)
    }

    pub fn control(
        &self,
        _: &Arc<System>,
        _: (&EventChannel, &Prepared),
        _: Interrupt,
    ) -> Result<RunControl, CliError> {
        Ok(RunControl {})
    }

    pub fn join(
        &self,
        _: &Arc<System>,
        _: HostId,
        _: &[(ProcessorId, u32)],
        _: &mut Prepared,
        _: &EventChannel,
        _: (Interrupt, bool),
    ) -> Result<JoinedHost, CliError> {
        Err(CliError::new("this program runs all hosts in one process")
            .help("build it with the feature `orb` of the crate hyoshi"))
    }
}

impl JoinedHost {
    pub fn run(&self) -> [u8; 16] {
        match *self {}
    }

    pub fn clock(&self) -> MonotonicClock {
        match *self {}
    }

    pub fn report(&self) {
        match *self {}
    }

    pub fn clocks(&self) -> std::iter::Empty<(ProcessorId, TraceEvent)> {
        match *self {}
    }

    pub fn end(self) -> Vec<ReportNote> {
        match self {}
    }
}
