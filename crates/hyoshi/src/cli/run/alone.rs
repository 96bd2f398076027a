//! A run without the feature `orb`: all hosts in one process.

use std::sync::Arc;

use clap::Args;
use hyoshi_events::EventChannel;
use hyoshi_model::{HostId, ProcessorId, System};
use hyoshi_os::{Interrupt, MonotonicClock};
use hyoshi_report::ReportNote;
use hyoshi_runtime::{Prepared, RunHandles};
use hyoshi_trace::TraceEvent;

use crate::cli::CliError;

#[derive(Debug, Args)]
pub(in crate::cli) struct HostArguments {}

/// Fails if an event has endpoints for CORBA programs, or a delegate is a proxy.
pub(super) fn needs_no_orb(system: &System) -> Result<(), CliError> {
    let event = system.events.iter().find(|event| !event.endpoints.is_empty());
    let event = event.map(|event| format!("event `{}` has endpoints", event.name));
    let proxy = system.delegates.iter().find(|delegate| delegate.object().is_none());
    let proxy = proxy.map(|delegate| format!("delegate `{}` is a proxy", delegate.name));
    match event.or(proxy) {
        None => Ok(()),
        Some(what) => Err(CliError::new(format!("{what}, but this program has no ORB"))
            .help("build it with the feature `orb` of the crate hyoshi")),
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
        _: (&EventChannel, &RunHandles),
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
