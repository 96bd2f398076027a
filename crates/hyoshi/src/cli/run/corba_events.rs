//! The events of the file that CORBA programs receive and publish.

use hyoshi_events::EventChannel;
use hyoshi_model::HostId;
use hyoshi_node::CorbaEvents;
use hyoshi_node::corba_events::CorbaEventCounts;
use hyoshi_report::{NoteLevel, ReportNote};

use super::hosts::{JoinedHost, failed};
use crate::cli::CliError;
use crate::cli::notes::note;

/// The events with endpoints, while clients can connect.
pub(super) struct OfferedEvents(CorbaEvents);

impl OfferedEvents {
    /// Serves the events of this host, or of all hosts.
    pub fn serve(
        channel: &EventChannel,
        host: Option<HostId>,
        joined: Option<&JoinedHost>,
    ) -> Result<OfferedEvents, CliError> {
        let tls = joined.and_then(|joined| joined.tls().zip(joined.tls_client()));
        Ok(OfferedEvents(CorbaEvents::serve(channel, host, tls).map_err(failed)?))
    }

    /// What clients can call.
    pub fn served(&self) -> &CorbaEvents {
        &self.0
    }

    /// Disconnects all clients. Returns notes about them for the report.
    pub fn end(self) -> Vec<ReportNote> {
        self.0.end();
        self.0.counts().iter().filter_map(summary).collect()
    }
}

/// The losses and failures of one event; `None` without any.
fn summary(counts: &CorbaEventCounts) -> Option<ReportNote> {
    let CorbaEventCounts { event, lost, failed, disconnected, refused } = counts;
    let counts = [
        (lost, "events lost by slow consumers"),
        (failed, "failed calls of consumers"),
        (disconnected, "consumers disconnected because they did not answer"),
        (refused, "publications refused"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| **count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let text = format!("event {event}, CORBA programs: {}", counts.join(", "));
    (!counts.is_empty()).then(|| note(NoteLevel::Info, "events", text))
}
